/* SPDX-License-Identifier: Apache-2.0 */
/* The tile VM: evaluates each node of a mod over all its values before the next node. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/vm_state.h"

static const struct vm_ops *
vm_ops_for_isa(enum kernel_isa isa)
{
#ifdef PAGED_X86_64
	if (isa == KERNEL_AVX2)
		return &vm_ops_avx2;
	if (isa >= KERNEL_AVX512 && kernel_isa_supported(KERNEL_AVX512))
		return &vm_ops_avx512;
#else
	(void)isa;
#endif
	return &vm_ops_generic;
}

enum paged_status
mod_vm_create(const struct mod *mod, enum kernel_isa isa, struct mod_vm **vm_p, struct paged_error *error)
{
	struct mod_vm *vm;
	enum paged_status status;

	if (!kernel_isa_supported(isa))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "mod: this CPU or build has no %s",
				  kernel_isa_name(isa));
	vm = calloc(1, sizeof(*vm));
	if (vm == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory to evaluate a mod");
	vm->mod = mod;
	vm->ops = vm_ops_for_isa(isa);
	status = vm_plan(vm, error);
	if (status != PAGED_OK) {
		free(vm);
		return status;
	}
	*vm_p = vm;
	return PAGED_OK;
}

void
mod_vm_destroy(struct mod_vm *vm)
{
	if (vm == NULL)
		return;
	free(vm->memory);
	free(vm);
}

static void
vm_run_logic(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct vm_call call = { .to = vm->slots[number].values, .n_tile_rows = group->n };
	uint64_t room[3][MOD_TILE_Q_ROWS];

	for (uint32_t i = 0; i < node->n_args; i++)
		call.in[i].values = (const int32_t *)(const void *)vm_bitmasks(vm, node->args[i], group, room[i]);
	vm->ops->bitmasks_of_logic[node->op](&call);
}

static void
vm_run_linear_compare(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct vm_call call = { .to = vm->slots[number].values, .n_tile_rows = group->n };

	for (uint32_t i = 0; i < 2; i++) {
		call.in[i] = vm_operand_read(vm, node->args[i], VM_LINEAR, group);
		call.in[i].values += call.in[i].scalar ? 0 : group->begin;
		call.slopes[i] = vm->slots[node->args[i]].slope;
	}
	vm->ops->bitmasks_of_linear[node->op](&call);
}

static void
vm_run_fused(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	static const float one = 1;
	const struct vm_fusion *fusion = &vm->slots[number].fusion;
	struct vm_call call = { .to = vm->slots[number].values,
				.n_tile_rows = group->n,
				.n = n,
				.negative = fusion->negative,
				.scale = number == vm->scaling_node ? vm->scale : 1 };

	for (uint32_t i = 0; i < 3; i++)
		if (fusion->in[i] == MOD_NO_NODE)
			call.in[i] = (struct vm_operand){ (const int32_t *)(const void *)&one, 0, true };
		else if (i != 2 || fusion->kind != VM_SUM_OF_RAMP)
			call.in[i] = vm_operand_read(vm, fusion->in[i], VM_PER_ELEMENT, group);
	if (fusion->kind == VM_SUM_OF_RAMP) {
		const struct vm_slot *first = &vm->slots[vm->mod->nodes[fusion->in[2]].args[0]];

		call.in[2] = (struct vm_operand){ first->values + group->begin, 1, true };
		call.slopes[0] = first->slope;
		vm->ops->sum_of_ramp(&call);
	} else if (fusion->kind == VM_SUM_OF_PRODUCT) {
		vm->ops->sum_of_product(&call);
	} else {
		(fusion->kind == VM_FUNCTION_OF_PRODUCT ? vm->ops->of_scaled
							: vm->ops->of_divided)[fusion->function](&call);
	}
}

static void
vm_run_node(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum vm_shape shape = vm->slots[number].shape;
	bool bitmasks = vm->slots[number].as_bitmasks;
	struct vm_call call = { .to = vm->slots[number].values,
				.n_tile_rows = shape == VM_PER_ELEMENT ? group->n : 1,
				.n = n };
	const vm_fn *table;

	if (node->op == MOD_OP_LOAD) {
		vm_load(vm, number, n, group);
		return;
	}
	if (bitmasks && vm_is_logic(node)) {
		vm_run_logic(vm, number, group);
		return;
	}
	if (vm->slots[number].linear_compare) {
		vm_run_linear_compare(vm, number, group);
		return;
	}
	if (vm->slots[number].fusion.kind != VM_NOT_FUSED) {
		vm_run_fused(vm, number, n, group);
		return;
	}
	for (uint32_t i = 0; i < node->n_args; i++)
		call.in[i] = vm_operand_read(vm, node->args[i], shape, group);
	if (vm->mod->nodes[node->args[node->n_args - 1]].type == MOD_FLOAT)
		table = bitmasks ? vm->ops->bitmasks_of_float : vm->ops->of_float;
	else
		table = bitmasks ? vm->ops->bitmasks_of_int : vm->ops->of_int;
	table[node->op](&call);
}

static void
vm_run_shape(struct mod_vm *vm, enum vm_shape shape, uint32_t n, const struct vm_group *group)
{
	vm->out_of_bounds[shape] = false;
	for (uint32_t i = 0; i < vm->n_by_shape[shape]; i++) {
		uint16_t number = vm->by_shape[shape][i];

		if (vm->mod->nodes[number].n_args > 0)
			vm_run_node(vm, number, n, group);
	}
}

/* Initial values of all leaf nodes of one kind. */
static void
vm_set_leaves(struct mod_vm *vm, enum mod_op op, const int32_t *values, uint32_t n)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->mod->nodes[i].op == op)
			memcpy(vm->slots[i].values, values, n * sizeof(*values));
}

void
mod_vm_bind(struct mod_vm *vm, const struct mod_binding *binding)
{
	vm->binding = binding;
	mod_vm_clear_bad_index(vm);
	vm->n_q_rows = 0;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		const struct mod_node *node = &vm->mod->nodes[i];
		struct mod_value value = { node->i, node->f };

		if (node->op == MOD_OP_PARAM)
			value = binding->names[node->name].value;
		else if (node->op != MOD_OP_CONST)
			continue;
		if (node->type == MOD_BOOL)
			value.i = -(value.i != 0);
		memcpy(vm->slots[i].values, node->type == MOD_FLOAT ? (const void *)&value.f : (const void *)&value.i,
		       sizeof(int32_t));
	}
}

void
mod_vm_set_q_rows(struct mod_vm *vm, int32_t b, const int32_t *h, const int32_t *q_idx, uint32_t n_q_rows)
{
	vm->n_q_rows = n_q_rows;
	vm_set_leaves(vm, MOD_OP_B, &b, 1);
	vm_set_leaves(vm, MOD_OP_H, h, n_q_rows);
	vm_set_leaves(vm, MOD_OP_Q, q_idx, n_q_rows);
	vm_run_shape(vm, VM_UNIFORM, 1, NULL);
	vm_run_shape(vm, VM_PER_Q_ROW, n_q_rows, NULL);
}

static void
vm_run_keys(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys)
{
	int32_t keys[MOD_TILE_KEYS];

	vm->keys = vm_first_bits(n_keys);
	for (uint32_t i = 0; i < MOD_TILE_KEYS; i++)
		keys[i] = (int32_t)((uint32_t)kv_idx + i);
	vm_set_leaves(vm, MOD_OP_KV, keys, n_keys);
	vm_run_shape(vm, VM_PER_KEY, n_keys, NULL);
	vm_run_shape(vm, VM_LINEAR, vm->n_q_rows, NULL);
}

static struct vm_group
vm_group_at(const struct mod_vm *vm, uint32_t begin, uint32_t end)
{
	uint32_t left = end - begin;

	return (struct vm_group){ begin, left < vm->group_q_rows ? left : vm->group_q_rows };
}

void
mod_vm_mask(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, uint64_t *bits)
{
	uint16_t result = (uint16_t)(vm->mod->n_nodes - 1);
	uint64_t room[MOD_TILE_Q_ROWS];

	vm->live = live;
	vm->live_first = 0;
	vm_run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = 0; begin < vm->n_q_rows; begin += vm->group_q_rows) {
		const struct vm_group group = vm_group_at(vm, begin, vm->n_q_rows);
		const uint64_t *bitmasks;

		vm_run_shape(vm, VM_PER_ELEMENT, n_keys, &group);
		vm_report_out_of_bounds(vm, &group);
		bitmasks = vm_bitmasks(vm, result, &group, room);
		for (uint32_t i = 0; i < group.n; i++)
			bits[begin + i] = bitmasks[i] & vm_live(vm, begin + i);
	}
}

static void
vm_copy_scores_in(struct mod_vm *vm, const float *scores, size_t stride, uint32_t n_keys, uint32_t n)
{
	if (vm->score == MOD_NO_NODE)
		return;
	for (uint32_t tile_row = 0; tile_row < n; tile_row++)
		memcpy(vm->slots[vm->score].values + tile_row * VM_TILE_ROW, scores + tile_row * stride,
		       n_keys * sizeof(*scores));
}

/* Multiplies the scores by scale, unless a fused operation does it. */
static void
vm_scale_scores(struct mod_vm *vm, uint32_t n_keys, uint32_t n)
{
	struct vm_call call = { .n_tile_rows = n, .n = n_keys };

	if (vm->score == MOD_NO_NODE || vm->scaling_node != MOD_NO_NODE || vm->scale == 1)
		return;
	call.to = vm->slots[vm->score].values;
	call.in[0] = (struct vm_operand){ call.to, VM_TILE_ROW, false };
	call.in[1] = (struct vm_operand){ (const int32_t *)(const void *)&vm->scale, 0, true };
	vm->ops->of_float[MOD_OP_MUL](&call);
}

static void
vm_copy_scores_out(const struct mod_vm *vm, const struct vm_group *group, float *scores, size_t stride, uint32_t n_keys)
{
	struct vm_operand result = vm_operand_read(vm, (uint16_t)(vm->mod->n_nodes - 1), VM_PER_ELEMENT, group);

	for (uint32_t tile_row = 0; tile_row < group->n; tile_row++) {
		const int32_t *from = result.values + tile_row * result.step;

		if (!result.scalar) {
			memcpy(scores + tile_row * stride, from, n_keys * sizeof(*scores));
			continue;
		}
		for (uint32_t i = 0; i < n_keys; i++)
			memcpy(&scores[tile_row * stride + i], from, sizeof(*scores));
	}
}

/* Sets the buffers of score and result.  They may be the same: operations read a value before they write it. */
static void
vm_set_score_buffers(struct mod_vm *vm, int32_t *score, int32_t *result)
{
	if (vm->score != MOD_NO_NODE)
		vm->slots[vm->score].values = score;
	vm->slots[vm->mod->n_nodes - 1].values = result;
}

void
mod_vm_score_q_rows(struct mod_vm *vm, uint32_t first, uint32_t n_q_rows, int32_t kv_idx, uint32_t n_keys,
		    const uint64_t *live, float scale, float *scores, size_t stride)
{
	uint32_t end = first + n_q_rows;
	enum vm_shape shape = vm->slots[vm->mod->n_nodes - 1].shape;
	/* The caller's scores have the layout of the VM's own, and all keys of each q_row are written. */
	bool in_place = shape == VM_PER_ELEMENT && n_keys == VM_TILE_ROW && stride == VM_TILE_ROW;

	vm->live = live;
	vm->live_first = first;
	vm->scale = scale;
	if (first == 0)
		vm_run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = first; begin < end; begin += vm->group_q_rows) {
		const struct vm_group group = vm_group_at(vm, begin, end);
		float *from = scores + (begin - first) * stride;

		if (in_place)
			vm_set_score_buffers(vm, (int32_t *)(void *)from, (int32_t *)(void *)from);
		else
			vm_copy_scores_in(vm, from, stride, n_keys, group.n);
		vm_scale_scores(vm, n_keys, group.n);
		vm_run_shape(vm, VM_PER_ELEMENT, n_keys, &group);
		vm_report_out_of_bounds(vm, &group);
		if (!in_place)
			vm_copy_scores_out(vm, &group, from, stride, n_keys);
	}
	if (in_place)
		vm_set_score_buffers(vm, vm->own_score, vm->own_result);
}

void
mod_vm_score(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, float *scores, size_t stride)
{
	mod_vm_score_q_rows(vm, 0, vm->n_q_rows, kv_idx, n_keys, live, 1, scores, stride);
}

const struct mod_bad_index *
mod_vm_bad_index(const struct mod_vm *vm)
{
	return &vm->bad_index;
}

void
mod_vm_clear_bad_index(struct mod_vm *vm)
{
	vm->bad_index = (struct mod_bad_index){ 0 };
}
