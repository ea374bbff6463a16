/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/mods_check.h"

#include <criterion/criterion.h>

struct kernel_fixture_params
mods_check_params(void)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = MODS_CHECK_HEADS;
	params.k_dim = 16;
	params.v_dim = 24;
	params.pool = PAGED_F16;
	params.causal = false;
	params.scale = 1;
	params.n_rows = 3;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 530, .q_len = 1, .q_base = 529 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 300, .q_len = 40, .q_base = 250 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 64, .q_len = 20, .q_base = 0 };
	return params;
}

void
document_mods_open(struct document_mods *mods, struct kernel_fixture_params *params, uint32_t n_doc, const float *slope)
{
	const struct mod_array names[] = {
		{ .name = "doc", .dtype = MOD_I32, .n_dims = 1, .extents = { n_doc }, .data = mods->doc },
		{ .name = "slope", .dtype = MOD_F32, .n_dims = 1, .extents = { MODS_CHECK_HEADS }, .data = slope },
	};
	struct document_args *args = &mods->args;

	*mods = (struct document_mods){ .args = { .n_doc = (int32_t)n_doc, .n_slope = MODS_CHECK_HEADS } };
	for (uint32_t i = 0; i < MODS_CHECK_DOCS; i++)
		mods->doc[i] = (int32_t)(i / 70 % 5);
	args->doc = cuda_arena_register(&mods->arena, mods->doc, n_doc * sizeof(mods->doc[0]), false, "doc");
	args->slope = cuda_arena_register(&mods->arena, slope, MODS_CHECK_HEADS * sizeof(*slope), false, "slope");
	args->fault = cuda_arena_register(&mods->arena, &mods->fault, sizeof(mods->fault), true, "fault");
	mods->mask = mod_fixture_open(MOD_MASK, "doc[q_idx] == doc[kv_idx] || kv_idx < b", names, 2);
	mods->score = mod_fixture_open(MOD_SCORE, "score + slope[h] * (kv_idx - q_idx)", names, 2);
	params->mods.mask = mods->mask.binding;
	params->mods.score = mods->score.binding;
}

void
document_mods_close(struct document_mods *mods)
{
	mod_fixture_close(&mods->mask);
	mod_fixture_close(&mods->score);
	cuda_arena_destroy(&mods->arena);
}

struct block_mask *
mods_check_blocks(const struct kernel_fixture_params *params, const struct mod_binding *mask, uint32_t n_heads,
		  uint32_t q_block, uint32_t kv_block)
{
	struct block_mask *blocks = kernel_fixture_block_mask(params, mask, KERNEL_GENERIC, n_heads, q_block, kv_block);

	for (unsigned int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		for (uint64_t list = 0; list < blocks->first_list[params->n_rows]; list++) {
			uint32_t *at = blocks->indices[kind] + blocks->start[kind][list];
			uint64_t n = blocks->start[kind][list + 1] - blocks->start[kind][list];

			for (uint64_t i = 0; i < n / 2; i++) {
				uint32_t other = at[i];

				at[i] = at[n - 1 - i];
				at[n - 1 - i] = other;
			}
		}
	return blocks;
}

void
mods_check(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what)
{
	static const struct {
		uint32_t n_heads, q_block, kv_block;
	} blocks[] = { { 1, 128, 128 }, { MODS_CHECK_HEADS, 16, 32 }, { 1, 1, 5 }, { MODS_CHECK_HEADS, 7, 1000 } };
	struct kernel_fixture plain, other;
	char where[256];

	kernel_fixture_create(&plain, params);
	cuda_fixture_attend(&plain, &options);
	cr_assert(kernel_fixture_check(&plain, where, sizeof(where)), "%s: %s", what, where);
	for (uint32_t i = 0; i < 4; i++) {
		struct block_mask *mask = mods_check_blocks(params, params->mods.mask, blocks[i].n_heads,
							    blocks[i].q_block, blocks[i].kv_block);

		options.blocks = mask;
		options.seed = i;
		options.n_blocks = 1 + i * 4;
		kernel_fixture_create(&other, params);
		cuda_fixture_attend(&other, &options);
		cr_assert(kernel_fixture_equal(&plain, 0, &other, 0, plain.total_q), "%s: blocks of %u and %u", what,
			  blocks[i].q_block, blocks[i].kv_block);
		kernel_fixture_destroy(&other);
		block_mask_destroy(mask);
	}
	kernel_fixture_destroy(&plain);
}
