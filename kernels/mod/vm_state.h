/* SPDX-License-Identifier: Apache-2.0 */
/**
 * vm_state.h - struct mod_vm: where the values of a mod's nodes are stored and when they are computed
 *
 * mod_vm_set_q_rows() computes nodes of shape VM_UNIFORM and VM_PER_Q_ROW.  Each tile computes nodes of shape
 * VM_PER_KEY and VM_LINEAR once, and nodes of shape VM_PER_ELEMENT once for every group of q_rows.
 */
#ifndef PAGED_KERNELS_MOD_VM_STATE_H
#define PAGED_KERNELS_MOD_VM_STATE_H

#include "kernels/mod/vm_ops.h"

#define VM_TILE_ROW MOD_TILE_KEYS

_Static_assert(MOD_TILE_Q_ROWS <= VM_TILE_ROW, "the q_rows' values fit a tile row");

enum vm_shape { VM_UNIFORM, VM_PER_Q_ROW, VM_PER_KEY, VM_LINEAR, VM_PER_ELEMENT, VM_N_SHAPES };

/** The difference from key to key is not constant, or not -1, 0 or 1. */
#define VM_NO_SLOPE INT8_MAX

/** How a node is fused with operands that no other node reads. */
enum vm_fusion_kind {
	VM_NOT_FUSED,
	VM_SUM_OF_PRODUCT,
	VM_SUM_OF_RAMP,
	VM_FUNCTION_OF_PRODUCT,
	VM_FUNCTION_OF_QUOTIENT
};

struct vm_fusion {
	enum vm_fusion_kind kind;
	enum mod_op function; /* of VM_FUNCTION_OF_PRODUCT and VM_FUNCTION_OF_QUOTIENT */
	uint16_t in[3];       /* nodes that vm_ops.h's functions read; MOD_NO_NODE stands for 1.0 */
	bool negative;        /* subtract the product */
};

struct vm_slot {
	int32_t *values;
	enum vm_shape shape;
	bool as_bitmasks;    /* a condition of shape VM_PER_ELEMENT, stored as one bitmask per q_row */
	bool linear_compare; /* a comparison computed by bitmasks_of_linear */
	int8_t slope;        /* of an int: what each key adds, or VM_NO_SLOPE */
	/* the node that computes this one as part of a fused operation; the node itself if none does */
	uint16_t fused_into;
	struct vm_fusion fusion;
	uint64_t out_of_bounds; /* of a load not of shape VM_PER_ELEMENT: elements with an index out of bounds */
};

struct mod_vm {
	const struct mod *mod;
	const struct vm_ops *ops;
	const struct mod_binding *binding;
	struct vm_slot slots[MOD_MAX_NODES];
	void *memory;
	uint16_t score;        /* the node of the scores, or MOD_NO_NODE */
	uint16_t scaling_node; /* the node whose operation includes the scale of the scores, or MOD_NO_NODE */
	float scale;           /* of the current call */
	int32_t *own_score;    /* buffers for the score and the result, if they are not the caller's scores */
	int32_t *own_result;
	uint32_t group_q_rows; /* VM_GROUP_Q_ROWS, or all q_rows if no node stores a tile row per q_row */
	uint32_t n_q_rows;
	uint64_t keys;        /* live keys of the tile, one bit each */
	const uint64_t *live; /* live keys of the tile's q_rows from live_first on, or NULL: all keys */
	uint32_t live_first;
	bool out_of_bounds[VM_N_SHAPES]; /* some load of that shape has such elements */
	uint32_t n_by_shape[VM_N_SHAPES];
	uint16_t by_shape[VM_N_SHAPES][MOD_MAX_NODES]; /* nodes of each shape, in order */
	struct mod_bad_index bad_index;
};

/** The q_rows that a VM_PER_ELEMENT operation processes. */
struct vm_group {
	uint32_t begin, n;
};

/** vm_is_logic - true if the operation can be computed on bitmasks of conditions, with bitmasks as result */
static inline bool
vm_is_logic(const struct mod_node *node)
{
	return node->op == MOD_OP_NOT || node->op == MOD_OP_AND || node->op == MOD_OP_OR ||
	       (node->op == MOD_OP_SELECT && node->type == MOD_BOOL);
}

/** vm_first_bits - mask of the n lowest bits, n in 1 .. 64 */
static inline uint64_t
vm_first_bits(uint32_t n)
{
	return UINT64_MAX >> (64 - n);
}

/** vm_live - the live keys of a q_row */
static inline uint64_t
vm_live(const struct mod_vm *vm, uint32_t q_row)
{
	return vm->live == NULL ? vm->keys : vm->live[q_row - vm->live_first] & vm->keys;
}

/** vm_fuse_nodes - choose fused operations and set `fused_into` and `fusion` of all nodes; shapes must be known */
void vm_fuse_nodes(struct mod_vm *vm);

/** vm_fuse_finish - undo fusions that need a slope and have none, and choose the scaling node; slopes must be known */
void vm_fuse_finish(struct mod_vm *vm);

/** vm_plan - choose how each node's values are stored, and allocate memory for them; PAGED_ERR_NOMEM */
enum paged_status vm_plan(struct mod_vm *vm, struct paged_error *error);

/** vm_operand_read - operand of an operation of `shape` for a node's values */
struct vm_operand vm_operand_read(const struct mod_vm *vm, uint16_t node, enum vm_shape shape,
				  const struct vm_group *group);

/**
 * vm_bitmasks - bitmasks of a condition for a group of q_rows, however it is stored; may be written to
 * room[MOD_TILE_Q_ROWS]
 */
const uint64_t *vm_bitmasks(const struct mod_vm *vm, uint16_t number, const struct vm_group *group, uint64_t *room);

/** vm_load - execute a load of n values per tile row */
void vm_load(struct mod_vm *vm, uint16_t number, uint32_t n, const struct vm_group *group);

/**
 * vm_report_out_of_bounds - record the first index out of bounds that a live element of the group reaches
 *
 * Covers the loads that are not of shape VM_PER_ELEMENT; those of that shape record their indexes when they are
 * computed.  Call it after all nodes were computed for the group.
 */
void vm_report_out_of_bounds(struct mod_vm *vm, const struct vm_group *group);

#endif
