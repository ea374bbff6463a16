/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of pages, and the events after which pages may be published. */
#include "config.h"

#include "client/cuda/compute_cuda_batch.h"
#include "client/owner/map_cuda.h"

/*
 * The driver copies a page of all layers at once, unless the pool is so large that its layers are too far apart for
 * that.  cuda.h also lets it refuse a pitch that cuMemAllocPitch() did not choose.
 */
static int
cuda_copy_page(const struct cuda_batch *cuda, const struct layout *layout, cuda_address from, cuda_address to)
{
	const struct layout_plane *plane = &layout->plane[LAYOUT_K];
	const struct cuda_copy_2d copy = {
		.from_type = CUDA_MEMORY_DEVICE,
		.from_device = from,
		.from_pitch = plane->layer_stride,
		.to_type = CUDA_MEMORY_DEVICE,
		.to_device = to,
		.to_pitch = plane->layer_stride,
		.width_bytes = plane->page_stride,
		.height = layout->params.n_layers,
	};
	int result = CUDA_ERROR_INVALID_VALUE;

	if (plane->layer_stride <= (uint64_t)cuda_gpu_attribute(cuda->gpu, CUDA_DEVICE_MAX_PITCH))
		result = cuda->gpu->driver.copy_2d(&copy, cuda->stream);
	if (result != CUDA_ERROR_INVALID_VALUE)
		return result;
	result = CUDA_SUCCESS;
	for (uint32_t layer = 0; layer < layout->params.n_layers && result == CUDA_SUCCESS; layer++)
		result = cuda->gpu->driver.copy(to + layer * plane->layer_stride, from + layer * plane->layer_stride,
						plane->page_stride, cuda->stream);
	return result;
}

enum paged_status
compute_cuda_copy_pages(struct paged_batch *batch, uint32_t n, const uint32_t *from, const uint32_t *to,
			struct paged_error *error)
{
	const struct owner_pool *mapping = &batch->pool->mapping;
	cuda_address base = (uintptr_t)mapping->base;
	uint64_t page_stride = mapping->layout.plane[LAYOUT_K].page_stride;
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = map_cuda_check(mapping,
					cuda_copy_page(cuda_batch_of(batch), &mapping->layout,
						       base + from[i] * page_stride, base + to[i] * page_stride),
					error, "copy of page %u to page %u", from[i], to[i]);
	return status;
}

enum paged_status
compute_cuda_event_record(struct paged_batch *batch, uint32_t i, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_driver *driver = &cuda->gpu->driver;
	cuda_event *event = &cuda->publish_event[i];
	enum paged_status status = PAGED_OK;

	if (*event == NULL)
		status = map_cuda_check(&batch->pool->mapping, driver->event_create(event, CUDA_EVENT_DISABLE_TIMING),
					error, "cuEventCreate");
	if (status != PAGED_OK)
		return status;
	return map_cuda_check(&batch->pool->mapping, driver->event_record(*event, cuda->stream), error,
			      "cuEventRecord");
}

bool
compute_cuda_event_reached(const struct paged_batch *batch, uint32_t i)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);

	return cuda->gpu->driver.event_query(cuda->publish_event[i]) == CUDA_SUCCESS;
}
