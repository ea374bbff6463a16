/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bench.h - suites of figures, each beside its limit in the same run
 *
 * Machines are shared and noisy, so a run goes round all figures of a suite
 * again and again and takes one sample of each in turn; medians and the 10th
 * and 90th percentiles are printed, and a figure is judged by its ratio to
 * its limit, never by itself.  The ratio is the median of the rounds' ratios.
 */
#ifndef PAGED_BENCH_H
#define PAGED_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_SAMPLES 1000

struct bench_figure {
	const char *name;
	const char *unit;
	const char *limit;      /* name of the figure to divide by, or NULL */
	const char *target;     /* what the project asks for, for people; or NULL */
	double (*sample)(void); /* one sample, in the unit */
};

/** What a ratio is to; one run prints those of one kind. */
enum bench_against { BENCH_AGAINST_LIMIT, BENCH_AGAINST_CONTIGUOUS, BENCH_AGAINST_TORCH, BENCH_N_AGAINST };

struct bench_options {
	size_t n_samples;
	/* Of suites that measure on their own: */
	bool quick;       /* toy sizes: what is asked is whether it runs */
	const char *only; /* what has this in its name; NULL: all */
	bool more;        /* figures that are not always asked for, as they are many, too */
	enum bench_against against;
	unsigned int n_threads;
	double limit_s; /* of rounds of what is sampled in turn; 0: what the suite thinks right */
};

struct bench_report; /* report.h */
struct kv_figure;    /* kv_scene.h */

struct bench_suite {
	const char *name;
	const char *what;
	/* Instead of the rest: measures on its own, and adds its results. */
	void (*run)(const struct bench_options *options, struct bench_report *report);
	void (*list)(const struct bench_suite *suite); /* a line a figure; NULL: `figures` has them, or nobody */
	const struct kv_figure *kv_figures;            /* of a run by kv_suite_run() */
	size_t n_kv_figures;
	unsigned int against; /* bits: kinds of ratios it has besides limits */
	bool special;         /* of machines that have more than a CPU: left out of "all" */
	void (*setup)(void);
	void (*teardown)(void);
	const struct bench_figure *figures;
	size_t n_figures;
};

extern const struct bench_suite bench_suite_append;
extern const struct bench_suite bench_suite_compile;
extern const struct bench_suite bench_suite_control;
extern const struct bench_suite bench_suite_decode;
extern const struct bench_suite bench_suite_gpu;
extern const struct bench_suite bench_suite_limits;
extern const struct bench_suite bench_suite_masks;
extern const struct bench_suite bench_suite_mods;
extern const struct bench_suite bench_suite_prefill;
extern const struct bench_suite bench_suite_scale;
extern const struct bench_suite bench_suite_served;

/** Ends the program with a message; what bench does has no caller to tell. */
void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** Monotonic nanoseconds. */
uint64_t bench_now_ns(void);

/** bench_against_name - "limit", "contiguous", "torch" */
const char *bench_against_name(enum bench_against against);

/** bench_beside - a file of the build folder or bundle that this program lies in; NULL: it is not there (static buffer)
 */
const char *bench_beside(const char *name);

/**
 * bench_daemon_start - a pagedd of its own, ready; returns its runtime directory
 *
 * The program is $PAGED_PAGEDD, else the one of the build tree that this
 * program lies in, else the one in $PATH.
 */
const char *bench_daemon_start(const char *configuration);
void bench_daemon_stop(void);

/** bench_echo_start - a process that echoes ZeroMQ messages over ipc; returns its endpoint */
const char *bench_echo_start(void);
void bench_echo_stop(void);

/** A ZeroMQ connection to it: a context of its own, a DEALER. */
struct bench_dealer {
	void *context, *socket;
};

void bench_dealer_open(struct bench_dealer *dealer, const char *endpoint);
void bench_dealer_close(struct bench_dealer *dealer);

/** bench_dealer_trip - eight bytes there and back */
void bench_dealer_trip(const struct bench_dealer *dealer);

#endif
