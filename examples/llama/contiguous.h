/* SPDX-License-Identifier: Apache-2.0 */
/**
 * contiguous.h - a private cache in plain arrays, without the library
 *
 * What answers from the shared pages are held against: no page, no table, no
 * kernel of the library.  As a reference it computes attention by its definition:
 * scores, softmax and sums are f64; K and V are rounded to a pool's f16 or bf16,
 * since that much belongs to the comparison; of a pool with less in an element it
 * differs, and so may the answers.  As what an engine would have without the
 * library it keeps f32, and attends on threads with vectors.
 */
#ifndef LLAMA_CONTIGUOUS_H
#define LLAMA_CONTIGUOUS_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/forward.h"
#include "examples/llama/model.h"

/** contiguous_create - as the model's shape asks; returned with contiguous_destroy() */
bool contiguous_create(const struct model *model, enum paged_dtype dtype, struct attention **attention_p,
		       struct error *error);

/** contiguous_create_fast - likewise, with the threads and the code of products of a forward, which outlives it */
bool contiguous_create_fast(const struct model *model, const struct forward *forward, struct attention **attention_p,
			    struct error *error);

/** contiguous_destroy - with all its sequences; takes NULL */
void contiguous_destroy(struct attention *attention);

#endif
