/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mask_fixture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/rle.h"

void
mask_dense_open(struct mask_dense *dense, const struct block_mask_shape *shape)
{
	struct block_mask_row *rows = calloc(shape->n_rows, sizeof(*rows));

	*dense = (struct mask_dense){ .shape = *shape };
	memcpy(rows, shape->rows, shape->n_rows * sizeof(*rows));
	dense->shape.rows = rows;
	for (uint32_t r = 0; r < shape->n_rows; r++)
		dense->n += shape->n_heads * rows[r].q_len * rows[r].kv_len;
	dense->elements = calloc(dense->n + 1, 1);
}

void
mask_dense_close(struct mask_dense *dense)
{
	free((void *)dense->shape.rows);
	free(dense->elements);
}

uint8_t *
mask_dense_at(const struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv)
{
	const struct block_mask_row *rows = dense->shape.rows;
	uint64_t at = 0;

	for (uint32_t r = 0; r < b; r++)
		at += dense->shape.n_heads * rows[r].q_len * rows[r].kv_len;
	return &dense->elements[at + (h * rows[b].q_len + q) * rows[b].kv_len + kv];
}

static void
dense_fill_block(struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv, uint64_t *state)
{
	const struct block_mask_row *row = &dense->shape.rows[b];
	uint64_t choice = random_below(state, 5);

	for (uint64_t i = q; i < q + dense->shape.q_block && i < row->q_len; i++)
		for (uint64_t j = mask_max(kv, row->kv_first); j < kv + dense->shape.kv_block && j < row->kv_len; j++)
			*mask_dense_at(dense, b, h, i, j) = choice < 2 ? choice == 1 : random_below(state, choice) == 0;
}

void
mask_dense_random(struct mask_dense *dense, uint64_t *state)
{
	struct block_mask_row rows[4];
	struct block_mask_shape shape = { .rows = rows };

	shape.n_rows = (uint32_t)(1 + random_below(state, 4));
	shape.n_heads = (uint32_t)(1 + random_below(state, 3));
	shape.q_block = (uint32_t)(1 + random_below(state, 9));
	shape.kv_block = (uint32_t)(1 + random_below(state, 9));
	for (uint32_t r = 0; r < shape.n_rows; r++) {
		rows[r] = (struct block_mask_row){ .q_base = (int64_t)random_below(state, 100) - 20,
						   .q_len = random_below(state, 40),
						   .kv_len = random_below(state, 70) };
		if (random_below(state, 2) == 0)
			rows[r].kv_first = random_below(state, rows[r].kv_len + 1);
	}
	mask_dense_open(dense, &shape);
	for (uint32_t b = 0; b < shape.n_rows; b++)
		for (uint32_t h = 0; h < shape.n_heads; h++)
			for (uint64_t q = 0; q < rows[b].q_len; q += shape.q_block)
				for (uint64_t kv = 0; kv < rows[b].kv_len; kv += shape.kv_block)
					dense_fill_block(dense, b, h, q, kv, state);
}

struct block_mask *
mask_from_dense(const struct mask_dense *dense)
{
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	cr_assert_eq(block_mask_from_dense(&dense->shape, dense->elements, 0, &mask, &error), PAGED_OK, "%s",
		     error.text);
	return mask;
}

/* A block that exceeds the lengths is padded with zeros. */
static enum mask_coverage
dense_block_coverage(const struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv)
{
	const struct block_mask_row *row = &dense->shape.rows[b];
	uint64_t n = 0;

	for (uint64_t i = q; i < q + dense->shape.q_block && i < row->q_len; i++)
		for (uint64_t j = kv; j < kv + dense->shape.kv_block && j < row->kv_len; j++)
			n += *mask_dense_at(dense, b, h, i, j) != 0;
	if (n == (uint64_t)dense->shape.q_block * dense->shape.kv_block)
		return MASK_FULL;
	return n == 0 ? MASK_EMPTY : MASK_PARTIAL;
}

static void
expect_dense_lists(const struct block_mask *mask, const struct mask_dense *dense, uint32_t b, uint32_t h,
		   uint64_t q_block, const char *what)
{
	struct block_mask_list lists[BLOCK_MASK_N_KINDS];
	uint64_t at[BLOCK_MASK_N_KINDS] = { 0 };

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		lists[kind] = block_mask_list(mask, kind, b, h, q_block);
	for (uint64_t k = 0; k < block_mask_kv_blocks(mask, b); k++) {
		enum mask_coverage coverage =
			dense_block_coverage(dense, b, h, q_block * mask->shape.q_block, k * mask->shape.kv_block);
		enum block_mask_kind kind = coverage == MASK_FULL ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL;

		if (coverage == MASK_EMPTY)
			continue;
		cr_assert(at[kind] < lists[kind].n && lists[kind].blocks[at[kind]] == k,
			  "%s: row %u head %u query block %" PRIu64 ": block %" PRIu64 " should be next in list %d",
			  what, b, h, q_block, k, kind);
		at[kind]++;
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		cr_assert_eq(at[kind], lists[kind].n, "%s: row %u head %u query block %" PRIu64 ": %s", what, b, h,
			     q_block, "more blocks than there should be");
}

void
expect_dense_mask(const struct block_mask *mask, const struct mask_dense *dense, const char *what)
{
	cr_assert(mask->ascending, "%s", what);
	for (uint32_t b = 0; b < mask->shape.n_rows; b++)
		for (uint32_t h = 0; h < mask->shape.n_heads; h++)
			for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
				expect_dense_lists(mask, dense, b, h, q, what);
}

struct block_mask *
mask_encode_by_parts(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator, uint32_t capacity,
		     uint32_t *n_parts_p)
{
	uint32_t *values = calloc(capacity, sizeof(*values)), n_parts = 0;
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;
	struct rle_reader reader;

	rle_read_begin(&reader, shape, 0, &error);
	do {
		struct rle_writer writer = { .values = values, .capacity = capacity };

		cr_assert_eq(block_mask_encode_part(shape, evaluator, UINT64_MAX, reader.builder.n_ended, reader.block,
						    &writer, &error),
			     PAGED_OK, "%s", error.text);
		cr_assert_eq(rle_read_part(&reader, &(struct mask_part){ writer.n, values, writer.list_continues, 0 }),
			     PAGED_OK, "%s", error.text);
		n_parts++;
	} while (!reader.done);
	cr_assert_eq(rle_read_end(&reader, PAGED_OK, &mask), PAGED_OK, "%s", error.text);
	free(values);
	if (n_parts_p != NULL)
		*n_parts_p = n_parts;
	return mask;
}

void
expect_equal_masks(const struct block_mask *got, const struct block_mask *expected, const char *what)
{
	cr_assert_eq(got->shape.n_rows, expected->shape.n_rows, "%s", what);
	cr_assert_eq(got->shape.n_heads, expected->shape.n_heads, "%s", what);
	cr_assert_eq(got->shape.q_block, expected->shape.q_block, "%s", what);
	cr_assert_eq(got->shape.kv_block, expected->shape.kv_block, "%s", what);
	for (uint32_t b = 0; b < got->shape.n_rows; b++) {
		cr_assert_eq(got->shape.rows[b].q_base, expected->shape.rows[b].q_base, "%s: row %u", what, b);
		cr_assert_eq(got->shape.rows[b].q_len, expected->shape.rows[b].q_len, "%s: row %u", what, b);
		cr_assert_eq(got->shape.rows[b].kv_len, expected->shape.rows[b].kv_len, "%s: row %u", what, b);
		for (uint32_t h = 0; h < got->shape.n_heads; h++)
			for (uint64_t q = 0; q < block_mask_q_blocks(got, b); q++)
				for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
					struct block_mask_list x = block_mask_list(got, kind, b, h, q);
					struct block_mask_list y = block_mask_list(expected, kind, b, h, q);

					cr_assert_eq(x.n, y.n, "%s: row %u head %u block %" PRIu64 " kind %d: n", what,
						     b, h, q, kind);
					cr_assert_arr_eq(x.blocks, y.blocks, x.n * sizeof(uint32_t),
							 "%s: row %u head %u block %" PRIu64 " kind %d", what, b, h, q,
							 kind);
				}
	}
}
