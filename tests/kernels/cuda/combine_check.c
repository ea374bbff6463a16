/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/combine_check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/fake-cuda/simt_model.h"

#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

static void *
host(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static float
weight(float score, float row_max)
{
	return simt_exp2((score - (row_max == -INFINITY ? 0 : row_max)) * LOG2_E);
}

static float
lse(float row_max, float row_sum)
{
	return row_sum == 0 ? -INFINITY : row_max + LN_2 * simt_log2(row_sum);
}

/* The number of KV chunks that a tile sees: up to the causal end of its last query. */
static uint32_t
tile_kv_chunks(const struct cuda_attention_params *p, const struct cuda_row *row, uint32_t last_query)
{
	uint32_t begin = row->kv_first / CUDA_KV_CHUNK_UNIT * CUDA_KV_CHUNK_UNIT;
	int64_t end = row->kv_len;

	if (p->causal && row->q_base < end && row->q_base + last_query + 1 < end)
		end = row->q_base + last_query + 1;
	return end <= begin ? 1 : ((uint32_t)end - begin - 1) / row->kv_chunk_tokens + 1;
}

static bool
element_equal(const struct cuda_tensor *out, const uint8_t *at, uint32_t d, float value)
{
	uint16_t half = out->dtype == CUDA_F16 ? simt_to_f16(value) : simt_to_bf16(value);

	if (out->dtype == CUDA_F32)
		return memcmp(at + d * sizeof(value), &value, sizeof(value)) == 0;
	return memcmp(at + d * sizeof(half), &half, sizeof(half)) == 0;
}

struct combined {
	float row_max, row_sum, factor, lse;
};

static struct combined
states_combine(const struct cuda_attention_params *p, const float *state, size_t step, uint32_t n, uint32_t head)
{
	const float sink = p->sink == 0 ? -INFINITY : ((const float *)host(p->sink))[head];
	struct combined to = { .row_max = -INFINITY };
	float top, keep = 1, all;

	for (uint32_t s = 0; s < n; s++)
		if (state[s * step] > to.row_max)
			to.row_max = state[s * step];
	for (uint32_t s = 0; s < n; s++)
		if (state[s * step + 1] != 0)
			to.row_sum = fmaf(state[s * step + 1], weight(state[s * step], to.row_max), to.row_sum);
	all = to.row_sum;
	top = sink > to.row_max ? sink : to.row_max;
	if (sink != -INFINITY) {
		keep = weight(to.row_max, top);
		all = to.row_sum * keep + weight(sink, top);
	}
	to.factor = all == 0 ? 0 : keep / all;
	to.lse = p->lse_without_sink ? lse(to.row_max, to.row_sum) : lse(top, all);
	return to;
}

/* NaN has many bit patterns; other results have one. */
static bool
same(float a, float b)
{
	return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof(a)) == 0;
}

static void
q_row_check(const struct cuda_attention_params *p, const struct cuda_row *row, uint32_t query, uint32_t head,
	    uint32_t n)
{
	size_t step = (size_t)row->q_len * p->n_q_heads, v_dim = p->pages.plane[CUDA_V].dim;
	size_t first = row->first_state + (size_t)query * p->n_q_heads + head;
	size_t at = (size_t)(row->q_start + query) * p->n_q_heads + head;
	const float *state = (const float *)host(p->workspace_states) + first * 2;
	const float *values = (const float *)host(p->workspace_values) + first * v_dim;
	const struct combined all = states_combine(p, state, step * 2, n, head);
	const uint8_t *out = (const uint8_t *)host(p->out.address) +
			     (size_t)(row->q_start + query) * (size_t)p->out.token_stride +
			     head * (size_t)p->out.head_stride;

	if (p->lse != 0)
		cr_assert(same(((const float *)host(p->lse))[at], all.lse), "LSE of query %u, head %u", query, head);
	if (p->max_score != 0)
		cr_assert(same(((const float *)host(p->max_score))[at], isnan(all.row_sum) ? NAN : all.row_max),
			  "maximum of query %u, head %u", query, head);
	for (uint32_t d = 0; d < v_dim; d++) {
		float sum = 0;

		for (uint32_t s = 0; s < n; s++)
			if (state[s * step * 2 + 1] != 0)
				sum = fmaf(values[s * step * v_dim + d], weight(state[s * step * 2], all.row_max), sum);
		sum *= all.factor;
		cr_assert(isnan(sum) || element_equal(&p->out, out, d, sum),
			  "query %u, head %u, dim %u: not the combination of %u KV chunks", query, head, d, n);
	}
}

void
combine_check(const struct cuda_attention_params *p)
{
	const struct cuda_row *rows = host(p->plan.rows);
	uint32_t group = p->n_q_heads / p->pages.n_kv_heads;

	for (uint32_t r = 0; r < p->plan.n_rows; r++) {
		const struct cuda_row *row = &rows[r];

		for (uint32_t i = 0; row->n_kv_chunks > 1 && i < row->q_len * group; i++) {
			uint32_t tile_end = (i / row->tile_q_rows + 1) * row->tile_q_rows;
			uint32_t last = (tile_end < row->q_len * group ? tile_end : row->q_len * group) - 1;
			uint32_t n = tile_kv_chunks(p, row, last / group);

			for (uint32_t kv_head = 0; n > 1 && kv_head < p->pages.n_kv_heads; kv_head++)
				q_row_check(p, row, i / group, kv_head * group + i % group, n);
		}
	}
}
