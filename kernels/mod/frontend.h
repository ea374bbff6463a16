/* SPDX-License-Identifier: Apache-2.0 */
/** frontend.h - from a mod's text to its operations and back: lexer, syntax tree, errors, printing */
#ifndef PAGED_KERNELS_MOD_FRONTEND_H
#define PAGED_KERNELS_MOD_FRONTEND_H

#include "kernels/mod/ir.h"

/** The text that error messages quote. */
struct mod_source {
	const char *text;
	size_t length;
};

/** mod_text_fail - fail with the sentence, then the line of text (or a part of it) with a caret below `offset` */
enum paged_status mod_text_fail(const struct mod_source *source, size_t offset, enum paged_status status,
				const char *sentence, struct paged_error *error);

/** Spelling suggestion: the candidate with the fewest edits so far, if they are few. */
struct mod_nearest {
	const char *name; /* the name to match, not terminated */
	size_t length;
	char found[MOD_MAX_NAME + 1];
	uint32_t distance;
};

void mod_nearest_begin(struct mod_nearest *nearest, const char *name, size_t length);
void mod_nearest_offer(struct mod_nearest *nearest, const char *candidate);

enum mod_token {
	MOD_TOKEN_END,
	MOD_TOKEN_INT,
	MOD_TOKEN_FLOAT,
	MOD_TOKEN_NAME,
	MOD_TOKEN_OPERATOR,
};

/** Operators and punctuation, in the order of the lexer's table. */
enum mod_operator {
	MOD_O_SHL,
	MOD_O_SHR,
	MOD_O_LE,
	MOD_O_GE,
	MOD_O_EQ,
	MOD_O_NE,
	MOD_O_AND,
	MOD_O_OR,
	MOD_O_LT,
	MOD_O_GT,
	MOD_O_NOT,
	MOD_O_TILDE,
	MOD_O_MINUS,
	MOD_O_PLUS,
	MOD_O_TIMES,
	MOD_O_DIVIDE,
	MOD_O_PERCENT,
	MOD_O_AMPERSAND,
	MOD_O_CARET,
	MOD_O_BAR,
	MOD_O_QUESTION,
	MOD_O_COLON,
	MOD_O_OPEN,
	MOD_O_CLOSE,
	MOD_O_OPEN_INDEX,
	MOD_O_CLOSE_INDEX,
	MOD_O_COMMA,
	MOD_N_OPERATORS
};

struct mod_lexer {
	struct mod_source source;
	size_t next; /* offset after the token */
	enum mod_token token;
	enum mod_operator op;  /* of an OPERATOR */
	size_t offset, length; /* of the token */
	uint32_t integer;      /* of an INT; `hex`: a bit pattern */
	bool hex;
	float number; /* of a FLOAT */
	enum paged_status status;
	struct paged_error *error;
};

/** mod_lex_next - read the next token; END after a failure */
void mod_lex_next(struct mod_lexer *lexer);

/** mod_lex_fail - record an error; the first one counts */
void mod_lex_fail(struct mod_lexer *lexer, size_t offset, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/** An operator's text, and its precedence if it is binary, as in C. */
struct mod_operator_info {
	const char *text;
	uint8_t precedence; /* 0: not a binary operator */
	uint8_t op;         /* enum mod_op; > and >= have that of < and <= */
};

extern const struct mod_operator_info mod_operators[MOD_N_OPERATORS];

enum mod_syntax_kind {
	MOD_SYNTAX_INT,
	MOD_SYNTAX_FLOAT,
	MOD_SYNTAX_NAME,  /* alone */
	MOD_SYNTAX_INDEX, /* name[child][child] */
	MOD_SYNTAX_CALL,  /* name(child, child) */
	MOD_SYNTAX_UNARY,
	MOD_SYNTAX_BINARY,
	MOD_SYNTAX_SELECT,
};

#define MOD_NO_SYNTAX UINT16_MAX

struct mod_syntax {
	enum mod_syntax_kind kind;
	enum mod_operator op;    /* of UNARY and BINARY */
	uint16_t offset, length; /* of the name, literal or operator */
	uint16_t first, next;    /* indices of the first child and the next sibling */
	uint32_t integer;
	bool hex;
	float number;
};

/** A text's syntax tree. */
struct mod_tree {
	struct mod_source source;
	struct mod_syntax *nodes;
	uint16_t root, n_nodes;
};

/** mod_tree_parse - parse at most MOD_MAX_TEXT bytes; the text is borrowed */
enum paged_status mod_tree_parse(struct mod_tree *tree, const struct mod_source *source, struct paged_error *error);
void mod_tree_free(struct mod_tree *tree);

/** mod_lower - resolve types and guards and create the nodes of a tree; fills kind, nodes and names of the mod */
enum paged_status mod_lower(struct mod *mod, const struct mod_tree *tree, const struct mod_array *names,
			    uint32_t n_names, struct paged_error *error);

/** A function of the language. */
struct mod_function {
	const char *name;
	uint32_t n_args;
	enum mod_op op;
};

/** min, exp, ...; ends with an entry without a name. */
extern const struct mod_function mod_functions[];

/** mod_infix - the binary operator of an operation; NULL if it has none */
const struct mod_operator_info *mod_infix(enum mod_op op);

/** mod_print - set the canonical text of a mod whose nodes are complete */
enum paged_status mod_print(struct mod *mod, struct paged_error *error);

#endif
