/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of nodes, each distinct node once, and conversions between types. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "kernels/mod/emit.h"

/* Errors inside a ready-made mod are shown where the caller's text calls it. */
uint16_t
mod_lower_fail(struct lowering *l, size_t offset, enum paged_status status, const char *format, ...)
{
	const struct scope *scope = l->scope;
	const char *inside = scope->builtin != NULL ? scope->builtin->name : NULL;
	char sentence[128];
	size_t length = 0;
	va_list arguments;

	if (l->status != PAGED_OK)
		return 0;
	if (inside != NULL)
		length = (size_t)snprintf(sentence, sizeof(sentence), "%s: ", inside);
	va_start(arguments, format);
	vsnprintf(sentence + length, sizeof(sentence) - length, format, arguments);
	va_end(arguments);
	for (; scope->outer != NULL; scope = scope->outer)
		offset = scope->outer->tree->nodes[scope->call].offset;
	l->status = mod_text_fail(&scope->tree->source, offset, status, sentence, l->error);
	return 0;
}

static bool
nodes_equal(const struct mod_node *a, const struct mod_node *b)
{
	return a->op == b->op && a->type == b->type && a->n_args == b->n_args && a->name == b->name &&
	       memcmp(a->args, b->args, sizeof(a->args)) == 0 && a->guard == b->guard && a->i == b->i &&
	       memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
}

/* Common subexpression elimination: returns an existing equal node if there is one. */
uint16_t
mod_emit(struct lowering *l, struct mod_node node)
{
	if (l->status != PAGED_OK)
		return 0;
	node.depth = 1;
	for (uint32_t i = 0; i < node.n_args; i++) {
		const struct mod_node *arg = &l->nodes[node.args[i]];

		node.depth = arg->depth + 1 > node.depth ? arg->depth + 1 : node.depth;
		node.inputs |= arg->inputs;
	}
	for (uint32_t i = node.n_args; i < MOD_MAX_INDEXES; i++)
		node.args[i] = MOD_NO_NODE;
	if (node.op != MOD_OP_LOAD)
		node.guard = MOD_NO_NODE;
	else if (node.guard != MOD_NO_NODE)
		node.inputs |= l->nodes[node.guard].inputs;
	if (node.depth > MOD_MAX_DEPTH)
		return mod_lower_fail(l, l->offset, PAGED_ERR_LIMIT, "operations nested more than %u deep",
				      MOD_MAX_DEPTH);
	for (uint32_t i = 0; i < l->n_nodes; i++)
		if (nodes_equal(&l->nodes[i], &node))
			return (uint16_t)i;
	if (l->n_nodes == MOD_LOWER_MAX_NODES)
		return mod_lower_fail(l, l->offset, PAGED_ERR_LIMIT, "more than %u different operations",
				      MOD_MAX_NODES);
	l->nodes[l->n_nodes] = node;
	return (uint16_t)l->n_nodes++;
}

uint16_t
mod_emit_const(struct lowering *l, enum mod_type type, int32_t i, float f)
{
	return mod_emit(l, (struct mod_node){ .op = MOD_OP_CONST, .type = (uint8_t)type, .i = i, .f = f });
}

uint16_t
mod_emit_unary(struct lowering *l, enum mod_op op, enum mod_type type, uint16_t arg)
{
	return mod_emit(l, (struct mod_node){ .op = (uint8_t)op, .type = (uint8_t)type, .n_args = 1, .args = { arg } });
}

uint16_t
mod_emit_binary(struct lowering *l, enum mod_op op, enum mod_type type, uint16_t a, uint16_t b)
{
	return mod_emit(l,
			(struct mod_node){ .op = (uint8_t)op, .type = (uint8_t)type, .n_args = 2, .args = { a, b } });
}

uint16_t
mod_emit_to_bool(struct lowering *l, uint16_t node)
{
	const struct mod_node *from = &l->nodes[node];

	if (from->type == MOD_BOOL)
		return node;
	if (from->op == MOD_OP_CONST)
		return mod_emit_const(l, MOD_BOOL, from->type == MOD_INT ? from->i != 0 : from->f != 0, 0);
	return mod_emit_binary(l, MOD_OP_NE, MOD_BOOL, node, mod_emit_const(l, from->type, 0, 0));
}

/* Bools become ints 0 or 1; floats and ints are unchanged. */
uint16_t
mod_emit_to_number(struct lowering *l, uint16_t node)
{
	const struct mod_node *from = &l->nodes[node];

	if (from->type != MOD_BOOL)
		return node;
	if (from->op == MOD_OP_CONST)
		return mod_emit_const(l, MOD_INT, from->i, 0);
	return mod_emit_unary(l, MOD_OP_FROM_BOOL, MOD_INT, node);
}

uint16_t
mod_emit_to_float(struct lowering *l, uint16_t node)
{
	uint16_t number = mod_emit_to_number(l, node);
	const struct mod_node *from = &l->nodes[number];

	if (from->type == MOD_FLOAT)
		return number;
	if (from->op == MOD_OP_CONST && (double)(float)from->i == (double)from->i)
		return mod_emit_const(l, MOD_FLOAT, 0, (float)from->i);
	return mod_emit_unary(l, MOD_OP_TO_FLOAT, MOD_FLOAT, number);
}

/* Converts both to float if one is float, else both to int. */
void
mod_emit_to_common(struct lowering *l, uint16_t *a, uint16_t *b)
{
	bool is_float = type_of(l, *a) == MOD_FLOAT || type_of(l, *b) == MOD_FLOAT;

	*a = is_float ? mod_emit_to_float(l, *a) : mod_emit_to_number(l, *a);
	*b = is_float ? mod_emit_to_float(l, *b) : mod_emit_to_number(l, *b);
}
