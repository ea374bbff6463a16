/* SPDX-License-Identifier: Apache-2.0 */
/* Pages in host memory: a memfd. */
#include "config.h"

#include <stdio.h>
#include <sys/mman.h>

#include "client/api/compute_ops.h"
#include "client/owner/map.h"

static enum paged_status
host_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	uint64_t size = grant->reply->pool_grant.memory_size;
	char what[PAGED_MAX_NAME + 32];
	enum paged_status status;

	if (grant->reply->pool_grant.memory.export != WIRE_EXPORT_FD)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "pool %s: memory of the host, and no memfd", pool->name);
	snprintf(what, sizeof(what), "pool %s, memory", pool->name);
	status = map_fd(grant->fds[WIRE_FD_MEMORY], size, PROT_READ | PROT_WRITE, what, &pool->memory, error);
	if (status != PAGED_OK)
		return status;
	pool->memory_size = (size_t)size;
	pool->base = pool->memory;
	pool->compute = &compute_ops_host;
	return PAGED_OK;
}

static void
host_close(struct owner_pool *pool, bool in_child)
{
	if (!in_child)
		munmap(pool->memory, pool->memory_size);
}

/* Nothing is released: the pages stay readable until the pool is closed. */
static void
host_let_go(struct owner_pool *pool)
{
	(void)pool;
}

const struct map_ops map_ops_host = {
	.backend = "host",
	.open = host_open,
	.close = host_close,
	.let_go = host_let_go,
};
