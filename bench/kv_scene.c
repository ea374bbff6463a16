/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kv_scene.h"

#include <math.h>
#include <stdlib.h>

#include "common/status.h"

/* What is smaller is in a cache when it is measured, for us as for the limit. */
#define CACHED_BYTES 64e6
#define SAMPLE_US 2000.0
#define MAX_REPEATS 2000
#define WARM_UPS 3

static void
rows_open(struct kv_scene *scene)
{
	uint32_t page_size = kv_figure_page_size(scene->figure), row = 0, page = 0;

	scene->n_pages = kv_figure_pages(scene->figure, &scene->world->scale);
	for (size_t kind = 0; kind < KV_ROW_KINDS; kind++)
		scene->n_rows += kv_figure_rows(scene->figure, kind, &scene->world->scale).n;
	scene->rows = bench_alloc(scene->n_rows, sizeof(*scene->rows));
	scene->pages = bench_alloc(scene->n_pages, sizeof(*scene->pages));
	for (uint32_t i = 0; i < scene->n_pages && scene->pool != NULL; i++)
		scene->pages[i] = scene->figure->contiguous ? i : scene->pool->permuted[i];
	for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
		struct kv_rows rows = kv_figure_rows(scene->figure, kind, &scene->world->scale);

		for (uint32_t i = 0; i < rows.n; i++, row++) {
			uint32_t n_pages = (rows.kv_len + page_size - 1) / page_size;

			scene->rows[row] = (struct paged_batch_row){ .pages = scene->pages + page,
								     .n_pages = n_pages,
								     .q_len = rows.q_len,
								     .kv_len = rows.kv_len };
			page += n_pages;
			scene->total_q += rows.q_len;
		}
	}
}

static struct paged_tensor
tensor_open(const struct kv_scene *scene, enum paged_dtype dtype, uint32_t n_heads, uint32_t dim)
{
	size_t n = (size_t)scene->total_q * n_heads * dim;
	struct paged_tensor tensor = { .dtype = dtype, .n_heads = n_heads, .dim = dim };

	tensor.data = bench_alloc(n, paged_dtype_size(dtype));
	kv_fill(tensor.data, n * paged_dtype_size(dtype), dtype);
	return tensor;
}

static void
batch_open(struct kv_scene *scene)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = scene->n_rows };

	kv_must(scene->world, paged_batch_create(scene->pool->pool, &params, &scene->batch));
	kv_must(scene->world, paged_batch_plan(scene->batch, scene->n_rows, scene->rows));
}

static void
rotary_open(struct kv_scene *scene)
{
	uint32_t n_positions = 0, dim = scene->shape.k_dim;

	for (uint32_t row = 0; row < scene->n_rows; row++)
		if (scene->rows[row].kv_len > n_positions)
			n_positions = scene->rows[row].kv_len;
	scene->cos_sin = bench_alloc((size_t)n_positions * dim, sizeof(*scene->cos_sin));
	for (uint32_t position = 0; position < n_positions; position++)
		for (uint32_t i = 0; i < dim / 2; i++) {
			float angle = (float)position * powf(10000.0f, -2.0f * (float)i / (float)dim);

			scene->cos_sin[(size_t)position * dim + i] = cosf(angle);
			scene->cos_sin[(size_t)position * dim + dim / 2 + i] = sinf(angle);
		}
	scene->rotary = (struct paged_rotary){
		.struct_size = sizeof(scene->rotary), .cos_sin = scene->cos_sin, .n_positions = n_positions, .dim = dim
	};
	scene->append.rotary = &scene->rotary;
}

static void
attend_open(struct kv_scene *scene)
{
	batch_open(scene);
	scene->q = tensor_open(scene, PAGED_BF16, scene->shape.q_heads, scene->shape.k_dim);
	scene->out = tensor_open(scene, PAGED_BF16, scene->shape.q_heads, scene->shape.v_dim);
	scene->attention.struct_size = sizeof(scene->attention);
	if (scene->figure->mask != NULL || scene->figure->score != NULL || scene->figure->by_block)
		kv_scene_mods(scene);
}

static void
append_open(struct kv_scene *scene)
{
	enum paged_dtype from = scene->figure->from != PAGED_DTYPE_NONE ? scene->figure->from : PAGED_BF16;

	batch_open(scene);
	scene->k = tensor_open(scene, from, scene->shape.kv_heads, scene->shape.k_dim);
	scene->v = tensor_open(scene, from, scene->shape.kv_heads, scene->shape.v_dim);
	scene->append.struct_size = sizeof(scene->append);
	if (scene->figure->rotary)
		rotary_open(scene);
}

/* The pages of a layer, which lie each in one piece. */
static void
read_open(struct kv_scene *scene)
{
	const struct paged_pool_info *info = &scene->pool->info;
	const uint8_t **spans = bench_alloc(scene->n_pages, sizeof(*spans));

	for (uint32_t i = 0; i < scene->n_pages; i++)
		spans[i] = (const uint8_t *)info->base + info->k.offset + scene->pages[i] * info->k.page_stride;
	limit_read_open(&scene->read, spans, scene->n_pages, info->k.page_stride);
	free(spans);
	if (!scene->world->scale.quick)
		limit_read_tune(&scene->read);
}

static void
peer_open(struct kv_scene *scene)
{
	struct torch_rows rows[KV_ROW_KINDS];
	const struct kv_shape *shape = &scene->shape;
	size_t n = 0;

	for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
		struct kv_rows of = kv_figure_rows(scene->figure, kind, &scene->world->scale);

		if (of.n > 0)
			rows[n++] = (struct torch_rows){ of.n, of.q_len, of.kv_len };
	}
	if (!torch_open(&scene->torch, rows, n, shape->q_heads, shape->kv_heads, shape->k_dim,
			scene->world->scale.quick))
		scene->skipped = scene->torch.how;
}

/* bf16 holds what a byte of K or V says; f16 and f32 it does not. */
static enum limit_unit
unit_of(enum paged_dtype dtype)
{
	return dtype == PAGED_F16 || dtype == PAGED_F32 ? limit_peak_unit_f32() : limit_peak_unit();
}

/* What one run of the work reads or computes. */
static void
amount(struct kv_scene *scene)
{
	const struct kv_case *figure = scene->figure;
	const struct kv_shape *shape = &scene->shape;
	double token = (double)shape->kv_heads * (shape->k_dim + (figure->latent ? 0 : shape->v_dim));
	double bytes = 0, flops = 0, appended = 0;
	bool decode = true;

	token *= (double)paged_dtype_size(kv_figure_dtype(figure));
	for (uint32_t row = 0; row < scene->n_rows; row++) {
		double q_len = scene->rows[row].q_len, kv_len = scene->rows[row].kv_len;

		decode = decode && q_len == 1;
		bytes += kv_len * token;
		appended += 2 * q_len * token;
		flops += q_len * (kv_len - (q_len - 1) / 2) * 2 * (shape->k_dim + shape->v_dim) * shape->q_heads;
	}
	if (figure->by_block)
		return;
	if (figure->work == KV_APPEND || figure->work == KV_COPY || figure->work == KV_GATHER ||
	    figure->work == KV_PAGES) {
		scene->bytes = figure->between ? appended / 2 : appended;
		return;
	}
	if (figure->work != KV_READ)
		scene->flops = flops;
	if (decode)
		scene->bytes = bytes;
}

static double
peak_us(const struct kv_scene *scene)
{
	return scene->flops / limit_peak(scene->unit) / 1e3;
}

static double
work_us(const struct kv_scene *scene)
{
	uint64_t start = bench_now_ns();

	switch (scene->figure->work) {
	case KV_ATTEND:
		kv_must(scene->world, paged_attention(scene->batch, 0, &scene->q, &scene->out, &scene->attention));
		break;
	case KV_APPEND:
		kv_must(scene->world, paged_append(scene->batch, 0, &scene->k, &scene->v, &scene->append));
		break;
	case KV_GATHER:
		kv_must(scene->world, paged_gather(scene->batch, 0, &scene->k, &scene->v, NULL));
		break;
	case KV_PAGES:
		kv_scene_copy_pages(scene);
		break;
	case KV_READ:
	case KV_ROOF:
		return limit_read_us(&scene->read);
	case KV_COPY:
		return limit_copy_us(&scene->copy);
	case KV_PEAK:
		return peak_us(scene);
	case KV_TORCH:
		return torch_sample_us(&scene->torch);
	}
	return (double)(bench_now_ns() - start) / 1e3;
}

static bool
cached(const struct kv_scene *scene)
{
	return scene->bytes > 0 && scene->bytes < CACHED_BYTES && scene->figure->work != KV_TORCH;
}

double
kv_scene_sample(const void *context)
{
	const struct kv_scene *scene = context;
	double us = 0;

	if (cached(scene))
		work_us(scene);
	for (size_t i = 0; i < scene->n_repeats; i++)
		us += work_us(scene);
	us /= (double)scene->n_repeats;
	/* Not between the reads, for others' reads would take the cache meanwhile. */
	if (scene->figure->work == KV_ROOF)
		us = fmax(us, peak_us(scene));
	return scene->figure->by_block ? us * 1e3 / scene->n_blocks : us;
}

/* A NaN among bf16 results means that what is measured is wrong. */
static void
check(const struct kv_scene *scene)
{
	const uint16_t *out = scene->out.data;

	for (size_t i = 0; i < (size_t)scene->total_q * scene->shape.q_heads * scene->shape.v_dim; i++)
		if ((out[i] & 0x7fff) > 0x7f80)
			bench_die("%s: element %zu of the result is no number", scene->figure->name, i);
}

/* As many repeats as make a sample of some length. */
static void
warm_up(struct kv_scene *scene)
{
	double us;

	work_us(scene);
	if (scene->figure->work == KV_ATTEND)
		check(scene);
	if (scene->world->scale.quick || scene->figure->work == KV_PEAK)
		return;
	us = work_us(scene);
	for (int i = 1; i < WARM_UPS; i++)
		us = fmin(us, work_us(scene));
	while ((double)scene->n_repeats * us < SAMPLE_US && scene->n_repeats < MAX_REPEATS)
		scene->n_repeats *= 2;
}

void
kv_scene_open(struct kv_scene *scene, const struct kv_world *world, const struct kv_case *figure)
{
	*scene = (struct kv_scene){ .figure = figure, .world = world };
	scene->pool = kv_world_pool(world, figure);
	scene->shape = kv_figure_shape(figure, world->scale.quick);
	rows_open(scene);
	amount(scene);
	scene->unit = unit_of(kv_figure_dtype(figure));
	scene->n_repeats = 1;
	if (figure->work == KV_TORCH) {
		peer_open(scene);
		return;
	}
	if (figure->work == KV_ATTEND)
		attend_open(scene);
	else if (figure->work == KV_APPEND || figure->work == KV_GATHER)
		append_open(scene);
	else if (figure->work == KV_PAGES)
		kv_scene_pages(scene);
	else if (figure->work == KV_READ || figure->work == KV_ROOF)
		read_open(scene);
	else if (figure->work == KV_COPY)
		kv_scene_copy(scene);
	warm_up(scene);
}

void
kv_scene_close(struct kv_scene *scene)
{
	paged_mods_destroy(scene->attention.mods);
	paged_mod_destroy(scene->mask);
	paged_mod_destroy(scene->score);
	paged_batch_destroy(scene->batch);
	if (scene->figure->work == KV_TORCH && scene->skipped == NULL)
		torch_close(&scene->torch);
	limit_read_close(&scene->read);
	kernel_team_destroy(scene->team);
	free(scene->q.data);
	free(scene->out.data);
	free(scene->k.data);
	free(scene->v.data);
	free(scene->cos_sin);
	free(scene->documents);
	free(scene->pieces);
	free(scene->rows);
	free(scene->pages);
}
