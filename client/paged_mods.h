/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_mods.h - mask mods, score mods and block masks
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 */
#ifndef PAGED_MODS_H
#define PAGED_MODS_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/** Most indexes of an array. */
#define PAGED_MAX_INDEXES 4u

/**
 * A captured array, or with n_dims 0 a parameter.
 * Plain data: fill it with designated initialisers.
 */
struct paged_array {
	/** A letter or _, then letters, digits, _; at most 31. */
	const char *name;
	/** Element [0, 0, ...]; a parameter's value.  Not read by paged_mod_parse(). */
	const void *data;
	/** Any, PAGED_I32 and PAGED_U8 too. */
	enum paged_dtype dtype;
	uint32_t n_dims;
	/** Elements. */
	uint32_t extents[PAGED_MAX_INDEXES];
	/** Elements, of any sign; all 0: row-major and dense. */
	int64_t strides[PAGED_MAX_INDEXES];
};

/* ------------------------------------------------------------- block masks */

struct paged_block_mask;

/** paged_block_mask_destroy - when no binding uses it any more; takes NULL */
void paged_block_mask_destroy(struct paged_block_mask *mask);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
