/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - strings of others, since proto3 strings, logs and terminals take UTF-8 only; bytes in hexadecimal */
#ifndef PAGED_TEXT_H
#define PAGED_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** text_bad_byte - where the text stops to be UTF-8 without control characters; its length: nowhere
 */
size_t text_bad_byte(const char *text);

/** text_clean_utf8 - bytes that are not UTF-8, and control characters outside ASCII, become '?' */
void text_clean_utf8(char *text);

/** text_hex - 2 * size lower-case digits and a zero */
void text_hex(char *text, const uint8_t *bytes, size_t size);

/** text_unhex_byte - the byte that two digits of either case make; false: they are none */
bool text_unhex_byte(uint8_t *byte, const char *text);

/** text_unhex - false: the text is not 2 * size digits */
bool text_unhex(uint8_t *bytes, size_t size, const char *text);

#endif
