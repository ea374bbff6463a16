/* SPDX-License-Identifier: Apache-2.0 */
/**
 * map_host.h - map a descriptor that the daemon gave
 */
#ifndef PAGED_CLIENT_MAP_HOST_H
#define PAGED_CLIENT_MAP_HOST_H

#include "client/owner/owner.h"

/** map_memfd - map a sealed memfd; the error text begins with `what` */
enum paged_status map_memfd(int fd, uint64_t size, int protection, const char *what, void **base_p,
			    struct paged_error *error);

#endif
