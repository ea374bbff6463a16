/* SPDX-License-Identifier: Apache-2.0 */
/* Parser: text to syntax tree, with C's operator precedence. */
#include "config.h"

#include <stdlib.h>

#include "kernels/mod/frontend.h"

/*
 * The canonical text may put each operation in parentheses, and a sign and a parenthesis are two
 * levels, so the parser allows deeper nesting than the operations.
 */
#define MAX_NESTING (2 * MOD_MAX_DEPTH + 8)

struct parser {
	struct mod_lexer lexer;
	struct mod_tree *tree;
	uint32_t nesting;
};

static uint16_t expression(struct parser *parser);

static bool
at_operator(const struct parser *parser, enum mod_operator op)
{
	return parser->lexer.token == MOD_TOKEN_OPERATOR && parser->lexer.op == op;
}

static bool
accept(struct parser *parser, enum mod_operator op)
{
	if (!at_operator(parser, op))
		return false;
	mod_lex(&parser->lexer);
	return true;
}

static void
expected(struct parser *parser, const char *what)
{
	struct mod_lexer *lexer = &parser->lexer;

	if (lexer->token == MOD_TOKEN_END)
		mod_lex_fail(lexer, lexer->at, PAGED_ERR_INVALID, "expected %s, but the text ends here", what);
	else
		mod_lex_fail(lexer, lexer->at, PAGED_ERR_INVALID, "expected %s, not '%.*s'", what, (int)lexer->length,
			     lexer->source.text + lexer->at);
}

static void
expect(struct parser *parser, enum mod_operator op, const char *what)
{
	if (!accept(parser, op))
		expected(parser, what);
}

/* Creates a node from the current token.  Every node consumes a token, so the tree has room for all nodes. */
static uint16_t
take(struct parser *parser, enum mod_syntax_kind kind)
{
	struct mod_lexer *lexer = &parser->lexer;

	parser->tree->nodes[parser->tree->n_nodes] = (struct mod_syntax){
		.kind = kind,
		.op = lexer->op,
		.at = (uint16_t)lexer->at,
		.length = (uint16_t)lexer->length,
		.first = MOD_NO_SYNTAX,
		.next = MOD_NO_SYNTAX,
		.integer = lexer->integer,
		.hex = lexer->hex,
		.number = lexer->number,
	};
	mod_lex(lexer);
	return parser->tree->n_nodes++;
}

static void
enter(struct parser *parser)
{
	if (++parser->nesting > MAX_NESTING)
		mod_lex_fail(&parser->lexer, parser->lexer.at, PAGED_ERR_LIMIT, "nested more than %u deep",
			     MAX_NESTING);
}

/* A name, optionally followed by "(a, b)" or "[i][j]". */
static uint16_t
name(struct parser *parser)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t node = take(parser, MOD_SYNTAX_NAME), *link = &nodes[node].first;

	if (accept(parser, MOD_O_OPEN)) {
		nodes[node].kind = MOD_SYNTAX_CALL;
		if (accept(parser, MOD_O_CLOSE))
			return node;
		do {
			*link = expression(parser);
			link = &nodes[*link].next;
		} while (accept(parser, MOD_O_COMMA));
		expect(parser, MOD_O_CLOSE, "',' or ')'");
		return node;
	}
	while (accept(parser, MOD_O_OPEN_INDEX)) {
		nodes[node].kind = MOD_SYNTAX_INDEX;
		*link = expression(parser);
		link = &nodes[*link].next;
		expect(parser, MOD_O_CLOSE_INDEX, "']'");
	}
	return node;
}

static uint16_t
primary(struct parser *parser)
{
	uint16_t node = 0;

	if (parser->lexer.token == MOD_TOKEN_INT)
		return take(parser, MOD_SYNTAX_INT);
	if (parser->lexer.token == MOD_TOKEN_FLOAT)
		return take(parser, MOD_SYNTAX_FLOAT);
	if (parser->lexer.token == MOD_TOKEN_NAME)
		return name(parser);
	if (accept(parser, MOD_O_OPEN)) {
		node = expression(parser);
		expect(parser, MOD_O_CLOSE, "')' or an operator");
	} else {
		expected(parser, "a number, a name or '('");
	}
	return node;
}

static uint16_t
unary(struct parser *parser)
{
	uint16_t node;

	enter(parser);
	if (at_operator(parser, MOD_O_NOT) || at_operator(parser, MOD_O_TILDE) || at_operator(parser, MOD_O_MINUS) ||
	    at_operator(parser, MOD_O_PLUS)) {
		node = take(parser, MOD_SYNTAX_UNARY);
		parser->tree->nodes[node].first = unary(parser);
	} else {
		node = primary(parser);
	}
	parser->nesting--;
	return node;
}

/* Parses operators that bind at least as strongly as `least`. */
static uint16_t
binary(struct parser *parser, uint32_t least)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t left = unary(parser);

	while (parser->lexer.token == MOD_TOKEN_OPERATOR && mod_operators[parser->lexer.op].strength >= least) {
		uint32_t strength = mod_operators[parser->lexer.op].strength;
		uint16_t node = take(parser, MOD_SYNTAX_BINARY);

		nodes[node].first = left;
		nodes[left].next = binary(parser, strength + 1);
		left = node;
	}
	return left;
}

/* After a failure the lexer returns only END, and the returned node is meaningless. */
static uint16_t
expression(struct parser *parser)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t node, condition, yes;

	enter(parser);
	node = condition = binary(parser, 1);
	if (at_operator(parser, MOD_O_QUESTION)) {
		node = take(parser, MOD_SYNTAX_SELECT);
		yes = expression(parser);
		expect(parser, MOD_O_COLON, "':' of the '?'");
		nodes[node].first = condition;
		nodes[condition].next = yes;
		nodes[yes].next = expression(parser);
	}
	parser->nesting--;
	return node;
}

enum paged_status
mod_tree_parse(struct mod_tree *tree, const struct mod_source *source, struct paged_error *error)
{
	struct parser parser = { .lexer = { .source = *source, .error = error }, .tree = tree };

	*tree = (struct mod_tree){ .source = *source };
	if (source->length > MOD_MAX_TEXT)
		return paged_fail(error, PAGED_ERR_LIMIT, "mod: a text of %zu bytes, %u at most", source->length,
				  MOD_MAX_TEXT);
	tree->nodes = calloc(source->length + 1, sizeof(*tree->nodes));
	if (tree->nodes == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a text of %zu bytes", source->length);
	mod_lex(&parser.lexer);
	tree->root = expression(&parser);
	if (parser.lexer.token != MOD_TOKEN_END)
		expected(&parser, "an operator or the end");
	if (parser.lexer.status != PAGED_OK)
		mod_tree_free(tree);
	return parser.lexer.status;
}

void
mod_tree_free(struct mod_tree *tree)
{
	free(tree->nodes);
	tree->nodes = NULL;
}
