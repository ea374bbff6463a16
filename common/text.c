/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <assert.h>

/*
 * Characters that a terminal does not show but that change what it shows: Unicode's Default_Ignorable_Code_Point (among
 * them the controls of bidirectional text, which reorder a list, and joiners, with which two names look alike), the
 * line and paragraph separators, and the controls of annotations and of hieroglyphs.
 */
static bool
is_invisible(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{ 0xad, 0xad },       { 0x34f, 0x34f },     { 0x61c, 0x61c },     { 0x115f, 0x1160 },
		{ 0x17b4, 0x17b5 },   { 0x180b, 0x180f },   { 0x200b, 0x200f },   { 0x2028, 0x202e },
		{ 0x2060, 0x206f },   { 0x3164, 0x3164 },   { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },
		{ 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 },
		{ 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && code >= ranges[i].first; i++)
		if (code <= ranges[i].last)
			return true;
	return false;
}

/* Bytes of the text's first character; 0: not UTF-8, a C1 control character (U+0080 to U+009F), or invisible. */
static size_t
utf8_length(const unsigned char *text)
{
	uint32_t code, least;
	size_t length;

	if (text[0] < 0x80)
		return 1;
	if (text[0] >= 0xf8 || (text[0] & 0x40) == 0)
		return 0;
	length = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
	least = length == 2 ? 0xa0 : length == 3 ? 0x800 : 0x10000;
	code = text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80) /* also stops at the terminating zero */
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || is_invisible(code))
		return 0;
	return length;
}

size_t
text_bad_byte(const char *text)
{
	const unsigned char *bytes = (const unsigned char *)text;
	size_t i = 0, length;

	while (bytes[i] >= 0x20 && bytes[i] != 0x7f && (length = utf8_length(bytes + i)) != 0)
		i += length;
	return i;
}

void
text_clean_utf8(char *text)
{
	while (*text != '\0') {
		size_t length = utf8_length((const unsigned char *)text);

		if (length == 0)
			*text = '?';
		text += length != 0 ? length : 1;
	}
}

void
text_hex(char *text, const uint8_t *bytes, size_t size)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < size; i++) {
		*text++ = digits[bytes[i] >> 4];
		*text++ = digits[bytes[i] & 15];
	}
	*text = '\0';
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool
text_unhex_byte(uint8_t *byte, const char *text)
{
	int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

	if (low < 0)
		return false;
	*byte = (uint8_t)(high << 4 | low);
	return true;
}

bool
text_unhex(uint8_t *bytes, size_t size, const char *text)
{
	for (size_t i = 0; i < size; i++, text += 2)
		if (!text_unhex_byte(&bytes[i], text))
			return false;
	return *text == '\0';
}

uint32_t
text_edit_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
	uint32_t distances[TEXT_MAX_EDITED + 1]; /* [j]: from the first i bytes of a to the first j of b */

	assert(n_a <= TEXT_MAX_EDITED && n_b <= TEXT_MAX_EDITED);
	for (size_t j = 0; j <= n_b; j++)
		distances[j] = (uint32_t)j;
	for (size_t i = 1; i <= n_a; i++) {
		uint32_t diagonal = distances[0]; /* [j - 1] of the previous i */

		distances[0] = (uint32_t)i;
		for (size_t j = 1; j <= n_b; j++) {
			uint32_t substitute = diagonal + (a[i - 1] != b[j - 1]);
			uint32_t shift = (distances[j] < distances[j - 1] ? distances[j] : distances[j - 1]) + 1;

			diagonal = distances[j];
			distances[j] = substitute < shift ? substitute : shift;
		}
	}
	return distances[n_b];
}
