/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/aot.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/compile.h"
#include "kernels/cuda/aot_list.h"
#include "kernels/mod/source.h"

#define ROW(name, mask, score) { #name, "aot_" #name, mask, score },
static const struct cuda_ready rows[] = { CUDA_READY_LIST(ROW) };
#undef ROW

/* The dtypes and head dims that models commonly use. */
const char *const cuda_ready_kernels[] = { "attention_mma_f16_64", "attention_mma_f16_128", "attention_mma_bf16_64",
					   "attention_mma_bf16_128", NULL };

/* The parameters and arrays that the texts may name. */
static const struct mod_array names[] = {
	{ .name = "cap", .dtype = MOD_F32 },
	{ .name = "doc", .dtype = MOD_I32, .n_dims = 1 },
	{ .name = "heads", .dtype = MOD_I32 },
	{ .name = "prefix", .dtype = MOD_I32, .n_dims = 1 },
	{ .name = "window", .dtype = MOD_I32 },
};

const struct cuda_ready *
cuda_ready_at(size_t i)
{
	return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL;
}

static enum paged_status
side_parse(enum mod_kind kind, const char *text, struct mod **mod_p, struct paged_error *error)
{
	return text == NULL ? PAGED_OK
			    : mod_parse(kind, text, strlen(text), names, sizeof(names) / sizeof(names[0]), mod_p, error);
}

enum paged_status
cuda_ready_source(const struct cuda_ready *ready, char **text_p, struct paged_error *error)
{
	struct mod *mask = NULL, *score = NULL;
	enum paged_status status = side_parse(MOD_MASK, ready->mask, &mask, error);

	if (status == PAGED_OK)
		status = side_parse(MOD_SCORE, ready->score, &score, error);
	if (status == PAGED_OK)
		status = mod_cuda_source(CUDA_MOD_STRUCT, mask, score, text_p, error);
	mod_destroy(score);
	mod_destroy(mask);
	return status;
}

static bool
has_images(const char *source, const char *kernel)
{
	const char *const *each = cuda_ready_kernels;

	if (strcmp(source, CUDA_READY_SOURCE) != 0)
		return false;
	while (*each != NULL && strcmp(*each, kernel) != 0)
		each++;
	return *each != NULL;
}

/* Without memory this reports no match, and the mods are compiled by NVRTC. */
static bool
is_row(const struct cuda_ready *ready, const char *mods)
{
	struct paged_error error;
	char *text;
	bool same;

	if (cuda_ready_source(ready, &text, &error) != PAGED_OK)
		return false;
	same = strcmp(text, mods) == 0;
	free(text);
	return same;
}

const struct cuda_ready *
cuda_ready_find(const char *source, const char *kernel, const char *mods)
{
	const struct cuda_ready *ready;

	if (!has_images(source, kernel))
		return NULL;
	for (size_t i = 0; (ready = cuda_ready_at(i)) != NULL; i++)
		if (is_row(ready, mods))
			return ready;
	return NULL;
}
