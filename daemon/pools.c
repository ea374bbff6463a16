/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/log/log.h"
#include "daemon/memory_wait.h"
#include "daemon/random.h"

/* Largest table region: it is sparse, but every process that opens the pool maps it whole. */
#define MAX_REGION ((size_t)16 << 40)

static struct core_pool_params
core_params(const struct config_pool *config)
{
	return (struct core_pool_params){
		.name = config->name,
		.n_pages = config->pages,
		.page_size = config->page_size,
		.n_slots = config->sequences,
		.max_length = config->max_length,
		.publish = config->publish,
		.free_pages = config_share_pages(config->free_pages, config->pages),
		.pin_limit = config_share_pages(config->pin_limit, config->pages),
		.table_memory = config->table_bytes,
		.release = region_release,
	};
}

/* The setting that determines the pool's size: size or pages. */
static enum config_setting
pool_size_setting(const struct config_pool *config)
{
	return config->source[CONFIG_POOL_SIZE].line ? CONFIG_POOL_SIZE : CONFIG_POOL_PAGES;
}

static struct memory_request
pool_memory_request(const struct config_pool *config)
{
	return (struct memory_request){
		.name = config->name,
		.size = config->layout.size,
		.device = config->device,
		.export = (enum memory_export)config->export,
		.quarantine_ms = config->quarantine_ms,
	};
}

static bool
pool_is_on_host(const struct config_pool *config)
{
	return strcmp(config->backend, memory_ops_host.name) == 0;
}

/* True: a tenant has a limit of the pool's pages, which is also its share of the cache, or has a share. */
static bool
pool_has_cache_shares(const struct config *config, const struct config_pool *pool)
{
	for (size_t i = 0; i < config->n_tenants; i++)
		for (size_t k = 0; k < config->tenants[i].n_limits; k++)
			if (&config->pools[config->tenants[i].limits[k].pool] == pool)
				return true;
	return false;
}

void
daemon_pool_memory(const struct config *config, const struct config_pool *pool, struct pool_memory *memory)
{
	const struct core_pool_params params = core_params(pool);
	struct core_memory core;

	core_pool_memory(&params, &core);
	*memory = (struct pool_memory){
		.host_pages = pool_is_on_host(pool) ? pool->layout.size : 0,
		.tables = params.table_memory != 0 ? MIN(params.table_memory, core.tables_most) : core.tables_default,
		.tables_longest = core.tables_longest,
		.tables_most = core.tables_most,
		.other = core.other + (config->n_tenants + 1) * core.tenant +
			 (pool_has_cache_shares(config, pool) ? core.cache_shares : 0),
		.tenant = core.tenant,
	};
}

/* Checks that `need` bytes of a pool fit the memory that others have left.  `what` begins the error. */
static enum paged_status
pool_check_fits(const struct config *config, const struct config_pool *pool, const struct memory_limits *limits,
		uint64_t need, uint64_t others, const char *what, struct paged_error *error)
{
	uint64_t left = limits->available > others ? limits->available - others : 0;
	char total[32], available[32], taken[32];

	if (need <= left)
		return PAGED_OK;
	config_format_bytes(limits->total, total, sizeof(total));
	config_format_bytes(limits->available, available, sizeof(available));
	config_format_bytes(others, taken, sizeof(taken));
	config_fail(config, pool, pool_size_setting(pool), error, "%s%s has %s of memory, %s available%s%s", what,
		    limits->location, total, available, others ? ", of which other pools take " : "",
		    others ? taken : "");
	if (limits->total >= others && need <= limits->total - others)
		error->status = PAGED_ERR_FULL;
	return error->status;
}

/*
 * Checks that the pool fits its memory, and its page tables and lists the host's; limits[0] to limits[i] are of the
 * pools up to this one, `host` of the host.
 */
static enum paged_status
pool_check_size(const struct config *config, size_t i, const struct memory_limits *limits,
		const struct memory_limits *host, struct paged_error *error)
{
	const struct config_pool *pool = &config->pools[i];
	bool on_host = strcmp(limits[i].location, host->location) == 0;
	char what[128] = "", pages[32], other[32];
	uint64_t others = 0, tables = 0, host_pages = 0;
	struct pool_memory memory;
	enum paged_status status;

	for (size_t j = 0; j < i; j++) {
		daemon_pool_memory(config, &config->pools[j], &memory);
		tables += memory.tables + memory.other;
		host_pages += memory.host_pages;
		if (strcmp(limits[j].location, limits[i].location) == 0)
			others += config->pools[j].layout.size;
	}
	config_format_bytes(pool->layout.size, pages, sizeof(pages));
	if (pool_size_setting(pool) == CONFIG_POOL_PAGES)
		snprintf(what, sizeof(what), "%s; ", pages);
	status = pool_check_fits(config, pool, &limits[i], pool->layout.size, others + (on_host ? tables : 0), what,
				 error);
	if (status != PAGED_OK)
		return status;
	daemon_pool_memory(config, pool, &memory);
	config_format_bytes(memory.tables + memory.other, other, sizeof(other));
	snprintf(what, sizeof(what), "%s%s%s of page tables and lists (table-memory, sequences); ",
		 on_host ? pages : "", on_host ? " and " : "", other);
	return pool_check_fits(config, pool, host, memory.host_pages + memory.tables + memory.other,
			       host_pages + tables, what, error);
}

/* A memfd is a file, so RLIMIT_FSIZE applies to it. */
static enum paged_status
pool_check_file_size(const struct config *config, const struct config_pool *pool, enum config_setting setting,
		     uint64_t size, struct paged_error *error)
{
	char need[32], most[32];
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || size <= limit.rlim_cur)
		return PAGED_OK;
	return config_fail(config, pool, setting, error,
			   "takes a file of %s, and the limit of a file's size is %s (ulimit -f, LimitFSIZE)",
			   config_format_bytes(size, need, sizeof(need)),
			   config_format_bytes(limit.rlim_cur, most, sizeof(most)));
}

/* Checks that the pool's back end and device exist, and reads their memory limits. */
static enum paged_status
pool_find_memory(const struct config *config, const struct config_pool *pool, struct memory_limits *limits,
		 struct paged_error *error)
{
	const struct memory_request request = pool_memory_request(pool);
	const struct memory_ops *ops;
	struct paged_error why;
	enum paged_status status;

	if (memory_ops_find(pool->backend, &ops, &why) != PAGED_OK)
		return config_fail(config, pool, CONFIG_POOL_BACKEND, error, "%s", why.text);
	if (ops->probe(&why) != PAGED_OK)
		return config_fail(config, pool, CONFIG_POOL_BACKEND, error, "%s; use backend = host", why.text);
	status = ops->limits(&request, limits, &why);
	if (status == PAGED_OK)
		return PAGED_OK;
	if (status == PAGED_ERR_SYSTEM) /* no setting helps */
		return paged_fail(error, status, "%s", why.text);
	return config_fail(config, pool, CONFIG_POOL_DEVICE, error, "%s", why.text);
}

/* Checks the memory of page tables, and of the file that has them. */
static enum paged_status
pool_check_tables(const struct config *config, const struct config_pool *pool, struct paged_error *error)
{
	const struct core_pool_params params = core_params(pool);
	uint64_t region_size = core_region_size(&params);
	struct pool_memory memory;
	char least[32];

	if (region_size == 0 || region_size > MAX_REGION)
		return config_fail(config, pool, CONFIG_POOL_MAX_LENGTH, error,
				   "tables for %u sequences of %u tokens exceed 16 TiB of address space",
				   pool->sequences, pool->max_length);
	daemon_pool_memory(config, pool, &memory);
	if (memory.tables < memory.tables_longest)
		return config_fail(config, pool, CONFIG_POOL_TABLE_MEMORY, error,
				   "the page table of a sequence of max-length (%u) takes %s", pool->max_length,
				   config_format_bytes(memory.tables_longest, least, sizeof(least)));
	return pool_check_file_size(config, pool, CONFIG_POOL_MAX_LENGTH, region_size, error);
}

enum paged_status
daemon_pools_check(const struct config *config, struct paged_error *error)
{
	struct memory_limits limits[CONFIG_MAX_POOLS], host;
	enum paged_status status = memory_ops_host.limits(NULL, &host, error);

	for (size_t i = 0; status == PAGED_OK && i < config->n_pools; i++) {
		const struct config_pool *pool = &config->pools[i];

		status = pool_check_tables(config, pool, error);
		if (status == PAGED_OK && pool_is_on_host(pool))
			status = pool_check_file_size(config, pool, pool_size_setting(pool), pool->layout.size, error);
		if (status == PAGED_OK)
			status = pool_find_memory(config, pool, &limits[i], error);
		if (status == PAGED_OK)
			status = pool_check_size(config, i, limits, &host, error);
	}
	return status;
}

static enum paged_status
pool_open(struct pool *pool, const struct config_pool *config, const struct runtime *runtime, struct core *core,
	  struct paged_error *error)
{
	struct core_pool_params params = core_params(config);
	struct memory_request request = pool_memory_request(config);
	char file_name[MEMORY_FILE_NAME_SIZE];
	const struct memory_ops *ops;
	enum paged_status status;
	uint32_t index;

	*pool = (struct pool){ .config = config, .region_fd = -1, .memory.fd = -1 };
	memory_file_name(file_name, runtime, config->name);
	request.file_name = file_name;
	status = memory_ops_find(config->backend, &ops, error);
	if (status != PAGED_OK)
		return status;
	status = daemon_random(params.memory_id, sizeof(params.memory_id), error);
	if (status == PAGED_OK)
		status = daemon_random(&params.seed, sizeof(params.seed), error);
	if (status == PAGED_OK)
		status = daemon_random(&params.first_number, sizeof(params.first_number), error);
	if (status == PAGED_OK)
		status = ops->alloc(&pool->memory, &request, error);
	if (status != PAGED_OK)
		return status;
	pool->region_size = core_region_size(&params);
	/* The memory of a GPU is in no file that a process maps, so that its tables stand for it. */
	status = memory_region_create(ops == &memory_ops_host ? config->name : file_name, pool->region_size,
				      &pool->region, &pool->region_fd, error);
	if (status != PAGED_OK)
		return status;
	return core_pool_add(core, &params, pool->region, &index, error);
}

enum paged_status
daemon_pools_open(struct pools *pools, const struct config *config, const struct runtime *runtime, struct core *core,
		  struct paged_error *error)
{
	pools->n = 0;
	pools->pool = calloc(config->n_pools, sizeof(*pools->pool));
	if (pools->pool == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %zu pools", config->n_pools);
	for (; pools->n < config->n_pools; pools->n++) {
		const struct config_pool *pool = &config->pools[pools->n];
		struct paged_error why;
		char page[32];

		if (pool_open(&pools->pool[pools->n], pool, runtime, core, &why) != PAGED_OK) {
			/* Name the line of the setting at fault: backend if unsupported, else size or pages. */
			bool backend = why.status == PAGED_ERR_UNSUPPORTED && pool->source[CONFIG_POOL_BACKEND].line;

			pools->n++; /* daemon_pools_close() also frees the incomplete pool */
			return paged_fail(error, why.status, "%s:%u: pool %s: %s", config->path,
					  pool->source[backend ? CONFIG_POOL_BACKEND : pool_size_setting(pool)].line,
					  pool->name, why.text);
		}
		log_write(LOG_LEVEL_INFO, "pool", (struct log_ids){ .pool = pool->name },
			  "%s: %u pages of %s on %s, %s", pool->name, pool->pages,
			  config_format_bytes(pool->layout.page_bytes, page, sizeof(page)), pool->backend,
			  pools->pool[pools->n].memory.text);
	}
	return PAGED_OK;
}

void
daemon_pools_close(struct pools *pools)
{
	for (size_t i = 0; i < pools->n; i++) {
		struct pool *pool = &pools->pool[i];

		if (pool->region != NULL)
			munmap(pool->region, pool->region_size);
		if (pool->region_fd >= 0)
			close(pool->region_fd);
		if (pool->memory.ops != NULL)
			pool->memory.ops->release(&pool->memory);
	}
	free(pools->pool);
	*pools = (struct pools){ 0 };
}

bool
daemon_pools_can_fail(const struct pools *pools)
{
	for (size_t i = 0; i < pools->n; i++)
		if (pools->pool[i].memory.ops->poll != memory_poll_ok)
			return true;
	return false;
}

enum paged_status
daemon_pools_poll(const struct pools *pools, struct paged_error *error)
{
	enum paged_status found = PAGED_OK;

	for (size_t i = 0; i < pools->n && found != PAGED_ERR_GONE; i++) {
		const struct pool *pool = &pools->pool[i];
		struct paged_error why;
		enum paged_status status = pool->memory.ops->poll(&pool->memory, &why);

		if (status != PAGED_OK && (found == PAGED_OK || status == PAGED_ERR_GONE))
			found = paged_fail(error, status, "%s: %s", pool->config->name, why.text);
	}
	return found;
}
