/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/compute_cuda_blocks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/map_cuda.h"

/* A list of the mask, and where it goes. */
struct part {
	const void *from;
	uint64_t size;
	uint64_t *at; /* in memory, which begins at the address */
};

#define N_PARTS (1 + 2 * BLOCK_MASK_N_KINDS)

struct cuda_blocks {
	cuda_address memory;
	struct cuda_block_mask mask;
};

static void
parts_list(const struct block_mask *mask, struct cuda_block_mask *to, struct part parts[N_PARTS])
{
	uint64_t n_lists = mask->first_list[mask->shape.n_rows];

	*parts++ = (struct part){ mask->first_list, (mask->shape.n_rows + UINT64_C(1)) * sizeof(uint64_t),
				  &to->first_list };
	for (unsigned int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		*parts++ = (struct part){ mask->start[kind], (n_lists + 1) * sizeof(uint64_t), &to->start[kind] };
		*parts++ = (struct part){ mask->indices[kind], mask->start[kind][n_lists] * sizeof(uint32_t),
					  &to->indices[kind] };
	}
}

static uint64_t
parts_place(const struct part parts[N_PARTS])
{
	uint64_t size = 0;

	for (unsigned int i = 0; i < N_PARTS; i++) {
		*parts[i].at = size;
		size = (size + parts[i].size + 255) & ~(uint64_t)255;
	}
	return size;
}

/* On a stream of its own, so that nobody else's work is waited for. */
static int
parts_copy(const struct cuda_driver *driver, cuda_address memory, const struct part parts[N_PARTS])
{
	cuda_stream stream;
	int result = driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < N_PARTS; i++) {
		*parts[i].at += memory;
		if (parts[i].size != 0)
			result = driver->copy_in(*parts[i].at, parts[i].from, parts[i].size, stream);
	}
	if (result == CUDA_SUCCESS)
		result = driver->stream_synchronize(stream);
	driver->stream_destroy(stream);
	return result;
}

/* With the context current. */
static enum paged_status
blocks_fill(const struct paged_block_mask *mask, const struct cuda_driver *driver, struct cuda_blocks *blocks,
	    struct paged_error *error)
{
	const char *name = mask->pool->at.name;
	struct part parts[N_PARTS];
	uint64_t size;
	int result;

	parts_list(mask->logical, &blocks->mask, parts);
	size = parts_place(parts);
	result = driver->alloc(&blocks->memory, size);
	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, error, "pool %s: cuMemAlloc of %" PRIu64 " bytes for a block mask",
				 name, size);
	result = parts_copy(driver, blocks->memory, parts);
	if (result == CUDA_SUCCESS)
		return PAGED_OK;
	driver->free(blocks->memory);
	return cuda_fail(driver, result, error, "pool %s: copy of a block mask", name);
}

enum paged_status
compute_cuda_blocks_open(struct paged_block_mask *mask, struct paged_error *error)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mask->pool->at);
	const struct block_mask_shape *shape = &mask->logical->shape;
	struct cuda_blocks *blocks;
	enum paged_status status;

	if (mask->device != NULL)
		return PAGED_OK;
	blocks = calloc(1, sizeof(*blocks));
	if (blocks == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a block mask");
	blocks->mask.n_rows = shape->n_rows;
	blocks->mask.n_heads = shape->n_heads;
	blocks->mask.q_block = shape->q_block;
	blocks->mask.kv_block = shape->kv_block;
	blocks->mask.ascending = mask->logical->ascending;
	status = cuda_gpu_enter(gpu, error);
	if (status == PAGED_OK) {
		status = blocks_fill(mask, &gpu->driver, blocks, error);
		cuda_gpu_leave(gpu);
	}
	if (status != PAGED_OK) {
		free(blocks);
		return status;
	}
	mask->device = blocks;
	return PAGED_OK;
}

void
compute_cuda_blocks_close(struct paged_block_mask *mask, bool in_child)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mask->pool->at);
	struct paged_error error;

	if (mask->device != NULL && !in_child && cuda_gpu_enter(gpu, &error) == PAGED_OK) {
		gpu->driver.free(mask->device->memory);
		cuda_gpu_leave(gpu);
	}
	free(mask->device);
}

struct cuda_block_mask
compute_cuda_blocks_of(const struct paged_block_mask *mask)
{
	return mask->device->mask;
}
