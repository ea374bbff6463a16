/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of a block mask: counts, rows, lists, PyTorch arrays, a dense matrix, a text picture. */
#include "config.h"

#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/params.h"

/* `has_place`: the caller's output pointers are not NULL. */
static enum paged_status
block_mask_view_enter(const struct paged_block_mask *mask, bool has_place)
{
	enum paged_status status = client_enter(pool_client(block_mask_pool(mask)));

	if (status == PAGED_OK && !has_place)
		return client_failf(mask->pool->client, PAGED_ERR_INVALID, "block mask: no place for the answer");
	return status;
}

enum paged_status
paged_block_mask_get_info(const struct paged_block_mask *mask, struct paged_block_mask_info *info)
{
	enum paged_status status = block_mask_view_enter(mask, info != NULL);
	struct paged_block_mask_info ours;
	const struct block_mask *named;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	named = block_mask_shown(mask);
	ours = (struct paged_block_mask_info){
		.n_rows = named->shape.n_rows,
		.n_heads = named->shape.n_heads,
		.q_block = named->shape.q_block,
		.kv_block = named->shape.kv_block,
		.physical = mask->physical != NULL,
		.n_blocks = block_mask_n_blocks(named),
		.n_lists = named->first_list[named->shape.n_rows],
		.bytes = sizeof(*mask) + mask->n_rows * (sizeof(*mask->seq) + sizeof(*mask->version)) +
			 block_mask_bytes(mask->logical),
		.sparsity = block_mask_sparsity(named),
	};
	if (mask->physical != NULL)
		ours.bytes += block_mask_bytes(mask->physical);
	return client_leave(mask->pool->client,
			    client_info_out(info, &ours, sizeof(ours), "paged_block_mask_info", &error), &error);
}

enum paged_status
paged_block_mask_get_row(const struct paged_block_mask *mask, size_t row, struct paged_block_mask_row *info)
{
	enum paged_status status = block_mask_view_enter(mask, info != NULL);
	const struct block_mask_shape *shape;
	struct paged_block_mask_row ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	shape = &block_mask_shown(mask)->shape;
	if (row >= shape->n_rows)
		return client_failf(mask->pool->client, PAGED_ERR_RANGE, "block mask: row %zu of %u", row,
				    shape->n_rows);
	ours = (struct paged_block_mask_row){
		.q_base = shape->rows[row].q_base,
		.q_len = shape->rows[row].q_len,
		.kv_len = shape->rows[row].kv_len,
		.kv_first = shape->rows[row].kv_first,
		.seq = mask->physical != NULL ? mask->seq[row] : 0,
		.version = mask->physical != NULL ? mask->version[row] : 0,
	};
	return client_leave(mask->pool->client,
			    client_info_out(info, &ours, sizeof(ours), "paged_block_mask_row", &error), &error);
}

enum paged_status
paged_block_mask_lists(const struct paged_block_mask *mask, struct paged_block_lists *lists)
{
	enum paged_status status = block_mask_view_enter(mask, lists != NULL);
	struct paged_block_lists ours = { 0 };
	const struct block_mask *named;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	named = block_mask_shown(mask);
	ours.first_list = named->first_list;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		ours.start[kind] = named->start[kind];
		ours.indices[kind] = named->indices[kind];
	}
	return client_leave(mask->pool->client,
			    client_info_out(lists, &ours, sizeof(ours), "paged_block_lists", &error), &error);
}

enum paged_status
paged_block_mask_arrays(const struct paged_block_mask *mask, struct paged_block_arrays *arrays)
{
	enum paged_status status = block_mask_view_enter(mask, arrays != NULL);
	struct block_mask_arrays ours = { 0 };
	struct paged_block_arrays complete;
	const struct block_mask *named;
	struct paged_error error;
	bool any = false;

	if (status != PAGED_OK)
		return status;
	named = block_mask_shown(mask);
	status = client_params_in(&complete, sizeof(complete), arrays, "paged_block_arrays", &error);
	if (status == PAGED_OK)
		status = block_mask_arrays_in(&complete, &ours, &error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		any |= ours.num_blocks[kind] != NULL || ours.indices[kind] != NULL;
	if (status != PAGED_OK || any)
		return client_leave(mask->pool->client,
				    status != PAGED_OK ? status : block_mask_to_arrays(named, &ours, &error), &error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		complete.width[kind] = block_mask_width(named, kind);
	status = client_info_out(arrays, &complete, sizeof(complete), "paged_block_arrays", &error);
	return client_leave(mask->pool->client, status, &error);
}

enum paged_status
paged_block_mask_dense(const struct paged_block_mask *mask, uint8_t *dense)
{
	enum paged_status status = block_mask_view_enter(mask, dense != NULL);

	if (status == PAGED_OK)
		block_mask_dense_blocks(block_mask_shown(mask), dense);
	return status;
}

enum paged_status
paged_block_mask_picture(const struct paged_block_mask *mask, uint32_t rows, uint32_t columns, uint32_t limit,
			 char **text_p)
{
	const struct block_mask_string_format grid = { rows, columns, limit };
	enum paged_status status = block_mask_view_enter(mask, text_p != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	return client_leave(mask->pool->client, block_mask_to_string(block_mask_shown(mask), &grid, text_p, &error),
			    &error);
}
