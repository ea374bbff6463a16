/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map.h - a pool in this process: its tables, and its pages wherever they lie
 *
 * Tables are a memfd whatever the back end; pages are what map_ops of the
 * grant's back end makes of it.  Sizes and seals are checked before anything
 * of the host is mapped, so that no touch of a mapping can fault.
 */
#ifndef PAGED_CLIENT_MAP_H
#define PAGED_CLIENT_MAP_H

#include <sys/types.h>

#include "client/owner.h"

/** What the daemon said; borrowed. */
struct map_grant {
	const struct wire_control_reply *reply; /* a WIRE_POOL_GRANT */
	const int *fds;                         /* its descriptors; stay the caller's */
	const struct wire_handle *handle;       /* with WIRE_EXPORT_LEGACY */
	const uint8_t *boot_id;                 /* of this life of the daemon */
	uid_t owner_uid;                        /* the daemon's */
};

struct map_ops {
	const char *backend;
	/** Pages of a pool whose name, layout and tables are there already; fills base. */
	enum paged_status (*open)(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error);
	/** In a child the parent's mappings are not there. */
	void (*close)(struct owner_pool *pool, bool in_child);
	/** The owner is gone and nothing here works on the pages: let go of what they would keep from others.  Once. */
	void (*let_go)(struct owner_pool *pool);
};

extern const struct map_ops map_ops_host, map_ops_cuda;

/** map_open - pool is written on PAGED_OK only */
enum paged_status map_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error);

void map_close(struct owner_pool *pool, bool in_child);

/** map_fd - map a sealed memfd; `what` begins the sentence of a failure */
enum paged_status map_fd(int fd, uint64_t size, int protection, const char *what, void **base_p,
			 struct paged_error *error);

#endif
