/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernels.h - append, gather and attention over the pages of one layer, on the host
 *
 * They take a packed, ragged batch: row r owns query rows
 * q_start .. q_start + q_len - 1 of the tensors.  All checks of what a caller
 * or a peer said are done by the layers above; here the arguments are right,
 * and asserts say how.  What lies in pages at or past a row's kv_len is
 * garbage (NaN included) and never reaches a result.
 *
 * A query row of a head with a NaN or +inf among the scores it sees gets NaN
 * as output, LSE and maximum, and no other row does; a score of -inf weighs 0,
 * which times an infinity or NaN of a value that is seen is NaN.  One that sees
 * no key, or only such, gets 0, -inf and -inf; with a sink 0, the sink and -inf.
 *
 * What a pool keeps is, per dtype, with all arithmetic on it in f32:
 *   f32, f16, bf16  x, rounded to nearest even
 *   e4m3, e5m2      x * (1 / scale of the KV head), rounded to nearest even;
 *                   what passes the largest finite number, infinity too, becomes
 *                   that; NaN becomes 0x7f.  Attention reads it times the scale.
 *   i8              of a token's head with absolute maximum m: scale m / 127 in
 *                   the scale plane, x * (127 / m) rounded to nearest even.  m
 *                   below 2^-120: scale and elements 0.  A NaN or infinity:
 *                   scale NaN, elements 0, so all of it reads as NaN.
 * Attention multiplies scores by K's scales and results (e4m3, e5m2) or weights
 * (i8) by V's.  A token's scale under a weight of 0 never reaches a result.
 *
 * Order of reduction: a row's keys are cut into splits of KERNEL_SPLIT tokens
 * from logical token 0, each split is reduced by itself, and the splits are
 * merged in logical order; keys that a line does not see, whoever says so,
 * leave no trace in its bits.  So a result has the same bits wherever pages lie,
 * whichever rows share the batch, and however many threads work.  It depends on
 * the chosen instruction set, and on whether the row has few query lines (query
 * rows times query heads of a KV head, below KERNEL_MANY_LINES; with pairs in
 * AMX KERNEL_MANY_LINES_AMX) or many, which
 * are summed up in different orders; within either, how query rows are cut into
 * chunks makes no difference.
 *
 * KERNEL_AVX512_BF16 multiplies pairs of bf16 and adds up in f32, on pools of
 * bf16, e4m3, e5m2 and i8, all of whose elements are bf16 numbers too: scores,
 * where queries are bf16, and values, where results are, with weights rounded
 * to bf16.  Then a result's error, rounded to bf16 as it is, is at most twice
 * that of f32 arithmetic (unit_attention_pairs.c), in the mean of squares and in
 * the largest (of i8, whose scales are in the weights, three times there);
 * scores, LSE and maximum lose nothing but subnormal numbers, f32's and bf16's,
 * which that instruction takes as 0.  Else it is KERNEL_AVX512.
 *
 * KERNEL_AMX multiplies those pairs by tdpbf16ps instead: of 32 products those of
 * even and of odd places are summed up by themselves, each fused and rounded to
 * nearest even, then the two sums to each other and to what was there, with
 * subnormal numbers as 0 in all steps.  Few query lines, there below
 * KERNEL_MANY_LINES_AMX, are multiplied with keys and values of bf16 as they lie
 * in pages.
 *
 * Threads: a team runs one call at a time; different teams are independent.
 * Calls allocate nothing and make no system call but to wake the team.
 */
#ifndef PAGED_KERNELS_KERNELS_H
#define PAGED_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/layout.h"

/** Tokens in a split. */
#define KERNEL_SPLIT 512u
/** Query lines from which on a row's products are those of matrices; those of bf16 pairs in AMX. */
#define KERNEL_MANY_LINES 16u
#define KERNEL_MANY_LINES_AMX 17u

struct block_mask;
struct mod_binding;
struct kernel_mods;
/** Threads and scratch memory that calls run with. */
struct kernel_team;

/** A packed tensor [token][head][dim]; the last dimension is contiguous. */
struct kernel_tensor {
	void *data;
	enum paged_dtype dtype;
	uint32_t n_heads;
	uint32_t dim;
	int64_t token_stride; /* bytes, a multiple of the element's size; so below */
	int64_t head_stride;
	/* After each batch_tokens tokens the next ones lie so many bytes further than token_stride says; 0: packed. */
	int64_t batch_skip;
	uint32_t batch_tokens; /* of every row of the batch; counts if batch_skip is not 0 */
};

struct kernel_row {
	const uint32_t *pages; /* physical page of each logical page; covers kv_len (and positions to append) */
	uint64_t q_start;      /* first query row in the packed tensors */
	int64_t q_base;        /* q_idx of the first query row */
	uint32_t q_len;
	uint32_t kv_len;
	bool skip_append; /* append leaves this row alone */
	int32_t b;        /* what mods see as b */
};

/** The pages of one layer. */
struct kernel_pages {
	const struct layout *layout;
	uint8_t *base;
	uint32_t layer;
};

/** Rotary embedding: pairs of dims turned by an angle that the token's position and the pair's number give. */
struct kernel_rotary {
	const float *cos_sin; /* [n_positions][dim] cosines of the dim / 2 pairs, then their sines */
	uint32_t n_positions;
	uint32_t dim;              /* turned dims, even */
	uint32_t first;            /* the first of them; first + dim <= K dim */
	bool interleaved;          /* pairs (2i, 2i + 1); else (i, i + dim / 2) */
	const uint32_t *positions; /* [total_q] below n_positions; NULL: q_base + i */
	/*
	 * Queries of all rows, turned likewise; data NULL: none.  q_out may be
	 * q's memory with its dtype and strides.
	 */
	struct kernel_tensor q;
	struct kernel_tensor q_out;
};

struct append_args {
	struct kernel_pages pages;
	const struct kernel_row *rows;
	uint32_t n_rows;
	struct kernel_tensor k;
	struct kernel_tensor v; /* data NULL in a pool whose V lies in K */
	/*
	 * [total_q] token position of each packed row in its sequence, below
	 * the row's reserved capacity, no two alike within a row; NULL:
	 * kv_len - q_len + i.
	 */
	const uint32_t *positions;
	/* [n_kv_heads] of e4m3 and e5m2, finite and above 0, or NULL: 1.  V in K has K's. */
	const float *k_scale, *v_scale;
	const struct kernel_rotary *rotary; /* k is turned in f32 before it is rounded, its tensor stays; NULL: none */
};

struct gather_args {
	struct kernel_pages pages;
	const struct kernel_row *rows; /* pages and kv_len count */
	uint32_t n_rows;
	const uint32_t *begin, *end; /* [n_rows] of each row tokens begin <= end <= kv_len; NULL: 0, and kv_len */
	/*
	 * The tokens of all rows, one row's behind another's; data NULL: not
	 * wanted.  Of V in K, V is those first dims.
	 */
	struct kernel_tensor k, v;
	const float *k_scale, *v_scale; /* as append's were */
};

/** One side of a copy of pages. */
struct copy_side {
	const struct layout *layout;
	uint8_t *base;
	const uint32_t *pages; /* [n]; NULL: 0, 1, 2, ... */
};

struct copy_args {
	struct copy_side from, to; /* one geometry, whatever their numbers of pages and alignments; none is in both */
	uint32_t n;
	const uint32_t *n_tokens; /* [n] the first of each page; NULL: all of them */
};

struct attention_args {
	struct kernel_pages pages;
	const struct kernel_row *rows;
	uint32_t n_rows;
	struct kernel_tensor q;   /* n_heads a multiple of the pool's KV heads, dim = K dim */
	struct kernel_tensor out; /* same n_heads, dim = V dim; rows with q_len 0 have none */
	float scale;
	bool causal; /* kv_idx <= q_idx; else every key below kv_len */
	/*
	 * Mods and block mask, which let less of that be seen and change
	 * scores; q_idx and kv_idx within int32.  Or NULL.
	 */
	struct kernel_mods *mods;
	/*
	 * [n_heads], or NULL: one more term exp(sink[head]) of the softmax's
	 * denominator, without a value; -inf is none.  The LSE has it in it.
	 */
	const float *sink;
	bool lse_without_sink;
	float *lse;                     /* [total_q][n_heads] natural log, or NULL */
	float *maximum;                 /* [total_q][n_heads] largest score after mods, -inf if none; or NULL */
	const float *k_scale, *v_scale; /* as append's were */
};

/** Instruction sets, best last; AVX512_BF16 is that with AVX512_VBMI, AMX its bf16 tiles beside that. */
enum kernel_isa { KERNEL_GENERIC, KERNEL_AVX2, KERNEL_AVX512, KERNEL_AVX512_BF16, KERNEL_AMX, KERNEL_N_ISAS };

/** kernel_isa_name - "generic", "avx2", "avx512", "avx512bf16", "amx" */
const char *kernel_isa_name(enum kernel_isa isa);

/**
 * kernel_isa_lacks - why it cannot be used here: "this CPU or build lacks it"; NULL if it can
 *
 * The first to ask for AMX asks Linux to let this process have its tiles.
 */
const char *kernel_isa_lacks(enum kernel_isa isa);

/** kernel_isa_supported - it can */
bool kernel_isa_supported(enum kernel_isa isa);

/** kernel_isa_best - the best supported */
enum kernel_isa kernel_isa_best(void);

/** kernel_isa_best_to - the best supported up to this one; does not look at later ones, so may leave Linux unasked */
enum kernel_isa kernel_isa_best_to(enum kernel_isa most);

/** kernel_isa_parse - by name; KERNEL_N_ISAS for none */
enum kernel_isa kernel_isa_parse(const char *name);

/** Does part `index` of some work. */
typedef void (*kernel_work_fn)(void *argument, uint32_t index);

/** Calls work(argument, i) once for each i below n, on any threads, and returns when all have returned. */
typedef void (*kernel_run_fn)(void *context, kernel_work_fn work, void *argument, uint32_t n);

struct kernel_team_params {
	uint32_t n_threads; /* 1: the caller's thread alone, none is started */
	enum kernel_isa isa;
	const uint32_t
		*cpus;     /* [n_threads] of kernel_cpus_check(); the caller's own thread, 0, is not bound; NULL: any */
	kernel_run_fn run; /* instead of threads of the team's own: into n_threads parts; or NULL */
	void *run_context;
};

/**
 * kernel_team_create - threads and scratch memory for one caller at a time
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 * @retval PAGED_ERR_SYSTEM       a thread could not be started, or not where it was to run
 */
enum paged_status kernel_team_create(const struct kernel_team_params *params, struct kernel_team **team_p,
				     struct paged_error *error);

/**
 * kernel_cpus_check - may threads of this process be bound to these CPUs?
 *
 * By its cpuset: how the calling thread is bound does not matter.
 * @retval PAGED_ERR_INVALID  names one that is there twice, or that this process may not use, and those that it may
 */
enum paged_status kernel_cpus_check(const uint32_t *cpus, uint32_t n, struct paged_error *error);

/**
 * kernel_team_check - did run() do what it is to do, each time since the last check?
 *
 * @retval PAGED_ERR_INVALID  parts were left out, or called twice; what was computed is void
 */
enum paged_status kernel_team_check(struct kernel_team *team, struct paged_error *error);

/** kernel_team_destroy - ends the threads; takes NULL */
void kernel_team_destroy(struct kernel_team *team);

/**
 * kernel_team_abandon - free memory only, in a forked child where the threads do not exist
 */
void kernel_team_abandon(struct kernel_team *team);

/** One of two results of attention, over the same query rows and other keys. */
struct merge_part {
	struct kernel_tensor out;
	const float *lse; /* [n_tokens][n_heads] natural log */
};

struct merge_args {
	uint64_t n_tokens; /* query rows of every tensor, from row 0 */
	struct merge_part part[2];
	struct kernel_tensor out; /* may be a part's memory, with its dtype and strides */
	float *lse;               /* may be a part's; or NULL */
};

/** What a plan adds to plain attention; each may be NULL. */
struct kernel_mods_params {
	/*
	 * A block mask of logical blocks, of any sizes, lists in any order:
	 * for the plan's rows or one for all, for the query heads or one for
	 * all.  Full blocks are seen whole, partial ones where the mask mod
	 * says so (whole without one), others are never visited.  The rows'
	 * own lengths, and `causal`, bound all of them; what lies in a block
	 * that the mask does not have sees nothing, or is not seen.
	 */
	const struct block_mask *blocks;
	/*
	 * A mask mod.  Without a block mask, interval analysis finds the
	 * splits and tiles that need not be visited, or not be asked about.
	 */
	const struct mod_binding *mask;
	const struct mod_binding *score; /* a score mod: after the scale, before the mask */
};

/**
 * kernel_mods_create - memory to evaluate mods with a team
 *
 * One for each plan; calls with it allocate nothing.  Parameters are borrowed
 * until it is destroyed or bound anew.
 *
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status kernel_mods_create(const struct kernel_team *team, const struct kernel_mods_params *params,
				     struct kernel_mods **mods_p, struct paged_error *error);

/** kernel_mods_destroy - takes NULL; before its team's end */
void kernel_mods_destroy(struct kernel_mods *mods);

/** kernel_mods_bind - other bindings of the same mods (or these after mod_rebind()), any block mask; no allocation */
void kernel_mods_bind(struct kernel_mods *mods, const struct kernel_mods_params *params);

/**
 * kernel_mods_check - was an index out of bounds in any call since the mods were bound, or forgot?
 *
 * A score mod's counts for keys that the row sees, a mask mod's for keys that
 * lengths, `causal` and block mask leave to it; none where interval analysis
 * or a full block already says what is seen.
 *
 * @retval PAGED_ERR_RANGE  names array, index and bounds of one
 */
enum paged_status kernel_mods_check(const struct kernel_mods *mods, struct paged_error *error);

/** kernel_mods_forget - what kernel_mods_check() knows */
void kernel_mods_forget(struct kernel_mods *mods);

void kernel_append(struct kernel_team *team, const struct append_args *args);

/** kernel_gather - what pages hold into packed tensors: as it is, or times its scale in f32 and rounded */
void kernel_gather(struct kernel_team *team, const struct gather_args *args);

/** kernel_copy_pages - all layers and planes of pages to others, bit for bit: what a copy on write needs */
void kernel_copy_pages(struct kernel_team *team, const struct copy_args *args);

void kernel_attention(struct kernel_team *team, const struct attention_args *args);

/**
 * kernel_attention_merge - of two results over disjoint keys, that over all of them
 *
 * A part whose LSE is -inf (it saw nothing) leaves the other's numbers as they
 * are, whatever its own `out` holds; a NaN as LSE spoils its query row and head
 * alone.  A sink belongs in one of the parts.  The same bits always, for an
 * instruction set; part order matters to the last bits.
 */
void kernel_attention_merge(struct kernel_team *team, const struct merge_args *args);

#endif
