/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks from the caller's lists, PyTorch arrays and dense masks. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/params.h"

/* Makes a logical mask from the caller's blocks. */
typedef enum paged_status (*block_mask_from_fn)(const struct block_mask_shape *shape, uint64_t max_bytes,
						const void *given, struct block_mask **mask_p,
						struct paged_error *error);

static enum paged_status
block_mask_from_given(block_mask_from_fn take, struct paged_pool *pool, const struct paged_block_mask_params *params,
		      const void *given, struct paged_block_mask **mask_p)
{
	struct paged_block_mask made = { .pool = pool };
	struct block_mask_shape shape = { .rows = NULL };
	struct block_mask_request request;
	enum paged_status status = block_mask_request_open(&request, pool, params, mask_p);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (request.is_physical)
		status = paged_fail(
			&error, PAGED_ERR_INVALID,
			"block mask: given blocks are logical; convert the mask to physical ones afterwards");
	else if (given == NULL)
		status = paged_fail(&error, PAGED_ERR_INVALID, "block mask: no blocks are given");
	else
		status = batch_mask_shape(&request.batch, &shape, &error);
	if (status == PAGED_OK)
		status = take(&shape, request.batch.max_bytes, given, &made.logical, &error);
	free((void *)shape.rows);
	block_mask_request_close(&request);
	return block_mask_publish(&made, status, mask_p, &error);
}

static enum paged_status
block_mask_count_lists(const struct block_mask_shape *shape, uint64_t *n_p, struct paged_error *error)
{
	uint64_t n = 0, lists;

	for (uint32_t r = 0; r < shape->n_rows; r++) {
		lists = shape->rows[r].q_len / shape->q_block + (shape->rows[r].q_len % shape->q_block != 0);
		if (__builtin_mul_overflow(lists, shape->n_heads, &lists) || __builtin_add_overflow(n, lists, &n) ||
		    n > SIZE_MAX / sizeof(uint64_t) - 1)
			return paged_fail(error, PAGED_ERR_LIMIT,
					  "block mask: more lists than memory up to row %" PRIu32, r);
	}
	*n_p = n;
	return PAGED_OK;
}

/* Convert the starts of one kind's lists to lengths; the caller frees n_blocks, also after a failure. */
static enum paged_status
block_lists_in(struct block_mask_lists *to, const struct paged_block_lists *from, enum block_mask_kind kind,
	       uint64_t n_lists, struct paged_error *error)
{
	static const char *const kinds[BLOCK_MASK_N_KINDS] = { "partial", "full" };
	const uint64_t *start = from->start[kind];
	uint32_t *n_blocks;

	if (start == NULL)
		return PAGED_OK;
	to->n_blocks[kind] = n_blocks = calloc(n_lists + 1, sizeof(*n_blocks));
	if (n_blocks == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " lists", n_lists);
	for (uint64_t i = 0; i < n_lists; i++) {
		if (start[i + 1] < start[i] || start[i + 1] - start[i] > UINT32_MAX)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: %s list %" PRIu64 " begins at index %" PRIu64
					  " and ends at %" PRIu64,
					  kinds[kind], i, start[i], start[i + 1]);
		n_blocks[i] = (uint32_t)(start[i + 1] - start[i]);
	}
	to->n_indices[kind] = start[n_lists] - start[0];
	if (to->n_indices[kind] == 0)
		return PAGED_OK;
	if (from->indices[kind] == NULL)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: %s lists have %" PRIu64 " indices, which are NULL", kinds[kind],
				  to->n_indices[kind]);
	to->indices[kind] = from->indices[kind] + start[0];
	return PAGED_OK;
}

static enum paged_status
block_mask_take_lists(const struct block_mask_shape *shape, uint64_t max_bytes, const void *lists,
		      struct block_mask **mask_p, struct paged_error *error)
{
	struct paged_block_lists complete;
	struct block_mask_lists ours = { 0 };
	uint64_t n_lists = 0;
	enum paged_status status = client_params_in(&complete, sizeof(complete), lists, "paged_block_lists", error);

	if (status == PAGED_OK)
		status = block_mask_count_lists(shape, &n_lists, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++)
		status = block_lists_in(&ours, &complete, kind, n_lists, error);
	if (status == PAGED_OK)
		status = block_mask_from_lists(shape, &ours, n_lists, max_bytes, mask_p, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		free((void *)ours.n_blocks[kind]);
	return status;
}

enum paged_status
paged_block_mask_from_lists(struct paged_pool *pool, const struct paged_block_mask_params *params,
			    const struct paged_block_lists *lists, struct paged_block_mask **mask_p)
{
	return block_mask_from_given(block_mask_take_lists, pool, params, lists, mask_p);
}

enum paged_status
block_mask_arrays_in(const struct paged_block_arrays *arrays, struct block_mask_arrays *to, struct paged_error *error)
{
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		if (arrays->num_blocks[kind] != NULL && arrays->indices[kind] == NULL && arrays->width[kind] != 0)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: num_blocks[%d] is given, indices[%d] is NULL", kind, kind);
		to->num_blocks[kind] = arrays->num_blocks[kind];
		to->indices[kind] = arrays->indices[kind];
		to->width[kind] = arrays->width[kind];
	}
	return PAGED_OK;
}

static enum paged_status
block_mask_take_arrays(const struct block_mask_shape *shape, uint64_t max_bytes, const void *arrays,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct paged_block_arrays complete;
	struct block_mask_arrays ours;
	enum paged_status status = client_params_in(&complete, sizeof(complete), arrays, "paged_block_arrays", error);

	if (status == PAGED_OK)
		status = block_mask_arrays_in(&complete, &ours, error);
	if (status != PAGED_OK)
		return status;
	return block_mask_from_arrays(shape, &ours, max_bytes, mask_p, error);
}

enum paged_status
paged_block_mask_from_arrays(struct paged_pool *pool, const struct paged_block_mask_params *params,
			     const struct paged_block_arrays *arrays, struct paged_block_mask **mask_p)
{
	return block_mask_from_given(block_mask_take_arrays, pool, params, arrays, mask_p);
}

static enum paged_status
block_mask_take_dense(const struct block_mask_shape *shape, uint64_t max_bytes, const void *dense,
		      struct block_mask **mask_p, struct paged_error *error)
{
	return block_mask_from_dense(shape, dense, max_bytes, mask_p, error);
}

enum paged_status
paged_block_mask_from_dense(struct paged_pool *pool, const struct paged_block_mask_params *params, const uint8_t *dense,
			    struct paged_block_mask **mask_p)
{
	return block_mask_from_given(block_mask_take_dense, pool, params, dense, mask_p);
}
