/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's to_string(): one character, doubled, per section of blocks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

#define DEFAULT_GRID 20u
#define DEFAULT_LIMIT 4u

/* A row of characters: for each section, the number of its blocks that are in lists. */
struct text_row {
	uint64_t *counts;
	uint64_t n_columns;
	uint64_t column_step; /* KV blocks per section */
	uint64_t row_step;    /* query blocks per section */
};

static uint64_t
section_step(uint64_t n_blocks, uint32_t grid)
{
	uint64_t step = mask_ceil_div(n_blocks, grid);

	return step != 0 ? step : 1;
}

static void
section_count_blocks(const struct block_mask *mask, const struct mask_position *position, uint64_t q_end,
		     struct text_row *text_row)
{
	memset(text_row->counts, 0, text_row->n_columns * sizeof(*text_row->counts));
	for (uint64_t q = position->q_block; q < q_end; q++)
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list list = block_mask_list(mask, kind, position->row, position->head, q);

			for (uint64_t i = 0; i < list.n; i++)
				text_row->counts[list.blocks[i] / text_row->column_step]++;
		}
}

static enum paged_status
head_to_string(FILE *text, const struct block_mask *mask, struct mask_position position, uint32_t n_rows,
	       uint32_t n_columns, struct paged_error *error)
{
	uint64_t n_q = block_mask_q_blocks(mask, position.row), n_kv = block_mask_kv_blocks(mask, position.row);
	struct text_row text_row = { .column_step = section_step(n_kv, n_columns),
				     .row_step = section_step(n_q, n_rows) };

	text_row.n_columns = mask_ceil_div(n_kv, text_row.column_step);
	text_row.counts = calloc(text_row.n_columns + 1, sizeof(*text_row.counts));
	if (text_row.counts == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a text %" PRIu64 " wide",
				  text_row.n_columns);
	fprintf(text, "(%" PRIu32 ", %" PRIu32 ")\n", position.row, position.head);
	for (; position.q_block < n_q; position.q_block += text_row.row_step) {
		uint64_t q_end = mask_min(position.q_block + text_row.row_step, n_q);

		section_count_blocks(mask, &position, q_end, &text_row);
		for (uint64_t c = 0; c < text_row.n_columns; c++) {
			uint64_t kv = c * text_row.column_step;
			uint64_t all = (q_end - position.q_block) * (mask_min(kv + text_row.column_step, n_kv) - kv);

			fputs(text_row.counts[c] == 0 ? "  " : text_row.counts[c] == all ? "██" : "░░", text);
		}
		fputc('\n', text);
	}
	free(text_row.counts);
	return PAGED_OK;
}

enum paged_status
block_mask_to_string(const struct block_mask *mask, const struct block_mask_string_format *grid, char **text_p,
		     struct paged_error *error)
{
	uint64_t n_row_heads = (uint64_t)mask->shape.n_rows * mask->shape.n_heads;
	uint64_t limit = grid->limit != 0 ? grid->limit : DEFAULT_LIMIT;
	enum paged_status status = PAGED_OK;
	char *string = NULL;
	size_t size;
	FILE *text = open_memstream(&string, &size);

	if (text == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for its text");
	for (uint64_t i = 0; i < mask_min(n_row_heads, limit) && status == PAGED_OK; i++) {
		const struct mask_position position = { .row = (uint32_t)(i / mask->shape.n_heads),
							.head = (uint32_t)(i % mask->shape.n_heads) };

		if (i != 0)
			fputc('\n', text);
		status = head_to_string(text, mask, position, grid->rows != 0 ? grid->rows : DEFAULT_GRID,
					grid->columns != 0 ? grid->columns : DEFAULT_GRID, error);
	}
	if (n_row_heads > limit)
		fputs("\n...\nTo print out more, set BlockMask.to_string(limit=N)\n"
		      "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
		      text);
	if ((ferror(text) | fclose(text)) != 0 && status == PAGED_OK)
		status = paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for its text");
	if (status != PAGED_OK) {
		free(string);
		return status;
	}
	*text_p = string;
	return PAGED_OK;
}
