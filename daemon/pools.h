/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pools.h - the configured pools: memory of their pages and table regions
 *
 * Pool i of the configuration is pool i of the core and of the messages.
 */
#ifndef PAGED_DAEMON_POOLS_H
#define PAGED_DAEMON_POOLS_H

#include "daemon/config/config.h"
#include "core/core.h"
#include "daemon/memory.h"
#include "daemon/runtime.h"
#include "proto/wire.h"

struct pool {
	const struct config_pool *config; /* borrowed */
	struct memory memory;             /* the pages */
	size_t region_size;               /* bytes */
	void *region;                     /* the daemon's mapping of the table region */
	int region_fd;                    /* read-only */
};

struct pools {
	struct pool *pool;
	size_t n;
};

/** Bytes of host memory that a pool takes. */
struct pool_memory {
	uint64_t host_pages;     /* 0: its pages are on a GPU */
	uint64_t tables;         /* page tables, at most */
	uint64_t tables_longest; /* of them, those of one sequence of the longest length */
	uint64_t tables_most;    /* page tables, if all sequences could have the longest length */
	uint64_t other;  /* the index of published pages, and lists, at most, with those of n_tenants + 1 tenants */
	uint64_t tenant; /* lists of each further user, who is a tenant */
};

/** daemon_pool_memory - compute them from the settings of a pool and its tenants */
void daemon_pool_memory(const struct config *config, const struct config_pool *pool, struct pool_memory *memory);

/**
 * daemon_pools_check - refuse settings that this machine cannot fulfil; allocates nothing that stays
 *
 * @retval PAGED_ERR_FULL  there would be room for the pools if other processes used less memory
 */
enum paged_status daemon_pools_check(const struct config *config, struct paged_error *error);

/**
 * daemon_pools_open - allocate and populate all pools, and add them to the core
 *
 * @param[in] config   borrowed until daemon_pools_close()
 * @param[in] runtime  its directory is in the names of the memory files
 */
enum paged_status daemon_pools_open(struct pools *pools, const struct config *config, const struct runtime *runtime,
				    struct core *core, struct paged_error *error);

/** daemon_pools_close - free all pools; call after core_destroy(); also after a failed daemon_pools_open() */
void daemon_pools_close(struct pools *pools);

/** daemon_pools_can_fail - true: a pool's memory can fail later, so daemon_pools_poll() must be called regularly */
bool daemon_pools_can_fail(const struct pools *pools);

/**
 * daemon_pools_poll - check the memory of all pools with memory_ops.poll
 *
 * Returns the first PAGED_ERR_GONE, else the first other error; error names the pool.
 */
enum paged_status daemon_pools_poll(const struct pools *pools, struct paged_error *error);

#endif
