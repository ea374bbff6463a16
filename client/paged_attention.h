/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_attention.h - computations of a planned batch: append, gather, attention, merge
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * The calls take the plan's rows in plan order: in a packed tensor the query
 * rows of row 0 come first, then those of row 1, and so on; total_q is their sum
 * over all rows of the plan, including rows with PAGED_ROW_NO_APPEND.
 *
 * All calls except paged_merge() need a plan and a layer below the pool's
 * n_layers (PAGED_ERR_INVALID otherwise).  Threads: one at a time, as for every
 * call on a batch.  For a pool in host memory, a call is complete when it
 * returns.  For a pool in GPU memory, the call launches kernels and returns;
 * paged_marks.h lists which arguments are device addresses, and
 * paged_batch_validate() reports the errors that the device finds.
 *
 * Memory that a call writes may be shared with no other operand, except where a
 * call says that it may.  Slices of one larger tensor may interleave.  After
 * paged_batch_plan_device() the library does not know the lengths, and the caller
 * ensures it.
 *
 * In addition to their own statuses, all calls may return PAGED_ERR_INVALID if
 * the program's run() did not run each part once, or if a captured plan is used
 * outside of its capture; PAGED_ERR_LIMIT if a tensor spans 2^63 bytes or more;
 * and PAGED_ERR_BACKEND if the GPU's driver fails.
 */
#ifndef PAGED_ATTENTION_H
#define PAGED_ATTENTION_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/**
 * A packed tensor [total_q][n_heads][dim] of F32, F16 or BF16.  The last
 * dimension is contiguous.  Fill the struct with designated initialisers.  `data`
 * is borrowed during the call (on a GPU until the kernels have ended) and aligned
 * to its elements.  Strides count elements; they are positive, and no smaller than
 * dim.  A tensor without tokens may have any strides.
 *
 * With batch_stride, the first dimension is [n_rows][q_len] instead of [total_q]:
 * query row i of plan row r is at r * batch_stride + i * token_stride.  For a
 * contiguous [batch][heads][tokens][dim], set head_stride = tokens * dim,
 * token_stride = dim and batch_stride = heads * tokens * dim.  Each row of the
 * plan must then have the same q_len (in paged_gather(), the same number of
 * tokens), and the host must know it: after paged_batch_plan_device(), and in a
 * gather whose bounds are in device memory, batch_stride is PAGED_ERR_INVALID.
 * lse and max_score are always packed.
 */
struct paged_tensor {
	void *data;
	uint32_t dtype; /* enum paged_dtype */
	uint32_t n_heads;
	uint32_t dim;
	uint32_t reserved[5];
	/** Elements from one token to the next; 0: n_heads * dim. */
	int64_t token_stride;
	/** Elements from one head to the next; 0: dim. */
	int64_t head_stride;
	/** Elements from one row of the plan to the next.  0: packed, all tokens are token_stride apart. */
	int64_t batch_stride;
};

/** Which two of the rotated dims form pair i. */
enum paged_rotary_style {
	PAGED_ROTARY_NEOX = 0,       /* i and i + dim / 2 */
	PAGED_ROTARY_INTERLEAVED = 1 /* 2i and 2i + 1 */
};

/**
 * Rotary embedding, applied to K as it is written into the pages: each pair
 * (a, b) becomes (a cos - b sin, b cos + a sin), in f32 and before any rounding.
 * The caller's k tensor is not changed.
 */
struct paged_rotary {
	size_t struct_size;
	/**
	 * [n_positions][dim]: for each position the cosines of its dim / 2 pairs,
	 * then their sines, as in the cache of vLLM and FlashInfer.
	 */
	const float *cos_sin;
	uint32_t n_positions;
	/** Number of dims that are rotated, even; the other dims are not changed. */
	uint32_t dim;
	/** First rotated dim; 512 for MLA's latent part followed by its rotary part. */
	uint32_t first;
	uint32_t style; /* enum paged_rotary_style */
	/** [total_q] rotary position of each query row, below n_positions.  NULL: its q_idx. */
	const uint32_t *positions;
	/**
	 * Queries to rotate by the same positions, including those of rows with
	 * PAGED_ROW_NO_APPEND; dim = K dim.  data NULL: none.
	 */
	struct paged_tensor q;
	/** Rotated queries; may be q's memory if dtype and strides are equal. */
	struct paged_tensor q_out;
};

struct paged_append_params {
	size_t struct_size;
	/**
	 * [total_q] token position in its sequence at which each query row's K and
	 * V are written, below the sequence's capacity.  NULL: consecutive, the
	 * last at kv_len - 1.
	 */
	const uint32_t *positions;
	/**
	 * [n_kv_heads] scales, for E4M3 and E5M2 pools only: K and V are divided by
	 * them when written and multiplied by them when read.  A scale and its
	 * reciprocal are finite and above 0.  NULL: 1.  If V lies in K, k_scale
	 * applies to both and v_scale must be NULL.
	 */
	const float *k_scale, *v_scale;
	/** NULL: no rotary embedding. */
	const struct paged_rotary *rotary;
};

/**
 * paged_append - write this step's K and V of one layer into the pages
 *
 * Values are converted to the pool's dtype, rounded to nearest even.
 *
 *   E4M3, E5M2  stores x * (1 / scale), clamped to the largest finite number
 *               (448, 57344).  The relative error of normal numbers is at most
 *               2^-4 and 2^-3.  NaN stays NaN.
 *   I8          stores for each token and head an f32 scale (the largest
 *               magnitude / 127) and integers from -127 to 127.  The error is at
 *               most 1/254 of the largest magnitude, or all of it where that is
 *               below 2^-120.  A head of a token that contains a NaN or an
 *               infinity reads as all NaN.
 *
 * With positions, the call is a scatter: the tokens of a row may come in any
 * order.  K and V that were computed or stored elsewhere, for example by
 * paged_gather(), enter the pages this way, many tokens per call (on a GPU at
 * most max_q_tokens per plan).
 *
 * What a row may write is read again at each call, so a plan that was made before
 * the row's tokens were published, forked or given away writes none of them, and
 * one that was made before its sequence was truncated, trimmed or erased writes
 * nothing.  A call that is refused writes nothing (paged_sharing.h, What must not be
 * written).
 *
 * @param[in] k       [total_q][KV heads][K dim]; any tensor dtype
 * @param[in] v       [total_q][KV heads][V dim]; any tensor dtype; NULL in a pool whose V lies in K
 * @param[in] params  NULL: defaults
 * @retval PAGED_ERR_PERM      a row's sequence belongs to another session or was
 *                             given away, or a position lies before its
 *                             writable_from, or in a page that this process is
 *                             publishing.  On a GPU,
 *                             paged_batch_validate() reports this for positions,
 *                             and for lengths of paged_batch_plan_device()
 * @retval PAGED_ERR_STALE     page table entries of a row that it writes were replaced or
 *                             removed since the plan
 * @retval PAGED_ERR_GONE      the same, because the daemon died or ended this session
 * @retval PAGED_ERR_CAPACITY  a position exceeds the row's capacity; on a GPU
 *                             reported by paged_batch_validate()
 * @retval PAGED_ERR_INVALID   tensors or a rotary embedding do not fit the pool;
 *                             a tensor shares memory with the pages, or with a
 *                             rotary q_out other than its q in place;
 *                             the pool takes no scales, or a scale is invalid;
 *                             q_len > kv_len without positions; or two rows write
 *                             the same token (not checked with positions or after
 *                             paged_batch_plan_device(): the caller ensures it)
 * @retval PAGED_ERR_RANGE     a rotary position is outside the table; on a GPU
 *                             reported by paged_batch_validate()
 */
enum paged_status paged_append(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k,
			       const struct paged_tensor *v, const struct paged_append_params *params);

struct paged_gather_params {
	size_t struct_size;
	/**
	 * [n_rows] gathers tokens begin[r] to end[r] - 1 of row r, which must lie from its kv_first on and
	 * below its kv_len; begin[r] == end[r]: none.  NULL: kv_first and kv_len.
	 */
	const uint32_t *begin, *end;
	/** As passed to paged_append(). */
	const float *k_scale, *v_scale;
};

/**
 * paged_gather - copy K and V of the planned rows from the pages of one layer into packed tensors
 *
 * For kernels that need contiguous K and V, and for copying a sequence elsewhere;
 * paged_attention() does not need it.  The tokens of the first row come first,
 * then those of the second, each in sequence order, so a tensor has as many
 * tokens as the bounds add up to.  Rows with q_len 0 and rows of other sessions
 * are included; paged_batch_validate() reports whether the latter have changed
 * meanwhile.  The call writes no page.
 *
 * In the pool's own dtype, elements are copied bit for bit; in another dtype,
 * they are rounded to nearest even.  Elements of E4M3, E5M2 and I8 are first
 * multiplied by their scale in f32.  E4M3 and E5M2 elements gathered without
 * scales and appended without scales are bit-identical, whatever the tensor's
 * dtype, except that a NaN may become another NaN.
 *
 * @param[out] k      [tokens][KV heads][K dim], all written; NULL: not wanted
 * @param[out] v      [tokens][KV heads][V dim], all written, also where V lies in K; NULL: not wanted
 * @param[in] params  NULL: defaults
 * @retval PAGED_ERR_RANGE    begin exceeds end, end exceeds the row's kv_len, or a token
 *                            is before the row's kv_first or was given back by
 *                            paged_seq_trim().  On a GPU
 *                            paged_batch_validate() reports it, and such a row yields
 *                            no tokens
 * @retval PAGED_ERR_INVALID  tensors do not fit the pool, overlap themselves, or share
 *                            memory with each other, the pages or another operand;
 *                            both are NULL; or scales as for paged_append()
 */
enum paged_status paged_gather(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k,
			       const struct paged_tensor *v, const struct paged_gather_params *params);

/** Which keys from kv_first on and below kv_len a query row may attend to. */
enum paged_mask {
	PAGED_MASK_CAUSAL = 0, /* kv_idx <= q_idx */
	PAGED_MASK_NONE = 1    /* all */
};

struct paged_attention_params {
	size_t struct_size;
	/** 0: 1/sqrt(K dim). */
	float scale;
	uint32_t mask; /* enum paged_mask */
	/** [total_q][n_heads] natural log of the softmax denominator, -inf if the query row sees no key; or NULL. */
	float *lse;
	/** [total_q][n_heads] largest score after scale and score mod, -inf if the query row sees no key; or NULL. */
	float *max_score;
	/** Mask mod, score mod and block mask, which apply in addition to `mask` and the lengths; or NULL. */
	struct paged_mod_set *mod_set;
	/**
	 * [n_heads] attention sink: adds exp(sink) to the softmax denominator,
	 * without a value; or NULL.  -inf: none; NaN or +inf make the head all NaN.
	 */
	const float *sink;
	/** 1: lse excludes the sink. */
	uint32_t lse_without_sink;
	/** As passed to paged_append(). */
	const float *k_scale, *v_scale;
};

/**
 * paged_attention - softmax(scale q K^T) V over the planned pages of one layer
 *
 * Scores, softmax and accumulation are f32, also for E4M3, E5M2 and I8 pools,
 * whose elements are taken as stored.  Kernels that compute w V as a matrix
 * product round the softmax weights w before the product, but not the sum of the
 * weights:
 *
 *   host  to BF16, with an error of at most 2^-8 of the sum of |w v|: for the
 *         instruction sets avx512bf16 and amx, if out is BF16 and the pool is
 *         BF16, E4M3, E5M2 or I8.  An out of F32 or F16 avoids the rounding.
 *   CUDA  to the pool's dtype for F16 (2^-11 of the sum) and BF16 pools, to F16
 *         for E4M3 and E5M2, to BF16 for I8.  Only tensor core kernels round;
 *         F32 pools and F32 q use f32 throughout.
 *
 * A query row that sees no key yields 0.
 *
 * Results are bit-identical wherever the pages lie, whichever rows share the
 * batch, and however many threads run.  On the host, decode and prefill reduce in
 * different orders, so the last bits of tokens that are decoded one by one and in
 * a chunk may differ.  A row of the plan is prefill if its q_len times the query
 * heads per KV head is 16 or more (17 with AMX, in pools of BF16, FP8 or I8 with q
 * or out in BF16).
 *
 * @param[in]  q       [total_q][n_heads][K dim], n_heads a multiple of the KV heads (GQA); any tensor dtype
 * @param[out] out     [total_q][n_heads][V dim]; any tensor dtype
 * @param[in]  params  NULL: defaults
 * @retval PAGED_ERR_INVALID  tensors or scales do not fit the pool; out, lse or max_score
 *                            shares memory with another operand; mods belong to
 *                            another batch, or their names were never bound; or a
 *                            block mask has other numbers of rows or heads, or is
 *                            shorter than the plan's lengths
 * @retval PAGED_ERR_STALE    a physical block mask was made for other sequences than
 *                            the plan's, or for page table entries since replaced
 * @retval PAGED_ERR_LIMIT    mods with a q_idx or kv_idx past 2^31 - 1; or on a GPU
 *                            more heads than max_q_heads, or more than four kinds of
 *                            queries (by head count and dtype) in one plan
 * @retval PAGED_ERR_BACKEND  a launch on a GPU failed: rows of out may be written;
 *                            the plan stays, and the call may be repeated
 *
 * With mods on a GPU, waits for code that is still being compiled, and may fail
 * as paged_mod_set_prepare() does.
 */
enum paged_status paged_attention(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *q,
				  const struct paged_tensor *out, const struct paged_attention_params *params);

struct paged_merge_params {
	size_t struct_size;
	/** Query rows of each tensor. */
	uint64_t n_tokens;
	/** Two results of paged_attention() for the same query rows over disjoint keys. */
	struct paged_tensor part[2];
	/** [n_tokens][n_heads] lse of each part.  At most one part includes the sink. */
	const float *part_lse[2];
	/** May be a part's memory if dtype and strides are equal. */
	struct paged_tensor out;
	/** [n_tokens][n_heads] merged lse; may be a part's array.  NULL: not wanted. */
	float *lse;
	/** Query rows per batch_stride; divides n_tokens.  0: no tensor has a batch_stride. */
	uint64_t q_len;
};

/**
 * paged_merge - combine two attention results over disjoint keys into the result over all of them
 *
 * For a prefix that many sequences share: attend to the prefix once for the query
 * rows of all sequences, attend to each sequence's own keys, and merge.  A part
 * whose lse is -inf contributes nothing; a part whose lse is NaN makes that query
 * row and head NaN.  Runs on the batch's threads or stream and needs no plan.
 *
 * @param[in] params  required
 * @retval PAGED_ERR_INVALID  tensors have different shapes, a part has no lse, out is
 *                            in a part's memory with another dtype or strides, or out or
 *                            lse shares memory with another operand in another way
 * @retval PAGED_ERR_LIMIT    on a GPU: n_tokens exceeds 2^32 - 1
 */
enum paged_status paged_merge(struct paged_batch *batch, const struct paged_merge_params *params);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
