/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/bpe.h"
#include "examples/llama/pretokenizer.h"
#include "examples/llama/vocabulary.h"

/* Values of tokenizer.ggml.token_type that are written out in the text. */
#define KIND_CONTROL 3u
#define KIND_USER_DEFINED 4u

struct special {
	struct gguf_string text;
	uint32_t id;
};

struct tokenizer {
	const char *path;
	struct vocabulary vocabulary;
	struct pretokenizer *pretokenizer;
	struct special *specials; /* the longest first */
	uint32_t n_specials;
	bool special_starts[256]; /* a special token begins with this byte */
	bool *silent;             /* [n_tokens] decoded as nothing */
	uint32_t byte_ids[256];   /* token of each byte, or VOCABULARY_NONE */
	uint16_t bytes[512];      /* byte of each character that stands for one; 256: none */
	uint32_t end;
	struct bpe bpe;
};

bool
token_list_add(struct token_list *list, uint32_t id, struct error *error)
{
	size_t n_allocated = list->n_allocated > 0 ? 2 * list->n_allocated : 64;
	uint32_t *ids;

	if (list->n == list->n_allocated) {
		ids = realloc(list->ids, n_allocated * sizeof(*ids));
		if (ids == NULL)
			return error_set(error, "no memory for %zu tokens", n_allocated);
		list->ids = ids;
		list->n_allocated = n_allocated;
	}
	list->ids[list->n++] = id;
	return true;
}

/* ---------------------------------------------------------------- creation */

/*
 * GPT-2 spells each byte as one printable character: itself where it is
 * printable in Latin-1, and the next free one from U+0100 otherwise.
 */
static void
spell_bytes(struct tokenizer *tokenizer)
{
	uint16_t next = 256;

	for (size_t i = 0; i < 512; i++)
		tokenizer->bytes[i] = 256;
	for (uint16_t byte = 0; byte < 256; byte++) {
		bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
		uint16_t point = printable ? byte : next++;
		char text[2] = { (char)point, 0 };
		size_t size = 1;

		if (point >= 128) {
			text[0] = (char)(0xc0 | point >> 6);
			text[1] = (char)(0x80 | (point & 0x3f));
			size = 2;
		}
		tokenizer->bytes[point] = byte;
		tokenizer->byte_ids[byte] = vocabulary_find(&tokenizer->vocabulary, text, size);
	}
}

static int
compare_specials(const void *a, const void *b)
{
	const struct special *x = a, *y = b;

	return x->text.size < y->text.size ? 1 : x->text.size > y->text.size ? -1 : (x->id > y->id) - (x->id < y->id);
}

static bool
read_specials(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	uint32_t n_tokens = tokenizer->vocabulary.n_tokens;
	struct gguf_array kinds;

	if (!gguf_array(gguf, "tokenizer.ggml.token_type", GGUF_I32, &kinds, error))
		return false;
	if (kinds.n_items != n_tokens)
		return error_set(error, "%s: %llu token types for %u tokens", gguf_path(gguf),
				 (unsigned long long)kinds.n_items, n_tokens);
	tokenizer->specials = calloc(n_tokens, sizeof(*tokenizer->specials));
	tokenizer->silent = calloc(n_tokens, sizeof(*tokenizer->silent));
	if (tokenizer->specials == NULL || tokenizer->silent == NULL)
		return error_set(error, "%s: no memory for %u tokens", gguf_path(gguf), n_tokens);
	for (uint32_t id = 0; id < n_tokens; id++) {
		uint32_t kind = gguf_array_u32(&kinds, id);
		struct gguf_string text = tokenizer->vocabulary.texts[id];

		tokenizer->silent[id] = kind == KIND_CONTROL;
		if ((kind != KIND_CONTROL && kind != KIND_USER_DEFINED) || text.size == 0)
			continue;
		tokenizer->specials[tokenizer->n_specials++] = (struct special){ text, id };
		tokenizer->special_starts[(uint8_t)text.data[0]] = true;
	}
	qsort(tokenizer->specials, tokenizer->n_specials, sizeof(*tokenizer->specials), compare_specials);
	return true;
}

/* Only what this program knows how to do. */
static bool
check_kind(const struct gguf *gguf, struct error *error)
{
	struct gguf_string model, rule;
	bool flag = false;

	if (!gguf_string(gguf, "tokenizer.ggml.model", &model, error) ||
	    !gguf_string(gguf, "tokenizer.ggml.pre", &rule, error))
		return false;
	if (!gguf_string_is(model, "gpt2"))
		return error_set(error, "%s: tokenizer model \"%.*s\" is not supported; gpt2 (byte-level BPE) is",
				 gguf_path(gguf), (int)(model.size > 64 ? 64 : model.size), model.data);
	if (!gguf_string_is(rule, "smollm"))
		return error_set(error, "%s: pre-tokenizer \"%.*s\" is not supported; smollm is", gguf_path(gguf),
				 (int)(rule.size > 64 ? 64 : rule.size), rule.data);
	if (gguf_has(gguf, "tokenizer.ggml.add_space_prefix") &&
	    !gguf_bool(gguf, "tokenizer.ggml.add_space_prefix", &flag, error))
		return false;
	if (flag)
		return error_set(error, "%s: tokenizer.ggml.add_space_prefix = true is not supported", gguf_path(gguf));
	return true;
}

static bool
fill(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	if (!check_kind(gguf, error) || !vocabulary_create(&tokenizer->vocabulary, gguf, error) ||
	    !read_specials(tokenizer, gguf, error) || !pretokenizer_create(&tokenizer->pretokenizer, error) ||
	    !gguf_u32(gguf, "tokenizer.ggml.eos_token_id", &tokenizer->end, error))
		return false;
	if (tokenizer->end >= tokenizer->vocabulary.n_tokens)
		return error_set(error, "%s: tokenizer.ggml.eos_token_id = %u, the vocabulary has %u tokens",
				 gguf_path(gguf), tokenizer->end, tokenizer->vocabulary.n_tokens);
	spell_bytes(tokenizer);
	return true;
}

bool
tokenizer_create(const struct gguf *gguf, struct tokenizer **tokenizer_p, struct error *error)
{
	struct tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));

	if (tokenizer == NULL)
		return error_set(error, "%s: no memory for the tokenizer", gguf_path(gguf));
	if (!fill(tokenizer, gguf, error)) {
		tokenizer_destroy(tokenizer);
		return false;
	}
	*tokenizer_p = tokenizer;
	return true;
}

void
tokenizer_destroy(struct tokenizer *tokenizer)
{
	if (tokenizer == NULL)
		return;
	bpe_destroy(&tokenizer->bpe);
	free(tokenizer->silent);
	free(tokenizer->specials);
	pretokenizer_destroy(tokenizer->pretokenizer);
	vocabulary_destroy(&tokenizer->vocabulary);
	free(tokenizer);
}

uint32_t
tokenizer_n_tokens(const struct tokenizer *tokenizer)
{
	return tokenizer->vocabulary.n_tokens;
}

uint32_t
tokenizer_end(const struct tokenizer *tokenizer)
{
	return tokenizer->end;
}

bool
tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t size, uint32_t *id_p)
{
	*id_p = vocabulary_find(&tokenizer->vocabulary, text, size);
	return *id_p != VOCABULARY_NONE;
}

/* ---------------------------------------------------------------- encoding */

struct encoding {
	struct tokenizer *tokenizer;
	struct token_list *list;
};

static bool
encode_piece(void *argument, const char *piece, size_t size, struct error *error)
{
	struct encoding *encoding = argument;
	struct tokenizer *tokenizer = encoding->tokenizer;
	struct bpe *bpe = &tokenizer->bpe;

	if (!bpe_begin(bpe, size, error))
		return false;
	for (size_t i = 0; i < size; i++)
		if (tokenizer->byte_ids[(uint8_t)piece[i]] != VOCABULARY_NONE)
			bpe_add(bpe, tokenizer->byte_ids[(uint8_t)piece[i]]);
	bpe_merge(bpe, &tokenizer->vocabulary);
	for (uint32_t i = 0; i < bpe->n_symbols; i++)
		if (bpe->symbols[i].id != VOCABULARY_NONE && !token_list_add(encoding->list, bpe->symbols[i].id, error))
			return false;
	return true;
}

/* The special token that begins here, or NULL. */
static const struct special *
special_at(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	if (!tokenizer->special_starts[(uint8_t)text[0]])
		return NULL;
	for (uint32_t i = 0; i < tokenizer->n_specials; i++) {
		const struct special *special = &tokenizer->specials[i];

		if (special->text.size <= size && memcmp(special->text.data, text, special->text.size) == 0)
			return special;
	}
	return NULL;
}

bool
tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *list,
		 struct error *error)
{
	struct encoding encoding = { tokenizer, list };
	const struct special *special;
	size_t start = 0, at = 0;

	for (; at < size; at++) {
		special = special_at(tokenizer, text + at, size - at);
		if (special == NULL)
			continue;
		if (!pretokenizer_run(tokenizer->pretokenizer, text + start, at - start, encode_piece, &encoding,
				      error) ||
		    !token_list_add(list, special->id, error))
			return false;
		start = at + special->text.size;
		at = start - 1;
	}
	return pretokenizer_run(tokenizer->pretokenizer, text + start, size - start, encode_piece, &encoding, error);
}

/* ---------------------------------------------------------------- decoding */

size_t
tokenizer_decode(const struct tokenizer *tokenizer, uint32_t id, char *bytes)
{
	struct gguf_string text = tokenizer->vocabulary.texts[id];
	size_t n = 0;

	if (tokenizer->silent[id])
		return 0;
	for (size_t i = 0; i < text.size && n < TOKENIZER_MAX_BYTES; i++) {
		uint32_t point = (uint8_t)text.data[i];

		/* Characters that stand for bytes lie below U+0200; anything else is kept as it is. */
		if (point >= 0xc2 && point <= 0xc7 && i + 1 < text.size && ((uint8_t)text.data[i + 1] & 0xc0) == 0x80)
			point = (point & 0x1f) << 6 | ((uint8_t)text.data[++i] & 0x3f);
		bytes[n++] = (char)(tokenizer->bytes[point] < 256 ? tokenizer->bytes[point] : point);
	}
	return n;
}

/* Bytes of the character that a first byte begins; 0 when it can begin none. */
static size_t
utf8_size(uint8_t first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first <= 0xdf)
		return 2;
	if (first >= 0xe0 && first <= 0xef)
		return 3;
	return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* The second byte's range depends on the first: neither overlong forms nor surrogates nor past U+10FFFF. */
static bool
utf8_second(uint8_t first, uint8_t second)
{
	uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= low && second <= high;
}

/*
 * Look at one character: its size when whole, 0 when more bytes may complete
 * it, and with *bad_p the bytes that no character can begin with.
 */
static size_t
utf8_look(const char *bytes, size_t n, size_t *bad_p)
{
	size_t size = utf8_size((uint8_t)bytes[0]);

	*bad_p = size == 0 ? 1 : 0;
	for (size_t i = 1; i < size; i++) {
		if (i == n)
			return 0;
		if (i == 1 ? !utf8_second((uint8_t)bytes[0], (uint8_t)bytes[1]) : ((uint8_t)bytes[i] & 0xc0) != 0x80) {
			*bad_p = i;
			return 0;
		}
	}
	return size;
}

size_t
utf8_stream_add(struct utf8_stream *stream, const struct tokenizer *tokenizer, uint32_t id, char *text)
{
	size_t at = 0, n_text = 0, size, bad;

	stream->n += tokenizer_decode(tokenizer, id, stream->bytes + stream->n);
	for (; at < stream->n; at += size + bad) {
		size = utf8_look(stream->bytes + at, stream->n - at, &bad);
		if (size == 0 && bad == 0)
			break;
		memcpy(text + n_text, bad > 0 ? "\xef\xbf\xbd" : stream->bytes + at, bad > 0 ? 3 : size);
		n_text += bad > 0 ? 3 : size;
	}
	memmove(stream->bytes, stream->bytes + at, stream->n - at);
	stream->n -= at;
	return n_text;
}

size_t
utf8_stream_end(struct utf8_stream *stream, char *text)
{
	bool rest = stream->n > 0;

	stream->n = 0;
	if (rest)
		memcpy(text, "\xef\xbf\xbd", 3);
	return rest ? 3 : 0;
}
