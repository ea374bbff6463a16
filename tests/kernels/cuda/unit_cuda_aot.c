/* SPDX-License-Identifier: Apache-2.0 */
/* Ahead-of-time compiled mods: every equivalent text finds the mod, and no other text does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/jit.h"
#include "kernels/cuda/host/aot.h"
#include "kernels/mod/cuda_source.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static struct paged_error error;

/* More arrays than the texts use, and in another order than in the table. */
static const struct mod_array names[] = {
	{ .name = "window", .dtype = MOD_I32 },
	{ .name = "bias", .dtype = MOD_F16, .n_dims = 2 },
	{ .name = "prefix", .dtype = MOD_I32, .n_dims = 1 },
	{ .name = "heads", .dtype = MOD_I32 },
	{ .name = "cap", .dtype = MOD_F32 },
	{ .name = "doc", .dtype = MOD_I32, .n_dims = 1 },
};

static struct mod *
parse(enum mod_kind kind, const char *text)
{
	struct mod *mod = NULL;

	if (text != NULL)
		cr_assert_eq(mod_parse(kind, text, strlen(text), names, N(names), &mod, &error), PAGED_OK, "%s",
			     error.text);
	return mod;
}

/* The name of the compiled mods that the texts find; "" for none. */
static const char *
found(const struct cuda_aot_kernel *kernel, const char *mask_text, const char *score_text)
{
	struct mod *mask = parse(MOD_MASK, mask_text), *score = parse(MOD_SCORE, score_text);
	const struct cuda_aot *aot;
	char *source;

	cr_assert_eq(mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &source, &error), PAGED_OK);
	aot = cuda_aot_find(kernel->source, kernel->kernel, source);
	free(source);
	mod_destroy(mask);
	mod_destroy(score);
	return aot != NULL ? aot->name : "";
}

Test(cuda_aot, every_mod_is_found_for_every_kernel)
{
	const struct cuda_aot_kernel other = { "attention_mma", "attention_mma_bf16_256" };
	const struct cuda_aot *aot;

	for (size_t i = 0; (aot = cuda_aot_at(i)) != NULL; i++) {
		for (size_t k = 0; cuda_aot_kernels[k].kernel != NULL; k++)
			cr_expect_str_eq(found(&cuda_aot_kernels[k], aot->mask, aot->score), aot->name);
		cr_expect_str_eq(found(&other, aot->mask, aot->score), "");
		cr_expect(strncmp(aot->image, "aot_", 4) == 0 && strcmp(aot->image + 4, aot->name) == 0);
	}
	cr_expect_geq(cuda_aot_at(5) != NULL, true);
}

/* By the builtin name, and written out. */
Test(cuda_aot, equivalent_texts_find_the_same_mod)
{
	const struct cuda_aot_kernel *kernel = &cuda_aot_kernels[0];

	cr_expect_str_eq(found(kernel, "kv_idx <= q_idx && q_idx - kv_idx < window", NULL), "sliding_window");
	cr_expect_str_eq(found(kernel, "sliding_window(window)", NULL), "sliding_window");
	cr_expect_str_eq(found(kernel, "(kv_idx<=q_idx)&&((q_idx-kv_idx)<window)", NULL), "sliding_window");
	cr_expect_str_eq(found(kernel, "kv_idx < prefix[b] || kv_idx <= q_idx", NULL), "prefix_lm");
	cr_expect_str_eq(found(kernel, "doc[q_idx] == doc[kv_idx]", NULL), "document");
	cr_expect_str_eq(found(kernel, NULL, "cap * tanh(score / cap)"), "soft_cap");
	cr_expect_str_eq(found(kernel, NULL, "score + exp2(-8.0 * (h + 1) / heads) * (kv_idx - q_idx)"), "alibi");
	cr_expect_str_eq(found(kernel, "sliding_window", "soft_cap"), "capped_window");
}

Test(cuda_aot, other_texts_find_none)
{
	const struct cuda_aot_kernel *kernel = &cuda_aot_kernels[0];

	cr_expect_str_eq(found(kernel, "sliding_window(4096)", NULL), "");
	cr_expect_str_eq(found(kernel, "causal", NULL), "");
	cr_expect_str_eq(found(kernel, "document", "soft_cap"), "");
	cr_expect_str_eq(found(kernel, NULL, "soft_cap + bias[q_idx][kv_idx]"), "");
	cr_expect_null(cuda_aot_find("attention_simt", "attention_simt_128", ""));
}
