/* SPDX-License-Identifier: Apache-2.0 */
/* A batch's device memory, pinned memory and host memory, from create to destroy. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/cuda/compute_cuda_batch.h"
#include "client/cuda/compute_cuda_marks.h"
#include "client/owner/map_cuda.h"

/* Default of query heads per KV head, and of query heads in all for MLA, which has one KV head. */
#define GROUP_DEFAULT 8u
#define MLA_HEADS_DEFAULT 128u

static uint64_t
cuda_buffer_place(uint64_t *at, uint64_t size)
{
	uint64_t here = *at;

	*at = (here + size + 255) & ~(uint64_t)255;
	return here;
}

static uint64_t
max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Computes memory that suffices for the plans of the attention kernels of all query dtypes. */
static enum paged_status
cuda_batch_measure_plan(const struct paged_batch *batch, const struct cuda_batch *cuda, struct cuda_plan_size *size,
			struct paged_error *error)
{
	const struct layout_params *layout = &batch->pool->mapping.layout.params;
	struct cuda_plan_bounds bounds = {
		.n_rows = batch->max_rows,
		.max_total_q = cuda->max_q_tokens,
		.max_kv_len = cuda->params.max_kv_len,
		.n_q_heads = cuda->max_q_heads,
		.n_kv_heads = layout->n_kv_heads,
		.v_dim = layout->v_dim,
	};
	struct cuda_plan_size one;

	memset(size, 0, sizeof(*size));
	for (enum paged_dtype q = PAGED_F32; q <= PAGED_BF16; q++) {
		enum paged_status status;

		bounds.max_tile_q_rows = cuda->kernels->attention[q].choices[CUDA_DECODE].tile_q_rows;
		bounds.prefill_tile_q_rows = cuda->kernels->attention[q].choices[CUDA_PREFILL].tile_q_rows;
		/* The least factor of any number of heads, which gives the most chunks. */
		bounds.wide_kv_chunk_factor = cuda_wide_kv_chunk_factor(cuda->kernels->attention[q].choices, 0);
		status = cuda_plan_measure(&bounds, &one, error);
		if (status != PAGED_OK)
			return status;
		size->target_work_items = one.target_work_items;
		size->max_work_items = (uint32_t)max_u64(size->max_work_items, one.max_work_items);
		size->max_counters = (uint32_t)max_u64(size->max_counters, one.max_counters);
		size->max_states = (uint32_t)max_u64(size->max_states, one.max_states);
		size->rows_bytes = max_u64(size->rows_bytes, one.rows_bytes);
		size->first_work_item_bytes = max_u64(size->first_work_item_bytes, one.first_work_item_bytes);
		size->counters_bytes = max_u64(size->counters_bytes, one.counters_bytes);
		size->workspace_states_bytes = max_u64(size->workspace_states_bytes, one.workspace_states_bytes);
		size->workspace_values_bytes = max_u64(size->workspace_values_bytes, one.workspace_values_bytes);
	}
	return PAGED_OK;
}

/* Place the batch's arrays from address `at` on; returns the end address. */
static uint64_t
cuda_batch_place_device(const struct paged_batch *batch, struct cuda_batch *cuda, const struct cuda_plan_size *need,
			uint64_t at)
{
	uint64_t n = batch->max_rows, heads;

	cuda->table = cuda_buffer_place(&at, n * batch->table_stride * sizeof(uint32_t));
	cuda->lengths = cuda_buffer_place(&at, n * CUDA_LENGTHS_SIZE + sizeof(int32_t));
	cuda->writable.device = cuda_buffer_place(&at, n * sizeof(uint32_t));
	cuda->b.device = cuda_buffer_place(&at, n * sizeof(uint32_t));
	cuda->kv_first.device = cuda_buffer_place(&at, n * sizeof(uint32_t));
	heads = cuda_buffer_place(&at, CUDA_SHAPES * sizeof(struct cuda_plan_head));
	for (uint32_t i = 0; i < CUDA_SHAPES; i++) {
		cuda->shape[i].head = heads + i * sizeof(struct cuda_plan_head);
		cuda->shape[i].rows = cuda_buffer_place(&at, need->rows_bytes);
		cuda->shape[i].first_work_item = cuda_buffer_place(&at, need->first_work_item_bytes);
	}
	cuda->params.counters = cuda_buffer_place(&at, need->counters_bytes);
	cuda->workspace_states = cuda_buffer_place(&at, need->workspace_states_bytes);
	cuda->workspace_values = cuda_buffer_place(&at, need->workspace_values_bytes);
	return at;
}

static enum paged_status
cuda_batch_alloc_device(struct paged_batch *batch, struct cuda_batch *cuda, struct paged_error *error)
{
	struct cuda_plan_params *p = &cuda->params;
	struct cuda_plan_size need;
	enum paged_status status = cuda_batch_measure_plan(batch, cuda, &need, error);
	uint64_t size;

	if (status != PAGED_OK)
		return status;
	size = cuda_batch_place_device(batch, cuda, &need, 0);
	status = map_cuda_check(&batch->pool->mapping, cuda->gpu->driver.alloc(&cuda->memory, size), error,
				"cuMemAlloc of %" PRIu64 " bytes for a batch of %u rows and %u query rows", size,
				batch->max_rows, cuda->max_q_tokens);
	if (status != PAGED_OK)
		return status;
	cuda->memory_size = size;
	cuda_batch_place_device(batch, cuda, &need, cuda->memory);
	p->writable_from = cuda->writable.device;
	p->b = cuda->b.device;
	p->kv_first = cuda->kv_first.device;
	p->target_work_items = need.target_work_items;
	p->max_work_items = need.max_work_items;
	p->max_counters = need.max_counters;
	p->max_states = need.max_states;
	return PAGED_OK;
}

/*
 * Initialise device memory: every page table entry is unmapped, every position may be written, there are no faults.
 * Uses a separate stream, so that other work is not waited for.
 */
static enum paged_status
cuda_batch_clear_device(const struct paged_batch *batch, struct cuda_batch *cuda, struct paged_error *error)
{
	const struct cuda_driver *driver = &cuda->gpu->driver;
	uint64_t table_bytes = batch->max_rows * batch->table_stride * sizeof(uint32_t);
	cuda_stream stream;
	int result = driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return map_cuda_check(&batch->pool->mapping, result, error, "cuStreamCreate");
	result = driver->fill(cuda->table, 0xff, table_bytes, stream);
	if (result == CUDA_SUCCESS)
		result = driver->fill(cuda->writable.device, 0, batch->max_rows * sizeof(uint32_t), stream);
	if (result == CUDA_SUCCESS)
		result = driver->fill(cuda->b.device, 0, batch->max_rows * sizeof(uint32_t), stream);
	if (result == CUDA_SUCCESS)
		result = driver->fill(cuda->kv_first.device, 0, batch->max_rows * sizeof(uint32_t), stream);
	if (result == CUDA_SUCCESS)
		result = driver->fill(cuda->shape[0].head, 0, CUDA_SHAPES * sizeof(struct cuda_plan_head), stream);
	if (result == CUDA_SUCCESS)
		result = driver->stream_synchronize(stream);
	driver->stream_destroy(stream);
	return map_cuda_check(&batch->pool->mapping, result, error, "cuMemsetD8Async of a batch's tables");
}

static enum paged_status
cuda_batch_create_stages(const struct paged_batch *batch, struct cuda_batch *cuda, struct paged_error *error)
{
	const struct cuda_driver *driver = &cuda->gpu->driver;
	uint64_t at = 0, stages[CUDA_STAGES], heads;
	enum paged_status status;
	void *pinned;

	cuda->stage_size = CUDA_STAGE_SIZE + batch->max_rows * CUDA_STAGE_ROW_SIZE;
	for (uint32_t i = 0; i < CUDA_STAGES; i++)
		stages[i] = cuda_buffer_place(&at, cuda->stage_size);
	heads = cuda_buffer_place(&at, CUDA_SHAPES * sizeof(*cuda->heads));
	status = map_cuda_check(&batch->pool->mapping, driver->host_alloc(&pinned, at, 0), error,
				"cuMemHostAlloc of %" PRIu64 " bytes", at);
	if (status != PAGED_OK)
		return status;
	cuda->pinned = pinned;
	cuda->heads = (struct cuda_plan_head *)(void *)(cuda->pinned + heads);
	for (uint32_t i = 0; status == PAGED_OK && i < CUDA_STAGES; i++) {
		cuda->stage[i].memory = cuda->pinned + stages[i];
		status = map_cuda_check(&batch->pool->mapping,
					driver->event_create(&cuda->stage[i].copied, CUDA_EVENT_DISABLE_TIMING), error,
					"cuEventCreate");
	}
	return status;
}

/* The kernel allocates this memory as plans touch it. */
static enum paged_status
cuda_batch_alloc_host(const struct paged_batch *batch, struct cuda_batch *cuda, struct paged_error *error)
{
	uint64_t n = batch->max_rows, size = 0, shadow, mirror, writable, b, kv_first, lengths;
	uint8_t *base;

	shadow = cuda_buffer_place(&size, n * batch->table_stride * sizeof(*cuda->shadow));
	mirror = cuda_buffer_place(&size, n * sizeof(*cuda->mirror));
	writable = cuda_buffer_place(&size, n * sizeof(*cuda->writable.shadow));
	b = cuda_buffer_place(&size, n * sizeof(*cuda->b.shadow));
	kv_first = cuda_buffer_place(&size, n * sizeof(*cuda->kv_first.shadow));
	lengths = cuda_buffer_place(&size, n * CUDA_LENGTHS_SIZE + sizeof(int32_t));
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_NOMEM, "no %" PRIu64 " bytes for a batch of %u rows: %s", size,
				  batch->max_rows, strerror(errno));
	cuda->host = base;
	cuda->host_size = size;
	cuda->shadow = (uint32_t *)(void *)(base + shadow);
	cuda->mirror = (struct cuda_mirror_row *)(void *)(base + mirror);
	cuda->writable.shadow = (uint32_t *)(void *)(base + writable);
	cuda->b.shadow = (uint32_t *)(void *)(base + b);
	cuda->kv_first.shadow = (uint32_t *)(void *)(base + kv_first);
	cuda->lengths_host = (int64_t *)(void *)(base + lengths);
	return PAGED_OK;
}

/* Free the parts that were allocated. */
static void
cuda_batch_free_parts(struct cuda_batch *cuda)
{
	const struct cuda_driver *driver = &cuda->gpu->driver;

	for (uint32_t i = 0; i < CUDA_STAGES; i++)
		if (cuda->stage[i].copied != NULL)
			driver->event_destroy(cuda->stage[i].copied);
	for (uint32_t i = 0; i < PUBLISH_QUEUE; i++)
		if (cuda->publish_event[i] != NULL)
			driver->event_destroy(cuda->publish_event[i]);
	if (cuda->pinned != NULL)
		driver->host_free(cuda->pinned);
	if (cuda->memory != 0)
		driver->free(cuda->memory);
}

static enum paged_status
cuda_batch_set_maxima(const struct paged_batch *batch, struct cuda_batch *cuda, const struct paged_batch_params *params,
		      struct paged_error *error)
{
	const struct layout_params *layout = &batch->pool->mapping.layout.params;
	uint64_t room = (uint64_t)batch->pool->mapping.view.table_entries * layout->page_size;

	cuda->max_q_tokens = params->max_q_tokens;
	if (cuda->max_q_tokens == 0)
		cuda->max_q_tokens = (uint32_t)max_u64(batch->max_rows, CUDA_Q_TOKENS_DEFAULT);
	cuda->max_q_heads = params->max_q_heads;
	if (cuda->max_q_heads == 0)
		cuda->max_q_heads = layout->v_in_k ? MLA_HEADS_DEFAULT : GROUP_DEFAULT * layout->n_kv_heads;
	if (cuda->max_q_heads < layout->n_kv_heads)
		return paged_fail(error, PAGED_ERR_INVALID, "max_q_heads %u is less than the pool's %u KV heads",
				  cuda->max_q_heads, layout->n_kv_heads);
	if (room > INT32_MAX || batch->table_stride > UINT32_MAX)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "pool %s: kernels count to 2^31 - 1 tokens, max_length is %u",
				  batch->pool->mapping.name, batch->pool->mapping.view.max_length);
	cuda->params.page_size = layout->page_size;
	cuda->params.n_kv_heads = layout->n_kv_heads;
	cuda->params.max_kv_len = (uint32_t)room;
	return PAGED_OK;
}

/* Called with the context current. */
static enum paged_status
cuda_batch_fill(struct paged_batch *batch, struct cuda_batch *cuda, struct paged_error *error)
{
	const struct layout_params *layout = &batch->pool->mapping.layout.params;
	enum paged_status status;

	client_lock(batch->pool->client);
	status = cuda_kernels_acquire(batch->pool, &cuda->kernels, error);
	client_unlock(batch->pool->client);
	if (status != PAGED_OK)
		return status;
	/* Until the first attention call sets the shape. */
	compute_cuda_shape_set(&cuda->shape[0], cuda->max_q_heads / layout->n_kv_heads * layout->n_kv_heads,
			       layout->n_kv_heads, &cuda->kernels->attention[cuda_kernels_queries(layout)]);
	status = cuda_batch_alloc_device(batch, cuda, error);
	if (status == PAGED_OK)
		status = cuda_batch_clear_device(batch, cuda, error);
	if (status == PAGED_OK)
		status = cuda_batch_create_stages(batch, cuda, error);
	if (status == PAGED_OK)
		return PAGED_OK;
	cuda_batch_free_parts(cuda);
	client_lock(batch->pool->client);
	cuda_kernels_release(batch->pool, false);
	client_unlock(batch->pool->client);
	return status;
}

enum paged_status
compute_cuda_create(struct paged_batch *batch, const struct paged_batch_params *params, struct paged_error *error)
{
	struct cuda_batch *cuda = calloc(1, sizeof(*cuda));
	enum paged_status status;

	if (cuda == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a batch");
	cuda->gpu = map_cuda_gpu(&batch->pool->mapping);
	status = cuda_batch_set_maxima(batch, cuda, params, error);
	if (status != PAGED_OK)
		goto err_free;
	status = cuda_batch_alloc_host(batch, cuda, error);
	if (status != PAGED_OK)
		goto err_free;
	status = MAP_CUDA_RUN(cuda->gpu, error, cuda_batch_fill(batch, cuda, error));
	if (status != PAGED_OK)
		goto err_unmap;
	batch->backend_state = cuda;
	return PAGED_OK;

err_unmap:
	munmap(cuda->host, cuda->host_size);
err_free:
	free(cuda);
	return status;
}

void
compute_cuda_destroy(struct paged_batch *batch, bool in_child)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct paged_error error;
	bool reached;

	reached = !in_child && cuda_gpu_enter(cuda->gpu, &error) == PAGED_OK;
	if (!in_child)
		compute_cuda_marks_release(cuda);
	if (reached)
		cuda_batch_free_parts(cuda);
	cuda_kernels_release(batch->pool, !reached);
	if (reached)
		cuda_gpu_leave(cuda->gpu);
	munmap(cuda->host, cuda->host_size);
	free(cuda);
}
