/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rotary.h - rotary embedding (RoPE) of eight elements of a head at a time
 *
 * Arithmetic is f32; each product and each sum is rounded separately, as in the
 * host kernels, so the bits are the same.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_ROTARY_H
#define PAGED_KERNELS_CUDA_DEVICE_ROTARY_H

#include "kernels/cuda/device/elements.h"

/** The head of a token to rotate. */
struct rotary_head {
	uint64_t from; /* address of the head's elements before the rotation */
	uint32_t dtype;
	uint64_t angles; /* for the token's position: cosines of the pairs, then their sines */
};

/* Rotate one element, number `t` of the rotated dims. */
SIMT_FUNCTION float
rotary_element(const cuda_rotary &rotary, const rotary_head &head, uint32_t t, float value)
{
	const float *angles = pointer_to<const float>(head.angles);
	uint32_t half = rotary.dim / 2, pair = rotary.interleaved ? t / 2 : t % half;
	bool second = rotary.interleaved ? t % 2 != 0 : t >= half;
	uint32_t other = rotary.interleaved ? t ^ 1 : second ? pair : pair + half;
	float sine = simt_mul(element_load(head.from, head.dtype, rotary.first + other), angles[half + pair]);

	return simt_add(simt_mul(value, angles[pair]), second ? sine : -sine);
}

/* Rotate eight elements that are paired with eight consecutive elements of the other half (not interleaved). */
SIMT_FUNCTION void
rotary_halves(const cuda_rotary &rotary, const rotary_head &head, uint32_t t, float v[8])
{
	uint32_t half = rotary.dim / 2, pair = t % half, other = rotary.first + (t < half ? t + half : pair);
	float others[8], cosines[8], sines[8];

	vec8_load_first(others, head.from + other * dtype_size(head.dtype), head.dtype, 8);
	vec8_load_first(cosines, head.angles + pair * sizeof(float), CUDA_F32, 8);
	vec8_load_first(sines, head.angles + (half + pair) * sizeof(float), CUDA_F32, 8);
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++) {
		float sine = simt_mul(others[i], sines[i]);

		v[i] = simt_add(simt_mul(v[i], cosines[i]), t < half ? -sine : sine);
	}
}

/* Rotate eight elements that are four adjacent pairs (interleaved). */
SIMT_FUNCTION void
rotary_pairs(const cuda_rotary &rotary, const rotary_head &head, uint32_t t, float v[8])
{
	const float *cosines = pointer_to<const float>(head.angles) + t / 2, *sines = cosines + rotary.dim / 2;

	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i += 2) {
		float x = v[i], y = v[i + 1], c = cosines[i / 2], s = sines[i / 2];

		v[i] = simt_add(simt_mul(x, c), -simt_mul(y, s));
		v[i + 1] = simt_add(simt_mul(y, c), simt_mul(x, s));
	}
}

/*
 * Rotate elements [begin, begin + 8) of a head of n elements in v; elements outside of the rotated dims do not change.
 */
SIMT_FUNCTION void
rotary_apply(const cuda_rotary &rotary, const rotary_head &head, uint32_t begin, uint32_t n, float v[8])
{
	uint32_t first = begin - rotary.first, unit = rotary.interleaved ? 2 : 8;

	if (begin >= rotary.first && first + 8 <= rotary.dim && first % unit == 0 && rotary.dim / 2 % unit == 0) {
		if (rotary.interleaved)
			rotary_pairs(rotary, head, first, v);
		else
			rotary_halves(rotary, head, first, v);
		return;
	}
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		if (begin + i < n && begin + i >= rotary.first && first + i < rotary.dim)
			v[i] = rotary_element(rotary, head, first + i, v[i]);
}

#endif
