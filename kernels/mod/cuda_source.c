/* SPDX-License-Identifier: Apache-2.0 */
/* Emits one line of CUDA C per node: a variable and the operation that computes it. */
#include "config.h"

#include "kernels/mod/cuda_source.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/frontend.h"

_Static_assert(CUDA_MOD_NAMES == MOD_MAX_NAMES && CUDA_MOD_INDEXES == MOD_MAX_INDEXES, "one to one");
_Static_assert(MOD_MASK == 0 && MOD_SCORE == 1, "the kinds are numbers of names[]");
_Static_assert(sizeof(struct cuda_mod_name) == 64 && sizeof(struct cuda_mod_args) == 8 + 2 * CUDA_MOD_NAMES * 64,
	       "as mod_device.h reads it");

static const char *const type_names[] = { [MOD_BOOL] = "bool", [MOD_INT] = "int32_t", [MOD_FLOAT] = "float" };

static void
source_const(FILE *to, const struct mod_node *node)
{
	uint32_t bits;

	memcpy(&bits, &node->f, sizeof(bits));
	if (node->type == MOD_BOOL)
		fputs(node->i != 0 ? "true" : "false", to);
	else if (node->type == MOD_FLOAT)
		fprintf(to, "mod_float(0x%08" PRIx32 "u)", bits);
	else if (node->i == INT32_MIN)
		fputs("(-2147483647 - 1)", to);
	else
		fprintf(to, "%" PRId32, node->i);
}

/* A node as an operand: constants and variables inline, other nodes by number. */
static void
source_value(FILE *to, const struct mod *mod, uint16_t number)
{
	const struct mod_node *node = &mod->nodes[number];

	if (node->op == MOD_OP_CONST)
		source_const(to, node);
	else if (node->op < MOD_OP_PARAM)
		fputs(mod_op_names[node->op], to);
	else
		fprintf(to, "v%" PRIu16, number);
}

static void
source_values(FILE *to, const struct mod *mod, const struct mod_node *node, const char *between)
{
	for (uint32_t i = 0; i < node->n_args; i++) {
		if (i > 0)
			fputs(between, to);
		source_value(to, mod, node->args[i]);
	}
}

static void
source_load(FILE *to, const struct mod *mod, const struct mod_node *node)
{
	if (node->guard != MOD_NO_NODE) {
		source_value(to, mod, node->guard);
		fputs(" ? ", to);
	}
	fprintf(to, "mod_load_%s(args, names + %u, ", mod_dtype_name(mod->names[node->name].dtype), node->name);
	source_values(to, mod, node, ", ");
	fputs(node->guard != MOD_NO_NODE ? ") : 0" : ")", to);
}

static void
source_operation(FILE *to, const struct mod *mod, const struct mod_node *node)
{
	const char *name = mod_op_names[node->op];
	char infix[8];

	if (node->op == MOD_OP_PARAM) {
		fprintf(to, "mod_param_%s(names + %u)", node->type == MOD_FLOAT ? "float" : "int", node->name);
	} else if (node->op == MOD_OP_LOAD) {
		source_load(to, mod, node);
	} else if (node->op == MOD_OP_SELECT) {
		source_value(to, mod, node->args[0]);
		fputs(" ? ", to);
		source_value(to, mod, node->args[1]);
		fputs(" : ", to);
		source_value(to, mod, node->args[2]);
	} else if (name[0] == '\0') { /* C's operator has the same meaning */
		snprintf(infix, sizeof(infix), " %s ", mod_infix(node->op)->text);
		source_values(to, mod, node, infix);
	} else {
		if (node->op == MOD_OP_FROM_BOOL)
			fputs("(int32_t)(", to);
		else if (node->op == MOD_OP_TO_INT || node->op == MOD_OP_TO_FLOAT)
			fprintf(to, "mod_to_%s(", name);
		else
			fprintf(to, "%s%s(", node->op == MOD_OP_NOT || node->op == MOD_OP_BITNOT ? "" : "mod_", name);
		source_values(to, mod, node, ", ");
		fputs(")", to);
	}
}

/* A function's parameters; unused ones have no name. */
static void
source_parameters(FILE *to, enum mod_kind kind, const struct mod *mod)
{
	uint32_t inputs = mod != NULL ? 0 : MOD_ON_SCORE;

	/* Inputs of all nodes, because a node need not affect the result. */
	for (uint32_t i = 0; mod != NULL && i < mod->n_nodes; i++)
		inputs |= mod->nodes[i].inputs;
	if (kind == MOD_SCORE)
		fprintf(to, "float%s, ", inputs & MOD_ON_SCORE ? " score" : "");
	for (enum mod_op op = MOD_OP_B; op <= MOD_OP_KV; op++) {
		bool is_used = (inputs >> (op - MOD_OP_SCORE) & 1) != 0;

		fprintf(to, "int32_t%s%s, ", is_used ? " " : "", is_used ? mod_op_names[op] : "");
	}
	fprintf(to, "const void *%s", mod != NULL && mod->n_names > 0 ? "at" : "");
}

static void
source_body(FILE *to, const struct mod *mod)
{
	if (mod->n_names > 0)
		fprintf(to,
			"\t\tconst cuda_mod_args *args = static_cast<const cuda_mod_args *>(at);\n"
			"\t\tconst cuda_mod_name *names = args->names[%d];\n",
			(int)mod->kind);
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];

		if (node->op < MOD_OP_PARAM)
			continue;
		fprintf(to, "\t\tconst %s v%" PRIu32 " = ", type_names[node->type], i);
		source_operation(to, mod, node);
		fputs(";\n", to);
	}
	fputs("\t\treturn ", to);
	source_value(to, mod, (uint16_t)(mod->n_nodes - 1));
	fputs(";\n", to);
}

static void
source_function(FILE *to, enum mod_kind kind, const struct mod *mod)
{
	fprintf(to, "\n\tATTENTION_MOD_FUNCTION %s(", kind == MOD_MASK ? "bool mask" : "float score");
	source_parameters(to, kind, mod);
	fputs(")\n\t{\n", to);
	if (mod != NULL)
		source_body(to, mod);
	else
		fprintf(to, "\t\treturn %s;\n", kind == MOD_MASK ? "true" : "score");
	fputs("\t}\n", to);
}

enum paged_status
mod_cuda_source(const char *name, const struct mod *mask, const struct mod *score, char **text_p,
		struct paged_error *error)
{
	char *text = NULL;
	size_t length;
	FILE *to = open_memstream(&text, &length);
	bool failed;

	if (to == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for its source");
	fprintf(to,
		"#include \"kernels/cuda/device/mod_device.h\"\n\n"
		"struct %s {\n\tstatic constexpr bool has_score = %s, has_mask = %s;\n",
		name, score != NULL ? "true" : "false", mask != NULL ? "true" : "false");
	source_function(to, MOD_SCORE, score);
	source_function(to, MOD_MASK, mask);
	fputs("};\n", to);
	failed = ferror(to) != 0;
	failed |= fclose(to) != 0;
	if (failed) {
		free(text);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for its source");
	}
	*text_p = text;
	return PAGED_OK;
}

static enum paged_status
source_check_alignment(const struct mod_symbol *symbol, const struct mod_bound *bound, struct paged_error *error)
{
	uint32_t size = mod_dtype_size(symbol->dtype);

	if ((uintptr_t)bound->data % size != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "mod: array '%s' at %p is not aligned to its elements of %u bytes", symbol->name,
				  (const void *)bound->data, size);
	for (uint32_t d = 0; d < symbol->n_dims; d++)
		if (bound->strides[d] % size != 0)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "mod: array '%s': stride %u is %" PRId64 " bytes, its elements have %u",
					  symbol->name, d, bound->strides[d], size);
	return PAGED_OK;
}

enum paged_status
mod_cuda_args(const struct mod_binding *binding, struct cuda_mod_args *args, struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < mod->n_names && status == PAGED_OK; i++)
		if (mod->names[i].n_dims > 0)
			status = source_check_alignment(&mod->names[i], &binding->names[i], error);
	for (uint32_t i = 0; i < mod->n_names && status == PAGED_OK; i++) {
		const struct mod_bound *bound = &binding->names[i];
		const bool is_float = mod_dtype_is_float(mod->names[i].dtype);
		struct cuda_mod_name *name = &args->names[mod->kind][i];

		*name = (struct cuda_mod_name){ .address = (uintptr_t)bound->data };
		if (mod->names[i].n_dims == 0) {
			name->address = 0;
			memcpy(&name->value, is_float ? (const void *)&bound->value.f : &bound->value.i,
			       sizeof(name->value));
		}
		for (uint32_t d = 0; d < mod->names[i].n_dims; d++) {
			name->extents[d] = bound->extents[d];
			name->strides[d] = bound->strides[d];
		}
	}
	return status;
}

struct mod_bad_index
mod_cuda_bad_index(const struct cuda_mod_range *range, enum mod_kind *kind_p)
{
	*kind_p = (enum mod_kind)range->kind;
	return (struct mod_bad_index){ range->found != 0, (uint8_t)range->array, (uint8_t)range->dim, range->index,
				       range->extent };
}
