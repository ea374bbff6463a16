/* SPDX-License-Identifier: Apache-2.0 */
/**
 * append_ops.h - copy, rotary embedding and absolute maximum: what append, gather and page copies use
 *
 * kernel_tile_ops.copy_ops points to the functions of an instruction set.  Every instruction set gives
 * the same bits: each product and each sum is rounded separately (no FMA).
 */
#ifndef PAGED_KERNELS_CPU_APPEND_OPS_H
#define PAGED_KERNELS_CPU_APPEND_OPS_H

#include <stddef.h>

#include "kernels/kernels.h"

/** Cache line: the unit of non-temporal stores. */
#define COPY_CACHE_LINE 64u

/**
 * Calls that write more than this use non-temporal stores.  Such a store of a whole cache line does
 * not read the line first, and the call would evict its own earlier lines from the cache anyway.
 */
#define COPY_STREAM_BYTES ((uint64_t)4 << 20)

/** A strided copy: n blocks of `size` bytes, at the given strides in bytes. */
struct strided_copy {
	uint8_t *to;
	const uint8_t *from;
	int64_t to_stride;
	int64_t from_stride;
	uint32_t n;
	size_t size;
};

struct copy_ops {
	void (*copy)(const struct strided_copy *copy);

	/*
	 * The same copy with non-temporal stores: `to`, to_stride and size are multiples of
	 * COPY_CACHE_LINE. copy_fence() must follow before another thread reads the data.
	 */
	void (*copy_stream)(const struct strided_copy *copy);

	/*
	 * Rotary embedding: rotates n pairs of elements in place; `angles` has n cosines, then n sines.
	 * Pairs are (2i, 2i + 1) if interleaved, else (i, i + n).
	 */
	void (*rotary)(float *elements, const float *angles, uint32_t n, bool interleaved);

	/*
	 * Bits of the largest magnitude of n elements: at least infinity's bits if an element is NaN or
	 * infinite.  The caller pads the elements with zeros to a multiple of TILE_MAX_LANES.
	 */
	uint32_t (*absmax)(const float *padded, uint32_t n);
};

/** copy_fence - order this thread's non-temporal stores before its later stores */
static inline void
copy_fence(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

#endif
