/* SPDX-License-Identifier: Apache-2.0 */
/**
 * code.h - kernels with mods in them, compiled on a thread of their own
 *
 * code_prepare() asks for code and returns at once; code_wait() waits for it,
 * or looks whether it is there.  A step that needs code which is not
 * ready waits for it: results never depend on when a compilation ended.
 *
 * Ready-made mods are built into the library (kernels/cuda/ready.h).  Of the
 * others, what was asked for twice is compiled once: within a process by the
 * store's list, between processes by the code cache.  The cache is opened by the first
 * request and the compiler by the first that the cache has no answer to, both
 * on the thread: neither is missed before it is needed.
 *
 * The thread logs nothing itself: what it has to say is kept, in order, until
 * code_store_tell() or the store's end, which tell it from the thread that
 * calls them.
 *
 * Life: code belongs to its store and lives from code_prepare() to as many
 * code_release(), at most as long as the store.  Destroying that waits for a
 * compilation that is under way.
 * Threads: any.
 * Fork: a child has no compiling thread; all it may do is code_store_destroy()
 * with in_child set, which frees memory only.
 */
#ifndef PAGED_CLIENT_CODE_H
#define PAGED_CLIENT_CODE_H

#include <stdbool.h>

#include "client/pagedclient.h"
#include "kernels/cuda/compile.h"

/** What code is wanted. */
struct code_request {
	const char *source; /* static strings, as in struct cuda_choice */
	const char *kernel;
	const char *mods; /* copied */
	int capability;   /* the device's, 10 * major + minor */
};

/** Room for what a compiler calls itself. */
#define CODE_MAKER_SIZE 48

/** How code is made; called by the store's thread alone.  No slot is NULL. */
struct code_compiler {
	/** Before the first compilation, again after it failed; `version` is noted in the cache's files. */
	enum paged_status (*open)(void *argument, char *version, size_t size, struct paged_error *error);
	enum paged_status (*compile)(void *argument, const struct code_request *request,
				     struct cuda_compiled *compiled_p, struct paged_error *error);
	void (*close)(void *argument); /* after an open() that succeeded, when the store ends */
};

struct code_store_params {
	const struct code_compiler *compiler;
	void *argument;
	/** The code cache's folder; NULL: what code_cache_path() says; "": none. */
	const char *cache_path;
	/** What cannot be told as a failure: no cache and why, a damaged file; and what was compiled, how long. */
	paged_log_fn log; /* NULL: none */
	void *log_argument;
};

struct code_store;
struct code;

/** code_store_create - params are copied but for what they point at; PAGED_ERR_NOMEM */
enum paged_status code_store_create(const struct code_store_params *params, struct code_store **store_p,
				    struct paged_error *error);

/** code_store_destroy - takes NULL; code that was not released goes with it, what is left to tell is told */
void code_store_destroy(struct code_store *store, bool in_child);

/** code_store_tell - log what the thread had to say since the last time, from this one */
void code_store_tell(struct code_store *store);

/**
 * code_prepare - ask for code, and do not wait for it
 *
 * @param[out] code_p  equal requests share one, unless it failed
 * @retval PAGED_ERR_NOMEM
 * @retval PAGED_ERR_SYSTEM  no thread for it
 */
enum paged_status code_prepare(struct code_store *store, const struct code_request *request, struct code **code_p,
			       struct paged_error *error);

/**
 * code_wait - until it is there, or has failed
 *
 * @param[in] timeout_ms  negative: no end; 0: does not wait
 * @retval PAGED_ERR_AGAIN    it is not there, timeout_ms is 0
 * @retval PAGED_ERR_TIMEOUT  it was not compiled in that time, and the compilation goes on
 * and what opening the compiler and cuda_compile() say
 */
enum paged_status code_wait(struct code *code, int timeout_ms, struct paged_error *error);

/**
 * code_refused - the driver takes no such image
 *
 * What came from the disk may have been made by a newer compiler than the
 * driver knows, on another machine that shares the folder: it is removed.
 * What is built in may be newer than the driver as well.  Neither is given to
 * anybody any more.
 *
 * @return true: it was not compiled here, so to release this and to ask anew is worth it
 */
bool code_refused(struct code *code);

/** code_kernel - what the kernel is called in the image; valid as that is */
const char *code_kernel(const struct code *code);

/** code_compiled - image of code that is ready; valid until it is released */
const struct cuda_compiled *code_compiled(const struct code *code);

/** code_release - takes NULL */
void code_release(struct code *code);

/** By NVRTC; the argument is a struct cuda_nvrtc of zeros, which outlives the store. */
extern const struct code_compiler code_compiler_nvrtc;

#endif
