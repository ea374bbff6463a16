/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/team.h"

/* Tokens in a unit, and elements below which waking the team costs more than copying. */
#define UNIT_TOKENS 16u
#define ALONE_ELEMENTS (256u << 10)

/* The reciprocal of less, times 127, may be no float. */
#define SMALLEST_SCALED 0x1p-120f

struct append_job {
	const struct append_args *args;
	const struct kernel_tile_ops *ops;
};

static bool
turns_queries(const struct append_args *args)
{
	return args->rotary != NULL && args->rotary->q.data != NULL;
}

/* Rows that are not appended to have queries to turn all the same. */
static uint64_t
units_of(const void *context, const struct kernel_row *row)
{
	const struct append_args *args = context;

	return row->skip_append && !turns_queries(args) ? 0 : rows_divide_up(row->q_len, UNIT_TOKENS);
}

/* One head of one token at its position. */
static void
turn(const struct kernel_rotary *rotary, uint32_t position, float *elements)
{
	const float *cosine = rotary->cos_sin + (size_t)position * rotary->dim;
	uint32_t n = rotary->dim / 2, step = rotary->interleaved ? 2 : 1, apart = rotary->interleaved ? 1 : n;

	elements += rotary->first;
	for (uint32_t i = 0; i < n; i++, elements += step) {
		float a = elements[0], b = elements[apart];

		elements[0] = a * cosine[i] - b * cosine[n + i];
		elements[apart] = b * cosine[i] + a * cosine[n + i];
	}
}

/* Bits of the largest magnitude; infinity's or more where one is no number. */
static uint32_t
largest_bits(const float *elements, uint32_t n)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bits = convert_bits(elements[i]) & 0x7fffffff;

		most = bits > most ? bits : most;
	}
	return most;
}

/* One head of one token to i8; returns its scale. */
static float
quantise(const struct kernel_tile_ops *ops, void *to, const float *wide, uint32_t n)
{
	uint32_t bits = largest_bits(wide, n);
	float most = convert_float(bits);

	if (bits >= 0x7f800000 || most < SMALLEST_SCALED) {
		memset(to, 0, n);
		return bits >= 0x7f800000 ? NAN : 0;
	}
	ops->narrow(to, PAGED_I8, wide, 127 / most, n);
	return most / 127;
}

/* Where a token goes, and where it comes from. */
struct append_token {
	uint64_t packed;
	uint32_t page;
	uint32_t slot;
	uint32_t position; /* for rotary */
};

static void
head_append(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from,
	    const struct append_token *token, uint32_t head)
{
	const struct append_args *args = job->args;
	const struct kernel_pages *pages = &args->pages;
	const struct kernel_rotary *rotary = plane == LAYOUT_K ? args->rotary : NULL;
	const float *scales = plane == LAYOUT_K ? args->k_scale : args->v_scale;
	enum paged_dtype dtype = pages->layout->plane[plane].dtype;
	uint8_t *to = pages->base + layout_offset(pages->layout, plane, pages->layer, token->page, head, token->slot);
	const void *elements = tensor_at(from, token->packed, head);
	float wide[PAGED_MAX_DIM], scale;

	if (dtype == from->dtype && rotary == NULL) {
		memcpy(to, elements, (size_t)from->dim * paged_dtype_size(dtype));
		return;
	}
	job->ops->widen(wide, elements, from->dtype, from->dim);
	if (rotary != NULL)
		turn(rotary, token->position, wide);
	if (dtype != PAGED_I8) {
		job->ops->narrow(to, dtype, wide, scales != NULL ? 1 / scales[head] : 1, from->dim);
		return;
	}
	scale = quantise(job->ops, to, wide, from->dim);
	plane = plane == LAYOUT_K ? LAYOUT_K_SCALE : LAYOUT_V_SCALE;
	to = pages->base + layout_offset(pages->layout, plane, pages->layer, token->page, head, token->slot);
	memcpy(to, &scale, sizeof(scale));
}

static void
token_append(const struct append_job *job, const struct append_token *token)
{
	const struct append_args *args = job->args;

	assert(token->page < args->pages.layout->params.n_pages);
	for (uint32_t head = 0; head < args->k.n_heads; head++)
		head_append(job, LAYOUT_K, &args->k, token, head);
	for (uint32_t head = 0; args->v.data != NULL && head < args->v.n_heads; head++)
		head_append(job, LAYOUT_V, &args->v, token, head);
}

static void
queries_turn(const struct append_job *job, uint64_t packed, uint32_t position)
{
	const struct kernel_rotary *rotary = job->args->rotary;
	float wide[PAGED_MAX_DIM];

	for (uint32_t head = 0; head < rotary->q.n_heads; head++) {
		job->ops->widen(wide, tensor_at(&rotary->q, packed, head), rotary->q.dtype, rotary->q.dim);
		turn(rotary, position, wide);
		job->ops->narrow(tensor_at(&rotary->q_out, packed, head), rotary->q_out.dtype, wide, 1, rotary->q.dim);
	}
}

static uint32_t
rotary_position(const struct kernel_rotary *rotary, const struct kernel_row *row, uint32_t i)
{
	uint32_t position;

	if (rotary == NULL)
		return 0;
	position = rotary->positions != NULL ? rotary->positions[row->q_start + i] : (uint32_t)(row->q_base + i);
	assert(position < rotary->n_positions);
	return position;
}

static void
unit_append(const struct append_job *job, const struct kernel_row *row, uint32_t begin)
{
	const struct append_args *args = job->args;
	uint32_t page_size = args->pages.layout->params.page_size;
	uint32_t end = row->q_len - begin < UNIT_TOKENS ? row->q_len : begin + UNIT_TOKENS;

	for (uint32_t i = begin; i < end; i++) {
		struct append_token token = { .packed = row->q_start + i,
					      .position = rotary_position(args->rotary, row, i) };

		if (!row->skip_append) {
			uint32_t at = args->positions ? args->positions[token.packed] : row->kv_len - row->q_len + i;

			token.page = row->pages[at / page_size];
			token.slot = at % page_size;
			token_append(job, &token);
		}
		if (turns_queries(args))
			queries_turn(job, token.packed, token.position);
	}
}

static void
append_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct append_job *job = context;
	const struct append_args *args = job->args;
	struct rows_cursor cursor = { 0 };
	uint64_t unit;

	(void)scratch;
	for (;;) {
		unit = team_take(team);
		if (!rows_find(&cursor, unit, args->rows, args->n_rows, units_of, args))
			return;
		unit_append(job, &args->rows[cursor.row], (uint32_t)(unit - cursor.first) * UNIT_TOKENS);
	}
}

void
kernel_append(struct kernel_team *team, const struct append_args *args)
{
	struct append_job job = { .args = args, .ops = team_ops(team) };
	const struct layout_params *params = &args->pages.layout->params;
	uint64_t elements = 0;

	assert(args->k.n_heads == params->n_kv_heads && args->k.dim == params->k_dim);
	assert(params->v_in_k ? args->v.data == NULL
			      : args->v.n_heads == params->n_kv_heads && args->v.dim == params->v_dim);
	assert(args->rotary == NULL || args->rotary->first + args->rotary->dim <= params->k_dim);
	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];

		assert(row->skip_append || args->positions || row->q_len <= row->kv_len);
		if (!row->skip_append)
			elements += (uint64_t)row->q_len * params->n_kv_heads * (params->k_dim + params->v_dim);
		if (turns_queries(args))
			elements += (uint64_t)row->q_len * args->rotary->q.n_heads * params->k_dim;
	}
	if (elements < ALONE_ELEMENTS)
		team_run_alone(team, append_work, &job);
	else
		team_run(team, append_work, &job);
}
