/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_texts.h - the mods that papers and PyTorch's examples describe, written in the mod language
 */
#ifndef PAGED_TESTS_MOD_TEXTS_H
#define PAGED_TESTS_MOD_TEXTS_H

#include "kernels/mod/mod.h"

/** Arrays that the texts read: names, dtypes and ranks. */
#define MOD_TEXTS_NAMES 39u
extern const struct mod_array mod_texts_names[MOD_TEXTS_NAMES];

/** The same for ahead-of-time compiled mods, which take no arguments. */
#define MOD_TEXTS_SCALARS 14u
extern const struct mod_array mod_texts_scalars[MOD_TEXTS_SCALARS];

/** Lists of texts that end with NULL. */
extern const char *const mod_texts_masks[];
extern const char *const mod_texts_scores[];

#endif
