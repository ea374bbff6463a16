/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_scene.h - figures of attention and append on the host, and batches to measure them with
 *
 * A suite is a table of figures.  Those of a group share pools, are sampled in
 * turn and are related to each other.  Everything goes through the public API,
 * over explicit page tables, so that the same pool serves permuted and
 * contiguous ones.  Failures are bench_die()'s.
 */
#ifndef PAGED_BENCH_KV_SCENE_H
#define PAGED_BENCH_KV_SCENE_H

#include <pagedclient.h>

#include "kernels/kernels.h"

#include "bench/limits.h"
#include "bench/bench.h"
#include "bench/torch.h"

#define KV_ROW_KINDS 3
#define KV_MAX_POOLS 5

/** Rows of a batch that are alike. */
struct kv_rows {
	uint32_t n, q_len, kv_len;
};

enum kv_work {
	KV_ATTEND,
	KV_APPEND,
	KV_READ,   /* the batch's pages, as fast as they can be read */
	KV_COPY,   /* as many bytes as are appended, to where they are appended */
	KV_GATHER, /* what was appended, into tensors */
	KV_PAGES,  /* the first row's pages into the second's */
	KV_PEAK,   /* as many operations, on registers alone */
	KV_ROOF,   /* KV_READ or KV_PEAK of the unit that the dtype allows, whichever takes longer */
	KV_TORCH,  /* PyTorch's best on contiguous K and V */
};

/** What is measured, as it is written down. */
struct kv_case {
	const char *group;
	const char *name;
	enum kv_work work;
	struct kv_rows rows[KV_ROW_KINDS];
	uint32_t q_heads, kv_heads; /* 0: 32 and 8 */
	uint32_t page_size;         /* 0: 16 */
	bool contiguous;            /* pages in their order, not permuted */
	bool latent;                /* MLA: one head of 576, its first 512 are V */
	enum paged_dtype dtype;     /* of the pool; 0: bf16 */
	enum paged_dtype from;      /* of tensors that are appended; 0: bf16 */
	const char *mask, *score;   /* besides causal; of the names window, doc, heads and cap */
	uint32_t window;
	bool more;     /* left out unless asked for */
	bool by_block; /* nanoseconds for each block of 128 tokens and query rows that is seen */
	bool rotary;
	bool out;     /* KV_COPY: from there into one place */
	bool between; /* KV_COPY: as KV_PAGES does */
	struct bench_relation relations[BENCH_MAX_RELATIONS];
};

/** Rows in braces: of each kind how many, query rows, tokens. */
#define KV_ROWS(...)        \
	{                   \
		__VA_ARGS__ \
	}

/** Query heads, KV heads and page sizes of FlashInfer-Bench's gqa_paged_*_d128. */
#define KV_GQA_PAGES(shape, q, kv) shape(q, kv, 1), shape(q, kv, 64)
#define KV_GQA_HEADS(shape, q) KV_GQA_PAGES(shape, q, 8), KV_GQA_PAGES(shape, q, 4), KV_GQA_PAGES(shape, q, 2)
#define KV_GQA_SHAPES(shape) \
	KV_GQA_HEADS(shape, 32), KV_GQA_HEADS(shape, 16), KV_GQA_HEADS(shape, 24), KV_GQA_HEADS(shape, 48)

/** kv_suite_run - of the report's suite, all groups that have ratios of the kind asked for */
void kv_suite_run(struct bench_report *report);

/** kv_suite_list - a line for each figure, and what it is related to */
void kv_suite_list(const struct bench_suite *suite);

/* Below: for kv_suite.c and its scenes. */

/** What a group's figures are measured at. */
struct kv_scale {
	bool quick;
	uint32_t divisor; /* of tokens, where memory is short; 1: as written */
	unsigned int n_threads;
};

struct kv_shape {
	uint32_t q_heads, kv_heads, k_dim, v_dim;
};

struct kv_pool {
	const struct kv_case *like; /* the first figure that wanted it */
	char name[32];
	struct paged_pool *pool;
	struct paged_pool_info info;
	uint32_t n_pages;
	uint32_t *permuted;
};

struct kv_world {
	struct kv_scale scale;
	struct paged_client *client;
	struct kv_pool pools[KV_MAX_POOLS];
	size_t n_pools;
};

struct kv_scene {
	const struct kv_case *figure;
	const struct kv_world *world;
	const struct kv_pool *pool;
	struct kv_shape shape;
	uint32_t n_rows, total_q, n_pages;
	struct paged_batch_row *rows;
	uint32_t *pages;
	struct paged_batch *batch;
	struct paged_tensor q, out, k, v;
	struct paged_attention_params attention;
	struct paged_append_params append;
	struct paged_rotary rotary;
	float *cos_sin;
	struct paged_mod *mask, *score;
	int32_t *documents;
	double n_blocks; /* seen, with by_block */
	struct limit_read read;
	enum limit_unit unit; /* of the peak */
	struct limit_copy copy;
	struct limit_copy_piece *pieces;
	struct layout layout; /* of KV_PAGES; so is the team */
	struct kernel_team *team;
	struct torch_case torch;
	const char *skipped; /* why it cannot be sampled; NULL: it can */
	size_t n_repeats;    /* of the work, a sample */
	double bytes, flops;
};

struct kv_rows kv_figure_rows(const struct kv_case *figure, size_t kind, const struct kv_scale *scale);
struct kv_shape kv_figure_shape(const struct kv_case *figure, bool quick);

uint32_t kv_figure_page_size(const struct kv_case *figure);
enum paged_dtype kv_figure_dtype(const struct kv_case *figure);
uint32_t kv_figure_pages(const struct kv_case *figure, const struct kv_scale *scale);

/** kv_must - ends the program with the client's sentence unless status is PAGED_OK */
void kv_must(const struct kv_world *world, enum paged_status status);

/** kv_fill - moderate numbers of either sign, the same in every run */
void kv_fill(void *memory, size_t size, enum paged_dtype dtype);

/** kv_world_open - pools for all of these figures, none if no figure is of our making */
void kv_world_open(struct kv_world *world, const struct kv_case *const *figures, size_t n,
		   const struct kv_scale *scale);
void kv_world_close(struct kv_world *world);

/** kv_world_pool - a figure's; NULL: it has none */
const struct kv_pool *kv_world_pool(const struct kv_world *world, const struct kv_case *figure);

/** kv_scene_open - ready to be sampled: planned, tuned, tried and looked at */
void kv_scene_open(struct kv_scene *scene, const struct kv_world *world, const struct kv_case *figure);
void kv_scene_close(struct kv_scene *scene);

/** kv_scene_sample - microseconds of its work, or with by_block nanoseconds a block (for rounds.h) */
double kv_scene_sample(const void *scene);

/** kv_scene_copy - the limit of what writes pages, reads them, or both */
void kv_scene_copy(struct kv_scene *scene);

/** kv_scene_pages - ready for kv_scene_copy_pages(): the first row's pages into the second's */
void kv_scene_pages(struct kv_scene *scene);
void kv_scene_copy_pages(const struct kv_scene *scene);

/** kv_scene_mods - what its figure says of masks and scores, bound; and how many blocks are seen */
void kv_scene_mods(struct kv_scene *scene);

#endif
