/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pool.h - the end of a pool
 */
#ifndef PAGED_CLIENT_POOL_H
#define PAGED_CLIENT_POOL_H

#include "client/api/objects.h"

/** pool_free - free a pool with its batches and block masks; the client's mutex is held, or the process is a child */
void pool_free(struct paged_pool *pool, bool in_child);

#endif
