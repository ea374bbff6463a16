/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512's functions, plus products of bf16 pairs by AMX.  The instructions are inline assembly,
 * because the compilers' intrinsics do not declare that they read memory.
 */
#include "kernels/cpu/isa/tile_avx512bf16.h"

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

#define AMX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define AMX_LOAD(t, at, stride) \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(at), "r"((size_t)(stride)) : "memory")
#define AMX_LOAD_ONCE(t, at, stride) \
	__asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : "r"(at), "r"((size_t)(stride)) : "memory")
#define AMX_STORE(t, at, stride) \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(at), "r"((size_t)(stride)) : "memory")
#define AMX_DOT(sums, left, right) __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)

/* Operand of ldtilecfg: all eight tiles have 16 rows of 64 bytes. */
struct amx_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

_Static_assert(sizeof(struct amx_config) == 64, "as the CPU has it");

static void
amx_begin(void)
{
	static const struct amx_config config = {
		.palette = 1,
		.row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
		.rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
	};

	__asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static void
amx_end(void)
{
	__asm__ volatile("tilerelease" : :);
}

static inline vec
vec_fraction(vec v)
{
	return _mm512_reduce_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

static inline vec
vec_scale_floor(vec v, vec n)
{
	return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-126), _CMP_NLT_UQ), v, n);
}

static inline vec
vec_no_minus_infinity(vec v)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ), v);
}

static inline vec
vec_scaled(vec v, vec scale)
{
	return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ), v, scale);
}

static inline vec
sum_or_max(vec a, vec b, bool sum)
{
	return sum ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b);
}

static inline vec
reduce_two(vec a, vec b, bool sum)
{
	return sum_or_max(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd), sum);
}

/*
 * Reduces 16 vectors to one, whose lane i is the sum or maximum of v[i]: four rounds, each combining
 * pairs of vectors.
 */
static inline __attribute__((always_inline)) vec
reduce_lanes(vec *v, bool sum)
{
#pragma GCC unroll 8
	for (unsigned int i = 0; i < 8; i++)
		v[i] = sum_or_max(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
				  _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]), sum);
#pragma GCC unroll 4
	for (unsigned int i = 0; i < 4; i++)
		v[i] = sum_or_max(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
				  _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xee), sum);
	return reduce_two(reduce_two(v[0], v[1], sum), reduce_two(v[2], v[3], sum), sum);
}

static inline __attribute__((always_inline)) vec
vec_max_each(vec *v)
{
	return reduce_lanes(v, false);
}

static inline __attribute__((always_inline)) vec
vec_sum_each(vec *v)
{
	return reduce_lanes(v, true);
}

static inline uint32_t
vec_unequal(vec a, vec b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}

#include "kernels/cpu/decode/widen_bf16_body.h"

#include "kernels/cpu/prefill/tile_amx_prefill_body.h"
#include "kernels/cpu/decode/tile_amx_decode_body.h"

const struct kernel_tile_ops kernel_tile_ops_amx = {
	TILE_FUNCTIONS, .decode_bf16 = &tile_decode_bf16_amx, .prefill_bf16 = &tile_prefill_amx, .begin = amx_begin,
	.end = amx_end,
};
