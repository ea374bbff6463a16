/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client_world.h"

#include <stdlib.h>

#define SEED 20261121u
#define SCALE 0.4f

struct client_world *world;

static const struct paged_pool_params world_pool = {
	.struct_size = sizeof(world_pool),
	.name = "world",
	.n_layers = 2,
	.n_kv_heads = WORLD_KV_HEADS,
	.k_dim = WORLD_DIM,
	.dtype = PAGED_F32,
	.page_size = 16,
	.n_pages = 80,
	.n_slots = 8,
	.max_length = WORLD_TOKENS,
};

/* All layers alike. */
static void
sequence_fill(uint32_t r, uint32_t n_tokens)
{
	struct paged_batch_row row = { .seq = sequence_of(n_tokens), .q_len = n_tokens, .kv_len = n_tokens };
	struct paged_tensor k = { .data = world->k[r],
				  .dtype = PAGED_F32,
				  .n_heads = WORLD_KV_HEADS,
				  .dim = WORLD_DIM },
			    v = k;

	v.data = world->v[r];
	for (uint32_t i = 0; i < n_tokens * WORLD_KV_HEADS * WORLD_DIM; i++) {
		(&world->k[r][0][0][0])[i] = reference_random(SEED + r, 2 * i, 1);
		(&world->v[r][0][0][0])[i] = reference_random(SEED + r, 2 * i + 1, 1);
	}
	done(paged_batch_plan(world->batch, 1, &row));
	for (uint32_t layer = 0; layer < world_pool.n_layers; layer++)
		done(paged_append(world->batch, layer, &k, &v, NULL));
	row.q_len = 0;
	world->rows[r] = row;
}

void
world_setup(void)
{
	static const uint32_t lengths[WORLD_ROWS] = { 300, 33, 580 };
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 2 };

	world = calloc(1, sizeof(*world));
	cr_assert_not_null(world);
	done(paged_client_open_embedded(&world_pool, 1, &params, &client));
	done(paged_pool_open(client, "world", &pool));
	world->batch = batch_of(WORLD_ROWS, 0);
	for (uint32_t r = 0; r < WORLD_ROWS; r++)
		sequence_fill(r, lengths[r]);
	for (uint32_t i = 0; i < sizeof(world->q) / sizeof(float); i++)
		(&world->q[0][0][0])[i] = reference_random(SEED + 99, i, 2);
}

void
world_teardown(void)
{
	paged_client_close(client);
	free(world);
}

void
world_plan(const uint32_t q_len[WORLD_ROWS])
{
	for (uint32_t r = 0; r < WORLD_ROWS; r++)
		world->rows[r].q_len = q_len[r];
	done(paged_batch_plan(world->batch, WORLD_ROWS, world->rows));
}

enum paged_status
world_attend(const struct paged_attention_params *params)
{
	struct paged_tensor q = { .data = world->q, .dtype = PAGED_F32, .n_heads = WORLD_Q_HEADS, .dim = WORLD_DIM },
			    out = q;
	struct paged_attention_params complete = { .struct_size = sizeof(complete) };

	out.data = world->out;
	if (params != NULL)
		complete = *params;
	complete.scale = SCALE;
	complete.lse = world->lse[0];
	complete.max_score = world->maximum[0];
	return paged_attention(world->batch, 0, &q, &out, &complete);
}

struct paged_mod *
world_parse(enum paged_mod_kind kind, const char *text, size_t n_arrays, const struct paged_array *arrays)
{
	struct paged_mod *mod = NULL;

	if (text != NULL)
		done(paged_mod_parse(pool, kind, text, n_arrays, arrays, &mod));
	return mod;
}

struct paged_mods *
world_mods_open(const struct world_mods *mods)
{
	const struct paged_mods_params params = {
		.struct_size = sizeof(params),
		.mask = world_parse(PAGED_MOD_MASK, mods->mask, mods->n_arrays, mods->arrays),
		.score = world_parse(PAGED_MOD_SCORE, mods->score, mods->n_arrays, mods->arrays),
	};
	struct paged_mods *opened = NULL;

	done(paged_mods_create(world->batch, &params, &opened));
	if (mods->n_arrays > 0)
		done(paged_mods_bind(opened, mods->n_arrays, mods->arrays, NULL));
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
line_expect(uint64_t packed, struct reference_line *line, bool lse_without_sink)
{
	uint32_t h = (uint32_t)line->at.h;
	struct reference_result wanted;

	reference_attend(line, &wanted);
	for (uint32_t d = 0; d < WORLD_DIM; d++)
		near(world->out[packed][h][d], wanted.out[d], wanted.out_tolerance + 1e-7, "out", &line->at);
	near(world->lse[packed][h], lse_without_sink ? wanted.lse_without_sink : wanted.lse, wanted.score_tolerance,
	     "lse", &line->at);
	near(world->maximum[packed][h], wanted.maximum, wanted.score_tolerance, "maximum", &line->at);
}

void
world_expect(const struct world_mods *mods, const struct paged_attention_params *params)
{
	struct mod_fixture mask = mod_fixture_public(MOD_MASK, mods->mask, mods->arrays, mods->n_arrays);
	struct mod_fixture score = mod_fixture_public(MOD_SCORE, mods->score, mods->arrays, mods->n_arrays);
	bool causal = params == NULL || params->mask == PAGED_MASK_CAUSAL;
	uint64_t packed = 0;

	for (uint32_t r = 0; r < WORLD_ROWS; r++) {
		const struct paged_batch_row *row = &world->rows[r];

		for (uint32_t i = 0; i < row->q_len * WORLD_Q_HEADS; i++) {
			uint32_t h = i % WORLD_Q_HEADS, kv_head = h / (WORLD_Q_HEADS / WORLD_KV_HEADS);
			int64_t q_base =
				row->flags & PAGED_ROW_Q_BASE ? row->q_base : (int64_t)row->kv_len - row->q_len;
			int64_t q_idx = q_base + i / WORLD_Q_HEADS, visible = causal ? q_idx + 1 : row->kv_len;
			struct reference_line line = {
				.q = world->q[packed + i / WORLD_Q_HEADS][h],
				.k = world->k[r][0][kv_head],
				.v = world->v[r][0][kv_head],
				.k_stride = WORLD_KV_HEADS * WORLD_DIM,
				.v_stride = WORLD_KV_HEADS * WORLD_DIM,
				.k_dim = WORLD_DIM,
				.v_dim = WORLD_DIM,
				.n_keys = (uint32_t)(visible < 0             ? 0
						     : visible < row->kv_len ? visible
									     : row->kv_len),
				.scale = (double)SCALE,
				.sink = params != NULL && params->sink != NULL ? &params->sink[h] : NULL,
				.mask = mask.binding,
				.score = score.binding,
				.at = { .b = (int32_t)r, .h = (int32_t)h, .q_idx = (int32_t)q_idx },
			};

			line_expect(packed + i / WORLD_Q_HEADS, &line, params != NULL && params->lse_without_sink);
		}
		packed += row->q_len;
	}
	if (mask.mod != NULL)
		mod_fixture_close(&mask);
	if (score.mod != NULL)
		mod_fixture_close(&score);
}
