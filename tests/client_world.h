/* SPDX-License-Identifier: Apache-2.0 */
/**
 * client_world.h - an embedded client with random sequences in its pool, and float64 attention over them
 */
#ifndef TESTS_CLIENT_WORLD_H
#define TESTS_CLIENT_WORLD_H

#include <math.h>

#include "tests/client_fixture.h"
#include "tests/mod_fixture.h"
#include "tests/reference.h"

#define WORLD_ROWS 3u
#define WORLD_TOKENS 700u /* most tokens of a sequence */
#define WORLD_QUERIES 128u
#define WORLD_Q_HEADS 4u
#define WORLD_KV_HEADS 2u
#define WORLD_DIM 16u

/** A fixture over the pool "world" of `client`; client_fixture.h's `pool` points to that pool. */
struct client_world {
	struct paged_batch *batch;
	struct paged_batch_row rows[WORLD_ROWS]; /* each sequence holds kv_len tokens */
	uint32_t n_rows;
	float k[WORLD_ROWS][WORLD_TOKENS][WORLD_KV_HEADS][WORLD_DIM];
	float v[WORLD_ROWS][WORLD_TOKENS][WORLD_KV_HEADS][WORLD_DIM];
	float q[WORLD_QUERIES][WORLD_Q_HEADS][WORLD_DIM];
	/* Results of attention. */
	float out[WORLD_QUERIES][WORLD_Q_HEADS][WORLD_DIM];
	float lse[WORLD_QUERIES][WORLD_Q_HEADS];
	float maximum[WORLD_QUERIES][WORLD_Q_HEADS];
};

/** world_setup, world_teardown - per test: client, pool, and `world` with sequences of 300, 33 and 580 tokens */
void world_setup(void);
void world_teardown(void);
extern struct client_world *world;

/** world_plan - plan the rows; row i has queries for its last q_len[i] tokens */
void world_plan(const uint32_t q_len[WORLD_ROWS]);

/** world_attend - run attention into out, lse and maximum; lse and max_score of params are ignored; NULL: defaults */
enum paged_status world_attend(const struct paged_attention_params *params);

struct world_mods {
	const char *mask, *score; /* or NULL */
	size_t n_arrays;
	const struct paged_array *arrays;
};

/** world_expect - the results match float64 attention with the mods' texts */
void world_expect(const struct world_mods *mods, const struct paged_attention_params *params);

/** world_mods_open - parse and create the mods; bind the arrays, if any */
struct paged_mods *world_mods_open(const struct world_mods *mods);

struct paged_mod *world_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays,
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
