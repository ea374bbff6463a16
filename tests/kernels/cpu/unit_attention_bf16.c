/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries, pages and outputs of bf16, for which an instruction set may multiply
 * pairs of bf16 and round weights to bf16. Tests the loss of accuracy, and that a
 * masked token has no effect if the other token of its pair is not masked.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

static struct kernel_fixture_params
decode_params(void)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.kv_heads = 1;
	params.k_dim = params.v_dim = 128;
	params.pool = params.q = params.out = PAGED_BF16;
	params.scale = 0.09f;
	params.rows[0] = (struct kernel_fixture_row){ .id = 3, .kv_len = 700, .q_len = 1, .q_base = 699 };
	return params;
}

struct errors {
	double root_mean; /* of the squares */
	double largest;
};

/* `exact` has f32 outputs; other tests compare those with float64. */
static struct errors
errors_of(const struct kernel_fixture *fixture, const struct kernel_fixture *exact)
{
	struct errors errors = { 0 };
	uint64_t n = 0;

	for (uint64_t q = 0; q < fixture->total_q; q++)
		for (uint32_t h = 0; h < fixture->params.q_heads; h++)
			for (uint32_t d = 0; d < fixture->params.v_dim; d++, n++) {
				double error = (double)kernel_tensor_element(&fixture->out, q, h, d) -
					       (double)kernel_tensor_element(&exact->out, q, h, d);

				errors.root_mean += error * error;
				errors.largest = fmax(errors.largest, fabs(error));
			}
	errors.root_mean = sqrt(errors.root_mean / (double)n);
	return errors;
}

/*
 * The errors are at most twice those of the generic f32 kernel, whose outputs are
 * rounded to bf16 too. For i8, the largest error is at most three times as large:
 * a token's scale is part of its weight, so even a weight of 1 is rounded.
 */
static void
errors_check(struct kernel_fixture_params params, enum kernel_isa isa)
{
	struct kernel_fixture exact, generic, fixture;
	struct errors generic_errors, errors;

	kernel_fixture_run(&generic, &params, 1, KERNEL_GENERIC);
	kernel_fixture_run(&fixture, &params, 2, isa);
	params.out = PAGED_F32;
	kernel_fixture_run(&exact, &params, 1, KERNEL_GENERIC);
	generic_errors = errors_of(&generic, &exact);
	errors = errors_of(&fixture, &exact);
	cr_assert(errors.root_mean <= 2 * generic_errors.root_mean &&
			  errors.largest <= (params.pool == PAGED_I8 ? 3 : 2) * generic_errors.largest,
		  "seed %" PRIu64
		  ", %u/%u heads, dims %u %u, kv_len %u, pool %s, scale %g: errors %.3g and %.3g, f32's %.3g "
		  "and %.3g",
		  params.seed, params.q_heads, params.kv_heads, params.k_dim, params.v_dim, params.rows[0].kv_len,
		  paged_dtype_name(params.pool), (double)params.scale, errors.root_mean, errors.largest,
		  generic_errors.root_mean, generic_errors.largest);
	kernel_fixture_destroy(&exact);
	kernel_fixture_destroy(&generic);
	kernel_fixture_destroy(&fixture);
}

KERNEL_TEST(attention_bf16, errors_by_pool_and_scale)
{
	static const float scales[] = { 0.01f, 0.09f, 0.5f, 2 };

	for (size_t i = 0; i < 2 * COUNT(pools) * COUNT(scales); i++) {
		struct kernel_fixture_params params = decode_params();

		params.pool = pools[i / 2 % COUNT(pools)];
		params.scale = scales[i / 2 / COUNT(pools)];
		if (i % 2)
			params.rows[0] =
				(struct kernel_fixture_row){ .id = 3, .kv_len = 700, .q_len = 17, .q_base = 683 };
		errors_check(params, isa);
	}
}

KERNEL_TEST(attention_bf16, errors_by_shape)
{
	static const struct {
		uint32_t q_heads, kv_heads, k_dim, v_dim, kv_len, q_len;
		bool v_in_k;
	} shapes[] = { { 1, 1, 64, 64, 129, 1, false },   { 6, 2, 80, 112, 333, 1, false },
		       { 7, 1, 40, 121, 1025, 1, false }, { 5, 1, 192, 128, 77, 3, false },
		       { 8, 1, 576, 512, 200, 1, true },  { 3, 3, 256, 256, 511, 5, false },
		       { 8, 2, 72, 104, 300, 33, false }, { 20, 1, 576, 512, 90, 2, true } };

	for (size_t i = 0; i < COUNT(shapes); i++) {
		struct kernel_fixture_params params = decode_params();

		params.q_heads = shapes[i].q_heads;
		params.kv_heads = shapes[i].kv_heads;
		params.k_dim = shapes[i].k_dim;
		params.v_dim = shapes[i].v_dim;
		params.v_in_k = shapes[i].v_in_k;
		params.rows[0].kv_len = shapes[i].kv_len;
		params.rows[0].q_len = shapes[i].q_len;
		params.rows[0].q_base = shapes[i].kv_len - shapes[i].q_len;
		errors_check(params, isa);
	}
}

/* Query rows of a chunk attend odd and even numbers of tokens; each row alone gives the same bits. */
KERNEL_TEST(attention_bf16, q_rows_of_a_chunk_equal_single_ones)
{
	for (size_t i = 0; i < COUNT(pools); i++) {
		struct kernel_fixture_params params = decode_params(), part;
		struct kernel_fixture chunk, alone;

		params.pool = pools[i];
		params.q_heads = 1;
		params.rows[0] = (struct kernel_fixture_row){ .id = 4, .kv_len = 67, .q_len = 5, .q_base = 62 };
		kernel_fixture_run(&chunk, &params, 1, isa);
		part = params;
		for (uint32_t q = 0; q < 5; q++) {
			part.placement = q;
			part.page_size = 1 + q;
			part.rows[0] =
				(struct kernel_fixture_row){ .id = 4, .kv_len = 63 + q, .q_len = 1, .q_base = 62 + q };
			kernel_fixture_run(&alone, &part, 2, isa);
			cr_assert(kernel_fixture_equal(&chunk, q, &alone, 0, 1), "pool %s, query row %u",
				  paged_dtype_name(pools[i]), q);
			kernel_fixture_destroy(&alone);
		}
		kernel_fixture_destroy(&chunk);
	}
}

/*
 * Prefills that fill Q tiles and work items exactly or not, and end before, at and
 * after tiles, blocks and KV chunks.
 */
KERNEL_TEST(attention_bf16, errors_in_prefill)
{
	static const struct {
		uint32_t q_heads, k_dim, v_dim, kv_len, q_len, page_size;
	} shapes[] = { { 1, 16, 16, 17, 17, 1 },    { 1, 33, 17, 31, 31, 3 },      { 1, 128, 128, 63, 32, 16 },
		       { 1, 64, 80, 65, 33, 64 },   { 3, 128, 48, 127, 43, 16 },   { 1, 48, 128, 128, 64, 3 },
		       { 2, 128, 128, 129, 65, 1 }, { 1, 192, 144, 191, 191, 16 }, { 4, 128, 128, 513, 64, 64 },
		       { 1, 32, 16, 641, 255, 16 }, { 1, 128, 64, 512, 257, 3 },   { 4, 16, 33, 1090, 130, 64 } };

	for (size_t i = 0; i < COUNT(shapes) * COUNT(pools); i++) {
		size_t shape = i / COUNT(pools);
		struct kernel_fixture_params params = decode_params();

		params.pool = pools[i % COUNT(pools)];
		params.q_heads = shapes[shape].q_heads;
		params.k_dim = shapes[shape].k_dim;
		params.v_dim = shapes[shape].v_dim;
		params.page_size = shapes[shape].page_size;
		params.rows[0] = (struct kernel_fixture_row){ .id = 3,
							      .kv_len = shapes[shape].kv_len,
							      .q_len = shapes[shape].q_len,
							      .q_base = shapes[shape].kv_len - shapes[shape].q_len };
		errors_check(params, isa);
	}
}

/* A prompt in one call, by any number of threads, and in chunks gives the same bits. */
KERNEL_TEST(attention_bf16, chunked_prefill_has_equal_bits)
{
	static const uint32_t chunks[] = { 17, 20, 32, 33, 100, 128 };
	struct kernel_fixture_params params = decode_params(), part;
	struct kernel_fixture one_chunk, other_threads, chunk;

	params.q_heads = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 4, .kv_len = 700, .q_len = 330, .q_base = 370 };
	kernel_fixture_run(&one_chunk, &params, 1, isa);
	params.page_size = 3;
	kernel_fixture_run(&other_threads, &params, 3, isa);
	cr_assert(kernel_fixture_equal(&one_chunk, 0, &other_threads, 0, 330));
	kernel_fixture_destroy(&other_threads);
	part = params;
	for (uint32_t i = 0, q = 0; i < COUNT(chunks); q += chunks[i++]) {
		uint32_t n = chunks[i];

		part.rows[0] =
			(struct kernel_fixture_row){ .id = 4, .kv_len = 370 + q + n, .q_len = n, .q_base = 370 + q };
		kernel_fixture_run(&chunk, &part, 2, isa);
		cr_assert(kernel_fixture_equal(&one_chunk, q, &chunk, 0, n), "query rows %u to %u", q, q + n);
		kernel_fixture_destroy(&chunk);
	}
	kernel_fixture_destroy(&one_chunk);
}

static void
bf16_put(struct kernel_fixture *fixture, unsigned int plane, uint32_t token, uint32_t dim, uint16_t bits)
{
	memcpy(kernel_fixture_token(fixture, plane, token, 0) + 2 * dim, &bits, sizeof(bits));
}

/* A NaN in the token after the last visible one, which is in the same bf16 pair, reaches only the next query row. */
KERNEL_TEST(attention_bf16, masked_nan_in_a_bf16_pair)
{
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = decode_params();
	struct kernel_fixture fixture;

	params.rows[0] = (struct kernel_fixture_row){ .id = 4, .kv_len = 50, .q_len = 2, .q_base = 48 };
	kernel_fixture_create(&fixture, &params);
	bf16_put(&fixture, LAYOUT_V, 49, 5, 0x7fc0);
	kernel_fixture_attend(&fixture, team);
	for (uint32_t h = 0; h < params.q_heads; h++)
		for (uint32_t d = 0; d < params.v_dim; d++) {
			cr_assert(!isnan(kernel_tensor_element(&fixture.out, 0, h, d)));
			cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, 1, h, d)) != 0, d == 5);
		}
	kernel_fixture_destroy(&fixture);
	kernel_team_destroy(team);
}
