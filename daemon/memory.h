/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory.h - where a pool's pages lie: back ends
 *
 * A back end gives a pool its memory once, at start, all of it present, so
 * that lack of memory is a start-up error and not a killed worker.  The
 * daemon tells members how to open it and never touches a page itself.
 * Memory of the host that members mapped outlives memory_release(): it is
 * the kernel's until the last of them unmaps it.  So does what cuda exports
 * by descriptor; what it exports by handle does not.
 */
#ifndef PAGED_DAEMON_MEMORY_H
#define PAGED_DAEMON_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/wire.h"

struct memory_ops;

/** What a pool asks of its back end. */
struct memory_wish {
	const char *name; /* the pool's */
	uint64_t size;    /* bytes of pages */
	/* Of cuda alone. */
	const char *device; /* index or UUID */
	enum memory_export { MEMORY_AUTO, MEMORY_VMM, MEMORY_LEGACY } export;
};

struct memory {
	const struct memory_ops *ops;
	uint64_t size;            /* bytes that members open: what was asked for, rounded up */
	struct wire_memory grant; /* how they do */
	int fd;                   /* for them; -1: grant needs none */
	char text[64];            /* "2 MiB huge pages", "CUDA, vmm, NVIDIA H200": for people */
	char device[48];          /* "GPU-8a1b..."; "": the host */
	void *own;                /* the back end's */
};

/** What a back end has to give. */
struct memory_limits {
	uint64_t total;     /* bytes */
	uint64_t available; /* bytes that can be taken without harm to others */
	char whose[112];    /* "the system", "NVIDIA H200 (GPU-...)": pools of the same share it */
};

struct memory_ops {
	const char *name;
	uint32_t alignment; /* bytes, of one (page, head) */
	/** Can this machine do it at all?  PAGED_ERR_UNSUPPORTED says why not. */
	enum paged_status (*probe)(struct paged_error *error);
	/** What there is where the wish wants it. */
	enum paged_status (*limits)(const struct memory_wish *wish, struct memory_limits *limits,
				    struct paged_error *error);
	enum paged_status (*alloc)(struct memory *memory, const struct memory_wish *wish, struct paged_error *error);
	/** The secret that grant.export needs besides a descriptor; PAGED_ERR_UNSUPPORTED: none. */
	enum paged_status (*handle)(const struct memory *memory, struct wire_handle *handle, struct paged_error *error);
	void (*release)(struct memory *memory);
	/**
	 * Does it still work?  For the loop: it never waits.
	 * PAGED_ERR_GONE: nothing but a new process helps.
	 */
	enum paged_status (*look)(const struct memory *memory, struct paged_error *error);
};

extern const struct memory_ops memory_ops_host, memory_ops_cuda;

/** memory_ops_find - PAGED_ERR_UNSUPPORTED names the back ends that this build has */
enum paged_status memory_ops_find(const char *name, const struct memory_ops **ops_p, struct paged_error *error);

/** memory_no_handle - the handle op of memory that a descriptor alone opens */
enum paged_status memory_no_handle(const struct memory *memory, struct wire_handle *handle, struct paged_error *error);

/** memory_sound - the look op of memory that always does */
enum paged_status memory_sound(const struct memory *memory, struct paged_error *error);

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
