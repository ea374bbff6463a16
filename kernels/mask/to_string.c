/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's to_string(): one character, doubled, per section of blocks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

#define DEFAULT_GRID 20u
#define DEFAULT_LIMIT 4u

/* A line of the picture: for each section, the number of its blocks that are in lists. */
struct line {
	uint64_t *counts;
	uint64_t n_columns;
	uint64_t column_step; /* KV blocks per section */
	uint64_t row_step;    /* query blocks per section */
};

static uint64_t
step_of(uint64_t n_blocks, uint32_t grid)
{
	uint64_t step = mask_count_parts(n_blocks, grid);

	return step != 0 ? step : 1;
}

static void
count_section(const struct block_mask *mask, const struct build_place *place, uint64_t q_end, struct line *line)
{
	memset(line->counts, 0, line->n_columns * sizeof(*line->counts));
	for (uint64_t q = place->q_block; q < q_end; q++)
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list list = block_mask_list(mask, kind, place->row, place->head, q);

			for (uint64_t i = 0; i < list.n; i++)
				line->counts[list.blocks[i] / line->column_step]++;
		}
}

static enum paged_status
draw(FILE *text, const struct block_mask *mask, struct build_place place, uint32_t n_rows, uint32_t n_columns,
     struct paged_error *error)
{
	uint64_t n_q = block_mask_q_blocks(mask, place.row), n_kv = block_mask_kv_blocks(mask, place.row);
	struct line line = { .column_step = step_of(n_kv, n_columns), .row_step = step_of(n_q, n_rows) };

	line.n_columns = mask_count_parts(n_kv, line.column_step);
	line.counts = calloc(line.n_columns + 1, sizeof(*line.counts));
	if (line.counts == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a picture %" PRIu64 " wide",
				  line.n_columns);
	fprintf(text, "(%" PRIu32 ", %" PRIu32 ")\n", place.row, place.head);
	for (; place.q_block < n_q; place.q_block += line.row_step) {
		uint64_t q_end = mask_smaller(place.q_block + line.row_step, n_q);

		count_section(mask, &place, q_end, &line);
		for (uint64_t c = 0; c < line.n_columns; c++) {
			uint64_t kv = c * line.column_step;
			uint64_t all = (q_end - place.q_block) * (mask_smaller(kv + line.column_step, n_kv) - kv);

			fputs(line.counts[c] == 0 ? "  " : line.counts[c] == all ? "██" : "░░", text);
		}
		fputc('\n', text);
	}
	free(line.counts);
	return PAGED_OK;
}

enum paged_status
block_mask_picture(const struct block_mask *mask, const struct block_mask_grid *grid, char **text_p,
		   struct paged_error *error)
{
	uint64_t n_pictures = (uint64_t)mask->shape.n_rows * mask->shape.n_heads;
	uint64_t limit = grid->limit != 0 ? grid->limit : DEFAULT_LIMIT;
	enum paged_status status = PAGED_OK;
	char *string = NULL;
	size_t size;
	FILE *text = open_memstream(&string, &size);

	if (text == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a picture");
	for (uint64_t i = 0; i < mask_smaller(n_pictures, limit) && status == PAGED_OK; i++) {
		const struct build_place place = { .row = (uint32_t)(i / mask->shape.n_heads),
						   .head = (uint32_t)(i % mask->shape.n_heads) };

		if (i != 0)
			fputc('\n', text);
		status = draw(text, mask, place, grid->rows != 0 ? grid->rows : DEFAULT_GRID,
			      grid->columns != 0 ? grid->columns : DEFAULT_GRID, error);
	}
	if (n_pictures > limit)
		fputs("\n...\nTo print out more, set BlockMask.to_string(limit=N)\n"
		      "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
		      text);
	if ((ferror(text) | fclose(text)) != 0 && status == PAGED_OK)
		status = paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a picture");
	if (status != PAGED_OK) {
		free(string);
		return status;
	}
	*text_p = string;
	return PAGED_OK;
}
