/* SPDX-License-Identifier: Apache-2.0 */
/**
 * vm_inside.h - a mod_vm: where the values of a mod's nodes lie, and when they are computed
 *
 * Nodes of shape ONE and LINES are computed by mod_vm_lines(), of KEYS and
 * SLOPE once a tile, of BOTH once for every group of lines of a tile.
 */
#ifndef PAGED_KERNELS_MOD_VM_INSIDE_H
#define PAGED_KERNELS_MOD_VM_INSIDE_H

#include "kernels/mod/vm.h"

#define VM_ROW MOD_TILE_KEYS

_Static_assert(MOD_TILE_LINES <= VM_ROW, "the lines' values fit a row");

enum vm_shape { VM_ONE, VM_LINES, VM_KEYS, VM_SLOPE, VM_BOTH, VM_N_SHAPES };

/** Not the same difference from key to key, or another than -1, 0, 1. */
#define VM_NO_SLOPE INT8_MAX

/** Operations that are done at once: the reader of those that nobody else reads says which. */
enum vm_join_kind { VM_ALONE, VM_PRODUCT, VM_RAMP, VM_SCALED, VM_DIVIDED };

struct vm_join {
	enum vm_join_kind kind;
	enum mod_op function; /* of VM_SCALED and VM_DIVIDED */
	uint16_t in[3];       /* nodes that vm.h's functions read, of which MOD_NO_NODE is 1.0 */
	bool negative;        /* the product is subtracted */
};

struct vm_slot {
	int32_t *at;
	enum vm_shape shape;
	bool words;      /* a condition, of shape BOTH, as a word a line */
	bool sloping;    /* a comparison for words_of_slopes */
	int8_t slope;    /* of an int: what each key adds, or VM_NO_SLOPE */
	uint16_t into;   /* the node that computes this one on its way; itself, if none does */
	struct vm_join join;
	uint64_t strays; /* of a load not of shape BOTH: elements with an index out of bounds */
};

struct mod_vm {
	const struct mod *mod;
	const struct vm_ops *ops;
	const struct mod_binding *binding;
	struct vm_slot slots[MOD_MAX_NODES];
	void *memory;
	uint16_t score;     /* the scores' node, or MOD_NO_NODE */
	uint16_t scaler;    /* the node that multiplies them by scale on its way, or MOD_NO_NODE */
	float scale;        /* of the call that is under way */
	int32_t *own_score; /* where it and the result lie, unless in the caller's scores */
	int32_t *own_result;
	uint32_t group_lines; /* VM_GROUP, or all where nothing keeps a row a line */
	uint32_t n_lines;
	uint64_t keys;        /* of the tile: a bit each */
	const uint64_t *live; /* of the tile's lines from live_first on, or NULL: all keys */
	uint32_t live_first;
	bool strays[VM_N_SHAPES]; /* some load of that shape has */
	uint32_t n_by_shape[VM_N_SHAPES];
	uint16_t by_shape[VM_N_SHAPES][MOD_MAX_NODES]; /* nodes in order */
	struct mod_range range;
};

/** The part of the lines that a BOTH operation works on. */
struct vm_group {
	uint32_t begin, n;
};

/** vm_is_logic - it can be computed on words of conditions, and gives such */
static inline bool
vm_is_logic(const struct mod_node *node)
{
	return node->op == MOD_OP_NOT || node->op == MOD_OP_AND || node->op == MOD_OP_OR ||
	       (node->op == MOD_OP_SELECT && node->type == MOD_BOOL);
}

/** vm_first_bits - n of them, 1 .. 64 */
static inline uint64_t
vm_first_bits(uint32_t n)
{
	return UINT64_MAX >> (64 - n);
}

/** vm_live - a line's keys that count */
static inline uint64_t
vm_live(const struct mod_vm *vm, uint32_t line)
{
	return vm->live == NULL ? vm->keys : vm->live[line - vm->live_first] & vm->keys;
}

/** vm_join_nodes - after shapes: choose what is done at once, set `into` and `join` of all nodes */
void vm_join_nodes(struct mod_vm *vm);

/** vm_join_settle - once slopes are known: give up what needs one and has none, and choose the scaler */
void vm_join_settle(struct mod_vm *vm);

/** vm_plan - what each node's values are kept as, and memory for them; PAGED_ERR_NOMEM */
enum paged_status vm_plan(struct mod_vm *vm, struct paged_error *error);

/** vm_read - how an operation of `shape` reads a node's values */
struct vm_operand vm_read(const struct mod_vm *vm, uint16_t node, enum vm_shape shape, const struct vm_group *group);

/** vm_words - a condition's words of these lines, whatever it is kept as; where they lie, or put into
 * room[MOD_TILE_LINES] */
const uint64_t *vm_words(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *room);

/** vm_load - a load of n values a row */
void vm_load(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group);

/** vm_tell - record what live elements of these lines reach of the strays; once all else of them is computed */
void vm_tell(struct mod_vm *vm, const struct vm_group *group);

#endif
