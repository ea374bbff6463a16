/* SPDX-License-Identifier: Apache-2.0 */
/* Dense masks: made to block masks, and block masks made to them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/build.h"

/* A dense mask as a rule. */
struct dense {
	const struct block_mask_row *rows;
	const uint8_t **start; /* of each row's first head */
};

static enum mask_verdict
dense_exactly(void *context, const struct mask_area *area)
{
	const struct dense *dense = context;
	const struct block_mask_row *row = &dense->rows[area->b];
	const uint8_t *head = dense->start[area->b] + area->h * row->q_len * row->kv_len;
	bool all = true, none = true;

	for (int64_t q = area->q_begin; q < area->q_end && (all || none); q++) {
		const uint8_t *line = head + (uint64_t)(q - row->q_base) * row->kv_len;

		for (int64_t kv = area->kv_begin; kv < area->kv_end; kv++) {
			all &= line[kv] != 0;
			none &= line[kv] == 0;
		}
	}
	return none ? MASK_NONE : all ? MASK_ALL : MASK_SOME;
}

enum paged_status
block_mask_from_dense(const struct block_mask_shape *shape, const uint8_t *dense, uint64_t max_bytes,
		      struct block_mask **mask_p, struct paged_error *error)
{
	struct dense context = { .rows = shape->rows, .start = calloc((size_t)shape->n_rows + 1, sizeof(dense)) };
	const struct mask_rule rule = { .exactly = dense_exactly, .context = &context };
	enum paged_status status;

	if (context.start == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", shape->n_rows);
	for (uint32_t r = 0; r < shape->n_rows; r++) {
		context.start[r] = dense;
		dense += shape->n_heads * shape->rows[r].q_len * shape->rows[r].kv_len;
	}
	status = block_mask_create(shape, &rule, max_bytes, mask_p, error);
	free(context.start);
	return status;
}

void
block_mask_dense_blocks(const struct block_mask *mask, uint8_t *dense)
{
	struct build_place place;

	for (bool more = build_place_first(mask, &place); more; more = build_place_next(mask, &place)) {
		uint64_t n_kv = block_mask_kv_blocks(mask, place.row);

		memset(dense, 0, n_kv);
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list list = block_mask_list(mask, kind, place.row, place.head, place.q_block);

			for (uint64_t i = 0; i < list.n; i++)
				dense[list.blocks[i]] = 1;
		}
		dense += n_kv;
	}
}

/* A query block's lines of a dense mask. */
struct stripe {
	struct mask_area area; /* its query rows; KV as each block has it */
	uint64_t kv_len;
	uint32_t kv_block;
	uint8_t *lines;
	uint8_t *truth; /* room for a block */
};

static void
fill_block(struct stripe *stripe, const struct mask_rule *rule, uint32_t block)
{
	uint64_t begin = (uint64_t)block * stripe->kv_block;
	uint64_t n = stripe->kv_len - begin < stripe->kv_block ? stripe->kv_len - begin : stripe->kv_block;
	uint64_t n_lines = (uint64_t)(stripe->area.q_end - stripe->area.q_begin);

	stripe->area.kv_begin = (int64_t)begin;
	stripe->area.kv_end = (int64_t)(begin + n);
	if (rule != NULL)
		rule->evaluate(rule->context, &stripe->area, stripe->truth);
	for (uint64_t q = 0; q < n_lines; q++) {
		uint8_t *line = stripe->lines + q * stripe->kv_len + begin;

		if (rule == NULL)
			memset(line, 1, n);
		else
			memcpy(line, stripe->truth + q * n, n);
	}
}

static uint64_t
fill_stripe(struct stripe *stripe, const struct block_mask *mask, const struct build_place *place,
	    const struct mask_rule *rule)
{
	const struct block_mask_row *row = &mask->shape.rows[place->row];
	uint64_t first = place->q_block * mask->shape.q_block;
	uint64_t n = row->q_len - first < mask->shape.q_block ? row->q_len - first : mask->shape.q_block;

	stripe->kv_len = row->kv_len;
	stripe->area = (struct mask_area){ .b = place->row, .h = place->head, .q_begin = row->q_base + (int64_t)first };
	stripe->area.q_end = stripe->area.q_begin + (int64_t)n;
	memset(stripe->lines, 0, n * row->kv_len);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		struct block_mask_list list = block_mask_list(mask, kind, place->row, place->head, place->q_block);

		for (uint64_t i = 0; i < list.n; i++)
			fill_block(stripe, kind == BLOCK_MASK_FULL ? NULL : rule, list.blocks[i]);
	}
	return n * row->kv_len;
}

enum paged_status
block_mask_dense(const struct block_mask *mask, const struct mask_rule *rule, uint8_t *dense, struct paged_error *error)
{
	struct stripe stripe = { .kv_block = mask->shape.kv_block, .lines = dense };
	struct build_place place;

	stripe.truth = malloc((uint64_t)mask->shape.q_block * mask->shape.kv_block);
	if (stripe.truth == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a block of %" PRIu32 " x %" PRIu32,
				  mask->shape.q_block, mask->shape.kv_block);
	for (bool more = build_place_first(mask, &place); more; more = build_place_next(mask, &place))
		stripe.lines += fill_stripe(&stripe, mask, &place, rule);
	free(stripe.truth);
	return PAGED_OK;
}
