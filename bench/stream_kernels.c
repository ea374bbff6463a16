/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and copying with each instruction set.  Vectors of 64 bytes are aligned to cache lines. */
#include "config.h"

#include "bench/stream_kernels.h"

#include <string.h>

#ifdef PAGED_X86_64
#include <immintrin.h>
#endif

#define CACHE_LINE 64u

/* Read a cache line of stream j into the stream's own sum. */
#define READ_CACHE_LINE(j)                                                          \
	if (prefetch_distance != 0)                                                 \
		__builtin_prefetch(chunks[i + (j)*apart + prefetch_distance] + at); \
	for (size_t b = 0; b < CACHE_LINE; b += sizeof(vector))                     \
		sum##j ^= *(const vector *)(chunks[i + (j)*apart] + at + b);

/* The asm statement keeps the compiler from removing the loads. */
#define READ(isa, target, size, n_streams, ...)                                                                       \
	target static void isa##_read_##n_streams(const uint8_t *const *chunks, size_t n, size_t apart, size_t bytes, \
						  size_t prefetch_distance)                                           \
	{                                                                                                             \
		typedef uint64_t vector __attribute__((vector_size(size), may_alias));                                \
		vector sum0 = { 0 }, sum1 = { 0 }, sum2 = { 0 }, sum3 = { 0 }, all;                                   \
                                                                                                                      \
		for (size_t i = 0; i < n; i++)                                                                        \
			for (size_t at = 0; at < bytes; at += CACHE_LINE) {                                           \
				__VA_ARGS__                                                                           \
			}                                                                                             \
		all = sum0 ^ sum1 ^ sum2 ^ sum3;                                                                      \
		__asm__ volatile("" : : "m"(all));                                                                    \
	}

/* The functions of an instruction set: vector size, non-temporal store, and the fence that the store needs. */
#define STREAM(isa, target, size, store, fence)                                                                 \
	READ(isa, target, size, 1, READ_CACHE_LINE(0))                                                          \
	READ(isa, target, size, 2, READ_CACHE_LINE(0) READ_CACHE_LINE(1))                                       \
	READ(isa, target, size, 3, READ_CACHE_LINE(0) READ_CACHE_LINE(1) READ_CACHE_LINE(2))                    \
	READ(isa, target, size, 4, READ_CACHE_LINE(0) READ_CACHE_LINE(1) READ_CACHE_LINE(2) READ_CACHE_LINE(3)) \
	target static void isa##_copy_non_temporal(uint8_t *to, const uint8_t *from, size_t bytes)              \
	{                                                                                                       \
		typedef uint64_t vector __attribute__((vector_size(size), may_alias));                          \
		size_t at = 0;                                                                                  \
                                                                                                                \
		for (; at + size <= bytes; at += size) {                                                        \
			vector value;                                                                           \
                                                                                                                \
			memcpy(&value, from + at, size);                                                        \
			store;                                                                                  \
		}                                                                                               \
		memcpy(to + at, from + at, bytes - at);                                                         \
		fence;                                                                                          \
	}                                                                                                       \
	const struct limit_stream_ops limit_stream_##isa = {                                                    \
		.name = #isa,                                                                                   \
		.read = { isa##_read_1, isa##_read_2, isa##_read_3, isa##_read_4 },                             \
		.copy_non_temporal = isa##_copy_non_temporal,                                                   \
	};

STREAM(generic, , 16, memcpy(to + at, &value, 16), (void)0)
#ifdef PAGED_X86_64
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))
STREAM(avx2, AVX2, 32, _mm256_stream_si256((__m256i *)(void *)(to + at), (__m256i)value), _mm_sfence())
STREAM(avx512, AVX512, 64, _mm512_stream_si512((void *)(to + at), (__m512i)value), _mm_sfence())
#endif
