/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torch/torch_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/mod_fixture.h"
#include "tests/torch/pa_memory.h"
#include "tests/support/reference.h"

static float
round_to(enum paged_dtype dtype, float value)
{
	uint16_t rounded[1];

	if (dtype == PAGED_F32)
		return value;
	reference_store(rounded, dtype, 0, value);
	return reference_load(rounded, dtype, 0);
}

static float *
random_tensor(size_t n, enum paged_dtype dtype, uint64_t seed, float amplitude)
{
	float *tensor = malloc(n * sizeof(*tensor) + 1);

	for (size_t i = 0; i < n; i++)
		tensor[i] = round_to(dtype, random_float(seed, i, amplitude));
	return tensor;
}

void
torch_inputs_open(struct torch_inputs *inputs, const struct torch_shape *shape, uint64_t seed)
{
	size_t n_q_rows = (size_t)shape->batch * shape->q_len * shape->q_heads;
	size_t keys = (size_t)shape->batch * shape->kv_len * shape->kv_heads;
	float amplitude = shape->amplitude != 0 ? shape->amplitude : 1.5f;

	inputs->shape = *shape;
	if (shape->dtype == PAGED_DTYPE_NONE)
		inputs->shape.dtype = PAGED_F32;
	inputs->q = random_tensor(n_q_rows * shape->k_dim, PAGED_F32, seed, amplitude);
	inputs->k = random_tensor(keys * shape->k_dim, inputs->shape.dtype, seed + 1, amplitude);
	inputs->v = random_tensor(keys * shape->v_dim, inputs->shape.dtype, seed + 2, 1);
}

void
torch_inputs_close(struct torch_inputs *inputs)
{
	free(inputs->q);
	free(inputs->k);
	free(inputs->v);
}

struct pa_tensor
torch_inputs_k(const struct torch_inputs *inputs)
{
	const struct torch_shape *shape = &inputs->shape;

	return (struct pa_tensor){ inputs->k, shape->kv_heads, shape->kv_len, shape->k_dim, 0, 0, 0 };
}

struct pa_tensor
torch_inputs_v(const struct torch_inputs *inputs)
{
	const struct torch_shape *shape = &inputs->shape;

	return (struct pa_tensor){ inputs->v, shape->kv_heads, shape->kv_len, shape->v_dim, 0, 0, 0 };
}

/* preprocess_paged_attention() of their decode suite. */
void
torch_inputs_fill(const struct torch_inputs *inputs, struct pa *pa, uint32_t page_size)
{
	const struct torch_shape *shape = &inputs->shape;
	struct pa_tensor k = torch_inputs_k(inputs), v = torch_inputs_v(inputs);
	uint32_t s = shape->kv_len, max_batch = shape->batch + 3;
	const uint32_t rounds[][4] = {
		{ s / 4, s / 2, s / 4, s / 3 }, { s / 4, s / 2, s / 2, s / 2 }, { s / 2, s, s / 2, s }, { s, s, s, s }
	};

	pa_open(pa, &(struct pa_params){ .n_pages = (s + page_size - 1) / page_size * max_batch,
					 .page_size = page_size,
					 .max_batch = max_batch,
					 .kv_heads = shape->kv_heads,
					 .k_dim = shape->k_dim,
					 .v_dim = shape->v_dim,
					 .dtype = shape->dtype });
	for (uint32_t i = 0; i < 4; i++)
		pa_batch_reserve(pa, shape->batch < 4 ? shape->batch : 4, rounds[i]);
	for (uint32_t b = 4; b < shape->batch; b++)
		expect_ok(pa_reserve(pa, b, s));
	pa_fill(pa, 0, shape->batch, &k, &v);
}

/* ---------------------------------------------------------------- reference */

static size_t
q_row_index(const struct torch_shape *shape, uint32_t b, uint32_t i, uint32_t h)
{
	return ((size_t)b * shape->q_len + i) * shape->q_heads + h;
}

static void
reference_q_row_compute(struct torch_golden *golden, const struct torch_inputs *inputs, const struct mod_fixture *bound,
			uint32_t b, uint32_t i, uint32_t h, uint32_t n_keys)
{
	const struct torch_shape *shape = &inputs->shape;
	uint32_t kv_head = h / (shape->q_heads / shape->kv_heads);
	size_t q_row = q_row_index(shape, b, i, h), keys = ((size_t)b * shape->kv_heads + kv_head) * shape->kv_len;
	struct reference_q_row reference = {
		.q = &inputs->q[q_row * shape->k_dim],
		.k = &inputs->k[keys * shape->k_dim],
		.v = &inputs->v[keys * shape->v_dim],
		.k_stride = shape->k_dim,
		.v_stride = shape->v_dim,
		.k_dim = shape->k_dim,
		.v_dim = shape->v_dim,
		.n_keys = n_keys,
		.scale = 1 / sqrt(shape->k_dim),
		.mask = bound[0].binding,
		.score = bound[1].binding,
		.at = { .b = (int32_t)b, .h = (int32_t)h, .q_idx = (int32_t)i },
	};
	struct reference_result result;

	reference_attend(&reference, &result);
	memcpy(&golden->out[q_row * shape->v_dim], result.out, shape->v_dim * sizeof(double));
	golden->lse[q_row] = result.lse;
	golden->max_score[q_row] = result.max_score;
}

void
torch_golden_open(struct torch_golden *golden, const struct torch_inputs *inputs, const struct torch_mods *mods,
		  const uint32_t *kv_len, uint32_t q_step)
{
	const struct torch_shape *shape = &inputs->shape;
	size_t n_q_rows = (size_t)shape->batch * shape->q_len * shape->q_heads;
	struct mod_fixture bound[2] = { mod_fixture_public(MOD_MASK, mods->mask, mods->arrays, mods->n_arrays),
					mod_fixture_public(MOD_SCORE, mods->score, mods->arrays, mods->n_arrays) };

	golden->q_step = q_step;
	golden->out = calloc(n_q_rows * shape->v_dim + 1, sizeof(double));
	golden->lse = calloc(n_q_rows + 1, sizeof(double));
	golden->max_score = calloc(n_q_rows + 1, sizeof(double));
	for (uint32_t b = 0; b < shape->batch; b++)
		for (uint32_t i = 0; i < shape->q_len; i += q_step)
			for (uint32_t h = 0; h < shape->q_heads; h++)
				reference_q_row_compute(golden, inputs, bound, b, i, h,
							kv_len != NULL ? kv_len[b] : shape->kv_len);
	mod_fixture_close(&bound[0]);
	mod_fixture_close(&bound[1]);
}

void
torch_golden_close(struct torch_golden *golden)
{
	free(golden->out);
	free(golden->lse);
	free(golden->max_score);
}

/* ------------------------------------------------------------------ results */

void
torch_result_open(struct torch_result *result, const struct torch_inputs *inputs)
{
	const struct torch_shape *shape = &inputs->shape;
	size_t n_q_rows = (size_t)shape->batch * shape->q_len * shape->q_heads;

	result->out = malloc(n_q_rows * shape->v_dim * sizeof(float));
	result->lse = malloc(n_q_rows * sizeof(float));
	result->max_score = malloc(n_q_rows * sizeof(float));
	memset(result->out, 0xff, n_q_rows * shape->v_dim * sizeof(float));
}

void
torch_result_close(struct torch_result *result)
{
	free(result->out);
	free(result->lse);
	free(result->max_score);
}

static void
close_to(double got, double expected, double tolerance, const char *what, const char *which, size_t q_row)
{
	if (got == expected || fabs(got - expected) <= tolerance || (isnan(expected) && isnan(got)))
		return;
	cr_assert(false, "%s: %s of q_row %zu: %.9g, expected %.9g +- %.3g", what, which, q_row, got, expected,
		  tolerance);
}

static void
q_row_check(const struct torch_result *result, const struct torch_shape *shape, const struct torch_golden *golden,
	    size_t q_row, const char *what)
{
	double largest = fabs(golden->max_score[q_row]);
	double tolerance = 0x1p-24 * (256 + 8 * (isfinite(largest) ? largest : 0));

	close_to((double)result->max_score[q_row], golden->max_score[q_row], tolerance, what, "largest score", q_row);
	close_to((double)result->lse[q_row], golden->lse[q_row], tolerance, what, "LSE", q_row);
	for (size_t d = q_row * shape->v_dim; d < (q_row + 1) * shape->v_dim; d++)
		close_to((double)result->out[d], golden->out[d], 2 * tolerance, what, "output", q_row);
}

void
torch_result_check(const struct torch_result *result, const struct torch_inputs *inputs,
		   const struct torch_golden *golden, const char *what)
{
	const struct torch_shape *shape = &inputs->shape;

	for (uint32_t b = 0; b < shape->batch; b++)
		for (uint32_t i = 0; i < shape->q_len; i += golden->q_step)
			for (uint32_t h = 0; h < shape->q_heads; h++)
				q_row_check(result, shape, golden, q_row_index(shape, b, i, h), what);
}

void
torch_result_expect_equal(const struct torch_result *a, const struct torch_result *b, const struct torch_inputs *inputs,
			  const char *what)
{
	const struct torch_shape *shape = &inputs->shape;
	size_t n_q_rows = (size_t)shape->batch * shape->q_len * shape->q_heads;

	cr_assert_eq(memcmp(a->out, b->out, n_q_rows * shape->v_dim * sizeof(float)), 0, "%s: output", what);
	cr_assert_eq(memcmp(a->lse, b->lse, n_q_rows * sizeof(float)), 0, "%s: LSE", what);
	cr_assert_eq(memcmp(a->max_score, b->max_score, n_q_rows * sizeof(float)), 0, "%s: largest score", what);
}

/* ---------------------------------------------------------------------- run */

struct paged_mod *
torch_parse(const struct pa *pa, enum paged_mod_kind kind, const char *text, const struct torch_mods *mods)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		expect_ok(paged_mod_parse(pa->pool, kind, text, mods->n_arrays, mods->arrays, &mod));
	return mod;
}

/* create_block_mask(mask_mod, B, None, q_len, kv_len, BLOCK_SIZE=(q_block, kv_block)) */
static struct paged_block_mask *
blocks_of(const struct pa *pa, const struct torch_inputs *inputs, const struct torch_mods *mods,
	  const struct paged_mod *mask_mod, uint32_t q_block, uint32_t kv_block)
{
	struct paged_batch_row rows[PA_MAX_BATCH] = { 0 };
	struct paged_block_mask_params params = { .struct_size = sizeof(params),
						  .rows = rows,
						  .n_rows = inputs->shape.batch,
						  .q_block = q_block,
						  .kv_block = kv_block };
	struct paged_mod *noop = NULL;
	struct paged_block_mask *mask = NULL;

	for (uint32_t b = 0; b < inputs->shape.batch; b++)
		rows[b] = (struct paged_batch_row){ .q_len = inputs->shape.q_len,
						    .kv_len = inputs->shape.kv_len,
						    .flags = PAGED_ROW_Q_BASE };
	if (mask_mod == NULL)
		noop = torch_parse(pa, PAGED_MOD_MASK, "true", mods);
	expect_ok(paged_block_mask_create(pa->pool, &params, mask_mod != NULL ? mask_mod : noop, mods->n_arrays,
					  mods->arrays, &mask));
	paged_mod_destroy(noop);
	return mask;
}

void
torch_check_all_mask_forms(struct pa *pa, const struct torch_inputs *inputs, const struct torch_mods *mods,
			   uint32_t kv_block, const struct torch_golden *golden)
{
	struct paged_mod *mask_mod = torch_parse(pa, PAGED_MOD_MASK, mods->mask, mods);
	struct paged_mod *score_mod = torch_parse(pa, PAGED_MOD_SCORE, mods->score, mods);
	/*
	 * PyTorch's q_block of 128 makes every block of a shorter mask partial; a smaller
	 * q_block gives full blocks too.
	 */
	uint32_t q_block = inputs->shape.q_len < 128 ? inputs->shape.q_len : 128;
	struct paged_block_mask *logical = blocks_of(pa, inputs, mods, mask_mod, 128, kv_block);
	struct paged_block_mask *short_blocks = blocks_of(pa, inputs, mods, mask_mod, q_block, kv_block);
	struct paged_block_mask *physical = NULL;
	const struct paged_block_mask *forms[3] = { NULL, logical, NULL };
	uint32_t q_len[PA_MAX_BATCH], kv_len[PA_MAX_BATCH];
	struct pa_rows rows = { .n = inputs->shape.batch, .kv_len = kv_len, .q_len = q_len };
	struct torch_result results[3];

	for (uint32_t b = 0; b < rows.n; b++) {
		q_len[b] = inputs->shape.q_len;
		kv_len[b] = inputs->shape.kv_len;
	}
	expect_ok(pa_convert_logical_block_mask(pa, short_blocks, &rows, &physical));
	forms[2] = physical;
	for (uint32_t i = 0; i < 3; i++) {
		struct pa_flex flex = { .mask_mod = mask_mod,
					.score_mod = score_mod,
					.arrays = mods->arrays,
					.n_arrays = mods->n_arrays,
					.block_mask = forms[i],
					.q_heads = inputs->shape.q_heads,
					.q = inputs->q };

		torch_result_open(&results[i], inputs);
		flex.out = results[i].out;
		flex.lse = results[i].lse;
		flex.max_score = results[i].max_score;
		expect_ok(pa_flex_attention(pa, &rows, &flex));
	}
	torch_result_check(&results[0], inputs, golden, mods->score != NULL ? mods->score : "no score mod");
	torch_result_expect_equal(&results[1], &results[0], inputs, "by logical blocks");
	torch_result_expect_equal(&results[2], &results[0], inputs, "by pages");
	for (uint32_t i = 0; i < 3; i++)
		torch_result_close(&results[i]);
	paged_block_mask_destroy(physical);
	paged_block_mask_destroy(short_blocks);
	paged_block_mask_destroy(logical);
	paged_mod_destroy(score_mod);
	paged_mod_destroy(mask_mod);
}

bool
torch_isa(enum kernel_isa isa)
{
	/* A GPU has one path, which runs as the first instruction set. */
	if (pa_on_cuda)
		return isa == KERNEL_GENERIC;
	return kernel_isa_supported(isa) && setenv("PAGED_ISA", kernel_isa_name(isa), 1) == 0;
}

void
torch_isa_check(const struct pa *pa, enum kernel_isa isa)
{
	if (pa_on_cuda)
		cr_assert_eq(strncmp(pa->info.isa, "sm_", 3), 0, "%s", pa->info.isa);
	else
		cr_assert_str_eq(pa->info.isa, kernel_isa_name(isa));
}
