/* SPDX-License-Identifier: Apache-2.0 */
/* Text to syntax tree: operator precedence as in C. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/text.h"

/*
 * An operation may need a parenthesis in the canonical text, and a sign and a
 * parenthesis are two levels: so the tree allows more than the operations do.
 */
#define MAX_NESTING (2 * MOD_MAX_DEPTH + 8)

struct parser {
	struct mod_lexer lexer;
	struct mod_tree *tree;
	uint32_t nesting;
	struct paged_error *error;
};

static bool
at_operator(const struct parser *parser, enum mod_operator op)
{
	return parser->lexer.token == MOD_TOKEN_OPERATOR && parser->lexer.op == op;
}

static enum paged_status
advance(struct parser *parser)
{
	return mod_lex(&parser->lexer, parser->error);
}

static enum paged_status
expected(struct parser *parser, const char *what)
{
	const struct mod_lexer *lexer = &parser->lexer;

	if (lexer->token == MOD_TOKEN_END)
		return mod_text_fail(&lexer->source, lexer->at, PAGED_ERR_INVALID, parser->error,
				     "expected %s, but the text ends here", what);
	return mod_text_fail(&lexer->source, lexer->at, PAGED_ERR_INVALID, parser->error, "expected %s, not '%.*s'",
			     what, (int)lexer->length, lexer->source.text + lexer->at);
}

static enum paged_status
expect_operator(struct parser *parser, enum mod_operator op, const char *what)
{
	return at_operator(parser, op) ? advance(parser) : expected(parser, what);
}

/* Every node takes a token of its own, so that the tree has room for all of them. */
static uint16_t
make(struct parser *parser, enum mod_syntax_kind kind)
{
	struct mod_tree *tree = parser->tree;
	struct mod_syntax *node = &tree->nodes[tree->n_nodes];

	*node = (struct mod_syntax){
		.kind = kind,
		.op = parser->lexer.op,
		.at = (uint16_t)parser->lexer.at,
		.length = (uint16_t)parser->lexer.length,
		.first = MOD_NO_SYNTAX,
		.next = MOD_NO_SYNTAX,
		.integer = parser->lexer.integer,
		.hex = parser->lexer.hex,
		.number = parser->lexer.number,
	};
	return tree->n_nodes++;
}

static enum paged_status expression(struct parser *parser, uint16_t *node_p);

static enum paged_status
enter(struct parser *parser)
{
	if (++parser->nesting > MAX_NESTING)
		return mod_text_fail(&parser->lexer.source, parser->lexer.at, PAGED_ERR_LIMIT, parser->error,
				     "nested more than %u deep", MAX_NESTING);
	return PAGED_OK;
}

/* A child behind the last; `last` is MOD_NO_SYNTAX before the first. */
static void
add_child(struct mod_tree *tree, uint16_t parent, uint16_t *last, uint16_t child)
{
	if (*last == MOD_NO_SYNTAX)
		tree->nodes[parent].first = child;
	else
		tree->nodes[*last].next = child;
	*last = child;
}

/* "(a, b)" behind a name. */
static enum paged_status
arguments(struct parser *parser, uint16_t parent)
{
	uint16_t last = MOD_NO_SYNTAX, child;
	enum paged_status status = advance(parser);

	if (status == PAGED_OK && at_operator(parser, MOD_O_CLOSE))
		return advance(parser);
	while (status == PAGED_OK) {
		status = expression(parser, &child);
		if (status != PAGED_OK)
			break;
		add_child(parser->tree, parent, &last, child);
		if (!at_operator(parser, MOD_O_COMMA))
			return expect_operator(parser, MOD_O_CLOSE, "',' or ')'");
		status = advance(parser);
	}
	return status;
}

/* "[i][j]" behind a name. */
static enum paged_status
indexes(struct parser *parser, uint16_t parent)
{
	uint16_t last = MOD_NO_SYNTAX, child;
	enum paged_status status = PAGED_OK;

	while (status == PAGED_OK && at_operator(parser, MOD_O_OPEN_INDEX)) {
		status = advance(parser);
		if (status == PAGED_OK)
			status = expression(parser, &child);
		if (status != PAGED_OK)
			break;
		add_child(parser->tree, parent, &last, child);
		status = expect_operator(parser, MOD_O_CLOSE_INDEX, "']'");
	}
	return status;
}

static enum paged_status
name(struct parser *parser, uint16_t *node_p)
{
	enum paged_status status;

	*node_p = make(parser, MOD_SYNTAX_NAME);
	status = advance(parser);
	if (status != PAGED_OK)
		return status;
	if (at_operator(parser, MOD_O_OPEN)) {
		parser->tree->nodes[*node_p].kind = MOD_SYNTAX_CALL;
		return arguments(parser, *node_p);
	}
	if (at_operator(parser, MOD_O_OPEN_INDEX)) {
		parser->tree->nodes[*node_p].kind = MOD_SYNTAX_INDEX;
		return indexes(parser, *node_p);
	}
	return PAGED_OK;
}

static enum paged_status
primary(struct parser *parser, uint16_t *node_p)
{
	enum paged_status status;

	switch (parser->lexer.token) {
	case MOD_TOKEN_INT:
		*node_p = make(parser, MOD_SYNTAX_INT);
		return advance(parser);
	case MOD_TOKEN_FLOAT:
		*node_p = make(parser, MOD_SYNTAX_FLOAT);
		return advance(parser);
	case MOD_TOKEN_NAME:
		return name(parser, node_p);
	case MOD_TOKEN_OPERATOR:
		if (parser->lexer.op != MOD_O_OPEN)
			break;
		status = advance(parser);
		if (status == PAGED_OK)
			status = expression(parser, node_p);
		return status == PAGED_OK ? expect_operator(parser, MOD_O_CLOSE, "')' or an operator") : status;
	case MOD_TOKEN_END:
		break;
	}
	return expected(parser, "a number, a name or '('");
}

static enum paged_status
unary(struct parser *parser, uint16_t *node_p)
{
	enum paged_status status = enter(parser);
	uint16_t child;

	if (status != PAGED_OK)
		return status;
	if (at_operator(parser, MOD_O_NOT) || at_operator(parser, MOD_O_TILDE) || at_operator(parser, MOD_O_MINUS) ||
	    at_operator(parser, MOD_O_PLUS)) {
		*node_p = make(parser, MOD_SYNTAX_UNARY);
		status = advance(parser);
		if (status == PAGED_OK)
			status = unary(parser, &child);
		if (status == PAGED_OK)
			parser->tree->nodes[*node_p].first = child;
	} else {
		status = primary(parser, node_p);
	}
	parser->nesting--;
	return status;
}

/* Operators that bind at least as strongly as `least`. */
static enum paged_status
binary(struct parser *parser, uint32_t least, uint16_t *node_p)
{
	enum paged_status status = unary(parser, node_p);

	while (status == PAGED_OK && parser->lexer.token == MOD_TOKEN_OPERATOR &&
	       mod_operators[parser->lexer.op].strength >= least) {
		uint32_t strong = mod_operators[parser->lexer.op].strength;
		uint16_t node = make(parser, MOD_SYNTAX_BINARY), right;

		status = advance(parser);
		if (status == PAGED_OK)
			status = binary(parser, strong + 1, &right);
		if (status != PAGED_OK)
			break;
		parser->tree->nodes[node].first = *node_p;
		parser->tree->nodes[*node_p].next = right;
		*node_p = node;
	}
	return status;
}

static enum paged_status
choice(struct parser *parser, uint16_t condition, uint16_t *node_p)
{
	struct mod_syntax *nodes = parser->tree->nodes;
	uint16_t yes, no;
	enum paged_status status;

	*node_p = make(parser, MOD_SYNTAX_SELECT);
	status = advance(parser);
	if (status == PAGED_OK)
		status = expression(parser, &yes);
	if (status == PAGED_OK)
		status = expect_operator(parser, MOD_O_COLON, "':' of the '?'");
	if (status == PAGED_OK)
		status = expression(parser, &no);
	if (status != PAGED_OK)
		return status;
	nodes[*node_p].first = condition;
	nodes[condition].next = yes;
	nodes[yes].next = no;
	return PAGED_OK;
}

static enum paged_status
expression(struct parser *parser, uint16_t *node_p)
{
	enum paged_status status = enter(parser);
	uint16_t condition;

	if (status == PAGED_OK)
		status = binary(parser, 1, &condition);
	if (status == PAGED_OK && at_operator(parser, MOD_O_QUESTION))
		status = choice(parser, condition, node_p);
	else if (status == PAGED_OK)
		*node_p = condition;
	parser->nesting--;
	return status;
}

enum paged_status
mod_tree_parse(struct mod_tree *tree, const struct mod_source *source, struct paged_error *error)
{
	struct parser parser = { .lexer.source = *source, .tree = tree, .error = error };
	enum paged_status status;

	*tree = (struct mod_tree){ .source = *source };
	if (source->length > MOD_MAX_TEXT)
		return paged_fail(error, PAGED_ERR_LIMIT, "mod: a text of %zu bytes, %u at most", source->length,
				  MOD_MAX_TEXT);
	tree->nodes = calloc(source->length + 1, sizeof(*tree->nodes));
	if (tree->nodes == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a text of %zu bytes", source->length);
	status = advance(&parser);
	if (status == PAGED_OK)
		status = expression(&parser, &tree->root);
	if (status == PAGED_OK && parser.lexer.token != MOD_TOKEN_END)
		status = expected(&parser, "an operator or the end");
	if (status != PAGED_OK)
		mod_tree_free(tree);
	return status;
}

void
mod_tree_free(struct mod_tree *tree)
{
	free(tree->nodes);
	tree->nodes = NULL;
}
