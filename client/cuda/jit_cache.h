/* SPDX-License-Identifier: Apache-2.0 */
/**
 * jit_cache.h - compiled code on disk, between runs of programs
 *
 * Each image is one file.  Its name is the SHA-256 of everything that
 * determines what the image computes: the mods' source, the kernels' sources,
 * the kernel and the device.  The compiler is not part of the key, for two
 * reasons: images of the same sources by two compilers compute the same, and a
 * program that finds its code here need not load a compiler, which is slow.
 * The file records the compiler for information only.
 *
 * Images therefore stay valid when NVRTC is replaced.  To recompile them, empty
 * the directory, which is safe at any time.  An image that the driver refuses,
 * because it is older than the compiler, is removed (jit_refused()).
 *
 * Every read checks length and SHA-256; a damaged file is removed.  The code
 * runs with the reader's rights, so the directory is used only if it belongs to
 * the effective user and has mode 0700.
 *
 * Any number of processes may use one directory.  A file appears complete, by
 * rename(2), and may vanish at any time.  If the files exceed the size limit,
 * the least recently used are removed.
 *
 * Life: if a cache cannot be opened, jit_cache_open() reports the reason and
 * the cache is NULL, which every function accepts.  A full or failing disk
 * costs a compilation and has no other effect.
 * Threads: any number.
 */
#ifndef PAGED_CLIENT_JIT_CACHE_H
#define PAGED_CLIENT_JIT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define JIT_KEY_SIZE 32

struct jit_key {
	uint8_t bytes[JIT_KEY_SIZE];
};

/** A part of a key.  Lengths are hashed as well, so ("ab", "c") and ("a", "bc") differ. */
struct jit_key_part {
	const void *bytes;
	size_t size;
};

/** jit_key_make - the SHA-256 of the parts */
struct jit_key jit_key_make(const struct jit_key_part *parts, size_t n_parts);

struct jit_cache;

/**
 * jit_cache_path - the directory for this process: $PAGED_CACHE_DIR, else $XDG_CACHE_HOME/paged, else ~/.cache/paged
 *
 * @param[out] path  empty if $PAGED_CACHE_DIR is set but empty: use no cache
 * @retval PAGED_ERR_INVALID  the path is not absolute, or is too long
 * @retval PAGED_ERR_NOENT    $PAGED_CACHE_DIR is not set, $XDG_CACHE_HOME is not set or is relative (and so
 *                            ignored), and there is no home directory
 */
enum paged_status jit_cache_path(char *path, size_t size, struct paged_error *error);

/**
 * jit_cache_open - open a directory; it and its parents are created if they do not exist
 *
 * @param[in] max_bytes  limit on the total size of its files; 0: 256 MiB
 * @retval PAGED_ERR_PERM    the directory belongs to another user, or others may access it
 * @retval PAGED_ERR_SYSTEM  the directory cannot be created or opened; the error text has the reason
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status jit_cache_open(const char *path, uint64_t max_bytes, struct jit_cache **cache_p,
				 struct paged_error *error);

/** jit_cache_close - takes NULL */
void jit_cache_close(struct jit_cache *cache);

/**
 * jit_cache_get - read an image and check it
 *
 * @param[out] bytes_p  from malloc(); the caller frees it
 * @retval PAGED_ERR_NOENT    there is no such file
 * @retval PAGED_ERR_CORRUPT  the file was damaged; it has been removed
 * @retval PAGED_ERR_SYSTEM   the file cannot be read
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status jit_cache_get(struct jit_cache *cache, const struct jit_key *key, char **bytes_p, size_t *size_p,
				struct paged_error *error);

/**
 * jit_cache_put - store an image; replaces an image with the same key
 *
 * @param[in] maker  the compiler, recorded in the file: "nvrtc 13.0"; truncated to 47 bytes
 * @retval PAGED_ERR_LIMIT    the image is larger than max_bytes
 * @retval PAGED_ERR_SYSTEM   the file cannot be written
 */
enum paged_status jit_cache_put(struct jit_cache *cache, const struct jit_key *key, const char *maker,
				const char *bytes, size_t size, struct paged_error *error);

/** jit_cache_remove - remove an image, if it exists */
void jit_cache_remove(struct jit_cache *cache, const struct jit_key *key);

#endif
