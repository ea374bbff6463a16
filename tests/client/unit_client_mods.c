/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with mods through the library, against float64. */
#include <string.h>

#include "tests/client/attention_fixture.h"

TestSuite(client_mods, .init = attention_fixture_setup, .fini = attention_fixture_teardown);

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const uint32_t decode_q_len[ATTENTION_ROWS] = { 1, 1, 1 }, mixed_q_len[ATTENTION_ROWS] = { 40, 1, 3 };

static void
attend_and_expect(struct paged_mod_set *mods, const struct attention_mods *what, enum paged_mask mask)
{
	const struct paged_attention_params params = { .struct_size = sizeof(params), .mask = mask, .mod_set = mods };

	expect_ok(attention_fixture_attend(&params));
	attention_fixture_expect(what, &params);
	expect_ok(paged_batch_validate(attention_fixture->batch));
}

Test(client_mods, results_with_each_mod)
{
	static const char *const texts[][2] = {
		{ "true", "score" },
		{ "false", NULL },
		{ "causal", NULL },
		{ "sliding_window(100)", "soft_cap(0.5)" },
		{ NULL, "alibi(4)" },
		{ "q_idx % 3 != 0", NULL },
		{ "kv_idx < 40 || q_idx - kv_idx < 7", "score * 2 - 1" },
		{ "h % 2 == 0 || q_idx - kv_idx < 20", NULL },
		{ "b == 1 || kv_idx % 5 == h", "h == 3 ? score : -score" },
		{ "q_idx / 64 == kv_idx / 64", "kv_idx % 3 == 0 ? score : -inf" },
	};

	for (size_t i = 0; i < N(texts); i++) {
		const struct attention_mods what = { .mask = texts[i][0], .score = texts[i][1] };
		struct paged_mod_set *mods = attention_mod_set_open(&what);

		attention_fixture_plan(i % 2 == 0 ? decode_q_len : mixed_q_len);
		attend_and_expect(mods, &what, PAGED_MASK_CAUSAL);
		attend_and_expect(mods, &what, PAGED_MASK_NONE);
	}
}

/* paged_mod_set_bind() copies parameter values: later changes need another bind. */
Test(client_mods, parameters_are_rebound_each_step)
{
	int32_t window = 5;
	float cap = 0.25f;
	const struct paged_array arrays[] = { MOD_PARAMETER("cap", PAGED_F32, cap),
					      MOD_PARAMETER("window", PAGED_I32, window) };
	const struct attention_mods what = { "sliding_window", "cap * tanh(score / cap)", N(arrays), arrays };
	struct paged_mod_set *mods = attention_mod_set_open(&what);

	for (unsigned int i = 0; i < 5; i++) {
		window = (int32_t)(20 + 50 * i);
		cap *= 2;
		attention_fixture_plan(mixed_q_len);
		expect_ok(paged_mod_set_bind(mods, N(arrays), arrays, NULL));
		attend_and_expect(mods, &what, PAGED_MASK_CAUSAL);
	}
	window = 1;
	attention_fixture_plan(mixed_q_len);
	expect_ok(attention_fixture_attend(&(struct paged_attention_params){
		.struct_size = sizeof(struct paged_attention_params), .mod_set = mods }));
	window = 220;
	attention_fixture_expect(&what, NULL);
}

/* Contents, extents and addresses may change at each bind; dtype and rank belong to the mod. */
Test(client_mods, arrays_are_rebound_each_step)
{
	int32_t doc[ATTENTION_TOKENS];
	uint16_t slope[2][8];
	struct paged_array arrays[] = { MOD_ARRAY("doc", PAGED_I32, doc),
					{ .name = "slope", .data = slope[1], .dtype = PAGED_BF16, .n_dims = 1 } };
	const struct attention_mods what = { "document", "score + slope[h] * (kv_idx - q_idx)", N(arrays), arrays };
	struct paged_mod_set *mods;

	memset(doc, 0, sizeof(doc));
	for (uint32_t h = 0; h < 8; h++)
		for (unsigned int i = 0; i < 2; i++)
			reference_store(slope[i], PAGED_BF16, h, random_float(7 + i, h, 0.1f));
	arrays[1].extents[0] = ATTENTION_Q_HEADS;
	mods = attention_mod_set_open(&what);
	for (uint32_t i = 0; i < 5; i++) {
		for (uint32_t token = 0; token < ATTENTION_TOKENS; token++)
			doc[token] = (int32_t)(token / (40 + 60 * i));
		arrays[0].extents[0] = ATTENTION_KV_LEN_2 + 20 * i;
		arrays[1].data = slope[i % 2];
		arrays[1].extents[0] = ATTENTION_Q_HEADS + i % 2;
		attention_fixture_plan(i % 2 == 0 ? mixed_q_len : decode_q_len);
		expect_ok(paged_mod_set_bind(mods, N(arrays), arrays, NULL));
		attend_and_expect(mods, &what, PAGED_MASK_CAUSAL);
	}
}

/* One array holds the documents of all rows; those of row b begin at start[b]. */
Test(client_mods, ragged_documents)
{
	static const uint32_t numbers[ATTENTION_ROWS] = { 4, 0, 2 };
	static int32_t doc[3 * ATTENTION_TOKENS];
	int32_t start[5] = { 0 };
	const struct paged_array arrays[] = { MOD_ARRAY("doc", PAGED_I32, doc), MOD_ARRAY("start", PAGED_I32, start) };
	const struct attention_mods what = { "ragged_document", NULL, N(arrays), arrays };
	struct paged_mod_set *mods;
	float out[ATTENTION_QUERIES][ATTENTION_Q_HEADS][ATTENTION_DIM];
	int32_t begin[ATTENTION_ROWS], n = 0;

	for (uint32_t r = 0; r < ATTENTION_ROWS; r++) {
		start[r] = begin[r] = n;
		for (uint32_t i = 0; i < attention_fixture->rows[r].kv_len; i++)
			doc[n++] = (int32_t)(i / (11 + 30 * r));
	}
	mods = attention_mod_set_open(&what);
	attention_fixture_plan(mixed_q_len);
	attend_and_expect(mods, &what, PAGED_MASK_CAUSAL);
	memcpy(out, attention_fixture->out, sizeof(out));
	for (uint32_t r = 0; r < ATTENTION_ROWS; r++) {
		attention_fixture->rows[r].flags |= PAGED_ROW_B;
		attention_fixture->rows[r].b = numbers[r];
		start[numbers[r]] = begin[r];
	}
	memset(attention_fixture->out, 0, sizeof(out));
	expect_ok(paged_mod_set_bind(mods, N(arrays), arrays, NULL));
	attention_fixture_plan(mixed_q_len);
	expect_ok(attention_fixture_attend(&(struct paged_attention_params){
		.struct_size = sizeof(struct paged_attention_params), .mask = PAGED_MASK_CAUSAL, .mod_set = mods }));
	expect_ok(paged_batch_validate(attention_fixture->batch));
	cr_assert_eq(memcmp(out, attention_fixture->out, sizeof(out)), 0);
}

/* Element strides may be negative. */
Test(client_mods, strided_arrays)
{
	static float bias[ATTENTION_TOKENS][ATTENTION_Q_HEADS];
	static uint8_t even[2 * ATTENTION_TOKENS];
	const struct paged_array arrays[] = {
		{ .name = "bias",
		  .data = bias,
		  .dtype = PAGED_F32,
		  .n_dims = 2,
		  .extents = { ATTENTION_Q_HEADS, ATTENTION_TOKENS },
		  .strides = { 1, ATTENTION_Q_HEADS } },
		{ .name = "seen",
		  .data = even + 2 * ATTENTION_TOKENS - 2,
		  .dtype = PAGED_U8,
		  .n_dims = 1,
		  .extents = { ATTENTION_TOKENS },
		  .strides = { -2 } },
	};
	const struct attention_mods what = { "seen[kv_idx]", "score + bias[h][kv_idx]", N(arrays), arrays };

	for (uint32_t i = 0; i < ATTENTION_TOKENS * ATTENTION_Q_HEADS; i++)
		bias[i / ATTENTION_Q_HEADS][i % ATTENTION_Q_HEADS] = random_float(3, i, 3);
	for (uint32_t i = 0; i < 2 * ATTENTION_TOKENS; i++)
		even[i] = i % 2 == 0 ? random_bits(4, i) & 1 : 1;
	attention_fixture_plan(mixed_q_len);
	attend_and_expect(attention_mod_set_open(&what), &what, PAGED_MASK_CAUSAL);
}

/* Models alternate layers with full and sliding-window attention. */
Test(client_mods, full_and_sliding_window_layers)
{
	const struct attention_mods window = { .mask = "sliding_window(64)" }, full = { .score = "soft_cap(1.5)" };
	struct paged_mod_set *mods[2] = { attention_mod_set_open(&window), attention_mod_set_open(&full) };

	for (unsigned int step = 0; step < 2; step++) {
		attention_fixture_plan(mixed_q_len);
		attend_and_expect(mods[0], &window, PAGED_MASK_CAUSAL);
		attend_and_expect(mods[1], &full, PAGED_MASK_CAUSAL);
		attend_and_expect(NULL, &(struct attention_mods){ 0 }, PAGED_MASK_CAUSAL);
	}
}

/*
 * A draft tree at the end of each row: node i's word has a bit for itself and
 * for each of its ancestors.
 */
Test(client_mods, tree_verification)
{
	const uint32_t nodes[ATTENTION_ROWS] = { 31, 5, 17 };
	int32_t base[ATTENTION_ROWS], tree[ATTENTION_ROWS][32];
	struct paged_array arrays[] = {
		MOD_ARRAY("base", PAGED_I32, base),
		{ .name = "tree", .data = tree, .dtype = PAGED_I32, .n_dims = 2, .extents = { ATTENTION_ROWS, 32 } }
	};
	const struct attention_mods what = { "kv_idx < base[b] || (tree[b][q_idx - base[b]] >> (kv_idx - base[b]) & 1)",
					     NULL, N(arrays), arrays };
	struct paged_mod_set *mods = NULL;

	for (uint64_t seed = 0; seed < 3; seed++) {
		for (uint32_t r = 0; r < ATTENTION_ROWS; r++) {
			base[r] = (int32_t)(attention_fixture->rows[r].kv_len - nodes[r]);
			for (uint32_t i = 0; i < nodes[r]; i++) {
				int32_t parent = i == 0 ? 0 : tree[r][random_bits(seed, 32 * r + i) % i];

				tree[r][i] = parent | (int32_t)(1u << i);
			}
		}
		attention_fixture_plan(nodes);
		if (mods == NULL)
			mods = attention_mod_set_open(&what);
		else
			expect_ok(paged_mod_set_bind(mods, N(arrays), arrays, NULL));
		attend_and_expect(mods, &what, PAGED_MASK_NONE);
	}
}

/* The mod's own block mask, logical or physical, gives identical bits; another mask removes keys. */
Test(client_mods, block_masks)
{
	const struct attention_mods what = { .mask = "q_idx - kv_idx < 90 || kv_idx < 10", .score = "soft_cap(2.0)" };
	struct paged_attention_params with = { .struct_size = sizeof(with), .mod_set = attention_mod_set_open(&what) };
	struct paged_mod *mod = attention_mod_parse(PAGED_MOD_MASK, what.mask, 0, NULL);
	struct paged_block_mask_params params = { .struct_size = sizeof(params),
						  .rows = attention_fixture->rows,
						  .n_rows = ATTENTION_ROWS };
	struct paged_block_mask *blocks = NULL;
	static float out[ATTENTION_QUERIES][ATTENTION_Q_HEADS][ATTENTION_DIM];

	attention_fixture_plan(mixed_q_len);
	expect_ok(attention_fixture_attend(&with));
	attention_fixture_expect(&what, &with);
	memcpy(out, attention_fixture->out, sizeof(out));
	for (uint32_t physical = 0; physical < 2; physical++) {
		params.physical = physical;
		params.kv_block = physical ? 0 : 48;
		expect_ok(paged_block_mask_create(pool, &params, mod, 0, NULL, &blocks));
		expect_ok(paged_mod_set_bind(with.mod_set, 0, NULL, blocks));
		memset(attention_fixture->out, 0, sizeof(out));
		expect_ok(attention_fixture_attend(&with));
		cr_assert_eq(memcmp(out, attention_fixture->out, sizeof(out)), 0, "physical %u", physical);
	}
	/* A block mask without a mod: all elements of its blocks, limited by lengths and causality. */
	with.mod_set = attention_mod_set_open(&(struct attention_mods){ 0 });
	mod = attention_mod_parse(PAGED_MOD_MASK, "kv_idx / 128 != 1", 0, NULL);
	params = (struct paged_block_mask_params){ .struct_size = sizeof(params),
						   .rows = &(struct paged_batch_row){ .q_len = 40,
										      .kv_len = ATTENTION_KV_LEN_2 },
						   .n_rows = 1 };
	expect_ok(paged_block_mask_create(pool, &params, mod, 0, NULL, &blocks));
	expect_ok(paged_mod_set_bind(with.mod_set, 0, NULL, blocks));
	expect_ok(attention_fixture_attend(&with));
	attention_fixture_expect(&(struct attention_mods){ .mask = "kv_idx / 128 != 1" }, &with);
}

Test(client_mods, sinks)
{
	const float sink[ATTENTION_Q_HEADS] = { 0.5f, -INFINITY, 40, -3 };
	const struct attention_mods what = { .mask = "q_idx % 7 != 0 && q_idx - kv_idx < 30" }, none = { 0 };
	struct paged_attention_params params = { .struct_size = sizeof(params), .sink = sink };

	attention_fixture_plan(mixed_q_len);
	for (unsigned int i = 0; i < 4; i++) {
		params.mod_set = i < 2 ? attention_mod_set_open(&what) : NULL;
		params.lse_without_sink = i % 2;
		expect_ok(attention_fixture_attend(&params));
		attention_fixture_expect(i < 2 ? &what : &none, &params);
	}
}

/* A sink that is NaN or infinite affects its own head only. */
Test(client_mods, non_finite_sinks)
{
	const float sink[ATTENTION_Q_HEADS] = { NAN, 0, INFINITY, 1 };
	const struct paged_attention_params params = { .struct_size = sizeof(params), .sink = sink };

	attention_fixture_plan(decode_q_len);
	expect_ok(attention_fixture_attend(&params));
	for (uint32_t i = 0; i < ATTENTION_ROWS * ATTENTION_Q_HEADS; i++) {
		uint32_t row = i / ATTENTION_Q_HEADS, h = i % ATTENTION_Q_HEADS;
		bool spoiled = h % 2 == 0;

		cr_expect_eq(isnan(attention_fixture->lse[row][h]) != 0, spoiled, "row %u, lse of head %u", row, h);
		cr_expect_eq(isnan(attention_fixture->out[row][h][0]) != 0, spoiled, "row %u, head %u", row, h);
	}
}

/* PAGED_ROW_Q_BASE: the caller gives the position of the first query. */
Test(client_mods, explicit_query_positions)
{
	const struct attention_mods what = { "abs(q_idx - kv_idx) < 50", "score + 0.01 * q_idx", 0, NULL };

	attention_fixture->rows[0].flags = attention_fixture->rows[2].flags = PAGED_ROW_Q_BASE;
	attention_fixture->rows[0].q_base = -10;
	attention_fixture->rows[2].q_base = 2000;
	attention_fixture_plan(mixed_q_len);
	attend_and_expect(attention_mod_set_open(&what), &what, PAGED_MASK_NONE);
	attend_and_expect(attention_mod_set_open(&what), &what, PAGED_MASK_CAUSAL);
}

Test(client_mods, mod_evaluate_at_one_point)
{
	const int32_t doc[] = { 7, 8, 8 };
	const struct paged_array arrays[] = { MOD_ARRAY("doc", PAGED_I32, doc) };
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "doc[q_idx] == doc[kv_idx]", 1, arrays);
	struct paged_mod *score = attention_mod_parse(PAGED_MOD_SCORE, "score * h - b", 0, NULL);
	struct paged_mod_point point = { .score = 0.1, .b = 2, .h = 3, .q_idx = 1, .kv_idx = 2 };
	double value = -1;

	expect_ok(paged_mod_evaluate(score, 0, NULL, &point, &value));
	cr_assert_eq(value, 0.1 * 3 - 2);
	expect_ok(paged_mod_evaluate(mask, 1, arrays, &point, &value));
	cr_assert_eq(value, 1);
	point.kv_idx = 0;
	expect_ok(paged_mod_evaluate(mask, 1, arrays, &point, &value));
	cr_assert_eq(value, 0);
	point.kv_idx = 3;
	expect_error(paged_mod_evaluate(mask, 1, arrays, &point, &value), PAGED_ERR_RANGE,
		     "mod: array 'doc', index 0 is 3, bounds are 0 to 2");
	expect_error(paged_mod_evaluate(mask, 0, NULL, &point, &value), PAGED_ERR_NOENT,
		     "mod: array 'doc' is not given");
	expect_error(paged_mod_evaluate(mask, 1, arrays, NULL, &value), PAGED_ERR_INVALID,
		     "a mod needs a point, and a place for its value");
	cr_assert_eq(value, 0);
}
