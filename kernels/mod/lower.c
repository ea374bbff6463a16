/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers a syntax tree to typed operations. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/emit.h"

/* A ready-made mod's argument is lowered again at each use: these limits bound the total work and the recursion. */
#define MAX_STEPS (2 * MOD_MAX_TEXT)
#define MAX_NESTING (3 * MOD_MAX_DEPTH)

static uint16_t lower_syntax(struct lowering *l, const struct scope *scope, uint16_t syntax, uint16_t guard);

static const struct mod_syntax *
syntax_of(const struct scope *scope, uint16_t syntax)
{
	return &scope->tree->nodes[syntax];
}

/* The guard of code that is reached where `guard` and the condition hold. */
static uint16_t
guard_and(struct lowering *l, uint16_t guard, uint16_t condition)
{
	return guard == MOD_NO_NODE ? condition : mod_emit_binary(l, MOD_OP_AND, MOD_BOOL, guard, condition);
}

static uint16_t
guard_not(struct lowering *l, uint16_t guard, uint16_t condition)
{
	return guard_and(l, guard, mod_emit_unary(l, MOD_OP_NOT, MOD_BOOL, condition));
}

/* && and ||: the left side is part of the right side's guard. */
static uint16_t
lower_logic(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint16_t guard)
{
	enum mod_op op = mod_operators[s->op].op;
	uint16_t left = mod_emit_to_bool(l, lower_syntax(l, scope, s->first, guard));
	uint16_t inner = op == MOD_OP_AND ? guard_and(l, guard, left) : guard_not(l, guard, left);
	uint16_t right = mod_emit_to_bool(l, lower_syntax(l, scope, syntax_of(scope, s->first)->next, inner));

	return mod_emit_binary(l, op, MOD_BOOL, left, right);
}

static uint16_t
lower_select(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint16_t guard)
{
	uint16_t second = syntax_of(scope, s->first)->next, third = syntax_of(scope, second)->next;
	uint16_t condition = mod_emit_to_bool(l, lower_syntax(l, scope, s->first, guard));
	uint16_t yes = lower_syntax(l, scope, second, guard_and(l, guard, condition));
	uint16_t no = lower_syntax(l, scope, third, guard_not(l, guard, condition));

	if (type_of(l, yes) != MOD_BOOL || type_of(l, no) != MOD_BOOL)
		mod_emit_to_common(l, &yes, &no);
	return mod_emit(l, (struct mod_node){ .op = MOD_OP_SELECT,
					      .type = l->nodes[yes].type,
					      .n_args = 3,
					      .args = { condition, yes, no } });
}

static uint16_t
lower_compare(struct lowering *l, const struct mod_syntax *s, uint16_t a, uint16_t b)
{
	bool swap = s->op == MOD_O_GT || s->op == MOD_O_GE;
	enum mod_op op = mod_operators[s->op].op;
	bool order = op == MOD_OP_LT || op == MOD_OP_LE;

	if (order && (type_of(l, a) == MOD_BOOL || type_of(l, b) == MOD_BOOL))
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID,
				      "comparisons do not chain: write x < y && y < z");
	mod_emit_to_common(l, &a, &b);
	return mod_emit_binary(l, op, MOD_BOOL, swap ? b : a, swap ? a : b);
}

static uint16_t
lower_binary(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint16_t guard)
{
	enum mod_op op = mod_operators[s->op].op;
	uint16_t a, b;

	if (s->op == MOD_O_AND || s->op == MOD_O_OR)
		return lower_logic(l, scope, s, guard);
	a = lower_syntax(l, scope, s->first, guard);
	b = lower_syntax(l, scope, syntax_of(scope, s->first)->next, guard);
	if (op >= MOD_OP_LT && op <= MOD_OP_NE)
		return lower_compare(l, s, a, b);
	mod_emit_to_common(l, &a, &b);
	if (op >= MOD_OP_MOD && op <= MOD_OP_SHR && type_of(l, a) == MOD_FLOAT)
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "'%s' takes integers, and one side is a float",
				      mod_operators[s->op].text);
	return mod_emit_binary(l, op, type_of(l, a), a, b);
}

static uint16_t
lower_negative(struct lowering *l, uint16_t a)
{
	const struct mod_node *from = &l->nodes[a];

	if (from->op == MOD_OP_CONST)
		return mod_emit_const(l, from->type, (int32_t)(0u - (uint32_t)from->i),
				      from->type == MOD_FLOAT ? -from->f : 0);
	return mod_emit_unary(l, MOD_OP_NEG, from->type, a);
}

static uint16_t
lower_unary(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint16_t guard)
{
	const struct mod_syntax *below = syntax_of(scope, s->first);
	uint16_t a;

	/* 2147483648 is an int only with a minus sign. */
	if (s->op == MOD_O_MINUS && below->kind == MOD_SYNTAX_INT && !below->hex && below->integer == 1u << 31)
		return mod_emit_const(l, MOD_INT, INT32_MIN, 0);
	a = lower_syntax(l, scope, s->first, guard);
	if (s->op == MOD_O_MINUS)
		return lower_negative(l, mod_emit_to_number(l, a));
	if (s->op == MOD_O_NOT)
		return mod_emit_unary(l, MOD_OP_NOT, MOD_BOOL, mod_emit_to_bool(l, a));
	if (s->op == MOD_O_PLUS)
		return mod_emit_to_number(l, a);
	if (type_of(l, a) != MOD_INT)
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "'~' takes an integer, and this is a %s",
				      type_of(l, a) == MOD_BOOL ? "condition; write '!'" : "float");
	return mod_emit_unary(l, MOD_OP_BITNOT, MOD_INT, a);
}

static bool
name_is(const struct scope *scope, const struct mod_syntax *s, const char *name)
{
	return s->length == strlen(name) && memcmp(scope->tree->source.text + s->offset, name, s->length) == 0;
}

#define NAME_ARGS(scope, s) (int)(s)->length, (scope)->tree->source.text + (s)->offset

/* Index of a name in the caller's list; n_names if it is not there. */
static uint32_t
find_caller_name(const struct lowering *l, const struct scope *scope, const struct mod_syntax *s)
{
	uint32_t i = 0;

	while (i < l->n_names && !name_is(scope, s, l->names[i].name))
		i++;
	return i;
}

static const struct mod_builtin *
find_builtin(const struct scope *scope, const struct mod_syntax *s)
{
	const struct mod_builtin *builtin;

	for (uint32_t i = 0; (builtin = mod_builtin(i)) != NULL; i++)
		if (name_is(scope, s, builtin->name))
			return builtin;
	return NULL;
}

static const struct mod_function *
find_function(const struct scope *scope, const struct mod_syntax *s)
{
	for (const struct mod_function *function = mod_functions; function->name != NULL; function++)
		if (name_is(scope, s, function->name))
			return function;
	return NULL;
}

/* score, b, h, q_idx or kv_idx; MOD_N_OPS: none of these. */
static enum mod_op
find_variable(const struct scope *scope, const struct mod_syntax *s)
{
	for (enum mod_op op = MOD_OP_SCORE; op <= MOD_OP_KV; op++)
		if (name_is(scope, s, mod_op_names[op]))
			return op;
	return MOD_N_OPS;
}

static uint16_t
lower_fail_unknown(struct lowering *l, const struct scope *scope, const struct mod_syntax *s)
{
	struct mod_nearest nearest;

	mod_nearest_begin(&nearest, scope->tree->source.text + s->offset, s->length);
	for (enum mod_op op = MOD_OP_SCORE; op <= MOD_OP_KV; op++)
		mod_nearest_offer(&nearest, mod_op_names[op]);
	for (uint32_t i = 0; i < l->n_names; i++)
		mod_nearest_offer(&nearest, l->names[i].name);
	for (uint32_t i = 0; mod_functions[i].name != NULL; i++)
		mod_nearest_offer(&nearest, mod_functions[i].name);
	for (uint32_t i = 0; mod_builtin(i) != NULL; i++)
		mod_nearest_offer(&nearest, mod_builtin(i)->name);
	for (uint32_t i = 0; mod_reserved_words[i] != NULL; i++)
		mod_nearest_offer(&nearest, mod_reserved_words[i]);
	if (nearest.found[0] != '\0')
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "no name '%.*s'; nearest is '%s'",
				      NAME_ARGS(scope, s), nearest.found);
	return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID,
			      "no name '%.*s': no parameter, array or mod is called so", NAME_ARGS(scope, s));
}

static uint16_t
lower_array(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint32_t name, uint16_t guard)
{
	const struct mod_array *array = &l->names[name];
	struct mod_node node = { .op = array->n_dims > 0 ? MOD_OP_LOAD : MOD_OP_PARAM,
				 .type = mod_dtype_is_float(array->dtype) ? MOD_FLOAT : MOD_INT,
				 .name = (uint8_t)name,
				 .guard = guard };
	uint32_t n = 0;

	for (uint16_t child = s->first; child != MOD_NO_SYNTAX; child = syntax_of(scope, child)->next)
		n++;
	if (n != array->n_dims)
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "'%s' has %u dimension%s, but %u index%s",
				      array->name, array->n_dims, array->n_dims == 1 ? "" : "s", n, n == 1 ? "" : "es");
	for (uint16_t child = s->first; child != MOD_NO_SYNTAX; child = syntax_of(scope, child)->next) {
		uint16_t index = mod_emit_to_number(l, lower_syntax(l, scope, child, guard));

		if (type_of(l, index) == MOD_FLOAT)
			return mod_lower_fail(l, syntax_of(scope, child)->offset, PAGED_ERR_INVALID,
					      "an index of '%s' is a float; write int(...)", array->name);
		node.args[node.n_args++] = index;
	}
	return mod_emit(l, node);
}

/* Lowers the text of a ready-made mod, in its own scope. */
static uint16_t
lower_builtin(struct lowering *l, const struct scope *scope, uint16_t syntax, const struct mod_builtin *builtin,
	      uint16_t guard)
{
	const struct mod_syntax *s = syntax_of(scope, syntax);
	struct mod_source source = { builtin->text, strlen(builtin->text) };
	struct mod_tree tree;
	struct scope inner = { .tree = &tree, .outer = scope, .builtin = builtin, .call = syntax };
	uint16_t most = builtin->arguments[0] != '\0', node;

	for (const char *c = builtin->arguments; *c != '\0'; c++)
		most += *c == ',';
	for (uint16_t child = s->first; child != MOD_NO_SYNTAX; child = syntax_of(scope, child)->next)
		inner.n_given++;
	if (inner.n_given > most)
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "'%s' takes (%s), here are %u arguments",
				      builtin->name, builtin->arguments, inner.n_given);
	l->status = mod_tree_parse(&tree, &source, l->error);
	if (l->status != PAGED_OK)
		return 0;
	node = lower_syntax(l, &inner, tree.root, guard);
	mod_tree_free(&tree);
	return node;
}

/* Index of the ready-made mod's argument that a name in its text refers to; UINT32_MAX: none. */
static uint32_t
find_argument(const struct scope *scope, const struct mod_syntax *s)
{
	const char *argument = scope->builtin != NULL ? scope->builtin->arguments : "";

	for (uint32_t i = 0; *argument != '\0'; i++) {
		size_t length = strcspn(argument, ",");

		if (length == s->length && memcmp(argument, scope->tree->source.text + s->offset, length) == 0)
			return i;
		argument += length;
		argument += strspn(argument, ", ");
	}
	return UINT32_MAX;
}

static uint16_t
lower_name(struct lowering *l, const struct scope *scope, uint16_t syntax, uint16_t guard)
{
	const struct mod_syntax *s = syntax_of(scope, syntax);
	enum mod_op variable;
	uint32_t argument = find_argument(scope, s), bound;

	if (argument < scope->n_given) {
		uint16_t child = syntax_of(scope->outer, scope->call)->first;

		while (argument-- > 0)
			child = syntax_of(scope->outer, child)->next;
		return lower_syntax(l, scope->outer, child, guard);
	}
	if (name_is(scope, s, "true") || name_is(scope, s, "false"))
		return mod_emit_const(l, MOD_BOOL, name_is(scope, s, "true"), 0);
	variable = find_variable(scope, s);
	if (variable == MOD_OP_SCORE && l->kind == MOD_MASK)
		return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "a mask mod has no score");
	if (variable != MOD_N_OPS)
		return mod_emit(l, (struct mod_node){ .op = (uint8_t)variable,
						      .type = variable == MOD_OP_SCORE ? MOD_FLOAT : MOD_INT,
						      .inputs = (uint8_t)(1u << (variable - MOD_OP_SCORE)) });
	bound = find_caller_name(l, scope, s);
	if (bound < l->n_names)
		return lower_array(l, scope, s, bound, guard);
	if (find_builtin(scope, s) != NULL)
		return lower_builtin(l, scope, syntax, find_builtin(scope, s), guard);
	if (find_function(scope, s) != NULL)
		return mod_lower_fail(l, s->offset + s->length, PAGED_ERR_INVALID,
				      "expected '(' behind the function '%.*s'", NAME_ARGS(scope, s));
	return lower_fail_unknown(l, scope, s);
}

static uint16_t
lower_function(struct lowering *l, const struct mod_function *function, uint16_t *args)
{
	enum mod_op op = function->op;
	uint16_t a = args[0];

	switch (op) {
	case MOD_N_OPS: /* clamp */
		mod_emit_to_common(l, &args[0], &args[1]);
		mod_emit_to_common(l, &args[0], &args[2]);
		mod_emit_to_common(l, &args[0], &args[1]);
		a = mod_emit_binary(l, MOD_OP_MAX, type_of(l, args[0]), args[0], args[1]);
		return mod_emit_binary(l, MOD_OP_MIN, type_of(l, a), a, args[2]);
	case MOD_OP_TO_FLOAT:
		return mod_emit_to_float(l, a);
	case MOD_OP_TO_INT:
		return type_of(l, a) == MOD_FLOAT ? mod_emit_unary(l, op, MOD_INT, a) : mod_emit_to_number(l, a);
	case MOD_OP_MIN:
	case MOD_OP_MAX:
		mod_emit_to_common(l, &args[0], &args[1]);
		return mod_emit_binary(l, op, type_of(l, args[0]), args[0], args[1]);
	default:
		a = op == MOD_OP_ABS || op == MOD_OP_FLOOR ? mod_emit_to_number(l, a) : mod_emit_to_float(l, a);
		if (op == MOD_OP_FLOOR && type_of(l, a) == MOD_INT)
			return a;
		return mod_emit_unary(l, op, type_of(l, a), a);
	}
}

static uint16_t
lower_call(struct lowering *l, const struct scope *scope, uint16_t syntax, uint16_t guard)
{
	const struct mod_syntax *s = syntax_of(scope, syntax);
	const struct mod_function *function = find_function(scope, s);
	uint16_t args[3];
	uint32_t n = 0;

	if (find_caller_name(l, scope, s) < l->n_names)
		return mod_lower_fail(l, s->offset + s->length, PAGED_ERR_INVALID,
				      "'%.*s' is no function: an array takes [index]", NAME_ARGS(scope, s));
	if (function == NULL && find_builtin(scope, s) != NULL)
		return lower_builtin(l, scope, syntax, find_builtin(scope, s), guard);
	if (function == NULL)
		return lower_fail_unknown(l, scope, s);
	for (uint16_t child = s->first; child != MOD_NO_SYNTAX; child = syntax_of(scope, child)->next, n++) {
		if (n == function->n_args)
			break;
		args[n] = lower_syntax(l, scope, child, guard);
		if (n + 1 == function->n_args && syntax_of(scope, child)->next == MOD_NO_SYNTAX)
			return lower_function(l, function, args);
	}
	return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID, "'%s' takes %u argument%s, here are %s", function->name,
			      function->n_args, function->n_args == 1 ? "" : "s",
			      n < function->n_args ? "fewer" : "more");
}

static uint16_t
lower_index(struct lowering *l, const struct scope *scope, const struct mod_syntax *s, uint16_t guard)
{
	uint32_t bound = find_caller_name(l, scope, s);

	if (bound < l->n_names)
		return lower_array(l, scope, s, bound, guard);
	if (find_variable(scope, s) != MOD_N_OPS)
		return mod_lower_fail(l, s->offset + s->length, PAGED_ERR_INVALID, "'%.*s' is no array",
				      NAME_ARGS(scope, s));
	return lower_fail_unknown(l, scope, s);
}

static uint16_t
lower_by_kind(struct lowering *l, const struct scope *scope, uint16_t syntax, uint16_t guard)
{
	const struct mod_syntax *s = syntax_of(scope, syntax);

	switch (s->kind) {
	case MOD_SYNTAX_INT:
		if (s->integer == 1u << 31 && !s->hex)
			return mod_lower_fail(l, s->offset, PAGED_ERR_INVALID,
					      "the number is larger than any int (2147483647); a float has a '.'");
		return mod_emit_const(l, MOD_INT, (int32_t)s->integer, 0);
	case MOD_SYNTAX_FLOAT:
		return mod_emit_const(l, MOD_FLOAT, 0, s->number);
	case MOD_SYNTAX_NAME:
		return lower_name(l, scope, syntax, guard);
	case MOD_SYNTAX_INDEX:
		return lower_index(l, scope, s, guard);
	case MOD_SYNTAX_CALL:
		return lower_call(l, scope, syntax, guard);
	case MOD_SYNTAX_UNARY:
		return lower_unary(l, scope, s, guard);
	case MOD_SYNTAX_BINARY:
		return lower_binary(l, scope, s, guard);
	case MOD_SYNTAX_SELECT:
		break;
	}
	return lower_select(l, scope, s, guard);
}

static uint16_t
lower_syntax(struct lowering *l, const struct scope *scope, uint16_t syntax, uint16_t guard)
{
	const struct scope *outer = l->scope;
	size_t before = l->offset;
	uint16_t node = 0;

	if (l->status != PAGED_OK)
		return 0;
	l->scope = scope;
	l->offset = syntax_of(scope, syntax)->offset;
	if (++l->n_steps > MAX_STEPS)
		mod_lower_fail(l, l->offset, PAGED_ERR_LIMIT, "more than %u operations, written out", MAX_STEPS);
	else if (++l->nesting > MAX_NESTING)
		mod_lower_fail(l, l->offset, PAGED_ERR_LIMIT, "operations nested more than %u deep", MOD_MAX_DEPTH);
	else
		node = lower_by_kind(l, scope, syntax, guard);
	l->nesting--;
	l->scope = outer;
	l->offset = before;
	return node;
}

/* Converts the root to the result type of the kind. */
static uint16_t
lower_result(struct lowering *l, uint16_t root)
{
	if (l->kind == MOD_MASK)
		return mod_emit_to_bool(l, root);
	if (type_of(l, root) == MOD_BOOL)
		return mod_lower_fail(l, 0, PAGED_ERR_INVALID,
				      "a score mod gives a number, this is a condition; write ... ? score : -inf");
	return mod_emit_to_float(l, root);
}

enum paged_status
mod_lower(struct mod *mod, const struct mod_tree *tree, const struct mod_array *names, uint32_t n_names,
	  struct paged_error *error)
{
	const struct scope scope = { .tree = tree };
	struct lowering *l;
	enum paged_status status = mod_check_names(names, n_names, error);
	uint16_t root;

	if (status != PAGED_OK)
		return status;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory to translate a text");
	l->kind = mod->kind;
	l->names = names;
	l->n_names = n_names;
	l->scope = &scope;
	l->error = error;
	root = lower_result(l, lower_syntax(l, &scope, tree->root, MOD_NO_NODE));
	status = l->status == PAGED_OK ? mod_prune(mod, l, root) : l->status;
	free(l);
	return status;
}
