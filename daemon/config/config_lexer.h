/* SPDX-License-Identifier: Apache-2.0 */
/**
 * config_lexer.h - reads pagedd.conf(5) word by word
 */
#ifndef PAGED_DAEMON_CONFIG_CONFIG_LEXER_H
#define PAGED_DAEMON_CONFIG_CONFIG_LEXER_H

#include <stdbool.h>

#include "common/status.h"

enum { CONFIG_WORD_SIZE = 256 };

enum config_token { TOKEN_END, TOKEN_WORD, TOKEN_EQUALS = '=', TOKEN_OPEN = '{', TOKEN_CLOSE = '}', TOKEN_COMMA = ',' };

/** The caller sets `at` to the file's text and `line` to 1. */
struct config_lexer {
	const char *at;          /* the next character */
	unsigned int line;       /* of `at` */
	enum config_token token; /* the last token read */
	unsigned int token_line;
	char word[CONFIG_WORD_SIZE]; /* of TOKEN_WORD, else "" */
};

/** config_lexer_next - read the next token; PAGED_ERR_INVALID: error says why, without file and line (token_line) */
enum paged_status config_lexer_next(struct config_lexer *lexer, struct paged_error *error);

/**
 * config_lexer_join_unit - join a word that is a number with a unit that follows after blanks
 *
 * The next letters on the line are a unit unless they are a name: pool, tenant, limit, or one before '='.
 */
void config_lexer_join_unit(struct config_lexer *lexer);

#endif
