/* SPDX-License-Identifier: Apache-2.0 */
/* What splits add up to, and the results of that. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention.h"

void
state_clear(const struct attention_job *job, struct tile_state *state, uint32_t n_lines, float *values)
{
	state->values = values;
	state->stride = job->v_padded;
	for (uint32_t line = 0; line < n_lines; line++) {
		state->maximum[line] = -INFINITY;
		state->sum[line] = 0;
	}
}

/* One line's numbers, once all its keys are in: its weights' sum, of exponentials less the maximum. */
struct line_end {
	float factor; /* of the values */
	float maximum, sum;
};

static struct line_end
line_end(float maximum, float sum)
{
	return (struct line_end){ .factor = sum == 0 ? 0 : 1 / sum, .maximum = maximum, .sum = sum };
}

static struct line_end
line_end_with_sink(float maximum, float sum, float sink)
{
	float top = sink > maximum ? sink : maximum;
	float rescale, all;

	if (sink == -INFINITY)
		return line_end(maximum, sum);
	rescale = expf(maximum - top);
	all = sum * rescale + expf(sink - top);
	return (struct line_end){ .factor = rescale / all, .maximum = top, .sum = all };
}

static float
line_lse(const struct line_end *end)
{
	return end->sum == 0 ? -INFINITY : end->maximum + logf(end->sum);
}

static void
head_finish(const struct attention_job *job, const struct attention_task *task, const struct tile_state *total)
{
	const struct attention_args *args = job->args;
	const struct kernel_tensor *out = &args->out;
	const float *scales = args->pages.layout->params.v_in_k ? args->k_scale : args->v_scale;
	float v_scale = scales != NULL ? scales[task->kv_head] : 1;

	for (uint32_t line = 0; line < task->n_lines; line++) {
		uint64_t packed = task->row->q_start + line_query_row(job, task, line);
		uint32_t head = line_head(job, task, line);
		float sum = total->sum[line], maximum = total->maximum[line];
		float *values = total->values + (size_t)line * job->v_padded;
		struct line_end keys = line_end(maximum, sum), end = keys;
		uint64_t at = packed * out->n_heads + head;

		line_fetch(job, task, line + FETCH_LINES, out);
		if (args->sink != NULL)
			end = line_end_with_sink(maximum, sum, args->sink[head]);
		if (sum == 0)
			memset(values, 0, job->v_padded * sizeof(*values));
		job->ops->narrow(tensor_at(out, packed, head), out->dtype, values, end.factor * v_scale, out->dim);
		if (args->lse != NULL)
			args->lse[at] = line_lse(args->lse_without_sink ? &keys : &end);
		if (args->maximum != NULL)
			args->maximum[at] = isnan(sum) ? NAN : maximum;
	}
}

static struct tile_state *
strip_total(struct team_scratch *scratch, const struct attention_task *strip)
{
	return &scratch->total[strip->strip / BLOCK_STRIP];
}

/* No line has been folded into it. */
static bool
state_is_empty(const struct tile_state *state, uint32_t n_lines)
{
	uint32_t n = 0;

	while (n < n_lines && state->sum[n] == 0)
		n++;
	return n == n_lines;
}

float *
strip_values(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
	     float *partial, float *own)
{
	const struct tile_state *total = strip_total(scratch, strip);

	if (partial != NULL)
		return partial + 2 * (size_t)job->order.max_lines + (size_t)strip->strip * job->v_padded;
	return state_is_empty(total, strip->n_lines) ? total->values : own;
}

void
strip_done(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
	   const struct tile_state *state, float *partial)
{
	struct tile_state *total = strip_total(scratch, strip);
	const size_t size = strip->n_lines * sizeof(float);

	if (partial != NULL) {
		memcpy(partial + strip->strip, state->maximum, size);
		memcpy(partial + job->order.max_lines + strip->strip, state->sum, size);
	} else if (state->values == total->values) {
		memcpy(total->maximum, state->maximum, size);
		memcpy(total->sum, state->sum, size);
	} else {
		job->ops->merge(total, strip->n_lines, state->maximum, state->sum, state->values);
	}
}

void
totals_clear(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch)
{
	for (uint32_t h = 0; !has_strips(job, task) && h < task->n_heads; h++)
		state_clear(job, &scratch->total[h], task->n_lines,
			    scratch->total_values + (size_t)h * task->n_lines * job->v_padded);
	for (uint32_t i = 0; has_strips(job, task) && i < strips_of(task); i++) {
		struct attention_task strip = strip_of(task, i);

		state_clear(job, &scratch->total[i], strip.n_lines,
			    scratch->total_values + (size_t)strip.strip * job->v_padded);
	}
}

void
totals_finish(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch)
{
	for (uint32_t i = 0; has_strips(job, task) && i < strips_of(task); i++) {
		struct attention_task strip = strip_of(task, i);

		head_finish(job, &strip, &scratch->total[i]);
	}
	for (uint32_t h = 0; !has_strips(job, task) && h < task->n_heads; h++) {
		struct attention_task head = task_head(task, h);

		head_finish(job, &head, &scratch->total[h]);
	}
}
