/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/rle.h"

#include <inttypes.h>

static bool
has_room(struct runs_writer *writer, uint32_t n)
{
	writer->full = writer->full || writer->capacity - writer->n < n;
	return !writer->full;
}

void
runs_list(struct runs_writer *writer, uint32_t block)
{
	if (!has_room(writer, 1))
		return;
	writer->list = writer->n;
	writer->values[writer->n++] = 0;
	writer->end = block;
}

void
runs_add(struct runs_writer *writer, enum block_mask_kind kind, uint32_t first, uint32_t n)
{
	const uint32_t full = kind == BLOCK_MASK_FULL;
	uint32_t *n_runs = &writer->values[writer->list];

	if (n == 0 || writer->full)
		return;
	if (*n_runs != 0 && first == writer->end && (writer->values[writer->n - 1] & 1) == full) {
		writer->values[writer->n - 1] += 2 * n;
	} else if (has_room(writer, 2)) {
		writer->values[writer->n++] = first - writer->end;
		writer->values[writer->n++] = 2 * n + full;
		++*n_runs;
	} else {
		writer->cut = *n_runs != 0;
		if (!writer->cut)
			writer->n = writer->list;
		return;
	}
	writer->end = first + n;
}

void
runs_same(struct runs_writer *writer, uint32_t value)
{
	if (has_room(writer, 1))
		writer->values[writer->n++] = value;
}

void
runs_read_begin(struct runs_reader *reader, const struct block_mask_shape *shape, uint64_t max_bytes,
		struct paged_error *error)
{
	*reader = (struct runs_reader){ .shape = shape, .build = { .max_bytes = max_bytes, .error = error } };
}

static void
contradict(struct runs_reader *reader, const char *what)
{
	build_fail(&reader->build, PAGED_ERR_PROTOCOL,
		   "block mask: a part of it contradicts itself or the request: " BUILD_PLACE ": %s",
		   BUILD_PLACE_OF(&reader->place), what);
}

static void
read_same(struct runs_reader *reader, uint32_t value)
{
	const struct block_mask *mask = reader->build.mask;
	const struct block_mask_row *row = &mask->shape.rows[reader->place.row];
	uint64_t n = block_mask_q_blocks(mask, reader->place.row);
	bool at_head = reader->place.q_block == 0 && reader->block == 0;

	if (value == RUNS_SAME_HEAD && at_head && reader->place.head > 0) {
		build_repeat(&reader->build, reader->build.n_ended - n, n);
	} else if (value == RUNS_SAME_ROW && at_head && reader->place.head == 0 && reader->place.row > 0 &&
		   row[-1].q_len == row->q_len && row[-1].kv_len == row->kv_len) {
		reader->place.head = mask->shape.n_heads - 1;
		build_repeat(&reader->build, reader->build.n_ended - n * mask->shape.n_heads, n * mask->shape.n_heads);
	} else {
		contradict(reader, "there are no lists to repeat");
	}
	reader->place.q_block = n - 1;
	reader->done = !build_place_next(mask, &reader->place);
}

static void
read_list(struct runs_reader *reader, const uint32_t *values, uint32_t n_runs)
{
	const struct block_mask_shape *shape = &reader->build.mask->shape;
	struct build_cut cut = build_cut(shape, &shape->rows[reader->place.row], reader->place.q_block);
	uint64_t end = reader->block;

	for (uint32_t i = 0; i < n_runs; i++) {
		enum block_mask_kind kind = values[2 * i + 1] & 1 ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL;
		uint64_t first = end + values[2 * i];

		end = first + values[2 * i + 1] / 2;
		if (end == first || end > (kind == BLOCK_MASK_FULL ? cut.n_whole : cut.n_blocks)) {
			contradict(reader, "a run without blocks, or past the row's");
			return;
		}
		build_add(&reader->build, kind, (uint32_t)first, end - first);
	}
	reader->block = (uint32_t)end;
}

static void
read_values(struct runs_reader *reader, const struct mask_part *part)
{
	for (uint32_t i = 0; i < part->n && reader->build.status == PAGED_OK;) {
		uint32_t value = part->values[i++];

		if (reader->done) {
			contradict(reader, "more lists than there are");
		} else if (value >= RUNS_SAME_ROW) {
			read_same(reader, value);
		} else if (value > (part->n - i) / 2) {
			contradict(reader, "more runs than there are numbers");
		} else {
			read_list(reader, &part->values[i], value);
			i += 2 * value;
			if (part->cut && i == part->n && value != 0)
				return;
			build_end_list(&reader->build);
			reader->block = 0;
			reader->done = !build_place_next(reader->build.mask, &reader->place);
		}
	}
	if (part->cut || (part->n == 0 && !reader->done))
		contradict(reader, "it ends in no list");
}

enum paged_status
runs_read(struct runs_reader *reader, const struct mask_part *part)
{
	if (reader->build.mask == NULL) {
		build_begin(&reader->build, reader->shape, reader->build.max_bytes, reader->build.error);
		if (reader->build.status == PAGED_OK)
			reader->done = !build_place_first(reader->build.mask, &reader->place);
		reader->arrays = part->arrays;
	} else if (part->arrays != reader->arrays) {
		build_fail(&reader->build, PAGED_ERR_AGAIN, "block mask: an array was replaced while it was built");
	}
	if (reader->build.status == PAGED_OK)
		read_values(reader, part);
	return reader->build.status;
}

enum paged_status
runs_read_end(struct runs_reader *reader, enum paged_status status, struct block_mask **mask_p)
{
	reader->build.status = status;
	return build_finish(&reader->build, mask_p);
}
