/* SPDX-License-Identifier: Apache-2.0 */
/* The tile VM: evaluates each node of a mod over all its values before the next node. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/vm_state.h"

static const struct vm_ops *
ops_of(enum kernel_isa isa)
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
	vm->ops = ops_of(isa);
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
run_logic(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct vm_call call = { .to = vm->slots[number].at, .n_rows = group->n };
	uint64_t room[3][MOD_TILE_LINES];

	for (uint32_t i = 0; i < node->n_args; i++)
		call.in[i].at = (const int32_t *)(const void *)vm_words(vm, node->args[i], group, room[i]);
	vm->ops->words_of_logic[node->op](&call);
}

static void
run_slopes(struct mod_vm *vm, uint16_t number, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	struct vm_call call = { .to = vm->slots[number].at, .n_rows = group->n };

	for (uint32_t i = 0; i < 2; i++) {
		call.in[i] = vm_read(vm, node->args[i], VM_SLOPE, group);
		call.in[i].at += call.in[i].scalar ? 0 : group->begin;
		call.slopes[i] = vm->slots[node->args[i]].slope;
	}
	vm->ops->words_of_slopes[node->op](&call);
}

static void
run_joined(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	static const float one = 1;
	const struct vm_join *join = &vm->slots[number].join;
	struct vm_call call = { .to = vm->slots[number].at,
				.n_rows = group->n,
				.n = n,
				.negative = join->negative,
				.scale = number == vm->scaler ? vm->scale : 1 };

	for (uint32_t i = 0; i < 3; i++)
		if (join->in[i] == MOD_NO_NODE)
			call.in[i] = (struct vm_operand){ (const int32_t *)(const void *)&one, 0, true };
		else if (i != 2 || join->kind != VM_RAMP)
			call.in[i] = vm_read(vm, join->in[i], VM_BOTH, group);
	if (join->kind == VM_RAMP) {
		const struct vm_slot *first = &vm->slots[vm->mod->nodes[join->in[2]].args[0]];

		call.in[2] = (struct vm_operand){ first->at + group->begin, 1, true };
		call.slopes[0] = first->slope;
		vm->ops->sum_of_ramp(&call);
	} else if (join->kind == VM_PRODUCT) {
		vm->ops->sum_of_product(&call);
	} else {
		(join->kind == VM_SCALED ? vm->ops->of_scaled : vm->ops->of_divided)[join->function](&call);
	}
}

static void
run_node(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum vm_shape shape = vm->slots[number].shape;
	bool words = vm->slots[number].words;
	struct vm_call call = { .to = vm->slots[number].at, .n_rows = shape == VM_BOTH ? group->n : 1, .n = n };
	const vm_fn *table;

	if (node->op == MOD_OP_LOAD) {
		vm_load(vm, number, n, group);
		return;
	}
	if (words && vm_is_logic(node)) {
		run_logic(vm, number, group);
		return;
	}
	if (vm->slots[number].sloping) {
		run_slopes(vm, number, group);
		return;
	}
	if (vm->slots[number].join.kind != VM_ALONE) {
		run_joined(vm, number, n, group);
		return;
	}
	for (uint32_t i = 0; i < node->n_args; i++)
		call.in[i] = vm_read(vm, node->args[i], shape, group);
	if (vm->mod->nodes[node->args[node->n_args - 1]].type == MOD_FLOAT)
		table = words ? vm->ops->words_of_float : vm->ops->of_float;
	else
		table = words ? vm->ops->words_of_int : vm->ops->of_int;
	table[node->op](&call);
}

static void
run_shape(struct mod_vm *vm, enum vm_shape shape, uint32_t n, const struct vm_group *group)
{
	vm->strays[shape] = false;
	for (uint32_t i = 0; i < vm->n_by_shape[shape]; i++) {
		uint16_t number = vm->by_shape[shape][i];

		if (vm->mod->nodes[number].n_args > 0)
			run_node(vm, number, n, group);
	}
}

/* Initial values of all leaf nodes of one kind. */
static void
set_leaves(struct mod_vm *vm, enum mod_op op, const int32_t *values, uint32_t n)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		if (vm->mod->nodes[i].op == op)
			memcpy(vm->slots[i].at, values, n * sizeof(*values));
}

void
mod_vm_bind(struct mod_vm *vm, const struct mod_binding *binding)
{
	vm->binding = binding;
	mod_vm_forget(vm);
	vm->n_lines = 0;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		const struct mod_node *node = &vm->mod->nodes[i];
		struct mod_value value = { node->i, node->f };

		if (node->op == MOD_OP_PARAM)
			value = binding->names[node->name].value;
		else if (node->op != MOD_OP_CONST)
			continue;
		if (node->type == MOD_BOOL)
			value.i = -(value.i != 0);
		memcpy(vm->slots[i].at, node->type == MOD_FLOAT ? (const void *)&value.f : (const void *)&value.i,
		       sizeof(int32_t));
	}
}

void
mod_vm_lines(struct mod_vm *vm, int32_t b, const int32_t *h, const int32_t *q_idx, uint32_t n_lines)
{
	vm->n_lines = n_lines;
	set_leaves(vm, MOD_OP_B, &b, 1);
	set_leaves(vm, MOD_OP_H, h, n_lines);
	set_leaves(vm, MOD_OP_Q, q_idx, n_lines);
	run_shape(vm, VM_ONE, 1, NULL);
	run_shape(vm, VM_LINES, n_lines, NULL);
}

static void
run_keys(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys)
{
	int32_t keys[MOD_TILE_KEYS];

	vm->keys = vm_first_bits(n_keys);
	for (uint32_t i = 0; i < MOD_TILE_KEYS; i++)
		keys[i] = (int32_t)((uint32_t)kv_idx + i);
	set_leaves(vm, MOD_OP_KV, keys, n_keys);
	run_shape(vm, VM_KEYS, n_keys, NULL);
	run_shape(vm, VM_SLOPE, vm->n_lines, NULL);
}

static struct vm_group
group_at(const struct mod_vm *vm, uint32_t begin, uint32_t end)
{
	uint32_t left = end - begin;

	return (struct vm_group){ begin, left < vm->group_lines ? left : vm->group_lines };
}

void
mod_vm_mask(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, uint64_t *bits)
{
	uint16_t result = (uint16_t)(vm->mod->n_nodes - 1);
	uint64_t room[MOD_TILE_LINES];

	vm->live = live;
	vm->live_first = 0;
	run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = 0; begin < vm->n_lines; begin += vm->group_lines) {
		const struct vm_group group = group_at(vm, begin, vm->n_lines);
		const uint64_t *words;

		run_shape(vm, VM_BOTH, n_keys, &group);
		vm_tell(vm, &group);
		words = vm_words(vm, result, &group, room);
		for (uint32_t i = 0; i < group.n; i++)
			bits[begin + i] = words[i] & vm_live(vm, begin + i);
	}
}

static void
take_scores(struct mod_vm *vm, const float *scores, size_t stride, uint32_t n_keys, uint32_t n)
{
	if (vm->score == MOD_NO_NODE)
		return;
	for (uint32_t row = 0; row < n; row++)
		memcpy(vm->slots[vm->score].at + row * VM_ROW, scores + row * stride, n_keys * sizeof(*scores));
}

/* Multiplies the scores by scale, unless a fused operation does it. */
static void
scale_scores(struct mod_vm *vm, uint32_t n_keys, uint32_t n)
{
	struct vm_call call = { .n_rows = n, .n = n_keys };

	if (vm->score == MOD_NO_NODE || vm->scaler != MOD_NO_NODE || vm->scale == 1)
		return;
	call.to = vm->slots[vm->score].at;
	call.in[0] = (struct vm_operand){ call.to, VM_ROW, false };
	call.in[1] = (struct vm_operand){ (const int32_t *)(const void *)&vm->scale, 0, true };
	vm->ops->of_float[MOD_OP_MUL](&call);
}

static void
give_scores(const struct mod_vm *vm, const struct vm_group *group, float *scores, size_t stride, uint32_t n_keys)
{
	struct vm_operand result = vm_read(vm, (uint16_t)(vm->mod->n_nodes - 1), VM_BOTH, group);

	for (uint32_t row = 0; row < group->n; row++) {
		const int32_t *from = result.at + row * result.step;

		if (!result.scalar) {
			memcpy(scores + row * stride, from, n_keys * sizeof(*scores));
			continue;
		}
		for (uint32_t i = 0; i < n_keys; i++)
			memcpy(&scores[row * stride + i], from, sizeof(*scores));
	}
}

/* Sets the buffers of score and result.  They may be the same: operations read a value before they write it. */
static void
place_scores(struct mod_vm *vm, int32_t *score, int32_t *result)
{
	if (vm->score != MOD_NO_NODE)
		vm->slots[vm->score].at = score;
	vm->slots[vm->mod->n_nodes - 1].at = result;
}

void
mod_vm_score_lines(struct mod_vm *vm, uint32_t first, uint32_t n_lines, int32_t kv_idx, uint32_t n_keys,
		   const uint64_t *live, float scale, float *scores, size_t stride)
{
	uint32_t end = first + n_lines;
	enum vm_shape shape = vm->slots[vm->mod->n_nodes - 1].shape;
	/* The caller's rows have the layout of the VM's own, and all keys of each row are written. */
	bool in_place = shape == VM_BOTH && n_keys == VM_ROW && stride == VM_ROW;

	vm->live = live;
	vm->live_first = first;
	vm->scale = scale;
	if (first == 0)
		run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = first; begin < end; begin += vm->group_lines) {
		const struct vm_group group = group_at(vm, begin, end);
		float *from = scores + (begin - first) * stride;

		if (in_place)
			place_scores(vm, (int32_t *)(void *)from, (int32_t *)(void *)from);
		else
			take_scores(vm, from, stride, n_keys, group.n);
		scale_scores(vm, n_keys, group.n);
		run_shape(vm, VM_BOTH, n_keys, &group);
		vm_tell(vm, &group);
		if (!in_place)
			give_scores(vm, &group, from, stride, n_keys);
	}
	if (in_place)
		place_scores(vm, vm->own_score, vm->own_result);
}

void
mod_vm_score(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, float *scores, size_t stride)
{
	mod_vm_score_lines(vm, 0, vm->n_lines, kv_idx, n_keys, live, 1, scores, stride);
}

const struct mod_range *
mod_vm_range(const struct mod_vm *vm)
{
	return &vm->range;
}

void
mod_vm_forget(struct mod_vm *vm)
{
	vm->range = (struct mod_range){ 0 };
}
