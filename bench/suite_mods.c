/* SPDX-License-Identifier: Apache-2.0 */
/* The tile VM: a logit of an operation, beside copying the tile's logits. */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "bench/mods.h"
#include "kernels/mod/ir.h"

#define N_TOKENS 8192u
#define N_TILES 64u /* a sample; all of the same lines */
#define N_LOGITS (MOD_TILE_LINES * MOD_TILE_KEYS)

enum { CAUSAL, WINDOW, DOCUMENTS, CAUSAL_DOCUMENTS, ALIBI, SOFT_CAP, N_MODS };

static struct subject {
	enum mod_kind kind;
	const char *text;
	struct bench_mod mod;
	struct mod_vm *vm;
	uint32_t n_operations;
} subjects[N_MODS] = {
	[CAUSAL] = { .kind = MOD_MASK, .text = "causal" },
	[WINDOW] = { .kind = MOD_MASK, .text = "sliding_window" },
	[DOCUMENTS] = { .kind = MOD_MASK, .text = "document" },
	[CAUSAL_DOCUMENTS] = { .kind = MOD_MASK, .text = "document && causal" },
	[ALIBI] = { .kind = MOD_SCORE, .text = "alibi" },
	[SOFT_CAP] = { .kind = MOD_SCORE, .text = "soft_cap" },
};

static float scores[N_LOGITS], copy[N_LOGITS];

/* Those that have a result for each logit; what a line or a key has one of costs a 64th. */
static uint32_t
count_operations(const struct mod *mod)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		uint32_t inputs = mod->nodes[i].inputs;
		bool on_line = (inputs & (MOD_ON_H | MOD_ON_Q)) != 0, on_key = (inputs & MOD_ON_KV) != 0;

		n += mod->nodes[i].n_args > 0 && ((inputs & MOD_ON_SCORE) != 0 || (on_line && on_key));
	}
	return n;
}

static void
setup(void)
{
	struct paged_error error = { 0 };

	for (int m = 0; m < N_MODS; m++) {
		struct subject *subject = &subjects[m];

		bench_mod_open(&subject->mod, subject->kind, subject->text, N_TOKENS);
		bench_must(mod_vm_create(subject->mod.mod, kernel_isa_best(), &subject->vm, &error), &error);
		mod_vm_bind(subject->vm, subject->mod.binding);
		subject->n_operations = count_operations(subject->mod.mod);
	}
}

static void
teardown(void)
{
	for (int m = 0; m < N_MODS; m++) {
		mod_vm_destroy(subjects[m].vm);
		bench_mod_close(&subjects[m].mod);
	}
}

/* 64 query rows of a head, over all keys. */
static double
logit_ps(int m)
{
	const struct subject *subject = &subjects[m];
	int32_t h[MOD_TILE_LINES] = { 0 }, q_idx[MOD_TILE_LINES];
	uint64_t bits[MOD_TILE_LINES], start, end;

	for (uint32_t i = 0; i < MOD_TILE_LINES; i++)
		q_idx[i] = (int32_t)(N_TOKENS / 2 + i);
	for (uint32_t i = 0; i < N_LOGITS; i++)
		scores[i] = (float)(i % 97) - 48.0f;
	start = bench_now_ns();
	mod_vm_lines(subject->vm, 0, h, q_idx, MOD_TILE_LINES);
	for (uint32_t tile = 0; tile < N_TILES; tile++) {
		int32_t kv_idx = (int32_t)(tile * MOD_TILE_KEYS);

		if (subject->kind == MOD_MASK)
			mod_vm_mask(subject->vm, kv_idx, MOD_TILE_KEYS, NULL, bits);
		else
			mod_vm_score(subject->vm, kv_idx, MOD_TILE_KEYS, NULL, scores, MOD_TILE_KEYS);
	}
	end = bench_now_ns();
	return (double)(end - start) * 1e3 / N_TILES / N_LOGITS / subject->n_operations;
}

static double
sample_copy(void)
{
	uint64_t start = bench_now_ns(), end;

	for (uint32_t tile = 0; tile < N_TILES; tile++) {
		memcpy(copy, scores, sizeof(copy));
		__asm__ volatile("" : : "r"(copy) : "memory");
	}
	end = bench_now_ns();
	return (double)(end - start) * 1e3 / N_TILES / N_LOGITS;
}

static double
sample_causal(void)
{
	return logit_ps(CAUSAL);
}

static double
sample_window(void)
{
	return logit_ps(WINDOW);
}

static double
sample_documents(void)
{
	return logit_ps(DOCUMENTS);
}

static double
sample_both(void)
{
	return logit_ps(CAUSAL_DOCUMENTS);
}

static double
sample_alibi(void)
{
	return logit_ps(ALIBI);
}

static double
sample_soft_cap(void)
{
	return logit_ps(SOFT_CAP);
}

static const struct bench_figure figures[] = {
	{ "copy of a logit", "ps", NULL, NULL, sample_copy },
	{ "causal", "ps", "copy of a logit", NULL, sample_causal },
	{ "window", "ps", "copy of a logit", NULL, sample_window },
	{ "document", "ps", "copy of a logit", NULL, sample_documents },
	{ "document causal", "ps", "copy of a logit", NULL, sample_both },
	{ "alibi", "ps", "copy of a logit", NULL, sample_alibi },
	{ "soft_cap", "ps", "copy of a logit", NULL, sample_soft_cap },
};

const struct bench_suite bench_suite_mods = {
	.name = "mods",
	.what = "a logit and operation of a mod over tiles of 64 x 64, beside a copy of the tile",
	.setup = setup,
	.teardown = teardown,
	.figures = figures,
	.n_figures = sizeof(figures) / sizeof(figures[0]),
};
