/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_fixture.h - an embedded client with random sequences in its pool, and float64 attention over them
 */
#ifndef TESTS_CLIENT_ATTENTION_FIXTURE_H
#define TESTS_CLIENT_ATTENTION_FIXTURE_H

#include <math.h>

#include "tests/support/client_fixture.h"
#include "tests/support/mod_fixture.h"
#include "tests/support/reference.h"

#define ATTENTION_ROWS 3u
#define ATTENTION_TOKENS 700u   /* most tokens of a sequence */
#define ATTENTION_KV_LEN_0 300u /* tokens of the sequence of row 0 */
#define ATTENTION_KV_LEN_1 33u
#define ATTENTION_KV_LEN_2 580u
#define ATTENTION_PAGE_SIZE 16u
#define ATTENTION_N_PAGES 80u
#define ATTENTION_QUERIES 128u
#define ATTENTION_Q_HEADS 4u
#define ATTENTION_KV_HEADS 2u
#define ATTENTION_DIM 16u

/** A fixture over the pool "fixture" of `client`; client_fixture.h's `pool` points to that pool. */
struct attention_fixture {
	struct paged_batch *batch;
	struct paged_batch_row rows[ATTENTION_ROWS]; /* each sequence holds kv_len tokens */
	uint32_t n_rows;
	float k[ATTENTION_ROWS][ATTENTION_TOKENS][ATTENTION_KV_HEADS][ATTENTION_DIM];
	float v[ATTENTION_ROWS][ATTENTION_TOKENS][ATTENTION_KV_HEADS][ATTENTION_DIM];
	float q[ATTENTION_QUERIES][ATTENTION_Q_HEADS][ATTENTION_DIM];
	/* Results of attention. */
	float out[ATTENTION_QUERIES][ATTENTION_Q_HEADS][ATTENTION_DIM];
	float lse[ATTENTION_QUERIES][ATTENTION_Q_HEADS];
	float row_max[ATTENTION_QUERIES][ATTENTION_Q_HEADS];
};

/** attention_fixture_setup, attention_fixture_teardown - per test: client, pool, and `attention_fixture` */
void attention_fixture_setup(void);
void attention_fixture_teardown(void);
extern struct attention_fixture *attention_fixture;

/** attention_fixture_plan - plan the rows; row i has queries for its last q_len[i] tokens */
void attention_fixture_plan(const uint32_t q_len[ATTENTION_ROWS]);

/**
 * attention_fixture_attend - run attention into out, lse and row_max; lse and max_score
 * of params are ignored; NULL: defaults
 */
enum paged_status attention_fixture_attend(const struct paged_attention_params *params);

struct attention_mods {
	const char *mask, *score; /* or NULL */
	size_t n_arrays;
	const struct paged_array *arrays;
};

/** attention_fixture_expect - the results match float64 attention with the mods' texts */
void attention_fixture_expect(const struct attention_mods *mods, const struct paged_attention_params *params);

/** attention_mod_set_open - parse and create the mods; bind the arrays, if any */
struct paged_mod_set *attention_mod_set_open(const struct attention_mods *mods);

struct paged_mod *attention_mod_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays,
				      const struct paged_array *arrays);

/** MOD_PARAMETER("window", PAGED_I32, variable), MOD_ARRAY("doc", PAGED_I32, values) - a struct paged_array */
#define MOD_PARAMETER(name_, dtype_, variable_)                          \
	{                                                                \
		.name = (name_), .dtype = (dtype_), .data = &(variable_) \
	}
#define MOD_ARRAY(name_, dtype_, values_)                                                   \
	{                                                                                   \
		.name = (name_), .data = (values_), .dtype = (dtype_), .n_dims = 1,         \
		.extents = { (uint32_t)(sizeof(values_) / sizeof((values_)[0])), 0, 0, 0 }, \
	}

#endif
