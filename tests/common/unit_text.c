/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal, edit distance, and checks of text that is not UTF-8. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

Test(text, hex_round_trip)
{
	static const uint8_t bytes[5] = { 0x00, 0x0f, 0xa0, 0xff, 0x5c };
	uint8_t back[5];
	char text[11];

	text_hex(text, bytes, sizeof(bytes));
	cr_assert_str_eq(text, "000fa0ff5c");
	cr_assert(text_unhex(back, sizeof(back), text));
	cr_assert_arr_eq(back, bytes, sizeof(bytes));
	cr_assert(text_unhex(back, sizeof(back), "000FA0ff5C"));
	cr_assert_arr_eq(back, bytes, sizeof(bytes));
	text_hex(text, bytes, 0);
	cr_assert_str_eq(text, "");
}

Test(text, unhex_refuses_other_text)
{
	static const char *const wrong[] = {
		"", "0", "000fa0ff5", "000fa0ff5c0", "000fa0ff5g", "00 fa0ff5c", "\x10\x11"
	};
	uint8_t back[5];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_expect_not(text_unhex(back, sizeof(back), wrong[i]), "%s", wrong[i]);
}

/* Among single bytes, only printable ASCII is UTF-8 without control characters. */
Test(text, bytes_that_are_not_utf8)
{
	for (int byte = 1; byte < 256; byte++) {
		char text[3] = { 'a', (char)byte, 0 };
		bool printable = byte >= 0x20 && byte < 0x7f;

		cr_expect_eq(text_bad_byte(text), printable ? 2 : 1, "byte %d", byte);
		text_clean_utf8(text);
		cr_expect_eq(text[1], byte < 0x80 ? (char)byte : '?', "byte %d", byte);
	}
	cr_expect_eq(text_bad_byte("caf\xc3\xa9"), 5);
	cr_expect_eq(text_bad_byte("caf\xc3"), 3, "truncated");
	cr_expect_eq(text_bad_byte("\xed\xa0\x80"), 0, "a surrogate");
	cr_expect_eq(text_bad_byte("\xc0\xaf"), 0, "longer than needed");
}

/* Characters that reorder or join others, or take no room, and neighbours that are visible. */
Test(text, invisible_characters)
{
	static const char *const invisible[] = {
		"\xc2\xad",         /* U+00AD soft hyphen */
		"\xcd\x8f",         /* U+034F combining grapheme joiner */
		"\xd8\x9c",         /* U+061C Arabic letter mark */
		"\xe1\x85\x9f",     /* U+115F Hangul filler */
		"\xe2\x80\x8b",     /* U+200B zero width space */
		"\xe2\x80\x8d",     /* U+200D zero width joiner */
		"\xe2\x80\x8e",     /* U+200E left-to-right mark */
		"\xe2\x80\xa8",     /* U+2028 line separator */
		"\xe2\x80\xa9",     /* U+2029 paragraph separator */
		"\xe2\x80\xaa",     /* U+202A left-to-right embedding */
		"\xe2\x80\xae",     /* U+202E right-to-left override */
		"\xe2\x81\xa0",     /* U+2060 word joiner */
		"\xe2\x81\xa6",     /* U+2066 left-to-right isolate */
		"\xe2\x81\xa9",     /* U+2069 pop directional isolate */
		"\xef\xb8\x8f",     /* U+FE0F variation selector 16 */
		"\xef\xbb\xbf",     /* U+FEFF byte order mark */
		"\xf0\x9d\x85\xb3", /* U+1D173 musical symbol begin beam */
		"\xf3\xa0\x80\x81", /* U+E0001 language tag */
		"\xf3\xa0\x87\xaf", /* U+E01EF variation selector 256 */
	};
	static const char *const visible[] = { "\xc2\xac",     "\xc2\xae",     "\xd8\x9b",        "\xe2\x80\x90",
					       "\xe2\x80\xa7", "\xe2\x80\xb0", "\xe2\x81\x9e",    "\xe2\x81\xb0",
					       "\xd7\xa9",     "\xef\xb7\xba", "\xf0\x9f\x98\x80" };

	for (size_t i = 0; i < sizeof(invisible) / sizeof(invisible[0]); i++) {
		size_t length = strlen(invisible[i]);
		char text[8];

		snprintf(text, sizeof(text), "a%sb", invisible[i]);
		cr_expect_eq(text_bad_byte(text), 1, "%zu", i);
		text_clean_utf8(text);
		cr_expect_eq(strspn(text + 1, "?"), length, "%zu: %s", i, text);
		cr_expect_str_eq(text + 1 + length, "b");
	}
	for (size_t i = 0; i < sizeof(visible) / sizeof(visible[0]); i++)
		cr_expect_eq(text_bad_byte(visible[i]), strlen(visible[i]), "%zu", i);
}

static uint32_t
edit_distance(const char *a, const char *b)
{
	return text_edit_distance(a, strlen(a), b, strlen(b));
}

Test(text, edit_distance_counts_insertions_deletions_and_substitutions)
{
	char longest[TEXT_MAX_EDITED + 1];

	cr_expect_eq(edit_distance("", ""), 0);
	cr_expect_eq(edit_distance("page_size", "page_size"), 0);
	cr_expect_eq(edit_distance("", "abc"), 3);
	cr_expect_eq(edit_distance("abc", ""), 3);
	cr_expect_eq(edit_distance("kitten", "sitting"), 3);
	cr_expect_eq(edit_distance("sitting", "kitten"), 3);
	cr_expect_eq(edit_distance("n_page", "n_pages"), 1);
	cr_expect_eq(edit_distance("ab", "ba"), 2, "a transposition is two edits");
	cr_expect_eq(text_edit_distance("window", 3, "winter", 3), 0, "only the first n bytes count");
	memset(longest, 'x', TEXT_MAX_EDITED);
	longest[TEXT_MAX_EDITED] = '\0';
	cr_expect_eq(edit_distance(longest, ""), TEXT_MAX_EDITED);
	cr_expect_eq(edit_distance("y", longest), TEXT_MAX_EDITED);
}
