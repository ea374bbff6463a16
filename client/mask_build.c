/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/mask_build.h"

#include <string.h>

#include "daemon/core/array.h"
#include "kernels/mask/served.h"

enum paged_status
mask_build_put(struct core *core, uint32_t session, uint32_t member, const struct wire_array_part *from,
	       struct paged_error *error)
{
	struct core_array_part part = {
		.name = from->name,
		.shape = { .dtype = (enum paged_dtype)from->dtype, .n_dims = from->n_dims },
		.offset = from->offset,
		.data = from->data,
		.size = from->size,
	};

	memcpy(part.shape.extents, from->extents, sizeof(part.shape.extents));
	return core_array_put(core, session, member, &part, error);
}

/* The session's arrays of an order; the core is at rest, so they are borrowed only for form's sake. */
struct arrays {
	struct core_array *array[MOD_MAX_NAMES];
	uint32_t n;
};

static enum paged_status
names_bind(struct core *core, uint32_t session, const struct wire_mask_order *order, struct arrays *arrays,
	   struct mod_array *names, struct paged_error *error)
{
	for (uint32_t i = 0; i < order->n_names; i++) {
		const struct wire_mask_name *from = &order->names[i];
		struct core_array *array;
		enum paged_status status;

		names[i] = (struct mod_array){ .name = from->name,
					       .dtype = (enum mod_dtype)from->dtype,
					       .n_dims = from->n_dims,
					       .data = from->value };
		if (from->n_dims == 0)
			continue;
		status = core_array_take(core, session, from->name, (enum paged_dtype)from->dtype, from->n_dims, &array,
					 error);
		if (status != PAGED_OK)
			return status;
		arrays->array[arrays->n++] = array;
		memcpy(names[i].extents, array->shape.extents, sizeof(names[i].extents));
		names[i].data = array->data;
	}
	return PAGED_OK;
}

enum paged_status
mask_build(struct core *core, uint32_t session, const struct wire_mask_order *order, struct mask_memory *memory,
	   struct image *image, struct paged_error *error)
{
	struct mod_array names[MOD_MAX_NAMES];
	const struct served_request request = {
		.n_rows = order->n,
		.seq = order->seq,
		.q_len = order->q_len,
		.kv_len = order->kv_len,
		.q_base = order->q_base,
		.n_heads = order->n_heads,
		.q_block = order->q_block,
		.kv_block = order->kv_block,
		.max_bytes = order->max_bytes,
		.text = order->text,
		.names = names,
		.n_names = order->n_names,
	};
	struct arrays arrays = { .n = 0 };
	struct served *served = NULL;
	enum paged_status status = names_bind(core, session, order, &arrays, names, error);

	*image = (struct image){ 0 };
	if (status == PAGED_OK)
		status = served_create(&request, SERVED_BYTES_DEFAULT, &served, error);
	if (status == PAGED_OK)
		status = served_build(served, core_pool_view(core, order->pool), NULL, memory, image, error);
	served_destroy(served);
	for (uint32_t i = 0; i < arrays.n; i++)
		core_array_release(arrays.array[i]);
	return status;
}
