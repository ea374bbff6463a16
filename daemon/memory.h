/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory.h - where a pool's pages lie: back ends
 *
 * A back end gives a pool its memory once, at start, all of it present, so
 * that lack of memory is a start-up error and not a killed worker.  The
 * daemon hands descriptors of it to members and never touches a page itself.
 * Memory that members mapped outlives memory_release(): it is the kernel's
 * until the last of them unmaps it.
 */
#ifndef PAGED_DAEMON_MEMORY_H
#define PAGED_DAEMON_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct memory_ops;

struct memory {
	const struct memory_ops *ops;
	uint64_t size; /* bytes: what was asked for, rounded up to whole pages of the system */
	int fd;        /* sealed against resizing; -1: none */
	char text[32]; /* "2 MiB huge pages", "4 KiB pages": for people */
};

/** What a back end has to give. */
struct memory_limits {
	uint64_t total;     /* bytes */
	uint64_t available; /* bytes that can be taken without harm to others */
	const char *whose;  /* "the system" */
};

struct memory_ops {
	const char *name;
	enum paged_status (*limits)(struct memory_limits *limits, struct paged_error *error);
	enum paged_status (*alloc)(struct memory *memory, const char *name, uint64_t size, struct paged_error *error);
	void (*release)(struct memory *memory);
};

extern const struct memory_ops memory_ops_host;

/** memory_ops_find - PAGED_ERR_UNSUPPORTED names the back ends that this build has */
enum paged_status memory_ops_find(const char *name, const struct memory_ops **ops_p, struct paged_error *error);

/**
 * memory_region_create - memory for a pool's table region
 *
 * Sparse: what is never written costs nothing.  Sealed so that `map`, the
 * daemon's own mapping, is the last writable one there can ever be.
 *
 * @param[out] map_p  writable, zeroed; unmap with munmap()
 * @param[out] fd_p   read-only descriptor to hand out
 */
enum paged_status memory_region_create(const char *name, size_t size, void **map_p, int *fd_p,
				       struct paged_error *error);

#endif
