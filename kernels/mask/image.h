/* SPDX-License-Identifier: Apache-2.0 */
/**
 * image.h - a physical block mask as one run of bytes
 *
 * How a mask travels from the process that built it to the one that uses it:
 * in a message, or in a sealed memfd.  It holds counts and no pointers;
 * integers have the machine's byte order, and the layout is in
 * paged-protocol(7):
 *
 *   [header][rows][starts of partial][starts of full][partial][full]
 *   [runs of partial][runs of full]
 *
 * Runs say which logical blocks the lists name, in the lists' order: few
 * numbers, because what a query sees is mostly contiguous.  So whoever gets an
 * image needs no page table to know both.
 *
 * A reader believes none of it: what image_read() yields is in bounds
 * whatever the bytes were.
 */
#ifndef PAGED_KERNELS_MASK_IMAGE_H
#define PAGED_KERNELS_MASK_IMAGE_H

#include "kernels/mask/mask.h"

#define IMAGE_MAGIC 0x314b534d44474150ull /* "PAGDMSK1" in little-endian bytes */
#define IMAGE_VERSION_MAJOR 1u
#define IMAGE_VERSION_MINOR 0u
#define IMAGE_BOOT_ID_SIZE 16

struct image_header {
	uint64_t magic;
	uint32_t version_major, version_minor;
	uint8_t boot_id[IMAGE_BOOT_ID_SIZE];
	uint64_t total_size; /* bytes */
	uint32_t n_rows, n_heads;
	uint32_t q_block, kv_block; /* tokens; kv_block divides page_size */
	uint32_t page_size;         /* tokens */
	uint32_t n_pages;           /* of the pool */
	uint64_t n_lists;           /* of a kind */
	uint64_t n_blocks[BLOCK_MASK_N_KINDS];
	uint64_t n_runs[BLOCK_MASK_N_KINDS];
	uint64_t reserved;
};

/** Consecutive logical blocks; a run may go on from one list into the next. */
struct image_run {
	uint32_t first, n;
};

/** What a mask's row is a row of. */
struct image_row {
	uint64_t seq;     /* 0: an explicit table */
	uint64_t version; /* of the sequence's entries that were used */
	int64_t q_base;
	uint64_t q_len;
	uint64_t kv_len; /* tokens of the sequence that count; in the mask itself it is the pool's */
};

/** A physical mask, the logical one with the same lists, and where they are from. */
struct image {
	uint8_t boot_id[IMAGE_BOOT_ID_SIZE];
	uint32_t page_size, n_pages; /* of the pool */
	struct block_mask *mask;
	struct block_mask *logical;
	struct image_row *rows; /* [n_rows] */
};

/** image_write - its bytes, from malloc(); NULL: no memory */
void *image_write(const struct image *image, uint64_t *size_p);

/**
 * image_read - a copy of an image, checked
 *
 * @param[in]  memory  of the masks, outlives them; NULL: malloc()
 * @param[out] image   to be freed with image_free() on PAGED_OK
 * @retval PAGED_ERR_PROTOCOL  no image, or one that contradicts itself
 * @retval PAGED_ERR_VERSION   of another major version
 */
enum paged_status image_read(const void *from, uint64_t size, struct mask_memory *memory, struct image *image,
			     struct paged_error *error);

/** image_free - its masks and rows; takes one of zeros */
void image_free(struct image *image);

#endif
