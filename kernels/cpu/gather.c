/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_gather(): copies tokens of sequences from pages to packed tensors, converted to the tensors' dtype. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/append_ops.h"
#include "kernels/cpu/int_math.h"
#include "kernels/cpu/schedule/team.h"
#include "kernels/cpu/tensor.h"

/* Tokens per work item; number of bytes below which waking the team costs more than it saves. */
#define ITEM_TOKENS 16u
#define SINGLE_THREAD_BYTES (512u << 10)

struct gather_job {
	const struct gather_args *args;
	const struct kernel_tile_ops *ops;
	const struct copy_ops *copy_ops;
	bool stream[2]; /* of K and V: use non-temporal stores */
};

/* Position in the rows: `item` and `packed` are the row's first work item and its first token in the tensors. */
struct gather_cursor {
	uint32_t row;
	uint64_t item;
	uint64_t packed;
};

static uint32_t
gather_row_begin(const struct gather_args *args, uint32_t r)
{
	return args->begin != NULL ? args->begin[r] : args->rows[r].kv_first;
}

static uint32_t
gather_row_tokens(const struct gather_args *args, uint32_t r)
{
	return (args->end != NULL ? args->end[r] : args->rows[r].kv_len) - gather_row_begin(args, r);
}

static bool
gather_cursor_find(struct gather_cursor *cursor, uint64_t item, const struct gather_args *args)
{
	for (; cursor->row < args->n_rows; cursor->row++) {
		uint32_t n = gather_row_tokens(args, cursor->row);

		if (item - cursor->item < div_round_up(n, ITEM_TOKENS))
			return true;
		cursor->item += div_round_up(n, ITEM_TOKENS);
		cursor->packed += n;
	}
	return false;
}

/* Tokens that are contiguous in a page and in the tensors. */
struct gather_span {
	uint32_t page;
	uint32_t slot;
	uint32_t n;
	uint64_t packed;
};

static const uint8_t *
gather_address(const struct gather_job *job, unsigned int plane, const struct gather_span *span, uint32_t head)
{
	const struct kernel_pages *pages = &job->args->pages;

	return pages->base + layout_offset(pages->layout, plane, pages->layer, span->page, head, span->slot);
}

/* Scale of the elements of token i. */
static float
gather_token_scale(const struct gather_job *job, unsigned int plane, const struct gather_span *span, uint32_t head,
		   uint32_t i)
{
	const struct gather_args *args = job->args;
	const struct layout_params *params = &args->pages.layout->params;
	const float *scales = plane == LAYOUT_K || params->v_in_k ? args->k_scale : args->v_scale;
	float scale;

	if (params->dtype != PAGED_I8)
		return scales != NULL ? scales[head] : 1;
	plane = plane == LAYOUT_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	memcpy(&scale, gather_address(job, plane, span, head) + i * sizeof(scale), sizeof(scale));
	return scale;
}

/* Converts one head of a run to the tensor's dtype. */
static void
gather_convert_head(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
		    const struct gather_span *span, uint32_t head)
{
	const struct layout_plane *from = &job->args->pages.layout->plane[plane];
	_Alignas(COPY_CACHE_LINE) float wide[PAGED_MAX_DIM];

	for (uint32_t i = 0; i < span->n; i++) {
		job->ops->widen(wide, gather_address(job, plane, span, head) + i * from->token_stride, from->dtype,
				to->dim);
		job->ops->narrow(tensor_at(to, span->packed + i, head), to->dtype, wide,
				 gather_token_scale(job, plane, span, head, i), to->dim);
	}
}

/*
 * Copies a run head by head, because a head's tokens are contiguous in a page; copies a single token's
 * heads at once.
 */
static void
gather_copy_span(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
		 const struct gather_span *span)
{
	const struct layout_plane *from = &job->args->pages.layout->plane[plane];
	bool single = span->n == 1;
	struct strided_copy copy = {
		.to_stride = single ? to->head_stride : to->token_stride,
		.from_stride = (int64_t)(single ? from->head_stride : from->token_stride),
		.n = single ? to->n_heads : span->n,
		.size = (size_t)to->dim * paged_dtype_size(to->dtype),
	};

	for (uint32_t head = 0; head < (single ? 1 : to->n_heads); head++) {
		copy.to = tensor_at(to, span->packed, head);
		copy.from = gather_address(job, plane, span, head);
		if (job->stream[plane])
			job->copy_ops->copy_stream(&copy);
		else
			job->copy_ops->copy(&copy);
	}
}

static void
gather_plane(const struct gather_job *job, unsigned int plane, const struct kernel_tensor *to,
	     const struct gather_span *span)
{
	if (job->args->pages.layout->plane[plane].dtype == to->dtype)
		gather_copy_span(job, plane, to, span);
	else
		for (uint32_t head = 0; head < to->n_heads; head++)
			gather_convert_head(job, plane, to, span, head);
}

static void
gather_item(const struct gather_job *job, const struct gather_cursor *cursor, uint32_t first)
{
	const struct gather_args *args = job->args;
	const struct kernel_row *row = &args->rows[cursor->row];
	uint32_t page_size = args->pages.layout->params.page_size, begin = gather_row_begin(args, cursor->row);
	uint32_t n = gather_row_tokens(args, cursor->row);
	uint32_t end = n - first < ITEM_TOKENS ? n : first + ITEM_TOKENS;
	struct gather_span span;

	for (uint32_t i = first; i < end; i += span.n) {
		span.page = row->pages[(begin + i) / page_size];
		span.slot = (begin + i) % page_size;
		span.n = page_size - span.slot < end - i ? page_size - span.slot : end - i;
		span.packed = cursor->packed + i;
		assert(span.page < args->pages.layout->params.n_pages);
		if (args->k.data != NULL)
			gather_plane(job, LAYOUT_K, &args->k, &span);
		if (args->v.data != NULL)
			gather_plane(job, LAYOUT_V, &args->v, &span);
	}
}

static void
gather_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct gather_job *job = context;
	struct gather_cursor cursor = { 0 };
	uint64_t item;

	(void)scratch;
	for (;;) {
		item = kernel_team_next_item(team);
		if (!gather_cursor_find(&cursor, item, job->args))
			break;
		gather_item(job, &cursor, (uint32_t)(item - cursor.item) * ITEM_TOKENS);
	}
	copy_fence();
}

static uint64_t
gather_token_bytes(const struct kernel_tensor *tensor)
{
	return tensor->data == NULL ? 0 : (uint64_t)tensor->n_heads * tensor->dim * paged_dtype_size(tensor->dtype);
}

static bool
gather_may_stream(const struct kernel_tensor *to)
{
	uint64_t all = (uintptr_t)to->data | (uint64_t)to->token_stride | (uint64_t)to->head_stride |
		       (uint64_t)to->batch_skip | (uint64_t)to->dim * paged_dtype_size(to->dtype);

	return to->data != NULL && all % COPY_CACHE_LINE == 0;
}

void
kernel_gather(struct kernel_team *team, const struct gather_args *args)
{
	struct gather_job job = { .args = args,
				  .ops = kernel_team_ops(team),
				  .copy_ops = kernel_team_ops(team)->copy_ops };
	uint64_t bytes = 0;

	for (uint32_t r = 0; r < args->n_rows; r++) {
		assert(gather_row_begin(args, r) <= gather_row_begin(args, r) + gather_row_tokens(args, r));
		assert(gather_row_begin(args, r) + gather_row_tokens(args, r) <= args->rows[r].kv_len);
		assert(gather_row_tokens(args, r) == 0 || gather_row_begin(args, r) >= args->rows[r].kv_first);
		bytes += gather_row_tokens(args, r) * (gather_token_bytes(&args->k) + gather_token_bytes(&args->v));
	}
	if (bytes > COPY_STREAM_BYTES) {
		job.stream[LAYOUT_K] = gather_may_stream(&args->k);
		job.stream[LAYOUT_V] = gather_may_stream(&args->v);
	}
	kernel_team_run(team, bytes < SINGLE_THREAD_BYTES, gather_work, &job);
}
