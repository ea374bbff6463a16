/* SPDX-License-Identifier: Apache-2.0 */
/**
 * contiguous.h - a private cache in plain arrays, without the library
 *
 * What answers from the shared pages are held against: no page, no table, no
 * kernel of the library.  As a reference it computes attention by its definition:
 * scores, softmax and sums are f64; K and V are rounded to a pool's f16 or bf16,
 * since that much belongs to the comparison; of a pool with less in an element it
 * differs, and so may the answers.  As what an engine would have without the
 * library it attends on threads with vectors.
 */
#ifndef LLAMA_CONTIGUOUS_H
#define LLAMA_CONTIGUOUS_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/model.h"

/**
 * contiguous_create - as the model's shape asks; returned with contiguous_destroy()
 *
 * @param[in] dtype   what K and V are rounded to
 * @param[in] matmul  attend with its code and on its threads; it outlives the cache; NULL: the reference
 */
struct attention *contiguous_create(const struct model *model, enum paged_dtype dtype, const struct matmul *matmul);

/** contiguous_destroy - all sequences are closed; takes NULL */
void contiguous_destroy(struct attention *attention);

#endif
