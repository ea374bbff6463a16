/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum paged_status
map_fd(int fd, uint64_t size, int protection, const char *what, void **base_p, struct paged_error *error)
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
	const struct layout_params *params = &reply->pool_grant.geometry;
	enum paged_status status;

	if (paged_dtype_size(params->dtype) == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "pool %s: dtype %d is none that this library knows (f32, f16, bf16, e4m3, e5m2, i8)",
				  reply->pool_grant.name, (int)params->dtype);
	status = layout_init(layout, params, error);
	if (status != PAGED_OK)
		return status;
	if (reply->pool_grant.memory_size < layout->size)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "pool %s: its geometry takes %" PRIu64 " bytes, %" PRIu64 " were granted",
				  reply->pool_grant.name, layout->size, reply->pool_grant.memory_size);
	return PAGED_OK;
}

static enum paged_status
tables_map(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	const struct layout_params *geometry = &pool->layout.params;
	uint64_t size = grant->reply->pool_grant.region_size;
	char what[PAGED_MAX_NAME + 32];
	enum paged_status status;

	snprintf(what, sizeof(what), "pool %s, table region", pool->name);
	status = map_fd(grant->fds[WIRE_FD_REGION], size, PROT_READ, what, &pool->region, error);
	if (status != PAGED_OK)
		return status;
	pool->region_size = (size_t)size;
	status = region_view_init(&pool->view, pool->region, pool->region_size, grant->boot_id, error);
	/* The tables must have the geometry of the pages. */
	if (status == PAGED_OK &&
	    (pool->view.n_pages != geometry->n_pages || pool->view.page_size != geometry->page_size))
		status = paged_fail(error, PAGED_ERR_PROTOCOL,
				    "pool %s: tables for %u pages of %u tokens, memory for %u pages of %u tokens",
				    pool->name, pool->view.n_pages, pool->view.page_size, geometry->n_pages,
				    geometry->page_size);
	if (status != PAGED_OK)
		munmap(pool->region, pool->region_size);
	return status;
}

enum paged_status
map_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	static const struct map_ops *const all[] = { &map_ops_host, &map_ops_cuda };
	const struct wire_control_reply *reply = grant->reply;
	struct owner_pool mapped = { .index = reply->pool_grant.pool };
	enum paged_status status;

	memcpy(mapped.name, reply->pool_grant.name, sizeof(mapped.name));
	memcpy(mapped.backend, reply->pool_grant.backend, sizeof(mapped.backend));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(mapped.backend, all[i]->backend) == 0)
			mapped.map = all[i];
	if (mapped.map == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: this library has no back end %s", mapped.name,
				  mapped.backend);
	status = grant_layout(reply, &mapped.layout, error);
	if (status == PAGED_OK)
		status = tables_map(grant, &mapped, error);
	if (status != PAGED_OK)
		return status;
	status = mapped.map->open(grant, &mapped, error);
	if (status != PAGED_OK) {
		munmap(mapped.region, mapped.region_size);
		return status;
	}
	*pool = mapped;
	return PAGED_OK;
}

void
map_close(struct owner_pool *pool, bool in_child)
{
	pool->map->close(pool, in_child);
	/* A forked child does not inherit the mapping, and may have mapped other memory at the address. */
	if (!in_child)
		munmap(pool->region, pool->region_size);
}
