/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/compute_cuda_block_mask.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/owner/map_cuda.h"

/* A list of the mask and its destination. */
struct cuda_block_mask_part {
	const void *from;
	uint64_t size;
	uint64_t *address; /* its offset; becomes its device address */
};

#define N_PARTS (1 + 2 * BLOCK_MASK_N_KINDS)

struct cuda_block_mask_device {
	cuda_address memory;
	struct cuda_block_mask mask;
};

static void
cuda_block_mask_list_parts(const struct block_mask *mask, struct cuda_block_mask *to,
			   struct cuda_block_mask_part parts[N_PARTS])
{
	uint64_t n_lists = mask->first_list[mask->shape.n_rows];

	*parts++ =
		(struct cuda_block_mask_part){ mask->first_list, (mask->shape.n_rows + UINT64_C(1)) * sizeof(uint64_t),
					       &to->first_list };
	for (unsigned int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		*parts++ = (struct cuda_block_mask_part){ mask->start[kind], (n_lists + 1) * sizeof(uint64_t),
							  &to->start[kind] };
		*parts++ = (struct cuda_block_mask_part){ mask->indices[kind],
							  mask->start[kind][n_lists] * sizeof(uint32_t),
							  &to->indices[kind] };
	}
}

/* Copies on a separate stream, which does not wait for work on other streams. */
static int
cuda_block_mask_copy_parts(const struct cuda_driver *driver, cuda_address memory,
			   const struct cuda_block_mask_part parts[N_PARTS])
{
	cuda_stream stream;
	int result = driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < N_PARTS; i++) {
		*parts[i].address += memory;
		if (parts[i].size != 0)
			result = driver->copy_in(*parts[i].address, parts[i].from, parts[i].size, stream);
	}
	if (result == CUDA_SUCCESS)
		result = driver->stream_synchronize(stream);
	driver->stream_destroy(stream);
	return result;
}

/* Called with the context current. */
static enum paged_status
cuda_block_mask_fill(const struct paged_block_mask *mask, const struct cuda_driver *driver,
		     struct cuda_block_mask_device *blocks, struct paged_error *error)
{
	const struct owner_pool *pool = &mask->pool->mapping;
	struct cuda_block_mask_part parts[N_PARTS];
	enum paged_status status;
	uint64_t size = 0;

	cuda_block_mask_list_parts(mask->logical, &blocks->mask, parts);
	for (unsigned int i = 0; i < N_PARTS; i++) {
		*parts[i].address = size;
		size = (size + parts[i].size + 255) & ~(uint64_t)255;
	}
	status = map_cuda_check(pool, driver->alloc(&blocks->memory, size), error,
				"cuMemAlloc of %" PRIu64 " bytes for a block mask", size);
	if (status != PAGED_OK)
		return status;
	status = map_cuda_check(pool, cuda_block_mask_copy_parts(driver, blocks->memory, parts), error,
				"copy of a block mask");
	if (status != PAGED_OK)
		driver->free(blocks->memory);
	return status;
}

enum paged_status
compute_cuda_block_mask_open(struct paged_block_mask *mask, struct paged_error *error)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mask->pool->mapping);
	const struct block_mask_shape *shape = &mask->logical->shape;
	struct cuda_block_mask_device *blocks;
	enum paged_status status;

	if (mask->device != NULL)
		return PAGED_OK;
	blocks = calloc(1, sizeof(*blocks));
	if (blocks == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a block mask");
	blocks->mask = (struct cuda_block_mask){
		.n_rows = shape->n_rows,
		.n_heads = shape->n_heads,
		.q_block = shape->q_block,
		.kv_block = shape->kv_block,
		.ascending = mask->logical->ascending,
	};
	status = MAP_CUDA_RUN(gpu, error, cuda_block_mask_fill(mask, &gpu->driver, blocks, error));
	if (status == PAGED_OK)
		mask->device = blocks;
	else
		free(blocks);
	return status;
}

void
compute_cuda_block_mask_close(struct paged_block_mask *mask, bool in_child)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mask->pool->mapping);
	struct paged_error error;

	if (mask->device != NULL && !in_child && cuda_gpu_enter(gpu, &error) == PAGED_OK) {
		gpu->driver.free(mask->device->memory);
		cuda_gpu_leave(gpu);
	}
	free(mask->device);
}

struct cuda_block_mask
compute_cuda_block_mask_view(const struct paged_block_mask *mask)
{
	return mask->device->mask;
}
