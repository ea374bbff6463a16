/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ir.h - the intermediate representation of a mod: typed operations in SSA form
 *
 * nodes[0 .. n_nodes-1]: operands precede their users, each computation occurs once, and the result is
 * last.  Nodes are numbered in the expression's left-to-right order, so equal expressions have equal
 * node arrays.
 *
 * Conversions are explicit nodes: the operands of an operation have exactly the types that it needs.
 * A load has a guard: the condition under which the expression reaches it, formed from the left sides
 * of the && and || and the conditions of the ?: around it.  Therefore an evaluator may compute all nodes in
 * order and skip the loads whose guard is false, or walk from the result and skip the side that is not
 * taken.
 */
#ifndef PAGED_KERNELS_MOD_IR_H
#define PAGED_KERNELS_MOD_IR_H

#include "kernels/mod/mod.h"

enum mod_type { MOD_BOOL, MOD_INT, MOD_FLOAT };

/* Operations; the names of variables and functions among them in mod texts and in CUDA C. */
#define MOD_OPERATIONS(X)                                        \
	X(CONST, "")                                             \
	X(SCORE, "score")                                        \
	X(B, "b")                                                \
	X(H, "h")                                                \
	X(Q, "q_idx")                                            \
	X(KV, "kv_idx")                                          \
	X(PARAM, "")                                             \
	X(LOAD, "") /* int indexes */                            \
                                                                 \
	X(NOT, "!") /* bool */                                   \
	X(AND, "")                                               \
	X(OR, "")                                                \
	X(SELECT, "") /* bool ? type : type */                   \
                                                                 \
	X(LT, "") /* two ints or two floats to bool */           \
	X(LE, "")                                                \
	X(EQ, "")                                                \
	X(NE, "")                                                \
                                                                 \
	X(ADD, "add") /* two of the node's type, int or float */ \
	X(SUB, "sub")                                            \
	X(MUL, "mul")                                            \
	X(DIV, "div") /* int: towards minus infinity */          \
	X(MIN, "min")                                            \
	X(MAX, "max")                                            \
	X(NEG, "neg")                                            \
	X(ABS, "abs")                                            \
                                                                 \
	X(MOD, "mod") /* int */                                  \
	X(BITAND, "")                                            \
	X(BITOR, "")                                             \
	X(BITXOR, "")                                            \
	X(SHL, "shl")                                            \
	X(SHR, "shr")                                            \
	X(BITNOT, "~")                                           \
                                                                 \
	X(EXP, "exp") /* float */                                \
	X(EXP2, "exp2")                                          \
	X(LOG, "log")                                            \
	X(TANH, "tanh")                                          \
	X(SIN, "sin")                                            \
	X(COS, "cos")                                            \
	X(TAN, "tan")                                            \
	X(SIGMOID, "sigmoid")                                    \
	X(SQRT, "sqrt")                                          \
	X(FLOOR, "floor")                                        \
                                                                 \
	X(TO_INT, "int")     /* float to int */                  \
	X(TO_FLOAT, "float") /* int to float */                  \
	X(FROM_BOOL, "int")  /* bool to int, 0 or 1 */

#define MOD_OP_NUMBER(op, name) MOD_OP_##op,

enum mod_op { MOD_OPERATIONS(MOD_OP_NUMBER) MOD_N_OPS };

extern const char *const mod_op_names[MOD_N_OPS];

_Static_assert(MOD_ON_SCORE == 1 && MOD_ON_KV == 1 << (MOD_OP_KV - MOD_OP_SCORE), "a bit for each variable, in order");

#define MOD_NO_NODE UINT16_MAX

struct mod_node {
	uint8_t op;   /* enum mod_op */
	uint8_t type; /* enum mod_type of the result */
	uint8_t n_args;
	uint8_t name;   /* of PARAM and LOAD: index into mod->names */
	uint8_t depth;  /* depth of the expression tree, including this node */
	uint8_t inputs; /* enum mod_inputs that the node depends on, guards included */
	uint16_t args[MOD_MAX_INDEXES];
	uint16_t guard; /* of LOAD: a bool node, or MOD_NO_NODE */
	int32_t i;      /* of CONST: bool (0, 1) or int */
	float f;        /* of CONST: float */
};

struct mod_symbol {
	char name[MOD_MAX_NAME + 1];
	enum mod_dtype dtype;
	uint32_t n_dims;
};

struct mod {
	enum mod_kind kind;
	uint32_t n_nodes, n_names;
	struct mod_node *nodes;
	struct mod_symbol names[MOD_MAX_NAMES];
	char *text;
};

struct mod_value {
	int32_t i;
	float f;
};

/** A bound array or parameter; its symbol is mod->names[] at the same index. */
struct mod_bound {
	uint32_t extents[MOD_MAX_INDEXES];
	int64_t strides[MOD_MAX_INDEXES]; /* bytes */
	const uint8_t *data;
	struct mod_value value;            /* of a parameter */
	struct mod_range_tree *range_tree; /* min/max tree of the elements, or NULL */
};

struct mod_binding {
	const struct mod *mod;
	struct mod_bound names[MOD_MAX_NAMES];
};

/** mod_load_element - one element, converted to int or float */
struct mod_value mod_load_element(enum mod_dtype dtype, const uint8_t *element);

/** mod_bad_index_record - record an index out of bounds if it is the first; mod.h lists where indexes are checked */
static inline void
mod_bad_index_record(struct mod_bad_index *bad_index, uint32_t array, uint32_t dim, int32_t index, uint32_t extent)
{
	if (bad_index != NULL && !bad_index->found)
		*bad_index = (struct mod_bad_index){ true, (uint8_t)array, (uint8_t)dim, index, extent };
}

/** mod_int_operation - result of an integer operation (unary operations ignore b) */
int32_t mod_int_operation(enum mod_op op, int32_t a, int32_t b);

/** Unary float functions in float64, except NEG and ABS; NULL for other operations. */
extern double (*const mod_float_functions[MOD_N_OPS])(double x);

static inline bool
mod_dtype_is_float(enum mod_dtype dtype)
{
	return dtype == MOD_F32 || dtype == MOD_F16 || dtype == MOD_BF16;
}

#endif
