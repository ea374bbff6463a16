/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Array loads, the only operation that can fail.
 *
 * An element that is in bounds may be loaded whether or not the tile needs it.  So a load depends only
 * on its indexes, not on its guard: doc[kv_idx] is one row of keys whatever guards it.  An index out
 * of bounds reads as 0 and is a stray; it is reported only if a live element reaches it.
 */
#include "config.h"

#include <string.h>

#include "kernels/mod/vm_state.h"

struct load {
	const struct mod_node *node;
	const struct mod_bound *bound;
	enum mod_dtype dtype;
	struct vm_operand index[MOD_MAX_INDEXES];
};

static struct load
load_of(const struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct load load = {
		.node = node,
		.bound = &vm->binding->names[node->name],
		.dtype = vm->mod->names[node->name].dtype,
	};

	for (uint32_t d = 0; d < node->n_args; d++)
		load.index[d] = vm_read(vm, node->args[d], vm->slots[number].shape, group);
	return load;
}

static int32_t
value_at(const struct vm_operand *operand, uint32_t row, uint32_t i)
{
	return operand->at[row * operand->step + (operand->scalar ? 0 : i)];
}

/* Loads one element; false: an index is out of bounds, which is recorded in `range` if not NULL. */
static bool
load_one(const struct load *load, uint32_t row, uint32_t i, int32_t *to, struct mod_range *range)
{
	const struct mod_bound *bound = load->bound;
	const uint8_t *at = bound->data;
	struct mod_value value;

	for (uint32_t d = 0; d < load->node->n_args; d++) {
		int32_t index = value_at(&load->index[d], row, i);

		if (index < 0 || (uint32_t)index >= bound->extents[d]) {
			mod_record(range, load->node->name, d, index, bound->extents[d]);
			return false;
		}
		at += index * bound->strides[d];
	}
	value = mod_load(load->dtype, at);
	memcpy(to, mod_dtype_is_float(load->dtype) ? (const void *)&value.f : (const void *)&value.i, sizeof(*to));
	return true;
}

/* Loads the wanted elements of a row, 0 for the others; returns the strays. */
static uint64_t
load_some(const struct load *load, uint32_t row, uint32_t n, uint64_t wanted, int32_t *to)
{
	uint64_t strays = 0;

	memset(to, 0, n * sizeof(*to));
	for (; wanted != 0; wanted &= wanted - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(wanted);

		if (!load_one(load, row, i, &to[i], NULL))
			strays |= UINT64_C(1) << i;
	}
	return strays;
}

/* For a whole row, the usual case, n is a constant and the compiler unrolls the loop. */
static inline __attribute__((always_inline)) bool
run_is_consecutive(const int32_t *index, uint32_t n)
{
	uint32_t differs = 0;

	for (uint32_t i = 0; i < n; i++)
		differs |= ((uint32_t)index[0] + i) ^ (uint32_t)index[i];
	return differs == 0;
}

static bool
is_consecutive(const int32_t *index, uint32_t n)
{
	return n == VM_ROW ? run_is_consecutive(index, VM_ROW) : run_is_consecutive(index, n);
}

static inline __attribute__((always_inline)) bool
run_is_within(const int32_t *index, uint32_t n, uint32_t extent)
{
	int32_t last = extent <= INT32_MAX ? (int32_t)extent - 1 : INT32_MAX, outside = 0;

	for (uint32_t i = 0; i < n; i++)
		outside |= (index[i] < 0) | (index[i] > last);
	return outside == 0;
}

static bool
is_within(const int32_t *index, uint32_t n, uint32_t extent)
{
	return n == VM_ROW ? run_is_within(index, VM_ROW, extent) : run_is_within(index, n, extent);
}

/*
 * The usual cases, bias[q_idx][kv_idx] and bias[q_idx - kv_idx]: 4-byte elements, dense in the last
 * dimension, all in bounds.  Returns false in other cases.
 */
static bool
load_row(const struct load *load, uint32_t row, uint32_t n, int32_t *to)
{
	const struct mod_bound *bound = load->bound;
	uint32_t last = load->node->n_args - 1u;
	const struct vm_operand *operand = &load->index[last];
	const int32_t *index = operand->at + row * operand->step;
	const uint8_t *at = bound->data;

	if (mod_dtype_size(load->dtype) != sizeof(*to) || operand->scalar || bound->strides[last] != sizeof(*to))
		return false;
	for (uint32_t d = 0; d < last; d++) {
		int32_t outer = value_at(&load->index[d], row, 0);

		if (!load->index[d].scalar || outer < 0 || (uint32_t)outer >= bound->extents[d])
			return false;
		at += outer * bound->strides[d];
	}
	if (index[0] >= 0 && (uint64_t)index[0] + n <= bound->extents[last] && is_consecutive(index, n)) {
		memcpy(to, at + (size_t)index[0] * sizeof(*to), n * sizeof(*to));
		return true;
	}
	if (!is_within(index, n, bound->extents[last]))
		return false;
	for (uint32_t i = 0; i < n; i++)
		memcpy(&to[i], at + (size_t)index[i] * sizeof(*to), sizeof(*to));
	return true;
}

/* The elements of each q_row that are live and satisfy the load's guard. */
static void
find_reached(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *reached)
{
	uint16_t guard = vm->mod->nodes[number].guard;
	const uint64_t *words = guard != MOD_NO_NODE ? vm_words(vm, guard, group, reached) : NULL;

	for (uint32_t i = 0; i < group->n; i++)
		reached[i] = vm_live(vm, group->begin + i) & (words != NULL ? words[i] : UINT64_MAX);
}

static void
load_both(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	const struct load load = load_of(vm, number, group);
	uint64_t reached[MOD_TILE_LINES];

	find_reached(vm, number, group, reached);
	for (uint32_t row = 0; row < group->n; row++) {
		int32_t *to = &vm->slots[number].at[row * VM_ROW], none;
		uint64_t strays;

		if (load_row(&load, row, n, to))
			continue;
		strays = load_some(&load, row, n, reached[row], to);
		if (strays != 0)
			load_one(&load, row, (uint32_t)__builtin_ctzll(strays), &none, &vm->range);
	}
}

void
vm_load(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	struct vm_slot *slot = &vm->slots[number];
	struct load load;

	if (slot->shape == VM_BOTH) {
		load_both(vm, number, n, group);
		return;
	}
	load = load_of(vm, number, group);
	slot->strays = load_row(&load, 0, n, slot->at) ? 0 : load_some(&load, 0, n, vm_first_bits(n), slot->at);
	vm->strays[slot->shape] |= slot->strays != 0;
}

/* Records a load's first stray that one of the group's q_rows reaches. */
static void
tell_load(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct vm_slot *slot = &vm->slots[number];
	const struct load load = load_of(vm, number, group);
	uint64_t reached[MOD_TILE_LINES];
	int32_t none;

	find_reached(vm, number, group, reached);
	for (uint32_t i = 0; i < group->n; i++) {
		uint32_t line = group->begin + i, at = slot->shape == VM_LINES ? line : 0;

		if (slot->shape == VM_KEYS) {
			reached[i] &= slot->strays;
			at = reached[i] != 0 ? (uint32_t)__builtin_ctzll(reached[i]) : 0;
		} else if ((slot->strays >> at & 1) == 0) {
			continue;
		}
		if (reached[i] != 0)
			load_one(&load, 0, at, &none, &vm->range);
	}
}

void
vm_tell(struct mod_vm *vm, const struct vm_group *group)
{
	if (vm->range.found || !(vm->strays[VM_ONE] || vm->strays[VM_LINES] || vm->strays[VM_KEYS]))
		return;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->mod->nodes[i].op == MOD_OP_LOAD && vm->slots[i].strays != 0)
			tell_load(vm, (uint16_t)i, group);
}
