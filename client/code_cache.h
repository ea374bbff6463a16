/* SPDX-License-Identifier: Apache-2.0 */
/**
 * code_cache.h - compiled code on disk, between runs of programs
 *
 * One file an image, named by the SHA-256 of all that says what it computes:
 * the mods' source, the kernels' sources, kernel and device.  The compiler is
 * not among it.  Two compilers, given the same sources, make images that do the
 * same, so that which of them it was is no reason to compile again; and a key
 * that needs no compiler is what lets a program that finds its code here do
 * without one, and without the time that loading it takes.  The file notes
 * which it was, for people who look.  So images stay when NVRTC is replaced;
 * who wants them made anew empties the folder, which is safe at any time.  One
 * that a driver refuses, for it knows that compiler not yet, is removed
 * (code_refused()).
 *
 * What is read is checked, length and SHA-256; a file that fails is removed.
 * Code is run with the reader's rights, so the folder has to be its effective
 * user's and nobody else's (mode 0700), or it is not used.
 *
 * Any number of processes may use one folder: files appear by rename(2),
 * whole, and may vanish at any time.  Past the limit the files that were used
 * longest ago go first.
 *
 * Life: a cache is open or, with the reason told, not there at all; every
 * function takes NULL for the latter.  A full or failing disk costs a
 * compilation and nothing else.
 * Threads: any number.
 */
#ifndef PAGED_CLIENT_CODE_CACHE_H
#define PAGED_CLIENT_CODE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define CODE_KEY_SIZE 32

struct code_key {
	uint8_t bytes[CODE_KEY_SIZE];
};

/** The key's parts, one after another; lengths count, so that ("ab", "c") is not ("a", "bc"). */
struct code_key_part {
	const void *bytes;
	size_t size;
};

/** code_key_make - the SHA-256 of the parts */
struct code_key code_key_make(const struct code_key_part *parts, size_t n_parts);

struct code_cache;

/**
 * code_cache_path - where this process keeps it: $PAGED_CACHE_DIR, else $XDG_CACHE_HOME/paged, else ~/.cache/paged
 *
 * @param[out] path  empty: nowhere, for $PAGED_CACHE_DIR is empty
 * @retval PAGED_ERR_INVALID  a path that is not absolute, or too long
 * @retval PAGED_ERR_NOENT    none of the variables, and no home
 */
enum paged_status code_cache_path(char *path, size_t size, struct paged_error *error);

/**
 * code_cache_open - a folder, made with its parents if it is not there
 *
 * @param[in] max_bytes  most that its files take together; 0: 256 MiB
 * @retval PAGED_ERR_PERM    another user's, or open to others
 * @retval PAGED_ERR_SYSTEM  it cannot be made or opened, with the reason
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status code_cache_open(const char *path, uint64_t max_bytes, struct code_cache **cache_p,
				  struct paged_error *error);

/** code_cache_close - takes NULL */
void code_cache_close(struct code_cache *cache);

/**
 * code_cache_get - an image that is there and whole
 *
 * @param[out] bytes_p  malloc(); the caller frees it
 * @retval PAGED_ERR_NOENT    not there
 * @retval PAGED_ERR_CORRUPT  it was damaged, and is gone now
 * @retval PAGED_ERR_SYSTEM   it cannot be read
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status code_cache_get(struct code_cache *cache, const struct code_key *key, char **bytes_p, size_t *size_p,
				 struct paged_error *error);

/**
 * code_cache_put - keep an image; replaces one of the same key
 *
 * @param[in] maker  whose work it is, noted in the file: "nvrtc 13.0"; cut to 47 bytes
 * @retval PAGED_ERR_LIMIT    larger than the whole cache may be
 * @retval PAGED_ERR_SYSTEM   it cannot be written
 */
enum paged_status code_cache_put(struct code_cache *cache, const struct code_key *key, const char *maker,
				 const char *bytes, size_t size, struct paged_error *error);

/** code_cache_remove - forget an image, if there is one */
void code_cache_remove(struct code_cache *cache, const struct code_key *key);

#endif
