/* SPDX-License-Identifier: Apache-2.0 */
/* What a page stands for: the same tokens under other salts, extras and keys, and a pool that publishes nothing. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define PROMPT_SEED 20261126u
#define LENGTH 34u /* tokens of the prompt; the last page is not full */
#define PUBLISHED 32u
#define N_PUBLISHED (PUBLISHED / WORKER_PAGE_SIZE)
#define N_PAGES (N_PUBLISHED + 1)

/* vLLM's cache_key_salting, SGLang's extra_key isolation: the same tokens under another identity. */
IT_TEST(identities_do_not_match_each_other)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, PUBLISHED);
	uint8_t salts[2][PAGED_DIGEST_SIZE], keys[N_PUBLISHED][PAGED_DIGEST_SIZE] = { { 0 } };
	struct paged_extra image = { .first = 10, .n_tokens = 3, .digest = { 1 } };
	struct paged_prefix prefix[5];
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint32_t n_tokens;

	paged_salt(salts[0], 2, (const char *const[]){ "adapter", "a" });
	paged_salt(salts[1], 2, (const char *const[]){ "adapter", "b" });
	for (int i = 0; i < 5; i++)
		prefix[i] = prompt_prefix(&prompt, PUBLISHED);
	prefix[1].salt = salts[0];
	prefix[2].salt = salts[1];
	prefix[3].extra = &image;
	prefix[3].n_extra = 1;
	prefix[4].tokens = NULL;
	prefix[4].keys = keys;
	for (uint32_t i = 0; i < N_PUBLISHED; i++)
		keys[i][0] = (uint8_t)i;
	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	for (int i = 0; i < 5; i++) {
		paged_seq_id seq = worker_create_seq(&worker, PUBLISHED);

		worker_ok(&worker, paged_prefix_match(worker.pool, &prefix[i], &n_tokens));
		/* Tokens before the image are the same. */
		it_require(n_tokens == (i == 3 ? 8 : 0), "identity %d matches %u tokens of others", i, n_tokens);
		worker_ok(&worker, paged_seq_publish(worker.pool, 1, &(struct paged_publish){ seq, &prefix[i] }));
		worker_ok(&worker, paged_client_ping(worker.client));
		worker_ok(&worker, paged_prefix_match(worker.pool, &prefix[i], &n_tokens));
		it_require(n_tokens == PUBLISHED, "identity %d: %u", i, n_tokens);
	}
	image.digest[31] = 1;
	worker_ok(&worker, paged_prefix_match(worker.pool, &prefix[3], &n_tokens));
	it_require(n_tokens == 8, "another image: %u", n_tokens);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Two forks publish the pages that they share as different prompts: a page stands for one prefix. */
IT_TEST(forks_cannot_publish_a_page_twice)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH), other = prompt_make(1, LENGTH);
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq, child;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, LENGTH);
	prompt_write(&worker, seq, &prompt, 0, LENGTH);
	worker_ok(&worker, paged_batch_fork(worker.batch, 1, &seq, (uint32_t[]){ LENGTH }, &child));
	it_require(prompt_publish(&worker, seq, &prompt, 16) == 16);
	it_require(prompt_publish(&worker, child, &other, LENGTH) == 0);
	prompt_publish(&worker, child, &other, LENGTH);
	it_require(prompt_info(&worker, child, NULL).publish_end == PAGED_PUBLISH_OTHER);
	it_require(prompt_match(&worker, &other) == 0 && prompt_match(&worker, &prompt) == 16);
	/* Under its own name, the child publishes the rest. */
	it_require(prompt_publish(&worker, child, &prompt, LENGTH) == PUBLISHED);
	it_require(prompt_info(&worker, child, NULL).publish_end == PAGED_PUBLISH_DONE);
	it_require(prompt_match(&worker, &prompt) == PUBLISHED);
	prompt_expect_pages(&worker, WORKER_PAGES - N_PAGES - 1, N_PAGES + 1, 0);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* vLLM's basic_prefix_caching_disabled. */
IT_TEST(pool_that_publishes_nothing)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct paged_prefix prefix = prompt_prefix(&prompt, LENGTH);
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint32_t n_shared;
	paged_seq_id seq;

	it_daemon_start(&daemon, PROMPT_POOL("publish = no"), NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(worker_pool_entry(&worker, "test").publishes == 0);
	seq = prompt_start(&worker, &prompt, &n_shared);
	it_require(n_shared == 0);
	prompt_write(&worker, seq, &prompt, 0, LENGTH);
	worker_expect(&worker, paged_seq_publish(worker.pool, 1, &(struct paged_publish){ seq, &prefix }),
		      PAGED_ERR_UNSUPPORTED);
	worker_expect(&worker, paged_batch_publish(worker.batch, 1, &(struct paged_publish){ seq, &prefix }),
		      PAGED_ERR_UNSUPPORTED);
	worker_expect(&worker, paged_prefix_wait(worker.pool, &prefix, LENGTH, 1000), PAGED_ERR_UNSUPPORTED);
	it_require(strstr(paged_client_error(worker.client), "pool test publishes nothing") != NULL, "%s",
		   paged_client_error(worker.client));
	it_require(prompt_match(&worker, &prompt) == 0);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	prompt_expect_pages(&worker, WORKER_PAGES, 0, 0);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
