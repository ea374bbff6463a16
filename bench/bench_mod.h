/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bench_mod.h - mods with their arguments bound, for suites that measure them
 */
#ifndef PAGED_BENCH_MODS_H
#define PAGED_BENCH_MODS_H

#include "kernels/mod/mod.h"

#define BENCH_WINDOW 4096
#define BENCH_DOCUMENTS 64

struct bench_mod {
	struct mod *mod;
	struct mod_binding *binding;
	int32_t *documents; /* the elements of doc, which the binding reads */
};

/**
 * bench_mod_open - compile and bind a mod; its text may name window, cap (50.0), heads (8.0) and doc
 *
 * @param[in] n_tokens  elements of doc: 64 documents of different lengths, not aligned to blocks
 */
void bench_mod_open(struct bench_mod *mod, enum mod_kind kind, const char *text, uint32_t n_tokens);

#endif
