/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_compiled.h - many mods as one library, made by the host's C++ compiler
 *
 * Compiled with every check of UBSan as a trap: what a mod's source must not
 * do ends the test.
 */
#ifndef PAGED_TESTS_MOD_COMPILED_H
#define PAGED_TESTS_MOD_COMPILED_H

#include <stdio.h>

#include "kernels/mod/mod.h"

/** A mod's function; of a mask mod 1 or 0, and the score does not count. */
typedef float (*mod_compiled_fn)(float score, int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args);

struct mod_compiled {
	char dir[64];
	FILE *source;
	uint32_t n;
	void *library;
};

/** mod_compiled_begin - any failure here and below fails the test */
void mod_compiled_begin(struct mod_compiled *compiled);

/** mod_compiled_add - the next number's mod */
void mod_compiled_add(struct mod_compiled *compiled, const struct mod *mod);

/** mod_compiled_make - no more to add */
void mod_compiled_make(struct mod_compiled *compiled);

mod_compiled_fn mod_compiled_get(const struct mod_compiled *compiled, uint32_t number);

void mod_compiled_close(struct mod_compiled *compiled);

#endif
