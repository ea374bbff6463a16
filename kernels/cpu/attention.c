/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_attention(): threads take work items (schedule.h); for each item a thread walks the KV chunks
 * that its q_rows see, tile by tile.  The softmax state of a chunk is combined into the item's state.
 * If a row is split (split-KV), an item is a single chunk: its state is stored in the workspace, and a
 * second kernel_team_run() combines the states.  Both ways perform the same operations in the same order for
 * every q_row.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/combine.h"
#include "kernels/cpu/decode/decode.h"
#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/prefill/prefill.h"
#include "kernels/cpu/q_rows.h"
#include "kernels/cpu/schedule/schedule.h"
#include "kernels/cpu/schedule/team.h"
#include "kernels/cpu/tile_mask.h"

/* Number of products below which waking the team costs more than it saves. */
#define SINGLE_THREAD_PRODUCTS (256u << 10)
/* Prefill rows are divided into at least this many items per thread, if they can be. */
#define PREFILL_ITEMS_PER_THREAD 4u
/* With this many items per thread, a thread may take its next item before it finishes the current one. */
#define PREFETCH_ITEMS_PER_THREAD 8u

/* Processes the tiles of one chunk for an item; returns the first tile after the chunk. */
static struct kv_tile
attention_chunk(const struct attention_job *job, const struct work_item *item, struct kv_tile tile,
		const struct work_item *next_item, struct team_scratch *scratch)
{
	const uint64_t begin = tile.begin / KERNEL_KV_CHUNK * KERNEL_KV_CHUNK;
	const uint64_t end = min_u64(begin + KERNEL_KV_CHUNK, item->kv_end);

	if (item->prefill && job->pipelined) {
		prefill_chunk(job, item, begin, end, tile.chunk, scratch);
		tile.begin = begin + KERNEL_KV_CHUNK;
		return tile_mask_next(job, &item->q, scratch, item->kv_end, tile);
	}
	combine_chunk_begin(job, item, scratch);
	while (tile.begin < end) {
		struct kv_tile after = tile;
		struct next_tile next = { .item = item };

		after.begin += TILE_TOKENS;
		next.tile = after = tile_mask_next(job, &item->q, scratch, item->kv_end, after);
		if (after.begin >= item->kv_end && next_item != NULL)
			next = (struct next_tile){ .item = next_item, .tile = next_item->first };
		if (item->prefill)
			prefill_tile(job, item, &tile, &next, scratch);
		else
			decode_tile(job, item, &tile, &next, scratch);
		tile = after;
	}
	combine_chunk_end(job, item, scratch);
	return tile;
}

/* `next`: the item that this thread will process next, or NULL if unknown. */
static void
attention_item(const struct attention_job *job, const struct work_item *item, const struct work_item *next,
	       struct team_scratch *scratch)
{
	struct kv_tile tile = item->first;

	scratch->next_begin = UINT64_MAX;
	if (item->prefill)
		prefill_queries(job, item, scratch);
	else
		decode_queries(job, item, scratch);
	if (job->args->mod_set != NULL && !(item->prefill && job->pipelined))
		tile_mask_begin(job, &item->q, scratch);
	combine_item_begin(job, item, scratch);
	while (tile.begin < item->kv_end)
		tile = attention_chunk(job, item, tile, next, scratch);
	combine_item_end(job, item, scratch);
}

static bool
attention_next_item(struct kernel_team *team, const struct attention_job *job, struct schedule_cursor *cursor,
		    const struct team_scratch *scratch, struct work_item *item)
{
	uint64_t number = kernel_team_next_item(team);

	if (!schedule_find(job, cursor, number))
		return false;
	*item = schedule_item(job, cursor, number);
	item->first = tile_mask_next(job, &item->q, scratch, item->kv_end, (struct kv_tile){ .begin = item->kv_begin });
	return true;
}

static void
attention_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct schedule_cursor cursor = schedule_begin(job, SCHEDULE_ITEMS);
	struct work_item items[2];
	bool more = attention_next_item(team, job, &cursor, scratch, &items[0]);

	if (job->ops->begin != NULL)
		job->ops->begin();
	for (uint32_t i = 0; more; i ^= 1) {
		const struct work_item *next = NULL;

		if (job->prefetch_items) {
			more = attention_next_item(team, job, &cursor, scratch, &items[i ^ 1]);
			next = more ? &items[i ^ 1] : NULL;
		}
		attention_item(job, &items[i], next, scratch);
		if (!job->prefetch_items)
			more = attention_next_item(team, job, &cursor, scratch, &items[i ^ 1]);
	}
	if (job->ops->end != NULL)
		job->ops->end();
}

static void
attention_combine_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct schedule_cursor cursor = schedule_begin(job, SCHEDULE_COMBINES);
	uint64_t number;

	while (schedule_find(job, &cursor, number = kernel_team_next_item(team))) {
		const struct work_item item = schedule_item(job, &cursor, number);
		uint32_t q_tile = (uint32_t)((number - cursor.first) % cursor.is.n_q_tiles);

		if (q_tile < q_tile_count(job, &item)) /* the row's last item may have fewer query tiles */
			combine_workspace(job, &item, q_tile, cursor.is.n_chunks, scratch);
	}
}

/* Upper limit of the number of multiply-adds (queries with keys, weights with values): ignores causality and masks. */
static uint64_t
count_products(const struct attention_job *job)
{
	const struct attention_args *args = job->args;
	uint64_t n = 0;

	for (uint32_t i = 0; i < args->n_rows; i++)
		n += (uint64_t)args->rows[i].q_len * (args->rows[i].kv_len - args->rows[i].kv_first);
	return n * args->q.n_heads * (job->k_padded + job->v_padded);
}

/* Number of items that prefill rows can be divided into. */
static uint64_t
count_prefill_items(const struct attention_job *job)
{
	const struct attention_args *args = job->args;
	uint64_t n = 0;

	for (uint32_t i = 0; i < args->n_rows; i++) {
		const uint64_t q_rows = (uint64_t)args->rows[i].q_len * job->group;

		if (q_rows >= job->prefill_q_rows)
			n += div_round_up(q_rows, job->item_q_rows) *
			     (div_round_up(args->rows[i].kv_len, KERNEL_KV_CHUNK) -
			      args->rows[i].kv_first / KERNEL_KV_CHUNK);
	}
	return n * args->pages.layout->params.n_kv_heads;
}

static uint32_t
attention_round_up(uint32_t n, uint32_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* True if bf16 represents every element exactly. */
static bool
dtype_fits_bf16(enum paged_dtype dtype)
{
	return dtype == PAGED_BF16 || paged_dtype_size(dtype) == 1;
}

/* Chooses the product functions for decode. */
static void
attention_choose_decode(struct attention_job *job)
{
	const struct layout_params *params = &job->args->pages.layout->params;
	const struct kernel_tile_ops *ops = job->ops;

	job->decode_scores = job->scores_bf16 ? ops->decode_bf16 : NULL;
	job->decode_values = job->values_bf16 ? ops->decode_bf16 : NULL;
	job->values = job->decode_values != NULL ? ops->decode_bf16->values : ops->values;
	job->values_seen = job->decode_values != NULL ? ops->decode_bf16->values_seen : ops->values_seen;
	job->k_padded = attention_round_up(params->k_dim,
					   job->decode_scores != NULL ? ops->decode_bf16->token_elements : ops->lanes);
	job->v_padded = attention_round_up(params->v_dim,
					   job->decode_values != NULL ? ops->decode_bf16->token_elements : ops->lanes);
}

/*
 * Chooses the product functions for prefill, and the size of its items.  The more q_rows share packed
 * tiles, the better, as long as every thread has enough items.
 */
static void
attention_choose_prefill(struct attention_job *job, uint32_t n_threads)
{
	const struct kernel_tile_ops *ops = job->ops;
	uint64_t n;

	job->prefill_scores = job->scores_bf16 && ops->prefill_bf16 != NULL ? ops->prefill_bf16 : ops->prefill_f32;
	job->prefill_values = job->values_bf16 && ops->prefill_bf16 != NULL ? ops->prefill_bf16 : ops->prefill_f32;
	job->prefill_q_rows = job->prefill_scores->prefill_q_rows > job->prefill_values->prefill_q_rows
				      ? job->prefill_scores->prefill_q_rows
				      : job->prefill_values->prefill_q_rows;
	job->pipelined = job->prefill_scores == job->prefill_values && job->prefill_scores->pipeline_step != NULL;
	job->packed_k = attention_round_up(job->args->pages.layout->params.k_dim,
					   ops->lanes * job->prefill_scores->word_elements);
	job->tile_q_rows = job->pipelined ? BLOCK_Q_ROWS : TILE_Q_ROWS;
	job->item_q_rows = job->pipelined ? ITEM_Q_ROWS : TILE_Q_ROWS;
	while (job->item_q_rows > TILE_Q_ROWS && (n = count_prefill_items(job)) != 0 &&
	       n < (uint64_t)PREFILL_ITEMS_PER_THREAD * n_threads)
		job->item_q_rows /= 2;
}

/* Asserts that indices fit the int32 of mods, and that the block mask has the plan's size. */
static void
attention_assert_mods(const struct kernel_team *team, const struct attention_args *args)
{
	const struct block_mask *blocks = args->mod_set->params.blocks;

	assert(args->mod_set->n_threads == kernel_team_n_threads(team));
	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];

		assert(row->q_len == 0 || (row->kv_len <= INT32_MAX && row->q_base >= INT32_MIN &&
					   row->q_base + (row->q_len - 1) <= INT32_MAX));
		(void)row;
	}
	assert(blocks == NULL || blocks->shape.n_rows == 1 || blocks->shape.n_rows == args->n_rows);
	assert(blocks == NULL || blocks->shape.n_heads == 1 || blocks->shape.n_heads == args->q.n_heads);
	(void)team;
	(void)blocks;
}

void
kernel_attention(struct kernel_team *team, const struct attention_args *args)
{
	const struct layout_params *params = &args->pages.layout->params;
	struct attention_job job = {
		.args = args,
		.ops = kernel_team_ops(team),
		.group = args->q.n_heads / params->n_kv_heads,
		.scores_bf16 = dtype_fits_bf16(params->dtype) && args->q.dtype == PAGED_BF16,
		.values_bf16 = dtype_fits_bf16(params->dtype) && args->out.dtype == PAGED_BF16,
		.workspace = kernel_team_workspace(team),
	};
	uint32_t n_threads = kernel_team_n_threads(team);

	assert(args->q.n_heads % params->n_kv_heads == 0 && args->q.dim == params->k_dim);
	assert(args->k_scale == NULL || params->dtype == PAGED_E4M3 || params->dtype == PAGED_E5M2);
	assert(args->v_scale == NULL || (params->dtype != PAGED_I8 && !params->v_in_k));
	if (args->mod_set != NULL)
		attention_assert_mods(team, args);
	assert(args->out.n_heads == args->q.n_heads && args->out.dim == params->v_dim);
	attention_choose_decode(&job);
	if (count_products(&job) < SINGLE_THREAD_PRODUCTS)
		n_threads = 1;
	attention_choose_prefill(&job, n_threads);
	schedule_make(&job, n_threads, job.v_padded + 2, KERNEL_TEAM_WORKSPACE);
	job.state_floats = job.schedule.max_q_rows * ((size_t)job.v_padded + 2);
	job.prefetch_items = job.schedule.n_items >= (uint64_t)PREFETCH_ITEMS_PER_THREAD * n_threads;
	kernel_team_run(team, n_threads == 1, attention_work, &job);
	if (job.schedule.n_combines != 0)
		kernel_team_run(team, false, attention_combine_work, &job);
}
