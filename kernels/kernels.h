/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernels.h - append, gather, page copy and attention over the pages of one layer, on the host
 *
 * A batch is packed and ragged: row r of the batch owns query rows q_start .. q_start + q_len - 1 of
 * the tensors.  The layers above validate everything that a caller or a peer passes; this layer
 * assumes valid arguments and states its assumptions as asserts.  Page contents at or past a row's
 * kv_len are garbage (NaN included) and never affect a result.
 *
 * A q_row is one (query row, query head) pair.  Special values:
 *   - A q_row that sees a score of NaN or +inf gets NaN as output, LSE and maximum.  Other q_rows
 *     are not affected.
 *   - A score of -inf has weight 0.  That weight times an infinity or NaN in a V element that the
 *     q_row sees is NaN.
 *   - A q_row that sees no key, or only scores of -inf, gets output 0, LSE -inf and maximum -inf;
 *     with a sink: output 0, LSE = the sink, maximum -inf.
 *
 * Storage in a pool, per dtype.  All arithmetic on it is f32.
 *   f32, f16, bf16  x, rounded to nearest even
 *   e4m3, e5m2      x * (1 / scale of the KV head), rounded to nearest even.  Values beyond the
 *                   largest finite number, infinity included, saturate to it; NaN becomes 0x7f.
 *                   Attention multiplies by the scale when it reads.
 *   i8              Per token and head, with absolute maximum m: scale m / 127 in the scale
 *                   plane, elements x * (127 / m) rounded to nearest even.  If m is below 2^-120,
 *                   scale and elements are 0.  If an element is NaN or infinite, the scale is NaN
 *                   and the elements are 0, so that all of them read as NaN.
 * Attention applies K's scales to the scores, and V's scales to the results (e4m3, e5m2) or to the
 * weights (i8).  The scale of a token with weight 0 never affects a result.
 *
 * Order of reduction: a row's keys are split into KV chunks of KERNEL_KV_CHUNK tokens from logical token
 * 0.  Each chunk is reduced by itself, and the chunks are combined in logical order.  Keys that a
 * q_row does not see, whether because of lengths, `causal`, a block mask or a mask mod, do not change
 * the bits of its result.  Therefore a result has the same bits wherever the pages lie, whichever rows share
 * the batch, and however many threads work.  The bits depend on the instruction set and on whether the
 * row has few q_rows (query rows times query heads of a KV head below KERNEL_PREFILL_Q_ROWS, or below
 * KERNEL_PREFILL_Q_ROWS_AMX for bf16 pairs in AMX) or many, because the two algorithms sum in different
 * orders.  Within either algorithm, the division of query rows into chunks does not matter.
 *
 * KERNEL_AVX512_BF16 multiplies pairs of bf16 and accumulates in f32, for pools of bf16, e4m3, e5m2
 * and i8, all of whose elements bf16 represents exactly.  It does so for scores if queries are bf16,
 * and for values if results are bf16; weights are then rounded to bf16.  The error of a bf16 result is
 * at most twice that of f32 arithmetic, both root mean square and largest; for i8, whose V scales are
 * folded into the weights, the largest error is at most three times that of f32 arithmetic
 * (unit_attention_bf16.c).  Scores, LSE and maximum lose no accuracy except that the instruction
 * treats subnormal f32 and bf16 numbers as 0.  Where pairs do not apply, KERNEL_AVX512_BF16 is
 * KERNEL_AVX512.
 *
 * KERNEL_AMX multiplies those pairs with tdpbf16ps instead.  Of 32 products, the instruction sums
 * those at even and at odd places separately, each step fused and rounded to nearest even, then adds
 * the two sums to each other and to the accumulator; all steps treat subnormal numbers as 0.  With few
 * q_rows (below KERNEL_PREFILL_Q_ROWS_AMX), bf16 keys and values are multiplied where they lie in the
 * pages.
 *
 * Threads: a team runs one call at a time; different teams are independent.  Calls allocate nothing,
 * and their only system calls are those that wake the team and wait for it.
 */
#ifndef PAGED_KERNELS_KERNELS_H
#define PAGED_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/layout.h"

/** KV chunk of the CPU kernels: tokens that share one softmax state (split-KV). */
#define KERNEL_KV_CHUNK 512u
/**
 * A row with at least this many q_rows is multiplied as a matrix (prefill); the second limit is for
 * bf16 pairs in AMX.
 */
#define KERNEL_PREFILL_Q_ROWS 16u
#define KERNEL_PREFILL_Q_ROWS_AMX 17u

struct block_mask;
struct mod_binding;
struct kernel_mod_set;
/** Threads and their scratch memory. */
struct kernel_team;

/** A packed tensor [token][head][dim]; the last dimension is contiguous. */
struct kernel_tensor {
	void *data;
	enum paged_dtype dtype;
	uint32_t n_heads;
	uint32_t dim;
	int64_t token_stride; /* bytes, a multiple of the element's size; so is head_stride */
	int64_t head_stride;
	/* Extra bytes between one run of batch_tokens tokens and the next, on top of token_stride; 0: packed. */
	int64_t batch_skip;
	uint32_t batch_tokens; /* tokens of each row of the batch; used only if batch_skip is not 0 */
};

struct kernel_row {
	/*
	 * Physical page of each logical page; covers kv_len and the positions to append.  Entries of pages that lie
	 * wholly before kv_first may be any number, and are not read.
	 */
	const uint32_t *pages;
	uint64_t q_start; /* first query row in the packed tensors */
	int64_t q_base;   /* q_idx of the first query row, as mods and `causal` see it */
	uint32_t q_len;
	uint32_t kv_len;
	uint32_t kv_first; /* attention reads no key before it; at most kv_len */
	bool skip_append;  /* append skips this row */
	int32_t b;         /* the row's b, as mods see it */
};

/** The pages of one layer. */
struct kernel_pages {
	const struct layout *layout;
	uint8_t *base;
	uint32_t layer;
};

/** Rotary embedding: rotates pairs of dims by an angle that depends on the token's position and the pair's index. */
struct kernel_rotary {
	const float *cos_sin; /* [n_positions][dim]: cosines of the dim / 2 pairs, then their sines */
	uint32_t n_positions;
	uint32_t dim;              /* number of rotated dims, even */
	uint32_t first;            /* first rotated dim; first + dim <= K dim */
	bool interleaved;          /* pairs are (2i, 2i + 1); else (i, i + dim / 2) */
	const uint32_t *positions; /* [total_q] below n_positions; NULL: q_base + i */
	/*
	 * Queries of all rows, rotated in the same way; data NULL: none. q_out may be q's memory, with
	 * its dtype and strides.
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
	 * [total_q] position of each packed token in its sequence, below the row's reserved capacity,
	 * distinct within a row; NULL: kv_len - q_len + i.
	 */
	const uint32_t *positions;
	/* [n_kv_heads] scales of e4m3 and e5m2, finite and above 0; NULL: 1.  If V lies in K, K's scale applies. */
	const float *k_scale, *v_scale;
	/* k is rotated in f32 before it is rounded; the tensor k is not changed; NULL: none */
	const struct kernel_rotary *rotary;
};

struct gather_args {
	struct kernel_pages pages;
	const struct kernel_row *rows; /* only pages, kv_first and kv_len are read */
	uint32_t n_rows;
	/* [n_rows] token range of each row, in [kv_first, kv_len] unless it is empty; NULL: kv_first and kv_len */
	const uint32_t *begin, *end;
	/*
	 * Destination of the tokens of all rows, row after row; data NULL: not gathered.  If V lies in
	 * K, v receives the first dims of K.
	 */
	struct kernel_tensor k, v;
	const float *k_scale, *v_scale; /* the scales that append used */
};

/** One side of a copy of pages. */
struct copy_side {
	const struct layout *layout;
	uint8_t *base;
	const uint32_t *pages; /* [n] physical pages; NULL: 0, 1, 2, ... */
};

struct copy_args {
	struct copy_side from, to; /* same geometry except number of pages and alignment; no page is in both */
	uint32_t n;
	const uint32_t *n_tokens; /* [n] number of tokens to copy from the start of each page; NULL: whole pages */
};

struct attention_args {
	struct kernel_pages pages;
	const struct kernel_row *rows;
	uint32_t n_rows;
	struct kernel_tensor q;   /* n_heads a multiple of the pool's KV heads, dim = K dim */
	struct kernel_tensor out; /* same n_heads, dim = V dim; rows with q_len 0 have no output */
	float scale;
	bool causal; /* a query sees kv_idx <= q_idx; else every key below kv_len */
	/*
	 * Mods and block mask, which restrict the visible keys further and change scores.  They require
	 * q_idx and kv_idx within int32.  NULL: none.
	 */
	struct kernel_mod_set *mod_set;
	/*
	 * [n_heads], or NULL: adds exp(sink[head]) to the softmax denominator, without a value. -inf
	 * adds nothing.  The LSE includes it unless lse_without_sink.
	 */
	const float *sink;
	bool lse_without_sink;
	float *lse;                     /* [total_q][n_heads] natural log, or NULL */
	float *max_score;               /* [total_q][n_heads] largest score after mods, -inf if none; or NULL */
	const float *k_scale, *v_scale; /* the scales that append used */
};

/** Instruction sets, best last.  AVX512_BF16 also requires AVX512_VBMI; AMX is AVX512_BF16 plus AMX's bf16 tiles. */
enum kernel_isa { KERNEL_GENERIC, KERNEL_AVX2, KERNEL_AVX512, KERNEL_AVX512_BF16, KERNEL_AMX, KERNEL_N_ISAS };

/** kernel_isa_name - "generic", "avx2", "avx512", "avx512bf16", "amx" */
const char *kernel_isa_name(enum kernel_isa isa);

/**
 * kernel_isa_unsupported_reason - why the instruction set cannot be used here; NULL if it can
 *
 * The reason is "this CPU or build lacks it", or for AMX the error with which Linux refused its tiles.
 * The first call for AMX requests permission for the tiles from Linux, once per process.
 */
const char *kernel_isa_unsupported_reason(enum kernel_isa isa);

/** kernel_isa_supported - true if kernel_isa_unsupported_reason() is NULL */
bool kernel_isa_supported(enum kernel_isa isa);

/** kernel_isa_best - the best supported instruction set */
enum kernel_isa kernel_isa_best(void);

/**
 * kernel_isa_best_up_to - the best supported one up to `limit`; does not probe better ones, so may not
 * request AMX from Linux
 */
enum kernel_isa kernel_isa_best_up_to(enum kernel_isa limit);

/** kernel_isa_parse - instruction set of that name; KERNEL_N_ISAS if there is none */
enum kernel_isa kernel_isa_parse(const char *name);

/** Runs part `index` of a job. */
typedef void (*kernel_work_fn)(void *argument, uint32_t index);

/**
 * Calls work(argument, i) exactly once for each i below n, on any threads, and returns when all calls
 * have returned.
 */
typedef void (*kernel_run_fn)(void *context, kernel_work_fn work, void *argument, uint32_t n);

struct kernel_team_params {
	uint32_t n_threads; /* 1: only the caller's thread; no thread is started */
	enum kernel_isa isa;
	const uint32_t
		/*
		 * [n_threads] that kernel_cpus_check() accepts; cpus[0], the caller's own thread, is not
		 * bound; NULL: any
		 */
		*cpus;
	/* the caller's thread pool, called with n_threads parts instead of starting threads; or NULL */
	kernel_run_fn run;
	void *run_context;
};

/**
 * kernel_team_create - threads and scratch memory for one call at a time
 *
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 * @retval PAGED_ERR_INVALID      n_threads is 0 or above 1024
 * @retval PAGED_ERR_NOMEM        no memory for the team or its scratch memory
 * @retval PAGED_ERR_SYSTEM       a thread could not be started or bound to its CPU
 */
enum paged_status kernel_team_create(const struct kernel_team_params *params, struct kernel_team **team_p,
				     struct paged_error *error);

/**
 * kernel_cpus_check - verify that threads of this process can be bound to these CPUs
 *
 * Checks the process's cpuset; the affinity of the calling thread does not matter.
 * @retval PAGED_ERR_INVALID  a CPU is listed twice or is not usable; the error names it and lists the usable ones
 * @retval PAGED_ERR_SYSTEM   the thread that reads the cpuset could not be started
 */
enum paged_status kernel_cpus_check(const uint32_t *cpus, uint32_t n, struct paged_error *error);

/**
 * kernel_team_check - verify that run() called every part exactly once in each call since the last
 * check
 *
 * @retval PAGED_ERR_INVALID  parts were skipped or called twice; the results are not valid
 */
enum paged_status kernel_team_check(struct kernel_team *team, struct paged_error *error);

/** kernel_team_destroy - end the threads and free the team; takes NULL */
void kernel_team_destroy(struct kernel_team *team);

/** kernel_team_abandon - free memory only: for a forked child, where the threads do not exist; takes NULL */
void kernel_team_abandon(struct kernel_team *team);

/** One of two attention results over the same query rows and different keys. */
struct merge_part {
	struct kernel_tensor out;
	const float *lse; /* [n_tokens][n_heads] natural log */
};

struct merge_args {
	uint64_t n_tokens; /* query rows of every tensor, from row 0 on */
	struct merge_part part[2];
	struct kernel_tensor out; /* may be a part's memory, with its dtype and strides */
	float *lse;               /* may be a part's array; or NULL */
};

/** Optional additions to plain attention; each may be NULL. */
struct kernel_mod_set_params {
	/*
	 * A block mask over logical blocks of any sizes, with lists in any order: for the plan's rows
	 * or one for all, for the query heads or one for all.  Full blocks are visible entirely;
	 * partial blocks where the mask mod says so (entirely without a mask mod); other blocks are
	 * never visited.  The rows' own lengths and `causal` further restrict all blocks.  Query rows
	 * outside the mask's query blocks see nothing, and keys outside its KV blocks are not seen.
	 */
	const struct block_mask *blocks;
	/*
	 * A mask mod.  Without a block mask, interval analysis finds the chunks and tiles that need not
	 * be visited, and those that are visible entirely.
	 */
	const struct mod_binding *mask;
	const struct mod_binding *score; /* a score mod, applied after the scale and before the mask */
};

/**
 * kernel_mod_set_create - allocate the memory to evaluate mods with a team
 *
 * Create one for each plan; calls with it allocate nothing.  The objects in params are borrowed until
 * kernel_mod_set_destroy() or the next kernel_mod_set_bind().
 *
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status kernel_mod_set_create(const struct kernel_team *team, const struct kernel_mod_set_params *params,
					struct kernel_mod_set **mod_set_p, struct paged_error *error);

/** kernel_mod_set_destroy - takes NULL; call before the team is destroyed */
void kernel_mod_set_destroy(struct kernel_mod_set *mod_set);

/**
 * kernel_mod_set_bind - use other bindings of the same mods (or these after mod_rebind()) and any block
 * mask; no allocation
 */
void kernel_mod_set_bind(struct kernel_mod_set *mod_set, const struct kernel_mod_set_params *params);

/**
 * kernel_mod_set_check - report an array index out of bounds since kernel_mod_set_bind() or
 * kernel_mods_clear_range()
 *
 * For a score mod, only keys that the q_row sees count; for a mask mod, only keys that lengths,
 * `causal` and block mask leave to it.  No index is recorded where interval analysis or a full block
 * already decides visibility.
 *
 * @retval PAGED_ERR_RANGE  the error names the array, the index and the bounds of one of them
 */
enum paged_status kernel_mod_set_check(const struct kernel_mod_set *mod_set, struct paged_error *error);

/** kernel_mods_clear_range - clear the recorded indices */
void kernel_mods_clear_range(struct kernel_mod_set *mod_set);

void kernel_append(struct kernel_team *team, const struct append_args *args);

/**
 * kernel_gather - copy tokens from pages into packed tensors; if dtypes differ, times the scale in
 * f32, then rounded
 */
void kernel_gather(struct kernel_team *team, const struct gather_args *args);

/** kernel_copy_pages - copy pages bit for bit, all layers and planes; used for copy-on-write */
void kernel_copy_pages(struct kernel_team *team, const struct copy_args *args);

void kernel_attention(struct kernel_team *team, const struct attention_args *args);

/**
 * kernel_attention_merge - combine two attention results over disjoint keys into the result over all
 * of them
 *
 * If a part's LSE is -inf (it saw no key), the other part's numbers are unchanged, whatever its `out`
 * holds.  A NaN LSE makes only its own q_row NaN.  A sink must be in only one of the parts.  For one
 * instruction set the result always has the same bits; swapping the parts may change the last bits.
 */
void kernel_attention_merge(struct kernel_team *team, const struct merge_args *args);

#endif
