/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/log.h"
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

static enum paged_status
pool_check_size(const struct config *config, const struct config_pool *pool, const struct memory_limits *limits,
		uint64_t other_pools, struct paged_error *error)
{
	uint64_t left = limits->available > other_pools ? limits->available - other_pools : 0;
	char need[32], total[32], available[32], others[32];
	bool by_pages = pool_size_setting(pool) == CONFIG_POOL_PAGES;

	if (pool->layout.size <= left)
		return PAGED_OK;
	config_format_bytes(pool->layout.size, need, sizeof(need));
	config_format_bytes(limits->total, total, sizeof(total));
	config_format_bytes(limits->available, available, sizeof(available));
	config_format_bytes(other_pools, others, sizeof(others));
	config_fail(config, pool, pool_size_setting(pool), error, "%s%s%s has %s of memory, %s available%s%s",
		    by_pages ? need : "", by_pages ? "; " : "", limits->location, total, available,
		    other_pools ? ", of which other pools take " : "", other_pools ? others : "");
	if (limits->total >= other_pools && pool->layout.size <= limits->total - other_pools)
		error->status = PAGED_ERR_FULL;
	return error->status;
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

enum paged_status
daemon_pools_check(const struct config *config, struct paged_error *error)
{
	struct memory_limits limits[CONFIG_MAX_POOLS];

	for (size_t i = 0; i < config->n_pools; i++) {
		const struct config_pool *pool = &config->pools[i];
		const struct core_pool_params params = core_params(pool);
		uint64_t region_size = core_region_size(&params), other_pools = 0;
		enum paged_status status;

		if (region_size == 0 || region_size > MAX_REGION)
			return config_fail(config, pool, CONFIG_POOL_MAX_LENGTH, error,
					   "tables for %u sequences of %u tokens exceed 16 TiB of address space",
					   pool->sequences, pool->max_length);
		status = pool_check_file_size(config, pool, CONFIG_POOL_MAX_LENGTH, region_size, error);
		if (status == PAGED_OK && strcmp(pool->backend, memory_ops_host.name) == 0)
			status = pool_check_file_size(config, pool, pool_size_setting(pool), pool->layout.size, error);
		if (status == PAGED_OK)
			status = pool_find_memory(config, pool, &limits[i], error);
		if (status != PAGED_OK)
			return status;
		/* The sum of the earlier pools in the same memory. */
		for (size_t j = 0; j < i; j++)
			if (strcmp(limits[j].location, limits[i].location) == 0)
				other_pools += config->pools[j].layout.size;
		status = pool_check_size(config, pool, &limits[i], other_pools, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
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
