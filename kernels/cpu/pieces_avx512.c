/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#define LANES 16u
#define PIECES_OPS pieces_ops_avx512
#define STREAM(to, bytes) _mm512_stream_si512((void *)(to), (__m512i)(bytes))
#include "kernels/cpu/pieces_body.h"
