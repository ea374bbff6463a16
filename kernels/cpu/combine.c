/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/combine.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/q_rows.h"

/* Initialises whole vectors of maxima and sums, because instruction sets load whole vectors. */
static void
softmax_state_clear(const struct attention_job *job, struct softmax_state *state, uint32_t n_q_rows, float *values)
{
	state->values = values;
	state->stride = job->v_padded;
	for (uint32_t i = 0; i < n_q_rows || i % TILE_MAX_LANES != 0; i++) {
		state->row_max[i] = -INFINITY;
		state->row_sum[i] = 0;
	}
}

void
combine_state_begin(const struct attention_job *job, const struct softmax_state *item_state, uint32_t n_q_rows,
		    struct softmax_state *state, float *own)
{
	uint32_t n = 0;

	while (n < n_q_rows && item_state->row_sum[n] == 0)
		n++;
	softmax_state_clear(job, state, n_q_rows, n == n_q_rows ? item_state->values : own);
}

void
combine_state_end(const struct attention_job *job, struct softmax_state *item_state, uint32_t n_q_rows,
		  const struct softmax_state *state)
{
	if (state->values != item_state->values) {
		job->ops->combine(item_state, n_q_rows, state->row_max, state->row_sum, state->values);
		return;
	}
	memcpy(item_state->row_max, state->row_max, n_q_rows * sizeof(float));
	memcpy(item_state->row_sum, state->row_sum, n_q_rows * sizeof(float));
}

void
combine_chunk_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	for (uint32_t i = 0; i < q_tile_count(job, item); i++) {
		const struct q_tile q = q_tile_of(job, item, i);
		struct softmax_state *state = &scratch->chunk_state[i];

		combine_state_begin(job, &scratch->item_state[i], q.n, state,
				    scratch->chunk_values + (size_t)q.at * job->v_padded);
		memset(state->values, 0, (size_t)q.n * job->v_padded * sizeof(float));
	}
}

void
combine_chunk_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	for (uint32_t i = 0; i < q_tile_count(job, item); i++)
		combine_state_end(job, &scratch->item_state[i], q_tile_of(job, item, i).n, &scratch->chunk_state[i]);
}

/* Final numbers of a q_row over all its keys; the sum is over exp(score - row_max). */
struct q_row_result {
	float factor; /* factor of the values */
	float row_max, row_sum;
};

/* Adds a sink to the denominator; -INFINITY: no sink. */
static struct q_row_result
q_row_result(float row_max, float row_sum, float sink)
{
	float max = sink > row_max ? sink : row_max, rescale = 1;

	if (sink != -INFINITY) {
		rescale = expf(row_max - max);
		row_sum = row_sum * rescale + expf(sink - max);
		row_max = max;
	}
	return (struct q_row_result){ .factor = row_sum == 0 ? 0 : rescale / row_sum,
				      .row_max = row_max,
				      .row_sum = row_sum };
}

static float
q_row_lse(const struct q_row_result *end)
{
	return end->row_sum == 0 ? -INFINITY : end->row_max + logf(end->row_sum);
}

/* Writes the results of a query tile. */
static void
combine_write_results(const struct attention_job *job, const struct q_tile *q, const struct softmax_state *item_state)
{
	const struct attention_args *args = job->args;
	const struct kernel_tensor *out = &args->out;
	const float *scales = args->pages.layout->params.v_in_k ? args->k_scale : args->v_scale;
	float v_scale = scales != NULL ? scales[q->kv_head] : 1;

	for (uint32_t i = 0; i < q->n; i++) {
		uint64_t packed = q->row->q_start + q_row_query(job, q, i);
		uint32_t head = q_row_head(job, q, i);
		float row_sum = item_state->row_sum[i], row_max = item_state->row_max[i];
		float *values = item_state->values + (size_t)i * job->v_padded;
		struct q_row_result keys = q_row_result(row_max, row_sum, -INFINITY), end = keys;
		uint64_t at = packed * out->n_heads + head;

		q_row_prefetch(job, q, i + PREFETCH_Q_ROWS, out);
		if (args->sink != NULL)
			end = q_row_result(row_max, row_sum, args->sink[head]);
		if (row_sum == 0)
			memset(values, 0, job->v_padded * sizeof(*values));
		job->ops->narrow(tensor_at(out, packed, head), out->dtype, values, end.factor * v_scale, out->dim);
		if (args->lse != NULL)
			args->lse[at] = q_row_lse(args->lse_without_sink ? &keys : &end);
		if (args->max_score != NULL)
			args->max_score[at] = isnan(row_sum) ? NAN : row_max;
	}
}

/* Pointers to the state of a q_row in a workspace. */
struct workspace_state {
	float *row_max, *row_sum, *values;
};

static struct workspace_state
workspace_state_at(const struct attention_job *job, float *workspace, uint32_t q_row)
{
	const size_t max_q_rows = job->schedule.max_q_rows;

	return (struct workspace_state){ .row_max = workspace + q_row,
					 .row_sum = workspace + max_q_rows + q_row,
					 .values = workspace + 2 * max_q_rows + (size_t)q_row * job->v_padded };
}

void
combine_item_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	for (uint32_t i = 0; i < q_tile_count(job, item); i++) {
		const struct q_tile q = q_tile_of(job, item, i);

		softmax_state_clear(job, &scratch->item_state[i], q.n,
				    item->workspace != NULL ? workspace_state_at(job, item->workspace, q.at).values
							    : scratch->item_values + (size_t)q.at * job->v_padded);
	}
}

void
combine_item_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	for (uint32_t i = 0; i < q_tile_count(job, item); i++) {
		const struct q_tile q = q_tile_of(job, item, i);
		const struct softmax_state *item_state = &scratch->item_state[i];
		struct workspace_state to;

		if (item->workspace == NULL) {
			combine_write_results(job, &q, item_state);
			continue;
		}
		to = workspace_state_at(job, item->workspace, q.at);
		memcpy(to.row_max, item_state->row_max, q.n * sizeof(float));
		memcpy(to.row_sum, item_state->row_sum, q.n * sizeof(float));
	}
}

void
combine_workspace(const struct attention_job *job, const struct work_item *item, uint32_t q_tile, uint64_t n_chunks,
		  struct team_scratch *scratch)
{
	const struct q_tile q = q_tile_of(job, item, q_tile);
	float *workspace = item->workspace;

	softmax_state_clear(job, scratch->item_state, q.n, scratch->item_values);
	for (; n_chunks > 0; n_chunks--, workspace += job->state_floats) {
		const struct workspace_state from = workspace_state_at(job, workspace, q.at);

		job->ops->combine(scratch->item_state, q.n, from.row_max, from.row_sum, from.values);
	}
	combine_write_results(job, &q, scratch->item_state);
}
