/* SPDX-License-Identifier: Apache-2.0 */
/* The batch's stream: what is written to the device through the stages, and captures. */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "client/cuda/compute_cuda_batch.h"
#include "client/owner/map_cuda.h"

enum paged_status
compute_cuda_stage_next(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_driver *driver = &cuda->gpu->driver;
	uint32_t next = (cuda->stage_now + 1) % CUDA_STAGES;
	enum paged_status status;

	if (cuda->stage_used == 0)
		return PAGED_OK;
	status = map_cuda_check(&batch->pool->mapping,
				driver->event_record(cuda->stage[cuda->stage_now].copied, cuda->stream), error,
				"cuEventRecord");
	if (status == PAGED_OK)
		status = map_cuda_check(&batch->pool->mapping, driver->event_synchronize(cuda->stage[next].copied),
					error, "cuEventSynchronize");
	/* If it failed, what follows is added to this stage. */
	if (status != PAGED_OK)
		return status;
	cuda->stage_now = next;
	cuda->stage_used = cuda->scatter_from = 0;
	return PAGED_OK;
}

enum paged_status
compute_cuda_capture(const struct paged_batch *batch, bool *capturing_p, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	int capturing = CUDA_CAPTURE_NONE;
	int result = cuda->gpu->driver.stream_capturing(cuda->stream, &capturing);

	*capturing_p = capturing != CUDA_CAPTURE_NONE;
	return map_cuda_check(&batch->pool->mapping, result, error, "cuStreamIsCapturing");
}

enum paged_status
compute_cuda_refuse_capture(const struct paged_batch *batch, const char *why, struct paged_error *error)
{
	bool capturing;
	enum paged_status status = compute_cuda_capture(batch, &capturing, error);

	if (status != PAGED_OK || !capturing)
		return status;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: the stream is being captured%s",
			  batch->pool->mapping.name, why);
}

/* Get `size` bytes of the stage. */
static enum paged_status
cuda_stage_place(struct paged_batch *batch, uint32_t size, uint8_t **at_p, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = PAGED_OK;

	assert(size <= cuda->stage_size);
	if (size > cuda->stage_size - cuda->stage_used) {
		status = compute_cuda_scatter_launch(batch, error);
		if (status == PAGED_OK)
			status = compute_cuda_stage_next(batch, error);
	}
	if (status != PAGED_OK)
		return status;
	*at_p = cuda->stage[cuda->stage_now].memory + cuda->stage_used;
	return PAGED_OK;
}

/* The stage is used in units of records, so that records are aligned. */
static void
cuda_stage_use(struct cuda_batch *cuda, uint32_t size)
{
	uint32_t unit = (uint32_t)sizeof(struct cuda_scatter_record);

	cuda->stage_used += (size + unit - 1) / unit * unit;
}

/* Copy at most a stage. */
static enum paged_status
cuda_stage_copy(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status;
	uint8_t *at;

	/* The records of a launch are consecutive. */
	status = compute_cuda_scatter_launch(batch, error);
	if (status == PAGED_OK)
		status = cuda_stage_place(batch, size, &at, error);
	if (status != PAGED_OK)
		return status;
	memcpy(at, from, size);
	status = map_cuda_check(&batch->pool->mapping, cuda->gpu->driver.copy_in(to, at, size, cuda->stream), error,
				"cuMemcpyHtoDAsync");
	if (status == PAGED_OK)
		cuda_stage_use(cuda, size);
	cuda->scatter_from = cuda->stage_used;
	return status;
}

static enum paged_status
cuda_scatter_add_record(struct paged_batch *batch, cuda_address to, const void *words, uint32_t n_words,
			struct paged_error *error)
{
	struct cuda_scatter_record record = { .to = to, .n = n_words };
	enum paged_status status;
	uint8_t *at;

	status = cuda_stage_place(batch, sizeof(record), &at, error);
	if (status != PAGED_OK)
		return status;
	memcpy(record.words, words, n_words * sizeof(uint32_t));
	memcpy(at, &record, sizeof(record));
	cuda_stage_use(cuda_batch_of(batch), sizeof(record));
	return PAGED_OK;
}

enum paged_status
compute_cuda_scatter_add(struct paged_batch *batch, cuda_address to, const void *words, uint32_t n_words,
			 struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	uint64_t size = n_words * sizeof(uint32_t);
	const uint8_t *from = words;
	enum paged_status status = PAGED_OK;

	/* The kernel checks no address. */
	assert(to % sizeof(uint32_t) == 0 && to >= cuda->memory && to - cuda->memory <= cuda->memory_size &&
	       size <= cuda->memory_size - (to - cuda->memory));
	while (status == PAGED_OK && size > 0) {
		uint32_t now = CUDA_STAGE_SIZE;

		if (size >= now) {
			status = cuda_stage_copy(batch, to, from, now, error);
		} else {
			now = CUDA_SCATTER_WORDS * (uint32_t)sizeof(uint32_t);
			now = size < now ? (uint32_t)size : now;
			status = cuda_scatter_add_record(batch, to, from, now / (uint32_t)sizeof(uint32_t), error);
		}
		to += now;
		from += now;
		size -= now;
	}
	return status;
}

enum paged_status
compute_cuda_scatter_launch(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	uint32_t bytes = cuda->stage_used - cuda->scatter_from, block_bytes = CUDA_SCATTER_THREADS * 4;
	/* The device has the address that the host has, as for all pinned memory with unified addressing. */
	struct cuda_scatter_params p = {
		.records = (uintptr_t)(cuda->stage[cuda->stage_now].memory + cuda->scatter_from),
		.n_records = bytes / (uint32_t)sizeof(struct cuda_scatter_record),
	};
	enum paged_status status;

	if (p.n_records == 0)
		return PAGED_OK;
	status = cuda_kernels_launch(batch->pool, &cuda->kernels->scatter, (bytes + block_bytes - 1) / block_bytes, &p,
				     cuda->stream, error);
	if (status == PAGED_OK)
		cuda->scatter_from = cuda->stage_used;
	return status;
}

void
compute_cuda_scatter_drop(struct paged_batch *batch)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);

	cuda->stage_used = cuda->scatter_from;
}

enum paged_status
compute_cuda_stage(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size,
		   struct paged_error *error)
{
	enum paged_status status = compute_cuda_refuse_capture(
		batch, ", and a graph has no part for a mod's values and arrays: bind them before", error);

	if (status == PAGED_OK)
		status = cuda_stage_copy(batch, to, from, size, error);
	return status == PAGED_OK ? compute_cuda_stage_next(batch, error) : status;
}
