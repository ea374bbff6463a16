/* SPDX-License-Identifier: Apache-2.0 */
/* paged_client_shortage(): what refused requests lacked, and that the numbers are exact: with so many more, they fit.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

static struct paged_shortage
shortage_of(struct worker_fixture *worker)
{
	struct paged_shortage shortage = { .struct_size = sizeof(shortage) };

	worker_ok(worker, paged_client_shortage(worker->client, &shortage));
	it_require(shortage.pool == worker->info.number, "%u", shortage.pool);
	return shortage;
}

#define expect_shortage(worker, missing, slots, requested, free, cached, own, others, quarantined)                   \
	do {                                                                                                         \
		struct paged_shortage s_ = shortage_of(worker);                                                      \
		it_require(                                                                                          \
			s_.pages_missing == (missing) && s_.slots_missing == (slots) &&                              \
				s_.n_requested == (requested) && s_.n_free == (free) && s_.n_cached == (cached) &&   \
				s_.n_own == (own) && s_.n_others == (others) && s_.n_quarantined == (quarantined),   \
			"missing %u, slots %u, requested %u, free %u, cached %u, own %u, others %u, quarantined %u", \
			s_.pages_missing, s_.slots_missing, s_.n_requested, s_.n_free, s_.n_cached, s_.n_own,        \
			s_.n_others, s_.n_quarantined);                                                              \
	} while (0)

static enum paged_status
create(struct worker_fixture *worker, uint32_t n_pages, paged_seq_id *seq)
{
	struct paged_seq_params params = { .pool = worker->pool, .n_tokens = n_pages * WORKER_PAGE_SIZE };

	return paged_seq_create(worker->client, 1, &params, seq);
}

static enum paged_status
start(struct worker_fixture *worker, const struct prompt *prompt, uint32_t n_pages, paged_seq_id *seq)
{
	struct paged_prefix prefix = prompt_prefix(prompt, prompt->n);
	struct paged_start params = { .prefix = &prefix, .reserve = n_pages * WORKER_PAGE_SIZE };

	return paged_seq_start(worker->pool, 1, &params, seq, NULL);
}

/* Of 64 pages, `other` has 30, `worker` 20, 4 are cached and 10 free. */
IT_TEST(the_numbers_of_each_call_are_exact)
{
	struct it_daemon daemon;
	struct worker_fixture worker, other;
	struct prompt prompt = prompt_make(1, 4 * WORKER_PAGE_SIZE);
	struct paged_shortage none = { .struct_size = sizeof(none) };
	struct paged_batch_row row;
	paged_seq_id mine, theirs, cached, seq, parents[2];

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 8);
	worker_open(&other, NULL, 0);
	worker_expect(&worker, paged_client_shortage(worker.client, &none), PAGED_ERR_NOENT);
	cached = prompt_start(&other, &prompt, NULL);
	prompt_write(&other, cached, &prompt, 0, prompt.n);
	prompt_publish(&other, cached, &prompt, prompt.n);
	worker_ok(&other, paged_seq_erase(other.client, 1, &cached));
	worker_ok(&other, create(&other, 30, &theirs));
	worker_ok(&worker, create(&worker, 20, &mine));

	worker_expect(&worker, create(&worker, 17, &seq), PAGED_ERR_FULL);
	expect_shortage(&worker, 3, 0, 17, 10, 4, 20, 30, 0);
	/* A start keeps the cached pages that it shares: 16 pages, of which it has 4, and 10 are free. */
	worker_expect(&worker, start(&worker, &prompt, 16, &seq), PAGED_ERR_FULL);
	expect_shortage(&worker, 2, 0, 12, 10, 0, 20, 30, 0);
	worker_ok(&other, seqs_truncate(other.client, 1, &theirs, (uint32_t[]){ 28 * WORKER_PAGE_SIZE }));
	worker_ok(&worker, start(&worker, &prompt, 16, &seq));
	/* What a sequence of another session names too is not the session's own. */
	worker_ok(&other, start(&other, &prompt, 4, &cached));
	row = (struct paged_batch_row){ .seq = mine, .q_len = 1, .kv_len = 21 * WORKER_PAGE_SIZE };
	worker_expect(&worker, paged_batch_plan(worker.batch, 1, &row), PAGED_ERR_FULL);
	expect_shortage(&worker, 1, 0, 1, 0, 0, 20 + 12, 28 + 4, 0);
	/* Two children of which each copies the parent's last page; the pages that they share count once. */
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	worker_ok(&worker, create(&worker, 12, &seq));
	parents[0] = parents[1] = mine;
	worker_expect(&worker, paged_batch_fork(worker.batch, 2, parents, (uint32_t[]){ 77, 77 }, &seq),
		      PAGED_ERR_FULL);
	expect_shortage(&worker, 2, 0, 2, 0, 0, 32, 32, 0);
	worker_ok(&worker, paged_batch_fork(worker.batch, 1, parents, (uint32_t[]){ 76 }, &seq));
	worker_expect(&worker, create(&worker, 1, &seq), PAGED_ERR_FULL);
	expect_shortage(&worker, 1, 0, 1, 0, 0, 32, 32, 0);
	worker_check_pool(&worker);
	worker_close(&worker);
	worker_close(&other);
	it_daemon_stop(&daemon);
}

IT_TEST(slots_and_other_errors)
{
	struct it_daemon daemon;
	struct worker_fixture worker;
	struct paged_shortage shortage = { .struct_size = 0 };
	paged_seq_id seqs[WORKER_SLOTS + 3], stale = PAGED_SEQ(7, 0, 3);

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_expect(&worker, seqs_create(worker.client, worker.pool, WORKER_SLOTS + 3, seqs), PAGED_ERR_FULL);
	expect_shortage(&worker, 0, 3, 0, WORKER_PAGES, 0, 0, 0, 0);
	worker_expect(&worker, paged_client_shortage(worker.client, &shortage), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_client_shortage(worker.client, NULL), PAGED_ERR_INVALID);
	shortage.struct_size = sizeof(shortage);
	worker_expect(&worker, seqs_create(worker.client, worker.pool, WORKER_SLOTS + 1, seqs), PAGED_ERR_FULL);
	worker_expect(&worker, paged_seq_erase(worker.client, 1, &stale), PAGED_ERR_STALE);
	worker_expect(&worker, paged_client_shortage(worker.client, &shortage), PAGED_ERR_NOENT);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* A limit of 10 pages in a pool of 64: a tenant lacks what it is charged too much, whatever is free. */
IT_TEST(the_numbers_of_a_tenants_limit)
{
	struct it_daemon daemon;
	struct worker_fixture worker;
	paged_seq_id seq, more;
	char config[512];

	snprintf(config, sizeof(config), PROMPT_POOL("") "tenant t { allow-user = %u limit test = 10 share = 75%% }\n",
		 (unsigned int)getuid());
	it_daemon_start(&daemon, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_ok(&worker, create(&worker, 8, &seq));
	worker_expect(&worker, create(&worker, 5, &more), PAGED_ERR_QUOTA);
	expect_shortage(&worker, 3, 0, 5, WORKER_PAGES - 8, 0, 8, 0, 0);
	worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 5 * WORKER_PAGE_SIZE }));
	worker_ok(&worker, create(&worker, 5, &more));
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static void
leave(int from, int to, void *argument)
{
	struct worker_fixture worker;
	paged_seq_id seq;
	char word = 'l';

	(void)argument;
	worker_open(&worker, NULL, 0);
	worker_ok(&worker, create(&worker, 6, &seq));
	it_send(to, &word, 1);
	it_receive(from, &word, 1);
}

static bool
is_quarantined(void *argument)
{
	return worker_pool_entry(argument, "test").n_quarantined == 6;
}

IT_TEST(others_pages_in_quarantine)
{
	struct it_daemon daemon;
	struct worker_fixture worker;
	struct it_worker owner;
	paged_seq_id seq, more;
	char word;

	it_daemon_start(&daemon, PROMPT_POOL("quarantine = 60min"), NULL, NULL);
	it_fork(&owner, leave, NULL);
	it_receive(owner.from, &word, 1);
	worker_open(&worker, NULL, 0);
	worker_ok(&worker, create(&worker, 28, &seq));
	worker_expect(&worker, create(&worker, 31, &more), PAGED_ERR_FULL);
	expect_shortage(&worker, 1, 0, 31, 30, 0, 28, 6, 0);
	it_kill(&owner);
	it_require(it_wait(is_quarantined, &worker));
	worker_expect(&worker, create(&worker, 31, &more), PAGED_ERR_FULL);
	expect_shortage(&worker, 1, 0, 31, 30, 0, 28, 0, 6);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
