/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of block masks are identical to PyTorch's to_string(). */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/mask_fixture.h"

static char *
mask_picture(const struct block_mask *mask, const struct block_mask_string_format *grid)
{
	struct paged_error error = { 0 };
	char *text = NULL;

	cr_assert_eq(block_mask_to_string(mask, grid, &text, &error), PAGED_OK, "%s", error.text);
	return text;
}

static struct block_mask *
full_mask(uint32_t n_rows, uint32_t n_heads, struct block_mask_row row)
{
	struct block_mask_row *rows = calloc(n_rows, sizeof(*rows));
	const struct block_mask_shape shape = { n_rows, n_heads, 2, 2, rows, NULL };
	struct mask_dense dense;
	struct block_mask *mask;

	for (uint32_t r = 0; r < n_rows; r++)
		rows[r] = row;
	mask_dense_open(&dense, &shape);
	for (uint64_t i = 0; i < dense.n; i++)
		dense.elements[i] = 1;
	mask = mask_from_dense(&dense);
	mask_dense_close(&dense);
	free(rows);
	return mask;
}

Test(mask_to_string, past_the_limit)
{
	const struct block_mask_row row = { 0, 2, 4, 0 };
	struct block_mask *mask = full_mask(2, 3, row);
	char *text = mask_picture(mask, &(struct block_mask_string_format){ 0 });

	cr_assert_str_eq(text, "(0, 0)\n████\n\n(0, 1)\n████\n\n(0, 2)\n████\n\n(1, 0)\n████\n\n...\n"
			       "To print out more, set BlockMask.to_string(limit=N)\n"
			       "You can also index (BlockMask[batch, head]) to choose a specific batch or head");
	free(text);
	text = mask_picture(mask, &(struct block_mask_string_format){ .columns = 1, .limit = 6 });
	cr_assert_str_eq(text, "(0, 0)\n██\n\n(0, 1)\n██\n\n(0, 2)\n██\n\n(1, 0)\n██\n\n(1, 1)\n██\n\n(1, 2)\n██\n");
	free(text);
	block_mask_destroy(mask);
}

/* The last section may be smaller than the others; it is drawn full if all its blocks are full. */
Test(mask_to_string, odd_sections)
{
	const struct block_mask_row row = { 0, 5, 5, 0 };
	struct block_mask *mask = full_mask(1, 1, row);
	char *text = mask_picture(mask, &(struct block_mask_string_format){ .rows = 2, .columns = 2 });

	cr_assert_str_eq(text, "(0, 0)\n████\n████\n");
	free(text);
	block_mask_destroy(mask);
}

Test(mask_to_string, empty_masks)
{
	const struct block_mask_row row = { 0, 0, 0, 0 };
	struct block_mask *mask = full_mask(1, 1, row);
	char *text = mask_picture(mask, &(struct block_mask_string_format){ 0 });

	cr_assert_str_eq(text, "(0, 0)\n");
	free(text);
	block_mask_destroy(mask);
}
