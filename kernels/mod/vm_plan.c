/* SPDX-License-Identifier: Apache-2.0 */
/* Planning, before any evaluation: shapes of a mod's nodes, and memory for their values. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/vm_state.h"

#define SMALL_BYTES (VM_TILE_ROW * sizeof(int32_t)) /* one value of any shape but VM_PER_ELEMENT */
_Static_assert(VM_GROUP_Q_ROWS *VM_TILE_ROW * sizeof(int32_t) >= MOD_TILE_Q_ROWS * sizeof(uint64_t),
	       "or all q_rows' bitmasks");
#define LARGE_BYTES (VM_GROUP_Q_ROWS * VM_TILE_ROW * sizeof(int32_t)) /* one value of shape VM_PER_ELEMENT */

static enum vm_shape
shape_of(uint32_t inputs)
{
	bool q_rows = (inputs & (MOD_ON_H | MOD_ON_Q)) != 0, keys = (inputs & MOD_ON_KV) != 0;

	if (inputs & MOD_ON_SCORE || (q_rows && keys))
		return VM_PER_ELEMENT;
	return keys ? VM_PER_KEY : q_rows ? VM_PER_Q_ROW : VM_UNIFORM;
}

/* Inputs without those of guards, unlike node->inputs: see vm_load.c. */
static uint32_t
inputs_of(const struct mod_node *node, const uint32_t *inputs)
{
	uint32_t all = node->n_args == 0 ? node->inputs : 0;

	for (uint32_t i = 0; i < node->n_args; i++)
		all |= inputs[node->args[i]];
	return all;
}

static bool
is_comparison(enum mod_op op)
{
	return op >= MOD_OP_LT && op <= MOD_OP_NE;
}

/* Conditions of shape VM_PER_ELEMENT that are only combined into the mask are stored as bitmasks. */
static void
choose_bitmasks(struct mod_vm *vm)
{
	const struct mod *mod = vm->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++)
		vm->slots[i].as_bitmasks = vm->slots[i].shape == VM_PER_ELEMENT &&
					   (vm_is_logic(&mod->nodes[i]) || is_comparison(mod->nodes[i].op));
	vm->slots[mod->n_nodes - 1].as_bitmasks &= mod->kind == MOD_MASK;
	/* Users follow their operands, so a backward pass visits users first. */
	for (uint32_t i = mod->n_nodes; i-- > 0;) {
		const struct mod_node *node = &mod->nodes[i];

		for (uint32_t j = 0; j < node->n_args; j++)
			vm->slots[node->args[j]].as_bitmasks &= vm->slots[i].as_bitmasks && vm_is_logic(node);
	}
}

/* The difference of an int from one key to the next; VM_NO_SLOPE: not constant, or not -1, 0 or 1. */
static int8_t
key_slope(const struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum vm_shape shape = vm->slots[number].shape;
	int32_t a = node->n_args > 0 ? vm->slots[node->args[0]].slope : 0;
	int32_t b = node->n_args > 1 ? vm->slots[node->args[1]].slope : 0, slope;

	if (node->type != MOD_INT)
		return VM_NO_SLOPE;
	if (node->op == MOD_OP_KV)
		return 1;
	if (shape == VM_UNIFORM || shape == VM_PER_Q_ROW)
		return 0;
	if ((node->op != MOD_OP_ADD && node->op != MOD_OP_SUB && node->op != MOD_OP_NEG) || a == VM_NO_SLOPE ||
	    b == VM_NO_SLOPE)
		return VM_NO_SLOPE;
	slope = node->op == MOD_OP_ADD ? a + b : node->op == MOD_OP_SUB ? a - b : -a;
	return slope >= -1 && slope <= 1 ? (int8_t)slope : VM_NO_SLOPE;
}

/* True if every operand has a slope and no operand is stored as a full tile row (VM_PER_ELEMENT). */
static bool
has_linear_operands(const struct mod_vm *vm, const struct mod_node *node)
{
	for (uint32_t i = 0; i < node->n_args; i++)
		if (vm->slots[node->args[i]].shape == VM_PER_ELEMENT || vm->slots[node->args[i]].slope == VM_NO_SLOPE)
			return false;
	return true;
}

static bool
is_linear_compare(const struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	int32_t difference;

	if (!vm->slots[number].as_bitmasks || !is_comparison(node->op) || !has_linear_operands(vm, node))
		return false;
	difference = vm->slots[node->args[0]].slope - vm->slots[node->args[1]].slope;
	return difference == 1 || difference == -1;
}

/* True if the node is the ramp of a fused sum, and its operands have slopes. */
static bool
is_ramp(const struct mod_vm *vm, uint16_t number)
{
	const struct vm_slot *slot = &vm->slots[number];

	return vm->slots[slot->fused_into].fusion.kind == VM_SUM_OF_RAMP &&
	       vm->slots[slot->fused_into].fusion.in[2] == number && has_linear_operands(vm, &vm->mod->nodes[number]);
}

/* One pass of choose_linear(); false: nothing changed. */
static bool
refuse_linear(struct mod_vm *vm)
{
	bool changed = false;

	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		const struct mod_node *node = &vm->mod->nodes[i];
		struct vm_slot *slot = &vm->slots[i];
		bool by_slopes = slot->shape == VM_LINEAR
					 ? has_linear_operands(vm, node)
					 : is_linear_compare(vm, (uint16_t)i) || is_ramp(vm, (uint16_t)i);

		if (slot->shape == VM_LINEAR && !by_slopes) {
			slot->shape = VM_PER_ELEMENT;
			changed = true;
		}
		for (uint32_t j = 0; j < node->n_args && !by_slopes; j++) {
			struct vm_slot *arg = &vm->slots[node->args[j]];

			changed |= arg->shape == VM_LINEAR;
			arg->shape = arg->shape == VM_LINEAR ? VM_PER_ELEMENT : arg->shape;
		}
	}
	return changed;
}

/*
 * Initially stores every value that has a slope as VM_LINEAR; then repeats refuse_linear(), which turns
 * those that some node reads key by key back into VM_PER_ELEMENT.
 */
static void
choose_linear(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		vm->slots[i].slope = key_slope(vm, (uint16_t)i);
		if (vm->slots[i].shape == VM_PER_ELEMENT && vm->slots[i].slope != VM_NO_SLOPE)
			vm->slots[i].shape = VM_LINEAR;
	}
	while (refuse_linear(vm))
		;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		vm->slots[i].linear_compare = is_linear_compare(vm, (uint16_t)i);
}

/*
 * The last node that reads each node; the result and the guards of loads with indexes
 * out of bounds are read at the very end.
 */
static void
find_last_uses(const struct mod_vm *vm, uint16_t *last)
{
	const struct mod *mod = vm->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++)
		last[i] = (uint16_t)i;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];

		for (uint32_t j = 0; j < node->n_args; j++)
			if (last[node->args[j]] < vm->slots[i].fused_into)
				last[node->args[j]] = vm->slots[i].fused_into;
		if (node->op == MOD_OP_LOAD && node->guard != MOD_NO_NODE && last[node->guard] < i)
			last[node->guard] = vm->slots[i].shape == VM_PER_ELEMENT ? (uint16_t)i : UINT16_MAX;
	}
	last[mod->n_nodes - 1] = UINT16_MAX;
}

/*
 * Assigns buffers to the values of shape VM_PER_ELEMENT.  A buffer is reused once the last reader of its value
 * is done; all other values have memory of their own.  Returns the number of buffers; buffer[i] is the
 * buffer of node i.
 */
static uint32_t
vm_assign_buffers(const struct mod_vm *vm, uint16_t *buffer)
{
	uint16_t last[MOD_MAX_NODES], busy_until[MOD_MAX_NODES];
	uint32_t n = 0;

	find_last_uses(vm, last);
	/* The scores are live from the start. */
	if (vm->score != MOD_NO_NODE) {
		buffer[vm->score] = 0;
		busy_until[0] = last[vm->score];
		n = 1;
	}
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		uint32_t p = 0;

		if (vm->slots[i].shape != VM_PER_ELEMENT || i == vm->score || vm->slots[i].fused_into != i)
			continue;
		while (p < n && busy_until[p] >= i)
			p++;
		if (p == n)
			n++;
		busy_until[p] = last[i];
		buffer[i] = (uint16_t)p;
	}
	return n;
}

static enum paged_status
vm_allocate(struct mod_vm *vm, struct paged_error *error)
{
	uint16_t buffer[MOD_MAX_NODES];
	uint32_t n_large = vm_assign_buffers(vm, buffer), n_small = 0;
	size_t size = vm->mod->n_nodes * SMALL_BYTES + n_large * LARGE_BYTES;
	uint8_t *small;

	vm->memory = aligned_alloc(64, size);
	if (vm->memory == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for %zu bytes of tiles", size);
	/* Values past the last key are computed too: zeroed memory makes them the same on every instruction set. */
	memset(vm->memory, 0, size);
	small = (uint8_t *)vm->memory + n_large * LARGE_BYTES;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->slots[i].fused_into == i)
			vm->slots[i].values =
				(int32_t *)(void *)(vm->slots[i].shape == VM_PER_ELEMENT
							    ? (uint8_t *)vm->memory + buffer[i] * LARGE_BYTES
							    : small + n_small++ * SMALL_BYTES);
	vm->own_score = vm->score != MOD_NO_NODE ? vm->slots[vm->score].values : NULL;
	vm->own_result = vm->slots[vm->mod->n_nodes - 1].values;
	return PAGED_OK;
}

enum paged_status
vm_plan(struct mod_vm *vm, struct paged_error *error)
{
	const struct mod *mod = vm->mod;
	uint32_t inputs[MOD_MAX_NODES];

	vm->score = MOD_NO_NODE;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		inputs[i] = inputs_of(&mod->nodes[i], inputs);
		vm->slots[i].shape = shape_of(inputs[i]);
		if (mod->nodes[i].op == MOD_OP_SCORE)
			vm->score = (uint16_t)i;
	}
	choose_bitmasks(vm);
	vm_fuse_nodes(vm);
	choose_linear(vm);
	vm_fuse_finish(vm);
	vm->group_q_rows = MOD_TILE_Q_ROWS;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		enum vm_shape shape = vm->slots[i].shape;

		if (vm->slots[i].fused_into != i)
			continue;
		if (shape == VM_PER_ELEMENT && !vm->slots[i].as_bitmasks)
			vm->group_q_rows = VM_GROUP_Q_ROWS;
		vm->by_shape[shape][vm->n_by_shape[shape]++] = (uint16_t)i;
	}
	return vm_allocate(vm, error);
}
