/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/top_out.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <wchar.h>

enum { MAX_TEXT = 1024 };

/*
 * Copies the characters of text that fit into `columns` columns and into the buffer, and returns the columns that they
 * take.
 */
static int
text_clip(const struct top_out *out, const char *text, int columns, char clipped[MAX_TEXT])
{
	size_t left = strlen(text), n = 0;
	mbstate_t state = { 0 };
	int used = 0;

	while (left > 0) {
		wchar_t c = L'?';
		size_t size = mbrtowc(&c, text, left, &state);
		int width = size <= left ? wcwidth(c) : -1;
		bool known = width >= 0 && (out->utf8 || (unsigned char)*text < 0x80);

		if (!known) { /* one "?" for a character, whatever its bytes */
			width = 1;
			state = (mbstate_t){ 0 };
			for (size = 1; size < left && ((unsigned char)text[size] & 0xc0) == 0x80; size++)
				;
		}
		if (used + width > columns || n + size + 1 > MAX_TEXT)
			break;
		memcpy(clipped + n, known ? text : "?", known ? size : 1);
		n += known ? size : 1;
		used += width;
		text += size;
		left -= size;
	}
	clipped[n] = '\0';
	return used;
}

static void
blanks_put(struct top_out *out, enum top_style style, int n)
{
	char blanks[MAX_TEXT];

	if (n <= 0)
		return;
	memset(blanks, ' ', sizeof(blanks));
	n = MIN(n, MAX_TEXT - 1);
	blanks[n] = '\0';
	out->write(out, style, blanks);
	out->column += n;
}

void
top_put(struct top_out *out, enum top_style style, int width, const char *text)
{
	int room = out->n_columns - out->column, columns = width != 0 ? MIN(width > 0 ? width : -width, room) : room;
	char clipped[MAX_TEXT];
	int used = text_clip(out, text, columns, clipped);

	if (top_lines_left(out) <= 0)
		return;
	if (width < 0)
		blanks_put(out, style, columns - used);
	out->write(out, style, clipped);
	out->column += used;
	if (width > 0)
		blanks_put(out, style, columns - used);
}

void
top_putf(struct top_out *out, enum top_style style, int width, const char *format, ...)
{
	char text[MAX_TEXT];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	top_put(out, style, width, text);
}

void
top_fill(struct top_out *out, enum top_style style, int n, const char *utf8, const char *ascii)
{
	for (int i = 0; i < n; i++)
		top_put(out, style, 0, out->utf8 ? utf8 : ascii);
}

void
top_next_line(struct top_out *out, enum top_style style)
{
	if (top_lines_left(out) > 0)
		blanks_put(out, style, out->n_columns - out->column);
	out->line++;
	out->column = 0;
}

int
top_lines_left(const struct top_out *out)
{
	return out->n_lines != 0 ? out->n_lines - out->line : INT_MAX;
}
