/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks in parts: round trips, the cost of requesting parts, and invalid numbers. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/mask/remote_mask.h"
#include "tests/support/mask_fixture.h"

static struct paged_error error;
static uint64_t n_evaluated;

/* An evaluator that has to evaluate every block: of a dense mask. */
static enum mask_coverage
evaluate_dense(void *context, const struct mask_area *area)
{
	const struct mask_dense *dense = context;
	int64_t q_base = dense->shape.rows[area->b].q_base;
	uint64_t n = 0, n_attended = 0;

	n_evaluated++;
	for (int64_t q = area->q_begin - q_base; q < area->q_end - q_base; q++)
		for (int64_t kv = area->kv_begin; kv < area->kv_end; kv++, n++)
			n_attended += *mask_dense_at(dense, area->b, area->h, (uint64_t)q, (uint64_t)kv);
	return n_attended == 0 ? MASK_EMPTY : n_attended == n ? MASK_FULL : MASK_PARTIAL;
}

Test(remote_mask, round_trip)
{
	uint64_t state = test_seed();

	for (int round = 0; round < 300; round++) {
		struct mask_evaluator evaluator = { .evaluate_area = evaluate_dense };
		struct block_mask *mask, *back;
		struct mask_dense dense;

		mask_dense_random(&dense, &state);
		evaluator.context = &dense;
		mask = mask_from_dense(&dense);
		back = mask_encode_by_parts(&dense.shape, &evaluator, 3 + (uint32_t)random_below(&state, 40), NULL);
		expect_equal_masks(back, mask, "by parts");
		cr_assert(back->ascending);
		block_mask_destroy(back);
		block_mask_destroy(mask);
		mask_dense_close(&dense);
	}
}

/* An evaluator that has to evaluate every block: every second one is partial. */
static enum mask_coverage
evaluate_every_second_block(void *context, const struct mask_area *area)
{
	(void)context;
	n_evaluated++;
	return area->kv_begin / 10 % 2 == 0 ? MASK_PARTIAL : MASK_EMPTY;
}

/*
 * A list of more runs than a part holds: a request for the next part evaluates
 * about as many blocks as that part holds.
 */
Test(remote_mask, one_list_in_many_parts)
{
	enum { N_BLOCKS = 100000 };
	const struct block_mask_row rows[2] = { { 0, 1, 10 * N_BLOCKS, 0 }, { 0, 3, 25, 0 } };
	const struct block_mask_shape shape = { .n_rows = 2, .n_heads = 1, .q_block = 1, .kv_block = 10, .rows = rows };
	const struct mask_evaluator evaluator = { .evaluate_area = evaluate_every_second_block };
	struct block_mask *mask;
	uint32_t n_parts;

	mask = mask_encode_by_parts(&shape, &evaluator, MASK_PART_MAX, &n_parts);
	cr_assert_eq(n_parts, 7);
	cr_assert_eq(mask->start[BLOCK_MASK_PARTIAL][1], N_BLOCKS / 2);
	cr_assert_eq(mask->start[BLOCK_MASK_PARTIAL][4], N_BLOCKS / 2 + 3 * 2);
	for (uint32_t i = 0; i < N_BLOCKS / 2; i++)
		cr_assert_eq(mask->indices[BLOCK_MASK_PARTIAL][i], 2 * i);
	cr_assert_leq(n_evaluated, 5 * N_BLOCKS / 2);
	block_mask_destroy(mask);
}

/* Many lists: all parts together cost about as much as the mask in one part. */
Test(remote_mask, many_lists_in_many_parts)
{
	const struct block_mask_row row = { 0, 3000, 400, 0 };
	const struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 1, .kv_block = 10, .rows = &row };
	const struct mask_evaluator evaluator = { .evaluate_area = evaluate_every_second_block };
	struct block_mask *mask, *at_once;
	uint64_t n_unclipped;
	uint32_t n_parts;

	cr_assert_eq(block_mask_create(&shape, &evaluator, 0, &at_once, &error), PAGED_OK);
	n_unclipped = n_evaluated;
	n_evaluated = 0;
	mask = mask_encode_by_parts(&shape, &evaluator, MASK_PART_MAX, &n_parts);
	expect_equal_masks(mask, at_once, "by parts");
	cr_assert_eq(n_parts, 8);
	cr_assert_leq(n_evaluated, n_unclipped * 11 / 10, "%lu, %lu", (unsigned long)n_evaluated,
		      (unsigned long)n_unclipped);
	block_mask_destroy(mask);
	block_mask_destroy(at_once);
}

/* Heads and rows equal to the previous one are not evaluated again and take one number. */
Test(remote_mask, repeated_lists)
{
	const struct block_mask_row rows[4] = { { 0, 5, 40, 0 }, { 0, 5, 40, 0 }, { 0, 0, 0, 0 }, { 0, 5, 40, 0 } };
	const struct block_mask_shape shape = { .n_rows = 4, .n_heads = 3, .q_block = 1, .kv_block = 10, .rows = rows };
	const struct mask_evaluator rules[2] = {
		{ .evaluate_area = evaluate_every_second_block, .same_rows = true, .same_heads = true },
		{ .evaluate_area = evaluate_every_second_block, .same_rows = true },
	};

	for (int i = 0; i < 2; i++) {
		struct block_mask *mask, *at_once;

		cr_assert_eq(block_mask_create(&shape, &rules[i], 0, &at_once, &error), PAGED_OK);
		for (uint32_t capacity = 3; capacity < 80; capacity++) {
			uint32_t n_parts;

			mask = mask_encode_by_parts(&shape, &rules[i], capacity, &n_parts);
			expect_equal_masks(mask, at_once, "by parts");
			cr_assert(i == 1 || capacity < 55 || n_parts == 1);
			block_mask_destroy(mask);
		}
		block_mask_destroy(at_once);
	}
}

static const struct block_mask_row two_rows[2] = { { 0, 4, 35, 0 }, { 7, 4, 35, 0 } };
static const struct block_mask_shape two_heads = {
	.n_rows = 2, .n_heads = 2, .q_block = 2, .kv_block = 10, .rows = two_rows
};

static void
refuse(uint32_t n, const uint32_t *values, bool clip, const char *part)
{
	struct block_mask *mask = NULL;
	struct rle_reader reader;
	enum paged_status status;

	rle_read_begin(&reader, &two_heads, 0, &error);
	status = rle_read_part(&reader, &(struct mask_part){ n, values, clip, 0 });
	cr_assert_eq(status, PAGED_ERR_PROTOCOL, "%s: %d", part, status);
	cr_assert_not_null(strstr(error.text, part), "%s", error.text);
	cr_assert_eq(rle_read_end(&reader, status, &mask), PAGED_ERR_PROTOCOL);
	cr_assert_null(mask);
}

#define REFUSE(part, clip, ...)                                                    \
	do {                                                                       \
		const uint32_t values_[] = { __VA_ARGS__ };                        \
		refuse(sizeof(values_) / sizeof(values_[0]), values_, clip, part); \
	} while (0)

Test(remote_mask, refusals)
{
	enum { FULL = 1 };

	refuse(0, NULL, false, "ends in no list");
	REFUSE("ends in no list", true, 0);
	REFUSE("ends in no list", true, 1, 0, 2, 0);
	REFUSE("more runs", false, 1);
	REFUSE("more runs", false, 2, 0, 2, 0);
	REFUSE("more runs", false, RLE_REPEAT_ROW - 1, 0, 2);
	REFUSE("row 0, head 0, query block 0: a run without", false, 1, 0, 0);
	REFUSE("a run without", false, 1, 0, FULL);
	REFUSE("row 0, head 0, query block 1: a run", false, 0, 1, 0, 2 * 5);
	REFUSE("outside the row's", false, 1, 4, 2);
	REFUSE("outside the row's", false, 1, UINT32_MAX, UINT32_MAX);
	REFUSE("outside the row's", false, 2, 0, 2, UINT32_MAX, 2);
	/* kv_len ends inside the fourth block, so it cannot be full. */
	REFUSE("outside the row's", false, 1, 3, 2 + FULL);
	REFUSE("no lists to repeat", false, RLE_REPEAT_HEAD);
	REFUSE("no lists to repeat", false, RLE_REPEAT_ROW);
	REFUSE("no lists to repeat", false, 0, RLE_REPEAT_HEAD);
	REFUSE("row 0, head 1, query block 0: there are no lists", false, 0, 0, RLE_REPEAT_ROW);
	REFUSE("more lists", false, 0, 0, RLE_REPEAT_HEAD, RLE_REPEAT_ROW, 0);
}

/* A list that continues in the next part must continue there; a repeat or another list is refused. */
Test(remote_mask, continues_a_split_list)
{
	static const uint32_t first[] = { 0, 0, 1, 1, 2 }, same[] = { RLE_REPEAT_HEAD }, back[] = { 1, 3, 2 },
			      on[] = { 1, 0, 2, 0, RLE_REPEAT_ROW };
	struct block_mask *mask = NULL;
	struct rle_reader reader;

	for (int i = 0; i < 3; i++) {
		const struct mask_part next[] = { { 1, same, false, 0 }, { 3, back, false, 0 }, { 5, on, false, 0 } };
		enum paged_status status;

		rle_read_begin(&reader, &two_heads, 0, &error);
		cr_assert_eq(rle_read_part(&reader, &(struct mask_part){ 5, first, true, 0 }), PAGED_OK, "%s",
			     error.text);
		cr_assert(reader.builder.n_ended == 2 && reader.block == 2 && !reader.done);
		status = rle_read_part(&reader, &next[i]);
		cr_assert_eq(status, i == 2 ? PAGED_OK : PAGED_ERR_PROTOCOL, "%s", error.text);
		cr_assert(i != 2 || reader.done);
		cr_assert_eq(rle_read_end(&reader, status, &mask), status);
	}
	cr_assert_eq(block_mask_n_blocks(mask), 4);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_PARTIAL, 1, 1, 0).n, 2);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_PARTIAL, 1, 1, 0).blocks[1], 2);
	block_mask_destroy(mask);
}

Test(remote_mask, refuses_parts_of_two_masks)
{
	static const uint32_t empty[] = { 0, 0, 0 };
	struct block_mask *mask;
	struct rle_reader reader;
	enum paged_status status;

	rle_read_begin(&reader, &two_heads, 0, &error);
	cr_assert_eq(rle_read_part(&reader, &(struct mask_part){ 3, empty, false, 7 }), PAGED_OK);
	status = rle_read_part(&reader, &(struct mask_part){ 3, empty, false, 8 });
	cr_assert_eq(status, PAGED_ERR_AGAIN, "%s", error.text);
	cr_assert_eq(rle_read_end(&reader, status, &mask), PAGED_ERR_AGAIN);
}

/* The reader's memory limit holds for any input. */
Test(remote_mask, memory_limit)
{
	const struct block_mask_row row = { 0, 2, UINT32_MAX, 0 };
	const struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 1, .kv_block = 1, .rows = &row };
	static const uint32_t all[] = { 1, 0, UINT32_MAX - 1 };
	struct block_mask *mask;
	struct rle_reader reader;
	enum paged_status status;

	rle_read_begin(&reader, &shape, 10000, &error);
	status = rle_read_part(&reader, &(struct mask_part){ 3, all, false, 0 });
	cr_assert_eq(rle_read_end(&reader, status, &mask), PAGED_ERR_LIMIT);
}

/* No part lists a block that is wholly before kv_first, nor as full one that begins before it. */
Test(remote_mask, refuses_blocks_before_kv_first)
{
	const struct block_mask_row row = { 0, 1, 40, 12 };
	const struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 1, .kv_block = 10, .rows = &row };
	/* One run: where it begins, and twice its length, + 1 for full blocks. */
	static const uint32_t values[][3] = { { 1, 0, 2 * 2 }, { 1, 1, 2 + 1 }, { 1, 1, 2 * 3 }, { 1, 2, 2 * 2 + 1 } };

	for (uint32_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		struct block_mask *mask = NULL;
		struct rle_reader reader;
		enum paged_status status;

		rle_read_begin(&reader, &shape, 0, &error);
		status = rle_read_part(&reader, &(struct mask_part){ 3, values[i], false, 0 });
		cr_assert_eq(status, i < 2 ? PAGED_ERR_PROTOCOL : PAGED_OK, "part %u: %s", i, error.text);
		cr_assert_eq(rle_read_end(&reader, status, &mask), status);
		block_mask_destroy(mask);
	}
}

/* Every block of the mask is in bounds and listed once. */
static void
mask_check_lists(const struct block_mask *mask)
{
	struct mask_position position;

	cr_assert(mask_position_first(mask, &position));
	do {
		struct mask_clip clip = mask_clip(&mask->shape, &mask->shape.rows[position.row], position.q_block);
		uint64_t seen = 0;

		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list list =
				block_mask_list(mask, kind, position.row, position.head, position.q_block);

			for (uint64_t i = 0; i < list.n; i++) {
				cr_assert_geq(list.blocks[i],
					      kind == BLOCK_MASK_FULL ? clip.first_unclipped : clip.n_dropped);
				cr_assert_lt(list.blocks[i],
					     kind == BLOCK_MASK_FULL ? clip.n_unclipped : clip.n_blocks);
				cr_assert_eq(seen >> list.blocks[i] & 1, 0);
				seen |= UINT64_C(1) << list.blocks[i];
			}
		}
	} while (mask_position_next(mask, &position));
}

Test(remote_mask, every_number_invalid)
{
	static const uint32_t good[] = { 2, 0, 3, 1, 4, 1, 2, 2, RLE_REPEAT_HEAD, RLE_REPEAT_ROW };
	static const uint32_t flips[] = { 1, 2, 3, 4, 7, 0x80000000, UINT32_MAX };
	enum { N = sizeof(good) / sizeof(good[0]), N_FLIPS = sizeof(flips) / sizeof(flips[0]) };
	unsigned int n_read = 0, n_refused = 0;
	uint64_t state = test_seed();

	for (int round = 0; round < 20000; round++) {
		uint32_t values[N];
		struct block_mask *mask;
		struct rle_reader reader;
		enum paged_status status;

		memcpy(values, good, sizeof(good));
		for (uint64_t i = random_below(&state, 3); i-- > 0;)
			values[random_below(&state, N)] ^= flips[random_below(&state, N_FLIPS)];
		rle_read_begin(&reader, &two_heads, 0, &error);
		status = rle_read_part(&reader, &(struct mask_part){ N, values, random_below(&state, 8) == 0, 0 });
		if (status == PAGED_OK && !reader.done)
			status = PAGED_ERR_PROTOCOL;
		if (rle_read_end(&reader, status, &mask) == PAGED_OK) {
			mask_check_lists(mask);
			block_mask_destroy(mask);
			n_read++;
		} else {
			n_refused++;
		}
	}
	cr_assert_gt(n_read, 5000);
	cr_assert_gt(n_refused, 5000);
}

static void *
cancel_soon(void *cancelled)
{
	usleep(20000);
	atomic_store((atomic_bool *)cancelled, true);
	return NULL;
}

/* Cancel a mask that would take minutes: before it is built, and while it is built. */
static void
check_cancelled(const char *text, uint32_t block)
{
	static const uint32_t n_tokens = 1u << 18;
	const struct mask_request request = {
		.n_rows = 1, .q_len = &n_tokens, .kv_len = &n_tokens, .q_block = block, .kv_block = block, .text = text
	};
	uint32_t *values = calloc(MASK_PART_MAX, sizeof(*values));
	struct remote_mask *remote_mask;

	cr_assert_eq(remote_mask_create(&request, UINT64_MAX, &remote_mask, &error), PAGED_OK, "%s", error.text);
	for (int early = 0; early < 2; early++) {
		struct rle_writer part = { .values = values, .capacity = MASK_PART_MAX };
		atomic_bool cancelled = early;
		pthread_t thread;

		cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &cancelled), 0);
		cr_assert_eq(remote_mask_build(remote_mask, &cancelled, &part, &error), PAGED_ERR_AGAIN);
		cr_assert_str_eq(error.text, "block mask: cancelled");
		pthread_join(thread, NULL);
	}
	remote_mask_destroy(remote_mask);
	free(values);
}

/* The evaluator must visit the elements of each block, and few blocks are not empty: a part fills slowly. */
Test(remote_mask, cancelled_between_blocks, .timeout = 1800)
{
	check_cancelled("(q_idx * 7919 ^ kv_idx * 104729) % 1000003 == 1000002 && (q_idx ^ kv_idx) % 9 == 4", 4);
}

/* All blocks are full, which the evaluator learns only by visiting every element. */
Test(remote_mask, cancelled_within_a_block, .timeout = 1800)
{
	check_cancelled("((q_idx ^ kv_idx) & 3) + (~(q_idx ^ kv_idx) & 3) == 3", 1u << 18);
	check_cancelled("sin(q_idx * 7.0) * sin(q_idx * 7.0) + cos(q_idx * 7.0) * cos(q_idx * 7.0) < 1.5", 1u << 18);
}
