/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block masks of mask mods, built and converted, beside writing the same
 * indices.  Time is divided by what work follows: block rows, and blocks that
 * hold both seen and unseen elements.
 */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "bench/mods.h"
#include "kernels/mask/mod_rule.h"

#define BLOCK 128u
#define BLOCK_ELEMENTS (BLOCK * BLOCK)
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
	struct mod_rule rule;
	struct block_mask_row row;
	struct block_mask_shape shape;
	struct block_mask *mask;
	double n_units; /* block rows, and blocks that are mixed */
} squares[N_MASKS][N_SIZES];

static uint8_t elements[BLOCK_ELEMENTS];

/* True everywhere, which no interval around q_idx == kv_idx shows. */
static struct bench_mod opaque;
static struct mod_rule opaque_rule;

/* A decode step: the last token of each sequence, whose lengths are all unlike. */
static struct block_mask_row rows[N_SEQS];
static struct block_mask_sequence sequences[N_SEQS];
static uint32_t *pages;
static struct block_mask *physical; /* of pages of 16 */

static void
open_square(struct square *square, const char *text, uint32_t n_tokens)
{
	struct paged_error error = { 0 };

	bench_mod_open(&square->mod, MOD_MASK, text, n_tokens);
	bench_must(mod_rule_open(&square->rule, square->mod.binding, kernel_isa_best(), &error), &error);
	square->row = (struct block_mask_row){ 0, n_tokens, n_tokens };
	square->shape = (struct block_mask_shape){ 1, 1, BLOCK, BLOCK, &square->row, NULL };
	bench_must(block_mask_create(&square->shape, &square->rule.rule, 0, &square->mask, &error), &error);
	square->n_units = (double)square->mask->first_list[1] +
			  (double)square->mask->start[BLOCK_MASK_PARTIAL][square->mask->first_list[1]];
}

static void
close_square(struct square *square)
{
	block_mask_destroy(square->mask);
	mod_rule_close(&square->rule);
	bench_mod_close(&square->mod);
}

/* Pages of 16 tokens, in random order as after some use of a pool. */
static void
open_batch(void)
{
	uint64_t state = 1;

	pages = calloc(N_PAGES, sizeof(*pages));
	if (pages == NULL)
		bench_die("no memory for %u pages", N_PAGES);
	for (uint32_t i = 0; i < N_PAGES; i++) {
		uint32_t j = bench_random(&state, i + 1);

		pages[i] = pages[j];
		pages[j] = i;
	}
	for (uint32_t s = 0; s < N_SEQS; s++)
		rows[s] = (struct block_mask_row){ SEQ_TOKENS - 1 - s, 1, SEQ_TOKENS - s };
}

/* The causal block mask of the batch, then by pages. */
static double
batch_us(uint32_t page_size, uint32_t kv_block, struct block_mask **mask_p)
{
	const struct block_mask_shape shape = { N_SEQS, 1, 1, kv_block, rows, NULL };
	const struct block_mask_table table = {
		.sequences = sequences, .n_sequences = N_SEQS, .page_size = page_size, .n_pages = N_PAGES
	};
	const uint32_t n_pages = SEQ_TOKENS / page_size;
	struct mod_rule *rule = &squares[CAUSAL][TOKENS_8K].rule;
	struct paged_error error = { 0 };
	struct block_mask *logical;
	uint64_t start, end;

	for (uint32_t s = 0; s < N_SEQS; s++)
		sequences[s] = (struct block_mask_sequence){ pages + (uint64_t)s * n_pages, n_pages, rows[s].kv_len };
	start = bench_now_ns();
	bench_must(block_mask_create(&shape, &rule->rule, 0, &logical, &error), &error);
	bench_must(block_mask_to_physical(logical, &table, 0, mask_p, &error), &error);
	end = bench_now_ns();
	block_mask_destroy(logical);
	return (double)(end - start) / 1e3;
}

static void
setup(void)
{
	struct paged_error error = { 0 };

	for (int m = 0; m < N_MASKS; m++)
		for (int s = 0; s < N_SIZES; s++)
			open_square(&squares[m][s], texts[m], sizes[s]);
	bench_mod_open(&opaque, MOD_MASK, "(q_idx - kv_idx) * (q_idx - kv_idx) >= 0", BLOCK);
	bench_must(mod_rule_open(&opaque_rule, opaque.binding, kernel_isa_best(), &error), &error);
	open_batch();
	batch_us(16, 16, &physical);
}

static void
teardown(void)
{
	for (int m = 0; m < N_MASKS; m++)
		for (int s = 0; s < N_SIZES; s++)
			close_square(&squares[m][s]);
	mod_rule_close(&opaque_rule);
	bench_mod_close(&opaque);
	block_mask_destroy(physical);
	free(pages);
}

static double
create_ns(const struct square *square)
{
	struct paged_error error = { 0 };
	struct block_mask *mask;
	uint64_t start, end;

	start = bench_now_ns();
	bench_must(block_mask_create(&square->shape, &square->rule.rule, 0, &mask, &error), &error);
	end = bench_now_ns();
	block_mask_destroy(mask);
	return (double)(end - start);
}

static double
unit_ns(int m, int s)
{
	return create_ns(&squares[m][s]) / squares[m][s].n_units;
}

static double
sample_causal_131k(void)
{
	return create_ns(&squares[CAUSAL][TOKENS_131K]) / 1e6;
}

/* To memory that is new, as create's is. */
static double
write_ms(const struct block_mask *mask)
{
	uint64_t n_lists = mask->first_list[mask->shape.n_rows], start = bench_now_ns(), end;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t n_bytes = mask->start[kind][n_lists] * sizeof(uint32_t);
		void *to = malloc(n_bytes + 1);

		if (to == NULL)
			bench_die("no memory for %llu bytes", (unsigned long long)n_bytes);
		memcpy(to, mask->indices[kind], n_bytes);
		__asm__ volatile("" : : "r"(to) : "memory");
		free(to);
	}
	end = bench_now_ns();
	return (double)(end - start) / 1e6;
}

static double
sample_write_131k(void)
{
	return write_ms(squares[CAUSAL][TOKENS_131K].mask);
}

#define SAMPLE_UNIT(name, mask, size)       \
	static double name(void)            \
	{                                   \
		return unit_ns(mask, size); \
	}

SAMPLE_UNIT(sample_causal_8k, CAUSAL, TOKENS_8K)
SAMPLE_UNIT(sample_causal_32k, CAUSAL, TOKENS_32K)
SAMPLE_UNIT(sample_window_8k, WINDOW, TOKENS_8K)
SAMPLE_UNIT(sample_window_32k, WINDOW, TOKENS_32K)
SAMPLE_UNIT(sample_window_131k, WINDOW, TOKENS_131K)
SAMPLE_UNIT(sample_documents_8k, DOCUMENTS, TOKENS_8K)
SAMPLE_UNIT(sample_documents_32k, DOCUMENTS, TOKENS_32K)
SAMPLE_UNIT(sample_documents_131k, DOCUMENTS, TOKENS_131K)
SAMPLE_UNIT(sample_both_8k, CAUSAL_DOCUMENTS, TOKENS_8K)
SAMPLE_UNIT(sample_both_32k, CAUSAL_DOCUMENTS, TOKENS_32K)
SAMPLE_UNIT(sample_both_131k, CAUSAL_DOCUMENTS, TOKENS_131K)

/* Every element of a block, as where neither intervals nor points decide. */
static double
evaluate_us(int m)
{
	const uint32_t n_rounds = 64;
	uint64_t bits[MOD_TILE_LINES], seen = 0, start, end;
	int32_t h[MOD_TILE_LINES] = { 0 }, q_idx[MOD_TILE_LINES];
	struct mod_vm *vm = squares[m][TOKENS_32K].rule.vm;

	start = bench_now_ns();
	for (uint32_t i = 0; i < n_rounds * BLOCK; i += MOD_TILE_LINES) {
		for (uint32_t l = 0; l < MOD_TILE_LINES; l++)
			q_idx[l] = (int32_t)(i + l);
		mod_vm_lines(vm, 0, h, q_idx, MOD_TILE_LINES);
		for (uint32_t kv = 0; kv < BLOCK; kv += MOD_TILE_KEYS) {
			mod_vm_mask(vm, (int32_t)(i / BLOCK * BLOCK + kv), MOD_TILE_KEYS, NULL, bits);
			for (uint32_t l = 0; l < MOD_TILE_LINES; l++)
				seen |= bits[l];
		}
	}
	end = bench_now_ns();
	__asm__ volatile("" : : "r"(seen));
	return (double)(end - start) / 1e3 / n_rounds;
}

static double
sample_evaluate_causal(void)
{
	return evaluate_us(CAUSAL);
}

static double
sample_evaluate_window(void)
{
	return evaluate_us(WINDOW);
}

static double
sample_evaluate_documents(void)
{
	return evaluate_us(DOCUMENTS);
}

static double
sample_evaluate_both(void)
{
	return evaluate_us(CAUSAL_DOCUMENTS);
}

/* With all that create does before: interval, parts, a point of each. */
static double
sample_exactly(void)
{
	const struct mask_rule *rule = &opaque_rule.rule;
	const uint32_t n_rounds = 64;
	uint64_t start = bench_now_ns(), end;

	for (uint32_t i = 0; i < n_rounds; i++) {
		const struct mask_area area = {
			.q_begin = i * BLOCK,
			.q_end = (i + 1) * BLOCK,
			.kv_begin = i * BLOCK,
			.kv_end = (i + 1) * BLOCK,
		};

		if (rule->exactly(rule->context, &area) != MASK_ALL)
			bench_die("a square is below 0");
	}
	end = bench_now_ns();
	return (double)(end - start) / 1e3 / n_rounds;
}

/* A byte an element, the least that evaluating them without a mod could cost. */
static double
sample_touch(void)
{
	const uint32_t n_rounds = 64;
	uint64_t start = bench_now_ns(), end;

	for (uint32_t i = 0; i < n_rounds; i++) {
		memset(elements, (int)i, BLOCK_ELEMENTS);
		__asm__ volatile("" : : "r"(elements) : "memory");
	}
	end = bench_now_ns();
	return (double)(end - start) / 1e3 / n_rounds;
}

static double
sample_batch(uint32_t page_size, uint32_t kv_block)
{
	struct block_mask *mask;
	double us = batch_us(page_size, kv_block, &mask);

	block_mask_destroy(mask);
	return us;
}

static double
sample_batch_16(void)
{
	return sample_batch(16, 16);
}

static double
sample_batch_64(void)
{
	return sample_batch(64, 64);
}

static double
sample_batch_128(void)
{
	return sample_batch(128, 128);
}

static double
sample_batch_16_by_128(void)
{
	return sample_batch(16, 128);
}

static double
sample_write_batch(void)
{
	return write_ms(physical) * 1e3;
}

static const struct bench_figure figures[] = {
	{ "indices of causal 131k", "ms", NULL, NULL, sample_write_131k },
	{ "causal 131k", "ms", "indices of causal 131k", "<= 2 ms", sample_causal_131k },
	{ "causal 8k", "ns/unit", NULL, "<= 100 ns", sample_causal_8k },
	{ "causal 32k", "ns/unit", NULL, "<= 100 ns", sample_causal_32k },
	{ "window 8k", "ns/unit", NULL, "<= 100 ns", sample_window_8k },
	{ "window 32k", "ns/unit", NULL, "<= 100 ns", sample_window_32k },
	{ "window 131k", "ns/unit", NULL, "<= 100 ns", sample_window_131k },
	{ "doc 8k", "ns/unit", NULL, "<= 100 ns", sample_documents_8k },
	{ "doc 32k", "ns/unit", NULL, "<= 100 ns", sample_documents_32k },
	{ "doc 131k", "ns/unit", NULL, "<= 100 ns", sample_documents_131k },
	{ "doc causal 8k", "ns/unit", NULL, "<= 100 ns", sample_both_8k },
	{ "doc causal 32k", "ns/unit", NULL, "<= 100 ns", sample_both_32k },
	{ "doc causal 131k", "ns/unit", NULL, "<= 100 ns", sample_both_131k },
	{ "write 16384 bytes", "us", NULL, NULL, sample_touch },
	{ "block of causal", "us", "write 16384 bytes", "<= 1.5 us", sample_evaluate_causal },
	{ "block of window", "us", "write 16384 bytes", "<= 1.5 us", sample_evaluate_window },
	{ "block of doc", "us", "write 16384 bytes", "<= 1.5 us", sample_evaluate_documents },
	{ "block of doc causal", "us", "write 16384 bytes", "<= 1.5 us", sample_evaluate_both },
	{ "unknown to the end", "us", "write 16384 bytes", "<= 1.5 us", sample_exactly },
	{ "indices of batch, 16", "us", NULL, NULL, sample_write_batch },
	{ "batch, pages of 16", "us", "indices of batch, 16", "<= 200 us", sample_batch_16 },
	{ "batch, pages of 64", "us", NULL, "<= 200 us", sample_batch_64 },
	{ "batch, pages of 128", "us", NULL, "<= 200 us", sample_batch_128 },
	{ "batch, 16 by 128", "us", NULL, "<= 200 us", sample_batch_16_by_128 },
};

const struct bench_suite bench_suite_masks = {
	.name = "masks",
	.what = "block masks in blocks of 128 (a unit: a block row or a mixed block), and of 256 sequences of 8k",
	.setup = setup,
	.teardown = teardown,
	.figures = figures,
	.n_figures = sizeof(figures) / sizeof(figures[0]),
};
