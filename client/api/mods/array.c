/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that a session stores with the owner, and conversion of PAGED_I64 arrays. */
#include "config.h"

#include "client/api/mods/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/enter.h"
#include "client/params.h"
#include "kernels/mod/mod.h"

static_assert(MASK_MAX_NAME == MOD_MAX_NAME && WIRE_MAX_INDEXES == PAGED_MAX_INDEXES, "arrays as the wire has them");

/* Iterates over an array's elements in row-major order. */
struct array_iterator {
	const uint8_t *at; /* the element at `index` */
	uint32_t n_dims;
	uint32_t extents[PAGED_MAX_INDEXES];
	int64_t strides[PAGED_MAX_INDEXES]; /* bytes */
	uint32_t index[PAGED_MAX_INDEXES];
	uint32_t size; /* bytes of an element */
};

static uint32_t
array_element_size(uint32_t dtype)
{
	return dtype == PAGED_I64 ? sizeof(int64_t) : mod_dtype_size((enum mod_dtype)dtype);
}

static enum paged_status
array_iterator_begin(struct array_iterator *it, const struct paged_array *array, uint64_t n_bytes,
		     struct paged_error *error)
{
	bool dense = true;

	*it = (struct array_iterator){ .at = array->data, .n_dims = array->n_dims };
	it->size = array_element_size(array->dtype);
	for (uint32_t i = 0; i < array->n_dims; i++) {
		it->extents[i] = array->extents[i];
		dense = dense && array->strides[i] == 0;
		if (__builtin_mul_overflow(array->strides[i], (int64_t)it->size, &it->strides[i]))
			return paged_fail(error, PAGED_ERR_LIMIT, "array %s: strides past 2^63 bytes", array->name);
	}
	/* The products cannot overflow, because n_bytes was computed; strides of an empty array are not used. */
	for (uint32_t i = array->n_dims; dense && n_bytes != 0 && i-- > 0;)
		it->strides[i] = i + 1 == array->n_dims ? it->size : it->strides[i + 1] * it->extents[i + 1];
	return PAGED_OK;
}

/* Advance to the next run, when the innermost index is at its end. */
static void
array_iterator_carry(struct array_iterator *it)
{
	for (uint32_t i = it->n_dims; i-- > 0 && it->index[i] == it->extents[i];) {
		it->at -= it->strides[i] * it->extents[i];
		it->index[i] = 0;
		if (i == 0)
			return;
		it->index[i - 1]++;
		it->at += it->strides[i - 1];
	}
}

/* Copy the next n elements, which must exist, to dense memory. */
static void
array_iterator_copy(struct array_iterator *it, uint8_t *to, uint32_t n)
{
	const uint32_t inner = it->n_dims - 1;

	while (n > 0) {
		uint32_t left = it->extents[inner] - it->index[inner], n_run = left < n ? left : n;

		if (it->strides[inner] == it->size)
			memcpy(to, it->at, (size_t)n_run * it->size);
		else
			for (uint32_t i = 0; i < n_run; i++)
				memcpy(to + (size_t)i * it->size, it->at + i * it->strides[inner], it->size);
		to += (size_t)n_run * it->size;
		it->at += n_run * it->strides[inner];
		it->index[inner] += n_run;
		n -= n_run;
		array_iterator_carry(it);
	}
}

static enum paged_status
array_check_upload(const struct paged_array *array, uint64_t *n_bytes_p, struct paged_error *error)
{
	uint64_t n_bytes = array_element_size(array->dtype);

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

static bool
array_value_fits(int64_t value)
{
	return value >= INT32_MIN && value <= INT32_MAX;
}

/* Fail because element number i (row-major) does not fit in 32 bits. */
static enum paged_status
array_fail_range(const struct paged_array *array, uint64_t i, int64_t value, struct paged_error *error)
{
	char index[64] = "";
	size_t length = 0;
	uint32_t at[PAGED_MAX_INDEXES];

	for (uint32_t d = array->n_dims; d-- > 0; i /= array->extents[d])
		at[d] = (uint32_t)(i % array->extents[d]);
	for (uint32_t d = 0; d < array->n_dims; d++)
		length += (size_t)snprintf(index + length, sizeof(index) - length, "[%" PRIu32 "]", at[d]);
	return paged_fail(error, PAGED_ERR_RANGE, "%s %.40s%s is %" PRId64 ", which 32 bits do not hold",
			  array->n_dims != 0 ? "array" : "parameter", array->name, index, value);
}

enum paged_status
array_narrow_value(const struct paged_array *parameter, int32_t *value_p, struct paged_error *error)
{
	int64_t value;

	if (parameter->data == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "parameter %.40s: data is NULL", parameter->name);
	memcpy(&value, parameter->data, sizeof(value));
	*value_p = (int32_t)value;
	return array_value_fits(value) ? PAGED_OK : array_fail_range(parameter, 0, value, error);
}

/* Convert through a small dense buffer, so that the compiler can vectorise the loop over elements. */
static enum paged_status
array_narrow_elements(const struct paged_array *array, struct array_iterator *it, uint64_t n, int32_t *to,
		      struct paged_error *error)
{
	for (uint64_t begin = 0; begin < n;) {
		int64_t part[512];
		uint32_t n_part = n - begin < 512 ? (uint32_t)(n - begin) : 512;
		bool fit = true;

		array_iterator_copy(it, (uint8_t *)part, n_part);
		for (uint32_t i = 0; i < n_part; i++) {
			to[begin + i] = (int32_t)part[i];
			fit &= array_value_fits(part[i]);
		}
		for (uint32_t i = 0; i < n_part && !fit; i++)
			if (!array_value_fits(part[i]))
				return array_fail_range(array, begin + i, part[i], error);
		begin += n_part;
	}
	return PAGED_OK;
}

enum paged_status
array_narrow(const struct paged_array *array, struct array_values **values, struct paged_error *error)
{
	uint64_t n_bytes = 0, n;
	enum paged_status status = array_check_upload(array, &n_bytes, error);
	struct array_values *narrowed;
	struct array_iterator it;

	if (status == PAGED_OK)
		status = array_iterator_begin(&it, array, n_bytes, error);
	if (status != PAGED_OK)
		return status;
	n = n_bytes / sizeof(int64_t);
	narrowed = malloc(sizeof(*narrowed) + n * sizeof(narrowed->at[0]));
	if (narrowed == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "array %s: no memory for %" PRIu64 " elements of 32 bits",
				  array->name, n);
	status = array_narrow_elements(array, &it, n, narrowed->at, error);
	if (status != PAGED_OK) {
		free(narrowed);
		return status;
	}
	narrowed->next = *values;
	*values = narrowed;
	return PAGED_OK;
}

void
array_values_free(struct array_values *values)
{
	while (values != NULL) {
		struct array_values *next = values->next;

		free(values);
		values = next;
	}
}

/* Send an array in parts.  The mutex is held, so that parts of other threads do not come between them. */
static enum paged_status
array_send_parts(struct owner *owner, const struct paged_array *array, uint64_t n_bytes, uint8_t *buffer,
		 struct paged_error *error)
{
	struct wire_array_chunk part = { .dtype = array->dtype, .n_dims = array->n_dims, .data = buffer };
	enum paged_status status;
	struct array_iterator it;

	status = array_iterator_begin(&it, array, n_bytes, error);
	strcpy(part.name, array->name);
	memcpy(part.extents, array->extents, array->n_dims * sizeof(part.extents[0]));
	while (status == PAGED_OK) {
		uint64_t left = n_bytes - part.offset;

		part.size = (uint32_t)(left < WIRE_MAX_CHUNK ? left : WIRE_MAX_CHUNK);
		array_iterator_copy(&it, buffer, part.size / it.size);
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

static enum paged_status
array_send(struct paged_client *client, const struct paged_array *array, struct paged_error *error)
{
	uint64_t n_bytes = 0;
	enum paged_status status = array_check_upload(array, &n_bytes, error);
	uint8_t *buffer;

	if (status != PAGED_OK)
		return status;
	buffer = malloc(WIRE_MAX_CHUNK);
	if (buffer == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "array %s: no memory for its parts", array->name);
	client_lock(client);
	status = array_send_parts(client->owner, array, n_bytes, buffer, error);
	client_unlock(client);
	free(buffer);
	return status;
}

/* Send a PAGED_I64 array as I32, because the owner has no 64-bit arrays. */
static enum paged_status
array_send_narrowed(struct paged_client *client, const struct paged_array *array, struct paged_error *error)
{
	struct paged_array narrowed = { .name = array->name, .dtype = PAGED_I32, .n_dims = array->n_dims };
	struct array_values *values = NULL;
	enum paged_status status = array_narrow(array, &values, error);

	if (status != PAGED_OK)
		return status;
	narrowed.data = values->at;
	memcpy(narrowed.extents, array->extents, sizeof(narrowed.extents));
	status = array_send(client, &narrowed, error);
	array_values_free(values);
	return status;
}

enum paged_status
paged_array_upload(struct paged_client *client, const struct paged_array *array)
{
	enum paged_status status = array_enter(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (array == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "array is NULL");
	status = array->dtype == PAGED_I64 ? array_send_narrowed(client, array, &error)
					   : array_send(client, array, &error);
	return client_leave(client, status, &error);
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
	return client_leave(client, status, &error);
}
