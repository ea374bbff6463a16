/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_source_body.h - part of tile_amx_decode_body.h: tokens for tiles: prefetch, conversion, copy */

/*
 * The tokens to prefetch, and progress.  Each step prefetches one token of each of four streams of 16
 * tokens.  They go to the L1 cache: where AMX is slow, tile loads from L2 wait for one another.
 */
struct amx_prefetch {
	const struct tile_tokens *tokens; /* NULL: nothing to prefetch */
	uint32_t bytes, n_done;
};

/*
 * Prefetch schedule: how many of the AMX_ROWS tokens of each stream (struct amx_prefetch) have been prefetched at the
 * end of each phase, so that memory is never idle.
 */
enum amx_prefetch_by {
	/* Values, prefetched by the phases that compute scores: */
	AMX_PREFETCH_KEYS = 8,        /* products of queries and keys */
	AMX_PREFETCH_SCORES = 10,     /* these products stored */
	AMX_PREFETCH_TRANSPOSED = 11, /* scores transposed; softmax prefetches the rest */
	/* Keys, prefetched by the phases that sum values: */
	AMX_PREFETCH_WEIGHTS = 2, /* weights converted and stored */
	AMX_PREFETCH_VALUES = 10, /* products of weights and values; the rest follows before the sums are read */
};

INLINE struct amx_prefetch
amx_prefetch(const struct tile_tokens *tokens)
{
	if (tokens == NULL || tokens->n_tokens != TILE_TOKENS)
		return (struct amx_prefetch){ 0 };
	return (struct amx_prefetch){ .tokens = tokens, .bytes = tokens->padded * size_of(tokens->dtype) };
}

INLINE void
amx_prefetch_until(struct amx_prefetch *prefetch, uint32_t end)
{
	for (; prefetch->n_done < end; prefetch->n_done++) {
		if (prefetch->tokens == NULL)
			continue;
		UNROLL
		for (uint32_t i = 0; i < TILE_TOKENS; i += AMX_ROWS) {
			const uint8_t *at = prefetch->tokens->token[i + prefetch->n_done];

			for (uint32_t b = 0; b < prefetch->bytes; b += 64)
				__builtin_prefetch(at + b);
		}
	}
}

/* Prefetches the fraction done / steps of tokens [from, to). */
INLINE void
amx_prefetch_part(struct amx_prefetch *prefetch, uint32_t from, uint32_t to, uint32_t done, uint32_t steps)
{
	amx_prefetch_until(prefetch, from + ((to - from) * done + steps - 1) / steps);
}

/* Replaces tokens that are absent or left out. */
static const uint16_t amx_zero_token[PAGED_MAX_DIM];

/*
 * Some dims of a tile's tokens, 16 at a time.  Tokens that are not bf16, or not at a constant
 * stride, are copied or converted to one of two buffers, while the products use the previous 16 in the
 * other buffer.  Two buffers stay in the L1 cache; a whole converted tile would not.
 */
struct amx_source {
	const struct tile_tokens *tokens;
	uint32_t d, dims;
	uint64_t without; /* tokens to read as zeros, like those past the last */
	_Alignas(64) uint16_t converted[2][AMX_ROWS * PAGED_MAX_DIM];
};

/* Kinds of sources, known at compile time. */
enum amx_source_kind {
	AMX_SOURCE_ANY,
	/*
	 * a full tile of bf16 with UNROLLED_DIMS at a constant stride, read in place; the tokens to prefetch
	 * have the same size
	 */
	AMX_SOURCE_IN_PLACE,
	AMX_SOURCE_COPIED, /* the same, but not at a constant stride: all tokens are copied */
	AMX_SOURCE_BYTES,  /* the same, but bytes: all tokens are converted */
};

INLINE enum amx_source_kind
amx_source_kind(const struct tile_tokens *tokens, const struct amx_prefetch *prefetch)
{
	bool unrolled = tokens->padded == UNROLLED_DIMS && tokens->n_tokens == TILE_TOKENS &&
			(prefetch->tokens == NULL || prefetch->bytes == UNROLLED_DIMS * size_of(tokens->dtype));

	if (unrolled && size_of(tokens->dtype) == 1)
		return AMX_SOURCE_BYTES;
	if (unrolled && tokens->dtype == PAGED_BF16)
		return tokens->stride != 0 ? AMX_SOURCE_IN_PLACE : AMX_SOURCE_COPIED;
	return AMX_SOURCE_ANY;
}

/* Set field by field, because `converted` needs no initialisation. */
INLINE void
amx_source(struct amx_source *source, const struct tile_tokens *tokens, uint32_t d, uint32_t dims, uint64_t without)
{
	source->tokens = tokens;
	source->d = d;
	source->dims = dims;
	source->without = without;
}

/* True if the 16 tokens from t on are read in place. */
INLINE bool
amx_source_in_place(const struct amx_source *source, uint32_t t, enum amx_source_kind kind)
{
	const struct tile_tokens *tokens = source->tokens;

	if (kind != AMX_SOURCE_ANY)
		return kind == AMX_SOURCE_IN_PLACE;
	return tokens->dtype == PAGED_BF16 && tokens->stride != 0 && source->without == 0 &&
	       t + AMX_ROWS <= tokens->n_tokens;
}

/* Copies or converts tokens [t, end), all in one group of AMX_ROWS tokens, into the group's buffer. */
INLINE void
amx_source_convert_of(struct amx_source *source, uint32_t t, uint32_t end, uint32_t dims, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	const struct tile_tokens *tokens = source->tokens;
	uint16_t *to = source->converted[t / AMX_ROWS % 2];

	for (; t < end; t++) {
		bool there = t < tokens->n_tokens && (source->without >> t & 1) == 0;
		const uint8_t *token = there ? tokens->token[t] : (const void *)amx_zero_token;

		token_to_bf16(to + (size_t)(t % AMX_ROWS) * dims, dims, &tables,
			      token + (size_t)source->d * size_of(dtype), dims, dtype);
	}
}

INLINE void
amx_source_convert_dims(struct amx_source *source, uint32_t t, uint32_t end, uint32_t dims)
{
	if (source->tokens->dtype == PAGED_BF16)
		amx_source_convert_of(source, t, end, dims, PAGED_BF16);
	else if (source->tokens->dtype == PAGED_E4M3)
		amx_source_convert_of(source, t, end, dims, PAGED_E4M3);
	else if (source->tokens->dtype == PAGED_E5M2)
		amx_source_convert_of(source, t, end, dims, PAGED_E5M2);
	else
		amx_source_convert_of(source, t, end, dims, PAGED_I8);
}

static __attribute__((noinline)) void
amx_source_convert(struct amx_source *source, uint32_t t, uint32_t end)
{
	if (source->dims == UNROLLED_DIMS)
		amx_source_convert_dims(source, t, end, UNROLLED_DIMS);
	else
		amx_source_convert_dims(source, t, end, source->dims);
}

/* AMX_ROWS tokens of bf16 at a constant stride. */
struct amx_operand {
	const uint8_t *at;
	size_t stride;
};

/* The 16 tokens from t on: in place, or in their buffer. */
INLINE struct amx_operand
amx_operand(const struct amx_source *source, uint32_t t, enum amx_source_kind kind)
{
	const uint8_t *first = source->tokens->token[t];

	if (amx_source_in_place(source, t, kind))
		return (struct amx_operand){ first + (size_t)source->d * sizeof(uint16_t), source->tokens->stride };
	return (struct amx_operand){ (const uint8_t *)source->converted[t / AMX_ROWS % 2],
				     source->dims * sizeof(uint16_t) };
}

/* Spreads the prefetch of tokens [from, to) over `steps` products with AMX_DIMS dims each. */
struct amx_overlap {
	struct amx_prefetch *prefetch;
	uint32_t from, to;
	uint32_t done, steps;
};

/* Call before the first product. */
INLINE void
amx_overlap_begin(struct amx_source *source, struct amx_overlap *overlap, enum amx_source_kind kind)
{
	if (kind != AMX_SOURCE_ANY)
		overlap->prefetch->bytes =
			UNROLLED_DIMS * (kind == AMX_SOURCE_BYTES ? sizeof(uint8_t) : sizeof(uint16_t));
	if (!amx_source_in_place(source, 0, kind))
		amx_source_convert(source, 0, AMX_ROWS);
}

/* Call after the product of 16 tokens from t on with the AMX_DIMS of `dims` that end at d. */
INLINE void
amx_overlap_step(struct amx_source *source, struct amx_overlap *overlap, uint32_t t, uint32_t d, uint32_t dims,
		 enum amx_source_kind kind)
{
	const uint32_t next = t + AMX_ROWS;

	amx_prefetch_part(overlap->prefetch, overlap->from, overlap->to, ++overlap->done, overlap->steps);
	if (kind == AMX_SOURCE_IN_PLACE || next >= (kind == AMX_SOURCE_ANY ? source->tokens->n_tokens : TILE_TOKENS))
		return;
	if (!amx_source_in_place(source, next, kind))
		amx_source_convert(source, next + AMX_ROWS * (d - AMX_DIMS) / dims, next + AMX_ROWS * d / dims);
}
