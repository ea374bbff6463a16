/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/ctl/print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
memory_end(void)
{
	fprintf(stderr, "pagedctl: out of memory\n");
	exit(1);
}

void
print_table_init(struct print_table *table, const struct print_column *columns, size_t n_columns)
{
	*table = (struct print_table){ .columns = columns, .n_columns = n_columns };
}

void
print_cell(struct print_table *table, const char *format, ...)
{
	va_list arguments;
	char *cell;

	/* One row at a time. */
	if (table->n_cells % table->n_columns == 0) {
		table->cells = realloc(table->cells, (table->n_cells + table->n_columns) * sizeof(*table->cells));
		if (table->cells == NULL)
			memory_end();
	}
	va_start(arguments, format);
	if (vasprintf(&cell, format, arguments) < 0)
		memory_end();
	va_end(arguments);
	table->cells[table->n_cells++] = cell;
}

static void
row_print(const struct print_table *table, const size_t *widths, char *const *cells)
{
	for (size_t c = 0; c < table->n_columns; c++) {
		const char *text = cells != NULL ? cells[c] : table->columns[c].name;
		int width = (int)widths[c];

		if (table->columns[c].align == PRINT_RIGHT)
			printf("%*s", width, text);
		else
			printf("%-*s", c + 1 < table->n_columns ? width : 0, text);
		printf(c + 1 < table->n_columns ? "  " : "\n");
	}
}

void
print_table_finish(struct print_table *table)
{
	size_t *widths = calloc(table->n_columns, sizeof(*widths));

	if (widths == NULL)
		memory_end();
	for (size_t c = 0; c < table->n_columns; c++)
		widths[c] = strlen(table->columns[c].name);
	for (size_t i = 0; i < table->n_cells; i++) {
		size_t c = i % table->n_columns, width = strlen(table->cells[i]);

		if (width > widths[c])
			widths[c] = width;
	}
	row_print(table, widths, NULL);
	for (size_t i = 0; i < table->n_cells; i += table->n_columns)
		row_print(table, widths, table->cells + i);
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i]);
	free(table->cells);
	free(widths);
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
print_length(char text[PRINT_SMALL], uint32_t length)
{
	if (length == 0)
		return "-";
	snprintf(text, PRINT_SMALL, "%" PRIu32, length);
	return text;
}

const char *
print_dtype(enum paged_dtype dtype)
{
	switch (dtype) {
	case PAGED_F32:
		return "f32";
	case PAGED_F16:
		return "f16";
	case PAGED_BF16:
		return "bf16";
	case PAGED_E4M3:
		return "e4m3";
	case PAGED_E5M2:
		return "e5m2";
	case PAGED_I8:
		return "i8";
	case PAGED_I32:
	case PAGED_U8:
	case PAGED_DTYPE_NONE:
		break;
	}
	return "?";
}

const char *
print_plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}
