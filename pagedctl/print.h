/* SPDX-License-Identifier: Apache-2.0 */
/**
 * print.h - prints lists, sizes and times, for people or as JSON
 *
 * The caller fills a list cell by cell, row after row.  print_end() prints it,
 * when the column widths are known.  In JSON the rows are objects in an array
 * with the list's name; keys are the column names in lower case, with '_' for
 * every character that is not a letter (keys outside lists are in each
 * command's json_pack() calls).  For people, columns of numbers are
 * right-aligned, and a cell without a value is "-".  The program exits
 * if there is no memory.
 */
#ifndef PAGED_CTL_PRINT_H
#define PAGED_CTL_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pagedclient.h"

enum { PRINT_MAX_COLUMNS = 32 };

struct print_list {
	const char *name;
	const char *const *columns; /* names */
	size_t n_columns, n_cells;
	bool numbers[PRINT_MAX_COLUMNS];
	json_t *rows; /* NULL: the list is for people */
	char **cells; /* if for people; a NULL cell has no value */
};

void print_begin(struct print_list *list, const char *name, const char *const *columns, size_t n_columns, bool json);

/* Each call fills the next cell; after the last column the next row begins. */

/** print_text - NULL or "": no value */
void print_text(struct print_list *list, const char *text);
void print_number(struct print_list *list, uint64_t number);
/** print_numbers - in JSON an array, for people with a space between them */
void print_numbers(struct print_list *list, const uint32_t *numbers, size_t n);
/** print_ratio - in JSON a number from 0 to 1, for people a percentage; no value if `of` is 0 */
void print_ratio(struct print_list *list, uint64_t n, uint64_t of);
/** print_size - in JSON the number of bytes, for people print_bytes() of it */
void print_size(struct print_list *list, uint64_t bytes);

/**
 * print_end - print the list to standard output, and free it
 *
 * @param[in] document  in JSON, the object to add the list to; its reference is consumed; NULL: a new object
 */
void print_end(struct print_list *list, json_t *document);

/** print_discard - free a list without printing it */
void print_discard(struct print_list *list);

/** print_json_lines - true: print each document on one line from now on */
void print_json_lines(bool lines);

/** print_json - print a document to standard output and drop the reference; exits if document is NULL (no memory) */
void print_json(json_t *document);

#define PRINT_SMALL 48

/** print_bytes - "360 KiB", "2 GiB"; with one decimal if the value is not whole */
const char *print_bytes(char text[PRINT_SMALL], uint64_t bytes);

/** print_duration - "2 h 14 min" */
const char *print_duration(char text[PRINT_SMALL], uint64_t ms);

/** print_seq - "12.1" */
const char *print_seq(char text[PRINT_SMALL], paged_seq_id id);

/** print_plural - returns one if n is 1, else many: "session", "sessions" */
const char *print_plural(uint64_t n, const char *one, const char *many);

#endif
