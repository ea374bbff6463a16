/* SPDX-License-Identifier: Apache-2.0 */
/**
 * config.h - reads pagedd.conf(5)
 *
 * settings.c holds the table of all settings: name, unit, default, bounds,
 * help.  config_load() reads the file and interprets each value by the table.
 * The values of a loaded struct config are consistent: layouts and page
 * counts are computed, user names are resolved to ids.
 *
 * An error is one line: file:line: [pool NAME: | tenant NAME:] setting = value: why.
 */
#ifndef PAGED_DAEMON_CONFIG_CONFIG_H
#define PAGED_DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/paged_reports.h"
#include "common/status.h"
#include "kernels/layout.h"

/** Most pools of a daemon: a list of all fits one message, and a mask with one bit per pool fits 64 bits. */
enum { CONFIG_MAX_POOLS = 64 };
enum { CONFIG_MAX_TENANTS = 1024 };
/** Longest name of a model, in bytes: as much as a report of the pool has room for. */
enum { CONFIG_MAX_MODEL = sizeof(((struct paged_pool_entry *)NULL)->model) - 1 };

enum config_setting {
	/* global */
	CONFIG_RUNTIME_DIR,
	CONFIG_ALLOW_USER,
	CONFIG_ALLOW_GROUP,
	CONFIG_ADMIN_GROUP,
	CONFIG_START_TIMEOUT,
	CONFIG_STOP_TIMEOUT,
	CONFIG_LOG_LEVEL,
	CONFIG_MAX_SESSIONS,
	CONFIG_MAX_MEMBERS,
	CONFIG_MAX_USER_MEMBERS,
	CONFIG_USER_SHARE,
	CONFIG_MAX_TICKET_TIME,
	CONFIG_MAX_PIN_TIME,
	CONFIG_MASK_SIZE,
	CONFIG_MASK_TIME,
	CONFIG_MASK_ARRAYS,
	/* per pool */
	CONFIG_POOL_LAYERS,
	CONFIG_POOL_KV_HEADS,
	CONFIG_POOL_HEAD_DIM,
	CONFIG_POOL_K_DIM,
	CONFIG_POOL_V_DIM,
	CONFIG_POOL_V_IN_K,
	CONFIG_POOL_DTYPE,
	CONFIG_POOL_PAGE_SIZE,
	CONFIG_POOL_PAGES,
	CONFIG_POOL_SIZE,
	CONFIG_POOL_SEQUENCES,
	CONFIG_POOL_MAX_LENGTH,
	CONFIG_POOL_TABLE_MEMORY,
	CONFIG_POOL_BACKEND,
	CONFIG_POOL_DEVICE,
	CONFIG_POOL_EXPORT,
	CONFIG_POOL_QUARANTINE,
	CONFIG_POOL_PUBLISH,
	CONFIG_POOL_FREE_PAGES,
	CONFIG_POOL_PIN_LIMIT,
	CONFIG_POOL_MODEL,
	CONFIG_POOL_ALLOW_USER,
	CONFIG_POOL_ALLOW_GROUP,
	/* per tenant */
	CONFIG_TENANT_ALLOW_USER,
	CONFIG_TENANT_ALLOW_GROUP,
	CONFIG_TENANT_LIMIT,
	CONFIG_TENANT_CACHE_SHARE,
	CONFIG_TENANT_SHARE,
	CONFIG_N_SETTINGS
};

/** The line and text of a setting in the file; line 0: not in the file. */
struct config_source {
	unsigned int line;
	char *text;
};

/** A part of a pool's pages: "5%" or "300". */
struct config_share {
	uint32_t number; /* percent or pages */
	bool percent;
};

/** Users or groups. */
struct config_ids {
	uint32_t *id;
	size_t n;
};

struct config_pool {
	char name[PAGED_MAX_NAME + 1];
	uint32_t layers, kv_heads, head_dim, k_dim, v_dim, dtype, page_size, sequences, max_length;
	bool v_in_k;
	uint32_t pages;       /* as set, or as many as fit `size` */
	uint64_t size;        /* bytes, as set; 0: pages is set instead */
	uint64_t table_bytes; /* most memory of page tables, as set; 0: the core's default */
	char *backend;
	char *device;           /* for cuda: index or UUID */
	uint32_t export;        /* enum memory_export */
	uint32_t quarantine_ms; /* how long pages stay in quarantine after a member's process ended */
	bool publish;           /* sequences can be published */
	struct config_share free_pages, pin_limit;
	char *model; /* at most CONFIG_MAX_MODEL bytes; NULL: not stated */
	struct config_ids allow_users, allow_groups;
	struct layout layout; /* computed from the settings above */
	struct config_source source[CONFIG_N_SETTINGS];
};

/** The limit of a tenant in a pool: of the pages of its sequences, or of its cached pages. */
struct config_limit {
	enum config_setting setting;   /* CONFIG_TENANT_LIMIT or CONFIG_TENANT_CACHE_SHARE */
	char name[PAGED_MAX_NAME + 1]; /* of the pool */
	struct config_share share;     /* as set, if size is 0 */
	uint64_t size;                 /* bytes, as set */
	uint32_t pool;                 /* index in config.pools, computed */
	uint32_t pages;                /* computed */
	struct config_source source;
};

/** Users who may have a part of the pages together, and of all else that the daemon has a number of. */
struct config_tenant {
	char name[PAGED_MAX_NAME + 1];
	struct config_ids allow_users, allow_groups;
	struct config_limit *limits; /* at most one for each pool and setting */
	size_t n_limits;
	uint32_t share; /* percent, of all but pages: as set, or computed */
	struct config_source source[CONFIG_N_SETTINGS];
};

struct config {
	char *path;
	char *runtime_dir;
	struct config_ids allow_users, allow_groups, admin_group;
	uint32_t start_timeout_ms, stop_timeout_ms, log_level, max_sessions, max_members;
	uint32_t max_user_members; /* 0: the share of the user's tenant alone counts */
	uint32_t user_share;       /* percent, of all but pages, of a user that no tenant includes */
	uint32_t max_ticket_ms;
	uint32_t max_pin_ms;   /* of those who are no administrators */
	uint64_t mask_bytes;   /* largest block mask that the daemon builds; 0: it builds none */
	uint32_t mask_time_ms; /* longest time to build one */
	uint64_t array_bytes;  /* quota of a session's arrays; 0: none allowed */
	struct config_pool *pools;
	size_t n_pools;
	struct config_tenant *tenants;
	size_t n_tenants;
	struct config_source source[CONFIG_N_SETTINGS];
};

/** config_load - read a file; PAGED_ERR_INVALID: the file is wrong, PAGED_ERR_SYSTEM: it cannot be read */
enum paged_status config_load(struct config *config, const char *path, struct paged_error *error);

/** config_share_pages - the pages that a share is, of a pool of n_pages */
static inline uint32_t
config_share_pages(struct config_share share, uint32_t n_pages)
{
	return share.percent ? (uint32_t)((uint64_t)n_pages * share.number / 100) : share.number;
}

/** config_percentage - percent of n, but at least 1 */
static inline uint32_t
config_percentage(uint32_t n, uint32_t percent)
{
	uint32_t part = (uint32_t)((uint64_t)n * percent / 100);

	return part > 0 ? part : 1;
}

/** config_free - free a config, also after a failed config_load() */
void config_free(struct config *config);

/**
 * config_fail - report a loaded setting as invalid, with its file, line and value
 *
 * @param[in] pool  NULL: a global setting
 */
enum paged_status config_fail(const struct config *config, const struct config_pool *pool, enum config_setting setting,
			      struct paged_error *error, const char *format, ...) __attribute__((format(printf, 5, 6)));

/** config_help - print the table of settings */
void config_help(FILE *out);

/** config_format_bytes - write a size as "360 KiB" or "2 TiB", rounded down; returns text */
const char *config_format_bytes(uint64_t n_bytes, char *text, size_t text_size);

#endif
