/* SPDX-License-Identifier: Apache-2.0 */
/*
 * widen_bf16_body.h - exact conversion of bf16, e4m3, e5m2 and i8 to bf16
 *
 * Included after tile_body.h, whose prefetch_token() it uses, by tile_decode_bf16_body.h, whose primitives it uses, and
 * by tile_amx_decode_body.h.  Each of the two bytes of a bf16 comes from a table indexed by the seven magnitude bits;
 * one vpermi2b looks up 64 bytes.  The eighth bit is the sign.
 */
#ifndef PAGED_KERNELS_CPU_DECODE_WIDEN_BF16_BODY_H
#define PAGED_KERNELS_CPU_DECODE_WIDEN_BF16_BODY_H

/* bf16 bits of a code without its sign; subnormal codes are normalised. */
#define E4M3_BITS(c)                           \
	((c) == 0    ? 0                       \
	 : (c) < 2   ? 118 << 7                \
	 : (c) < 4   ? 119 << 7 | ((c)&1) << 6 \
	 : (c) < 8   ? 120 << 7 | ((c)&3) << 5 \
	 : (c) < 127 ? ((c) << 4) + (120 << 7) \
		     : 0x7fc0)
#define E5M2_BITS(c)                           \
	((c) == 0    ? 0                       \
	 : (c) < 2   ? 111 << 7                \
	 : (c) < 4   ? 112 << 7 | ((c)&1) << 6 \
	 : (c) < 124 ? ((c) << 5) + (112 << 7) \
		     : 0x7f80 | ((c)&3) << 5)
/* For 1 to 127, and for 128, whose low seven bits are those of 0; widen_bytes() handles 0 itself. */
#define I8_BITS(c)                             \
	((c) == 0   ? 134 << 7                 \
	 : (c) < 2  ? 127 << 7                 \
	 : (c) < 4  ? 128 << 7 | ((c)&1) << 6  \
	 : (c) < 8  ? 129 << 7 | ((c)&3) << 5  \
	 : (c) < 16 ? 130 << 7 | ((c)&7) << 4  \
	 : (c) < 32 ? 131 << 7 | ((c)&15) << 3 \
	 : (c) < 64 ? 132 << 7 | ((c)&31) << 2 \
		    : 133 << 7 | ((c)&63) << 1)
#define LOW_BYTE(bits) (uint8_t)((bits)&0xff)
#define HIGH_BYTE(bits) (uint8_t)((bits) >> 8)

#define TABLE_4(byte, bits, c) byte(bits(c)), byte(bits((c) + 1)), byte(bits((c) + 2)), byte(bits((c) + 3))
#define TABLE_16(byte, bits, c)                                                             \
	TABLE_4(byte, bits, c), TABLE_4(byte, bits, (c) + 4), TABLE_4(byte, bits, (c) + 8), \
		TABLE_4(byte, bits, (c) + 12)
#define TABLE_64(byte, bits, c)                                                                  \
	TABLE_16(byte, bits, c), TABLE_16(byte, bits, (c) + 16), TABLE_16(byte, bits, (c) + 32), \
		TABLE_16(byte, bits, (c) + 48)
#define TABLE(byte, bits)                                         \
	{                                                         \
		TABLE_64(byte, bits, 0), TABLE_64(byte, bits, 64) \
	}

static const struct byte_tables {
	_Alignas(64) uint8_t low[128];
	uint8_t high[128];
} e4m3_bytes = { TABLE(LOW_BYTE, E4M3_BITS), TABLE(HIGH_BYTE, E4M3_BITS) },
  e5m2_bytes = { TABLE(LOW_BYTE, E5M2_BITS), TABLE(HIGH_BYTE, E5M2_BITS) },
  i8_bytes = { TABLE(LOW_BYTE, I8_BITS), TABLE(HIGH_BYTE, I8_BITS) };

/* Lookup tables of a dtype, to be held in registers. */
struct widen_tables {
	byte_vec low[2], high[2];
};

INLINE struct widen_tables
widen_tables(enum paged_dtype dtype)
{
	const struct byte_tables *from = dtype == PAGED_E4M3   ? &e4m3_bytes
					 : dtype == PAGED_E5M2 ? &e5m2_bytes
							       : &i8_bytes;

	return (struct widen_tables){
		.low = { bytes_load(from->low), bytes_load(from->low + 64) },
		.high = { bytes_load(from->high), bytes_load(from->high + 64) },
	};
}

/* Converts 64 bytes to two vectors: of the first and of the second half of each quarter. */
INLINE void
widen_bytes(const struct widen_tables *tables, byte_vec codes, enum paged_dtype dtype, vec to[2])
{
	byte_vec magnitude = dtype == PAGED_I8 ? bytes_abs(codes) : codes;
	byte_vec low = bytes_look_up(tables->low, magnitude), high = bytes_look_up(tables->high, magnitude);

	if (dtype == PAGED_I8)
		high = bytes_unless_0(high, codes);
	high = bytes_sign(high, codes);
	to[0] = (vec)bytes_zip_low(low, high);
	to[1] = (vec)bytes_zip_high(low, high);
}

/* Converts dims d .. d + 63 of a token. */
INLINE void
widen_64(const struct widen_tables *tables, const void *token, enum paged_dtype dtype, uint32_t d, vec to[2])
{
	/* moves groups of eight bytes so that the results of widen_bytes() are in the order of the dims */
	_Alignas(64) static const uint32_t order[16] = { 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15 };
	const uint8_t *at = (const uint8_t *)token + (size_t)d * size_of(dtype);

	if (dtype == PAGED_BF16) {
		to[0] = vec_load((const float *)(const void *)at);
		to[1] = vec_load((const float *)(const void *)(at + 64));
	} else {
		widen_bytes(tables, bytes_permute(bytes_load(at), order), dtype, to);
	}
}

/* Converts n elements, with zeros after them up to `padded`, which is less than 64 more. */
INLINE void
token_to_bf16(uint16_t *to, uint32_t padded, const struct widen_tables *tables, const void *from, uint32_t n,
	      enum paged_dtype dtype)
{
	_Alignas(64) uint16_t end[64];
	_Alignas(64) uint8_t tail[sizeof(end)] = { 0 };
	uint32_t d = 0;
	vec wide[2];

	for (; d + 64 <= n; d += 64) {
		widen_64(tables, from, dtype, d, wide);
		vec_store((float *)(void *)(to + d), wide[0]);
		vec_store((float *)(void *)(to + d + 32), wide[1]);
	}
	if (d == padded)
		return;
	memcpy(tail, (const uint8_t *)from + (size_t)d * size_of(dtype), (size_t)(n - d) * size_of(dtype));
	widen_64(tables, tail, dtype, 0, wide);
	vec_store((float *)(void *)end, wide[0]);
	vec_store((float *)(void *)(end + 32), wide[1]);
	memcpy(to + d, end, (padded - d) * sizeof(*to));
}

/* The head dim of most models; loops are unrolled for it. */
#define UNROLLED_DIMS 128u

INLINE void
tokens_to_bf16_of(uint16_t *to, uint32_t padded, const struct tile_tokens *tokens, const struct tile_tokens *prefetch,
		  enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);

	for (uint32_t t = 0; t < tokens->n_tokens; t++, to += padded) {
		prefetch_token(prefetch, t);
		if (tokens->padded == UNROLLED_DIMS)
			token_to_bf16(to, UNROLLED_DIMS, &tables, tokens->token[t], UNROLLED_DIMS, dtype);
		else
			token_to_bf16(to, padded, &tables, tokens->token[t], tokens->padded, dtype);
	}
}

/* Converts tokens to consecutive tokens of bf16; prefetches the tokens of `prefetch`. */
static void
tokens_to_bf16(uint16_t *to, uint32_t padded, const struct tile_tokens *tokens, const struct tile_tokens *prefetch)
{
	if (tokens->dtype == PAGED_BF16)
		tokens_to_bf16_of(to, padded, tokens, prefetch, PAGED_BF16);
	else if (tokens->dtype == PAGED_E4M3)
		tokens_to_bf16_of(to, padded, tokens, prefetch, PAGED_E4M3);
	else if (tokens->dtype == PAGED_E5M2)
		tokens_to_bf16_of(to, padded, tokens, prefetch, PAGED_E5M2);
	else
		tokens_to_bf16_of(to, padded, tokens, prefetch, PAGED_I8);
}

/* Dims d .. d + 15 in the first half of the vector; the tables of widen_64() do not pay off for so few. */
INLINE vec
widen_16(const void *token, enum paged_dtype dtype, uint32_t d)
{
	if (dtype == PAGED_BF16)
		return vec_load_half((const uint16_t *)token + d);
	return vec_half(load_as(token, dtype, d));
}

/* Words of two bf16, one of token `even` and one of `odd`, for dims d .. d + 15. */
INLINE vec
pairs_16(const void *even, const void *odd, enum paged_dtype dtype, uint32_t d)
{
	return pairs_from(widen_16(even, dtype, d), widen_16(odd, dtype, d), 0);
}

/* Words as pairs_16() makes, for dims d .. d + 63. */
INLINE void
pairs_64(const struct widen_tables *tables, const void *even, const void *odd, enum paged_dtype dtype, uint32_t d,
	 vec to[4])
{
	_Alignas(64) static const uint32_t order[16] = { 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15 };
	vec a[2], b[2];

	if (size_of(dtype) == 1) { /* interleave the tokens as bytes, then widen them */
		byte_vec x = bytes_permute(bytes_load((const uint8_t *)even + d), order);
		byte_vec y = bytes_permute(bytes_load((const uint8_t *)odd + d), order);

		widen_bytes(tables, bytes_zip_low(x, y), dtype, to);
		widen_bytes(tables, bytes_zip_high(x, y), dtype, to + 2);
		return;
	}
	widen_64(tables, even, dtype, d, a);
	widen_64(tables, odd, dtype, d, b);
	UNROLL
	for (uint32_t j = 0; j < 4; j++)
		to[j] = pairs_from(a[j / 2], b[j / 2], j % 2 * LANES);
}

#endif
