/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/string_table.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/support.h"

/* Indexes are u32 and one value means none; an array of this size is already absurd. */
#define MAX_ENTRIES (1u << 28)

/* Where a text is in the table, or where it would be. */
static uint32_t *
place_of(const struct text_table *table, const char *text, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325u, mask = ((uint64_t)1 << table->bits) - 1;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	for (uint64_t at = hash * 0x9e3779b97f4a7c15u >> (64 - table->bits);; at = (at + 1) & mask) {
		uint32_t *place = &table->places[at];

		if (*place == TEXT_TABLE_NONE ||
		    (table->texts[*place].size == size && memcmp(table->texts[*place].data, text, size) == 0))
			return place;
	}
}

uint32_t
text_table_find(const struct text_table *table, const char *text, size_t size)
{
	return *place_of(table, text, size);
}

void
text_table_create(struct text_table *table, const struct gguf *gguf, const char *key)
{
	struct gguf_array array = gguf_array(gguf, key, GGUF_STRING);

	if (array.n_items > MAX_ENTRIES)
		die("%s: %s: %llu entries, at most %u are possible", gguf->path, key, (unsigned long long)array.n_items,
		    MAX_ENTRIES);
	*table = (struct text_table){ .n = (uint32_t)array.n_items, .bits = 4 };
	while ((uint64_t)1 << table->bits < 2 * array.n_items) /* half of it stays empty */
		table->bits++;
	table->texts = allocate(table->n, sizeof(*table->texts));
	table->places = allocate((size_t)1 << table->bits, sizeof(*table->places));
	memset(table->places, 0xff, sizeof(*table->places) << table->bits);
	for (uint32_t i = 0; i < table->n; i++) {
		uint32_t *place;

		table->texts[i] = gguf_array_next(&array);
		table->longest = table->texts[i].size > table->longest ? table->texts[i].size : table->longest;
		place = place_of(table, table->texts[i].data, table->texts[i].size);
		if (*place == TEXT_TABLE_NONE) /* written twice: the first counts */
			*place = i;
	}
}

void
text_table_destroy(struct text_table *table)
{
	free(table->places);
	free(table->texts);
}
