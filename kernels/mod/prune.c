/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/lower.h"

/* The nodes that the result needs, renumbered in the order in which the expression reaches them. */
struct order {
	const struct lowering *l;
	struct mod *mod;
	uint16_t number[MOD_LOWER_ROOM]; /* new number of an old node; MOD_NO_NODE: not reached yet */
	bool too_many_names;
};

static uint8_t
place_name(struct order *order, uint8_t name)
{
	const struct mod_array *from = &order->l->names[name];
	struct mod *mod = order->mod;
	struct mod_symbol *symbol;

	for (uint32_t i = 0; i < mod->n_names; i++)
		if (strcmp(mod->names[i].name, from->name) == 0)
			return (uint8_t)i;
	if (mod->n_names == MOD_MAX_NAMES) {
		order->too_many_names = true;
		return 0;
	}
	symbol = &mod->names[mod->n_names];
	memcpy(symbol->name, from->name, strlen(from->name) + 1);
	symbol->dtype = from->dtype;
	symbol->n_dims = from->n_dims;
	return (uint8_t)mod->n_names++;
}

static uint16_t
place(struct order *order, uint16_t old)
{
	struct mod_node node = order->l->nodes[old];

	if (order->number[old] != MOD_NO_NODE)
		return order->number[old];
	for (uint32_t i = 0; i < node.n_args; i++)
		node.args[i] = place(order, node.args[i]);
	if (node.op == MOD_OP_LOAD && node.guard != MOD_NO_NODE)
		node.guard = place(order, node.guard);
	if (node.op == MOD_OP_LOAD || node.op == MOD_OP_PARAM)
		node.name = place_name(order, node.name);
	order->number[old] = (uint16_t)order->mod->n_nodes;
	order->mod->nodes[order->mod->n_nodes++] = node;
	return order->number[old];
}

enum paged_status
mod_place(struct mod *mod, const struct lowering *l, uint16_t root)
{
	struct order order = { .l = l, .mod = mod };

	memset(order.number, 0xff, sizeof(order.number));
	mod->nodes = calloc(l->n_nodes, sizeof(*mod->nodes));
	if (mod->nodes == NULL)
		return paged_fail(l->error, PAGED_ERR_NOMEM, "mod: no memory for %u operations", l->n_nodes);
	place(&order, root);
	if (mod->n_nodes > MOD_MAX_NODES)
		return paged_fail(l->error, PAGED_ERR_LIMIT, "mod: %u different operations, %u at most", mod->n_nodes,
				  MOD_MAX_NODES);
	if (order.too_many_names)
		return paged_fail(l->error, PAGED_ERR_LIMIT, "mod: more than %u parameters and arrays", MOD_MAX_NAMES);
	return PAGED_OK;
}
