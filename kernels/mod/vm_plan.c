/* SPDX-License-Identifier: Apache-2.0 */
/* Planning, before any evaluation: shapes of a mod's nodes, and memory for their values. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/vm_state.h"

#define SMALL_BYTES (VM_ROW * sizeof(int32_t)) /* one value of any shape but BOTH */
_Static_assert(VM_GROUP *VM_ROW * sizeof(int32_t) >= MOD_TILE_LINES * sizeof(uint64_t), "or all lines' words");
#define LARGE_BYTES (VM_GROUP * VM_ROW * sizeof(int32_t)) /* one value of shape BOTH */

static enum vm_shape
shape_of(uint32_t inputs)
{
	bool lines = (inputs & (MOD_ON_H | MOD_ON_Q)) != 0, keys = (inputs & MOD_ON_KV) != 0;

	if (inputs & MOD_ON_SCORE || (lines && keys))
		return VM_BOTH;
	return keys ? VM_KEYS : lines ? VM_LINES : VM_ONE;
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

/* Conditions of shape BOTH that are only combined into the mask are stored as words of bits. */
static void
choose_words(struct mod_vm *vm)
{
	const struct mod *mod = vm->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++)
		vm->slots[i].words = vm->slots[i].shape == VM_BOTH &&
				     (vm_is_logic(&mod->nodes[i]) || is_comparison(mod->nodes[i].op));
	vm->slots[mod->n_nodes - 1].words &= mod->kind == MOD_MASK;
	/* Users follow their operands, so a backward pass visits users first. */
	for (uint32_t i = mod->n_nodes; i-- > 0;) {
		const struct mod_node *node = &mod->nodes[i];

		for (uint32_t j = 0; j < node->n_args; j++)
			vm->slots[node->args[j]].words &= vm->slots[i].words && vm_is_logic(node);
	}
}

/* The difference of an int from one key to the next; VM_NO_SLOPE: not constant, or not -1, 0 or 1. */
static int8_t
slope_of(const struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum vm_shape shape = vm->slots[number].shape;
	int32_t a = node->n_args > 0 ? vm->slots[node->args[0]].slope : 0;
	int32_t b = node->n_args > 1 ? vm->slots[node->args[1]].slope : 0, slope;

	if (node->type != MOD_INT)
		return VM_NO_SLOPE;
	if (node->op == MOD_OP_KV)
		return 1;
	if (shape == VM_ONE || shape == VM_LINES)
		return 0;
	if ((node->op != MOD_OP_ADD && node->op != MOD_OP_SUB && node->op != MOD_OP_NEG) || a == VM_NO_SLOPE ||
	    b == VM_NO_SLOPE)
		return VM_NO_SLOPE;
	slope = node->op == MOD_OP_ADD ? a + b : node->op == MOD_OP_SUB ? a - b : -a;
	return slope >= -1 && slope <= 1 ? (int8_t)slope : VM_NO_SLOPE;
}

/* True if every operand has a slope and no operand is stored as a full row (BOTH). */
static bool
reads_slopes(const struct mod_vm *vm, const struct mod_node *node)
{
	for (uint32_t i = 0; i < node->n_args; i++)
		if (vm->slots[node->args[i]].shape == VM_BOTH || vm->slots[node->args[i]].slope == VM_NO_SLOPE)
			return false;
	return true;
}

static bool
is_sloping(const struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	int32_t difference;

	if (!vm->slots[number].words || !is_comparison(node->op) || !reads_slopes(vm, node))
		return false;
	difference = vm->slots[node->args[0]].slope - vm->slots[node->args[1]].slope;
	return difference == 1 || difference == -1;
}

/* True if the node is the ramp of a fused sum, and its operands have slopes. */
static bool
is_ramp(const struct mod_vm *vm, uint16_t number)
{
	const struct vm_slot *slot = &vm->slots[number];

	return vm->slots[slot->into].join.kind == VM_RAMP && vm->slots[slot->into].join.in[2] == number &&
	       reads_slopes(vm, &vm->mod->nodes[number]);
}

/* One pass of choose_slopes(); false: nothing changed. */
static bool
refuse_slopes(struct mod_vm *vm)
{
	bool changed = false;

	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		const struct mod_node *node = &vm->mod->nodes[i];
		struct vm_slot *slot = &vm->slots[i];
		bool by_slopes = slot->shape == VM_SLOPE ? reads_slopes(vm, node)
							 : is_sloping(vm, (uint16_t)i) || is_ramp(vm, (uint16_t)i);

		if (slot->shape == VM_SLOPE && !by_slopes) {
			slot->shape = VM_BOTH;
			changed = true;
		}
		for (uint32_t j = 0; j < node->n_args && !by_slopes; j++) {
			struct vm_slot *arg = &vm->slots[node->args[j]];

			changed |= arg->shape == VM_SLOPE;
			arg->shape = arg->shape == VM_SLOPE ? VM_BOTH : arg->shape;
		}
	}
	return changed;
}

/*
 * Initially stores every value that has a slope as SLOPE; then repeats refuse_slopes(), which turns
 * those that some node reads key by key back into BOTH.
 */
static void
choose_slopes(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		vm->slots[i].slope = slope_of(vm, (uint16_t)i);
		if (vm->slots[i].shape == VM_BOTH && vm->slots[i].slope != VM_NO_SLOPE)
			vm->slots[i].shape = VM_SLOPE;
	}
	while (refuse_slopes(vm))
		;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		vm->slots[i].sloping = is_sloping(vm, (uint16_t)i);
}

/* The last node that reads each node; the result and the guards of loads with strays are read at the very end. */
static void
find_last_uses(const struct mod_vm *vm, uint16_t *last)
{
	const struct mod *mod = vm->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++)
		last[i] = (uint16_t)i;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];

		for (uint32_t j = 0; j < node->n_args; j++)
			if (last[node->args[j]] < vm->slots[i].into)
				last[node->args[j]] = vm->slots[i].into;
		if (node->op == MOD_OP_LOAD && node->guard != MOD_NO_NODE && last[node->guard] < i)
			last[node->guard] = vm->slots[i].shape == VM_BOTH ? (uint16_t)i : UINT16_MAX;
	}
	last[mod->n_nodes - 1] = UINT16_MAX;
}

/*
 * Assigns buffers to the values of shape BOTH.  A buffer is reused once the last reader of its value
 * is done; all other values have memory of their own.  Returns the number of buffers; place[i] is the
 * buffer of node i.
 */
static uint32_t
place_large(const struct mod_vm *vm, uint16_t *place)
{
	uint16_t last[MOD_MAX_NODES], taken_until[MOD_MAX_NODES];
	uint32_t n = 0;

	find_last_uses(vm, last);
	/* The scores are live from the start. */
	if (vm->score != MOD_NO_NODE) {
		place[vm->score] = 0;
		taken_until[0] = last[vm->score];
		n = 1;
	}
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		uint32_t p = 0;

		if (vm->slots[i].shape != VM_BOTH || i == vm->score || vm->slots[i].into != i)
			continue;
		while (p < n && taken_until[p] >= i)
			p++;
		if (p == n)
			n++;
		taken_until[p] = last[i];
		place[i] = (uint16_t)p;
	}
	return n;
}

static enum paged_status
allocate(struct mod_vm *vm, struct paged_error *error)
{
	uint16_t place[MOD_MAX_NODES];
	uint32_t n_large = place_large(vm, place), n_small = 0;
	size_t size = vm->mod->n_nodes * SMALL_BYTES + n_large * LARGE_BYTES;
	uint8_t *small;

	vm->memory = aligned_alloc(64, size);
	if (vm->memory == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for %zu bytes of tiles", size);
	/* Values past the last key are computed too: zeroed memory makes them the same on every instruction set. */
	memset(vm->memory, 0, size);
	small = (uint8_t *)vm->memory + n_large * LARGE_BYTES;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->slots[i].into == i)
			vm->slots[i].at = (int32_t *)(void *)(vm->slots[i].shape == VM_BOTH
								      ? (uint8_t *)vm->memory + place[i] * LARGE_BYTES
								      : small + n_small++ * SMALL_BYTES);
	vm->own_score = vm->score != MOD_NO_NODE ? vm->slots[vm->score].at : NULL;
	vm->own_result = vm->slots[vm->mod->n_nodes - 1].at;
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
	choose_words(vm);
	vm_join_nodes(vm);
	choose_slopes(vm);
	vm_join_settle(vm);
	vm->group_lines = MOD_TILE_LINES;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		enum vm_shape shape = vm->slots[i].shape;

		if (vm->slots[i].into != i)
			continue;
		if (shape == VM_BOTH && !vm->slots[i].words)
			vm->group_lines = VM_GROUP;
		vm->by_shape[shape][vm->n_by_shape[shape]++] = (uint16_t)i;
	}
	return allocate(vm, error);
}
