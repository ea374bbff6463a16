/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu_scene.h - a pool in a GPU's memory, and batches over it to be timed
 *
 * A pool has as many layers as fit, at most those of a model; a graph goes
 * through them in turn, so that each call finds its keys and values in memory
 * and not in the cache.  Page tables are the bench's own (explicit ones), so
 * that the same pool serves permuted and contiguous tables.
 *
 * Nothing is given back before the process ends; failures are bench_die()'s.
 */
#ifndef PAGED_BENCH_GPU_SCENE_H
#define PAGED_BENCH_GPU_SCENE_H

#include <pagedclient.h>

#include "bench/gpu.h"
#include "bench/bench.h"

#define GPU_ROW_KINDS 3
#define GPU_MODEL_LAYERS 32u

/** Rows of a batch that are alike. */
struct gpu_rows {
	uint32_t n, q_len, kv_len;
};

enum gpu_work {
	GPU_ATTENTION,
	GPU_APPEND,
	GPU_STEP,       /* append, then attention */
	GPU_PLAN,       /* the batch's plan alone */
	GPU_READ,       /* the batch's pages, by the reader */
	GPU_COPY,       /* as many bytes as the batch's pages have, by cuMemcpyDtoD */
	GPU_COPY_NEW,   /* as many as are appended */
	GPU_COPY_PAGES, /* the batch's pages to others, all layers */
	GPU_COPY_ALL,   /* as many bytes, by cuMemcpyDtoD */
	GPU_EMPTY,      /* a kernel that does nothing */
};

/** What is measured, as it is written down; bench/gpu_figures.c has the list. */
struct gpu_figure {
	const char *group; /* figures of a group run in turn, in one process */
	const char *name;
	const char *limit;  /* of the same group, or NULL */
	const char *target; /* or NULL */
	enum gpu_work work;
	struct gpu_rows rows[GPU_ROW_KINDS];
	uint32_t page_size;     /* 0: 16 */
	bool contiguous;        /* pages in their order, not permuted */
	enum paged_dtype dtype; /* of the pool; 0: bf16 */
	bool latent;            /* MLA: one head of 576, its first 512 are V */
	const char *mask, *score;
	const char *export; /* a pagedd serves the pool, and exports it so; NULL: the owner is in this process */
};

extern const struct gpu_figure gpu_figures[];
extern const size_t gpu_n_figures;

struct gpu_shape {
	uint32_t n_q_heads, n_kv_heads, k_dim, v_dim;
};

struct gpu_pool {
	const struct gpu_figure *like; /* the figure that it was opened for */
	struct gpu_shape shape;
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_pool_info info;
	uint64_t layer_page_bytes;
};

struct gpu_scene {
	struct gpu *gpu;
	const struct gpu_pool *pool;
	const struct gpu_figure *figure;
	uint32_t n_calls; /* of a graph */
	uint32_t n_rows, total_q, n_pages;
	struct paged_batch_row *rows;
	uint32_t *pages;
	cuda_address table;
	struct paged_batch *batch;
	struct paged_plan_device_params plan;
	struct paged_tensor q, out, k, v;
	struct paged_mods *mods;
	cuda_function copy_pages;
	cuda_address free_pages; /* a table of the pages that copies go to */
};

/** gpu_figure_rows - a figure's batch; quick: at toy size */
struct gpu_rows gpu_figure_rows(const struct gpu_figure *figure, size_t kind, bool quick);

/** gpu_figure_fits - whether a figure is measured in the pool that another one needs */
bool gpu_figure_fits(const struct gpu_figure *like, const struct gpu_figure *figure);

/** gpu_pool_open - for the first of these figures, and as large as those need that share it */
void gpu_pool_open(struct gpu *gpu, struct gpu_pool *pool, const struct gpu_figure *figures, size_t n_figures,
		   bool quick);

void gpu_scene_open(struct gpu *gpu, struct gpu_scene *scene, const struct gpu_pool *pool,
		    const struct gpu_figure *figure, bool quick);

/** gpu_scene_work - all of a graph (gpu_work_fn) */
void gpu_scene_work(struct gpu *gpu, void *scene);

/** gpu_scene_parts - what a graph's time is divided by */
double gpu_scene_parts(const struct gpu_scene *scene);

/** gpu_scene_check - after the work: the batch was computed, and what came out is finite */
void gpu_scene_check(const struct gpu_scene *scene);

/** gpu_scene_amount - bytes and operations of one part */
void gpu_scene_amount(const struct gpu_scene *scene, struct bench_case *result);

#endif
