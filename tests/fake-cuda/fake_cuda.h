/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fake_cuda.h - internal interface of a fake libcuda.so.1 that needs no GPU
 *
 * The library has every function of CUDA_DRIVER_FUNCTIONS and
 * CUDA_GRAPH_FUNCTIONS, as strict as CUDA or stricter.  Device memory is a
 * memfd with two mappings: one at the device address, inaccessible except
 * while a kernel runs, so that the host faults if it follows a device address;
 * and one elsewhere for copies.  The operations of a stream run only when a
 * call waits for them.  Calls that are undefined with a real driver fail here.
 *
 * New memory is filled with NaN.  Kernels run under a race detector (simt_run.h), in an order that depends on the
 * seed: run every kernel with several seeds.  The driver cannot detect wrong PTX, a layout that model and kernel
 * misread in the same way, errors of blocks that really run in parallel, or time; its mma rounds once, so the last
 * bits of a sum may differ from a GPU's.  It is stricter than CUDA in eight cases, which are errors here: two
 * barriers on the two sides of a branch, an exited thread that a barrier would have to count, a host that
 * records an imported event, a module that is unloaded before every capture and graph with its kernels has ended, a
 * launch with more than 48 KiB of shared memory without a preferred carve-out, a dependent launch of a kernel that was
 * compiled for an architecture without griddepcontrol, a tensor map with a dimension that is longer than the next
 * one's stride, and a copy by a tensor map in global memory.  Dependent launches run in order, but whatever such a
 * kernel could see of the one before it is an error (simt_run.h).
 *
 * CUDA_ERROR_NOT_SUPPORTED is the result of calls that are legal for CUDA but not modelled.  Modelled are launches of
 * simt.h's grids and blocks, and tensor maps as tensor_map.h describes them.
 *
 * One lock guards all state; entry_begin() takes it.
 *
 * Environment, read by the first call of a process:
 *   PAGED_FAKE_CUDA_DEVICES=2              number of devices
 *   PAGED_FAKE_CUDA_MEMORY=268435456       bytes of memory per device
 *   PAGED_FAKE_CUDA_ATTRIBUTES=20=3,102=0  device attributes by number
 *   PAGED_FAKE_CUDA_FAIL=cuMemAlloc_v2=2,cuLaunchKernel@3=719,cuInit@2+=999
 *                                         the function's result: of every call, of call 3 (@3), of call 2 and later;
 *                                         "hang": the call does not return
 *   PAGED_FAKE_CUDA_VERSION=12080          the CUDA version that the driver supports
 *   PAGED_FAKE_CUDA_SEED=7                 order of blocks and threads (simt_run.h); 0 is ascending
 *   PAGED_FAKE_CUDA_BREAK=FILE             a call that finds FILE removes it; CUDA then fails in the calling process
 *   PAGED_FAKE_CUDA_HOLD=cuMemAlloc_v2=FILE  a call of the function creates FILE and goes on when FILE is removed;
 *                                         other calls go on, also of the function while FILE exists
 *   PAGED_FAKE_CUDA_LOG=FILE               append a line for each call: process id, function, result
 *   PAGED_FAKE_CUDA_RUNS=FILE              append a line for each kernel that runs, also in a graph: process id, name
 *   CUDA_VISIBLE_DEVICES=1,0              as in CUDA, but numbers only
 */
#ifndef TESTS_FAKE_CUDA_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernels/cuda/host/driver.h"
#include "tests/support/cuda_graph.h"

#pragma GCC visibility push(default)

#define FAKE_CUDA_DECLARE(symbol, field, parameters) int symbol parameters;
CUDA_DRIVER_FUNCTIONS(FAKE_CUDA_DECLARE)
CUDA_DRIVER_OPTIONAL_FUNCTIONS(FAKE_CUDA_DECLARE)
CUDA_GRAPH_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

/* Not in CUDA_DRIVER_FUNCTIONS; paged-bench uses it. */
int cuEventElapsedTime(float *ms, cuda_event start, cuda_event end);

/** fake_cuda_message - the error message of the kernel or copy that failed last; "" if none failed */
const char *fake_cuda_message(void);

#pragma GCC visibility pop

/* Entry points (entry.c) */

/**
 * Precondition of a call, each in addition to the one before: none; cuInit()
 * was called; no sticky error since; a current context; and no capture that
 * forbids the call.
 */
enum entry_needs { ENTRY_ANY_TIME, ENTRY_INIT, ENTRY_DRIVER, ENTRY_CONTEXT, ENTRY_UNSAFE };

/** entry_begin - take the lock; CUDA_SUCCESS, or the error that the call must return at once */
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

/** entry_wait - release the lock until entry_changed() or for some milliseconds, then take it again */
void entry_wait(void);
void entry_changed(void);
void entry_lock(void);
void entry_unlock(void);

/** entry_poison - make every later call fail, as after an error on the device; print and keep the message */
int entry_poison(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

uint64_t entry_setting(const char *name, uint64_t otherwise);

/* Devices and contexts (device.c) */

#define MAX_DEVICES 8

struct CUctx_st {
	cuda_device device;
	unsigned int n_retained;
	uint64_t generation; /* how often the context was created */
};

struct CUctx_st *context_now(void);
bool context_is_current(void);
int device_attribute_of(cuda_device device, int attribute);
bool device_exists(cuda_device device);
size_t device_memory_size(void);
const struct cuda_uuid *device_uuid_of(cuda_device device);
/** device_by_uuid - -1 if this process sees no such device */
cuda_device device_by_uuid(const struct cuda_uuid *uuid);

/* Backing files (backing.c): the bytes of an allocation, then a control page with its state */

#define BACKING_ALLOCATED 0x6d656d31u /* by cuMemAlloc */
#define BACKING_CREATED 0x766d6d31u   /* by cuMemCreate */
#define BACKING_EVENT 0x65767431u

struct backing_control {
	uint32_t magic;
	uint32_t alive; /* 0: its owner freed it */
	uint64_t id;
	uint64_t size;
	struct cuda_uuid device;
	uint64_t address;      /* in the owner's process */
	uint32_t rdma_capable; /* by cuMemCreate() */
	/* Events only: number of records so far, the last one that completed, the last one that a call waits for. */
	uint32_t recorded, reached, wanted;
};

struct backing {
	int fd;
	size_t size; /* without the control page */
	struct backing_control *control;
};

bool backing_make(struct backing *backing, uint32_t magic, size_t size, cuda_device device);
/** backing_open - open a descriptor and take ownership; false (and closed) unless it is a backing file */
bool backing_open(struct backing *backing, int fd, uint32_t magic);
void backing_close(struct backing *backing);

/** The contents of an IPC handle. */
struct backing_handle {
	uint32_t magic;
	int32_t pid;
	uint64_t started; /* start time of the process, which differs if its pid was reused */
	int32_t fd;
	uint64_t id;
};

struct cuda_ipc_handle backing_export(const struct backing *backing);
/** backing_import - open another process's file; returns a CUDA result; *owner_p is a pidfd of that process */
int backing_import(struct backing *backing, const struct cuda_ipc_handle *handle, uint32_t magic, int *owner_p);
bool process_gone(int pidfd);

/* Memory (memory.c, vmm.c) */

enum memory_kind { MEMORY_ALLOCATED, MEMORY_IMPORTED, MEMORY_MAPPED };

struct memory {
	struct memory *next;
	enum memory_kind kind;
	cuda_address address;
	size_t size;   /* as requested */
	size_t mapped; /* rounded up to whole pages */
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
/** memory_host - the host address of a device range; NULL unless one allocation contains it and allows the access */
unsigned char *memory_host(cuda_address address, size_t size, bool writes);
/** memory_map - map a backing file twice and add it to the list; address 0: any device address */
struct memory *memory_map(const struct backing *backing, cuda_address address, size_t offset, size_t size);
void memory_unmap(struct memory *memory);
/** memory_open, memory_close - allow, forbid kernels to access a device's memory; never imports that the owner freed
 * or whose owner exited */
void memory_open(cuda_device device);
void memory_close(cuda_device device);
void memory_forget(cuda_device device);
bool memory_pinned(const void *at, size_t size);
void *memory_reserve(size_t size, size_t alignment);
size_t vmm_used(cuda_device device);
bool vmm_rdma_capable(const struct vmm *vmm);

/* Streams (stream.c, event.c) */

struct operation {
	struct operation *next;
	uint64_t number; /* counts over all streams, in the order of calls */
	/** run - do the operation; returns a CUDA result */
	int (*run)(struct operation *operation);
	union {
		struct {
			cuda_address to, from;
			void *host_to;
			const void *host_from;
			size_t size;
			unsigned char value;
		} copy;
		struct cuda_copy_2d copy_2d;
		struct {
			struct CUevent_st *event;
			uint32_t record;
		} event;
		struct {
			struct CUfunc_st *function;
			unsigned int grid[2], n_threads;
			size_t shared_size;
			cuda_device device;
			bool dependent;
		} launch;
		struct {
			struct CUgraphExec_st *exec;
			uint64_t launch_number;     /* number of earlier launches of exec */
			struct CUstream_st *before; /* stream of the launch before, if that has not run yet */
			uint64_t before_number;
		} graph;
	};
	unsigned char data[]; /* staged bytes, a kernel's parameters */
};

/** A set of nodes of a program on which the next operation depends. */
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
	uint64_t running; /* number of the operation that a thread is running; 0: none */
	bool queried;     /* a query returned "not ready"; the next query runs the stream */
	struct operation *first, **last;
	struct capture *capture; /* NULL: not capturing */
	struct capture_set tips; /* while capturing: the dependencies of the next operation */
};

/** stream_of - the stream of a handle (NULL: the default one) in the current context, or NULL */
struct CUstream_st *stream_of(cuda_stream stream);
struct operation *stream_operation(size_t data_size, int (*run)(struct operation *operation));
/** stream_admit - stream_of() for a call that enqueues; returns a CUDA result, also if a capture forbids the call */
int stream_admit(cuda_stream handle, struct CUstream_st **stream_p);
bool stream_is_default(const struct CUstream_st *stream);
/** stream_add - append an operation to the stream's queue, or to its capture */
void stream_add(struct CUstream_st *stream, struct operation *operation);
/** stream_run - run all operations of the stream up to this number */
int stream_run(struct CUstream_st *stream, uint64_t number);
int stream_run_all(cuda_device device);
void stream_forget(struct CUctx_st *context);
bool stream_exists(const struct CUstream_st *stream);
/** event_forget - release the event of an operation that is never run */
void event_forget(const struct operation *operation);

/** streams_leave, events_leave - remove all streams, events from a capture that ends */
void streams_leave(const struct capture *capture);
void events_leave(const struct capture *capture);

/* Captures (capture.c) */

/** capture_refuse - invalidate the capture; returns `result` */
int capture_refuse(struct capture *capture, int result);
bool capture_invalid(const struct capture *capture);
/** capture_unsafe - check a call that is unsafe during captures; invalidates the captures whose mode forbids it */
int capture_unsafe(void);
/** capture_context - check a call that affects every stream of the context */
int capture_context(const struct CUctx_st *context);
int capture_merge(struct capture_set *to, const struct capture_set *from);
void capture_add(struct CUstream_st *stream, struct operation *operation);
void capture_forget(const struct CUctx_st *context);

/* Graphs (graph.c) */

struct graph_program *program_create(void);
void program_drop(struct graph_program *program);
bool program_add(struct graph_program *program, struct operation *operation, const struct capture_set *after);
unsigned int program_last(const struct graph_program *program);
/** programs_have - does uses() hold for an operation of a capture or of a graph that is not destroyed? */
bool programs_have(bool (*uses)(const struct operation *operation, const void *argument), const void *argument);
/** program_ends_in - whether each node is in `ends` or precedes one of them */
bool program_ends_in(const struct graph_program *program, const struct capture_set *ends);
/** graph_create - make a graph of the program; takes ownership of it */
int graph_create(struct graph_program *program, struct CUgraph_st **graph_p);

#endif
