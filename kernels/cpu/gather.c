/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/int_math.h"
#include "kernels/cpu/schedule/team.h"
#include "kernels/cpu/tensor.h"

/* Tokens per unit; number of bytes below which waking the team costs more than it saves. */
#define UNIT_TOKENS 16u
#define ALONE_BYTES (512u << 10)

struct gather_job {
	const struct gather_args *args;
	const struct kernel_tile_ops *ops;
	const struct copy_ops *copy_ops;
	bool stream[2]; /* of K and V: use non-temporal stores */
};

/* Position in the rows: `unit` and `packed` are the row's first unit and its first token in the tensors. */
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

/* Tokens that are contiguous in a page and in the tensors. */
struct gather_run {
	uint32_t page;
	uint32_t slot;
	uint32_t n;
	uint64_t packed;
};

static const uint8_t *
run_at(const struct gather_job *job, unsigned int plane, const struct gather_run *run, uint32_t head)
{
	const struct kernel_pages *pages = &job->args->pages;

	return pages->base + layout_offset(pages->layout, plane, pages->layer, run->page, head, run->slot);
}

/* Scale of the elements of token i. */
static float
token_scale(const struct gather_job *job, unsigned int plane, const struct gather_run *run, uint32_t head, uint32_t i)
{
	const struct gather_args *args = job->args;
	const struct layout_params *params = &args->pages.layout->params;
	const float *scales = plane == LAYOUT_K || params->v_in_k ? args->k_scale : args->v_scale;
	float scale;

	if (params->dtype != PAGED_I8)
		return scales != NULL ? scales[head] : 1;
	plane = plane == LAYOUT_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	memcpy(&scale, run_at(job, plane, run, head) + i * sizeof(scale), sizeof(scale));
	return scale;
}

/* Converts one head of a run to the tensor's dtype. */
static void
head_convert(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
	     const struct gather_run *run, uint32_t head)
{
	const struct layout_plane *from = &job->args->pages.layout->plane[plane];
	_Alignas(COPY_CACHE_LINE) float wide[PAGED_MAX_DIM];

	for (uint32_t i = 0; i < run->n; i++) {
		job->ops->widen(wide, run_at(job, plane, run, head) + i * from->token_stride, from->dtype, to->dim);
		job->ops->narrow(tensor_at(to, run->packed + i, head), to->dtype, wide,
				 token_scale(job, plane, run, head, i), to->dim);
	}
}

/*
 * Copies a run head by head, because a head's tokens are contiguous in a page; copies a single token's
 * heads at once.
 */
static void
run_move(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to, const struct gather_run *run)
{
	const struct layout_plane *from = &job->args->pages.layout->plane[plane];
	bool single = run->n == 1;
	struct strided_copy copy = {
		.to_stride = single ? to->head_stride : to->token_stride,
		.from_stride = (int64_t)(single ? from->head_stride : from->token_stride),
		.n = single ? to->n_heads : run->n,
		.size = (size_t)to->dim * paged_dtype_size(to->dtype),
	};

	for (uint32_t head = 0; head < (single ? 1 : to->n_heads); head++) {
		copy.to = tensor_at(to, run->packed, head);
		copy.from = run_at(job, plane, run, head);
		if (job->stream[plane])
			job->copy_ops->copy_stream(&copy);
		else
			job->copy_ops->copy(&copy);
	}
}

static void
run_gather(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
	   const struct gather_run *run)
{
	if (job->args->pages.layout->plane[plane].dtype == to->dtype)
		run_move(job, plane, to, run);
	else
		for (uint32_t head = 0; head < to->n_heads; head++)
			head_convert(job, plane, to, run, head);
}

static void
unit_gather(const struct gather_job *job, const struct gather_cursor *cursor, uint32_t first)
{
	const struct gather_args *args = job->args;
	const struct kernel_row *row = &args->rows[cursor->row];
	uint32_t page_size = args->pages.layout->params.page_size, begin = row_begin(args, cursor->row);
	uint32_t n = row_tokens(args, cursor->row);
	uint32_t end = n - first < UNIT_TOKENS ? n : first + UNIT_TOKENS;
	struct gather_run run;

	for (uint32_t i = first; i < end; i += run.n) {
		run.page = row->pages[(begin + i) / page_size];
		run.slot = (begin + i) % page_size;
		run.n = page_size - run.slot < end - i ? page_size - run.slot : end - i;
		run.packed = cursor->packed + i;
		assert(run.page < args->pages.layout->params.n_pages);
		if (args->k.data != NULL)
			run_gather(job, LAYOUT_K, &args->k, &run);
		if (args->v.data != NULL)
			run_gather(job, LAYOUT_V, &args->v, &run);
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
		unit = team_next_item(team);
		if (!cursor_find(&cursor, unit, job->args))
			break;
		unit_gather(job, &cursor, (uint32_t)(unit - cursor.unit) * UNIT_TOKENS);
	}
	copy_fence();
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
		       (uint64_t)to->batch_skip | (uint64_t)to->dim * paged_dtype_size(to->dtype);

	return to->data != NULL && all % COPY_CACHE_LINE == 0;
}

void
kernel_gather(struct kernel_team *team, const struct gather_args *args)
{
	struct gather_job job = { .args = args, .ops = team_ops(team), .copy_ops = team_ops(team)->copy_ops };
	uint64_t bytes = 0;

	for (uint32_t r = 0; r < args->n_rows; r++) {
		assert(row_begin(args, r) <= row_begin(args, r) + row_tokens(args, r));
		assert(row_begin(args, r) + row_tokens(args, r) <= args->rows[r].kv_len);
		bytes += row_tokens(args, r) * (token_bytes(&args->k) + token_bytes(&args->v));
	}
	if (bytes > COPY_STREAM_BYTES) {
		job.stream[LAYOUT_K] = may_stream(&args->k);
		job.stream[LAYOUT_V] = may_stream(&args->v);
	}
	team_run(team, bytes < ALONE_BYTES, gather_work, &job);
}
