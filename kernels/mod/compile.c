/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of a mod, and its properties. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/mod/frontend.h"

enum paged_status
mod_parse(enum mod_kind kind, const char *text, size_t length, const struct mod_array *names, uint32_t n_names,
	  struct mod **mod_p, struct paged_error *error)
{
	struct mod_source source = { text, length };
	struct mod *mod;
	struct mod_tree tree;
	enum paged_status status = mod_tree_parse(&tree, &source, error);

	if (status != PAGED_OK)
		return status;
	mod = calloc(1, sizeof(*mod));
	if (mod == NULL) {
		mod_tree_free(&tree);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a mod");
	}
	mod->kind = kind;
	status = mod_lower(mod, &tree, names, n_names, error);
	mod_tree_free(&tree);
	if (status == PAGED_OK)
		status = mod_print(mod, error);
	if (status != PAGED_OK) {
		mod_destroy(mod);
		return status;
	}
	*mod_p = mod;
	return PAGED_OK;
}

void
mod_destroy(struct mod *mod)
{
	if (mod == NULL)
		return;
	free(mod->nodes);
	free(mod->text);
	free(mod);
}

enum mod_kind
mod_kind(const struct mod *mod)
{
	return mod->kind;
}

const char *
mod_text(const struct mod *mod)
{
	return mod->text;
}

bool
mod_uses(const struct mod *mod, const char *name)
{
	for (uint32_t i = 0; i < mod->n_names; i++)
		if (strcmp(mod->names[i].name, name) == 0)
			return true;
	return false;
}

bool
mod_name(const struct mod *mod, uint32_t index, struct mod_array *name)
{
	const struct mod_symbol *symbol;

	if (index >= mod->n_names)
		return false;
	symbol = &mod->names[index];
	*name = (struct mod_array){ .name = symbol->name, .dtype = symbol->dtype, .n_dims = symbol->n_dims };
	return true;
}

uint32_t
mod_inputs(const struct mod *mod)
{
	return mod->nodes[mod->n_nodes - 1].inputs;
}

bool
mod_is_exact(const struct mod *mod)
{
	for (uint32_t i = 0; i < mod->n_nodes; i++)
		if (mod->nodes[i].type == MOD_FLOAT)
			return false;
	return true;
}

enum paged_status
mod_bad_index_fail(const struct mod *mod, const struct mod_bad_index *bad_index, struct paged_error *error)
{
	if (!bad_index->found)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_RANGE, "mod: array '%s', index %u is %d, bounds are 0 to %lld",
			  mod->names[bad_index->array].name, bad_index->dim, bad_index->index,
			  (long long)bad_index->extent - 1);
}
