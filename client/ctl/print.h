/* SPDX-License-Identifier: Apache-2.0 */
/**
 * print.h - aligned tables, sizes and times for people
 *
 * A table is filled cell by cell, row after row, and printed at the end,
 * when the widths are known.  Without memory the program ends: there is
 * nothing else it could say.
 */
#ifndef PAGED_CTL_PRINT_H
#define PAGED_CTL_PRINT_H

#include <stddef.h>
#include <stdint.h>

#include "client/pagedclient.h"

enum print_align { PRINT_LEFT, PRINT_RIGHT };

struct print_column {
	const char *name;
	enum print_align align;
};

struct print_table {
	const struct print_column *columns;
	size_t n_columns;
	char **cells;
	size_t n_cells;
};

void print_table_init(struct print_table *table, const struct print_column *columns, size_t n_columns);

/** print_cell - the next cell; rows follow one another */
void print_cell(struct print_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** print_table_finish - to standard output, and free it */
void print_table_finish(struct print_table *table);

#define PRINT_SMALL 48

/** print_bytes - "360 KiB", "2 GiB"; one decimal where it is not whole */
const char *print_bytes(char text[PRINT_SMALL], uint64_t bytes);

/** print_duration - "2 h 14 min" */
const char *print_duration(char text[PRINT_SMALL], uint64_t ms);

/** print_seq - "12.1" */
const char *print_seq(char text[PRINT_SMALL], paged_seq_id id);

/** print_length - tokens as the owner last told, or "-" as long as it told nothing */
const char *print_length(char text[PRINT_SMALL], uint32_t length);

const char *print_dtype(enum paged_dtype dtype);

/** print_plural - "session" of 1, "sessions" of all else */
const char *print_plural(uint64_t n, const char *one, const char *many);

#endif
