/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the language, and which names they leave to callers. */
#include "config.h"

#include <string.h>

#include "kernels/mod/lower.h"

static const struct mod_variable variables[] = {
	{ "score", MOD_OP_SCORE, MOD_FLOAT, MOD_ON_SCORE },
	{ "b", MOD_OP_B, MOD_INT, MOD_ON_B },
	{ "h", MOD_OP_H, MOD_INT, MOD_ON_H },
	{ "q_idx", MOD_OP_Q, MOD_INT, MOD_ON_Q },
	{ "kv_idx", MOD_OP_KV, MOD_INT, MOD_ON_KV },
};

static const struct mod_function functions[] = {
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
	/* Stands for a min of a max. */
	{ "clamp", 3, MOD_N_OPS },
};

static const char *const reserved[] = { "and", "or", "not", "inf", "true", "false" };

#define N(array) (sizeof(array) / sizeof((array)[0]))

const struct mod_function *
mod_function(uint32_t index)
{
	return index < N(functions) ? &functions[index] : NULL;
}

const struct mod_variable *
mod_variable(uint32_t index)
{
	return index < N(variables) ? &variables[index] : NULL;
}

const char *
mod_reserved(uint32_t index)
{
	return index < N(reserved) ? reserved[index] : NULL;
}

static bool
is_reserved(const char *name)
{
	for (uint32_t i = 0; i < N(variables); i++)
		if (strcmp(name, variables[i].name) == 0)
			return true;
	for (uint32_t i = 0; i < N(functions); i++)
		if (strcmp(name, functions[i].name) == 0)
			return true;
	for (uint32_t i = 0; i < N(reserved); i++)
		if (strcmp(name, reserved[i]) == 0)
			return true;
	return false;
}

/* ASCII whatever the locale. */
static bool
is_name(const char *name)
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

		if (!is_name(name->name))
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
