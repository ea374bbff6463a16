/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - checks of untrusted strings (proto3 strings, logs and terminals
 * need UTF-8), hexadecimal, and edit distance
 */
#ifndef PAGED_TEXT_H
#define PAGED_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * text_bad_byte - offset of the first byte that is not UTF-8, or is of a control character or of an invisible one
 *
 * Invisible characters are those that reorder or join the visible ones, or take no room: U+202E, U+200D, U+2028, ...
 * @return the text's length: there is none
 */
size_t text_bad_byte(const char *text);

/** text_clean_utf8 - replace by '?': bytes that are not UTF-8, control characters outside ASCII, invisible ones */
void text_clean_utf8(char *text);

/** text_hex - write 2 * size lower-case digits and a terminating zero */
void text_hex(char *text, const uint8_t *bytes, size_t size);

/** text_unhex_byte - parse two hexadecimal digits of either case; false: they are not digits */
bool text_unhex_byte(uint8_t *byte, const char *text);

/** text_unhex - parse 2 * size digits; false: the text is not exactly that */
bool text_unhex(uint8_t *bytes, size_t size, const char *text);

/** The longest text that text_edit_distance() takes. */
#define TEXT_MAX_EDITED 255u

/**
 * text_edit_distance - Levenshtein distance: the fewest insertions, deletions and substitutions of a byte from a to b
 *
 * @param n_a, n_b  bytes, at most TEXT_MAX_EDITED each
 */
uint32_t text_edit_distance(const char *a, size_t n_a, const char *b, size_t n_b);

#endif
