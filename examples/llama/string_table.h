/* SPDX-License-Identifier: Apache-2.0 */
/**
 * string_table.h - an array of strings in a GGUF file, with a hash table that finds a string's index
 *
 * Read-only after creation.
 */
#ifndef LLAMA_STRING_TABLE_H
#define LLAMA_STRING_TABLE_H

#include "examples/llama/gguf.h"

#define STRING_TABLE_NONE UINT32_MAX

struct string_table {
	struct gguf_string *texts; /* [n], in the file */
	uint32_t n;
	size_t longest;  /* bytes */
	uint32_t *slots; /* [1 << bits], STRING_TABLE_NONE if empty */
	unsigned int bits;
};

/** string_table_create - index the array with that key; the file must stay open as long as the table */
void string_table_create(struct string_table *table, const struct gguf *gguf, const char *key);

void string_table_destroy(struct string_table *table);

/** string_table_find - find the lowest index of a text; STRING_TABLE_NONE if it is not in the array */
uint32_t string_table_find(const struct string_table *table, const char *text, size_t size);

#endif
