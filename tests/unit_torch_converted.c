/* SPDX-License-Identifier: Apache-2.0 */
/* golden/mods and golden/conversions through the public API: what PyTorch's converted mods and block masks say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mask_fixture.h"
#include "tests/torch_scene.h"

/* ------------------------------------------------------------ golden/mods */

#define MAX_NAMES 8u

struct mods_file {
	struct pa pa;
	uint32_t kv_len[PA_MAX_BATCH];
	struct pa_rows rows;
	char text[2][1024]; /* mask, score */
	char name[MAX_NAMES][32];
	float floats[MAX_NAMES][32];
	int32_t ints[MAX_NAMES];
	struct paged_array arrays[MAX_NAMES];
	uint32_t n_arrays, n_points;
	struct pa_converted_mod mask, score;
};

static void
read_kv_len(struct mods_file *file, const char *at)
{
	char *end;

	for (;; at = end) {
		unsigned long value = strtoul(at, &end, 10);

		if (end == at)
			break;
		file->kv_len[file->rows.n++] = (uint32_t)value;
	}
	file->rows.kv_len = file->kv_len;
}

/* "param NAME VALUE", or "array NAME f32 N : VALUES". */
static void
read_name(struct mods_file *file, const char *line)
{
	uint32_t i = file->n_arrays++, n;
	struct paged_array *array = &file->arrays[i];
	char value[32], *at;

	*array = (struct paged_array){ .name = file->name[i], .dtype = PAGED_F32, .data = file->floats[i] };
	if (sscanf(line, "param %31s %31s", file->name[i], value) == 2) {
		file->floats[i][0] = strtof(value, NULL);
		file->ints[i] = (int32_t)strtol(value, NULL, 10);
		if (strpbrk(value, ".ei") == NULL) {
			array->dtype = PAGED_I32;
			array->data = &file->ints[i];
		}
		return;
	}
	cr_assert_eq(sscanf(line, "array %31s f32 %u :", file->name[i], &n), 2, "%s", line);
	cr_assert_leq(n, 32);
	array->n_dims = 1;
	array->extents[0] = n;
	at = strchr(line, ':') + 1;
	for (uint32_t j = 0; j < n; j++)
		file->floats[i][j] = strtof(at, &at);
}

static void
convert_mods(struct mods_file *file)
{
	struct torch_mods mods = { file->text[0], file->text[1], file->arrays, file->n_arrays };
	struct pa_mod mask = { torch_parse(&file->pa, PAGED_MOD_MASK, mods.mask, &mods), file->arrays, file->n_arrays };
	struct pa_mod score = { torch_parse(&file->pa, PAGED_MOD_SCORE, mods.score, &mods), file->arrays,
				file->n_arrays };

	file->mask = pa_get_mask_mod(&file->pa, &mask, &file->rows);
	file->score = pa_get_score_mod(&file->pa, &score, &file->rows);
}

/* Theirs is f32: scores of magnitude up to about 30, a few roundings each. */
static void
check_point(struct mods_file *file, const char *line)
{
	uint32_t b, h, physical;
	int32_t q_idx;
	float score, expected;
	int seen;
	double got;

	if (file->n_points++ == 0)
		convert_mods(file);
	cr_assert_eq(sscanf(line, "point %u %u %d %u %f : %d %f", &b, &h, &q_idx, &physical, &score, &seen, &expected),
		     7, "%s", line);
	cr_assert_eq(pa_mask_at(&file->mask, b, h, q_idx, physical), seen != 0, "%s", line);
	got = pa_score_at(&file->score, (double)score, b, h, q_idx, physical);
	cr_assert(got == (double)expected || fabs(got - (double)expected) < 1e-5, "%s: %g", line, got);
}

static void
read_line(struct mods_file *file, const char *line)
{
	struct pa_params params = { 0 };
	uint32_t b, tokens;

	if (sscanf(line, "pool %u %u %u", &params.n_pages, &params.page_size, &params.max_batch) == 3)
		pa_open(&file->pa, &params);
	else if (sscanf(line, "reserve %u %u ok", &b, &tokens) == 2)
		done(pa_reserve(&file->pa, b, tokens));
	else if (strncmp(line, "kv_len ", 7) == 0)
		read_kv_len(file, line + 7);
	else if (strncmp(line, "mask ", 5) == 0)
		strcpy(file->text[0], line + 5);
	else if (strncmp(line, "score ", 6) == 0)
		strcpy(file->text[1], line + 6);
	else if (strncmp(line, "point ", 6) == 0)
		check_point(file, line);
	else
		read_name(file, line);
}

static void
mods_file(const char *path)
{
	FILE *stream = fopen(path, "re");
	struct mods_file *file = calloc(1, sizeof(*file));
	char line[1024];

	cr_assert_not_null(stream, "%s", path);
	while (fgets(line, sizeof(line), stream) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		read_line(file, line);
	}
	fclose(stream);
	cr_assert_eq(file->n_points, 200);
	pa_close(&file->pa);
	free(file);
}

Test(torch_converted, mods)
{
	mask_each_file("mods/*.mods", 12, mods_file);
}

/* ----------------------------------------------------- golden/conversions */

/* A kernel's block mask given to the public API as lists. */
static struct paged_block_mask *
given(const struct pa *pa, const struct mask_case *c, const struct block_mask *mask)
{
	struct paged_batch_row rows[MASK_CASE_MAX_SEQUENCES] = { 0 };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params),
							.rows = rows,
							.n_rows = c->n_batch,
							.n_heads = mask->shape.n_heads,
							.q_block = mask->shape.q_block,
							.kv_block = mask->shape.kv_block };
	const struct paged_block_lists lists = { .start = { mask->start[0], mask->start[1] },
						 .indices = { mask->indices[0], mask->indices[1] } };
	struct paged_block_mask *copy = NULL;

	for (uint32_t i = 0; i < c->n_batch; i++)
		rows[i] = (struct paged_batch_row){ .q_len = (uint32_t)mask->shape.rows[i].q_len,
						    .kv_len = (uint32_t)mask->shape.rows[i].kv_len,
						    .flags = PAGED_ROW_Q_BASE };
	done(paged_block_mask_from_lists(pa->pool, &params, &lists, &copy));
	return copy;
}

static void
same_lists(const struct paged_block_mask *got, const struct block_mask *expected, const char *path)
{
	uint64_t n_lists = expected->first_list[expected->shape.n_rows];
	struct paged_block_lists lists;

	done(paged_block_mask_lists(got, &lists));
	cr_assert_eq(lists.first_list[expected->shape.n_rows], n_lists, "%s", path);
	for (int kind = 0; kind < 2; kind++) {
		cr_assert_arr_eq(lists.start[kind], expected->start[kind], (n_lists + 1) * sizeof(uint64_t), "%s",
				 path);
		cr_assert_arr_eq(lists.indices[kind], expected->indices[kind],
				 expected->start[kind][n_lists] * sizeof(uint32_t), "%s", path);
	}
}

/* The file's rows as explicit tables; PyTorch converts without lengths, up to what is reserved. */
static void
conversion_file(const char *path)
{
	struct paged_batch_row rows[MASK_CASE_MAX_SEQUENCES] = { 0 };
	struct paged_block_mask *logical, *physical = NULL, *back = NULL;
	struct mask_case c;
	struct pa pa;

	mask_case_open(&c, path);
	pa_open(&pa, &(struct pa_params){ .n_pages = c.n_pages, .page_size = c.page_size, .max_batch = 1 });
	logical = given(&pa, &c, c.logical);
	same_lists(logical, c.logical, path);
	for (uint32_t i = 0; i < c.n_batch; i++)
		rows[i] = (struct paged_batch_row){ .pages = c.table[c.batch[i]].pages,
						    .n_pages = c.table[c.batch[i]].n_pages,
						    .kv_len = (uint32_t)c.table[c.batch[i]].kv_len };
	done(paged_block_mask_to_physical(logical, c.n_batch, rows, &physical));
	same_lists(physical, c.physical, path);
	done(paged_block_mask_to_logical(physical, &back));
	same_lists(back, c.logical, path);
	pa_close(&pa);
	mask_case_close(&c);
}

Test(torch_converted, block_masks)
{
	mask_each_file("conversions/*.convert", 24, conversion_file);
}
