/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bpe.h - merges the neighbours of one piece of text until none merge
 *
 * Always the pair of the lowest rank, the leftmost of equals: n log n for a
 * piece of n symbols, so that a long word does no harm.
 */
#ifndef LLAMA_BPE_H
#define LLAMA_BPE_H

#include "examples/llama/vocabulary.h"

struct bpe_symbol {
	uint32_t id; /* VOCABULARY_NONE: merged into the one before */
	uint32_t previous, next;
};

struct bpe_candidate {
	uint32_t rank, left;
	uint32_t left_id, right_id; /* as they were; a candidate whose symbols changed is void */
	uint32_t merged;
};

/** Room for one piece, reused; zero it, and end with bpe_destroy(). */
struct bpe {
	struct bpe_symbol *symbols;
	uint32_t n_symbols;
	struct bpe_candidate *heap; /* the lowest rank, then the leftmost, on top */
	uint32_t n_heap;
	uint32_t n_allocated;
};

/** bpe_begin - make room for a piece of up to n symbols */
bool bpe_begin(struct bpe *bpe, size_t n, struct error *error);

/** bpe_add - append a symbol of the piece; at most n of them */
void bpe_add(struct bpe *bpe, uint32_t id);

/** bpe_merge - merge; afterwards symbols 0 .. n_symbols-1 without VOCABULARY_NONE are the tokens, in order */
void bpe_merge(struct bpe *bpe, const struct vocabulary *vocabulary);

void bpe_destroy(struct bpe *bpe);

#endif
