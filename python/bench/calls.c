/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a call in C: calls.py compiles and runs it.  The work is as small as it can be (one head, eight dims, one
 * token), so that the rest is the call.  Prints for each call its name and nanoseconds.
 */
#include <pagedclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_CALLS = 20000, N_ROUNDS = 30 };

static struct paged_batch *batch;
static struct paged_batch_row row = { .q_len = 1, .kv_len = 1 };
static float q_data[8], k_data[8], v_data[8], out_data[8];

static void
require(enum paged_status status)
{
	if (status == PAGED_OK)
		return;
	fprintf(stderr, "calls: %s\n", paged_status_name(status));
	exit(1);
}

static enum paged_status
call_plan(void)
{
	return paged_batch_plan(batch, 1, &row);
}

static enum paged_status
call_append(void)
{
	struct paged_tensor k = { .data = k_data, .dtype = PAGED_F32, .n_heads = 1, .dim = 8 };
	struct paged_tensor v = { .data = v_data, .dtype = PAGED_F32, .n_heads = 1, .dim = 8 };

	return paged_append(batch, 0, &k, &v, NULL);
}

static enum paged_status
call_attention(void)
{
	struct paged_tensor q = { .data = q_data, .dtype = PAGED_F32, .n_heads = 1, .dim = 8 };
	struct paged_tensor out = { .data = out_data, .dtype = PAGED_F32, .n_heads = 1, .dim = 8 };

	return paged_attention(batch, 0, &q, &out, NULL);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void
measure(const char *name, enum paged_status (*call)(void))
{
	double best = 1e9;

	for (int round = 0; round < N_ROUNDS; round++) {
		double start = now();

		for (int i = 0; i < N_CALLS; i++)
			require(call());
		double took = (now() - start) / N_CALLS;
		best = took < best ? took : best;
	}
	printf("%s %.1f\n", name, best * 1e9);
}

int
main(void)
{
	struct paged_pool_params params = { .struct_size = sizeof(params),
					    .name = "calls",
					    .n_layers = 1,
					    .n_kv_heads = 1,
					    .k_dim = 8,
					    .dtype = PAGED_F32,
					    .n_pages = 4 };
	struct paged_seq_params seq = { .n_tokens = 4 };
	struct paged_client *client;
	struct paged_pool *pool;

	require(paged_client_open_embedded(&params, 1, NULL, &client));
	require(paged_pool_open(client, "calls", &pool));
	seq.pool = pool;
	require(paged_seq_create(client, 1, &seq, &row.seq));
	require(paged_batch_create(pool, NULL, &batch));
	measure("plan", call_plan);
	measure("append", call_append);
	measure("attention", call_attention);
	paged_client_close(client);
	return 0;
}
