/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_source_body.h - part of tile_amx_decode_body.h: rows for tiles: prefetch, conversion, copy */

/*
 * The rows to prefetch, and progress.  Each step prefetches one row of each of four streams of 16
 * tokens.  The rows go to the L1 cache: where AMX is slow, tile loads from L2 wait for one another.
 */
struct few_ahead {
	const struct tile_tokens *rows; /* NULL: nothing to prefetch */
	uint32_t bytes, row;
};

/*
 * How many rows of each stream are prefetched by when, so that memory is never idle.  The products
 * with keys prefetch the first rows of values; more follow before the scores are read and transposed;
 * softmax prefetches the rest.  The products with values prefetch keys while weights are stored,
 * during the products, and before the sums are read.
 */
enum few_rows_by {
	FEW_ROWS_KEYS = 8,
	FEW_ROWS_SCORES = 10,
	FEW_ROWS_TURNED = 11,
	FEW_ROWS_WEIGHTS = 2,
	FEW_ROWS_VALUES = 10,
};

INLINE struct few_ahead
few_ahead(const struct tile_tokens *rows)
{
	if (rows == NULL || rows->n_tokens != TILE_TOKENS)
		return (struct few_ahead){ 0 };
	return (struct few_ahead){ .rows = rows, .bytes = rows->padded * size_of(rows->dtype) };
}

INLINE void
few_fetch_to(struct few_ahead *ahead, uint32_t end)
{
	for (; ahead->row < end; ahead->row++) {
		if (ahead->rows == NULL)
			continue;
		UNROLL
		for (uint32_t i = 0; i < TILE_TOKENS; i += AMX_ROWS) {
			const uint8_t *at = ahead->rows->token[i + ahead->row];

			for (uint32_t b = 0; b < ahead->bytes; b += 64)
				__builtin_prefetch(at + b);
		}
	}
}

/* Prefetches the fraction done / steps of rows [from, to). */
INLINE void
few_fetch(struct few_ahead *ahead, uint32_t from, uint32_t to, uint32_t done, uint32_t steps)
{
	few_fetch_to(ahead, from + ((to - from) * done + steps - 1) / steps);
}

/* Replaces rows of tokens that are absent or left out. */
static const uint16_t few_zeros[PAGED_MAX_DIM];

/*
 * Some dims of a tile's rows, 16 tokens at a time.  Rows that are not bf16, or not at a constant
 * stride, are copied or converted to one of two buffers, while the products use the previous 16 in the
 * other buffer.  Two buffers stay in the L1 cache; a whole converted tile would not.
 */
struct few_source {
	const struct tile_tokens *rows;
	uint32_t d, dims;
	uint64_t without; /* tokens to read as zeros, like those past the last */
	_Alignas(64) uint16_t made[2][AMX_ROWS * PAGED_MAX_DIM];
};

/* Usual kinds of sources, known at compile time. */
enum few_kind {
	FEW_ANY,
	/*
	 * a full tile of bf16 with USUAL_DIMS at a constant stride, read in place; the rows to prefetch
	 * have the same size
	 */
	FEW_LIE,
	FEW_APART, /* the same, but not at a constant stride: all rows are copied */
	FEW_BYTES, /* the same, but bytes: all rows are converted */
};

INLINE enum few_kind
few_kind(const struct tile_tokens *rows, const struct few_ahead *ahead)
{
	bool usual = rows->padded == USUAL_DIMS && rows->n_tokens == TILE_TOKENS &&
		     (ahead->rows == NULL || ahead->bytes == USUAL_DIMS * size_of(rows->dtype));

	if (usual && size_of(rows->dtype) == 1)
		return FEW_BYTES;
	if (usual && rows->dtype == PAGED_BF16)
		return rows->stride != 0 ? FEW_LIE : FEW_APART;
	return FEW_ANY;
}

/* Set field by field, because `made` needs no initialisation. */
INLINE void
few_source(struct few_source *source, const struct tile_tokens *rows, uint32_t d, uint32_t dims, uint64_t without)
{
	source->rows = rows;
	source->d = d;
	source->dims = dims;
	source->without = without;
}

/* True if the 16 tokens from t on are read in place. */
INLINE bool
few_lie(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const struct tile_tokens *rows = source->rows;

	if (kind != FEW_ANY)
		return kind == FEW_LIE;
	return rows->dtype == PAGED_BF16 && rows->stride != 0 && source->without == 0 && t + AMX_ROWS <= rows->n_tokens;
}

/* Copies or converts tokens [t, end), which are of the same 16, into their buffer. */
INLINE void
few_make_of(struct few_source *source, uint32_t t, uint32_t end, uint32_t dims, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	const struct tile_tokens *rows = source->rows;
	uint16_t *to = source->made[t / AMX_ROWS % 2];

	for (; t < end; t++) {
		bool there = t < rows->n_tokens && (source->without >> t & 1) == 0;
		const uint8_t *row = there ? rows->token[t] : (const void *)few_zeros;

		row_pack(to + (size_t)(t % AMX_ROWS) * dims, dims, &tables, row + (size_t)source->d * size_of(dtype),
			 dims, dtype);
	}
}

INLINE void
few_make_dims(struct few_source *source, uint32_t t, uint32_t end, uint32_t dims)
{
	if (source->rows->dtype == PAGED_BF16)
		few_make_of(source, t, end, dims, PAGED_BF16);
	else if (source->rows->dtype == PAGED_E4M3)
		few_make_of(source, t, end, dims, PAGED_E4M3);
	else if (source->rows->dtype == PAGED_E5M2)
		few_make_of(source, t, end, dims, PAGED_E5M2);
	else
		few_make_of(source, t, end, dims, PAGED_I8);
}

static __attribute__((noinline)) void
few_make(struct few_source *source, uint32_t t, uint32_t end)
{
	if (source->dims == USUAL_DIMS)
		few_make_dims(source, t, end, USUAL_DIMS);
	else
		few_make_dims(source, t, end, source->dims);
}

/* AMX_ROWS rows of bf16 at a constant stride. */
struct few_rows {
	const uint8_t *at;
	size_t stride;
};

/* The 16 tokens from t on: in place, or in their buffer. */
INLINE struct few_rows
few_rows(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const uint8_t *first = source->rows->token[t];

	if (few_lie(source, t, kind))
		return (struct few_rows){ first + (size_t)source->d * sizeof(uint16_t), source->rows->stride };
	return (struct few_rows){ (const uint8_t *)source->made[t / AMX_ROWS % 2], source->dims * sizeof(uint16_t) };
}

/* Spreads the prefetch of rows [from, to) over `steps` products with FEW_DIMS dims each. */
struct few_beside {
	struct few_ahead *ahead;
	uint32_t from, to;
	uint32_t done, steps;
};

/* Call before the first product. */
INLINE void
few_begin(struct few_source *source, struct few_beside *beside, enum few_kind kind)
{
	if (kind != FEW_ANY)
		beside->ahead->bytes = USUAL_DIMS * (kind == FEW_BYTES ? sizeof(uint8_t) : sizeof(uint16_t));
	if (!few_lie(source, 0, kind))
		few_make(source, 0, AMX_ROWS);
}

/* Call after the product of 16 tokens from t on with the FEW_DIMS of `dims` that end at d. */
INLINE void
few_go_on(struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t d, uint32_t dims,
	  enum few_kind kind)
{
	const uint32_t next = t + AMX_ROWS;

	few_fetch(beside->ahead, beside->from, beside->to, ++beside->done, beside->steps);
	if (kind == FEW_LIE || next >= (kind == FEW_ANY ? source->rows->n_tokens : TILE_TOKENS))
		return;
	if (!few_lie(source, next, kind))
		few_make(source, next + AMX_ROWS * (d - FEW_DIMS) / dims, next + AMX_ROWS * d / dims);
}
