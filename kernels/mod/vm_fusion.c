/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operator fusion: sums with a product, and functions of a scaled value, so that intermediate values
 * are not written to memory.  The bits are those of the separate operations.
 */
#include "config.h"

#include "kernels/mod/vm_state.h"

static bool
is_both(const struct mod_vm *vm, uint16_t number)
{
	return vm->slots[number].shape == VM_BOTH && vm->mod->nodes[number].type == MOD_FLOAT;
}

/* A float that is the same for all keys: one per q_row, or one for all. */
static bool
is_scalar(const struct mod_vm *vm, uint16_t number)
{
	enum vm_shape shape = vm->slots[number].shape;

	return vm->mod->nodes[number].type == MOD_FLOAT && (shape == VM_ONE || shape == VM_LINES);
}

static bool
is_read_once(const struct mod_vm *vm, uint16_t number)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		for (uint32_t j = 0; j < vm->mod->nodes[i].n_args; j++)
			n += vm->mod->nodes[i].args[j] == number;
	return n == 1;
}

static bool
is_only(const struct mod_vm *vm, uint16_t number, enum mod_op op)
{
	return vm->mod->nodes[number].op == op && is_both(vm, number) && is_read_once(vm, number);
}

/* Index of the operand of a product that is a scalar; 2 if none is. */
static uint32_t
find_scalar(const struct mod_vm *vm, uint16_t product)
{
	const uint16_t *args = vm->mod->nodes[product].args;

	return is_scalar(vm, args[1]) ? 1 : is_scalar(vm, args[0]) ? 0 : 2;
}

/* A float conversion of an int of shape BOTH: a ramp, if the int turns out to have a slope. */
static bool
may_be_ramp(const struct mod_vm *vm, uint16_t number)
{
	return is_only(vm, number, MOD_OP_TO_FLOAT) && vm->mod->nodes[vm->mod->nodes[number].args[0]].type == MOD_INT;
}

/* Fuses operand `side` of a sum, if it is a product or may be a ramp. */
static bool
join_side(struct mod_vm *vm, uint16_t sum, uint32_t side)
{
	const struct mod_node *nodes = vm->mod->nodes;
	uint16_t part = nodes[sum].args[side], other = nodes[sum].args[1 - side], factor = MOD_NO_NODE, by = part;
	struct vm_join *join = &vm->slots[sum].join;
	uint32_t scalar;

	if (!is_both(vm, other))
		return false;
	if (is_only(vm, part, MOD_OP_MUL)) {
		scalar = find_scalar(vm, part);
		if (scalar == 2)
			return false;
		factor = nodes[part].args[scalar];
		by = nodes[part].args[1 - scalar];
		vm->slots[part].into = sum;
	} else if (!may_be_ramp(vm, part)) {
		return false;
	}
	*join = (struct vm_join){ .kind = VM_PRODUCT,
				  .in = { other, factor, by },
				  .negative = nodes[sum].op == MOD_OP_SUB };
	if (may_be_ramp(vm, by)) {
		vm->slots[by].into = sum;
		join->kind = VM_RAMP;
	}
	return true;
}

static bool
has_scaled(const struct mod_vm *vm, uint16_t number)
{
	return is_both(vm, number) && vm->ops->of_scaled[vm->mod->nodes[number].op] != NULL;
}

/* Fuses `function`, applied to a scaled value or not, and the multiplication by `factor`, into `number`. */
static void
join_function(struct mod_vm *vm, uint16_t number, uint16_t function, uint16_t factor)
{
	const struct mod_node *nodes = vm->mod->nodes;
	uint16_t of = nodes[function].args[0];
	struct vm_join join = { .kind = VM_SCALED, .function = nodes[function].op, .in = { of, MOD_NO_NODE, factor } };
	uint32_t scalar = 2;

	if (is_only(vm, of, MOD_OP_MUL))
		scalar = find_scalar(vm, of);
	else if (is_only(vm, of, MOD_OP_DIV) && is_scalar(vm, nodes[of].args[1]))
		scalar = 1;
	if (scalar != 2) {
		join.kind = nodes[of].op == MOD_OP_DIV ? VM_DIVIDED : VM_SCALED;
		join.in[0] = nodes[of].args[1 - scalar];
		join.in[1] = nodes[of].args[scalar];
	}
	/* of_scaled and of_divided take only in[0] as a BOTH value. */
	if (!is_both(vm, join.in[0]) || (scalar == 2 && factor == MOD_NO_NODE))
		return;
	if (scalar != 2)
		vm->slots[of].into = number;
	if (function != number)
		vm->slots[function].into = number;
	vm->slots[number].join = join;
}

static void
join_node(struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];

	if (!is_both(vm, number))
		return;
	if (node->op == MOD_OP_ADD && join_side(vm, number, 1))
		return;
	if (node->op == MOD_OP_ADD || node->op == MOD_OP_SUB)
		join_side(vm, number, node->op == MOD_OP_ADD ? 0 : 1);
	else if (has_scaled(vm, number))
		join_function(vm, number, number, MOD_NO_NODE);
	else if (node->op == MOD_OP_MUL && find_scalar(vm, number) != 2) {
		uint32_t scalar = find_scalar(vm, number);
		uint16_t other = node->args[1 - scalar];

		if (has_scaled(vm, other) && is_read_once(vm, other))
			join_function(vm, number, other, node->args[scalar]);
	}
}

void
vm_join_nodes(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		vm->slots[i].into = (uint16_t)i;
	/* Readers follow their operands, so a backward pass visits readers first. */
	for (uint32_t i = vm->mod->n_nodes; i-- > 0;)
		if (vm->slots[i].into == i)
			join_node(vm, (uint16_t)i);
}

/* A fused operation that is the only reader of the scores also multiplies them by scale. */
static uint16_t
find_scaler(const struct mod_vm *vm)
{
	if (vm->score == MOD_NO_NODE || !is_read_once(vm, vm->score))
		return MOD_NO_NODE;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->slots[i].into == i && vm->slots[i].join.kind != VM_ALONE &&
		    vm->slots[i].join.in[0] == vm->score)
			return (uint16_t)i;
	return MOD_NO_NODE;
}

void
vm_join_settle(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		struct vm_join *join = &vm->slots[i].join;

		if (join->kind != VM_RAMP || vm->slots[vm->mod->nodes[join->in[2]].args[0]].shape == VM_SLOPE)
			continue;
		vm->slots[join->in[2]].into = join->in[2];
		join->kind = join->in[1] == MOD_NO_NODE ? VM_ALONE : VM_PRODUCT;
	}
	vm->scaler = find_scaler(vm);
}
