/* SPDX-License-Identifier: Apache-2.0 */
/**
 * contiguous.h - a private cache in plain arrays, and attention by its definition
 *
 * What answers from the shared pages are held against: no page, no table, no
 * kernel of the library.  Scores, softmax and sums are f64; K and V are
 * rounded to a pool's f16 or bf16, since that much belongs to the comparison;
 * of a pool with less in an element it differs, and so may the answers.
 */
#ifndef LLAMA_CONTIGUOUS_H
#define LLAMA_CONTIGUOUS_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/model.h"

/** contiguous_create - as the model's shape asks; returned with contiguous_destroy() */
bool contiguous_create(const struct model *model, enum paged_dtype dtype, struct attention **attention_p,
		       struct error *error);

/** contiguous_destroy - with all its sequences; takes NULL */
void contiguous_destroy(struct attention *attention);

#endif
