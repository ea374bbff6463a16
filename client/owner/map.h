/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map.h - map a pool's tables and pages into this process
 *
 * The tables are a memfd for every back end.  The pages are mapped by the
 * map_ops of the back end that the grant names.  Sizes and seals are checked
 * before host memory is mapped, so no access to a mapping can fault.
 */
#ifndef PAGED_CLIENT_MAP_H
#define PAGED_CLIENT_MAP_H

#include "client/owner/map_ops.h"

/** map_open - map a granted pool; *pool is written on PAGED_OK only */
enum paged_status map_open(const struct map_grant *grant, struct owner_pool *pool, struct paged_error *error);

void map_close(struct owner_pool *pool, bool in_child);

#endif
