/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a node as operands of an operation. */
#include "config.h"

#include <string.h>

#include "kernels/mod/vm_state.h"

struct vm_operand
vm_read(const struct mod_vm *vm, uint16_t node, enum vm_shape shape, const struct vm_group *group)
{
	const struct vm_slot *slot = &vm->slots[node];

	if (slot->shape == VM_BOTH)
		return (struct vm_operand){ slot->at, VM_ROW, false };
	if (slot->shape == VM_LINES && shape == VM_BOTH)
		return (struct vm_operand){ slot->at + group->begin, 1, true };
	/* A SLOPE value uses only the first key of a KEYS value. */
	return (struct vm_operand){ slot->at, 0,
				    slot->shape == VM_ONE || (slot->shape == VM_KEYS && shape == VM_SLOPE) };
}

const uint64_t *
vm_words(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *room)
{
	const struct vm_slot *slot = &vm->slots[number];
	uint64_t keys = 0;

	if (slot->words)
		return (const uint64_t *)(const void *)slot->at;
	memset(room, 0, MOD_TILE_LINES * sizeof(*room));
	if (slot->shape == VM_BOTH) {
		vm->ops->bits(room, slot->at, group->n);
		return room;
	}
	if (slot->shape == VM_KEYS)
		vm->ops->bits(&keys, slot->at, 1);
	for (uint32_t i = 0; i < group->n; i++)
		room[i] = slot->shape == VM_KEYS                                     ? keys
			  : slot->at[slot->shape == VM_LINES ? group->begin + i : 0] ? UINT64_MAX
										     : 0;
	return room;
}
