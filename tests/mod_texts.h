/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_texts.h - every mod that research names, in our words
 */
#ifndef PAGED_TESTS_MOD_TEXTS_H
#define PAGED_TESTS_MOD_TEXTS_H

#include "kernels/mod/mod.h"

/** Names, dtypes and ranks that the texts use. */
#define MOD_TEXTS_NAMES 39u
extern const struct mod_array mod_texts_names[MOD_TEXTS_NAMES];

/** The same for ready-made mods without arguments. */
#define MOD_TEXTS_SCALARS 14u
extern const struct mod_array mod_texts_scalars[MOD_TEXTS_SCALARS];

/** Ending with NULL. */
extern const char *const mod_texts_masks[];
extern const char *const mod_texts_scores[];

#endif
