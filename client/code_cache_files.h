/* SPDX-License-Identifier: Apache-2.0 */
/** code_cache_files.h - the files in a code cache's folder, and which of them have to go */
#ifndef PAGED_CLIENT_CODE_CACHE_FILES_H
#define PAGED_CLIENT_CODE_CACHE_FILES_H

#include <stdint.h>

/** An image's name: 64 hexadecimal digits. */
#define CODE_CACHE_NAME_SIZE 65
/** What a file's name begins with while it is written. */
#define CODE_CACHE_TEMPORARY ".new-"

/**
 * code_cache_trim - remove images, oldest use first, until the rest fits
 *
 * What a writer left behind that died (after an hour) goes as well; other
 * names are let be.
 */
void code_cache_trim(int dir, uint64_t max_bytes);

#endif
