/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/rle.h"

#include <inttypes.h>

static bool
rle_has_room(struct rle_writer *writer, uint32_t n)
{
	writer->full = writer->full || writer->capacity - writer->n < n;
	return !writer->full;
}

void
rle_write_list(struct rle_writer *writer, uint32_t block)
{
	if (!rle_has_room(writer, 1))
		return;
	writer->list = writer->n;
	writer->values[writer->n++] = 0;
	writer->end = block;
}

void
rle_write_run(struct rle_writer *writer, enum block_mask_kind kind, uint32_t first, uint32_t n)
{
	const uint32_t full = kind == BLOCK_MASK_FULL;
	uint32_t *n_runs = &writer->values[writer->list];

	if (n == 0 || writer->full)
		return;
	if (*n_runs != 0 && first == writer->end && (writer->values[writer->n - 1] & 1) == full) {
		writer->values[writer->n - 1] += 2 * n;
	} else if (rle_has_room(writer, 2)) {
		writer->values[writer->n++] = first - writer->end;
		writer->values[writer->n++] = 2 * n + full;
		++*n_runs;
	} else {
		writer->list_continues = *n_runs != 0;
		if (!writer->list_continues)
			writer->n = writer->list;
		return;
	}
	writer->end = first + n;
}

void
rle_write_repeat(struct rle_writer *writer, uint32_t value)
{
	if (rle_has_room(writer, 1))
		writer->values[writer->n++] = value;
}

void
rle_read_begin(struct rle_reader *reader, const struct block_mask_shape *shape, uint64_t max_bytes,
	       struct paged_error *error)
{
	*reader = (struct rle_reader){ .shape = shape, .builder = { .max_bytes = max_bytes, .error = error } };
}

static void
rle_contradiction(struct rle_reader *reader, const char *what)
{
	mask_builder_fail(&reader->builder, PAGED_ERR_PROTOCOL,
			  "block mask: a part of it contradicts itself or the request: " MASK_POSITION_FORMAT ": %s",
			  MASK_POSITION_ARGS(&reader->position), what);
}

static void
rle_read_repeat(struct rle_reader *reader, uint32_t value)
{
	const struct block_mask *mask = reader->builder.mask;
	const struct block_mask_row *row = &mask->shape.rows[reader->position.row];
	uint64_t n = block_mask_q_blocks(mask, reader->position.row);
	bool at_head = reader->position.q_block == 0 && reader->block == 0;

	if (value == RLE_REPEAT_HEAD && at_head && reader->position.head > 0) {
		mask_builder_repeat(&reader->builder, reader->builder.n_ended - n, n);
	} else if (value == RLE_REPEAT_ROW && at_head && reader->position.head == 0 && reader->position.row > 0 &&
		   row[-1].q_len == row->q_len && row[-1].kv_len == row->kv_len && row[-1].kv_first == row->kv_first) {
		reader->position.head = mask->shape.n_heads - 1;
		mask_builder_repeat(&reader->builder, reader->builder.n_ended - n * mask->shape.n_heads,
				    n * mask->shape.n_heads);
	} else {
		rle_contradiction(reader, "there are no lists to repeat");
	}
	reader->position.q_block = n - 1;
	reader->done = !mask_position_next(mask, &reader->position);
}

static void
rle_read_list(struct rle_reader *reader, const uint32_t *values, uint32_t n_runs)
{
	const struct block_mask_shape *shape = &reader->builder.mask->shape;
	struct mask_clip clip = mask_clip(shape, &shape->rows[reader->position.row], reader->position.q_block);
	uint64_t end = reader->block;

	for (uint32_t i = 0; i < n_runs; i++) {
		enum block_mask_kind kind = values[2 * i + 1] & 1 ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL;
		uint64_t first = end + values[2 * i];

		end = first + values[2 * i + 1] / 2;
		if (end == first || end > (kind == BLOCK_MASK_FULL ? clip.n_unclipped : clip.n_blocks) ||
		    first < (kind == BLOCK_MASK_FULL ? clip.first_unclipped : clip.n_dropped)) {
			rle_contradiction(reader, "a run without blocks, or outside the row's");
			return;
		}
		mask_builder_append(&reader->builder, kind, (uint32_t)first, end - first);
	}
	reader->block = (uint32_t)end;
}

static void
rle_read_values(struct rle_reader *reader, const struct mask_part *part)
{
	for (uint32_t i = 0; i < part->n && reader->builder.status == PAGED_OK;) {
		uint32_t value = part->values[i++];

		if (reader->done) {
			rle_contradiction(reader, "more lists than there are");
		} else if (value >= RLE_REPEAT_ROW) {
			rle_read_repeat(reader, value);
		} else if (value > (part->n - i) / 2) {
			rle_contradiction(reader, "more runs than there are numbers");
		} else {
			rle_read_list(reader, &part->values[i], value);
			i += 2 * value;
			if (part->list_continues && i == part->n && value != 0)
				return;
			mask_builder_end_list(&reader->builder);
			reader->block = 0;
			reader->done = !mask_position_next(reader->builder.mask, &reader->position);
		}
	}
	if (part->list_continues || (part->n == 0 && !reader->done))
		rle_contradiction(reader, "it ends in no list");
}

enum paged_status
rle_read_part(struct rle_reader *reader, const struct mask_part *part)
{
	if (reader->builder.mask == NULL) {
		mask_builder_begin(&reader->builder, reader->shape, reader->builder.max_bytes, reader->builder.error);
		if (reader->builder.status == PAGED_OK)
			reader->done = !mask_position_first(reader->builder.mask, &reader->position);
		reader->arrays = part->arrays;
	} else if (part->arrays != reader->arrays) {
		mask_builder_fail(&reader->builder, PAGED_ERR_AGAIN,
				  "block mask: an array was replaced while it was built");
	}
	if (reader->builder.status == PAGED_OK)
		rle_read_values(reader, part);
	return reader->builder.status;
}

enum paged_status
rle_read_end(struct rle_reader *reader, enum paged_status status, struct block_mask **mask_p)
{
	reader->builder.status = status;
	return mask_builder_finish(&reader->builder, mask_p);
}
