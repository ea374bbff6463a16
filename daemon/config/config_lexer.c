/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/config_lexer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool
is_special(char c)
{
	return strchr(" \t\r\n={},#\"'", c) != NULL;
}

static void
lexer_skip_blanks(struct config_lexer *lexer)
{
	bool comment = false;

	for (char c; (c = *lexer->at) != '\0'; lexer->at++) {
		comment = c != '\n' && (comment || c == '#');
		if (!comment && strchr(" \t\r\n", c) == NULL)
			return;
		lexer->line += c == '\n';
	}
}

/* Reads a word up to a special character, or text in quotes, where a backslash escapes the next character. */
static enum paged_status
lexer_read_word(struct config_lexer *lexer, struct paged_error *error)
{
	char quote = *lexer->at == '"' || *lexer->at == '\'' ? *lexer->at++ : '\0';
	size_t n = 0;

	lexer->token = TOKEN_WORD;
	for (char c; c = *lexer->at, quote != '\0' ? c != quote : !is_special(c); lexer->at++) {
		if (c == '\0' || c == '\n')
			return paged_fail(error, PAGED_ERR_INVALID, "a quote is not closed");
		if (c == '$' && lexer->at[1] == '{')
			return paged_fail(error, PAGED_ERR_INVALID, "${...}: variables are not replaced");
		if (quote != '\0' && c == '\\' && lexer->at[1] != '\0')
			c = *++lexer->at;
		if (n == CONFIG_WORD_SIZE - 1)
			return paged_fail(error, PAGED_ERR_INVALID, "%.16s...: longer than %d bytes", lexer->word,
					  CONFIG_WORD_SIZE - 1);
		lexer->word[n++] = c;
		lexer->word[n] = '\0';
	}
	lexer->at += quote != '\0';
	return PAGED_OK;
}

enum paged_status
config_lexer_next(struct config_lexer *lexer, struct paged_error *error)
{
	lexer_skip_blanks(lexer);
	lexer->token_line = lexer->line;
	lexer->word[0] = '\0';
	if (*lexer->at != '\0' && strchr("={},", *lexer->at) == NULL)
		return lexer_read_word(lexer, error);
	lexer->token = (enum config_token) * lexer->at;
	lexer->at += lexer->token != TOKEN_END;
	return PAGED_OK;
}

static bool
is_name(const char *word, size_t length)
{
	static const char *const names[] = { "pool", "tenant", "limit" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == length && strncmp(word, names[i], length) == 0)
			return true;
	return false;
}

void
config_lexer_join_unit(struct config_lexer *lexer)
{
	const char *unit = lexer->at + strspn(lexer->at, " \t"), *end = unit;
	size_t length = strlen(lexer->word);

	while (isalpha((unsigned char)*end) || *end == '%')
		end++;
	if (end == unit || !is_special(*end) || strspn(lexer->word, "0123456789") != length ||
	    length + 1 + (size_t)(end - unit) >= CONFIG_WORD_SIZE || end[strspn(end, " \t")] == '=' ||
	    is_name(unit, (size_t)(end - unit)))
		return;
	snprintf(lexer->word + length, CONFIG_WORD_SIZE - length, " %.*s", (int)(end - unit), unit);
	lexer->at = end;
}
