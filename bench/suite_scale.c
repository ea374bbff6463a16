/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving pages from pools of different sizes: the cost of one must not follow the size. */
#include "bench/bench.h"

#include <pagedclient.h>

#define N_SEQS 64
#define N_PAGES_EACH 64
#define N_POOLS 4

static const uint32_t sizes[N_POOLS] = { 10000, 100000, 1000000, 10000000 };

static struct paged_client *client;
static struct paged_pool *pools[N_POOLS];
static paged_seq_id seqs[N_POOLS][N_SEQS];

static void
must(enum paged_status status)
{
	if (status != PAGED_OK)
		bench_die("%s: %s", paged_status_name(status), paged_client_error(client));
}

static void
setup(void)
{
	static const char *const names[N_POOLS] = { "10k", "100k", "1m", "10m" };
	struct paged_pool_params params[N_POOLS];

	for (int i = 0; i < N_POOLS; i++)
		params[i] = (struct paged_pool_params){ .struct_size = sizeof(params[i]),
							.name = names[i],
							.n_layers = 1,
							.n_kv_heads = 1,
							.k_dim = 1,
							.dtype = PAGED_F16,
							.page_size = 1,
							.n_pages = sizes[i],
							.max_length = 8192 };
	must(paged_client_open_embedded(params, N_POOLS, NULL, &client));
	for (int i = 0; i < N_POOLS; i++) {
		must(paged_pool_open(client, names[i], &pools[i]));
		must(paged_seq_create(pools[i], N_SEQS, seqs[i]));
	}
}

static void
teardown(void)
{
	paged_client_close(client);
}

static double
sample(int i)
{
	uint32_t full[N_SEQS], none[N_SEQS] = { 0 };
	uint64_t start, end;

	for (int s = 0; s < N_SEQS; s++)
		full[s] = N_PAGES_EACH;
	start = bench_now_ns();
	must(paged_seq_reserve(pools[i], N_SEQS, seqs[i], full));
	end = bench_now_ns();
	must(paged_seq_truncate(pools[i], N_SEQS, seqs[i], none));
	return (double)(end - start) / N_SEQS / N_PAGES_EACH;
}

static double
sample_10k(void)
{
	return sample(0);
}

static double
sample_100k(void)
{
	return sample(1);
}

static double
sample_1m(void)
{
	return sample(2);
}

static double
sample_10m(void)
{
	return sample(3);
}

static const struct bench_figure figures[] = {
	{ "page of 10 thousand", "ns", NULL, NULL, sample_10k },
	{ "page of 100 thousand", "ns", "page of 10 thousand", "<= 1.1", sample_100k },
	{ "page of 1 million", "ns", "page of 10 thousand", "<= 1.1", sample_1m },
	{ "page of 10 million", "ns", "page of 10 thousand", "<= 1.1", sample_10m },
};

const struct bench_suite bench_suite_scale = {
	.name = "scale",
	.what = "reserving a page from pools of 10 thousand to 10 million, without the RPC",
	.setup = setup,
	.teardown = teardown,
	.figures = figures,
	.n_figures = sizeof(figures) / sizeof(figures[0]),
};
