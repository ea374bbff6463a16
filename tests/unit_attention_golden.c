/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's cases.  Those with a score mod, or a mask that lengths and q_base
 * cannot say, wait for mods; how many is printed.
 *
 * Tolerances are reference.h's, for inputs rounded to the case's dtype; the
 * expected numbers were computed in float64 and rounded to f32.
 */
#include <glob.h>
#include <math.h>
#include <string.h>

#include "tests/golden_case.h"
#include "tests/kernel_test.h"
#include "tests/kernel_world.h"
#include "tests/reference.h"

struct scene {
	struct golden_case *c;
	struct layout layout;
	uint8_t *pool;
	struct kernel_row rows[GOLDEN_MAX_SEQUENCES];
	bool causal;
	uint64_t total_q;
	struct kernel_tensor q, k, v, out;
	float *lse, *maximum;
};

/* Says the case's mask by lengths, or false. */
static bool
mask_as_lengths(struct scene *scene)
{
	const struct golden_case *c = scene->c;
	const char *mask = c->mask;
	const struct golden_array *length = golden_case_array(c, "length"), *offset = golden_case_array(c, "offset");

	if (c->score != NULL)
		return false;
	scene->causal = mask != NULL && strncmp(mask, "kv_idx <= q_idx", 15) == 0;
	for (uint32_t i = 0; i < c->n_sequences; i++) {
		struct kernel_row *row = &scene->rows[i];
		const struct golden_sequence *sequence = &c->sequences[i];

		*row = (struct kernel_row){ .pages = sequence->pages,
					    .q_start = scene->total_q,
					    .q_base = sequence->q_base,
					    .q_len = sequence->q_len,
					    .kv_len = sequence->kv_len };
		scene->total_q += sequence->q_len;
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

static void
scene_create(struct scene *scene, struct kernel_team *team)
{
	const struct golden_case *c = scene->c;
	struct paged_error error;
	size_t bytes;

	cr_assert_eq(layout_init(&scene->layout,
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
	scene->pool = malloc(scene->layout.size);
	memset(scene->pool, 0xff, scene->layout.size);
	scene->q = tensor_make(c, &c->q);
	scene->k = tensor_make(c, &c->k);
	if (!c->v_in_k)
		scene->v = tensor_make(c, &c->v);
	for (uint32_t i = 0; i < c->n_sequences; i++) {
		struct kernel_row row = { .pages = c->sequences[i].pages,
					  .q_len = c->sequences[i].kv_len,
					  .kv_len = c->sequences[i].kv_len };

		kernel_append(team, &(struct append_args){ .pages = { &scene->layout, scene->pool, 0 },
							   .rows = &row,
							   .n_rows = 1,
							   .k = tensor_of_sequence(&scene->k, i),
							   .v = tensor_of_sequence(&scene->v, i) });
	}
	scene->out = world_tensor(PAGED_F32, scene->total_q, c->q_heads, c->v_dim, 0, &bytes);
	scene->lse = malloc(scene->total_q * c->q_heads * sizeof(float));
	scene->maximum = malloc(scene->total_q * c->q_heads * sizeof(float));
}

static void
scene_destroy(struct scene *scene)
{
	free(scene->pool);
	free(scene->q.data);
	free(scene->k.data);
	free(scene->v.data);
	free(scene->out.data);
	free(scene->lse);
	free(scene->maximum);
}

/* The case's queries are [sequence][head][row]: a call for each sequence, with strides that say so. */
static void
scene_attend(struct scene *scene, struct kernel_team *team)
{
	const struct golden_case *c = scene->c;

	for (uint32_t i = 0; i < c->n_sequences; i++) {
		struct kernel_row row = scene->rows[i];
		struct kernel_tensor out = scene->out;

		out.data = (uint8_t *)out.data + (int64_t)row.q_start * out.token_stride;
		row.q_start = 0;
		kernel_attention(team, &(struct attention_args){
					       .pages = { &scene->layout, scene->pool, 0 },
					       .rows = &row,
					       .n_rows = 1,
					       .q = tensor_of_sequence(&scene->q, i),
					       .out = out,
					       .scale = (float)c->scale,
					       .causal = scene->causal,
					       .sink = c->sink,
					       .lse = scene->lse + scene->rows[i].q_start * c->q_heads,
					       .maximum = scene->maximum + scene->rows[i].q_start * c->q_heads,
				       });
	}
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
			to[(size_t)t * from->dim + d] = world_element(from, begin + t, head, d);
}

static void
line_check(const struct scene *scene, const char *name, uint32_t sequence, uint32_t i, uint32_t head,
	   const struct reference_line *line)
{
	const struct golden_case *c = scene->c;
	size_t at = ((size_t)sequence * c->q_heads + head) * c->q.longest + i;
	uint64_t packed = scene->rows[sequence].q_start + i;
	struct reference_result reference;

	reference_attend(line, &reference);
	/* The file's scale has nine digits. */
	assert_close(reference.lse, c->lse[at], reference.score_tolerance / 16, name, sequence, i, head);
	assert_close(scene->lse[packed * c->q_heads + head], c->lse[at], reference.score_tolerance, name, sequence, i,
		     head);
	assert_close(scene->maximum[packed * c->q_heads + head], c->maximum[at], reference.score_tolerance, name,
		     sequence, i, head);
	for (uint32_t d = 0; d < c->v_dim; d++) {
		assert_close(reference.out[d], c->out[at * c->v_dim + d], reference.out_tolerance / 16, name, sequence,
			     i, head);
		assert_close(world_element(&scene->out, packed, head, d), c->out[at * c->v_dim + d],
			     reference.out_tolerance, name, sequence, i, head);
	}
}

static void
head_check(const struct scene *scene, const char *name, uint32_t sequence, uint32_t kv_head)
{
	const struct golden_case *c = scene->c;
	const struct kernel_row *row = &scene->rows[sequence];
	struct kernel_tensor q = tensor_of_sequence(&scene->q, sequence);
	struct kernel_tensor k = tensor_of_sequence(&scene->k, sequence);
	struct kernel_tensor v = c->v_in_k ? k : tensor_of_sequence(&scene->v, sequence);
	uint32_t group = c->q_heads / c->kv_heads;
	float *keys = malloc((row->kv_len + 1) * sizeof(float) * k.dim);
	float *values = malloc((row->kv_len + 1) * sizeof(float) * v.dim);
	float query[PAGED_MAX_DIM];

	widen(keys, &k, kv_head, 0, row->kv_len);
	widen(values, &v, kv_head, 0, row->kv_len);
	for (uint32_t i = 0; i < row->q_len; i++)
		for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
			int64_t seen = scene->causal ? row->q_base + i + 1 : (int64_t)row->kv_len;

			seen = seen < 0 ? 0 : seen > (int64_t)row->kv_len ? (int64_t)row->kv_len : seen;
			widen(query, &q, h, i, 1);
			line_check(scene, name, sequence, i, h,
				   &(struct reference_line){ .q = query,
							     .k = keys,
							     .v = values,
							     .k_stride = k.dim,
							     .v_stride = v.dim,
							     .k_dim = c->k_dim,
							     .v_dim = c->v_dim,
							     .n_keys = (uint32_t)seen,
							     .scale = c->scale,
							     .sink = c->sink == NULL ? NULL : &c->sink[h] });
		}
	free(keys);
	free(values);
}

/* False: not expressible yet. */
static bool
case_run(struct kernel_team *team, struct golden_case *c, const char *name)
{
	struct scene scene = { .c = c };

	if (!mask_as_lengths(&scene))
		return false;
	scene_create(&scene, team);
	scene_attend(&scene, team);
	for (uint32_t i = 0; i < c->n_sequences; i++)
		for (uint32_t h = 0; h < c->kv_heads; h++)
			head_check(&scene, name, i, h);
	scene_destroy(&scene);
	return true;
}

KERNEL_TEST(golden, attention)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	const char *source = getenv("PAGED_SRCDIR");
	unsigned int n_run = 0;
	char pattern[4096];
	glob_t files;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/attention/*.case", source != NULL ? source : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &files), 0, "%s: nothing there", pattern);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		struct golden_case c;
		char what[256];

		cr_assert(golden_case_open(&c, files.gl_pathv[i], what, sizeof(what)), "%s: %s", files.gl_pathv[i],
			  what);
		n_run += case_run(team, &c, strrchr(files.gl_pathv[i], '/') + 1);
		golden_case_close(&c);
	}
	printf("# %s: %u golden cases ran, %zu wait for mods\n", kernel_isa_name(isa), n_run, files.gl_pathc - n_run);
	fflush(stdout);
	cr_assert_geq(n_run, 30);
	globfree(&files);
	kernel_team_destroy(team);
}
