/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of arrays: the only operation that may go wrong. */
#include "config.h"

#include <string.h>

#include "kernels/mod/vm_inside.h"

static int32_t
value_at(const struct vm_operand *operand, uint32_t row, uint32_t i)
{
	return operand->at[row * operand->step + (operand->scalar ? 0 : i)];
}

/* One element, or 0 and a record. */
static int32_t
load_one(struct mod_vm *vm, const struct mod_node *node, const int32_t *index)
{
	const struct mod_bound *bound = &vm->binding->names[node->name];
	enum mod_dtype dtype = vm->mod->names[node->name].dtype;
	const uint8_t *at = bound->data;
	struct mod_value value;

	for (uint32_t i = 0; i < node->n_args; i++) {
		if (index[i] < 0 || (uint32_t)index[i] >= bound->extents[i]) {
			mod_record(&vm->range, node->name, i, index[i], bound->extents[i]);
			return 0;
		}
		at += index[i] * bound->strides[i];
	}
	value = mod_load(dtype, at);
	if (mod_dtype_is_float(dtype))
		memcpy(&value.i, &value.f, sizeof(value.i));
	return value.i;
}

static bool
is_consecutive(const int32_t *index, uint32_t n)
{
	uint32_t differs = 0;

	for (uint32_t i = 0; i < n; i++)
		differs |= ((uint32_t)index[0] + i) ^ (uint32_t)index[i];
	return differs == 0;
}

/* The everyday case of bias[q_idx][kv_idx]: a row of the array, in bounds, is copied.  False: it is not that. */
static bool
copy_row(const struct mod_vm *vm, const struct mod_node *node, const struct vm_operand *indexes, uint32_t row,
	 uint32_t n, int32_t *to)
{
	const struct mod_bound *bound = &vm->binding->names[node->name];
	uint32_t last = node->n_args - 1u;
	const int32_t *index = indexes[last].at + row * indexes[last].step;
	const uint8_t *at = bound->data;

	if (mod_dtype_size(vm->mod->names[node->name].dtype) != sizeof(*to) || indexes[last].scalar ||
	    bound->strides[last] != sizeof(*to) || index[0] < 0 || (uint64_t)index[0] + n > bound->extents[last] ||
	    !is_consecutive(index, n))
		return false;
	for (uint32_t d = 0; d < last; d++) {
		int32_t outer = value_at(&indexes[d], row, 0);

		if (!indexes[d].scalar || outer < 0 || (uint32_t)outer >= bound->extents[d])
			return false;
		at += outer * bound->strides[d];
	}
	memcpy(to, at + (size_t)index[0] * sizeof(*to), n * sizeof(*to));
	return true;
}

void
vm_load(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum vm_shape shape = vm->slots[number].shape;
	uint32_t n_rows = shape == VM_BOTH ? group->n : 1;
	struct vm_operand indexes[MOD_MAX_INDEXES], guard;
	bool guarded = node->guard != MOD_NO_NODE;

	for (uint32_t i = 0; i < node->n_args; i++)
		indexes[i] = vm_read(vm, node->args[i], shape, group);
	if (guarded)
		guard = vm_read(vm, node->guard, shape, group);
	for (uint32_t row = 0; row < n_rows; row++) {
		int32_t *to = &vm->slots[number].at[row * VM_ROW];

		if (!guarded && copy_row(vm, node, indexes, row, n, to))
			continue;
		for (uint32_t i = 0; i < n; i++) {
			int32_t index[MOD_MAX_INDEXES];

			to[i] = 0;
			if (guarded && value_at(&guard, row, i) == 0)
				continue;
			for (uint32_t d = 0; d < node->n_args; d++)
				index[d] = value_at(&indexes[d], row, i);
			to[i] = load_one(vm, node, index);
		}
	}
}
