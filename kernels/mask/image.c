/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/image.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct image_header) == 112, "the header's layout is in paged-protocol(7)");
static_assert(offsetof(struct image_header, total_size) == 32, "layout");
static_assert(offsetof(struct image_header, n_lists) == 64, "layout");
static_assert(offsetof(struct image_header, n_runs) == 88, "layout");
static_assert(sizeof(struct image_row) == 40, "layout");
static_assert(sizeof(struct image_run) == 8, "layout");

/* Where the parts of an image lie, in bytes. */
struct parts {
	uint64_t rows;
	uint64_t start[BLOCK_MASK_N_KINDS];
	uint64_t indices[BLOCK_MASK_N_KINDS];
	uint64_t runs[BLOCK_MASK_N_KINDS];
	uint64_t end;
};

/* False: the counts pass 2^64 bytes. */
static bool
add_part(uint64_t *end, uint64_t *at, uint64_t n, uint64_t size)
{
	uint64_t bytes;

	*at = *end;
	return !__builtin_mul_overflow(n, size, &bytes) && !__builtin_add_overflow(*end, bytes, end);
}

static bool
parts_of(const struct image_header *header, struct parts *parts)
{
	parts->end = sizeof(*header);
	if (header->n_lists == UINT64_MAX ||
	    !add_part(&parts->end, &parts->rows, header->n_rows, sizeof(struct image_row)))
		return false;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (!add_part(&parts->end, &parts->start[kind], header->n_lists + 1, sizeof(uint64_t)))
			return false;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (!add_part(&parts->end, &parts->indices[kind], header->n_blocks[kind], sizeof(uint32_t)))
			return false;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (!add_part(&parts->end, &parts->runs[kind], header->n_runs[kind], sizeof(struct image_run)))
			return false;
	return true;
}

/* Where the run that begins at `begin` ends, in a list that ends at `end`. */
static uint64_t
run_end(const uint32_t *blocks, uint64_t begin, uint64_t end, bool ascending)
{
	uint64_t low = begin + 1, high = end;

	if (!ascending) {
		while (low < end && blocks[low] == blocks[low - 1] + 1)
			low++;
		return low;
	}
	/* As far as no block is left out; mostly that is the whole list. */
	while (low < high) {
		uint64_t at = high == end ? end - 1 : low + (high - low) / 2;

		if (blocks[at] - blocks[begin] == at - begin)
			low = at + 1;
		else
			high = at;
	}
	return low;
}

/* A mask's blocks of a kind as runs that leave no list; returns how many.  to NULL: only counts. */
static uint64_t
runs_write(const struct block_mask *mask, int kind, uint8_t *to)
{
	const uint64_t n_lists = mask->first_list[mask->shape.n_rows];
	const uint64_t *start = mask->start[kind];
	uint64_t n_runs = 0;

	for (uint64_t i = 0; i < n_lists; i++)
		for (uint64_t begin = start[i], end; begin < start[i + 1]; begin = end, n_runs++) {
			struct image_run run = { .first = mask->indices[kind][begin] };

			end = run_end(mask->indices[kind], begin, start[i + 1], mask->ascending);
			run.n = (uint32_t)(end - begin);
			if (to != NULL)
				memcpy(to + n_runs * sizeof(run), &run, sizeof(run));
		}
	return n_runs;
}

static struct image_header
header_of(const struct image *image)
{
	const struct block_mask *mask = image->mask;
	const uint64_t n_lists = mask->first_list[mask->shape.n_rows];
	struct image_header header = {
		.magic = IMAGE_MAGIC,
		.version_major = IMAGE_VERSION_MAJOR,
		.version_minor = IMAGE_VERSION_MINOR,
		.n_rows = mask->shape.n_rows,
		.n_heads = mask->shape.n_heads,
		.q_block = mask->shape.q_block,
		.kv_block = mask->shape.kv_block,
		.page_size = image->page_size,
		.n_pages = image->n_pages,
		.n_lists = n_lists,
		.n_blocks = { mask->start[BLOCK_MASK_PARTIAL][n_lists], mask->start[BLOCK_MASK_FULL][n_lists] },
	};

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		header.n_runs[kind] = runs_write(image->logical, kind, NULL);
	memcpy(header.boot_id, image->boot_id, sizeof(header.boot_id));
	return header;
}

/* Of a mask that is in memory, so that nothing overflows. */
static struct parts
parts_of_image(const struct image_header *header)
{
	struct parts parts;
	bool fits = parts_of(header, &parts);

	assert(fits);
	(void)fits;
	return parts;
}

void *
image_write(const struct image *image, uint64_t *size_p)
{
	struct image_header header = header_of(image);
	const struct parts parts = parts_of_image(&header);
	uint8_t *bytes = malloc(parts.end);

	if (bytes == NULL)
		return NULL;
	header.total_size = parts.end;
	memcpy(bytes, &header, sizeof(header));
	memcpy(bytes + parts.rows, image->rows, header.n_rows * sizeof(*image->rows));
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		memcpy(bytes + parts.start[kind], image->mask->start[kind], (header.n_lists + 1) * sizeof(uint64_t));
		memcpy(bytes + parts.indices[kind], image->mask->indices[kind],
		       header.n_blocks[kind] * sizeof(uint32_t));
		runs_write(image->logical, kind, bytes + parts.runs[kind]);
	}
	*size_p = parts.end;
	return bytes;
}

void
image_free(struct image *image)
{
	block_mask_destroy(image->mask);
	block_mask_destroy(image->logical);
	free(image->rows);
	*image = (struct image){ 0 };
}

static enum paged_status
no_image(struct paged_error *error, const char *what)
{
	return paged_fail(error, PAGED_ERR_PROTOCOL, "image of a block mask: %s", what);
}

static enum paged_status
header_check(const struct image_header *header, uint64_t size, struct parts *parts, struct paged_error *error)
{
	if (header->magic != IMAGE_MAGIC)
		return no_image(error, "it is none");
	if (header->version_major != IMAGE_VERSION_MAJOR)
		return paged_fail(error, PAGED_ERR_VERSION, "image of a block mask: version %" PRIu32 ", not %u",
				  header->version_major, IMAGE_VERSION_MAJOR);
	if (header->n_rows == 0 || header->n_heads == 0 || header->q_block == 0 || header->kv_block == 0 ||
	    header->page_size == 0 || header->page_size % header->kv_block != 0)
		return no_image(error, "a count of 0, or blocks that divide no page");
	if (!parts_of(header, parts) || header->total_size != size || parts->end != size)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "image of a block mask: %" PRIu32 " rows, %" PRIu64 " lists, %" PRIu64 " and %" PRIu64
				  " blocks are not %" PRIu64 " bytes",
				  header->n_rows, header->n_lists, header->n_blocks[BLOCK_MASK_PARTIAL],
				  header->n_blocks[BLOCK_MASK_FULL], size);
	return PAGED_OK;
}

static bool
starts_ascend(const uint64_t *start, uint64_t n_lists, uint64_t n_blocks)
{
	for (uint64_t i = 0; i < n_lists; i++)
		if (start[i] > start[i + 1])
			return false;
	return start[0] == 0 && start[n_lists] == n_blocks;
}

/* Without a branch for each: the sign of what is left tells. */
static bool
all_below(const uint32_t *indices, uint64_t n, uint64_t bound)
{
	const uint64_t last = bound - 1;
	uint64_t even = 0, odd = 0, i = 0;

	if (bound == 0)
		return n == 0;
	for (; i + 2 <= n; i += 2) {
		even |= last - indices[i];
		odd |= last - indices[i + 1];
	}
	if (i < n)
		even |= last - indices[i];
	return (even | odd) >> 63 == 0;
}

static enum paged_status
lists_check(const struct image_header *header, const struct block_mask *mask, struct paged_error *error)
{
	uint64_t pool_blocks = (uint64_t)header->n_pages * (header->page_size / header->kv_block);

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		uint64_t n = header->n_blocks[kind];

		if (!starts_ascend(mask->start[kind], header->n_lists, n))
			return no_image(error, "its lists do not follow each other");
		if (!all_below(mask->indices[kind], n, pool_blocks))
			return paged_fail(error, PAGED_ERR_PROTOCOL,
					  "image of a block mask: a block past the pool's %" PRIu64, pool_blocks);
	}
	return PAGED_OK;
}

/* The rows, and where their lists begin; both parts of the image must say the same. */
static enum paged_status
rows_fill(const struct image_header *header, const struct image_row *from, struct block_mask *mask,
	  struct paged_error *error)
{
	struct block_mask_row *rows = (struct block_mask_row *)mask->shape.rows;

	for (uint32_t r = 0; r < header->n_rows; r++) {
		uint64_t n = from[r].q_len / header->q_block + (from[r].q_len % header->q_block != 0);

		if (__builtin_mul_overflow(n, header->n_heads, &n) ||
		    __builtin_add_overflow(mask->first_list[r], n, &mask->first_list[r + 1]))
			return no_image(error, "more than 2^64 lists");
		rows[r] = (struct block_mask_row){
			.q_base = from[r].q_base,
			.q_len = from[r].q_len,
			.kv_len = (uint64_t)header->n_pages * header->page_size,
		};
		if (from[r].kv_len > rows[r].kv_len)
			return no_image(error, "a sequence longer than its pool");
	}
	if (mask->first_list[header->n_rows] != header->n_lists)
		return no_image(error, "its rows have another number of lists");
	return PAGED_OK;
}

static void
blocks_count_up(uint32_t *blocks, uint32_t first, uint64_t n)
{
	uint64_t i = 0;

	for (; i + 4 <= n; i += 4, first += 4) {
		blocks[i] = first;
		blocks[i + 1] = first + 1;
		blocks[i + 2] = first + 2;
		blocks[i + 3] = first + 3;
	}
	for (; i < n; i++)
		blocks[i] = first++;
}

/* Goes through the lists of a kind while runs fill them. */
struct filler {
	struct block_mask *mask;
	int kind;
	uint32_t row;
	uint64_t list, at; /* blocks before `at` are there */
	uint64_t n_blocks; /* that the row has */
};

/* To the list that `at` lies in. */
static void
filler_advance(struct filler *filler)
{
	const struct block_mask *mask = filler->mask;

	while (filler->at == mask->start[filler->kind][filler->list + 1])
		filler->list++;
	while (filler->list >= mask->first_list[filler->row + UINT64_C(1)])
		filler->row++;
	filler->n_blocks = block_mask_kv_blocks(mask, filler->row);
}

/* Part by part, as it lies in lists; false: more than there is room for, or a block that the row does not have. */
static bool
filler_take(struct filler *filler, const struct image_run *run, uint64_t n_all)
{
	struct block_mask *mask = filler->mask;
	const uint64_t *start = mask->start[filler->kind];
	uint32_t *blocks = mask->indices[filler->kind];
	uint64_t first = run->first, left = run->n;

	if (left > n_all - filler->at)
		return false;
	while (left > 0) {
		uint64_t n;

		filler_advance(filler);
		n = start[filler->list + 1] - filler->at;
		n = n < left ? n : left;
		if (first + n > filler->n_blocks || first + n - 1 > UINT32_MAX)
			return false;
		if (filler->at > start[filler->list] && first <= blocks[filler->at - 1])
			mask->ascending = false;
		blocks_count_up(blocks + filler->at, (uint32_t)first, n);
		filler->at += n;
		first += n;
		left -= n;
	}
	return true;
}

/* The same lists over the sequences' own tokens; whatever the runs say, blocks are the row's. */
static bool
runs_expand(struct block_mask *mask, int kind, const uint8_t *from, uint64_t n_runs)
{
	const uint64_t n_all = mask->start[kind][mask->first_list[mask->shape.n_rows]];
	struct filler filler = { .mask = mask, .kind = kind };

	for (uint64_t i = 0; i < n_runs; i++) {
		struct image_run run;

		memcpy(&run, from + i * sizeof(run), sizeof(run));
		if (!filler_take(&filler, &run, n_all))
			return false;
	}
	return filler.at == n_all;
}

static enum paged_status
logical_fill(const struct image_header *header, const uint8_t *bytes, const struct parts *parts, struct image *image,
	     struct paged_error *error)
{
	struct block_mask *logical = image->logical;
	struct block_mask_row *rows = (struct block_mask_row *)logical->shape.rows;

	memcpy(logical->first_list, image->mask->first_list, (header->n_rows + UINT64_C(1)) * sizeof(uint64_t));
	for (uint32_t r = 0; r < header->n_rows; r++) {
		rows[r] = image->mask->shape.rows[r];
		rows[r].kv_len = image->rows[r].kv_len;
	}
	logical->ascending = true;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (!runs_expand(logical, kind, bytes + parts->runs[kind], header->n_runs[kind]))
			return no_image(error, "its runs are not its rows' blocks");
	return PAGED_OK;
}

/* n elements and never none, without contents for from NULL; counts were checked against the image's size. */
static void *
part_copy(struct mask_memory *memory, const uint8_t *from, uint64_t n, size_t size)
{
	void *copy = mask_memory_grow(memory, NULL, n * size + 1);

	if (copy != NULL && from != NULL && n != 0)
		memcpy(copy, from, (size_t)n * size);
	return copy;
}

/* One of the two masks; the logical one's indices are still to be written. */
static struct block_mask *
mask_copy(const struct image_header *header, const uint8_t *bytes, const struct parts *parts,
	  struct mask_memory *memory, bool logical)
{
	struct block_mask *mask = calloc(1, sizeof(*mask));
	bool whole;

	if (mask == NULL)
		return NULL;
	mask->shape = (struct block_mask_shape){
		.n_rows = header->n_rows,
		.n_heads = header->n_heads,
		.q_block = header->q_block,
		.kv_block = header->kv_block,
		.rows = mask_memory_alloc(memory, header->n_rows * sizeof(*mask->shape.rows)),
		.memory = memory,
	};
	mask->first_list = mask_memory_alloc(memory, (header->n_rows + UINT64_C(1)) * sizeof(*mask->first_list));
	whole = mask->shape.rows != NULL && mask->first_list != NULL;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		mask->start[kind] =
			part_copy(memory, bytes + parts->start[kind], header->n_lists + 1, sizeof(*mask->start[kind]));
		mask->indices[kind] = part_copy(memory, logical ? NULL : bytes + parts->indices[kind],
						header->n_blocks[kind], sizeof(*mask->indices[kind]));
		whole = whole && mask->start[kind] != NULL && mask->indices[kind] != NULL;
	}
	if (whole)
		return mask;
	block_mask_destroy(mask);
	return NULL;
}

enum paged_status
image_read(const void *from, uint64_t size, struct mask_memory *memory, struct image *image, struct paged_error *error)
{
	const uint8_t *bytes = from;
	struct image_header header;
	enum paged_status status;
	struct parts parts;

	*image = (struct image){ 0 };
	if (size < sizeof(header) || size > SIZE_MAX)
		return no_image(error, "too short");
	memcpy(&header, bytes, sizeof(header));
	status = header_check(&header, size, &parts, error);
	if (status != PAGED_OK)
		return status;
	memcpy(image->boot_id, header.boot_id, sizeof(image->boot_id));
	image->page_size = header.page_size;
	image->n_pages = header.n_pages;
	image->rows = part_copy(NULL, bytes + parts.rows, header.n_rows, sizeof(*image->rows));
	image->mask = mask_copy(&header, bytes, &parts, memory, false);
	image->logical = mask_copy(&header, bytes, &parts, memory, true);
	if (image->rows == NULL || image->mask == NULL || image->logical == NULL)
		status = paged_fail(error, PAGED_ERR_NOMEM, "image of a block mask: no memory for %" PRIu64 " bytes",
				    size);
	if (status == PAGED_OK)
		status = rows_fill(&header, image->rows, image->mask, error);
	if (status == PAGED_OK)
		status = lists_check(&header, image->mask, error);
	if (status == PAGED_OK)
		status = logical_fill(&header, bytes, &parts, image, error);
	if (status != PAGED_OK)
		image_free(image);
	return status;
}
