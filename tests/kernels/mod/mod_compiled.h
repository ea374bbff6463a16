/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_compiled.h - compiles many mods into one library with the host's C++ compiler
 *
 * Every UBSan check traps: undefined behaviour in a mod's source ends the
 * test.
 */
#ifndef PAGED_TESTS_MOD_COMPILED_H
#define PAGED_TESTS_MOD_COMPILED_H

#include <stdio.h>

#include "kernels/mod/mod.h"

/** A mod's function.  A mask mod returns 1 or 0 and ignores the score. */
typedef float (*mod_compiled_fn)(float score, int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args);

struct mod_compiled {
	char dir[64];
	FILE *source;
	uint32_t n;
	void *library;
};

/** mod_compiled_begin - start an empty library; any failure in this and the following functions fails the test */
void mod_compiled_begin(struct mod_compiled *compiled);

/** mod_compiled_add - add a mod; mods are numbered from 0 in the order of these calls */
void mod_compiled_add(struct mod_compiled *compiled, const struct mod *mod);

/** mod_compiled_make - compile and load the library; no mod can be added afterwards */
void mod_compiled_make(struct mod_compiled *compiled);

mod_compiled_fn mod_compiled_get(const struct mod_compiled *compiled, uint32_t number);

void mod_compiled_close(struct mod_compiled *compiled);

#endif
