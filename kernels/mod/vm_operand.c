/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a node as operands of an operation. */
#include "config.h"

#include <string.h>

#include "kernels/mod/vm_state.h"

struct vm_operand
vm_operand_read(const struct mod_vm *vm, uint16_t node, enum vm_shape shape, const struct vm_group *group)
{
	const struct vm_slot *slot = &vm->slots[node];

	if (slot->shape == VM_PER_ELEMENT)
		return (struct vm_operand){ slot->values, VM_TILE_ROW, false };
	if (slot->shape == VM_PER_Q_ROW && shape == VM_PER_ELEMENT)
		return (struct vm_operand){ slot->values + group->begin, 1, true };
	/* A VM_LINEAR value uses only the first key of a VM_PER_KEY value. */
	return (struct vm_operand){ slot->values, 0,
				    slot->shape == VM_UNIFORM || (slot->shape == VM_PER_KEY && shape == VM_LINEAR) };
}

const uint64_t *
vm_bitmasks(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *room)
{
	const struct vm_slot *slot = &vm->slots[number];
	uint64_t keys = 0;

	if (slot->as_bitmasks)
		return (const uint64_t *)(const void *)slot->values;
	memset(room, 0, MOD_TILE_Q_ROWS * sizeof(*room));
	if (slot->shape == VM_PER_ELEMENT) {
		vm->ops->bits(room, slot->values, group->n);
		return room;
	}
	if (slot->shape == VM_PER_KEY)
		vm->ops->bits(&keys, slot->values, 1);
	for (uint32_t i = 0; i < group->n; i++)
		room[i] = slot->shape == VM_PER_KEY                                          ? keys
			  : slot->values[slot->shape == VM_PER_Q_ROW ? group->begin + i : 0] ? UINT64_MAX
											     : 0;
	return room;
}
