/* SPDX-License-Identifier: Apache-2.0 */
/**
 * print.h - lists, sizes and times, for people or as JSON
 *
 * A list is filled cell by cell, row after row, and printed at the end, when
 * the widths are known.  In JSON its rows are objects in an array that has the
 * list's name; keys are the columns' names in small letters, with '_' for
 * anything but letters.  For people, columns of numbers are aligned at the
 * right, and one that has a value in no row is omitted.  Without memory the program ends: there is nothing
 * else it could say.
 */
#ifndef PAGED_CTL_PRINT_H
#define PAGED_CTL_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pagedclient.h"

enum { PRINT_MAX_COLUMNS = 16 };

struct print_list {
	const char *name;
	const char *const *columns; /* names */
	size_t n_columns, n_cells;
	bool numbers[PRINT_MAX_COLUMNS];
	json_t *rows; /* NULL: for people */
	char **cells; /* for people; NULL: no value */
};

void print_begin(struct print_list *list, const char *name, const char *const *columns, size_t n_columns, bool json);

/* The next cell; rows follow one another. */

/** print_text - NULL or "": no value */
void print_text(struct print_list *list, const char *text);
void print_number(struct print_list *list, uint64_t number);
/** print_size - bytes in JSON, print_bytes() for people */
void print_size(struct print_list *list, uint64_t bytes);

/**
 * print_end - to standard output, and free the list
 *
 * @param[in] document  in JSON, the object that the list goes into; takes the reference; NULL: a new one
 */
void print_end(struct print_list *list, json_t *document);

/** print_drop - free a list that is not printed */
void print_drop(struct print_list *list);

/** print_json - a document to standard output; takes the reference; NULL (no memory) ends the program */
void print_json(json_t *document);

#define PRINT_SMALL 48

/** print_bytes - "360 KiB", "2 GiB"; one decimal where it is not whole */
const char *print_bytes(char text[PRINT_SMALL], uint64_t bytes);

/** print_duration - "2 h 14 min" */
const char *print_duration(char text[PRINT_SMALL], uint64_t ms);

/** print_seq - "12.1" */
const char *print_seq(char text[PRINT_SMALL], paged_seq_id id);

const char *print_dtype(enum paged_dtype dtype);

/** print_plural - "session" of 1, "sessions" of all else */
const char *print_plural(uint64_t n, const char *one, const char *many);

#endif
