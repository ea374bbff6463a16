/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/attention_fixture.h"

#include <stdlib.h>

#define SEED 20261121u
#define SCALE 0.4f

struct attention_fixture *fixture;

static const struct paged_pool_params fixture_pool = {
	.struct_size = sizeof(fixture_pool),
	.name = "fixture",
	.n_layers = 2,
	.n_kv_heads = FIXTURE_KV_HEADS,
	.k_dim = FIXTURE_DIM,
	.dtype = PAGED_F32,
	.page_size = 16,
	.n_pages = 80,
	.n_slots = 8,
	.max_length = FIXTURE_TOKENS,
};

/* All layers alike. */
static void
sequence_fill(uint32_t r, uint32_t n_tokens)
{
	struct paged_batch_row row = { .seq = sequence_of(n_tokens), .q_len = n_tokens, .kv_len = n_tokens };
	struct paged_tensor k = { .data = fixture->k[r],
				  .dtype = PAGED_F32,
				  .n_heads = FIXTURE_KV_HEADS,
				  .dim = FIXTURE_DIM },
			    v = k;

	v.data = fixture->v[r];
	for (uint32_t i = 0; i < n_tokens * FIXTURE_KV_HEADS * FIXTURE_DIM; i++) {
		(&fixture->k[r][0][0][0])[i] = random_float(SEED + r, 2 * i, 1);
		(&fixture->v[r][0][0][0])[i] = random_float(SEED + r, 2 * i + 1, 1);
	}
	done(paged_batch_plan(fixture->batch, 1, &row));
	for (uint32_t layer = 0; layer < fixture_pool.n_layers; layer++)
		done(paged_append(fixture->batch, layer, &k, &v, NULL));
	row.q_len = 0;
	fixture->rows[r] = row;
}

void
attention_fixture_setup(void)
{
	static const uint32_t lengths[FIXTURE_ROWS] = { 300, 33, 580 };
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 2 };

	fixture = calloc(1, sizeof(*fixture));
	cr_assert_not_null(fixture);
	done(paged_client_open_embedded(&fixture_pool, 1, &params, &client));
	done(paged_pool_open(client, "fixture", &pool));
	fixture->batch = batch_of(FIXTURE_ROWS, 0);
	for (uint32_t r = 0; r < FIXTURE_ROWS; r++)
		sequence_fill(r, lengths[r]);
	for (uint32_t i = 0; i < sizeof(fixture->q) / sizeof(float); i++)
		(&fixture->q[0][0][0])[i] = random_float(SEED + 99, i, 2);
}

void
attention_fixture_teardown(void)
{
	paged_client_close(client);
	free(fixture);
}

void
attention_fixture_plan(const uint32_t q_len[FIXTURE_ROWS])
{
	for (uint32_t r = 0; r < FIXTURE_ROWS; r++)
		fixture->rows[r].q_len = q_len[r];
	done(paged_batch_plan(fixture->batch, FIXTURE_ROWS, fixture->rows));
}

enum paged_status
attention_fixture_attend(const struct paged_attention_params *params)
{
	struct paged_tensor q = { .data = fixture->q,
				  .dtype = PAGED_F32,
				  .n_heads = FIXTURE_Q_HEADS,
				  .dim = FIXTURE_DIM },
			    out = q;
	struct paged_attention_params complete = { .struct_size = sizeof(complete) };

	out.data = fixture->out;
	if (params != NULL)
		complete = *params;
	complete.scale = SCALE;
	complete.lse = fixture->lse[0];
	complete.max_score = fixture->maximum[0];
	return paged_attention(fixture->batch, 0, &q, &out, &complete);
}

struct paged_mod *
fixture_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays, const struct paged_array *arrays)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		done(paged_mod_parse(pool, kind, text, n_arrays, arrays, &mod));
	return mod;
}

struct paged_mod_set *
fixture_mods_open(const struct fixture_mods *mods)
{
	const struct paged_mod_set_params params = {
		.struct_size = sizeof(params),
		.mask = fixture_parse(PAGED_MOD_MASK, mods->mask, mods->n_arrays, mods->arrays),
		.score = fixture_parse(PAGED_MOD_SCORE, mods->score, mods->n_arrays, mods->arrays),
	};
	struct paged_mod_set *opened = NULL;

	done(paged_mod_set_create(fixture->batch, &params, &opened));
	if (mods->n_arrays > 0)
		done(paged_mod_set_bind(opened, mods->n_arrays, mods->arrays, NULL));
	return opened;
}

static void
near(double got, double wanted, double tolerance, const char *what, const struct mod_point *at)
{
	if (isnan(wanted) ? isnan(got) : got == wanted || fabs(got - wanted) <= tolerance)
		return;
	cr_assert_fail("b %d, h %d, q_idx %d: %s is %g, not %g within %g", at->b, at->h, at->q_idx, what, got, wanted,
		       tolerance);
}

static void
line_expect(uint64_t packed, struct reference_q_row *line, bool lse_without_sink)
{
	uint32_t h = (uint32_t)line->at.h;
	struct reference_result wanted;

	reference_attend(line, &wanted);
	for (uint32_t d = 0; d < FIXTURE_DIM; d++)
		near(fixture->out[packed][h][d], wanted.out[d], wanted.out_tolerance + 1e-7, "out", &line->at);
	near(fixture->lse[packed][h], lse_without_sink ? wanted.lse_without_sink : wanted.lse, wanted.score_tolerance,
	     "lse", &line->at);
	near(fixture->maximum[packed][h], wanted.max_score, wanted.score_tolerance, "maximum", &line->at);
}

void
attention_fixture_expect(const struct fixture_mods *mods, const struct paged_attention_params *params)
{
	struct mod_fixture mask = mod_fixture_public(MOD_MASK, mods->mask, mods->arrays, mods->n_arrays);
	struct mod_fixture score = mod_fixture_public(MOD_SCORE, mods->score, mods->arrays, mods->n_arrays);
	bool causal = params == NULL || params->mask == PAGED_MASK_CAUSAL;
	uint64_t packed = 0;

	for (uint32_t r = 0; r < FIXTURE_ROWS; r++) {
		const struct paged_batch_row *row = &fixture->rows[r];

		for (uint32_t i = 0; i < row->q_len * FIXTURE_Q_HEADS; i++) {
			uint32_t h = i % FIXTURE_Q_HEADS, kv_head = h / (FIXTURE_Q_HEADS / FIXTURE_KV_HEADS);
			int64_t q_base =
				row->flags & PAGED_ROW_Q_BASE ? row->q_base : (int64_t)row->kv_len - row->q_len;
			int64_t q_idx = q_base + i / FIXTURE_Q_HEADS, visible = causal ? q_idx + 1 : row->kv_len;
			struct reference_q_row line = {
				.q = fixture->q[packed + i / FIXTURE_Q_HEADS][h],
				.k = fixture->k[r][0][kv_head],
				.v = fixture->v[r][0][kv_head],
				.k_stride = FIXTURE_KV_HEADS * FIXTURE_DIM,
				.v_stride = FIXTURE_KV_HEADS * FIXTURE_DIM,
				.k_dim = FIXTURE_DIM,
				.v_dim = FIXTURE_DIM,
				.n_keys = (uint32_t)(visible < 0             ? 0
						     : visible < row->kv_len ? visible
									     : row->kv_len),
				.scale = (double)SCALE,
				.sink = params != NULL && params->sink != NULL ? &params->sink[h] : NULL,
				.mask = mask.binding,
				.score = score.binding,
				.at = { .b = (int32_t)r, .h = (int32_t)h, .q_idx = (int32_t)q_idx },
			};

			line_expect(packed + i / FIXTURE_Q_HEADS, &line, params != NULL && params->lse_without_sink);
		}
		packed += row->q_len;
	}
	if (mask.mod != NULL)
		mod_fixture_close(&mask);
	if (score.mod != NULL)
		mod_fixture_close(&score);
}
