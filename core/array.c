/* SPDX-License-Identifier: Apache-2.0 */
#include "core/array.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/session.h"
#include "core/tenant.h"

/* The arrays of one name in a session: the complete one and the upload under way. */
struct array_slot {
	char name[CORE_ARRAY_MAX_NAME + 1];
	struct core_array *complete; /* the complete array; NULL: none */
	struct core_array *upload;   /* the upload; NULL: none */
	uint64_t n_received;         /* bytes received of it */
	uint32_t member;             /* that uploads it */
	struct array_slot *next;
};

/* The types that mods read: tensor types, and the integers i32 and u8, which have no size in common/status.h. */
static uint32_t
core_array_element_size(enum paged_dtype dtype)
{
	if (dtype == PAGED_I32)
		return 4;
	if (dtype == PAGED_U8)
		return 1;
	return paged_dtype_is_tensor(dtype) ? paged_dtype_size(dtype) : 0;
}

static bool
array_name_is_valid(const char *name)
{
	if (!isalpha((unsigned char)name[0]) && name[0] != '_')
		return false;
	for (size_t i = 1; name[i] != '\0'; i++)
		if (i == CORE_ARRAY_MAX_NAME || (!isalnum((unsigned char)name[i]) && name[i] != '_'))
			return false;
	return true;
}

static enum paged_status
array_check_shape(const struct core_array_chunk *chunk, uint64_t *size_p, struct paged_error *error)
{
	uint64_t size = core_array_element_size(chunk->shape.dtype);

	if (!array_name_is_valid(chunk->name))
		return paged_fail(error, PAGED_ERR_INVALID,
				  "array '%.40s': a name is a letter or _, then letters, digits, _; at most %u",
				  chunk->name, CORE_ARRAY_MAX_NAME);
	if (size == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "array %s: no dtype has number %d", chunk->name,
				  (int)chunk->shape.dtype);
	if (chunk->shape.n_dims == 0 || chunk->shape.n_dims > CORE_ARRAY_MAX_DIMS)
		return paged_fail(error, PAGED_ERR_INVALID, "array %s: %u indexes; an array has 1 to %u", chunk->name,
				  chunk->shape.n_dims, CORE_ARRAY_MAX_DIMS);
	for (uint32_t i = 0; i < chunk->shape.n_dims; i++)
		if (__builtin_mul_overflow(size, chunk->shape.extents[i], &size))
			return paged_fail(error, PAGED_ERR_LIMIT, "array %s: more than 2^64 bytes", chunk->name);
	*size_p = size;
	return PAGED_OK;
}

static struct array_slot **
array_slot_find(struct core_session *session, const char *name)
{
	struct array_slot **link = &session->arrays;

	while (*link != NULL && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	return link;
}

/* The bytes that a slot counts in the session's quota. */
static uint64_t
array_slot_bytes(const struct array_slot *slot)
{
	uint64_t complete = slot->complete != NULL ? slot->complete->size : 0;
	uint64_t upload = slot->upload != NULL ? slot->upload->size : 0;

	return complete > upload ? complete : upload;
}

static struct core_array *
array_allocate(const struct core_array_shape *shape, uint64_t size)
{
	struct core_array *array = NULL;

	if (size <= SIZE_MAX - sizeof(*array))
		array = malloc(sizeof(*array) + (size_t)size);
	if (array == NULL)
		return NULL;
	array->shape = *shape;
	array->size = size;
	atomic_init(&array->n_users, 1);
	return array;
}

void
core_array_release(struct core_array *array)
{
	if (atomic_fetch_sub_explicit(&array->n_users, 1, memory_order_acq_rel) == 1)
		free(array);
}

static void
array_slot_set(struct core_array **array_p, struct core_array *array)
{
	if (*array_p != NULL)
		core_array_release(*array_p);
	*array_p = array;
}

/* After each change of the arrays. */
static void
array_count(struct core_session *session)
{
	session->array_bytes = 0;
	for (const struct array_slot *slot = session->arrays; slot != NULL; slot = slot->next) {
		session->array_bytes += slot->complete != NULL ? slot->complete->size : 0;
		session->array_bytes += slot->upload != NULL ? slot->upload->size : 0;
	}
}

static void
array_slot_free(struct array_slot *slot)
{
	array_slot_set(&slot->complete, NULL);
	array_slot_set(&slot->upload, NULL);
	free(slot);
}

/* Checks the session's quota for an array of `size` bytes in the slot; slot NULL: the array needs a new one. */
static enum paged_status
array_check_quota(const struct core *core, const struct core_session *session, const struct array_slot *slot,
		  const char *name, uint64_t size, struct paged_error *error)
{
	uint64_t others_bytes = 0, with_complete = slot != NULL && slot->complete != NULL ? slot->complete->size : 0;
	uint32_t n = 0;

	for (const struct array_slot *other = session->arrays; other != NULL; other = other->next) {
		n++;
		if (other != slot)
			others_bytes += array_slot_bytes(other);
	}
	if (slot == NULL && n >= CORE_MAX_ARRAYS)
		return paged_fail(error, PAGED_ERR_LIMIT, "array %s: session %u has %u arrays, the maximum", name,
				  session->id, n);
	if (size > with_complete)
		with_complete = size;
	if (with_complete > core->max_array_bytes || others_bytes > core->max_array_bytes - with_complete)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "array %s of %" PRIu64 " bytes: session %u has %" PRIu64
				  " bytes of others, and %" PRIu64
				  " is the most; a mask that is not remote takes arrays of any size",
				  name, size, session->id, others_bytes, core->max_array_bytes);
	return PAGED_OK;
}

/* Checks what the sessions of the tenant, and all, may have. */
static enum paged_status
array_check_others(const struct core *core, const struct core_session *session, const char *name, uint64_t size,
		   struct paged_error *error)
{
	const struct core_tenant *tenant = session->tenant != 0 ? core->tenants.items[session->tenant - 1] : NULL;
	uint64_t of_tenant = 0, of_all = 0;

	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct core_session *other = core->sessions.entries[i].session;

		of_all += other->array_bytes;
		of_tenant += other->tenant == session->tenant ? other->array_bytes : 0;
	}
	if (tenant != NULL && (size > tenant->limits.array_bytes || of_tenant > tenant->limits.array_bytes - size))
		return paged_fail(error, PAGED_ERR_QUOTA,
				  "array %s of %" PRIu64 " bytes: the sessions of tenant %s have %" PRIu64
				  " bytes, and its share is %" PRIu64 ": drop some, or raise %s or mask-arrays",
				  name, size, tenant->name, of_tenant, tenant->limits.array_bytes,
				  tenant_setting(tenant));
	if (size > core->all_array_bytes || of_all > core->all_array_bytes - size)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "array %s of %" PRIu64 " bytes: all sessions have %" PRIu64 " bytes, and %" PRIu64
				  " is the most: drop some, or raise mask-arrays",
				  name, size, of_all, core->all_array_bytes);
	return PAGED_OK;
}

/* Starts an upload with the chunk at offset 0; an upload of the same name under way is dropped. */
static enum paged_status
array_upload_begin(struct core *core, struct core_session *session, uint32_t member,
		   const struct core_array_chunk *chunk, uint64_t size, struct paged_error *error)
{
	struct array_slot **link = array_slot_find(session, chunk->name), *slot = *link;
	enum paged_status status = array_check_quota(core, session, slot, chunk->name, size, error);
	struct core_array *array;

	if (status == PAGED_OK)
		status = array_check_others(core, session, chunk->name, size, error);
	if (status != PAGED_OK)
		return status;
	array = array_allocate(&chunk->shape, size);
	if (array != NULL && slot == NULL) {
		slot = calloc(1, sizeof(*slot));
		if (slot == NULL)
			free(array);
	}
	if (array == NULL || slot == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "array %s: no memory for %" PRIu64 " bytes", chunk->name,
				  size);
	if (*link == NULL) {
		strcpy(slot->name, chunk->name);
		*link = slot;
	}
	array_slot_set(&slot->upload, array);
	array_count(session);
	slot->n_received = 0;
	slot->member = member;
	return PAGED_OK;
}

static enum paged_status
array_check_chunk(const struct array_slot *slot, uint32_t member, const struct core_array_chunk *chunk,
		  struct paged_error *error)
{
	const struct core_array *upload = slot != NULL ? slot->upload : NULL;

	if (upload == NULL || slot->member != member)
		return paged_fail(error, PAGED_ERR_AGAIN,
				  "array %s: a chunk at byte %" PRIu64 " of an upload that was not begun", chunk->name,
				  chunk->offset);
	if (memcmp(&upload->shape, &chunk->shape, sizeof(chunk->shape)) != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "array %s: a chunk whose shape differs from the first chunk's", chunk->name);
	if (chunk->offset != slot->n_received)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "array %s: a chunk at byte %" PRIu64 ", the next is at %" PRIu64, chunk->name,
				  chunk->offset, slot->n_received);
	return PAGED_OK;
}

enum paged_status
core_array_put(struct core *core, uint32_t id, uint32_t member, const struct core_array_chunk *chunk,
	       struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = core_session_find_active(core, id, &session, error);
	struct array_slot *slot;
	uint64_t size = 0;

	if (status == PAGED_OK)
		status = array_check_shape(chunk, &size, error);
	if (status != PAGED_OK)
		return status;
	if (chunk->offset > size || chunk->size > size - chunk->offset || (chunk->size == 0 && size != 0))
		return paged_fail(error, PAGED_ERR_INVALID,
				  "array %s: a chunk of %u bytes at byte %" PRIu64 " of %" PRIu64, chunk->name,
				  chunk->size, chunk->offset, size);
	status = chunk->offset == 0 ? array_upload_begin(core, session, member, chunk, size, error)
				    : array_check_chunk(*array_slot_find(session, chunk->name), member, chunk, error);
	if (status != PAGED_OK)
		return status;
	slot = *array_slot_find(session, chunk->name);
	if (chunk->size != 0)
		memcpy(slot->upload->data + chunk->offset, chunk->data, chunk->size);
	slot->n_received += chunk->size;
	if (slot->n_received == size) {
		slot->upload->number = ++core->last_array;
		array_slot_set(&slot->complete, slot->upload);
		slot->upload = NULL;
		array_count(session);
	}
	return PAGED_OK;
}

static enum paged_status
array_missing(const struct core_session *session, const char *name, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_NOENT, "session %u has no array %.40s; upload it first", session->id, name);
}

enum paged_status
core_array_drop(struct core *core, uint32_t id, const char *name, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = core_session_find_active(core, id, &session, error);
	struct array_slot **link, *slot;

	if (status != PAGED_OK)
		return status;
	link = array_slot_find(session, name);
	slot = *link;
	if (slot == NULL)
		return array_missing(session, name, error);
	*link = slot->next;
	array_slot_free(slot);
	array_count(session);
	return PAGED_OK;
}

enum paged_status
core_array_acquire(struct core *core, uint32_t id, const char *name, enum paged_dtype dtype, uint32_t n_dims,
		   struct core_array **array_p, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = core_session_find_active(core, id, &session, error);
	struct core_array *array;

	if (status != PAGED_OK)
		return status;
	array = *array_slot_find(session, name) != NULL ? (*array_slot_find(session, name))->complete : NULL;
	if (array == NULL)
		return array_missing(session, name, error);
	if (array->shape.dtype != dtype || array->shape.n_dims != n_dims)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "array %s: dtype %d with %u indexes was uploaded, the mod has dtype %d with %u", name,
				  (int)array->shape.dtype, array->shape.n_dims, (int)dtype, n_dims);
	atomic_fetch_add_explicit(&array->n_users, 1, memory_order_relaxed);
	*array_p = array;
	return PAGED_OK;
}

enum paged_status
core_arrays_acquire(struct core *core, uint32_t id, const struct mask_request *request, struct core_arrays *arrays,
		    struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	*arrays = (struct core_arrays){ 0 };
	for (uint32_t i = 0; i < request->n_names && status == PAGED_OK; i++) {
		const struct mask_request_name *name = &request->names[i];

		if (name->n_dims == 0)
			continue;
		status = core_array_acquire(core, id, name->name, (enum paged_dtype)name->dtype, name->n_dims,
					    &arrays->array[i], error);
		/* A new array has a larger number than the one it replaces, so the sum changes with any of them. */
		if (status == PAGED_OK)
			arrays->number += arrays->array[i]->number;
	}
	if (status != PAGED_OK)
		core_arrays_release(arrays);
	return status;
}

void
core_arrays_release(struct core_arrays *arrays)
{
	for (uint32_t i = 0; i < MASK_MAX_NAMES; i++)
		if (arrays->array[i] != NULL)
			core_array_release(arrays->array[i]);
}

void
core_array_set_quota(struct core *core, uint64_t max_bytes)
{
	core->max_array_bytes = max_bytes;
	if (__builtin_mul_overflow(max_bytes, CORE_ARRAY_QUOTAS, &core->all_array_bytes))
		core->all_array_bytes = UINT64_MAX;
}

void
core_arrays_free(struct core_session *session)
{
	while (session->arrays != NULL) {
		struct array_slot *slot = session->arrays;

		session->arrays = slot->next;
		array_slot_free(slot);
	}
	session->array_bytes = 0;
}
