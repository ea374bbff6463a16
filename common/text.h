/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - strings of others: proto3 strings, logs and terminals take UTF-8 only */
#ifndef PAGED_TEXT_H
#define PAGED_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/** text_bad_byte - where the text stops to be UTF-8 without control characters; its length: nowhere
 */
size_t text_bad_byte(const char *text);

/** text_clean_utf8 - bytes that are not UTF-8, and control characters outside ASCII, become '?' */
void text_clean_utf8(char *text);

#endif
