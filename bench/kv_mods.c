/* SPDX-License-Identifier: Apache-2.0 */
/* A scene's masks and scores, and how many blocks they leave. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/kv_scene.h"

#define BLOCK 128u
#define N_ARRAYS 4
/* Documents begin here, in hundredths of the longest row. */
static const uint32_t document_starts[] = { 23, 51 };

static uint32_t
documents_open(struct kv_scene *scene)
{
	uint32_t longest = 1;

	for (uint32_t row = 0; row < scene->n_rows; row++)
		if (scene->rows[row].kv_len > longest)
			longest = scene->rows[row].kv_len;
	scene->documents = calloc(longest, sizeof(*scene->documents));
	if (scene->documents == NULL)
		bench_die("no memory for %u tokens", longest);
	for (uint32_t i = 0; i < longest; i++)
		for (size_t d = 0; d < sizeof(document_starts) / sizeof(document_starts[0]); d++)
			scene->documents[i] += i >= (uint64_t)longest * document_starts[d] / 100;
	return longest;
}

static void
arrays_list(struct kv_scene *scene, struct paged_array *arrays)
{
	static const float cap = 50.0f;
	static int32_t window;
	static float heads;
	uint32_t longest = documents_open(scene);

	window = scene->world->scale.quick ? 16 : (int32_t)scene->figure->window;
	heads = (float)scene->shape.q_heads;
	arrays[0] = (struct paged_array){ .name = "window", .dtype = PAGED_I32, .data = &window };
	arrays[1] = (struct paged_array){ .name = "cap", .dtype = PAGED_F32, .data = &cap };
	arrays[2] = (struct paged_array){ .name = "heads", .dtype = PAGED_F32, .data = &heads };
	arrays[3] = (struct paged_array){
		.name = "doc", .dtype = PAGED_I32, .n_dims = 1, .extents = { longest }, .data = scene->documents
	};
}

/* Whoever sees less has fewer of them. */
static void
blocks_count(struct kv_scene *scene, const struct paged_array *arrays)
{
	struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = scene->rows };
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_block_mask *blocks;
	struct paged_mod *seen;
	char text[128];

	snprintf(text, sizeof(text), "causal && (%s)", scene->figure->mask != NULL ? scene->figure->mask : "true");
	kv_must(scene->world, paged_mod_parse(scene->pool->pool, PAGED_MOD_MASK, text, N_ARRAYS, arrays, &seen));
	params.n_rows = scene->n_rows;
	params.q_block = BLOCK;
	params.kv_block = BLOCK;
	kv_must(scene->world, paged_block_mask_create(scene->pool->pool, &params, seen, N_ARRAYS, arrays, &blocks));
	kv_must(scene->world, paged_block_mask_get_info(blocks, &info));
	scene->n_blocks = (double)info.n_blocks * scene->shape.q_heads;
	paged_block_mask_destroy(blocks);
	paged_mod_destroy(seen);
}

void
kv_scene_mods(struct kv_scene *scene)
{
	struct paged_mods_params params = { .struct_size = sizeof(params) };
	struct paged_array arrays[N_ARRAYS];
	struct paged_pool *pool = scene->pool->pool;

	arrays_list(scene, arrays);
	blocks_count(scene, arrays);
	if (scene->figure->mask != NULL)
		kv_must(scene->world,
			paged_mod_parse(pool, PAGED_MOD_MASK, scene->figure->mask, N_ARRAYS, arrays, &scene->mask));
	if (scene->figure->score != NULL)
		kv_must(scene->world,
			paged_mod_parse(pool, PAGED_MOD_SCORE, scene->figure->score, N_ARRAYS, arrays, &scene->score));
	if (scene->mask == NULL && scene->score == NULL)
		return;
	params.mask = scene->mask;
	params.score = scene->score;
	kv_must(scene->world, paged_mods_create(scene->batch, &params, &scene->attention.mods));
	kv_must(scene->world, paged_mods_bind(scene->attention.mods, N_ARRAYS, arrays, NULL));
}
