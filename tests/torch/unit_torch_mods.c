/* SPDX-License-Identifier: Apache-2.0 */
/* golden/mods: values of PyTorch's get_mask_mod() and get_score_mod() at physical token indices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden_mask.h"
#include "tests/support/mask_fixture.h"
#include "tests/torch/torch_fixture.h"

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

/* PyTorch's values are f32: scores of magnitude up to about 30, rounded a few times. */
static void
check_point(struct mods_file *file, const char *line)
{
	uint32_t b, h, physical;
	int32_t q_idx;
	float score, expected;
	int visible;
	double got;

	if (file->n_points++ == 0)
		convert_mods(file);
	cr_assert_eq(
		sscanf(line, "point %u %u %d %u %f : %d %f", &b, &h, &q_idx, &physical, &score, &visible, &expected), 7,
		"%s", line);
	cr_assert_eq(pa_mask_at(&file->mask, b, h, q_idx, physical), visible != 0, "%s", line);
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
		expect_ok(pa_reserve(&file->pa, b, tokens));
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

Test(torch_mods, matches_pytorch)
{
	golden_each_file("mods/*.mods", 12, mods_file);
}
