/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_attention_merge(), the public call on two results; combine.c combines the KV chunks of one.  A result is a
 * finished softmax: as a state, its maximum is the LSE and its sum is 1.  Therefore two results are combined like two
 * KV chunks of one softmax.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/schedule/team.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tensor.h"

/* Query rows per work item. */
#define MERGE_TOKENS 16u
/* Number of elements below which waking the team costs more than it saves. */
#define SINGLE_THREAD_ELEMENTS (64u << 10)

static void
merge_load_part(const struct kernel_tile_ops *ops, const struct merge_part *part, uint64_t token, uint32_t head,
		float lse, float *values)
{
	if (lse == -INFINITY)
		memset(values, 0, sizeof(*values) * PAGED_MAX_DIM);
	else
		ops->widen(values, tensor_at(&part->out, token, head), part->out.dtype, part->out.dim);
}

static void
merge_q_row(const struct kernel_tile_ops *ops, const struct merge_args *args, struct team_scratch *scratch,
	    uint64_t token, uint32_t head)
{
	const struct kernel_tensor *out = &args->out;
	uint64_t at = token * out->n_heads + head;
	float lse[2] = { args->part[0].lse[at], args->part[1].lse[at] };
	struct softmax_state *state = scratch->item_state;
	const float one = 1;
	float sum;

	state->values = scratch->item_values;
	state->stride = (out->dim + ops->lanes - 1) / ops->lanes * ops->lanes;
	state->row_max[0] = lse[0];
	state->row_sum[0] = 1;
	merge_load_part(ops, &args->part[0], token, head, lse[0], scratch->item_values);
	merge_load_part(ops, &args->part[1], token, head, lse[1], scratch->chunk_values);
	ops->combine(state, 1, &lse[1], &one, scratch->chunk_values);
	sum = state->row_sum[0];
	ops->narrow(tensor_at(out, token, head), out->dtype, state->values, sum == 0 ? 0 : 1 / sum, out->dim);
	if (args->lse != NULL)
		args->lse[at] = sum == 0 ? -INFINITY : state->row_max[0] + logf(sum);
}

static void
merge_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct merge_args *args = context;
	uint64_t token;

	while ((token = kernel_team_next_item(team) * MERGE_TOKENS) < args->n_tokens)
		for (uint64_t end = token + MERGE_TOKENS; token < end && token < args->n_tokens; token++)
			for (uint32_t head = 0; head < args->out.n_heads; head++)
				merge_q_row(kernel_team_ops(team), args, scratch, token, head);
}

void
kernel_attention_merge(struct kernel_team *team, const struct merge_args *args)
{
	struct merge_args job = *args;

	for (unsigned int i = 0; i < 2; i++)
		assert(args->part[i].out.n_heads == args->out.n_heads && args->part[i].out.dim == args->out.dim);
	kernel_team_run(team, args->n_tokens * args->out.n_heads * args->out.dim < SINGLE_THREAD_ELEMENTS, merge_work,
			&job);
}
