/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the canonical text: only the parentheses that C's precedence requires, and every conversion explicit. */
#include "config.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/frontend.h"

struct printer {
	const struct mod *mod;
	char text[MOD_MAX_TEXT + 1];
	size_t length; /* past MOD_MAX_TEXT: too long, nothing more is written */
};

#define UNARY_PRECEDENCE 11u

const struct mod_operator_info *
mod_infix(enum mod_op op)
{
	for (uint32_t i = 0; i < MOD_N_OPERATORS; i++)
		if (mod_operators[i].op == op && i != MOD_O_GT && i != MOD_O_GE)
			return &mod_operators[i];
	return NULL;
}

static void
print_append(struct printer *printer, const char *text)
{
	size_t length = strlen(text);

	if (printer->length + length <= MOD_MAX_TEXT)
		memcpy(printer->text + printer->length, text, length + 1);
	printer->length = printer->length + length <= MOD_MAX_TEXT ? printer->length + length : MOD_MAX_TEXT + 1;
}

static void
print_const(struct printer *printer, const struct mod_node *node)
{
	char number[40];

	if (node->type == MOD_BOOL)
		snprintf(number, sizeof(number), "%s", node->i ? "true" : "false");
	else if (node->type == MOD_INT)
		snprintf(number, sizeof(number), "%" PRId32, node->i);
	else if (isinf(node->f))
		snprintf(number, sizeof(number), "%sinf", node->f < 0 ? "-" : "");
	else
		snprintf(number, sizeof(number), "%.9g", (double)node->f);
	if (node->type == MOD_FLOAT && strpbrk(number, ".ei") == NULL)
		strcat(number, ".0");
	print_append(printer, number);
}

static void print_node(struct printer *printer, uint16_t number, uint32_t min_precedence);

static void
print_call(struct printer *printer, const struct mod_node *node)
{
	print_append(printer, mod_op_names[node->op]);
	print_append(printer, "(");
	for (uint32_t i = 0; i < node->n_args; i++) {
		if (i > 0)
			print_append(printer, ", ");
		print_node(printer, node->args[i], 0);
	}
	print_append(printer, ")");
}

static void
print_load(struct printer *printer, const struct mod_node *node)
{
	print_append(printer, printer->mod->names[node->name].name);
	for (uint32_t i = 0; i < node->n_args; i++) {
		print_append(printer, "[");
		print_node(printer, node->args[i], 0);
		print_append(printer, "]");
	}
}

/*
 * Prints a node, in parentheses if it binds less strongly than `min_precedence`.  Only names, signs and function calls
 * bind at least as strongly as UNARY_PRECEDENCE.
 */
static void
print_node(struct printer *printer, uint16_t number, uint32_t min_precedence)
{
	const struct mod_node *node = &printer->mod->nodes[number];
	const struct mod_operator_info *infix = mod_infix(node->op);
	bool is_inner =
		node->op == MOD_OP_SELECT ? min_precedence > 0 : infix != NULL && infix->precedence < min_precedence;

	if (printer->length > MOD_MAX_TEXT)
		return;
	if (is_inner)
		print_append(printer, "(");
	switch ((enum mod_op)node->op) {
	case MOD_OP_CONST:
		print_const(printer, node);
		break;
	case MOD_OP_SCORE:
	case MOD_OP_B:
	case MOD_OP_H:
	case MOD_OP_Q:
	case MOD_OP_KV:
		print_append(printer, mod_op_names[node->op]);
		break;
	case MOD_OP_PARAM:
	case MOD_OP_LOAD:
		print_load(printer, node);
		break;
	case MOD_OP_SELECT:
		print_node(printer, node->args[0], 1);
		print_append(printer, " ? ");
		print_node(printer, node->args[1], 0);
		print_append(printer, " : ");
		print_node(printer, node->args[2], 0);
		break;
	case MOD_OP_NOT:
	case MOD_OP_NEG:
	case MOD_OP_BITNOT:
		print_append(printer, node->op == MOD_OP_NEG ? "-" : mod_op_names[node->op]);
		print_node(printer, node->args[0], UNARY_PRECEDENCE);
		break;
	default:
		if (infix == NULL) {
			print_call(printer, node);
			break;
		}
		print_node(printer, node->args[0], infix->precedence);
		print_append(printer, " ");
		print_append(printer, infix->text);
		print_append(printer, " ");
		print_node(printer, node->args[1], infix->precedence + 1u);
		break;
	}
	if (is_inner)
		print_append(printer, ")");
}

enum paged_status
mod_print(struct mod *mod, struct paged_error *error)
{
	struct printer *printer = calloc(1, sizeof(*printer));
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before;
	enum paged_status status = PAGED_OK;

	if (printer != NULL && c != (locale_t)0) {
		printer->mod = mod;
		/* The C locale makes the decimal separator a point. */
		before = uselocale(c);
		print_node(printer, (uint16_t)(mod->n_nodes - 1), 0);
		uselocale(before);
		if (printer->length > MOD_MAX_TEXT)
			status = paged_fail(error, PAGED_ERR_LIMIT, "mod: written out, the text has more than %u bytes",
					    MOD_MAX_TEXT);
		else
			mod->text = strdup(printer->text);
	}
	if (status == PAGED_OK && mod->text == NULL)
		status = paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the canonical text");
	if (c != (locale_t)0)
		freelocale(c);
	free(printer);
	return status;
}
