/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/pieces.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/team.h"

/* Tokens in a unit, and bytes below which waking the team costs more than copying. */
#define UNIT_TOKENS 16u
#define ALONE_BYTES (512u << 10)

struct gather_job {
	const struct gather_args *args;
	const struct kernel_tile_ops *ops;
	const struct pieces_ops *pieces;
	bool stream[2]; /* K and V: past the cache */
};

/* Walks the rows as units come: numbers of a row's first unit and of its first token in the tensors. */
struct gather_cursor {
	uint32_t row;
	uint64_t unit;
	uint64_t packed;
};

static uint32_t
row_begin(const struct gather_args *args, uint32_t r)
{
	return args->begin != NULL ? args->begin[r] : 0;
}

static uint32_t
row_tokens(const struct gather_args *args, uint32_t r)
{
	return (args->end != NULL ? args->end[r] : args->rows[r].kv_len) - row_begin(args, r);
}

static bool
cursor_find(struct gather_cursor *cursor, uint64_t unit, const struct gather_args *args)
{
	for (; cursor->row < args->n_rows; cursor->row++) {
		uint32_t n = row_tokens(args, cursor->row);

		if (unit - cursor->unit < rows_divide_up(n, UNIT_TOKENS))
			return true;
		cursor->unit += rows_divide_up(n, UNIT_TOKENS);
		cursor->packed += n;
	}
	return false;
}

/* A token in its page, and in the tensors. */
struct gather_token {
	uint32_t page;
	uint32_t slot;
	uint64_t packed;
};

static const uint8_t *
token_at(const struct gather_job *job, unsigned int plane, const struct gather_token *token, uint32_t head)
{
	const struct kernel_pages *pages = &job->args->pages;

	return pages->base + layout_offset(pages->layout, plane, pages->layer, token->page, head, token->slot);
}

/* What a head's elements are multiplied by. */
static float
head_scale(const struct gather_job *job, unsigned int plane, const struct gather_token *token, uint32_t head)
{
	const struct gather_args *args = job->args;
	const struct layout_params *params = &args->pages.layout->params;
	const float *scales = plane == LAYOUT_K || params->v_in_k ? args->k_scale : args->v_scale;
	float scale;

	if (params->dtype != PAGED_I8)
		return scales != NULL ? scales[head] : 1;
	plane = plane == LAYOUT_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	memcpy(&scale, token_at(job, plane, token, head), sizeof(scale));
	return scale;
}

/* Heads that the tensor wants otherwise than the pool has them. */
static void
heads_convert(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
	      const struct gather_token *token)
{
	enum paged_dtype dtype = job->args->pages.layout->plane[plane].dtype;
	_Alignas(PIECES_LINE) float wide[PAGED_MAX_DIM];

	for (uint32_t head = 0; head < to->n_heads; head++) {
		job->ops->widen(wide, token_at(job, plane, token, head), dtype, to->dim);
		job->ops->narrow(tensor_at(to, token->packed, head), to->dtype, wide,
				 head_scale(job, plane, token, head), to->dim);
	}
}

static void
plane_gather(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
	     const struct gather_token *token)
{
	const struct layout_plane *from = &job->args->pages.layout->plane[plane];
	const struct pieces pieces = {
		.to = tensor_at(to, token->packed, 0),
		.from = token_at(job, plane, token, 0),
		.to_stride = to->head_stride,
		.from_stride = (int64_t)from->head_stride,
		.n = to->n_heads,
		.size = (size_t)to->dim * paged_dtype_size(to->dtype),
	};

	if (from->dtype != to->dtype)
		heads_convert(job, plane, to, token);
	else if (job->stream[plane])
		job->pieces->stream(&pieces);
	else
		job->pieces->copy(&pieces);
}

static void
unit_gather(const struct gather_job *job, const struct gather_cursor *cursor, uint32_t first)
{
	const struct gather_args *args = job->args;
	const struct kernel_row *row = &args->rows[cursor->row];
	uint32_t page_size = args->pages.layout->params.page_size, begin = row_begin(args, cursor->row);
	uint32_t n = row_tokens(args, cursor->row);
	uint32_t end = n - first < UNIT_TOKENS ? n : first + UNIT_TOKENS;

	for (uint32_t i = first; i < end; i++) {
		const struct gather_token token = { .page = row->pages[(begin + i) / page_size],
						    .slot = (begin + i) % page_size,
						    .packed = cursor->packed + i };

		assert(token.page < args->pages.layout->params.n_pages);
		if (args->k.data != NULL)
			plane_gather(job, LAYOUT_K, &args->k, &token);
		if (args->v.data != NULL)
			plane_gather(job, LAYOUT_V, &args->v, &token);
	}
}

static void
gather_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct gather_job *job = context;
	struct gather_cursor cursor = { 0 };
	uint64_t unit;

	(void)scratch;
	for (;;) {
		unit = team_take(team);
		if (!cursor_find(&cursor, unit, job->args))
			break;
		unit_gather(job, &cursor, (uint32_t)(unit - cursor.unit) * UNIT_TOKENS);
	}
	pieces_fence();
}

static uint64_t
token_bytes(const struct kernel_tensor *tensor)
{
	return tensor->data == NULL ? 0 : (uint64_t)tensor->n_heads * tensor->dim * paged_dtype_size(tensor->dtype);
}

static bool
may_stream(const struct kernel_tensor *to)
{
	uint64_t all = (uintptr_t)to->data | (uint64_t)to->token_stride | (uint64_t)to->head_stride |
		       (uint64_t)to->dim * paged_dtype_size(to->dtype);

	return to->data != NULL && all % PIECES_LINE == 0;
}

void
kernel_gather(struct kernel_team *team, const struct gather_args *args)
{
	struct gather_job job = { .args = args, .ops = team_ops(team), .pieces = pieces_ops(team_isa(team)) };
	uint64_t bytes = 0;

	for (uint32_t r = 0; r < args->n_rows; r++) {
		assert(row_begin(args, r) <= row_begin(args, r) + row_tokens(args, r));
		assert(row_begin(args, r) + row_tokens(args, r) <= args->rows[r].kv_len);
		bytes += row_tokens(args, r) * (token_bytes(&args->k) + token_bytes(&args->v));
	}
	if (bytes > PIECES_CACHED) {
		job.stream[LAYOUT_K] = may_stream(&args->k);
		job.stream[LAYOUT_V] = may_stream(&args->v);
	}
	if (bytes < ALONE_BYTES)
		team_run_alone(team, gather_work, &job);
	else
		team_run(team, gather_work, &job);
}
