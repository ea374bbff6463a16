/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory.h - back ends that provide the memory of a pool's pages
 *
 * A back end allocates and populates a pool's memory once, at start, so that
 * lack of memory is a start-up error instead of a killed worker.  The daemon
 * tells members how to open the memory and never touches a page itself.
 *
 * Host memory that members have mapped outlives the release op: the kernel
 * frees it when the last member unmaps it.  The same holds for memory that
 * cuda exports by descriptor, but not for memory that it exports by handle.
 */
#ifndef PAGED_DAEMON_MEMORY_H
#define PAGED_DAEMON_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/wire.h"

struct memory_ops;

/** The parameters of an allocation. */
struct memory_request {
	const char *name;      /* of the pool */
	const char *file_name; /* of memory of the host: memory_file_name() */
	uint64_t size;         /* bytes of pages */
	/* Used by cuda only. */
	const char *device; /* index or UUID */
	enum memory_export { MEMORY_AUTO, MEMORY_VMM, MEMORY_LEGACY } export;
	uint32_t quarantine_ms; /* of the pages of a dead member */
};

struct memory {
	const struct memory_ops *ops;
	uint64_t size;            /* bytes that members open: the requested size, rounded up */
	struct wire_memory grant; /* tells members how to open the memory */
	int fd;                   /* sent to members; -1: grant.export needs none */
	char text[64];            /* "2 MiB huge pages", "CUDA, vmm, NVIDIA H200": for display */
	char device[48];          /* "GPU-8a1b..."; "": host memory */
	void *own;                /* private to the back end */
};

/** The memory that a back end has. */
struct memory_limits {
	uint64_t total;     /* bytes */
	uint64_t available; /* bytes that can be allocated without harm to other processes */
	char location[112]; /* "the system", "NVIDIA H200 (GPU-...)": pools with the same text share the memory */
};

struct memory_ops {
	const char *name;
	uint32_t alignment; /* bytes, of one (page, head) */
	/** Can this machine use the back end?  If not, PAGED_ERR_UNSUPPORTED with the reason. */
	enum paged_status (*probe)(struct paged_error *error);
	/** The memory of the host, or of the device that the request names. */
	enum paged_status (*limits)(const struct memory_request *request, struct memory_limits *limits,
				    struct paged_error *error);
	enum paged_status (*alloc)(struct memory *memory, const struct memory_request *request,
				   struct paged_error *error);
	/** The secret handle that WIRE_EXPORT_LEGACY needs; PAGED_ERR_UNSUPPORTED: a descriptor opens the memory. */
	enum paged_status (*handle)(const struct memory *memory, struct wire_handle *handle, struct paged_error *error);
	void (*release)(struct memory *memory);
	/**
	 * Is the memory still usable?  Never blocks, so the loop may call it, at
	 * intervals.  PAGED_ERR_GONE: no, and only a new process can recover.
	 * Another error: not known; the next call decides.
	 */
	enum paged_status (*poll)(const struct memory *memory, struct paged_error *error);
};

extern const struct memory_ops memory_ops_host, memory_ops_cuda;

/** memory_ops_find - look up a back end by name; on PAGED_ERR_UNSUPPORTED, error lists the existing ones */
enum paged_status memory_ops_find(const char *name, const struct memory_ops **ops_p, struct paged_error *error);

/** memory_no_handle - the handle op of memory that is opened by a descriptor: always fails */
enum paged_status memory_no_handle(const struct memory *memory, struct wire_handle *handle, struct paged_error *error);

/** memory_poll_ok - the poll op of memory that cannot fail: always PAGED_OK */
enum paged_status memory_poll_ok(const struct memory *memory, struct paged_error *error);

/**
 * memory_region_create - create the memory of a pool's table region
 *
 * The memory is sparse: a part that is never written is never allocated.  It
 * cannot be resized, and its mode is 0400: only a process of the daemon's own
 * user that changes the mode on purpose, or one of root, can open it for writing.
 *
 * @param[out] map_p  writable, zeroed; the caller unmaps it with munmap()
 * @param[out] fd_p   read-only descriptor for the members
 */
enum paged_status memory_region_create(const char *name, size_t size, void **map_p, int *fd_p,
				       struct paged_error *error);

#endif
