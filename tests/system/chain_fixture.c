/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/chain_fixture.h"

void
chain_tokens(uint32_t chain, uint32_t n_pages, uint32_t *tokens)
{
	for (uint32_t i = 0; i < n_pages * CHAIN_PAGE_SIZE; i++)
		tokens[i] = chain_token(chain, i);
}

paged_seq_id
chain_create(struct worker_fixture *worker, uint32_t chain, uint32_t n_pages, const uint8_t *salt)
{
	uint32_t tokens[CHAIN_MAX_PAGES * CHAIN_PAGE_SIZE];
	struct paged_prefix prefix = {
		.struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = n_pages * CHAIN_PAGE_SIZE, .salt = salt
	};
	struct paged_publish publish = { .prefix = &prefix };

	it_require(n_pages <= CHAIN_MAX_PAGES);
	chain_tokens(chain, n_pages, tokens);
	publish.seq = worker_create_seq(worker, n_pages * CHAIN_PAGE_SIZE);
	worker_ok(worker, paged_seq_publish(worker->pool, 1, &publish));
	/* Requests are answered in order, so the publish was. */
	worker_ok(worker, paged_client_ping(worker->client));
	return publish.seq;
}

void
chain_erase(struct worker_fixture *worker, paged_seq_id seq)
{
	worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
}

void
chain_publish(struct worker_fixture *worker, uint32_t chain, uint32_t n_pages)
{
	chain_erase(worker, chain_create(worker, chain, n_pages, NULL));
}
