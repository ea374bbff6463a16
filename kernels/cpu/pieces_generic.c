/* SPDX-License-Identifier: Apache-2.0 */
/* Any CPU; every x86-64 has stores of 16 bytes that leave the cache out. */
#define LANES 4u
#define PIECES_OPS pieces_ops_generic
#ifdef __SSE2__
#include <emmintrin.h>
#define STREAM(to, bytes) _mm_stream_si128((__m128i *)(void *)(to), (__m128i)(bytes))
#else
#define STREAM(to, bytes) memcpy(to, &(bytes), sizeof(bytes))
#endif
#include "kernels/cpu/pieces_body.h"
