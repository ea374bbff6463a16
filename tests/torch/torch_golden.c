/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torch/torch_golden.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/reference.h"
#include "tests/torch/torch_fixture.h"

struct golden_fixture {
	struct golden_attention *golden;
	const char *name;
	struct pa pa;
	uint64_t total_q;
	float *q; /* [total_q][q_heads][k_dim] */
	uint32_t kv_len[GOLDEN_MAX_SEQUENCES], q_len[GOLDEN_MAX_SEQUENCES];
	int64_t q_base[GOLDEN_MAX_SEQUENCES];
	uint32_t skipped[GOLDEN_MAX_SEQUENCES]; /* query rows of the case before the first that is run */
	struct pa_rows rows;
	struct paged_array arrays[GOLDEN_MAX_NAMES];
	struct paged_mod *mask_mod, *score_mod;
};

/* The pages must be those that PyTorch's allocator assigned. */
static void
golden_fixture_reserve(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = fixture->golden;

	for (uint32_t i = 0; i < golden->n_reserves; i++)
		expect_ok(pa_reserve(&fixture->pa, golden->reserves[i].sequence, golden->reserves[i].tokens));
	for (uint32_t b = 0; b < golden->n_sequences; b++) {
		uint32_t *pages = calloc(golden->n_pages + 1, sizeof(*pages));

		cr_assert_eq(pa_pages(&fixture->pa, b, pages, golden->n_pages), golden->sequences[b].n_pages, "%s",
			     fixture->name);
		cr_assert_arr_eq(pages, golden->sequences[b].pages, golden->sequences[b].n_pages * sizeof(*pages),
				 "%s: row %u", fixture->name, b);
		free(pages);
	}
}

/* One sequence of k or v: [1][heads][kv_len][dim]. */
static struct pa_tensor
tensor_of_sequence(const struct golden_tensor *from, uint32_t b, uint32_t kv_len)
{
	float *data = malloc((size_t)from->heads * kv_len * from->dim * sizeof(*data) + 1);
	struct pa_tensor tensor = { data, from->heads, kv_len, from->dim, 0, 0, 0 };

	for (uint32_t h = 0; h < from->heads; h++)
		for (uint32_t t = 0; t < kv_len; t++)
			for (uint32_t d = 0; d < from->dim; d++)
				*data++ = golden_tensor_element(from, b, h, t, d);
	return tensor;
}

static void
golden_fixture_assign(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = fixture->golden;

	for (uint32_t b = 0; b < golden->n_sequences; b++) {
		uint32_t n = golden->sequences[b].kv_len, *positions = calloc(n + 1, sizeof(*positions));
		struct pa_tensor k = tensor_of_sequence(&golden->k, b, n), v = k;

		if (!golden->v_in_k)
			v = tensor_of_sequence(&golden->v, b, n);
		for (uint32_t t = 0; t < n; t++)
			positions[t] = t;
		expect_ok(pa_assign(&fixture->pa, 0, 1, &b, positions, &k, golden->v_in_k ? NULL : &v));
		if (!golden->v_in_k)
			free((void *)v.data);
		free((void *)k.data);
		free(positions);
	}
}

/* Queries are rounded to the case's dtype. */
static void
golden_fixture_fill_q(struct golden_fixture *fixture, uint32_t max_queries)
{
	const struct golden_attention *golden = fixture->golden;
	uint64_t total_q = 0, at = 0;

	for (uint32_t b = 0; b < golden->n_sequences; b++) {
		fixture->kv_len[b] = golden->sequences[b].kv_len;
		fixture->q_len[b] = golden->sequences[b].q_len < max_queries ? golden->sequences[b].q_len : max_queries;
		fixture->skipped[b] = golden->sequences[b].q_len - fixture->q_len[b];
		fixture->q_base[b] = golden->sequences[b].q_base + fixture->skipped[b];
		total_q += fixture->q_len[b];
	}
	fixture->rows = (struct pa_rows){
		.n = golden->n_sequences, .kv_len = fixture->kv_len, .q_len = fixture->q_len, .q_base = fixture->q_base
	};
	fixture->total_q = total_q;
	fixture->q = malloc(total_q * golden->q_heads * golden->k_dim * sizeof(float) + 1);
	for (uint32_t b = 0; b < golden->n_sequences; b++)
		for (uint32_t i = 0; i < fixture->q_len[b]; i++)
			for (uint32_t h = 0; h < golden->q_heads; h++)
				for (uint32_t d = 0; d < golden->k_dim; d++) {
					uint32_t element[1];

					reference_store(
						element, golden->dtype, 0,
						golden_tensor_element(&golden->q, b, h, fixture->skipped[b] + i, d));
					fixture->q[at++] = reference_load(element, golden->dtype, 0);
				}
}

static void
golden_fixture_parse_mods(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = fixture->golden;
	struct torch_mods mods = { golden->mask, golden->score, fixture->arrays, golden->n_arrays };

	for (uint32_t i = 0; i < golden->n_arrays; i++) {
		const struct golden_array *from = &golden->arrays[i];

		fixture->arrays[i] =
			(struct paged_array){ .name = from->name,
					      .dtype = from->is_float ? PAGED_F32 : PAGED_I32,
					      .n_dims = from->n_dims,
					      .data = from->is_float ? (void *)from->f32 : (void *)from->i32 };
		memcpy(fixture->arrays[i].extents, from->dims, sizeof(from->dims));
	}
	fixture->mask_mod = torch_parse(&fixture->pa, PAGED_MOD_MASK, golden->mask, &mods);
	fixture->score_mod = torch_parse(&fixture->pa, PAGED_MOD_SCORE, golden->score, &mods);
}

static void
golden_fixture_open(struct golden_fixture *fixture, struct golden_attention *golden, const char *name,
		    uint32_t max_queries)
{
	*fixture = (struct golden_fixture){ .golden = golden, .name = name };
	pa_open(&fixture->pa, &(struct pa_params){ .n_pages = golden->n_pages,
						   .page_size = golden->page_size,
						   .max_batch = golden->n_sequences,
						   .kv_heads = golden->kv_heads,
						   .k_dim = golden->k_dim,
						   .v_dim = golden->v_dim,
						   .v_in_k = golden->v_in_k,
						   .dtype = golden->dtype });
	golden_fixture_reserve(fixture);
	golden_fixture_assign(fixture);
	golden_fixture_fill_q(fixture, max_queries);
	golden_fixture_parse_mods(fixture);
}

static void
golden_fixture_close(struct golden_fixture *fixture)
{
	pa_close(&fixture->pa);
	free(fixture->q);
}

static void
close_to(double got, double expected, double tolerance, const char *name, uint64_t q_row)
{
	cr_assert(got == expected || fabs(got - expected) <= tolerance,
		  "%s: query row and head %zu: %.9g, expected %.9g +- %.3g", name, (size_t)q_row, got, expected,
		  tolerance);
}

static void
golden_fixture_check(const struct golden_fixture *fixture, const struct torch_result *result)
{
	const struct golden_attention *golden = fixture->golden;
	uint64_t q_row = 0;

	for (uint32_t b = 0; b < golden->n_sequences; b++)
		for (uint32_t i = 0; i < fixture->q_len[b]; i++)
			for (uint32_t h = 0; h < golden->q_heads; h++, q_row++) {
				size_t at = ((size_t)b * golden->q_heads + h) * golden->q.max_tokens +
					    fixture->skipped[b] + i;
				double largest =
					isfinite(golden->max_score[at]) ? fabs((double)golden->max_score[at]) : 0;
				double tolerance = 0x1p-24 * (256 + 24 * largest);

				close_to((double)result->max_score[q_row], (double)golden->max_score[at], tolerance,
					 fixture->name, q_row);
				close_to((double)result->lse[q_row], (double)golden->lse[at], tolerance, fixture->name,
					 q_row);
				for (uint32_t d = 0; d < golden->v_dim; d++)
					close_to((double)result->out[q_row * golden->v_dim + d],
						 (double)golden->out[at * golden->v_dim + d], 4 * tolerance,
						 fixture->name, q_row);
			}
}

/* create_block_mask() in the case's pages, or NULL without a mask. */
static struct paged_block_mask *
golden_fixture_block_mask(const struct golden_fixture *fixture, uint32_t q_block)
{
	struct paged_batch_row rows[GOLDEN_MAX_SEQUENCES] = { 0 };
	struct paged_block_mask_params params = { .struct_size = sizeof(params),
						  .rows = rows,
						  .n_rows = fixture->rows.n,
						  .n_heads = fixture->golden->q_heads,
						  .q_block = q_block,
						  .kv_block = fixture->golden->page_size };
	struct paged_block_mask *mask = NULL;

	if (fixture->mask_mod == NULL)
		return NULL;
	for (uint32_t b = 0; b < params.n_rows; b++)
		rows[b] = (struct paged_batch_row){ .q_len = fixture->q_len[b],
						    .kv_len = fixture->kv_len[b],
						    .flags = PAGED_ROW_Q_BASE,
						    .q_base = fixture->q_base[b] };
	expect_ok(paged_block_mask_create(fixture->pa.pool, &params, fixture->mask_mod, fixture->golden->n_arrays,
					  fixture->arrays, &mask));
	return mask;
}

static struct torch_result
golden_fixture_attend(struct golden_fixture *fixture, const struct paged_block_mask *blocks)
{
	const struct golden_attention *golden = fixture->golden;
	size_t n_q_rows = fixture->total_q * golden->q_heads;
	struct torch_result result = { malloc(n_q_rows * golden->v_dim * sizeof(float) + 1),
				       malloc(n_q_rows * sizeof(float) + 1), malloc(n_q_rows * sizeof(float) + 1) };

	expect_ok(pa_flex_attention(&fixture->pa, &fixture->rows,
				    &(struct pa_flex){ .mask_mod = fixture->mask_mod,
						       .score_mod = fixture->score_mod,
						       .arrays = fixture->arrays,
						       .n_arrays = golden->n_arrays,
						       .block_mask = blocks,
						       .scale = (float)golden->scale,
						       .sink = golden->sink,
						       .q_heads = golden->q_heads,
						       .q = fixture->q,
						       .out = result.out,
						       .lse = result.lse,
						       .max_score = result.max_score }));
	return result;
}

/* Compare the first wanted form with PyTorch's results, and the others with the first. */
static void
golden_fixture_run(struct golden_fixture *fixture, unsigned int wanted)
{
	const struct golden_attention *golden = fixture->golden;
	size_t n_q_rows = fixture->total_q * golden->q_heads;
	struct paged_block_mask *forms[] = { NULL, golden_fixture_block_mask(fixture, 0),
					     golden_fixture_block_mask(fixture, 1) };
	struct torch_result first = { NULL };

	if (forms[2] != NULL)
		expect_ok(pa_convert_logical_block_mask(&fixture->pa, forms[2], &fixture->rows, &forms[2]));
	else
		wanted = TORCH_BY_MODS;
	for (uint32_t i = 0; i < 3; i++) {
		struct torch_result result;

		if (!(wanted >> i & 1))
			continue;
		result = golden_fixture_attend(fixture, forms[i]);
		if (first.out == NULL) {
			golden_fixture_check(fixture, &result);
			first = result;
			continue;
		}
		cr_assert_arr_eq(result.out, first.out, n_q_rows * golden->v_dim * sizeof(float), "%s: form %u",
				 fixture->name, i);
		cr_assert_arr_eq(result.lse, first.lse, n_q_rows * sizeof(float), "%s: form %u", fixture->name, i);
		torch_result_close(&result);
	}
	torch_result_close(&first);
}

static double
products(const struct golden_attention *golden, uint32_t max_queries)
{
	double n = 0;

	for (uint32_t i = 0; i < golden->n_sequences; i++) {
		uint32_t q_len = golden->sequences[i].q_len < max_queries ? golden->sequences[i].q_len : max_queries;

		n += (double)q_len * golden->q_heads * golden->sequences[i].kv_len * (golden->k_dim + golden->v_dim);
	}
	return n;
}

bool
torch_golden_run(uint32_t index, unsigned int forms, uint32_t max_queries, double max_products)
{
	const char *source = getenv("PAGED_SRCDIR");
	char pattern[4096], what[256];
	struct golden_attention golden;
	struct golden_fixture fixture;
	glob_t files;
	bool small;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/attention/*.case", source != NULL ? source : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &files), 0, "%s: no such files", pattern);
	cr_assert_eq(files.gl_pathc, TORCH_GOLDEN_CASES);
	cr_assert(golden_attention_open(&golden, files.gl_pathv[index], what, sizeof(what)), "%s: %s",
		  files.gl_pathv[index], what);
	small = products(&golden, max_queries) <= max_products;
	if (small) {
		golden_fixture_open(&fixture, &golden, strrchr(files.gl_pathv[index], '/') + 1, max_queries);
		golden_fixture_run(&fixture, forms);
		golden_fixture_close(&fixture);
	}
	golden_attention_close(&golden);
	globfree(&files);
	return small;
}
