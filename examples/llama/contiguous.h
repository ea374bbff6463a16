/* SPDX-License-Identifier: Apache-2.0 */
/**
 * contiguous.h - a private cache in plain arrays, without the library
 *
 * Answers from the shared pages are compared with answers from this cache, which
 * uses no page, no page table and no kernel of the library.  It has two modes.  As
 * the reference it computes attention by its definition: scores, softmax and sums
 * are f64, and K and V are rounded to a pool's f16 or bf16 as the pool rounds them.
 * It does not model the rounding of pools with smaller elements, so answers from
 * those may differ.  As the cache of an engine without the library, it computes
 * attention on several threads with vector code.
 */
#ifndef LLAMA_CONTIGUOUS_H
#define LLAMA_CONTIGUOUS_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/model.h"

/**
 * contiguous_create - create a cache for the model's shape; free it with contiguous_destroy()
 *
 * @param[in] dtype   dtype to which K and V are rounded
 * @param[in] matmul  use its vector code and its threads; borrowed for the cache's life; NULL: the reference mode
 */
struct attention *contiguous_create(const struct model *model, enum paged_dtype dtype, const struct matmul *matmul);

/** contiguous_destroy - free the cache; all sequences must be closed; takes NULL */
void contiguous_destroy(struct attention *attention);

#endif
