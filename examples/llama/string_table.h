/* SPDX-License-Identifier: Apache-2.0 */
/** string_table.h - an array of strings in a GGUF file, and where in it a text is: a hash table, read only once built
 */
#ifndef LLAMA_TEXT_TABLE_H
#define LLAMA_TEXT_TABLE_H

#include "examples/llama/gguf.h"

#define TEXT_TABLE_NONE UINT32_MAX

struct text_table {
	struct gguf_string *texts; /* [n], in the file */
	uint32_t n;
	size_t longest;   /* bytes */
	uint32_t *places; /* [1 << bits], TEXT_TABLE_NONE where empty */
	unsigned int bits;
};

/** text_table_create - index the array with that key; the file must stay open as long as the table */
void text_table_create(struct text_table *table, const struct gguf *gguf, const char *key);

void text_table_destroy(struct text_table *table);

/** text_table_find - the first index of a text; TEXT_TABLE_NONE when there is none */
uint32_t text_table_find(const struct text_table *table, const char *text, size_t size);

#endif
