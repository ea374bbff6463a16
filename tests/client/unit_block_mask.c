/* SPDX-License-Identifier: Apache-2.0 */
/* Logical block masks through the public API. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/block_mask_fixture.h"

#define ROUNDS 200u
#define MAX_ROWS 4u

TestSuite(block_mask, .init = client_fixture_setup, .fini = client_fixture_teardown);

/* Random params for random rows; n_heads is at least 1 if the rule depends on h. */
static struct paged_block_mask_params
random_params(struct paged_batch_row *rows, const struct mask_rule *rule, uint64_t *state)
{
	struct paged_block_mask_params params = {
		.struct_size = sizeof(params),
		.rows = rows,
		.n_rows = 1 + random_below(state, MAX_ROWS),
		.n_heads = (uint32_t)random_below(state, 3) + rule->has_heads,
		.q_block = 1 + (uint32_t)random_below(state, 9),
		.kv_block = 1 + (uint32_t)random_below(state, 9),
	};

	mask_random_rows(rows, (uint32_t)params.n_rows, state);
	return params;
}

static struct paged_block_mask *
random_mask(struct paged_batch_row *rows, struct paged_block_mask_params *params, const struct mask_rule **rule_p,
	    uint64_t *state)
{
	*rule_p = &mask_rules[random_below(state, n_mask_rules)];
	*params = random_params(rows, *rule_p, state);
	return fixture_mask_create(params, (*rule_p)->text, 2, mask_rule_arrays);
}

Test(block_mask, create_equals_brute_force)
{
	uint64_t state = 1;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params;
		const struct mask_rule *rule;
		struct paged_block_mask *mask = random_mask(rows, &params, &rule, &state);
		struct paged_block_mask_info info = fixture_mask_info(mask);

		expect_brute_force_mask(mask, rule);
		cr_assert(info.n_rows == params.n_rows && info.q_block == params.q_block && info.physical == 0);
		cr_assert_eq(info.n_heads, params.n_heads != 0 ? params.n_heads : 1);
		for (uint32_t r = 0; r < info.n_rows; r++) {
			struct paged_block_mask_row row = fixture_mask_row(mask, r);

			cr_assert(row.q_base == rows[r].q_base && row.q_len == rows[r].q_len);
			cr_assert(row.kv_len == rows[r].kv_len && row.seq == 0 && row.version == 0);
		}
		paged_block_mask_destroy(mask);
	}
}

Test(block_mask, default_block_sizes_and_heads)
{
	const struct paged_batch_row rows[] = { { .q_len = 256, .kv_len = 1024 } };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = rows, .n_rows = 1 };
	struct paged_block_mask *mask = fixture_mask_create(&params, "causal", 0, NULL);
	struct paged_block_mask_info info = fixture_mask_info(mask);

	cr_assert(info.q_block == 128 && info.kv_block == 128 && info.n_heads == 1);
	cr_assert_eq(fixture_mask_row(mask, 0).q_base, 768, "the last query attends the last key");
	cr_assert(info.n_lists == 2 && info.n_blocks == 15);
	cr_assert_float_eq(info.sparsity, 6.25, 1e-9);
	cr_assert_gt(info.bytes, 15 * sizeof(uint32_t));
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_FULL, 0, 0, 1).n, 7);
}

/* Lists need not begin at index 0 of the caller's arrays. */
Test(block_mask, from_lists_round_trip)
{
	uint64_t state = 2;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params;
		const struct mask_rule *rule;
		struct paged_block_mask *mask = random_mask(rows, &params, &rule, &state), *back = NULL;
		struct paged_block_lists lists = { .struct_size = sizeof(lists) };
		uint64_t *start[2], n = fixture_mask_info(mask).n_lists;

		expect_ok(paged_block_mask_lists(mask, &lists));
		for (int kind = 0; kind < 2; kind++) {
			start[kind] = calloc(n + 1, sizeof(uint64_t));
			for (uint64_t j = 0; j <= n; j++)
				start[kind][j] = lists.start[kind][j] + 7;
			lists.start[kind] = start[kind];
			lists.indices[kind] -= 7;
		}
		lists.first_list = NULL;
		expect_ok(paged_block_mask_from_lists(pool, &params, &lists, &back));
		expect_same_mask(back, mask, rule->text);
		free(start[0]);
		free(start[1]);
		paged_block_mask_destroy(back);
		paged_block_mask_destroy(mask);
	}
}

Test(block_mask, from_arrays_round_trip)
{
	uint64_t state = 3;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct paged_batch_row rows[MAX_ROWS];
		const struct mask_rule *rule = &mask_rules[random_below(&state, n_mask_rules)];
		struct paged_block_mask_params params = random_params(rows, rule, &state);
		struct paged_block_mask *mask, *back = NULL;
		struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
		uint64_t n_lists;

		for (uint32_t r = 1; r < params.n_rows; r++)
			rows[r].q_len = rows[0].q_len;
		mask = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays);
		n_lists = fixture_mask_info(mask).n_lists;
		expect_ok(paged_block_mask_arrays(mask, &arrays));
		for (int kind = 0; kind < 2; kind++) {
			arrays.width[kind] += random_below(&state, 3);
			arrays.num_blocks[kind] = calloc(n_lists + 1, sizeof(int32_t));
			arrays.indices[kind] = malloc((n_lists * arrays.width[kind] + 1) * sizeof(int32_t));
			memset(arrays.indices[kind], 0xff, n_lists * arrays.width[kind] * sizeof(int32_t));
		}
		expect_ok(paged_block_mask_arrays(mask, &arrays));
		for (int kind = 0; kind < 2; kind++)
			for (uint64_t j = 0; j < n_lists * arrays.width[kind]; j++)
				cr_assert_geq(arrays.indices[kind][j], 0, "-1 is in no list");
		expect_ok(paged_block_mask_from_arrays(pool, &params, &arrays, &back));
		expect_same_mask(back, mask, rule->text);
		for (int kind = 0; kind < 2; kind++) {
			free(arrays.num_blocks[kind]);
			free(arrays.indices[kind]);
		}
		paged_block_mask_destroy(back);
		paged_block_mask_destroy(mask);
	}
}

Test(block_mask, from_dense_round_trip)
{
	uint64_t state = 4;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params;
		const struct mask_rule *rule;
		struct paged_block_mask *mask = random_mask(rows, &params, &rule, &state), *back = NULL;
		uint32_t n_heads = fixture_mask_info(mask).n_heads;
		uint8_t *elements = calloc(MAX_ROWS * 3 * 30 * MASK_RULE_TOKENS, 1), *at = elements;

		for (uint32_t b = 0; b < params.n_rows; b++)
			for (uint32_t h = 0; h < n_heads; h++)
				for (uint32_t q = 0; q < rows[b].q_len; q++)
					for (uint32_t kv = 0; kv < rows[b].kv_len; kv++)
						*at++ = rule->attends((int32_t)b, (int32_t)h,
								      (int32_t)rows[b].q_base + (int32_t)q,
								      (int32_t)kv);
		expect_ok(paged_block_mask_from_dense(pool, &params, elements, &back));
		expect_same_mask(back, mask, rule->text);
		free(elements);
		paged_block_mask_destroy(back);
		paged_block_mask_destroy(mask);
	}
}

/* Two rows of two query blocks; the last blocks of the second row are partly past its lengths. */
static const struct paged_batch_row two_rows[] = { { .q_len = 8, .kv_len = 8 }, { .q_len = 6, .kv_len = 6 } };
static const struct paged_block_mask_params two_rows_params = {
	.struct_size = sizeof(two_rows_params), .rows = two_rows, .n_rows = 2, .q_block = 4, .kv_block = 4
};

Test(block_mask, dense_blocks_and_picture)
{
	static const uint8_t expected[] = { 1, 0, 1, 1, 1, 0, 1, 1 };
	struct paged_block_mask *mask = fixture_mask_create(&two_rows_params, "causal", 0, NULL);
	uint8_t blocks[8];
	char *text = NULL;

	expect_ok(paged_block_mask_dense(mask, blocks));
	cr_assert_arr_eq(blocks, expected, sizeof(expected));
	expect_ok(paged_block_mask_picture(mask, 0, 0, 0, &text));
	cr_assert_str_eq(text, "(0, 0)\n██  \n████\n\n(1, 0)\n██  \n████\n");
	paged_free(text);
	expect_ok(paged_block_mask_picture(mask, 1, 1, 1, &text));
	cr_assert_eq(strncmp(text, "(0, 0)\n░░\n\n...\nTo print out more", 20), 0);
	paged_free(text);
}

/* A full block that exceeds kv_len becomes partial; lists keep their order. */
Test(block_mask, full_blocks_past_kv_len_become_partial)
{
	static const uint64_t full[] = { 0, 1, 3, 4, 6 };
	static const uint32_t blocks[] = { 0, 1, 0, 0, 1, 0 };
	const struct paged_block_lists lists = { .struct_size = sizeof(lists),
						 .start = { NULL, full },
						 .indices = { NULL, blocks } };
	struct paged_block_mask *mask = NULL;

	expect_ok(paged_block_mask_from_lists(pool, &two_rows_params, &lists, &mask));
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_FULL, 0, 0, 1).n, 2);
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_FULL, 0, 0, 1).blocks[0], 1);
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_FULL, 1, 0, 0).n, 1);
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_FULL, 1, 0, 1).n, 0);
	cr_assert_eq(fixture_mask_list(mask, PAGED_BLOCKS_PARTIAL, 1, 0, 1).n, 2);
}

static void
expect_selected(const struct paged_block_mask *selected, const struct paged_block_mask *source,
		const struct paged_block_mask_part *of)
{
	struct paged_block_mask_info info = fixture_mask_info(selected), all = fixture_mask_info(source);

	cr_assert_eq(info.n_rows, of->n_rows != 0 ? of->n_rows : all.n_rows - of->first_row);
	cr_assert_eq(info.n_heads, of->n_heads != 0 ? of->n_heads : all.n_heads - of->first_head);
	for (uint32_t r = 0; r < info.n_rows; r++) {
		struct paged_block_mask_row row = fixture_mask_row(selected, r),
					    from = fixture_mask_row(source, of->first_row + r);
		uint64_t rest = from.q_len > of->first_q ? from.q_len - of->first_q : 0;

		cr_assert_eq(row.q_len, of->n_q != 0 && of->n_q < rest ? of->n_q : rest);
		cr_assert_eq(row.kv_len, from.kv_len);
		if (row.q_len != 0)
			cr_assert_eq(row.q_base, from.q_base + (int64_t)of->first_q, "query rows keep their q_idx");
	}
}

/*
 * Rules that do not depend on b or h, selected at block boundaries: the selection
 * equals the mask of the selected rows.
 */
Test(block_mask, selected_parts)
{
	uint64_t state = 5;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		const struct mask_rule *rule = &mask_rules[random_below(&state, 3)];
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params = random_params(rows, rule, &state);
		struct paged_block_mask *mask = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays),
					*selected = NULL;
		struct paged_block_mask_info info = fixture_mask_info(mask);
		struct paged_block_mask_part of = { .struct_size = sizeof(of) };
		uint32_t q_len = 2 * info.q_block, kv_len = 5 * info.kv_block;

		of.first_row = (uint32_t)random_below(&state, info.n_rows);
		of.n_rows = (uint32_t)random_below(&state, info.n_rows - of.first_row + 1);
		of.first_head = (uint32_t)random_below(&state, info.n_heads);
		of.n_heads = (uint32_t)random_below(&state, info.n_heads - of.first_head + 1);
		of.first_q = info.q_block * random_below(&state, 3);
		of.n_q = info.q_block * random_below(&state, 5);
		expect_ok(paged_block_mask_select(mask, &of, &selected));
		expect_selected(selected, mask, &of);
		expect_brute_force_mask(selected, rule);
		paged_block_mask_destroy(selected);
		expect_ok(paged_block_mask_select(mask, NULL, &selected));
		expect_same_mask(selected, mask, "all of it");
		paged_block_mask_destroy(selected);
		expect_ok(paged_block_mask_crop(mask, q_len, kv_len, &selected));
		expect_brute_force_mask(selected, rule);
		for (uint32_t r = 0; r < info.n_rows; r++) {
			cr_assert_eq(fixture_mask_row(selected, r).q_len,
				     rows[r].q_len < q_len ? rows[r].q_len : q_len);
			cr_assert_eq(fixture_mask_row(selected, r).kv_len,
				     rows[r].kv_len < kv_len ? rows[r].kv_len : kv_len);
		}
		paged_block_mask_destroy(selected);
		paged_block_mask_destroy(mask);
	}
}

Test(block_mask, transpose_twice_is_identity)
{
	uint64_t state = 6;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params;
		const struct mask_rule *rule = &mask_rules[random_below(&state, n_mask_rules)];
		struct paged_block_mask *mask, *turned = NULL, *back = NULL;

		params = random_params(rows, rule, &state);
		for (uint32_t r = 0; r < params.n_rows; r++)
			rows[r].kv_first = 0; /* the transpose has none */
		mask = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays);
		expect_ok(paged_block_mask_transpose(mask, &turned));
		cr_assert(fixture_mask_info(turned).q_block == params.kv_block &&
			  fixture_mask_info(turned).kv_block == params.q_block);
		for (uint32_t r = 0; r < params.n_rows; r++)
			cr_assert(fixture_mask_row(turned, r).q_len == rows[r].kv_len &&
				  fixture_mask_row(turned, r).kv_len == rows[r].q_len);
		expect_ok(paged_block_mask_transpose(turned, &back));
		expect_same_mask(back, mask, rule->text);
		paged_block_mask_destroy(back);
		paged_block_mask_destroy(turned);
		paged_block_mask_destroy(mask);
	}
}

static void
expect_create_error(const struct paged_block_mask_params *params, const char *text, enum paged_status status,
		    const char *sentence)
{
	struct paged_mod *mod = fixture_mod_parse(text, 2, mask_rule_arrays);
	struct paged_block_mask *mask = NULL;

	expect_error(paged_block_mask_create(pool, params, mod, 2, mask_rule_arrays, &mask), status, "%s", sentence);
	cr_assert_null(mask);
	paged_mod_destroy(mod);
}

Test(block_mask, create_refuses)
{
	struct paged_batch_row rows[] = { { .q_len = 8, .kv_len = 8 }, { .q_len = 8, .kv_len = 8 } };
	struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = rows, .n_rows = 2 };
	struct paged_block_mask *mask = NULL;
	struct paged_mod *mod = NULL;

	expect_create_error(NULL, "causal", PAGED_ERR_INVALID, "block mask: 0 rows");
	expect_create_error(
		&params, "kv_idx <= q_idx - h", PAGED_ERR_INVALID,
		"block mask: 'kv_idx <= q_idx - h' depends on h: say with n_heads how many heads there are");
	params.physical = 2;
	expect_create_error(&params, "causal", PAGED_ERR_INVALID, "block mask: physical is 2, neither 0 nor 1");
	params.physical = 0;
	params.max_bytes = 100;
	expect_create_error(&params, "causal", PAGED_ERR_LIMIT,
			    "block mask: 2 lists need more than the limit of 100 bytes");
	params.max_bytes = 0;
	rows[1].flags = 64;
	expect_create_error(&params, "causal", PAGED_ERR_INVALID,
			    "block mask: row 1: flags 0x40 has bits this library does not know");
	rows[1].flags = PAGED_ROW_Q_BASE;
	rows[1].q_base = INT32_MAX - 6;
	expect_create_error(&params, "causal", PAGED_ERR_LIMIT,
			    "block mask: row 1: 8 query rows from 2147483641 on over 8 keys: mods count in 32 bits");
	rows[1].q_base = MASK_RULE_TOKENS - 7;
	expect_create_error(&params, "doc[q_idx] == doc[kv_idx]", PAGED_ERR_RANGE,
			    "mod: array 'doc', index 0 is 64, bounds are 0 to 63");
	/* Reading 0 instead would attend every key, but the error must still be reported. */
	expect_create_error(&params, "doc[kv_idx + 1000] == 0", PAGED_ERR_RANGE,
			    "mod: array 'doc', index 0 is 1000, bounds are 0 to 63");
	params.rows = NULL;
	expect_create_error(&params, "causal", PAGED_ERR_INVALID, "block mask: rows is NULL");
	params.rows = rows;
	expect_error(paged_block_mask_create(pool, &params, NULL, 0, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: no mask mod");
	mod = fixture_mod_parse("q_idx - kv_idx < window", 2, mask_rule_arrays);
	expect_error(paged_block_mask_create(pool, &params, mod, 0, NULL, &mask), PAGED_ERR_NOENT,
		     "mod: parameter 'window' is not given");
	expect_error(paged_block_mask_create(pool, &params, mod, 2, mask_rule_arrays, NULL), PAGED_ERR_INVALID,
		     "a block mask needs a place for its handle");
	paged_mod_destroy(mod);
	expect_ok(paged_mod_parse(pool, PAGED_MOD_SCORE, "score * 2.0", 0, NULL, &mod));
	expect_error(paged_block_mask_create(pool, &params, mod, 0, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: 'score * 2.0' is a score mod, not a mask mod");
	params.struct_size = 3;
	expect_error(paged_block_mask_create(pool, &params, mod, 0, NULL, &mask), PAGED_ERR_INVALID,
		     "paged_block_mask_params: struct_size is 3; set it to sizeof(the struct)");
	cr_assert_null(mask);
}

Test(block_mask, from_lists_and_arrays_are_checked)
{
	static const uint32_t blocks[] = { 0, 0, 2, 1 };
	static int32_t counts[] = { 1, 2, 0, 0 }, indices[8] = { 0, 1, 0, 1 };
	struct paged_block_mask_params params = two_rows_params;
	struct paged_block_lists lists = { .struct_size = sizeof(lists),
					   .start = { (uint64_t[]){ 0, 1, 2, 3, 2 }, NULL },
					   .indices = { blocks, NULL } };
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays),
					     .num_blocks = { counts, NULL },
					     .indices = { indices, NULL },
					     .width = { 1, 0 } };
	struct paged_block_mask *mask = NULL;

	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		     "block mask: partial list 3 begins at index 3 and ends at 2");
	lists.start[0] = (uint64_t[]){ 0, 2, 2, 2, 2 };
	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		     "block mask: row 0, head 0, query block 0: block 0 is named twice");
	lists.start[0] = (uint64_t[]){ 0, 0, 0, 0, 3 };
	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_RANGE,
		     "block mask: row 1, head 0, query block 1: partial block 2 of 2 KV blocks");
	lists.indices[0] = NULL;
	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		     "block mask: partial lists have 3 indices, which are NULL");
	expect_error(paged_block_mask_from_lists(pool, &params, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: no blocks are given");
	expect_error(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		     "block mask: rows 0 and 1 have 8 and 6 query rows: no rectangle");
	params.n_rows = 1;
	expect_error(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		     "block mask: list 1 has 2 blocks, kv_indices is 1 wide");
	arrays.indices[0] = NULL;
	expect_error(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		     "block mask: num_blocks[0] is given, indices[0] is NULL");
	params.physical = 1;
	expect_error(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		     "block mask: given blocks are logical; convert the mask to physical ones afterwards");
	params.physical = 0;
	expect_error(paged_block_mask_from_dense(pool, &params, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: no blocks are given");
	cr_assert_null(mask);
}

Test(block_mask, views_and_selections_are_checked)
{
	static const struct paged_batch_row unlike[] = { { .q_len = 8, .kv_len = 8 }, { .q_len = 3, .kv_len = 8 } };
	struct paged_block_mask *mask = fixture_mask_create(&two_rows_params, "causal", 0, NULL), *other = NULL;
	struct paged_block_mask_part selected = { .struct_size = sizeof(selected), .first_row = 2 };
	struct paged_block_mask_row row = { .struct_size = sizeof(row) };
	struct paged_block_mask_params params = two_rows_params;
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
	int32_t counts[4], indices[4];

	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_RANGE, "block mask: row 2 of 2");
	selected.first_row = 1;
	selected.n_rows = 2;
	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_RANGE,
		     "block mask: 2 rows from 1 on, of 2");
	selected.n_rows = UINT32_MAX;
	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_RANGE,
		     "block mask: 4294967295 rows from 1 on, of 2");
	selected.n_rows = 0;
	selected.first_head = 1;
	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_RANGE, "block mask: head 1 of 1");
	selected.first_head = 0;
	selected.n_heads = UINT32_MAX;
	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_RANGE,
		     "block mask: 4294967295 heads from 0 on, of 1");
	selected.n_heads = 0;
	selected.first_q = 2;
	expect_error(paged_block_mask_select(mask, &selected, &other), PAGED_ERR_INVALID,
		     "block mask: query row 2 is inside a query block of 4");
	expect_error(paged_block_mask_select(mask, NULL, NULL), PAGED_ERR_INVALID,
		     "a block mask needs a place for its handle");
	expect_error(paged_block_mask_get_row(mask, 2, &row), PAGED_ERR_RANGE, "block mask: row 2 of 2");
	expect_error(paged_block_mask_get_info(mask, NULL), PAGED_ERR_INVALID, "block mask: no place for the answer");
	expect_error(paged_block_mask_to_logical(mask, &other), PAGED_ERR_INVALID, "block mask: it is logical already");
	arrays.num_blocks[0] = counts;
	arrays.indices[0] = indices;
	expect_error(paged_block_mask_arrays(mask, &arrays), PAGED_ERR_INVALID,
		     "block mask: kv_indices is 0 wide, the longest list has 2 blocks");
	arrays.width[0] = 1;
	arrays.indices[0] = NULL;
	expect_error(paged_block_mask_arrays(mask, &arrays), PAGED_ERR_INVALID,
		     "block mask: num_blocks[0] is given, indices[0] is NULL");
	params.rows = unlike;
	other = fixture_mask_create(&params, "causal", 0, NULL);
	arrays.indices[0] = indices;
	expect_error(paged_block_mask_arrays(other, &arrays), PAGED_ERR_INVALID,
		     "block mask: rows 0 and 1 have 2 and 1 query blocks: no rectangle");
}

/* The caller may leave out one kind of block. */
Test(block_mask, arrays_without_full_blocks)
{
	struct paged_block_mask *mask = fixture_mask_create(&two_rows_params, "causal", 0, NULL);
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
	int32_t counts[4], indices[4];

	expect_ok(paged_block_mask_arrays(mask, &arrays));
	cr_assert(arrays.width[PAGED_BLOCKS_PARTIAL] == 2 && arrays.width[PAGED_BLOCKS_FULL] == 1);
	arrays.num_blocks[PAGED_BLOCKS_FULL] = counts;
	arrays.indices[PAGED_BLOCKS_FULL] = indices;
	expect_ok(paged_block_mask_arrays(mask, &arrays));
	cr_assert_arr_eq(counts, ((int32_t[]){ 0, 1, 0, 0 }), sizeof(counts));
	cr_assert_arr_eq(indices, ((int32_t[]){ 0, 0, 0, 0 }), sizeof(indices));
}

Test(block_mask, a_forked_child_may_only_free)
{
	struct paged_block_mask *mask = fixture_mask_create(&two_rows_params, "causal", 0, NULL), *other = NULL;
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_mod *mod = fixture_mod_parse("causal", 0, NULL);
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
	struct paged_block_mask_row row = { .struct_size = sizeof(row) };
	uint8_t dense[8];
	char *text;
	int exit_status;
	pid_t child = fork();

	if (child == 0) {
		bool right = paged_block_mask_create(pool, &two_rows_params, mod, 0, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_from_lists(pool, &two_rows_params, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_from_arrays(pool, &two_rows_params, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_from_dense(pool, &two_rows_params, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_to_physical(mask, 0, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_to_logical(mask, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_validate(mask) == PAGED_ERR_FORK &&
			     paged_block_mask_select(mask, NULL, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_crop(mask, 1, 1, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_transpose(mask, &other) == PAGED_ERR_FORK &&
			     paged_block_mask_get_info(mask, &info) == PAGED_ERR_FORK &&
			     paged_block_mask_get_row(mask, 0, &row) == PAGED_ERR_FORK &&
			     paged_block_mask_lists(mask, &lists) == PAGED_ERR_FORK &&
			     paged_block_mask_arrays(mask, &arrays) == PAGED_ERR_FORK &&
			     paged_block_mask_dense(mask, dense) == PAGED_ERR_FORK &&
			     paged_block_mask_picture(mask, 0, 0, 0, &text) == PAGED_ERR_FORK;

		paged_block_mask_destroy(mask);
		_exit(right ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &exit_status, 0), child);
	cr_assert(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0);
	cr_assert_eq(fixture_mask_info(mask).n_rows, 2);
}

/* Closing the pool frees the masks that remain. */
Test(block_mask, masks_are_freed_alone_or_with_the_pool)
{
	struct paged_block_mask *masks[5];

	for (uint32_t i = 0; i < 5; i++)
		masks[i] = fixture_mask_create(&two_rows_params, "causal", 0, NULL);
	paged_block_mask_destroy(masks[2]);
	paged_block_mask_destroy(masks[4]);
	paged_block_mask_destroy(masks[0]);
	paged_block_mask_destroy(NULL);
	cr_assert_eq(fixture_mask_info(masks[3]).n_rows, 2);
	paged_pool_close(pool);
}

/* Several threads create and free masks, and read a shared one. */
static void *
masks_create_and_free(void *argument)
{
	struct paged_block_mask *shared = argument, *masks[4];
	bool right = true;

	for (uint32_t i = 0; i < 100; i++) {
		for (uint32_t j = 0; j < 4; j++)
			right &= paged_block_mask_select(shared, NULL, &masks[j]) == PAGED_OK;
		for (uint32_t j = 0; j < 4; j++)
			paged_block_mask_destroy(masks[(j + i) % 4]);
	}
	return right ? shared : NULL;
}

Test(block_mask, concurrent_create_and_read)
{
	struct paged_block_mask *shared = fixture_mask_create(&two_rows_params, "causal", 0, NULL);
	pthread_t threads[4];

	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, masks_create_and_free, shared), 0);
	for (uint32_t i = 0; i < 4; i++) {
		void *result;

		pthread_join(threads[i], &result);
		cr_assert_eq(result, shared);
	}
	cr_assert_eq(fixture_mask_info(shared).n_rows, 2);
}
