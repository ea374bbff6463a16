/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer, and errors that point at a token. */
#include "config.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "kernels/mod/frontend.h"

/* Longer operators come before their prefixes. */
const struct mod_operator_info mod_operators[MOD_N_OPERATORS] = {
	[MOD_O_SHL] = { "<<", 8, MOD_OP_SHL },      [MOD_O_SHR] = { ">>", 8, MOD_OP_SHR },
	[MOD_O_LE] = { "<=", 7, MOD_OP_LE },        [MOD_O_GE] = { ">=", 7, MOD_OP_LE },
	[MOD_O_EQ] = { "==", 6, MOD_OP_EQ },        [MOD_O_NE] = { "!=", 6, MOD_OP_NE },
	[MOD_O_AND] = { "&&", 2, MOD_OP_AND },      [MOD_O_OR] = { "||", 1, MOD_OP_OR },
	[MOD_O_LT] = { "<", 7, MOD_OP_LT },         [MOD_O_GT] = { ">", 7, MOD_OP_LT },
	[MOD_O_NOT] = { "!", 0, MOD_N_OPS },        [MOD_O_TILDE] = { "~", 0, MOD_N_OPS },
	[MOD_O_MINUS] = { "-", 9, MOD_OP_SUB },     [MOD_O_PLUS] = { "+", 9, MOD_OP_ADD },
	[MOD_O_TIMES] = { "*", 10, MOD_OP_MUL },    [MOD_O_DIVIDE] = { "/", 10, MOD_OP_DIV },
	[MOD_O_PERCENT] = { "%", 10, MOD_OP_MOD },  [MOD_O_AMPERSAND] = { "&", 5, MOD_OP_BITAND },
	[MOD_O_BAR] = { "|", 3, MOD_OP_BITOR },     [MOD_O_CARET] = { "^", 4, MOD_OP_BITXOR },
	[MOD_O_QUESTION] = { "?", 0, MOD_N_OPS },   [MOD_O_COLON] = { ":", 0, MOD_N_OPS },
	[MOD_O_OPEN] = { "(", 0, MOD_N_OPS },       [MOD_O_CLOSE] = { ")", 0, MOD_N_OPS },
	[MOD_O_OPEN_INDEX] = { "[", 0, MOD_N_OPS }, [MOD_O_CLOSE_INDEX] = { "]", 0, MOD_N_OPS },
	[MOD_O_COMMA] = { ",", 0, MOD_N_OPS },
};

/* Operators spelled as words, as in C's iso646.h. */
static const struct {
	const char *word;
	enum mod_operator op;
} word_operators[] = { { "and", MOD_O_AND }, { "or", MOD_O_OR }, { "not", MOD_O_NOT } };

#define EXCERPT_MAX 60u /* most bytes of a line that an error shows */

/* Copies the part of a line around `offset`; *column_p is the position of `offset` in it. */
static void
lex_excerpt(const struct mod_source *source, size_t offset, char excerpt[EXCERPT_MAX + 1], size_t *column_p)
{
	size_t begin = offset, end = offset, n;

	while (begin > 0 && source->text[begin - 1] != '\n')
		begin--;
	while (end < source->length && source->text[end] != '\n')
		end++;
	if (offset - begin > EXCERPT_MAX / 2 && end - begin > EXCERPT_MAX)
		begin = end - offset < EXCERPT_MAX / 2 ? end - EXCERPT_MAX : offset - EXCERPT_MAX / 2;
	n = end - begin < EXCERPT_MAX ? end - begin : EXCERPT_MAX;
	for (size_t i = 0; i < n; i++)
		excerpt[i] = isprint((unsigned char)source->text[begin + i]) ? source->text[begin + i] : ' ';
	excerpt[n] = '\0';
	*column_p = offset - begin;
}

enum paged_status
mod_text_fail(const struct mod_source *source, size_t offset, enum paged_status status, const char *sentence,
	      struct paged_error *error)
{
	uint32_t line = 1, column = 1;
	char excerpt[EXCERPT_MAX + 1];
	size_t indent;

	if (offset > source->length)
		offset = source->length;
	for (size_t i = 0; i < offset; i++) {
		column++;
		if (source->text[i] == '\n') {
			line++;
			column = 1;
		}
	}
	lex_excerpt(source, offset, excerpt, &indent);
	return paged_fail(error, status, "mod, line %u, column %u: %s\n  %s\n  %*s^", line, column, sentence, excerpt,
			  (int)indent, "");
}

void
mod_lex_fail(struct mod_lexer *lexer, size_t offset, enum paged_status status, const char *format, ...)
{
	char sentence[100];
	va_list arguments;

	lexer->token = MOD_TOKEN_END;
	if (lexer->status != PAGED_OK)
		return;
	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	lexer->status = mod_text_fail(&lexer->source, offset, status, sentence, lexer->error);
}

void
mod_nearest_begin(struct mod_nearest *nearest, const char *name, size_t length)
{
	*nearest = (struct mod_nearest){ .name = name, .length = length };
	nearest->distance = length < 3 ? 2 : length < 6 ? 3 : 4; /* a candidate needs fewer edits than this */
}

void
mod_nearest_offer(struct mod_nearest *nearest, const char *candidate)
{
	size_t length = strlen(candidate);
	uint32_t n;

	if (nearest->length > MOD_MAX_NAME || length > MOD_MAX_NAME)
		return;
	n = text_edit_distance(nearest->name, nearest->length, candidate, length);
	if (n >= nearest->distance || n >= length)
		return;
	nearest->distance = n;
	memcpy(nearest->found, candidate, length + 1);
}

static char
lex_peek(const struct mod_lexer *lexer, size_t offset)
{
	return offset < lexer->source.length ? lexer->source.text[offset] : '\0';
}

static bool
lex_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
lex_is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void
lex_hex(struct mod_lexer *lexer)
{
	uint64_t value = 0;
	size_t offset = lexer->offset + 2;

	for (; isxdigit((unsigned char)lex_peek(lexer, offset)); offset++) {
		char c = (char)tolower((unsigned char)lex_peek(lexer, offset));

		value = value << 4 | (uint64_t)(lex_is_digit(c) ? c - '0' : c - 'a' + 10);
		if (value > UINT32_MAX) {
			mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID, "the number does not fit 32 bits");
			return;
		}
	}
	lexer->token = MOD_TOKEN_INT;
	lexer->integer = (uint32_t)value;
	lexer->hex = true;
	lexer->next = offset;
	if (offset == lexer->offset + 2 || lex_is_letter(lex_peek(lexer, offset)))
		mod_lex_fail(lexer, offset, PAGED_ERR_INVALID, "expected a hexadecimal digit");
}

/* Uses the C locale, so that the decimal separator is always a point. */
static void
lex_float(struct mod_lexer *lexer, size_t end)
{
	size_t length = end - lexer->offset;
	char digits[64];
	locale_t c;

	if (length >= sizeof(digits)) {
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_LIMIT, "a number of %zu characters, %zu at most", length,
			     sizeof(digits) - 1);
		return;
	}
	memcpy(digits, lexer->source.text + lexer->offset, length);
	digits[length] = '\0';
	c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (c == (locale_t)0) {
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_NOMEM, "no memory for a locale");
		return;
	}
	lexer->token = MOD_TOKEN_FLOAT;
	lexer->number = strtof_l(digits, NULL, c);
	lexer->next = end;
	freelocale(c);
	if (isinf(lexer->number))
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID,
			     "the number is larger than any f32; write inf if that is meant");
}

static size_t
lex_skip_digits(const struct mod_lexer *lexer, size_t offset)
{
	while (lex_is_digit(lex_peek(lexer, offset)))
		offset++;
	return offset;
}

static void
lex_number(struct mod_lexer *lexer)
{
	size_t offset = lex_skip_digits(lexer, lexer->offset), end = offset;
	uint64_t value = 0;

	if (end == lexer->offset + 1 && lex_peek(lexer, end - 1) == '0' &&
	    (lex_peek(lexer, end) == 'x' || lex_peek(lexer, end) == 'X')) {
		lex_hex(lexer);
		return;
	}
	if (lex_peek(lexer, end) == '.')
		end = lex_skip_digits(lexer, end + 1);
	if (lex_peek(lexer, end) == 'e' || lex_peek(lexer, end) == 'E') {
		end++;
		if (lex_peek(lexer, end) == '-' || lex_peek(lexer, end) == '+')
			end++;
		if (!lex_is_digit(lex_peek(lexer, end)))
			mod_lex_fail(lexer, end, PAGED_ERR_INVALID, "expected a digit of the exponent");
		end = lex_skip_digits(lexer, end);
	}
	if (lex_is_letter(lex_peek(lexer, end)) || lex_peek(lexer, end) == '.')
		mod_lex_fail(lexer, end, PAGED_ERR_INVALID, "expected the number to end here (it takes no suffix)");
	if (lexer->status != PAGED_OK)
		return;
	if (end != offset) {
		lex_float(lexer, end);
		return;
	}
	for (offset = lexer->offset; offset < end && value <= UINT32_MAX; offset++)
		value = value * 10 + (uint64_t)(lex_peek(lexer, offset) - '0');
	lexer->token = MOD_TOKEN_INT;
	lexer->integer = (uint32_t)value;
	lexer->hex = false;
	lexer->next = end;
	if (value > 1ull << 31)
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID,
			     "the number is larger than any int (2147483647); a float has a '.'");
}

static void
lex_name(struct mod_lexer *lexer)
{
	const char *name = lexer->source.text + lexer->offset;
	size_t offset = lexer->offset;

	while (lex_is_letter(lex_peek(lexer, offset)) || lex_is_digit(lex_peek(lexer, offset)))
		offset++;
	lexer->length = offset - lexer->offset;
	lexer->next = offset;
	lexer->token = MOD_TOKEN_NAME;
	if (lexer->length > MOD_MAX_NAME)
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_LIMIT, "a name of %zu characters, %u at most",
			     lexer->length, MOD_MAX_NAME);
	for (size_t i = 0; i < sizeof(word_operators) / sizeof(word_operators[0]); i++) {
		if (lexer->length != strlen(word_operators[i].word) ||
		    memcmp(name, word_operators[i].word, lexer->length) != 0)
			continue;
		lexer->token = MOD_TOKEN_OPERATOR;
		lexer->op = word_operators[i].op;
	}
	if (lexer->length == 3 && memcmp(name, "inf", 3) == 0) {
		lexer->token = MOD_TOKEN_FLOAT;
		lexer->number = INFINITY;
	}
}

static void
lex_operator(struct mod_lexer *lexer)
{
	const char *text = lexer->source.text + lexer->offset;
	size_t left = lexer->source.length - lexer->offset;

	for (uint32_t i = 0; i < MOD_N_OPERATORS; i++) {
		size_t length = strlen(mod_operators[i].text);

		if (length > left || memcmp(text, mod_operators[i].text, length) != 0)
			continue;
		lexer->token = MOD_TOKEN_OPERATOR;
		lexer->op = i;
		lexer->next = lexer->offset + length;
		return;
	}
	if (*text == '=')
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID, "nothing can be assigned; equality is '=='");
	else
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID,
			     isprint((unsigned char)*text) ? "'%c' has no meaning here"
							   : "byte 0x%02x has no meaning here",
			     (unsigned char)*text);
}

void
mod_lex_next(struct mod_lexer *lexer)
{
	char c;

	lexer->token = MOD_TOKEN_END;
	if (lexer->status != PAGED_OK)
		return;
	while (lexer->next < lexer->source.length && strchr(" \t\r\n", lex_peek(lexer, lexer->next)) != NULL &&
	       lex_peek(lexer, lexer->next) != '\0')
		lexer->next++;
	lexer->offset = lexer->next;
	lexer->length = 0;
	if (lexer->offset == lexer->source.length)
		return;
	c = lex_peek(lexer, lexer->offset);
	if (lex_is_digit(c) || (c == '.' && lex_is_digit(lex_peek(lexer, lexer->offset + 1))))
		lex_number(lexer);
	else if (lex_is_letter(c))
		lex_name(lexer);
	else
		lex_operator(lexer);
	lexer->length = lexer->next - lexer->offset;
}
