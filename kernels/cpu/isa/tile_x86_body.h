/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_x86_body.h - tile_body.h's primitives that AVX2 and AVX-512 spell alike
 *
 * A template: tile_avx2.c and tile_avx512.h include it once, after they define:
 *
 *   LANES, vec            floats in a vector
 *   ints                  a vector's words as integers
 *   half_vec              LANES 16-bit elements
 *   VEC(name), HALF(name) the intrinsic of that name, for whole and for half vectors
 *   INTS(name)            the same for whole vectors as bits
 *   x86_load_bytes        LANES 8-bit elements, then zeros
 *   x86_store_halves, x86_store_bytes   the low 16 or 8 bits of each word
 *   ints_where_nan(v, x, y)     x in lanes where v is NaN, y in the others
 *   ints_where_less(a, b, x, y) x in lanes with a < b, signed, y in the others
 */
#if !defined(LANES) || !defined(VEC) || !defined(HALF) || !defined(INTS)
#error "tile_x86_body.h is included by tile_avx2.c and tile_avx512.h only"
#endif

static inline vec
vec_load(const float *at)
{
	return VEC(loadu_ps)(at);
}

static inline void
vec_store(float *at, vec v)
{
	VEC(storeu_ps)(at, v);
}

static inline vec
vec_set1(float x)
{
	return VEC(set1_ps)(x);
}

static inline half_vec
x86_load_halves(const uint8_t *at)
{
	half_vec halves;

	memcpy(&halves, at, sizeof(halves));
	return halves;
}

static inline vec
vec_load_f16(const uint8_t *at)
{
	return VEC(cvtph_ps)(x86_load_halves(at));
}

static inline vec
vec_load_bf16(const uint8_t *at)
{
	return (vec)VEC(slli_epi32)(VEC(cvtepu16_epi32)(x86_load_halves(at)), 16);
}

static inline vec
vec_load_e5m2(const uint8_t *at)
{
	return VEC(cvtph_ps)(HALF(slli_epi16)(HALF(cvtepu8_epi16)(x86_load_bytes(at)), 8));
}

static inline vec
vec_load_i8(const uint8_t *at)
{
	return VEC(cvtepi32_ps)(VEC(cvtepi8_epi32)(x86_load_bytes(at)));
}

static inline void
vec_store_f16(uint8_t *at, vec v)
{
	half_vec halves = VEC(cvtps_ph)(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

	memcpy(at, &halves, sizeof(halves));
}

/* convert_to_bf16() in lanes, by integers. */
static inline void
x86_store_bf16(uint8_t *at, vec v)
{
	ints bits = (ints)v, odd = INTS(and)(VEC(srli_epi32)(bits, 16), VEC(set1_epi32)(1));
	ints rounded = VEC(add_epi32)(VEC(add_epi32)(bits, VEC(set1_epi32)(0x7fff)), odd);
	ints quiet = INTS(or)(bits, VEC(set1_epi32)(0x400000));

	x86_store_halves(at, VEC(srli_epi32)(ints_where_nan(v, quiet, rounded), 16));
}

/* convert_to_fp8() in lanes.  Magnitudes are non-negative, so signed comparisons are correct. */
static inline __attribute__((always_inline)) void
store_fp8(uint8_t *at, vec v, const struct convert_fp8 *to)
{
	const int shift = (int)to->shift;
	ints bits = (ints)v, sign = INTS(and)(VEC(srli_epi32)(bits, 24), VEC(set1_epi32)(0x80));
	ints magnitude = INTS(and)(bits, VEC(set1_epi32)(0x7fffffff));
	ints odd = INTS(and)(VEC(srli_epi32)(bits, shift), VEC(set1_epi32)(1));
	ints half = VEC(set1_epi32)((int)((1u << (to->shift - 1)) - 1 - to->bias));
	ints code = VEC(srli_epi32)(VEC(add_epi32)(VEC(add_epi32)(magnitude, half), odd), shift);
	vec rounder = VEC(set1_ps)(to->rounder);
	ints small = VEC(sub_epi32)((ints)VEC(add_ps)((vec)magnitude, rounder), (ints)rounder);

	code = VEC(min_epu32)(code, VEC(set1_epi32)((int)to->largest));
	code = ints_where_less(magnitude, VEC(set1_epi32)((int)to->normal), small, code);
	code = INTS(or)(code, sign);
	x86_store_bytes(at, ints_where_nan(v, VEC(set1_epi32)(0x7f), code));
}

static inline void
vec_store_e4m3(uint8_t *at, vec v)
{
	store_fp8(at, v, &convert_e4m3);
}

static inline void
vec_store_e5m2(uint8_t *at, vec v)
{
	store_fp8(at, v, &convert_e5m2);
}

static inline void
vec_store_i8(uint8_t *at, vec v)
{
	x86_store_bytes(at, VEC(cvtps_epi32)(v));
}

static inline vec
vec_fma(vec a, vec b, vec c)
{
	return VEC(fmadd_ps)(a, b, c);
}

static inline vec
vec_max(vec a, vec b)
{
	return VEC(max_ps)(a, b);
}

/* Adds lanes 0 + 2 and 1 + 3 first. */
static inline float
quarter_sum(__m128 quarter)
{
	quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
	return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}

/* Sums of each four lanes of four vectors, added in the order of quarter_sum(). */
static inline vec
sum_quarters(const vec *v)
{
	vec ab = VEC(add_ps)(VEC(unpacklo_ps)(v[0], v[1]), VEC(unpackhi_ps)(v[0], v[1]));
	vec cd = VEC(add_ps)(VEC(unpacklo_ps)(v[2], v[3]), VEC(unpackhi_ps)(v[2], v[3]));

	return VEC(add_ps)(VEC(shuffle_ps)(ab, cd, 0x44), VEC(shuffle_ps)(ab, cd, 0xee));
}

/* Transposes the 4 x 4 squares within each four lanes. */
static inline __attribute__((always_inline)) void
transpose_quarters(vec *square)
{
#pragma GCC unroll 4
	for (unsigned int i = 0; i < LANES; i += 4) {
		vec low_01 = VEC(unpacklo_ps)(square[i], square[i + 1]);
		vec high_01 = VEC(unpackhi_ps)(square[i], square[i + 1]);
		vec low_23 = VEC(unpacklo_ps)(square[i + 2], square[i + 3]);
		vec high_23 = VEC(unpackhi_ps)(square[i + 2], square[i + 3]);

		square[i] = VEC(shuffle_ps)(low_01, low_23, 0x44);
		square[i + 1] = VEC(shuffle_ps)(low_01, low_23, 0xee);
		square[i + 2] = VEC(shuffle_ps)(high_01, high_23, 0x44);
		square[i + 3] = VEC(shuffle_ps)(high_01, high_23, 0xee);
	}
}
