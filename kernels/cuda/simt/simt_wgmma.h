/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_wgmma.h - the device implementation of simt.h's functions for sm_90a: wgmma
 *
 * An asm statement names up to 64 accumulators.  Macros write their lists, so
 * that no register is left out or named twice.
 */
#ifndef PAGED_KERNELS_CUDA_SIMT_SIMT_WGMMA_H
#define PAGED_KERNELS_CUDA_SIMT_SIMT_WGMMA_H

/* Registers of the warp group */

template <int N>
SIMT_FUNCTION void
simt_registers_grow()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
SIMT_FUNCTION void
simt_registers_shrink()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Matrices: bits 0-13 start, 16-29 leading offset, 32-45 stride offset, in units of 16 bytes; 62-63: 128-byte swizzle
 */
SIMT_FUNCTION uint64_t
simt_matrix(const void *shared, uint32_t eight, uint32_t sixty_four)
{
	return (simt_shared_address(shared) & 0x3ffff) >> 4 | (uint64_t)(sixty_four >> 4) << 16 |
	       (uint64_t)(eight >> 4) << 32 | (uint64_t)1 << 62;
}

SIMT_FUNCTION uint64_t
simt_matrix_after(uint64_t matrix, uint32_t n_bytes)
{
	return (matrix & ~(uint64_t)0xffffffff) | ((uint32_t)matrix + (n_bytes >> 4));
}

SIMT_FUNCTION void
simt_wgmma_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

SIMT_FUNCTION void
simt_wgmma_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/*
 * An instruction that is not executed, because its predicate is false, but that the assembler leaves in its place.
 * Without it ptxas computes the value after a wait that follows.
 */
SIMT_FUNCTION void
simt_compute_here(float value)
{
	asm volatile("{\n"
		     ".reg .pred negative;\n"
		     "setp.lt.f32 negative, %0, 0f00000000;\n"
		     "@negative nanosleep.u32 0;\n"
		     "}" ::"f"(value)
		     : "memory");
}

/* The compiler must not use d before the wait: it takes d for a result of the last statement here. */
template <int GROUPS, unsigned int N>
SIMT_FUNCTION void
simt_wgmma_wait(float (&d)[N])
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
	SIMT_UNROLL
	for (unsigned int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}

#define SIMT_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIMT_D16(i) SIMT_D4(i), SIMT_D4(i + 4), SIMT_D4(i + 8), SIMT_D4(i + 12)
#define SIMT_D32 SIMT_D16(0), SIMT_D16(16)
#define SIMT_D64 SIMT_D32, SIMT_D16(32), SIMT_D16(48)
#define SIMT_D32_NAMES                                                                \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "      \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
	"%31"
#define SIMT_D64_NAMES                                                                            \
	SIMT_D32_NAMES ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
		       "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
		       "%60, %61, %62, %63"

/* A and B in shared memory, both with adjacent elements of k. */
#define SIMT_WGMMA_SHARED(type, columns, names, results, a0, b0, add0)                                             \
	asm volatile("{\n"                                                                                         \
		     ".reg .pred add;\n"                                                                           \
		     "setp.ne.b32 add, " add0 ", 0;\n"                                                             \
		     "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" names "}, " a0 ", " \
		     b0 ", add, 1, 1, 0, 0;\n"                                                                     \
		     "}"                                                                                           \
		     : results                                                                                     \
		     : "l"(a), "l"(b), "r"((uint32_t)add)                                                          \
		     : "memory")
#define SIMT_WGMMA_SHARED_64(type) SIMT_WGMMA_SHARED(type, "64", SIMT_D32_NAMES, SIMT_D32, "%32", "%33", "%34")
#define SIMT_WGMMA_SHARED_128(type) SIMT_WGMMA_SHARED(type, "128", SIMT_D64_NAMES, SIMT_D64, "%64", "%65", "%66")
/* A in registers, B in shared memory with adjacent columns. */
#define SIMT_WGMMA_REGISTERS(type, columns, names, results, a0, a1, a2, a3, b0)                                        \
	asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" names "}, {" a0 ", " a1 \
		     ", " a2 ", " a3 "}, " b0 ", 1, 1, 1, 1;"                                                          \
		     : results                                                                                         \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                              \
		     : "memory")
#define SIMT_WGMMA_REGISTERS_64(type) \
	SIMT_WGMMA_REGISTERS(type, "64", SIMT_D32_NAMES, SIMT_D32, "%32", "%33", "%34", "%35", "%36")
#define SIMT_WGMMA_REGISTERS_128(type) \
	SIMT_WGMMA_REGISTERS(type, "128", SIMT_D64_NAMES, SIMT_D64, "%64", "%65", "%66", "%67", "%68")

template <bool F16, unsigned int N>
SIMT_FUNCTION void
simt_wgmma_shared(float (&d)[N], uint64_t a, uint64_t b, bool add)
{
	static_assert(N == 32 || N == 64, "64 or 128 columns");
	if constexpr (F16 && N == 32)
		SIMT_WGMMA_SHARED_64("f16");
	else if constexpr (F16)
		SIMT_WGMMA_SHARED_128("f16");
	else if constexpr (N == 32)
		SIMT_WGMMA_SHARED_64("bf16");
	else
		SIMT_WGMMA_SHARED_128("bf16");
}

template <bool F16, unsigned int N>
SIMT_FUNCTION void
simt_wgmma_registers(float (&d)[N], const uint32_t a[4], uint64_t b)
{
	static_assert(N == 32 || N == 64, "64 or 128 columns");
	if constexpr (F16 && N == 32)
		SIMT_WGMMA_REGISTERS_64("f16");
	else if constexpr (F16)
		SIMT_WGMMA_REGISTERS_128("f16");
	else if constexpr (N == 32)
		SIMT_WGMMA_REGISTERS_64("bf16");
	else
		SIMT_WGMMA_REGISTERS_128("bf16");
}

#endif
