/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: each node of a mod over all its values at once. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/vm.h"

#define ROW MOD_TILE_KEYS
#define SMALL_BYTES (ROW * sizeof(int32_t))            /* of ONE, LINES and KEYS */
#define LARGE_BYTES (VM_LINES * ROW * sizeof(int32_t)) /* of BOTH */

_Static_assert(MOD_TILE_LINES <= ROW, "the lines' values fit a row");

enum shape { ONE, LINES, KEYS, BOTH };

struct slot {
	int32_t *at;
	enum shape shape;
	bool words; /* a condition, of shape BOTH, as a word a line */
};

struct mod_vm {
	const struct mod *mod;
	const struct vm_ops *ops;
	const struct mod_binding *binding;
	struct slot slots[MOD_MAX_NODES];
	void *memory;
	uint32_t n_lines;
	uint32_t n_by_shape[4];
	uint16_t by_shape[4][MOD_MAX_NODES]; /* nodes in order */
	struct mod_range range;
};

static enum shape
shape_of(uint32_t inputs)
{
	bool lines = (inputs & (MOD_ON_H | MOD_ON_Q)) != 0, keys = (inputs & MOD_ON_KV) != 0;

	if (inputs & MOD_ON_SCORE || (lines && keys))
		return BOTH;
	return keys ? KEYS : lines ? LINES : ONE;
}

static bool
is_logic(enum mod_op op)
{
	return op == MOD_OP_NOT || op == MOD_OP_AND || op == MOD_OP_OR;
}

static bool
is_comparison(enum mod_op op)
{
	return op >= MOD_OP_LT && op <= MOD_OP_NE;
}

/* The conditions of each key and line that are only there to be combined into a mask are bits from the start. */
static void
choose_words(struct mod_vm *vm)
{
	const struct mod *mod = vm->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++)
		vm->slots[i].words =
			vm->slots[i].shape == BOTH && (is_logic(mod->nodes[i].op) || is_comparison(mod->nodes[i].op));
	vm->slots[mod->n_nodes - 1].words &= mod->kind == MOD_MASK;
	/* Users come behind what they use. */
	for (uint32_t i = mod->n_nodes; i-- > 0;) {
		const struct mod_node *node = &mod->nodes[i];

		for (uint32_t j = 0; j < node->n_args; j++)
			vm->slots[node->args[j]].words &= vm->slots[i].words && is_logic(node->op);
		if (node->op == MOD_OP_LOAD && node->guard != MOD_NO_NODE)
			vm->slots[node->guard].words = false;
	}
}

static const struct vm_ops *
ops_of(enum kernel_isa isa)
{
#ifdef PAGED_X86_64
	if (isa == KERNEL_AVX2)
		return &vm_ops_avx2;
	if (isa == KERNEL_AVX512)
		return &vm_ops_avx512;
#else
	(void)isa;
#endif
	return &vm_ops_generic;
}

/* Which node is the last to read each; the result is read at the very end. */
static void
find_last_uses(const struct mod *mod, uint16_t *last)
{
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];

		last[i] = (uint16_t)i;
		for (uint32_t j = 0; j < node->n_args; j++)
			last[node->args[j]] = (uint16_t)i;
		if (node->op == MOD_OP_LOAD && node->guard != MOD_NO_NODE)
			last[node->guard] = (uint16_t)i;
	}
	last[mod->n_nodes - 1] = UINT16_MAX;
}

/*
 * A place of its own for every value but those of BOTH, which share places
 * once their last reader is done.  Returns how many of each are needed;
 * `place` gets the number.
 */
static uint32_t
place_large(const struct mod_vm *vm, uint16_t *place)
{
	uint16_t last[MOD_MAX_NODES], taken_until[MOD_MAX_NODES];
	uint32_t n = 0;

	find_last_uses(vm->mod, last);
	/* The scores are there from the beginning. */
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		if (vm->mod->nodes[i].op != MOD_OP_SCORE)
			continue;
		place[i] = 0;
		taken_until[0] = last[i];
		n = 1;
	}
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		uint32_t p = 0;

		if (vm->slots[i].shape != BOTH || vm->mod->nodes[i].op == MOD_OP_SCORE)
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
	/* Values past the last key are computed too: they shall be the same everywhere. */
	memset(vm->memory, 0, size);
	small = (uint8_t *)vm->memory + n_large * LARGE_BYTES;
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++)
		vm->slots[i].at =
			(int32_t *)(void *)(vm->slots[i].shape == BOTH ? (uint8_t *)vm->memory + place[i] * LARGE_BYTES
								       : small + n_small++ * SMALL_BYTES);
	return PAGED_OK;
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
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		enum shape shape = shape_of(mod->nodes[i].inputs);

		vm->slots[i].shape = shape;
		vm->by_shape[shape][vm->n_by_shape[shape]++] = (uint16_t)i;
	}
	choose_words(vm);
	status = allocate(vm, error);
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

/* The part of the lines that a BOTH operation works on. */
struct lines {
	uint32_t begin, n;
};

/* How an operation of `shape` reads a node's values. */
static struct vm_operand
operand(const struct mod_vm *vm, uint16_t node, enum shape shape, const struct lines *lines)
{
	const struct slot *slot = &vm->slots[node];

	if (slot->shape == BOTH)
		return (struct vm_operand){ slot->at, ROW, false };
	if (slot->shape == LINES && shape == BOTH)
		return (struct vm_operand){ slot->at + lines->begin, 1, true };
	return (struct vm_operand){ slot->at, 0, slot->shape == ONE };
}

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

static void
run_load(struct mod_vm *vm, const struct mod_node *node, const struct vm_call *call, const struct vm_operand *indexes,
	 const struct vm_operand *guard)
{
	for (uint32_t row = 0; row < call->n_rows; row++) {
		if (guard == NULL && copy_row(vm, node, indexes, row, call->n, &call->to[row * ROW]))
			continue;
		for (uint32_t i = 0; i < call->n; i++) {
			int32_t index[MOD_MAX_INDEXES], *to = &call->to[row * ROW + i];

			if (guard != NULL && value_at(guard, row, i) == 0) {
				*to = 0;
				continue;
			}
			for (uint32_t d = 0; d < node->n_args; d++)
				index[d] = value_at(&indexes[d], row, i);
			*to = load_one(vm, node, index);
		}
	}
}

/* A condition's words of these lines, whatever it is kept as. */
static void
words_of(const struct mod_vm *vm, uint16_t number, const struct lines *lines, uint64_t *words)
{
	const struct slot *slot = &vm->slots[number];
	uint64_t keys = 0;

	if (slot->words) {
		memcpy(words, slot->at, lines->n * sizeof(*words));
		return;
	}
	if (slot->shape == BOTH) {
		vm->ops->bits(words, slot->at, lines->n);
		return;
	}
	if (slot->shape == KEYS)
		vm->ops->bits(&keys, slot->at, 1);
	for (uint32_t i = 0; i < lines->n; i++)
		words[i] = slot->shape == KEYS                                     ? keys
			   : slot->at[slot->shape == LINES ? lines->begin + i : 0] ? UINT64_MAX
										   : 0;
}

static void
run_logic(struct mod_vm *vm, uint16_t number, const struct lines *lines)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	uint64_t *to = (uint64_t *)(void *)vm->slots[number].at, b[VM_LINES] = { 0 };

	words_of(vm, node->args[0], lines, to);
	if (node->n_args > 1)
		words_of(vm, node->args[1], lines, b);
	/* A whole group of lines each time: a loop that the compiler writes out in vectors. */
	if (node->op == MOD_OP_AND)
		for (uint32_t i = 0; i < VM_LINES; i++)
			to[i] &= b[i];
	else if (node->op == MOD_OP_OR)
		for (uint32_t i = 0; i < VM_LINES; i++)
			to[i] |= b[i];
	else
		for (uint32_t i = 0; i < VM_LINES; i++)
			to[i] = ~to[i];
}

static void
run_node(struct mod_vm *vm, uint16_t number, uint32_t n, const struct lines *lines)
{
	const struct mod_node *node = &vm->mod->nodes[number];
	enum shape shape = vm->slots[number].shape;
	bool words = vm->slots[number].words;
	struct vm_call call = { .to = vm->slots[number].at, .n_rows = shape == BOTH ? lines->n : 1, .n = n };
	struct vm_operand indexes[MOD_MAX_INDEXES], guard;
	const vm_fn *table;

	if (node->op == MOD_OP_LOAD) {
		for (uint32_t i = 0; i < node->n_args; i++)
			indexes[i] = operand(vm, node->args[i], shape, lines);
		if (node->guard != MOD_NO_NODE)
			guard = operand(vm, node->guard, shape, lines);
		run_load(vm, node, &call, indexes, node->guard != MOD_NO_NODE ? &guard : NULL);
		return;
	}
	if (words && is_logic(node->op)) {
		run_logic(vm, number, lines);
		return;
	}
	for (uint32_t i = 0; i < node->n_args; i++)
		call.in[i] = operand(vm, node->args[i], shape, lines);
	if (vm->mod->nodes[node->args[node->n_args - 1]].type == MOD_FLOAT)
		table = words ? vm->ops->words_of_float : vm->ops->of_float;
	else
		table = words ? vm->ops->words_of_int : vm->ops->of_int;
	table[node->op](&call);
}

static void
run_shape(struct mod_vm *vm, enum shape shape, uint32_t n, const struct lines *lines)
{
	for (uint32_t i = 0; i < vm->n_by_shape[shape]; i++) {
		uint16_t number = vm->by_shape[shape][i];

		if (vm->mod->nodes[number].n_args > 0)
			run_node(vm, number, n, lines);
	}
}

/* The values that leaves of this kind start with. */
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
	run_shape(vm, ONE, 1, NULL);
	run_shape(vm, LINES, n_lines, NULL);
}

static void
run_keys(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys)
{
	int32_t keys[MOD_TILE_KEYS];

	for (uint32_t i = 0; i < n_keys; i++)
		keys[i] = (int32_t)((uint32_t)kv_idx + i);
	set_leaves(vm, MOD_OP_KV, keys, n_keys);
	run_shape(vm, KEYS, n_keys, NULL);
}

void
mod_vm_mask(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, uint64_t *bits)
{
	uint16_t result = (uint16_t)(vm->mod->n_nodes - 1);
	uint64_t inside = n_keys == 64 ? UINT64_MAX : (UINT64_C(1) << n_keys) - 1;

	run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = 0; begin < vm->n_lines; begin += VM_LINES) {
		struct lines lines = { begin, vm->n_lines - begin < VM_LINES ? vm->n_lines - begin : VM_LINES };

		run_shape(vm, BOTH, n_keys, &lines);
		words_of(vm, result, &lines, bits + begin);
	}
	for (uint32_t i = 0; i < vm->n_lines; i++)
		bits[i] &= inside;
}

static void
take_scores(struct mod_vm *vm, const float *scores, size_t stride, uint32_t n_keys, uint32_t n)
{
	for (uint32_t i = 0; i < vm->mod->n_nodes; i++) {
		if (vm->mod->nodes[i].op != MOD_OP_SCORE)
			continue;
		for (uint32_t row = 0; row < n; row++)
			memcpy(vm->slots[i].at + row * ROW, scores + row * stride, n_keys * sizeof(*scores));
	}
}

static void
give_scores(const struct mod_vm *vm, const struct lines *lines, float *scores, size_t stride, uint32_t n_keys)
{
	struct vm_operand result = operand(vm, (uint16_t)(vm->mod->n_nodes - 1), BOTH, lines);

	for (uint32_t row = 0; row < lines->n; row++) {
		const int32_t *from = result.at + row * result.step;

		if (!result.scalar) {
			memcpy(scores + row * stride, from, n_keys * sizeof(*scores));
			continue;
		}
		for (uint32_t i = 0; i < n_keys; i++)
			memcpy(&scores[row * stride + i], from, sizeof(*scores));
	}
}

void
mod_vm_score(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, float *scores, size_t stride)
{
	run_keys(vm, kv_idx, n_keys);
	for (uint32_t begin = 0; begin < vm->n_lines; begin += VM_LINES) {
		struct lines lines = { begin, vm->n_lines - begin < VM_LINES ? vm->n_lines - begin : VM_LINES };
		float *from = scores + begin * stride;

		take_scores(vm, from, stride, n_keys, lines.n);
		run_shape(vm, BOTH, n_keys, &lines);
		give_scores(vm, &lines, from, stride, n_keys);
	}
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
