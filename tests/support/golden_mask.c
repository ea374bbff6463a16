/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden_mask.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
