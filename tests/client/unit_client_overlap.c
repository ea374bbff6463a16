/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that share memory with other operands are refused; slices of one tensor that interleave are not. */
#include <string.h>

#include "tests/client/attention_fixture.h"

TestSuite(client_overlap, .init = attention_fixture_setup, .fini = attention_fixture_teardown);

#define QUERIES 12u
#define HEADS ATTENTION_Q_HEADS
#define DIM ATTENTION_DIM
#define KV_DIMS ((size_t)ATTENTION_KV_HEADS * DIM)
#define SHARES(a, b) a " shares memory with " b ", which is written: pass a tensor with its own memory"

static const uint32_t q_len[ATTENTION_ROWS] = { 5, 3, 4 };
static float memory[8 * QUERIES * HEADS * DIM];

static struct paged_tensor
tensor_at(float *data, uint32_t n_heads)
{
	return (struct paged_tensor){ .data = data, .dtype = PAGED_F32, .n_heads = n_heads, .dim = DIM };
}

static enum paged_status
attend(float *q_data, float *out_data, const struct paged_attention_params *params)
{
	struct paged_tensor q = tensor_at(q_data, HEADS), out = tensor_at(out_data, HEADS);

	return paged_attention(attention_fixture->batch, 0, &q, &out, params);
}

Test(client_overlap, attention)
{
	const size_t n = (size_t)QUERIES * HEADS * DIM;
	float *own = memory, *other = memory + n, *third = memory + 2 * n;
	struct paged_attention_params params = { .struct_size = sizeof(params) };
	struct paged_pool_info info = { .struct_size = sizeof(info) };

	attention_fixture_plan(q_len);
	expect_error(attend(own, own, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	expect_error(attend(own, own + n - 1, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	expect_error(attend(own + 1, own, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	expect_ok(attend(own, own + n, NULL));
	params.lse = other + n - 1;
	expect_error(attend(own, other, &params), PAGED_ERR_INVALID, SHARES("lse", "out"));
	params.lse = own;
	expect_error(attend(own, other, &params), PAGED_ERR_INVALID, SHARES("q", "lse"));
	params.lse = third;
	params.max_score = third + 1;
	expect_error(attend(own, other, &params), PAGED_ERR_INVALID, SHARES("max_score", "lse"));
	params.max_score = NULL;
	params.sink = third + 2;
	expect_error(attend(own, other, &params), PAGED_ERR_INVALID, SHARES("sink", "lse"));
	params.sink = NULL;
	expect_ok(attend(own, other, &params));
	expect_ok(paged_pool_get_info(pool, &info));
	expect_error(attend(own, info.base, NULL), PAGED_ERR_INVALID, SHARES("the pool's pages", "out"));
}

/* Slices of [tokens, 2, heads, dim] along the second, and of [tokens, heads, 2, dim] along the third dimension. */
Test(client_overlap, slices_interleave)
{
	struct paged_tensor q = tensor_at(memory, HEADS), out = tensor_at(memory + HEADS * DIM, HEADS);
	struct paged_batch *batch = attention_fixture->batch;

	attention_fixture_plan(q_len);
	q.token_stride = out.token_stride = 2 * HEADS * DIM;
	expect_ok(paged_attention(batch, 0, &q, &out, NULL));
	expect_ok(paged_attention(batch, 0, &out, &q, NULL));
	out.data = memory + HEADS * DIM - 1;
	expect_error(paged_attention(batch, 0, &q, &out, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	out.data = memory + HEADS * DIM + 1;
	expect_error(paged_attention(batch, 0, &q, &out, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	out.data = memory + DIM;
	expect_error(paged_attention(batch, 0, &q, &out, NULL), PAGED_ERR_INVALID, SHARES("q", "out"));
	q.head_stride = out.head_stride = 2 * DIM;
	expect_ok(paged_attention(batch, 0, &q, &out, NULL));
}

static enum paged_status
append_qkv(float *q_data, float *q_out_data, float *k_data)
{
	static float cos_sin[ATTENTION_TOKENS * DIM];
	struct paged_rotary rotary = { .struct_size = sizeof(rotary),
				       .cos_sin = cos_sin,
				       .n_positions = ATTENTION_TOKENS,
				       .dim = DIM,
				       .q = tensor_at(q_data, HEADS),
				       .q_out = tensor_at(q_out_data, HEADS) };
	struct paged_append_params params = { .struct_size = sizeof(params), .rotary = &rotary };
	struct paged_tensor k = tensor_at(k_data, ATTENTION_KV_HEADS),
			    v = tensor_at(memory + sizeof(memory) / sizeof(memory[0]) / 2, ATTENTION_KV_HEADS);

	rotary.q.token_stride = rotary.q_out.token_stride = k.token_stride = (int64_t)(HEADS * DIM + KV_DIMS);
	return paged_append(attention_fixture->batch, 0, &k, &v, &params);
}

Test(client_overlap, append)
{
	struct paged_tensor k = tensor_at(memory, ATTENTION_KV_HEADS);
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_append_params params = { .struct_size = sizeof(params) };

	attention_fixture_plan(q_len);
	/* Q and K of one packed tensor; Q in place. */
	expect_ok(append_qkv(memory, memory, memory + HEADS * DIM));
	expect_error(append_qkv(memory, memory, memory + HEADS * DIM - 1), PAGED_ERR_INVALID,
		     SHARES("k", "rotary q_out"));
	expect_error(append_qkv(memory, memory + 1, memory + HEADS * DIM), PAGED_ERR_INVALID,
		     SHARES("k", "rotary q_out"));
	expect_error(append_qkv(memory, memory + DIM, memory + 2 * HEADS * DIM * QUERIES), PAGED_ERR_INVALID,
		     SHARES("rotary q", "rotary q_out"));
	expect_ok(paged_pool_get_info(pool, &info));
	expect_error(
		paged_append(attention_fixture->batch, 0, &k,
			     &(struct paged_tensor){
				     .data = info.base, .dtype = PAGED_F32, .n_heads = ATTENTION_KV_HEADS, .dim = DIM },
			     &params),
		PAGED_ERR_INVALID, SHARES("v", "the pool's pages"));
	expect_ok(paged_append(attention_fixture->batch, 0, &k, &k, &params));
}

Test(client_overlap, gather)
{
	struct paged_tensor k = tensor_at(memory, ATTENTION_KV_HEADS), v = k;
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_gather_params params = { .struct_size = sizeof(params) };
	uint32_t end[ATTENTION_ROWS] = { 2, 1, 1 };

	attention_fixture_plan(q_len);
	params.end = end;
	expect_error(paged_gather(attention_fixture->batch, 0, &k, &v, &params), PAGED_ERR_INVALID, SHARES("v", "k"));
	v.data = memory + 4 * KV_DIMS;
	expect_ok(paged_gather(attention_fixture->batch, 0, &k, &v, &params));
	expect_ok(paged_pool_get_info(pool, &info));
	v.data = (char *)info.base + info.size - sizeof(float);
	expect_error(paged_gather(attention_fixture->batch, 0, &k, &v, &params), PAGED_ERR_INVALID,
		     SHARES("the pool's pages", "v"));
}

Test(client_overlap, merge)
{
	const size_t n = (size_t)QUERIES * HEADS * DIM;
	struct paged_merge_params params = { .struct_size = sizeof(params), .n_tokens = QUERIES };
	float *lse = memory + 4 * n;

	params.part[0] = params.out = tensor_at(memory, HEADS);
	params.part[1] = tensor_at(memory + n, HEADS);
	params.part_lse[0] = params.lse = lse;
	params.part_lse[1] = lse + QUERIES * HEADS;
	/* In place. */
	expect_ok(paged_merge(attention_fixture->batch, &params));
	params.out = tensor_at(memory + 1, HEADS);
	expect_error(paged_merge(attention_fixture->batch, &params), PAGED_ERR_INVALID, SHARES("part[0] (a)", "out"));
	params.out = tensor_at(memory + 2 * n, HEADS);
	params.lse = lse + 1;
	expect_error(paged_merge(attention_fixture->batch, &params), PAGED_ERR_INVALID,
		     SHARES("part_lse[0] (a_lse)", "lse"));
	params.lse = memory + n;
	expect_error(paged_merge(attention_fixture->batch, &params), PAGED_ERR_INVALID, SHARES("part[1] (b)", "lse"));
}
