/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_fetch.h - what opens a pool, asked of the daemon, and the pool opened
 */
#ifndef PAGED_CLIENT_MAP_FETCH_H
#define PAGED_CLIENT_MAP_FETCH_H

#include "client/control.h"
#include "client/rpc.h"

/** map_fetch - pool is written on PAGED_OK only */
enum paged_status map_fetch(struct control *control, struct rpc *rpc, const uint8_t boot_id[WIRE_BOOT_ID_SIZE],
			    const char *name, struct owner_pool *pool, struct paged_error *error);

#endif
