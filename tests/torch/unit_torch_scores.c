/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's test_paged_builtin_score_mods: 32 pages of 128, B 4, H 4, S 512,
 * D 16, a causal mask, five rounds of reserves; with every score mod that its
 * users write.  Each text is followed by the same in C, with which the
 * float64 evaluation is compared.
 */
#include <math.h>
#include <string.h>

#include "tests/support/reference.h"
#include "tests/torch/torch_fixture.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define B 4u
#define H 4u
#define S 512u
#define WINDOW 64

static struct captured {
	float slope[H], by_batch[B], by_kv[S], by_q[S], bias[S][S], bias3[B][8][S], bias4[B][H][8][S];
	float relative[2 * WINDOW], gate[H], lse[B][H], spatial[5][H];
	int32_t offset[S], distance[S][S], cap, n;
	float half;
} captured;

#define DIMS(...) .n_dims = sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), .extents = { __VA_ARGS__ }
#define FLOATS(array_name, ...)                                                                         \
	{                                                                                               \
		.name = #array_name, .dtype = PAGED_F32, .data = captured.array_name, DIMS(__VA_ARGS__) \
	}

static const struct paged_array arrays[] = {
	FLOATS(slope, H),
	FLOATS(by_batch, B),
	FLOATS(by_kv, S),
	FLOATS(by_q, S),
	FLOATS(bias, S, S),
	FLOATS(bias3, B, 8, S),
	FLOATS(bias4, B, H, 8, S),
	FLOATS(relative, 2 * WINDOW),
	FLOATS(gate, H),
	FLOATS(lse, B, H),
	FLOATS(spatial, 5, H),
	{ .name = "offset", .dtype = PAGED_I32, .data = captured.offset, DIMS(S) },
	{ .name = "distance", .dtype = PAGED_I32, .data = captured.distance, DIMS(S, S) },
	{ .name = "cap", .dtype = PAGED_I32, .data = &captured.cap },
	{ .name = "n", .dtype = PAGED_I32, .data = &captured.n },
	{ .name = "half", .dtype = PAGED_F32, .data = &captured.half },
};

static double
sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static int
clamped(int x)
{
	return x < 0 ? 0 : x > 2 * WINDOW - 1 ? 2 * WINDOW - 1 : x;
}

/* A name, the text, the same in C. */
#define SCORES(X)                                                                                                \
	X(identity, "score", s)                                                                                  \
	X(times_two, "score * 2", s * 2)                                                                         \
	X(squared, "score * score", pow(s, 2))                                                                   \
	X(causal, "q_idx >= kv_idx ? score : -inf", q >= kv ? s : -HUGE_VAL)                                     \
	X(inverse_causal, "q_idx <= kv_idx ? score : -inf", q <= kv ? s : -HUGE_VAL)                             \
	X(rel_bias, "score + (q_idx - kv_idx)", s + (q - kv))                                                    \
	X(rel_causal, "causal ? score + (q_idx - kv_idx) : -inf", q >= kv ? s + (q - kv) : -HUGE_VAL)            \
	X(alibi, "score + exp2(-8.0 * (h + 1) / 4) * (kv_idx - q_idx)", s + exp2(-8.0 * (h + 1) / 4) * (kv - q)) \
	X(alibi_table, "score + slope[h] * (kv_idx - q_idx)", s + (double)captured.slope[h] * (kv - q))          \
	X(windowed, "abs(q_idx - kv_idx) <= 64 ? score : -inf", abs(q - kv) <= 64 ? s : -HUGE_VAL)               \
	X(skip_odd, "kv_idx % 2 == 0 ? score : -inf", kv % 2 == 0 ? s : -HUGE_VAL)                               \
	X(softcap, "cap * tanh(score / cap)", tanh(s / captured.cap) * captured.cap)                             \
	X(softcap_by_name, "soft_cap(30.0)", 30 * tanh(s / 30))                                                  \
	X(silu, "score * sigmoid(score)", sigmoid(s) * s)                                                        \
	X(trig, "sin(cos(score)) + tan(float(b))", sin(cos(s)) + tan(b))                                         \
	X(trig_branches, "cos(score) * sin(score) + tan(float(b))", cos(s) * sin(s) + tan(b))                    \
	X(composed, "soft_cap(20.0, score + (q_idx - kv_idx) * 0.125)", 20 * tanh((s + (q - kv) * 0.125) / 20))  \
	X(by_head, "score * slope[h]", (double)captured.slope[h] * s)                                            \
	X(by_batch, "score + by_batch[b]", s + (double)captured.by_batch[b])                                     \
	X(by_q, "score + by_q[q_idx]", s + (double)captured.by_q[q])                                             \
	X(by_kv, "score + by_kv[kv_idx]", s + (double)captured.by_kv[kv])                                        \
	X(by_q_kv, "score + bias[q_idx][kv_idx]", s + (double)captured.bias[q][kv])                              \
	X(by_b_q_kv, "score + bias3[b][q_idx % 8][kv_idx]", s + (double)captured.bias3[b][q % 8][kv])            \
	X(by_all, "score + bias4[b][h][q_idx % 8][kv_idx]", s + (double)captured.bias4[b][h][q % 8][kv])         \
	X(relative_table, "score + relative[clamp(q_idx - kv_idx + n, 0, 2 * n - 1)]",                           \
	  s + (double)captured.relative[clamped(q - kv + WINDOW)])                                               \
	X(by_offset, "score + by_kv[offset[q_idx]]", s + (double)captured.by_kv[captured.offset[q]])             \
	X(scale, "score + half", s + (double)captured.half)                                                      \
	X(head_gate, "score * sigmoid(gate[h])", sigmoid((double)captured.gate[h]) * s)                          \
	X(rope_term, "score + 0.25 * bias[q_idx][kv_idx]", s + 0.25 * (double)captured.bias[q][kv])              \
	X(graphormer, "score + spatial[distance[q_idx][kv_idx]][h]",                                             \
	  s + (double)captured.spatial[captured.distance[q][kv]][h])                                             \
	X(sandwich, "score + 0.5 * (cos((q_idx - kv_idx) * 0.01) + cos((q_idx - kv_idx) * 0.1))",                \
	  s + 0.5 * (cos((q - kv) * (double)0.01f) + cos((q - kv) * (double)0.1f)))                              \
	X(not_softmax, "log(exp(score - lse[b][h]) + n)", log(exp(s - (double)captured.lse[b][h]) + captured.n))

#define DEFINE(name, text, value)                                        \
	static double name##_in_c(double s, int b, int h, int q, int kv) \
	{                                                                \
		(void)s, (void)b, (void)h, (void)q, (void)kv;            \
		return value;                                            \
	}
SCORES(DEFINE)

#define LIST(name, text, value) { text, name##_in_c },
static const struct score {
	const char *text;
	double (*in_c)(double s, int b, int h, int q, int kv);
} scores[] = { SCORES(LIST) };

static void
capture(void)
{
	random_fill(captured.slope, H, 1);
	random_fill(captured.by_batch, B, 2);
	random_fill(captured.by_kv, S, 3);
	random_fill(captured.by_q, S, 4);
	random_fill(captured.bias[0], S * S, 5);
	random_fill(captured.bias3[0][0], B * 8 * S, 6);
	random_fill(captured.bias4[0][0][0], B * H * 8 * S, 7);
	random_fill(captured.relative, 2 * WINDOW, 8);
	random_fill(captured.gate, H, 9);
	random_fill(captured.lse[0], B * H, 10);
	random_fill(captured.spatial[0], 5 * H, 11);
	for (uint32_t i = 0; i < S; i++)
		captured.offset[i] = (int32_t)(random_bits(12, i) % S);
	for (uint32_t i = 0; i < S * S; i++)
		captured.distance[i / S][i % S] = (int32_t)(random_bits(13, i) % 5);
	captured.cap = 30;
	captured.n = WINDOW;
	captured.half = 0.5f;
}

static void
reserve_in_five_rounds(struct pa *pa, const struct torch_inputs *inputs)
{
	struct pa_tensor k = torch_inputs_k(inputs), v = torch_inputs_v(inputs);

	pa_open(pa, &(struct pa_params){ .n_pages = 32,
					 .page_size = 128,
					 .max_batch = B,
					 .kv_heads = H,
					 .k_dim = 16,
					 .dtype = inputs->shape.dtype });
	pa_batch_reserve(pa, B, (uint32_t[]){ 100, 200, 50, 300 });
	pa_batch_reserve(pa, B, (uint32_t[]){ 100, 512, 300, 300 });
	pa_batch_reserve(pa, B, (uint32_t[]){ 512, 512, 300, 300 });
	pa_batch_reserve(pa, B, (uint32_t[]){ 512, 512, 512, 300 });
	pa_batch_reserve(pa, B, (uint32_t[]){ 512, 512, 512, 512 });
	pa_fill(pa, 0, B, &k, &v);
}

/* Every 37th query row is compared with float64; all rows of the mask forms with each other. */
static void
test_paged_builtin_score_mods(enum kernel_isa isa)
{
	struct torch_shape shape = { B, H, H, S, S, 16, 16, PAGED_F16, 0 };
	struct torch_inputs inputs;
	struct pa pa;

	if (!torch_isa(isa))
		cr_skip("this CPU or build has no %s", kernel_isa_name(isa));
	capture();
	torch_inputs_open(&inputs, &shape, 20261121);
	reserve_in_five_rounds(&pa, &inputs);
	torch_isa_check(&pa, isa);
	for (size_t i = 0; i < N(scores); i++) {
		struct torch_mods mods = { "q_idx >= kv_idx", scores[i].text, arrays, N(arrays) };
		struct torch_golden golden;

		torch_golden_open(&golden, &inputs, &mods, NULL, 37);
		torch_check_all_mask_forms(&pa, &inputs, &mods, 128, &golden);
		torch_golden_close(&golden);
	}
	pa_close(&pa);
	torch_inputs_close(&inputs);
}

Test(torch_scores, test_paged_builtin_score_mods_generic)
{
	test_paged_builtin_score_mods(KERNEL_GENERIC);
}

Test(torch_scores, test_paged_builtin_score_mods_avx2)
{
	test_paged_builtin_score_mods(KERNEL_AVX2);
}

Test(torch_scores, test_paged_builtin_score_mods_avx512)
{
	test_paged_builtin_score_mods(KERNEL_AVX512);
}

Test(torch_scores, test_paged_builtin_score_mods_avx512bf16)
{
	test_paged_builtin_score_mods(KERNEL_AVX512_BF16);
}

Test(torch_scores, test_paged_builtin_score_mods_amx)
{
	test_paged_builtin_score_mods(KERNEL_AMX);
}

/*
 * get_score_mod() of each mod, at random physical tokens, equals the C function at
 * the logical token; -inf if not live.
 */
Test(torch_scores, converted_mods_match_c_code)
{
	struct torch_mods captured_by = { .arrays = arrays, .n_arrays = N(arrays) };
	static const uint32_t kv_len[] = { 512, 300, 1, 77 };
	struct pa_rows rows = { .n = B, .kv_len = kv_len };
	uint32_t n_live = 0;
	struct pa pa;

	capture();
	pa_open(&pa, &(struct pa_params){ .n_pages = 32, .page_size = 128, .max_batch = B });
	pa_batch_reserve(&pa, B, (uint32_t[]){ 100, 200, 50, 300 });
	pa_batch_reserve(&pa, B, (uint32_t[]){ 512, 512, 300, 300 });
	for (uint32_t i = 0; i < N(scores) * 40; i++) {
		const struct score *score = &scores[i / 40];
		struct pa_mod mod = { torch_parse(&pa, PAGED_MOD_SCORE, score->text, &captured_by), arrays, N(arrays) };
		struct pa_converted_mod converted = pa_get_score_mod(&pa, &mod, &rows);
		uint32_t b = random_bits(1, i) % B, h = random_bits(2, i) % H, q = random_bits(3, i) % S;
		uint32_t physical = (uint32_t)(random_bits(4, i) % (15 * 128ull));
		double s = (double)random_float(5, i, 3), expected = -HUGE_VAL, got;
		int64_t logical = pa_logical(&pa, b, physical);

		if (logical >= 0 && logical < kv_len[b]) {
			expected = score->in_c(s, (int)b, (int)h, (int)q, (int)logical);
			n_live++;
		}
		got = pa_score_at(&converted, s, b, h, (int32_t)q, physical);
		cr_assert(got == expected || fabs(got - expected) < 1e-6 * (1 + fabs(expected)),
			  "%s at b %u h %u q %u kv %d: %.9g, expected %.9g", score->text, b, h, q, (int)logical, got,
			  expected);
		paged_mod_destroy((struct paged_mod *)mod.mod);
	}
	cr_assert_gt(n_live, 100);
	pa_close(&pa);
}
