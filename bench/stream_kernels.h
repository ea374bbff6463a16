/* SPDX-License-Identifier: Apache-2.0 */
/**
 * stream_kernels.h - loops of one instruction set that read and copy memory; memory_limits.c chooses among them
 */
#ifndef PAGED_BENCH_STREAM_KERNELS_H
#define PAGED_BENCH_STREAM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LIMIT_MAX_STREAMS 4u

struct limit_stream_ops {
	const char *name;
	/* Reads n chunks of `bytes` of each stream; stream j begins at chunks[j * apart]. */
	void (*read[LIMIT_MAX_STREAMS])(const uint8_t *const *chunks, size_t n, size_t apart, size_t bytes,
					size_t prefetch_distance);
	void (*copy_non_temporal)(uint8_t *to, const uint8_t *from, size_t bytes);
};

extern const struct limit_stream_ops limit_stream_generic, limit_stream_avx2, limit_stream_avx512;

#endif
