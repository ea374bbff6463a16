/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#define LANES 8u
#define PIECES_OPS pieces_ops_avx2
#define STREAM(to, bytes) _mm256_stream_si256((__m256i *)(void *)(to), (__m256i)(bytes))
#include "kernels/cpu/pieces_body.h"
