/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/block_mask_fixture.h"

#include <string.h>

static const int32_t window = 5;
static int32_t documents[MASK_RULE_TOKENS];

const struct paged_array mask_rule_arrays[2] = {
	{ .name = "window", .dtype = PAGED_I32, .data = &window },
	{ .name = "doc", .dtype = PAGED_I32, .n_dims = 1, .extents = { MASK_RULE_TOKENS }, .data = documents },
};

/* Documents of 1 to 16 tokens. */
__attribute__((constructor)) static void
documents_fill(void)
{
	uint32_t end = 0, document = 0;

	for (uint32_t i = 0; i < MASK_RULE_TOKENS; i++) {
		if (i == end) {
			end += 1 + (document * 7) % 16;
			document++;
		}
		documents[i] = (int32_t)document;
	}
}

static bool
causal_attends(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx)
{
	(void)b, (void)h;
	return kv_idx <= q_idx;
}

static bool
window_attends(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx)
{
	(void)b, (void)h;
	return kv_idx <= q_idx && q_idx - kv_idx < window;
}

static bool
document_attends(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx)
{
	(void)b, (void)h;
	return documents[q_idx] == documents[kv_idx];
}

static bool
by_row_attends(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx)
{
	(void)h;
	return kv_idx < 8 * b || kv_idx > q_idx;
}

static bool
by_head_attends(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx)
{
	(void)b;
	return h == 1 ? kv_idx <= q_idx : kv_idx % 8 < 4;
}

const struct mask_rule mask_rules[] = {
	{ "kv_idx <= q_idx", causal_attends, false },
	{ "kv_idx <= q_idx && q_idx - kv_idx < window", window_attends, false },
	{ "doc[q_idx] == doc[kv_idx]", document_attends, false },
	{ "kv_idx < 8 * b || kv_idx > q_idx", by_row_attends, false },
	{ "h == 1 ? kv_idx <= q_idx : kv_idx % 8 < 4", by_head_attends, true },
};
const size_t n_mask_rules = sizeof(mask_rules) / sizeof(mask_rules[0]);

struct paged_mod *
fixture_mod_parse(const char *text, size_t n_arrays, const struct paged_array *arrays)
{
	struct paged_mod *mod = NULL;

	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, text, n_arrays, arrays, &mod));
	return mod;
}

struct paged_block_mask *
fixture_mask_create(const struct paged_block_mask_params *params, const char *text, size_t n_arrays,
		    const struct paged_array *arrays)
{
	struct paged_mod *mod = fixture_mod_parse(text, n_arrays, arrays);
	struct paged_block_mask *mask = NULL;

	expect_ok(paged_block_mask_create(pool, params, mod, n_arrays, arrays, &mask));
	paged_mod_destroy(mod);
	return mask;
}

struct paged_block_mask_info
fixture_mask_info(const struct paged_block_mask *mask)
{
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_block_mask_get_info(mask, &info));
	return info;
}

struct paged_block_mask_row
fixture_mask_row(const struct paged_block_mask *mask, size_t row)
{
	struct paged_block_mask_row info = { .struct_size = sizeof(info) };

	expect_ok(paged_block_mask_get_row(mask, row, &info));
	return info;
}

static uint64_t
count_blocks(uint64_t tokens, uint32_t block)
{
	return (tokens + block - 1) / block;
}

struct fixture_mask_list
fixture_mask_list(const struct paged_block_mask *mask, enum paged_block_kind kind, uint32_t r, uint32_t h,
		  uint64_t q_block)
{
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	uint64_t list;

	expect_ok(paged_block_mask_lists(mask, &lists));
	list = lists.first_list[r] +
	       h * count_blocks(fixture_mask_row(mask, r).q_len, fixture_mask_info(mask).q_block) + q_block;
	cr_assert_lt(list, lists.first_list[r + 1]);
	return (struct fixture_mask_list){ lists.indices[kind] + lists.start[kind][list],
					   lists.start[kind][list + 1] - lists.start[kind][list] };
}

void
expect_same_mask(const struct paged_block_mask *got, const struct paged_block_mask *expected, const char *what)
{
	struct paged_block_mask_info a = fixture_mask_info(got), b = fixture_mask_info(expected);
	struct paged_block_lists x = { .struct_size = sizeof(x) }, y = { .struct_size = sizeof(y) };

	cr_assert(a.n_rows == b.n_rows && a.n_heads == b.n_heads && a.q_block == b.q_block &&
			  a.kv_block == b.kv_block && a.physical == b.physical && a.n_lists == b.n_lists,
		  "%s: shape", what);
	for (uint32_t r = 0; r < a.n_rows; r++) {
		struct paged_block_mask_row p = fixture_mask_row(got, r), q = fixture_mask_row(expected, r);

		cr_assert(p.q_base == q.q_base && p.q_len == q.q_len && p.kv_len == q.kv_len &&
				  p.kv_first == q.kv_first && p.seq == q.seq && p.version == q.version,
			  "%s: row %u", what, r);
	}
	expect_ok(paged_block_mask_lists(got, &x));
	expect_ok(paged_block_mask_lists(expected, &y));
	cr_assert_arr_eq(x.first_list, y.first_list, (a.n_rows + 1) * sizeof(uint64_t), "%s", what);
	for (int kind = 0; kind < 2; kind++) {
		cr_assert_arr_eq(x.start[kind], y.start[kind], (a.n_lists + 1) * sizeof(uint64_t), "%s", what);
		cr_assert_arr_eq(x.indices[kind], y.indices[kind], x.start[kind][a.n_lists] * sizeof(uint32_t), "%s",
				 what);
	}
}

struct block {
	const struct mask_rule *rule;
	struct paged_block_mask_row row;
	uint32_t b, h;
	uint64_t q_begin, q_end, kv_begin, kv_end; /* may exceed the row's lengths */
};

/* 0: the rule attends no element; 1: some; 2: all elements, and the block is whole. */
static int
block_coverage(const struct block *block)
{
	uint64_t begin = mask_max(block->kv_begin, block->row.kv_first);
	bool any = false,
	     all = block->q_end <= block->row.q_len && block->kv_end <= block->row.kv_len && begin == block->kv_begin;

	for (uint64_t q = block->q_begin; q < block->q_end && q < block->row.q_len; q++)
		for (uint64_t kv = begin; kv < block->kv_end && kv < block->row.kv_len; kv++) {
			int32_t q_idx = (int32_t)(block->row.q_base + (int64_t)q);
			bool attends = block->rule->attends((int32_t)block->b, (int32_t)block->h, q_idx, (int32_t)kv);

			any |= attends;
			all &= attends;
		}
	return any ? 1 + all : 0;
}

void
expect_brute_force_mask(const struct paged_block_mask *mask, const struct mask_rule *rule)
{
	struct paged_block_mask_info info = fixture_mask_info(mask);
	struct block block = { .rule = rule };
	uint64_t n_blocks = 0;

	for (block.b = 0; block.b < info.n_rows; block.b++)
		for (block.h = 0; block.h < info.n_heads; block.h++) {
			block.row = fixture_mask_row(mask, block.b);
			for (uint64_t q = 0; q < count_blocks(block.row.q_len, info.q_block); q++) {
				struct fixture_mask_list list[2] = {
					fixture_mask_list(mask, PAGED_BLOCKS_PARTIAL, block.b, block.h, q),
					fixture_mask_list(mask, PAGED_BLOCKS_FULL, block.b, block.h, q),
				};
				uint64_t at[2] = { 0 };

				block.q_begin = q * info.q_block;
				block.q_end = block.q_begin + info.q_block;
				for (uint64_t kv = 0; kv < count_blocks(block.row.kv_len, info.kv_block); kv++) {
					int is;

					block.kv_begin = kv * info.kv_block;
					block.kv_end = block.kv_begin + info.kv_block;
					is = block_coverage(&block);
					if (is == 0)
						continue;
					cr_assert(at[is - 1] < list[is - 1].n && list[is - 1].blocks[at[is - 1]] == kv,
						  "%s: row %u, head %u, query block %lu: block %lu", rule->text,
						  block.b, block.h, (unsigned long)q, (unsigned long)kv);
					at[is - 1]++;
					n_blocks++;
				}
				cr_assert(at[0] == list[0].n && at[1] == list[1].n);
			}
		}
	cr_assert_eq(info.n_blocks, n_blocks);
}

void
mask_random_rows(struct paged_batch_row *rows, uint32_t n, uint64_t *state)
{
	memset(rows, 0, n * sizeof(*rows));
	for (uint32_t r = 0; r < n; r++) {
		rows[r].q_len = (uint32_t)random_below(state, 30);
		rows[r].kv_len = (uint32_t)random_below(state, MASK_RULE_TOKENS + 1);
		if (random_below(state, 2) == 0)
			rows[r].kv_first = (uint32_t)random_below(state, rows[r].kv_len + 1);
		rows[r].flags = PAGED_ROW_Q_BASE;
		rows[r].q_base = (int64_t)random_below(state, MASK_RULE_TOKENS - 29);
	}
}
