/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt.h - the portable layer that kernels are written in
 *
 * Three compilers compile each kernel source: nvcc (built-in cubins and PTX),
 * NVRTC (kernels with a mod), and the host's C++ compiler, whose code the fake
 * CUDA driver of tests/fake-cuda runs thread by thread.  Therefore kernels
 *
 * - include only headers of this repository, and are C++17 without its library;
 * - keep all shared memory in one struct, accessed by SIMT_SHARED();
 * - are declared by SIMT_KERNEL() or SIMT_KERNEL_OF_CLUSTERS(), with one parameter: a struct, by value;
 * - use hardware only through the functions below; those marked "whole warp"
 *   are called by all 32 lanes, converged;
 * - assume no order of blocks, and not that two blocks of different clusters run
 *   at the same time, except as far as the value of an atomic shows it.
 *
 * Parameter: a host build defines SIMT_HOST_HEADER, the header that implements
 * the functions below.  nvcc and NVRTC use simt_device.h.
 *
 * Templates live in device functions; a kernel is a plain function around one.
 * Element types: bf16 and f16 are their 16 bits (uint16_t) in memory.
 */
#ifndef PAGED_KERNELS_CUDA_SIMT_SIMT_H
#define PAGED_KERNELS_CUDA_SIMT_SIMT_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SIMT_DEVICE 1
#else
#define SIMT_DEVICE 0
#endif

#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define UINT32_MAX 0xffffffffu
#else
#include <stdint.h>
#endif

/** 16 and 8 bytes that one instruction loads or stores. */
struct alignas(16) simt_vec4 {
	uint32_t x, y, z, w;
};
struct alignas(8) simt_vec2 {
	uint32_t x, y;
};

#define SIMT_CLUSTER_BLOCKS 2u /* blocks of a cluster */

#if SIMT_DEVICE
#define SIMT_FUNCTION __device__ __forceinline__
/* The same, of a struct. */
#define SIMT_MEMBER static SIMT_FUNCTION
/* A function that is called rather than inlined: nothing of it is computed before a loop and kept in registers. */
#define SIMT_CALLED static __device__ __noinline__
/* Unroll the loop that follows, so that the arrays it indexes stay in registers. */
#define SIMT_UNROLL _Pragma("unroll")
/* The function that a launch calls; kernels are declared by SIMT_KERNEL() and SIMT_KERNEL_OF_CLUSTERS(). */
#define SIMT_ENTRY(name, params, max_threads, min_blocks) \
	extern "C" __global__ void __launch_bounds__(max_threads, min_blocks) name(const __grid_constant__ params p)
#define SIMT_ENTRY_OF_CLUSTERS(name, params, max_threads, min_blocks)          \
	extern "C" __global__ void __cluster_dims__(SIMT_CLUSTER_BLOCKS, 1, 1) \
		__launch_bounds__(max_threads, min_blocks) name(const __grid_constant__ params p)
#define SIMT_SHARED(type) (*reinterpret_cast<type *>(simt_shared_memory))
extern __shared__ __align__(1024) unsigned char simt_shared_memory[];
#include "kernels/cuda/simt/simt_device.h"
#else
#define SIMT_FUNCTION static inline
#define SIMT_MEMBER static inline
#define SIMT_CALLED static inline
#define SIMT_UNROLL
/*
 * A host build defines SIMT_HOST_HEADER.  That header's SIMT_ENTRY() and SIMT_ENTRY_OF_CLUSTERS() register the kernel,
 * and its functions are models of the functions below.
 */
#include SIMT_HOST_HEADER
#endif
#ifndef SIMT_HAS_BARRIERS
#define SIMT_HAS_BARRIERS 0
#endif
#ifndef SIMT_HAS_WGMMA
#define SIMT_HAS_WGMMA 0
#endif

/*
 * SIMT_KERNEL(name, parameter struct, maximum threads per block, minimum blocks per multiprocessor)
 * { ... the body; the parameter is `p` ... }
 *
 * Programmatic dependent launch: a kernel B that is launched with that attribute may start when every block of the
 * kernel before it in the stream, A, has called simt_dependents_launch() or has ended.  Every kernel therefore begins
 * with simt_dependency_wait(), which returns when A has ended and its writes are visible.  Without the attribute it
 * returns at once.
 *
 * That orders B after all earlier kernels, not only after A.  By induction: suppose that when A ends, everything
 * before A in the stream has ended.  No thread of B passes its wait before A has ended, and B ends only after all its
 * threads have passed, so the same is true of B.  It is true of a kernel launched without the attribute, and of a
 * copy or an event, which the stream starts after everything before; so a stream that waits for an event after B sees
 * all of it.  Where in a kernel simt_dependents_launch() stands does not matter for this.  A kernel of the program that
 * has the attribute and ends without a wait would break the chain; programs must not launch one among the library's.
 *
 * simt_dependents_launch() follows the wait at once, so at most two kernels of a stream are on the device.  All
 * blocks of A run by then, so the blocks of B take only what A's leave free.
 */
#define SIMT_KERNEL(name, params, max_threads, min_blocks) \
	SIMT_KERNEL_OF_ENTRY(SIMT_ENTRY(name, params, max_threads, min_blocks), simt_body_##name, params)

/*
 * The same, of a kernel whose blocks 2 * i and 2 * i + 1 are a cluster (SIMT_CLUSTER_BLOCKS): they run together.  The
 * grid's x is a multiple of SIMT_CLUSTER_BLOCKS.  Only where SIMT_HAS_BARRIERS is 1.
 */
#define SIMT_KERNEL_OF_CLUSTERS(name, params, max_threads, min_blocks) \
	SIMT_KERNEL_OF_ENTRY(SIMT_ENTRY_OF_CLUSTERS(name, params, max_threads, min_blocks), simt_body_##name, params)

#define SIMT_KERNEL_OF_ENTRY(entry, body, params)       \
	SIMT_FUNCTION void body(const params &p); \
	entry                                     \
	{                                         \
		simt_dependency_wait();           \
		simt_dependents_launch();         \
		body(p);                          \
	}                                         \
	SIMT_FUNCTION void body(const params &p)

/*
 * Device and host both define (warps of 32 lanes, full mask):
 *
 *   uint32_t simt_thread()  simt_block()  simt_block_y()  simt_n_threads()  simt_n_blocks()
 *   uint32_t simt_lane() = thread % 32, simt_warp() = thread / 32
 *
 *   void simt_sync()                        barrier of the block; orders its memory accesses
 *   void simt_sync_part(id, n_threads)      named barrier 1..15 of n_threads threads (whole warps)
 *   void simt_warp_sync()                   barrier of the warp; orders its memory accesses
 *   T simt_shuffle(T value, int lane)  simt_shuffle_xor(T value, int mask)     T: 4 bytes
 *   uint32_t simt_ballot(bool)  bool simt_any(bool)  simt_all(bool)
 *
 *   void simt_dependency_wait()             until the kernel before this one in the stream has ended; see SIMT_KERNEL()
 *   void simt_dependents_launch()           the next kernel of the stream may start, once all blocks have called it
 *
 *   uint32_t simt_atomic_add(uint32_t *at, uint32_t n)         returns the old value; relaxed
 *   uint32_t simt_atomic_add_acq_rel(uint32_t *at, uint32_t n) the same, device-wide acquire and release; `at` is
 *                                           global
 *   simt_atomic_max, simt_atomic_or         return the old value; relaxed
 *   T simt_load_fresh(const T *at)          bypasses the L1 cache, which may lack another block's write
 *
 *   void simt_copy_async16(void *shared, const void *global, bool valid)   16 bytes; zeros when not valid
 *   void simt_copy_async4(...)              4 bytes; zeros when not valid
 *   void simt_copy_async_commit()           ends a group of this thread's copies
 *   template <int N> void simt_copy_async_wait()   until at most N groups of this thread are incomplete;
 *                                           other threads may read the bytes after a barrier
 *
 *   void simt_ldmatrix_x4(uint32_t r[4], const void *shared_row)        and simt_ldmatrix_x4_trans; whole warp
 *   void simt_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])   d += a b, m16n8k16; whole warp
 *   void simt_mma_f16(...)                  the same product of f16; whole warp
 *
 *   float simt_exp2(float) (2 ulp, 0 for -inf), simt_log2(float), simt_fma(a, b, c)
 *   float simt_max(a, b)                    NaN if either is
 *   float simt_max_number(a, b)             the other one if one is NaN
 *   uint16_t simt_to_bf16(float) / simt_to_f16(float), to nearest even; float simt_from_bf16 / simt_from_f16
 *   float simt_mul(a, b), simt_add(a, b)    rounded separately, never contracted to an FMA
 *   int32_t simt_to_int(float)              to nearest even, saturating; NaN is 0
 *   uint8_t simt_to_e4m3(float) / simt_to_e5m2, to nearest even, saturating (infinity too); NaN becomes 0x7f
 *   float simt_from_e4m3(uint8_t) / simt_from_e5m2
 *   uint32_t simt_pack_bf16(float low, float high), simt_pack_f16
 *   uint16_t simt_pack_e4m3(float low, float high), simt_pack_e5m2
 *   uint32_t simt_widen_e4m3(uint16_t two), simt_widen_e5m2     two f16
 *   void simt_widen_four_e4m3(uint32_t four, uint32_t pairs[2]) two times two f16
 *   uint32_t simt_fma_f16(a, b, c), simt_fma_bf16               on two halves each
 *   uint32_t simt_opaque(uint32_t)          its argument, of which the compiler knows nothing: what is computed from it
 *                                           is not hoisted out of a loop, where it would occupy a register
 *   uint32_t simt_permute(low, high, which) selects four of the eight bytes, by hexadecimal digits 0..7 of `which`
 *
 * Only where SIMT_HAS_BARRIERS is 1, which is sm_90 and later, and the host:
 *
 *   void simt_barrier_init(uint64_t *barrier, uint32_t n)      in shared memory, by one thread; then simt_sync()
 *   void simt_barrier_arrive(uint64_t *barrier)                the n-th arrival ends the phase, and begins the next one
 *   void simt_barrier_arrive_copies(uint64_t *barrier)         arrives once this thread's copies until now are complete
 *   void simt_barrier_arrive_expecting(uint64_t *barrier, uint32_t n_bytes)
 *                                           arrives; the phase does not end before bulk copies of n_bytes are complete
 *   void simt_barrier_wait(uint64_t *barrier, uint32_t parity) until the phase of this parity has ended.  The first
 *                                           phase has parity 0; parity 1 means, at first, a phase before that, which
 *                                           has ended.  Orders memory accesses before the arrivals.
 *   void simt_copy_bulk(void *shared, const void *global, uint32_t n_bytes, uint64_t *barrier)
 *                                           a bulk copy by the TMA unit: 16 * n bytes, between multiples of 16; complete
 *                                           when the barrier's phase ends, in which n_bytes are expected
 *   void simt_proxy_fence()                 writes to shared memory that this thread knows are visible to simt_wgmma_*,
 *                                           and ordered before bulk copies to the same place
 *
 * The same, of clusters.  The blocks 2 * i and 2 * i + 1 of a kernel declared by SIMT_KERNEL_OF_CLUSTERS() are a
 * cluster: they run at the same time, and reach barriers in each other's shared memory.
 *
 *   uint32_t simt_cluster_rank()                               the block's number in its cluster, 0 or 1
 *   void simt_cluster_sync()                barrier of all threads of the cluster; orders their accesses to memory, also
 *                                           to shared memory.  Called after barriers are initialised, and before a
 *                                           block ends that the other one still reaches.  Whole warp.
 *   void simt_barrier_arrive_at(uint64_t *barrier, uint32_t rank)   arrives at the barrier in the same place of that
 *                                           block's shared memory
 *   void simt_barrier_wait_cluster(uint64_t *barrier, uint32_t parity)   simt_barrier_wait() for a barrier at which
 *                                           threads of the other block arrive.  Like simt_barrier_arrive_at(), it orders
 *                                           accesses to shared memory alone, also those of its own block.
 *   void simt_copy_tensor(void *shared, const void *map, uint32_t x, uint32_t token, uint32_t head, uint32_t page,
 *                         uint64_t *barrier)
 *                                           a copy by the TMA unit of a box of a tensor [page][head][token][x] to the
 *                                           same place in both blocks, 1024-byte aligned; complete when the phase of
 *                                           the barrier in the same place of each block ends.  map: a struct
 *                                           cuda_tensor_map in the kernel's parameters, with the tensor and the box.
 *                                           The box's rows are 128 bytes, laid out as simt_wgmma_* reads matrices.
 *                                           Elements outside the tensor become zeros, and count as bytes copied.
 *
 * Only where SIMT_HAS_WGMMA is 1, which is sm_90a and the host:
 *
 *   template <int N> void simt_registers_grow(), simt_registers_shrink()    registers a thread; four warps.  To grow is
 *                                           to wait until other warps of the block have given back enough: the block
 *                                           has what its launch bounds permit, in multiples of 8 a thread
 *
 *   Products of 64 rows by four warps with adjacent numbers, of which each has 16 rows, laid out as by mma: element
 *   [n * 4 + i] of a thread's d is of row lane / 4 + i / 2 * 8 and of column n * 8 + lane % 4 * 2 + i % 2.
 *   Matrices of f16 or bf16 in shared memory consist of rows of 128 bytes, of which eight begin at a multiple of 1024.
 *   A 16-byte chunk c of row r is at c ^ r % 8.
 *   uint64_t simt_matrix(const void *shared, uint32_t eight, uint32_t sixty_four)
 *                                           offsets in bytes from eight rows to the next, and, in a matrix with
 *                                           adjacent columns, from 64 columns to the next
 *   uint64_t simt_matrix_after(uint64_t matrix, uint32_t n_bytes)           a matrix that begins so much later
 *   template <bool F16> void simt_wgmma_shared(float (&d)[N], uint64_t a, uint64_t b, bool add)
 *                                           d = a b + (add ? d : 0); N * 2 columns, 64 or 128; rows of a and columns of
 *                                           b have adjacent elements of k
 *   template <bool F16> void simt_wgmma_registers(float (&d)[N], const uint32_t a[4], uint64_t b)
 *                                           d += a b; N * 2 columns, 64 or 128, which are adjacent in b; a as mma's
 *   void simt_wgmma_fence()                 before the first product after other uses of its registers
 *   void simt_wgmma_commit()                ends a group of products
 *   template <int GROUPS> void simt_wgmma_wait(float (&d)[N])  until at most GROUPS groups are incomplete, among which
 *                                           is none with d; before, nothing may use d
 *   void simt_compute_here(float value)     the value, which is not below 0, is computed before what follows
 */

#endif
