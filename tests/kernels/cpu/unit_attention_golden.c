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
	struct golden_case *c;
	struct layout layout;
	uint8_t *pool;
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES];
	uint64_t total_q;
	struct kernel_tensor q, k, v; /* the case's: [sequence][head][token][dim] */
	struct kernel_tensor packed;  /* q as the kernel wants it */
	struct mod *mods[2];
	struct mod_binding *mask, *score;
	struct result {
		struct kernel_tensor out;
		size_t out_bytes;
		float *lse, *maximum;
	} with, without; /* mods */
};

/* Says the case's mask by lengths, or false. */
static bool
mask_as_lengths(const struct golden_fixture *fixture, struct kernel_row *rows, bool *causal_p)
{
	const struct golden_case *c = fixture->c;
	const char *mask = c->mask;
	const struct golden_array *length = golden_case_array(c, "length"), *offset = golden_case_array(c, "offset");

	if (c->score != NULL)
		return false;
	*causal_p = mask != NULL && strncmp(mask, "kv_idx <= q_idx", 15) == 0;
	for (uint32_t i = 0; i < c->n_sequences; i++) {
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
tensor_make(const struct golden_case *c, const struct golden_tensor *from)
{
	uint32_t size = paged_dtype_size(c->dtype);
	size_t n = (size_t)c->n_sequences * from->heads * from->longest * from->dim;
	struct kernel_tensor tensor = { .data = malloc(n * size + 1),
					.dtype = c->dtype,
					.n_heads = from->heads,
					.dim = from->dim,
					.token_stride = (int64_t)from->dim * size,
					.head_stride = (int64_t)from->longest * from->dim * size };

	for (size_t i = 0; i < n; i++)
		reference_store(tensor.data, c->dtype, i, reference_random(from->seed, i, from->amplitude));
	return tensor;
}

/* One sequence's part of a tensor, whose tokens count from its own first. */
static struct kernel_tensor
tensor_of_sequence(const struct kernel_tensor *tensor, uint32_t sequence)
{
	struct kernel_tensor part = *tensor;

	if (tensor->data != NULL)
		part.data = (uint8_t *)tensor->data + (int64_t)sequence * tensor->n_heads * tensor->head_stride;
	return part;
}

/* [total_q][head][dim], as mods need all sequences in one call. */
static void
queries_pack(struct golden_fixture *fixture)
{
	const struct golden_case *c = fixture->c;
	size_t head = c->k_dim * paged_dtype_size(c->dtype), bytes;

	fixture->packed = kernel_tensor_create(c->dtype, fixture->total_q, c->q_heads, c->k_dim, 0, &bytes);
	for (uint32_t i = 0; i < c->n_sequences; i++) {
		struct kernel_tensor from = tensor_of_sequence(&fixture->q, i);

		for (uint32_t t = 0; t < c->sequences[i].q_len; t++)
			for (uint32_t h = 0; h < c->q_heads; h++)
				memcpy((uint8_t *)fixture->packed.data +
					       (fixture->rows[i].q_start + t) * fixture->packed.token_stride + h * head,
				       (uint8_t *)from.data + t * from.token_stride + h * from.head_stride, head);
	}
}

static struct mod_binding *
mod_make(const struct golden_case *c, enum mod_kind kind, const char *text, struct mod **mod_p)
{
	struct mod_array arrays[GOLDEN_MAX_NAMES];
	struct mod_binding *binding = NULL;
	struct paged_error error = { 0 };

	if (text == NULL)
		return NULL;
	for (uint32_t i = 0; i < c->n_arrays; i++) {
		const struct golden_array *from = &c->arrays[i];

		arrays[i] = (struct mod_array){ .name = from->name,
						.dtype = from->is_float ? MOD_F32 : MOD_I32,
						.n_dims = from->n_dims,
						.data = from->is_float ? (void *)from->f32 : (void *)from->i32 };
		memcpy(arrays[i].extents, from->dims, sizeof(from->dims));
	}
	cr_assert_eq(mod_parse(kind, text, strlen(text), arrays, c->n_arrays, mod_p, &error), PAGED_OK, "%s",
		     error.text);
	cr_assert_eq(mod_bind(*mod_p, arrays, c->n_arrays, &binding, &error), PAGED_OK, "%s", error.text);
	return binding;
}

static void
result_create(const struct golden_fixture *fixture, struct result *result)
{
	const struct golden_case *c = fixture->c;

	result->out = kernel_tensor_create(PAGED_F32, fixture->total_q, c->q_heads, c->v_dim, 0, &result->out_bytes);
	result->lse = malloc(fixture->total_q * c->q_heads * sizeof(float));
	result->maximum = malloc(fixture->total_q * c->q_heads * sizeof(float));
}

static void
result_destroy(struct result *result)
{
	free(result->out.data);
	free(result->lse);
	free(result->maximum);
}

static void
rows_create(struct golden_fixture *fixture)
{
	for (uint32_t i = 0; i < fixture->c->n_sequences; i++) {
		const struct golden_sequence *sequence = &fixture->c->sequences[i];

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
	const struct golden_case *c = fixture->c;
	struct paged_error error;

	rows_create(fixture);

	cr_assert_eq(layout_init(&fixture->layout,
				 &(struct layout_params){ .n_layers = 1,
							  .n_kv_heads = c->kv_heads,
							  .k_dim = c->k_dim,
							  .v_dim = c->v_dim,
							  .v_in_k = c->v_in_k,
							  .dtype = c->dtype,
							  .page_size = c->page_size,
							  .n_pages = c->n_pages },
				 &error),
		     PAGED_OK);
	fixture->pool = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	fixture->q = tensor_make(c, &c->q);
	fixture->k = tensor_make(c, &c->k);
	if (!c->v_in_k)
		fixture->v = tensor_make(c, &c->v);
	for (uint32_t i = 0; i < c->n_sequences; i++) {
		struct kernel_row row = { .pages = c->sequences[i].pages,
					  .q_len = c->sequences[i].kv_len,
					  .kv_len = c->sequences[i].kv_len };

		kernel_append(team, &(struct append_args){ .pages = { &fixture->layout, fixture->pool, 0 },
							   .rows = &row,
							   .n_rows = 1,
							   .k = tensor_of_sequence(&fixture->k, i),
							   .v = tensor_of_sequence(&fixture->v, i) });
	}
	queries_pack(fixture);
	fixture->mask = mod_make(c, MOD_MASK, c->mask, &fixture->mods[0]);
	fixture->score = mod_make(c, MOD_SCORE, c->score, &fixture->mods[1]);
	result_create(fixture, &fixture->with);
	result_create(fixture, &fixture->without);
}

static void
golden_fixture_destroy(struct golden_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->q.data);
	free(fixture->k.data);
	free(fixture->v.data);
	free(fixture->packed.data);
	mod_binding_destroy(fixture->mask);
	mod_binding_destroy(fixture->score);
	mod_destroy(fixture->mods[0]);
	mod_destroy(fixture->mods[1]);
	result_destroy(&fixture->with);
	result_destroy(&fixture->without);
}

static void
golden_fixture_attend(struct golden_fixture *fixture, struct kernel_team *team, const struct kernel_row *rows,
		      bool causal, struct kernel_mod_set *mods, struct result *result)
{
	kernel_attention(team, &(struct attention_args){ .pages = { &fixture->layout, fixture->pool, 0 },
							 .rows = rows,
							 .n_rows = fixture->c->n_sequences,
							 .q = fixture->packed,
							 .out = result->out,
							 .scale = (float)fixture->c->scale,
							 .causal = causal,
							 .mod_set = mods,
							 .sink = fixture->c->sink,
							 .lse = result->lse,
							 .maximum = result->maximum });
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
	golden_fixture_attend(fixture, team, fixture->rows, false, mods, &fixture->with);
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
line_check(const struct golden_fixture *fixture, const char *name, uint32_t sequence, uint32_t i, uint32_t head,
	   const struct reference_line *line)
{
	const struct golden_case *c = fixture->c;
	size_t at = ((size_t)sequence * c->q_heads + head) * c->q.longest + i;
	uint64_t packed = fixture->rows[sequence].q_start + i;
	struct reference_result reference;

	reference_attend(line, &reference);
	/* The file's scale has nine digits. */
	assert_close(reference.lse, c->lse[at], reference.score_tolerance / 16, name, sequence, i, head);
	assert_close(fixture->with.lse[packed * c->q_heads + head], c->lse[at], reference.score_tolerance, name,
		     sequence, i, head);
	assert_close(fixture->with.maximum[packed * c->q_heads + head], c->maximum[at], reference.score_tolerance, name,
		     sequence, i, head);
	for (uint32_t d = 0; d < c->v_dim; d++) {
		assert_close(reference.out[d], c->out[at * c->v_dim + d], reference.out_tolerance / 16, name, sequence,
			     i, head);
		assert_close(kernel_tensor_element(&fixture->with.out, packed, head, d), c->out[at * c->v_dim + d],
			     reference.out_tolerance, name, sequence, i, head);
	}
}

static void
head_check(const struct golden_fixture *fixture, const char *name, uint32_t sequence, uint32_t kv_head)
{
	const struct golden_case *c = fixture->c;
	const struct kernel_row *row = &fixture->rows[sequence];
	struct kernel_tensor q = tensor_of_sequence(&fixture->q, sequence);
	struct kernel_tensor k = tensor_of_sequence(&fixture->k, sequence);
	struct kernel_tensor v = c->v_in_k ? k : tensor_of_sequence(&fixture->v, sequence);
	uint32_t group = c->q_heads / c->kv_heads;
	float *keys = malloc((row->kv_len + 1) * sizeof(float) * k.dim);
	float *values = malloc((row->kv_len + 1) * sizeof(float) * v.dim);
	float query[PAGED_MAX_DIM];

	widen(keys, &k, kv_head, 0, row->kv_len);
	widen(values, &v, kv_head, 0, row->kv_len);
	for (uint32_t i = 0; i < row->q_len; i++)
		for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
			widen(query, &q, h, i, 1);
			line_check(fixture, name, sequence, i, h,
				   &(struct reference_line){ .q = query,
							     .k = keys,
							     .v = values,
							     .k_stride = k.dim,
							     .v_stride = v.dim,
							     .k_dim = c->k_dim,
							     .v_dim = c->v_dim,
							     .n_keys = row->kv_len,
							     .scale = c->scale,
							     .sink = c->sink == NULL ? NULL : &c->sink[h],
							     .mask = fixture->mask,
							     .score = fixture->score,
							     .at = { .b = (int32_t)sequence,
								     .h = (int32_t)h,
								     .q_idx = (int32_t)row->q_base + (int32_t)i } });
		}
	free(keys);
	free(values);
}

/* True: it ran without mods too. */
static bool
case_run(struct kernel_team *team, struct golden_case *c, const char *name)
{
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES];
	struct golden_fixture fixture = { .c = c };
	size_t lines;
	bool causal, plain;

	golden_fixture_create(&fixture, team);
	golden_fixture_attend_with_mods(&fixture, team, name);
	for (uint32_t i = 0; i < c->n_sequences; i++)
		for (uint32_t h = 0; h < c->kv_heads; h++)
			head_check(&fixture, name, i, h);
	plain = mask_as_lengths(&fixture, rows, &causal);
	if (plain) {
		lines = fixture.total_q * c->q_heads * sizeof(float);
		golden_fixture_attend(&fixture, team, rows, causal, NULL, &fixture.without);
		cr_assert_eq(memcmp(fixture.with.out.data, fixture.without.out.data, fixture.with.out_bytes), 0, "%s",
			     name);
		cr_assert_eq(memcmp(fixture.with.lse, fixture.without.lse, lines), 0, "%s", name);
		cr_assert_eq(memcmp(fixture.with.maximum, fixture.without.maximum, lines), 0, "%s", name);
	}
	golden_fixture_destroy(&fixture);
	return plain;
}

KERNEL_TEST(golden, attention)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	const char *source = getenv("PAGED_SRCDIR");
	unsigned int n_plain = 0;
	char pattern[4096];
	glob_t files;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/attention/*.case", source != NULL ? source : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &files), 0, "%s: nothing there", pattern);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		struct golden_case c;
		char what[256];

		cr_assert(golden_case_open(&c, files.gl_pathv[i], what, sizeof(what)), "%s: %s", files.gl_pathv[i],
			  what);
		n_plain += case_run(team, &c, strrchr(files.gl_pathv[i], '/') + 1);
		golden_case_close(&c);
	}
	printf("# %s: %zu golden cases ran, %u without mods too\n", kernel_isa_name(isa), files.gl_pathc, n_plain);
	fflush(stdout);
	cr_assert_eq(files.gl_pathc, 111);
	cr_assert_geq(n_plain, 30);
	globfree(&files);
	kernel_team_destroy(team);
}
