/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that keeps its own block manager.  It reserves one large sequence
 * and gives that sequence's pages to its requests itself; the plan of each step
 * names them as explicit page tables (paged_batch_row.pages).  No request goes
 * to the daemon after the start.  The daemon still owns the pages: when this
 * process dies, they become free with its session.
 *
 * The same requests are computed as plain sequences, too.  Results do not
 * depend on which pages hold a request, so both must have the same bits.
 *
 * The pool is README.md's, of any page size.  docs/ENGINES.md describes the
 * rules for explicit page tables.
 */
#include <pagedclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	N_BLOCK_TOKENS = 1024, /* capacity of the block manager, all requests together */
	N_REQUESTS = 2,
	N_STEPS = 40, /* a prefill and 39 decode steps */
	MAX_STEP_TOKENS = 256,
	N_HEADS = 9,
	N_KV_HEADS = 3,
	DIM = 64,
};

#define CHECK(call)                                                          \
	do {                                                                 \
		if ((call) != PAGED_OK) {                                    \
			fprintf(stderr, "%s\n", paged_client_error(client)); \
			return 1;                                            \
		}                                                            \
	} while (0)

/* The block manager: a stack of physical pages that no request has. */
static uint32_t free_page[N_BLOCK_TOKENS], n_free;

struct request {
	uint32_t page[N_BLOCK_TOKENS]; /* physical pages, in logical order */
	uint32_t n_pages;
	uint32_t length; /* tokens written */
	paged_seq_id plain;
};

static float q[MAX_STEP_TOKENS * N_HEADS * DIM];
static float k[MAX_STEP_TOKENS * N_KV_HEADS * DIM], v[MAX_STEP_TOKENS * N_KV_HEADS * DIM];
static float out[2][MAX_STEP_TOKENS * N_HEADS * DIM];

/* Gives a request the pages that n_tokens need; returns 0 if the manager has too few. */
static int
request_grow(struct request *request, uint32_t n_tokens, uint32_t page_size)
{
	uint32_t n_pages = (n_tokens + page_size - 1) / page_size;

	if (n_pages - request->n_pages > n_free)
		return 0; /* an engine preempts a request here: its pages go back on the stack */
	while (request->n_pages < n_pages)
		request->page[request->n_pages++] = free_page[--n_free];
	return 1;
}

static void
request_end(struct request *request)
{
	while (request->n_pages > 0)
		free_page[n_free++] = request->page[--request->n_pages];
}

/* Stands for the model: projects the step's tokens to q, k and v of a layer. */
static void
project_qkv(size_t n_tokens)
{
	for (size_t i = 0; i < n_tokens * N_HEADS * DIM; i++)
		q[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	for (size_t i = 0; i < n_tokens * N_KV_HEADS * DIM; i++) {
		k[i] = (float)rand() / (float)RAND_MAX - 0.5f;
		v[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	}
}

int
main(void)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch, *plain_batch;
	struct request request[N_REQUESTS] = { { .length = 0 } };
	const uint32_t prompt[N_REQUESTS] = { 37, 100 };
	paged_seq_id blocks; /* the large sequence */
	uint32_t n_pages;
	struct paged_tensor tq = { .data = q, .dtype = PAGED_F32, .n_heads = N_HEADS, .dim = DIM };
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = N_KV_HEADS, .dim = DIM };
	struct paged_tensor tv = { .data = v, .dtype = PAGED_F32, .n_heads = N_KV_HEADS, .dim = DIM };
	struct paged_tensor to[2] = { { .data = out[0], .dtype = PAGED_F32, .n_heads = N_HEADS, .dim = DIM },
				      { .data = out[1], .dtype = PAGED_F32, .n_heads = N_HEADS, .dim = DIM } };

	CHECK(paged_client_open(NULL, NULL, &client));
	CHECK(paged_pool_open(client, "llama", &pool));
	CHECK(paged_pool_get_info(pool, &info));

	/* Once: reserve the pages, and read which physical pages they are. */
	CHECK(paged_seq_create(client, 1,
			       &(struct paged_seq_params){ .pool = pool, .tag = "blocks", .n_tokens = N_BLOCK_TOKENS },
			       &blocks));
	n_free = n_pages = (N_BLOCK_TOKENS + info.page_size - 1) / info.page_size;
	CHECK(paged_seq_read(pool, blocks, NULL, free_page, n_pages));

	CHECK(paged_batch_create(pool, NULL, &batch));
	CHECK(paged_batch_create(pool, NULL, &plain_batch));
	for (int r = 0; r < N_REQUESTS; r++)
		CHECK(paged_seq_create(client, 1,
				       &(struct paged_seq_params){ .pool = pool, .n_tokens = prompt[r] + N_STEPS },
				       &request[r].plain));

	for (int step = 0; step < N_STEPS; step++) {
		struct paged_batch_row row[N_REQUESTS] = { { .seq = 0 } }, plain_row[N_REQUESTS] = { { .seq = 0 } };
		size_t n_tokens = 0;

		for (int r = 0; r < N_REQUESTS; r++) {
			uint32_t q_len = step == 0 ? prompt[r] : 1;

			request[r].length += q_len;
			if (!request_grow(&request[r], request[r].length, info.page_size))
				return fprintf(stderr, "request %d: no free page\n", r), 1;
			row[r].pages = request[r].page;
			row[r].n_pages = request[r].n_pages;
			plain_row[r].seq = request[r].plain;
			row[r].q_len = plain_row[r].q_len = q_len;
			row[r].kv_len = plain_row[r].kv_len = request[r].length;
			n_tokens += q_len;
		}
		CHECK(paged_batch_plan(batch, N_REQUESTS, row));
		CHECK(paged_batch_plan(plain_batch, N_REQUESTS, plain_row));
		for (uint32_t layer = 0; layer < info.n_layers; layer++) {
			project_qkv(n_tokens);
			CHECK(paged_append(batch, layer, &tk, &tv, NULL));
			CHECK(paged_attention(batch, layer, &tq, &to[0], NULL));
			CHECK(paged_append(plain_batch, layer, &tk, &tv, NULL));
			CHECK(paged_attention(plain_batch, layer, &tq, &to[1], NULL));
			if (memcmp(out[0], out[1], n_tokens * N_HEADS * DIM * sizeof(float)) != 0)
				return fprintf(stderr, "step %d, layer %u: the results differ\n", step, layer), 1;
		}
	}
	for (int r = 0; r < N_REQUESTS; r++) {
		printf("request %d: %u tokens in %u pages, first %u, last %u; equal to a plain sequence\n", r,
		       request[r].length, request[r].n_pages, request[r].page[0],
		       request[r].page[request[r].n_pages - 1]);
		request_end(&request[r]); /* no request to the daemon */
	}
	printf("%u of %u pages are free again\n", n_free, n_pages);
	paged_client_close(client);
	return 0;
}
