/* SPDX-License-Identifier: Apache-2.0 */
/**
 * golden_mask.h - reads block masks that PyTorch made: golden/masks, golden/conversions and golden/pictures
 *
 * Format: golden/README.md.
 */
#ifndef PAGED_TESTS_GOLDEN_MASK_H
#define PAGED_TESTS_GOLDEN_MASK_H

#include "kernels/mask/mask.h"

struct golden_mask_name {
	char name[32];
	uint32_t n_dims, dims[4]; /* n_dims 0: a parameter */
	int32_t *i32;
};

#define GOLDEN_MASK_MAX_NAMES 8u
#define GOLDEN_MASK_MAX_SEQUENCES 8u

/** A .mask, .convert or picture file; members that a kind of file does not have are 0. */
struct golden_mask {
	struct block_mask_shape shape;
	struct block_mask_row *rows;
	char *text;
	struct golden_mask_name names[GOLDEN_MASK_MAX_NAMES];
	uint32_t n_names;
	struct block_mask *logical;
	struct block_mask *physical;
	uint32_t n_pages, page_size;
	struct block_mask_sequence table[GOLDEN_MASK_MAX_SEQUENCES]; /* kv_len: the capacity */
	uint32_t n_table;
	uint32_t batch[GOLDEN_MASK_MAX_SEQUENCES];
	uint32_t n_batch;
	struct block_mask_string_format grid;
	char *picture;
};

void golden_mask_open(struct golden_mask *c, const char *path);
void golden_mask_close(struct golden_mask *c);

/** golden_each_file - call `test` with the path of each file that matches golden/PATTERN; fails unless n files match */
void golden_each_file(const char *pattern, size_t n, void (*test)(const char *path));

#endif
