/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_few_rows.h - part of tile_amx_few.h: rows on their way into tiles: fetched, and made bf16 or copied */

/*
 * What comes next, and how far it has been asked for: a row of each of four
 * streams at a time, of which each has 16 of a tile's tokens.  It comes into
 * the first cache: tiles that are loaded from the second wait for each other's
 * rows wherever AMX is slow.
 */
struct few_ahead {
	const struct tile_rows *rows; /* or NULL, for nothing */
	uint32_t bytes, row;
};

/*
 * Of a stream's rows, how many are asked for by when, so that memory is never
 * idle: keys' products ask for the first of the values, before their scores
 * are read and turned come more, softmax asks for the rest; values ask for keys
 * while weights are stored, beside products, and before sums are read.
 */
enum few_rows_by {
	FEW_ROWS_KEYS = 8,
	FEW_ROWS_SCORES = 10,
	FEW_ROWS_TURNED = 11,
	FEW_ROWS_WEIGHTS = 2,
	FEW_ROWS_VALUES = 10,
};

INLINE struct few_ahead
few_ahead(const struct tile_rows *rows)
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

/* Of rows [from, to) as large a share as `done` is of `steps`. */
INLINE void
few_fetch(struct few_ahead *ahead, uint32_t from, uint32_t to, uint32_t done, uint32_t steps)
{
	few_fetch_to(ahead, from + ((to - from) * done + steps - 1) / steps);
}

/* What stands for rows that are not there, or that are to be nothing. */
static const uint16_t few_zeros[PAGED_MAX_DIM];

/*
 * Some dims of a tile's rows, 16 tokens at a time.  Rows that are no bf16, or
 * that lie at no equal distances, are made so in one of two places, beside the
 * products of the 16 before them, which are in the other: two places stay in
 * the first cache, where a tile that is made whole does not.
 */
struct few_source {
	const struct tile_rows *rows;
	uint32_t d, dims;
	uint64_t without; /* tokens that are to be nothing, as those past the last are */
	_Alignas(64) uint16_t made[2][AMX_ROWS * PAGED_MAX_DIM];
};

/* What the compiler is to know of a source. */
enum few_kind {
	FEW_ANY,
	FEW_LIE,   /* a whole tile of USUAL_DIMS that is read as it lies; what comes next is, too, if anything does */
	FEW_APART, /* the same of bf16 of which all is made */
	FEW_BYTES, /* and of bytes */
};

INLINE enum few_kind
few_kind(const struct tile_rows *rows, const struct few_ahead *ahead)
{
	bool usual = rows->padded == USUAL_DIMS && rows->n_tokens == TILE_TOKENS &&
		     (ahead->rows == NULL || ahead->bytes == USUAL_DIMS * size_of(rows->dtype));

	if (usual && size_of(rows->dtype) == 1)
		return FEW_BYTES;
	if (usual && rows->dtype == PAGED_BF16)
		return rows->step != 0 ? FEW_LIE : FEW_APART;
	return FEW_ANY;
}

/* Field by field: what is made needs no first value. */
INLINE void
few_source(struct few_source *source, const struct tile_rows *rows, uint32_t d, uint32_t dims, uint64_t without)
{
	source->rows = rows;
	source->d = d;
	source->dims = dims;
	source->without = without;
}

/* Whether the 16 tokens from t on are read as they lie. */
INLINE bool
few_lie(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const struct tile_rows *rows = source->rows;

	if (kind != FEW_ANY)
		return kind == FEW_LIE;
	return rows->dtype == PAGED_BF16 && rows->step != 0 && source->without == 0 && t + AMX_ROWS <= rows->n_tokens;
}

/* Tokens [t, end), of the same 16, to their places. */
INLINE void
few_make_of(struct few_source *source, uint32_t t, uint32_t end, uint32_t dims, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	const struct tile_rows *rows = source->rows;
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

/* AMX_ROWS rows at equal distances, of bf16. */
struct few_rows {
	const uint8_t *at;
	size_t step;
};

/* The 16 tokens from t on, which were made if they do not lie so. */
INLINE struct few_rows
few_rows(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const uint8_t *first = source->rows->token[t];

	if (few_lie(source, t, kind))
		return (struct few_rows){ first + (size_t)source->d * sizeof(uint16_t), source->rows->step };
	return (struct few_rows){ (const uint8_t *)source->made[t / AMX_ROWS % 2], source->dims * sizeof(uint16_t) };
}

/* Beside so many products with FEW_DIMS dims each, rows [from, to) of what comes next are asked for. */
struct few_beside {
	struct few_ahead *ahead;
	uint32_t from, to;
	uint32_t done, steps;
};

/* Before the first products. */
INLINE void
few_begin(struct few_source *source, struct few_beside *beside, enum few_kind kind)
{
	if (kind != FEW_ANY)
		beside->ahead->bytes = USUAL_DIMS * (kind == FEW_BYTES ? sizeof(uint8_t) : sizeof(uint16_t));
	if (!few_lie(source, 0, kind))
		few_make(source, 0, AMX_ROWS);
}

/* After those with 16 tokens from t on and FEW_DIMS of `dims` that end at d. */
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
