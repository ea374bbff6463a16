/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kernel_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/schedule/team.h"
#include "kernels/mask/mod_evaluator.h"
#include "tests/support/reference.h"

enum { STREAM_Q, STREAM_K, STREAM_V, STREAM_SCALE };

struct kernel_fixture_params
kernel_fixture_defaults(void)
{
	return (struct kernel_fixture_params){
		.seed = test_seed(),
		.placement = test_seed(),
		.q_heads = 4,
		.kv_heads = 2,
		.k_dim = 32,
		.v_dim = 32,
		.pool = PAGED_F32,
		.q = PAGED_F32,
		.out = PAGED_F32,
		.page_size = 16,
		.causal = true,
		.scale = 0.176776695f,
		.n_rows = 1,
	};
}

static void *
allocate(size_t size)
{
	void *memory = aligned_alloc(64, (size + 64) & ~(size_t)63);

	if (memory == NULL)
		abort();
	memset(memory, 0xff, size);
	return memory;
}

static float
random_element(const struct kernel_fixture *fixture, unsigned int stream, uint32_t id, uint64_t i,
	       enum paged_dtype dtype)
{
	uint64_t seed = random_bits(fixture->params.seed, (uint64_t)id << 2 | stream);
	uint32_t rounded;

	reference_store(&rounded, dtype, 0, random_float(seed, i, stream == STREAM_V ? 1.0f : 1.5f));
	return reference_load(&rounded, dtype, 0);
}

/* An element as the pool stores it; for i8 an integer of magnitude at most 127. */
static float
stored_element(const struct kernel_fixture *fixture, unsigned int stream, uint32_t id, uint32_t token, uint32_t head,
	       uint32_t dim)
{
	uint64_t i = ((uint64_t)token * 64 + head) * PAGED_MAX_DIM + dim;
	float scaled;

	if (fixture->params.pool != PAGED_I8)
		return random_element(fixture, stream, id, i, fixture->params.pool);
	scaled = random_element(fixture, stream, id, i, PAGED_F32) * 84; /* K's magnitude is at most 1.5 */
	return rintf(scaled);
}

/* The factor of a stored element; values of V are at most 1. */
static float
scale_of(const struct kernel_fixture *fixture, unsigned int stream, uint32_t id, uint32_t token, uint32_t head)
{
	const float *scales = stream == STREAM_K ? fixture->params.k_scale : fixture->params.v_scale;
	uint64_t i = (uint64_t)token * 64 + head;

	if (fixture->params.pool == PAGED_I8)
		return (1.5f + random_element(fixture, STREAM_SCALE, id, i * 2 + (stream == STREAM_V), PAGED_F32) / 3) /
		       168;
	return scales != NULL ? scales[head] : 1;
}

float
kernel_fixture_key(const struct kernel_fixture *fixture, uint32_t id, uint32_t token, uint32_t head, uint32_t dim)
{
	return stored_element(fixture, STREAM_K, id, token, head, dim) * scale_of(fixture, STREAM_K, id, token, head);
}

float
kernel_fixture_value(const struct kernel_fixture *fixture, uint32_t id, uint32_t token, uint32_t head, uint32_t dim)
{
	if (fixture->params.v_in_k)
		return kernel_fixture_key(fixture, id, token, head, dim);
	return stored_element(fixture, STREAM_V, id, token, head, dim) * scale_of(fixture, STREAM_V, id, token, head);
}

struct kernel_tensor
kernel_tensor_create(enum paged_dtype dtype, uint64_t n_tokens, uint32_t n_heads, uint32_t dim, uint32_t padding,
		     size_t *bytes_p)
{
	int64_t head_stride = (int64_t)(dim + padding) * paged_dtype_size(dtype);
	int64_t token_stride = head_stride * n_heads + (int64_t)padding * paged_dtype_size(dtype);

	*bytes_p = (size_t)((int64_t)n_tokens * token_stride);
	return (struct kernel_tensor){
		.data = allocate(*bytes_p),
		.dtype = dtype,
		.n_heads = n_heads,
		.dim = dim,
		.token_stride = token_stride,
		.head_stride = head_stride,
	};
}

uint8_t *
kernel_fixture_token(const struct kernel_fixture *fixture, unsigned int plane, uint32_t token, uint32_t head)
{
	uint32_t page_size = fixture->params.page_size, page = fixture->rows[0].pages[token / page_size];

	return fixture->pool +
	       layout_offset(&fixture->layout, plane, KERNEL_FIXTURE_LAYER, page, head, token % page_size);
}

static uint8_t *
element_at(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	return (uint8_t *)tensor->data + (int64_t)token * tensor->token_stride + head * tensor->head_stride;
}

float
kernel_tensor_element(const struct kernel_tensor *tensor, uint64_t token, uint32_t head, uint32_t dim)
{
	return reference_load(element_at(tensor, token, head), tensor->dtype, dim);
}

static uint32_t
page_count(const struct kernel_fixture *fixture, uint32_t tokens)
{
	return (tokens + fixture->params.page_size - 1) / fixture->params.page_size;
}

/* Give the rows pages from a random permutation of the pool's pages. */
static void
pages_assign(struct kernel_fixture *fixture)
{
	uint32_t n = fixture->layout.params.n_pages, next = 0;
	uint32_t *permutation = allocate(n * sizeof(*permutation));

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)(random_bits(fixture->params.placement, i) % (i + 1));

		permutation[i] = permutation[j];
		permutation[j] = i;
	}
	for (uint32_t r = 0; r < fixture->params.n_rows; r++) {
		uint32_t count = page_count(fixture, fixture->params.rows[r].kv_len);
		uint32_t *pages = malloc(count * sizeof(*pages));

		if (count != 0)
			memcpy(pages, permutation + next, count * sizeof(*pages));
		memset(pages, 0xff, fixture->params.rows[r].kv_first / fixture->params.page_size * sizeof(*pages));
		next += count;
		fixture->rows[r].pages = pages;
	}
	free(permutation);
}

static void
plane_fill(struct kernel_fixture *fixture, uint32_t r, uint32_t t, uint32_t h, unsigned int stream)
{
	const struct kernel_fixture_params *p = &fixture->params;
	unsigned int plane = stream == STREAM_K ? LAYOUT_K : LAYOUT_V;
	uint32_t page = fixture->rows[r].pages[t / p->page_size], slot = t % p->page_size, id = p->rows[r].id;
	uint8_t *to = fixture->pool + layout_offset(&fixture->layout, plane, KERNEL_FIXTURE_LAYER, page, h, slot);
	float scale = scale_of(fixture, stream, id, t, h);

	for (uint32_t d = 0; d < fixture->layout.plane[plane].dim; d++)
		reference_store(to, p->pool, d, stored_element(fixture, stream, id, t, h, d));
	plane = stream == STREAM_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	to = fixture->pool + layout_offset(&fixture->layout, plane, KERNEL_FIXTURE_LAYER, page, h, slot);
	if (p->pool == PAGED_I8)
		memcpy(to, &scale, sizeof(scale));
}

static void
row_fill(struct kernel_fixture *fixture, uint32_t r)
{
	const struct kernel_fixture_params *p = &fixture->params;

	for (uint32_t t = p->rows[r].kv_first; t < p->rows[r].kv_len; t++)
		for (uint32_t h = 0; h < p->kv_heads; h++) {
			plane_fill(fixture, r, t, h, STREAM_K);
			if (!p->v_in_k)
				plane_fill(fixture, r, t, h, STREAM_V);
		}
}

/* A query depends only on its q_idx, so that chunked and single query rows can be compared. */
static float
query(const struct kernel_fixture *fixture, const struct kernel_fixture_row *row, uint32_t i, uint32_t head,
      uint32_t dim)
{
	uint64_t at = (uint64_t)(row->q_base + i);

	return random_element(fixture, STREAM_Q, row->id, (at * 256 + head) * PAGED_MAX_DIM + dim, fixture->params.q);
}

static void
queries_fill(struct kernel_fixture *fixture)
{
	const struct kernel_fixture_params *p = &fixture->params;

	for (uint32_t r = 0; r < p->n_rows; r++)
		for (uint32_t i = 0; i < p->rows[r].q_len; i++)
			for (uint32_t h = 0; h < p->q_heads; h++)
				for (uint32_t d = 0; d < p->k_dim; d++)
					reference_store(element_at(&fixture->q, fixture->rows[r].q_start + i, h), p->q,
							d, query(fixture, &p->rows[r], i, h, d));
}

void
kernel_fixture_create(struct kernel_fixture *fixture, const struct kernel_fixture_params *params)
{
	struct paged_error error;
	uint32_t n_pages = 3; /* some pages stay free */
	size_t bytes;

	*fixture = (struct kernel_fixture){ .params = *params };
	for (uint32_t r = 0; r < params->n_rows; r++) {
		const struct kernel_fixture_row *row = &params->rows[r];

		n_pages += page_count(fixture, row->kv_len);
		fixture->rows[r] = (struct kernel_row){ .q_start = fixture->total_q,
							.q_base = row->q_base,
							.q_len = row->q_len,
							.kv_len = row->kv_len,
							.kv_first = row->kv_first,
							.b = (int32_t)r };
		fixture->total_q += row->q_len;
	}
	if (layout_init(&fixture->layout,
			&(struct layout_params){ .n_layers = KERNEL_FIXTURE_LAYERS,
						 .n_kv_heads = params->kv_heads,
						 .k_dim = params->k_dim,
						 .v_dim = params->v_dim,
						 .v_in_k = params->v_in_k,
						 .dtype = params->pool,
						 .page_size = params->page_size,
						 .n_pages = n_pages },
			&error) != PAGED_OK)
		abort();
	fixture->pool = allocate(fixture->layout.size);
	pages_assign(fixture);
	for (uint32_t r = 0; r < params->n_rows; r++)
		row_fill(fixture, r);
	fixture->q = kernel_tensor_create(params->q, fixture->total_q, params->q_heads, params->k_dim, params->padding,
					  &bytes);
	fixture->out = kernel_tensor_create(params->out, fixture->total_q, params->q_heads, params->v_dim,
					    params->padding, &fixture->out_bytes);
	queries_fill(fixture);
	fixture->lse = allocate(fixture->total_q * params->q_heads * sizeof(float));
	fixture->max_score = allocate(fixture->total_q * params->q_heads * sizeof(float));
}

void
kernel_fixture_destroy(struct kernel_fixture *fixture)
{
	for (uint32_t r = 0; r < fixture->params.n_rows; r++)
		free((void *)(uintptr_t)fixture->rows[r].pages);
	free(fixture->pool);
	free(fixture->q.data);
	free(fixture->out.data);
	free(fixture->lse);
	free(fixture->max_score);
}

void
kernel_fixture_scale_queries(const struct kernel_fixture *fixture, kernel_fixture_exponent_fn exponent,
			     const void *argument)
{
	const struct kernel_tensor *q = &fixture->q;

	for (uint64_t i = 0; i < fixture->total_q; i++)
		for (uint32_t h = 0; h < q->n_heads; h++)
			for (uint32_t d = 0; d < q->dim; d++)
				reference_store(element_at(q, i, h), q->dtype, d,
						ldexpf(kernel_tensor_element(q, i, h, d), exponent(argument, i, h, d)));
}

void
kernel_fixture_attend_with_mods(struct kernel_fixture *fixture, struct kernel_team *team, struct kernel_mod_set *mods)
{
	const struct kernel_fixture_params *p = &fixture->params;
	size_t n_q_rows = fixture->total_q * p->q_heads;

	if (kernel_team_isa(team) >= KERNEL_AVX512_BF16 && p->out == PAGED_BF16)
		fixture->params.weights = PAGED_BF16;
	memset(fixture->out.data, 0xff, fixture->out_bytes);
	memset(fixture->lse, 0xff, n_q_rows * sizeof(float));
	memset(fixture->max_score, 0xff, n_q_rows * sizeof(float));
	kernel_attention(team,
			 &(struct attention_args){ .pages = { &fixture->layout, fixture->pool, KERNEL_FIXTURE_LAYER },
						   .rows = fixture->rows,
						   .n_rows = p->n_rows,
						   .q = fixture->q,
						   .out = fixture->out,
						   .scale = p->scale,
						   .causal = p->causal,
						   .mod_set = mods,
						   .sink = p->sink,
						   .lse_without_sink = p->lse_without_sink,
						   .lse = fixture->lse,
						   .max_score = fixture->max_score,
						   .k_scale = p->k_scale,
						   .v_scale = p->v_scale });
}

void
kernel_fixture_attend(struct kernel_fixture *fixture, struct kernel_team *team)
{
	const struct kernel_fixture_params *p = &fixture->params;
	struct kernel_mod_set *mods = NULL;
	struct paged_error error;

	if ((p->mods.blocks != NULL || p->mods.mask != NULL || p->mods.score != NULL) &&
	    kernel_mod_set_create(team, &p->mods, &mods, &error) != PAGED_OK)
		abort();
	kernel_fixture_attend_with_mods(fixture, team, mods);
	kernel_mod_set_destroy(mods);
}

void
kernel_fixture_run(struct kernel_fixture *fixture, const struct kernel_fixture_params *params, uint32_t n_threads,
		   enum kernel_isa isa)
{
	struct kernel_team *team;
	struct paged_error error;

	if (kernel_team_create(&(struct kernel_team_params){ .n_threads = n_threads, .isa = isa }, &team, &error) !=
	    PAGED_OK)
		abort();
	kernel_fixture_create(fixture, params);
	kernel_fixture_attend(fixture, team);
	kernel_team_destroy(team);
}

struct block_mask *
kernel_fixture_block_mask(const struct kernel_fixture_params *params, const struct mod_binding *mask,
			  enum kernel_isa isa, uint32_t n_heads, uint32_t q_block, uint32_t kv_block)
{
	struct block_mask_row rows[KERNEL_FIXTURE_MAX_ROWS];
	struct block_mask *blocks;
	struct mod_evaluator evaluator;
	struct paged_error error = { 0 };

	for (uint32_t r = 0; r < params->n_rows; r++)
		rows[r] = (struct block_mask_row){ params->rows[r].q_base, params->rows[r].q_len,
						   params->rows[r].kv_len, r % 2 == 0 ? params->rows[r].kv_first : 0 };
	cr_assert_eq(mod_evaluator_open(&evaluator, mask, isa, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(block_mask_create(&(struct block_mask_shape){ .n_rows = params->n_rows,
								   .n_heads = n_heads,
								   .q_block = q_block,
								   .kv_block = kv_block,
								   .rows = rows },
				       &evaluator.base, 0, &blocks, &error),
		     PAGED_OK, "%s", error.text);
	mod_evaluator_close(&evaluator);
	return blocks;
}

bool
kernel_fixture_all_nan(const struct kernel_fixture *fixture, uint64_t q_row, uint32_t head, bool nan)
{
	uint64_t at = q_row * fixture->params.q_heads + head;
	bool matches = isnan(fixture->lse[at]) == nan && isnan(fixture->max_score[at]) == nan;

	for (uint32_t d = 0; d < fixture->params.v_dim; d++)
		matches &= isnan(kernel_tensor_element(&fixture->out, q_row, head, d)) == nan;
	return matches;
}

bool
kernel_fixture_equal(const struct kernel_fixture *a, uint64_t a_row, const struct kernel_fixture *b, uint64_t b_row,
		     uint64_t n)
{
	size_t row = (size_t)a->out.token_stride, heads = a->params.q_heads, lse_bytes = n * heads * sizeof(float);

	return memcmp((uint8_t *)a->out.data + a_row * row, (uint8_t *)b->out.data + b_row * row, n * row) == 0 &&
	       memcmp(a->lse + a_row * heads, b->lse + b_row * heads, lse_bytes) == 0 &&
	       memcmp(a->max_score + a_row * heads, b->max_score + b_row * heads, lse_bytes) == 0;
}

static bool
close_to(double value, double expected, double tolerance)
{
	return value == expected || (isnan(value) && isnan(expected)) || fabs(value - expected) <= tolerance;
}

static bool
q_row_check(const struct kernel_fixture *fixture, uint32_t r, uint32_t i, uint32_t head,
	    const struct reference_q_row *q_row, char *what, size_t size)
{
	uint64_t packed = fixture->rows[r].q_start + i;
	uint64_t at = packed * fixture->params.q_heads + head;
	struct reference_result expected;
	double lse;

	reference_attend(q_row, &expected);
	if (fixture->params.weights != 0) /* values are at most 1 */
		expected.out_tolerance += reference_unit(fixture->params.weights);
	lse = fixture->params.lse_without_sink ? expected.lse_without_sink : expected.lse;
	for (uint32_t d = 0; d < q_row->v_dim; d++) {
		double got = kernel_tensor_element(&fixture->out, packed, head, d);

		if (close_to(got, expected.out[d],
			     expected.out_tolerance + reference_unit(fixture->out.dtype) * fabs(expected.out[d])))
			continue;
		snprintf(what, size, "row %u query %u head %u dim %u: %.9g, expected %.9g +- %.3g", r, i, head, d, got,
			 expected.out[d], expected.out_tolerance);
		return false;
	}
	if (close_to(fixture->lse[at], lse, expected.score_tolerance + 0x1p-22 * fabs(lse)) &&
	    close_to(fixture->max_score[at], expected.max_score, expected.score_tolerance))
		return true;
	snprintf(what, size, "row %u query %u head %u: lse %.9g max %.9g, expected %.9g %.9g", r, i, head,
		 (double)fixture->lse[at], (double)fixture->max_score[at], lse, expected.max_score);
	return false;
}

static uint32_t
n_visible_keys(const struct kernel_fixture *fixture, const struct kernel_fixture_row *row, uint32_t i)
{
	int64_t n_visible = row->q_base + i + 1;

	if (!fixture->params.causal || n_visible > (int64_t)row->kv_len)
		return row->kv_len;
	return n_visible < 0 ? 0 : (uint32_t)n_visible;
}

/* Check one KV head of a row: read its K and V, then compare every q_row that attends them. */
static bool
head_check(const struct kernel_fixture *fixture, uint32_t r, uint32_t kv_head, char *what, size_t size)
{
	const struct kernel_fixture_params *p = &fixture->params;
	const struct kernel_fixture_row *row = &p->rows[r];
	uint32_t group = p->q_heads / p->kv_heads;
	float *k = allocate((row->kv_len + 1) * (size_t)p->k_dim * sizeof(*k));
	float *v = allocate((row->kv_len + 1) * (size_t)p->v_dim * sizeof(*v));
	bool good = true;

	for (uint32_t t = 0; t < row->kv_len; t++) {
		for (uint32_t d = 0; d < p->k_dim; d++)
			k[(size_t)t * p->k_dim + d] = kernel_fixture_key(fixture, row->id, t, kv_head, d);
		for (uint32_t d = 0; d < p->v_dim; d++)
			v[(size_t)t * p->v_dim + d] = kernel_fixture_value(fixture, row->id, t, kv_head, d);
	}
	for (uint32_t i = 0; good && i < row->q_len; i++)
		for (uint32_t h = kv_head * group; good && h < (kv_head + 1) * group; h++) {
			float q[PAGED_MAX_DIM];

			for (uint32_t d = 0; d < p->k_dim; d++)
				q[d] = kernel_tensor_element(&fixture->q, fixture->rows[r].q_start + i, h, d);
			good = q_row_check(
				fixture, r, i, h,
				&(struct reference_q_row){ .q = q,
							   .k = k,
							   .v = v,
							   .k_stride = p->k_dim,
							   .v_stride = p->v_dim,
							   .k_dim = p->k_dim,
							   .v_dim = p->v_dim,
							   .n_keys = n_visible_keys(fixture, row, i),
							   .first_key = row->kv_first,
							   .scale = p->scale,
							   .sink = p->sink == NULL ? NULL : &p->sink[h],
							   .mask = p->mods.mask,
							   .score = p->mods.score,
							   .at = { .b = (int32_t)r,
								   .h = (int32_t)h,
								   .q_idx = (int32_t)row->q_base + (int32_t)i } },
				what, size);
		}
	free(k);
	free(v);
	return good;
}

bool
kernel_fixture_check(const struct kernel_fixture *fixture, char *what, size_t size)
{
	for (uint32_t r = 0; r < fixture->params.n_rows; r++)
		for (uint32_t h = 0; h < fixture->params.kv_heads; h++)
			if (!head_check(fixture, r, h, what, size))
				return false;
	return true;
}
