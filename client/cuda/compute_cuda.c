/* SPDX-License-Identifier: Apache-2.0 */
/* The compute operations of the back end cuda: fill the kernels' parameters and launch on the batch's stream. */
#include "config.h"

#include <assert.h>
#include <inttypes.h>

#include "client/cuda/compute_cuda_batch.h"
#include "client/cuda/compute_cuda_block_mask.h"
#include "client/cuda/compute_cuda_marks.h"
#include "client/cuda/compute_cuda_mod_set.h"
#include "client/owner/map_cuda.h"

static void
cuda_describe(const struct paged_pool *pool, struct paged_pool_info *info)
{
	info->isa = map_cuda_gpu(&pool->mapping)->isa;
	info->device = map_cuda_gpu(&pool->mapping)->uuid_text;
}

static enum paged_status
cuda_stream_set(struct paged_batch *batch, void *stream, struct paged_error *error)
{
	(void)error;
	cuda_batch_of(batch)->stream = stream;
	return PAGED_OK;
}

/* All launches are made with the pool's context current; the caller's context is restored afterwards. */
static enum paged_status
cuda_plan(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_plan(batch, lengths, error));
}

static enum paged_status
cuda_protect(struct paged_batch *batch, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_protect(batch, error));
}

static enum paged_status
cuda_validate(struct paged_batch *batch, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_faults(batch, error));
}

static struct cuda_plane
cuda_plane_view(const struct kernel_pages *pages, unsigned int i)
{
	const struct layout_plane *plane = &pages->layout->plane[i];

	if (plane->dtype == PAGED_DTYPE_NONE)
		return (struct cuda_plane){ .address = 0 };
	return (struct cuda_plane){
		.address = (uintptr_t)pages->base + plane->offset + pages->layer * plane->layer_stride,
		.page_stride = plane->page_stride,
		.head_stride = plane->head_stride,
		.token_stride = plane->token_stride,
		.dim = plane->dim,
		.dtype = (uint32_t)plane->dtype,
	};
}

static struct cuda_pages
cuda_pages_view(const struct kernel_pages *pages)
{
	const struct layout *layout = pages->layout;
	struct cuda_pages to = {
		.page_size = layout->params.page_size,
		.n_pages = layout->params.n_pages,
		.n_kv_heads = layout->params.n_kv_heads,
		.v_in_k = layout->params.v_in_k,
	};

	for (unsigned int i = 0; i < CUDA_N_PLANES; i++) {
		to.plane[i] = cuda_plane_view(pages, LAYOUT_K + i);
		to.scale[i] = cuda_plane_view(pages, LAYOUT_K_SCALE + i);
	}
	return to;
}

static struct cuda_tensor
cuda_tensor_view(const struct kernel_tensor *tensor)
{
	return (struct cuda_tensor){
		.address = (uintptr_t)tensor->data,
		.token_stride = tensor->token_stride,
		.head_stride = tensor->head_stride,
		.batch_skip = tensor->batch_skip,
		.batch_tokens = tensor->batch_tokens,
		.dtype = (uint32_t)tensor->dtype,
		.dim = tensor->dim,
	};
}

/* A rotary embedding, or none. */
static struct cuda_rotary
cuda_rotary_view(const struct kernel_rotary *rotary)
{
	if (rotary == NULL)
		return (struct cuda_rotary){ .cos_sin = 0 };
	return (struct cuda_rotary){
		.cos_sin = (uintptr_t)rotary->cos_sin,
		.positions = (uintptr_t)rotary->positions,
		.q = cuda_tensor_view(&rotary->q),
		.q_out = cuda_tensor_view(&rotary->q_out),
		.n_positions = rotary->n_positions,
		.dim = rotary->dim,
		.first = rotary->first,
		.interleaved = rotary->interleaved,
		.n_q_heads = rotary->q.n_heads,
	};
}

/* Before a kernel that reads the plan: a captured plan is valid only in a graph, any other plan only outside one. */
static enum paged_status
compute_cuda_check_plan(const struct paged_batch *batch, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status;
	bool capturing;

	if (cuda->tables_only)
		return paged_fail(error, PAGED_ERR_INVALID, "the plan has tables alone, for a captured graph");
	status = compute_cuda_capture(batch, &capturing, error);
	if (status != PAGED_OK || capturing == cuda->captured)
		return status;
	if (capturing)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "the stream is being captured, and the plan was made before:"
				  " capture paged_batch_plan_device() too");
	return paged_fail(error, PAGED_ERR_INVALID, "the plan is a captured graph's: outside of it plan again");
}

/* Launch a kernel that reads the plan; n_blocks 0: there is no work. */
static enum paged_status
compute_cuda_launch(const struct paged_batch *batch, const struct cuda_kernel *kernel, uint64_t n_blocks,
		    const void *params, struct paged_error *error)
{
	enum paged_status status = compute_cuda_check_plan(batch, error);

	if (status != PAGED_OK || n_blocks == 0)
		return status;
	return cuda_kernels_launch(batch->pool, kernel, n_blocks, params, cuda_batch_of(batch)->stream, error);
}

static enum paged_status
cuda_append(struct paged_batch *batch, const struct append_args *args, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_append_params p = {
		.pages = cuda_pages_view(&args->pages),
		.plan = compute_cuda_view(batch, compute_cuda_shape_any(batch)),
		.k = cuda_tensor_view(&args->k),
		.v = cuda_tensor_view(&args->v),
		.positions = (uintptr_t)args->positions,
		.k_scale = (uintptr_t)args->k_scale,
		.v_scale = (uintptr_t)args->v_scale,
		.rotary = cuda_rotary_view(args->rotary),
	};
	enum paged_status status;

	status = MAP_CUDA_RUN(cuda->gpu, error,
			      compute_cuda_launch(batch, &cuda->kernels->append, batch->total_q, &p, error));
	cuda->appends |= cuda->captured && status == PAGED_OK;
	return status;
}

static enum paged_status
cuda_gather(struct paged_batch *batch, const struct gather_args *args, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_gather_params p = {
		.pages = cuda_pages_view(&args->pages),
		.plan = compute_cuda_view(batch, compute_cuda_shape_any(batch)),
		.k = cuda_tensor_view(&args->k),
		.v = cuda_tensor_view(&args->v),
		.begin = (uintptr_t)args->begin,
		.end = (uintptr_t)args->end,
		.k_scale = (uintptr_t)args->k_scale,
		.v_scale = (uintptr_t)args->v_scale,
	};
	uint64_t n_tokens = 0;

	for (uint32_t r = 0; r < args->n_rows; r++)
		n_tokens += args->rows[r].kv_len;
	return MAP_CUDA_RUN(cuda->gpu, error, compute_cuda_launch(batch, &cuda->kernels->gather, n_tokens, &p, error));
}

/* Can the plan have work for this part?  If the device has the lengths, q_len is between min_q_len and max_q_len. */
static bool
compute_cuda_has_part(const struct cuda_batch *cuda, const struct cuda_attention *attention,
		      enum cuda_attention_part part, const struct cuda_attention_params *p)
{
	uint32_t group = p->n_q_heads / p->pages.n_kv_heads;
	uint64_t least = (uint64_t)cuda->min_q_len * group, most = (uint64_t)cuda->params.max_q_len * group;
	uint32_t tile_q_rows = attention->choices[CUDA_DECODE].tile_q_rows;
	bool has_prefill = attention->choices[CUDA_PREFILL].kernel != NULL;
	bool clusters = cuda_uses_clusters(attention->choices, group) && p->blocks.first_list == 0;

	switch (part) {
	case CUDA_CLUSTER:
		return clusters;
	case CUDA_PREFILL:
		return has_prefill && most > tile_q_rows;
	default:
		return !clusters && (!has_prefill || least <= tile_q_rows);
	}
}

/* Make the map of a layer's K for a kernel of clusters. */
static enum paged_status
compute_cuda_keys_map(const struct paged_batch *batch, const struct cuda_pages *pages, struct cuda_tensor_map *map,
		      struct paged_error *error)
{
	const struct cuda_plane *k = &pages->plane[CUDA_K];
	const uint64_t dims[] = { k->dim, pages->page_size, pages->n_kv_heads, pages->n_pages };
	const uint64_t strides[] = { k->token_stride, k->head_stride, k->page_stride };
	const uint32_t box[] = { CUDA_CLUSTER_DIMS,
				 pages->page_size < CUDA_CLUSTER_TOKENS ? pages->page_size : CUDA_CLUSTER_TOKENS, 1,
				 1 };
	const uint32_t element_strides[] = { 1, 1, 1, 1 };
	int result = cuda_batch_of(batch)->gpu->driver.tensor_map_encode(
		map, CUDA_TENSOR_U16, 4, k->address, dims, strides, box, element_strides, CUDA_TENSOR_INTERLEAVE_NONE,
		CUDA_TENSOR_SWIZZLE_128B, CUDA_TENSOR_L2_PROMOTION_256B, CUDA_TENSOR_FILL_ZERO);

	return map_cuda_check(&batch->pool->mapping, result, error,
			      "cuTensorMapEncodeTiled of %u pages of %u tokens of %u dims", pages->n_pages,
			      pages->page_size, k->dim);
}

static enum paged_status
compute_cuda_launch_kernel(const struct paged_batch *batch, const struct cuda_kernel *kernel,
			   const struct cuda_attention_params *p, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	struct cuda_attention_cluster_params of_clusters;
	enum paged_status status;

	assert(!kernel->clusters || p->blocks.first_list == 0);
	if (!kernel->clusters)
		return cuda_kernels_launch(batch->pool, kernel, cuda->params.max_work_items, p, cuda->stream, error);
	of_clusters.attention = *p;
	status = compute_cuda_keys_map(batch, &p->pages, &of_clusters.keys, error);
	if (status != PAGED_OK)
		return status;
	return cuda_kernels_launch(batch->pool, kernel, cuda->params.max_work_items, &of_clusters, cuda->stream, error);
}

/* May a row have n KV chunks?  Its tiles have target_work_items for all KV heads, as plan_row_split() cuts it. */
static bool
compute_cuda_may_have_kv_chunks(const struct cuda_batch *cuda, const struct cuda_attention_params *p, uint32_t n)
{
	return cuda->most_kv_chunks >= n && cuda->params.target_work_items / p->pages.n_kv_heads >= n;
}

/* Launch the kernels that have work.  The prefill kernel finds its items where the plan numbers them separately. */
static enum paged_status
compute_cuda_launch_parts(const struct paged_batch *batch, const struct cuda_attention *attention,
			  const struct cuda_kernel kernels[CUDA_N_PARTS], struct cuda_attention_params *p,
			  struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	uint64_t first_work_item = p->plan.first_work_item;
	enum paged_status status = PAGED_OK;

	for (unsigned int part = 0; status == PAGED_OK && part < CUDA_N_PARTS; part++) {
		if (!compute_cuda_has_part(cuda, attention, part, p))
			continue;
		p->shared_size = kernels[part].shared_size;
		p->block_kv_chunks = attention->choices[part].block_kv_chunks;
		p->plan.first_work_item = first_work_item;
		if (part == CUDA_PREFILL)
			p->plan.first_work_item += (p->plan.n_rows + UINT64_C(1)) * sizeof(uint32_t);
		status = compute_cuda_launch_kernel(batch, &kernels[part], p, error);
		if (status == PAGED_OK && compute_cuda_may_have_kv_chunks(cuda, p, p->block_kv_chunks + 1))
			status = cuda_kernels_launch(batch->pool, &cuda->kernels->combine,
						     (uint64_t)cuda->params.max_work_items * CUDA_COMBINE_BLOCKS, p,
						     cuda->stream, error);
	}
	return status;
}

/* With the context current. */
static enum paged_status
compute_cuda_launch_attention(struct paged_batch *batch, const struct attention_args *args, struct paged_mod_set *set,
			      struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_attention *attention = &cuda->kernels->attention[args->q.dtype];
	struct cuda_attention_params p = {
		.pages = cuda_pages_view(&args->pages),
		.q = cuda_tensor_view(&args->q),
		.out = cuda_tensor_view(&args->out),
		.sink = (uintptr_t)args->sink,
		.lse = (uintptr_t)args->lse,
		.max_score = (uintptr_t)args->max_score,
		.counters = cuda->params.counters,
		.workspace_states = cuda->workspace_states,
		.workspace_values = cuda->workspace_values,
		.n_q_heads = args->q.n_heads,
		.scale = args->scale,
		.causal = args->causal,
		.lse_without_sink = args->lse_without_sink,
		.k_scale = (uintptr_t)args->k_scale,
		.v_scale = (uintptr_t)args->v_scale,
	};
	const struct cuda_kernel *kernels = attention->kernels;
	const struct cuda_shape *shape;
	enum paged_status status = compute_cuda_check_plan(batch, error);

	if (status != PAGED_OK || batch->total_q == 0)
		return status;
	if (set != NULL && set->blocks != NULL)
		p.blocks = compute_cuda_block_mask_view(set->blocks);
	if (set != NULL && set->device != NULL)
		status = compute_cuda_mod_set_kernels(set, args->q.dtype, &kernels, &p.mod, error);
	if (status == PAGED_OK)
		status = compute_cuda_shape(batch, args->q.n_heads, attention, &shape, error);
	if (status != PAGED_OK)
		return status;
	p.plan = compute_cuda_view(batch, shape);
	return compute_cuda_launch_parts(batch, attention, kernels, &p, error);
}

static enum paged_status
cuda_attention(struct paged_batch *batch, const struct attention_args *args, struct paged_mod_set *set,
	       struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_launch_attention(batch, args, set, error));
}

static enum paged_status
cuda_merge(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct cuda_merge_params p = {
		.part = { cuda_tensor_view(&args->part[0].out), cuda_tensor_view(&args->part[1].out) },
		.part_lse = { (uintptr_t)args->part[0].lse, (uintptr_t)args->part[1].lse },
		.out = cuda_tensor_view(&args->out),
		.lse = (uintptr_t)args->lse,
		.n_tokens = (uint32_t)args->n_tokens,
		.n_heads = args->out.n_heads,
	};
	uint32_t warps = CUDA_MERGE_THREADS / 32;
	enum paged_status status;
	bool capturing;

	if (args->n_tokens == 0)
		return PAGED_OK;
	if (args->n_tokens > UINT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "merge of %" PRIu64 " query rows: 2^32 - 1 are possible",
				  args->n_tokens);
	status = cuda_gpu_enter(cuda->gpu, error);
	if (status != PAGED_OK)
		return status;
	/*
	 * A merge may be captured.  The check fails if the batch uses the default stream while another stream is being
	 * captured: the launch would invalidate that capture.
	 */
	status = compute_cuda_capture(batch, &capturing, error);
	if (status == PAGED_OK)
		status = cuda_kernels_launch(batch->pool, &cuda->kernels->merge,
					     (args->n_tokens * p.n_heads + warps - 1) / warps, &p, cuda->stream, error);
	return map_cuda_leave(cuda->gpu, status);
}

static enum paged_status
cuda_refuse_capture(struct paged_batch *batch, const char *why, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_refuse_capture(batch, why, error));
}

/* Whole pages are copied: what is past the tokens is never read. */
static enum paged_status
cuda_copy_pages(struct paged_batch *batch, uint32_t n, const uint32_t *from, const uint32_t *to,
		const uint32_t *n_tokens, struct paged_error *error)
{
	(void)n_tokens;
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_copy_pages(batch, n, from, to, error));
}

static enum paged_status
cuda_event_record(struct paged_batch *batch, uint32_t i, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_event_record(batch, i, error));
}

static bool
cuda_event_reached(struct paged_batch *batch, uint32_t i)
{
	const struct cuda_gpu *gpu = cuda_batch_of(batch)->gpu;
	struct paged_error error;
	bool reached;

	if (cuda_gpu_enter(gpu, &error) != PAGED_OK)
		return false;
	reached = compute_cuda_event_reached(batch, i);
	cuda_gpu_leave(gpu);
	return reached;
}

static enum paged_status
cuda_mark(struct paged_batch *batch, struct mark *mark, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_mark(batch, mark, error));
}

static enum paged_status
cuda_wait(struct paged_batch *batch, const struct mark *mark, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_wait(batch, mark, error));
}

static enum paged_status
cuda_finish(struct paged_batch *batch, struct paged_error *error)
{
	return MAP_CUDA_RUN(cuda_batch_of(batch)->gpu, error, compute_cuda_finish(batch, error));
}

const struct compute_ops compute_ops_cuda = {
	.name = "cuda",
	.on_device = true,
	.describe = cuda_describe,
	.client_close = compute_cuda_client_close,
	.batch_create = compute_cuda_create,
	.batch_destroy = compute_cuda_destroy,
	.stream = cuda_stream_set,
	.plan = cuda_plan,
	.protect = cuda_protect,
	.validate = cuda_validate,
	.mask_open = compute_cuda_block_mask_open,
	.mask_close = compute_cuda_block_mask_close,
	.mod_set_open = compute_cuda_mod_set_open,
	.mod_set_close = compute_cuda_mod_set_close,
	.mod_set_check = compute_cuda_mod_set_check,
	.mod_set_bound = compute_cuda_mod_set_bound,
	.mod_set_prepare = compute_cuda_mod_set_prepare,
	.append = cuda_append,
	.gather = cuda_gather,
	.attention = cuda_attention,
	.merge = cuda_merge,
	.refuse_capture = cuda_refuse_capture,
	.copy_pages = cuda_copy_pages,
	.event_record = cuda_event_record,
	.event_reached = cuda_event_reached,
	.mark = cuda_mark,
	.wait = cuda_wait,
	.finish = cuda_finish,
};
