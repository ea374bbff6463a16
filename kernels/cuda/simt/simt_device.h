/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_device.h - the device implementation of simt.h, for nvcc and NVRTC, sm_80 and up
 *
 * Each function is one instruction, or a replacement on architectures that lack
 * the instruction.  The asm statements that access or order memory have a
 * "memory" clobber, so the compiler does not move accesses across them.
 */
#ifndef PAGED_KERNELS_CUDA_SIMT_SIMT_DEVICE_H
#define PAGED_KERNELS_CUDA_SIMT_SIMT_DEVICE_H

/* Thread and block indices */

SIMT_FUNCTION uint32_t
simt_thread()
{
	return threadIdx.x;
}

SIMT_FUNCTION uint32_t
simt_lane()
{
	return threadIdx.x % 32;
}

SIMT_FUNCTION uint32_t
simt_warp()
{
	return threadIdx.x / 32;
}

SIMT_FUNCTION uint32_t
simt_n_threads()
{
	return blockDim.x;
}

SIMT_FUNCTION uint32_t
simt_block()
{
	return blockIdx.x;
}

SIMT_FUNCTION uint32_t
simt_block_y()
{
	return blockIdx.y;
}

SIMT_FUNCTION uint32_t
simt_n_blocks()
{
	return gridDim.x;
}

/* Barriers and warps */

SIMT_FUNCTION void
simt_sync()
{
	__syncthreads();
}

SIMT_FUNCTION void
simt_sync_part(int id, int n_threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

SIMT_FUNCTION void
simt_warp_sync()
{
	__syncwarp();
}

template <class T>
SIMT_FUNCTION T
simt_shuffle(T value, int lane)
{
	static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");
	return __shfl_sync(0xffffffffu, value, lane);
}

template <class T>
SIMT_FUNCTION T
simt_shuffle_xor(T value, int mask)
{
	static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");
	return __shfl_xor_sync(0xffffffffu, value, mask);
}

SIMT_FUNCTION uint32_t
simt_ballot(bool value)
{
	return __ballot_sync(0xffffffffu, value);
}

SIMT_FUNCTION bool
simt_any(bool value)
{
	return __any_sync(0xffffffffu, value) != 0;
}

SIMT_FUNCTION bool
simt_all(bool value)
{
	return __all_sync(0xffffffffu, value) != 0;
}

/* Between kernels.  From sm_90 on; other devices have no such launches. */

SIMT_FUNCTION void
simt_dependency_wait()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SIMT_FUNCTION void
simt_dependents_launch()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Between blocks */

SIMT_FUNCTION uint32_t
simt_atomic_add(uint32_t *at, uint32_t n)
{
	return atomicAdd(at, n);
}

SIMT_FUNCTION uint32_t
simt_atomic_add_acq_rel(uint32_t *at, uint32_t n)
{
	uint32_t old;

	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
		     : "=r"(old)
		     : "l"(__cvta_generic_to_global(at)), "r"(n)
		     : "memory");
	return old;
}

SIMT_FUNCTION uint32_t
simt_atomic_max(uint32_t *at, uint32_t n)
{
	return atomicMax(at, n);
}

SIMT_FUNCTION uint32_t
simt_atomic_or(uint32_t *at, uint32_t n)
{
	return atomicOr(at, n);
}

template <class T>
SIMT_FUNCTION T
simt_load_fresh(const T *at)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
	union {
		T value;
		uint32_t words[sizeof(T) / 4];
	} to;

	if constexpr (sizeof(T) == 4)
		asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(to.words[0]) : "l"(at) : "memory");
	else if constexpr (sizeof(T) == 8)
		asm volatile("ld.relaxed.gpu.v2.u32 {%0, %1}, [%2];"
			     : "=r"(to.words[0]), "=r"(to.words[1])
			     : "l"(at)
			     : "memory");
	else
		asm volatile("ld.relaxed.gpu.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
			     : "l"(at)
			     : "memory");
	return to.value;
}

/* Copies from global to shared memory */

SIMT_FUNCTION uint32_t
simt_shared_address(const void *shared)
{
	return (uint32_t)__cvta_generic_to_shared(shared);
}

SIMT_FUNCTION void
simt_copy_async16(void *shared, const void *global, bool valid)
{
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(simt_shared_address(shared)),
		     "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
		     : "memory");
}

SIMT_FUNCTION void
simt_copy_async4(void *shared, const void *global, bool valid)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(simt_shared_address(shared)),
		     "l"(__cvta_generic_to_global(global)), "r"(valid ? 4 : 0)
		     : "memory");
}

SIMT_FUNCTION void
simt_copy_async_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
SIMT_FUNCTION void
simt_copy_async_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Matrices */

SIMT_FUNCTION void
simt_ldmatrix_x4(uint32_t r[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(simt_shared_address(row))
		     : "memory");
}

SIMT_FUNCTION void
simt_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(simt_shared_address(row))
		     : "memory");
}

SIMT_FUNCTION void
simt_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
		     "{%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

SIMT_FUNCTION void
simt_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
		     "{%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Numbers */

SIMT_FUNCTION float
simt_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

SIMT_FUNCTION float
simt_log2(float x)
{
	float y;

	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

SIMT_FUNCTION float
simt_fma(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

SIMT_FUNCTION float
simt_mul(float a, float b)
{
	return __fmul_rn(a, b);
}

SIMT_FUNCTION float
simt_add(float a, float b)
{
	return __fadd_rn(a, b);
}

SIMT_FUNCTION int32_t
simt_to_int(float value)
{
	return __float2int_rn(value);
}

SIMT_FUNCTION float
simt_max(float a, float b)
{
	float c;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
	return c;
}

SIMT_FUNCTION float
simt_max_number(float a, float b)
{
	float c;

	asm("max.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
	return c;
}

SIMT_FUNCTION uint16_t
simt_to_bf16(float value)
{
	uint16_t bits;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
	return bits;
}

SIMT_FUNCTION uint16_t
simt_to_f16(float value)
{
	uint16_t bits;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
	return bits;
}

SIMT_FUNCTION uint32_t
simt_pack_bf16(float low, float high)
{
	uint32_t bits;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
	return bits;
}

SIMT_FUNCTION uint32_t
simt_pack_f16(float low, float high)
{
	uint32_t bits;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
	return bits;
}

SIMT_FUNCTION float
simt_from_bf16(uint16_t bits)
{
	return __uint_as_float((uint32_t)bits << 16);
}

SIMT_FUNCTION float
simt_from_f16(uint16_t bits)
{
	float value;

	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
	return value;
}

SIMT_FUNCTION uint32_t
simt_opaque(uint32_t value)
{
	asm volatile("" : "+r"(value));
	return value;
}

/* Operations on two halves */

SIMT_FUNCTION uint32_t
simt_permute(uint32_t low, uint32_t high, uint32_t which)
{
	return __byte_perm(low, high, which);
}

SIMT_FUNCTION uint32_t
simt_fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;

	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

SIMT_FUNCTION uint32_t
simt_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

/* fp8: conversion instructions exist from sm_89 on */

#include "kernels/cuda/simt/simt_fp8.h"

/* The instructions of fp8: sm_89 has them from CUDA 12.1 on. */
#if __CUDA_ARCH__ >= 900 || \
	(__CUDA_ARCH__ >= 890 && (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 1)))
#define SIMT_HAS_FP8 1
#else
#define SIMT_HAS_FP8 0
#endif

SIMT_FUNCTION uint16_t
simt_pack_e4m3(float low, float high)
{
#if SIMT_HAS_FP8
	uint16_t bits;

	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
	return bits;
#else
	return (uint16_t)(fp8_to_e4m3(low) | fp8_to_e4m3(high) << 8);
#endif
}

SIMT_FUNCTION uint16_t
simt_pack_e5m2(float low, float high)
{
#if SIMT_HAS_FP8
	uint16_t bits;

	asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
	return bits;
#else
	return (uint16_t)(fp8_to_e5m2(low) | fp8_to_e5m2(high) << 8);
#endif
}

SIMT_FUNCTION uint32_t
simt_widen_e4m3(uint16_t two)
{
#if SIMT_HAS_FP8
	uint32_t halves;

	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
	return halves;
#else
	return fp8_widen_e4m3(two);
#endif
}

/* The conversion reads either half of a register, which ptxas sees only if the halves are taken apart by mov. */
SIMT_FUNCTION void
simt_widen_four_e4m3(uint32_t four, uint32_t pairs[2])
{
#if SIMT_HAS_FP8
	asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
	    : "=r"(pairs[0]), "=r"(pairs[1])
	    : "r"(four));
#else
	pairs[0] = fp8_widen_e4m3((uint16_t)four);
	pairs[1] = fp8_widen_e4m3((uint16_t)(four >> 16));
#endif
}

/* e5m2 is the high byte of an f16: a byte permutation is faster than the conversion instruction. */
SIMT_FUNCTION uint32_t
simt_widen_e5m2(uint16_t two)
{
	return fp8_widen_e5m2(two);
}

SIMT_FUNCTION uint8_t
simt_to_e4m3(float value)
{
	return (uint8_t)simt_pack_e4m3(value, 0);
}

SIMT_FUNCTION uint8_t
simt_to_e5m2(float value)
{
	return (uint8_t)simt_pack_e5m2(value, 0);
}

SIMT_FUNCTION float
simt_from_e4m3(uint8_t bits)
{
	return simt_from_f16((uint16_t)simt_widen_e4m3(bits));
}

SIMT_FUNCTION float
simt_from_e5m2(uint8_t bits)
{
	return simt_from_f16((uint16_t)simt_widen_e5m2(bits));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SIMT_HAS_BARRIERS 1
#include "kernels/cuda/simt/simt_barrier.h"
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SIMT_HAS_WGMMA 1
#include "kernels/cuda/simt/simt_wgmma.h"
#endif

#endif
