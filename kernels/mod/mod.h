/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod.h - mask and score mods: text, typed expression, and what it is over a
 * point, over a rectangle and over a tile of logits
 *
 * A mod is text in C's expression syntax (no loops, no assignments).  Names:
 *
 *   score                     float; in score mods alone
 *   b h q_idx kv_idx          int: row of the plan, query head, positions
 *   window, doc[i], ...       parameters and captured arrays, up to 4 indexes
 *   causal, soft_cap(30.0)... ready-made mods, see mod_named()
 *   inf true false
 *
 * Operators, strongest first: () [] f();  ! ~ - + not;  * / %;  + -;  << >>;
 * < <= > >=;  == !=;  &;  ^;  |;  && and;  || or;  ?:
 * Functions: min max abs clamp(x, low, high) exp exp2 log tanh sin cos tan
 * sigmoid sqrt floor int float.
 *
 * Types: bool, int (32 bits, wraps), float (f32; f64 in mod_scalar()).  One
 * float operand makes an operation float, a condition in arithmetic is 0 or
 * 1, a number as a condition means != 0.  A literal with '.', 'e' or inf is
 * the nearest f32, else an int.  Defined for every operand:
 *   - integer / and % round towards minus infinity; by 0 they give 0;
 *     INT_MIN / -1 wraps; shift counts count modulo 32; >> keeps the sign
 *   - int(x) rounds towards 0 and saturates; int(NaN) is 0
 *   - min, max, clamp give NaN if an operand is NaN; comparisons with NaN are
 *     false, != is true
 *   - an index out of bounds loads nothing, reads as 0 and is recorded, but
 *     not in the side of && || ?: that is not taken
 *
 * Life: mod_parse() makes a mod, mod_bind() ties it to values and arrays, and
 * the evaluators take the binding.  A binding borrows its mod and the arrays'
 * memory, which must not change until the binding is destroyed or has others.
 *
 * Threads: mods and bindings never change once made (but for
 * mod_binding_index() and mod_rebind()) and may be used by many threads; a
 * mod_vm by one.
 *
 * The text may be a hostile peer's: whatever it says costs bounded memory and
 * time, and nothing in it stops a process.
 */
#ifndef PAGED_KERNELS_MOD_MOD_H
#define PAGED_KERNELS_MOD_MOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/kernels.h"

/** Longest text, bytes; also of the canonical text, with ready-made mods written out. */
#define MOD_MAX_TEXT 4096u
/** Deepest nesting of operators and parentheses. */
#define MOD_MAX_DEPTH 96u
/** Most distinct operations, constants and loads after common ones are joined. */
#define MOD_MAX_NODES 256u
/** Most parameters and arrays of one mod. */
#define MOD_MAX_NAMES 16u
/** Longest name, without the terminating zero. */
#define MOD_MAX_NAME 31u
#define MOD_MAX_INDEXES 4u

enum mod_kind {
	MOD_MASK,  /* result bool: true is seen */
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
/** mod_dtype_size - bytes of an element; 0 for what is no dtype */
uint32_t mod_dtype_size(enum mod_dtype dtype);

/** A captured array, or with n_dims 0 a parameter. */
struct mod_array {
	const char *name; /* a letter or _, then letters, digits, _ */
	enum mod_dtype dtype;
	uint32_t n_dims;                   /* 0 .. MOD_MAX_INDEXES */
	uint32_t extents[MOD_MAX_INDEXES]; /* elements; may be 0 */
	int64_t strides[MOD_MAX_INDEXES];  /* bytes, any sign; all 0: row-major and dense */
	const void *data;                  /* element [0, 0, ...]; a parameter's value is copied by mod_bind() */
};

struct mod;

/**
 * mod_parse - check a text and make a mod of it
 *
 * @param[in] names  what the text may name: name, dtype and n_dims count here,
 *                   extents, strides and data do not.  The text need not use
 *                   all of them (see mod_uses()): mask and score share a list
 * @retval PAGED_ERR_INVALID  no such expression; error has line, column, the
 *                            line with a caret, what was expected and the
 *                            nearest name
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

/** mod_uses - the text (or a ready-made mod in it) names this parameter or array */
bool mod_uses(const struct mod *mod, const char *name);

/**
 * mod_name - the index-th parameter or array that the text uses: name, dtype and rank, the rest zero
 *
 * @return false past the last; the name lives as long as the mod
 */
bool mod_name(const struct mod *mod, uint32_t index, struct mod_array *name);

/** What a result depends on; others may be given any value. */
enum mod_inputs {
	MOD_ON_SCORE = 1,
	MOD_ON_B = 2,
	MOD_ON_H = 4,
	MOD_ON_Q = 8,
	MOD_ON_KV = 16,
};

/** mod_inputs - a set of enum mod_inputs */
uint32_t mod_inputs(const struct mod *mod);

/** mod_is_exact - no float in it: mod_scalar() and the tiles agree at every point */
bool mod_is_exact(const struct mod *mod);

/** A ready-made mod: what a text may call by name, with arguments or, without them, with names bound. */
struct mod_named {
	const char *name;
	const char *arguments; /* "window"; "" for none */
	const char *text;
};

/** mod_named - the index-th ready-made mod, NULL past the last */
const struct mod_named *mod_named(uint32_t index);

struct mod_binding;

/**
 * mod_bind - tie a mod to its parameters and arrays
 *
 * Costs no more than the names' number; new contents or extents are a new
 * binding of the same mod, or this one after mod_rebind().
 *
 * @param[in] arrays  by name, in any order; those that the mod does not use
 *                    are ignored.  Strings are not kept
 * @retval PAGED_ERR_NOENT    a name that the mod uses is not there
 * @retval PAGED_ERR_INVALID  another dtype or rank than at mod_parse(), no
 *                            data, a name twice
 * @retval PAGED_ERR_LIMIT    an array's size in bytes passes 2^62
 */
enum paged_status mod_bind(const struct mod *mod, const struct mod_array *arrays, uint32_t n_arrays,
			   struct mod_binding **binding_p, struct paged_error *error);

/**
 * mod_bind_nothing - a binding for mod_rebind(): parameters are 0, arrays have no elements
 *
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status mod_bind_nothing(const struct mod *mod, struct mod_binding **binding_p, struct paged_error *error);

/**
 * mod_rebind_prepare - would mod_rebind() succeed?
 *
 * Fails as it does, and takes what memory it will need.  Where several
 * bindings are to change together or not at all: prepare all, then rebind.
 */
enum paged_status mod_rebind_prepare(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
				     struct paged_error *error);

/**
 * mod_rebind - other values and arrays for a binding, in place
 *
 * Checks and fails as mod_bind(); the binding is as before then.  What was
 * indexed is indexed anew, in the same memory unless an array is longer than
 * any before it; else nothing is allocated.  Evaluators of the binding are to
 * be bound or created again: they may hold its old values.  One thread, no
 * other uses the binding.
 *
 * @retval PAGED_ERR_NOMEM  also for a longer array's index
 */
enum paged_status mod_rebind(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
			     struct paged_error *error);

/** mod_binding_destroy - takes NULL */
void mod_binding_destroy(struct mod_binding *binding);

const struct mod *mod_binding_mod(const struct mod_binding *binding);

/**
 * mod_binding_index - prepare a binding for intervals over wide rectangles
 *
 * Reads every one-dimensional array once and keeps minima and maxima of runs
 * of elements (10 bytes for 64).  Without it intervals read array elements
 * themselves, and give up over more than a few hundred.  One thread, before
 * others use the binding.
 *
 * @retval PAGED_ERR_NOMEM  the binding is as before
 */
enum paged_status mod_binding_index(struct mod_binding *binding, struct paged_error *error);

/** The first index found out of bounds; zero it before. */
struct mod_range {
	bool found;
	uint8_t array; /* number of the name within the mod */
	uint8_t dim;   /* which index, from 0 */
	int32_t index;
	uint32_t extent;
};

/** mod_range_fail - PAGED_ERR_RANGE with array, index and bounds in a sentence; PAGED_OK if nothing was found */
enum paged_status mod_range_fail(const struct mod *mod, const struct mod_range *range, struct paged_error *error);

/*
 * One point, in float64: the reference.
 */

struct mod_point {
	double score; /* score mods alone */
	int32_t b, h, q_idx, kv_idx;
};

/** mod_scalar - a score mod's result; of a mask mod 1 or 0.  `range` may be NULL */
double mod_scalar(const struct mod_binding *binding, const struct mod_point *point, struct mod_range *range);

/*
 * Rectangles, by intervals.
 */

/** All bounds included. */
struct mod_box {
	int32_t b[2], h[2], q_idx[2], kv_idx[2];
};

enum mod_truth { MOD_UNKNOWN, MOD_ALL_FALSE, MOD_ALL_TRUE };

/** Most rows and columns of a grid. */
#define MOD_GRID_ROWS 8u
#define MOD_GRID_COLUMNS 8u

/** Boxes side by side, of the same b and h: each row's query rows by each column's keys, all bounds included. */
struct mod_grid {
	int32_t b[2], h[2];
	uint32_t n_rows, n_columns;
	int32_t q_idx[MOD_GRID_ROWS][2], kv_idx[MOD_GRID_COLUMNS][2];
};

/** Bit r * MOD_GRID_COLUMNS + c is the box of row r and column c; other bits are 0. */
struct mod_grid_truth {
	uint64_t all_true, all_false, unknown;
};

/**
 * Asked by one thread; what depends on neither columns nor a changed b or h is
 * kept while grids of the same rows follow.
 */
struct mod_interval;

/**
 * mod_interval_create - memory to bound a mod over boxes, and the instruction set to use
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_interval_create(const struct mod *mod, enum kernel_isa isa, struct mod_interval **interval_p,
				      struct paged_error *error);

/** mod_interval_destroy - takes NULL */
void mod_interval_destroy(struct mod_interval *interval);

/** mod_interval_bind - bound with this binding of the same mod from now on; allocates nothing */
void mod_interval_bind(struct mod_interval *interval, const struct mod_binding *binding);

/**
 * mod_interval_grid - which boxes a mask mod is surely true, or surely false, all over
 *
 * Neither is always a right answer; the others hold at every point, for
 * mod_scalar() and mod_vm_mask() alike.  A box of one point is never unknown
 * where no float is involved and the result hangs on no index out of bounds:
 * such are not recorded here, so they are left to those that record.
 */
struct mod_grid_truth mod_interval_grid(struct mod_interval *interval, const struct mod_grid *grid);

/** mod_interval_box - the same of one box */
enum mod_truth mod_interval_box(struct mod_interval *interval, const struct mod_box *box);

/*
 * A tile of logits: lines (a query row of a query head each) x consecutive keys.
 */

/** Most lines and keys of a tile; kernels/cpu/tile.h has tiles of the same size. */
#define MOD_TILE_LINES 64u
#define MOD_TILE_KEYS 64u

struct mod_vm;

/**
 * mod_vm_create - scratch memory to evaluate a mod, and the instruction set to use
 *
 * Every instruction set gives the same bits.  Float operations are f32's own,
 * correctly rounded; the functions stray by at most, in units in the last
 * place: exp, exp2, log, sigmoid 3; tanh, sin, cos 4; tan 8.
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_vm_create(const struct mod *mod, enum kernel_isa isa, struct mod_vm **vm_p,
				struct paged_error *error);

/** mod_vm_destroy - takes NULL */
void mod_vm_destroy(struct mod_vm *vm);

/** mod_vm_bind - evaluate with this binding of the same mod from now on; allocates nothing.  Lines must follow */
void mod_vm_bind(struct mod_vm *vm, const struct mod_binding *binding);

/**
 * mod_vm_lines - the lines of the tiles to come
 *
 * What does not depend on kv_idx is computed here, once for all their tiles.
 *
 * @param[in] h, q_idx  of each line; read within the call
 * @param[in] n_lines   1 .. MOD_TILE_LINES
 */
void mod_vm_lines(struct mod_vm *vm, int32_t b, const int32_t *h, const int32_t *q_idx, uint32_t n_lines);

/**
 * mod_vm_mask - a mask mod over keys kv_idx .. kv_idx + n_keys - 1
 *
 * @param[in]  n_keys  1 .. MOD_TILE_KEYS
 * @param[in]  live    [n_lines] bit i: key kv_idx + i counts for the line; NULL:
 *                     all do.  An element that does not count is as the side
 *                     of && that is not taken: its indexes may be out of bounds
 * @param[out] bits    [n_lines] bit i: key kv_idx + i counts and the line sees it;
 *                     bits at and past n_keys are 0.  May be the memory of `live`
 */
void mod_vm_mask(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, uint64_t *bits);

/**
 * mod_vm_score - a score mod over keys kv_idx .. kv_idx + n_keys - 1, in place
 *
 * @param[in]     live    as for mod_vm_mask(); a score that does not count may become any
 * @param[in,out] scores  line i's at scores + i * stride; nothing past n_keys is written
 */
void mod_vm_score(struct mod_vm *vm, int32_t kv_idx, uint32_t n_keys, const uint64_t *live, float *scores,
		  size_t stride);

/**
 * mod_vm_score_lines - the same of n_lines of the lines, from `first` on, their scores times `scale`
 *
 * What there is to know of the keys is computed with those from 0 on, which
 * come before others of the same keys.
 *
 * @param[in] live, scores  of these lines alone
 */
void mod_vm_score_lines(struct mod_vm *vm, uint32_t first, uint32_t n_lines, int32_t kv_idx, uint32_t n_keys,
			const uint64_t *live, float scale, float *scores, size_t stride);

/** mod_vm_range - the first index out of bounds that counted, since mod_vm_bind() or mod_vm_forget() */
const struct mod_range *mod_vm_range(const struct mod_vm *vm);

/** mod_vm_forget - as if none had been out of bounds */
void mod_vm_forget(struct mod_vm *vm);

#endif
