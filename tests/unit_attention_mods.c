/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with mods and block masks: against the float64 reference, and the
 * same bits however it is found out what a line sees.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/mask/mod_rule.h"
#include "tests/kernel_test.h"
#include "tests/kernel_world.h"
#include "tests/mod_fixture.h"
#include "tests/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DOC_LEN 1200u
#define MAX_HEADS 8u

/* What random texts may name. */
struct captured {
	int32_t doc[DOC_LEN], tree[64];
	float slope[MAX_HEADS], bias[64][64];
	struct mod_array arrays[4];
};

static void
captured_fill(struct captured *captured, uint64_t seed)
{
	for (uint32_t i = 0; i < DOC_LEN; i++)
		captured->doc[i] = (int32_t)(i / (40 + seed % 300));
	for (uint32_t i = 0; i < 64; i++)
		captured->tree[i] = (int32_t)reference_bits(seed, i);
	for (uint32_t i = 0; i < MAX_HEADS; i++)
		captured->slope[i] = reference_random(seed, 100 + i, 0.05f);
	for (uint32_t i = 0; i < 64 * 64; i++)
		captured->bias[i / 64][i % 64] = reference_random(seed, 200 + i, 2);
	captured->arrays[0] = (struct mod_array)MOD_1D("doc", MOD_I32, captured->doc);
	captured->arrays[1] = (struct mod_array)MOD_1D("tree", MOD_I32, captured->tree);
	captured->arrays[2] = (struct mod_array)MOD_1D("slope", MOD_F32, captured->slope);
	captured->arrays[3] = (struct mod_array){
		.name = "bias", .dtype = MOD_F32, .n_dims = 2, .extents = { 64, 64 }, .data = captured->bias
	};
}

static struct mod_fixture
bound_open(enum mod_kind kind, const char *text, const struct captured *captured)
{
	return mod_fixture_open(kind, text, captured->arrays, COUNT(captured->arrays));
}

/* The block mask that a mask mod makes over a world's rows. */
static struct block_mask *
blocks_of(const struct world_params *params, const struct mod_binding *mask, uint32_t q_block, uint32_t kv_block)
{
	struct block_mask_row rows[WORLD_MAX_ROWS];
	struct block_mask *blocks;
	struct mod_rule rule;
	struct paged_error error = { 0 };

	for (uint32_t r = 0; r < params->n_rows; r++)
		rows[r] = (struct block_mask_row){ params->rows[r].q_base, params->rows[r].q_len,
						   params->rows[r].kv_len };
	cr_assert_eq(mod_rule_open(&rule, mask, kernel_isa_best(), &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(block_mask_create(&(struct block_mask_shape){ .n_rows = params->n_rows,
								   .n_heads = params->q_heads,
								   .q_block = q_block,
								   .kv_block = kv_block,
								   .rows = rows },
				       &rule.rule, 0, &blocks, &error),
		     PAGED_OK, "%s", error.text);
	mod_rule_close(&rule);
	return blocks;
}

static struct block_mask *
lists_open(const struct block_mask_shape *shape, const struct block_mask_lists *lists, uint64_t n_lists)
{
	struct paged_error error = { 0 };
	struct block_mask *blocks;

	cr_assert_eq(block_mask_from_lists(shape, lists, n_lists, 0, &blocks, &error), PAGED_OK, "%s", error.text);
	return blocks;
}

static void
assert_same(const struct world *a, uint64_t a_row, const struct world *b, uint64_t b_row, uint64_t n, const char *what)
{
	cr_assert(world_same(a, a_row, b, b_row, n), "seed %" PRIu64 ": outputs differ: %s", a->params.seed, what);
}

/*
 * Random texts.
 */

struct dice {
	uint64_t seed, i;
};

static uint32_t
roll(struct dice *dice, uint32_t sides)
{
	return (uint32_t)(reference_bits(dice->seed, dice->i++) % sides);
}

static const char *const atoms[] = {
	"kv_idx <= q_idx",
	"q_idx - kv_idx < %d",
	"abs(q_idx - kv_idx) < %d",
	"kv_idx / %d == q_idx / 100",
	"(q_idx - kv_idx) %% %d == 0",
	"kv_idx >= %d",
	"kv_idx %% %d != 1",
	"h %% 2 == b %% 2 || kv_idx < %d",
	"doc[q_idx] == doc[kv_idx]",
	"(tree[q_idx %% 64] >> kv_idx %% 31 & 1) == 1",
	"(tree[kv_idx / 20 %% 64] >> h & 1) == 1",
	"kv_idx < %d || q_idx - kv_idx < 60",
	"q_idx * kv_idx > %d00",
};

static const char *const scores[] = {
	"score",
	"score * 2 - 1",
	"score + slope[h] * (kv_idx - q_idx)",
	"5.0 * tanh(score / 5.0)",
	"kv_idx % 3 == 0 ? score : -inf",
	"kv_idx < 600 ? -inf : score",
	"score * sigmoid(score)",
	"score + bias[q_idx % 64][kv_idx % 64]",
	"score * score - h",
	"min(max(score, -1.5), 1.25)",
	"b == 0 ? score : sin(score)",
};

static void
mask_text(struct dice *dice, char *text, size_t size)
{
	size_t at = 0;
	uint32_t n = 1 + roll(dice, 3);

	for (uint32_t i = 0; i < n; i++) {
		char atom[128];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(atom, sizeof(atom), atoms[roll(dice, COUNT(atoms))],
			 1 + (int)roll(dice, 1u << roll(dice, 11)));
#pragma GCC diagnostic pop
		at += (size_t)snprintf(text + at, size - at, "%s%s(%s)",
				       i == 0               ? ""
				       : roll(dice, 3) == 0 ? " || "
							    : " && ",
				       roll(dice, 6) == 0 ? "!" : "", atom);
	}
}

static void
shape_roll(struct dice *dice, struct world_params *params)
{
	static const uint32_t heads[][2] = { { 4, 2 }, { 1, 1 }, { 8, 1 }, { 3, 3 }, { 6, 2 } };
	static const uint32_t page_sizes[] = { 1, 3, 16, 64, 128 };
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
	static const float sinks[MAX_HEADS] = { 0.5f, -3, 2, -INFINITY, 30, 0, 1, -1 };
	uint32_t h = roll(dice, COUNT(heads));

	*params = (struct world_params){ .seed = dice->seed,
					 .placement = roll(dice, 1000),
					 .q_heads = heads[h][0],
					 .kv_heads = heads[h][1],
					 .k_dim = 8 + roll(dice, 20),
					 .v_dim = 8 + roll(dice, 20),
					 .pool = dtypes[roll(dice, 3)],
					 .q = roll(dice, 2) ? PAGED_F32 : PAGED_BF16,
					 .out = roll(dice, 2) ? PAGED_F32 : PAGED_BF16,
					 .page_size = page_sizes[roll(dice, COUNT(page_sizes))],
					 .causal = roll(dice, 2),
					 .scale = 0.3f,
					 .sink = roll(dice, 4) == 0 ? sinks : NULL,
					 .n_rows = 1 + roll(dice, 3) };
	for (uint32_t r = 0; r < params->n_rows; r++) {
		uint32_t kv_len = roll(dice, roll(dice, 3) == 0 ? 1100 : 200),
			 q_len = roll(dice, 2) ? 1 : roll(dice, 20);

		q_len = q_len < kv_len ? q_len : kv_len;
		params->rows[r] = (struct world_row){
			.id = r, .kv_len = kv_len, .q_len = q_len, .q_base = (int64_t)kv_len - q_len
		};
	}
}

/* One world: right by the reference, and the same bits by a block mask, elsewhere, with other threads. */
static void
world_try(const struct world_params *params, struct dice *dice, enum kernel_isa isa, const char *text)
{
	struct world_params other = *params;
	struct block_mask *blocks;
	struct world first, second;
	char what[512];

	world_run(&first, params, 1, isa);
	cr_assert(world_check(&first, what, sizeof(what)), "seed %" PRIu64 ", %s: %s", dice->seed, text, what);
	blocks = blocks_of(params, params->mods.mask, 1 + roll(dice, 1u << roll(dice, 8)),
			   1 + roll(dice, 1u << roll(dice, 9)));
	other.mods.blocks = blocks;
	other.placement++;
	other.page_size = 1 + roll(dice, 40);
	world_run(&second, &other, 1 + roll(dice, 4), isa);
	assert_same(&first, 0, &second, 0, first.total_q, text);
	world_destroy(&second);
	other.mods.blocks = NULL;
	world_run(&second, &other, 3, isa);
	assert_same(&first, 0, &second, 0, first.total_q, text);
	world_destroy(&second);
	world_destroy(&first);
	block_mask_destroy(blocks);
}

KERNEL_TEST(mods, random)
{
	const char *wanted = getenv("PAGED_TEST_ROUNDS");
	uint32_t rounds = wanted != NULL ? (uint32_t)atoi(wanted) : 40;
	static struct captured captured;

	for (uint32_t i = 0; i < rounds; i++) {
		struct dice dice = { .seed = kernel_test_seed() + i };
		struct world_params params;
		struct mod_fixture mask, score;
		char text[640];

		captured_fill(&captured, dice.seed);
		shape_roll(&dice, &params);
		mask_text(&dice, text, sizeof(text));
		mask = bound_open(MOD_MASK, text, &captured);
		score = bound_open(MOD_SCORE, scores[roll(&dice, COUNT(scores))], &captured);
		if (roll(&dice, 2))
			cr_assert_eq(mod_binding_index(mask.binding, NULL), PAGED_OK);
		params.mods.mask = mask.binding;
		params.mods.score = roll(&dice, 3) ? score.binding : NULL;
		world_try(&params, &dice, isa, text);
		mod_fixture_close(&mask);
		mod_fixture_close(&score);
	}
}

/*
 * Chosen ones.
 */

static struct world_params
chunk(void)
{
	return (struct world_params){
		.seed = kernel_test_seed(),
		.placement = 1,
		.q_heads = 6,
		.kv_heads = 2,
		.k_dim = 24,
		.v_dim = 40,
		.pool = PAGED_BF16,
		.q = PAGED_F32,
		.out = PAGED_F32,
		.page_size = 16,
		.scale = 0.2f,
		.n_rows = 1,
		.rows = { { .id = 5, .kv_len = 1100, .q_len = 60, .q_base = 1040 } },
	};
}

/* Causality said by the flag or by a mod, and a score mod that changes nothing. */
KERNEL_TEST(mods, say_the_same_as_flags)
{
	struct captured captured = { 0 };
	struct world_params params = chunk();
	struct mod_fixture mask, score;
	struct world flag, mod;

	captured_fill(&captured, 1);
	mask = bound_open(MOD_MASK, "kv_idx <= q_idx", &captured);
	score = bound_open(MOD_SCORE, "score", &captured);
	params.causal = true;
	world_run(&flag, &params, 1, isa);
	params.causal = false;
	params.mods = (struct kernel_mods_params){ .mask = mask.binding, .score = score.binding };
	world_run(&mod, &params, 2, isa);
	assert_same(&flag, 0, &mod, 0, 60, "causal");
	world_destroy(&flag);
	world_destroy(&mod);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

/* A chunk, or parts of it, each with the length of its moment: as long as both have few query lines, or many. */
static void
chunk_try(struct world_params params, uint32_t q_len, uint32_t part, enum kernel_isa isa)
{
	struct world all, one;

	params.rows[0] = (struct world_row){ .id = 5, .kv_len = 1040 + q_len, .q_len = q_len, .q_base = 1040 };
	world_run(&all, &params, 1, isa);
	for (uint32_t i = 0; i < q_len; i += part) {
		params.rows[0] =
			(struct world_row){ .id = 5, .kv_len = 1040 + i + part, .q_len = part, .q_base = 1040 + i };
		world_run(&one, &params, 1 + i % 3, isa);
		assert_same(&all, i, &one, 0, part, "parts of a chunk");
		world_destroy(&one);
	}
	world_destroy(&all);
}

KERNEL_TEST(mods, chunks)
{
	struct captured captured = { 0 };
	struct world_params params = chunk();
	struct mod_fixture mask, score;

	captured_fill(&captured, 1);
	mask = bound_open(MOD_MASK, "kv_idx <= q_idx && (q_idx - kv_idx < 300 || kv_idx < 4 || kv_idx % 7 == h)",
			  &captured);
	score = bound_open(MOD_SCORE, "score + slope[h] * (kv_idx - q_idx)", &captured);
	params.mods = (struct kernel_mods_params){ .mask = mask.binding, .score = score.binding };
	chunk_try(params, 5, 1, isa);
	chunk_try(params, 60, 6, isa);
	chunk_try(params, 60, 15, isa);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

/* Windows of which each part of a long chunk sees other pages of the same tiles. */
KERNEL_TEST(mods, windows_move_over_tiles)
{
	static const char *const masks[] = {
		"kv_idx <= q_idx && q_idx - kv_idx < 90",
		"kv_idx <= q_idx && (q_idx - kv_idx < 20 || kv_idx / 16 % 5 == q_idx / 8 % 5)"
	};
	static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_I8 };
	struct world_params params = chunk();

	params.q = PAGED_BF16;
	params.out = PAGED_BF16;
	for (size_t i = 0; i < COUNT(masks) * COUNT(pools); i++) {
		struct captured captured = { 0 };
		struct mod_fixture mask;

		captured_fill(&captured, 1);
		mask = bound_open(MOD_MASK, masks[i % COUNT(masks)], &captured);
		params.pool = pools[i / COUNT(masks)];
		params.mods = (struct kernel_mods_params){ .mask = mask.binding };
		chunk_try(params, 120, 30, isa);
		chunk_try(params, 120, 8, isa);
		mod_fixture_close(&mask);
	}
}

/* A few lines' KV heads take turns at a tile, or where a mask may tell them apart at a split. */
KERNEL_TEST(mods, heads_take_turns)
{
	static const char *const masks[] = { "q_idx - kv_idx < 300", "doc[q_idx] == doc[kv_idx] && kv_idx % 7 != 2",
					     "kv_idx < 64 || kv_idx >= 577", "kv_idx > q_idx" };
	static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_F32, PAGED_I8 };
	struct captured captured = { 0 };
	struct world_params params = chunk();

	captured_fill(&captured, 1);
	params.q_heads = 8;
	params.kv_heads = 4;
	params.n_rows = 3;
	params.rows[0] = (struct world_row){ .id = 1, .kv_len = 1030, .q_len = 1, .q_base = 1029 };
	params.rows[1] = (struct world_row){ .id = 2, .kv_len = 515, .q_len = 3, .q_base = 511 };
	params.rows[2] = (struct world_row){ .id = 3, .kv_len = 64, .q_len = 1, .q_base = 63 };
	for (size_t i = 0; i < COUNT(masks) * COUNT(pools); i++) {
		const char *text = masks[i % COUNT(masks)];
		char apart[128];
		struct mod_fixture mask = bound_open(MOD_MASK, text, &captured), each;
		struct mod_fixture score = bound_open(MOD_SCORE, "score + slope[h] * (kv_idx - q_idx)", &captured);
		struct world turns, alone;

		snprintf(apart, sizeof(apart), "(%s) && h >= 0", text);
		each = bound_open(MOD_MASK, apart, &captured);
		params.pool = pools[i / COUNT(masks)];
		params.mods = (struct kernel_mods_params){ .mask = mask.binding, .score = score.binding };
		world_run(&turns, &params, 1, isa);
		params.mods.mask = each.binding;
		world_run(&alone, &params, 2, isa);
		assert_same(&turns, 0, &alone, 0, 5, text);
		world_destroy(&turns);
		world_destroy(&alone);
		mod_fixture_close(&mask);
		mod_fixture_close(&each);
		mod_fixture_close(&score);
	}
}

static uint8_t *
token_at(const struct world *world, unsigned int plane, uint32_t token, uint32_t head)
{
	uint32_t page_size = world->params.page_size;

	return world->pool + layout_offset(&world->layout, plane, WORLD_LAYER, world->rows[0].pages[token / page_size],
					   head, token % page_size);
}

/* Keys and values that nobody is to see may be NaN. */
KERNEL_TEST(mods, unseen_keys_may_be_anything)
{
	static const char *const texts[] = { "kv_idx % 3 == 1", "kv_idx / 5 % 2 == 0 && kv_idx > 700", "kv_idx == 63",
					     "kv_idx == 1099 || kv_idx == 0", "kv_idx / 64 % 2 == 0" };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct captured captured = { 0 };

	captured_fill(&captured, 1);
	for (size_t i = 0; i < 2 * COUNT(texts); i++) {
		struct mod_fixture mask = bound_open(MOD_MASK, texts[i / 2], &captured);
		struct world_params params = chunk();
		struct world clean, poisoned;

		params.mods.mask = mask.binding;
		params.q = params.out = i % 2 ? PAGED_BF16 : PAGED_F32;
		world_run(&clean, &params, 1, isa);
		world_create(&poisoned, &params);
		for (uint32_t t = 0; t < 1100; t++) {
			struct mod_point point = { .kv_idx = (int32_t)t };

			for (uint32_t h = 0; h < params.kv_heads && mod_scalar(mask.binding, &point, NULL) == 0; h++) {
				memset(token_at(&poisoned, LAYOUT_K, t, h), 0xff, params.k_dim * 2);
				memset(token_at(&poisoned, LAYOUT_V, t, h), 0xff, params.v_dim * 2);
			}
		}
		world_attend(&poisoned, team);
		assert_same(&clean, 0, &poisoned, 0, 60, texts[i / 2]);
		world_destroy(&clean);
		world_destroy(&poisoned);
		mod_fixture_close(&mask);
	}
	kernel_team_destroy(team);
}

static bool
token_is_seen(const struct world_params *params, uint32_t token)
{
	const struct world_row *row = &params->rows[0];

	for (int64_t q_idx = row->q_base; q_idx < row->q_base + row->q_len; q_idx++) {
		struct mod_point point = { .q_idx = (int32_t)q_idx, .kv_idx = (int32_t)token };

		if (token <= q_idx && mod_scalar(params->mods.mask, &point, NULL) != 0)
			return true;
	}
	return false;
}

/* Of the only row, under causality and a mask that knows no heads. */
static void
unseen_pages_lose(struct world *world)
{
	const struct world_params *params = &world->params;
	uint32_t page_size = params->page_size, kv_len = params->rows[0].kv_len;

	for (uint32_t page = 0; page * page_size < kv_len; page++) {
		uint32_t end = (page + 1) * page_size < kv_len ? (page + 1) * page_size : kv_len;
		bool seen = false;

		for (uint32_t token = page * page_size; token < end; token++)
			seen |= token_is_seen(params, token);
		if (!seen)
			((uint32_t *)(uintptr_t)world->rows[0].pages)[page] = UINT32_MAX;
	}
}

/* A page of which nobody sees a token is not even looked up. */
KERNEL_TEST(mods, unseen_pages_need_not_exist)
{
	static const struct {
		const char *mask;
		struct world_row row;
	} cases[] = {
		{ "kv_idx / 16 % 5 == 2 || q_idx - kv_idx < 100", { .kv_len = 1100, .q_len = 60, .q_base = 1040 } },
		/* the first lines see all of a tile that they reach */
		{ "kv_idx < 16 || kv_idx >= 32", { .kv_len = 60, .q_len = 60, .q_base = 0 } },
	};
	struct captured captured = { 0 };

	captured_fill(&captured, 1);
	for (uint32_t i = 0; i < 4 * COUNT(cases); i++) {
		struct kernel_team *team = kernel_test_team(1 + i % 2, isa);
		struct mod_fixture mask = bound_open(MOD_MASK, cases[i / 4].mask, &captured);
		struct world_params params = chunk();
		struct world world, holes;

		params.mods.mask = mask.binding;
		params.causal = true;
		params.q = params.out = i / 2 % 2 ? PAGED_BF16 : PAGED_F32;
		params.rows[0] = cases[i / 4].row;
		world_run(&world, &params, 1, isa);
		world_create(&holes, &params);
		unseen_pages_lose(&holes);
		world_attend(&holes, team);
		assert_same(&world, 0, &holes, 0, 60, "holes");
		world_destroy(&world);
		world_destroy(&holes);
		mod_fixture_close(&mask);
		kernel_team_destroy(team);
	}
}

/* Of a chunk over the border of a split its first lines ask no mask about keys past it. */
KERNEL_TEST(mods, lines_ask_about_what_they_reach)
{
	struct captured captured = { 0 };
	struct world_params params = chunk();

	captured_fill(&captured, 1);
	params.q = params.out = PAGED_BF16;
	params.causal = true;
	params.rows[0] = (struct world_row){ .kv_len = 520, .q_len = 60, .q_base = 460 };
	for (int indexed = 0; indexed < 2; indexed++) {
		struct mod_fixture mask = bound_open(MOD_MASK, "doc[kv_idx] >= 0", &captured);
		struct world flag, mod;

		if (indexed)
			cr_assert_eq(mod_binding_index(mask.binding, NULL), PAGED_OK);
		params.mods.mask = NULL;
		world_run(&flag, &params, 1, isa);
		params.mods.mask = mask.binding;
		world_run(&mod, &params, 1, isa);
		assert_same(&flag, 0, &mod, 0, 60, "all of doc");
		world_destroy(&flag);
		world_destroy(&mod);
		mod_fixture_close(&mask);
	}
}

/* A draft tree: query row i's word has a bit for each draft token on its path; what comes before, all see. */
KERNEL_TEST(mods, tree_verification)
{
	static const int32_t parent[] = { -1, 0, 0, 1, 1, 2, 3, 3, 5, -1, 9, 9 };
	int32_t words[COUNT(parent)], base = 700;
	const struct mod_array arrays[] = {
		{ .name = "path", .dtype = MOD_I32, .n_dims = 1, .extents = { COUNT(parent) }, .data = words },
		{ .name = "base", .dtype = MOD_I32, .data = &base },
	};
	static const char text[] = "kv_idx < base || (path[q_idx - base] >> (kv_idx - base) & 1) == 1";
	struct world_params params = chunk();
	struct mod_fixture mask;
	struct world all, one;
	char what[256];

	for (uint32_t i = 0; i < COUNT(parent); i++)
		words[i] = (parent[i] < 0 ? 0 : words[parent[i]]) | 1 << i;
	params.rows[0] = (struct world_row){ .id = 3, .kv_len = 712, .q_len = COUNT(parent), .q_base = base };
	mask = mod_fixture_open(MOD_MASK, text, arrays, COUNT(arrays));
	params.mods.mask = mask.binding;
	world_run(&all, &params, 2, isa);
	cr_assert(world_check(&all, what, sizeof(what)), "%s", what);

	/* A straight path is causal attention over its tokens alone: rows 0, 1 and 2 of the other world. */
	for (uint32_t i = 0; i < 12; i++)
		words[i] = (2 << i) - 1;
	world_run(&one, &params, 1, isa);
	assert_same(&all, 0, &one, 0, 2, "one path");
	world_destroy(&one);
	world_destroy(&all);
	mod_fixture_close(&mask);
}

/* Lists in any order; full blocks are not asked about, partial ones are, without a mod they are whole. */
KERNEL_TEST(mods, given_lists)
{
	static const uint32_t n_full[] = { 3 }, full[] = { 9, 0, 4 }, n_partial[] = { 2 }, partial[] = { 17, 2 };
	static const uint32_t ordered_full[] = { 0, 4, 9 }, ordered_partial[] = { 2, 17 };
	struct captured captured = { 0 };
	struct world_params params = chunk();
	struct block_mask_row row = { 1036, 64, 1100 }; /* a whole query block: full blocks stay full */
	struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 64, .kv_block = 64, .rows = &row };
	struct block_mask *given, *ordered;
	struct mod_fixture odd, equal;
	struct world a, b;

	captured_fill(&captured, 1);
	params.rows[0].q_base = row.q_base;
	params.rows[0].q_len = (uint32_t)row.q_len;
	given = lists_open(&shape,
			   &(struct block_mask_lists){ .n_blocks = { n_partial, n_full },
						       .indices = { partial, full },
						       .n_indices = { 2, 3 } },
			   1);
	ordered = lists_open(&shape,
			     &(struct block_mask_lists){ .n_blocks = { n_partial, n_full },
							 .indices = { ordered_partial, ordered_full },
							 .n_indices = { 2, 3 } },
			     1);
	odd = bound_open(MOD_MASK, "kv_idx % 2 == 1", &captured);
	equal = bound_open(MOD_MASK,
			   "kv_idx / 64 == 0 || kv_idx / 64 == 4 || kv_idx / 64 == 9 || "
			   "(kv_idx / 64 == 2 || kv_idx / 64 == 17) && kv_idx % 2 == 1",
			   &captured);
	params.mods = (struct kernel_mods_params){ .blocks = given, .mask = odd.binding };
	world_run(&a, &params, 1, isa);
	params.mods.blocks = ordered;
	world_run(&b, &params, 2, isa);
	assert_same(&a, 0, &b, 0, 64, "order of lists");
	world_destroy(&b);
	params.mods = (struct kernel_mods_params){ .mask = equal.binding };
	world_run(&b, &params, 1, isa);
	assert_same(&a, 0, &b, 0, 64, "lists and a mod");
	world_destroy(&a);
	world_destroy(&b);

	mod_fixture_close(&equal);
	equal = bound_open(MOD_MASK,
			   "kv_idx / 64 == 0 || kv_idx / 64 == 4 || kv_idx / 64 == 9 || kv_idx / 64 == 2 || "
			   "kv_idx / 64 == 17",
			   &captured);
	params.mods = (struct kernel_mods_params){ .blocks = given };
	world_run(&a, &params, 1, isa);
	params.mods = (struct kernel_mods_params){ .mask = equal.binding };
	world_run(&b, &params, 1, isa);
	assert_same(&a, 0, &b, 0, 64, "lists alone");
	world_destroy(&a);
	world_destroy(&b);
	block_mask_destroy(given);
	block_mask_destroy(ordered);
	mod_fixture_close(&odd);
	mod_fixture_close(&equal);
}

/* One row and one head stand for all; rows longer or shorter than the mask says, in keys and in query rows. */
KERNEL_TEST(mods, lists_for_all_rows)
{
	static const uint32_t n_full[] = { 2, 1 }, full[] = { 1, 6, 3 };
	struct block_mask_row row = { 0, 16, 700 };
	struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 8, .kv_block = 100, .rows = &row };
	struct captured captured = { 0 };
	struct world_params params = chunk();
	struct block_mask *blocks;
	struct mod_fixture equal;
	struct world a, b;

	captured_fill(&captured, 1);
	blocks = lists_open(&shape,
			    &(struct block_mask_lists){ .n_blocks = { [BLOCK_MASK_FULL] = n_full },
							.indices = { [BLOCK_MASK_FULL] = full },
							.n_indices = { [BLOCK_MASK_FULL] = 3 } },
			    2);
	equal = bound_open(MOD_MASK,
			   "q_idx < 8 ? kv_idx / 100 == 1 || kv_idx / 100 == 6 : q_idx < 16 && kv_idx / 100 == 3",
			   &captured);
	params.n_rows = 4;
	params.rows[0] = (struct world_row){ .id = 0, .kv_len = 700, .q_len = 16 };
	params.rows[1] = (struct world_row){ .id = 1, .kv_len = 900, .q_len = 20 };
	params.rows[2] = (struct world_row){ .id = 2, .kv_len = 150, .q_len = 1 };
	params.rows[3] = (struct world_row){ .id = 3, .kv_len = 650, .q_len = 9 };
	params.mods.blocks = blocks;
	world_run(&a, &params, 2, isa);
	params.mods = (struct kernel_mods_params){ .mask = equal.binding };
	world_run(&b, &params, 1, isa);
	assert_same(&a, 0, &b, 0, a.total_q, "one row for all");
	world_destroy(&a);
	world_destroy(&b);
	block_mask_destroy(blocks);
	mod_fixture_close(&equal);
}

/* NaN and +inf from a score mod spoil their line; -inf weighs nothing, be it all. */
KERNEL_TEST(mods, no_number_stays_in_its_row)
{
	static const char *const texts[] = { "q_idx == 1044 && h == 2 && kv_idx == 70 ? 0.0 / 0.0 : score",
					     "q_idx == 1044 && h == 2 && kv_idx == 70 ? inf : score",
					     "q_idx == 1044 && h == 2 ? -inf : score" };
	struct captured captured = { 0 };
	struct world_params params = chunk();

	captured_fill(&captured, 1);
	for (size_t t = 0; t < COUNT(texts); t++) {
		struct mod_fixture score = bound_open(MOD_SCORE, texts[t], &captured);
		struct world world;
		char what[256];

		params.mods.score = score.binding;
		world_run(&world, &params, 1, isa);
		cr_assert(world_check(&world, what, sizeof(what)), "%s: %s", texts[t], what);
		cr_assert_eq(isnan(world.lse[4 * params.q_heads + 2]) != 0, t < 2);
		cr_assert(t < 2 || world.lse[4 * params.q_heads + 2] == -INFINITY);
		world_destroy(&world);
		mod_fixture_close(&score);
	}
}

/* An index out of bounds reads as 0 and is told, with the names and numbers of one, until it is forgotten. */
KERNEL_TEST(mods, range_is_told)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	struct captured captured = { 0 };
	struct world_params params = chunk();
	struct paged_error error = { 0 };
	struct kernel_mods *mods;
	struct mod_fixture score;
	struct world world;

	captured_fill(&captured, 1);
	score = bound_open(MOD_SCORE, "score + bias[0][kv_idx]", &captured);
	params.mods.score = score.binding;
	world_create(&world, &params);
	cr_assert_eq(kernel_mods_create(team, &params.mods, &mods, &error), PAGED_OK);
	cr_assert_eq(kernel_mods_check(mods, &error), PAGED_OK);
	world_attend_with(&world, team, mods);
	cr_assert_eq(kernel_mods_check(mods, &error), PAGED_ERR_RANGE);
	cr_assert(strstr(error.text, "bias") != NULL && strstr(error.text, "0 to 63") != NULL, "%s", error.text);
	cr_assert(world_check(&world, error.text, sizeof(error.text)), "%s", error.text);
	kernel_mods_forget(mods);
	cr_assert_eq(kernel_mods_check(mods, &error), PAGED_OK);
	world_attend_with(&world, team, mods);
	cr_assert_eq(kernel_mods_check(mods, &error), PAGED_ERR_RANGE);
	kernel_mods_bind(mods, &params.mods);
	cr_assert_eq(kernel_mods_check(mods, &error), PAGED_OK);
	kernel_mods_destroy(mods);
	world_destroy(&world);
	mod_fixture_close(&score);
	kernel_team_destroy(team);
}
