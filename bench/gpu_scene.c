/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu_scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/mods.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/kernels.h"

#define QUICK_LAYERS 2u
#define QUICK_TOKENS 72u
/* Of what is free, for one pool: a group may have two. */
#define POOL_SHARE 0.45
/* Halves of either sign from 0.5 to 2 as bf16, of moderate size as any other dtype. */
#define HALF_RANDOM 0x80ffu
#define HALF_ALWAYS 0x3f00u
#define BYTE_RANDOM 0x8787u
#define BYTE_ALWAYS 0x3030u

static void
must(const struct gpu_pool *pool, enum paged_status status)
{
	if (status != PAGED_OK)
		bench_die("%s", paged_client_error(pool->client));
}

static void *
take(size_t n, size_t size)
{
	void *p = calloc(n != 0 ? n : 1, size);

	if (p == NULL)
		bench_die("out of memory");
	return p;
}

/* Sizes */

static uint32_t
max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t
toy(uint32_t n, uint32_t divisor, uint32_t least, uint32_t most)
{
	n /= divisor;
	return n < least ? least : n > most ? most : n;
}

struct gpu_rows
gpu_figure_rows(const struct gpu_figure *figure, size_t kind, bool quick)
{
	struct gpu_rows rows = figure->rows[kind];

	if (!quick || rows.n == 0)
		return rows;
	rows.n = toy(rows.n, 1, 1, 3);
	rows.kv_len = toy(rows.kv_len, 256, 4, QUICK_TOKENS);
	if (rows.q_len > 1)
		rows.q_len = toy(rows.q_len, 256, 2, rows.kv_len);
	return rows;
}

static struct gpu_shape
shape_of(const struct gpu_figure *figure, bool quick)
{
	if (figure->latent)
		return (struct gpu_shape){ quick ? 16 : 128, 1, 576, 512 };
	if (quick)
		return (struct gpu_shape){ 4, 2, 64, 64 };
	return (struct gpu_shape){ 32, 8, 128, 128 };
}

static uint32_t
page_size_of(const struct gpu_figure *figure)
{
	return figure->page_size != 0 ? figure->page_size : 16;
}

/* That its batch has, and its copies go to. */
static uint32_t
pages_of(const struct gpu_figure *figure, bool quick)
{
	uint32_t page_size = page_size_of(figure), n = 0;

	for (size_t i = 0; i < GPU_ROW_KINDS; i++) {
		struct gpu_rows rows = gpu_figure_rows(figure, i, quick);

		n += rows.n * ((rows.kv_len + page_size - 1) / page_size);
	}
	return figure->work == GPU_COPY_NEW || figure->work == GPU_COPY_PAGES || figure->work == GPU_COPY_ALL ? 2 * n
													      : n;
}

static uint32_t
longest_of(const struct gpu_figure *figure, bool quick)
{
	uint32_t longest = 0;

	for (size_t i = 0; i < GPU_ROW_KINDS; i++) {
		struct gpu_rows rows = gpu_figure_rows(figure, i, quick);

		longest = max(longest, rows.kv_len);
	}
	return longest;
}

/* Pools */

static bool
same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool
gpu_figure_fits(const struct gpu_figure *like, const struct gpu_figure *figure)
{
	return page_size_of(like) == page_size_of(figure) && like->dtype == figure->dtype &&
	       like->latent == figure->latent && same(like->export, figure->export);
}

static enum paged_dtype
dtype_of(const struct gpu_figure *figure)
{
	return figure->dtype != PAGED_DTYPE_NONE ? figure->dtype : PAGED_BF16;
}

static void
served_open(struct gpu_pool *pool, const struct paged_pool_params *params, const char *export)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "pool bench {\n"
		 " layers = %u kv-heads = %u head-dim = %u dtype = %s page-size = %u pages = %u\n"
		 " sequences = 16 max-length = %u backend = cuda export = %s\n"
		 "}\n",
		 params->n_layers, params->n_kv_heads, params->k_dim, paged_dtype_name(params->dtype),
		 params->page_size, params->n_pages, params->max_length, export);
	must(pool, paged_client_open(bench_daemon_start(text), NULL, &pool->client));
}

static void
pool_fill(struct gpu *gpu, const struct gpu_pool *pool)
{
	bool halves = paged_dtype_size(dtype_of(pool->like)) == 2;

	gpu_fill(gpu, (uintptr_t)pool->info.base, pool->info.size, halves ? HALF_RANDOM : BYTE_RANDOM,
		 halves ? HALF_ALWAYS : BYTE_ALWAYS);
}

static uint32_t
layers_that_fit(struct gpu *gpu, const struct gpu_figure *like, uint64_t layer_bytes, bool quick)
{
	uint32_t n = quick ? QUICK_LAYERS : GPU_MODEL_LAYERS;
	double share = POOL_SHARE * (double)gpu_free_bytes(gpu);

	if ((double)layer_bytes > share)
		bench_die("%s: %.1f GB a layer, and %.1f GB of the GPU's memory for it", like->group,
			  (double)layer_bytes / 1e9, share / 1e9);
	while ((double)layer_bytes * n > share)
		n--;
	return n;
}

void
gpu_pool_open(struct gpu *gpu, struct gpu_pool *pool, const struct gpu_figure *figures, size_t n_figures, bool quick)
{
	const struct gpu_figure *like = figures;
	uint32_t n_pages = 0, longest = 0;
	struct gpu_shape shape = shape_of(like, quick);
	uint32_t page_size = page_size_of(like);
	struct paged_pool_params params = { .struct_size = sizeof(params), .name = "bench", .backend = "cuda" };
	uint64_t token = (uint64_t)shape.n_kv_heads * (shape.k_dim + (like->latent ? 0 : shape.v_dim));

	for (size_t i = 0; i < n_figures; i++) {
		if (!gpu_figure_fits(like, &figures[i]))
			continue;
		n_pages = max(n_pages, pages_of(&figures[i], quick));
		longest = max(longest, longest_of(&figures[i], quick));
	}
	*pool = (struct gpu_pool){ .like = like, .shape = shape };
	pool->layer_page_bytes = token * page_size * (like->dtype == PAGED_DTYPE_NONE ? 2 : 1);
	params.n_layers = layers_that_fit(gpu, like, pool->layer_page_bytes * n_pages, quick);
	params.n_kv_heads = shape.n_kv_heads;
	params.k_dim = shape.k_dim;
	params.v_dim = shape.v_dim;
	params.v_in_k = like->latent;
	params.dtype = dtype_of(like);
	params.page_size = page_size;
	params.n_pages = n_pages;
	params.n_slots = 16;
	params.max_length = longest;
	if (like->export != NULL)
		served_open(pool, &params, like->export);
	else
		must(pool, paged_client_open_embedded(&params, 1, NULL, &pool->client));
	must(pool, paged_pool_open(pool->client, "bench", &pool->pool));
	pool->info.struct_size = sizeof(pool->info);
	must(pool, paged_pool_get_info(pool->pool, &pool->info));
	pool_fill(gpu, pool);
}

/* Batches */

static void
tables_make(struct gpu_scene *scene)
{
	uint32_t n = scene->pool->info.n_pages;
	uint64_t state = 3;

	scene->pages = take(n, sizeof(*scene->pages));
	for (uint32_t i = 0; i < n; i++)
		scene->pages[i] = i;
	for (uint32_t i = n; !scene->figure->contiguous && i > 1; i--) {
		uint32_t j = bench_random(&state, i), page = scene->pages[i - 1];

		scene->pages[i - 1] = scene->pages[j];
		scene->pages[j] = page;
	}
	scene->table = gpu_put(scene->gpu, scene->pages, n * sizeof(*scene->pages));
}

static void
rows_make(struct gpu_scene *scene, bool quick)
{
	uint32_t page_size = scene->pool->info.page_size;
	bool appends = scene->figure->work == GPU_APPEND || scene->figure->work == GPU_STEP;

	for (size_t i = 0; i < GPU_ROW_KINDS; i++)
		scene->n_rows += gpu_figure_rows(scene->figure, i, quick).n;
	scene->rows = take(scene->n_rows, sizeof(*scene->rows));
	for (size_t i = 0, r = 0; i < GPU_ROW_KINDS; i++) {
		struct gpu_rows like = gpu_figure_rows(scene->figure, i, quick);

		for (uint32_t j = 0; j < like.n; j++, r++) {
			struct paged_batch_row *row = &scene->rows[r];

			row->pages = scene->pages + scene->n_pages;
			row->n_pages = (like.kv_len + page_size - 1) / page_size;
			row->q_len = like.q_len;
			row->kv_len = like.kv_len;
			row->flags = appends ? 0 : PAGED_ROW_NO_APPEND;
			scene->n_pages += row->n_pages;
			scene->total_q += row->q_len;
		}
	}
}

static void
lengths_make(struct gpu_scene *scene)
{
	int32_t *q_indptr = take(scene->n_rows + 1, sizeof(*q_indptr)), *kv_len = take(scene->n_rows, sizeof(*kv_len));

	for (uint32_t r = 0; r < scene->n_rows; r++) {
		q_indptr[r + 1] = q_indptr[r] + (int32_t)scene->rows[r].q_len;
		kv_len[r] = (int32_t)scene->rows[r].kv_len;
	}
	scene->plan = (struct paged_plan_device_params){ .struct_size = sizeof(scene->plan),
							 .n_rows = scene->n_rows,
							 .rows = scene->rows };
	scene->plan.q_indptr = (const int32_t *)(uintptr_t)gpu_put(scene->gpu, q_indptr, (scene->n_rows + 1) * 4);
	scene->plan.kv_len = (const int32_t *)(uintptr_t)gpu_put(scene->gpu, kv_len, scene->n_rows * 4);
	free(q_indptr);
	free(kv_len);
}

static struct paged_tensor
tensor_make(struct gpu_scene *scene, uint32_t n_heads, uint32_t dim)
{
	size_t size = (size_t)scene->total_q * n_heads * dim * 2;
	cuda_address address = gpu_alloc(scene->gpu, size);

	gpu_fill(scene->gpu, address, size, HALF_RANDOM, HALF_ALWAYS);
	return (struct paged_tensor){
		.data = (void *)(uintptr_t)address, .dtype = PAGED_BF16, .n_heads = n_heads, .dim = dim
	};
}

static void
mods_make(struct gpu_scene *scene)
{
	const struct gpu_figure *figure = scene->figure;
	static const float cap = 50.0f;
	static const struct paged_array names[] = { { .name = "cap", .dtype = PAGED_F32, .data = &cap } };
	const size_t n_names = sizeof(names) / sizeof(names[0]);
	struct paged_mods_params params = { .struct_size = sizeof(params) };
	struct paged_mod *mod;

	if (figure->mask != NULL) {
		must(scene->pool,
		     paged_mod_parse(scene->pool->pool, PAGED_MOD_MASK, figure->mask, n_names, names, &mod));
		params.mask = mod;
	}
	if (figure->score != NULL) {
		must(scene->pool,
		     paged_mod_parse(scene->pool->pool, PAGED_MOD_SCORE, figure->score, n_names, names, &mod));
		params.score = mod;
	}
	must(scene->pool, paged_mods_create(scene->batch, &params, &scene->mods));
	must(scene->pool, paged_mods_bind(scene->mods, n_names, names, NULL));
	must(scene->pool, paged_mods_prepare(scene->mods, PAGED_BF16, -1));
}

static const void *
pages_image(const struct gpu *gpu)
{
	const struct cuda_image *image =
		cuda_image_find("pages", cuda_gpu_attribute(&gpu->cuda, CUDA_DEVICE_COMPUTE_MAJOR),
				cuda_gpu_attribute(&gpu->cuda, CUDA_DEVICE_COMPUTE_MINOR));

	return image != NULL ? image->data : NULL;
}

static bool
figure_has_batch(const struct gpu_figure *figure)
{
	return figure->work == GPU_ATTENTION || figure->work == GPU_APPEND || figure->work == GPU_STEP ||
	       figure->work == GPU_PLAN;
}

static void
batch_make(struct gpu_scene *scene)
{
	const struct gpu_shape *shape = &scene->pool->shape;

	lengths_make(scene);
	must(scene->pool,
	     paged_batch_create(scene->pool->pool,
				&(struct paged_batch_params){ .struct_size = sizeof(struct paged_batch_params),
							      .max_rows = scene->n_rows,
							      .max_q_tokens = scene->total_q,
							      .max_q_heads = shape->n_q_heads },
				&scene->batch));
	must(scene->pool, paged_batch_stream(scene->batch, scene->gpu->stream));
	scene->q = tensor_make(scene, shape->n_q_heads, shape->k_dim);
	scene->out = tensor_make(scene, shape->n_q_heads, shape->v_dim);
	scene->k = tensor_make(scene, shape->n_kv_heads, shape->k_dim);
	scene->v = tensor_make(scene, shape->n_kv_heads, shape->v_dim);
	if (scene->figure->mask != NULL || scene->figure->score != NULL)
		mods_make(scene);
}

void
gpu_scene_open(struct gpu *gpu, struct gpu_scene *scene, const struct gpu_pool *pool, const struct gpu_figure *figure,
	       bool quick)
{
	*scene = (struct gpu_scene){ .gpu = gpu, .pool = pool, .figure = figure };
	scene->n_calls = quick ? QUICK_LAYERS : GPU_MODEL_LAYERS;
	tables_make(scene);
	rows_make(scene, quick);
	if (figure_has_batch(figure))
		batch_make(scene);
	if (figure->work == GPU_COPY_PAGES) {
		scene->copy_pages = gpu_function(gpu, pages_image(gpu), "copy_pages");
		scene->n_calls = 1;
	}
	if (figure->work == GPU_COPY_ALL)
		scene->n_calls = 1;
	scene->free_pages = scene->table + (uint64_t)scene->n_pages * sizeof(uint32_t);
}

/* Work */

static cuda_address
layer_address(const struct gpu_scene *scene, uint32_t call)
{
	const struct paged_pool_info *info = &scene->pool->info;

	return (uintptr_t)info->base + info->k.offset + call % info->n_layers * info->k.layer_stride;
}

static void
read_one(struct gpu_scene *scene, uint32_t call, uint32_t n_pages)
{
	uint32_t pieces = (uint32_t)(scene->pool->layer_page_bytes / GPU_READER_PIECE);

	gpu_read(scene->gpu, (struct gpu_reader_params){ .address = layer_address(scene, call),
							 .page_stride = scene->pool->info.k.page_stride,
							 .table = scene->table,
							 .pieces_of_page = pieces,
							 .n_pieces = n_pages * pieces });
}

static uint64_t
bytes_new(const struct gpu_scene *scene)
{
	return scene->pool->layer_page_bytes / scene->pool->info.page_size * scene->total_q;
}

/* Between the halves of a layer, or of the pool. */
static void
copy_within(struct gpu_scene *scene, cuda_address from, uint64_t size)
{
	gpu_must(scene->gpu, scene->gpu->cuda.driver.copy(from + size, from, size, scene->gpu->stream));
}

static void
pages_copy(struct gpu_scene *scene)
{
	const struct paged_pool_info *info = &scene->pool->info;
	const struct paged_plane_info *const planes[] = { &info->k, &info->v };
	struct cuda_copy_params params = { .n_planes = 2,
					   .n_copies = scene->n_pages,
					   .n_layers = info->n_layers,
					   .n_heads = info->n_kv_heads,
					   .page_size = info->page_size };

	for (unsigned int i = 0; i < 2; i++) {
		params.from.address[i] = (uintptr_t)info->base + planes[i]->offset;
		params.from.layer_stride[i] = planes[i]->layer_stride;
		params.from.page_stride[i] = planes[i]->page_stride;
		params.from.head_stride[i] = planes[i]->head_stride;
		params.token_stride[i] = (uint32_t)planes[i]->token_stride;
	}
	params.from.n_pages = info->n_pages;
	params.to = params.from;
	params.from.pages = scene->table;
	params.to.pages = scene->free_pages;
	gpu_must(scene->gpu,
		 scene->gpu->cuda.driver.launch(scene->copy_pages, scene->gpu->reader_blocks, 1, 1, CUDA_COPY_THREADS,
						1, 1, 0, scene->gpu->stream, (void *[]){ &params }, NULL));
}

static void
call_work(struct gpu_scene *scene, uint32_t call)
{
	const struct paged_attention_params params = { .struct_size = sizeof(params), .mods = scene->mods };
	const struct gpu_pool *pool = scene->pool;
	uint32_t layer = call % pool->info.n_layers;

	switch (scene->figure->work) {
	case GPU_STEP:
	case GPU_APPEND:
		must(pool, paged_append(scene->batch, layer, &scene->k, pool->info.v_in_k ? NULL : &scene->v, NULL));
		if (scene->figure->work == GPU_APPEND)
			return;
		/* fall through */
	case GPU_ATTENTION:
		must(pool, paged_attention(scene->batch, layer, &scene->q, &scene->out, &params));
		return;
	case GPU_PLAN:
		must(pool, paged_batch_plan_device(scene->batch, &scene->plan));
		return;
	case GPU_READ:
		read_one(scene, call, scene->n_pages);
		return;
	case GPU_EMPTY:
		read_one(scene, call, 0);
		return;
	case GPU_COPY:
		copy_within(scene, layer_address(scene, call), pool->layer_page_bytes * scene->n_pages / 2);
		return;
	case GPU_COPY_NEW:
		copy_within(scene, layer_address(scene, call), bytes_new(scene));
		return;
	case GPU_COPY_PAGES:
		pages_copy(scene);
		return;
	case GPU_COPY_ALL:
		copy_within(scene, layer_address(scene, 0), pool->info.page_bytes * scene->n_pages);
		return;
	}
}

void
gpu_scene_work(struct gpu *gpu, void *argument)
{
	struct gpu_scene *scene = argument;

	(void)gpu;
	if (figure_has_batch(scene->figure) && scene->figure->work != GPU_PLAN)
		must(scene->pool, paged_batch_plan_device(scene->batch, &scene->plan));
	for (uint32_t call = 0; call < scene->n_calls; call++)
		call_work(scene, call);
}

double
gpu_scene_parts(const struct gpu_scene *scene)
{
	return scene->n_calls;
}

void
gpu_scene_check(const struct gpu_scene *scene)
{
	uint16_t first[64];

	if (!figure_has_batch(scene->figure))
		return;
	must(scene->pool, paged_batch_validate(scene->batch));
	if (scene->figure->work != GPU_ATTENTION)
		return;
	gpu_must(scene->gpu, scene->gpu->cuda.driver.copy_out(first, (uintptr_t)scene->out.data, sizeof(first),
							      scene->gpu->stream));
	gpu_must(scene->gpu, scene->gpu->cuda.driver.stream_synchronize(scene->gpu->stream));
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		if ((first[i] & 0x7f80) == 0x7f80)
			bench_die("%s: element %zu of the result is not finite", scene->figure->name, i);
}

/* Scores that a causal mask leaves, of one head. */
static double
scores_of(const struct gpu_scene *scene)
{
	double n = 0;

	for (uint32_t r = 0; r < scene->n_rows; r++) {
		const struct paged_batch_row *row = &scene->rows[r];

		n += (double)row->q_len * (row->kv_len - (row->q_len - 1) / 2.0);
	}
	return n;
}

void
gpu_scene_amount(const struct gpu_scene *scene, struct bench_case *result)
{
	const struct gpu_shape *shape = &scene->pool->shape;
	double pages = (double)scene->pool->layer_page_bytes * scene->n_pages;

	switch (scene->figure->work) {
	case GPU_ATTENTION:
	case GPU_STEP:
		if (scene->total_q > scene->n_rows || scene->figure->latent)
			result->flops = 2.0 * (shape->k_dim + shape->v_dim) * shape->n_q_heads * scores_of(scene);
		else
			result->bytes = pages;
		return;
	case GPU_READ:
	case GPU_COPY: /* half of them, read and written */
		result->bytes = pages;
		return;
	case GPU_APPEND:
	case GPU_COPY_NEW:
		result->bytes = 2.0 * (double)bytes_new(scene);
		return;
	case GPU_COPY_PAGES:
	case GPU_COPY_ALL:
		result->bytes = 2.0 * (double)scene->pool->info.page_bytes * scene->n_pages;
		return;
	case GPU_PLAN:
	case GPU_EMPTY:
		return;
	}
}
