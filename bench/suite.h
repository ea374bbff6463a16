/* SPDX-License-Identifier: Apache-2.0 */
/**
 * suite.h - suites of cases, each measured next to its limit in the same run
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

/** The kind of reference of a ratio; one run prints the ratios of one kind. */
enum bench_against { BENCH_AGAINST_LIMIT, BENCH_AGAINST_CONTIGUOUS, BENCH_AGAINST_TORCH, BENCH_N_AGAINST };

enum bench_sense {
	BENCH_SHARE,  /* the other case's time over this one's; the other case is a limit */
	BENCH_TIMES,  /* this case's time over the other's */
	BENCH_FASTER, /* the other case's time over this one's */
};

/** A comparison with another case of the group. */
struct bench_relation {
	enum bench_against against;
	enum bench_sense sense;
	const char *to;     /* another case's name */
	const char *target; /* the project's target: ">= 0.85", with AMX ">= 0.65 (AMX 0.40)"; or NULL */
};

/** Strings live as long as the program. */
struct bench_case {
	const char *name, *unit;
	const char *limit;  /* name of the case whose time divides this one's; NULL: none */
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
	bool quick;       /* tiny sizes, to check that everything runs */
	const char *only; /* groups with this in their name; NULL: all */
	bool more;        /* also the cases that are left out by default because there are many */
	enum bench_against against;
	unsigned int n_threads;
	double limit_s; /* seconds of rounds of a group; 0: the suite's default */
};

struct bench_ratio {
	double median, low, high; /* 10th and 90th percentile of the rounds' */
	double fastest;           /* ratio of the fastest samples: near the median on an idle machine */
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
	char machine[512]; /* description of what is not the CPU; "": nothing */
	double others;     /* the share of all cores that other processes had during the run */
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
 * Omits relations of another kind than options->against, and ratios to cases
 * that are not in the group.
 */
void bench_rounds(struct bench_report *report, const struct bench_case *cases, size_t n, double limit_s);

/** bench_skip - a result that is only the reason why there is none */
void bench_skip(struct bench_report *report, const char *name, const char *unit, const char *why);

/** bench_progress - on a terminal: case i of n is being measured; name NULL: clears the line */
void bench_progress(const struct bench_report *report, const char *name, size_t i, size_t n);

/* report.c */

/** bench_against_name - "limit", "contiguous", "torch" */
const char *bench_against_name(enum bench_against against);

/** bench_print - print a table to read */
void bench_print(const struct bench_report *report);

/** bench_print_json - print a JSON document of one run, or of several in "runs" */
void bench_print_json(struct bench_report *const *reports, size_t n);

/* base.c */

void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** bench_must - end the program with the error's text unless status is PAGED_OK */
void bench_must(enum paged_status status, const struct paged_error *error);

/** bench_client_must - end the program with the client's error text unless status is PAGED_OK */
void bench_client_must(struct paged_client *client, enum paged_status status);

/** bench_now_ns - monotonic */
uint64_t bench_now_ns(void);

/** bench_since_us - microseconds since bench_now_ns() was `start` */
double bench_since_us(uint64_t start);

/** bench_alloc - zeroed memory, aligned to a cache line */
void *bench_alloc(size_t n, size_t size);

/** bench_random - the next number below `below`, the same in every run */
uint32_t bench_random(uint64_t *state, uint32_t below);

/** bench_permutation - 0 to n-1 in an order that no prefetcher predicts, the same in every run */
uint32_t *bench_permutation(uint32_t n);

/* machine.c: describes the machine of a run */

struct machine {
	char cpu[128];
	long n_cores;
	char caches[96]; /* "L1d 32 KiB, L2 1 MiB, L3 32 MiB": of the first core */
	char memory[32];
	char flags[256]; /* those of the CPU that kernels could use */
	char kernel[65];
};

void machine_describe(struct machine *machine);

/** machine_memory_bytes - memory that is available without swapping, by the kernel's estimate */
double machine_memory_bytes(void);

/**
 * Processor time up to some moment, in seconds of a core: `passed` on all cores, `all` of it busy, `own` by this
 * process and its ended children
 */
struct machine_work {
	double passed, all, own;
};

void machine_work_now(struct machine_work *work);

/** machine_others - the share of all cores that other processes have had since then, including steal time */
double machine_others(const struct machine_work *since);

/* processes.c */

/** bench_find_file - a file of the build directory or bundle of this program; NULL: not there (static buffer) */
const char *bench_find_file(const char *name);

/**
 * bench_daemon_start - start a pagedd and wait until it is ready; returns its runtime directory
 *
 * The program is $PAGED_PAGEDD, else the one of this program's build tree, else
 * the one in $PATH.
 */
const char *bench_daemon_start(const char *configuration);
void bench_daemon_stop(void);

/** bench_echo_start - a process that echoes ZeroMQ messages over ipc; returns its endpoint */
const char *bench_echo_start(void);
void bench_echo_stop(void);

/** A ZeroMQ connection to the echo process: its own context, and a DEALER socket. */
struct bench_dealer {
	void *context, *socket;
};

void bench_dealer_open(struct bench_dealer *dealer, const char *endpoint);
void bench_dealer_close(struct bench_dealer *dealer);

/** bench_dealer_trip - send eight bytes and wait for the echo */
void bench_dealer_trip(const struct bench_dealer *dealer);

/** Round trips per sample. */
#define BENCH_TRIPS 50

/* Samples of a round trip.  The context is a struct bench_dealer, or the struct paged_client ** that pings. */
double bench_dealer_trip_us(const void *dealer);
double bench_ping_us(const void *client_p);

#endif
