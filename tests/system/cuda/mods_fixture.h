/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mods_fixture.h - attention with mods on a GPU, compared with the host back end's results
 *
 * For it_* programs.  NVRTC or its fake compiles the mods.  Any failure in these functions ends the test.
 */
#ifndef TESTS_SYSTEM_MODS_FIXTURE_H
#define TESTS_SYSTEM_MODS_FIXTURE_H

#include "tests/system/batch_fixture.h"

#define MODS_N_ARRAYS 6

/** The mods of a test, and the batch that it attends with them. */
struct mods_case {
	const char *mask, *score;
	int32_t window;
	uint32_t n_slopes; /* that are there; 4 are wanted */
	float cap;
	bool is_bf16;    /* bf16 and 64 dims */
	bool is_i8;      /* i8 in the pages besides */
	bool has_b;      /* rows have numbers of their own */
	bool is_strided; /* rows are equal, and tensors [row][head][token][dim] */
	bool is_prefill; /* all tokens of row 0 are query rows, more than the decode kernel computes */
};

/** A batch of two rows of f32. */
extern const struct batch_fixture_params mods_base;

/** mods_begin - load the fake driver and NVRTC, or skip the test if NVRTC is absent; there is no code cache on disk */
void mods_begin(void);

/** mods_arrays - the arrays that a case's mods may read; fixture NULL: without their contents */
size_t mods_arrays(struct batch_fixture *fixture, const struct mods_case *c, struct paged_array arrays[MODS_N_ARRAYS]);

/** mods_make - parse and bind a case's mods for the fixture's batch */
struct paged_mod_set *mods_make(struct batch_fixture *fixture, const struct mods_case *c);

/** expect_same_on_both - both back ends give the same results, and paged_batch_validate() returns this status */
void expect_same_on_both(const struct mods_case *c, enum paged_status wanted);

/** expect_no_compiler - with this PAGED_NVRTC, mods that need a compiler are refused with the reason; others work */
void expect_no_compiler(const char *library, const char *part);

/** Messages since the last mods_prepare_in_new_client() or expect_log(). */
extern char mods_log[2048];

/** mods_log_begin - the calling thread opens clients on cuda with these params, and their messages go to mods_log */
void mods_log_begin(struct batch_fixture_params *params);

/** expect_log - mods_log begins with this text; empties it */
void expect_log(const char *what);

/** mods_prepare_in_new_client - prepare a mod that needs a compiler, in a client that is closed afterwards */
void mods_prepare_in_new_client(const struct batch_fixture_params *params);

/** mods_cache_dir_remove - remove a directory that PAGED_CACHE_DIR named */
void mods_cache_dir_remove(const char *cache_dir);

#endif
