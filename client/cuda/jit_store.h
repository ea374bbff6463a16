/* SPDX-License-Identifier: Apache-2.0 */
/**
 * jit_store.h - JIT compilation of kernels with mods, on a background thread
 *
 * jit_prepare() requests code and returns at once.  jit_wait() waits for the
 * code or polls it.  A step that needs code which is not compiled yet waits, so
 * results never depend on when a compilation ends.
 *
 * Common mods are compiled ahead of time into the library
 * (kernels/cuda/host/aot.h).  Other code is compiled once: the store's list shares
 * it within a process, and the code cache shares it between processes.  The
 * thread opens the cache at the first request, and the compiler at the first
 * request that the cache cannot answer; neither is required before that.
 *
 * The thread does not log.  It queues its messages; jit_store_flush_log() and
 * jit_store_destroy() log them in order on the thread that calls them.
 *
 * Life: code is reference-counted.  It lives until every jit_prepare() has
 * been matched by a jit_release(), and at most as long as its store.
 * jit_store_destroy() waits for a running compilation.
 * Threads: any.
 * Fork: the compiling thread does not exist in a child.  The child may only
 * call jit_store_destroy() with in_child set, which frees memory only.
 */
#ifndef PAGED_CLIENT_JIT_STORE_H
#define PAGED_CLIENT_JIT_STORE_H

#include <stdbool.h>

#include "client/pagedclient.h"
#include "kernels/cuda/host/jit.h"

/** Identifies the code to compile. */
struct jit_request {
	const char *source; /* static strings, as in struct cuda_choice */
	const char *kernel;
	const char *mods;   /* copied */
	int capability;     /* compute capability of the device, 10 * major + minor */
	bool arch_specific; /* as in struct cuda_choice */
};

/** Size of a compiler's name and version, with the terminating zero. */
#define JIT_COMPILER_NAME_SIZE 48

/** A compiler.  Only the store's thread calls it.  No slot is NULL. */
struct jit_compiler {
	/** Called before the first compilation, and again if it failed; `version` is recorded in the cache's files. */
	enum paged_status (*open)(void *argument, char *version, size_t size, struct paged_error *error);
	enum paged_status (*compile)(void *argument, const struct jit_request *request,
				     struct cuda_jit_image *compiled_p, struct paged_error *error);
	void (*close)(void *argument); /* called when the store is destroyed, if open() succeeded */
};

struct jit_store_params {
	const struct jit_compiler *compiler;
	void *argument;
	/** The code cache's directory; NULL: that of jit_cache_path(); "": no cache. */
	const char *cache_path;
	/**
	 * Receives events that no call returns: why there is no cache, a damaged file, each compilation and its time.
	 */
	paged_log_fn log; /* NULL: none */
	void *log_argument;
};

struct jit_store;
struct jit_code;

/** jit_store_create - create a store; copies params and cache_path, borrows the rest; PAGED_ERR_NOMEM */
enum paged_status jit_store_create(const struct jit_store_params *params, struct jit_store **store_p,
				   struct paged_error *error);

/** jit_store_destroy - log the queued messages and free the store with all its code; takes NULL */
void jit_store_destroy(struct jit_store *store, bool in_child);

/** jit_store_flush_log - log the messages that the compiling thread has queued, on the calling thread */
void jit_store_flush_log(struct jit_store *store);

/**
 * jit_prepare - request code without waiting for it
 *
 * @param[out] code_p  equal requests share one struct jit_code, unless it failed
 * @retval PAGED_ERR_NOMEM
 * @retval PAGED_ERR_SYSTEM  the compiling thread cannot be started
 */
enum paged_status jit_prepare(struct jit_store *store, const struct jit_request *request, struct jit_code **code_p,
			      struct paged_error *error);

/**
 * jit_wait - wait until the code is compiled or has failed
 *
 * @param[in] timeout_ms  negative: no limit; 0: do not wait
 * @retval PAGED_ERR_AGAIN    timeout_ms is 0 and the code is not compiled yet
 * @retval PAGED_ERR_TIMEOUT  not compiled within timeout_ms; the compilation goes on
 * @return else the status of the compiler's open() or of its compile()
 */
enum paged_status jit_wait(struct jit_code *code, int timeout_ms, struct paged_error *error);

/**
 * jit_refused - report that the driver cannot load the image
 *
 * An image from the disk may come from a compiler that is newer than the
 * driver, on another machine that shares the directory; it is removed from the
 * cache.  A built-in image may also be too new for the driver.  Neither is
 * returned by a later jit_prepare().
 *
 * @return true: the code was not compiled here; release it and call jit_prepare() again
 */
bool jit_refused(struct jit_code *code);

/** jit_kernel_name - the kernel's name in the image; valid as long as jit_image() */
const char *jit_kernel_name(const struct jit_code *code);

/** jit_image - the image of code for which jit_wait() returned PAGED_OK; valid until jit_release() */
const struct cuda_jit_image *jit_image(const struct jit_code *code);

/** jit_release - takes NULL */
void jit_release(struct jit_code *code);

/** The argument of jit_compiler_nvrtc; it outlives the store. */
struct jit_nvrtc {
	int driver_version;      /* as in struct cuda_driver */
	struct cuda_nvrtc nvrtc; /* zeros; filled before the first compilation */
};

/** The compiler NVRTC. */
extern const struct jit_compiler jit_compiler_nvrtc;

#endif
