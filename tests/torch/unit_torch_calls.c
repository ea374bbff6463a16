/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's decode suite, unusual calls: strided tensors, one sequence for a whole
 * batch, results that are the next call's queries, decoding at different
 * positions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/reference.h"
#include "tests/torch/torch_fixture.h"

#define B 4u
#define D 64u
/* Shorter inputs for the fake CUDA driver, which runs a GPU's threads one by one. */
#ifdef TORCH_SHORT
#define S 128u
#define ODD_S 37u
#else
#define S 2048u
#define ODD_S 300u
#endif

/* ------------------------------------------------------ test_strided_inputs */

struct strides {
	int64_t batch, head, token;
	size_t offset;
};

static struct strides
input_strides(uint32_t which, uint32_t heads, uint32_t tokens)
{
	int64_t h = heads, s = tokens;

	switch (which) {
	case 0:
		return (struct strides){ h * s * D, s * D, D, 997 };
	case 1:
		return (struct strides){ h * D, D, B * h * D, 499 }; /* transposed */
	case 2:
		return (struct strides){ s * (D + 1), B * s * (D + 1), D + 1, 293 }; /* an additional buffer */
	default:
		return (struct strides){ 1, D, (int64_t)(B + 1) * (h + 1) * D, 97 }; /* a shared dimension */
	}
}

struct strided {
	float *memory;
	size_t n;
};

static struct strided
strided_open(uint32_t heads, uint32_t tokens, uint64_t seed)
{
	struct strided strided = { .n = (size_t)B * heads * tokens * D * 4 };

	strided.memory = malloc(strided.n * sizeof(float));
	random_fill(strided.memory, strided.n, seed);
	return strided;
}

/* as_strided(), and the same tensor without strides for the reference. */
static struct pa_tensor
strided_view(const struct strided *strided, uint32_t which, uint32_t heads, uint32_t tokens, float *dense)
{
	struct strides at = input_strides(which, heads, tokens);
	struct pa_tensor view = {
		strided->memory + at.offset, heads, tokens, D, at.batch, at.head, at.token,
	};

	cr_assert_lt(at.offset + (size_t)((B - 1) * at.batch + (heads - 1) * at.head + (tokens - 1) * at.token + D),
		     strided->n);
	for (uint32_t b = 0; b < B; b++)
		for (uint32_t h = 0; h < heads; h++)
			for (uint32_t t = 0; t < tokens; t++, dense += D)
				memcpy(dense, view.data + b * at.batch + h * at.head + t * at.token, D * sizeof(float));
	return view;
}

static void
strided_check(struct pa *pa, const struct torch_inputs *inputs, const float *q, const struct torch_mods *mods,
	      const struct paged_mod *score_mod)
{
	uint32_t kv_len[B];
	struct pa_rows rows = { .n = B, .kv_len = kv_len };
	struct torch_golden golden;
	struct torch_result result;

	for (uint32_t b = 0; b < B; b++)
		kv_len[b] = inputs->shape.kv_len;
	torch_golden_open(&golden, inputs, mods, NULL, 1);
	torch_result_open(&result, inputs);
	/* view(1, Hq, B, D).transpose(0, 2) */
	expect_ok(pa_flex_attention(pa, &rows,
				    &(struct pa_flex){ .score_mod = score_mod,
						       .q_heads = inputs->shape.q_heads,
						       .q = q,
						       .q_token_stride = D,
						       .q_head_stride = (int64_t)B * D,
						       .out = result.out,
						       .lse = result.lse,
						       .max_score = result.max_score }));
	torch_result_check(&result, inputs, &golden, "strided");
	torch_result_close(&result);
	torch_golden_close(&golden);
}

/* All pairs of four K strides and four V strides; PyTorch allows an error of 0.2. */
static void
strided_inputs(uint32_t q_heads, uint32_t kv_heads, uint32_t tokens)
{
	struct torch_shape shape = { B, q_heads, kv_heads, 1, tokens, D, D, PAGED_F32, 1 };
	struct torch_mods mods = { .score = "score + (kv_idx - q_idx) * exp2(-((h + 1) * 8.0 / 8))" };
	struct strided k = strided_open(kv_heads, tokens, 1), v = strided_open(kv_heads, tokens, 2);
	float *q = calloc((size_t)q_heads * B * D, sizeof(float));
	struct torch_inputs inputs;
	struct paged_mod *score_mod;
	struct pa pa;

	torch_inputs_open(&inputs, &shape, 3);
	for (uint32_t h = 0; h < q_heads; h++)
		for (uint32_t b = 0; b < B; b++)
			memcpy(&q[(h * B + b) * D], &inputs.q[(b * q_heads + h) * D], D * sizeof(float));
	torch_inputs_fill(&inputs, &pa, 128);
	score_mod = torch_parse(&pa, PAGED_MOD_SCORE, mods.score, &mods);
	for (uint32_t i = 0; i < 16; i++) {
		struct pa_tensor keys = strided_view(&k, i / 4, kv_heads, tokens, inputs.k);
		struct pa_tensor values = strided_view(&v, i % 4, kv_heads, tokens, inputs.v);

		pa_fill(&pa, 0, B, &keys, &values);
		strided_check(&pa, &inputs, q, &mods, score_mod);
	}
	pa_close(&pa);
	torch_inputs_close(&inputs);
	free(k.memory);
	free(v.memory);
	free(q);
}

Test(torch_calls, test_strided_inputs_16_1)
{
	strided_inputs(16, 1, S);
}

Test(torch_calls, test_strided_inputs_8_2)
{
	strided_inputs(8, 2, S);
}

Test(torch_calls, test_strided_inputs_16_16)
{
	strided_inputs(16, 16, ODD_S);
}

/* -------------------------------------------------- test_kv_batch_broadcast */

/* One sequence serves every row of the batch, without copies or a special case. */
static void
broadcast(uint32_t batch, const char *score)
{
	struct torch_shape shape = { batch, 16, 1, 1, S, D, D, PAGED_F32, 1 };
	struct torch_mods mods = { .score = score };
	static const uint32_t nothing[PA_MAX_BATCH];
	struct pa_rows rows = { .n = batch, .batch_idx = nothing };
	struct torch_inputs inputs;
	struct torch_golden golden;
	struct torch_result result;
	struct pa_tensor k, v;
	struct pa pa;

	torch_inputs_open(&inputs, &shape, 5);
	for (size_t b = 1; b < batch; b++) {
		memcpy(&inputs.k[b * S * D], inputs.k, sizeof(float) * S * D);
		memcpy(&inputs.v[b * S * D], inputs.v, sizeof(float) * S * D);
	}
	torch_golden_open(&golden, &inputs, &mods, NULL, 1);
	torch_result_open(&result, &inputs);
	k = torch_inputs_k(&inputs);
	v = torch_inputs_v(&inputs);
	pa_open(&pa, &(struct pa_params){ .n_pages = 16, .page_size = 128, .max_batch = 1, .k_dim = D });
	expect_ok(pa_reserve(&pa, 0, S));
	pa_fill(&pa, 0, 1, &k, &v);
	expect_ok(pa_flex_attention(&pa, &rows,
				    &(struct pa_flex){ .score_mod = torch_parse(&pa, PAGED_MOD_SCORE, score, &mods),
						       .q_heads = 16,
						       .q = inputs.q,
						       .out = result.out,
						       .lse = result.lse,
						       .max_score = result.max_score }));
	torch_result_check(&result, &inputs, &golden, score);
	pa_close(&pa);
	torch_result_close(&result);
	torch_golden_close(&golden);
	torch_inputs_close(&inputs);
}

Test(torch_calls, test_kv_batch_broadcast)
{
	broadcast(3, "score");
	broadcast(5, "score * score");
	broadcast(8, "score + (q_idx - kv_idx)");
	broadcast(16, "score + (kv_idx - q_idx) * exp2(-((h + 1) * 8.0 / 8))");
}

/* ------------------------------------------------------- chained attention */

/* Another q for the same inputs. */
static void
requery(struct torch_inputs *inputs, const double *wide, const float *narrow)
{
	for (size_t i = 0; i < (size_t)8 * 4 * D; i++)
		inputs->q[i] = narrow != NULL ? narrow[i] : (float)wide[i];
}

/* test_multiple_score_mod_calls: out of one attention is q of the next, over the layers of one pool. */
static void
chained(uint32_t n_calls)
{
	static const char *const scores[] = { "score + (q_idx - kv_idx)", "q_idx >= kv_idx ? score : -inf",
					      "score + (q_idx - kv_idx)" };
	const struct torch_shape shape = { 1, 8, 8, 4, 1024, D, D, PAGED_F32, 0 };
	struct torch_inputs ours[3], golden[3];
	struct torch_golden expected;
	struct torch_result result;
	uint32_t q_len = 4;
	struct pa pa;

	pa_open(&pa,
		&(struct pa_params){
			.n_pages = 32, .page_size = 128, .max_batch = 4, .n_layers = 3, .kv_heads = 8, .k_dim = D });
	pa_batch_reserve(&pa, 4, (uint32_t[]){ 256, 512, 256, 341 });
	pa_batch_reserve(&pa, 4, (uint32_t[]){ 1024, 1024, 1024, 1024 });
	torch_result_open(&result, &(struct torch_inputs){ .shape = shape });
	for (uint32_t i = 0; i < n_calls; i++) {
		struct torch_mods mods = { .score = scores[i] };
		struct pa_tensor k, v;

		torch_inputs_open(&ours[i], &shape, 10 * i + 1);
		torch_inputs_open(&golden[i], &shape, 10 * i + 1);
		if (i > 0) {
			requery(&ours[i], NULL, result.out);
			requery(&golden[i], expected.out, NULL);
			torch_golden_close(&expected);
		}
		k = torch_inputs_k(&ours[i]);
		v = torch_inputs_v(&ours[i]);
		pa_fill(&pa, i, 1, &k, &v);
		torch_golden_open(&expected, &golden[i], &mods, NULL, 1);
		expect_ok(pa_flex_attention(
			&pa, &(struct pa_rows){ .n = 1, .q_len = &q_len },
			&(struct pa_flex){ .layer = i,
					   .score_mod = torch_parse(&pa, PAGED_MOD_SCORE, scores[i], &mods),
					   .q_heads = 8,
					   .q = ours[i].q,
					   .out = result.out,
					   .lse = result.lse,
					   .max_score = result.max_score }));
	}
	/* PyTorch allows 0.2. An error of a query changes a result by at most a few times that error. */
	torch_result_check(&result, &ours[0], &expected, "chained");
	torch_golden_close(&expected);
	for (uint32_t i = 0; i < n_calls; i++) {
		torch_inputs_close(&ours[i]);
		torch_inputs_close(&golden[i]);
	}
	torch_result_close(&result);
	pa_close(&pa);
}

Test(torch_calls, test_multiple_score_mod_calls)
{
	chained(2);
}

Test(torch_calls, test_multiple_score_mod_calls2)
{
	chained(3);
}

/* -------------------------------------- decode at different input positions */

#define LONGEST 195u

static const uint32_t prefill[B] = { 5, 98, 47, 194 };

/* Write tokens first .. first + n - 1 of sequence b at those positions of row b. */
static void
write_tokens(struct pa *pa, const struct torch_inputs *inputs, uint32_t b, uint32_t first, uint32_t n)
{
	const struct torch_shape *shape = &inputs->shape;
	size_t at = ((size_t)b * shape->kv_heads * LONGEST + first) * shape->k_dim;
	struct pa_tensor k = { .data = inputs->k + at,
			       .n_heads = shape->kv_heads,
			       .n_tokens = n,
			       .dim = shape->k_dim,
			       .head_stride = (int64_t)LONGEST * shape->k_dim,
			       .token_stride = shape->k_dim };
	struct pa_tensor v = k;
	uint32_t positions[LONGEST];

	v.data = inputs->v + at;
	for (uint32_t t = 0; t < n; t++)
		positions[t] = first + t;
	expect_ok(pa_assign(pa, 0, 1, &b, positions, &k, &v));
}

/* Write the prompts, then one token for each, with pages reserved for it at that time. */
static void
prefill_and_append(struct pa *pa, const struct torch_inputs *inputs)
{
	pa_open(pa, &(struct pa_params){ .n_pages = 32,
					 .page_size = 64,
					 .max_batch = B,
					 .kv_heads = inputs->shape.kv_heads,
					 .k_dim = inputs->shape.k_dim,
					 .dtype = inputs->shape.dtype });
	pa_batch_reserve(pa, B, prefill);
	for (uint32_t b = 0; b < B; b++)
		write_tokens(pa, inputs, b, 0, prefill[b]);
	for (uint32_t b = 0; b < B; b++) {
		expect_ok(pa_reserve(pa, b, prefill[b] + 1));
		write_tokens(pa, inputs, b, prefill[b], 1);
	}
}

/*
 * PyTorch's test of this name uses causal with q_idx 0 and kv_len 512, so that
 * each row attends only its first key. Here q_idx is the query's position: kv_len
 * covers all reserved tokens, and the mask alone excludes tokens that were never
 * written.
 */
Test(torch_calls, test_decode_at_different_input_position)
{
	const struct torch_shape shape = { B, 4, 4, 1, LONGEST, 16, 16, PAGED_F16, 0 };
	const struct torch_mods none = { 0 };
	static const int64_t q_base[B] = { 5, 98, 47, 194 };
	static const uint32_t kv_len[B] = { 6, 99, 48, 195 };
	struct torch_inputs inputs;
	struct torch_golden golden;
	struct torch_result result;
	struct pa_flex flex = { .q_heads = 4 };
	struct pa pa;

	torch_inputs_open(&inputs, &shape, 7);
	torch_golden_open(&golden, &inputs, &none, kv_len, 1);
	torch_result_open(&result, &inputs);
	flex.q = inputs.q;
	flex.out = result.out;
	flex.lse = result.lse;
	flex.max_score = result.max_score;
	for (enum kernel_isa isa = KERNEL_GENERIC; isa < KERNEL_N_ISAS; isa++) {
		if (!torch_isa(isa))
			continue;
		prefill_and_append(&pa, &inputs);
		flex.mask_mod = torch_parse(&pa, PAGED_MOD_MASK, "kv_idx <= q_idx", &none);
		for (uint32_t i = 0; i < 2; i++) {
			struct pa_rows rows = { .n = B, .kv_len = i == 0 ? kv_len : NULL, .q_base = q_base };

			expect_ok(pa_flex_attention(&pa, &rows, &flex));
			torch_result_check(&result, &inputs, &golden, "at different positions");
		}
		pa_close(&pa);
	}
	torch_result_close(&result);
	torch_golden_close(&golden);
	torch_inputs_close(&inputs);
}
