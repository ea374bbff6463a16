/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory_limits.h - the machine's best speed of reading, copying and multiplying
 *
 * A limit is the best of several kernels, with pinned threads, over
 * the same bytes at the same places as the figure that it limits.  limit_*_tune()
 * finds the best one; its samples then alternate with the figure's.
 */
#ifndef PAGED_BENCH_LIMITS_H
#define PAGED_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define LIMIT_MAX_STREAMS 4u

/** Memory to be read once, in this order, in pieces of one size. */
struct limit_read {
	const uint8_t **pieces; /* owned; a few past the last repeat it */
	size_t n_pieces;
	size_t piece_bytes; /* a multiple of 64 */
	/* The best way, once tuned: */
	unsigned int n_streams; /* that a thread reads in parallel */
	unsigned int ahead;     /* prefetch distance in pieces; 0: no prefetch */
};

/** limit_read_open - cut spans of one size into pieces of at most 4 KiB, a multiple of 64 bytes */
void limit_read_open(struct limit_read *read, const uint8_t *const *spans, size_t n_spans, size_t span_bytes);
void limit_read_close(struct limit_read *read);
void limit_read_tune(struct limit_read *read);

/** limit_read_us - microseconds to read all of it */
double limit_read_us(const struct limit_read *read);

struct limit_copy_piece {
	uint8_t *to;
	const uint8_t *from;
	size_t bytes;
};

struct limit_copy {
	const struct limit_copy_piece *pieces; /* borrowed */
	size_t n_pieces;
	/* The best way, once tuned: */
	bool past_cache; /* non-temporal stores */
	bool alone;      /* one thread, for copies too small to share */
	bool in_turn;    /* a part of each of several pieces in turn, which uses more memory banks at a time */
};

void limit_copy_tune(struct limit_copy *copy);
double limit_copy_us(const struct limit_copy *copy);

/** limit_unit_name - the unit that multiplies matrices in an instruction set; best last */
const char *limit_unit_name(enum kernel_isa unit);

/** limit_peak - operations a nanosecond (GFLOP/s) of all threads on registers only; a new sample of about 1 ms */
double limit_peak(enum kernel_isa unit);

/** limit_peak_unit - the unit with the highest peak on this machine; measured once */
enum kernel_isa limit_peak_unit(void);

/** limit_isa_name - the instruction set of reads and copies: "avx512", "avx2", "generic" */
const char *limit_isa_name(void);

/*
 * Pinned threads that measure limits.  The calling thread has the first CPU that this process may use, and helper i the
 * i-th after it.  They live as long as the process.
 */

/** The work of each thread; threads take units of work from one counter (threads_take()). */
typedef void (*threads_fn)(void *context);

/**
 * threads_start - start n - 1 threads, at most one per CPU; returns the number of threads including the caller's
 *
 * The number of threads stays the same from then on; each call pins the calling thread again.
 */
unsigned int threads_start(unsigned int n);

/** threads_number - the number that threads_start() returned */
unsigned int threads_number(void);

/**
 * threads_run - all threads call `work`; returns ns from the time when all are running to the end of the last one
 *
 * The time does not include waking the threads, because no limit depends on that.
 */
uint64_t threads_run(threads_fn work, void *context);

/** threads_take - the next unit's number in this run; the counter has no upper bound */
size_t threads_take(void);

/** threads_cpus - the CPU of each thread, to pin other threads to the same CPUs */
const uint32_t *threads_cpus(void);

/** threads_release - unpin the calling thread, before it measures something unpinned or starts another program */
void threads_release(void);

/** threads_places - the CPUs of the threads in the syntax of OMP_PLACES: "{0},{1}" */
void threads_places(char *text, size_t size);

/* For memory_limits.c: one instruction set's kernels (stream_kernels.c). */
struct limit_stream_ops {
	const char *name;
	/* Read n pieces of each stream; the streams begin `apart` pieces from each other. */
	void (*read[LIMIT_MAX_STREAMS])(const uint8_t *const *pieces, size_t n, size_t apart, size_t bytes,
					size_t ahead);
	void (*copy_past_cache)(uint8_t *to, const uint8_t *from, size_t bytes);
};

extern const struct limit_stream_ops limit_stream_generic, limit_stream_avx2, limit_stream_avx512;

#endif
