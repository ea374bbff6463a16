/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden_attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/support/reference.h"

float
golden_tensor_element(const struct golden_tensor *tensor, uint32_t sequence, uint32_t head, uint32_t token,
		      uint32_t dim)
{
	uint64_t i = (((uint64_t)sequence * tensor->heads + head) * tensor->max_tokens + token) * tensor->dim + dim;

	return random_float(tensor->seed, i, tensor->amplitude);
}

const struct golden_array *
golden_attention_array(const struct golden_attention *golden, const char *name)
{
	for (uint32_t i = 0; i < golden->n_arrays; i++)
		if (strcmp(golden->arrays[i].name, name) == 0)
			return &golden->arrays[i];
	return NULL;
}

static bool
array_values(struct golden_array *array, const char *text)
{
	char *end;

	for (uint32_t i = 0; i < array->n; i++, text = end) {
		if (array->is_float)
			array->f32[i] = strtof(text, &end);
		else
			array->i32[i] = (int32_t)strtol(text, &end, 10);
		if (end == text)
			return false;
	}
	return true;
}

static void
array_allocate(struct golden_array *array)
{
	array->n = 1;
	for (uint32_t i = 0; i < array->n_dims; i++)
		array->n *= array->dims[i];
	if (array->is_float)
		array->f32 = calloc(array->n, sizeof(float));
	else
		array->i32 = calloc(array->n, sizeof(int32_t));
}

static bool
read_param(struct golden_attention *golden, const char *rest)
{
	struct golden_array *array = &golden->arrays[golden->n_arrays++];
	int at;

	array->is_param = true;
	if (sscanf(rest, "%31s %n", array->name, &at) != 1)
		return false;
	array->is_float = strpbrk(rest + at, ".ei") != NULL;
	array_allocate(array);
	return array_values(array, rest + at);
}

/* NAME i32|f32 DIMS : VALUES, or NAME f32 DIMS random SEED AMP */
static bool
read_array(struct golden_attention *golden, const char *rest)
{
	struct golden_array *array = &golden->arrays[golden->n_arrays++];
	char type[4];
	uint64_t seed;
	float amplitude;
	int at;

	if (sscanf(rest, "%31s %3s %n", array->name, type, &at) != 2)
		return false;
	array->is_float = strcmp(type, "f32") == 0;
	rest += at;
	while (array->n_dims < 4 && sscanf(rest, "%" SCNu32 " %n", &array->dims[array->n_dims], &at) == 1) {
		array->n_dims++;
		rest += at;
	}
	array_allocate(array);
	if (*rest == ':')
		return array_values(array, rest + 1);
	if (!array->is_float || sscanf(rest, "random %" SCNu64 " %f", &seed, &amplitude) != 2)
		return false;
	for (uint32_t i = 0; i < array->n; i++)
		array->f32[i] = random_float(seed, i, amplitude);
	return true;
}

static bool
read_sink(struct golden_attention *golden, const char *rest)
{
	struct golden_array array = { .is_float = true, .n_dims = 1 };
	int at;

	if (sscanf(rest, "f32 %" SCNu32 " : %n", &array.dims[0], &at) != 1 || array.dims[0] != golden->q_heads)
		return false;
	array_allocate(&array);
	golden->sink = array.f32;
	return array_values(&array, rest + at);
}

static bool
read_tensor(const struct golden_attention *golden, struct golden_tensor *tensor, const char *rest)
{
	uint32_t n_sequences;

	return sscanf(rest, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " random %" SCNu64 " %f", &n_sequences,
		      &tensor->heads, &tensor->max_tokens, &tensor->dim, &tensor->seed, &tensor->amplitude) == 6 &&
	       n_sequences == golden->n_sequences;
}

static bool
read_sequence(struct golden_attention *golden, const char *rest)
{
	struct golden_sequence *sequence = &golden->sequences[golden->n_sequences];
	uint32_t number;

	return sscanf(rest, "%" SCNu32 " kv_len %" SCNu32 " q_len %" SCNu32 " q_base %" SCNd64, &number,
		      &sequence->kv_len, &sequence->q_len, &sequence->q_base) == 4 &&
	       number == golden->n_sequences && ++golden->n_sequences <= GOLDEN_MAX_SEQUENCES - 1;
}

static bool
read_reserve(struct golden_attention *golden, const char *rest)
{
	struct golden_reserve *reserve;

	golden->reserves = realloc(golden->reserves, (golden->n_reserves + 1) * sizeof(*golden->reserves));
	reserve = &golden->reserves[golden->n_reserves++];
	return sscanf(rest, "%" SCNu32 " %" SCNu32, &reserve->sequence, &reserve->tokens) == 2 &&
	       reserve->sequence < golden->n_sequences;
}

static bool
read_line(struct golden_attention *golden, const char *line)
{
	char word[16], dtype[8];
	const char *rest;
	int at = 0;

	if (strcmp(line, "v_in_k") == 0)
		return golden->v_in_k = true;
	if (sscanf(line, "%15s %n", word, &at) != 1 || at == 0)
		return false;
	rest = line + at;
	if (strcmp(word, "mask") == 0)
		return (golden->mask = strdup(rest)) != NULL;
	if (strcmp(word, "score") == 0)
		return (golden->score = strdup(rest)) != NULL;
	if (strcmp(word, "param") == 0 || strcmp(word, "array") == 0)
		return golden->n_arrays < GOLDEN_MAX_NAMES &&
		       (*word == 'p' ? read_param(golden, rest) : read_array(golden, rest));
	if (strcmp(word, "sink") == 0)
		return read_sink(golden, rest);
	if (strcmp(word, "sequence") == 0)
		return read_sequence(golden, rest);
	if (strcmp(word, "reserve") == 0)
		return read_reserve(golden, rest);
	if (strcmp(word, "q") == 0)
		return read_tensor(golden, &golden->q, rest);
	if (strcmp(word, "k") == 0)
		return read_tensor(golden, &golden->k, rest);
	if (strcmp(word, "v") == 0)
		return read_tensor(golden, &golden->v, rest);
	if (strcmp(word, "dtype") == 0)
		return sscanf(rest, "%7s", dtype) == 1 &&
		       (golden->dtype = paged_dtype_parse(dtype)) != PAGED_DTYPE_NONE;
	if (strcmp(word, "heads") == 0)
		return sscanf(rest, "%" SCNu32 " %" SCNu32, &golden->q_heads, &golden->kv_heads) == 2;
	if (strcmp(word, "dims") == 0)
		return sscanf(rest, "%" SCNu32 " %" SCNu32, &golden->k_dim, &golden->v_dim) == 2;
	if (strcmp(word, "page_size") == 0)
		return sscanf(rest, "%" SCNu32, &golden->page_size) == 1;
	if (strcmp(word, "pages") == 0)
		return sscanf(rest, "%" SCNu32, &golden->n_pages) == 1;
	return strcmp(word, "scale") == 0 && sscanf(rest, "%lf", &golden->scale) == 1;
}

/* PyTorch's allocator: the free list begins as n - 1 ... 0; the last N entries are taken, in list order. */
static bool
replay_reserves(struct golden_attention *golden)
{
	uint32_t n_free = golden->n_pages;

	for (uint32_t i = 0; i < golden->n_sequences; i++)
		golden->sequences[i].pages = calloc(golden->n_pages + 1, sizeof(uint32_t));
	for (uint32_t i = 0; i < golden->n_reserves; i++) {
		struct golden_sequence *sequence = &golden->sequences[golden->reserves[i].sequence];
		uint32_t wanted = (golden->reserves[i].tokens + golden->page_size - 1) / golden->page_size;
		uint32_t need = wanted > sequence->n_pages ? wanted - sequence->n_pages : 0;

		if (need > n_free)
			return false;
		n_free -= need;
		for (uint32_t j = 0; j < need; j++)
			sequence->pages[sequence->n_pages++] = golden->n_pages - 1 - (n_free + j);
	}
	return true;
}

static bool
read_floats(FILE *file, float **floats_p, size_t n)
{
	*floats_p = calloc(n + 1, sizeof(float));
	return *floats_p != NULL && fread(*floats_p, sizeof(float), n, file) == n;
}

static bool
read_results(struct golden_attention *golden, const char *path)
{
	size_t stem = strlen(path) - strlen(".case");
	size_t n_q_rows = (size_t)golden->n_sequences * golden->q_heads * golden->q.max_tokens;
	char name[4096];
	FILE *file;
	bool good;

	snprintf(name, sizeof(name), "%.*s.out", (int)stem, path);
	file = fopen(name, "rb");
	if (file == NULL)
		return false;
	good = read_floats(file, &golden->out, n_q_rows * golden->v_dim) && read_floats(file, &golden->lse, n_q_rows) &&
	       read_floats(file, &golden->max_score, n_q_rows) && fgetc(file) == EOF;
	fclose(file);
	return good;
}

static bool
read_lines(struct golden_attention *golden, FILE *file, char *what, size_t size)
{
	char *line = NULL;
	size_t line_size = 0;
	bool good = true;

	while (good && getline(&line, &line_size, file) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		good = read_line(golden, line);
		if (!good)
			snprintf(what, size, "cannot understand '%.100s'", line);
	}
	free(line);
	return good;
}

bool
golden_attention_open(struct golden_attention *golden, const char *path, char *what, size_t size)
{
	FILE *file = fopen(path, "r");
	bool good;

	*golden = (struct golden_attention){ 0 };
	snprintf(what, size, "no case, or no results of its size");
	good = file != NULL && read_lines(golden, file, what, size) && replay_reserves(golden) &&
	       read_results(golden, path);
	if (file != NULL)
		fclose(file);
	if (!good)
		golden_attention_close(golden);
	return good;
}

void
golden_attention_close(struct golden_attention *golden)
{
	for (uint32_t i = 0; i < golden->n_sequences; i++)
		free(golden->sequences[i].pages);
	for (uint32_t i = 0; i < golden->n_arrays; i++) {
		free(golden->arrays[i].i32);
		free(golden->arrays[i].f32);
	}
	free(golden->reserves);
	free(golden->mask);
	free(golden->score);
	free(golden->sink);
	free(golden->out);
	free(golden->lse);
	free(golden->max_score);
}
