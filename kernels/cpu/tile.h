/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tile.h - the arithmetic of attention on one tile, for each instruction set
 *
 * A tile is TILE_TOKENS consecutive tokens of one KV head; it starts at a multiple of TILE_TOKENS in
 * the sequence.  A q_row is one query row of one query head.  The result of a q_row depends
 * only on that q_row, its tile and the instruction set, never on the other q_rows of a call: q_rows
 * are blocked only to reuse a loaded key or value.
 *
 * Rows of floats in scratch memory are padded with zeros to whole vectors ("padded": a multiple of
 * ops->lanes).
 */
#ifndef PAGED_KERNELS_CPU_TILE_H
#define PAGED_KERNELS_CPU_TILE_H

#include "kernels/kernels.h"

struct copy_ops;

#define TILE_TOKENS 64u
/** Keys loaded at once: functions that read keys round n_tokens up to a multiple. */
#define TILE_TOKEN_BLOCK 4u
/** Groups of tokens within which tile_tokens.stride is the distance between tokens. */
#define TILE_STRIDE_TOKENS 16u
/** Most q_rows in one call. */
#define TILE_Q_ROWS 64u
/** Most lanes of any instruction set; divides PAGED_MAX_DIM. */
#define TILE_MAX_LANES 16u

_Static_assert(KERNEL_KV_CHUNK % TILE_TOKENS == 0, "no tile lies in two KV chunks");
_Static_assert(TILE_TOKENS == 64, "a bit a token in 64");
_Static_assert(PAGED_MAX_DIM % (2 * TILE_MAX_LANES) == 0, "a padded token fits its scratch, so do whole panels");

/** Addresses of a tile's tokens, one per token, so that any page size works. */
struct tile_tokens {
	const void *token[TILE_TOKENS]; /* padded to a multiple of TILE_TOKEN_BLOCK by repeating the last one */
	uint32_t n_tokens;
	enum paged_dtype dtype;
	uint32_t padded; /* elements of each token to read, a multiple of ops->lanes */
	size_t stride;   /* bytes between tokens within each TILE_STRIDE_TOKENS; 0: not uniform */
};

/** Softmax state (running maximum and sum) of some q_rows over some tiles. */
struct softmax_state {
	float row_max[TILE_Q_ROWS]; /* largest score that is not NaN */
	float row_sum[TILE_Q_ROWS]; /* of exp(score - row_max); NaN once a score was NaN or +inf */
	float *values;              /* [q_row][stride] sum of exp(score - row_max) * V */
	uint32_t stride;            /* floats, padded */
};

/** Scores of one tile; the softmax replaces them with weights. */
struct tile_scores {
	float score[TILE_Q_ROWS][TILE_TOKENS];
	float rescale[TILE_Q_ROWS];    /* factor for what the q_row's state accumulated before this tile */
	uint32_t visible[TILE_Q_ROWS]; /* the q_row sees at most the first `visible` tokens of the tile */
	uint64_t seen[TILE_Q_ROWS]; /* bit t: the q_row sees token t; only hide, values_seen and score mods read it */
};

/** Most q_rows and most tiles of a block.  A block covers an aligned pair of tiles and omits empty ones. */
#define BLOCK_Q_ROWS 32u
#define BLOCK_TILES 2u

/** Some q_rows of one state and some tiles of one KV chunk, in the pipeline of tile_prefill_ops.pipeline_step. */
struct tile_block {
	struct softmax_state *state;
	bool init_acc; /* state->values is uninitialised: overwrite it */
	uint32_t n_q_rows;
	const float *q; /* [BLOCK_Q_ROWS][depth] words as in packed keys; q_rows past n_q_rows may be anything */
	uint32_t depth;
	uint32_t n_tiles;
	uint32_t n_tokens[BLOCK_TILES];
	float scale[BLOCK_TILES]; /* factor that scores must still be multiplied by: above 0, finite */
	/* scales of the tokens' weights, or NULL; a weight of 0 stays 0 whatever its scale */
	const float *token_scale[BLOCK_TILES];
	const float *keys[BLOCK_TILES]; /* packed */
	const float *values[BLOCK_TILES];
	float rescale[BLOCK_Q_ROWS], shift[BLOCK_Q_ROWS];
	_Alignas(64) float lanes[BLOCK_Q_ROWS][TILE_MAX_LANES];
	struct tile_scores *tile; /* BLOCK_TILES tiles; at the end each q_row's scores are its weights in bf16 */
};

/** kernel_tile_ops.values and values_seen */
typedef void (*tile_values_fn)(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin,
			       uint32_t end, const struct tile_tokens *tokens, const struct tile_tokens *prefetch);
typedef void (*tile_values_seen_fn)(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin,
				    uint32_t end, const struct tile_tokens *tokens);

/**
 * Products of bf16 pairs, for dtypes that bf16 represents exactly: bf16, e4m3, e5m2, i8.
 *
 * The functions read tokens->padded elements (a multiple of token_elements) of tokens->dtype.  With
 * convert_q_rows q_rows or more, the caller first converts the tokens to bf16.
 */
struct tile_decode_bf16_ops {
	uint32_t token_elements; /* a multiple of lanes */
	uint32_t convert_q_rows;

	/*
	 * Convert tokens of any dim to consecutive tokens of bf16, with zeros up to `padded`; prefetch the
	 * tokens of `prefetch`.
	 */
	void (*convert_tokens)(uint16_t *to, uint32_t padded, const struct tile_tokens *tokens,
			       const struct tile_tokens *prefetch);

	/* Store a q_row's query of n bf16 in the layout that `scores` reads; q has room for 16 padded q_rows. */
	void (*convert_query)(uint16_t *q, uint32_t q_row, const void *from, uint32_t n);

	/* The functions of the same names below, with q in bf16 and with weights rounded to bf16. */
	void (*scores)(struct tile_scores *scores, const uint16_t *q, uint32_t begin, uint32_t end,
		       const struct tile_tokens *keys, const struct tile_tokens *prefetch);
	tile_values_fn values;
	tile_values_seen_fn values_seen;

	/*
	 * kernel_tile_ops.softmax that also prefetches the rest of the tokens that `scores` was given as
	 * `prefetch`; or NULL.
	 */
	void (*softmax)(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
			float scale, const struct tile_tokens *prefetch);
};

/**
 * Products of many q_rows with a tile packed for them: a word of a q_row times a vector over tokens or
 * dims, without horizontal sums.  A word is one f32 or a pair of bf16.  The order of additions differs
 * from that of kernel_tile_ops' own functions.
 */
struct tile_prefill_ops {
	uint32_t word_elements;
	uint32_t prefill_q_rows; /* prefill is faster for a row of the batch with at least this many q_rows */

	/* Pack keys of whole vectors of words; the last token must be repeated up to a multiple of lanes. */
	void (*pack_keys)(float *panels, const struct tile_tokens *keys);

	/* Returns the tokens that have an infinity or NaN; their packed elements are zeros. */
	uint64_t (*pack_values)(float *panels, const struct tile_tokens *values);

	/*
	 * score[q_row][token] = q . k for q_rows begin .. end - 1 and at least the first n_tokens tokens.  A q_row of q
	 * and a packed key have `depth` words.  The tokens of `prefetch` are prefetched.  All TILE_Q_ROWS q_rows of q
	 * may be read.
	 */
	void (*scores)(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
		       uint32_t n_tokens, uint32_t depth, const struct tile_tokens *prefetch);

	/* values = values * rescale + weights . V over all n_tokens; weights are rounded to a word's precision. */
	void (*values)(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		       const float *panels, uint32_t n_tokens, const struct tile_tokens *prefetch);

	/*
	 * One pipeline step over three blocks, each of which may be NULL; or NULL if not supported.
	 *   scores:  computes the raw products q . k.
	 *   softmax: turns scores into weights, updates its state's row_max and row_sum, and rescales the
	 *            state's values.
	 *   values:  adds weights . V to its state's values.
	 * The caller sets `visible` of all q_rows.  `softmax` and `values` may have the same state;
	 * then `values` is done first.  `scores` may write its scores where `values` has its weights.
	 */
	void (*pipeline_step)(struct tile_block *scores, struct tile_block *softmax, struct tile_block *values);
};

struct kernel_tile_ops {
	uint32_t lanes;
	const struct tile_decode_bf16_ops *decode_bf16; /* or NULL */
	const struct tile_prefill_ops *prefill_f32;
	const struct tile_prefill_ops *prefill_bf16; /* or NULL */

	/* Copies and conversions for append, gather and page copies; the same bits on every instruction set. */
	const struct copy_ops *copy_ops;

	/* Called before and after the work items of attention that a thread takes; or NULL. */
	void (*begin)(void);
	void (*end)(void);

	/* Convert n elements to f32, with zeros up to a multiple of lanes. */
	void (*widen)(float *padded, const void *from, enum paged_dtype dtype, uint32_t n);

	/* Round n products padded[i] * factor to dtype; for i8 the caller guarantees that they fit. */
	void (*narrow)(void *to, enum paged_dtype dtype, const float *padded, float factor, uint32_t n);

	/* score[q_row][token] = q . k for q_rows [begin, end); the tokens of `prefetch` are prefetched. */
	void (*scores)(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end,
		       const struct tile_tokens *keys, const struct tile_tokens *prefetch);

	/* Turn scores * scale into weights, 0 past the visible tokens; updates row_max and row_sum and sets rescale. */
	void (*softmax)(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
			float scale);

	/* Multiply visible scores by scale in place: for steps between scale and softmax. */
	void (*scale)(struct tile_scores *scores, uint32_t begin, uint32_t end, float scale);

	/* Set the scores of visible tokens that are not seen to -inf. */
	void (*hide)(struct tile_scores *scores, uint32_t begin, uint32_t end);

	/* values = values * rescale + weights . V over visible tokens only. */
	tile_values_fn values;

	/* The same over seen tokens only: V of other tokens, possibly NaN, is not multiplied by its weight of 0. */
	tile_values_seen_fn values_seen;

	/*
	 * Combine a later chunk's states into `state`; values have its stride.  Values whose sum is
	 * 0 are not read.
	 */
	void (*combine)(struct softmax_state *state, uint32_t n_q_rows, const float *row_max, const float *row_sum,
			const float *values);
};

extern const struct kernel_tile_ops kernel_tile_ops_generic;
extern const struct kernel_tile_ops kernel_tile_ops_avx2;
extern const struct kernel_tile_ops kernel_tile_ops_avx512;
extern const struct kernel_tile_ops kernel_tile_ops_avx512bf16;
extern const struct kernel_tile_ops kernel_tile_ops_amx;

/** kernel_tile_ops - the functions of a supported instruction set */
const struct kernel_tile_ops *kernel_tile_ops(enum kernel_isa isa);

#endif
