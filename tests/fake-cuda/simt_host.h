/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_host.h - host models of the functions of kernels/cuda/simt/simt.h
 *
 * Compile a kernel with
 *   $(CXX) -x c++ -std=c++17 -fsanitize=thread -DSIMT_HOST_HEADER='"tests/fake-cuda/simt_host.h"'
 * and link it without that option, to libsimt.  Functions that only whole
 * warps may call record the caller's source line, to report where the threads
 * of a block diverged.
 */
#ifndef TESTS_FAKE_CUDA_SIMT_HOST_H
#define TESTS_FAKE_CUDA_SIMT_HOST_H

#include <string.h>

#include "tests/fake-cuda/simt_model.h"
#include "tests/fake-cuda/simt_run.h"

#define SIMT_ENTRY(name, params, most_threads, least_blocks) \
	SIMT_ENTRY_REGISTERED(name, params, most_threads, least_blocks, 1)
#define SIMT_ENTRY_OF_CLUSTERS(name, params, most_threads, least_blocks)                            \
	static_assert(SIMT_CLUSTER_BLOCKS <= SIMT_MAX_CLUSTER, "the models have smaller clusters"); \
	SIMT_ENTRY_REGISTERED(name, params, most_threads, least_blocks, SIMT_CLUSTER_BLOCKS)

/* A launch's parameters need not lie at a multiple of their alignment.  The kernel's `p` is the copy itself. */
#define SIMT_ENTRY_REGISTERED(name, params, most_threads, least_blocks, cluster_blocks)                                \
	static void simt_entry_##name(const params &p);                                                                \
	static void simt_enter_##name(const void *bytes)                                                               \
	{                                                                                                              \
		params aligned;                                                                                        \
                                                                                                                       \
		memcpy(&aligned, bytes, sizeof(aligned));                                                              \
		simt_model_params(&aligned);                                                                           \
		simt_entry_##name(aligned);                                                                            \
	}                                                                                                              \
	static struct simt_kernel simt_kernel_##name = {                                                               \
		#name, sizeof(params), most_threads, least_blocks, cluster_blocks, simt_enter_##name, nullptr, nullptr \
	};                                                                                                             \
	__attribute__((constructor)) static void simt_register_##name(void)                                            \
	{                                                                                                              \
		simt_register(&simt_kernel_##name);                                                                    \
	}                                                                                                              \
	__attribute__((destructor)) static void simt_unregister_##name(void)                                           \
	{                                                                                                              \
		simt_unregister(&simt_kernel_##name);                                                                  \
	}                                                                                                              \
	static void simt_entry_##name(const params &p)
#define SIMT_HAS_BARRIERS 1
/* The fake NVRTC defines it by the architecture. */
#ifndef SIMT_HAS_WGMMA
#define SIMT_HAS_WGMMA 1
#endif
#define SIMT_SHARED(type) (*static_cast<type *>(simt_model_shared(sizeof(type), alignof(type))))

#ifdef FAKE_CUDA_ARCH
/* The architecture for which the fake NVRTC was asked to compile. */
extern "C" __attribute__((visibility("default"))) const int fake_cuda_arch = FAKE_CUDA_ARCH;
#endif

/* The source line of the call to a function below; default arguments are evaluated at the call. */
#define SIMT_HERE const char *simt_file = __builtin_FILE(), int simt_line = __builtin_LINE()
#define SIMT_PLACE simt_file, simt_line

static inline uint32_t
simt_lane()
{
	return simt_thread() % 32;
}

static inline uint32_t
simt_warp()
{
	return simt_thread() / 32;
}

static inline void
simt_dependency_wait()
{
	simt_model_dependency_wait();
}

static inline void
simt_dependents_launch()
{
}

static inline void
simt_sync(SIMT_HERE)
{
	simt_model_sync(SIMT_PLACE);
}

static inline void
simt_sync_part(int id, int n_threads, SIMT_HERE)
{
	simt_model_sync_part(id, n_threads, SIMT_PLACE);
}

static inline void
simt_warp_sync(SIMT_HERE)
{
	simt_model_warp_sync(SIMT_PLACE);
}

template <class T>
static inline T
simt_shuffle(T value, int lane, SIMT_HERE)
{
	static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");
	uint32_t bits;

	memcpy(&bits, &value, 4);
	bits = simt_model_shuffle(bits, lane, SIMT_PLACE);
	memcpy(&value, &bits, 4);
	return value;
}

template <class T>
static inline T
simt_shuffle_xor(T value, int mask, SIMT_HERE)
{
	return simt_shuffle(value, (int)simt_lane() ^ mask, SIMT_PLACE);
}

static inline uint32_t
simt_ballot(bool value, SIMT_HERE)
{
	return simt_model_ballot(value, SIMT_PLACE);
}

static inline bool
simt_any(bool value, SIMT_HERE)
{
	return simt_model_ballot(value, SIMT_PLACE) != 0;
}

static inline bool
simt_all(bool value, SIMT_HERE)
{
	return simt_model_ballot(value, SIMT_PLACE) == 0xffffffff;
}

template <class T>
static inline T
simt_load_fresh(const T *at)
{
	static_assert(sizeof(T) <= 16, "a load moves up to 16 bytes");
	T value;

	simt_model_load_fresh(&value, at, sizeof(T));
	return value;
}

template <int N>
static inline void
simt_copy_async_wait()
{
	simt_model_copy_async_wait(N);
}

static inline void
simt_ldmatrix_x4(uint32_t r[4], const void *row, SIMT_HERE)
{
	simt_model_ldmatrix_x4(r, row, SIMT_PLACE);
}

static inline void
simt_ldmatrix_x4_trans(uint32_t r[4], const void *row, SIMT_HERE)
{
	simt_model_ldmatrix_x4_trans(r, row, SIMT_PLACE);
}

static inline void
simt_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_HERE)
{
	simt_model_mma_bf16(d, a, b, SIMT_PLACE);
}

static inline void
simt_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_HERE)
{
	simt_model_mma_f16(d, a, b, SIMT_PLACE);
}

static inline void
simt_barrier_wait(uint64_t *barrier, uint32_t parity, SIMT_HERE)
{
	simt_model_barrier_wait(barrier, parity, SIMT_PLACE);
}

static inline void
simt_barrier_wait_cluster(uint64_t *barrier, uint32_t parity, SIMT_HERE)
{
	simt_model_barrier_wait_cluster(barrier, parity, SIMT_PLACE);
}

static inline void
simt_cluster_sync(SIMT_HERE)
{
	simt_model_cluster_sync(SIMT_PLACE);
}

static inline void
simt_wgmma_fence(SIMT_HERE)
{
	simt_model_wgmma_fence(SIMT_PLACE);
}

template <bool F16, unsigned int N>
static inline void
simt_wgmma_shared(float (&d)[N], uint64_t a, uint64_t b, bool add, SIMT_HERE)
{
	simt_model_wgmma(d, N * 2, nullptr, a, b, F16, add, SIMT_PLACE);
}

template <bool F16, unsigned int N>
static inline void
simt_wgmma_registers(float (&d)[N], const uint32_t a[4], uint64_t b, SIMT_HERE)
{
	simt_model_wgmma(d, N * 2, a, 0, b, F16, true, SIMT_PLACE);
}

static inline void
simt_wgmma_commit(SIMT_HERE)
{
	simt_model_wgmma_commit(SIMT_PLACE);
}

template <int GROUPS, unsigned int N>
static inline void
simt_wgmma_wait(float (&)[N], SIMT_HERE)
{
	simt_model_wgmma_wait(GROUPS, SIMT_PLACE);
}

static inline void
simt_compute_here(float)
{
}

template <int N>
static inline void
simt_registers_grow(SIMT_HERE)
{
	simt_model_registers(N, SIMT_PLACE);
}

template <int N>
static inline void
simt_registers_shrink(SIMT_HERE)
{
	simt_model_registers(N, SIMT_PLACE);
}

static inline uint32_t
simt_opaque(uint32_t value)
{
	return value;
}

static inline float
simt_fma(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

static inline float
simt_max(float a, float b)
{
	return a != a || b != b ? __builtin_nanf("") : a > b ? a : b;
}

static inline float
simt_max_number(float a, float b)
{
	return a != a || b > a ? b : a;
}

static inline uint32_t
simt_pack_bf16(float low, float high)
{
	return simt_to_bf16(low) | (uint32_t)simt_to_bf16(high) << 16;
}

static inline uint32_t
simt_pack_f16(float low, float high)
{
	return simt_to_f16(low) | (uint32_t)simt_to_f16(high) << 16;
}

static inline uint16_t
simt_pack_e4m3(float low, float high)
{
	return (uint16_t)(simt_to_e4m3(low) | simt_to_e4m3(high) << 8);
}

static inline uint16_t
simt_pack_e5m2(float low, float high)
{
	return (uint16_t)(simt_to_e5m2(low) | simt_to_e5m2(high) << 8);
}

static inline uint32_t
simt_widen_e4m3(uint16_t two)
{
	return simt_pack_f16(simt_from_e4m3((uint8_t)two), simt_from_e4m3((uint8_t)(two >> 8)));
}

static inline void
simt_widen_four_e4m3(uint32_t four, uint32_t pairs[2])
{
	pairs[0] = simt_widen_e4m3((uint16_t)four);
	pairs[1] = simt_widen_e4m3((uint16_t)(four >> 16));
}

static inline uint32_t
simt_widen_e5m2(uint16_t two)
{
	return simt_pack_f16(simt_from_e5m2((uint8_t)two), simt_from_e5m2((uint8_t)(two >> 8)));
}

#endif
