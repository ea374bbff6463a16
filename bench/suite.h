/* SPDX-License-Identifier: Apache-2.0 */
/**
 * suite.h - suites of cases, each compared with its limit in the same run
 *
 * Machines are shared and noisy, so rounds are interleaved: a round takes one
 * sample of each case of a group, and the first round is not counted.  Medians
 * and the 10th and 90th percentiles are printed.  A case is judged by its ratio
 * to its limit; the ratio is the median of the rounds' ratios.
 */
#ifndef PAGED_BENCH_SUITE_H
#define PAGED_BENCH_SUITE_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_MAX_SAMPLES 1000
#define BENCH_MAX_CASES 32 /* of a group */
#define BENCH_MAX_RELATIONS 5
#define BENCH_MAX_RESULTS 512

/** The kind of reference of a ratio; one run prints the ratios of one kind. */
enum bench_reference {
	BENCH_REFERENCE_LIMIT,
	BENCH_REFERENCE_CONTIGUOUS,
	BENCH_REFERENCE_TORCH,
	BENCH_REFERENCE_VLLM,
	BENCH_N_REFERENCES
};

enum bench_ratio_kind {
	BENCH_FRACTION, /* of a limit's speed: the limit's time / this case's time */
	BENCH_SLOWDOWN, /* this case's time / the other case's time */
	BENCH_SPEEDUP,  /* the other case's time / this case's time */
};

/** A comparison with another case of the group. */
struct bench_relation {
	enum bench_reference reference;
	enum bench_ratio_kind ratio_kind;
	const char *other;  /* another case's name */
	const char *target; /* the project's target: ">= 0.85", with AMX ">= 0.65 (AMX 0.40)"; or NULL */
};

/** Strings live as long as the program. */
struct bench_case {
	const char *name, *unit;
	const char *limit;  /* name of the case whose time divides this one's; NULL: none */
	const char *target; /* for the ratio to `limit`, or with a unit ("<= 100 ns") for the value; NULL: none */
	double (*sample)(const void *context); /* one sample, in the unit */
	const void *context;
	const char *skipped; /* why it is not sampled; NULL: it is */
	const char *method;  /* the implementation that a peer used; or NULL */
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
	bool quick;        /* tiny sizes, to check that everything runs */
	const char *only;  /* groups with this in their name; NULL: all */
	const char *group; /* the group with this name; NULL: as `only` says */
	bool with_long;    /* also the cases that are left out by default because there are many */
	enum bench_reference reference;
	unsigned int n_threads;
	double limit_s;             /* seconds of rounds of a group; 0: the suite's default */
	unsigned int group_limit_s; /* on a GPU: seconds after which a group's process is ended */
	bool in_process;            /* on a GPU: measure the group in this process, where NVIDIA's tools see kernels */
	bool lines;                 /* print each case as a line of JSON as soon as it is measured */
};

struct bench_ratio {
	double median, low, high; /* 10th and 90th percentile of the rounds' */
	double fastest;           /* ratio of the fastest samples: near the median on an idle machine */
};

struct bench_result {
	struct bench_case bench_case;
	size_t n_samples;
	struct bench_ratio value; /* `fastest` is not used */
	struct bench_ratio limit; /* to bench_case.limit */
	struct bench_ratio
		ratios[BENCH_MAX_RELATIONS]; /* as bench_case.relations; median 0: not measured in this run */
};

/** Shared with child processes, so a child can measure. */
struct bench_report {
	const struct bench_suite *suite;
	const struct bench_options *options;
	char machine[512]; /* threads, instruction sets or GPU of the run; "": nothing to add */
	double other_load; /* the share of all cores that other processes used during the run */
	size_t n_results;
	size_t n_printed; /* with options->lines */
	struct bench_result results[BENCH_MAX_RESULTS];
};

struct bench_suite {
	const char *name;
	const char *description;
	/* Either one group of cases, */
	void (*setup)(void);
	void (*teardown)(void); /* NULL: nothing to do */
	const struct bench_case *cases;
	size_t n_cases;
	/* or a function that measures groups of its own. */
	void (*run)(struct bench_report *report);
	const struct kv_case *kv_cases; /* of attention and append (kv_case.h) */
	size_t n_kv_cases;
	unsigned int references; /* bits by enum bench_reference: those that its cases have in addition to limits */
	bool special;            /* needs more than a CPU: not in "all" */
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
extern const struct bench_suite bench_suite_sharing;
extern const struct bench_suite bench_suite_remote_masks;

#endif
