/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_attention.h - what a planned batch computes: append, gather, attention, merge
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
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
 * A packed tensor [total_q][n_heads][dim] of F32, F16 or BF16; the last
 * dimension is contiguous.  Plain data: fill it with designated initialisers.
 * A tensor without tokens may have any strides.
 *
 * With batch_stride it is [n_rows][q_len] instead of [total_q]: query row i of
 * the plan's row r is at r * batch_stride + i * token_stride.  So a contiguous
 * [batch][heads][tokens][dim] has head_stride = tokens * dim, token_stride = dim
 * and batch_stride = heads * tokens * dim.  Each row of the plan must have the same
 * q_len then (in paged_gather() the same number of tokens), as the host knows
 * it: PAGED_ERR_INVALID otherwise, after paged_batch_plan_device(), and in a
 * gather whose bounds a device has.  lse and max_score stay packed.
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
	/** Elements from one row of the plan to the next; 0: tokens follow each other by token_stride alone. */
	int64_t batch_stride;
};

/** Which dims are a pair. */
enum paged_rotary_style {
	PAGED_ROTARY_NEOX = 0,       /* i and i + dim / 2 */
	PAGED_ROTARY_INTERLEAVED = 1 /* 2i and 2i + 1 */
};

/**
 * Rotary embedding on the way into the pages: of each pair (a, b) that K has
 * at a position, a cos - b sin and b cos + a sin are kept.  It is done in f32,
 * before anything is rounded; k's tensor stays as it is.
 */
struct paged_rotary {
	size_t struct_size;
	/** [n_positions][dim] cosines of a position's dim / 2 pairs, then their sines: the cache of vLLM and
	 * FlashInfer. */
	const float *cos_sin;
	uint32_t n_positions;
	/** Dims that are turned, an even number; the others stay. */
	uint32_t dim;
	/** The first of them: 512 for the latent and rotary parts of MLA. */
	uint32_t first;
	uint32_t style; /* enum paged_rotary_style */
	/** [total_q] of each packed row, below n_positions.  NULL: its q_idx, from q_base on. */
	const uint32_t *positions;
	/** Queries to turn by the same positions, those of PAGED_ROW_NO_APPEND too; dim = K dim.  data NULL: none. */
	struct paged_tensor q;
	/** Where they go; may be q's memory with its dtype and strides. */
	struct paged_tensor q_out;
};

struct paged_append_params {
	size_t struct_size;
	/**
	 * [total_q] token position in its sequence of each packed row, below the
	 * sequence's capacity.  NULL: kv_len - q_len onwards.
	 */
	const uint32_t *positions;
	/**
	 * [n_kv_heads] in a pool of E4M3 or E5M2: what K and V are divided by on
	 * their way into the pages, and multiplied by on the way out of them; finite
	 * and above 0.  NULL: 1.  V that lies in K has K's.
	 */
	const float *k_scale, *v_scale;
	/** NULL: none. */
	const struct paged_rotary *rotary;
};

/**
 * paged_append - write this step's K and V of one layer into the pages
 *
 * They are rounded to nearest even.  E4M3 and E5M2 keep x * (1 / scale), at
 * most their largest finite number (448, 57344), with a relative error of at
 * most 2^-4 and 2^-3 of normal numbers; NaN stays NaN.  I8 keeps, of each token
 * and head, an f32 scale (the largest magnitude / 127) and whole numbers from
 * -127 to 127: an error of at most 1/254 of the largest magnitude, all of it
 * where that is below 2^-120.  A token's head with a NaN or an infinity in it
 * reads as NaN.
 *
 * With positions this is the scatter, too: a row's tokens in any order, each to
 * its place.  So K and V that come from elsewhere get into the pages, many tokens
 * a call (on a GPU at most max_q_tokens a plan), and what paged_gather() took out
 * gets back.
 *
 * @param[in] k       n_heads = the pool's KV heads, dim = K dim; any dtype, converted to the pool's
 * @param[in] v       likewise with V dim; NULL in a pool whose V lies in K
 * @param[in] params  NULL: defaults
 * @retval PAGED_ERR_PERM      a row's sequence is another session's, or a
 *                             position lies before its writable_from.  Of
 *                             lengths and positions that the device has
 *                             paged_batch_validate() tells
 * @retval PAGED_ERR_CAPACITY  a position at or past the row's capacity, likewise
 * @retval PAGED_ERR_INVALID   tensors or a rotary embedding that do not fit the
 *                             pool, scales for a pool that takes none or that are
 *                             none, or q_len > kv_len without positions; two rows
 *                             that write the same token (with positions, and
 *                             after paged_batch_plan_device(), the caller sees
 *                             to it that none do)
 * @retval PAGED_ERR_RANGE     a rotary position at or past n_positions
 */
enum paged_status paged_append(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k,
			       const struct paged_tensor *v, const struct paged_append_params *params);

struct paged_gather_params {
	size_t struct_size;
	/** [n_rows] of row r its tokens from begin[r] on, and before end[r], at most its kv_len.  NULL: 0, and kv_len.
	 */
	const uint32_t *begin, *end;
	/** The scales that paged_append() was given. */
	const float *k_scale, *v_scale;
};

/**
 * paged_gather - K and V of the planned rows' tokens, from the pages of one layer into packed tensors
 *
 * For kernels that want K and V in one piece, and to take them elsewhere;
 * attention needs it not.  The first row's tokens lie first, then the second's,
 * and so on, each in the order of the sequence: so a tensor has as many token
 * rows as the bounds add up to.  Rows without query rows and other sessions'
 * count like all others (paged_batch_validate() tells afterwards whether those
 * were changed meanwhile), and no page is written.
 *
 * In the pool's own dtype elements come out bit for bit; in another they are
 * rounded to nearest even.  Those of E4M3, E5M2 and I8 are multiplied by their
 * scale in f32 first.  What E4M3 and E5M2 keep goes out without scales, and in
 * again without them, bit for bit through any dtype (a NaN is some NaN then).
 *
 * @param[in] k  n_heads = the pool's KV heads, dim = K dim, written whole; NULL: not wanted
 * @param[in] v  likewise with V dim, also where V lies in K; NULL: not wanted
 * @param[in] params  NULL: defaults
 * @retval PAGED_ERR_RANGE    bounds that fall, or pass a row's kv_len; of those that
 *                            the device has paged_batch_validate() tells, and
 *                            such a row has no tokens
 * @retval PAGED_ERR_INVALID  tensors that do not fit the pool or overlap themselves,
 *                            neither of them, or scales as for paged_append()
 */
enum paged_status paged_gather(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k,
			       const struct paged_tensor *v, const struct paged_gather_params *params);

/** Which keys a query row sees besides kv_len. */
enum paged_mask {
	PAGED_MASK_CAUSAL = 0, /* kv_idx <= q_idx */
	PAGED_MASK_NONE = 1    /* all */
};

struct paged_attention_params {
	size_t struct_size;
	/** 0: 1/sqrt(K dim). */
	float scale;
	uint32_t mask; /* enum paged_mask */
	/** [total_q][n_heads] natural log of the softmax's denominator, -inf where no key is seen; or NULL. */
	float *lse;
	/** [total_q][n_heads] largest score after scale and score mod, -inf where no key is seen; or NULL. */
	float *max_score;
	/** Mask mod, score mod, block mask: less of what `mask` and the lengths leave is seen; or NULL. */
	struct paged_mods *mods;
	/**
	 * [n_heads] one more term exp(sink) of the softmax's denominator, without
	 * a value; or NULL.  -inf: none; NaN or +inf make all of the head NaN.
	 */
	const float *sink;
	/** 1: lse leaves the sink out. */
	uint32_t lse_without_sink;
	/** The scales that paged_append() was given. */
	const float *k_scale, *v_scale;
};

/**
 * paged_attention - softmax(scale q K^T) V over the planned pages of one layer
 *
 * Scores, softmax and sums are f32, and as exact for a pool of E4M3, E5M2 or I8,
 * given what its pages hold.  Products of matrices round softmax's weights w
 * before they multiply values v, and the sum of the weights is not rounded:
 *
 *   host  to BF16, an error of at most 2^-8 of the sum of |w v|: with
 *         instruction sets avx512bf16 and amx, out BF16, and a pool of BF16,
 *         E4M3, E5M2 or I8.  An out of F32 or F16 avoids it.
 *   CUDA  to the pool's dtype, for pools of F16 (2^-11 of the sum) and BF16;
 *         to F16 for E4M3 and E5M2, to BF16 for I8.  Only tensor cores do so:
 *         pools of F32 and q of F32 keep f32.
 *
 * A query row that sees no key gives 0.
 * Results have the same bits wherever the pages lie and whichever rows
 * share the batch.  A row of the plan whose query rows, times the query heads
 * of a KV head, are 16 or more (17 with AMX, in pools of bf16, fp8 or i8 with q or
 * out in bf16) is summed up in another order than one with fewer: the last bits of
 * tokens decoded one by one and in a chunk differ.
 *
 * @param[in] q    n_heads a multiple of the KV heads (GQA), dim = K dim; any dtype
 * @param[in] out  same n_heads, dim = V dim; any dtype; must not overlap q
 * @retval PAGED_ERR_INVALID  tensors or scales that do not fit the pool; mods of another
 *                            batch, or with names that were never bound; a
 *                            block mask of other rows or heads, or of lengths
 *                            that the plan's exceed
 * @retval PAGED_ERR_STALE    a physical block mask of other sequences than the
 *                            plan's, or of table entries before the plan's
 * @retval PAGED_ERR_LIMIT    mods, and a q_idx or kv_idx past 2^31 - 1
 */
enum paged_status paged_attention(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *q,
				  const struct paged_tensor *out, const struct paged_attention_params *params);

struct paged_merge_params {
	size_t struct_size;
	/** Query rows of every tensor. */
	uint64_t n_tokens;
	/** Two results of attention for the same query rows over other keys. */
	struct paged_tensor part[2];
	/** [n_tokens][n_heads] of each; a sink is in one of them alone. */
	const float *part_lse[2];
	/** May be a part's memory, with its dtype and strides. */
	struct paged_tensor out;
	/** May be a part's; NULL: not wanted. */
	float *lse;
	/** Query rows of each batch_stride; n_tokens is a multiple of it.  0: no tensor has a batch_stride. */
	uint64_t q_len;
};

/**
 * paged_merge - of two results over disjoint keys, that over all of them
 *
 * For a prefix that many sequences share, attend to it once for all their
 * query rows, to each one's own keys, and merge.  A part whose lse is -inf
 * counts for nothing; one whose lse is NaN makes that row and head NaN.  Runs
 * with the batch's threads; needs no plan.
 *
 * @retval PAGED_ERR_INVALID  tensors that are not alike, a part without lse, out
 *                            in a part's memory with another dtype or strides
 */
enum paged_status paged_merge(struct paged_batch *batch, const struct paged_merge_params *params);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
