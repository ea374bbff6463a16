/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by CUDA kernels, run on the host, against the golden results: the
 * cases whose mask follows from lengths and causality, without a score mod, and
 * small enough to run thread by thread.
 */
#include <criterion/criterion.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/choose_kernel.h"
#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/golden_attention.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

/* Multiplications of a case; this many take a few seconds. */
#define MAX_PRODUCTS 25e6

struct golden_fixture {
	struct golden_attention golden;
	struct layout layout;
	uint8_t *pool;
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES]; /* of attention */
	uint64_t total_q;
	bool causal;
	struct kernel_tensor q, out;
	float *lse, *max_score;
};

/* Write the rows with the case's mask as lengths and causality; false if that is impossible. */
static bool
rows_from_mask(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = &fixture->golden;
	const struct golden_array *length = golden_attention_array(golden, "length"),
				  *offset = golden_attention_array(golden, "offset");
	const char *mask = golden->mask == NULL ? "" : golden->mask;

	fixture->causal = strncmp(mask, "kv_idx <= q_idx", 15) == 0;
	for (uint32_t i = 0; i < golden->n_sequences; i++) {
		const struct golden_sequence *from = &golden->sequences[i];
		struct kernel_row *row = &fixture->rows[i];

		*row = (struct kernel_row){ .pages = from->pages,
					    .q_start = fixture->total_q,
					    .q_base = from->q_base,
					    .q_len = from->q_len,
					    .kv_len = from->kv_len,
					    .b = (int32_t)i };
		fixture->total_q += from->q_len;
		if (strcmp(mask, "kv_idx <= q_idx + offset[b]") == 0)
			row->q_base += offset->i32[i];
		else if (strcmp(mask, "kv_idx < length[b]") == 0 && (uint32_t)length->i32[i] < row->kv_len)
			row->kv_len = (uint32_t)length->i32[i];
		else if (strcmp(mask, "kv_idx < 0") == 0)
			row->kv_len = 0;
		else if (mask[0] != '\0' && strcmp(mask, "kv_idx <= q_idx") != 0 &&
			 strcmp(mask, "kv_idx < length[b]") != 0)
			return false;
	}
	return golden->score == NULL;
}

static double
products(const struct golden_attention *golden)
{
	double n = 0;

	for (uint32_t i = 0; i < golden->n_sequences; i++)
		n += (double)golden->sequences[i].q_len * golden->q_heads * golden->sequences[i].kv_len *
		     (golden->k_dim + golden->v_dim);
	return n;
}

static void
pool_fill(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = &fixture->golden;
	const struct layout_params params = { .n_layers = 1,
					      .n_kv_heads = golden->kv_heads,
					      .k_dim = golden->k_dim,
					      .v_dim = golden->v_dim,
					      .v_in_k = golden->v_in_k,
					      .dtype = golden->dtype,
					      .page_size = golden->page_size,
					      .n_pages = golden->n_pages };
	struct paged_error error;

	cr_assert_eq(layout_init(&fixture->layout, &params, &error), PAGED_OK, "%s", error.text);
	fixture->pool = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	for (uint32_t i = 0; i < golden->n_sequences; i++)
		for (uint32_t t = 0; t < golden->sequences[i].kv_len; t++)
			for (uint32_t h = 0; h < golden->kv_heads; h++)
				for (unsigned int plane = 0; plane < (golden->v_in_k ? 1u : 2u); plane++) {
					const struct golden_tensor *from = plane == LAYOUT_K ? &golden->k : &golden->v;
					uint8_t *to = fixture->pool +
						      layout_offset(&fixture->layout, plane, 0,
								    golden->sequences[i].pages[t / golden->page_size],
								    h, t % golden->page_size);

					for (uint32_t d = 0; d < from->dim; d++)
						reference_store(to, golden->dtype, d,
								golden_tensor_element(from, i, h, t, d));
				}
}

static void
tensors_make(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = &fixture->golden;
	size_t bytes, q_rows = fixture->total_q * golden->q_heads * sizeof(float);

	fixture->q = kernel_tensor_create(golden->dtype, fixture->total_q, golden->q_heads, golden->k_dim, 0, &bytes);
	fixture->out = kernel_tensor_create(PAGED_F32, fixture->total_q, golden->q_heads, golden->v_dim, 0, &bytes);
	fixture->lse = malloc(q_rows);
	fixture->max_score = malloc(q_rows);
	for (uint32_t i = 0; i < golden->n_sequences; i++)
		for (uint32_t t = 0; t < golden->sequences[i].q_len; t++)
			for (uint32_t h = 0; h < golden->q_heads; h++)
				for (uint32_t d = 0; d < golden->k_dim; d++)
					reference_store((uint8_t *)fixture->q.data +
								(int64_t)(fixture->rows[i].q_start + t) *
									fixture->q.token_stride +
								h * fixture->q.head_stride,
							golden->dtype, d,
							golden_tensor_element(&golden->q, i, h, t, d));
}

static void
assert_close(double got, double expected, double tolerance, const char *name, const char *what)
{
	cr_assert(got == expected || fabs(got - expected) <= tolerance * (1 + fabs(expected)),
		  "%s: %s %.9g, expected %.9g", name, what, got, expected);
}

static void
results_check(const struct golden_fixture *fixture, const char *name, double rounding)
{
	const struct golden_attention *golden = &fixture->golden;

	for (uint32_t i = 0; i < golden->n_sequences; i++)
		for (uint32_t t = 0; t < golden->sequences[i].q_len; t++)
			for (uint32_t h = 0; h < golden->q_heads; h++) {
				size_t at = ((size_t)i * golden->q_heads + h) * golden->q.max_tokens + t;
				uint64_t packed_token = fixture->rows[i].q_start + t;

				assert_close(fixture->lse[packed_token * golden->q_heads + h], golden->lse[at], 1e-5,
					     name, "LSE");
				assert_close(fixture->max_score[packed_token * golden->q_heads + h],
					     golden->max_score[at], 1e-5, name, "max_score");
				for (uint32_t d = 0; d < golden->v_dim; d++)
					assert_close(kernel_tensor_element(&fixture->out, packed_token, h, d),
						     golden->out[at * golden->v_dim + d], 1e-5 + rounding, name,
						     "output");
			}
}

static void
case_run(struct golden_fixture *fixture, const char *name, uint64_t seed)
{
	const struct golden_attention *golden = &fixture->golden;
	struct cuda_choice choices[CUDA_N_PARTS];
	struct paged_error error;

	pool_fill(fixture);
	tensors_make(fixture);
	cr_assert_eq(cuda_choose(&fixture->layout.params, golden->dtype, 160u << 10, choices, &error), PAGED_OK, "%s",
		     error.text);
	cuda_attention_run(&(struct attention_args){ .pages = { &fixture->layout, fixture->pool, 0 },
						     .rows = fixture->rows,
						     .n_rows = golden->n_sequences,
						     .q = fixture->q,
						     .out = fixture->out,
						     .scale = (float)golden->scale,
						     .causal = fixture->causal,
						     .sink = golden->sink,
						     .lse = fixture->lse,
						     .max_score = fixture->max_score },
			   fixture->total_q,
			   &(struct cuda_attention_options){ .kernel = choices[CUDA_DECODE].kernel,
							     .prefill = choices[CUDA_PREFILL].kernel,
							     .max_tile_q_rows = choices[CUDA_DECODE].tile_q_rows,
							     .n_blocks = 5,
							     .seed = seed });
	results_check(fixture, name,
		      strcmp(choices[CUDA_DECODE].source, "attention_simt") != 0 ? reference_unit(golden->dtype) : 0);
	free(fixture->pool);
	free(fixture->q.data);
	free(fixture->out.data);
	free(fixture->lse);
	free(fixture->max_score);
}

Test(cuda_golden, pytorch_results)
{
	const char *source = getenv("PAGED_SRCDIR");
	unsigned int n_without_mods = 0, n_run = 0;
	char pattern[4096], what[256];
	glob_t files;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/attention/*.case", source != NULL ? source : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &files), 0, "%s: no such files", pattern);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		const char *name = strrchr(files.gl_pathv[i], '/') + 1;
		struct golden_fixture fixture = { .total_q = 0 };

		cr_assert(golden_attention_open(&fixture.golden, files.gl_pathv[i], what, sizeof(what)), "%s: %s", name,
			  what);
		if (rows_from_mask(&fixture)) {
			n_without_mods++;
			if (products(&fixture.golden) <= MAX_PRODUCTS) {
				n_run++;
				case_run(&fixture, name, i);
			}
		}
		golden_attention_close(&fixture.golden);
	}
	printf("# %u of %u golden cases without mods ran; the others are too large for the host\n", n_run,
	       n_without_mods);
	fflush(stdout);
	cr_assert_geq(n_run, 20);
	globfree(&files);
}
