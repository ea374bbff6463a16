/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/aot.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/jit.h"
#include "kernels/cuda/host/aot_list.h"
#include "kernels/mod/cuda_source.h"

#define ENTRY(name, mask, score) { #name, "aot_" #name, mask, score },
static const struct cuda_aot entries[] = { CUDA_AOT_LIST(ENTRY) };
#undef ENTRY

/* The dtypes and head dims that models commonly use. */
const struct cuda_aot_kernel cuda_aot_kernels[] = {
	{ "attention_mma", "attention_mma_f16_64" },
	{ "attention_mma", "attention_mma_f16_128" },
	{ "attention_mma", "attention_mma_bf16_64" },
	{ "attention_mma", "attention_mma_bf16_128" },
	{ "attention_prefill", "attention_prefill_f16_64" },
	{ "attention_prefill", "attention_prefill_f16_128" },
	{ "attention_prefill", "attention_prefill_bf16_64" },
	{ "attention_prefill", "attention_prefill_bf16_128" },
	{ "attention_bulk", "attention_bulk_f16_64" },
	{ "attention_bulk", "attention_bulk_f16_128" },
	{ "attention_bulk", "attention_bulk_bf16_64" },
	{ "attention_bulk", "attention_bulk_bf16_128" },
	{ "attention_wgmma", "attention_wgmma_f16_64" },
	{ "attention_wgmma", "attention_wgmma_f16_128" },
	{ "attention_wgmma", "attention_wgmma_bf16_64" },
	{ "attention_wgmma", "attention_wgmma_bf16_128" },
	{ NULL, NULL },
};

/* The parameters and arrays that the texts may name. */
static const struct mod_array mod_names[] = {
	{ .name = "cap", .dtype = MOD_F32 },    { .name = "doc", .dtype = MOD_I32, .n_dims = 1 },
	{ .name = "heads", .dtype = MOD_I32 },  { .name = "prefix", .dtype = MOD_I32, .n_dims = 1 },
	{ .name = "window", .dtype = MOD_I32 },
};

const struct cuda_aot *
cuda_aot_at(size_t i)
{
	return i < sizeof(entries) / sizeof(entries[0]) ? &entries[i] : NULL;
}

static enum paged_status
aot_mod_parse(enum mod_kind kind, const char *text, struct mod **mod_p, struct paged_error *error)
{
	return text == NULL ? PAGED_OK
			    : mod_parse(kind, text, strlen(text), mod_names, sizeof(mod_names) / sizeof(mod_names[0]),
					mod_p, error);
}

enum paged_status
cuda_aot_source(const struct cuda_aot *aot, char **text_p, struct paged_error *error)
{
	struct mod *mask = NULL, *score = NULL;
	enum paged_status status = aot_mod_parse(MOD_MASK, aot->mask, &mask, error);

	if (status == PAGED_OK)
		status = aot_mod_parse(MOD_SCORE, aot->score, &score, error);
	if (status == PAGED_OK)
		status = mod_cuda_source(CUDA_MOD_STRUCT, mask, score, text_p, error);
	mod_destroy(score);
	mod_destroy(mask);
	return status;
}

static bool
aot_has_image(const char *source, const char *kernel)
{
	const struct cuda_aot_kernel *each = cuda_aot_kernels;

	while (each->kernel != NULL && (strcmp(each->source, source) != 0 || strcmp(each->kernel, kernel) != 0))
		each++;
	return each->kernel != NULL;
}

/* Without memory this reports no match, and the mods are compiled by NVRTC. */
static bool
aot_matches(const struct cuda_aot *aot, const char *mods)
{
	struct paged_error error;
	char *text;
	bool same;

	if (cuda_aot_source(aot, &text, &error) != PAGED_OK)
		return false;
	same = strcmp(text, mods) == 0;
	free(text);
	return same;
}

const struct cuda_aot *
cuda_aot_find(const char *source, const char *kernel, const char *mods)
{
	const struct cuda_aot *aot;

	if (!aot_has_image(source, kernel))
		return NULL;
	for (size_t i = 0; (aot = cuda_aot_at(i)) != NULL; i++)
		if (aot_matches(aot, mods))
			return aot;
	return NULL;
}
