/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of figures, and the pools that a group of them shares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/kv_scene.h"
#include "bench/threads.h"

#define QUICK_TOKENS 72u
/* Halves of either sign from 0.5 to 2 as bf16, of moderate size as any other dtype. */
#define HALVES_RANDOM 0x80ff80ff80ff80ffu
#define HALVES_ALWAYS 0x3f003f003f003f00u
#define BYTES_RANDOM 0x8787878787878787u
#define BYTES_ALWAYS 0x3030303030303030u

void
kv_must(const struct kv_world *world, enum paged_status status)
{
	if (status != PAGED_OK)
		bench_die("%s", paged_client_error(world->client));
}

/* Sizes */

static uint32_t
within(uint32_t n, uint32_t least, uint32_t most)
{
	return n < least ? least : n > most ? most : n;
}

struct kv_rows
kv_figure_rows(const struct kv_case *figure, size_t kind, const struct kv_scale *scale)
{
	struct kv_rows rows = figure->rows[kind];

	if (rows.n == 0)
		return rows;
	rows.kv_len = within(rows.kv_len / scale->divisor, rows.q_len, rows.kv_len);
	if (!scale->quick)
		return rows;
	rows.n = within(rows.n, 1, 3);
	rows.kv_len = within(rows.kv_len / 64, 4, QUICK_TOKENS);
	if (rows.q_len > 1)
		rows.q_len = within(rows.q_len / 64, 2, rows.kv_len);
	return rows;
}

struct kv_shape
kv_figure_shape(const struct kv_case *figure, bool quick)
{
	struct kv_shape shape = { 32, 8, 128, 128 };

	if (figure->latent)
		return (struct kv_shape){ quick ? 16 : 128, 1, 576, 512 };
	if (figure->q_heads != 0)
		shape = (struct kv_shape){ figure->q_heads, figure->kv_heads, 128, 128 };
	if (quick)
		shape = (struct kv_shape){ 2 * (shape.q_heads / shape.kv_heads), 2, 64, 64 };
	return shape;
}

uint32_t
kv_figure_page_size(const struct kv_case *figure)
{
	return figure->page_size != 0 ? figure->page_size : 16;
}

enum paged_dtype
kv_figure_dtype(const struct kv_case *figure)
{
	return figure->dtype != PAGED_DTYPE_NONE ? figure->dtype : PAGED_BF16;
}

uint32_t
kv_figure_pages(const struct kv_case *figure, const struct kv_scale *scale)
{
	uint32_t page_size = kv_figure_page_size(figure), n = 0;

	for (size_t i = 0; i < KV_ROW_KINDS; i++) {
		struct kv_rows rows = kv_figure_rows(figure, i, scale);

		n += rows.n * ((rows.kv_len + page_size - 1) / page_size);
	}
	return n;
}

/* Pools */

static bool
has_pool(const struct kv_case *figure)
{
	return figure->work != KV_PEAK && figure->work != KV_TORCH;
}

static bool
alike(const struct kv_case *a, const struct kv_case *b)
{
	return kv_figure_page_size(a) == kv_figure_page_size(b) && kv_figure_dtype(a) == kv_figure_dtype(b) &&
	       a->latent == b->latent && a->q_heads == b->q_heads && a->kv_heads == b->kv_heads;
}

static struct kv_pool *
pool_of(struct kv_world *world, const struct kv_case *figure)
{
	for (size_t i = 0; i < world->n_pools; i++)
		if (alike(world->pools[i].like, figure))
			return &world->pools[i];
	if (world->n_pools == KV_MAX_POOLS)
		bench_die("%s: more than %d pools", figure->group, KV_MAX_POOLS);
	world->pools[world->n_pools] = (struct kv_pool){ .like = figure };
	return &world->pools[world->n_pools++];
}

static struct paged_pool_params
pool_params(const struct kv_pool *pool, const struct kv_scale *scale)
{
	struct kv_shape shape = kv_figure_shape(pool->like, scale->quick);
	struct paged_pool_params params = { .struct_size = sizeof(params), .name = pool->name };

	params.n_layers = 1;
	params.n_kv_heads = shape.kv_heads;
	params.k_dim = shape.k_dim;
	params.v_dim = shape.v_dim;
	params.v_in_k = pool->like->latent;
	params.dtype = kv_figure_dtype(pool->like);
	params.page_size = kv_figure_page_size(pool->like);
	params.n_pages = pool->n_pages;
	params.n_slots = 16;
	return params;
}

void
kv_fill(void *memory, size_t size, enum paged_dtype dtype)
{
	/* Scales of i8 are f32, of which such halves make moderate ones too. */
	bool bytes = dtype == PAGED_E4M3 || dtype == PAGED_E5M2;
	uint64_t random = bytes ? BYTES_RANDOM : HALVES_RANDOM, always = bytes ? BYTES_ALWAYS : HALVES_ALWAYS;
	uint64_t state = 88172645463325252u, *words = memory;

	for (size_t i = 0; i < size / sizeof(*words); i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = (state & random) | always;
	}
}

static void
pool_open(struct kv_world *world, struct kv_pool *pool)
{
	kv_must(world, paged_pool_open(world->client, pool->name, &pool->pool));
	pool->info.struct_size = sizeof(pool->info);
	kv_must(world, paged_pool_get_info(pool->pool, &pool->info));
	kv_fill(pool->info.base, pool->info.size, kv_figure_dtype(pool->like));
	pool->permuted = bench_permutation(pool->n_pages);
}

void
kv_world_open(struct kv_world *world, const struct kv_case *const *figures, size_t n, const struct kv_scale *scale)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .n_threads = scale->n_threads,
					      .cpus = threads_cpus(),
					      .n_cpus = scale->n_threads };
	struct paged_pool_params pools[KV_MAX_POOLS];

	*world = (struct kv_world){ .scale = *scale };
	for (size_t i = 0; i < n; i++) {
		uint32_t n_pages = kv_figure_pages(figures[i], scale);
		struct kv_pool *pool = has_pool(figures[i]) ? pool_of(world, figures[i]) : NULL;

		if (pool != NULL && n_pages > pool->n_pages)
			pool->n_pages = n_pages;
	}
	if (world->n_pools == 0)
		return;
	for (size_t i = 0; i < world->n_pools; i++) {
		snprintf(world->pools[i].name, sizeof(world->pools[i].name), "pool%zu", i);
		pools[i] = pool_params(&world->pools[i], scale);
	}
	if (paged_client_open_embedded(pools, world->n_pools, &params, &world->client) != PAGED_OK)
		bench_die("%s", paged_client_error(world->client));
	for (size_t i = 0; i < world->n_pools; i++)
		pool_open(world, &world->pools[i]);
}

void
kv_world_close(struct kv_world *world)
{
	paged_client_close(world->client);
	for (size_t i = 0; i < world->n_pools; i++)
		free(world->pools[i].permuted);
}

const struct kv_pool *
kv_world_pool(const struct kv_world *world, const struct kv_case *figure)
{
	for (size_t i = 0; i < world->n_pools && has_pool(figure); i++)
		if (alike(world->pools[i].like, figure))
			return &world->pools[i];
	return NULL;
}
