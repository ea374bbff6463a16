/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/attention_fixture.h"

#include <stdlib.h>

#define ATTENTION_SEED 20261121u
#define ATTENTION_SCALE 0.4f

struct attention_fixture *attention_fixture;

static const struct paged_pool_params attention_pool_params = {
	.struct_size = sizeof(attention_pool_params),
	.name = "fixture",
	.n_layers = 2,
	.n_kv_heads = ATTENTION_KV_HEADS,
	.k_dim = ATTENTION_DIM,
	.dtype = PAGED_F32,
	.page_size = ATTENTION_PAGE_SIZE,
	.n_pages = ATTENTION_N_PAGES,
	.n_slots = 8,
	.max_length = ATTENTION_TOKENS,
};

/* Appends random K and V, the same in all layers. */
static void
attention_fixture_fill(uint32_t r, uint32_t n_tokens)
{
	struct paged_batch_row row = { .seq = fixture_create_seq(n_tokens), .q_len = n_tokens, .kv_len = n_tokens };
	struct paged_tensor k = { .data = attention_fixture->k[r],
				  .dtype = PAGED_F32,
				  .n_heads = ATTENTION_KV_HEADS,
				  .dim = ATTENTION_DIM },
			    v = k;

	v.data = attention_fixture->v[r];
	for (uint32_t i = 0; i < n_tokens * ATTENTION_KV_HEADS * ATTENTION_DIM; i++) {
		(&attention_fixture->k[r][0][0][0])[i] = random_float(ATTENTION_SEED + r, 2 * i, 1);
		(&attention_fixture->v[r][0][0][0])[i] = random_float(ATTENTION_SEED + r, 2 * i + 1, 1);
	}
	expect_ok(paged_batch_plan(attention_fixture->batch, 1, &row));
	for (uint32_t layer = 0; layer < attention_pool_params.n_layers; layer++)
		expect_ok(paged_append(attention_fixture->batch, layer, &k, &v, NULL));
	row.q_len = 0;
	attention_fixture->rows[r] = row;
}

void
attention_fixture_setup(void)
{
	static const uint32_t lengths[ATTENTION_ROWS] = { ATTENTION_KV_LEN_0, ATTENTION_KV_LEN_1, ATTENTION_KV_LEN_2 };
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 2 };

	attention_fixture = calloc(1, sizeof(*attention_fixture));
	cr_assert_not_null(attention_fixture);
	expect_ok(paged_client_open_embedded(&attention_pool_params, 1, &params, &client));
	expect_ok(paged_pool_open(client, "fixture", &pool));
	attention_fixture->batch = fixture_create_batch(ATTENTION_ROWS, 0);
	for (uint32_t r = 0; r < ATTENTION_ROWS; r++)
		attention_fixture_fill(r, lengths[r]);
	for (uint32_t i = 0; i < sizeof(attention_fixture->q) / sizeof(float); i++)
		(&attention_fixture->q[0][0][0])[i] = random_float(ATTENTION_SEED + 99, i, 2);
}

void
attention_fixture_teardown(void)
{
	paged_client_close(client);
	free(attention_fixture);
}

void
attention_fixture_plan(const uint32_t q_len[ATTENTION_ROWS])
{
	for (uint32_t r = 0; r < ATTENTION_ROWS; r++)
		attention_fixture->rows[r].q_len = q_len[r];
	expect_ok(paged_batch_plan(attention_fixture->batch, ATTENTION_ROWS, attention_fixture->rows));
}

enum paged_status
attention_fixture_attend(const struct paged_attention_params *params)
{
	struct paged_tensor q = { .data = attention_fixture->q,
				  .dtype = PAGED_F32,
				  .n_heads = ATTENTION_Q_HEADS,
				  .dim = ATTENTION_DIM },
			    out = q;
	struct paged_attention_params complete = { .struct_size = sizeof(complete) };

	out.data = attention_fixture->out;
	if (params != NULL)
		complete = *params;
	complete.scale = ATTENTION_SCALE;
	complete.lse = attention_fixture->lse[0];
	complete.max_score = attention_fixture->row_max[0];
	return paged_attention(attention_fixture->batch, 0, &q, &out, &complete);
}

struct paged_mod *
attention_mod_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays, const struct paged_array *arrays)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		expect_ok(paged_mod_parse(pool, kind, text, n_arrays, arrays, &mod));
	return mod;
}

struct paged_mod_set *
attention_mod_set_open(const struct attention_mods *mods)
{
	const struct paged_mod_set_params params = {
		.struct_size = sizeof(params),
		.mask = attention_mod_parse(PAGED_MOD_MASK, mods->mask, mods->n_arrays, mods->arrays),
		.score = attention_mod_parse(PAGED_MOD_SCORE, mods->score, mods->n_arrays, mods->arrays),
	};
	struct paged_mod_set *opened = NULL;

	expect_ok(paged_mod_set_create(attention_fixture->batch, &params, &opened));
	if (mods->n_arrays > 0)
		expect_ok(paged_mod_set_bind(opened, mods->n_arrays, mods->arrays, NULL));
	return opened;
}

static void
expect_near(double got, double expected, double tolerance, const char *what, const struct mod_point *at)
{
	if (isnan(expected) ? isnan(got) : got == expected || fabs(got - expected) <= tolerance)
		return;
	cr_assert_fail("b %d, h %d, q_idx %d: %s is %g, not %g within %g", at->b, at->h, at->q_idx, what, got, expected,
		       tolerance);
}

static void
expect_q_row(uint64_t packed, struct reference_q_row *line, bool lse_without_sink)
{
	uint32_t h = (uint32_t)line->at.h;
	struct reference_result expected;

	reference_attend(line, &expected);
	for (uint32_t d = 0; d < ATTENTION_DIM; d++)
		expect_near(attention_fixture->out[packed][h][d], expected.out[d], expected.out_tolerance + 1e-7, "out",
			    &line->at);
	expect_near(attention_fixture->lse[packed][h], lse_without_sink ? expected.lse_without_sink : expected.lse,
		    expected.score_tolerance, "lse", &line->at);
	expect_near(attention_fixture->row_max[packed][h], expected.max_score, expected.score_tolerance, "maximum",
		    &line->at);
}

void
attention_fixture_expect(const struct attention_mods *mods, const struct paged_attention_params *params)
{
	struct mod_fixture mask = mod_fixture_public(MOD_MASK, mods->mask, mods->arrays, mods->n_arrays);
	struct mod_fixture score = mod_fixture_public(MOD_SCORE, mods->score, mods->arrays, mods->n_arrays);
	bool causal = params == NULL || params->mask == PAGED_MASK_CAUSAL;
	uint64_t packed = 0;

	for (uint32_t r = 0; r < ATTENTION_ROWS; r++) {
		const struct paged_batch_row *row = &attention_fixture->rows[r];

		for (uint32_t i = 0; i < row->q_len * ATTENTION_Q_HEADS; i++) {
			uint32_t h = i % ATTENTION_Q_HEADS, kv_head = h / (ATTENTION_Q_HEADS / ATTENTION_KV_HEADS);
			int64_t q_base =
				row->flags & PAGED_ROW_Q_BASE ? row->q_base : (int64_t)row->kv_len - row->q_len;
			int64_t q_idx = q_base + i / ATTENTION_Q_HEADS, visible = causal ? q_idx + 1 : row->kv_len;
			struct reference_q_row line = {
				.q = attention_fixture->q[packed + i / ATTENTION_Q_HEADS][h],
				.k = attention_fixture->k[r][0][kv_head],
				.v = attention_fixture->v[r][0][kv_head],
				.k_stride = ATTENTION_KV_HEADS * ATTENTION_DIM,
				.v_stride = ATTENTION_KV_HEADS * ATTENTION_DIM,
				.k_dim = ATTENTION_DIM,
				.v_dim = ATTENTION_DIM,
				.n_keys = (uint32_t)(visible < 0             ? 0
						     : visible < row->kv_len ? visible
									     : row->kv_len),
				.scale = (double)ATTENTION_SCALE,
				.sink = params != NULL && params->sink != NULL ? &params->sink[h] : NULL,
				.mask = mask.binding,
				.score = score.binding,
				.at = { .b = (int32_t)r, .h = (int32_t)h, .q_idx = (int32_t)q_idx },
			};

			expect_q_row(packed + i / ATTENTION_Q_HEADS, &line, params != NULL && params->lse_without_sink);
		}
		packed += row->q_len;
	}
	if (mask.mod != NULL)
		mod_fixture_close(&mask);
	if (score.mod != NULL)
		mod_fixture_close(&score);
}
