/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_mods.h - mask mods, score mods and block masks
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * A mod is an expression in C's syntax that says which keys a query row sees
 * (a mask mod) or what becomes of a score (a score mod), as in PyTorch's
 * flex_attention:
 *
 *     kv_idx <= q_idx && q_idx - kv_idx < window
 *     doc[q_idx] == doc[kv_idx]
 *     cap * tanh(score / cap)
 *     score + slope[h] * (kv_idx - q_idx)
 *
 * Names are score, b (the row of the plan), h (the query head), q_idx and
 * kv_idx (positions in the sequence), and the parameters and arrays that
 * paged_mod_parse() was told of.  libpagedclient(3) has the whole language.
 *
 * Life: mods and block masks belong to a pool, a struct paged_mods to a batch;
 * what is still there when its pool or batch is closed is freed with it.
 * Mods and block masks never change: any number of threads may use them.  A
 * struct paged_mods is used by the thread that uses its batch.
 */
#ifndef PAGED_MODS_H
#define PAGED_MODS_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct paged_mod;
struct paged_block_mask;

/* -------------------------------------------------------------------- mods */

enum paged_mod_kind {
	PAGED_MOD_MASK = 0, /* a condition: true is seen */
	PAGED_MOD_SCORE = 1 /* a number: the new score */
};

/** Most indexes of an array. */
#define PAGED_MAX_INDEXES 4u

/**
 * A captured array, or with n_dims 0 a parameter.
 * Plain data: fill it with designated initialisers.
 */
struct paged_array {
	/** A letter or _, then letters, digits, _; at most 31. */
	const char *name;
	/** Element [0, 0, ...]; a parameter's value.  Not read by paged_mod_parse(). */
	const void *data;
	/** Any, PAGED_I32 and PAGED_U8 too. */
	enum paged_dtype dtype;
	uint32_t n_dims;
	/** Elements. */
	uint32_t extents[PAGED_MAX_INDEXES];
	/** Elements, of any sign; all 0: row-major and dense. */
	int64_t strides[PAGED_MAX_INDEXES];
};

/**
 * paged_mod_parse - check a text and make a mod of it
 *
 * @param[in] text   zero-terminated, at most 4096 bytes
 * @param[in] names  n_names parameters and arrays that the text may name;
 *                   name, dtype and n_dims count here.  It need not use all
 * @retval PAGED_ERR_INVALID  no such expression: the sentence has line, column,
 *                            the line with a caret, what was expected and the
 *                            nearest known name
 * @retval PAGED_ERR_LIMIT    too long, too deep, too many operations or names
 *
 * A new value, array or extent needs no new mod.
 */
enum paged_status paged_mod_parse(struct paged_pool *pool, enum paged_mod_kind kind, const char *text, size_t n_names,
				  const struct paged_array *names, struct paged_mod **mod_p);

/** paged_mod_destroy - when no struct paged_mods uses it any more; takes NULL */
void paged_mod_destroy(struct paged_mod *mod);

/** paged_mod_text - the canonical text: equal for texts that mean the same operations; valid as long as the mod */
const char *paged_mod_text(const struct paged_mod *mod);

/** One element of the matrix of scores. */
struct paged_mod_point {
	double score; /* a score mod's alone */
	int32_t b, h, q_idx, kv_idx;
};

/**
 * paged_mod_evaluate - what a mod says of one element, in float64
 *
 * To look at a mod and to test one: what attention evaluates over tiles, in
 * f32, is held to this.
 *
 * @param[in]  arrays   as for paged_mods_bind(); read within the call
 * @param[out] value_p  a score mod's new score; of a mask mod 1 (seen) or 0
 * @retval PAGED_ERR_RANGE  an index out of bounds, with array, index and bounds
 * and for names and arrays what paged_mods_bind() says.
 */
enum paged_status paged_mod_evaluate(const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
				     const struct paged_mod_point *point, double *value_p);

/** A ready-made mod, which a text may call by name: causal, sliding_window(4096), soft_cap(30.0), ... */
struct paged_named_mod {
	const char *name;
	const char *arguments; /* "window"; "" for none.  A call without them uses parameters of these names */
	const char *text;
};

/** paged_mod_named - the index-th ready-made mod; NULL past the last */
const struct paged_named_mod *paged_mod_named(uint32_t index);

struct paged_mods_params {
	size_t struct_size;
	/** Borrowed until paged_mods_destroy(); NULL: none. */
	const struct paged_mod *mask;
	const struct paged_mod *score;
};

/**
 * paged_mods_create - memory to run a mask mod, a score mod or both in a batch
 *
 * One pair for all layers, or as many as a model has kinds of layers.  Mods
 * that name nothing are ready to use; others want paged_mods_bind() first.
 * Without either mod it is what a block mask is bound to.
 *
 * @retval PAGED_ERR_INVALID  a score mod for a mask, or the reverse; a mod of another pool
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status paged_mods_create(struct paged_batch *batch, const struct paged_mods_params *params,
				    struct paged_mods **mods_p);

/** paged_mods_destroy - takes NULL; what paged_batch_validate() is to say of indexes out of bounds stays */
void paged_mods_destroy(struct paged_mods *mods);

/**
 * paged_mods_bind - give the names their values and arrays, and say which blocks to visit
 *
 * Arrays are read where they lie: the caller leaves them unchanged until the
 * attention that uses them is done, and binds again when values, contents or
 * extents are others.  Parameters' values are copied.
 *
 * @param[in] arrays  by name, in any order; those that no mod uses are ignored
 * @param[in] blocks  borrowed until the next bind; NULL: none.  It has the
 *                    plan's rows or one for all, the query heads or one for
 *                    all, and lengths that reach the plan's (lengths of the
 *                    plan bound what it lists).  Its first query block begins
 *                    at the row's first query row
 * @retval PAGED_ERR_NOENT    a name that a mod uses is not there
 * @retval PAGED_ERR_INVALID  another dtype or rank than at paged_mod_parse(), no data, a name twice;
 *                            a block mask of another pool
 * @retval PAGED_ERR_LIMIT    an array reaches over more than 2^62 bytes
 * @retval PAGED_ERR_NOMEM
 *
 * On an error the earlier binding stays, of both mods and the blocks.
 * Allocates nothing, but when an array is larger than any bound to this name
 * before.  Whether the blocks fit the plan is judged by paged_attention().
 */
enum paged_status paged_mods_bind(struct paged_mods *mods, size_t n_arrays, const struct paged_array *arrays,
				  const struct paged_block_mask *blocks);

/* ------------------------------------------------------------- block masks */

/** paged_block_mask_destroy - when no binding uses it any more; takes NULL */
void paged_block_mask_destroy(struct paged_block_mask *mask);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
