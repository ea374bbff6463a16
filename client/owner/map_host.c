/* SPDX-License-Identifier: Apache-2.0 */
/* Pages in host memory: a memfd. */
#include "config.h"

#include "client/owner/map_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/owner/map_ops.h"

enum paged_status
map_memfd(int fd, uint64_t size, int protection, const char *what, void **base_p, struct paged_error *error)
{
	struct stat facts;
	void *base;
	int seals;

	if (fstat(fd, &facts) != 0)
		return paged_fail(error, PAGED_ERR_BACKEND, "%s: %s", what, strerror(errno));
	if (size == 0 || (uint64_t)facts.st_size < size || size > SIZE_MAX)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "%s: %" PRIu64 " bytes were promised, %" PRId64 " are there", what, size,
				  (int64_t)facts.st_size);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%s: it is not sealed against shrinking", what);
	base = mmap(NULL, (size_t)size, protection, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_BACKEND, "%s: cannot map %" PRIu64 " bytes: %s", what, size,
				  strerror(errno));
	if (madvise(base, (size_t)size, MADV_DONTFORK) != 0) {
		paged_fail(error, PAGED_ERR_BACKEND, "%s: %s", what, strerror(errno));
		munmap(base, (size_t)size);
		return error->status;
	}
	*base_p = base;
	return PAGED_OK;
}

static enum paged_status
map_host_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	uint64_t size = grant->reply->pool_grant.memory_size;
	char what[PAGED_MAX_NAME + 32];
	enum paged_status status;

	if (grant->reply->pool_grant.memory.export != WIRE_EXPORT_FD)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "pool %s: memory of the host, and no memfd", pool->name);
	snprintf(what, sizeof(what), "pool %s, memory", pool->name);
	status = map_memfd(grant->fds[WIRE_FD_MEMORY], size, PROT_READ | PROT_WRITE, what, &pool->memory, error);
	if (status != PAGED_OK)
		return status;
	pool->memory_size = (size_t)size;
	pool->base = pool->memory;
	return PAGED_OK;
}

static void
map_host_close(struct owner_pool *pool, bool in_child)
{
	if (!in_child)
		munmap(pool->memory, pool->memory_size);
}

/* Nothing is released: the pages stay readable until the pool is closed. */
static void
map_host_release_pages(struct owner_pool *pool)
{
	(void)pool;
}

const struct map_ops map_ops_host = {
	.backend = "host",
	.open = map_host_open,
	.close = map_host_close,
	.release_pages = map_host_release_pages,
};
