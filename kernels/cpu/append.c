/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_append(): stores new tokens in pages, converted, rotated and quantised as the pool requires. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/append_ops.h"
#include "kernels/cpu/int_math.h"
#include "kernels/cpu/row_cursor.h"
#include "kernels/cpu/schedule/team.h"
#include "kernels/cpu/tensor.h"

/* Tokens per work item; number of elements below which waking the team costs more than it saves. */
#define ITEM_TOKENS 16u
#define SINGLE_THREAD_ELEMENTS (256u << 10)

/* For a smaller maximum, 127 / maximum may overflow f32. */
#define SMALLEST_SCALED 0x1p-120f

/*
 * Several heads of a token are converted in a buffer of this size before they are streamed, so that
 * loads only read cache lines that are completely written.
 */
#define CONVERTED_BYTES 4096u
_Static_assert(CONVERTED_BYTES >= PAGED_MAX_DIM * sizeof(float), "a head fits");

struct append_job {
	const struct append_args *args;
	const struct kernel_tile_ops *ops;
	const struct copy_ops *copy_ops;
	bool stream[2]; /* of K and V: use non-temporal stores */
};

static bool
append_rotates_queries(const struct append_args *args)
{
	return args->rotary != NULL && args->rotary->q.data != NULL;
}

/* A row with skip_append still has work items if its queries must be rotated. */
static uint64_t
append_row_items(const void *context, const struct kernel_row *row)
{
	const struct append_args *args = context;

	return row->skip_append && !append_rotates_queries(args) ? 0 : div_round_up(row->q_len, ITEM_TOKENS);
}

/* Rotates one head of a token by the angles of its position. */
static void
append_rotate_head(const struct append_job *job, uint32_t position, float *wide)
{
	const struct kernel_rotary *rotary = job->args->rotary;
	const float *angles = rotary->cos_sin + (size_t)position * rotary->dim;

	job->copy_ops->rotary(wide + rotary->first, angles, rotary->dim / 2, rotary->interleaved);
}

/* Quantises one head of a token to i8; returns its scale. */
static float
append_quantise(const struct append_job *job, void *to, const float *wide, uint32_t n)
{
	uint32_t bits = job->copy_ops->absmax(wide, n);
	float absmax = convert_float(bits);

	if (bits >= 0x7f800000 || absmax < SMALLEST_SCALED) {
		memset(to, 0, n);
		return bits >= 0x7f800000 ? NAN : 0;
	}
	job->ops->narrow(to, PAGED_I8, wide, 127 / absmax, n);
	return absmax / 127;
}

/* Source and destination of a token. */
struct append_token {
	uint64_t packed;
	uint32_t page;
	uint32_t slot;
	uint32_t position; /* index into rotary->cos_sin */
};

static uint8_t *
append_address(const struct append_job *job, unsigned int plane, const struct append_token *token, uint32_t head)
{
	const struct kernel_pages *pages = &job->args->pages;

	return pages->base + layout_offset(pages->layout, plane, pages->layer, token->page, head, token->slot);
}

/* Converts one head of a token to the pool's dtype; for i8, also stores its scale in the scale plane. */
static void
append_convert_head(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from,
		    const struct append_token *token, uint32_t head, void *to)
{
	const struct append_args *args = job->args;
	const float *scales = plane == LAYOUT_K ? args->k_scale : args->v_scale;
	enum paged_dtype dtype = args->pages.layout->plane[plane].dtype;
	_Alignas(COPY_CACHE_LINE) float wide[PAGED_MAX_DIM];
	float scale;

	job->ops->widen(wide, tensor_at(from, token->packed, head), from->dtype, from->dim);
	if (plane == LAYOUT_K && args->rotary != NULL)
		append_rotate_head(job, token->position, wide);
	if (dtype != PAGED_I8) {
		job->ops->narrow(to, dtype, wide, scales != NULL ? 1 / scales[head] : 1, from->dim);
		return;
	}
	scale = append_quantise(job, to, wide, from->dim);
	plane = plane == LAYOUT_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	memcpy(append_address(job, plane, token, head), &scale, sizeof(scale));
}

/* Rotates or converts all heads of a token and stores them. */
static void
append_convert_heads(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from,
		     const struct append_token *token)
{
	const struct layout_plane *to = &job->args->pages.layout->plane[plane];
	_Alignas(COPY_CACHE_LINE) uint8_t converted[CONVERTED_BYTES];
	size_t size = (size_t)to->dim * paged_dtype_size(to->dtype);
	struct strided_copy copy = {
		.from = converted, .to_stride = (int64_t)to->head_stride, .from_stride = (int64_t)size, .size = size
	};

	for (uint32_t head = 0; head < from->n_heads; head += copy.n) {
		copy.n = 1;
		copy.to = append_address(job, plane, token, head);
		append_convert_head(job, plane, from, token, head, job->stream[plane] ? converted : copy.to);
		if (!job->stream[plane])
			continue;
		for (; head + copy.n < from->n_heads && (copy.n + 1) * size <= sizeof(converted); copy.n++)
			append_convert_head(job, plane, from, token, head + copy.n, converted + copy.n * size);
		job->copy_ops->copy_stream(&copy);
	}
}

static void
append_copy_heads(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from,
		  const struct append_token *token)
{
	const struct layout_plane *to = &job->args->pages.layout->plane[plane];
	struct strided_copy copy = {
		.to = append_address(job, plane, token, 0),
		.from = tensor_at(from, token->packed, 0),
		.to_stride = (int64_t)to->head_stride,
		.from_stride = from->head_stride,
		.n = from->n_heads,
		.size = (size_t)to->dim * paged_dtype_size(to->dtype),
	};

	if (job->stream[plane])
		job->copy_ops->copy_stream(&copy);
	else
		job->copy_ops->copy(&copy);
}

static void
append_plane(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from,
	     const struct append_token *token)
{
	bool rotated = plane == LAYOUT_K && job->args->rotary != NULL;

	if (rotated || from->dtype != job->args->pages.layout->plane[plane].dtype)
		append_convert_heads(job, plane, from, token);
	else
		append_copy_heads(job, plane, from, token);
}

static void
append_rotate_queries(const struct append_job *job, uint64_t packed, uint32_t position)
{
	const struct kernel_rotary *rotary = job->args->rotary;
	_Alignas(COPY_CACHE_LINE) float wide[PAGED_MAX_DIM];

	for (uint32_t head = 0; head < rotary->q.n_heads; head++) {
		job->ops->widen(wide, tensor_at(&rotary->q, packed, head), rotary->q.dtype, rotary->q.dim);
		append_rotate_head(job, position, wide);
		job->ops->narrow(tensor_at(&rotary->q_out, packed, head), rotary->q_out.dtype, wide, 1, rotary->q.dim);
	}
}

static uint32_t
append_rotary_position(const struct kernel_rotary *rotary, const struct kernel_row *row, uint32_t i)
{
	uint32_t position;

	if (rotary == NULL)
		return 0;
	position = rotary->positions != NULL ? rotary->positions[row->q_start + i] : (uint32_t)(row->q_base + i);
	assert(position < rotary->n_positions);
	return position;
}

static void
append_item(const struct append_job *job, const struct kernel_row *row, uint32_t begin)
{
	const struct append_args *args = job->args;
	uint32_t page_size = args->pages.layout->params.page_size;
	uint32_t end = row->q_len - begin < ITEM_TOKENS ? row->q_len : begin + ITEM_TOKENS;

	for (uint32_t i = begin; i < end; i++) {
		struct append_token token = { .packed = row->q_start + i,
					      .position = append_rotary_position(args->rotary, row, i) };

		if (!row->skip_append) {
			uint32_t at = args->positions ? args->positions[token.packed] : row->kv_len - row->q_len + i;

			token.page = row->pages[at / page_size];
			token.slot = at % page_size;
			assert(token.page < args->pages.layout->params.n_pages);
			append_plane(job, LAYOUT_K, &args->k, &token);
			if (args->v.data != NULL)
				append_plane(job, LAYOUT_V, &args->v, &token);
		}
		if (append_rotates_queries(args))
			append_rotate_queries(job, token.packed, token.position);
	}
}

static void
append_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct append_job *job = context;
	const struct append_args *args = job->args;
	struct row_cursor cursor = { 0 };
	uint64_t item;

	(void)scratch;
	for (;;) {
		item = kernel_team_next_item(team);
		if (!row_cursor_find(&cursor, item, args->rows, args->n_rows, append_row_items, args))
			break;
		append_item(job, &args->rows[cursor.row], (uint32_t)(item - cursor.first) * ITEM_TOKENS);
	}
	copy_fence();
}

/* True if all heads of tokens of a plane begin on a cache line and fill whole cache lines. */
static bool
append_may_stream(const struct kernel_pages *pages, unsigned int plane)
{
	const struct layout_plane *p = &pages->layout->plane[plane];
	uint64_t all = (uintptr_t)pages->base | p->offset | p->layer_stride | p->page_stride | p->head_stride |
		       p->token_stride;

	return all % COPY_CACHE_LINE == 0;
}

void
kernel_append(struct kernel_team *team, const struct append_args *args)
{
	struct append_job job = { .args = args,
				  .ops = kernel_team_ops(team),
				  .copy_ops = kernel_team_ops(team)->copy_ops };
	const struct layout_params *params = &args->pages.layout->params;
	uint64_t elements = 0, kept = 0;

	assert(args->k.n_heads == params->n_kv_heads && args->k.dim == params->k_dim);
	assert(params->v_in_k ? args->v.data == NULL
			      : args->v.n_heads == params->n_kv_heads && args->v.dim == params->v_dim);
	assert(args->rotary == NULL || args->rotary->first + args->rotary->dim <= params->k_dim);
	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];

		assert(row->skip_append || args->positions || row->q_len <= row->kv_len);
		if (!row->skip_append)
			kept += (uint64_t)row->q_len * params->n_kv_heads * (params->k_dim + params->v_dim);
		if (append_rotates_queries(args))
			elements += (uint64_t)row->q_len * args->rotary->q.n_heads * params->k_dim;
	}
	if (kept * paged_dtype_size(params->dtype) > COPY_STREAM_BYTES) {
		job.stream[LAYOUT_K] = append_may_stream(&args->pages, LAYOUT_K);
		job.stream[LAYOUT_V] = args->v.data != NULL && append_may_stream(&args->pages, LAYOUT_V);
	}
	kernel_team_run(team, elements + kept < SINGLE_THREAD_ELEMENTS, append_work, &job);
}
