/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod.h - mask and score mods: parsing, binding, and evaluation of a point (float64 reference), of
 * rectangles (intervals) and of tiles of scores (vectors)
 *
 * A mod is text in C's expression syntax (no loops, no assignments).  Names:
 *
 *   score                     float; in score mods only
 *   b h q_idx kv_idx          int: row of the plan, query head, positions
 *   window, doc[i], ...       parameters and captured arrays, up to 4 indexes
 *   causal, soft_cap(30.0)... ready-made mods, see mod_builtin()
 *   inf true false
 *
 * Operators, highest precedence first:
 *
 *   () [] f();  ! ~ - + not;  * / %;  + -;  << >>;  < <= > >=;  == !=;  &;  ^;  |;  && and;  || or;  ?:
 *
 * Functions: min max abs clamp(x, low, high) exp exp2 log tanh sin cos tan sigmoid sqrt floor int
 * float.
 *
 * Types: bool, int (32 bits, wraps), float (f32; f64 in mod_scalar()).  If one operand is float, the
 * operation is float.  A bool in arithmetic is 0 or 1; a number as a condition means != 0.  A literal
 * with '.', 'e' or inf is the nearest f32; other literals are int.  Every operation is defined for all
 * operands:
 *   - integer / and % round towards minus infinity; division by 0 gives 0; INT_MIN / -1 wraps; shift
 *     counts are modulo 32; >> is arithmetic
 *   - int(x) rounds towards 0 and saturates; int(NaN) is 0
 *   - min, max, clamp give NaN if an operand is NaN; comparisons with NaN are false, != is true
 *   - an index out of bounds loads nothing, reads as 0 and is recorded, but not if it is in the side of
 *     && || ?: that is not evaluated (range checks of indexes: vm_load.c, eval_scalar.c and
 *     kernels/cuda/device/mod_device.h; of index intervals: range_tree.c)
 *
 * Life: mod_parse() makes a mod, mod_bind() binds it to values and arrays, and the evaluators take the
 * binding.  A binding borrows its mod and the arrays' memory, which must not change until the binding
 * is destroyed or rebound.
 *
 * Threads: mods and bindings are immutable, except through mod_binding_add_range_trees() and mod_rebind(), and
 * may be used by many threads; a mod_vm or a mod_interval by one.
 *
 * The text may come from a hostile peer: any text costs bounded memory and time, and none can crash
 * the process.
 */
#ifndef PAGED_KERNELS_MOD_MOD_H
#define PAGED_KERNELS_MOD_MOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/kernels.h"

/** Longest text in bytes; also limits the canonical text, in which ready-made mods are written out. */
#define MOD_MAX_TEXT 4096u
/** Deepest nesting of operators and parentheses. */
#define MOD_MAX_DEPTH 96u
/** Most distinct operations, constants and loads, after common subexpressions are merged. */
#define MOD_MAX_NODES 256u
/** Most parameters and arrays of one mod. */
#define MOD_MAX_NAMES 16u
/** Longest name, without the terminating zero. */
#define MOD_MAX_NAME 31u
#define MOD_MAX_INDEXES 4u

enum mod_kind {
	MOD_MASK,  /* result bool: true means visible */
	MOD_SCORE, /* result float: the new score */
};

/** Element types of parameters and arrays, with enum paged_dtype's numbers. */
enum mod_dtype {
	MOD_DTYPE_NONE = 0,
	MOD_F32 = PAGED_F32,
	MOD_F16 = PAGED_F16,
	MOD_BF16 = PAGED_BF16,
	MOD_I32 = PAGED_I32,
	MOD_U8 = PAGED_U8,
};

/** mod_dtype_name - "f32", "f16", "bf16", "i32", "u8" or "?" */
const char *mod_dtype_name(enum mod_dtype dtype);
/** mod_dtype_size - bytes of an element; 0 for an invalid dtype */
uint32_t mod_dtype_size(enum mod_dtype dtype);

/** A captured array; with n_dims 0, a parameter. */
struct mod_array {
	const char *name; /* a letter or _, then letters, digits, _ */
	enum mod_dtype dtype;
	uint32_t n_dims;                   /* 0 .. MOD_MAX_INDEXES */
	uint32_t extents[MOD_MAX_INDEXES]; /* elements; may be 0 */
	int64_t strides[MOD_MAX_INDEXES];  /* bytes, any sign; all 0: row-major and dense */
	const void *data;                  /* element [0, 0, ...]; mod_bind() copies a parameter's value */
};

struct mod;

/**
 * mod_parse - parse and check a text and make a mod of it
 *
 * @param[in] names  names that the text may use.  Only name, dtype and n_dims are read here.  The text need
 *                   not use all of them (see mod_uses()), so a mask and a score mod can share a list
 * @retval PAGED_ERR_INVALID  not a valid expression; error has line, column, the
 *                            line with a caret, what was expected and the
 *                            most similar name
 * @retval PAGED_ERR_LIMIT    longer, deeper or larger than the limits above
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status mod_parse(enum mod_kind kind, const char *text, size_t length, const struct mod_array *names,
			    uint32_t n_names, struct mod **mod_p, struct paged_error *error);

/** mod_destroy - takes NULL */
void mod_destroy(struct mod *mod);

enum mod_kind mod_kind(const struct mod *mod);

/**
 * mod_text - the canonical text
 *
 * Parsing it with the same names gives the same mod and the same text.
 */
const char *mod_text(const struct mod *mod);

/** mod_uses - true if the text (or a ready-made mod in it) uses this parameter or array */
bool mod_uses(const struct mod *mod, const char *name);

/**
 * mod_name - name, dtype and rank of the index-th parameter or array that the text uses; other fields
 * are zero
 *
 * @return false past the last; the name lives as long as the mod
 */
bool mod_name(const struct mod *mod, uint32_t index, struct mod_array *name);

/** Variables that a result depends on; others may be given any value. */
enum mod_inputs {
	MOD_ON_SCORE = 1,
	MOD_ON_B = 2,
	MOD_ON_H = 4,
	MOD_ON_Q = 8,
	MOD_ON_KV = 16,
};

/** mod_inputs - the variables that the result depends on: bits of enum mod_inputs */
uint32_t mod_inputs(const struct mod *mod);

/** mod_is_exact - true if no operation is float: then mod_scalar() and the tile VM agree at every point */
bool mod_is_exact(const struct mod *mod);

/** A ready-made mod: a text calls it by name with arguments, or without them if its argument names are bound. */
struct mod_builtin {
	const char *name;
	const char *arguments; /* "window"; "" for none */
	const char *text;
};

/** mod_builtin - the index-th ready-made mod, NULL past the last */
const struct mod_builtin *mod_builtin(uint32_t index);

struct mod_binding;

/**
 * mod_bind - bind a mod to its parameters and arrays
 *
 * The cost is proportional to the number of names.  For new contents or extents, make a new binding of
 * the same mod, or use mod_rebind().
 *
 * @param[in] arrays  by name, in any order; those that the mod does not use are ignored.  Name strings
 *                    are not kept
 * @retval PAGED_ERR_NOENT    a name that the mod uses is missing
 * @retval PAGED_ERR_INVALID  dtype or rank differ from mod_parse(), data is missing, or a name is
 *                            given twice
 * @retval PAGED_ERR_LIMIT    an array's size exceeds 2^62 bytes
 */
enum paged_status mod_bind(const struct mod *mod, const struct mod_array *arrays, uint32_t n_arrays,
			   struct mod_binding **binding_p, struct paged_error *error);

/**
 * mod_bind_empty - a placeholder binding for mod_rebind(): parameters are 0, arrays have no elements
 *
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status mod_bind_empty(const struct mod *mod, struct mod_binding **binding_p, struct paged_error *error);

/**
 * mod_rebind_prepare - check that mod_rebind() will succeed
 *
 * Fails with the same errors, and allocates the memory that mod_rebind() will need.  To change several
 * bindings atomically, prepare all of them, then rebind all of them.
 */
enum paged_status mod_rebind_prepare(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
				     struct paged_error *error);

/**
 * mod_rebind - replace the values and arrays of a binding in place
 *
 * Checks and fails like mod_bind(); on failure the binding is unchanged.  If the binding has
 * range trees, they are rebuilt in the same memory, unless an array is longer than any before; otherwise
 * nothing is allocated.  Evaluators of the binding must be bound or created again: they may hold old
 * values.  No other thread may use the binding during the call.
 *
 * @retval PAGED_ERR_NOMEM  also for the range tree of a longer array
 */
enum paged_status mod_rebind(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
			     struct paged_error *error);

/** mod_binding_destroy - takes NULL */
void mod_binding_destroy(struct mod_binding *binding);

const struct mod *mod_binding_mod(const struct mod_binding *binding);

/**
 * mod_binding_add_range_trees - build min/max trees of a binding's arrays for intervals over wide rectangles
 *
 * Reads every one-dimensional array once and stores minima and maxima of runs of elements (10 bytes
 * per 64 elements).  Without the trees, interval evaluation scans array elements, and gives up
 * (unknown) beyond a few hundred.  Call it before other threads use the binding.
 *
 * @retval PAGED_ERR_NOMEM  the binding is unchanged
 */
enum paged_status mod_binding_add_range_trees(struct mod_binding *binding, struct paged_error *error);

/** The first index found out of bounds; initialise to zero. */
struct mod_bad_index {
	bool found;
	uint8_t array; /* index of the name within the mod */
	uint8_t dim;   /* which index, from 0 */
	int32_t index;
	uint32_t extent;
};

/** mod_bad_index_fail - PAGED_ERR_RANGE with array, index and bounds in the message; PAGED_OK if nothing was found */
enum paged_status mod_bad_index_fail(const struct mod *mod, const struct mod_bad_index *bad_index,
				     struct paged_error *error);

/* A single point in float64: the reference implementation. */

struct mod_point {
	double score; /* score mods only */
	int32_t b, h, q_idx, kv_idx;
};

/** mod_scalar - a score mod's result; for a mask mod 1 or 0.  `bad_index` may be NULL */
double mod_scalar(const struct mod_binding *binding, const struct mod_point *point, struct mod_bad_index *bad_index);

/* Rectangles, by interval arithmetic. */

/** A rectangle of points; all bounds are inclusive. */
struct mod_box {
	int32_t b[2], h[2], q_idx[2], kv_idx[2];
};

enum mod_truth { MOD_UNKNOWN, MOD_ALL_FALSE, MOD_ALL_TRUE };

/** Most rows and columns of a grid. */
#define MOD_GRID_ROWS 8u
#define MOD_GRID_COLUMNS 8u

/** A grid of boxes with the same b and h: each row's query range by each column's key range, bounds inclusive. */
struct mod_grid {
	int32_t b[2], h[2];
	uint32_t n_rows, n_columns;
	int32_t q_idx[MOD_GRID_ROWS][2], kv_idx[MOD_GRID_COLUMNS][2];
};

/** Bit r * MOD_GRID_COLUMNS + c is the box of row r and column c; unused bits are 0. */
struct mod_grid_truth {
	uint64_t all_true, all_false, unknown;
};

/**
 * An interval evaluator, for one thread at a time.  From one grid to the next it recomputes only what
 * depends on the columns, or on rows, b or h that changed.
 */
struct mod_interval;

/**
 * mod_interval_create - an evaluator of bounds of a mod over boxes
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_interval_create(const struct mod *mod, enum kernel_isa isa, struct mod_interval **interval_p,
				      struct paged_error *error);

/** mod_interval_destroy - takes NULL */
void mod_interval_destroy(struct mod_interval *interval);

/** mod_interval_bind - use this binding of the same mod from now on; allocates nothing */
void mod_interval_bind(struct mod_interval *interval, const struct mod_binding *binding);

/**
 * mod_interval_grid - for each box, whether a mask mod is certainly true, or certainly false, at all
 * its points
 *
 * `unknown` is always a correct answer; the other two hold at every point, for mod_scalar() and
 * mod_vm_mask() alike.  A box of one point is never unknown if the mod has no float operation and the
 * result does not depend on an index out of bounds.  Intervals do not record such indexes, so they
 * leave those points to the evaluators that do.
 */
struct mod_grid_truth mod_interval_grid(struct mod_interval *interval, const struct mod_grid *grid);

/** mod_interval_box - mod_interval_grid() for a single box */
enum mod_truth mod_interval_box(struct mod_interval *interval, const struct mod_box *box);

/* A tile of scores: q_rows (one query row of one query head each) x consecutive keys. */

/** Most q_rows and keys of a tile; the same as in kernels/cpu/tile.h. */
#define MOD_TILE_Q_ROWS 64u
#define MOD_TILE_KEYS 64u

struct mod_vm;

/**
 * mod_vm_create - an evaluator of tiles: scratch memory and the instruction set to use
 *
 * Every instruction set gives the same bits.  Float operations are correctly rounded f32 operations;
 * the functions' errors are at most, in units in the last place: exp, exp2, log, sigmoid 3; tanh, sin,
 * cos 4; tan 8.
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_vm_create(const struct mod *mod, enum kernel_isa isa, struct mod_vm **vm_p,
				struct paged_error *error);

/** mod_vm_destroy - takes NULL */
void mod_vm_destroy(struct mod_vm *vm);

/** mod_vm_bind - use this binding of the same mod from now on; allocates nothing.  Call mod_vm_set_q_rows() next */
void mod_vm_bind(struct mod_vm *vm, const struct mod_binding *binding);

/**
 * mod_vm_set_q_rows - set the q_rows of the following tiles
 *
 * Evaluates what does not depend on kv_idx, once for all these tiles.
 *
 * @param[in] h, q_idx  of each q_row; read during the call only
 * @param[in] n_q_rows  1 .. MOD_TILE_Q_ROWS
 */
void mod_vm_set_q_rows(struct mod_vm *vm, int32_t b, const int32_t *h, const int32_t *q_idx, uint32_t n_q_rows);

/**
 * mod_vm_mask - evaluate a mask mod over keys kv_idx .. kv_idx + n_keys - 1
 *
 * @param[in]  n_keys  1 .. MOD_TILE_KEYS
 * @param[in]  live    [n_q_rows] bit i: key kv_idx + i is live for the q_row; NULL: all keys are
 *                     live.  For an element that is not live, indexes out of bounds are not
 *                     recorded
 * @param[out] bits    [n_q_rows] bit i: key kv_idx + i is live and the q_row sees it;
 *                     bits from n_keys on are 0.  May be the memory of `live`
 */
void mod_vm_mask(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, uint64_t *bits);

/**
 * mod_vm_score - apply a score mod to keys kv_idx .. kv_idx + n_keys - 1, in place
 *
 * @param[in]     live    as for mod_vm_mask(); the scores of elements that are not live become undefined
 * @param[in,out] scores  q_row i's scores are at scores + i * stride; nothing past n_keys is written
 */
void mod_vm_score(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, float *scores,
		  size_t stride);

/**
 * mod_vm_score_q_rows - mod_vm_score() for q_rows first .. first + n_q_rows - 1, with scores multiplied
 * by `scale` first
 *
 * The call with first == 0 evaluates what depends on the keys only, so it must come before the calls
 * with other q_rows for the same keys.
 *
 * @param[in] live, scores  of these q_rows only
 */
void mod_vm_score_q_rows(struct mod_vm *vm, uint32_t first, uint32_t n_q_rows, int32_t kv_idx, uint32_t n_keys,
			 const uint64_t *live, float scale, float *scores, size_t stride);

/** mod_vm_bad_index - the first live index out of bounds since mod_vm_bind() or mod_vm_clear_bad_index() */
const struct mod_bad_index *mod_vm_bad_index(const struct mod_vm *vm);

/** mod_vm_clear_bad_index - clear the recorded index */
void mod_vm_clear_bad_index(struct mod_vm *vm);

#endif
