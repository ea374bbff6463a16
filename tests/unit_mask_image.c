/* SPDX-License-Identifier: Apache-2.0 */
/* Images of block masks: there and back, and whatever else the bytes may be. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/image.h"

enum { PAGE = 4, N_PAGES = 9 };

static struct paged_error error;

/* A random mask over 3 rows of unlike length, in blocks of half a page. */
static void
make(struct image *image, unsigned int *seed, uint32_t n_heads)
{
	const struct block_mask_row rows[3] = { { -2, 3, 9 }, { 0, 0, 0 }, { 100, 7, 20 } };
	const struct block_mask_shape shape = { 3, n_heads, 2, PAGE / 2, rows, NULL };
	static const uint32_t pages[3][5] = { { 8, 0, 3 }, { 0 }, { 1, 2, 7, 5, 4 } };
	const struct block_mask_sequence sequences[3] = { { pages[0], 3, 9 }, { pages[1], 0, 0 }, { pages[2], 5, 20 } };
	const struct block_mask_table table = {
		.sequences = sequences, .n_sequences = 3, .page_size = PAGE, .n_pages = N_PAGES
	};
	uint8_t dense[3 * (3 * 9 + 7 * 20)];
	struct block_mask *logical;

	for (size_t i = 0; i < sizeof(dense); i++)
		dense[i] = rand_r(seed) % 8 != 0;
	cr_assert_eq(block_mask_from_dense(&shape, dense, 0, &logical, &error), PAGED_OK, "%s", error.text);
	*image = (struct image){ .page_size = PAGE, .n_pages = N_PAGES };
	cr_assert_eq(block_mask_to_physical(logical, &table, 0, &image->mask, &error), PAGED_OK, "%s", error.text);
	image->logical = logical;
	memset(image->boot_id, 0xb0, sizeof(image->boot_id));
	image->rows = calloc(3, sizeof(*image->rows));
	for (uint32_t r = 0; r < 3; r++)
		image->rows[r] =
			(struct image_row){ (7ull + r) << 32, 2 * r, rows[r].q_base, rows[r].q_len, rows[r].kv_len };
}

Test(mask_image, there_and_back)
{
	unsigned int seed = 1;

	for (uint32_t n_heads = 1; n_heads <= 3; n_heads++) {
		struct image image, back;
		uint8_t *bytes;
		uint64_t size;

		make(&image, &seed, n_heads);
		bytes = image_write(&image, &size);
		cr_assert_eq(image_read(bytes, size, NULL, &back, &error), PAGED_OK, "%s", error.text);
		cr_assert(block_mask_equal(image.mask, back.mask));
		cr_assert(block_mask_equal(image.logical, back.logical));
		cr_assert_arr_eq(back.rows, image.rows, 3 * sizeof(*back.rows));
		cr_assert_arr_eq(back.boot_id, image.boot_id, sizeof(back.boot_id));
		cr_assert(back.page_size == PAGE && back.n_pages == N_PAGES);
		free(bytes);
		image_free(&image);
		image_free(&back);
	}
}

/* The order is found out from what was read, not from what the writer says. */
Test(mask_image, lists_in_another_order)
{
	struct image image, back;
	unsigned int seed = 1;
	uint32_t *blocks, first;
	uint8_t *bytes;
	uint64_t size;

	make(&image, &seed, 1);
	cr_assert_geq(image.logical->start[BLOCK_MASK_PARTIAL][1], 2);
	blocks = image.logical->indices[BLOCK_MASK_PARTIAL];
	for (int i = 0; i < 2; i++) {
		bytes = image_write(&image, &size);
		cr_assert_eq(image_read(bytes, size, NULL, &back, &error), PAGED_OK, "%s", error.text);
		cr_assert_eq(back.logical->ascending, i == 0);
		cr_assert_not(back.mask->ascending);
		image_free(&back);
		free(bytes);
		first = blocks[0];
		blocks[0] = blocks[1];
		blocks[1] = first;
	}
	image_free(&image);
}

/* An address that is no multiple of anything, as in a message. */
Test(mask_image, anywhere_in_memory)
{
	unsigned int seed = 2;
	struct image image, back;
	uint8_t *bytes, *moved;
	uint64_t size;

	make(&image, &seed, 2);
	bytes = image_write(&image, &size);
	moved = malloc(size + 1);
	memcpy(moved + 1, bytes, size);
	cr_assert_eq(image_read(moved + 1, size, NULL, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(block_mask_equal(image.mask, back.mask));
	free(moved);
	free(bytes);
	image_free(&image);
	image_free(&back);
}

Test(mask_image, cut_off_anywhere)
{
	unsigned int seed = 3;
	struct image image, back;
	uint64_t size;
	uint8_t *bytes;

	make(&image, &seed, 1);
	bytes = image_write(&image, &size);
	for (uint64_t n = 0; n < size; n++) {
		uint8_t *part = malloc(n + 1);

		memcpy(part, bytes, n);
		cr_assert_eq(image_read(part, n, NULL, &back, &error), PAGED_ERR_PROTOCOL);
		free(part);
	}
	free(bytes);
	image_free(&image);
}

/* Every list of a mask that was read lies in its memory and in the pool. */
static void
walk(const struct image *image)
{
	const struct block_mask *mask = image->mask;
	uint64_t n_lists = mask->first_list[mask->shape.n_rows], pool_blocks;

	pool_blocks = (uint64_t)image->n_pages * (image->page_size / mask->shape.kv_block);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		for (uint64_t i = 0; i < n_lists; i++)
			for (uint64_t j = mask->start[kind][i]; j < mask->start[kind][i + 1]; j++)
				cr_assert_lt(mask->indices[kind][j], pool_blocks);
	for (uint32_t r = 0; r < mask->shape.n_rows; r++)
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
			for (uint64_t j = mask->start[kind][mask->first_list[r]];
			     j < mask->start[kind][mask->first_list[r + 1]]; j++)
				cr_assert_lt(image->logical->indices[kind][j], block_mask_kv_blocks(image->logical, r));
	cr_assert_leq(block_mask_width(mask, BLOCK_MASK_FULL), pool_blocks);
}

Test(mask_image, every_byte_wrong)
{
	static const uint8_t flips[] = { 0x01, 0x80, 0xff, 0x10 };
	unsigned int seed = 4;
	unsigned int n_read = 0, n_refused = 0;
	struct image image, back;
	uint64_t size;
	uint8_t *bytes;

	make(&image, &seed, 2);
	bytes = image_write(&image, &size);
	for (uint64_t i = 0; i < size; i++)
		for (size_t j = 0; j < sizeof(flips); j++) {
			bytes[i] ^= flips[j];
			if (image_read(bytes, size, NULL, &back, &error) == PAGED_OK) {
				walk(&back);
				image_free(&back);
				n_read++;
			} else {
				cr_assert(error.status == PAGED_ERR_PROTOCOL || error.status == PAGED_ERR_VERSION);
				n_refused++;
			}
			bytes[i] ^= flips[j];
		}
	cr_assert_gt(n_read, 0);
	cr_assert_gt(n_refused, n_read / 4);
	free(bytes);
	image_free(&image);
}

static void
refuse(const struct image_header *header, enum paged_status status, const char *part)
{
	struct image back;

	cr_assert_eq(image_read(header, sizeof(*header), NULL, &back, &error), status);
	cr_assert_not_null(strstr(error.text, part), "%s", error.text);
}

Test(mask_image, wild_counts)
{
	struct image_header header = {
		.magic = IMAGE_MAGIC,
		.version_major = 1,
		.total_size = sizeof(header),
		.n_rows = 1,
		.n_heads = 1,
		.q_block = 1,
		.kv_block = 4,
		.page_size = 4,
		.n_pages = 1,
	};

	refuse(&header, PAGED_ERR_PROTOCOL, "are not 112 bytes");
	header.n_lists = UINT64_MAX;
	refuse(&header, PAGED_ERR_PROTOCOL, "are not 112 bytes");
	header.n_lists = UINT64_MAX / 8;
	refuse(&header, PAGED_ERR_PROTOCOL, "are not 112 bytes");
	header.n_lists = 0;
	header.n_blocks[0] = UINT64_MAX / 4;
	refuse(&header, PAGED_ERR_PROTOCOL, "are not 112 bytes");
	header.kv_block = 3;
	refuse(&header, PAGED_ERR_PROTOCOL, "blocks that divide no page");
	header.version_major = 2;
	refuse(&header, PAGED_ERR_VERSION, "version 2, not 1");
	header.magic = 0;
	refuse(&header, PAGED_ERR_PROTOCOL, "it is none");
}
