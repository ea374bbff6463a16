/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/cuda_kernel_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/tensor_map.h"
#include "tests/fake-cuda/kernels/link.h"
#include "tests/kernels/cuda/combine_check.h"

#define SHARED_SIZE (163u << 10) /* the limit of sm_80 */
#define WGMMA_SHARED_SIZE CUDA_WGMMA_SHARED_128

static uint64_t
region_add(struct cuda_arena *arena, const void *data, size_t size, bool writable, bool owned, const char *name)
{
	cr_assert_lt(arena->n, CUDA_ARENA_MAX_REGIONS);
	cr_assert(simt_region_add(data, size, writable, name), "%s", name);
	arena->regions[arena->n] = (void *)(uintptr_t)data;
	arena->owned[arena->n++] = owned;
	return (uintptr_t)data;
}

uint64_t
cuda_arena_register(struct cuda_arena *arena, const void *data, size_t size, bool writable, const char *name)
{
	return data == NULL || size == 0 ? 0 : region_add(arena, data, size, writable, false, name);
}

uint64_t
cuda_arena_alloc(struct cuda_arena *arena, const void *data, size_t size, bool writable, const char *name)
{
	void *copy = aligned_alloc(64, (size + 64) & ~(size_t)63);

	cr_assert_not_null(copy);
	if (data != NULL)
		memcpy(copy, data, size);
	else
		memset(copy, 0xff, size);
	return region_add(arena, copy, size == 0 ? 1 : size, writable, true, name);
}

void
cuda_arena_destroy(struct cuda_arena *arena)
{
	for (uint32_t i = 0; i < arena->n; i++) {
		simt_region_remove(arena->regions[i]);
		if (arena->owned[i])
			free(arena->regions[i]);
	}
	arena->n = 0;
}

void
cuda_kernel_run(const char *kernel, const void *params, uint32_t n_blocks, uint32_t n_threads, size_t shared_size,
		uint64_t seed)
{
	const struct simt_launch launch = {
		.kernel = simt_find(kernel),
		.params = params,
		.grid = { n_blocks, 1 },
		.n_threads = n_threads,
		.shared_size = shared_size,
		.seed = seed,
	};
	char what[512] = "";

	cr_assert_not_null(launch.kernel, "no kernel %s", kernel);
	cr_assert(simt_run(&launch, what, sizeof(what)), "%s, seed %u: %s", kernel, (unsigned int)seed, what);
}

static void
kernels_link(void)
{
	simt_link_append();
	simt_link_attention_bulk();
	simt_link_attention_bulk_window();
	simt_link_attention_bytes();
	simt_link_attention_bytes_document();
	simt_link_attention_bytes_window();
	simt_link_attention_combine();
	simt_link_attention_mla();
	simt_link_attention_mla_cluster();
	simt_link_attention_mla_cluster_window();
	simt_link_attention_mla_wgmma();
	simt_link_attention_mla_wgmma_window();
	simt_link_attention_mla_window();
	simt_link_attention_mma();
	simt_link_attention_mma_window();
	simt_link_attention_prefill();
	simt_link_attention_prefill_window();
	simt_link_attention_simt();
	simt_link_attention_simt_document();
	simt_link_attention_simt_window();
	simt_link_attention_wgmma();
	simt_link_attention_wgmma_window();
	simt_link_merge();
	simt_link_pages();
	simt_link_plan();
}

static uint32_t
row_entries(const struct kernel_row *row, uint32_t page_size)
{
	return (row->kv_len + page_size - 1) / page_size;
}

/* Copy the rows to device arrays. Entries of the page table past a row's pages stay UINT32_MAX: unmapped. */
static void
inputs_make(struct cuda_batch *batch, const struct cuda_batch_params *params)
{
	struct cuda_plan_params *p = &batch->plan;
	uint32_t n = params->n_rows;
	int64_t *q_base;

	p->q_indptr = cuda_arena_alloc(&batch->arena, NULL, (n + 1) * sizeof(int32_t), false, "q_indptr");
	p->kv_len = cuda_arena_alloc(&batch->arena, NULL, n * sizeof(int32_t), false, "kv_len");
	p->q_base = cuda_arena_alloc(&batch->arena, NULL, n * sizeof(int64_t), false, "q_base");
	p->q_base_bytes = 8;
	p->writable_from = cuda_arena_alloc(&batch->arena, NULL, n * sizeof(uint32_t), false, "writable_from");
	p->kv_first = cuda_arena_alloc(&batch->arena, NULL, n * sizeof(uint32_t), false, "kv_first");
	batch->q_indptr = (void *)(uintptr_t)p->q_indptr;
	batch->kv_len = (void *)(uintptr_t)p->kv_len;
	q_base = (void *)(uintptr_t)p->q_base;
	batch->writable_from = (void *)(uintptr_t)p->writable_from;
	batch->kv_first = (void *)(uintptr_t)p->kv_first;
	batch->q_indptr[0] = 0;
	for (uint32_t r = 0; r < n; r++) {
		const struct kernel_row *row = &params->rows[r];

		batch->q_indptr[r + 1] = (int32_t)(row->q_start + row->q_len);
		batch->kv_len[r] = (int32_t)row->kv_len;
		batch->kv_first[r] = row->kv_first;
		q_base[r] = row->q_base;
		batch->writable_from[r] = row->skip_append ? CUDA_WRITABLE_SKIP : 0;
	}
	p->plan.table =
		cuda_arena_alloc(&batch->arena, NULL, n * p->plan.table_stride * sizeof(uint32_t), false, "page table");
	batch->table = (void *)(uintptr_t)p->plan.table;
	for (uint32_t r = 0; r < n; r++)
		memcpy(batch->table + r * p->plan.table_stride, params->rows[r].pages,
		       row_entries(&params->rows[r], params->page_size) * sizeof(uint32_t));
}

static void
plan_make(struct cuda_batch *batch)
{
	struct cuda_plan_params *p = &batch->plan;
	struct cuda_arena *arena = &batch->arena;

	p->plan.head = cuda_arena_alloc(arena, NULL, sizeof(struct cuda_plan_head), true, "plan's head");
	p->plan.rows = cuda_arena_alloc(arena, NULL, batch->size.rows_bytes, true, "plan's rows");
	p->plan.first_work_item = cuda_arena_alloc(arena, NULL, batch->size.first_work_item_bytes, true, "first items");
	p->counters = cuda_arena_alloc(arena, NULL, batch->size.counters_bytes, true, "counters");
	batch->head = (void *)(uintptr_t)p->plan.head;
	batch->rows = (void *)(uintptr_t)p->plan.rows;
	batch->first_work_item = (void *)(uintptr_t)p->plan.first_work_item;
}

void
cuda_batch_create(struct cuda_batch *batch, const struct cuda_batch_params *params)
{
	struct cuda_plan_bounds bounds = {
		.n_rows = params->n_rows,
		.max_kv_len = params->max_kv_len,
		.n_q_heads = params->n_q_heads,
		.n_kv_heads = params->n_kv_heads,
		.v_dim = params->v_dim,
		.max_tile_q_rows = params->max_tile_q_rows == 0 ? CUDA_TILE_Q_ROWS : params->max_tile_q_rows,
		.prefill_tile_q_rows = params->prefill_tile_q_rows,
		.wide_kv_chunk_factor = params->wide_kv_chunk_factor,
		.target_work_items = params->target_work_items,
	};
	struct paged_error error;

	kernels_link();
	for (uint32_t r = 0; r < params->n_rows; r++) {
		const struct kernel_row *row = &params->rows[r];

		if (params->max_kv_len == 0 && row->kv_len > bounds.max_kv_len)
			bounds.max_kv_len = row->kv_len;
		if (row->q_start + row->q_len > bounds.max_total_q)
			bounds.max_total_q = (uint32_t)(row->q_start + row->q_len);
	}
	*batch = (struct cuda_batch){ .plan = { .page_size = params->page_size,
						.n_q_heads = params->n_q_heads,
						.n_kv_heads = params->n_kv_heads,
						.max_total_q = bounds.max_total_q,
						.max_q_len = bounds.max_total_q,
						.max_kv_len = bounds.max_kv_len,
						.max_tile_q_rows = bounds.max_tile_q_rows,
						.prefill_tile_q_rows = bounds.prefill_tile_q_rows,
						.wide_kv_chunk_factor = bounds.wide_kv_chunk_factor } };
	cr_assert_eq(cuda_plan_measure(&bounds, &batch->size, &error), PAGED_OK, "%s", error.text);
	batch->plan.target_work_items = batch->size.target_work_items;
	batch->plan.max_work_items = batch->size.max_work_items;
	batch->plan.max_counters = batch->size.max_counters;
	batch->plan.max_states = batch->size.max_states;
	batch->plan.plan.n_rows = params->n_rows;
	batch->plan.plan.table_stride = (bounds.max_kv_len + params->page_size - 1) / params->page_size;
	inputs_make(batch, params);
	plan_make(batch);
}

void
cuda_batch_plan(struct cuda_batch *batch, uint64_t seed)
{
	cuda_kernel_run("plan_batch", &batch->plan, 1, CUDA_PLAN_THREADS, 1024, seed);
}

void
cuda_batch_destroy(struct cuda_batch *batch)
{
	cuda_arena_destroy(&batch->arena);
}

static struct cuda_plane
plane_make(const struct kernel_pages *pages, unsigned int i, uint64_t base)
{
	const struct layout_plane *plane = &pages->layout->plane[i];

	if (plane->dtype == PAGED_DTYPE_NONE)
		return (struct cuda_plane){ .address = 0 };
	return (struct cuda_plane){ .address = base + plane->offset + pages->layer * plane->layer_stride,
				    .page_stride = plane->page_stride,
				    .head_stride = plane->head_stride,
				    .token_stride = plane->token_stride,
				    .dim = plane->dim,
				    .dtype = plane->dtype };
}

struct cuda_pages
cuda_fixture_pages(struct cuda_arena *arena, const struct kernel_pages *pages, bool writable)
{
	const struct layout *layout = pages->layout;
	uint64_t base = cuda_arena_register(arena, pages->base, layout->size, writable, "the pool");
	struct cuda_pages to = { .page_size = layout->params.page_size,
				 .n_pages = layout->params.n_pages,
				 .n_kv_heads = layout->params.n_kv_heads,
				 .v_in_k = layout->params.v_in_k };

	for (unsigned int i = 0; i < CUDA_N_PLANES; i++) {
		to.plane[i] = plane_make(pages, LAYOUT_K + i, base);
		to.scale[i] = plane_make(pages, LAYOUT_K_SCALE + i, base);
	}
	return to;
}

struct cuda_tensor
cuda_fixture_tensor(struct cuda_arena *arena, const struct kernel_tensor *tensor, uint64_t n_tokens, bool writable,
		    const char *name)
{
	return (struct cuda_tensor){ .address = cuda_arena_register(arena, tensor->data,
								    n_tokens * (uint64_t)tensor->token_stride, writable,
								    name),
				     .token_stride = tensor->token_stride,
				     .head_stride = tensor->head_stride,
				     .dtype = tensor->dtype,
				     .dim = tensor->dim };
}

static struct cuda_block_mask
blocks_make(struct cuda_arena *arena, const struct block_mask *mask)
{
	struct cuda_block_mask to = { .first_list = 0 };
	uint64_t n_lists;

	if (mask == NULL)
		return to;
	n_lists = mask->first_list[mask->shape.n_rows];
	to.first_list = cuda_arena_alloc(arena, mask->first_list, (mask->shape.n_rows + 1) * sizeof(uint64_t), false,
					 "first lists");
	for (unsigned int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t n = mask->start[kind][n_lists];

		to.start[kind] =
			cuda_arena_alloc(arena, mask->start[kind], (n_lists + 1) * sizeof(uint64_t), false, "lists");
		to.indices[kind] = cuda_arena_alloc(arena, mask->indices[kind], n * sizeof(uint32_t), false, "blocks");
	}
	to.n_rows = mask->shape.n_rows;
	to.n_heads = mask->shape.n_heads;
	to.q_block = mask->shape.q_block;
	to.kv_block = mask->shape.kv_block;
	to.ascending = mask->ascending;
	return to;
}

static bool
kernel_is_mla(const char *kernel)
{
	return strstr(kernel, "_mla_") != NULL;
}

static bool
kernel_has_clusters(const char *kernel)
{
	return strstr(kernel, "_cluster_") != NULL;
}

static uint32_t
kernel_wide_kv_chunk_factor(const char *kernel)
{
	if (!kernel_is_mla(kernel))
		return 0;
	return kernel_has_clusters(kernel) ? CUDA_CLUSTER_KV_CHUNK_FACTOR : CUDA_WIDE_KV_CHUNK_FACTOR;
}

/* The map as the model reads it (tensor_map.h); compute_cuda.c lets the driver make it. */
static struct cuda_tensor_map
keys_map_make(const struct cuda_pages *pages)
{
	const struct cuda_plane *k = &pages->plane[CUDA_K];
	const struct tensor_map contents = {
		.magic = TENSOR_MAP_MAGIC,
		.address = k->address,
		.stride = { TENSOR_MAP_ELEMENT, k->token_stride, k->head_stride, k->page_stride },
		.dim = { k->dim, pages->page_size, pages->n_kv_heads, pages->n_pages },
		.box = { CUDA_CLUSTER_DIMS,
			 pages->page_size < CUDA_CLUSTER_TOKENS ? pages->page_size : CUDA_CLUSTER_TOKENS, 1, 1 },
	};
	struct cuda_tensor_map map = { { 0 } };

	memcpy(&map, &contents, sizeof(contents));
	return map;
}

static void
attention_kernel_launch(const char *kernel, const struct cuda_attention_params *p, uint32_t n_blocks, uint64_t seed)
{
	const struct simt_kernel *found = simt_find(kernel);

	cr_assert_not_null(found, "no kernel %s", kernel);
	if (kernel_has_clusters(kernel))
		cuda_kernel_run(
			kernel,
			&(struct cuda_attention_cluster_params){ .attention = *p, .keys = keys_map_make(&p->pages) },
			n_blocks + n_blocks % CUDA_CLUSTER_BLOCKS, found->max_threads, p->shared_size, seed);
	else
		cuda_kernel_run(kernel, p, n_blocks, found->max_threads, p->shared_size, seed);
}

/* Kernels that fetch as many tiles ahead as have room run with each size that a launcher gives, by the seed. */
static uint32_t
kernel_shared_size(const char *kernel, const struct cuda_attention_options *options)
{
	if (strstr(kernel, "_mla_wgmma_") != NULL || kernel_has_clusters(kernel))
		return CUDA_MLA_WGMMA_SHARED;
	if (strstr(kernel, "wgmma") != NULL)
		return WGMMA_SHARED_SIZE;
	if (strstr(kernel, "_mla_") != NULL)
		return options->max_tile_q_rows == CUDA_TILE_Q_ROWS ? CUDA_MLA_SHARED_LEAST
		       : options->seed % 2                          ? CUDA_MLA_SHARED_MORE
								    : CUDA_MLA_SHARED;
	if (strstr(kernel, "_mma_") != NULL && options->seed % 2 == 0)
		return strstr(kernel, "_128") != NULL   ? CUDA_MMA_SHARED_128_LEAST
		       : strstr(kernel, "_256") != NULL ? CUDA_MMA_SHARED_256_LEAST
							: CUDA_MMA_SHARED_64;
	return SHARED_SIZE;
}

/* Run a kernel, then combine_kv_chunks for tiles with many KV chunks; in half of the runs three are many. */
static void
attention_kernel_run(const char *kernel, struct cuda_attention_params *p, const struct cuda_attention_options *options)
{
	p->shared_size = kernel_shared_size(kernel, options);
	p->block_kv_chunks = kernel_is_mla(kernel)                 ? 1
			     : p->pages.plane[CUDA_V].dim % 4 != 0 ? CUDA_MAX_KV_CHUNKS
			     : options->seed / 2 % 2               ? 2
								   : CUDA_BLOCK_KV_CHUNKS;
	attention_kernel_launch(kernel, p, options->n_blocks == 0 ? 3 : options->n_blocks, options->seed);
	if (p->block_kv_chunks < CUDA_MAX_KV_CHUNKS)
		cuda_kernel_run("combine_kv_chunks", p, 1 + (uint32_t)(options->seed % 4), CUDA_COMBINE_THREADS,
				CUDA_COMBINE_SHARED, options->seed);
}

void
cuda_attention_run(const struct attention_args *args, uint64_t total_q, const struct cuda_attention_options *options)
{
	const struct layout *layout = args->pages.layout;
	size_t q_rows = total_q * args->q.n_heads * sizeof(float);
	struct cuda_attention_params p;
	struct cuda_batch batch;
	struct cuda_arena *arena = &batch.arena;

	cuda_batch_create(&batch,
			  &(struct cuda_batch_params){
				  .rows = args->rows,
				  .n_rows = args->n_rows,
				  .page_size = layout->params.page_size,
				  .n_q_heads = args->q.n_heads,
				  .n_kv_heads = layout->params.n_kv_heads,
				  .v_dim = layout->params.v_dim,
				  .max_tile_q_rows = options->max_tile_q_rows,
				  .prefill_tile_q_rows = options->prefill != NULL ? CUDA_PREFILL_TILE_Q_ROWS : 0,
				  .wide_kv_chunk_factor = kernel_wide_kv_chunk_factor(options->kernel),
				  .target_work_items = options->target_work_items });
	cuda_batch_plan(&batch, options->seed);
	cr_assert_eq(batch.head->faults, 0, "faults %u of row %u", batch.head->faults, batch.head->fault_row);
	p = (struct cuda_attention_params){
		.pages = cuda_fixture_pages(arena, &args->pages, false),
		.plan = batch.plan.plan,
		.q = cuda_fixture_tensor(arena, &args->q, total_q, false, "queries"),
		.out = cuda_fixture_tensor(arena, &args->out, total_q, true, "the output"),
		.blocks = blocks_make(arena, options->blocks),
		.sink = cuda_arena_register(arena, args->sink, args->q.n_heads * sizeof(float), false, "sinks"),
		.lse = cuda_arena_register(arena, args->lse, q_rows, true, "the LSE"),
		.max_score = cuda_arena_register(arena, args->max_score, q_rows, true, "maxima"),
		.mod = options->mod == NULL ? 0
					    : cuda_arena_alloc(arena, options->mod, options->mod_size, false, "mod"),
		.counters = batch.plan.counters,
		.workspace_states =
			cuda_arena_alloc(arena, NULL, batch.size.workspace_states_bytes, true, "softmax states"),
		.workspace_values =
			cuda_arena_alloc(arena, NULL, batch.size.workspace_values_bytes, true, "sums of values"),
		.n_q_heads = args->q.n_heads,
		.scale = args->scale,
		.causal = args->causal,
		.lse_without_sink = args->lse_without_sink,
		.k_scale = cuda_arena_register(arena, args->k_scale, layout->params.n_kv_heads * sizeof(float), false,
					       "K scales"),
		.v_scale = cuda_arena_register(arena, args->v_scale, layout->params.n_kv_heads * sizeof(float), false,
					       "V scales"),
	};
	attention_kernel_run(options->kernel, &p, options);
	if (options->prefill != NULL) {
		p.plan.first_work_item += (args->n_rows + UINT64_C(1)) * sizeof(uint32_t);
		attention_kernel_run(options->prefill, &p, options);
	}
	cr_assert_eq(batch.head->faults, 0, "faults %u of row %u", batch.head->faults, batch.head->fault_row);
	combine_check(&p);
	for (uint32_t i = 0; i < batch.size.max_counters; i++)
		cr_assert(((uint32_t *)(uintptr_t)batch.plan.counters)[i] == 0 ||
				  ((uint32_t *)(uintptr_t)batch.plan.counters)[i] == UINT32_MAX,
			  "counter %u is left at %u", i, ((uint32_t *)(uintptr_t)batch.plan.counters)[i]);
	cuda_batch_destroy(&batch);
}

void
cuda_fixture_attend(struct kernel_fixture *fixture, const struct cuda_attention_options *options)
{
	const struct kernel_fixture_params *p = &fixture->params;
	size_t q_rows = fixture->total_q * p->q_heads;

	memset(fixture->out.data, 0xff, fixture->out_bytes);
	memset(fixture->lse, 0xff, q_rows * sizeof(float));
	memset(fixture->max_score, 0xff, q_rows * sizeof(float));
	cuda_attention_run(&(struct attention_args){ .pages = { &fixture->layout, fixture->pool, KERNEL_FIXTURE_LAYER },
						     .rows = fixture->rows,
						     .n_rows = p->n_rows,
						     .q = fixture->q,
						     .out = fixture->out,
						     .scale = p->scale,
						     .causal = p->causal,
						     .sink = p->sink,
						     .lse_without_sink = p->lse_without_sink,
						     .lse = fixture->lse,
						     .max_score = fixture->max_score,
						     .k_scale = p->k_scale,
						     .v_scale = p->v_scale },
			   fixture->total_q, options);
}

void
cuda_fixture_check(const struct kernel_fixture_params *params, const struct cuda_attention_options *options)
{
	struct kernel_fixture fixture;
	char what[256];
	bool good;

	kernel_fixture_create(&fixture, params);
	cuda_fixture_attend(&fixture, options);
	good = kernel_fixture_check(&fixture, what, sizeof(what));
	kernel_fixture_destroy(&fixture);
	cr_assert(good,
		  "%s and %s, order %" PRIu64
		  ", %u/%u heads, dims %u %u, page size %u, kv_len %u from %u, pool %s, q %s, out %s: %s",
		  options->kernel, options->prefill == NULL ? "no other" : options->prefill, options->seed,
		  params->q_heads, params->kv_heads, params->k_dim, params->v_dim, params->page_size,
		  params->rows[0].kv_len, params->rows[0].kv_first, paged_dtype_name(params->pool),
		  paged_dtype_name(params->q), paged_dtype_name(params->out), what);
}

uint32_t
cuda_fixture_unmapped_faults(const struct kernel_fixture_params *params, uint32_t page, const char *kernel,
			     uint32_t shared_size)
{
	struct cuda_attention_params p;
	struct cuda_batch batch;
	struct kernel_fixture fixture;
	uint32_t faults;

	kernel_fixture_create(&fixture, params);
	cuda_batch_create(&batch, &(struct cuda_batch_params){
					  .rows = fixture.rows,
					  .n_rows = 1,
					  .page_size = params->page_size,
					  .n_q_heads = params->q_heads,
					  .n_kv_heads = params->kv_heads,
					  .v_dim = params->v_dim,
					  .max_tile_q_rows = kernel_has_clusters(kernel) ? CUDA_MAX_TILE_Q_ROWS : 0,
					  .target_work_items = 1 });
	cuda_batch_plan(&batch, 0);
	batch.table[page] = UINT32_MAX;
	p = (struct cuda_attention_params){
		.pages = cuda_fixture_pages(
			&batch.arena, &(struct kernel_pages){ &fixture.layout, fixture.pool, KERNEL_FIXTURE_LAYER },
			false),
		.plan = batch.plan.plan,
		.q = cuda_fixture_tensor(&batch.arena, &fixture.q, 1, false, "queries"),
		.out = cuda_fixture_tensor(&batch.arena, &fixture.out, 1, true, "the output"),
		.n_q_heads = params->q_heads,
		.scale = 1,
		.shared_size = shared_size,
		.block_kv_chunks = 1,
	};
	attention_kernel_launch(kernel, &p, 2, 5);
	faults = batch.head->faults;
	cuda_batch_destroy(&batch);
	kernel_fixture_destroy(&fixture);
	return faults;
}
