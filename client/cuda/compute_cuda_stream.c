/* SPDX-License-Identifier: Apache-2.0 */
/* The batch's stream: copies to the device through the stages, and captures. */
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
	enum paged_status status;

	if (cuda->stage_used == 0)
		return PAGED_OK;
	status = map_cuda_check(&batch->pool->mapping,
				driver->event_record(cuda->stage[cuda->stage_now].copied, cuda->stream), error,
				"cuEventRecord");
	if (status != PAGED_OK)
		return status;
	cuda->stage_now = (cuda->stage_now + 1) % CUDA_STAGES;
	cuda->stage_used = 0;
	return map_cuda_check(&batch->pool->mapping, driver->event_synchronize(cuda->stage[cuda->stage_now].copied),
			      error, "cuEventSynchronize");
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

enum paged_status
compute_cuda_stage_copy(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size,
			struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = PAGED_OK;
	uint8_t *at;

	assert(size <= cuda->stage_size);
	if (size > cuda->stage_size - cuda->stage_used)
		status = compute_cuda_stage_next(batch, error);
	if (status != PAGED_OK)
		return status;
	at = cuda->stage[cuda->stage_now].memory + cuda->stage_used;
	memcpy(at, from, size);
	status = map_cuda_check(&batch->pool->mapping, cuda->gpu->driver.copy_in(to, at, size, cuda->stream), error,
				"cuMemcpyHtoDAsync");
	if (status == PAGED_OK)
		cuda->stage_used += (size + 15) & ~15u;
	return status;
}

enum paged_status
compute_cuda_stage(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size,
		   struct paged_error *error)
{
	enum paged_status status = compute_cuda_refuse_capture(
		batch, ", and a graph has no part for a mod's values and arrays: bind them before", error);

	if (status == PAGED_OK)
		status = compute_cuda_stage_copy(batch, to, from, size, error);
	return status == PAGED_OK ? compute_cuda_stage_next(batch, error) : status;
}
