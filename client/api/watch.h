/* SPDX-License-Identifier: Apache-2.0 */
/**
 * watch.h - the life of watches, for the pool that they belong to
 */
#ifndef PAGED_CLIENT_WATCH_H
#define PAGED_CLIENT_WATCH_H

#include "client/api/objects.h"

/** watch_free - close a watch; under the client's mutex, except in a forked child */
void watch_free(struct paged_watch *watch);

#endif
