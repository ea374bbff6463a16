/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stand_in.h - the parts of a libcuda.so.1 that needs no GPU
 *
 * It has every function of CUDA_DRIVER_FUNCTIONS and CUDA_GRAPH_FUNCTIONS, as
 * strict as CUDA or stricter.  Device memory is a memfd, mapped twice: where its device address
 * says, closed but while a kernel runs, so that a host that follows a device
 * address faults; and elsewhere for copies.  Streams do nothing until somebody
 * waits for them.  What a real driver leaves undefined fails here.
 *
 * One lock guards everything; entry_begin() takes it.
 *
 * Environment, read by the first call of a process:
 *   PAGED_STAND_IN_DEVICES=2              how many devices
 *   PAGED_STAND_IN_MEMORY=268435456       bytes of each
 *   PAGED_STAND_IN_ATTRIBUTES=20=3,102=0  device attributes by number
 *   PAGED_STAND_IN_FAIL=cuMemAlloc_v2=2,cuLaunchKernel@3=719,cuInit@2+=999
 *                                         results of every, the third, the second and later calls
 *   PAGED_STAND_IN_SEED=7                 order of blocks and threads (simt_run.h); 0 is ascending
 *   PAGED_STAND_IN_BREAK=FILE             as soon as it is there, a call removes it and CUDA is lost to its process
 *   PAGED_STAND_IN_LOG=FILE               a line for each call: process id, function, result
 *   CUDA_VISIBLE_DEVICES=1,0              as CUDA's, numbers alone
 */
#ifndef TESTS_CUDA_STAND_IN_STAND_IN_H
#define TESTS_CUDA_STAND_IN_STAND_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernels/cuda/driver.h"
#include "tests/cuda_graph.h"

#pragma GCC visibility push(default)

#define STAND_IN_DECLARE(symbol, field, parameters) int symbol parameters;
CUDA_DRIVER_FUNCTIONS(STAND_IN_DECLARE)
CUDA_GRAPH_FUNCTIONS(STAND_IN_DECLARE)
#undef STAND_IN_DECLARE

/* No part of the library's table: paged-bench asks for it. */
int cuEventElapsedTime(float *ms, cuda_event start, cuda_event end);

/** stand_in_message - what was wrong with the kernel or copy that failed last; "" if none did */
const char *stand_in_message(void);

#pragma GCC visibility pop

/* Entry points (entry.c) */

/**
 * What a call needs: nothing, cuInit(), that and no error since, a current
 * context as well, and that no capture forbids it.
 */
enum entry_needs { ENTRY_ANY_TIME, ENTRY_INIT, ENTRY_DRIVER, ENTRY_CONTEXT, ENTRY_UNSAFE };

/** entry_begin - takes the lock; CUDA_SUCCESS, or what the call shall return at once */
int entry_begin(const char *name, enum entry_needs needs);
int entry_end(const char *name, int result);

#define ENTRY(name, parameters, needs, call)            \
	int name parameters                             \
	{                                               \
		int result = entry_begin(#name, needs); \
                                                        \
		if (result == CUDA_SUCCESS)             \
			result = call;                  \
		return entry_end(#name, result);        \
	}

/** entry_wait - give up the lock until something changes, or for some milliseconds */
void entry_wait(void);
void entry_changed(void);
void entry_lock(void);
void entry_unlock(void);

/** entry_poison - from now on every call fails, as after an error on the device; prints and keeps the sentence */
int entry_poison(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

uint64_t entry_setting(const char *name, uint64_t otherwise);

/* Devices and contexts (device.c) */

#define MAX_DEVICES 8

struct CUctx_st {
	cuda_device device;
	unsigned int n_retained;
	uint64_t generation; /* how often it was made */
};

struct CUctx_st *context_now(void);
bool context_is_current(void);
int device_attribute_of(cuda_device device, int attribute);
bool device_exists(cuda_device device);
size_t device_memory_size(void);
const struct cuda_uuid *device_uuid_of(cuda_device device);
/** device_by_uuid - -1 if this process sees no such device */
cuda_device device_by_uuid(const struct cuda_uuid *uuid);

/* Backing files (backing.c): bytes, and after them a page that tells what became of them */

#define BACKING_ALLOCATED 0x6d656d31u /* by cuMemAlloc */
#define BACKING_CREATED 0x766d6d31u   /* by cuMemCreate */
#define BACKING_EVENT 0x65767431u

struct backing_control {
	uint32_t magic;
	uint32_t alive; /* 0: its owner freed it */
	uint64_t id;
	uint64_t size;
	struct cuda_uuid device;
	uint64_t address; /* in its owner */
	/* Of an event: how often it was recorded, up to which record that was reached, and is wanted. */
	uint32_t recorded, reached, wanted;
};

struct backing {
	int fd;
	size_t size; /* without the control page */
	struct backing_control *control;
};

bool backing_make(struct backing *backing, uint32_t magic, size_t size, cuda_device device);
/** backing_open - from a descriptor, which it takes over; false (and closed) unless it is such a file */
bool backing_open(struct backing *backing, int fd, uint32_t magic);
void backing_close(struct backing *backing);

/** The contents of an IPC handle. */
struct backing_handle {
	uint32_t magic;
	int32_t pid;
	uint64_t started; /* of the process, which tells it from a later one of the same id */
	int32_t fd;
	uint64_t id;
};

struct cuda_ipc_handle backing_export(const struct backing *backing);
/** backing_import - opens another process's file; a CUDA result; owner_p: a pidfd */
int backing_import(struct backing *backing, const struct cuda_ipc_handle *handle, uint32_t magic, int *owner_p);
bool process_gone(int pidfd);

/* Memory (memory.c, vmm.c) */

enum memory_kind { MEMORY_ALLOCATED, MEMORY_IMPORTED, MEMORY_MAPPED };

struct memory {
	struct memory *next;
	enum memory_kind kind;
	cuda_address address;
	size_t size;   /* what was asked for */
	size_t mapped; /* whole pages */
	unsigned char *alias;
	struct backing backing;
	cuda_device device;
	bool readable, writable;
	unsigned int n_opens; /* of an import */
	int owner;            /* pidfd of an import's exporter, or -1 */
	int owner_id;
	struct vmm *vmm;
};

struct memory *memory_find(cuda_address address);
/** memory_host - where a range lies for the host; NULL if it is not all in one allocation that may be used so */
unsigned char *memory_host(cuda_address address, size_t size, bool writes);
/** memory_map - the two mappings of a backing file, in a new entry of the list; address 0: anywhere */
struct memory *memory_map(const struct backing *backing, cuda_address address, size_t offset, size_t size);
void memory_unmap(struct memory *memory);
/** memory_open, memory_close - let kernels of a device at its memory, but not at imports whose owner freed them or died
 */
void memory_open(cuda_device device);
void memory_close(cuda_device device);
void memory_forget(cuda_device device);
bool memory_pinned(const void *at, size_t size);
void *memory_reserve(size_t size, size_t alignment);
size_t vmm_used(cuda_device device);

/* Streams (stream.c, event.c) */

struct operation {
	struct operation *next;
	uint64_t number; /* over all streams, in the order of calls */
	/** run - do it; a CUDA result */
	int (*run)(struct operation *operation);
	union {
		struct {
			cuda_address to, from;
			void *host_to;
			const void *host_from;
			size_t size;
			unsigned char value;
		} copy;
		struct {
			struct CUevent_st *event;
			uint32_t record;
		} event;
		struct {
			struct CUfunc_st *function;
			unsigned int grid[2], n_threads;
			size_t shared_size;
			cuda_device device;
		} launch;
		struct {
			struct CUgraphExec_st *exec;
			uint64_t turn;              /* launches before this one, of which the last: */
			struct CUstream_st *before; /* there still if that one has not run */
			uint64_t before_number;
		} graph;
	};
	unsigned char data[]; /* staged bytes, a kernel's parameters */
};

/** Nodes of a program behind which something comes. */
#define CAPTURE_WIDTH 16

struct capture_set {
	unsigned int n;
	unsigned int nodes[CAPTURE_WIDTH];
};

struct CUstream_st {
	struct CUstream_st *next;
	struct CUctx_st *context;
	uint64_t generation; /* of the context */
	bool non_blocking;
	uint64_t running; /* the number of the operation that runs in some thread; 0: none */
	bool queried;     /* and told to come again; the next time it moves */
	struct operation *first, **last;
	struct capture *capture; /* NULL: in none */
	struct capture_set tips; /* then: behind what the next operation comes */
};

/** stream_of - the stream of a handle (NULL: the default one) in the current context, or NULL */
struct CUstream_st *stream_of(cuda_stream stream);
struct operation *stream_operation(size_t data_size, int (*run)(struct operation *operation));
/** stream_admit - stream_of() for a call that enqueues: a CUDA result, also of captures that do not bear it */
int stream_admit(cuda_stream handle, struct CUstream_st **stream_p);
bool stream_is_default(const struct CUstream_st *stream);
/** stream_add - to its queue, or to its capture */
void stream_add(struct CUstream_st *stream, struct operation *operation);
/** stream_run - everything in it up to this number */
int stream_run(struct CUstream_st *stream, uint64_t number);
int stream_run_all(cuda_device device);
void stream_forget(struct CUctx_st *context);
bool stream_exists(const struct CUstream_st *stream);
/** streams_leave, events_leave - the capture ends */
void streams_leave(const struct capture *capture);
void events_leave(const struct capture *capture);

/* Captures (capture.c) */

/** capture_refuse - the capture is invalid from now on; returns result */
int capture_refuse(struct capture *capture, int result);
bool capture_invalid(const struct capture *capture);
/** capture_unsafe - a call that no thread may make beside captures; those that forbid it are invalid then */
int capture_unsafe(void);
/** capture_context - a call that concerns every stream of the context */
int capture_context(const struct CUctx_st *context);
int capture_merge(struct capture_set *to, const struct capture_set *from);
void capture_add(struct CUstream_st *stream, struct operation *operation);
void capture_forget(const struct CUctx_st *context);

/* Graphs (graph.c) */

struct graph_program *program_create(void);
void program_drop(struct graph_program *program);
bool program_add(struct graph_program *program, struct operation *operation, const struct capture_set *after);
unsigned int program_last(const struct graph_program *program);
/** program_ends_in - every node comes before one of these, or is one */
bool program_ends_in(const struct graph_program *program, const struct capture_set *ends);
/** graph_create - takes the program over */
int graph_create(struct graph_program *program, struct CUgraph_st **graph_p);

#endif
