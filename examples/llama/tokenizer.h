/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tokenizer.h - byte-level BPE from a GGUF file's metadata
 *
 * A special token that is written in the text (`<|im_end|>`) is encoded as that token.
 * A tokenizer is read-only after creation, except for encoding, which only one
 * thread may do at a time.  The file must stay open as long as the tokenizer.
 */
#ifndef LLAMA_TOKENIZER_H
#define LLAMA_TOKENIZER_H

#include "examples/llama/gguf.h"

struct tokenizer;

/** A growing list of token ids; zero it, and free() ids. */
struct token_list {
	uint32_t *ids;
	size_t n, n_allocated;
};

/** token_list_add - append n ids */
void token_list_add(struct token_list *list, const uint32_t *ids, size_t n);

/** tokenizer_create - read vocabulary, merges and special tokens; another model or pre-tokenizer is refused by name */
struct tokenizer *tokenizer_create(const struct gguf *gguf);

/** tokenizer_destroy - takes NULL */
void tokenizer_destroy(struct tokenizer *tokenizer);

/** tokenizer_end - the token that ends an answer */
uint32_t tokenizer_end(const struct tokenizer *tokenizer);

/**
 * tokenizer_encode - append the text's tokens to a list
 *
 * Bytes for which the vocabulary has no token are omitted, as in the reference
 * implementation.  Text that is not UTF-8 ends the program (die()).
 */
void tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *list);

/** Longest text of one token that is decoded. */
#define TOKENIZER_MAX_BYTES 1024u

/**
 * Joins the bytes of tokens into complete UTF-8 characters, because a character may
 * span tokens.  Zero it before the first token.
 */
struct utf8_stream {
	char bytes[TOKENIZER_MAX_BYTES + 8];
	size_t n; /* bytes of an incomplete character, at the front */
};

#define UTF8_STREAM_TEXT (3 * (TOKENIZER_MAX_BYTES + 8))

/**
 * utf8_stream_add - append a token and return the characters that are complete
 *
 * @param[out] text  room for UTF8_STREAM_TEXT bytes; bytes that are not UTF-8 become U+FFFD
 * @return number of bytes written to text; 0 for a control token
 */
size_t utf8_stream_add(struct utf8_stream *stream, const struct tokenizer *tokenizer, uint32_t id, char *text);

/** utf8_stream_end - flush after the last token: writes U+FFFD (3 bytes) or nothing */
size_t utf8_stream_end(struct utf8_stream *stream, char *text);

#endif
