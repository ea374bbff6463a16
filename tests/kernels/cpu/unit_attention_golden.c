/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All golden cases made with PyTorch, as mods.  Cases whose mask follows from
 * lengths and q_base also run without mods and must be bit-identical.
 *
 * Tolerances are reference.h's, for inputs rounded to the case's dtype; the
 * expected numbers were computed in float64 and rounded to f32.
 */
#include <glob.h>
#include <math.h>
#include <string.h>

#include "kernels/mod/mod.h"
#include "tests/support/golden_attention.h"
#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/reference.h"

struct golden_fixture {
	struct golden_attention *golden;
	struct layout layout;
	uint8_t *pool;
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES];
	uint64_t total_q;
	struct kernel_tensor q, k, v;  /* as in the file: [sequence][head][token][dim] */
	struct kernel_tensor q_packed; /* q in the kernel's layout */
	struct mod *mods[2];
	struct mod_binding *mask, *score;
	struct result {
		struct kernel_tensor out;
		size_t out_bytes;
		float *lse, *max_score;
	} with_mods, without_mods;
};

/* If the mask follows from lengths and causality, write rows without a mask to *rows; else return false. */
static bool
mask_as_lengths(const struct golden_fixture *fixture, struct kernel_row *rows, bool *causal_p)
{
	const struct golden_attention *golden = fixture->golden;
	const char *mask = golden->mask;
	const struct golden_array *length = golden_attention_array(golden, "length"),
				  *offset = golden_attention_array(golden, "offset");

	if (golden->score != NULL)
		return false;
	*causal_p = mask != NULL && strncmp(mask, "kv_idx <= q_idx", 15) == 0;
	for (uint32_t i = 0; i < golden->n_sequences; i++) {
		struct kernel_row *row = &rows[i];

		*row = fixture->rows[i];
		if (mask == NULL || strcmp(mask, "kv_idx <= q_idx") == 0)
			continue;
		if (strcmp(mask, "kv_idx <= q_idx + offset[b]") == 0)
			row->q_base += offset->i32[i];
		else if (strcmp(mask, "kv_idx < length[b]") == 0)
			row->kv_len = (uint32_t)length->i32[i] < row->kv_len ? (uint32_t)length->i32[i] : row->kv_len;
		else if (strcmp(mask, "kv_idx < 0") == 0)
			row->kv_len = 0;
		else
			return false;
	}
	return true;
}

/* The case's tensor, rounded to its dtype: [sequence][head][token][dim]. */
static struct kernel_tensor
tensor_make(const struct golden_attention *golden, const struct golden_tensor *from)
{
	uint32_t size = paged_dtype_size(golden->dtype);
	size_t n = (size_t)golden->n_sequences * from->heads * from->max_tokens * from->dim;
	struct kernel_tensor tensor = { .data = malloc(n * size + 1),
					.dtype = golden->dtype,
					.n_heads = from->heads,
					.dim = from->dim,
					.token_stride = (int64_t)from->dim * size,
					.head_stride = (int64_t)from->max_tokens * from->dim * size };

	for (size_t i = 0; i < n; i++)
		reference_store(tensor.data, golden->dtype, i, random_float(from->seed, i, from->amplitude));
	return tensor;
}

/* The part of one sequence. */
static struct kernel_tensor
tensor_of_sequence(const struct kernel_tensor *tensor, uint32_t sequence)
{
	struct kernel_tensor part = *tensor;

	if (tensor->data != NULL)
		part.data = (uint8_t *)tensor->data + (int64_t)sequence * tensor->n_heads * tensor->head_stride;
	return part;
}

/* [total_q][head][dim]: mods need all sequences in one call. */
static void
q_pack(struct golden_fixture *fixture)
{
	const struct golden_attention *golden = fixture->golden;
	size_t head = golden->k_dim * paged_dtype_size(golden->dtype), bytes;

	fixture->q_packed =
		kernel_tensor_create(golden->dtype, fixture->total_q, golden->q_heads, golden->k_dim, 0, &bytes);
	for (uint32_t i = 0; i < golden->n_sequences; i++) {
		struct kernel_tensor from = tensor_of_sequence(&fixture->q, i);

		for (uint32_t t = 0; t < golden->sequences[i].q_len; t++)
			for (uint32_t h = 0; h < golden->q_heads; h++)
				memcpy((uint8_t *)fixture->q_packed.data +
					       (fixture->rows[i].q_start + t) * fixture->q_packed.token_stride +
					       h * head,
				       (uint8_t *)from.data + t * from.token_stride + h * from.head_stride, head);
	}
}

static struct mod_binding *
mod_make(const struct golden_attention *golden, enum mod_kind kind, const char *text, struct mod **mod_p)
{
	struct mod_array arrays[GOLDEN_MAX_NAMES];
	struct mod_binding *binding = NULL;
	struct paged_error error = { 0 };

	if (text == NULL)
		return NULL;
	for (uint32_t i = 0; i < golden->n_arrays; i++) {
		const struct golden_array *from = &golden->arrays[i];

		arrays[i] = (struct mod_array){ .name = from->name,
						.dtype = from->is_float ? MOD_F32 : MOD_I32,
						.n_dims = from->n_dims,
						.data = from->is_float ? (void *)from->f32 : (void *)from->i32 };
		memcpy(arrays[i].extents, from->dims, sizeof(from->dims));
	}
	cr_assert_eq(mod_parse(kind, text, strlen(text), arrays, golden->n_arrays, mod_p, &error), PAGED_OK, "%s",
		     error.text);
	cr_assert_eq(mod_bind(*mod_p, arrays, golden->n_arrays, &binding, &error), PAGED_OK, "%s", error.text);
	return binding;
}

static void
result_create(const struct golden_fixture *fixture, struct result *result)
{
	const struct golden_attention *golden = fixture->golden;

	result->out = kernel_tensor_create(PAGED_F32, fixture->total_q, golden->q_heads, golden->v_dim, 0,
					   &result->out_bytes);
	result->lse = malloc(fixture->total_q * golden->q_heads * sizeof(float));
	result->max_score = malloc(fixture->total_q * golden->q_heads * sizeof(float));
}

static void
result_destroy(struct result *result)
{
	free(result->out.data);
	free(result->lse);
	free(result->max_score);
}

static void
rows_create(struct golden_fixture *fixture)
{
	for (uint32_t i = 0; i < fixture->golden->n_sequences; i++) {
		const struct golden_sequence *sequence = &fixture->golden->sequences[i];

		fixture->rows[i] = (struct kernel_row){ .pages = sequence->pages,
							.q_start = fixture->total_q,
							.q_base = sequence->q_base,
							.q_len = sequence->q_len,
							.kv_len = sequence->kv_len,
							.b = (int32_t)i };
		fixture->total_q += sequence->q_len;
	}
}

static void
golden_fixture_create(struct golden_fixture *fixture, struct kernel_team *team)
{
	const struct golden_attention *golden = fixture->golden;
	struct paged_error error;

	rows_create(fixture);

	cr_assert_eq(layout_init(&fixture->layout,
				 &(struct layout_params){ .n_layers = 1,
							  .n_kv_heads = golden->kv_heads,
							  .k_dim = golden->k_dim,
							  .v_dim = golden->v_dim,
							  .v_in_k = golden->v_in_k,
							  .dtype = golden->dtype,
							  .page_size = golden->page_size,
							  .n_pages = golden->n_pages },
				 &error),
		     PAGED_OK);
	fixture->pool = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	fixture->q = tensor_make(golden, &golden->q);
	fixture->k = tensor_make(golden, &golden->k);
	if (!golden->v_in_k)
		fixture->v = tensor_make(golden, &golden->v);
	for (uint32_t i = 0; i < golden->n_sequences; i++) {
		struct kernel_row row = { .pages = golden->sequences[i].pages,
					  .q_len = golden->sequences[i].kv_len,
					  .kv_len = golden->sequences[i].kv_len };

		kernel_append(team, &(struct append_args){ .pages = { &fixture->layout, fixture->pool, 0 },
							   .rows = &row,
							   .n_rows = 1,
							   .k = tensor_of_sequence(&fixture->k, i),
							   .v = tensor_of_sequence(&fixture->v, i) });
	}
	q_pack(fixture);
	fixture->mask = mod_make(golden, MOD_MASK, golden->mask, &fixture->mods[0]);
	fixture->score = mod_make(golden, MOD_SCORE, golden->score, &fixture->mods[1]);
	result_create(fixture, &fixture->with_mods);
	result_create(fixture, &fixture->without_mods);
}

static void
golden_fixture_destroy(struct golden_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->q.data);
	free(fixture->k.data);
	free(fixture->v.data);
	free(fixture->q_packed.data);
	mod_binding_destroy(fixture->mask);
	mod_binding_destroy(fixture->score);
	mod_destroy(fixture->mods[0]);
	mod_destroy(fixture->mods[1]);
	result_destroy(&fixture->with_mods);
	result_destroy(&fixture->without_mods);
}

static void
golden_fixture_attend(struct golden_fixture *fixture, struct kernel_team *team, const struct kernel_row *rows,
		      bool causal, struct kernel_mod_set *mods, struct result *result)
{
	kernel_attention(team, &(struct attention_args){ .pages = { &fixture->layout, fixture->pool, 0 },
							 .rows = rows,
							 .n_rows = fixture->golden->n_sequences,
							 .q = fixture->q_packed,
							 .out = result->out,
							 .scale = (float)fixture->golden->scale,
							 .causal = causal,
							 .mod_set = mods,
							 .sink = fixture->golden->sink,
							 .lse = result->lse,
							 .max_score = result->max_score });
}

static void
golden_fixture_attend_with_mods(struct golden_fixture *fixture, struct kernel_team *team, const char *name)
{
	struct kernel_mod_set *mods;
	struct paged_error error;

	cr_assert_eq(kernel_mod_set_create(
			     team, &(struct kernel_mod_set_params){ .mask = fixture->mask, .score = fixture->score },
			     &mods, &error),
		     PAGED_OK, "%s", error.text);
	golden_fixture_attend(fixture, team, fixture->rows, false, mods, &fixture->with_mods);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_OK, "%s: %s", name, error.text);
	kernel_mod_set_destroy(mods);
}

static void
assert_close(double got, double expected, double tolerance, const char *name, uint32_t sequence, uint32_t row,
	     uint32_t head)
{
	tolerance += 0x1p-22 * fabs(expected);
	cr_assert(got == expected || fabs(got - expected) <= tolerance,
		  "%s: sequence %u row %u head %u: %.9g, expected %.9g +- %.3g", name, sequence, row, head, got,
		  expected, tolerance);
}

static void
widen(float *to, const struct kernel_tensor *from, uint32_t head, uint32_t begin, uint32_t n)
{
	for (uint32_t t = 0; t < n; t++)
		for (uint32_t d = 0; d < from->dim; d++)
			to[(size_t)t * from->dim + d] = kernel_tensor_element(from, begin + t, head, d);
}

static void
q_row_check(const struct golden_fixture *fixture, const char *name, uint32_t sequence, uint32_t i, uint32_t head,
	    const struct reference_q_row *q_row)
{
	const struct golden_attention *golden = fixture->golden;
	size_t at = ((size_t)sequence * golden->q_heads + head) * golden->q.max_tokens + i;
	uint64_t packed_token = fixture->rows[sequence].q_start + i;
	struct reference_result reference;

	reference_attend(q_row, &reference);
	/* The scale in the file has nine digits. */
	assert_close(reference.lse, golden->lse[at], reference.score_tolerance / 16, name, sequence, i, head);
	assert_close(fixture->with_mods.lse[packed_token * golden->q_heads + head], golden->lse[at],
		     reference.score_tolerance, name, sequence, i, head);
	assert_close(fixture->with_mods.max_score[packed_token * golden->q_heads + head], golden->max_score[at],
		     reference.score_tolerance, name, sequence, i, head);
	for (uint32_t d = 0; d < golden->v_dim; d++) {
		assert_close(reference.out[d], golden->out[at * golden->v_dim + d], reference.out_tolerance / 16, name,
			     sequence, i, head);
		assert_close(kernel_tensor_element(&fixture->with_mods.out, packed_token, head, d),
			     golden->out[at * golden->v_dim + d], reference.out_tolerance, name, sequence, i, head);
	}
}

static void
head_check(const struct golden_fixture *fixture, const char *name, uint32_t sequence, uint32_t kv_head)
{
	const struct golden_attention *golden = fixture->golden;
	const struct kernel_row *row = &fixture->rows[sequence];
	struct kernel_tensor q = tensor_of_sequence(&fixture->q, sequence);
	struct kernel_tensor k = tensor_of_sequence(&fixture->k, sequence);
	struct kernel_tensor v = golden->v_in_k ? k : tensor_of_sequence(&fixture->v, sequence);
	uint32_t group = golden->q_heads / golden->kv_heads;
	float *keys = malloc((row->kv_len + 1) * sizeof(float) * k.dim);
	float *values = malloc((row->kv_len + 1) * sizeof(float) * v.dim);
	float query[PAGED_MAX_DIM];

	widen(keys, &k, kv_head, 0, row->kv_len);
	widen(values, &v, kv_head, 0, row->kv_len);
	for (uint32_t i = 0; i < row->q_len; i++)
		for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
			widen(query, &q, h, i, 1);
			q_row_check(fixture, name, sequence, i, h,
				    &(struct reference_q_row){ .q = query,
							       .k = keys,
							       .v = values,
							       .k_stride = k.dim,
							       .v_stride = v.dim,
							       .k_dim = golden->k_dim,
							       .v_dim = golden->v_dim,
							       .n_keys = row->kv_len,
							       .scale = golden->scale,
							       .sink = golden->sink == NULL ? NULL : &golden->sink[h],
							       .mask = fixture->mask,
							       .score = fixture->score,
							       .at = { .b = (int32_t)sequence,
								       .h = (int32_t)h,
								       .q_idx = (int32_t)row->q_base + (int32_t)i } });
		}
	free(keys);
	free(values);
}

/* Returns whether the case also ran without mods. */
static bool
case_run(struct kernel_team *team, struct golden_attention *golden, const char *name)
{
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES];
	struct golden_fixture fixture = { .golden = golden };
	size_t lse_bytes;
	bool causal, also_without_mods;

	golden_fixture_create(&fixture, team);
	golden_fixture_attend_with_mods(&fixture, team, name);
	for (uint32_t i = 0; i < golden->n_sequences; i++)
		for (uint32_t h = 0; h < golden->kv_heads; h++)
			head_check(&fixture, name, i, h);
	also_without_mods = mask_as_lengths(&fixture, rows, &causal);
	if (also_without_mods) {
		lse_bytes = fixture.total_q * golden->q_heads * sizeof(float);
		golden_fixture_attend(&fixture, team, rows, causal, NULL, &fixture.without_mods);
		cr_assert_eq(
			memcmp(fixture.with_mods.out.data, fixture.without_mods.out.data, fixture.with_mods.out_bytes),
			0, "%s", name);
		cr_assert_eq(memcmp(fixture.with_mods.lse, fixture.without_mods.lse, lse_bytes), 0, "%s", name);
		cr_assert_eq(memcmp(fixture.with_mods.max_score, fixture.without_mods.max_score, lse_bytes), 0, "%s",
			     name);
	}
	golden_fixture_destroy(&fixture);
	return also_without_mods;
}

KERNEL_TEST(attention_golden, pytorch_results)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	const char *source = getenv("PAGED_SRCDIR");
	unsigned int n_without_mods = 0;
	char pattern[4096];
	glob_t files;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/attention/*.case", source != NULL ? source : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &files), 0, "%s: no such files", pattern);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		struct golden_attention golden;
		char what[256];

		cr_assert(golden_attention_open(&golden, files.gl_pathv[i], what, sizeof(what)), "%s: %s",
			  files.gl_pathv[i], what);
		n_without_mods += case_run(team, &golden, strrchr(files.gl_pathv[i], '/') + 1);
		golden_attention_close(&golden);
	}
	printf("# %s: %zu golden cases ran, %u without mods too\n", kernel_isa_name(isa), files.gl_pathc,
	       n_without_mods);
	fflush(stdout);
	cr_assert_eq(files.gl_pathc, 111);
	cr_assert_geq(n_without_mods, 30);
	globfree(&files);
	kernel_team_destroy(team);
}
