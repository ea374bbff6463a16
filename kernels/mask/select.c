/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a mask, and its transpose. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

/* The part of a row from first_q on, limited to the lengths. */
static struct block_mask_row
part_of_row(const struct block_mask_row *row, uint64_t first_q, uint64_t q_len, uint64_t kv_len)
{
	uint64_t rest = row->q_len > first_q ? row->q_len - first_q : 0;

	return (struct block_mask_row){
		.q_base = row->q_base + (int64_t)(row->q_len > first_q ? first_q : row->q_len),
		.q_len = rest < q_len ? rest : q_len,
		.kv_len = row->kv_len < kv_len ? row->kv_len : kv_len,
	};
}

static bool
same_cut(struct build_cut a, struct build_cut b)
{
	return a.n_whole == b.n_whole && a.n_blocks == b.n_blocks;
}

static void
copy_lists(struct build *build, const struct block_mask *mask, const struct block_mask_part *part)
{
	uint64_t first_q_block = part->first_q / mask->shape.q_block;
	struct build_place place;

	for (bool more = build_first(build, &place); more; more = build_next(build, &place)) {
		uint32_t row = part->first_row + place.row;
		uint64_t q_block = first_q_block + place.q_block;
		struct build_source source = { .n_parts = 1 };

		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
			source.list[kind] = block_mask_list(mask, kind, row, part->first_head + place.head, q_block);
		source.cut = build_cut(&build->mask->shape, &build->mask->shape.rows[place.row], place.q_block);
		row = mask->shape.n_rows == 1 ? 0 : row;
		if (same_cut(source.cut, build_cut(&mask->shape, &mask->shape.rows[row], q_block)))
			build_take(build, source.list);
		else
			build_copy(build, &source);
	}
}

/* Copies the lists of a part over new rows, and frees `rows`. */
static enum paged_status
copy_part(const struct block_mask *mask, const struct block_mask_part *part, struct block_mask_row *rows,
	  struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = mask->shape;
	enum paged_status status;
	struct build build;

	shape.n_rows = part->n_rows;
	shape.n_heads = part->n_heads;
	shape.rows = rows;
	build_begin(&build, &shape, UINT64_MAX, error);
	copy_lists(&build, mask, part);
	free(rows);
	status = build_finish(&build, mask_p);
	if (status == PAGED_OK)
		(*mask_p)->ascending = mask->ascending;
	return status;
}

static struct block_mask_row *
new_rows(uint32_t n, struct paged_error *error)
{
	struct block_mask_row *rows = calloc((size_t)n + 1, sizeof(*rows));

	if (rows == NULL)
		paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", n);
	return rows;
}

/* Copies a checked part, whose numbers are within the mask. */
static enum paged_status
take_part(const struct block_mask *mask, const struct block_mask_part *part, uint64_t kv_len,
	  struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_row *rows = new_rows(part->n_rows, error);

	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < part->n_rows; r++)
		rows[r] = part_of_row(&mask->shape.rows[part->first_row + r], part->first_q, part->n_q, kv_len);
	return copy_part(mask, part, rows, mask_p, error);
}

/* Resolves *n of UINT32_MAX to the rest of the range; false if the range is empty or exceeds `total`. */
static bool
range_fits(uint32_t first, uint32_t *n, uint32_t total)
{
	if (first >= total || *n == 0)
		return false;
	if (*n == UINT32_MAX)
		*n = total - first;
	return *n <= total - first;
}

enum paged_status
block_mask_select(const struct block_mask *mask, const struct block_mask_part *part, struct block_mask **mask_p,
		  struct paged_error *error)
{
	struct block_mask_part fitted = *part;

	if (!range_fits(part->first_row, &fitted.n_rows, mask->shape.n_rows))
		return paged_fail(error, PAGED_ERR_RANGE,
				  "block mask: %" PRIu32 " rows from %" PRIu32 " on, of %" PRIu32, part->n_rows,
				  part->first_row, mask->shape.n_rows);
	if (!range_fits(part->first_head, &fitted.n_heads, mask->shape.n_heads))
		return paged_fail(error, PAGED_ERR_RANGE,
				  "block mask: %" PRIu32 " heads from %" PRIu32 " on, of %" PRIu32, part->n_heads,
				  part->first_head, mask->shape.n_heads);
	if (part->first_q % mask->shape.q_block != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: query row %" PRIu64 " is inside a query block of %" PRIu32,
				  part->first_q, mask->shape.q_block);
	return take_part(mask, &fitted, UINT64_MAX, mask_p, error);
}

enum paged_status
block_mask_crop(const struct block_mask *mask, uint64_t q_len, uint64_t kv_len, struct block_mask **mask_p,
		struct paged_error *error)
{
	const struct block_mask_part all = { .n_rows = mask->shape.n_rows,
					     .n_heads = mask->shape.n_heads,
					     .n_q = q_len };

	return take_part(mask, &all, kv_len, mask_p, error);
}

enum paged_status
block_mask_over(const struct block_mask *mask, uint32_t n_rows, const uint64_t *kv_len, struct block_mask **mask_p,
		struct paged_error *error)
{
	const struct block_mask_part all = { .n_rows = n_rows, .n_heads = mask->shape.n_heads };
	bool one = mask->shape.n_rows == 1;
	struct block_mask_row *rows;

	if (!one && mask->shape.n_rows != n_rows)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: %" PRIu32 " rows for a mask of %" PRIu32,
				  n_rows, mask->shape.n_rows);
	rows = new_rows(n_rows, error);
	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < n_rows; r++)
		rows[r] = part_of_row(&mask->shape.rows[one ? 0 : r], 0, UINT64_MAX, kv_len[r]);
	return copy_part(mask, &all, rows, mask_p, error);
}

/* Index of the list of (row, head, KV block) in the transposed mask. */
static uint64_t
list_of(const struct block_mask *turned, const struct build_place *place, uint32_t block)
{
	return turned->first_list[place->row] + place->head * block_mask_q_blocks(turned, place->row) + block;
}

/* Fills in the transposed lists of a kind, for which memory is reserved. */
static void
turn(const struct block_mask *mask, struct block_mask *turned, enum block_mask_kind kind, uint64_t n_lists)
{
	uint64_t *start = turned->start[kind];
	struct build_place place;

	for (bool more = build_place_first(mask, &place); more; more = build_place_next(mask, &place)) {
		struct block_mask_list list = block_mask_list(mask, kind, place.row, place.head, place.q_block);

		for (uint64_t i = 0; i < list.n; i++)
			start[list_of(turned, &place, list.blocks[i]) + 1]++;
	}
	for (uint64_t i = 0; i < n_lists; i++)
		start[i + 1] += start[i];
	/* While a list is filled, its start advances to where the next list begins. */
	for (bool more = build_place_first(mask, &place); more; more = build_place_next(mask, &place)) {
		struct block_mask_list list = block_mask_list(mask, kind, place.row, place.head, place.q_block);

		for (uint64_t i = 0; i < list.n; i++)
			turned->indices[kind][start[list_of(turned, &place, list.blocks[i])]++] =
				(uint32_t)place.q_block;
	}
	memmove(start + 1, start, n_lists * sizeof(*start));
	start[0] = 0;
}

enum paged_status
block_mask_transpose(const struct block_mask *mask, uint64_t max_bytes, struct block_mask **mask_p,
		     struct paged_error *error)
{
	struct block_mask_row *rows = new_rows(mask->shape.n_rows, error);
	struct block_mask_shape shape = mask->shape;
	struct build build;

	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < mask->shape.n_rows; r++)
		rows[r] = (struct block_mask_row){ .q_base = mask->shape.rows[r].q_base,
						   .q_len = mask->shape.rows[r].kv_len,
						   .kv_len = mask->shape.rows[r].q_len };
	shape.q_block = mask->shape.kv_block;
	shape.kv_block = mask->shape.q_block;
	shape.rows = rows;
	build_begin(&build, &shape, max_bytes, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && build.status == PAGED_OK; kind++) {
		build.n[kind] = mask->start[kind][mask->first_list[mask->shape.n_rows]];
		if (build_room(&build, kind, 0))
			turn(mask, build.mask, kind, build.n_lists);
	}
	build.n_ended = build.n_lists;
	free(rows);
	return build_finish(&build, mask_p);
}
