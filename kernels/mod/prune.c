/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the nodes that the result needs, in the order in which the expression reaches them. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/emit.h"

/* The nodes that the result needs, renumbered in the order in which the expression reaches them. */
struct pruning {
	const struct lowering *l;
	struct mod *mod;
	uint16_t new_number[MOD_LOWER_MAX_NODES]; /* new number of an old node; MOD_NO_NODE: not reached yet */
	bool too_many_names;
};

static uint8_t
prune_name(struct pruning *pruning, uint8_t name)
{
	const struct mod_array *from = &pruning->l->names[name];
	struct mod *mod = pruning->mod;
	struct mod_symbol *symbol;

	for (uint32_t i = 0; i < mod->n_names; i++)
		if (strcmp(mod->names[i].name, from->name) == 0)
			return (uint8_t)i;
	if (mod->n_names == MOD_MAX_NAMES) {
		pruning->too_many_names = true;
		return 0;
	}
	symbol = &mod->names[mod->n_names];
	memcpy(symbol->name, from->name, strlen(from->name) + 1);
	symbol->dtype = from->dtype;
	symbol->n_dims = from->n_dims;
	return (uint8_t)mod->n_names++;
}

static uint16_t
prune_node(struct pruning *pruning, uint16_t old)
{
	struct mod_node node = pruning->l->nodes[old];

	if (pruning->new_number[old] != MOD_NO_NODE)
		return pruning->new_number[old];
	for (uint32_t i = 0; i < node.n_args; i++)
		node.args[i] = prune_node(pruning, node.args[i]);
	if (node.op == MOD_OP_LOAD && node.guard != MOD_NO_NODE)
		node.guard = prune_node(pruning, node.guard);
	if (node.op == MOD_OP_LOAD || node.op == MOD_OP_PARAM)
		node.name = prune_name(pruning, node.name);
	pruning->new_number[old] = (uint16_t)pruning->mod->n_nodes;
	pruning->mod->nodes[pruning->mod->n_nodes++] = node;
	return pruning->new_number[old];
}

enum paged_status
mod_prune(struct mod *mod, const struct lowering *l, uint16_t root)
{
	struct pruning pruning = { .l = l, .mod = mod };

	memset(pruning.new_number, 0xff, sizeof(pruning.new_number));
	mod->nodes = calloc(l->n_nodes, sizeof(*mod->nodes));
	if (mod->nodes == NULL)
		return paged_fail(l->error, PAGED_ERR_NOMEM, "mod: no memory for %u operations", l->n_nodes);
	prune_node(&pruning, root);
	if (mod->n_nodes > MOD_MAX_NODES)
		return paged_fail(l->error, PAGED_ERR_LIMIT, "mod: %u different operations, %u at most", mod->n_nodes,
				  MOD_MAX_NODES);
	if (pruning.too_many_names)
		return paged_fail(l->error, PAGED_ERR_LIMIT, "mod: more than %u parameters and arrays", MOD_MAX_NAMES);
	return PAGED_OK;
}
