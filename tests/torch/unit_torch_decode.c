/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's decode suite (test_flex_decoding.py) over a paged cache: B 4,
 * S 2048, D 64, one query row unless said otherwise; each attention by mods
 * alone, by logical blocks and by pages, on every CPU path.
 *
 * Tolerance: torch_fixture.h's.
 */
#include <math.h>
#include <string.h>

#include "tests/support/reference.h"
#include "tests/torch/torch_fixture.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define B 4u
/* Shorter inputs for the fake CUDA driver, which runs a GPU's threads one by one. */
#ifdef TORCH_SHORT
#define S 128u
#define D 16u
#define MASKED_S 32u
#define QUERIES(q_len)                                               \
	{                                                            \
		2, 4, 1, q_len, 100 + (q_len), 32, 32, PAGED_BF16, 0 \
	}
#else
#define S 2048u
#define D 64u
#define MASKED_S 256u
#define QUERIES(q_len)                                                  \
	{                                                               \
		2, 32, 8, q_len, 200 + (q_len), 128, 128, PAGED_BF16, 0 \
	}
#endif

/* test_score_mods */
static const char *const builtin[] = {
	"score",
	"score * 2",
	"score * score",
	"q_idx >= kv_idx ? score : -inf",
	"q_idx <= kv_idx ? score : -inf",
	"score + (q_idx - kv_idx)",
	"q_idx >= kv_idx ? score + (q_idx - kv_idx) : -inf",
	"score + (kv_idx - q_idx) * exp2(-((h + 1) * 8.0 / 8))",
	"q_idx + 1000 >= kv_idx ? score : -inf",
};

/* The arrays that the other tests of the suite capture. */
static struct captured {
	float head[16], batch[B], kv[S], q[1], bias[S], bias3[B][S], bias4[B][16][S];
	int32_t half[S], seq_len[B], one, offset[4], document[S];
} captured;

#define DIMS(...) .n_dims = sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), .extents = { __VA_ARGS__ }

static const struct paged_array arrays[] = {
	{ .name = "head", .dtype = PAGED_F32, .data = captured.head, DIMS(16) },
	{ .name = "batch", .dtype = PAGED_F32, .data = captured.batch, DIMS(B) },
	{ .name = "kv", .dtype = PAGED_F32, .data = captured.kv, DIMS(S) },
	{ .name = "q", .dtype = PAGED_F32, .data = captured.q, DIMS(1) },
	{ .name = "bias", .dtype = PAGED_F32, .data = captured.bias, DIMS(1, S) },
	{ .name = "bias3", .dtype = PAGED_F32, .data = captured.bias3, DIMS(B, 1, S) },
	{ .name = "bias4", .dtype = PAGED_F32, .data = captured.bias4, DIMS(B, 16, 1, S) },
	{ .name = "half", .dtype = PAGED_I32, .data = captured.half, DIMS(S) },
	{ .name = "seq_len", .dtype = PAGED_I32, .data = captured.seq_len, DIMS(B) },
	{ .name = "one", .dtype = PAGED_I32, .data = &captured.one },
	{ .name = "offset", .dtype = PAGED_I32, .data = captured.offset, DIMS(4) },
	{ .name = "document", .dtype = PAGED_I32, .data = captured.document, DIMS(S) },
};

static const char *const capturing[] = {
	"score * head[h]",                                                     /* _head_offset */
	"sin(cos(score)) + tan(float(b))",                                     /* _trig */
	"cos(score) * sin(score) + tan(float(b))",                             /* _trig2 */
	"kv_idx % 2 == 0 ? score : -inf",                                      /* test_skip_odd_keys */
	"q_idx <= kv_idx ? score + (q_idx - kv_idx) : -inf",                   /* test_function_composition */
	"score + head[h]",                                                     /* test_captured_buffers */
	"score + kv[kv_idx] + q[q_idx] + head[h] + batch[b]",                  /* test_captured_buffers_all_dims */
	"half[q_idx] == half[kv_idx] ? score : -inf",                          /* test_seq_masking */
	"score + bias[q_idx][kv_idx]",                                         /* test_load_from_bias_seq_only */
	"score + bias3[b][q_idx][kv_idx]",                                     /* ..._seq_batch */
	"score + bias4[b][h][q_idx][kv_idx]",                                  /* ..._head_seq_batch */
	"score - q_idx / (1 + kv_idx)",                                        /* test_subgraph_respect_decompostion */
	"score * sigmoid(score)",                                              /* test_silu_on_score */
	"score <= seq_len[b] && q_idx >= kv_idx ? score : -inf",               /* test_padded_dense_causal */
	"score + one",                                                         /* test_captured_scale */
	"score * one",                                                         /* test_recompile_changed_score_mod */
	"q_idx - offset[document[q_idx]] >= kv_idx - offset[document[kv_idx]]" /* test_njt_causal */
	" ? score : -inf",
};

static void
capture(void)
{
	random_fill(captured.head, 16, 1);
	random_fill(captured.batch, B, 2);
	random_fill(captured.kv, S, 3);
	random_fill(captured.q, 1, 4);
	random_fill(captured.bias, S, 5);
	random_fill(captured.bias3[0], B * S, 6);
	random_fill(captured.bias4[0][0], B * 16 * S, 7);
	captured.one = 1;
	memcpy(captured.offset, (int32_t[]){ 0, S / 2, S / 2 + S / 4, S }, sizeof(captured.offset));
	for (uint32_t i = 0; i < S; i++) {
		captured.half[i] = i >= S / 2;
		captured.document[i] = i < S / 2 ? 0 : i < S / 2 + S / 4 ? 1 : 2;
	}
	for (uint32_t b = 0; b < B; b++)
		captured.seq_len[b] = (int32_t)b + 1;
}

/* All score mods over one cache, on every CPU path. */
static void
run_all(const struct torch_shape *shape, const char *mask, const char *const *scores, size_t n_scores,
	const uint32_t *page_sizes, size_t n_page_sizes)
{
	struct torch_golden golden[N(capturing)];
	struct torch_mods mods = { .mask = mask, .arrays = arrays, .n_arrays = N(arrays) };
	struct torch_inputs inputs;
	struct pa pa;

	cr_assert_leq(n_scores, N(golden));
	capture();
	torch_inputs_open(&inputs, shape, 20261121);
	for (size_t i = 0; i < n_scores; i++) {
		mods.score = scores[i];
		torch_golden_open(&golden[i], &inputs, &mods, NULL, 1);
	}
	for (enum kernel_isa isa = KERNEL_GENERIC; isa < KERNEL_N_ISAS; isa++)
		for (size_t p = 0; p < n_page_sizes && torch_isa(isa); p++) {
			torch_inputs_fill(&inputs, &pa, page_sizes[p]);
			torch_isa_check(&pa, isa);
			for (size_t i = 0; i < n_scores; i++) {
				mods.score = scores[i];
				torch_check_all_mask_forms(&pa, &inputs, &mods, page_sizes[p], &golden[i]);
			}
			pa_close(&pa);
		}
	for (size_t i = 0; i < n_scores; i++)
		torch_golden_close(&golden[i]);
	torch_inputs_close(&inputs);
}

#ifdef TORCH_SHORT
#define N_PAGE_SIZES 1
#else
#define N_PAGE_SIZES N(pages)
#endif
static const uint32_t page_128[] = { 128 }, page_16[] = { 16 }, pages[] = { 64, 128, 256 };

static struct torch_shape
decode_of(uint32_t q_heads, uint32_t kv_heads, enum paged_dtype dtype)
{
	return (struct torch_shape){ B, q_heads, kv_heads, 1, S, D, D, dtype, 0 };
}

/*
 * test_builtin_score_mods, test_paged_attention_page_size; the cases take turns
 * with dtypes, golden/attention has all.
 */
static void
head_pair(uint32_t q_heads, uint32_t kv_heads, enum paged_dtype dtype)
{
	struct torch_shape shape = decode_of(q_heads, kv_heads, dtype);

	run_all(&shape, NULL, builtin, N(builtin), page_128, 1);
	run_all(&shape, "192 + q_idx >= kv_idx", builtin, N(builtin), pages, N_PAGE_SIZES);
}

Test(torch_decode, heads_16_1)
{
	head_pair(16, 1, PAGED_F32);
}

Test(torch_decode, heads_8_2)
{
	head_pair(8, 2, PAGED_F16);
}

Test(torch_decode, heads_16_16)
{
	head_pair(16, 16, PAGED_BF16);
}

Test(torch_decode, heads_16_8)
{
	head_pair(16, 8, PAGED_F32);
}

Test(torch_decode, captured_buffers)
{
	struct torch_shape shape = decode_of(16, 8, PAGED_F16);

	run_all(&shape, NULL, capturing, N(capturing), page_128, 1);
}

Test(torch_decode, non_equal_head_dims)
{
	struct torch_shape shape = decode_of(16, 8, PAGED_F32);

	shape.v_dim = D / 2;
	run_all(&shape, NULL, builtin, N(builtin), page_128, 1);
	shape.k_dim = D / 2;
	shape.v_dim = D;
	run_all(&shape, NULL, builtin, N(builtin), page_128, 1);
}

/* The windowed offset by score mod, by mask mod, and by both gives one result. */
Test(torch_decode, test_windowed_vs_sdpa)
{
	static const char *const window = "q_idx + 1000 >= kv_idx";
	struct torch_shape shape = { B, 16, 16, 8, S, D, D, PAGED_F16, 0 };

	run_all(&shape, NULL, &builtin[8], 1, page_128, 1);
	run_all(&shape, window, &builtin[8], 1, page_128, 1);
	run_all(&shape, window, (const char *[]){ NULL }, 1, page_128, 1);
}

Test(torch_decode, odd_lengths_and_dims)
{
	struct torch_shape shape = { B, 16, 8, 1, 65, 16, 16, PAGED_F16, 0 };

	run_all(&shape, NULL, builtin, N(builtin), pages, 2);
	shape = decode_of(16, 8, PAGED_F32);
	shape.kv_len = S - 3;
	run_all(&shape, NULL, builtin, 3, page_128, 1);
	for (uint32_t i = 0; i < 4; i++) {
		shape = decode_of(16, 8, PAGED_F16);
		shape.k_dim = shape.v_dim = (uint32_t[]){ 17, 24, 94, 121 }[i];
		run_all(&shape, NULL, &builtin[5], 1, page_128, 1);
	}
}

/* Few query rows over small blocks, where PyTorch allows 5e-3. */
Test(torch_decode, query_lengths)
{
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t q_len = (uint32_t[]){ 4, 8, 16, 23, 64 }[i];
		struct torch_shape shape = QUERIES(q_len);

		run_all(&shape, "kv_idx <= q_idx + 200", (const char *[]){ NULL }, 1, page_16, 1);
	}
}

Test(torch_decode, test_logsumexp_correctness)
{
	struct torch_shape shape = { B, 8, 8, 2, S, D, D, PAGED_F32, 0 };

	run_all(&shape, NULL, (const char *[]){ builtin[0], builtin[3] }, 2, page_128, 1);
}

/* Fully masked q_rows are 0 with LSE -inf, not NaN. S is a fraction of PyTorch's 2048. */
Test(torch_decode, test_fully_masked_out_rows_0_check_gqa)
{
	struct torch_shape shape = { B, 16, 8, MASKED_S, MASKED_S, D, D, PAGED_F32, 0 };
	struct torch_inputs inputs;
	struct torch_golden golden;
	struct torch_mods mods = { .mask = MASKED_S == 256 ? "q_idx < 128" : "q_idx < 16" };
	struct pa pa;

	torch_inputs_open(&inputs, &shape, 3);
	torch_golden_open(&golden, &inputs, &mods, NULL, 17);
	for (size_t line = 0; line < (size_t)B * MASKED_S * 16; line++) {
		uint32_t i = line / 16 % MASKED_S;

		if (i % 17 == 0 && i >= MASKED_S / 2)
			cr_assert(isinf(golden.lse[line]) && golden.out[line * D] == 0);
	}
	for (enum kernel_isa isa = KERNEL_GENERIC; isa < KERNEL_N_ISAS; isa++)
		if (torch_isa(isa)) {
			torch_inputs_fill(&inputs, &pa, 128);
			torch_check_all_mask_forms(&pa, &inputs, &mods, 128, &golden);
			pa_close(&pa);
		}
	torch_golden_close(&golden);
	torch_inputs_close(&inputs);
}
