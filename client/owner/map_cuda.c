/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages in GPU memory.  A process imports the memory of a pool once, however
 * many of its clients use it.  CUDA counts a second import of a legacy handle
 * itself, but a second import of vmm memory would be at another address.
 *
 * The mapping is reference-counted: it lives until every pool that uses it was
 * closed or has released its pages (release_pages).  Memory of a daemon that has ended
 * cannot be freed while it is mapped here; release_pages unmaps it as soon as no batch
 * can use it.  After that the entry is not in the list and holds only the
 * context, until the last close.
 *
 * Equal keys mean the same memory.  A key has the memory's id and, for legacy, the
 * handle.
 *
 * A forked child never takes the lock.  A thread that has held the lock has used
 * CUDA, and CUDA does not start in a child whose parent has used it.
 */
#include "config.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "client/owner/map_cuda.h"
#include "client/owner/map_ops.h"
#include "kernels/cuda/host/share_memory.h"

struct map_cuda_key {
	uint8_t memory_id[WIRE_MEMORY_ID_SIZE];
	uint32_t export;
	struct cuda_ipc_handle handle;
};

struct map_cuda {
	LIST_ENTRY(map_cuda) link;
	unsigned int n_users;  /* open pools */
	unsigned int n_mapped; /* of n_users, those that have not called release_pages() */
	struct map_cuda_key key;
	struct cuda_gpu gpu;
	struct cuda_import import;
	cuda_address own; /* unshared memory of map_cuda_make(); 0: import is used */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, map_cuda) maps = LIST_HEAD_INITIALIZER(maps);

static void
map_cuda_make_key(const struct map_grant *grant, struct map_cuda_key *key)
{
	const struct wire_memory *memory = &grant->reply->pool_grant.memory;

	memset(key, 0, sizeof(*key)); /* it is compared by bytes */
	memcpy(key->memory_id, grant->reply->pool_grant.memory_id, sizeof(key->memory_id));
	key->export = memory->export;
	if (memory->export == WIRE_EXPORT_LEGACY)
		memcpy(&key->handle, grant->handle->bytes, sizeof(key->handle));
}

/* Check that the parts of the daemon's reply agree with each other. */
static enum paged_status
map_cuda_check_grant(const struct map_grant *grant, struct paged_error *error)
{
	const struct wire_memory *memory = &grant->reply->pool_grant.memory;
	const struct wire_handle *handle = grant->handle;
	uint64_t size = grant->reply->pool_grant.memory_size;

	if (memory->export == WIRE_EXPORT_FD)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "memory of a GPU is no memfd");
	if (size % CUDA_GRANULE != 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%" PRIu64 " bytes are no whole granules of a GPU", size);
	if (memory->export == WIRE_EXPORT_VMM)
		return PAGED_OK;
	if (handle->generation != memory->generation ||
	    memcmp(handle->device, memory->device, sizeof(handle->device)) != 0)
		return paged_fail(error, PAGED_ERR_STALE,
				  "the handle is of generation %" PRIu64 ", the memory of %" PRIu64, handle->generation,
				  memory->generation);
	if (handle->offset % LAYOUT_ALIGNMENT_CUDA != 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "an offset of %" PRIu64 " bytes is not aligned",
				  handle->offset);
	return PAGED_OK;
}

static enum paged_status
map_cuda_import(const struct map_grant *grant, struct map_cuda *map, struct paged_error *error)
{
	const struct wire_memory *memory = &grant->reply->pool_grant.memory;
	struct cuda_share share = { .kind = CUDA_EXPORT_VMM, .size = grant->reply->pool_grant.memory_size };
	int fd = grant->fds[WIRE_FD_MEMORY];
	enum paged_status status;

	memcpy(&share.device, memory->device, sizeof(share.device));
	memcpy(share.canary, memory->canary, sizeof(share.canary));
	if (memory->export != WIRE_EXPORT_VMM) {
		share.kind = CUDA_EXPORT_LEGACY;
		memcpy(&share.handle, grant->handle->bytes, sizeof(share.handle));
		share.offset = grant->handle->offset;
		fd = -1;
	}
	status = cuda_import_open(&map->gpu, &share, fd, &map->import, error);
	if (status != PAGED_OK && share.kind == CUDA_EXPORT_LEGACY && grant->owner_uid != geteuid()) {
		struct paged_error why = *error;

		paged_fail(error, status, "%s; pagedd is uid %u, this process %u", why.text,
			   (unsigned int)grant->owner_uid, (unsigned int)geteuid());
	}
	explicit_bzero(&share, sizeof(share));
	return status;
}

static void
map_cuda_destroy(struct map_cuda *map)
{
	cuda_gpu_close(&map->gpu);
	explicit_bzero(&map->key, sizeof(map->key));
	free(map);
}

static enum paged_status
map_cuda_open_shared(const struct map_grant *grant, struct map_cuda **map_p, struct paged_error *error)
{
	struct map_cuda *fresh = calloc(1, sizeof(*fresh)), *map;
	struct cuda_uuid uuid;
	enum paged_status status;

	if (fresh == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a mapping");
	memcpy(&uuid, grant->reply->pool_grant.memory.device, sizeof(uuid));
	map_cuda_make_key(grant, &fresh->key);
	/* By UUID, because this process may number devices in another order, or see fewer. */
	status = cuda_gpu_open_uuid(&fresh->gpu, &uuid, error);
	if (status != PAGED_OK) {
		map_cuda_destroy(fresh);
		return status;
	}
	pthread_mutex_lock(&lock);
	LIST_FOREACH(map, &maps, link)
		if (memcmp(&map->key, &fresh->key, sizeof(map->key)) == 0)
			break;
	if (map == NULL) {
		status = map_cuda_import(grant, fresh, error);
		if (status == PAGED_OK) {
			LIST_INSERT_HEAD(&maps, fresh, link);
			map = fresh;
		}
	}
	if (map != NULL) {
		map->n_users++;
		map->n_mapped++;
		*map_p = map;
	}
	pthread_mutex_unlock(&lock);
	if (map != fresh)
		map_cuda_destroy(fresh);
	return status;
}

static enum paged_status
map_cuda_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	struct paged_error why;
	enum paged_status status;

	status = map_cuda_check_grant(grant, &why);
	if (status == PAGED_OK)
		status = map_cuda_open_shared(grant, &pool->cuda, &why);
	if (status != PAGED_OK)
		return paged_fail(error, status, "pool %s: %s", pool->name, why.text);
	pool->base = map_cuda_base(pool->cuda);
	return PAGED_OK;
}

/* The lock is held. */
static void
map_cuda_release_mapping(struct map_cuda *map)
{
	if (--map->n_mapped > 0)
		return;
	LIST_REMOVE(map, link);
	cuda_import_close(&map->gpu, &map->import);
}

static void
map_cuda_release_pages(struct owner_pool *pool)
{
	pthread_mutex_lock(&lock);
	map_cuda_release_mapping(pool->cuda);
	pthread_mutex_unlock(&lock);
}

static void
map_cuda_close(struct owner_pool *pool, bool in_child)
{
	struct map_cuda *map = pool->cuda;

	if (in_child)
		return;
	pthread_mutex_lock(&lock);
	if (!pool->pages_released)
		map_cuda_release_mapping(map);
	if (--map->n_users == 0)
		map_cuda_destroy(map);
	pthread_mutex_unlock(&lock);
}

enum paged_status
map_cuda_make(const char *device, uint64_t size, struct map_cuda **map_p, struct paged_error *error)
{
	struct map_cuda *map = calloc(1, sizeof(*map));
	enum paged_status status;

	if (map == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a device");
	status = cuda_gpu_open(&map->gpu, device, error);
	if (status == PAGED_OK)
		status = MAP_CUDA_RUN(
			&map->gpu, error,
			cuda_gpu_check(&map->gpu, map->gpu.driver.alloc(&map->own, size), "cuMemAlloc", error));
	if (status == PAGED_OK)
		*map_p = map;
	else
		map_cuda_destroy(map);
	return status;
}

void
map_cuda_free(struct map_cuda *map, bool in_child)
{
	struct paged_error error;

	if (map == NULL)
		return;
	if (in_child) {
		free(map);
		return;
	}
	if (cuda_gpu_enter(&map->gpu, &error) == PAGED_OK) {
		map->gpu.driver.free(map->own);
		cuda_gpu_leave(&map->gpu);
	}
	map_cuda_destroy(map);
}

uint8_t *
map_cuda_base(const struct map_cuda *map)
{
	return (uint8_t *)(uintptr_t)(map->own != 0 ? map->own : map->import.address);
}

const struct cuda_gpu *
map_cuda_gpu(const struct owner_pool *pool)
{
	return &pool->cuda->gpu;
}

enum paged_status
map_cuda_check(const struct owner_pool *pool, int result, struct paged_error *error, const char *what, ...)
{
	char text[128];
	va_list arguments;

	if (result == CUDA_SUCCESS)
		return PAGED_OK;
	va_start(arguments, what);
	vsnprintf(text, sizeof(text), what, arguments);
	va_end(arguments);
	return cuda_fail(&pool->cuda->gpu.driver, result, error, "pool %s: %s", pool->name, text);
}

const struct map_ops map_ops_cuda = {
	.backend = "cuda",
	.open = map_cuda_open,
	.close = map_cuda_close,
	.release_pages = map_cuda_release_pages,
};
