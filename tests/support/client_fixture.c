/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

const struct paged_pool_params fixture_pool_params = {
	.struct_size = sizeof(fixture_pool_params),
	.name = "small",
	.n_layers = 2,
	.n_kv_heads = FIXTURE_KV_HEADS,
	.k_dim = FIXTURE_DIM,
	.dtype = PAGED_F32,
	.page_size = FIXTURE_PAGE_SIZE,
	.n_pages = FIXTURE_N_PAGES,
	.n_slots = 8,
	.max_length = FIXTURE_MAX_LENGTH,
};

struct paged_client *client;
struct paged_pool *pool;

void
client_fixture_setup(void)
{
	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, NULL, &client));
	expect_ok(paged_pool_open(client, "small", &pool));
}

void
client_fixture_teardown(void)
{
	paged_client_close(client);
}

paged_seq_id
fixture_create_seq(uint32_t n_tokens)
{
	paged_seq_id id = 0;

	expect_ok(seqs_create(client, pool, 1, &id));
	if (n_tokens > 0)
		expect_ok(seqs_reserve(client, 1, &id, &n_tokens));
	return id;
}

uint32_t
fixture_seq_capacity(paged_seq_id id)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pool, id, &info, NULL, 0));
	return info.capacity;
}

struct paged_batch *
fixture_create_batch(uint32_t max_rows, uint32_t reserve_ahead)
{
	struct paged_batch_params params = { .struct_size = sizeof(params),
					     .max_rows = max_rows,
					     .reserve_ahead = reserve_ahead };
	struct paged_batch *batch = NULL;

	expect_ok(paged_batch_create(pool, &params, &batch));
	return batch;
}
