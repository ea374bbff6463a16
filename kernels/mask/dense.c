/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of dense masks to block masks and back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

/* A dense mask as the context of a mask_evaluator. */
struct dense {
	const struct block_mask_row *rows;
	const uint8_t **start; /* first element of each row */
};

static enum mask_coverage
dense_evaluate_area(void *context, const struct mask_area *area)
{
	const struct dense *dense = context;
	const struct block_mask_row *row = &dense->rows[area->b];
	const uint8_t *head = dense->start[area->b] + area->h * row->q_len * row->kv_len;
	bool all = true, none = true;

	for (int64_t q = area->q_begin; q < area->q_end && (all || none); q++) {
		const uint8_t *q_row = head + (uint64_t)(q - row->q_base) * row->kv_len;

		for (int64_t kv = area->kv_begin; kv < area->kv_end; kv++) {
			all &= q_row[kv] != 0;
			none &= q_row[kv] == 0;
		}
	}
	return none ? MASK_EMPTY : all ? MASK_FULL : MASK_PARTIAL;
}

enum paged_status
block_mask_from_dense(const struct block_mask_shape *shape, const uint8_t *dense, uint64_t max_bytes,
		      struct block_mask **mask_p, struct paged_error *error)
{
	struct dense context = { .rows = shape->rows, .start = calloc((size_t)shape->n_rows + 1, sizeof(dense)) };
	const struct mask_evaluator evaluator = { .evaluate_area = dense_evaluate_area, .context = &context };
	enum paged_status status;

	if (context.start == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", shape->n_rows);
	for (uint32_t r = 0; r < shape->n_rows; r++) {
		context.start[r] = dense;
		dense += shape->n_heads * shape->rows[r].q_len * shape->rows[r].kv_len;
	}
	status = block_mask_create(shape, &evaluator, max_bytes, mask_p, error);
	free(context.start);
	return status;
}

void
block_mask_dense_blocks(const struct block_mask *mask, uint8_t *dense)
{
	struct mask_position position;

	for (bool more = mask_position_first(mask, &position); more; more = mask_position_next(mask, &position)) {
		uint64_t n_kv = block_mask_kv_blocks(mask, position.row);

		memset(dense, 0, n_kv);
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list list =
				block_mask_list(mask, kind, position.row, position.head, position.q_block);

			for (uint64_t i = 0; i < list.n; i++)
				dense[list.blocks[i]] = 1;
		}
		dense += n_kv;
	}
}
