/* SPDX-License-Identifier: Apache-2.0 */
/**
 * xalloc.h - calloc() and reallocarray() that end the program by die() if memory is exhausted
 */
#ifndef LLAMA_XALLOC_H
#define LLAMA_XALLOC_H

#include <stddef.h>

/** xcalloc - zeroed memory for n elements, which the caller frees */
void *xcalloc(size_t n, size_t size);

/** xreallocarray - old memory, or NULL, with room for n elements; new ones are not zeroed */
void *xreallocarray(void *old, size_t n, size_t size);

#endif
