/* SPDX-License-Identifier: Apache-2.0 */
/* What is copied into pages, out of them and between them, and the kernel that copies pages. */
#include "bench/kv_scene.h"
#include "bench/threads.h"
#include "common/status.h"

/* Of row `r`, K and V heads counted together: where a token lies. */
static uint8_t *
head_at(const struct kv_scene *scene, uint32_t r, uint32_t head, uint32_t token)
{
	const struct paged_pool_info *info = &scene->pool->info;
	const struct paged_plane_info *plane = head < scene->shape.kv_heads ? &info->k : &info->v;

	return (uint8_t *)info->base + plane->offset +
	       scene->rows[r].pages[token / info->page_size] * plane->page_stride +
	       head % scene->shape.kv_heads * plane->head_stride + token % info->page_size * plane->token_stride;
}

/* Of each page and head what this step's tokens take: `other` is the place in one piece. */
static size_t
row_pieces(struct kv_scene *scene, uint32_t r, uint8_t **other, struct limit_copy_piece *pieces)
{
	const struct kv_case *figure = scene->figure;
	const struct paged_batch_row *row = &scene->rows[r];
	uint32_t page_size = scene->pool->info.page_size;
	size_t n = 0;

	for (uint32_t token = row->kv_len - row->q_len, end; token < row->kv_len; token = end) {
		end = (token / page_size + 1) * page_size;
		end = end < row->kv_len ? end : row->kv_len;
		for (uint32_t i = 0; i < 2 * scene->shape.kv_heads; i++, n++) {
			size_t bytes = (end - token) * scene->pool->info.k.token_stride;
			uint8_t *page = head_at(scene, r, i, token);

			if (figure->between)
				pieces[n] = (struct limit_copy_piece){ head_at(scene, r + 1, i, token), page, bytes };
			else if (figure->out)
				pieces[n] = (struct limit_copy_piece){ *other, page, bytes };
			else
				pieces[n] = (struct limit_copy_piece){ page, *other, bytes };
			*other += bytes;
		}
	}
	return n;
}

void
kv_scene_copy(struct kv_scene *scene)
{
	const struct kv_shape *shape = &scene->shape;
	size_t token = (size_t)shape->kv_heads * (shape->k_dim + shape->v_dim) * paged_dtype_size(PAGED_BF16), n = 0;
	uint8_t *other;

	scene->k.data = bench_alloc(scene->total_q, token);
	other = scene->k.data;
	kv_fill(other, scene->total_q * token, PAGED_BF16);
	scene->pieces = bench_alloc((size_t)scene->n_pages * shape->kv_heads * 2, sizeof(*scene->pieces));
	for (uint32_t r = 0; r < (scene->figure->between ? 1 : scene->n_rows); r++)
		n += row_pieces(scene, r, &other, scene->pieces + n);
	scene->copy = (struct limit_copy){ .pieces = scene->pieces, .n_pieces = n };
	limit_copy_tune(&scene->copy);
}

void
kv_scene_pages(struct kv_scene *scene)
{
	const struct paged_pool_info *info = &scene->pool->info;
	const struct layout_params layout = { .n_layers = info->n_layers,
					      .n_kv_heads = info->n_kv_heads,
					      .k_dim = info->k.dim,
					      .v_dim = info->v.dim,
					      .v_in_k = info->v_in_k,
					      .dtype = info->k.dtype,
					      .page_size = info->page_size,
					      .n_pages = info->n_pages };
	const struct kernel_team_params team = { .n_threads = scene->world->scale.n_threads,
						 .isa = kernel_isa_parse(info->isa),
						 .cpus = threads_cpus() };
	struct paged_error error;

	if (layout_init(&scene->layout, &layout, &error) != PAGED_OK ||
	    kernel_team_create(&team, &scene->team, &error) != PAGED_OK)
		bench_die("%s: %s", scene->figure->name, error.text);
}

void
kv_scene_copy_pages(const struct kv_scene *scene)
{
	uint8_t *base = scene->pool->info.base;

	kernel_copy_pages(scene->team, &(struct copy_args){ .from = { &scene->layout, base, scene->rows[0].pages },
							    .to = { &scene->layout, base, scene->rows[1].pages },
							    .n = scene->rows[0].n_pages });
}
