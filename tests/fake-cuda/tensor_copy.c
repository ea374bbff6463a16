/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes of tensors, as the TMA unit copies them: elements outside the tensor are zeros, and rows are swizzled. */
#include <string.h>

#include "tests/fake-cuda/simt_block.h"

#define ROW_ELEMENTS (TENSOR_MAP_ROW_SIZE / TENSOR_MAP_ELEMENT)
#define CHUNK_SIZE 16u

/* The elements of a box's row that are in the tensor. */
struct row {
	uintptr_t address;
	unsigned int first, n;
};

struct tensor_box
tensor_box_find(const void *map, const uint32_t at[TENSOR_MAP_RANK], const void *code)
{
	struct tensor_box box;

	if ((uintptr_t)map % 64 != 0)
		block_fail_at(code, "a tensor map that does not begin at a multiple of 64");
	/* A copy in a local variable would be in local memory, which the instruction does not take. */
	if (!block_params_have(map, sizeof(box.map)))
		block_fail_at(code, "a tensor map that is not in the kernel's parameters");
	memcpy(&box.map, map, sizeof(box.map));
	memcpy(box.at, at, sizeof(box.at));
	if (box.map.magic != TENSOR_MAP_MAGIC)
		block_fail_at(code, "a tensor copy by what is no tensor map");
	if (box.map.box[0] != ROW_ELEMENTS)
		block_fail_at(code, "a tensor copy of rows of %u bytes, not %u", box.map.box[0] * TENSOR_MAP_ELEMENT,
			      TENSOR_MAP_ROW_SIZE);
	return box;
}

static unsigned int
box_rows(const struct tensor_box *box)
{
	return box->map.box[1] * box->map.box[2] * box->map.box[3];
}

uint32_t
tensor_box_size(const struct tensor_box *box)
{
	return box_rows(box) * TENSOR_MAP_ROW_SIZE;
}

/* Coordinates wrap around, as the TMA unit's, which have a sign. */
static struct row
row_find(const struct tensor_box *box, unsigned int number)
{
	const struct tensor_map *map = &box->map;
	uint32_t at[TENSOR_MAP_RANK] = { box->at[0], box->at[1] + number % map->box[1],
					 box->at[2] + number / map->box[1] % map->box[2],
					 box->at[3] + number / map->box[1] / map->box[2] };
	struct row row = { .address = map->address };

	for (unsigned int i = 1; i < TENSOR_MAP_RANK; i++) {
		if (at[i] >= map->dim[i])
			return row;
		row.address += at[i] * map->stride[i];
	}
	while (row.first < ROW_ELEMENTS && at[0] + row.first >= map->dim[0])
		row.first++;
	while (row.first + row.n < ROW_ELEMENTS && at[0] + row.first + row.n < map->dim[0])
		row.n++;
	row.address += (uint64_t)(at[0] + row.first) * TENSOR_MAP_ELEMENT;
	return row;
}

void
tensor_box_check(const struct tensor_box *box, const void *code)
{
	for (unsigned int number = 0; number < box_rows(box); number++) {
		struct row row = row_find(box, number);

		if (row.n > 0)
			race_access(row.address, row.n * TENSOR_MAP_ELEMENT, false, code);
	}
}

void
tensor_box_copy(void *to, const struct tensor_box *box)
{
	unsigned char *rows = to;

	memset(rows, 0, tensor_box_size(box));
	for (unsigned int number = 0; number < box_rows(box); number++) {
		struct row row = row_find(box, number);

		for (unsigned int i = 0; i < row.n; i++) {
			unsigned int offset = (row.first + i) * TENSOR_MAP_ELEMENT;
			unsigned int chunk = offset / CHUNK_SIZE ^ number % 8;

			memcpy(rows + number * TENSOR_MAP_ROW_SIZE + chunk * CHUNK_SIZE + offset % CHUNK_SIZE,
			       (const unsigned char *)row.address + i * TENSOR_MAP_ELEMENT, TENSOR_MAP_ELEMENT);
		}
	}
}
