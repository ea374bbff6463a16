/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that the session keeps with the owner. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "kernels/mod/mod.h"

static_assert(MASK_MAX_NAME == MOD_MAX_NAME && WIRE_MAX_INDEXES == PAGED_MAX_INDEXES, "arrays as the wire has them");

/* Goes through an array's elements, row-major. */
struct walk {
	const uint8_t *at; /* element [index] */
	uint32_t n_dims;
	uint32_t extents[PAGED_MAX_INDEXES];
	int64_t strides[PAGED_MAX_INDEXES]; /* bytes */
	uint32_t index[PAGED_MAX_INDEXES];
	uint32_t size; /* of an element, bytes */
};

static enum paged_status
walk_begin(struct walk *walk, const struct paged_array *array, uint64_t n_bytes, struct paged_error *error)
{
	bool dense = true;

	*walk = (struct walk){ .at = array->data, .n_dims = array->n_dims };
	walk->size = mod_dtype_size((enum mod_dtype)array->dtype);
	for (uint32_t i = 0; i < array->n_dims; i++) {
		walk->extents[i] = array->extents[i];
		dense = dense && array->strides[i] == 0;
		if (__builtin_mul_overflow(array->strides[i], (int64_t)walk->size, &walk->strides[i]))
			return paged_fail(error, PAGED_ERR_LIMIT, "array %s: strides past 2^63 bytes", array->name);
	}
	/* Its bytes were counted, so these cannot overflow; where there are none, nothing steps by them. */
	for (uint32_t i = array->n_dims; dense && n_bytes != 0 && i-- > 0;)
		walk->strides[i] = i + 1 == array->n_dims ? walk->size : walk->strides[i + 1] * walk->extents[i + 1];
	return PAGED_OK;
}

/* To the next run: the innermost index is at its end. */
static void
walk_carry(struct walk *walk)
{
	for (uint32_t i = walk->n_dims; i-- > 0 && walk->index[i] == walk->extents[i];) {
		walk->at -= walk->strides[i] * walk->extents[i];
		walk->index[i] = 0;
		if (i == 0)
			return;
		walk->index[i - 1]++;
		walk->at += walk->strides[i - 1];
	}
}

/* n elements, which are there, to a dense place. */
static void
walk_copy(struct walk *walk, uint8_t *to, uint32_t n)
{
	const uint32_t inner = walk->n_dims - 1;

	while (n > 0) {
		uint32_t left = walk->extents[inner] - walk->index[inner], n_run = left < n ? left : n;

		if (walk->strides[inner] == walk->size)
			memcpy(to, walk->at, (size_t)n_run * walk->size);
		else
			for (uint32_t i = 0; i < n_run; i++)
				memcpy(to + (size_t)i * walk->size, walk->at + i * walk->strides[inner], walk->size);
		to += (size_t)n_run * walk->size;
		walk->at += n_run * walk->strides[inner];
		walk->index[inner] += n_run;
		n -= n_run;
		walk_carry(walk);
	}
}

static enum paged_status
array_check(const struct paged_array *array, uint64_t *n_bytes_p, struct paged_error *error)
{
	uint64_t n_bytes = mod_dtype_size((enum mod_dtype)array->dtype);

	if (array->name == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "an array without a name");
	if (!client_is_zero(array->reserved, sizeof(array->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "array %.40s: reserved words must be 0", array->name);
	if (strnlen(array->name, MASK_MAX_NAME + 1) > MASK_MAX_NAME)
		return paged_fail(error, PAGED_ERR_INVALID, "array %.40s: a name has at most %u bytes", array->name,
				  MASK_MAX_NAME);
	if (n_bytes == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "array %s: no dtype has number %d", array->name,
				  (int)array->dtype);
	if (array->n_dims == 0 || array->n_dims > PAGED_MAX_INDEXES)
		return paged_fail(error, PAGED_ERR_INVALID, "array %s: %u indexes; an array has 1 to %u", array->name,
				  array->n_dims, PAGED_MAX_INDEXES);
	for (uint32_t i = 0; i < array->n_dims; i++)
		if (__builtin_mul_overflow(n_bytes, array->extents[i], &n_bytes) || n_bytes > INT64_MAX)
			return paged_fail(error, PAGED_ERR_LIMIT, "array %s: more than 2^63 bytes", array->name);
	if (array->data == NULL && n_bytes != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "array %s: data is NULL", array->name);
	*n_bytes_p = n_bytes;
	return PAGED_OK;
}

/* Part after part; the mutex is held, so that no other thread's come in between. */
static enum paged_status
parts_put(struct owner *owner, const struct paged_array *array, uint64_t n_bytes, uint8_t *buffer,
	  struct paged_error *error)
{
	struct wire_array_part part = { .dtype = array->dtype, .n_dims = array->n_dims, .data = buffer };
	enum paged_status status;
	struct walk walk;

	status = walk_begin(&walk, array, n_bytes, error);
	strcpy(part.name, array->name);
	memcpy(part.extents, array->extents, array->n_dims * sizeof(part.extents[0]));
	while (status == PAGED_OK) {
		uint64_t left = n_bytes - part.offset;

		part.size = (uint32_t)(left < WIRE_MAX_PART ? left : WIRE_MAX_PART);
		walk_copy(&walk, buffer, part.size / walk.size);
		status = owner->ops->array_put(owner, &part, error);
		part.offset += part.size;
		if (part.offset == n_bytes)
			break;
	}
	return status;
}

static enum paged_status
array_enter(const struct paged_client *client)
{
	enum paged_status status = client_enter_owner(client);

	if (status == PAGED_OK && client->owner->session == 0)
		return client_failf(client, PAGED_ERR_PERM, "an observer has no arrays");
	return status;
}

enum paged_status
paged_array_upload(struct paged_client *client, const struct paged_array *array)
{
	enum paged_status status = array_enter(client);
	struct paged_error error;
	uint64_t n_bytes = 0;
	uint8_t *buffer;

	if (status != PAGED_OK)
		return status;
	if (array == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "array is NULL");
	if (array_check(array, &n_bytes, &error) != PAGED_OK)
		return client_fail(client, &error);
	buffer = malloc(WIRE_MAX_PART);
	if (buffer == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "array %s: no memory for its parts", array->name);
	client_lock(client);
	status = parts_put(client->owner, array, n_bytes, buffer, &error);
	client_unlock(client);
	free(buffer);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}

enum paged_status
paged_array_drop(struct paged_client *client, const char *name)
{
	enum paged_status status = array_enter(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (name == NULL || strnlen(name, MASK_MAX_NAME + 1) > MASK_MAX_NAME)
		return client_failf(client, PAGED_ERR_INVALID, "a name has 1 to %u bytes", MASK_MAX_NAME);
	client_lock(client);
	status = client->owner->ops->array_drop(client->owner, name, &error);
	client_unlock(client);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}
