/* SPDX-License-Identifier: Apache-2.0 */
/**
 * top_out.h - where top's lines go: a terminal's screen, or plain text
 *
 * A line consists of fields.  Each has a style, which a screen shows by colours
 * and attributes and plain text omits, and a width in columns.
 */
#ifndef PAGED_CTL_TOP_OUT_H
#define PAGED_CTL_TOP_OUT_H

#include <stdbool.h>
#include <stddef.h>

enum top_style {
	TOP_PLAIN,
	TOP_HEADING,
	TOP_SORTED, /* the heading of the column by which the lines are sorted */
	TOP_NOTICE,
	/* Pages by state. */
	TOP_REFERENCED,
	TOP_CACHED,
	TOP_QUARANTINED,
	TOP_FREE,
	TOP_N_STYLES
};

struct top_out {
	int n_columns;
	int n_lines; /* that fit; 0: any number */
	bool utf8;   /* the output shows UTF-8 */
	int line, column;
	void (*write)(struct top_out *out, enum top_style style, const char *text); /* at (line, column) */
};

/**
 * top_put - write a field
 *
 * Text that is too long is cut.  Without utf8, each character outside ASCII is "?".
 *
 * @param[in] width  columns; negative: aligned to the right; 0: as many as the text needs
 */
void top_put(struct top_out *out, enum top_style style, int width, const char *text);
void top_putf(struct top_out *out, enum top_style style, int width, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/** top_fill - write one character n times; `ascii` is used without utf8 */
void top_fill(struct top_out *out, enum top_style style, int n, const char *utf8, const char *ascii);

/** top_next_line - fill the rest of the line with blanks of this style, and go to the next one */
void top_next_line(struct top_out *out, enum top_style style);

/** top_lines_left - lines that still fit */
int top_lines_left(const struct top_out *out);

#endif
