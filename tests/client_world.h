/* SPDX-License-Identifier: Apache-2.0 */
/**
 * client_world.h - an embedded client, random sequences in its pool, and what attention over them is in float64
 */
#ifndef TESTS_CLIENT_WORLD_H
#define TESTS_CLIENT_WORLD_H

#include <math.h>

#include "tests/client_fixture.h"
#include "tests/mod_fixture.h"
#include "tests/reference.h"

#define WORLD_ROWS 3u
#define WORLD_TOKENS 700u /* of a sequence, at most */
#define WORLD_QUERIES 128u
#define WORLD_Q_HEADS 4u
#define WORLD_KV_HEADS 2u
#define WORLD_DIM 16u

/** The pool "world" in `client`; client_fixture's `pool` is it. */
struct client_world {
	struct paged_batch *batch;
	struct paged_batch_row rows[WORLD_ROWS]; /* sequences with as many tokens as kv_len says */
	uint32_t n_rows;
	float k[WORLD_ROWS][WORLD_TOKENS][WORLD_KV_HEADS][WORLD_DIM];
	float v[WORLD_ROWS][WORLD_TOKENS][WORLD_KV_HEADS][WORLD_DIM];
	float q[WORLD_QUERIES][WORLD_Q_HEADS][WORLD_DIM];
	/* What attention wrote. */
	float out[WORLD_QUERIES][WORLD_Q_HEADS][WORLD_DIM];
	float lse[WORLD_QUERIES][WORLD_Q_HEADS];
	float maximum[WORLD_QUERIES][WORLD_Q_HEADS];
};

/** world_setup, world_teardown - of a test: client and pool, and `world` with three sequences of 300, 33 and 580 */
void world_setup(void);
void world_teardown(void);
extern struct client_world *world;

/** world_plan - rows with so many queries at their ends */
void world_plan(const uint32_t q_len[WORLD_ROWS]);

/** world_attend - into out, lse and maximum; params' own lse and max_score are ignored.  NULL: defaults */
enum paged_status world_attend(const struct paged_attention_params *params);

struct world_mods {
	const char *mask, *score; /* or NULL */
	size_t n_arrays;
	const struct paged_array *arrays;
};

/** world_expect - what was written is what the mods' texts give in float64 */
void world_expect(const struct world_mods *mods, const struct paged_attention_params *params);

/** world_mods_open - parse, create; bind if there are arrays */
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
