/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tile.h - the arithmetic of attention on one tile, for each instruction set
 *
 * A tile is TILE_TOKENS consecutive tokens of one KV head, starting at a
 * multiple of TILE_TOKENS in the sequence.  A line is one query row of one
 * query head.  What happens to a line depends on that line, its tile and the
 * instruction set alone, never on the lines beside it: lines are blocked only
 * to load a key or value once for several of them.
 *
 * Floats in scratch memory are rows padded with zeros to whole vectors
 * ("padded": a multiple of ops->lanes).
 */
#ifndef PAGED_KERNELS_CPU_TILE_H
#define PAGED_KERNELS_CPU_TILE_H

#include "kernels/kernels.h"

struct pieces_ops;

#define TILE_TOKENS 64u
/** Keys that are loaded at once: readers of keys round n_tokens up to it. */
#define TILE_TOKEN_BLOCK 4u
/** Tokens of a tile, from its first on, that rows->step speaks of together. */
#define TILE_STEP_TOKENS 16u
/** Most lines in one task. */
#define TILE_LINES 64u
/** Most lanes of any instruction set; divides PAGED_MAX_DIM. */
#define TILE_MAX_LANES 16u

_Static_assert(KERNEL_SPLIT % TILE_TOKENS == 0, "no tile lies in two splits");
_Static_assert(TILE_TOKENS == 64, "a bit a token in 64");
_Static_assert(PAGED_MAX_DIM % (2 * TILE_MAX_LANES) == 0, "a padded row fits its scratch, so do whole panels");

/** Where the tokens of a tile lie: one address a token, so pages of any size look alike. */
struct tile_rows {
	const void *token[TILE_TOKENS]; /* past the last: repeats it up to a multiple of TILE_TOKEN_BLOCK */
	uint32_t n_tokens;
	enum paged_dtype dtype;
	uint32_t padded; /* elements to read of each, a multiple of ops->lanes */
	size_t step;     /* bytes from a token to the next of the same TILE_STEP_TOKENS, or 0 for any */
};

/** The running softmax of some lines over some tiles. */
struct tile_state {
	float maximum[TILE_LINES]; /* largest score that is no NaN */
	float sum[TILE_LINES];     /* of exp(score - maximum); NaN once a score was NaN or +inf */
	float *values;             /* [line][stride] sum of exp(score - maximum) * V */
	uint32_t stride;           /* floats, padded */
};

/** One tile's scores, then weights. */
struct tile_scores {
	float score[TILE_LINES][TILE_TOKENS];
	float rescale[TILE_LINES];    /* of what the line's state held before this tile */
	uint32_t visible[TILE_LINES]; /* the line sees the first so many tokens of the tile */
	uint64_t seen[TILE_LINES];    /* bit t: it sees token t; for hide, values_seen and score mods alone */
};

/** Lines of a block, and its tiles: those from an even one on. */
#define BLOCK_STRIP 32u
#define BLOCK_TILES 2u

/** Some lines of one state and tiles of one split, on their way from queries to values. */
struct tile_block {
	struct tile_state *state;
	bool fresh; /* its values are nothing yet, whatever is there */
	uint32_t n_lines;
	const float *q; /* as packed keys, of BLOCK_STRIP lines, of which those past n_lines may be anything */
	uint32_t depth;
	uint32_t n_tiles;
	uint32_t n_tokens[BLOCK_TILES];
	float scale[BLOCK_TILES];              /* that scores are still to be multiplied by: above 0, finite */
	const float *token_scale[BLOCK_TILES]; /* of a token's weight, or NULL; 0 stays 0, whatever it is */
	const float *keys[BLOCK_TILES];        /* packed */
	const float *values[BLOCK_TILES];
	float rescale[BLOCK_STRIP], shift[BLOCK_STRIP];
	_Alignas(64) float lanes[BLOCK_STRIP][TILE_MAX_LANES];
	struct tile_scores *tile; /* BLOCK_TILES; in the end each line's scores are its weights, in bf16 */
};

/** kernel_tile_ops.values and values_seen */
typedef void (*tile_values_fn)(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
			       const struct tile_rows *rows, const struct tile_rows *ahead);
typedef void (*tile_values_seen_fn)(const struct tile_scores *scores, struct tile_state *state, uint32_t begin,
				    uint32_t end, const struct tile_rows *rows);

/**
 * Products of bf16 pairs, of rows that bf16 holds exactly: bf16, e4m3, e5m2, i8.
 *
 * Each takes rows->padded, a multiple of row_elements, of the dtype that rows
 * say, which is bf16 where there are pack_lines lines or more.
 */
struct tile_dot_ops {
	uint32_t row_elements; /* a multiple of lanes */
	uint32_t pack_lines;

	/* Rows of any dim to bf16, one after the other, with zeros up to `padded`; those of `ahead` are wanted next. */
	void (*pack)(uint16_t *to, uint32_t padded, const struct tile_rows *rows, const struct tile_rows *ahead);

	/* A line's query of n bf16 to where scores looks for it in q, which has room for 16 padded lines. */
	void (*query)(uint16_t *q, uint32_t line, const void *from, uint32_t n);

	/* The functions of the same names below, with q in bf16 and with weights rounded to it. */
	void (*scores)(struct tile_scores *scores, const uint16_t *q, uint32_t begin, uint32_t end,
		       const struct tile_rows *keys, const struct tile_rows *ahead);
	tile_values_fn values;
	tile_values_seen_fn values_seen;

	/* Or NULL: kernel_tile_ops.softmax, beside which the rest of what `scores` was given as `ahead` is fetched. */
	void (*softmax)(struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end, float scale,
			const struct tile_rows *ahead);
};

/**
 * Products of many lines with a tile that was packed for them: a word of a
 * line times a vector over tokens or dimensions, without sums over lanes.  The
 * order of additions is not that of kernel_tile_ops' own functions.  A word is
 * one f32, or a pair of bf16.
 */
struct tile_packed_ops {
	uint32_t word_elements;
	uint32_t many_lines; /* from so many query lines of a row on, it pays */

	/* Rows of whole vectors of words, which repeat the last token up to a multiple of lanes. */
	void (*pack_keys)(float *panels, const struct tile_rows *keys);

	/* Returns the tokens with an infinity or NaN, which are zeros in there. */
	uint64_t (*pack_values)(float *panels, const struct tile_rows *values);

	/*
	 * score[line][token] = q . k, of at least n_tokens; a line of q and a
	 * packed key have `depth` words.  The rows of `ahead` will be wanted next.
	 * Other lines of q, all TILE_LINES, may be read.
	 */
	void (*scores)(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
		       uint32_t n_tokens, uint32_t depth, const struct tile_rows *ahead);

	/* values = values * rescale + weights . V, of all n_tokens; weights are rounded to what a word has. */
	void (*values)(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
		       const float *panels, uint32_t n_tokens, const struct tile_rows *ahead);

	/*
	 * Or NULL.  Steps of three blocks, each of which may be NULL: the scores of one, all that score is; the
	 * weights of another, from scores to what its state has of them but its values, which are rescaled; and
	 * what the weights of a third add to its state's values.  All lines' visible are filled.  The second
	 * and the third may have the same state: then the third is done first.  The first may have its scores
	 * where the third has its weights.
	 */
	void (*blocks)(struct tile_block *scores, struct tile_block *softmax, struct tile_block *values);
};

struct kernel_tile_ops {
	uint32_t lanes;
	const struct tile_dot_ops *dot; /* or NULL */
	const struct tile_packed_ops *floats;
	const struct tile_packed_ops *pairs; /* or NULL, as dot */

	/* What append, gather and copies do; the same bits from every instruction set. */
	const struct pieces_ops *pieces;

	/* Before and after a thread's use of dot and pairs; or NULL. */
	void (*begin)(void);
	void (*end)(void);

	/* n elements to f32, zeros up to a multiple of lanes. */
	void (*widen)(float *padded, const void *from, enum paged_dtype dtype, uint32_t n);

	/* n products padded[i] * factor, rounded to dtype; whoever wants i8 knows that they fit. */
	void (*narrow)(void *to, enum paged_dtype dtype, const float *padded, float factor, uint32_t n);

	/* score[line][token] = q . k for lines [begin, end); the rows of `ahead` will be wanted next. */
	void (*scores)(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end,
		       const struct tile_rows *keys, const struct tile_rows *ahead);

	/* Scores, times scale, to weights, 0 past the visible ones; maximum, sum and rescale follow. */
	void (*softmax)(struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
			float scale);

	/* Visible scores times scale, in place: for what must be done between scale and softmax. */
	void (*scale)(struct tile_scores *scores, uint32_t begin, uint32_t end, float scale);

	/* -inf for visible tokens that are not seen. */
	void (*hide)(struct tile_scores *scores, uint32_t begin, uint32_t end);

	/* values = values * rescale + weights . V, visible tokens only. */
	tile_values_fn values;

	/* The same for seen tokens only: others are not even multiplied by their weight, which is 0. */
	tile_values_seen_fn values_seen;

	/*
	 * Fold a later split's states of lines into those of all before it, at their stride.  Values whose sum is 0 are
	 * not looked at.
	 */
	void (*merge)(struct tile_state *total, uint32_t n_lines, const float *maximum, const float *sum,
		      const float *values);
};

extern const struct kernel_tile_ops kernel_tile_ops_generic;
extern const struct kernel_tile_ops kernel_tile_ops_avx2;
extern const struct kernel_tile_ops kernel_tile_ops_avx512;
extern const struct kernel_tile_ops kernel_tile_ops_avx512bf16;
extern const struct kernel_tile_ops kernel_tile_ops_amx;

/** kernel_tile_ops - of a supported instruction set */
const struct kernel_tile_ops *kernel_tile_ops(enum kernel_isa isa);

#endif
