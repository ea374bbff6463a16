/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded owner's pools: their geometry, and private memory for pages and tables. */
#include "config.h"

#include "client/owner/owner_embedded.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/owner/map_cuda.h"
#include "client/params.h"

#define SLOTS_DEFAULT 1024u
#define PAGE_SIZE_DEFAULT 16u
#define HUGE_PAGE ((size_t)2 << 20)

/* Map zeroed memory that is allocated on first touch and does not exist in a forked child. */
static void *
embedded_map_memory(size_t size, int sharing)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, size, MADV_DONTFORK);
	return memory;
}

/*
 * embedded_map_memory() for a pool's pages: aligned to HUGE_PAGE, and with huge pages
 * where the system gives them on request (madvise).
 */
static void *
embedded_map_host_pages(uint64_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = roundup((size_t)size, page), before;
	uint8_t *memory;

	if (size < HUGE_PAGE)
		return embedded_map_memory(kept, MAP_PRIVATE);
	memory = embedded_map_memory(kept + HUGE_PAGE, MAP_PRIVATE);
	if (memory == NULL)
		return NULL;
	before = -(uintptr_t)memory % HUGE_PAGE;
	if (before != 0)
		munmap(memory, before);
	munmap(memory + before + kept, HUGE_PAGE - before);
	madvise(memory + before, kept, MADV_HUGEPAGE);
	return memory + before;
}

/* Map the pages on the host or on a device.  The layout is already aligned for that. */
static enum paged_status
embedded_map_pages(struct owner_pool *pool, const struct paged_pool_params *params, struct paged_error *error)
{
	const char *device = params->device != NULL ? params->device : "0";
	struct paged_error why;
	enum paged_status status;

	if (pool->layout.params.alignment == LAYOUT_ALIGNMENT_CUDA) {
		status = map_cuda_make(device, pool->layout.size, &pool->cuda, &why);
		if (status != PAGED_OK)
			return paged_fail(error, status, "pool %s: device %s: %s", params->name, device, why.text);
		strcpy(pool->backend, "cuda");
		pool->base = map_cuda_base(pool->cuda);
		return PAGED_OK;
	}
	pool->memory = embedded_map_host_pages(pool->layout.size);
	if (pool->memory == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: cannot map %" PRIu64 " bytes of pages: %s",
				  params->name, pool->layout.size, strerror(errno));
	strcpy(pool->backend, "host");
	pool->memory_size = pool->layout.size;
	pool->base = pool->memory;
	return PAGED_OK;
}

static enum paged_status
embedded_add_pool(struct embedded *embedded, struct paged_pool_params *params, struct paged_error *error)
{
	struct owner_pool *pool = &embedded->pools[embedded->n_pools];
	struct layout_params geometry = {
		.n_layers = params->n_layers,
		.n_kv_heads = params->n_kv_heads,
		.k_dim = params->k_dim,
		.v_dim = params->v_dim != 0 ? params->v_dim : params->k_dim,
		.v_in_k = params->v_in_k != 0,
		.dtype = params->dtype,
		.page_size = params->page_size != 0 ? params->page_size : PAGE_SIZE_DEFAULT,
		.n_pages = params->n_pages,
		.alignment = LAYOUT_ALIGNMENT_HOST,
	};
	uint64_t tokens = (uint64_t)geometry.page_size * geometry.n_pages;
	struct core_pool_params core_params = {
		.name = params->name,
		.n_pages = geometry.n_pages,
		.page_size = geometry.page_size,
		.n_slots = params->n_slots != 0 ? params->n_slots : SLOTS_DEFAULT,
		.max_length = params->max_length != 0 ? params->max_length
						      : (uint32_t)(tokens < UINT32_MAX ? tokens : UINT32_MAX),
		.publish = true,
		.free_pages = geometry.n_pages / 100,
		.pin_limit = geometry.n_pages / 4,
		.release = region_release,
	};
	enum paged_status status;

	if (params->name == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %zu has no name", embedded->n_pools);
	if (params->backend != NULL && strcmp(params->backend, "cuda") == 0)
		geometry.alignment = LAYOUT_ALIGNMENT_CUDA;
	else if (params->backend != NULL && strcmp(params->backend, "host") != 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: back end %s is neither host nor cuda",
				  params->name, params->backend);
	status = layout_init(&pool->layout, &geometry, error);
	if (status != PAGED_OK)
		return status;
	if (core_params.n_slots > PAGED_MAX_SLOTS)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: %u sequences, at most %u", params->name,
				  core_params.n_slots, PAGED_MAX_SLOTS);
	if (getrandom(core_params.memory_id, sizeof(core_params.memory_id), 0) != sizeof(core_params.memory_id) ||
	    getrandom(&core_params.seed, sizeof(core_params.seed), 0) != sizeof(core_params.seed) ||
	    getrandom(&core_params.first_number, sizeof(core_params.first_number), 0) !=
		    sizeof(core_params.first_number))
		return paged_fail(error, PAGED_ERR_SYSTEM, "getrandom: %s", strerror(errno));
	pool->region_size = core_region_size(&core_params);
	if (pool->region_size == 0)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: tables for %u slots of %u tokens exceed 2^63 bytes",
				  params->name, core_params.n_slots, core_params.max_length);
	/* Counted before mapping, so that closing the owner unmaps a pool whose creation fails. */
	embedded->n_pools++;
	status = embedded_map_pages(pool, params, error);
	if (status != PAGED_OK)
		return status;
	/* Shared, because region_release() needs it. */
	pool->region = embedded_map_memory(pool->region_size, MAP_SHARED);
	if (pool->region == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: cannot map %zu bytes of tables: %s", params->name,
				  pool->region_size, strerror(errno));
	status = core_pool_add(embedded->core, &core_params, pool->region, &pool->index, error);
	if (status != PAGED_OK)
		return status;
	pool->view = *core_pool_view(embedded->core, pool->index);
	snprintf(pool->name, sizeof(pool->name), "%s", params->name);
	return PAGED_OK;
}

enum paged_status
embedded_add_pools(struct embedded *embedded, const struct paged_pool_params *pools, size_t n_pools,
		   struct paged_error *error)
{
	const uint8_t *at = (const uint8_t *)pools;
	struct paged_pool_params params;

	for (size_t i = 0; i < n_pools; i++, at += pools->struct_size) {
		enum paged_status status = client_params_in(&params, sizeof(params), at, "paged_pool_params", error);

		if (status == PAGED_OK && ((const struct paged_pool_params *)at)->struct_size != pools->struct_size)
			status = paged_fail(error, PAGED_ERR_INVALID,
					    "paged_pool_params %zu: struct_size is %zu, the "
					    "first one's is %zu",
					    i, ((const struct paged_pool_params *)at)->struct_size, pools->struct_size);
		if (status == PAGED_OK)
			status = embedded_add_pool(embedded, &params, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}
