/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/builder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64u
#define ADD_STEP 8u  /* indices that are written at a time, as vectors */
#define RUN_STEP 16u /* list entries that are compared at a time, as vectors */

void
mask_builder_fail(struct mask_builder *builder, enum paged_status status, const char *format, ...)
{
	va_list arguments;

	if (builder->status != PAGED_OK)
		return;
	va_start(arguments, format);
	builder->status = paged_vfail(builder->error, status, format, arguments);
	va_end(arguments);
}

/* Allocates n zeroed elements for the mask; NULL after a failure. */
static void *
builder_alloc(struct mask_builder *builder, struct mask_memory *memory, uint64_t n, size_t size)
{
	uint64_t bytes;
	void *array;

	if (builder->status != PAGED_OK)
		return NULL;
	if (__builtin_mul_overflow(n, (uint64_t)size, &bytes) || bytes > builder->free_bytes) {
		mask_builder_fail(builder, PAGED_ERR_LIMIT,
				  "block mask: %" PRIu64 " lists need more than the limit of %" PRIu64 " bytes",
				  builder->n_lists, builder->max_bytes);
		return NULL;
	}
	builder->free_bytes -= bytes;
	array = mask_memory_alloc(memory, bytes);
	if (array == NULL)
		mask_builder_fail(builder, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " bytes", bytes);
	return array;
}

static void
builder_check_row(struct mask_builder *builder, const struct block_mask_shape *shape, uint32_t r)
{
	const struct block_mask_row *row = &shape->rows[r];

	if (mask_ceil_div(row->kv_len, shape->kv_block) > UINT32_MAX)
		mask_builder_fail(builder, PAGED_ERR_LIMIT,
				  "block mask: row %" PRIu32 ": %" PRIu64 " keys in blocks of %" PRIu32
				  " are more than 2^32 - 1 blocks",
				  r, row->kv_len, shape->kv_block);
	if (mask_ceil_div(row->q_len, shape->q_block) > UINT32_MAX)
		mask_builder_fail(builder, PAGED_ERR_LIMIT,
				  "block mask: row %" PRIu32 ": %" PRIu64 " query rows in blocks of %" PRIu32
				  " are more than 2^32 - 1 blocks",
				  r, row->q_len, shape->q_block);
}

static void
builder_count_lists(struct mask_builder *builder, const struct block_mask_shape *shape)
{
	if (shape->n_rows == 0 || shape->n_heads == 0 || shape->q_block == 0 || shape->kv_block == 0)
		mask_builder_fail(builder, PAGED_ERR_INVALID,
				  "block mask: %" PRIu32 " rows, %" PRIu32 " heads, blocks of %" PRIu32 " x %" PRIu32
				  ": none may be 0",
				  shape->n_rows, shape->n_heads, shape->q_block, shape->kv_block);
	for (uint32_t r = 0; builder->status == PAGED_OK && r < shape->n_rows; r++) {
		uint64_t lists = mask_ceil_div(shape->rows[r].q_len, shape->q_block);

		builder_check_row(builder, shape, r);
		if (__builtin_mul_overflow(lists, shape->n_heads, &lists) ||
		    __builtin_add_overflow(builder->n_lists, lists, &builder->n_lists) ||
		    builder->n_lists == UINT64_MAX)
			mask_builder_fail(builder, PAGED_ERR_LIMIT,
					  "block mask: more than 2^64 lists up to row %" PRIu32, r);
	}
}

void
mask_builder_begin(struct mask_builder *builder, const struct block_mask_shape *shape, uint64_t max_bytes,
		   struct paged_error *error)
{
	struct block_mask_row *rows;
	struct block_mask *mask;

	*builder =
		(struct mask_builder){ .error = error, .max_bytes = max_bytes != 0 ? max_bytes : BLOCK_MASK_MAX_BYTES };
	builder->free_bytes = builder->max_bytes;
	builder_count_lists(builder, shape);
	builder->mask = mask = builder_alloc(builder, NULL, 1, sizeof(*mask));
	if (mask == NULL)
		return;
	mask->shape = *shape;
	mask->ascending = true;
	mask->first_list =
		builder_alloc(builder, shape->memory, (uint64_t)shape->n_rows + 1, sizeof(*mask->first_list));
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		mask->start[kind] =
			builder_alloc(builder, shape->memory, builder->n_lists + 1, sizeof(*mask->start[kind]));
	mask->shape.rows = rows = builder_alloc(builder, shape->memory, shape->n_rows, sizeof(*rows));
	if (rows == NULL)
		return;
	memcpy(rows, shape->rows, shape->n_rows * sizeof(*rows));
	for (uint32_t r = 0; r < shape->n_rows; r++)
		mask->first_list[r + 1] = mask->first_list[r] + shape->n_heads * block_mask_q_blocks(mask, r);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		mask_builder_reserve(builder, kind, 1);
}

/* Doubles the capacity, limited by free_bytes. */
static bool
builder_grow(struct mask_builder *builder, enum block_mask_kind kind, uint64_t needed)
{
	const size_t size = sizeof(uint32_t);
	uint64_t most = builder->capacity[kind] + builder->free_bytes / size;
	uint64_t capacity = builder->capacity[kind] < FIRST_CAPACITY ? FIRST_CAPACITY : 2 * builder->capacity[kind];
	uint32_t *indices;

	if (needed > most) {
		mask_builder_fail(builder, PAGED_ERR_LIMIT,
				  "block mask: %" PRIu64 " of %" PRIu64 " lists fill the limit of %" PRIu64 " bytes",
				  builder->n_ended, builder->n_lists, builder->max_bytes);
		return false;
	}
	if (capacity < needed)
		capacity = needed;
	if (capacity > most)
		capacity = most;
	indices = mask_memory_grow(builder->mask->shape.memory, builder->mask->indices[kind], capacity * size);
	if (indices == NULL) {
		mask_builder_fail(builder, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " indices", capacity);
		return false;
	}
	builder->mask->indices[kind] = indices;
	builder->free_bytes -= (capacity - builder->capacity[kind]) * size;
	builder->capacity[kind] = capacity;
	return true;
}

bool
mask_builder_reserve(struct mask_builder *builder, enum block_mask_kind kind, uint64_t n)
{
	uint64_t needed;

	if (builder->status != PAGED_OK)
		return false;
	if (__builtin_add_overflow(builder->n[kind], n, &needed))
		needed = UINT64_MAX;
	return needed <= builder->capacity[kind] || builder_grow(builder, kind, needed);
}

void
mask_builder_append(struct mask_builder *builder, enum block_mask_kind kind, uint32_t first, uint64_t n)
{
	uint32_t *to;
	uint64_t i = 0;

	if (!mask_builder_reserve(builder, kind, n))
		return;
	to = builder->mask->indices[kind] + builder->n[kind];
	for (; i + ADD_STEP <= n; i += ADD_STEP)
		for (uint32_t j = 0; j < ADD_STEP; j++)
			to[i + j] = first + (uint32_t)i + j;
	for (; i < n; i++)
		to[i] = first + (uint32_t)i;
	builder->n[kind] += n;
}

void
mask_builder_end_list(struct mask_builder *builder)
{
	if (builder->status != PAGED_OK)
		return;
	builder->n_ended++;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		builder->mask->start[kind][builder->n_ended] = builder->n[kind];
}

void
mask_builder_repeat(struct mask_builder *builder, uint64_t first, uint64_t n)
{
	uint64_t ended = builder->n_ended;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t *start = builder->status == PAGED_OK ? builder->mask->start[kind] : NULL;
		uint64_t from = start != NULL ? start[first] : 0, length = start != NULL ? start[first + n] - from : 0;
		uint32_t *indices;

		if (!mask_builder_reserve(builder, kind, length))
			return;
		indices = builder->mask->indices[kind];
		memcpy(indices + builder->n[kind], indices + from, length * sizeof(*indices));
		for (uint64_t i = 1; i <= n; i++)
			start[ended + i] = builder->n[kind] + start[first + i] - from;
		builder->n[kind] += length;
	}
	builder->n_ended += n;
}

enum paged_status
mask_builder_finish(struct mask_builder *builder, struct block_mask **mask_p)
{
	const size_t size = sizeof(uint32_t);
	struct block_mask *mask = builder->mask;

	if (builder->status != PAGED_OK) {
		block_mask_destroy(mask);
		return builder->status;
	}
	assert(builder->n_ended == builder->n_lists);
	/* Release the excess of doubling.  At least one element stays, so that lists never point to NULL. */
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		mask->indices[kind] =
			mask_memory_trim(mask->shape.memory, mask->indices[kind], builder->capacity[kind] * size,
					 (builder->n[kind] != 0 ? builder->n[kind] : 1) * size);
	*mask_p = mask;
	return PAGED_OK;
}

/* The first list at or after `row`. */
static bool
mask_position_in_row(const struct block_mask *mask, struct mask_position *position, uint32_t row)
{
	while (row < mask->shape.n_rows && mask->shape.rows[row].q_len == 0)
		row++;
	*position = (struct mask_position){ .row = row };
	return row < mask->shape.n_rows;
}

bool
mask_position_first(const struct block_mask *mask, struct mask_position *position)
{
	return mask_position_in_row(mask, position, 0);
}

bool
mask_position_next(const struct block_mask *mask, struct mask_position *position)
{
	if (++position->q_block < block_mask_q_blocks(mask, position->row))
		return true;
	position->q_block = 0;
	return ++position->head < mask->shape.n_heads || mask_position_in_row(mask, position, position->row + 1);
}

bool
mask_builder_first_list(const struct mask_builder *builder, struct mask_position *position)
{
	return builder->status == PAGED_OK && mask_position_first(builder->mask, position);
}

bool
mask_builder_next_list(const struct mask_builder *builder, struct mask_position *position)
{
	return builder->status == PAGED_OK && mask_position_next(builder->mask, position);
}

struct mask_clip
mask_clip(const struct block_mask_shape *shape, const struct block_mask_row *row, uint64_t q_block)
{
	bool q_whole = q_block < row->q_len / shape->q_block;

	return (struct mask_clip){
		.n_dropped = block_mask_row_first_block(row, shape->kv_block),
		.first_unclipped = mask_ceil_div(row->kv_first, shape->kv_block),
		.n_unclipped = q_whole ? row->kv_len / shape->kv_block : 0,
		.n_blocks = mask_ceil_div(row->kv_len, shape->kv_block),
	};
}

/* Iterates over the parts of a list's blocks. */
struct cursor {
	const uint32_t *block;
	const uint32_t *end;
	uint64_t part;
};

/* The next part that the clip keeps, or UINT64_MAX at the end. */
static uint64_t
cursor_peek(struct cursor *cursor, const struct mask_copy_source *source)
{
	for (; cursor->block < cursor->end; cursor->block++, cursor->part = 0) {
		uint64_t first = (uint64_t)*cursor->block * source->n_parts, at = first + cursor->part;

		if (at < source->clip.n_dropped) {
			if (source->clip.n_dropped >= first + source->n_parts)
				continue;
			cursor->part = (uint32_t)(source->clip.n_dropped - first);
			at = source->clip.n_dropped;
		}
		if (at < source->clip.n_blocks)
			return at;
	}
	return UINT64_MAX;
}

static void
cursor_advance(struct cursor *cursor, const struct mask_copy_source *source)
{
	if (++cursor->part == source->n_parts) {
		cursor->block++;
		cursor->part = 0;
	}
}

static uint32_t
source_block(const struct mask_copy_source *source, uint64_t block)
{
	if (source->pages == NULL)
		return (uint32_t)block;
	if (source->page_blocks == 1)
		return source->pages[block];
	return source->pages[block / source->page_blocks] * source->page_blocks +
	       (uint32_t)(block % source->page_blocks);
}

static void
builder_push(struct mask_builder *builder, enum block_mask_kind kind, uint32_t block)
{
	builder->mask->indices[kind][builder->n[kind]++] = block;
}

/* Length of the run of consecutive numbers at the start of a list. */
static uint64_t
source_run_length(const uint32_t *blocks, uint64_t n)
{
	uint64_t run = 1;

	for (; run + RUN_STEP <= n; run += RUN_STEP) {
		uint32_t unlike = 0;

		for (uint32_t i = 0; i < RUN_STEP; i++)
			unlike |= blocks[run + i] ^ (blocks[0] + (uint32_t)run + i);
		if (unlike != 0)
			break;
	}
	while (run < n && blocks[run] == blocks[0] + run)
		run++;
	return run;
}

/* Copies the leading blocks of a list whose parts are all below `end`; returns their number. */
static uint64_t
builder_copy_unclipped(struct mask_builder *builder, const struct mask_copy_source *source, enum block_mask_kind kind,
		       uint64_t end)
{
	const struct block_mask_list *list = &source->list[kind];
	uint32_t *to = builder->mask->indices[kind] + builder->n[kind];
	const uint32_t n_parts = source->n_parts, *pages = source->page_blocks == 1 ? source->pages : NULL;
	uint64_t n_unclipped = end / n_parts, i = 0;

	while (i < list->n && list->blocks[i] < n_unclipped) {
		uint64_t block = list->blocks[i], n = 1;

		if (pages != NULL) {
			n = source_run_length(list->blocks + i, list->n - i);
			n = n < n_unclipped - block ? n : n_unclipped - block;
			memcpy(to + i * n_parts, pages + block * n_parts, n * n_parts * sizeof(*to));
		} else {
			for (uint32_t part = 0; part < n_parts; part++)
				to[i * n_parts + part] = source_block(source, block * n_parts + part);
		}
		i += n;
	}
	builder->n[kind] += i * n_parts;
	return i;
}

void
mask_builder_copy(struct mask_builder *builder, const struct block_mask_list list[BLOCK_MASK_N_KINDS])
{
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		if (!mask_builder_reserve(builder, kind, list[kind].n))
			return;
		memcpy(builder->mask->indices[kind] + builder->n[kind], list[kind].blocks,
		       list[kind].n * sizeof(uint32_t));
		builder->n[kind] += list[kind].n;
	}
	mask_builder_end_list(builder);
}

void
mask_builder_copy_clipped(struct mask_builder *builder, const struct mask_copy_source *source)
{
	const struct block_mask_list *partial = &source->list[BLOCK_MASK_PARTIAL];
	const struct block_mask_list *full = &source->list[BLOCK_MASK_FULL];
	struct cursor p = { partial->blocks, partial->blocks + partial->n, 0 };
	struct cursor f = { full->blocks, full->blocks + full->n, 0 };
	uint64_t p_block, f_block;

	if (!mask_builder_reserve(builder, BLOCK_MASK_PARTIAL, (partial->n + full->n) * source->n_parts) ||
	    !mask_builder_reserve(builder, BLOCK_MASK_FULL, full->n * source->n_parts))
		return;
	if (source->clip.first_unclipped == 0)
		f.block += builder_copy_unclipped(builder, source, BLOCK_MASK_FULL, source->clip.n_unclipped);
	/* All full blocks were copied, so none must be merged into the partial list. */
	if (source->clip.first_unclipped == 0 && f.block == f.end)
		p.block += builder_copy_unclipped(builder, source, BLOCK_MASK_PARTIAL, source->clip.n_blocks);
	while ((f_block = cursor_peek(&f, source)) != UINT64_MAX) {
		cursor_advance(&f, source);
		if (f_block >= source->clip.first_unclipped && f_block < source->clip.n_unclipped) {
			builder_push(builder, BLOCK_MASK_FULL, source_block(source, f_block));
			continue;
		}
		while ((p_block = cursor_peek(&p, source)) < f_block) {
			builder_push(builder, BLOCK_MASK_PARTIAL, source_block(source, p_block));
			cursor_advance(&p, source);
		}
		builder_push(builder, BLOCK_MASK_PARTIAL, source_block(source, f_block));
	}
	while ((p_block = cursor_peek(&p, source)) != UINT64_MAX) {
		builder_push(builder, BLOCK_MASK_PARTIAL, source_block(source, p_block));
		cursor_advance(&p, source);
	}
	mask_builder_end_list(builder);
}
