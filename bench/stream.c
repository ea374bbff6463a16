/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming kernels of each instruction set. */
#include "config.h"

#include <string.h>

#include "bench/limits.h"

#ifdef PAGED_X86_64
#include <immintrin.h>
#endif

#define STREAM_NAME(x) generic_##x
#define STREAM_TARGET
#define STREAM_BYTES 16
#define STREAM_STORE(to, value) memcpy(to, &(value), sizeof(value))
#define STREAM_FENCE()
#define STREAM_OPS limit_stream_generic
#define STREAM_ISA "generic"
#include "bench/stream_body.h"

#ifdef PAGED_X86_64

#define STREAM_NAME(x) avx2_##x
#define STREAM_TARGET __attribute__((target("avx2")))
#define STREAM_BYTES 32
#define STREAM_STORE(to, value) _mm256_stream_si256((__m256i *)(void *)(to), (__m256i)(value))
#define STREAM_FENCE() _mm_sfence()
#define STREAM_OPS limit_stream_avx2
#define STREAM_ISA "avx2"
#include "bench/stream_body.h"

#define STREAM_NAME(x) avx512_##x
#define STREAM_TARGET __attribute__((target("avx512f")))
#define STREAM_BYTES 64
#define STREAM_STORE(to, value) _mm512_stream_si512((void *)(to), (__m512i)(value))
#define STREAM_FENCE() _mm_sfence()
#define STREAM_OPS limit_stream_avx512
#define STREAM_ISA "avx512"
#include "bench/stream_body.h"

#endif
