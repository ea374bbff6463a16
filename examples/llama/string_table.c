/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/string_table.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/* Indices are u32 and STRING_TABLE_NONE is reserved; no real vocabulary is near this size. */
#define MAX_ENTRIES (1u << 28)

/* The slot that has the text, or the empty slot where it belongs (FNV-1a, linear probing). */
static uint32_t *
string_table_slot(const struct string_table *table, const char *text, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325u, mask = ((uint64_t)1 << table->bits) - 1;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	for (uint64_t at = hash * 0x9e3779b97f4a7c15u >> (64 - table->bits);; at = (at + 1) & mask) {
		uint32_t *slot = &table->slots[at];

		if (*slot == STRING_TABLE_NONE ||
		    (table->texts[*slot].size == size && memcmp(table->texts[*slot].data, text, size) == 0))
			return slot;
	}
}

uint32_t
string_table_find(const struct string_table *table, const char *text, size_t size)
{
	return *string_table_slot(table, text, size);
}

void
string_table_create(struct string_table *table, const struct gguf *gguf, const char *key)
{
	struct gguf_array array = gguf_array(gguf, key, GGUF_STRING);

	if (array.n_items > MAX_ENTRIES)
		die("%s: %s: %llu entries, at most %u are possible", gguf->path, key, (unsigned long long)array.n_items,
		    MAX_ENTRIES);
	*table = (struct string_table){ .n = (uint32_t)array.n_items, .bits = 4 };
	while ((uint64_t)1 << table->bits < 2 * array.n_items) /* at most half full */
		table->bits++;
	table->texts = xcalloc(table->n, sizeof(*table->texts));
	table->slots = xcalloc((size_t)1 << table->bits, sizeof(*table->slots));
	memset(table->slots, 0xff, sizeof(*table->slots) << table->bits);
	for (uint32_t i = 0; i < table->n; i++) {
		uint32_t *slot;

		table->texts[i] = gguf_array_next(&array);
		table->longest = table->texts[i].size > table->longest ? table->texts[i].size : table->longest;
		slot = string_table_slot(table, table->texts[i].data, table->texts[i].size);
		if (*slot == STRING_TABLE_NONE) /* of equal strings the first one is found */
			*slot = i;
	}
}

void
string_table_destroy(struct string_table *table)
{
	free(table->slots);
	free(table->texts);
}
