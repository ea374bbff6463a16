/* SPDX-License-Identifier: Apache-2.0 */
/*
 * widen_bf16.h - elements of bf16, e4m3, e5m2 and i8 as bf16, exactly
 *
 * For tile_avx512bf16.c alone, after tile_body.h.  A byte becomes two by a
 * table for each of them: of its magnitude's seven bits, which one vpermi2b
 * looks up for 64 bytes.  Its eighth bit is the sign.
 */
#ifndef PAGED_KERNELS_CPU_WIDEN_BF16_H
#define PAGED_KERNELS_CPU_WIDEN_BF16_H

/* bf16's bits of a code without sign; of subnormal ones, from the place of their first bit. */
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
/* Whole numbers from 1 to 127, and 128, whose low seven bits are 0's; that one is left to the reader. */
#define I8_BITS(c)                             \
	((c) == 0    ? 134 << 7                \
	 : (c) < 2   ? 127 << 7                \
	 : (c) < 4   ? 128 << 7 | ((c)&1) << 6 \
	 : (c) < 8   ? 129 << 7 | ((c)&3) << 5 \
	 : (c) < 16  ? 130 << 7 | ((c)&7) << 4 \
	 : (c) < 32  ? 131 << 7 | ((c)&15) << 3 \
	 : (c) < 64  ? 132 << 7 | ((c)&31) << 2 \
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

/* What widening of a dtype keeps in registers. */
struct widen_tables {
	__m512i low[2], high[2];
};

INLINE struct widen_tables
widen_tables(enum paged_dtype dtype)
{
	const struct byte_tables *bytes = dtype == PAGED_E4M3	? &e4m3_bytes
					  : dtype == PAGED_E5M2 ? &e5m2_bytes
								: &i8_bytes;

	return (struct widen_tables){
		.low = { _mm512_load_si512(bytes->low), _mm512_load_si512(bytes->low + 64) },
		.high = { _mm512_load_si512(bytes->high), _mm512_load_si512(bytes->high + 64) },
	};
}

/* Of each half of a quarter of the bytes, a vector. */
INLINE void
widen_bytes(const struct widen_tables *tables, __m512i bytes, enum paged_dtype dtype, __m512i to[2])
{
	__m512i magnitude = dtype == PAGED_I8 ? _mm512_abs_epi8(bytes) : bytes;
	__mmask64 some = dtype == PAGED_I8 ? _mm512_test_epi8_mask(bytes, bytes) : ~UINT64_C(0);
	__m512i low = _mm512_permutex2var_epi8(tables->low[0], magnitude, tables->low[1]);
	__m512i high = _mm512_maskz_permutex2var_epi8(some, tables->high[0], magnitude, tables->high[1]);

	high = _mm512_ternarylogic_epi32(high, bytes, _mm512_set1_epi8((char)0x80), 0xf8); /* high | bytes & 0x80 */
	to[0] = _mm512_unpacklo_epi8(low, high);
	to[1] = _mm512_unpackhi_epi8(low, high);
}

/* Dims d .. d + 63 of a row. */
INLINE void
widen_64(const struct widen_tables *tables, const void *row, enum paged_dtype dtype, uint32_t d, __m512i to[2])
{
	const uint8_t *at = (const uint8_t *)row + (size_t)d * size_of(dtype);

	if (dtype == PAGED_BF16) {
		to[0] = _mm512_loadu_si512(at);
		to[1] = _mm512_loadu_si512(at + 64);
	} else {
		const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);

		widen_bytes(tables, _mm512_permutexvar_epi64(order, _mm512_loadu_si512(at)), dtype, to);
	}
}

/* Dims d .. d + 15; what widens 64 at once is not worth it here. */
INLINE __m256i
widen_16(const void *row, enum paged_dtype dtype, uint32_t d)
{
	if (dtype == PAGED_BF16)
		return _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)row + d));
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(load_as(row, dtype, d)), 16));
}

/* Elements i of both rows in lane i, for 16 of 32 dims from `first`. */
INLINE __m512i
pairs_from(__m512i even, __m512i odd, uint32_t first)
{
	const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m512i words = _mm512_or_si512(step, _mm512_slli_epi32(step, 16));

	return _mm512_permutex2var_epi16(
		even, _mm512_add_epi32(words, _mm512_set1_epi32((int)(first * 0x10001 + 0x200000))), odd);
}

INLINE __m512i
pairs_16(const void *even, const void *odd, enum paged_dtype dtype, uint32_t d)
{
	return pairs_from(_mm512_castsi256_si512(widen_16(even, dtype, d)),
			  _mm512_castsi256_si512(widen_16(odd, dtype, d)), 0);
}

/* The same of dims d .. d + 63. */
INLINE void
pairs_64(const struct widen_tables *tables, const void *even, const void *odd, enum paged_dtype dtype, uint32_t d,
	 __m512i to[4])
{
	__m512i a[2], b[2];

	if (size_of(dtype) == 1) { /* interleaved while they are bytes */
		const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

		a[0] = _mm512_permutexvar_epi32(order, _mm512_loadu_si512((const uint8_t *)even + d));
		b[0] = _mm512_permutexvar_epi32(order, _mm512_loadu_si512((const uint8_t *)odd + d));
		widen_bytes(tables, _mm512_unpacklo_epi8(a[0], b[0]), dtype, to);
		widen_bytes(tables, _mm512_unpackhi_epi8(a[0], b[0]), dtype, to + 2);
		return;
	}
	widen_64(tables, even, dtype, d, a);
	widen_64(tables, odd, dtype, d, b);
	UNROLL
	for (uint32_t j = 0; j < 4; j++)
		to[j] = pairs_from(a[j / 2], b[j / 2], j % 2 * LANES);
}

#endif
