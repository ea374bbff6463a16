/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/builder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64u
#define ADD_STEP 8u  /* number of indices that the compiler writes as vectors, */
#define RUN_STEP 16u /* and compares as vectors */

void
build_fail(struct build *build, enum paged_status status, const char *format, ...)
{
	va_list arguments;

	if (build->status != PAGED_OK)
		return;
	va_start(arguments, format);
	build->status = paged_vfail(build->error, status, format, arguments);
	va_end(arguments);
}

/* Allocates n zeroed elements for the mask; NULL after a failure. */
static void *
take(struct build *build, struct mask_memory *memory, uint64_t n, size_t size)
{
	uint64_t bytes;
	void *array;

	if (build->status != PAGED_OK)
		return NULL;
	if (__builtin_mul_overflow(n, (uint64_t)size, &bytes) || bytes > build->free_bytes) {
		build_fail(build, PAGED_ERR_LIMIT,
			   "block mask: %" PRIu64 " lists need more than the limit of %" PRIu64 " bytes",
			   build->n_lists, build->max_bytes);
		return NULL;
	}
	build->free_bytes -= bytes;
	array = mask_memory_alloc(memory, bytes);
	if (array == NULL)
		build_fail(build, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " bytes", bytes);
	return array;
}

static void
check_row(struct build *build, const struct block_mask_shape *shape, uint32_t r)
{
	const struct block_mask_row *row = &shape->rows[r];

	if (mask_count_parts(row->kv_len, shape->kv_block) > UINT32_MAX)
		build_fail(build, PAGED_ERR_LIMIT,
			   "block mask: row %" PRIu32 ": %" PRIu64 " keys in blocks of %" PRIu32
			   " are more than 2^32 - 1 blocks",
			   r, row->kv_len, shape->kv_block);
	if (mask_count_parts(row->q_len, shape->q_block) > UINT32_MAX)
		build_fail(build, PAGED_ERR_LIMIT,
			   "block mask: row %" PRIu32 ": %" PRIu64 " query rows in blocks of %" PRIu32
			   " are more than 2^32 - 1 blocks",
			   r, row->q_len, shape->q_block);
}

static void
count_lists(struct build *build, const struct block_mask_shape *shape)
{
	if (shape->n_rows == 0 || shape->n_heads == 0 || shape->q_block == 0 || shape->kv_block == 0)
		build_fail(build, PAGED_ERR_INVALID,
			   "block mask: %" PRIu32 " rows, %" PRIu32 " heads, blocks of %" PRIu32 " x %" PRIu32
			   ": none may be 0",
			   shape->n_rows, shape->n_heads, shape->q_block, shape->kv_block);
	for (uint32_t r = 0; build->status == PAGED_OK && r < shape->n_rows; r++) {
		uint64_t lists = mask_count_parts(shape->rows[r].q_len, shape->q_block);

		check_row(build, shape, r);
		if (__builtin_mul_overflow(lists, shape->n_heads, &lists) ||
		    __builtin_add_overflow(build->n_lists, lists, &build->n_lists) || build->n_lists == UINT64_MAX)
			build_fail(build, PAGED_ERR_LIMIT, "block mask: more than 2^64 lists up to row %" PRIu32, r);
	}
}

void
build_begin(struct build *build, const struct block_mask_shape *shape, uint64_t max_bytes, struct paged_error *error)
{
	struct block_mask_row *rows;
	struct block_mask *mask;

	*build = (struct build){ .error = error, .max_bytes = max_bytes != 0 ? max_bytes : BLOCK_MASK_MAX_BYTES };
	build->free_bytes = build->max_bytes;
	count_lists(build, shape);
	build->mask = mask = take(build, NULL, 1, sizeof(*mask));
	if (mask == NULL)
		return;
	mask->shape = *shape;
	mask->ascending = true;
	mask->first_list = take(build, shape->memory, (uint64_t)shape->n_rows + 1, sizeof(*mask->first_list));
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		mask->start[kind] = take(build, shape->memory, build->n_lists + 1, sizeof(*mask->start[kind]));
	mask->shape.rows = rows = take(build, shape->memory, shape->n_rows, sizeof(*rows));
	if (rows == NULL)
		return;
	memcpy(rows, shape->rows, shape->n_rows * sizeof(*rows));
	for (uint32_t r = 0; r < shape->n_rows; r++)
		mask->first_list[r + 1] = mask->first_list[r] + shape->n_heads * block_mask_q_blocks(mask, r);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		build_room(build, kind, 1);
}

/* Doubles the capacity, limited by free_bytes. */
static bool
grow(struct build *build, enum block_mask_kind kind, uint64_t needed)
{
	const size_t size = sizeof(uint32_t);
	uint64_t most = build->capacity[kind] + build->free_bytes / size;
	uint64_t capacity = build->capacity[kind] < FIRST_CAPACITY ? FIRST_CAPACITY : 2 * build->capacity[kind];
	uint32_t *indices;

	if (needed > most) {
		build_fail(build, PAGED_ERR_LIMIT,
			   "block mask: %" PRIu64 " of %" PRIu64 " lists fill the limit of %" PRIu64 " bytes",
			   build->n_ended, build->n_lists, build->max_bytes);
		return false;
	}
	if (capacity < needed)
		capacity = needed;
	if (capacity > most)
		capacity = most;
	indices = mask_memory_grow(build->mask->shape.memory, build->mask->indices[kind], capacity * size);
	if (indices == NULL) {
		build_fail(build, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " indices", capacity);
		return false;
	}
	build->mask->indices[kind] = indices;
	build->free_bytes -= (capacity - build->capacity[kind]) * size;
	build->capacity[kind] = capacity;
	return true;
}

bool
build_room(struct build *build, enum block_mask_kind kind, uint64_t n)
{
	uint64_t needed;

	if (build->status != PAGED_OK)
		return false;
	if (__builtin_add_overflow(build->n[kind], n, &needed))
		needed = UINT64_MAX;
	return needed <= build->capacity[kind] || grow(build, kind, needed);
}

void
build_add(struct build *build, enum block_mask_kind kind, uint32_t first, uint64_t n)
{
	uint32_t *to;
	uint64_t i = 0;

	if (!build_room(build, kind, n))
		return;
	to = build->mask->indices[kind] + build->n[kind];
	for (; i + ADD_STEP <= n; i += ADD_STEP)
		for (uint32_t j = 0; j < ADD_STEP; j++)
			to[i + j] = first + (uint32_t)i + j;
	for (; i < n; i++)
		to[i] = first + (uint32_t)i;
	build->n[kind] += n;
}

void
build_end_list(struct build *build)
{
	if (build->status != PAGED_OK)
		return;
	build->n_ended++;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		build->mask->start[kind][build->n_ended] = build->n[kind];
}

void
build_repeat(struct build *build, uint64_t first, uint64_t n)
{
	uint64_t ended = build->n_ended;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t *start = build->status == PAGED_OK ? build->mask->start[kind] : NULL;
		uint64_t from = start != NULL ? start[first] : 0, length = start != NULL ? start[first + n] - from : 0;
		uint32_t *indices;

		if (!build_room(build, kind, length))
			return;
		indices = build->mask->indices[kind];
		memcpy(indices + build->n[kind], indices + from, length * sizeof(*indices));
		for (uint64_t i = 1; i <= n; i++)
			start[ended + i] = build->n[kind] + start[first + i] - from;
		build->n[kind] += length;
	}
	build->n_ended += n;
}

enum paged_status
build_finish(struct build *build, struct block_mask **mask_p)
{
	const size_t size = sizeof(uint32_t);
	struct block_mask *mask = build->mask;

	if (build->status != PAGED_OK) {
		block_mask_destroy(mask);
		return build->status;
	}
	assert(build->n_ended == build->n_lists);
	/* Release the excess of doubling.  At least one element stays, so that lists never point to NULL. */
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		mask->indices[kind] =
			mask_memory_trim(mask->shape.memory, mask->indices[kind], build->capacity[kind] * size,
					 (build->n[kind] != 0 ? build->n[kind] : 1) * size);
	*mask_p = mask;
	return PAGED_OK;
}

/* The first list at or after `row`. */
static bool
place_in_row(const struct block_mask *mask, struct build_place *place, uint32_t row)
{
	while (row < mask->shape.n_rows && mask->shape.rows[row].q_len == 0)
		row++;
	*place = (struct build_place){ .row = row };
	return row < mask->shape.n_rows;
}

bool
build_place_first(const struct block_mask *mask, struct build_place *place)
{
	return place_in_row(mask, place, 0);
}

bool
build_place_next(const struct block_mask *mask, struct build_place *place)
{
	if (++place->q_block < block_mask_q_blocks(mask, place->row))
		return true;
	place->q_block = 0;
	return ++place->head < mask->shape.n_heads || place_in_row(mask, place, place->row + 1);
}

bool
build_first(const struct build *build, struct build_place *place)
{
	return build->status == PAGED_OK && build_place_first(build->mask, place);
}

bool
build_next(const struct build *build, struct build_place *place)
{
	return build->status == PAGED_OK && build_place_next(build->mask, place);
}

struct build_cut
build_cut(const struct block_mask_shape *shape, const struct block_mask_row *row, uint64_t q_block)
{
	bool q_whole = q_block < row->q_len / shape->q_block;

	return (struct build_cut){
		.n_whole = q_whole ? row->kv_len / shape->kv_block : 0,
		.n_blocks = mask_count_parts(row->kv_len, shape->kv_block),
	};
}

/* Iterates over the parts of a list's blocks. */
struct cursor {
	const uint32_t *block;
	const uint32_t *end;
	uint64_t part;
};

/* The next part below n_blocks, or UINT64_MAX at the end; skips parts at or past n_blocks. */
static uint64_t
cursor_peek(struct cursor *cursor, const struct build_source *source)
{
	for (; cursor->block < cursor->end; cursor->block++, cursor->part = 0) {
		uint64_t at = (uint64_t)*cursor->block * source->n_parts + cursor->part;

		if (at < source->cut.n_blocks)
			return at;
	}
	return UINT64_MAX;
}

static void
cursor_advance(struct cursor *cursor, const struct build_source *source)
{
	if (++cursor->part == source->n_parts) {
		cursor->block++;
		cursor->part = 0;
	}
}

static uint32_t
address(const struct build_source *source, uint64_t block)
{
	if (source->pages == NULL)
		return (uint32_t)block;
	if (source->page_blocks == 1)
		return source->pages[block];
	return source->pages[block / source->page_blocks] * source->page_blocks +
	       (uint32_t)(block % source->page_blocks);
}

static void
push(struct build *build, enum block_mask_kind kind, uint32_t block)
{
	build->mask->indices[kind][build->n[kind]++] = block;
}

/* Length of the run of consecutive numbers at the start of a list. */
static uint64_t
count_run(const uint32_t *blocks, uint64_t n)
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
copy_whole(struct build *build, const struct build_source *source, enum block_mask_kind kind, uint64_t end)
{
	const struct block_mask_list *list = &source->list[kind];
	uint32_t *to = build->mask->indices[kind] + build->n[kind];
	const uint32_t n_parts = source->n_parts, *pages = source->page_blocks == 1 ? source->pages : NULL;
	uint64_t n_whole = end / n_parts, i = 0;

	while (i < list->n && list->blocks[i] < n_whole) {
		uint64_t block = list->blocks[i], n = 1;

		if (pages != NULL) {
			n = count_run(list->blocks + i, list->n - i);
			n = n < n_whole - block ? n : n_whole - block;
			memcpy(to + i * n_parts, pages + block * n_parts, n * n_parts * sizeof(*to));
		} else {
			for (uint32_t part = 0; part < n_parts; part++)
				to[i * n_parts + part] = address(source, block * n_parts + part);
		}
		i += n;
	}
	build->n[kind] += i * n_parts;
	return i;
}

void
build_take(struct build *build, const struct block_mask_list list[BLOCK_MASK_N_KINDS])
{
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		if (!build_room(build, kind, list[kind].n))
			return;
		memcpy(build->mask->indices[kind] + build->n[kind], list[kind].blocks, list[kind].n * sizeof(uint32_t));
		build->n[kind] += list[kind].n;
	}
	build_end_list(build);
}

void
build_copy(struct build *build, const struct build_source *source)
{
	const struct block_mask_list *partial = &source->list[BLOCK_MASK_PARTIAL];
	const struct block_mask_list *full = &source->list[BLOCK_MASK_FULL];
	struct cursor p = { partial->blocks, partial->blocks + partial->n, 0 };
	struct cursor f = { full->blocks, full->blocks + full->n, 0 };
	uint64_t p_block, f_block;

	if (!build_room(build, BLOCK_MASK_PARTIAL, (partial->n + full->n) * source->n_parts) ||
	    !build_room(build, BLOCK_MASK_FULL, full->n * source->n_parts))
		return;
	f.block += copy_whole(build, source, BLOCK_MASK_FULL, source->cut.n_whole);
	/* All full blocks were copied, so none must be merged into the partial list. */
	if (f.block == f.end)
		p.block += copy_whole(build, source, BLOCK_MASK_PARTIAL, source->cut.n_blocks);
	while ((f_block = cursor_peek(&f, source)) != UINT64_MAX) {
		cursor_advance(&f, source);
		if (f_block < source->cut.n_whole) {
			push(build, BLOCK_MASK_FULL, address(source, f_block));
			continue;
		}
		while ((p_block = cursor_peek(&p, source)) < f_block) {
			push(build, BLOCK_MASK_PARTIAL, address(source, p_block));
			cursor_advance(&p, source);
		}
		push(build, BLOCK_MASK_PARTIAL, address(source, f_block));
	}
	while ((p_block = cursor_peek(&p, source)) != UINT64_MAX) {
		push(build, BLOCK_MASK_PARTIAL, address(source, p_block));
		cursor_advance(&p, source);
	}
	build_end_list(build);
}
