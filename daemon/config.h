/* SPDX-License-Identifier: Apache-2.0 */
/**
 * config.h - pagedd.conf(5)
 *
 * settings.c holds the one table of settings: name, unit, default, bounds,
 * help.  config_load() reads the file's words, and the table gives every value
 * its meaning.  A struct config that was
 * loaded holds values that work together: geometries are laid out, page
 * counts known, user names resolved.
 *
 * Errors are one line: file:line: [pool NAME:] setting = value: why.
 */
#ifndef PAGED_DAEMON_CONFIG_H
#define PAGED_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "kernels/layout.h"

/** Most pools of a daemon: a listing of all fits one message, and a bit each fits a word. */
enum { CONFIG_MAX_POOLS = 64 };

enum config_setting {
	/* global */
	CONFIG_RUNTIME_DIR,
	CONFIG_ALLOW_USER,
	CONFIG_ALLOW_GROUP,
	CONFIG_ADMIN_GROUP,
	CONFIG_STOP_TIMEOUT,
	CONFIG_LOG_LEVEL,
	CONFIG_MAX_SESSIONS,
	CONFIG_MAX_MEMBERS,
	CONFIG_MAX_USER_MEMBERS,
	CONFIG_MASK_SIZE,
	CONFIG_MASK_TIME,
	CONFIG_MASK_ARRAYS,
	/* of a pool */
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
	CONFIG_POOL_BACKEND,
	CONFIG_POOL_DEVICE,
	CONFIG_POOL_EXPORT,
	CONFIG_POOL_QUARANTINE,
	CONFIG_POOL_ALLOW_USER,
	CONFIG_POOL_ALLOW_GROUP,
	CONFIG_N_SETTINGS
};

/** Where and how a setting was written; line 0: it was not. */
struct config_source {
	unsigned int line;
	char *text;
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
	uint32_t pages; /* as written, or what size has room for */
	uint64_t size;  /* bytes, as written; 0: pages were */
	char *backend;
	char *device;           /* of cuda: index or UUID */
	uint32_t export;        /* enum memory_export */
	uint32_t quarantine_ms; /* of pages after their writers are gone */
	struct config_ids allow_users, allow_groups;
	struct layout layout; /* of all that */
	struct config_source source[CONFIG_N_SETTINGS];
};

struct config {
	char *path;
	char *runtime_dir;
	struct config_ids allow_users, allow_groups, admin_group;
	uint32_t stop_timeout_ms, log_level, max_sessions, max_members, max_user_members;
	uint64_t mask_bytes; /* of a block mask that is built for a session; 0: none is */
	uint32_t mask_time_ms;
	uint64_t array_bytes; /* of the arrays that a session keeps; 0: none */
	struct config_pool *pools;
	size_t n_pools;
	struct config_source source[CONFIG_N_SETTINGS];
};

/** config_load - PAGED_ERR_INVALID: the file is wrong; PAGED_ERR_SYSTEM: it could not be read */
enum paged_status config_load(struct config *config, const char *path, struct paged_error *error);

/** config_free - takes what config_load() filled, also when it failed */
void config_free(struct config *config);

/**
 * config_fail - refuse a setting that was loaded, with its place and value
 *
 * @param[in] pool  NULL: a global setting
 */
enum paged_status config_fail(const struct config *config, const struct config_pool *pool, enum config_setting setting,
			      struct paged_error *error, const char *format, ...) __attribute__((format(printf, 5, 6)));

/** config_help - the table, for people */
void config_help(FILE *out);

/** config_format_bytes - "360 KiB", "2 TiB", rounded down; returns text */
const char *config_format_bytes(uint64_t n_bytes, char *text, size_t text_size);

#endif
