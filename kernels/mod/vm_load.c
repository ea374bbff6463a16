/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Array loads, the only operation that can fail.
 *
 * An element that is in bounds may be loaded whether or not the tile needs it.  Therefore a load depends only
 * on its indexes, not on its guard: doc[kv_idx] is one value per key whatever guards it.  An index out
 * of bounds reads as 0; it is reported only if a live element reaches it.
 */
#include "config.h"

#include <string.h>

#include "kernels/mod/vm_state.h"

struct array_load {
	const struct mod_node *node;
	const struct mod_bound *bound;
	enum mod_dtype dtype;
	struct vm_operand index[MOD_MAX_INDEXES];
};

static struct array_load
vm_load_prepare(const struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct array_load array_load = {
		.node = node,
		.bound = &vm->binding->names[node->name],
		.dtype = vm->mod->names[node->name].dtype,
	};

	for (uint32_t d = 0; d < node->n_args; d++)
		array_load.index[d] = vm_operand_read(vm, node->args[d], vm->slots[number].shape, group);
	return array_load;
}

static int32_t
vm_operand_value(const struct vm_operand *operand, uint32_t tile_row, uint32_t i)
{
	return operand->values[tile_row * operand->step + (operand->scalar ? 0 : i)];
}

/* Loads one element; false: an index is out of bounds, which is recorded in `bad_index` if not NULL. */
static bool
vm_load_element(const struct array_load *array_load, uint32_t tile_row, uint32_t i, int32_t *to,
		struct mod_bad_index *bad_index)
{
	const struct mod_bound *bound = array_load->bound;
	const uint8_t *at = bound->data;
	struct mod_value value;

	for (uint32_t d = 0; d < array_load->node->n_args; d++) {
		int32_t index = vm_operand_value(&array_load->index[d], tile_row, i);

		if (index < 0 || (uint32_t)index >= bound->extents[d]) {
			mod_bad_index_record(bad_index, array_load->node->name, d, index, bound->extents[d]);
			return false;
		}
		at += index * bound->strides[d];
	}
	value = mod_load_element(array_load->dtype, at);
	memcpy(to, mod_dtype_is_float(array_load->dtype) ? (const void *)&value.f : (const void *)&value.i,
	       sizeof(*to));
	return true;
}

/* Loads the elements of `mask` in a tile row, 0 for the others; returns those out of bounds. */
static uint64_t
vm_load_elements(const struct array_load *array_load, uint32_t tile_row, uint32_t n, uint64_t mask, int32_t *to)
{
	uint64_t out_of_bounds = 0;

	memset(to, 0, n * sizeof(*to));
	for (; mask != 0; mask &= mask - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(mask);

		if (!vm_load_element(array_load, tile_row, i, &to[i], NULL))
			out_of_bounds |= UINT64_C(1) << i;
	}
	return out_of_bounds;
}

/* For a whole tile row, the usual case, n is a constant and the compiler unrolls the loop. */
static inline __attribute__((always_inline)) bool
indexes_are_consecutive(const int32_t *index, uint32_t n)
{
	uint32_t differs = 0;

	for (uint32_t i = 0; i < n; i++)
		differs |= ((uint32_t)index[0] + i) ^ (uint32_t)index[i];
	return differs == 0;
}

static bool
row_is_consecutive(const int32_t *index, uint32_t n)
{
	return n == VM_TILE_ROW ? indexes_are_consecutive(index, VM_TILE_ROW) : indexes_are_consecutive(index, n);
}

static inline __attribute__((always_inline)) bool
indexes_are_within(const int32_t *index, uint32_t n, uint32_t extent)
{
	int32_t last = extent <= INT32_MAX ? (int32_t)extent - 1 : INT32_MAX, outside = 0;

	for (uint32_t i = 0; i < n; i++)
		outside |= (index[i] < 0) | (index[i] > last);
	return outside == 0;
}

static bool
row_is_within(const int32_t *index, uint32_t n, uint32_t extent)
{
	return n == VM_TILE_ROW ? indexes_are_within(index, VM_TILE_ROW, extent) : indexes_are_within(index, n, extent);
}

/*
 * The usual cases, bias[q_idx][kv_idx] and bias[q_idx - kv_idx]: 4-byte elements, dense in the last
 * dimension, all in bounds.  Returns false in other cases.
 */
static bool
vm_load_dense(const struct array_load *array_load, uint32_t tile_row, uint32_t n, int32_t *to)
{
	const struct mod_bound *bound = array_load->bound;
	uint32_t last = array_load->node->n_args - 1u;
	const struct vm_operand *operand = &array_load->index[last];
	const int32_t *index = operand->values + tile_row * operand->step;
	const uint8_t *at = bound->data;

	if (mod_dtype_size(array_load->dtype) != sizeof(*to) || operand->scalar || bound->strides[last] != sizeof(*to))
		return false;
	for (uint32_t d = 0; d < last; d++) {
		int32_t outer = vm_operand_value(&array_load->index[d], tile_row, 0);

		if (!array_load->index[d].scalar || outer < 0 || (uint32_t)outer >= bound->extents[d])
			return false;
		at += outer * bound->strides[d];
	}
	if (index[0] >= 0 && (uint64_t)index[0] + n <= bound->extents[last] && row_is_consecutive(index, n)) {
		memcpy(to, at + (size_t)index[0] * sizeof(*to), n * sizeof(*to));
		return true;
	}
	if (!row_is_within(index, n, bound->extents[last]))
		return false;
	for (uint32_t i = 0; i < n; i++)
		memcpy(&to[i], at + (size_t)index[i] * sizeof(*to), sizeof(*to));
	return true;
}

/* The elements of each q_row that are live and satisfy the load's guard. */
static void
vm_find_reached(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *reached)
{
	uint16_t guard = vm->mod->nodes[number].guard;
	const uint64_t *bitmasks = guard != MOD_NO_NODE ? vm_bitmasks(vm, guard, group, reached) : NULL;

	for (uint32_t i = 0; i < group->n; i++)
		reached[i] = vm_live(vm, group->begin + i) & (bitmasks != NULL ? bitmasks[i] : UINT64_MAX);
}

static void
vm_load_per_element(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	const struct array_load array_load = vm_load_prepare(vm, number, group);
	uint64_t reached[MOD_TILE_Q_ROWS];

	vm_find_reached(vm, number, group, reached);
	for (uint32_t tile_row = 0; tile_row < group->n; tile_row++) {
		int32_t *to = &vm->slots[number].values[tile_row * VM_TILE_ROW], none;
		uint64_t out_of_bounds;

		if (vm_load_dense(&array_load, tile_row, n, to))
			continue;
		out_of_bounds = vm_load_elements(&array_load, tile_row, n, reached[tile_row], to);
		if (out_of_bounds != 0)
			vm_load_element(&array_load, tile_row, (uint32_t)__builtin_ctzll(out_of_bounds), &none,
					&vm->bad_index);
	}
}

void
vm_load(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	struct vm_slot *slot = &vm->slots[number];
	struct array_load array_load;

	if (slot->shape == VM_PER_ELEMENT) {
		vm_load_per_element(vm, number, n, group);
		return;
	}
	array_load = vm_load_prepare(vm, number, group);
	slot->out_of_bounds = vm_load_dense(&array_load, 0, n, slot->values)
				      ? 0
				      : vm_load_elements(&array_load, 0, n, vm_first_bits(n), slot->values);
	vm->out_of_bounds[slot->shape] |= slot->out_of_bounds != 0;
}

/* Records a load's first index out of bounds that one of the group's q_rows reaches. */
static void
vm_report_load(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct vm_slot *slot = &vm->slots[number];
	const struct array_load array_load = vm_load_prepare(vm, number, group);
	uint64_t reached[MOD_TILE_Q_ROWS];
	int32_t none;

	vm_find_reached(vm, number, group, reached);
	for (uint32_t i = 0; i < group->n; i++) {
		uint32_t q_row = group->begin + i, at = slot->shape == VM_PER_Q_ROW ? q_row : 0;

		if (slot->shape == VM_PER_KEY) {
			reached[i] &= slot->out_of_bounds;
			at = reached[i] != 0 ? (uint32_t)__builtin_ctzll(reached[i]) : 0;
		} else if ((slot->out_of_bounds >> at & 1) == 0) {
			continue;
		}
		if (reached[i] != 0)
			vm_load_element(&array_load, 0, at, &none, &vm->bad_index);
	}
}

void
vm_report_out_of_bounds(struct mod_vm *vm, const struct vm_group *group)
{
	if (vm->bad_index.found ||
	    !(vm->out_of_bounds[VM_UNIFORM] || vm->out_of_bounds[VM_PER_Q_ROW] || vm->out_of_bounds[VM_PER_KEY]))
		return;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->mod->nodes[i].op == MOD_OP_LOAD && vm->slots[i].out_of_bounds != 0)
			vm_report_load(vm, (uint16_t)i, group);
}
