/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operator fusion: sums with a product, and functions of a scaled value, so that intermediate values
 * are not written to memory.  The bits are those of the separate operations.
 */
#include "config.h"

#include "kernels/mod/vm_state.h"

static bool
is_float_per_element(const struct mod_vm *vm, uint16_t number)
{
	return vm->slots[number].shape == VM_PER_ELEMENT && vm->mod->nodes[number].type == MOD_FLOAT;
}

/* A float that is the same for all keys: one per q_row, or one for all. */
static bool
is_float_per_q_row(const struct mod_vm *vm, uint16_t number)
{
	enum vm_shape shape = vm->slots[number].shape;

	return vm->mod->nodes[number].type == MOD_FLOAT && (shape == VM_UNIFORM || shape == VM_PER_Q_ROW);
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
is_single_use_of(const struct mod_vm *vm, uint16_t number, enum mod_op op)
{
	return vm->mod->nodes[number].op == op && is_float_per_element(vm, number) && is_read_once(vm, number);
}

/* Index of the operand of a product that is a scalar; 2 if none is. */
static uint32_t
find_scalar(const struct mod_vm *vm, uint16_t product)
{
	const uint16_t *args = vm->mod->nodes[product].args;

	return is_float_per_q_row(vm, args[1]) ? 1 : is_float_per_q_row(vm, args[0]) ? 0 : 2;
}

/* A float conversion of an int of shape VM_PER_ELEMENT: a ramp, if the int turns out to have a slope. */
static bool
may_be_ramp(const struct mod_vm *vm, uint16_t number)
{
	return is_single_use_of(vm, number, MOD_OP_TO_FLOAT) &&
	       vm->mod->nodes[vm->mod->nodes[number].args[0]].type == MOD_INT;
}

/* Fuses operand `side` of a sum, if it is a product or may be a ramp. */
static bool
fuse_sum_operand(struct mod_vm *vm, uint16_t sum, uint32_t side)
{
	const struct mod_node *nodes = vm->mod->nodes;
	uint16_t part = nodes[sum].args[side], other = nodes[sum].args[1 - side], factor = MOD_NO_NODE, by = part;
	struct vm_fusion *fusion = &vm->slots[sum].fusion;
	uint32_t scalar;

	if (!is_float_per_element(vm, other))
		return false;
	if (is_single_use_of(vm, part, MOD_OP_MUL)) {
		scalar = find_scalar(vm, part);
		if (scalar == 2)
			return false;
		factor = nodes[part].args[scalar];
		by = nodes[part].args[1 - scalar];
		vm->slots[part].fused_into = sum;
	} else if (!may_be_ramp(vm, part)) {
		return false;
	}
	*fusion = (struct vm_fusion){ .kind = VM_SUM_OF_PRODUCT,
				      .in = { other, factor, by },
				      .negative = nodes[sum].op == MOD_OP_SUB };
	if (may_be_ramp(vm, by)) {
		vm->slots[by].fused_into = sum;
		fusion->kind = VM_SUM_OF_RAMP;
	}
	return true;
}

static bool
has_scaled(const struct mod_vm *vm, uint16_t number)
{
	return is_float_per_element(vm, number) && vm->ops->of_scaled[vm->mod->nodes[number].op] != NULL;
}

/* Fuses `function`, applied to a scaled value or not, and the multiplication by `factor`, into `number`. */
static void
fuse_function(struct mod_vm *vm, uint16_t number, uint16_t function, uint16_t factor)
{
	const struct mod_node *nodes = vm->mod->nodes;
	uint16_t of = nodes[function].args[0];
	struct vm_fusion fusion = { .kind = VM_FUNCTION_OF_PRODUCT,
				    .function = nodes[function].op,
				    .in = { of, MOD_NO_NODE, factor } };
	uint32_t scalar = 2;

	if (is_single_use_of(vm, of, MOD_OP_MUL))
		scalar = find_scalar(vm, of);
	else if (is_single_use_of(vm, of, MOD_OP_DIV) && is_float_per_q_row(vm, nodes[of].args[1]))
		scalar = 1;
	if (scalar != 2) {
		fusion.kind = nodes[of].op == MOD_OP_DIV ? VM_FUNCTION_OF_QUOTIENT : VM_FUNCTION_OF_PRODUCT;
		fusion.in[0] = nodes[of].args[1 - scalar];
		fusion.in[1] = nodes[of].args[scalar];
	}
	/* of_scaled and of_divided take only in[0] as a VM_PER_ELEMENT value. */
	if (!is_float_per_element(vm, fusion.in[0]) || (scalar == 2 && factor == MOD_NO_NODE))
		return;
	if (scalar != 2)
		vm->slots[of].fused_into = number;
	if (function != number)
		vm->slots[function].fused_into = number;
	vm->slots[number].fusion = fusion;
}

static void
fuse_node(struct mod_vm *vm, uint16_t number)
{
	const struct mod_node *node = &vm->mod->nodes[number];

	if (!is_float_per_element(vm, number))
		return;
	if (node->op == MOD_OP_ADD && fuse_sum_operand(vm, number, 1))
		return;
	if (node->op == MOD_OP_ADD || node->op == MOD_OP_SUB)
		fuse_sum_operand(vm, number, node->op == MOD_OP_ADD ? 0 : 1);
	else if (has_scaled(vm, number))
		fuse_function(vm, number, number, MOD_NO_NODE);
	else if (node->op == MOD_OP_MUL && find_scalar(vm, number) != 2) {
		uint32_t scalar = find_scalar(vm, number);
		uint16_t other = node->args[1 - scalar];

		if (has_scaled(vm, other) && is_read_once(vm, other))
			fuse_function(vm, number, other, node->args[scalar]);
	}
}

void
vm_fuse_nodes(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		vm->slots[i].fused_into = (uint16_t)i;
	/* Readers follow their operands, so a backward pass visits readers first. */
	for (uint32_t i = vm->mod->n_nodes; i-- > 0;)
		if (vm->slots[i].fused_into == i)
			fuse_node(vm, (uint16_t)i);
}

/* A fused operation that is the only reader of the scores also multiplies them by scale. */
static uint16_t
find_scaling_node(const struct mod_vm *vm)
{
	if (vm->score == MOD_NO_NODE || !is_read_once(vm, vm->score))
		return MOD_NO_NODE;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->slots[i].fused_into == i && vm->slots[i].fusion.kind != VM_NOT_FUSED &&
		    vm->slots[i].fusion.in[0] == vm->score)
			return (uint16_t)i;
	return MOD_NO_NODE;
}

void
vm_fuse_finish(struct mod_vm *vm)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		struct vm_fusion *fusion = &vm->slots[i].fusion;

		if (fusion->kind != VM_SUM_OF_RAMP ||
		    vm->slots[vm->mod->nodes[fusion->in[2]].args[0]].shape == VM_LINEAR)
			continue;
		vm->slots[fusion->in[2]].fused_into = fusion->in[2];
		fusion->kind = fusion->in[1] == MOD_NO_NODE ? VM_NOT_FUSED : VM_SUM_OF_PRODUCT;
	}
	vm->scaling_node = find_scaling_node(vm);
}
