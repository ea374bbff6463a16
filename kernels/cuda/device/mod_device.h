/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_device.h - the operations of mods, for compiled mods
 *
 * kernels/mod/cuda_source.c generates functions that call these operations; mod.h
 * defines their results for every operand.  Int operations that may overflow
 * are computed unsigned, so they wrap.  Each float sum and product is rounded
 * separately, never contracted to an FMA, so the bits equal those of the CPU's
 * tiles.  A module with mods must not be compiled with options that flush
 * subnormals or approximate division.  exp, exp2, log, tanh, sin, cos and tan
 * are the compiler's functions; they may differ from the CPU's within the
 * accuracy of mod.h.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_MOD_DEVICE_H
#define PAGED_KERNELS_CUDA_DEVICE_MOD_DEVICE_H

/* Included first: under NVRTC, which has no stdint.h, simt.h defines the integer types. */
#include "kernels/cuda/simt/simt.h"

#include "kernels/mod/mod_args.h"

static_assert(sizeof(cuda_mod_name) == 64 && sizeof(cuda_mod_args) == 8 + 2 * CUDA_MOD_NAMES * 64,
	      "as the host fills it");

/* Selects the device's operation, or the host's operation or C library function. */
#if SIMT_DEVICE
#define MOD_DEVICE_OR_HOST(device, host) device
#else
#define MOD_DEVICE_OR_HOST(device, host) host
#endif

/* Load a value that nothing writes while the kernel runs, so the compiler may keep it in a register over barriers. */
template <class T>
SIMT_FUNCTION T
mod_constant(const T *at)
{
	return MOD_DEVICE_OR_HOST(__ldg(at), *at);
}

SIMT_FUNCTION float
mod_float(uint32_t bits)
{
	union {
		uint32_t bits;
		float value;
	} u = { bits };

	return u.value;
}

/* Ints */

SIMT_FUNCTION int32_t
mod_add(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

SIMT_FUNCTION int32_t
mod_sub(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a - (uint32_t)b);
}

SIMT_FUNCTION int32_t
mod_mul(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a * (uint32_t)b);
}

SIMT_FUNCTION int32_t
mod_neg(int32_t a)
{
	return mod_sub(0, a);
}

SIMT_FUNCTION int32_t
mod_abs(int32_t a)
{
	return a < 0 ? mod_neg(a) : a;
}

/* Rounds towards minus infinity; division by 0 is 0. */
SIMT_FUNCTION int32_t
mod_div(int32_t a, int32_t b)
{
	int32_t quotient;

	if (b == 0)
		return 0;
	if (b == -1)
		return mod_neg(a);
	quotient = a / b;
	return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

SIMT_FUNCTION int32_t
mod_mod(int32_t a, int32_t b)
{
	int32_t rest;

	if (b == 0 || b == -1)
		return 0;
	rest = a % b;
	return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

SIMT_FUNCTION int32_t
mod_shl(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a << (b & 31));
}

SIMT_FUNCTION int32_t
mod_shr(int32_t a, int32_t b)
{
	return a >> (b & 31);
}

SIMT_FUNCTION int32_t
mod_min(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

SIMT_FUNCTION int32_t
mod_max(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/* Rounds towards 0 and saturates; NaN is 0. */
SIMT_FUNCTION int32_t
mod_to_int(float a)
{
	if (!(a > -2147483648.0f))
		return a != a ? 0 : -2147483647 - 1;
	return a >= 2147483648.0f ? 2147483647 : (int32_t)a;
}

/* Floats */

SIMT_FUNCTION float
mod_to_float(int32_t a)
{
	return MOD_DEVICE_OR_HOST(__int2float_rn(a), (float)a);
}

SIMT_FUNCTION float
mod_add(float a, float b)
{
	return MOD_DEVICE_OR_HOST(__fadd_rn(a, b), a + b);
}

SIMT_FUNCTION float
mod_sub(float a, float b)
{
	return MOD_DEVICE_OR_HOST(__fsub_rn(a, b), a - b);
}

SIMT_FUNCTION float
mod_mul(float a, float b)
{
	return MOD_DEVICE_OR_HOST(__fmul_rn(a, b), a * b);
}

SIMT_FUNCTION float
mod_div(float a, float b)
{
	return MOD_DEVICE_OR_HOST(__fdiv_rn(a, b), a / b);
}

SIMT_FUNCTION float
mod_neg(float a)
{
	return -a;
}

SIMT_FUNCTION float
mod_abs(float a)
{
	return MOD_DEVICE_OR_HOST(fabsf(a), __builtin_fabsf(a));
}

SIMT_FUNCTION float
mod_min(float a, float b)
{
	return a != a || b != b ? mod_float(0x7fc00000) : a < b ? a : b;
}

SIMT_FUNCTION float
mod_max(float a, float b)
{
	return a != a || b != b ? mod_float(0x7fc00000) : a > b ? a : b;
}

SIMT_FUNCTION float
mod_sqrt(float a)
{
	return MOD_DEVICE_OR_HOST(__fsqrt_rn(a), __builtin_sqrtf(a));
}

SIMT_FUNCTION float
mod_floor(float a)
{
	return MOD_DEVICE_OR_HOST(floorf(a), __builtin_floorf(a));
}

SIMT_FUNCTION float
mod_exp(float a)
{
	return MOD_DEVICE_OR_HOST(expf(a), __builtin_expf(a));
}

SIMT_FUNCTION float
mod_exp2(float a)
{
	return MOD_DEVICE_OR_HOST(exp2f(a), __builtin_exp2f(a));
}

SIMT_FUNCTION float
mod_log(float a)
{
	return MOD_DEVICE_OR_HOST(logf(a), __builtin_logf(a));
}

SIMT_FUNCTION float
mod_tanh(float a)
{
	return MOD_DEVICE_OR_HOST(tanhf(a), __builtin_tanhf(a));
}

SIMT_FUNCTION float
mod_sin(float a)
{
	return MOD_DEVICE_OR_HOST(sinf(a), __builtin_sinf(a));
}

SIMT_FUNCTION float
mod_cos(float a)
{
	return MOD_DEVICE_OR_HOST(cosf(a), __builtin_cosf(a));
}

SIMT_FUNCTION float
mod_tan(float a)
{
	return MOD_DEVICE_OR_HOST(tanf(a), __builtin_tanf(a));
}

/* The argument of exp() is never positive: exp() cannot overflow, and the result stays accurate for large |a|. */
SIMT_FUNCTION float
mod_sigmoid(float a)
{
	float e = mod_exp(-mod_abs(a));

	return mod_div(a < 0 ? e : 1.0f, mod_add(1.0f, e));
}

/* Parameters and arrays */

SIMT_FUNCTION int32_t
mod_param_int(const cuda_mod_name *name)
{
	return (int32_t)mod_constant(&name->value);
}

SIMT_FUNCTION float
mod_param_float(const cuda_mod_name *name)
{
	return mod_float(mod_constant(&name->value));
}

/* Record an out-of-bounds index, if it is the first. */
SIMT_FUNCTION void
mod_record_out_of_range(const cuda_mod_args *args, const cuda_mod_name *name, uint32_t dim, int32_t index,
			uint32_t extent)
{
	cuda_mod_range *range = reinterpret_cast<cuda_mod_range *>(mod_constant(&args->range));
	uint32_t number = (uint32_t)(name - &args->names[0][0]);

	if (range == nullptr || simt_load_fresh(&range->found) != 0 || simt_atomic_or(&range->found, 1) != 0)
		return;
	range->kind = number / CUDA_MOD_NAMES;
	range->array = number % CUDA_MOD_NAMES;
	range->dim = dim;
	range->index = index;
	range->extent = extent;
}

/* The address of an element; if an index is out of bounds, records it and returns nullptr. */
template <class T, class... Index>
SIMT_FUNCTION const T *
mod_find(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const int32_t index[] = { indexes... };
	uint64_t at = mod_constant(&name->address);

	for (uint32_t d = 0; d < sizeof...(indexes); d++) {
		uint32_t extent = mod_constant(&name->extents[d]);

		if (index[d] < 0 || (uint32_t)index[d] >= extent) {
			mod_record_out_of_range(args, name, d, index[d], extent);
			return nullptr;
		}
		at += (uint64_t)(index[d] * mod_constant(&name->strides[d]));
	}
	return reinterpret_cast<const T *>(at);
}

/* Load one element as an int or an f32; 0 if an index is out of bounds. */

template <class... Index>
SIMT_FUNCTION int32_t
mod_load_u8(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const uint8_t *at = mod_find<uint8_t>(args, name, indexes...);

	return at == nullptr ? 0 : mod_constant(at);
}

template <class... Index>
SIMT_FUNCTION int32_t
mod_load_i32(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const int32_t *at = mod_find<int32_t>(args, name, indexes...);

	return at == nullptr ? 0 : mod_constant(at);
}

template <class... Index>
SIMT_FUNCTION float
mod_load_f32(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const float *at = mod_find<float>(args, name, indexes...);

	return at == nullptr ? 0 : mod_constant(at);
}

template <class... Index>
SIMT_FUNCTION float
mod_load_f16(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const uint16_t *at = mod_find<uint16_t>(args, name, indexes...);

	return at == nullptr ? 0 : simt_from_f16(mod_constant(at));
}

template <class... Index>
SIMT_FUNCTION float
mod_load_bf16(const cuda_mod_args *args, const cuda_mod_name *name, Index... indexes)
{
	const uint16_t *at = mod_find<uint16_t>(args, name, indexes...);

	return at == nullptr ? 0 : simt_from_bf16(mod_constant(at));
}

#endif
