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

#define FIXTURE_ROWS 3u
#define FIXTURE_TOKENS 700u /* most tokens of a sequence */
#define FIXTURE_QUERIES 128u
#define FIXTURE_Q_HEADS 4u
#define FIXTURE_KV_HEADS 2u
#define FIXTURE_DIM 16u

/** A fixture over the pool "fixture" of `client`; client_fixture.h's `pool` points to that pool. */
struct attention_fixture {
	struct paged_batch *batch;
	struct paged_batch_row rows[FIXTURE_ROWS]; /* each sequence holds kv_len tokens */
	uint32_t n_rows;
	float k[FIXTURE_ROWS][FIXTURE_TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM];
	float v[FIXTURE_ROWS][FIXTURE_TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM];
	float q[FIXTURE_QUERIES][FIXTURE_Q_HEADS][FIXTURE_DIM];
	/* Results of attention. */
	float out[FIXTURE_QUERIES][FIXTURE_Q_HEADS][FIXTURE_DIM];
	float lse[FIXTURE_QUERIES][FIXTURE_Q_HEADS];
	float maximum[FIXTURE_QUERIES][FIXTURE_Q_HEADS];
};

/** attention_fixture_setup, attention_fixture_teardown - per test: client, pool, and `fixture` with sequences of 300,
 * 33 and 580 tokens */
void attention_fixture_setup(void);
void attention_fixture_teardown(void);
extern struct attention_fixture *fixture;

/** attention_fixture_plan - plan the rows; row i has queries for its last q_len[i] tokens */
void attention_fixture_plan(const uint32_t q_len[FIXTURE_ROWS]);

/** attention_fixture_attend - run attention into out, lse and maximum; lse and max_score of params are ignored; NULL:
 * defaults */
enum paged_status attention_fixture_attend(const struct paged_attention_params *params);

struct fixture_mods {
	const char *mask, *score; /* or NULL */
	size_t n_arrays;
	const struct paged_array *arrays;
};

/** attention_fixture_expect - the results match float64 attention with the mods' texts */
void attention_fixture_expect(const struct fixture_mods *mods, const struct paged_attention_params *params);

/** fixture_mods_open - parse and create the mods; bind the arrays, if any */
struct paged_mod_set *fixture_mods_open(const struct fixture_mods *mods);

struct paged_mod *fixture_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays,
				const struct paged_array *arrays);

/** PARAMETER("window", PAGED_I32, variable), ARRAY("doc", PAGED_I32, values) - a struct paged_array */
#define PARAMETER(name_, dtype_, variable_)                              \
	{                                                                \
		.name = (name_), .dtype = (dtype_), .data = &(variable_) \
	}
#define ARRAY(name_, dtype_, values_)                                                       \
	{                                                                                   \
		.name = (name_), .data = (values_), .dtype = (dtype_), .n_dims = 1,         \
		.extents = { (uint32_t)(sizeof(values_) / sizeof((values_)[0])), 0, 0, 0 }, \
	}

#endif
