/* SPDX-License-Identifier: Apache-2.0 */
/**
 * emit.h - the operations that a syntax tree is lowered to, while they are created
 *
 * lower.c visits the tree and calls emit.c for nodes and type conversions; then prune.c copies the nodes
 * that the result needs.
 */
#ifndef PAGED_KERNELS_MOD_EMIT_H
#define PAGED_KERNELS_MOD_EMIT_H

#include "kernels/mod/frontend.h"

/* Also holds constants that a conversion replaced; prune.c drops them. */
#define MOD_LOWER_MAX_NODES (2 * MOD_MAX_NODES)

struct lowering {
	enum mod_kind kind;
	const struct mod_array *names;
	uint32_t n_names;
	struct mod_node nodes[MOD_LOWER_MAX_NODES]; /* `name` is still an index into the caller's names */
	uint32_t n_nodes, n_steps, nesting;
	const struct scope *scope; /* scope of the text being lowered; `offset`: position in it */
	size_t offset;
	enum paged_status status; /* after the first failure nothing is emitted, and returned nodes are meaningless */
	struct paged_error *error;
};

/* The text in which names are looked up: the caller's, or that of a ready-made mod. */
struct scope {
	const struct mod_tree *tree;
	const struct scope *outer;         /* NULL: the caller's text */
	const struct mod_builtin *builtin; /* of a ready-made mod; so are call and n_given */
	uint16_t call;                     /* node of the call in outer's tree */
	uint16_t n_given;
};

static inline enum mod_type
type_of(const struct lowering *l, uint16_t node)
{
	return l->nodes[node].type;
}

/**
 * mod_lower_fail - record the first error at a text position (for a ready-made mod: at the caller's
 * call); returns 0
 */
uint16_t mod_lower_fail(struct lowering *l, size_t offset, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/** mod_emit - add a node, or return an equal one; fills in depth and inputs */
uint16_t mod_emit(struct lowering *l, struct mod_node node);
uint16_t mod_emit_const(struct lowering *l, enum mod_type type, int32_t i, float f);
uint16_t mod_emit_unary(struct lowering *l, enum mod_op op, enum mod_type type, uint16_t arg);
uint16_t mod_emit_binary(struct lowering *l, enum mod_op op, enum mod_type type, uint16_t a, uint16_t b);
uint16_t mod_emit_to_bool(struct lowering *l, uint16_t node);
uint16_t mod_emit_to_number(struct lowering *l, uint16_t node);
uint16_t mod_emit_to_float(struct lowering *l, uint16_t node);
void mod_emit_to_common(struct lowering *l, uint16_t *a, uint16_t *b);

/** Names that are neither variables nor functions; ends with NULL. */
extern const char *const mod_reserved_words[];

/** mod_check_names - check names, dtypes and ranks that a text may use */
enum paged_status mod_check_names(const struct mod_array *names, uint32_t n_names, struct paged_error *error);

/** mod_prune - copy the nodes that the root needs, and their names, into the mod */
enum paged_status mod_prune(struct mod *mod, const struct lowering *l, uint16_t root);

#endif
