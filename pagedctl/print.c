/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/print.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

static void
memory_end(void)
{
	fprintf(stderr, "pagedctl: out of memory\n");
	exit(1);
}

static size_t json_flags = JSON_INDENT(2);

void
print_json_lines(bool lines)
{
	json_flags = lines ? JSON_COMPACT : JSON_INDENT(2);
}

void
print_json(json_t *document)
{
	if (document == NULL)
		memory_end();
	json_dumpf(document, stdout, json_flags);
	printf("\n");
	json_decref(document);
}

void
print_begin(struct print_list *list, const char *name, const char *const *columns, size_t n_columns, bool json)
{
	assert(n_columns <= PRINT_MAX_COLUMNS);
	*list = (struct print_list){ .name = name, .columns = columns, .n_columns = n_columns };
	if (json && (list->rows = json_array()) == NULL)
		memory_end();
}

/*
 * Adds the next cell: `value` for JSON (takes ownership of the reference), `text` for the table.  The key in JSON is
 * the column's heading in lower case, with _ for every character that is not a letter: a new heading is a new key.
 */
static void
cell_add(struct print_list *list, json_t *value, const char *text)
{
	size_t column = list->n_cells % list->n_columns, row = list->n_cells / list->n_columns;
	char key[PRINT_SMALL] = "";

	list->n_cells++;
	if (list->rows != NULL) {
		for (size_t i = 0; list->columns[column][i] != '\0'; i++)
			key[i] = isalpha((unsigned char)list->columns[column][i])
					 ? (char)tolower(list->columns[column][i])
					 : '_';
		if (column == 0)
			json_array_append_new(list->rows, json_object());
		if (json_object_set_new(json_array_get(list->rows, row), key, value) < 0)
			memory_end();
		return;
	}
	list->cells = reallocarray(list->cells, list->n_cells, sizeof(*list->cells));
	if (list->cells == NULL)
		memory_end();
	list->cells[list->n_cells - 1] = text != NULL ? strdup(text) : NULL;
}

void
print_text(struct print_list *list, const char *text)
{
	bool none = text == NULL || text[0] == '\0';

	cell_add(list, list->rows == NULL ? NULL : none ? json_null() : json_string(text), none ? NULL : text);
}

static void
number_add(struct print_list *list, uint64_t number, const char *text)
{
	list->numbers[list->n_cells % list->n_columns] = true;
	cell_add(list, list->rows != NULL ? json_integer((json_int_t)number) : NULL, text);
}

void
print_number(struct print_list *list, uint64_t number)
{
	char text[PRINT_SMALL];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	number_add(list, number, text);
}

void
print_size(struct print_list *list, uint64_t bytes)
{
	char text[PRINT_SMALL];

	number_add(list, bytes, print_bytes(text, bytes));
}

void
print_numbers(struct print_list *list, const uint32_t *numbers, size_t n)
{
	char *text = NULL;
	json_t *array;
	size_t size;
	FILE *out;

	if (list->rows != NULL) {
		array = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(array, json_integer((json_int_t)numbers[i]));
		cell_add(list, array, NULL);
		return;
	}
	out = open_memstream(&text, &size);
	if (out == NULL)
		memory_end();
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%" PRIu32, i > 0 ? " " : "", numbers[i]);
	if (fclose(out) != 0)
		memory_end();
	cell_add(list, NULL, text);
	free(text);
}

void
print_ratio(struct print_list *list, uint64_t n, uint64_t of)
{
	char text[PRINT_SMALL];

	if (of == 0) {
		print_text(list, NULL);
		return;
	}
	snprintf(text, sizeof(text), "%.0f %%", 100.0 * (double)n / (double)of);
	list->numbers[list->n_cells % list->n_columns] = true;
	cell_add(list, list->rows != NULL ? json_real((double)n / (double)of) : NULL, text);
}

static int
column_width(const struct print_list *list, size_t column)
{
	size_t width = strlen(list->columns[column]);

	for (size_t i = column; i < list->n_cells; i += list->n_columns)
		if (list->cells[i] != NULL)
			width = MAX(width, strlen(list->cells[i]));
	return (int)width;
}

static void
table_print(const struct print_list *list)
{
	int widths[PRINT_MAX_COLUMNS];

	for (size_t c = 0; c < list->n_columns; c++)
		widths[c] = column_width(list, c);
	for (size_t row = 0; row <= list->n_cells / list->n_columns; row++) {
		const char *gap = "";

		for (size_t c = 0; c < list->n_columns; c++) {
			int width = list->numbers[c] ? widths[c] : c + 1 < list->n_columns ? -widths[c] : 0;
			const char *text = list->columns[c];

			if (row > 0)
				text = list->cells[(row - 1) * list->n_columns + c];
			printf("%s%*s", gap, width, text != NULL ? text : "-");
			gap = "  ";
		}
		printf("\n");
	}
}

void
print_discard(struct print_list *list)
{
	json_decref(list->rows);
	for (size_t i = 0; list->cells != NULL && i < list->n_cells; i++)
		free(list->cells[i]);
	free(list->cells);
}

void
print_end(struct print_list *list, json_t *document)
{
	if (list->rows != NULL) {
		if (document == NULL)
			document = json_object();
		if (json_object_set_new(document, list->name, list->rows) < 0)
			memory_end();
		print_json(document);
		return;
	}
	table_print(list);
	print_discard(list);
}

const char *
print_bytes(char text[PRINT_SMALL], uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB" };
	uint64_t unit = 1;
	size_t u = 0;

	while (u + 1 < sizeof(units) / sizeof(units[0]) && bytes / unit >= 1024) {
		unit *= 1024;
		u++;
	}
	if (bytes % unit == 0)
		snprintf(text, PRINT_SMALL, "%" PRIu64 " %s", bytes / unit, units[u]);
	else
		snprintf(text, PRINT_SMALL, "%.1f %s", (double)bytes / (double)unit, units[u]);
	return text;
}

const char *
print_duration(char text[PRINT_SMALL], uint64_t ms)
{
	uint64_t s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;

	if (d > 0)
		snprintf(text, PRINT_SMALL, "%" PRIu64 " d %" PRIu64 " h", d, h % 24);
	else if (h > 0)
		snprintf(text, PRINT_SMALL, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
	else if (min > 0)
		snprintf(text, PRINT_SMALL, "%" PRIu64 " min %" PRIu64 " s", min, s % 60);
	else
		snprintf(text, PRINT_SMALL, "%" PRIu64 " s", s);
	return text;
}

const char *
print_seq(char text[PRINT_SMALL], paged_seq_id id)
{
	snprintf(text, PRINT_SMALL, "%" PRIu32 ".%" PRIu32, PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id));
	return text;
}

const char *
print_plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}
