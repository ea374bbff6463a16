/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_ops.h - how a back end maps the pages of a pool that the daemon granted
 */
#ifndef PAGED_CLIENT_MAP_OPS_H
#define PAGED_CLIENT_MAP_OPS_H

#include <sys/types.h>

#include "client/owner/owner.h"

/** The daemon's reply to a pool request; borrowed. */
struct map_grant {
	const struct wire_control_reply *reply; /* a WIRE_POOL_GRANT */
	const int *fds;                         /* the reply's descriptors; the caller keeps them */
	const struct wire_handle *handle;       /* if the export is WIRE_EXPORT_LEGACY */
	const uint8_t *boot_id;                 /* of the running daemon */
	uid_t owner_uid;                        /* the daemon's user */
	bool tables_only;                       /* do not map the pages */
};

struct map_ops {
	const char *backend;
	/** Maps the pages and sets pool->base; the pool's name, layout and tables are set already. */
	enum paged_status (*open)(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error);
	/** in_child: the parent's mappings do not exist in a forked child. */
	void (*close)(struct owner_pool *pool, bool in_child);
	/**
	 * Releases the page memory before close().  Called at most once, after the owner is gone and when no work of
	 * this process uses the pages.
	 */
	void (*release_pages)(struct owner_pool *pool);
};

extern const struct map_ops map_ops_host, map_ops_cuda;

#endif
