/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

const struct paged_pool_params small_pool = {
	.struct_size = sizeof(small_pool),
	.name = "small",
	.n_layers = 2,
	.n_kv_heads = HEADS,
	.k_dim = DIM,
	.dtype = PAGED_F32,
	.page_size = PAGE_SIZE,
	.n_pages = N_PAGES,
	.n_slots = 8,
	.max_length = MAX_LENGTH,
};

struct paged_client *client;
struct paged_pool *pool;

void
client_setup(void)
{
	done(paged_client_open_embedded(&small_pool, 1, NULL, &client));
	done(paged_pool_open(client, "small", &pool));
}

void
client_teardown(void)
{
	paged_client_close(client);
}

paged_seq_id
sequence_of(uint32_t n_tokens)
{
	paged_seq_id id = 0;

	done(seqs_create(client, pool, 1, &id));
	if (n_tokens > 0)
		done(seqs_reserve(client, 1, &id, &n_tokens));
	return id;
}

uint32_t
capacity_of(paged_seq_id id)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	done(paged_seq_read(pool, id, &info, NULL, 0));
	return info.capacity;
}

struct paged_batch *
batch_of(uint32_t max_rows, uint32_t reserve_ahead)
{
	struct paged_batch_params params = { .struct_size = sizeof(params),
					     .max_rows = max_rows,
					     .reserve_ahead = reserve_ahead };
	struct paged_batch *batch = NULL;

	done(paged_batch_create(pool, &params, &batch));
	return batch;
}
