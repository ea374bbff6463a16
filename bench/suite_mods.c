/* SPDX-License-Identifier: Apache-2.0 */
/* The tile VM: time per logit and operation, compared with copying the tile's logits. */
#include <string.h>

#include "bench/base.h"
#include "bench/bench_mod.h"
#include "bench/suite.h"
#include "kernels/mod/ir.h"

#define N_TOKENS 8192u
#define N_TILES 64u /* per sample; all of the same query rows */
#define N_LOGITS (MOD_TILE_Q_ROWS * MOD_TILE_KEYS)

static struct fixture {
	enum mod_kind kind;
	const char *text;
	struct bench_mod mod;
	struct mod_vm *vm;
	uint32_t n_operations;
} fixtures[] = {
	{ .kind = MOD_MASK, .text = "causal" },   { .kind = MOD_MASK, .text = "sliding_window" },
	{ .kind = MOD_MASK, .text = "document" }, { .kind = MOD_MASK, .text = "document && causal" },
	{ .kind = MOD_SCORE, .text = "alibi" },   { .kind = MOD_SCORE, .text = "soft_cap" },
};

static float scores[N_LOGITS], copy[N_LOGITS];

/* Count operations with a result per logit; an operation with one result per query row or key costs a 64th. */
static uint32_t
count_operations(const struct mod *mod)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		uint32_t inputs = mod->nodes[i].inputs;
		bool on_q_row = (inputs & (MOD_ON_H | MOD_ON_Q)) != 0, on_key = (inputs & MOD_ON_KV) != 0;

		n += mod->nodes[i].n_args > 0 && ((inputs & MOD_ON_SCORE) != 0 || (on_q_row && on_key));
	}
	return n;
}

/* All of it lives until the process ends. */
static void
suite_mods_setup(void)
{
	struct paged_error error = { 0 };

	for (size_t i = 0; i < BENCH_N(fixtures); i++) {
		struct fixture *fixture = &fixtures[i];

		bench_mod_open(&fixture->mod, fixture->kind, fixture->text, N_TOKENS);
		bench_must(mod_vm_create(fixture->mod.mod, kernel_isa_best(), &fixture->vm, &error), &error);
		mod_vm_bind(fixture->vm, fixture->mod.binding);
		fixture->n_operations = count_operations(fixture->mod.mod);
	}
}

/* Evaluates the mod for 64 query rows of a head and all keys. */
static double
sample_ps(const void *context)
{
	const struct fixture *fixture = context;
	int32_t h[MOD_TILE_Q_ROWS] = { 0 }, q_idx[MOD_TILE_Q_ROWS];
	uint64_t bits[MOD_TILE_Q_ROWS], start;

	for (uint32_t i = 0; i < MOD_TILE_Q_ROWS; i++)
		q_idx[i] = (int32_t)(N_TOKENS / 2 + i);
	for (uint32_t i = 0; i < N_LOGITS; i++)
		scores[i] = (float)(i % 97) - 48.0f;
	start = bench_now_ns();
	mod_vm_set_q_rows(fixture->vm, 0, h, q_idx, MOD_TILE_Q_ROWS);
	for (uint32_t tile = 0; tile < N_TILES; tile++) {
		int32_t kv_idx = (int32_t)(tile * MOD_TILE_KEYS);

		if (fixture->kind == MOD_MASK)
			mod_vm_mask(fixture->vm, kv_idx, MOD_TILE_KEYS, NULL, bits);
		else
			mod_vm_score(fixture->vm, kv_idx, MOD_TILE_KEYS, NULL, scores, MOD_TILE_KEYS);
	}
	return bench_since_us(start) * 1e6 / N_TILES / N_LOGITS / fixture->n_operations;
}

static double
sample_copy_ps(const void *context)
{
	uint64_t start = bench_now_ns();

	(void)context;
	for (uint32_t tile = 0; tile < N_TILES; tile++) {
		memcpy(copy, scores, sizeof(copy));
		__asm__ volatile("" : : "r"(copy) : "memory");
	}
	return bench_since_us(start) * 1e6 / N_TILES / N_LOGITS;
}

static const struct bench_case cases[] = {
	BENCH_CASE("copy of a logit", "ps", NULL, NULL, sample_copy_ps, NULL),
	BENCH_CASE("causal", "ps", "copy of a logit", NULL, sample_ps, &fixtures[0]),
	BENCH_CASE("window", "ps", "copy of a logit", NULL, sample_ps, &fixtures[1]),
	BENCH_CASE("document", "ps", "copy of a logit", NULL, sample_ps, &fixtures[2]),
	BENCH_CASE("document causal", "ps", "copy of a logit", NULL, sample_ps, &fixtures[3]),
	BENCH_CASE("alibi", "ps", "copy of a logit", NULL, sample_ps, &fixtures[4]),
	BENCH_CASE("soft_cap", "ps", "copy of a logit", NULL, sample_ps, &fixtures[5]),
};

const struct bench_suite bench_suite_mods = {
	.name = "mods",
	.description = "a mod's time per logit and operation, over tiles of 64 x 64, compared with a copy of the tile",
	.setup = suite_mods_setup,
	.cases = cases,
	.n_cases = BENCH_N(cases),
};
