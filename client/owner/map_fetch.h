/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_fetch.h - request a pool's descriptors from the daemon and map the pool
 */
#ifndef PAGED_CLIENT_MAP_FETCH_H
#define PAGED_CLIENT_MAP_FETCH_H

#include "client/owner/control.h"
#include "client/owner/rpc.h"

/** map_fetch - open the pool called `name`, without its pages if tables_only; *pool is written on PAGED_OK only */
enum paged_status map_fetch(struct control *control, struct rpc *rpc, const uint8_t boot_id[WIRE_BOOT_ID_SIZE],
			    const char *name, bool tables_only, struct owner_pool *pool, struct paged_error *error);

#endif
