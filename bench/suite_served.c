/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks that the daemon builds, beside an empty request and the library's own. */
#include "bench/bench.h"

#include <pagedclient.h>

#define N_SEQS 256
#define N_TOKENS 8192
#define N_TRIPS 20 /* requests a sample */

/* Pages of 16 make an image of half a megabyte, pages of 256 one that fits its reply. */
static const char configuration[] = "pool small {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 16  pages = 131072  sequences = 256  max-length = 8192\n"
				    "}\n"
				    "pool large {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 256  pages = 8192  sequences = 256  max-length = 8192\n"
				    "}\n";

enum { PAGES_16, PAGES_256, N_POOLS };

static struct paged_client *client;
static struct world {
	struct paged_pool *pool;
	struct paged_batch_row rows[N_SEQS];
	struct paged_block_mask_params params;
	struct paged_mod *causal;
	struct paged_block_mask *logical;
} worlds[N_POOLS];

static void
must(enum paged_status status)
{
	if (status != PAGED_OK)
		bench_die("%s: %s", paged_status_name(status), paged_client_error(client));
}

/* A decode batch whose lengths are all unlike. */
static void
world_open(struct world *world, const char *name, uint32_t page_size)
{
	paged_seq_id seqs[N_SEQS];
	uint32_t tokens[N_SEQS];

	must(paged_pool_open(client, name, &world->pool));
	must(paged_seq_create(world->pool, N_SEQS, seqs));
	for (uint32_t i = 0; i < N_SEQS; i++) {
		tokens[i] = N_TOKENS;
		world->rows[i] = (struct paged_batch_row){ .seq = seqs[i], .q_len = 1, .kv_len = N_TOKENS - i };
	}
	must(paged_seq_reserve(world->pool, N_SEQS, seqs, tokens));
	must(paged_mod_parse(world->pool, PAGED_MOD_MASK, "causal", 0, NULL, &world->causal));
	world->params = (struct paged_block_mask_params){ .struct_size = sizeof(world->params),
							  .rows = world->rows,
							  .n_rows = N_SEQS,
							  .q_block = 1,
							  .kv_block = page_size };
	must(paged_block_mask_create(world->pool, &world->params, world->causal, 0, NULL, &world->logical));
	world->params.physical = 1;
}

static void
setup(void)
{
	must(paged_client_open(bench_daemon_start(configuration), NULL, &client));
	world_open(&worlds[PAGES_16], "small", 16);
	world_open(&worlds[PAGES_256], "large", 256);
}

static void
teardown(void)
{
	paged_client_close(client);
	bench_daemon_stop();
}

static double
per_trip_us(uint64_t start_ns)
{
	return (double)(bench_now_ns() - start_ns) / 1e3 / N_TRIPS;
}

static double
sample_ping(void)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++)
		must(paged_client_ping(client));
	return per_trip_us(start);
}

static double
created_us(const struct world *world)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++) {
		struct paged_block_mask *mask;

		must(paged_block_mask_create(world->pool, &world->params, world->causal, 0, NULL, &mask));
		paged_block_mask_destroy(mask);
	}
	return per_trip_us(start);
}

static double
converted_us(const struct world *world)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++) {
		struct paged_block_mask *mask;

		must(paged_block_mask_to_physical(world->logical, N_SEQS, world->rows, &mask));
		paged_block_mask_destroy(mask);
	}
	return per_trip_us(start);
}

static double
served_us(const struct world *world)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++) {
		struct paged_block_mask *mask;

		must(paged_block_mask_serve(world->pool, &world->params, world->causal, 0, NULL, &mask));
		paged_block_mask_destroy(mask);
	}
	return per_trip_us(start);
}

static double
sample_created_256(void)
{
	return created_us(&worlds[PAGES_256]);
}

static double
sample_served_256(void)
{
	return served_us(&worlds[PAGES_256]);
}

static double
sample_created_16(void)
{
	return created_us(&worlds[PAGES_16]);
}

static double
sample_converted_16(void)
{
	return converted_us(&worlds[PAGES_16]);
}

static double
sample_served_16(void)
{
	return served_us(&worlds[PAGES_16]);
}

static const struct bench_figure figures[] = {
	{ "ping", "us", NULL, NULL, sample_ping },
	{ "local, pages of 256", "us", NULL, "<= 200 us", sample_created_256 },
	{ "served in its reply", "us", "ping", "<= 1 ms", sample_served_256 },
	{ "local, pages of 16", "us", NULL, "<= 200 us", sample_created_16 },
	{ "converted, pages of 16", "us", NULL, "<= 200 us", sample_converted_16 },
	{ "served in a memfd", "us", "local, pages of 16", "<= 1 ms", sample_served_16 },
};

const struct bench_suite bench_suite_served = {
	.name = "served",
	.what = "the causal mask of 256 sequences of 8k tokens by their pages, built by the daemon",
	.setup = setup,
	.teardown = teardown,
	.figures = figures,
	.n_figures = sizeof(figures) / sizeof(figures[0]),
};
