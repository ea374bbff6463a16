/* SPDX-License-Identifier: Apache-2.0 */
/* A case's mask and score mods, and the number of blocks that its mask leaves. */
#include "bench/kv/kv_mods.h"

#include <stdio.h>

#include "bench/base.h"

#define BLOCK 128u
#define N_ARRAYS 4
/* Starts of the documents, in hundredths of the longest row. */
static const uint32_t document_starts[] = { 23, 51 };

static uint32_t
kv_mods_arrays(struct kv_fixture *fixture, struct paged_array *arrays)
{
	static const float cap = 50.0f;
	static int32_t window;
	static float heads;
	uint32_t longest = fixture->pool->max_length;

	arrays[0] = (struct paged_array){ .name = "cap", .dtype = PAGED_F32, .data = &cap };
	if (fixture->group->on_gpu)
		return 1;
	window = fixture->group->report->options->quick ? 16 : (int32_t)fixture->kv_case.window;
	heads = (float)fixture->shape.q_heads;
	fixture->documents = bench_alloc(longest, sizeof(*fixture->documents));
	for (uint32_t i = 0; i < longest; i++)
		for (size_t d = 0; d < BENCH_N(document_starts); d++)
			fixture->documents[i] += i >= (uint64_t)longest * document_starts[d] / 100;
	arrays[1] = (struct paged_array){ .name = "window", .dtype = PAGED_I32, .data = &window };
	arrays[2] = (struct paged_array){ .name = "heads", .dtype = PAGED_F32, .data = &heads };
	arrays[3] = (struct paged_array){
		.name = "doc", .dtype = PAGED_I32, .n_dims = 1, .extents = { longest }, .data = fixture->documents
	};
	return N_ARRAYS;
}

static struct paged_mod *
kv_mods_parse(const struct kv_fixture *fixture, enum paged_mod_kind kind, const char *text, uint32_t n_arrays,
	      const struct paged_array *arrays)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		bench_client_must(fixture->group->client,
				  paged_mod_parse(fixture->pool->pool, kind, text, n_arrays, arrays, &mod));
	return mod;
}

/* Counts the blocks that the case's mask and `causal` leave visible: n_blocks, the divisor of results per block. */
static void
kv_mods_count_blocks(struct kv_fixture *fixture, uint32_t n_arrays, const struct paged_array *arrays)
{
	struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = fixture->rows };
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_client *client = fixture->group->client;
	struct paged_block_mask *blocks;
	struct paged_mod *seen;
	char text[128];

	snprintf(text, sizeof(text), "causal && (%s)", fixture->kv_case.mask != NULL ? fixture->kv_case.mask : "true");
	seen = kv_mods_parse(fixture, PAGED_MOD_MASK, text, n_arrays, arrays);
	params.n_rows = fixture->n_rows;
	params.q_block = BLOCK;
	params.kv_block = BLOCK;
	bench_client_must(client,
			  paged_block_mask_create(fixture->pool->pool, &params, seen, n_arrays, arrays, &blocks));
	bench_client_must(client, paged_block_mask_get_info(blocks, &info));
	fixture->n_blocks = (double)info.n_blocks * fixture->shape.q_heads;
	paged_block_mask_destroy(blocks);
	paged_mod_destroy(seen);
}

void
kv_mods_open(struct kv_fixture *fixture)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_client *client = fixture->group->client;
	struct paged_array arrays[N_ARRAYS];
	uint32_t n_arrays = kv_mods_arrays(fixture, arrays);
	struct paged_mod_set **mods = &fixture->attention.mod_set;

	if (fixture->kv_case.per_block)
		kv_mods_count_blocks(fixture, n_arrays, arrays);
	params.mask = fixture->mask = kv_mods_parse(fixture, PAGED_MOD_MASK, fixture->kv_case.mask, n_arrays, arrays);
	params.score = fixture->score =
		kv_mods_parse(fixture, PAGED_MOD_SCORE, fixture->kv_case.score, n_arrays, arrays);
	if (params.mask == NULL && params.score == NULL)
		return;
	bench_client_must(client, paged_mod_set_create(fixture->batch, &params, mods));
	bench_client_must(client, paged_mod_set_bind(*mods, n_arrays, arrays, NULL));
	if (fixture->group->on_gpu)
		bench_client_must(client, paged_mod_set_prepare(*mods, PAGED_BF16, -1));
}
