/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks that the daemon builds, compared with an empty request and with masks that the library builds. */
#include "bench/base.h"
#include "bench/processes.h"
#include "bench/suite.h"

#define N_SEQS 256
#define N_TOKENS 8192
#define N_TRIPS 20 /* requests a sample */

/* Pages of 256 tokens make a mask of few blocks, pages of 16 one of many. */
static const char configuration[] = "pool small {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 16  pages = 131072  sequences = 256  max-length = 8192\n"
				    "}\n"
				    "pool large {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 256  pages = 8192  sequences = 256  max-length = 8192\n"
				    "}\n";

static struct paged_client *client;
static struct fixture {
	const char *name;
	uint32_t page_size;
	struct paged_pool *pool;
	struct paged_batch_row rows[N_SEQS];
	struct paged_block_mask_params params;
	struct paged_mod *causal;
	struct paged_block_mask *logical;
} small = { .name = "small", .page_size = 16 }, large = { .name = "large", .page_size = 256 };

/* A decode batch of rows of different lengths. */
static void
suite_remote_masks_fixture_open(struct fixture *fixture)
{
	paged_seq_id seqs[N_SEQS];
	struct paged_seq_params params[N_SEQS];

	bench_client_must(client, paged_pool_open(client, fixture->name, &fixture->pool));
	for (uint32_t i = 0; i < N_SEQS; i++)
		params[i] = (struct paged_seq_params){ .pool = fixture->pool, .n_tokens = N_TOKENS };
	bench_client_must(client, paged_seq_create(client, N_SEQS, params, seqs));
	for (uint32_t i = 0; i < N_SEQS; i++)
		fixture->rows[i] = (struct paged_batch_row){ .seq = seqs[i], .q_len = 1, .kv_len = N_TOKENS - i };
	bench_client_must(client, paged_mod_parse(fixture->pool, PAGED_MOD_MASK, "causal", 0, NULL, &fixture->causal));
	fixture->params = (struct paged_block_mask_params){ .struct_size = sizeof(fixture->params),
							    .rows = fixture->rows,
							    .n_rows = N_SEQS,
							    .q_block = 1,
							    .kv_block = fixture->page_size };
	bench_client_must(client, paged_block_mask_create(fixture->pool, &fixture->params, fixture->causal, 0, NULL,
							  &fixture->logical));
	fixture->params.physical = 1;
}

static void
suite_remote_masks_setup(void)
{
	enum paged_status status = paged_client_open(bench_daemon_start(configuration), NULL, &client);

	bench_client_must(client, status);
	suite_remote_masks_fixture_open(&small);
	suite_remote_masks_fixture_open(&large);
}

static void
suite_remote_masks_teardown(void)
{
	paged_client_close(client);
	bench_daemon_stop();
}

struct mask_source {
	const struct fixture *fixture;
	enum paged_status (*make)(const struct fixture *fixture, struct paged_block_mask **mask_p);
};

static enum paged_status
mask_make_local(const struct fixture *fixture, struct paged_block_mask **mask_p)
{
	return paged_block_mask_create(fixture->pool, &fixture->params, fixture->causal, 0, NULL, mask_p);
}

static enum paged_status
mask_make_converted(const struct fixture *fixture, struct paged_block_mask **mask_p)
{
	return paged_block_mask_to_physical(fixture->logical, N_SEQS, fixture->rows, mask_p);
}

static enum paged_status
mask_make_remote(const struct fixture *fixture, struct paged_block_mask **mask_p)
{
	return paged_block_mask_create_remote(fixture->pool, &fixture->params, fixture->causal, 0, NULL, mask_p);
}

/* From the request to a usable mask. */
static double
suite_remote_masks_sample(const void *context)
{
	const struct mask_source *mask_source = context;
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++) {
		struct paged_block_mask *mask;

		bench_client_must(client, mask_source->make(mask_source->fixture, &mask));
		paged_block_mask_destroy(mask);
	}
	return bench_since_us(start) / N_TRIPS;
}

static const struct bench_case cases[] = {
	BENCH_CASE("ping", "us", NULL, NULL, bench_ping_us, &client),
	BENCH_CASE("local, pages of 256", "us", NULL, "<= 200 us", suite_remote_masks_sample,
		   &(const struct mask_source){ &large, mask_make_local }),
	BENCH_CASE("remote, pages of 256", "us", "ping", "<= 1 ms", suite_remote_masks_sample,
		   &(const struct mask_source){ &large, mask_make_remote }),
	BENCH_CASE("local, pages of 16", "us", NULL, "<= 200 us", suite_remote_masks_sample,
		   &(const struct mask_source){ &small, mask_make_local }),
	BENCH_CASE("converted, pages of 16", "us", NULL, "<= 200 us", suite_remote_masks_sample,
		   &(const struct mask_source){ &small, mask_make_converted }),
	BENCH_CASE("remote, pages of 16", "us", "local, pages of 16", "<= 1 ms", suite_remote_masks_sample,
		   &(const struct mask_source){ &small, mask_make_remote }),
};

const struct bench_suite bench_suite_remote_masks = {
	.name = "remote_masks",
	.description = "the causal mask of 256 sequences of 8k tokens by their pages, built by the daemon",
	.setup = suite_remote_masks_setup,
	.teardown = suite_remote_masks_teardown,
	.cases = cases,
	.n_cases = BENCH_N(cases),
};
