/* SPDX-License-Identifier: Apache-2.0 */
/** string_table.h - an array of strings in a GGUF file, and where in it a text is: a hash table, read only once built
 */
#ifndef LLAMA_STRING_TABLE_H
#define LLAMA_STRING_TABLE_H

#include "examples/llama/gguf.h"

#define STRING_TABLE_NONE UINT32_MAX

struct string_table {
	struct gguf_string *texts; /* [n], in the file */
	uint32_t n;
	size_t longest;  /* bytes */
	uint32_t *slots; /* [1 << bits], TEXT_TABLE_NONE where empty */
	unsigned int bits;
};

/** string_table_create - index the array with that key; the file must stay open as long as the table */
void string_table_create(struct string_table *table, const struct gguf *gguf, const char *key);

void string_table_destroy(struct string_table *table);

/** string_table_find - the first index of a text; TEXT_TABLE_NONE when there is none */
uint32_t string_table_find(const struct string_table *table, const char *text, size_t size);

#endif
