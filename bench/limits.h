/* SPDX-License-Identifier: Apache-2.0 */
/**
 * limits.h - measure the machine's limits: reading, copying and multiplying
 *
 * A limit is the best of several kernels, with pinned threads, over
 * the same bytes at the same addresses as the case that it limits.  The best
 * kernel is determined once (limit_*_tune()); its samples then alternate with
 * the samples of the case.
 */
#ifndef PAGED_BENCH_LIMITS_H
#define PAGED_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define LIMIT_MAX_STREAMS 4u

/** Memory to read once, in this order, in pieces of one size. */
struct limit_read {
	const uint8_t **pieces; /* owned; a few past the last repeat it */
	size_t n_pieces;
	size_t piece_bytes; /* a multiple of 64 */
	/* The best way, once tuned: */
	unsigned int n_streams; /* streams that a thread reads at the same time */
	unsigned int ahead;     /* prefetch distance in pieces; 0: no prefetch */
};

/** limit_read_open - spans of one size, each cut into pieces of at most 4 KiB, 64 bytes aligned */
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
	bool alone;      /* one thread, if the copy is too small to divide */
	bool in_turn;    /* interleave several pieces, to use more memory banks at the same time */
};

void limit_copy_tune(struct limit_copy *copy);
double limit_copy_us(const struct limit_copy *copy);

/** limit_unit_name - the unit that multiplies matrices in an instruction set; best last */
const char *limit_unit_name(enum kernel_isa unit);

/** limit_peak - GFLOP/s of all threads on registers only; takes a new sample of about 1 ms */
double limit_peak(enum kernel_isa unit);

/** limit_peak_unit - the unit with the highest peak on this machine; determined once */
enum kernel_isa limit_peak_unit(void);

/** limit_isa_name - what reads and copies run on: "avx512", "avx2", "generic" */
const char *limit_isa_name(void);

/*
 * Pinned threads that measure limits.  The caller runs on the first CPU that the process may use, the other threads on
 * the CPUs after it.  The threads live as long as the process.
 */

/** The work of each thread; the threads take units by threads_take(). */
typedef void (*threads_fn)(void *context);

/**
 * threads_start - start n threads including the caller, at most one per CPU; returns their number
 *
 * The first call fixes the number of threads; each call pins the calling thread again.
 */
unsigned int threads_start(unsigned int n);

/** threads_number - the number of threads that threads_start() returned */
unsigned int threads_number(void);

/**
 * threads_run - call `work` on all threads; returns the nanoseconds from when all are ready until the last has ended
 *
 * The time to wake the threads is not included, because it is not part of any limit.
 */
uint64_t threads_run(threads_fn work, void *context);

/** threads_take - take the next unit's number in this run; the counter does not stop at the last unit */
size_t threads_take(void);

/** threads_cpus - the CPU of each thread, to pin other threads to the same CPUs */
const uint32_t *threads_cpus(void);

/** threads_release - let the calling thread use every CPU again, before work or a program that must not be pinned */
void threads_release(void);

/** threads_places - the CPUs of the threads in the format of OMP_PLACES: "{0},{1}" */
void threads_places(char *text, size_t size);

/* For limits.c: one instruction set's kernels (stream_body.h). */
struct limit_stream_ops {
	const char *name;
	/* n pieces of each stream, `apart` pieces from one stream's first to the next one's. */
	void (*read[LIMIT_MAX_STREAMS])(const uint8_t *const *pieces, size_t n, size_t apart, size_t bytes,
					size_t ahead);
	void (*copy_past_cache)(uint8_t *to, const uint8_t *from, size_t bytes);
};

extern const struct limit_stream_ops limit_stream_generic, limit_stream_avx2, limit_stream_avx512;

#endif
