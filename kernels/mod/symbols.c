/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols of the language: operations, functions and reserved words; and
 * the check of the names that callers define.
 */
#include "config.h"

#include <string.h>

#include "kernels/mod/emit.h"

#define MOD_OP_NAME(op, name) [MOD_OP_##op] = (name),

const char *const mod_op_names[MOD_N_OPS] = { MOD_OPERATIONS(MOD_OP_NAME) };

const struct mod_function mod_functions[] = {
	{ "min", 2, MOD_OP_MIN },
	{ "max", 2, MOD_OP_MAX },
	{ "abs", 1, MOD_OP_ABS },
	{ "exp", 1, MOD_OP_EXP },
	{ "exp2", 1, MOD_OP_EXP2 },
	{ "log", 1, MOD_OP_LOG },
	{ "tanh", 1, MOD_OP_TANH },
	{ "sin", 1, MOD_OP_SIN },
	{ "cos", 1, MOD_OP_COS },
	{ "tan", 1, MOD_OP_TAN },
	{ "sigmoid", 1, MOD_OP_SIGMOID },
	{ "sqrt", 1, MOD_OP_SQRT },
	{ "floor", 1, MOD_OP_FLOOR },
	{ "int", 1, MOD_OP_TO_INT },
	{ "float", 1, MOD_OP_TO_FLOAT },
	/* clamp is lowered to a min of a max. */
	{ "clamp", 3, MOD_N_OPS },
	{ NULL, 0, MOD_N_OPS },
};

const char *const mod_reserved_words[] = { "and", "or", "not", "inf", "true", "false", NULL };

static bool
is_reserved(const char *name)
{
	for (enum mod_op op = MOD_OP_SCORE; op <= MOD_OP_KV; op++)
		if (strcmp(name, mod_op_names[op]) == 0)
			return true;
	for (uint32_t i = 0; mod_functions[i].name != NULL; i++)
		if (strcmp(name, mod_functions[i].name) == 0)
			return true;
	for (uint32_t i = 0; mod_reserved_words[i] != NULL; i++)
		if (strcmp(name, mod_reserved_words[i]) == 0)
			return true;
	return false;
}

/* Checks for ASCII letters and digits, independent of the locale. */
static bool
is_valid_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	size_t length = strnlen(name, MOD_MAX_NAME + 1);

	return length > 0 && length <= MOD_MAX_NAME && (name[0] < '0' || name[0] > '9') &&
	       strspn(name, letters) == length && name[length] == '\0';
}

enum paged_status
mod_check_names(const struct mod_array *names, uint32_t n_names, struct paged_error *error)
{
	if (n_names > UINT8_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "mod: %u names, %u at most", n_names, UINT8_MAX);
	for (uint32_t i = 0; i < n_names; i++) {
		const struct mod_array *name = &names[i];

		if (!is_valid_name(name->name))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "mod: name %u is no name (a letter, then letters, digits and _, %u at most)",
					  i, MOD_MAX_NAME);
		if (is_reserved(name->name))
			return paged_fail(error, PAGED_ERR_INVALID, "mod: the name '%s' belongs to the language",
					  name->name);
		if (mod_dtype_size(name->dtype) == 0 || name->n_dims > MOD_MAX_INDEXES)
			return paged_fail(error, PAGED_ERR_INVALID, "mod: '%s' has dtype %d and %u dimensions",
					  name->name, (int)name->dtype, name->n_dims);
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(name->name, names[j].name) == 0)
				return paged_fail(error, PAGED_ERR_INVALID, "mod: the name '%s' is there twice",
						  name->name);
	}
	return PAGED_OK;
}
