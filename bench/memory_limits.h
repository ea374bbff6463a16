/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory_limits.h - the machine's best speed of reading and copying
 *
 * A limit is the best of several kernels, with pinned threads, over the same bytes
 * at the same addresses as the case that it limits.  limit_*_tune() finds the best
 * one; its samples then alternate with the case's.
 */
#ifndef PAGED_BENCH_MEMORY_LIMITS_H
#define PAGED_BENCH_MEMORY_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/stream_kernels.h"

/** Memory to be read once, in this order, in chunks of one size. */
struct limit_read {
	const uint8_t **chunks; /* owned; a few past the last repeat it */
	size_t n_chunks;
	size_t chunk_bytes; /* a multiple of 64 */
	/* The best way, once tuned: */
	unsigned int n_streams;         /* that a thread reads in parallel */
	unsigned int prefetch_distance; /* prefetch distance in chunks; 0: no prefetch */
};

/** limit_read_open - cut spans of one size into chunks of at most 4 KiB, a multiple of 64 bytes */
void limit_read_open(struct limit_read *read, const uint8_t *const *spans, size_t n_spans, size_t span_bytes);
void limit_read_close(struct limit_read *read);
void limit_read_tune(struct limit_read *read);

/** limit_read_us - microseconds to read all of it */
double limit_read_us(const struct limit_read *read);

struct limit_copy_chunk {
	uint8_t *to;
	const uint8_t *from;
	size_t bytes;
};

struct limit_copy {
	const struct limit_copy_chunk *chunks; /* borrowed */
	size_t n_chunks;
	/* The best way, once tuned: */
	bool non_temporal;  /* non-temporal stores */
	bool single_thread; /* one thread, for copies too small to share */
	bool interleaved;   /* copy a part of each of several chunks before the next parts, which uses more memory banks
			       at a time */
};

void limit_copy_tune(struct limit_copy *copy);
double limit_copy_us(const struct limit_copy *copy);

/** limit_isa_name - the instruction set of reads and copies: "avx512", "avx2", "generic" */
const char *limit_isa_name(void);

#endif
