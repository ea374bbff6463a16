/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt that workers share: run it twice, and the second worker computes only the end.  A test runs it. */
#include <pagedclient.h>
#include <stdio.h>

#define CHECK(call)                                                                    \
	do {                                                                           \
		if ((call) != PAGED_OK)                                                \
			return fprintf(stderr, "%s\n", paged_client_error(client)), 1; \
	} while (0)

#define TOKENS 600

static float k[TOKENS * 3 * 64], v[TOKENS * 3 * 64];

int
main(void)
{
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	paged_seq_id seq;
	uint32_t prompt[TOKENS], cached, shared;
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_prefix prefix = {
		.struct_size = sizeof(prefix), .salt = salt, .tokens = prompt, .n_tokens = TOKENS
	};
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = 3, .dim = 64 }, tv = tk;

	tv.data = v;
	for (uint32_t i = 0; i < TOKENS; i++)
		prompt[i] = i * i % 49152; /* token ids of the system prompt */
	/* All that K and V depend on, except for the tokens. */
	paged_salt(salt, 1, (const char *const[]){ "adapter: none" });
	CHECK(paged_client_open(NULL, NULL, &client));
	CHECK(paged_pool_open(client, "llama", &pool));
	CHECK(paged_batch_create(pool, NULL, &batch));
	CHECK(paged_prefix_match(pool, &prefix, &cached)); /* shared memory only: no request */
	CHECK(paged_seq_start(pool, 1, &(struct paged_start){ .prefix = &prefix, .reserve = TOKENS + 100 }, &seq,
			      &shared));
	CHECK(paged_batch_plan(batch, 1,
			       &(struct paged_batch_row){ .seq = seq, .q_len = TOKENS - shared, .kv_len = TOKENS }));
	for (uint32_t layer = 0; layer < 30; layer++)
		CHECK(paged_append(batch, layer, &tk, &tv, NULL)); /* K and V of the tokens that are not shared */
	CHECK(paged_batch_publish(batch, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
	printf("%u tokens were cached, %u are shared, %u were computed\n", cached, shared, TOKENS - shared);
	CHECK(paged_client_ping(client)); /* the publish has arrived: requests are answered in order */
	paged_client_close(client);       /* published pages stay */
	return 0;
}
