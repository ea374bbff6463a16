/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* Ids are u32 and one value means none; a vocabulary of this size is already absurd. */
#define MAX_ENTRIES (1u << 28)

static uint64_t
hash_text(const char *text, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	return hash * 0x9e3779b97f4a7c15u;
}

static uint64_t
hash_pair(uint32_t left, uint32_t right)
{
	uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;

	return (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
}

/* Places for n entries in a table that stays half empty. */
static unsigned int
table_bits(uint64_t n)
{
	unsigned int bits = 4;

	while ((uint64_t)1 << bits < 2 * n)
		bits++;
	return bits;
}

uint32_t
vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t size)
{
	uint64_t mask = ((uint64_t)1 << vocabulary->text_bits) - 1;
	uint64_t at = hash_text(text, size) >> (64 - vocabulary->text_bits);

	for (;; at = (at + 1) & mask) {
		uint32_t id = vocabulary->by_text[at];

		if (id == VOCABULARY_NONE ||
		    (vocabulary->texts[id].size == size && memcmp(vocabulary->texts[id].data, text, size) == 0))
			return id;
	}
}

static struct vocabulary_merge *
merge_place(const struct vocabulary *vocabulary, uint32_t left, uint32_t right)
{
	uint64_t mask = ((uint64_t)1 << vocabulary->merge_bits) - 1;
	uint64_t at = hash_pair(left, right) >> (64 - vocabulary->merge_bits);

	for (;; at = (at + 1) & mask) {
		struct vocabulary_merge *merge = &vocabulary->merges[at];

		if (merge->merged == VOCABULARY_NONE || (merge->left == left && merge->right == right))
			return merge;
	}
}

const struct vocabulary_merge *
vocabulary_merge(const struct vocabulary *vocabulary, uint32_t left, uint32_t right)
{
	const struct vocabulary_merge *merge = merge_place(vocabulary, left, right);

	return merge->merged != VOCABULARY_NONE ? merge : NULL;
}

static bool
read_tokens(struct vocabulary *vocabulary, const struct gguf *gguf, struct error *error)
{
	struct gguf_array array;
	uint64_t mask, at;

	if (!gguf_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &array, error))
		return false;
	if (array.n_items == 0 || array.n_items > MAX_ENTRIES)
		return error_set(error, "%s: vocabulary of %llu tokens, 1 to %u are possible", gguf_path(gguf),
				 (unsigned long long)array.n_items, MAX_ENTRIES);
	vocabulary->n_tokens = (uint32_t)array.n_items;
	vocabulary->text_bits = table_bits(array.n_items);
	vocabulary->texts = calloc(vocabulary->n_tokens, sizeof(*vocabulary->texts));
	vocabulary->by_text = malloc(sizeof(uint32_t) << vocabulary->text_bits);
	if (vocabulary->texts == NULL || vocabulary->by_text == NULL)
		return error_set(error, "%s: no memory for %u tokens", gguf_path(gguf), vocabulary->n_tokens);
	memset(vocabulary->by_text, 0xff, sizeof(uint32_t) << vocabulary->text_bits);
	mask = ((uint64_t)1 << vocabulary->text_bits) - 1;
	for (uint32_t id = 0; id < vocabulary->n_tokens; id++) {
		struct gguf_string text = gguf_array_next(&array);

		vocabulary->texts[id] = text;
		if (vocabulary_find(vocabulary, text.data, text.size) != VOCABULARY_NONE)
			continue; /* written twice: the first counts */
		at = hash_text(text.data, text.size) >> (64 - vocabulary->text_bits);
		while (vocabulary->by_text[at] != VOCABULARY_NONE)
			at = (at + 1) & mask;
		vocabulary->by_text[at] = id;
	}
	return true;
}

/* A merge is written "left right"; neither side has a space, for a byte-level space is spelt otherwise. */
static bool
read_merge(struct vocabulary *vocabulary, struct gguf_string text, uint32_t rank)
{
	const char *space = memchr(text.data, ' ', text.size);
	size_t left_size, right_size;
	uint32_t left, right, merged;
	struct vocabulary_merge *place;
	char *joined;

	if (space == NULL)
		return false;
	left_size = (size_t)(space - text.data);
	right_size = text.size - left_size - 1;
	left = vocabulary_find(vocabulary, text.data, left_size);
	right = vocabulary_find(vocabulary, space + 1, right_size);
	joined = malloc(text.size);
	if (joined == NULL || left == VOCABULARY_NONE || right == VOCABULARY_NONE) {
		free(joined);
		return false;
	}
	memcpy(joined, text.data, left_size);
	memcpy(joined + left_size, space + 1, right_size);
	merged = vocabulary_find(vocabulary, joined, left_size + right_size);
	free(joined);
	if (merged == VOCABULARY_NONE)
		return false;
	place = merge_place(vocabulary, left, right);
	if (place->merged == VOCABULARY_NONE)
		*place = (struct vocabulary_merge){ left, right, rank, merged };
	return true;
}

static bool
read_merges(struct vocabulary *vocabulary, const struct gguf *gguf, struct error *error)
{
	struct gguf_array array;
	uint32_t n;

	if (!gguf_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, &array, error))
		return false;
	if (array.n_items > MAX_ENTRIES)
		return error_set(error, "%s: %llu merges, at most %u are possible", gguf_path(gguf),
				 (unsigned long long)array.n_items, MAX_ENTRIES);
	n = (uint32_t)array.n_items;
	vocabulary->merge_bits = table_bits(n);
	vocabulary->merges = malloc(sizeof(*vocabulary->merges) << vocabulary->merge_bits);
	if (vocabulary->merges == NULL)
		return error_set(error, "%s: no memory for %u merges", gguf_path(gguf), n);
	memset(vocabulary->merges, 0xff, sizeof(*vocabulary->merges) << vocabulary->merge_bits);
	for (uint32_t rank = 0; rank < n; rank++) {
		struct gguf_string text = gguf_array_next(&array);

		if (!read_merge(vocabulary, text, rank))
			return error_set(error, "%s: merge %u, \"%.*s\", is not two tokens that make a third",
					 gguf_path(gguf), rank, (int)(text.size > 64 ? 64 : text.size), text.data);
	}
	return true;
}

bool
vocabulary_create(struct vocabulary *vocabulary, const struct gguf *gguf, struct error *error)
{
	*vocabulary = (struct vocabulary){ 0 };
	if (read_tokens(vocabulary, gguf, error) && read_merges(vocabulary, gguf, error))
		return true;
	vocabulary_destroy(vocabulary);
	return false;
}

void
vocabulary_destroy(struct vocabulary *vocabulary)
{
	free(vocabulary->merges);
	free(vocabulary->by_text);
	free(vocabulary->texts);
	*vocabulary = (struct vocabulary){ 0 };
}
