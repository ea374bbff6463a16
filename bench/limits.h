/* SPDX-License-Identifier: Apache-2.0 */
/**
 * limits.h - what the machine can do at best: read, copy, multiply
 *
 * A limit is the best of several kernels, with pinned threads, over
 * the same bytes at the same places as the figure that it limits.  Which one
 * is best is tried out once (limit_*_tune()); its samples are then taken in turn
 * with the figure's.
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
	unsigned int n_streams; /* that a thread reads side by side */
	unsigned int ahead;     /* pieces that it prefetches ahead; 0: it does not */
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
	bool past_cache; /* stores that leave it out */
	bool alone;      /* one thread, for what is too small to share */
	bool in_turn;    /* some of each of several pieces, then some more: more of the memory's banks at once */
};

void limit_copy_tune(struct limit_copy *copy);
double limit_copy_us(const struct limit_copy *copy);

/** limit_unit_name - the unit that multiplies matrices in an instruction set; best last */
const char *limit_unit_name(enum kernel_isa unit);

/** limit_peak - operations a nanosecond (GFLOP/s) of all threads on registers alone, a fresh sample of about a ms */
double limit_peak(enum kernel_isa unit);

/** limit_peak_unit - the unit with the highest peak here; tried out once */
enum kernel_isa limit_peak_unit(void);

/** limit_isa_name - what reads and copies run on: "avx512", "avx2", "generic" */
const char *limit_isa_name(void);

/*
 * Pinned threads that measure limits: the first of the CPUs that this process may use is the caller's, helper i has the
 * next ones, as long as the process lives.
 */

/** What a thread does; several of them take units from the same counter. */
typedef void (*threads_fn)(void *context);

/**
 * threads_start - n threads, the caller's included; at most as many as there are CPUs; returns how many there are
 *
 * The number of threads stays the same from then on; each call pins the calling thread again.
 */
unsigned int threads_start(unsigned int n);

/** threads_number - how many threads_start() gave */
unsigned int threads_number(void);

/**
 * threads_run - all of them call `work`; nanoseconds from when all are there to when the last has ended
 *
 * Waking them is not in it: what waits for others belongs to no limit.
 */
uint64_t threads_run(threads_fn work, void *context);

/** threads_take - the next unit's number in this run; goes on counting past the last */
size_t threads_take(void);

/** threads_cpus - the CPU of each thread, to pin other threads to the same CPUs */
const uint32_t *threads_cpus(void);

/** threads_release - the calling thread may use every CPU again: what it is going to measure, or to be, is not pinned
 */
void threads_release(void);

/** threads_places - the CPUs of our threads as OMP_PLACES says them: "{0},{1}" */
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
