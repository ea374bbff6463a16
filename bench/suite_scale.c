/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving pages from pools of different sizes: the cost of a page must not depend on the size. */
#include "bench/base.h"
#include "bench/suite.h"

#define N_SEQS 64
#define N_PAGES_EACH 64

static struct paged_client *client;
static struct fixture {
	const char *name;
	uint32_t n_pages;
	struct paged_pool *pool;
	paged_seq_id seqs[N_SEQS];
} fixtures[] = {
	{ .name = "10k", .n_pages = 10000 },
	{ .name = "100k", .n_pages = 100000 },
	{ .name = "1m", .n_pages = 1000000 },
	{ .name = "10m", .n_pages = 10000000 },
};

static void
suite_scale_setup(void)
{
	struct paged_pool_params params[BENCH_N(fixtures)];
	struct paged_seq_params create[N_SEQS];
	enum paged_status status;

	for (size_t i = 0; i < BENCH_N(fixtures); i++)
		params[i] = (struct paged_pool_params){ .struct_size = sizeof(params[i]),
							.name = fixtures[i].name,
							.n_layers = 1,
							.n_kv_heads = 1,
							.k_dim = 1,
							.dtype = PAGED_F16,
							.page_size = 1,
							.n_pages = fixtures[i].n_pages,
							.max_length = 8192 };
	status = paged_client_open_embedded(params, BENCH_N(fixtures), NULL, &client);
	bench_client_must(client, status);
	for (size_t i = 0; i < BENCH_N(fixtures); i++) {
		bench_client_must(client, paged_pool_open(client, fixtures[i].name, &fixtures[i].pool));
		for (int s = 0; s < N_SEQS; s++)
			create[s] = (struct paged_seq_params){ .pool = fixtures[i].pool };
		bench_client_must(client, paged_seq_create(client, N_SEQS, create, fixtures[i].seqs));
	}
}

static void
suite_scale_teardown(void)
{
	paged_client_close(client);
}

static double
suite_scale_sample(const void *context)
{
	const struct fixture *fixture = context;
	struct paged_seq_item full[N_SEQS], none[N_SEQS];
	uint64_t start;
	double us;

	for (int s = 0; s < N_SEQS; s++) {
		full[s] = (struct paged_seq_item){ .seq = fixture->seqs[s], .n_tokens = N_PAGES_EACH };
		none[s] = (struct paged_seq_item){ .seq = fixture->seqs[s] };
	}
	start = bench_now_ns();
	bench_client_must(client, paged_seq_reserve(client, N_SEQS, full));
	us = bench_since_us(start);
	bench_client_must(client, paged_seq_truncate(client, N_SEQS, none));
	return us * 1e3 / N_SEQS / N_PAGES_EACH;
}

static const struct bench_case cases[] = {
	BENCH_CASE("page of 10 thousand", "ns", NULL, NULL, suite_scale_sample, &fixtures[0]),
	BENCH_CASE("page of 100 thousand", "ns", "page of 10 thousand", "<= 1.1", suite_scale_sample, &fixtures[1]),
	BENCH_CASE("page of 1 million", "ns", "page of 10 thousand", "<= 1.1", suite_scale_sample, &fixtures[2]),
	BENCH_CASE("page of 10 million", "ns", "page of 10 thousand", "<= 1.1", suite_scale_sample, &fixtures[3]),
};

const struct bench_suite bench_suite_scale = {
	.name = "scale",
	.description = "reserving a page from pools of 10 thousand to 10 million, without the RPC",
	.setup = suite_scale_setup,
	.teardown = suite_scale_teardown,
	.cases = cases,
	.n_cases = BENCH_N(cases),
};
