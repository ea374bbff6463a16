/* SPDX-License-Identifier: Apache-2.0 */
/**
 * elements.h - load, store and convert elements of any dtype in device memory, one or eight at a time
 *
 * Conversion to f32 is exact; conversion from f32 rounds to nearest even.
 * Scales are not applied here.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_ELEMENTS_H
#define PAGED_KERNELS_CUDA_DEVICE_ELEMENTS_H

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/simt/simt.h"

template <class T>
SIMT_FUNCTION T *
pointer_to(uint64_t address)
{
	return reinterpret_cast<T *>(address);
}

SIMT_FUNCTION float
bits_as_float(uint32_t bits)
{
	union {
		uint32_t bits;
		float value;
	} u = { bits };

	return u.value;
}

SIMT_FUNCTION uint32_t
float_as_bits(float value)
{
	union {
		float value;
		uint32_t bits;
	} u = { value };

	return u.bits;
}

SIMT_FUNCTION uint32_t
dtype_size(uint32_t dtype)
{
	return dtype == CUDA_F32 ? 4 : dtype == CUDA_F16 || dtype == CUDA_BF16 ? 2 : 1;
}

SIMT_FUNCTION float
half_widen(uint16_t half, uint32_t dtype)
{
	return dtype == CUDA_F16 ? simt_from_f16(half) : simt_from_bf16(half);
}

SIMT_FUNCTION uint16_t
half_narrow(float value, uint32_t dtype)
{
	return dtype == CUDA_F16 ? simt_to_f16(value) : simt_to_bf16(value);
}

SIMT_FUNCTION float
byte_widen(uint8_t byte, uint32_t dtype)
{
	if (dtype == CUDA_I8)
		return (float)(int8_t)byte;
	return dtype == CUDA_E4M3 ? simt_from_e4m3(byte) : simt_from_e5m2(byte);
}

SIMT_FUNCTION float
element_load(uint64_t address, uint32_t dtype, uint32_t i)
{
	if (dtype == CUDA_F32)
		return pointer_to<const float>(address)[i];
	if (dtype_size(dtype) == 1)
		return byte_widen(pointer_to<const uint8_t>(address)[i], dtype);
	return half_widen(pointer_to<const uint16_t>(address)[i], dtype);
}

/* For tensors, whose elements are f32, f16 or bf16. */
SIMT_FUNCTION void
element_store(uint64_t address, uint32_t dtype, uint32_t i, float value)
{
	if (dtype == CUDA_F32)
		pointer_to<float>(address)[i] = value;
	else
		pointer_to<uint16_t>(address)[i] = half_narrow(value, dtype);
}

/* Store elements [4 * vec, 4 * vec + 4) of a tensor's array of any alignment. */
SIMT_FUNCTION void
vec4_store(uint64_t address, uint32_t dtype, uint32_t vec, const float v[4])
{
	uint64_t to = address + vec * 4 * dtype_size(dtype);

	if (dtype == CUDA_F32 && to % 16 == 0)
		*pointer_to<simt_vec4>(to) = { float_as_bits(v[0]), float_as_bits(v[1]), float_as_bits(v[2]),
					       float_as_bits(v[3]) };
	else if (dtype == CUDA_F16 && to % 8 == 0)
		*pointer_to<simt_vec2>(to) = { simt_pack_f16(v[0], v[1]), simt_pack_f16(v[2], v[3]) };
	else if (dtype == CUDA_BF16 && to % 8 == 0)
		*pointer_to<simt_vec2>(to) = { simt_pack_bf16(v[0], v[1]), simt_pack_bf16(v[2], v[3]) };
	else {
		SIMT_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			element_store(to, dtype, i, v[i]);
	}
}

/* Store elements 2 * pair and 2 * pair + 1, two floats, of a tensor's array of any alignment. */
SIMT_FUNCTION void
pair_store(uint64_t address, uint32_t dtype, uint32_t pair, const simt_vec2 &values)
{
	float a = bits_as_float(values.x), b = bits_as_float(values.y);

	if (dtype == CUDA_F32 && address % 8 == 0) {
		pointer_to<simt_vec2>(address)[pair] = values;
	} else if (dtype != CUDA_F32 && address % 4 == 0) {
		pointer_to<uint32_t>(address)[pair] = dtype == CUDA_F16 ? simt_pack_f16(a, b) : simt_pack_bf16(a, b);
	} else {
		element_store(address, dtype, pair * 2, a);
		element_store(address, dtype, pair * 2 + 1, b);
	}
}

/* Address of the first element of a token's head in a packed tensor. */
SIMT_FUNCTION uint64_t
tensor_address(const cuda_tensor &tensor, uint32_t token, uint32_t head)
{
	int64_t at = (int64_t)token * tensor.token_stride + (int64_t)head * tensor.head_stride;

	if (tensor.batch_skip != 0)
		at += (int64_t)(token / tensor.batch_tokens) * tensor.batch_skip;
	return tensor.address + (uint64_t)at;
}

SIMT_FUNCTION uint64_t
plane_address(const cuda_plane &plane, uint32_t page, uint32_t head, uint32_t token)
{
	return plane.address + page * plane.page_stride + head * plane.head_stride + token * plane.token_stride;
}

/* The scale of a token's head.  `heads` is the address of the per-head scales of fp8, or 0. */
SIMT_FUNCTION float
pages_scale(const cuda_pages &pages, uint32_t plane, uint64_t heads, uint32_t page, uint32_t head, uint32_t token)
{
	const cuda_plane &scale = pages.scale[plane];

	if (scale.address != 0)
		return *pointer_to<const float>(plane_address(scale, page, head, token));
	return heads == 0 ? 1 : pointer_to<const float>(heads)[head];
}

/* Convert eight f32 to f16 or bf16. */
SIMT_FUNCTION simt_vec4
halves_pack(const float v[8], uint32_t dtype)
{
	simt_vec4 to;

	if (dtype == CUDA_F16)
		to = { simt_pack_f16(v[0], v[1]), simt_pack_f16(v[2], v[3]), simt_pack_f16(v[4], v[5]),
		       simt_pack_f16(v[6], v[7]) };
	else
		to = { simt_pack_bf16(v[0], v[1]), simt_pack_bf16(v[2], v[3]), simt_pack_bf16(v[4], v[5]),
		       simt_pack_bf16(v[6], v[7]) };
	return to;
}

SIMT_FUNCTION float
infinity()
{
	return bits_as_float(0x7f800000);
}

/* Load eight f32, f16 or bf16 from an address that is a multiple of 16. */
SIMT_FUNCTION void
vec8_load(float v[8], uint64_t address, uint32_t dtype)
{
	const simt_vec4 *from = pointer_to<const simt_vec4>(address);
	simt_vec4 a = from[0];

	if (dtype == CUDA_F32) {
		simt_vec4 b = from[1];

		v[0] = bits_as_float(a.x), v[1] = bits_as_float(a.y), v[2] = bits_as_float(a.z),
		v[3] = bits_as_float(a.w);
		v[4] = bits_as_float(b.x), v[5] = bits_as_float(b.y), v[6] = bits_as_float(b.z),
		v[7] = bits_as_float(b.w);
		return;
	}
	v[0] = half_widen((uint16_t)a.x, dtype), v[1] = half_widen((uint16_t)(a.x >> 16), dtype);
	v[2] = half_widen((uint16_t)a.y, dtype), v[3] = half_widen((uint16_t)(a.y >> 16), dtype);
	v[4] = half_widen((uint16_t)a.z, dtype), v[5] = half_widen((uint16_t)(a.z >> 16), dtype);
	v[6] = half_widen((uint16_t)a.w, dtype), v[7] = half_widen((uint16_t)(a.w >> 16), dtype);
}

SIMT_FUNCTION void
vec8_store(uint64_t address, uint32_t dtype, const float v[8])
{
	simt_vec4 *to = pointer_to<simt_vec4>(address);

	if (dtype != CUDA_F32) {
		to[0] = halves_pack(v, dtype);
		return;
	}
	to[0] = { float_as_bits(v[0]), float_as_bits(v[1]), float_as_bits(v[2]), float_as_bits(v[3]) };
	to[1] = { float_as_bits(v[4]), float_as_bits(v[5]), float_as_bits(v[6]), float_as_bits(v[7]) };
}

/* Load the first n of eight elements from an address of any alignment; the others become 0. */
SIMT_FUNCTION void
vec8_load_first(float v[8], uint64_t address, uint32_t dtype, uint32_t n)
{
	if (n >= 8 && address % 16 == 0 && dtype_size(dtype) > 1) {
		vec8_load(v, address, dtype);
		return;
	}
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		v[i] = i < n ? element_load(address, dtype, i) : 0;
}

SIMT_FUNCTION void
vec8_store_first(uint64_t address, uint32_t dtype, const float v[8], uint32_t n)
{
	if (n >= 8 && address % 16 == 0) {
		vec8_store(address, dtype, v);
		return;
	}
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		if (i < n)
			element_store(address, dtype, i, v[i]);
}

/* Copy elements [8 * vec8, 8 * vec8 + 8) of n from one array to another, with any alignment, converting the dtype. */
SIMT_FUNCTION void
vec8_copy(uint64_t to, uint32_t to_dtype, uint64_t from, uint32_t from_dtype, uint32_t vec8, uint32_t n)
{
	uint32_t begin = vec8 * 8, end = begin + 8;
	bool same = to_dtype == from_dtype;

	to += begin * dtype_size(to_dtype);
	from += begin * dtype_size(from_dtype);
	if (end <= n && to % 16 == 0 && from % 16 == 0) {
		if (same) {
			for (uint32_t i = 0; i < dtype_size(to_dtype) / 2; i++)
				pointer_to<simt_vec4>(to)[i] = pointer_to<const simt_vec4>(from)[i];
		} else {
			float v[8];

			vec8_load(v, from, from_dtype);
			vec8_store(to, to_dtype, v);
		}
		return;
	}
	for (uint32_t i = 0; i < (end < n ? end : n) - begin; i++) {
		if (!same)
			element_store(to, to_dtype, i, element_load(from, from_dtype, i));
		else if (to_dtype == CUDA_F32)
			pointer_to<uint32_t>(to)[i] = pointer_to<const uint32_t>(from)[i];
		else
			pointer_to<uint16_t>(to)[i] = pointer_to<const uint16_t>(from)[i];
	}
}

#endif
