/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pieces.h - heads of tokens on their way between tensors and pages: kernel_tile_ops.pieces
 *
 * Bits are the same for all of them: each product and sum is rounded by itself.
 */
#ifndef PAGED_KERNELS_CPU_PIECES_H
#define PAGED_KERNELS_CPU_PIECES_H

#include <stddef.h>

#include "kernels/kernels.h"

/** What a store past the cache writes. */
#define PIECES_LINE 64u

/**
 * Calls that write more than this do it past the cache: of a line that is
 * written whole it needs not be told what was in it before, and what would
 * have stayed there is pushed out by the rest of the call anyway.
 */
#define PIECES_CACHED ((uint64_t)4 << 20)

/** Memory in n pieces of `size` bytes, so many bytes apart. */
struct pieces {
	uint8_t *to;
	const uint8_t *from;
	int64_t to_stride;
	int64_t from_stride;
	uint32_t n;
	size_t size;
};

struct pieces_ops {
	void (*copy)(const struct pieces *pieces);

	/*
	 * The same past the cache: to, to_stride and size are multiples of
	 * PIECES_LINE.  Before others may look, pieces_fence().
	 */
	void (*stream)(const struct pieces *pieces);

	/*
	 * Pairs of elements turned by their angles, n cosines and then n sines;
	 * (i, i + n) are a pair, or (2i, 2i + 1).
	 */
	void (*turn)(float *elements, const float *angles, uint32_t n, bool interleaved);

	/*
	 * Bits of the largest magnitude of n elements, infinity's or more where
	 * one is no number.  What follows them is 0 up to a multiple of
	 * TILE_MAX_LANES.
	 */
	uint32_t (*largest)(const float *padded, uint32_t n);
};

/** pieces_fence - what this thread streamed is written before what it writes from now on */
static inline void
pieces_fence(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

#endif
