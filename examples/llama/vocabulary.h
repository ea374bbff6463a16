/* SPDX-License-Identifier: Apache-2.0 */
/**
 * vocabulary.h - the tokens of a file and the pairs of them that merge
 *
 * Two hash tables, built once and then read only: text to token, and pair
 * of tokens to its rank and the token that it becomes.
 */
#ifndef LLAMA_VOCABULARY_H
#define LLAMA_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/llama/error.h"
#include "examples/llama/gguf.h"

#define VOCABULARY_NONE UINT32_MAX

struct vocabulary_merge {
	uint32_t left, right;
	uint32_t rank;   /* the lowest merges first */
	uint32_t merged; /* VOCABULARY_NONE: an empty place of the table */
};

struct vocabulary {
	struct gguf_string *texts; /* [n_tokens], in the file */
	uint32_t n_tokens;
	uint32_t *by_text; /* [1 << text_bits], VOCABULARY_NONE where empty */
	unsigned int text_bits;
	struct vocabulary_merge *merges; /* [1 << merge_bits] */
	unsigned int merge_bits;
};

/** vocabulary_create - read tokenizer.ggml.tokens and .merges; the file stays open as long as it */
bool vocabulary_create(struct vocabulary *vocabulary, const struct gguf *gguf, struct error *error);

/** vocabulary_destroy - also of one that was zeroed or failed to be created */
void vocabulary_destroy(struct vocabulary *vocabulary);

/** vocabulary_find - token of a text; VOCABULARY_NONE when there is none */
uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t size);

/** vocabulary_merge - what two neighbours become; NULL when they do not merge */
const struct vocabulary_merge *vocabulary_merge(const struct vocabulary *vocabulary, uint32_t left, uint32_t right);

#endif
