/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/owner/map_host.h"

static enum paged_status
map_grant_layout(const struct wire_control_reply *reply, struct layout *layout, struct paged_error *error)
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
map_tables(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	const struct layout_params *geometry = &pool->layout.params;
	uint64_t size = grant->reply->pool_grant.region_size;
	char what[PAGED_MAX_NAME + 32];
	enum paged_status status;

	snprintf(what, sizeof(what), "pool %s, table region", pool->name);
	status = map_memfd(grant->fds[WIRE_FD_REGION], size, PROT_READ, what, &pool->region, error);
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
	if (status == PAGED_OK &&
	    memcmp(pool->view.header->memory_id, grant->reply->pool_grant.memory_id, REGION_MEMORY_ID_SIZE) != 0)
		status = paged_fail(error, PAGED_ERR_PROTOCOL, "pool %s: the tables are of other memory than the grant",
				    pool->name);
	if (status != PAGED_OK)
		munmap(pool->region, pool->region_size);
	return status;
}

static enum paged_status
map_no_pages_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	(void)grant, (void)pool, (void)error;
	return PAGED_OK;
}

static void
map_no_pages_close(struct owner_pool *pool, bool in_child)
{
	(void)pool, (void)in_child;
}

static void
map_no_pages_release(struct owner_pool *pool)
{
	(void)pool;
}

/* For a client that opens tables only, whatever the back end. */
static const struct map_ops map_ops_no_pages = {
	.backend = "",
	.open = map_no_pages_open,
	.close = map_no_pages_close,
	.release_pages = map_no_pages_release,
};

enum paged_status
map_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error)
{
	static const struct map_ops *const all[] = { &map_ops_host, &map_ops_cuda };
	const struct wire_control_reply *reply = grant->reply;
	struct owner_pool mapped = { .index = reply->pool_grant.pool };
	enum paged_status status;

	memcpy(mapped.name, reply->pool_grant.name, sizeof(mapped.name));
	memcpy(mapped.backend, reply->pool_grant.backend, sizeof(mapped.backend));
	memcpy(mapped.model, reply->pool_grant.model, sizeof(mapped.model));
	mapped.tables_only = grant->tables_only;
	if (grant->tables_only)
		mapped.map = &map_ops_no_pages;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !grant->tables_only; i++)
		if (strcmp(mapped.backend, all[i]->backend) == 0)
			mapped.map = all[i];
	if (mapped.map == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: this library has no back end %s", mapped.name,
				  mapped.backend);
	status = map_grant_layout(reply, &mapped.layout, error);
	if (status == PAGED_OK)
		status = map_tables(grant, &mapped, error);
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
