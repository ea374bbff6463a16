/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kernel_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/schedule/team.h"
#include "tests/support/reference.h"

enum { STREAM_Q, STREAM_K, STREAM_V, STREAM_SCALE };

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
number(const struct world *world, unsigned int stream, uint32_t id, uint64_t i, enum paged_dtype dtype)
{
	uint64_t seed = reference_bits(world->params.seed, (uint64_t)id << 2 | stream);
	uint32_t rounded;

	reference_store(&rounded, dtype, 0, reference_random(seed, i, stream == STREAM_V ? 1.0f : 1.5f));
	return reference_load(&rounded, dtype, 0);
}

/* What lies in the plane: of i8 a whole number that is no more than 127. */
static float
stored(const struct world *world, unsigned int stream, uint32_t id, uint32_t token, uint32_t head, uint32_t dim)
{
	uint64_t i = ((uint64_t)token * 64 + head) * PAGED_MAX_DIM + dim;
	float whole;

	if (world->params.pool != PAGED_I8)
		return number(world, stream, id, i, world->params.pool);
	whole = number(world, stream, id, i, PAGED_F32) * 84; /* K's go up to 1.5 */
	return rintf(whole);
}

/* And what it is multiplied by: results of at most 1 for values. */
static float
scale_of(const struct world *world, unsigned int stream, uint32_t id, uint32_t token, uint32_t head)
{
	const float *scales = stream == STREAM_K ? world->params.k_scale : world->params.v_scale;
	uint64_t i = (uint64_t)token * 64 + head;

	if (world->params.pool == PAGED_I8)
		return (1.5f + number(world, STREAM_SCALE, id, i * 2 + (stream == STREAM_V), PAGED_F32) / 3) / 168;
	return scales != NULL ? scales[head] : 1;
}

float
world_key(const struct world *world, uint32_t id, uint32_t token, uint32_t head, uint32_t dim)
{
	return stored(world, STREAM_K, id, token, head, dim) * scale_of(world, STREAM_K, id, token, head);
}

float
world_value(const struct world *world, uint32_t id, uint32_t token, uint32_t head, uint32_t dim)
{
	if (world->params.v_in_k)
		return world_key(world, id, token, head, dim);
	return stored(world, STREAM_V, id, token, head, dim) * scale_of(world, STREAM_V, id, token, head);
}

struct kernel_tensor
world_tensor(enum paged_dtype dtype, uint64_t n_tokens, uint32_t n_heads, uint32_t dim, uint32_t padding,
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
world_token(const struct world *world, unsigned int plane, uint32_t token, uint32_t head)
{
	uint32_t page_size = world->params.page_size, page = world->rows[0].pages[token / page_size];

	return world->pool + layout_offset(&world->layout, plane, WORLD_LAYER, page, head, token % page_size);
}

static uint8_t *
element_at(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	return (uint8_t *)tensor->data + (int64_t)token * tensor->token_stride + head * tensor->head_stride;
}

float
world_element(const struct kernel_tensor *tensor, uint64_t token, uint32_t head, uint32_t dim)
{
	return reference_load(element_at(tensor, token, head), tensor->dtype, dim);
}

static uint32_t
page_count(const struct world *world, uint32_t tokens)
{
	return (tokens + world->params.page_size - 1) / world->params.page_size;
}

/* A random permutation of the pool's pages, dealt out to the rows. */
static void
pages_place(struct world *world)
{
	uint32_t n = world->layout.params.n_pages, next = 0;
	uint32_t *order = allocate(n * sizeof(*order));

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)(reference_bits(world->params.placement, i) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t r = 0; r < world->params.n_rows; r++) {
		uint32_t count = page_count(world, world->params.rows[r].kv_len);
		uint32_t *pages = malloc(count * sizeof(*pages));

		if (count != 0)
			memcpy(pages, order + next, count * sizeof(*pages));
		next += count;
		world->rows[r].pages = pages;
	}
	free(order);
}

static void
head_fill(struct world *world, uint32_t r, uint32_t t, uint32_t h, unsigned int stream)
{
	const struct world_params *p = &world->params;
	unsigned int plane = stream == STREAM_K ? LAYOUT_K : LAYOUT_V;
	uint32_t page = world->rows[r].pages[t / p->page_size], slot = t % p->page_size, id = p->rows[r].id;
	uint8_t *to = world->pool + layout_offset(&world->layout, plane, WORLD_LAYER, page, h, slot);
	float scale = scale_of(world, stream, id, t, h);

	for (uint32_t d = 0; d < world->layout.plane[plane].dim; d++)
		reference_store(to, p->pool, d, stored(world, stream, id, t, h, d));
	plane = stream == STREAM_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	to = world->pool + layout_offset(&world->layout, plane, WORLD_LAYER, page, h, slot);
	if (p->pool == PAGED_I8)
		memcpy(to, &scale, sizeof(scale));
}

static void
row_fill(struct world *world, uint32_t r)
{
	const struct world_params *p = &world->params;

	for (uint32_t t = 0; t < p->rows[r].kv_len; t++)
		for (uint32_t h = 0; h < p->kv_heads; h++) {
			head_fill(world, r, t, h, STREAM_K);
			if (!p->v_in_k)
				head_fill(world, r, t, h, STREAM_V);
		}
}

/* A query row's contents follow from its q_idx, so that a chunk and single rows compare. */
static float
query(const struct world *world, const struct world_row *row, uint32_t i, uint32_t head, uint32_t dim)
{
	uint64_t at = (uint64_t)(row->q_base + i);

	return number(world, STREAM_Q, row->id, (at * 256 + head) * PAGED_MAX_DIM + dim, world->params.q);
}

static void
queries_fill(struct world *world)
{
	const struct world_params *p = &world->params;

	for (uint32_t r = 0; r < p->n_rows; r++)
		for (uint32_t i = 0; i < p->rows[r].q_len; i++)
			for (uint32_t h = 0; h < p->q_heads; h++)
				for (uint32_t d = 0; d < p->k_dim; d++)
					reference_store(element_at(&world->q, world->rows[r].q_start + i, h), p->q, d,
							query(world, &p->rows[r], i, h, d));
}

void
world_create(struct world *world, const struct world_params *params)
{
	struct paged_error error;
	uint32_t n_pages = 3; /* some stay free */
	size_t bytes;

	*world = (struct world){ .params = *params };
	for (uint32_t r = 0; r < params->n_rows; r++) {
		const struct world_row *row = &params->rows[r];

		n_pages += page_count(world, row->kv_len);
		world->rows[r] = (struct kernel_row){ .q_start = world->total_q,
						      .q_base = row->q_base,
						      .q_len = row->q_len,
						      .kv_len = row->kv_len,
						      .b = (int32_t)r };
		world->total_q += row->q_len;
	}
	if (layout_init(&world->layout,
			&(struct layout_params){ .n_layers = WORLD_LAYERS,
						 .n_kv_heads = params->kv_heads,
						 .k_dim = params->k_dim,
						 .v_dim = params->v_dim,
						 .v_in_k = params->v_in_k,
						 .dtype = params->pool,
						 .page_size = params->page_size,
						 .n_pages = n_pages },
			&error) != PAGED_OK)
		abort();
	world->pool = allocate(world->layout.size);
	pages_place(world);
	for (uint32_t r = 0; r < params->n_rows; r++)
		row_fill(world, r);
	world->q = world_tensor(params->q, world->total_q, params->q_heads, params->k_dim, params->padding, &bytes);
	world->out = world_tensor(params->out, world->total_q, params->q_heads, params->v_dim, params->padding,
				  &world->out_bytes);
	queries_fill(world);
	world->lse = allocate(world->total_q * params->q_heads * sizeof(float));
	world->maximum = allocate(world->total_q * params->q_heads * sizeof(float));
}

void
world_destroy(struct world *world)
{
	for (uint32_t r = 0; r < world->params.n_rows; r++)
		free((void *)(uintptr_t)world->rows[r].pages);
	free(world->pool);
	free(world->q.data);
	free(world->out.data);
	free(world->lse);
	free(world->maximum);
}

void
world_attend_with(struct world *world, struct kernel_team *team, struct kernel_mod_set *mods)
{
	const struct world_params *p = &world->params;
	size_t lines = world->total_q * p->q_heads;

	if (kernel_team_isa(team) >= KERNEL_AVX512_BF16 && p->out == PAGED_BF16)
		world->params.weights = PAGED_BF16;
	memset(world->out.data, 0xff, world->out_bytes);
	memset(world->lse, 0xff, lines * sizeof(float));
	memset(world->maximum, 0xff, lines * sizeof(float));
	kernel_attention(team, &(struct attention_args){ .pages = { &world->layout, world->pool, WORLD_LAYER },
							 .rows = world->rows,
							 .n_rows = p->n_rows,
							 .q = world->q,
							 .out = world->out,
							 .scale = p->scale,
							 .causal = p->causal,
							 .mod_set = mods,
							 .sink = p->sink,
							 .lse_without_sink = p->lse_without_sink,
							 .lse = world->lse,
							 .maximum = world->maximum,
							 .k_scale = p->k_scale,
							 .v_scale = p->v_scale });
}

void
world_attend(struct world *world, struct kernel_team *team)
{
	const struct world_params *p = &world->params;
	struct kernel_mod_set *mods = NULL;
	struct paged_error error;

	if ((p->mods.blocks != NULL || p->mods.mask != NULL || p->mods.score != NULL) &&
	    kernel_mod_set_create(team, &p->mods, &mods, &error) != PAGED_OK)
		abort();
	world_attend_with(world, team, mods);
	kernel_mod_set_destroy(mods);
}

void
world_run(struct world *world, const struct world_params *params, uint32_t n_threads, enum kernel_isa isa)
{
	struct kernel_team *team;
	struct paged_error error;

	if (kernel_team_create(&(struct kernel_team_params){ .n_threads = n_threads, .isa = isa }, &team, &error) !=
	    PAGED_OK)
		abort();
	world_create(world, params);
	world_attend(world, team);
	kernel_team_destroy(team);
}

bool
world_line_nan(const struct world *world, uint64_t q_row, uint32_t head, bool nan)
{
	uint64_t at = q_row * world->params.q_heads + head;
	bool as_told = isnan(world->lse[at]) == nan && isnan(world->maximum[at]) == nan;

	for (uint32_t d = 0; d < world->params.v_dim; d++)
		as_told &= isnan(world_element(&world->out, q_row, head, d)) == nan;
	return as_told;
}

bool
world_same(const struct world *a, uint64_t a_row, const struct world *b, uint64_t b_row, uint64_t n)
{
	size_t row = (size_t)a->out.token_stride, heads = a->params.q_heads, lines = n * heads * sizeof(float);

	return memcmp((uint8_t *)a->out.data + a_row * row, (uint8_t *)b->out.data + b_row * row, n * row) == 0 &&
	       memcmp(a->lse + a_row * heads, b->lse + b_row * heads, lines) == 0 &&
	       memcmp(a->maximum + a_row * heads, b->maximum + b_row * heads, lines) == 0;
}

static bool
close_to(double value, double expected, double tolerance)
{
	return value == expected || (isnan(value) && isnan(expected)) || fabs(value - expected) <= tolerance;
}

static bool
line_check(const struct world *world, uint32_t r, uint32_t i, uint32_t head, const struct reference_line *line,
	   char *what, size_t size)
{
	uint64_t packed = world->rows[r].q_start + i;
	uint64_t at = packed * world->params.q_heads + head;
	struct reference_result expected;
	double lse;

	reference_attend(line, &expected);
	if (world->params.weights != 0) /* values are at most 1 */
		expected.out_tolerance += reference_unit(world->params.weights);
	lse = world->params.lse_without_sink ? expected.lse_without_sink : expected.lse;
	for (uint32_t d = 0; d < line->v_dim; d++) {
		double got = world_element(&world->out, packed, head, d);

		if (close_to(got, expected.out[d],
			     expected.out_tolerance + reference_unit(world->out.dtype) * fabs(expected.out[d])))
			continue;
		snprintf(what, size, "row %u query %u head %u dim %u: %.9g, expected %.9g +- %.3g", r, i, head, d, got,
			 expected.out[d], expected.out_tolerance);
		return false;
	}
	if (close_to(world->lse[at], lse, expected.score_tolerance + 0x1p-22 * fabs(lse)) &&
	    close_to(world->maximum[at], expected.maximum, expected.score_tolerance))
		return true;
	snprintf(what, size, "row %u query %u head %u: lse %.9g max %.9g, expected %.9g %.9g", r, i, head,
		 (double)world->lse[at], (double)world->maximum[at], lse, expected.maximum);
	return false;
}

static uint32_t
visible(const struct world *world, const struct world_row *row, uint32_t i)
{
	int64_t seen = row->q_base + i + 1;

	if (!world->params.causal || seen > (int64_t)row->kv_len)
		return row->kv_len;
	return seen < 0 ? 0 : (uint32_t)seen;
}

/* One KV head of a row: its keys and values, then every line that reads them. */
static bool
head_check(const struct world *world, uint32_t r, uint32_t kv_head, char *what, size_t size)
{
	const struct world_params *p = &world->params;
	const struct world_row *row = &p->rows[r];
	uint32_t group = p->q_heads / p->kv_heads;
	float *k = allocate((row->kv_len + 1) * (size_t)p->k_dim * sizeof(*k));
	float *v = allocate((row->kv_len + 1) * (size_t)p->v_dim * sizeof(*v));
	bool good = true;

	for (uint32_t t = 0; t < row->kv_len; t++) {
		for (uint32_t d = 0; d < p->k_dim; d++)
			k[(size_t)t * p->k_dim + d] = world_key(world, row->id, t, kv_head, d);
		for (uint32_t d = 0; d < p->v_dim; d++)
			v[(size_t)t * p->v_dim + d] = world_value(world, row->id, t, kv_head, d);
	}
	for (uint32_t i = 0; good && i < row->q_len; i++)
		for (uint32_t h = kv_head * group; good && h < (kv_head + 1) * group; h++) {
			float q[PAGED_MAX_DIM];

			for (uint32_t d = 0; d < p->k_dim; d++)
				q[d] = world_element(&world->q, world->rows[r].q_start + i, h, d);
			good = line_check(
				world, r, i, h,
				&(struct reference_line){ .q = q,
							  .k = k,
							  .v = v,
							  .k_stride = p->k_dim,
							  .v_stride = p->v_dim,
							  .k_dim = p->k_dim,
							  .v_dim = p->v_dim,
							  .n_keys = visible(world, row, i),
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
world_check(const struct world *world, char *what, size_t size)
{
	for (uint32_t r = 0; r < world->params.n_rows; r++)
		for (uint32_t h = 0; h < world->params.kv_heads; h++)
			if (!head_check(world, r, h, what, size))
				return false;
	return true;
}
