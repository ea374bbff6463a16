/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_host.h - a pool of the host back end in this process's memory
 *
 * Sizes and seals are checked before anything is mapped, so that no touch of
 * a mapping can fault: a region cannot shrink under its readers.
 */
#ifndef PAGED_CLIENT_MAP_HOST_H
#define PAGED_CLIENT_MAP_HOST_H

#include "client/owner.h"

/**
 * map_host_open - map what the daemon granted
 *
 * @param[in]  reply  a WIRE_POOL_GRANT
 * @param[in]  fds    stay the caller's
 * @param[out] pool   written on PAGED_OK only
 */
enum paged_status map_host_open(const struct wire_control_reply *reply, const int fds[WIRE_N_POOL_FDS],
				const uint8_t boot_id[WIRE_BOOT_ID_SIZE], struct owner_pool *pool,
				struct paged_error *error);

/** map_host_close - in a child nothing is mapped */
void map_host_close(struct owner_pool *pool, bool in_child);

#endif
