/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_copy_pages(): copies the first tokens of pages, in all layers and planes. */
#include <assert.h>

#include "kernels/cpu/append_ops.h"
#include "kernels/cpu/schedule/team.h"

#define SINGLE_THREAD_BYTES (512u << 10)

struct copy_job {
	const struct copy_args *args;
	const struct copy_ops *copy_ops;
	bool stream;
};

static uint32_t
copy_side_page(const struct copy_side *side, uint32_t i)
{
	return side->pages != NULL ? side->pages[i] : i;
}

static uint8_t *
copy_side_address(const struct copy_side *side, unsigned int plane, uint32_t layer, uint32_t i)
{
	return side->base + layout_offset(side->layout, plane, layer, copy_side_page(side, i), 0, 0);
}

/* Copies whole cache lines with non-temporal stores, and the rest with normal stores. */
static void
copy_stream_heads(const struct copy_job *job, struct strided_copy copy)
{
	size_t left = copy.size % COPY_CACHE_LINE;

	copy.size -= left;
	job->copy_ops->copy_stream(&copy);
	if (left == 0)
		return;
	copy.to += copy.size;
	copy.from += copy.size;
	copy.size = left;
	job->copy_ops->copy(&copy);
}

static void
copy_plane(const struct copy_job *job, unsigned int plane, uint32_t layer, uint32_t i)
{
	const struct copy_args *args = job->args;
	const struct layout_plane *from = &args->from.layout->plane[plane], *to = &args->to.layout->plane[plane];
	uint32_t n_tokens = args->n_tokens != NULL ? args->n_tokens[i] : args->from.layout->params.page_size;
	const struct strided_copy copy = {
		.to = copy_side_address(&args->to, plane, layer, i),
		.from = copy_side_address(&args->from, plane, layer, i),
		.to_stride = (int64_t)to->head_stride,
		.from_stride = (int64_t)from->head_stride,
		.n = args->from.layout->params.n_kv_heads,
		.size = n_tokens * from->token_stride,
	};

	assert(n_tokens <= args->from.layout->params.page_size);
	if (job->stream)
		copy_stream_heads(job, copy);
	else
		job->copy_ops->copy(&copy);
}

static bool
copy_has_plane(const struct layout *layout, unsigned int plane)
{
	if (layout->params.v_in_k && (plane == LAYOUT_V || plane == LAYOUT_V_SCALE))
		return false;
	return layout->plane[plane].dtype != PAGED_DTYPE_NONE;
}

/* A work item is one layer of one page. */
static void
copy_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct copy_job *job = context;
	const struct copy_args *args = job->args;
	uint32_t n_layers = args->from.layout->params.n_layers;
	uint64_t item;

	(void)scratch;
	while ((item = kernel_team_next_item(team)) < (uint64_t)args->n * n_layers)
		for (unsigned int plane = 0; plane < LAYOUT_N_PLANES; plane++)
			if (copy_has_plane(args->from.layout, plane))
				copy_plane(job, plane, (uint32_t)(item % n_layers), (uint32_t)(item / n_layers));
	copy_fence();
}

/* True if heads begin on a cache line.  Tokens need not: a head's tokens are contiguous. */
static bool
copy_may_stream(const struct copy_side *to)
{
	uint64_t all = (uintptr_t)to->base;

	for (unsigned int plane = 0; plane < LAYOUT_N_PLANES; plane++) {
		const struct layout_plane *p = &to->layout->plane[plane];

		if (copy_has_plane(to->layout, plane))
			all |= p->offset | p->layer_stride | p->page_stride | p->head_stride;
	}
	return all % COPY_CACHE_LINE == 0;
}

void
kernel_copy_pages(struct kernel_team *team, const struct copy_args *args)
{
	struct copy_job job = { .args = args, .copy_ops = kernel_team_ops(team)->copy_ops };
	const struct layout_params *from = &args->from.layout->params, *to = &args->to.layout->params;
	uint64_t bytes = args->n * args->from.layout->page_bytes;

	assert(from->n_layers == to->n_layers && from->n_kv_heads == to->n_kv_heads && from->k_dim == to->k_dim &&
	       from->v_dim == to->v_dim && from->v_in_k == to->v_in_k && from->dtype == to->dtype &&
	       from->page_size == to->page_size);
	for (uint32_t i = 0; i < args->n; i++)
		assert(copy_side_page(&args->from, i) < from->n_pages && copy_side_page(&args->to, i) < to->n_pages);
	job.stream = bytes > COPY_STREAM_BYTES && copy_may_stream(&args->to);
	kernel_team_run(team, bytes < SINGLE_THREAD_BYTES, copy_work, &job);
}
