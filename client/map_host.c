/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/map_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static enum paged_status
fd_map(int fd, uint64_t size, int protection, const char *what, void **base_p, struct paged_error *error)
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
grant_layout(const struct wire_control_reply *reply, struct layout *layout, struct paged_error *error)
{
	const struct wire_geometry *g = &reply->pool_grant.geometry;
	struct layout_params params = {
		.n_layers = g->n_layers,
		.n_kv_heads = g->n_kv_heads,
		.k_dim = g->k_dim,
		.v_dim = g->v_dim,
		.v_in_k = g->v_in_k,
		.dtype = (enum paged_dtype)g->dtype,
		.page_size = g->page_size,
		.n_pages = g->n_pages,
		.alignment = g->alignment,
	};
	enum paged_status status = layout_init(layout, &params, error);

	if (status != PAGED_OK)
		return status;
	if (reply->pool_grant.memory_size < layout->size)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "pool %s: its geometry takes %" PRIu64 " bytes, %" PRIu64 " were granted",
				  reply->pool_grant.name, layout->size, reply->pool_grant.memory_size);
	return PAGED_OK;
}

/* Tables and pages must be of one pool. */
static enum paged_status
view_check(const struct owner_pool *pool, struct paged_error *error)
{
	const struct layout_params *geometry = &pool->layout.params;

	if (pool->view.n_pages != geometry->n_pages || pool->view.page_size != geometry->page_size)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "pool %s: tables for %u pages of %u tokens, memory for %u pages of %u tokens",
				  pool->name, pool->view.n_pages, pool->view.page_size, geometry->n_pages,
				  geometry->page_size);
	return PAGED_OK;
}

enum paged_status
map_host_open(const struct wire_control_reply *reply, const int fds[WIRE_N_POOL_FDS],
	      const uint8_t boot_id[WIRE_BOOT_ID_SIZE], struct owner_pool *pool, struct paged_error *error)
{
	struct owner_pool mapped = { .index = reply->pool_grant.pool };
	enum paged_status status;
	char what[PAGED_MAX_NAME + 32];

	if (strcmp(reply->pool_grant.backend, "host") != 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: this library has no back end %s",
				  reply->pool_grant.name, reply->pool_grant.backend);
	memcpy(mapped.name, reply->pool_grant.name, sizeof(mapped.name));
	memcpy(mapped.backend, reply->pool_grant.backend, sizeof(mapped.backend));
	status = grant_layout(reply, &mapped.layout, error);
	if (status != PAGED_OK)
		return status;
	snprintf(what, sizeof(what), "pool %s, table region", mapped.name);
	status = fd_map(fds[WIRE_FD_REGION], reply->pool_grant.region_size, PROT_READ, what, &mapped.region, error);
	if (status != PAGED_OK)
		return status;
	mapped.region_size = (size_t)reply->pool_grant.region_size;
	status = region_view_init(&mapped.view, mapped.region, mapped.region_size, boot_id, error);
	if (status == PAGED_OK)
		status = view_check(&mapped, error);
	if (status != PAGED_OK)
		goto err_unmap;
	snprintf(what, sizeof(what), "pool %s, memory", mapped.name);
	status = fd_map(fds[WIRE_FD_MEMORY], reply->pool_grant.memory_size, PROT_READ | PROT_WRITE, what,
			&mapped.memory, error);
	if (status != PAGED_OK)
		goto err_unmap;
	mapped.memory_size = (size_t)reply->pool_grant.memory_size;
	mapped.base = mapped.memory;
	*pool = mapped;
	return PAGED_OK;

err_unmap:
	munmap(mapped.region, mapped.region_size);
	return status;
}

void
map_host_close(struct owner_pool *pool, bool in_child)
{
	/* Not inherited: by now something of the child's own may lie there. */
	if (in_child)
		return;
	munmap(pool->memory, pool->memory_size);
	munmap(pool->region, pool->region_size);
}
