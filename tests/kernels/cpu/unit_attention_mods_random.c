/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with random mods: against the float64 reference, and bit-identical for
 * every way to find the keys that a q_row attends.
 */
#include <inttypes.h>
#include <math.h>

#include "kernels/mask/mask.h"
#include "tests/support/kernel_test.h"
#include "tests/kernels/cpu/attention_mod_fixture.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct random_stream {
	uint64_t seed, i;
};

static uint32_t
random_pick(struct random_stream *stream, uint32_t sides)
{
	return (uint32_t)(random_bits(stream->seed, stream->i++) % sides);
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
random_mask_text(struct random_stream *stream, char *text, size_t size)
{
	size_t at = 0;
	uint32_t n = 1 + random_pick(stream, 3);

	for (uint32_t i = 0; i < n; i++) {
		char atom[128];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(atom, sizeof(atom), atoms[random_pick(stream, COUNT(atoms))],
			 1 + (int)random_pick(stream, 1u << random_pick(stream, 11)));
#pragma GCC diagnostic pop
		at += (size_t)snprintf(text + at, size - at, "%s%s(%s)",
				       i == 0                        ? ""
				       : random_pick(stream, 3) == 0 ? " || "
								     : " && ",
				       random_pick(stream, 6) == 0 ? "!" : "", atom);
	}
}

static void
random_params(struct random_stream *stream, struct kernel_fixture_params *params)
{
	static const uint32_t heads[][2] = { { 4, 2 }, { 1, 1 }, { 8, 1 }, { 3, 3 }, { 6, 2 } };
	static const uint32_t page_sizes[] = { 1, 3, 16, 64, 128 };
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
	static const float sinks[MOD_ARRAYS_HEADS] = { 0.5f, -3, 2, -INFINITY, 30, 0, 1, -1 };
	uint32_t h = random_pick(stream, COUNT(heads));

	*params = (struct kernel_fixture_params){ .seed = stream->seed,
						  .placement = random_pick(stream, 1000),
						  .q_heads = heads[h][0],
						  .kv_heads = heads[h][1],
						  .k_dim = 8 + random_pick(stream, 20),
						  .v_dim = 8 + random_pick(stream, 20),
						  .pool = dtypes[random_pick(stream, 3)],
						  .q = random_pick(stream, 2) ? PAGED_F32 : PAGED_BF16,
						  .out = random_pick(stream, 2) ? PAGED_F32 : PAGED_BF16,
						  .page_size = page_sizes[random_pick(stream, COUNT(page_sizes))],
						  .causal = random_pick(stream, 2),
						  .scale = 0.3f,
						  .sink = random_pick(stream, 4) == 0 ? sinks : NULL,
						  .n_rows = 1 + random_pick(stream, 3) };
	if (random_pick(stream, 2))
		params->pool = params->q = params->out = PAGED_BF16;
	for (uint32_t r = 0; r < params->n_rows; r++) {
		uint32_t kv_len = random_pick(stream, random_pick(stream, 3) == 0 ? 1100 : 200),
			 q_len = random_pick(stream, 2) ? 1
							: random_pick(stream, random_pick(stream, 3) == 0 ? 150 : 20);

		q_len = q_len < kv_len ? q_len : kv_len;
		params->rows[r] = (struct kernel_fixture_row){
			.id = r, .kv_len = kv_len, .q_len = q_len, .q_base = (int64_t)kv_len - q_len
		};
		if (random_pick(stream, 2))
			params->rows[r].kv_first = random_pick(stream, kv_len + 1);
	}
}

/* One random batch: correct by the reference; bit-identical with a block mask, other pages and other threads. */
static void
random_fixture_check(const struct kernel_fixture_params *params, struct random_stream *stream, enum kernel_isa isa,
		     const char *text)
{
	struct kernel_fixture_params other = *params;
	struct block_mask *blocks;
	struct kernel_fixture first, second;
	char what[512];

	kernel_fixture_run(&first, params, 1, isa);
	cr_assert(kernel_fixture_check(&first, what, sizeof(what)), "seed %" PRIu64 ", %s: %s", stream->seed, text,
		  what);
	blocks = kernel_fixture_block_mask(params, params->mods.mask, kernel_isa_best(), params->q_heads,
					   1 + random_pick(stream, 1u << random_pick(stream, 8)),
					   1 + random_pick(stream, 1u << random_pick(stream, 9)));
	other.mods.blocks = blocks;
	other.placement++;
	other.page_size = 1 + random_pick(stream, 40);
	kernel_fixture_run(&second, &other, 1 + random_pick(stream, 4), isa);
	assert_outputs_equal(&first, 0, &second, 0, first.total_q, text);
	kernel_fixture_destroy(&second);
	other.mods.blocks = NULL;
	kernel_fixture_run(&second, &other, 3, isa);
	assert_outputs_equal(&first, 0, &second, 0, first.total_q, text);
	kernel_fixture_destroy(&second);
	kernel_fixture_destroy(&first);
	block_mask_destroy(blocks);
}

KERNEL_TEST(attention_mods_random, random_mods_match_float64)
{
	const char *wanted = getenv("PAGED_TEST_ROUNDS");
	uint32_t rounds = wanted != NULL ? (uint32_t)atoi(wanted) : 40;
	static struct mod_arrays arrays;

	for (uint32_t i = 0; i < rounds; i++) {
		struct random_stream stream = { .seed = test_seed() + i };
		struct kernel_fixture_params params;
		struct mod_fixture mask, score;
		char text[640];

		mod_arrays_fill(&arrays, stream.seed);
		random_params(&stream, &params);
		random_mask_text(&stream, text, sizeof(text));
		mask = mod_arrays_bind(MOD_MASK, text, &arrays);
		score = mod_arrays_bind(MOD_SCORE, scores[random_pick(&stream, COUNT(scores))], &arrays);
		if (random_pick(&stream, 2))
			cr_assert_eq(mod_binding_add_range_trees(mask.binding, NULL), PAGED_OK);
		params.mods.mask = mask.binding;
		params.mods.score = random_pick(&stream, 3) ? score.binding : NULL;
		random_fixture_check(&params, &stream, isa, text);
		mod_fixture_close(&mask);
		mod_fixture_close(&score);
	}
}
