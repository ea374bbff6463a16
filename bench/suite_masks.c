/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block masks of mask mods, built and converted, compared with writing the same
 * indices.  Time is divided by the work's units: block rows, and blocks that
 * hold both seen and unseen elements.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/bench_mod.h"
#include "bench/random.h"
#include "bench/suite.h"
#include "kernels/mask/mod_evaluator.h"

#define BLOCK 128u
#define BLOCK_ELEMENTS (BLOCK * BLOCK)
#define N_ROUNDS 64u /* blocks a sample, where one is short */
#define N_SEQS 256u
#define SEQ_TOKENS 8192u
#define N_PAGES (N_SEQS * SEQ_TOKENS / 16)

enum { CAUSAL, WINDOW, DOCUMENTS, CAUSAL_DOCUMENTS, N_MASKS };
enum { TOKENS_8K, TOKENS_32K, TOKENS_131K, N_SIZES };

static const char *const texts[N_MASKS] = {
	[CAUSAL] = "kv_idx <= q_idx",
	[WINDOW] = "kv_idx <= q_idx && q_idx - kv_idx < window",
	[DOCUMENTS] = "doc[q_idx] == doc[kv_idx]",
	[CAUSAL_DOCUMENTS] = "doc[q_idx] == doc[kv_idx] && kv_idx <= q_idx",
};

static const uint32_t sizes[N_SIZES] = { 8192, 32768, 131072 };

/* A mask mod over a square, and its block mask. */
static struct square {
	struct bench_mod mod;
	struct mod_evaluator evaluator;
	struct block_mask_row row;
	struct block_mask_shape shape;
	struct block_mask *mask;
	double n_units; /* block rows, and partial blocks */
} squares[N_MASKS][N_SIZES];

/* True everywhere, but interval arithmetic around q_idx == kv_idx cannot show it. */
static struct bench_mod opaque;
static struct mod_evaluator opaque_evaluator;

/* A decode step: the last token of each sequence; all lengths differ. */
static struct block_mask_row rows[N_SEQS];
static uint32_t *pages;             /* of 16 tokens, in random order as after some use of a pool */
static struct block_mask *physical; /* of pages of 16 */

static const struct batch {
	uint32_t page_size, kv_block;
} batch_16 = { 16, 16 };

static void
open_evaluator(struct bench_mod *mod, struct mod_evaluator *evaluator, const char *text, uint32_t n_tokens)
{
	struct paged_error error = { 0 };

	bench_mod_open(mod, MOD_MASK, text, n_tokens);
	bench_must(mod_evaluator_open(evaluator, mod->binding, kernel_isa_best(), &error), &error);
}

/* The causal block mask of the batch, then by pages. */
static double
batch_us(const struct batch *batch, struct block_mask **mask_p)
{
	static struct block_mask_sequence sequences[N_SEQS];
	const struct block_mask_shape shape = { N_SEQS, 1, 1, batch->kv_block, rows, NULL };
	const struct block_mask_table table = {
		.sequences = sequences, .n_sequences = N_SEQS, .page_size = batch->page_size, .n_pages = N_PAGES
	};
	const uint32_t n_pages = SEQ_TOKENS / batch->page_size;
	struct mod_evaluator *evaluator = &squares[CAUSAL][TOKENS_8K].evaluator;
	struct paged_error error = { 0 };
	struct block_mask *logical;
	uint64_t start;
	double us;

	for (uint32_t s = 0; s < N_SEQS; s++)
		sequences[s] =
			(struct block_mask_sequence){ pages + (uint64_t)s * n_pages, n_pages, rows[s].kv_len, 0 };
	start = bench_now_ns();
	bench_must(block_mask_create(&shape, &evaluator->base, 0, &logical, &error), &error);
	bench_must(block_mask_to_physical(logical, &table, 0, mask_p, &error), &error);
	us = bench_since_us(start);
	block_mask_destroy(logical);
	return us;
}

/* All of it lives until the process ends. */
static void
suite_masks_setup(void)
{
	struct paged_error error = { 0 };

	for (int i = 0; i < N_MASKS * N_SIZES; i++) {
		struct square *square = &squares[i / N_SIZES][i % N_SIZES];
		uint32_t n_tokens = sizes[i % N_SIZES];

		open_evaluator(&square->mod, &square->evaluator, texts[i / N_SIZES], n_tokens);
		square->row = (struct block_mask_row){ 0, n_tokens, n_tokens, 0 };
		square->shape = (struct block_mask_shape){ 1, 1, BLOCK, BLOCK, &square->row, NULL };
		bench_must(block_mask_create(&square->shape, &square->evaluator.base, 0, &square->mask, &error),
			   &error);
		square->n_units = (double)square->mask->first_list[1] +
				  (double)square->mask->start[BLOCK_MASK_PARTIAL][square->mask->first_list[1]];
	}
	open_evaluator(&opaque, &opaque_evaluator, "(q_idx - kv_idx) * (q_idx - kv_idx) >= 0", BLOCK);
	pages = bench_permutation(N_PAGES);
	for (uint32_t s = 0; s < N_SEQS; s++)
		rows[s] = (struct block_mask_row){ SEQ_TOKENS - 1 - s, 1, SEQ_TOKENS - s, 0 };
	batch_us(&batch_16, &physical);
}

static double
sample_batch_us(const void *batch)
{
	struct block_mask *mask;
	double us = batch_us(batch, &mask);

	block_mask_destroy(mask);
	return us;
}

static double
sample_create_ms(const void *context)
{
	const struct square *square = context;
	struct paged_error error = { 0 };
	uint64_t start = bench_now_ns();
	struct block_mask *mask;
	double us;

	bench_must(block_mask_create(&square->shape, &square->evaluator.base, 0, &mask, &error), &error);
	us = bench_since_us(start);
	block_mask_destroy(mask);
	return us / 1e3;
}

static double
sample_unit_ns(const void *square)
{
	return sample_create_ms(square) * 1e6 / ((const struct square *)square)->n_units;
}

/* Copy the indices to newly allocated memory, as block_mask_create() does. */
static double
sample_write_us(const void *mask_p)
{
	const struct block_mask *mask = *(struct block_mask *const *)mask_p;
	uint64_t n_lists = mask->first_list[mask->shape.n_rows], start = bench_now_ns();

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t n_bytes = mask->start[kind][n_lists] * sizeof(uint32_t);
		void *to = malloc(n_bytes + 1);

		if (to == NULL)
			bench_die("no memory for %llu bytes", (unsigned long long)n_bytes);
		memcpy(to, mask->indices[kind], n_bytes);
		__asm__ volatile("" : : "r"(to) : "memory");
		free(to);
	}
	return bench_since_us(start);
}

static double
sample_write_ms(const void *mask_p)
{
	return sample_write_us(mask_p) / 1e3;
}

/* Evaluate every element of a block, as when neither intervals nor points decide it. */
static double
sample_evaluate_us(const void *square)
{
	uint64_t bits[MOD_TILE_Q_ROWS], seen = 0, start = bench_now_ns();
	int32_t h[MOD_TILE_Q_ROWS] = { 0 }, q_idx[MOD_TILE_Q_ROWS];
	struct mod_vm *vm = ((const struct square *)square)->evaluator.vm;

	for (uint32_t i = 0; i < N_ROUNDS * BLOCK; i += MOD_TILE_Q_ROWS) {
		for (uint32_t l = 0; l < MOD_TILE_Q_ROWS; l++)
			q_idx[l] = (int32_t)(i + l);
		mod_vm_set_q_rows(vm, 0, h, q_idx, MOD_TILE_Q_ROWS);
		for (uint32_t kv = 0; kv < BLOCK; kv += MOD_TILE_KEYS) {
			mod_vm_mask(vm, (int32_t)(i / BLOCK * BLOCK + kv), MOD_TILE_KEYS, NULL, bits);
			for (uint32_t l = 0; l < MOD_TILE_Q_ROWS; l++)
				seen |= bits[l];
		}
	}
	__asm__ volatile("" : : "r"(seen));
	return bench_since_us(start) / N_ROUNDS;
}

/* Decide a block with all steps that block_mask_create() tries first: interval, parts, a point of each. */
static double
sample_exactly_us(const void *context)
{
	const struct mask_evaluator *evaluator = &opaque_evaluator.base;
	uint64_t start = bench_now_ns();

	(void)context;
	for (uint32_t i = 0; i < N_ROUNDS; i++) {
		const struct mask_area area = {
			.q_begin = i * BLOCK,
			.q_end = (i + 1) * BLOCK,
			.kv_begin = i * BLOCK,
			.kv_end = (i + 1) * BLOCK,
		};

		if (evaluator->evaluate_area(evaluator->context, &area) != MASK_FULL)
			bench_die("a square is below 0");
	}
	return bench_since_us(start) / N_ROUNDS;
}

/* Write one byte per element: the least that an evaluation could cost. */
static double
sample_touch_us(const void *context)
{
	static uint8_t elements[BLOCK_ELEMENTS];
	uint64_t start = bench_now_ns();

	(void)context;
	for (uint32_t i = 0; i < N_ROUNDS; i++) {
		memset(elements, (int)i, BLOCK_ELEMENTS);
		__asm__ volatile("" : : "r"(elements) : "memory");
	}
	return bench_since_us(start) / N_ROUNDS;
}

#define SQUARE(mask, size) (&squares[mask][TOKENS_##size])
#define UNIT(name, mask, size) BENCH_CASE(name, "ns/unit", NULL, "<= 100 ns", sample_unit_ns, SQUARE(mask, size))
#define EVALUATE(name, mask) \
	BENCH_CASE(name, "us", "write 16384 bytes", "<= 1.5 us", sample_evaluate_us, SQUARE(mask, 32K))

static const struct bench_case cases[] = {
	BENCH_CASE("indices of causal 131k", "ms", NULL, NULL, sample_write_ms, &squares[CAUSAL][TOKENS_131K].mask),
	BENCH_CASE("causal 131k", "ms", "indices of causal 131k", "<= 2 ms", sample_create_ms, SQUARE(CAUSAL, 131K)),
	UNIT("causal 8k", CAUSAL, 8K),
	UNIT("causal 32k", CAUSAL, 32K),
	UNIT("window 8k", WINDOW, 8K),
	UNIT("window 32k", WINDOW, 32K),
	UNIT("window 131k", WINDOW, 131K),
	UNIT("doc 8k", DOCUMENTS, 8K),
	UNIT("doc 32k", DOCUMENTS, 32K),
	UNIT("doc 131k", DOCUMENTS, 131K),
	UNIT("doc causal 8k", CAUSAL_DOCUMENTS, 8K),
	UNIT("doc causal 32k", CAUSAL_DOCUMENTS, 32K),
	UNIT("doc causal 131k", CAUSAL_DOCUMENTS, 131K),
	BENCH_CASE("write 16384 bytes", "us", NULL, NULL, sample_touch_us, NULL),
	EVALUATE("block of causal", CAUSAL),
	EVALUATE("block of window", WINDOW),
	EVALUATE("block of doc", DOCUMENTS),
	EVALUATE("block of doc causal", CAUSAL_DOCUMENTS),
	BENCH_CASE("undecided by intervals", "us", "write 16384 bytes", "<= 1.5 us", sample_exactly_us, NULL),
	BENCH_CASE("indices of batch, 16", "us", NULL, NULL, sample_write_us, &physical),
	BENCH_CASE("batch, pages of 16", "us", "indices of batch, 16", "<= 200 us", sample_batch_us, &batch_16),
	BENCH_CASE("batch, pages of 64", "us", NULL, "<= 200 us", sample_batch_us, &(struct batch){ 64, 64 }),
	BENCH_CASE("batch, pages of 128", "us", NULL, "<= 200 us", sample_batch_us, &(struct batch){ 128, 128 }),
	BENCH_CASE("batch, 16 by 128", "us", NULL, "<= 200 us", sample_batch_us, &(struct batch){ 16, 128 }),
};

const struct bench_suite bench_suite_masks = {
	.name = "masks",
	.description =
		"block masks in blocks of 128 (a unit is a block row or a partial block), and of 256 sequences of 8k",
	.setup = suite_masks_setup,
	.cases = cases,
	.n_cases = BENCH_N(cases),
};
