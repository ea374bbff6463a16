/* SPDX-License-Identifier: Apache-2.0 */
/* Parser: text to syntax tree, with C's operator precedence. */
#include "config.h"

#include <stdlib.h>

#include "kernels/mod/frontend.h"

/*
 * The canonical text may put each operation in parentheses, and a sign and a parenthesis are two levels of the parser,
 * so it allows more levels than operations may have.  Whatever exceeds them is nested more than MOD_MAX_DEPTH deep.
 */
#define MAX_NESTING (2 * MOD_MAX_DEPTH + 8)

struct parser {
	struct mod_lexer lexer;
	struct mod_tree *tree;
	uint32_t nesting;
};

static uint16_t parse_expression(struct parser *parser);

static bool
parser_at_operator(const struct parser *parser, enum mod_operator op)
{
	return parser->lexer.token == MOD_TOKEN_OPERATOR && parser->lexer.op == op;
}

static bool
parser_accept(struct parser *parser, enum mod_operator op)
{
	if (!parser_at_operator(parser, op))
		return false;
	mod_lex_next(&parser->lexer);
	return true;
}

static void
parser_fail_expected(struct parser *parser, const char *what)
{
	struct mod_lexer *lexer = &parser->lexer;

	if (lexer->token == MOD_TOKEN_END)
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID, "expected %s, but the text ends here", what);
	else
		mod_lex_fail(lexer, lexer->offset, PAGED_ERR_INVALID, "expected %s, not '%.*s'", what,
			     (int)lexer->length, lexer->source.text + lexer->offset);
}

static void
parser_expect(struct parser *parser, enum mod_operator op, const char *what)
{
	if (!parser_accept(parser, op))
		parser_fail_expected(parser, what);
}

/* Creates a node from the current token.  Every node consumes a token, so the tree has room for all nodes. */
static uint16_t
parser_add_node(struct parser *parser, enum mod_syntax_kind kind)
{
	struct mod_lexer *lexer = &parser->lexer;

	parser->tree->nodes[parser->tree->n_nodes] = (struct mod_syntax){
		.kind = kind,
		.op = lexer->op,
		.offset = (uint16_t)lexer->offset,
		.length = (uint16_t)lexer->length,
		.first = MOD_NO_SYNTAX,
		.next = MOD_NO_SYNTAX,
		.integer = lexer->integer,
		.hex = lexer->hex,
		.number = lexer->number,
	};
	mod_lex_next(lexer);
	return parser->tree->n_nodes++;
}

static void
parser_enter(struct parser *parser)
{
	if (++parser->nesting > MAX_NESTING)
		mod_lex_fail(&parser->lexer, parser->lexer.offset, PAGED_ERR_LIMIT, "nested more than %u deep",
			     MOD_MAX_DEPTH);
}

/* A name, optionally followed by "(a, b)" or "[i][j]", which may be written "[i, j]". */
static uint16_t
parse_name(struct parser *parser)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t node = parser_add_node(parser, MOD_SYNTAX_NAME), *link = &nodes[node].first;

	if (parser_accept(parser, MOD_O_OPEN)) {
		nodes[node].kind = MOD_SYNTAX_CALL;
		if (parser_accept(parser, MOD_O_CLOSE))
			return node;
		do {
			*link = parse_expression(parser);
			link = &nodes[*link].next;
		} while (parser_accept(parser, MOD_O_COMMA));
		parser_expect(parser, MOD_O_CLOSE, "',' or ')'");
		return node;
	}
	while (parser_accept(parser, MOD_O_OPEN_INDEX)) {
		nodes[node].kind = MOD_SYNTAX_INDEX;
		do {
			*link = parse_expression(parser);
			link = &nodes[*link].next;
		} while (parser_accept(parser, MOD_O_COMMA));
		parser_expect(parser, MOD_O_CLOSE_INDEX, "',' or ']'");
	}
	return node;
}

static uint16_t
parse_primary(struct parser *parser)
{
	uint16_t node = 0;

	if (parser->lexer.token == MOD_TOKEN_INT)
		return parser_add_node(parser, MOD_SYNTAX_INT);
	if (parser->lexer.token == MOD_TOKEN_FLOAT)
		return parser_add_node(parser, MOD_SYNTAX_FLOAT);
	if (parser->lexer.token == MOD_TOKEN_NAME)
		return parse_name(parser);
	if (parser_accept(parser, MOD_O_OPEN)) {
		node = parse_expression(parser);
		parser_expect(parser, MOD_O_CLOSE, "')' or an operator");
	} else {
		parser_fail_expected(parser, "a number, a name or '('");
	}
	return node;
}

static uint16_t
parse_unary(struct parser *parser)
{
	uint16_t node;

	parser_enter(parser);
	if (parser_at_operator(parser, MOD_O_NOT) || parser_at_operator(parser, MOD_O_TILDE) ||
	    parser_at_operator(parser, MOD_O_MINUS) || parser_at_operator(parser, MOD_O_PLUS)) {
		node = parser_add_node(parser, MOD_SYNTAX_UNARY);
		parser->tree->nodes[node].first = parse_unary(parser);
	} else {
		node = parse_primary(parser);
	}
	parser->nesting--;
	return node;
}

/* Parses operators that bind at least as strongly as `min_precedence`. */
static uint16_t
parse_binary(struct parser *parser, uint32_t min_precedence)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t left = parse_unary(parser);

	while (parser->lexer.token == MOD_TOKEN_OPERATOR &&
	       mod_operators[parser->lexer.op].precedence >= min_precedence) {
		uint32_t precedence = mod_operators[parser->lexer.op].precedence;
		uint16_t node = parser_add_node(parser, MOD_SYNTAX_BINARY);

		nodes[node].first = left;
		nodes[left].next = parse_binary(parser, precedence + 1);
		left = node;
	}
	return left;
}

/* After a failure the lexer returns only END, and the returned node is meaningless. */
static uint16_t
parse_expression(struct parser *parser)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t node, condition, yes;

	parser_enter(parser);
	node = condition = parse_binary(parser, 1);
	if (parser_at_operator(parser, MOD_O_QUESTION)) {
		node = parser_add_node(parser, MOD_SYNTAX_SELECT);
		yes = parse_expression(parser);
		parser_expect(parser, MOD_O_COLON, "':' of the '?'");
		nodes[node].first = condition;
		nodes[condition].next = yes;
		nodes[yes].next = parse_expression(parser);
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
	mod_lex_next(&parser.lexer);
	tree->root = parse_expression(&parser);
	if (parser.lexer.token != MOD_TOKEN_END)
		parser_fail_expected(&parser, "an operator or the end");
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
