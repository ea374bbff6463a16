/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering tokens from pages and appending them to others, through the public API. */
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"

#define TOKENS 11u
#define ELEMENTS (TOKENS * HEADS * DIM)

static float k[ELEMENTS], v[ELEMENTS], k_out[2 * ELEMENTS], v_out[2 * ELEMENTS];
static const struct paged_tensor kt = { .data = k, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_tensor vt = { .data = v, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_tensor ko = { .data = k_out, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_tensor vo = { .data = v_out, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };

static void
setup(void)
{
	client_setup();
	random_fill(k, ELEMENTS, 1);
	random_fill(v, ELEMENTS, 2);
	memset(k_out, 0, sizeof(k_out));
	memset(v_out, 0, sizeof(v_out));
}

TestSuite(client_gather, .init = setup, .fini = client_teardown);

static struct paged_batch *
written(paged_seq_id id)
{
	struct paged_batch *batch = batch_of(3, 0);

	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = TOKENS, .kv_len = TOKENS }));
	done(paged_append(batch, 1, &kt, &vt, NULL));
	return batch;
}

/* Out of a sequence, and into another in another order, from where it comes out again. */
Test(client_gather, there_and_back)
{
	static const uint32_t positions[TOKENS] = { 10, 3, 0, 7, 1, 9, 2, 8, 4, 6, 5 };
	struct paged_append_params append = { .struct_size = sizeof(append), .positions = positions };
	paged_seq_id a = sequence_of(TOKENS), b = sequence_of(TOKENS);
	struct paged_batch *batch = written(a);

	done(paged_gather(batch, 1, &ko, &vo, NULL));
	cr_assert_eq(memcmp(k_out, k, sizeof(k)), 0);
	cr_assert_eq(memcmp(v_out, v, sizeof(v)), 0);
	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = b, .q_len = TOKENS, .kv_len = TOKENS }));
	done(paged_append(batch, 1, &ko, &vo, &append));
	memset(k_out, 0, sizeof(k_out));
	done(paged_gather(batch, 1, &ko, &vo, NULL));
	for (uint32_t i = 0; i < TOKENS; i++) {
		size_t at = positions[i] * HEADS * DIM, size = HEADS * DIM * sizeof(float);

		cr_assert_eq(memcmp(k_out + at, k + i * HEADS * DIM, size), 0, "token %u", i);
		cr_assert_eq(memcmp(v_out + at, v + i * HEADS * DIM, size), 0, "token %u", i);
	}
}

/* Rows that share pages, wait, or have no tokens; V alone. */
Test(client_gather, rows)
{
	paged_seq_id id = sequence_of(TOKENS);
	struct paged_batch *batch = written(id);
	uint32_t pages[3], begin[3] = { 2, 0, 5 }, end[3] = { 9, 0, 6 };
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = begin, .end = end };
	struct paged_batch_row rows[3] = { { .seq = id, .q_len = 1, .kv_len = TOKENS }, { .seq = id } };

	done(paged_seq_read(pool, id, NULL, pages, 3));
	rows[2] = (struct paged_batch_row){ .pages = pages, .n_pages = 2, .kv_len = 6 };
	done(paged_batch_plan(batch, 3, rows));
	done(paged_gather(batch, 1, NULL, &vo, &params));
	cr_assert_eq(memcmp(v_out, v + 2 * HEADS * DIM, 7 * HEADS * DIM * sizeof(float)), 0);
	cr_assert_eq(memcmp(v_out + 7 * HEADS * DIM, v + 5 * HEADS * DIM, HEADS * DIM * sizeof(float)), 0);
	for (uint32_t i = 8 * HEADS * DIM; i < 2 * ELEMENTS; i++)
		cr_assert_eq(v_out[i], 0);
	params.begin = params.end = NULL;
	done(paged_gather(batch, 1, &ko, NULL, &params));
	cr_assert_eq(memcmp(k_out, k, sizeof(k)), 0);
	cr_assert_eq(memcmp(k_out + ELEMENTS, k, 6 * HEADS * DIM * sizeof(float)), 0);
	done(paged_batch_plan(batch, 0, NULL));
	done(paged_gather(batch, 1, &ko, &vo, NULL));
}

Test(client_gather, is_checked)
{
	paged_seq_id id = sequence_of(TOKENS);
	struct paged_batch *batch = batch_of(1, 0);
	struct paged_batch_row row = { .seq = id, .kv_len = TOKENS };
	uint32_t begin = 4, end = 3;
	float scale[HEADS] = { 1, 1 };
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = &begin, .end = &end };
	struct paged_tensor bad = ko;

	refused(paged_gather(batch, 0, &ko, &vo, NULL), PAGED_ERR_INVALID, "the batch has no plan");
	done(paged_batch_plan(batch, 1, &row));
	refused(paged_gather(batch, 2, &ko, &vo, NULL), PAGED_ERR_INVALID, "layer 2 of a pool of 2 layers");
	refused(paged_gather(batch, 0, NULL, NULL, NULL), PAGED_ERR_INVALID, "neither k nor v is wanted");
	refused(paged_gather(batch, 0, &ko, &vo, &params), PAGED_ERR_RANGE,
		"row 0: tokens 4 to 3 are wanted, its kv_len is 11");
	end = 12;
	refused(paged_gather(batch, 0, &ko, &vo, &params), PAGED_ERR_RANGE,
		"row 0: tokens 4 to 12 are wanted, its kv_len is 11");
	params.begin = params.end = NULL;
	params.v_scale = scale;
	refused(paged_gather(batch, 0, &ko, &vo, &params), PAGED_ERR_INVALID,
		"v_scale: pool small keeps f32, scales are of e4m3 and e5m2");
	bad.dim = 7;
	refused(paged_gather(batch, 0, &ko, &bad, NULL), PAGED_ERR_INVALID, "v has heads of 7 dims, not 8");
	bad = ko;
	bad.dtype = PAGED_I8;
	refused(paged_gather(batch, 0, &bad, &vo, NULL), PAGED_ERR_INVALID, "k: dtype %d is none of f32, f16, bf16",
		(int)PAGED_I8);
	bad = ko;
	bad.data = NULL;
	refused(paged_gather(batch, 0, &bad, &vo, NULL), PAGED_ERR_INVALID, "k has no data");
	bad = ko;
	bad.token_stride = DIM;
	refused(paged_gather(batch, 0, &bad, &vo, NULL), PAGED_ERR_INVALID,
		"k: its strides let heads and tokens overlap");
}
