/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bench.h - suites of cases, each measured next to its limit in the same run
 *
 * Machines are shared and noisy, so rounds are interleaved: a round takes one
 * sample of each case of a group, and the first round is not counted.  Medians
 * and the 10th and 90th percentiles are printed.  A case is judged by its ratio
 * to its limit; the ratio is the median of the rounds' ratios.
 *
 * Failures end the program by bench_die().
 */
#ifndef PAGED_BENCH_H
#define PAGED_BENCH_H

#include <pagedclient.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define BENCH_N(array) (sizeof(array) / sizeof((array)[0]))
#define BENCH_MAX_SAMPLES 1000
#define BENCH_MAX_CASES 32 /* of a group */
#define BENCH_MAX_RELATIONS 4
#define BENCH_MAX_RESULTS 512

/** What a ratio is to; one run prints those of one kind. */
enum bench_against { BENCH_AGAINST_LIMIT, BENCH_AGAINST_CONTIGUOUS, BENCH_AGAINST_TORCH, BENCH_N_AGAINST };

enum bench_sense {
	BENCH_SHARE,  /* the other's time over ours, where the other is what can be reached */
	BENCH_TIMES,  /* our time over the other's */
	BENCH_FASTER, /* the other's time over ours */
};

/** What a case is compared with. */
struct bench_relation {
	enum bench_against against;
	enum bench_sense sense;
	const char *to;     /* another case's name */
	const char *target; /* what the project asks for: ">= 0.85", with AMX ">= 0.65 (AMX 0.40)"; or NULL */
};

/** Strings live as long as the program. */
struct bench_case {
	const char *name, *unit;
	const char *limit;  /* name of the case to divide by; NULL: none */
	const char *target; /* of that ratio, or with a unit ("<= 100 ns") of the value; NULL: none */
	double (*sample)(const void *context); /* one sample, in the unit */
	const void *context;
	const char *skipped; /* why it is not sampled; NULL: it is */
	const char *how;     /* how a peer did it; or NULL */
	double bytes, flops; /* of a sample in microseconds; 0: unknown */
	struct bench_relation relations[BENCH_MAX_RELATIONS];
};

/** The last argument is the context. */
#define BENCH_CASE(its_name, its_unit, its_limit, its_target, its_sample, ...)                                      \
	{                                                                                                           \
		.name = its_name, .unit = its_unit, .limit = its_limit, .target = its_target, .sample = its_sample, \
		.context = __VA_ARGS__                                                                              \
	}

struct bench_options {
	size_t n_samples;
	bool quick;       /* toy sizes: does it run? */
	const char *only; /* groups with this in their name; NULL: all */
	bool more;        /* also the cases that are left out by default because there are many */
	enum bench_against against;
	unsigned int n_threads;
	double limit_s; /* of rounds of a group; 0: the suite's own */
};

struct bench_ratio {
	double median, low, high; /* 10th and 90th percentile of the rounds' */
	double fastest;           /* of the fastest sample of each: near the median on an idle machine */
};

struct bench_result {
	struct bench_case of;
	size_t n_samples;
	struct bench_ratio value;                       /* `fastest` is not used */
	struct bench_ratio limit;                       /* to of.limit */
	struct bench_ratio ratios[BENCH_MAX_RELATIONS]; /* as of.relations; median 0: not measured in this run */
};

/** Shared with child processes, so a child can measure. */
struct bench_report {
	const struct bench_suite *suite;
	const struct bench_options *options;
	char machine[512]; /* more than the CPU; "": nothing */
	double others;     /* the share of all cores that other processes had meanwhile */
	size_t n_results;
	struct bench_result results[BENCH_MAX_RESULTS];
};

struct bench_suite {
	const char *name;
	const char *what;
	/* Either one group of cases, */
	void (*setup)(void);
	void (*teardown)(void); /* NULL: nothing to do */
	const struct bench_case *cases;
	size_t n_cases;
	/* or a function that measures groups of its own. */
	void (*run)(struct bench_report *report);
	const struct kv_case *kv_cases; /* of attention and append (kv.h) */
	size_t n_kv_cases;
	unsigned int against; /* bits: kinds of ratios it has besides limits */
	bool special;         /* needs more than a CPU: not in "all" */
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

/* rounds.c */

/**
 * bench_rounds - interleaved rounds of a group of cases; results are added to the report
 *
 * At most options->n_samples rounds, as many as `limit_s` allows, and at least 5.
 * Relations of another kind than options->against are left out, and so are
 * ratios to cases that are not in the group.
 */
void bench_rounds(struct bench_report *report, const struct bench_case *cases, size_t n, double limit_s);

/** bench_skip - a result that is only the reason why there is none */
void bench_skip(struct bench_report *report, const char *name, const char *unit, const char *why);

/** bench_progress - on a terminal: case i of n is being measured; name NULL: clears the line */
void bench_progress(const struct bench_report *report, const char *name, size_t i, size_t n);

/* report.c */

/** bench_against_name - "limit", "contiguous", "torch" */
const char *bench_against_name(enum bench_against against);

/** bench_print - a table for people */
void bench_print(const struct bench_report *report);

/** bench_print_json - a document of one run, or of several in "runs" */
void bench_print_json(struct bench_report *const *reports, size_t n);

/* helpers.c */

void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** bench_must - ends the program with the error's sentence unless status is PAGED_OK */
void bench_must(enum paged_status status, const struct paged_error *error);

/** bench_client_must - the same with the client's sentence */
void bench_client_must(struct paged_client *client, enum paged_status status);

/** bench_now_ns - monotonic */
uint64_t bench_now_ns(void);

/** bench_since_us - microseconds since bench_now_ns() was `start` */
double bench_since_us(uint64_t start);

/** bench_alloc - zeroed memory on a cache line */
void *bench_alloc(size_t n, size_t size);

/** bench_random - the next number below `below`, the same in every run */
uint32_t bench_random(uint64_t *state, uint32_t below);

/** bench_permutation - 0 to n-1 in an order that no prefetcher knows, the same in every run */
uint32_t *bench_permutation(uint32_t n);

/* machine.c: what a run was measured on, in words */

struct machine {
	char cpu[128];
	long n_cores;
	char caches[96]; /* "L1d 32 KiB, L2 1 MiB, L3 32 MiB": of the first core */
	char memory[32];
	char flags[256]; /* those of the CPU that kernels could use */
	char kernel[65];
};

void machine_describe(struct machine *machine);

/** machine_memory_bytes - that can be had without disturbing others, as the kernel sees it */
double machine_memory_bytes(void);

/** What the machine had done, and this process and its ended children, at some moment; in seconds of a core. */
struct machine_work {
	double passed, all, own;
};

void machine_work_now(struct machine_work *work);

/** machine_others - the share of all cores that others have had since, the hypervisor's too */
double machine_others(const struct machine_work *since);

/* processes.c */

/** bench_find_file - a file of the build directory or bundle of this program; NULL: not there (static buffer) */
const char *bench_find_file(const char *name);

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

/** Round trips a sample. */
#define BENCH_TRIPS 50

/* Samples of a round trip: of a dealer; of a ping by the client that a struct paged_client ** points to. */
double bench_dealer_trip_us(const void *dealer);
double bench_ping_us(const void *client_p);

#endif
