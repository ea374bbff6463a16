/* SPDX-License-Identifier: Apache-2.0 */
/* The whole life of a worker in 30 lines, on the pool that README.md shows; a test runs it. */
#include <pagedclient.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                    \
	do {                                                                           \
		if ((call) != PAGED_OK)                                                \
			return fprintf(stderr, "%s\n", paged_client_error(client)), 1; \
	} while (0)

static float q[552 * 9 * 64], k[552 * 3 * 64], v[552 * 3 * 64], out[552 * 9 * 64];

int
main(void)
{
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	paged_seq_id seq[2];
	struct paged_tensor tq = { .data = q, .dtype = PAGED_F32, .n_heads = 9, .dim = 64 };
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = 3, .dim = 64 };
	struct paged_tensor tv = { .data = v, .dtype = PAGED_F32, .n_heads = 3, .dim = 64 };
	struct paged_tensor to = { .data = out, .dtype = PAGED_F32, .n_heads = 9, .dim = 64 };
	struct paged_seq_params params[2] = { { .n_tokens = 512 }, { .n_tokens = 40 } };
	struct paged_batch_row rows[2] = { { .q_len = 512, .kv_len = 512 }, { .q_len = 40, .kv_len = 40 } };

	CHECK(paged_client_open(NULL, NULL, &client));  /* $PAGED_RUNTIME_DIR or /run/paged */
	CHECK(paged_pool_open(client, "llama", &pool)); /* maps the pages */
	params[0].pool = params[1].pool = pool;
	CHECK(paged_seq_create(client, 2, params, seq));
	CHECK(paged_batch_create(pool, NULL, &batch)); /* allocates here, never in a step */
	for (size_t i = 0; i < sizeof(q) / sizeof(*q); i++)
		q[i] = k[i / 3] = v[i / 3] = (float)rand() / (float)RAND_MAX;
	/* One step: plan once, run once a layer.  512 rows of seq[0], then 40 rows of seq[1]. */
	rows[0].seq = seq[0];
	rows[1].seq = seq[1];
	CHECK(paged_batch_plan(batch, 2, rows));
	for (uint32_t layer = 0; layer < 30; layer++) {
		CHECK(paged_append(batch, layer, &tk, &tv, NULL));    /* this step's K and V go into the pages */
		CHECK(paged_attention(batch, layer, &tq, &to, NULL)); /* causal, scale 1/sqrt(64) */
	}
	printf("out[0] = %g, the first value = %g\n", out[0], v[0]); /* the first token attends only to itself */
	paged_client_close(client);
	return 0;
}
