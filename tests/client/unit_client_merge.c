/* SPDX-License-Identifier: Apache-2.0 */
/* Merging two results over disjoint keys. */
#include <string.h>

#include "tests/client/attention_fixture.h"

TestSuite(client_merge, .init = attention_fixture_setup, .fini = attention_fixture_teardown);

#define PREFIX 256u /* tokens */
#define SHARERS 2u
#define QUERIES 43u

typedef float q_result[QUERIES][ATTENTION_Q_HEADS][ATTENTION_DIM];
typedef float q_lse[QUERIES][ATTENTION_Q_HEADS];

static struct paged_tensor
q_shaped_tensor(void *data)
{
	return (struct paged_tensor){
		.data = data, .dtype = PAGED_F32, .n_heads = ATTENTION_Q_HEADS, .dim = ATTENTION_DIM
	};
}

static void
merge_test_attend(const struct paged_batch_row *rows, size_t n_rows, struct paged_attention_params *params, float *out,
		  float *lse)
{
	struct paged_tensor q = q_shaped_tensor(attention_fixture->q), to = q_shaped_tensor(out);

	params->struct_size = sizeof(*params);
	params->lse = lse;
	expect_ok(paged_batch_plan(attention_fixture->batch, n_rows, rows));
	expect_ok(paged_attention(attention_fixture->batch, 0, &q, &to, params));
}

/* Page tables with a shared prefix: pages of sequence 2, then the row's own pages. */
static void
shared_prefix_rows(struct paged_batch_row *rows, uint32_t (*pages)[64])
{
	static const uint32_t q_len[SHARERS] = { 40, 3 };

	for (uint32_t r = 0; r < SHARERS; r++) {
		uint32_t own = attention_fixture->rows[r].kv_len,
			 n_own = (own + ATTENTION_PAGE_SIZE - 1) / ATTENTION_PAGE_SIZE;

		expect_ok(paged_seq_read(pool, attention_fixture->rows[2].seq, NULL, pages[r],
					 PREFIX / ATTENTION_PAGE_SIZE));
		expect_ok(paged_seq_read(pool, attention_fixture->rows[r].seq, NULL,
					 pages[r] + PREFIX / ATTENTION_PAGE_SIZE, n_own));
		rows[r] = (struct paged_batch_row){ .pages = pages[r],
						    .n_pages = PREFIX / ATTENTION_PAGE_SIZE + n_own,
						    .q_len = q_len[r],
						    .kv_len = PREFIX + own };
	}
}

static void
expect_all_near(const float *got, const float *expected, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		cr_assert(fabsf(got[i] - expected[i]) < 4e-6f, "%s %zu: %g, not %g", what, i, (double)got[i],
			  (double)expected[i]);
}

/* One call attends the shared prefix with all query rows, another each row's own pages. */
Test(client_merge, shared_prefix)
{
	static q_result plain, out[2], merged;
	static q_lse plain_lse, lse[2], merged_lse;
	static uint32_t pages[SHARERS][64];
	int32_t prefix = PREFIX;
	const struct paged_array arrays[] = { MOD_PARAMETER("prefix", PAGED_I32, prefix) };
	struct paged_mod_set *mods = attention_mod_set_open(
		&(struct attention_mods){ .mask = "kv_idx >= prefix", .n_arrays = 1, .arrays = arrays });
	struct paged_batch_row rows[SHARERS];
	struct paged_batch_row shared = {
		.pages = pages[0], .n_pages = PREFIX / ATTENTION_PAGE_SIZE, .q_len = QUERIES, .kv_len = PREFIX
	};
	const struct paged_merge_params merge = {
		.struct_size = sizeof(merge),
		.n_tokens = QUERIES,
		.part = { q_shaped_tensor(out[0]), q_shaped_tensor(out[1]) },
		.part_lse = { lse[0][0], lse[1][0] },
		.out = q_shaped_tensor(merged),
		.lse = merged_lse[0],
	};

	shared_prefix_rows(rows, pages);
	merge_test_attend(rows, SHARERS, &(struct paged_attention_params){ 0 }, plain[0][0], plain_lse[0]);
	merge_test_attend(&shared, 1, &(struct paged_attention_params){ .mask = PAGED_MASK_NONE }, out[0][0][0],
			  lse[0][0]);
	merge_test_attend(rows, SHARERS, &(struct paged_attention_params){ .mod_set = mods }, out[1][0][0], lse[1][0]);
	expect_ok(paged_merge(attention_fixture->batch, &merge));
	expect_all_near(merged[0][0], plain[0][0], sizeof(plain) / sizeof(float), "out");
	expect_all_near(merged_lse[0], plain_lse[0], sizeof(plain_lse) / sizeof(float), "lse");
}

/* A part with lse -inf is ignored; NaN stays in its token and head; the output may be a part. */
Test(client_merge, empty_and_nan_parts)
{
	static q_result out[2], expected;
	static q_lse lse[2];
	struct paged_merge_params merge = {
		.struct_size = sizeof(merge),
		.n_tokens = 3,
		.part = { q_shaped_tensor(out[0]), q_shaped_tensor(out[1]) },
		.part_lse = { lse[0][0], lse[1][0] },
		.out = q_shaped_tensor(expected),
	};

	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t h = 0; h < ATTENTION_Q_HEADS; h++)
			for (uint32_t d = 0; d < ATTENTION_DIM; d++) {
				out[0][t][h][d] = 1;
				out[1][t][h][d] = 4;
			}
	lse[0][0][1] = -INFINITY;
	out[0][0][1][2] = NAN;
	lse[1][1][0] = logf(2);
	lse[0][1][2] = NAN;
	lse[0][2][3] = lse[1][2][3] = -INFINITY;
	expect_ok(paged_merge(attention_fixture->batch, &merge));
	cr_expect_float_eq(expected[0][0][0], 2.5f, 1e-6f);
	cr_expect_eq(expected[0][1][2], 4);
	cr_expect_float_eq(expected[1][0][0], 3, 1e-6f);
	cr_expect(isnan(expected[1][2][5]));
	cr_expect_eq(expected[2][3][5], 0);
	cr_expect_eq(expected[2][2][5], 2.5f);

	merge.out = merge.part[1];
	merge.lse = lse[0][0];
	expect_ok(paged_merge(attention_fixture->batch, &merge));
	cr_expect_eq(memcmp(out[1][2], expected[2], sizeof(expected[2])), 0);
	cr_expect_eq(memcmp(out[1][0], expected[0], sizeof(expected[0])), 0);
	cr_expect_float_eq(lse[0][1][0], logf(3), 1e-6f);
	cr_expect_eq(lse[0][2][3], -INFINITY);
}

Test(client_merge, arguments_are_checked)
{
	static q_result out[3];
	static q_lse lse;
	const struct paged_merge_params good = {
		.struct_size = sizeof(good),
		.n_tokens = 2,
		.part = { q_shaped_tensor(out[0]), q_shaped_tensor(out[1]) },
		.part_lse = { lse[0], lse[0] },
		.out = q_shaped_tensor(out[2]),
	};
	struct paged_merge_params invalid;

	expect_ok(paged_merge(attention_fixture->batch, &good));
	expect_ok(paged_merge(attention_fixture->batch,
			      &(struct paged_merge_params){ .struct_size = sizeof(invalid),
							    .part = { good.part[0], good.part[1] },
							    .out = good.out }));
	expect_error(paged_merge(attention_fixture->batch, NULL), PAGED_ERR_INVALID,
		     "out has 0 dims, 1 to 576 are possible");
	invalid = good;
	invalid.out.dim = 577;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID,
		     "out has 577 dims, 1 to 576 are possible");
	invalid = good;
	invalid.part[1].n_heads = 3;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID,
		     "part[1] (b) has 3 heads, not 4");
	invalid = good;
	invalid.part[0].data = NULL;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID, "part[0] (a) has no data");
	invalid = good;
	invalid.part_lse[1] = NULL;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID, "part[1] (b) has no lse");
	invalid = good;
	invalid.out.token_stride = invalid.out.head_stride = ATTENTION_DIM;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID,
		     "out: its strides let heads and tokens overlap");
	invalid = good;
	invalid.out = invalid.part[1];
	invalid.out.dtype = PAGED_BF16;
	expect_error(paged_merge(attention_fixture->batch, &invalid), PAGED_ERR_INVALID,
		     "out is in the memory of part[1] (b), with another dtype or other strides");
}
