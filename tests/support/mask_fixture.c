/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mask_fixture.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/rle.h"

void
mask_dense_open(struct mask_dense *dense, const struct block_mask_shape *shape)
{
	struct block_mask_row *rows = calloc(shape->n_rows, sizeof(*rows));

	*dense = (struct mask_dense){ .shape = *shape };
	memcpy(rows, shape->rows, shape->n_rows * sizeof(*rows));
	dense->shape.rows = rows;
	for (uint32_t r = 0; r < shape->n_rows; r++)
		dense->n += shape->n_heads * rows[r].q_len * rows[r].kv_len;
	dense->elements = calloc(dense->n + 1, 1);
}

void
mask_dense_close(struct mask_dense *dense)
{
	free((void *)dense->shape.rows);
	free(dense->elements);
}

uint8_t *
mask_dense_at(const struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv)
{
	const struct block_mask_row *rows = dense->shape.rows;
	uint64_t at = 0;

	for (uint32_t r = 0; r < b; r++)
		at += dense->shape.n_heads * rows[r].q_len * rows[r].kv_len;
	return &dense->elements[at + (h * rows[b].q_len + q) * rows[b].kv_len + kv];
}

static void
dense_fill_block(struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv, uint64_t *state)
{
	const struct block_mask_row *row = &dense->shape.rows[b];
	uint64_t choice = random_below(state, 5);

	for (uint64_t i = q; i < q + dense->shape.q_block && i < row->q_len; i++)
		for (uint64_t j = kv; j < kv + dense->shape.kv_block && j < row->kv_len; j++)
			*mask_dense_at(dense, b, h, i, j) = choice < 2 ? choice == 1 : random_below(state, choice) == 0;
}

void
mask_dense_random(struct mask_dense *dense, uint64_t *state)
{
	struct block_mask_row rows[4];
	struct block_mask_shape shape = { .rows = rows };

	shape.n_rows = (uint32_t)(1 + random_below(state, 4));
	shape.n_heads = (uint32_t)(1 + random_below(state, 3));
	shape.q_block = (uint32_t)(1 + random_below(state, 9));
	shape.kv_block = (uint32_t)(1 + random_below(state, 9));
	for (uint32_t r = 0; r < shape.n_rows; r++)
		rows[r] = (struct block_mask_row){ .q_base = (int64_t)random_below(state, 100) - 20,
						   .q_len = random_below(state, 40),
						   .kv_len = random_below(state, 70) };
	mask_dense_open(dense, &shape);
	for (uint32_t b = 0; b < shape.n_rows; b++)
		for (uint32_t h = 0; h < shape.n_heads; h++)
			for (uint64_t q = 0; q < rows[b].q_len; q += shape.q_block)
				for (uint64_t kv = 0; kv < rows[b].kv_len; kv += shape.kv_block)
					dense_fill_block(dense, b, h, q, kv, state);
}

struct block_mask *
mask_from_dense(const struct mask_dense *dense)
{
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	cr_assert_eq(block_mask_from_dense(&dense->shape, dense->elements, 0, &mask, &error), PAGED_OK, "%s",
		     error.text);
	return mask;
}

/* A block that exceeds the lengths is padded with zeros. */
static enum mask_coverage
dense_block_coverage(const struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv)
{
	const struct block_mask_row *row = &dense->shape.rows[b];
	uint64_t n = 0;

	for (uint64_t i = q; i < q + dense->shape.q_block && i < row->q_len; i++)
		for (uint64_t j = kv; j < kv + dense->shape.kv_block && j < row->kv_len; j++)
			n += *mask_dense_at(dense, b, h, i, j) != 0;
	if (n == (uint64_t)dense->shape.q_block * dense->shape.kv_block)
		return MASK_FULL;
	return n == 0 ? MASK_EMPTY : MASK_PARTIAL;
}

static void
expect_dense_lists(const struct block_mask *mask, const struct mask_dense *dense, uint32_t b, uint32_t h,
		   uint64_t q_block, const char *what)
{
	struct block_mask_list lists[BLOCK_MASK_N_KINDS];
	uint64_t at[BLOCK_MASK_N_KINDS] = { 0 };

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		lists[kind] = block_mask_list(mask, kind, b, h, q_block);
	for (uint64_t k = 0; k < block_mask_kv_blocks(mask, b); k++) {
		enum mask_coverage coverage =
			dense_block_coverage(dense, b, h, q_block * mask->shape.q_block, k * mask->shape.kv_block);
		enum block_mask_kind kind = coverage == MASK_FULL ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL;

		if (coverage == MASK_EMPTY)
			continue;
		cr_assert(at[kind] < lists[kind].n && lists[kind].blocks[at[kind]] == k,
			  "%s: row %u head %u query block %" PRIu64 ": block %" PRIu64 " should be next in list %d",
			  what, b, h, q_block, k, kind);
		at[kind]++;
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		cr_assert_eq(at[kind], lists[kind].n, "%s: row %u head %u query block %" PRIu64 ": %s", what, b, h,
			     q_block, "more blocks than there should be");
}

void
expect_dense_mask(const struct block_mask *mask, const struct mask_dense *dense, const char *what)
{
	cr_assert(mask->ascending, "%s", what);
	for (uint32_t b = 0; b < mask->shape.n_rows; b++)
		for (uint32_t h = 0; h < mask->shape.n_heads; h++)
			for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
				expect_dense_lists(mask, dense, b, h, q, what);
}

struct block_mask *
mask_encode_by_parts(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator, uint32_t capacity,
		     uint32_t *n_parts_p)
{
	uint32_t *values = calloc(capacity, sizeof(*values)), n_parts = 0;
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;
	struct rle_reader reader;

	rle_read_begin(&reader, shape, 0, &error);
	do {
		struct rle_writer writer = { .values = values, .capacity = capacity };

		cr_assert_eq(block_mask_encode_part(shape, evaluator, UINT64_MAX, reader.builder.n_ended, reader.block,
						    &writer, &error),
			     PAGED_OK, "%s", error.text);
		cr_assert_eq(rle_read_part(&reader, &(struct mask_part){ writer.n, values, writer.list_continues, 0 }),
			     PAGED_OK, "%s", error.text);
		n_parts++;
	} while (!reader.done);
	cr_assert_eq(rle_read_end(&reader, PAGED_OK, &mask), PAGED_OK, "%s", error.text);
	free(values);
	if (n_parts_p != NULL)
		*n_parts_p = n_parts;
	return mask;
}

void
expect_equal_masks(const struct block_mask *got, const struct block_mask *expected, const char *what)
{
	cr_assert_eq(got->shape.n_rows, expected->shape.n_rows, "%s", what);
	cr_assert_eq(got->shape.n_heads, expected->shape.n_heads, "%s", what);
	cr_assert_eq(got->shape.q_block, expected->shape.q_block, "%s", what);
	cr_assert_eq(got->shape.kv_block, expected->shape.kv_block, "%s", what);
	for (uint32_t b = 0; b < got->shape.n_rows; b++) {
		cr_assert_eq(got->shape.rows[b].q_base, expected->shape.rows[b].q_base, "%s: row %u", what, b);
		cr_assert_eq(got->shape.rows[b].q_len, expected->shape.rows[b].q_len, "%s: row %u", what, b);
		cr_assert_eq(got->shape.rows[b].kv_len, expected->shape.rows[b].kv_len, "%s: row %u", what, b);
		for (uint32_t h = 0; h < got->shape.n_heads; h++)
			for (uint64_t q = 0; q < block_mask_q_blocks(got, b); q++)
				for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
					struct block_mask_list x = block_mask_list(got, kind, b, h, q);
					struct block_mask_list y = block_mask_list(expected, kind, b, h, q);

					cr_assert_eq(x.n, y.n, "%s: row %u head %u block %" PRIu64 " kind %d: n", what,
						     b, h, q, kind);
					cr_assert_arr_eq(x.blocks, y.blocks, x.n * sizeof(uint32_t),
							 "%s: row %u head %u block %" PRIu64 " kind %d", what, b, h, q,
							 kind);
				}
	}
}

/* The lists of a section; those of one kind are in order. */
struct golden_lists {
	uint32_t *n_blocks[BLOCK_MASK_N_KINDS];
	uint32_t *indices[BLOCK_MASK_N_KINDS];
	uint64_t n_indices[BLOCK_MASK_N_KINDS];
	uint64_t n_lists, q_blocks;
};

static void
golden_lists_begin(struct golden_lists *lists, const struct golden_mask *c)
{
	*lists = (struct golden_lists){ 0 };
	lists->q_blocks = (c->rows[0].q_len + c->shape.q_block - 1) / c->shape.q_block;
	lists->n_lists = lists->q_blocks * c->shape.n_rows * c->shape.n_heads;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		lists->n_blocks[kind] = calloc(lists->n_lists, sizeof(uint32_t));
}

static void
golden_lists_add(struct golden_lists *lists, const struct golden_mask *c, enum block_mask_kind kind, const char *rest)
{
	uint32_t b, h, q;
	int at;

	cr_assert_eq(sscanf(rest, "%" SCNu32 " %" SCNu32 " %" SCNu32 " :%n", &b, &h, &q, &at), 3, "%s", rest);
	for (char *end; rest[at] != '\0'; at = (int)(end - rest)) {
		uint32_t **indices = &lists->indices[kind];
		uint64_t n = lists->n_indices[kind]++;

		*indices = realloc(*indices, (n + 1) * sizeof(uint32_t));
		(*indices)[n] = (uint32_t)strtoul(rest + at, &end, 10);
		cr_assert_neq(end, rest + at, "%s", rest);
		lists->n_blocks[kind][(b * c->shape.n_heads + h) * lists->q_blocks + q]++;
	}
}

static struct block_mask *
golden_lists_end(struct golden_lists *lists, const struct golden_mask *c, uint64_t kv_len)
{
	struct block_mask_lists given = { 0 };
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	for (uint32_t r = 0; r < c->shape.n_rows; r++)
		c->rows[r].kv_len = kv_len;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		given.n_blocks[kind] = lists->n_blocks[kind];
		given.indices[kind] = lists->indices[kind];
		given.n_indices[kind] = lists->n_indices[kind];
	}
	cr_assert_eq(block_mask_from_lists(&c->shape, &given, lists->n_lists, 0, &mask, &error), PAGED_OK, "%s",
		     error.text);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		free(lists->n_blocks[kind]);
		free(lists->indices[kind]);
	}
	return mask;
}

static void
golden_read_name(struct golden_mask *c, const char *rest, bool is_array)
{
	struct golden_mask_name *name = &c->names[c->n_names++];
	uint32_t n = 1;
	int at;

	cr_assert_leq(c->n_names, GOLDEN_MASK_MAX_NAMES);
	cr_assert_eq(sscanf(rest, "%31s %n", name->name, &at), 1);
	rest += at;
	if (is_array) {
		cr_assert_eq(strncmp(rest, "i32 ", 4), 0, "masks capture i32 alone: %s", rest);
		for (rest += 4; sscanf(rest, "%" SCNu32 " %n", &name->dims[name->n_dims], &at) == 1; rest += at)
			n *= name->dims[name->n_dims++];
		rest += strspn(rest, ": ");
	}
	name->i32 = calloc(n, sizeof(int32_t));
	for (uint32_t i = 0; i < n; i++)
		name->i32[i] = (int32_t)strtol(rest, (char **)&rest, 10);
}

static void
golden_read_page_table(struct golden_mask *c, const char *rest)
{
	struct block_mask_sequence *sequence = &c->table[c->n_table++];
	uint32_t *pages = calloc(c->n_pages + 1, sizeof(*pages));

	cr_assert_leq(c->n_table, GOLDEN_MASK_MAX_SEQUENCES);
	rest = strchr(rest, ':') + 1;
	for (; *rest != '\0'; sequence->n_pages++)
		pages[sequence->n_pages] = (uint32_t)strtoul(rest, (char **)&rest, 10);
	sequence->pages = pages;
	sequence->kv_len = sequence->n_pages * c->page_size;
}

static void
golden_read_shape(struct golden_mask *c, const char *rest)
{
	uint64_t q_len, kv_len;

	cr_assert_eq(sscanf(rest, "%" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu64, &c->shape.n_rows, &c->shape.n_heads,
			    &q_len, &kv_len),
		     4);
	c->rows = calloc(c->shape.n_rows, sizeof(*c->rows));
	for (uint32_t r = 0; r < c->shape.n_rows; r++)
		c->rows[r] = (struct block_mask_row){ .q_len = q_len, .kv_len = kv_len };
	c->shape.rows = c->rows;
}

static void
golden_read_batch(struct golden_mask *c, const char *rest)
{
	for (; *rest != '\0'; c->n_batch++) {
		cr_assert_lt(c->n_batch, GOLDEN_MASK_MAX_SEQUENCES);
		c->batch[c->n_batch] = (uint32_t)strtoul(rest, (char **)&rest, 10);
	}
}

static void
golden_read_line(struct golden_mask *c, struct golden_lists *lists, const char *line)
{
	size_t length = strcspn(line, " ");
	const char *rest = line + length + (line[length] == ' ');
	char word[16];

	snprintf(word, sizeof(word), "%.*s", (int)length, line);
	if (strcmp(word, "pool") == 0)
		cr_assert_eq(sscanf(rest, "%" SCNu32 " %" SCNu32, &c->n_pages, &c->page_size), 2);
	else if (strcmp(word, "row") == 0)
		golden_read_page_table(c, rest);
	else if (strcmp(word, "batch") == 0)
		golden_read_batch(c, rest);
	else if (strcmp(word, "shape") == 0)
		golden_read_shape(c, rest);
	else if (strcmp(word, "block") == 0)
		cr_assert_eq(sscanf(rest, "%" SCNu32 " %" SCNu32, &c->shape.q_block, &c->shape.kv_block), 2);
	else if (strcmp(word, "mask") == 0)
		c->text = strdup(rest);
	else if (strcmp(word, "param") == 0 || strcmp(word, "array") == 0)
		golden_read_name(c, rest, word[0] == 'a');
	else if (strcmp(word, "grid") == 0)
		cr_assert_eq(sscanf(rest, "%" SCNu32 " %" SCNu32, &c->grid.rows, &c->grid.columns), 2);
	else if (strcmp(word, "partial") == 0 || strcmp(word, "full") == 0) {
		if (lists->n_lists == 0)
			golden_lists_begin(lists, c);
		golden_lists_add(lists, c, word[0] == 'f' ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL, rest);
	} else
		cr_assert(strcmp(word, "reserve") == 0 || strcmp(word, "capacity") == 0 || strcmp(word, "free") == 0,
			  "%s", line);
}

/* The lists of the first section name logical blocks, those of the second physical ones. */
static void
golden_read_section_end(struct golden_mask *c, struct golden_lists *lists, uint64_t kv_len)
{
	if (lists->n_lists == 0)
		golden_lists_begin(lists, c);
	if (c->logical == NULL)
		c->logical = golden_lists_end(lists, c, kv_len);
	else
		c->physical = golden_lists_end(lists, c, (uint64_t)c->n_pages * c->page_size);
	*lists = (struct golden_lists){ 0 };
}

static char *
golden_read_rest(FILE *file)
{
	char *text = NULL;
	size_t size = 0;

	cr_assert_gt(getdelim(&text, &size, '\0', file), 0);
	return text;
}

void
golden_mask_open(struct golden_mask *c, const char *path)
{
	FILE *file = fopen(path, "r");
	struct golden_lists lists = { 0 };
	uint64_t kv_len = 0;
	char *line = NULL;
	size_t size = 0;

	*c = (struct golden_mask){ 0 };
	cr_assert_not_null(file, "%s", path);
	while (c->picture == NULL && getline(&line, &size, file) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "physical") == 0)
			golden_read_section_end(c, &lists, kv_len);
		else if (strcmp(line, "logical") != 0)
			golden_read_line(c, &lists, line);
		if (c->rows != NULL && kv_len == 0)
			kv_len = c->rows[0].kv_len;
		if (c->grid.rows != 0)
			c->picture = golden_read_rest(file);
	}
	if (c->picture == NULL)
		golden_read_section_end(c, &lists, kv_len);
	for (uint32_t r = 0; r < c->shape.n_rows; r++)
		c->rows[r].kv_len = kv_len;
	fclose(file);
	free(line);
}

void
golden_mask_close(struct golden_mask *c)
{
	for (uint32_t i = 0; i < c->n_names; i++)
		free(c->names[i].i32);
	for (uint32_t i = 0; i < c->n_table; i++)
		free((void *)c->table[i].pages);
	block_mask_destroy(c->logical);
	block_mask_destroy(c->physical);
	free(c->rows);
	free(c->text);
	free(c->picture);
}

void
golden_each_file(const char *pattern, size_t n, void (*test)(const char *path))
{
	char path[4096];
	glob_t found;

	snprintf(path, sizeof(path), "%s/tests/golden/%s",
		 getenv("PAGED_SRCDIR") != NULL ? getenv("PAGED_SRCDIR") : ".", pattern);
	cr_assert_eq(glob(path, 0, NULL, &found), 0, "nothing at %s", path);
	cr_assert_eq(found.gl_pathc, n, "%zu files at %s", found.gl_pathc, path);
	for (size_t i = 0; i < n; i++)
		test(found.gl_pathv[i]);
	globfree(&found);
}
