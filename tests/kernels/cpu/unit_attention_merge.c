/* SPDX-License-Identifier: Apache-2.0 */
/* Merging two results over disjoint keys, and attention over a prefix shared by several rows. */
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/reference.h"

#define HEADS 6u
#define DIM 37u

/* Random partial results; merge_fixture_check() computes the merged result in float64. */
struct merge_fixture {
	uint32_t n_tokens;
	struct merge_part part[2];
	struct kernel_tensor out;
	float *lse;
};

static float *
merge_fixture_lse(const struct merge_fixture *merge_fixture)
{
	return malloc((size_t)merge_fixture->n_tokens * HEADS * sizeof(float));
}

static void
merge_fixture_create(struct merge_fixture *merge_fixture, uint32_t n_tokens, enum paged_dtype a, enum paged_dtype b,
		     enum paged_dtype out)
{
	const enum paged_dtype dtypes[] = { a, b };
	size_t bytes;

	*merge_fixture = (struct merge_fixture){ .n_tokens = n_tokens };
	for (uint32_t p = 0; p < 2; p++) {
		struct kernel_tensor *tensor = &merge_fixture->part[p].out;
		float *lse = merge_fixture_lse(merge_fixture);

		*tensor = kernel_tensor_create(dtypes[p], n_tokens, HEADS, DIM, p, &bytes);
		for (uint32_t i = 0; i < n_tokens * HEADS; i++) {
			uint8_t *at = (uint8_t *)tensor->data + i / HEADS * tensor->token_stride +
				      i % HEADS * tensor->head_stride;

			lse[i] = random_float(test_seed() + p, i, 20);
			for (uint32_t d = 0; d < DIM; d++)
				reference_store(at, tensor->dtype, d,
						random_float(test_seed() + 2 + p, i * DIM + d, 1));
		}
		merge_fixture->part[p].lse = lse;
	}
	merge_fixture->out = kernel_tensor_create(out, n_tokens, HEADS, DIM, 3, &bytes);
	merge_fixture->lse = merge_fixture_lse(merge_fixture);
}

static void
merge_fixture_destroy(struct merge_fixture *merge_fixture)
{
	for (uint32_t p = 0; p < 2; p++) {
		free(merge_fixture->part[p].out.data);
		free((void *)(uintptr_t)merge_fixture->part[p].lse);
	}
	free(merge_fixture->out.data);
	free(merge_fixture->lse);
}

static void
merge_fixture_run(const struct merge_fixture *merge_fixture, struct kernel_team *team)
{
	kernel_attention_merge(team, &(struct merge_args){ .n_tokens = merge_fixture->n_tokens,
							   .part = { merge_fixture->part[0], merge_fixture->part[1] },
							   .out = merge_fixture->out,
							   .lse = merge_fixture->lse });
}

static void
merge_fixture_check(const struct merge_fixture *merge_fixture, uint32_t token, uint32_t head)
{
	uint32_t at = token * HEADS + head;
	double a = merge_fixture->part[0].lse[at], b = merge_fixture->part[1].lse[at], max = fmax(a, b);
	double lse = max + log(exp(a - max) + exp(b - max));

	cr_assert_float_eq(merge_fixture->lse[at], lse, 0x1p-22 * (1 + fabs(lse)));
	for (uint32_t d = 0; d < DIM; d++) {
		double expected = exp(a - lse) * kernel_tensor_element(&merge_fixture->part[0].out, token, head, d) +
				  exp(b - lse) * kernel_tensor_element(&merge_fixture->part[1].out, token, head, d);

		cr_assert_float_eq(kernel_tensor_element(&merge_fixture->out, token, head, d), expected,
				   0x1p-20 + reference_unit(merge_fixture->out.dtype) * fabs(expected),
				   "token %u head %u dim %u", token, head, d);
	}
}

KERNEL_TEST(attention_merge, dtypes_and_sizes)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
	static const uint32_t sizes[] = { 0, 1, 16, 17, 400 };
	struct kernel_team *team = kernel_test_team(2, isa);

	for (uint32_t i = 0; i < 27; i++) {
		struct merge_fixture merge_fixture;

		merge_fixture_create(&merge_fixture, sizes[i % 5], dtypes[i % 3], dtypes[i / 3 % 3], dtypes[i / 9]);
		merge_fixture_run(&merge_fixture, team);
		for (uint32_t t = 0; t < merge_fixture.n_tokens; t++)
			for (uint32_t h = 0; h < HEADS; h++)
				merge_fixture_check(&merge_fixture, t, h);
		merge_fixture_destroy(&merge_fixture);
	}
	kernel_team_destroy(team);
}

/* The output of a part with LSE -inf is ignored, even NaN; NaN in an LSE reaches only its own q_row. */
KERNEL_TEST(attention_merge, empty_and_nan_parts)
{
	struct kernel_team *team = kernel_test_team(1, isa);
	struct merge_fixture merge_fixture;
	float *lse[2];

	merge_fixture_create(&merge_fixture, 6, PAGED_F32, PAGED_F32, PAGED_F32);
	for (uint32_t p = 0; p < 2; p++)
		lse[p] = (float *)(uintptr_t)merge_fixture.part[p].lse;
	for (uint32_t p = 0; p < 2;
	     p++) { /* LSE -inf: tokens 0 and 1 in one part, token 2 in both; tokens 3 and 4: NaN in one part */
		lse[p][p * HEADS] = lse[p][2 * HEADS] = -INFINITY;
		memset((uint8_t *)merge_fixture.part[p].out.data + p * merge_fixture.part[p].out.token_stride, 0xff,
		       DIM * sizeof(float));
		lse[p][(3 + p) * HEADS] = NAN;
	}
	merge_fixture_run(&merge_fixture, team);
	for (uint32_t d = 0; d < DIM; d++) {
		cr_assert_eq(kernel_tensor_element(&merge_fixture.out, 0, 0, d),
			     kernel_tensor_element(&merge_fixture.part[1].out, 0, 0, d));
		cr_assert_eq(kernel_tensor_element(&merge_fixture.out, 1, 0, d),
			     kernel_tensor_element(&merge_fixture.part[0].out, 1, 0, d));
		cr_assert_eq(kernel_tensor_element(&merge_fixture.out, 2, 0, d), 0);
		cr_assert(isnan(kernel_tensor_element(&merge_fixture.out, 3, 0, d)) &&
			  isnan(kernel_tensor_element(&merge_fixture.out, 4, 0, d)));
	}
	cr_assert_eq(merge_fixture.lse[0], lse[1][0]);
	cr_assert_eq(merge_fixture.lse[HEADS], lse[0][HEADS]);
	cr_assert_eq(merge_fixture.lse[2 * HEADS], -INFINITY);
	cr_assert(isnan(merge_fixture.lse[3 * HEADS]) && isnan(merge_fixture.lse[4 * HEADS]));
	for (uint32_t t = 0; t < 6; t++)
		for (uint32_t h = t < 5; h < HEADS; h++)
			merge_fixture_check(&merge_fixture, t, h);
	merge_fixture_destroy(&merge_fixture);
	kernel_team_destroy(team);
}

/* In place, with any number of threads: the same bits. */
KERNEL_TEST(attention_merge, in_place_by_any_number_of_threads)
{
	struct merge_fixture separate, in_place;
	size_t n_q_rows = 400 * HEADS;

	merge_fixture_create(&separate, 400, PAGED_F32, PAGED_F32, PAGED_F32);
	for (uint32_t n = 1; n <= 3; n++) {
		struct kernel_team *team = kernel_test_team(n, isa);
		struct kernel_tensor own_out;
		float *own_lse;

		merge_fixture_run(&separate, team);
		merge_fixture_create(&in_place, 400, PAGED_F32, PAGED_F32, PAGED_F32);
		own_out = in_place.out;
		own_lse = in_place.lse;
		in_place.out = in_place.part[n % 2].out;
		in_place.lse = (float *)(uintptr_t)in_place.part[n % 2].lse;
		merge_fixture_run(&in_place, team);
		cr_assert_eq(memcmp(separate.lse, in_place.lse, n_q_rows * sizeof(float)), 0);
		for (uint32_t t = 0; t < 400; t++)
			for (uint32_t h = 0; h < HEADS; h++)
				for (uint32_t d = 0; d < DIM; d++)
					cr_assert_eq(kernel_tensor_element(&separate.out, t, h, d),
						     kernel_tensor_element(&in_place.out, t, h, d));
		in_place.out = own_out;
		in_place.lse = own_lse;
		merge_fixture_destroy(&in_place);
		kernel_team_destroy(team);
	}
	merge_fixture_destroy(&separate);
}

/*
 * Shared prefix: one row of the plan holds the query rows of a whole group and
 * attends the prefix without a causal mask, so that its keys are read once. Each
 * row then attends its own suffix, whose positions count from the end of the
 * prefix. Both results are merged. The last row of the fixture is the prefix; the
 * others are the suffixes.
 */
static void
shared_prefix_attend(struct kernel_fixture *fixture, uint32_t n_suffixes, struct kernel_team *team)
{
	struct attention_args args = { .pages = { &fixture->layout, fixture->pool, KERNEL_FIXTURE_LAYER },
				       .q = fixture->q,
				       .out = fixture->out,
				       .scale = fixture->params.scale,
				       .lse = fixture->lse };
	struct kernel_row prefix = fixture->rows[n_suffixes];
	uint64_t total_q = fixture->rows[n_suffixes].q_start;
	float *prefix_lse = malloc(total_q * fixture->params.q_heads * sizeof(float));
	struct kernel_tensor prefix_out;
	size_t bytes;

	prefix_out =
		kernel_tensor_create(PAGED_F32, total_q, fixture->params.q_heads, fixture->params.v_dim, 0, &bytes);
	prefix.q_start = 0;
	prefix.q_len = (uint32_t)total_q;
	args.rows = &prefix;
	args.n_rows = 1;
	args.out = prefix_out;
	args.lse = prefix_lse;
	kernel_attention(team, &args);
	args.rows = fixture->rows;
	args.n_rows = n_suffixes;
	args.out = fixture->out;
	args.lse = fixture->lse;
	args.causal = true;
	kernel_attention(team, &args);
	kernel_attention_merge(team,
			       &(struct merge_args){ .n_tokens = total_q,
						     .part = { { prefix_out, prefix_lse }, { args.out, args.lse } },
						     .out = args.out,
						     .lse = args.lse });
	free(prefix_out.data);
	free(prefix_lse);
}

/* The keys of a row are the prefix's, then its suffix's up to the query row's position. */
static void
shared_prefix_check(const struct kernel_fixture *fixture, uint32_t n_suffixes, uint32_t r, uint32_t i, uint32_t head)
{
	const struct kernel_fixture_params *p = &fixture->params;
	const struct kernel_fixture_row *row = &p->rows[r], *prefix = &p->rows[n_suffixes];
	uint32_t kv_head = head / (p->q_heads / p->kv_heads), n = prefix->kv_len + (uint32_t)row->q_base + i + 1;
	uint64_t packed_token = fixture->rows[r].q_start + i, at = packed_token * p->q_heads + head;
	float *k = malloc(n * sizeof(float) * p->k_dim), *v = malloc(n * sizeof(float) * p->v_dim);
	struct reference_result expected;
	float q[PAGED_MAX_DIM];

	for (uint32_t d = 0; d < p->k_dim; d++)
		q[d] = kernel_tensor_element(&fixture->q, packed_token, head, d);
	for (uint32_t t = 0; t < n; t++) {
		bool shared = t < prefix->kv_len;
		uint32_t id = shared ? prefix->id : row->id, token = shared ? t : t - prefix->kv_len;

		for (uint32_t d = 0; d < p->k_dim; d++)
			k[t * p->k_dim + d] = kernel_fixture_key(fixture, id, token, kv_head, d);
		for (uint32_t d = 0; d < p->v_dim; d++)
			v[t * p->v_dim + d] = kernel_fixture_value(fixture, id, token, kv_head, d);
	}
	reference_attend(&(struct reference_q_row){ .q = q,
						    .k = k,
						    .v = v,
						    .k_stride = p->k_dim,
						    .v_stride = p->v_dim,
						    .k_dim = p->k_dim,
						    .v_dim = p->v_dim,
						    .n_keys = n,
						    .scale = p->scale },
			 &expected);
	cr_assert_float_eq(fixture->lse[at], expected.lse, expected.score_tolerance + 0x1p-21 * fabs(expected.lse));
	for (uint32_t d = 0; d < p->v_dim; d++)
		cr_assert_float_eq(kernel_tensor_element(&fixture->out, packed_token, head, d), expected.out[d],
				   expected.out_tolerance + 0x1p-21);
	free(k);
	free(v);
}

KERNEL_TEST(attention_merge, shared_prefix)
{
	static const uint32_t prefixes[] = { 0, 1, 64, 600 };
	struct kernel_team *team = kernel_test_team(2, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.k_dim = 24;
	params.v_dim = 40;
	params.pool = PAGED_F16;
	params.causal = false;
	params.n_rows = 5;
	for (uint32_t c = 0; c < 4; c++) {
		struct kernel_fixture fixture;

		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 1, .q_len = 1 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 40, .q_len = 1, .q_base = 39 };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 30, .q_len = 30 };
		params.rows[3] = (struct kernel_fixture_row){ .id = 3, .kv_len = 530, .q_len = 3, .q_base = 527 };
		params.rows[4] = (struct kernel_fixture_row){ .id = 4, .kv_len = prefixes[c] };
		kernel_fixture_create(&fixture, &params);
		shared_prefix_attend(&fixture, 4, team);
		for (uint32_t r = 0; r < 4; r++)
			for (uint32_t i = 0; i < params.rows[r].q_len; i++)
				for (uint32_t h = 0; h < params.q_heads; h++)
					shared_prefix_check(&fixture, 4, r, i, h);
		kernel_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}
