/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and block masks on the RPC channel. */
#include <string.h>

#include "proto/wire_internal.h"

void
wire_put_array_put(Paged__V1__PutArray *to, const struct wire_array_part *from)
{
	paged__v1__put_array__init(to);
	to->name = (char *)from->name;
	to->dtype = from->dtype;
	to->n_extents = from->n_dims;
	to->extents = (uint32_t *)from->extents;
	to->offset = from->offset;
	to->data.len = from->size;
	to->data.data = (uint8_t *)from->data;
}

enum paged_status
wire_put_array_get(struct wire_array_part *to, const Paged__V1__PutArray *from, struct paged_error *error)
{
	if (from->n_extents == 0 || from->n_extents > WIRE_MAX_INDEXES)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "put_array: %zu extents, not 1 to %u", from->n_extents,
				  WIRE_MAX_INDEXES);
	if (from->data.len > WIRE_MAX_PART)
		return paged_fail(error, PAGED_ERR_LIMIT, "put_array: a part of %zu bytes, the most are %u",
				  from->data.len, WIRE_MAX_PART);
	to->dtype = from->dtype;
	to->n_dims = (uint32_t)from->n_extents;
	memcpy(to->extents, from->extents, from->n_extents * sizeof(*to->extents));
	to->offset = from->offset;
	to->size = (uint32_t)from->data.len;
	to->data = from->data.data;
	return wire_text_copy(to->name, sizeof(to->name), from->name, "put_array: name", error);
}

/* Four bytes that mean what their dtype says. */
static void
name_put(Paged__V1__MaskName *to, const struct mask_request_name *from)
{
	paged__v1__mask_name__init(to);
	to->name = (char *)from->name;
	to->dtype = from->dtype;
	to->n_dims = from->n_dims;
	memcpy(&to->value, from->value, sizeof(to->value));
}

bool
wire_build_mask_put(Paged__V1__BuildMask *to, const struct mask_request *from, struct wire_arena *arena)
{
	Paged__V1__MaskName *names = wire_arena_alloc(arena, from->n_names * sizeof(*names));

	paged__v1__build_mask__init(to);
	to->name = wire_arena_alloc(arena, from->n_names * sizeof(*to->name));
	if (names == NULL || to->name == NULL)
		return false;
	to->n_q_len = to->n_kv_len = from->n_rows;
	to->q_len = (uint32_t *)from->q_len;
	to->kv_len = (uint32_t *)from->kv_len;
	to->n_q_base = from->q_base != NULL ? from->n_rows : 0;
	to->q_base = (int64_t *)from->q_base;
	to->n_heads = from->n_heads;
	to->q_block = from->q_block;
	to->kv_block = from->kv_block;
	to->text = (char *)from->text;
	to->first_list = from->first_list;
	to->first_block = from->first_block;
	to->n_name = from->n_names;
	for (uint32_t i = 0; i < from->n_names; i++) {
		name_put(&names[i], &from->names[i]);
		to->name[i] = &names[i];
	}
	return true;
}

static enum paged_status
names_get(struct mask_request *to, const Paged__V1__BuildMask *from, struct wire_arena *arena,
	  struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct mask_request_name *names;

	if (from->n_name > MASK_MAX_NAMES)
		return paged_fail(error, PAGED_ERR_LIMIT, "build_mask: %zu names, the most are %u", from->n_name,
				  MASK_MAX_NAMES);
	names = wire_arena_alloc(arena, from->n_name * sizeof(*names));
	if (names == NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "build_mask: it needs more than the message arena");
	for (size_t i = 0; i < from->n_name && status == PAGED_OK; i++) {
		names[i] = (struct mask_request_name){ .dtype = from->name[i]->dtype, .n_dims = from->name[i]->n_dims };
		memcpy(names[i].value, &from->name[i]->value, sizeof(names[i].value));
		if (names[i].n_dims > WIRE_MAX_INDEXES)
			return paged_fail(error, PAGED_ERR_PROTOCOL, "build_mask: an array of %u indexes",
					  names[i].n_dims);
		status = wire_text_copy(names[i].name, sizeof(names[i].name), from->name[i]->name, "build_mask: name",
					error);
	}
	to->n_names = (uint32_t)from->n_name;
	to->names = names;
	return status;
}

enum paged_status
wire_build_mask_get(struct mask_request *to, const Paged__V1__BuildMask *from, struct wire_arena *arena,
		    struct paged_error *error)
{
	if (from->n_q_len == 0 || from->n_q_len > PAGED_MAX_MASK_ROWS)
		return paged_fail(error, PAGED_ERR_LIMIT, "a block mask of 1 to %u rows is built, not %zu",
				  PAGED_MAX_MASK_ROWS, from->n_q_len);
	if (from->n_kv_len != from->n_q_len || (from->n_q_base != 0 && from->n_q_base != from->n_q_len))
		return paged_fail(error, PAGED_ERR_PROTOCOL, "build_mask: %zu kv_len and %zu q_base for %zu q_len",
				  from->n_kv_len, from->n_q_base, from->n_q_len);
	if (strlen(from->text) > WIRE_MAX_MOD)
		return paged_fail(error, PAGED_ERR_LIMIT, "build_mask: a text of %zu bytes, the most are %u",
				  strlen(from->text), WIRE_MAX_MOD);
	*to = (struct mask_request){
		.n_rows = (uint32_t)from->n_q_len,
		.q_len = from->q_len,
		.kv_len = from->kv_len,
		.q_base = from->n_q_base != 0 ? from->q_base : NULL,
		.n_heads = from->n_heads,
		.q_block = from->q_block,
		.kv_block = from->kv_block,
		.text = from->text,
		.first_list = from->first_list,
		.first_block = from->first_block,
	};
	return names_get(to, from, arena, error);
}

void
wire_mask_put(Paged__V1__Mask *to, const struct mask_part *from)
{
	paged__v1__mask__init(to);
	to->n_value = from->n;
	to->value = (uint32_t *)from->values;
	to->cut = from->cut;
	to->arrays = from->arrays;
}

enum paged_status
wire_mask_get(struct mask_part *to, const Paged__V1__Mask *from, struct paged_error *error)
{
	if (from->n_value > MASK_PART_MAX)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "mask: %zu values, the most are %u", from->n_value,
				  MASK_PART_MAX);
	*to = (struct mask_part){ (uint32_t)from->n_value, from->value, from->cut, from->arrays };
	return PAGED_OK;
}
