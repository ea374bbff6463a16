/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "examples/llama/die.h"
#include "examples/llama/string_table.h"
#include "examples/llama/xalloc.h"

/* Values of tokenizer.ggml.token_type whose tokens are matched in the text as they are written. */
#define TOKEN_TYPE_CONTROL 3u
#define TOKEN_TYPE_USER_DEFINED 4u

/*
 * White space is listed explicitly: PCRE2's \s also matches U+180E, which neither
 * Unicode's White_Space property nor the reference implementation includes.
 */
#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/*
 * The pre-tokenizer `smollm`: no merge crosses the boundary of a match of this pattern.  Each digit
 * (any Unicode number) is a match of its own.  GPT-2's pattern splits the text
 * between digits, and treats a digit as the end of the text.
 */
static const char pretoken_pattern[] = "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^" SPACE "\\p{L}\\p{N}]+"
				       "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+";

struct special {
	struct gguf_string text;
	uint32_t id;
};

/* Two adjacent tokens of a pre-token; the pair with the lowest rank is merged first. */
struct bpe_pair {
	uint32_t rank;   /* STRING_TABLE_NONE: the pair has no merge */
	uint32_t merged; /* the token that replaces both */
};

struct tokenizer {
	const struct gguf *gguf;
	struct string_table tokens, merges; /* a merge is written "left right" */
	pcre2_code *pretokenizer;
	pcre2_match_data *match;
	struct special *specials; /* the longest first */
	uint32_t n_specials;
	bool *is_control;       /* [tokens.n] decoded as no text */
	uint32_t byte_ids[256]; /* token of each byte, or STRING_TABLE_NONE */
	uint16_t bytes[512];    /* by code point: the byte that it represents; 256: none */
	uint32_t end;
	char *merge_text; /* buffer for the text of a merge */
	struct bpe_pair *pairs;
	size_t n_pairs; /* allocated */
};

void
token_list_add(struct token_list *list, const uint32_t *ids, size_t n)
{
	if (list->n + n > list->n_allocated) {
		list->n_allocated = 2 * (list->n + n);
		list->ids = xreallocarray(list->ids, list->n_allocated, sizeof(*list->ids));
	}
	memcpy(list->ids + list->n, ids, n * sizeof(*ids));
	list->n += n;
}

/* ---------------------------------------------------------------- creation */

/*
 * GPT-2's bytes_to_unicode(): each byte is represented by one printable character,
 * which is the byte's own character if that is printable in Latin-1, and otherwise
 * the next unused one from U+0100 on.
 */
static void
tokenizer_map_bytes(struct tokenizer *tokenizer)
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
		tokenizer->byte_ids[byte] = string_table_find(&tokenizer->tokens, text, size);
	}
}

static int
special_compare(const void *a, const void *b)
{
	const struct special *x = a, *y = b;

	return x->text.size < y->text.size ? 1 : x->text.size > y->text.size ? -1 : (x->id > y->id) - (x->id < y->id);
}

static void
tokenizer_read_specials(struct tokenizer *tokenizer)
{
	struct gguf_array types = gguf_array(tokenizer->gguf, "tokenizer.ggml.token_type", GGUF_I32);
	uint32_t n_tokens = tokenizer->tokens.n;

	if (types.n_items != n_tokens)
		die("%s: %llu token types for %u tokens", tokenizer->gguf->path, (unsigned long long)types.n_items,
		    n_tokens);
	tokenizer->specials = xcalloc(n_tokens, sizeof(*tokenizer->specials));
	tokenizer->is_control = xcalloc(n_tokens, sizeof(*tokenizer->is_control));
	for (uint32_t id = 0; id < n_tokens; id++) {
		uint32_t type = gguf_array_u32(&types, id);
		struct gguf_string text = tokenizer->tokens.texts[id];

		tokenizer->is_control[id] = type == TOKEN_TYPE_CONTROL;
		if ((type == TOKEN_TYPE_CONTROL || type == TOKEN_TYPE_USER_DEFINED) && text.size > 0)
			tokenizer->specials[tokenizer->n_specials++] = (struct special){ text, id };
	}
	qsort(tokenizer->specials, tokenizer->n_specials, sizeof(*tokenizer->specials), special_compare);
}

static void
tokenizer_compile_pretokenizer(struct tokenizer *tokenizer)
{
	PCRE2_UCHAR message[128];
	PCRE2_SIZE offset;
	int number;

	tokenizer->pretokenizer = pcre2_compile((PCRE2_SPTR)pretoken_pattern, PCRE2_ZERO_TERMINATED,
						PCRE2_UTF | PCRE2_ANCHORED, &number, &offset, NULL);
	tokenizer->match = pcre2_match_data_create(1, NULL);
	if (tokenizer->pretokenizer == NULL || tokenizer->match == NULL) {
		pcre2_get_error_message(number, message, sizeof(message));
		die("pre-tokenizer rule: %s", (const char *)message);
	}
	/* If JIT compilation fails, matching is slower but still correct. */
	pcre2_jit_compile(tokenizer->pretokenizer, PCRE2_JIT_COMPLETE);
}

/* Refuse tokenizers that this program does not implement. */
static void
tokenizer_check_model(const struct gguf *gguf)
{
	struct gguf_string model = gguf_string(gguf, "tokenizer.ggml.model");
	struct gguf_string pretokenizer = gguf_string(gguf, "tokenizer.ggml.pre");

	if (!gguf_string_is(model, "gpt2"))
		die("%s: tokenizer model \"%.*s\" is not supported; gpt2 (byte-level BPE) is", gguf->path,
		    GGUF_SHOWN(model));
	if (!gguf_string_is(pretokenizer, "smollm"))
		die("%s: pre-tokenizer \"%.*s\" is not supported; smollm is", gguf->path, GGUF_SHOWN(pretokenizer));
	if (gguf_has(gguf, "tokenizer.ggml.add_space_prefix") && gguf_bool(gguf, "tokenizer.ggml.add_space_prefix"))
		die("%s: tokenizer.ggml.add_space_prefix = true is not supported", gguf->path);
}

/* Rank and result of merging two adjacent tokens. */
static struct bpe_pair
bpe_find_pair(const struct tokenizer *tokenizer, uint32_t left, uint32_t right)
{
	struct gguf_string a = tokenizer->tokens.texts[left], b = tokenizer->tokens.texts[right];
	struct bpe_pair bpe_pair;

	memcpy(tokenizer->merge_text, a.data, a.size);
	tokenizer->merge_text[a.size] = ' ';
	memcpy(tokenizer->merge_text + a.size + 1, b.data, b.size);
	bpe_pair.rank = string_table_find(&tokenizer->merges, tokenizer->merge_text, a.size + 1 + b.size);
	memcpy(tokenizer->merge_text + a.size, b.data, b.size);
	bpe_pair.merged = string_table_find(&tokenizer->tokens, tokenizer->merge_text, a.size + b.size);
	return bpe_pair;
}

/* The first space separates the two tokens: bytes_to_unicode() represents a space in a token by another character. */
static void
bpe_check_merges(const struct tokenizer *tokenizer)
{
	for (uint32_t rank = 0; rank < tokenizer->merges.n; rank++) {
		struct gguf_string text = tokenizer->merges.texts[rank];
		const char *space = memchr(text.data, ' ', text.size);
		size_t left_size = space != NULL ? (size_t)(space - text.data) : text.size;
		uint32_t left = string_table_find(&tokenizer->tokens, text.data, left_size);
		uint32_t right = space != NULL
					 ? string_table_find(&tokenizer->tokens, space + 1, text.size - left_size - 1)
					 : STRING_TABLE_NONE;

		if (left == STRING_TABLE_NONE || right == STRING_TABLE_NONE ||
		    bpe_find_pair(tokenizer, left, right).merged == STRING_TABLE_NONE)
			die("%s: merge %u, \"%.*s\", is not two tokens that make a third", tokenizer->gguf->path, rank,
			    GGUF_SHOWN(text));
	}
}

struct tokenizer *
tokenizer_create(const struct gguf *gguf)
{
	struct tokenizer *tokenizer = xcalloc(1, sizeof(*tokenizer));

	tokenizer->gguf = gguf;
	tokenizer_check_model(gguf);
	string_table_create(&tokenizer->tokens, gguf, "tokenizer.ggml.tokens");
	string_table_create(&tokenizer->merges, gguf, "tokenizer.ggml.merges");
	tokenizer->merge_text = xcalloc(2 * tokenizer->tokens.longest + 1, 1);
	bpe_check_merges(tokenizer);
	tokenizer_read_specials(tokenizer);
	tokenizer_compile_pretokenizer(tokenizer);
	tokenizer->end = gguf_u32(gguf, "tokenizer.ggml.eos_token_id");
	if (tokenizer->end >= tokenizer->tokens.n)
		die("%s: tokenizer.ggml.eos_token_id = %u, the vocabulary has %u tokens", gguf->path, tokenizer->end,
		    tokenizer->tokens.n);
	tokenizer_map_bytes(tokenizer);
	return tokenizer;
}

void
tokenizer_destroy(struct tokenizer *tokenizer)
{
	if (tokenizer == NULL)
		return;
	free(tokenizer->pairs);
	free(tokenizer->merge_text);
	free(tokenizer->is_control);
	free(tokenizer->specials);
	pcre2_match_data_free(tokenizer->match);
	pcre2_code_free(tokenizer->pretokenizer);
	string_table_destroy(&tokenizer->merges);
	string_table_destroy(&tokenizer->tokens);
	free(tokenizer);
}

uint32_t
tokenizer_end(const struct tokenizer *tokenizer)
{
	return tokenizer->end;
}

/* ---------------------------------------------------------------- encoding */

/* Merge adjacent tokens, lowest rank first and the leftmost of equal ranks, until no pair has a merge.  Returns the
 * remaining number of tokens. */
static size_t
bpe_merge(struct tokenizer *tokenizer, uint32_t *ids, size_t n)
{
	struct bpe_pair *pairs;

	if (n > tokenizer->n_pairs) {
		tokenizer->pairs = xreallocarray(tokenizer->pairs, n, sizeof(*tokenizer->pairs));
		tokenizer->n_pairs = n;
	}
	pairs = tokenizer->pairs;
	for (size_t i = 0; i + 1 < n; i++)
		pairs[i] = bpe_find_pair(tokenizer, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t best = 0;

		for (size_t i = 1; i + 1 < n; i++)
			if (pairs[i].rank < pairs[best].rank)
				best = i;
		if (pairs[best].rank == STRING_TABLE_NONE)
			break;
		ids[best] = pairs[best].merged;
		n--;
		memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof(*ids));
		memmove(pairs + best, pairs + best + 1, (n - best - 1) * sizeof(*pairs));
		if (best > 0)
			pairs[best - 1] = bpe_find_pair(tokenizer, ids[best - 1], ids[best]);
		if (best + 1 < n)
			pairs[best] = bpe_find_pair(tokenizer, ids[best], ids[best + 1]);
	}
	return n;
}

/* Encode text that contains no special token. */
static void
tokenizer_encode_plain(struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *list)
{
	const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(tokenizer->match);
	PCRE2_UCHAR message[128];
	size_t start;
	int number;

	for (size_t at = 0; at < size; at = bounds[1]) {
		number = pcre2_match(tokenizer->pretokenizer, (PCRE2_SPTR)text, size, at,
				     at > 0 ? PCRE2_NO_UTF_CHECK : 0, tokenizer->match, NULL);
		if (number < 0) {
			pcre2_get_error_message(number, message, sizeof(message));
			die("text is not UTF-8 at byte %zu: %s", (size_t)pcre2_get_startchar(tokenizer->match),
			    (const char *)message);
		}
		start = list->n;
		for (size_t i = at; i < bounds[1]; i++)
			if (tokenizer->byte_ids[(uint8_t)text[i]] != STRING_TABLE_NONE)
				token_list_add(list, &tokenizer->byte_ids[(uint8_t)text[i]], 1);
		/* The list has no memory if the vocabulary has none of these bytes. */
		if (list->n > start)
			list->n = start + bpe_merge(tokenizer, list->ids + start, list->n - start);
	}
}

/* The longest special token at the start of the text, or NULL. */
static const struct special *
tokenizer_special_at(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	for (uint32_t i = 0; i < tokenizer->n_specials; i++) {
		const struct special *special = &tokenizer->specials[i];

		if (special->text.size <= size && memcmp(special->text.data, text, special->text.size) == 0)
			return special;
	}
	return NULL;
}

void
tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t size, struct token_list *list)
{
	const struct special *special;
	size_t start = 0, at = 0;

	while (at < size) {
		special = tokenizer_special_at(tokenizer, text + at, size - at);
		if (special == NULL) {
			at++;
			continue;
		}
		tokenizer_encode_plain(tokenizer, text + start, at - start, list);
		token_list_add(list, &special->id, 1);
		start = at += special->text.size;
	}
	tokenizer_encode_plain(tokenizer, text + start, size - start, list);
}

/* ---------------------------------------------------------------- decoding */

/* Write the bytes of one token; a control token has none.  Returns their number. */
static size_t
tokenizer_decode(const struct tokenizer *tokenizer, uint32_t id, char *bytes)
{
	struct gguf_string text = tokenizer->tokens.texts[id];
	size_t n = 0;

	if (tokenizer->is_control[id])
		return 0;
	for (size_t i = 0; i < text.size && n < TOKENIZER_MAX_BYTES; i++) {
		uint32_t point = (uint8_t)text.data[i];

		/* Characters that represent bytes are below U+0200; other characters are copied unchanged. */
		if (point >= 0xc2 && point <= 0xc7 && i + 1 < text.size && ((uint8_t)text.data[i + 1] & 0xc0) == 0x80)
			point = (point & 0x1f) << 6 | ((uint8_t)text.data[++i] & 0x3f);
		bytes[n++] = (char)(tokenizer->bytes[point] < 256 ? tokenizer->bytes[point] : point);
	}
	return n;
}

/*
 * Check the first character: returns its size if it is complete, else 0.  *bad_p is
 * the number of leading bytes that begin no valid character; if it is 0 too, more
 * bytes may complete the character.
 */
static size_t
utf8_check(const char *text, size_t n, size_t *bad_p)
{
	const uint8_t *bytes = (const uint8_t *)text, first = bytes[0];
	size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, i;
	/* The second byte's range depends on the first: no overlong forms, surrogates, or points past U+10FFFF. */
	uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	*bad_p = (first >= 0x80 && first < 0xc2) || first > 0xf4 ? 1 : 0;
	for (i = 1; i < size && i < n && *bad_p == 0; i++, low = 0x80, high = 0xbf)
		if (bytes[i] < low || bytes[i] > high)
			*bad_p = i;
	return i == size && *bad_p == 0 ? i : 0;
}

size_t
utf8_stream_add(struct utf8_stream *stream, const struct tokenizer *tokenizer, uint32_t id, char *text)
{
	size_t at = 0, n_text = 0, size, bad;

	stream->n += tokenizer_decode(tokenizer, id, stream->bytes + stream->n);
	for (; at < stream->n; at += size + bad) {
		size = utf8_check(stream->bytes + at, stream->n - at, &bad);
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
