/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/team.h"

/* Tokens in a unit, and elements below which waking the team costs more than copying. */
#define UNIT_TOKENS 16u
#define ALONE_ELEMENTS (256u << 10)

struct append_job {
	const struct append_args *args;
	const struct kernel_tile_ops *ops;
};

static uint64_t
units_of(const void *context, const struct kernel_row *row)
{
	(void)context;
	return row->skip_append ? 0 : rows_divide_up(row->q_len, UNIT_TOKENS);
}

static void
element_copy(const struct kernel_tile_ops *ops, void *to, enum paged_dtype to_dtype, const void *from,
	     enum paged_dtype from_dtype, uint32_t n)
{
	float wide[PAGED_MAX_DIM];

	if (to_dtype == from_dtype) {
		memcpy(to, from, (size_t)n * paged_dtype_size(to_dtype));
		return;
	}
	ops->widen(wide, from, from_dtype, n);
	ops->narrow(to, to_dtype, wide, 1, n);
}

static void
token_append(const struct append_job *job, unsigned int plane, const struct kernel_tensor *from, uint64_t packed,
	     uint32_t page, uint32_t slot)
{
	const struct kernel_pages *pages = &job->args->pages;
	const struct layout_plane *to = &pages->layout->plane[plane];

	for (uint32_t head = 0; head < from->n_heads; head++)
		element_copy(job->ops,
			     pages->base + layout_offset(pages->layout, plane, pages->layer, page, head, slot),
			     to->dtype, tensor_at(from, packed, head), from->dtype, from->dim);
}

static void
unit_append(const struct append_job *job, const struct kernel_row *row, uint32_t begin)
{
	const struct append_args *args = job->args;
	uint32_t page_size = args->pages.layout->params.page_size;
	uint32_t end = row->q_len - begin < UNIT_TOKENS ? row->q_len : begin + UNIT_TOKENS;

	for (uint32_t i = begin; i < end; i++) {
		uint64_t packed = row->q_start + i;
		uint32_t position = args->positions ? args->positions[packed] : row->kv_len - row->q_len + i;
		uint32_t page = row->pages[position / page_size];

		assert(page < args->pages.layout->params.n_pages);
		token_append(job, LAYOUT_K, &args->k, packed, page, position % page_size);
		if (args->v.data != NULL)
			token_append(job, LAYOUT_V, &args->v, packed, page, position % page_size);
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
		if (!rows_find(&cursor, unit, args->rows, args->n_rows, units_of, NULL))
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
	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];

		assert(row->skip_append || args->positions || row->q_len <= row->kv_len);
		if (!row->skip_append)
			elements += (uint64_t)row->q_len * params->n_kv_heads * (params->k_dim + params->v_dim);
	}
	if (elements < ALONE_ELEMENTS)
		team_run_alone(team, append_work, &job);
	else
		team_run(team, append_work, &job);
}
