/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds of published pages, between processes: a mover keeps what others published while competitors fill the pool.
 * What is held stays bit for bit, everything else is evicted, and a mover's death frees what it held at once.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/random.h"
#include "tests/support/sequences.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/prompt_fixture.h"
#include "tests/fake-cuda/load.h"

#define N_PAGES 8u /* of a prompt */
#define N_TOKENS (N_PAGES * WORKER_PAGE_SIZE)
#define N_PROMPTS (WORKER_PAGES / N_PAGES)
/* All pages of the pool may be held. */
#define HOLD_POOL PROMPT_POOL("pin-limit = 100%")

static struct prompt
numbered_prompt(uint32_t number)
{
	return prompt_make(20261127u + number, N_TOKENS);
}

/* A mover in a process of its own */

enum word { HOLD = 1, VERIFY, RELEASE, PING, END };

struct order {
	enum word word;
	uint32_t prompt; /* number of what is listed, held and verified */
	uint32_t n_pages;
	uint32_t limit_ms; /* how long the mover waits for the daemon; 0: IT_LIMIT_MS */
};

struct answer {
	enum paged_status status;
	uint32_t n_listed;
	char text[200];
};

struct mover {
	struct worker_fixture worker;
	uint32_t pages[N_PROMPTS][N_PAGES];
	paged_seq_id holds[N_PROMPTS];
};

static void
mover_list(struct mover *mover, const struct order *order, uint64_t *serials, struct answer *answer)
{
	struct prompt prompt = numbered_prompt(order->prompt);
	struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);
	size_t n = 0;

	worker_ok(&mover->worker, paged_prefix_pages(mover->worker.pool, &prefix, order->n_pages,
						     mover->pages[order->prompt], serials, &n));
	answer->n_listed = (uint32_t)n;
}

static void
mover_obey(struct mover *mover, const struct order *order, struct answer *answer)
{
	struct prompt prompt = numbered_prompt(order->prompt);
	paged_seq_id *hold = &mover->holds[order->prompt];
	uint64_t serials[N_PAGES];

	*answer = (struct answer){ .status = PAGED_OK };
	switch (order->word) {
	case HOLD:
		mover_list(mover, order, serials, answer);
		answer->status = paged_pages_hold(mover->worker.pool, answer->n_listed, mover->pages[order->prompt],
						  serials, hold);
		break;
	case VERIFY:
		prompt_verify_pages(&mover->worker, mover->pages[order->prompt], &prompt, N_TOKENS);
		break;
	case RELEASE:
		answer->status = paged_seq_erase(mover->worker.client, 1, hold);
		break;
	case PING:
		answer->status = paged_client_ping(mover->worker.client);
		break;
	case END:
		break;
	}
	if (answer->status != PAGED_OK)
		snprintf(answer->text, sizeof(answer->text), "%s", paged_client_error(mover->worker.client));
}

static void
mover_run(int from, int to, void *argument)
{
	struct answer answer = { 0 };
	struct mover mover = { 0 };
	struct order order;

	(void)argument;
	worker_open(&mover.worker, NULL, 0);
	it_send(to, &answer, sizeof(answer));
	do {
		it_receive(from, &order, sizeof(order));
		worker_set_timeout(&mover.worker, order.limit_ms != 0 ? order.limit_ms : IT_LIMIT_MS);
		mover_obey(&mover, &order, &answer);
		it_send(to, &answer, sizeof(answer));
	} while (order.word != END);
	worker_close(&mover.worker);
}

/* A daemon, a worker that has published prompts and let them go, and a mover. */
static struct {
	struct it_daemon daemon;
	struct worker_fixture worker;
	struct it_worker mover;
	struct answer answer;
} fixture;

static void
publish_prompts(uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		struct prompt prompt = numbered_prompt(i);
		paged_seq_id seq = prompt_compute(&fixture.worker, &prompt);

		worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &seq));
	}
}

static void
setup_with(const char *config, uint32_t n_prompts)
{
	it_daemon_start(&fixture.daemon, config, NULL, NULL);
	/* First, because a child of a process that uses CUDA cannot use it. */
	it_fork(&fixture.mover, mover_run, NULL);
	it_receive(fixture.mover.from, &fixture.answer, sizeof(fixture.answer));
	worker_open(&fixture.worker, NULL, 0);
	publish_prompts(0, n_prompts);
}

static void
setup(uint32_t n_prompts)
{
	setup_with(HOLD_POOL, n_prompts);
}

static enum paged_status
ask(enum word word, uint32_t prompt)
{
	struct order order = { .word = word, .prompt = prompt, .n_pages = N_PAGES };

	it_send(fixture.mover.to, &order, sizeof(order));
	it_receive(fixture.mover.from, &fixture.answer, sizeof(fixture.answer));
	return fixture.answer.status;
}

#define ask_ok(word, prompt)                                                                                        \
	do {                                                                                                        \
		enum paged_status ask_status_ = ask(word, prompt);                                                  \
		it_require(ask_status_ == PAGED_OK, "%s: %s", paged_status_name(ask_status_), fixture.answer.text); \
	} while (0)

static void
teardown(void)
{
	ask_ok(END, 0);
	it_join(&fixture.mover);
	worker_check_pool(&fixture.worker);
	worker_close(&fixture.worker);
	it_daemon_stop(&fixture.daemon);
}

static uint32_t
matched_pages(uint32_t number)
{
	struct prompt prompt = numbered_prompt(number);

	return prompt_match(&fixture.worker, &prompt) / WORKER_PAGE_SIZE;
}

/* A competitor takes n pages and writes to them. */
static paged_seq_id
compete(uint32_t n_pages)
{
	paged_seq_id seq = worker_create_seq(&fixture.worker, n_pages * WORKER_PAGE_SIZE);

	worker_write(&fixture.worker, seq, 0, n_pages * WORKER_PAGE_SIZE, n_pages);
	return seq;
}

static void
expect_full(uint32_t n_requested, const char *text)
{
	struct paged_seq_params params = { .pool = fixture.worker.pool, .n_tokens = n_requested * WORKER_PAGE_SIZE };
	paged_seq_id seq;

	worker_expect(&fixture.worker, paged_seq_create(fixture.worker.client, 1, &params, &seq), PAGED_ERR_FULL);
	it_require(strcmp(paged_client_error(fixture.worker.client), text) == 0, "%s",
		   paged_client_error(fixture.worker.client));
}

IT_TEST(held_pages_stay_while_the_pool_is_filled)
{
	paged_seq_id taken[3];

	setup(3);
	ask_ok(HOLD, 1);
	it_require(fixture.answer.n_listed == N_PAGES);
	prompt_expect_pages(&fixture.worker, WORKER_PAGES - 3 * N_PAGES, N_PAGES, 2 * N_PAGES);
	for (int i = 0; i < 2; i++)
		taken[i] = compete(28);
	it_require(matched_pages(0) == 0 && matched_pages(1) == N_PAGES && matched_pages(2) == 0);
	expect_full(1, "pool test: 1 pages requested, 0 free (0 quarantined, holds keep 8)");
	ask_ok(VERIFY, 1);
	/* A start on what is held needs no page. */
	taken[2] = prompt_start(&fixture.worker, &(struct prompt[]){ numbered_prompt(1) }[0], NULL);
	prompt_verify(&fixture.worker, taken[2], &(struct prompt[]){ numbered_prompt(1) }[0], N_TOKENS);
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &taken[2]));
	/* Released: the prompt is cached, and evicted from its end. */
	ask_ok(RELEASE, 1);
	prompt_expect_pages(&fixture.worker, 0, 56, N_PAGES);
	taken[2] = compete(3);
	it_require(matched_pages(1) == N_PAGES - 3);
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 3, taken));
	teardown();
}

/* Mooncake: MasterServiceTest.RemoveLeasedObject.  What is leased is not removed, before the lease ends. */
IT_TEST(held_pages_are_not_evicted_by_an_administrator)
{
	uint32_t n_evicted;

	setup(2);
	ask_ok(HOLD, 0);
	worker_ok(&fixture.worker, paged_admin_evict(fixture.worker.client, "test", 0, &n_evicted));
	it_require(n_evicted == N_PAGES && matched_pages(0) == N_PAGES && matched_pages(1) == 0);
	ask_ok(VERIFY, 0);
	ask_ok(RELEASE, 0);
	worker_ok(&fixture.worker, paged_admin_evict(fixture.worker.client, "test", 0, &n_evicted));
	it_require(n_evicted == N_PAGES && matched_pages(0) == 0);
	teardown();
}

/* With the whole pool held, requests fail at once instead of waiting, and the holder's death lets them go on. */
IT_TEST(the_whole_pool_is_held)
{
	struct prompt prompt = numbered_prompt(0);
	paged_seq_id seq;

	setup(N_PROMPTS);
	for (uint32_t i = 0; i < N_PROMPTS; i++)
		ask_ok(HOLD, i);
	prompt_expect_pages(&fixture.worker, 0, WORKER_PAGES, 0);
	expect_full(1, "pool test: 1 pages requested, 0 free (0 quarantined, holds keep 64)");
	worker_expect(&fixture.worker, paged_pool_wait_free(fixture.worker.pool, 1, 1), PAGED_ERR_TIMEOUT);
	seq = prompt_start(&fixture.worker, &prompt, NULL);
	worker_expect(&fixture.worker, seqs_reserve(fixture.worker.client, 1, &seq, (uint32_t[]){ N_TOKENS + 1 }),
		      PAGED_ERR_FULL);
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &seq));
	it_require(ask(HOLD, 0) == PAGED_ERR_LIMIT, "%s", fixture.answer.text);
	it_require(strstr(fixture.answer.text, "a hold of 8 pages, with 64 of other holds and 0 of pins, exceeds "
					       "pin-limit (64): release holds or pins") != NULL,
		   "%s", fixture.answer.text);
	it_kill(&fixture.mover);
	worker_ok(&fixture.worker, paged_pool_wait_free(fixture.worker.pool, WORKER_PAGES, IT_LIMIT_MS));
	seq = compete(WORKER_MAX_LENGTH / WORKER_PAGE_SIZE);
	worker_check_pool(&fixture.worker);
	worker_close(&fixture.worker);
	it_daemon_stop(&fixture.daemon);
}

IT_TEST(pin_limit_counts_holds_and_pins)
{
	struct prompt prompt = numbered_prompt(1);
	struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);

	setup_with(PROMPT_POOL("pin-limit = 20"), 3);
	ask_ok(HOLD, 0);
	worker_ok(&fixture.worker, paged_prefix_pin(fixture.worker.pool, &prefix, 3600, NULL));
	it_require(ask(HOLD, 2) == PAGED_ERR_LIMIT, "%s", fixture.answer.text);
	it_require(strstr(fixture.answer.text,
			  "a hold of 8 pages, with 8 of other holds and 8 of pins, exceeds pin-limit (20)") != NULL,
		   "%s", fixture.answer.text);
	worker_ok(&fixture.worker, paged_prefix_pin(fixture.worker.pool, &prefix, 0, NULL));
	ask_ok(HOLD, 2);
	worker_expect(&fixture.worker, paged_prefix_pin(fixture.worker.pool, &prefix, 3600, NULL), PAGED_ERR_LIMIT);
	ask_ok(RELEASE, 0);
	worker_ok(&fixture.worker, paged_prefix_pin(fixture.worker.pool, &prefix, 3600, NULL));
	ask_ok(RELEASE, 2);
	teardown();
}

static bool
is_cached(void *argument)
{
	return worker_pool_entry(&fixture.worker, "test").n_cached == *(const uint32_t *)argument;
}

/*
 * What was published needs no quarantine: it is cached as soon as the daemon sees the death.  Mooncake:
 * ChaosTest.ClientKilledFailover.
 */
IT_TEST(the_holder_is_killed)
{
	const uint32_t n_held = 2 * N_PAGES;
	struct paged_pool_entry entry;
	struct prompt prompt;

	setup(2);
	ask_ok(HOLD, 0);
	ask_ok(HOLD, 1);
	prompt_expect_pages(&fixture.worker, WORKER_PAGES - n_held, n_held, 0);
	it_kill(&fixture.mover);
	it_require(it_wait(is_cached, (void *)&n_held));
	entry = worker_pool_entry(&fixture.worker, "test");
	it_require(entry.n_referenced == 0 && entry.n_quarantined == 0 && entry.n_sequences == 0);
	for (uint32_t i = 0; i < 2; i++) {
		paged_seq_id seq;

		prompt = numbered_prompt(i);
		seq = prompt_start(&fixture.worker, &prompt, NULL);
		prompt_verify(&fixture.worker, seq, &prompt, N_TOKENS);
	}
	worker_check_pool(&fixture.worker);
	worker_close(&fixture.worker);
	it_daemon_stop(&fixture.daemon);
}

/*
 * A mover lists pages; before it holds them, one is evicted, or published under another prefix.  All or nothing, as
 * LMCache: test_retrieve_partial_miss.
 */
IT_TEST(pages_that_were_evicted_meanwhile)
{
	struct prompt prompt = numbered_prompt(0);
	struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);
	struct paged_pool_entry before, after;
	uint32_t pages[N_PAGES], n_evicted;
	uint64_t serials[N_PAGES];
	paged_seq_id hold;
	size_t n;

	setup(1);
	worker_ok(&fixture.worker, paged_prefix_pages(fixture.worker.pool, &prefix, N_PAGES, pages, serials, &n));
	it_require(n == N_PAGES);
	worker_ok(&fixture.worker, paged_admin_evict(fixture.worker.client, "test", 1, &n_evicted));
	before = worker_pool_entry(&fixture.worker, "test");
	worker_expect(&fixture.worker, paged_pages_hold(fixture.worker.pool, n, pages, serials, &hold),
		      PAGED_ERR_STALE);
	after = worker_pool_entry(&fixture.worker, "test");
	it_require(memcmp(&before, &after, sizeof(before)) == 0, "a refused hold changed the pool's numbers");
	/* What is left can be held. */
	worker_ok(&fixture.worker, paged_pages_hold(fixture.worker.pool, n - 1, pages, serials, &hold));
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &hold));
	/* All pages are published again, so that only the serials tell. */
	worker_ok(&fixture.worker, paged_admin_evict(fixture.worker.client, "test", 0, &n_evicted));
	publish_prompts(1, N_PROMPTS - 1);
	publish_prompts(0, 1);
	worker_expect(&fixture.worker, paged_pages_hold(fixture.worker.pool, n, pages, serials, &hold),
		      PAGED_ERR_STALE);
	ask_ok(HOLD, 0);
	ask_ok(VERIFY, 0);
	teardown();
}

/* The sequence whose pages are held is forked, truncated, given away and erased. */
IT_TEST(sequences_whose_pages_are_held)
{
	struct prompt prompt = numbered_prompt(0);
	uint32_t length = N_TOKENS, half = N_TOKENS / 2;
	struct paged_ticket ticket;
	paged_seq_id seq, child;
	size_t n;

	setup(0);
	seq = prompt_compute(&fixture.worker, &prompt);
	ask_ok(HOLD, 0);
	prompt_expect_pages(&fixture.worker, WORKER_PAGES - N_PAGES, N_PAGES, 0);
	worker_ok(&fixture.worker, paged_batch_fork(fixture.worker.batch, 1, &seq, &length, &child));
	worker_ok(&fixture.worker, seqs_truncate(fixture.worker.client, 1, &seq, &half));
	worker_ok(&fixture.worker, paged_seq_give(fixture.worker.pool, 1, &seq, &half, NULL, &ticket));
	worker_ok(&fixture.worker, paged_seq_adopt(fixture.worker.pool, &ticket, 1, &seq, NULL, &n));
	worker_ok(&fixture.worker, seqs_trim(fixture.worker.client, 1, &child, &half));
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &seq));
	worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &child));
	prompt_expect_pages(&fixture.worker, WORKER_PAGES - N_PAGES, N_PAGES, 0);
	ask_ok(VERIFY, 0);
	it_require(matched_pages(0) == N_PAGES);
	ask_ok(RELEASE, 0);
	prompt_expect_pages(&fixture.worker, WORKER_PAGES - N_PAGES, 0, N_PAGES);
	teardown();
}

/* What was held is the last to be evicted, as if it had been used when it was released. */
IT_TEST(released_pages_are_the_hottest)
{
	setup(N_PROMPTS);
	ask_ok(HOLD, 0);
	ask_ok(HOLD, 3);
	ask_ok(RELEASE, 3);
	ask_ok(RELEASE, 0);
	/* From the coldest: 1 2 4 5 6 7 3 0. */
	compete(4 * N_PAGES);
	it_require(matched_pages(1) == 0 && matched_pages(2) == 0 && matched_pages(4) == 0 && matched_pages(5) == 0);
	compete(2 * N_PAGES + 2);
	it_require(matched_pages(6) == 0 && matched_pages(7) == 0);
	it_require(matched_pages(3) == N_PAGES - 2 && matched_pages(0) == N_PAGES);
	teardown();
}

/* The mover gives up waiting: the hold of its late reply is erased. */
IT_TEST(a_late_reply_is_undone)
{
	const struct order hold = { .word = HOLD, .n_pages = N_PAGES, .limit_ms = 100 };
	const uint32_t n_cached = N_PAGES;

	setup(1);
	kill(fixture.daemon.pid, SIGSTOP);
	it_send(fixture.mover.to, &hold, sizeof(hold));
	it_receive(fixture.mover.from, &fixture.answer, sizeof(fixture.answer));
	it_require(fixture.answer.status == PAGED_ERR_TIMEOUT, "%s", fixture.answer.text);
	kill(fixture.daemon.pid, SIGCONT);
	ask_ok(PING, 0);
	it_require(it_wait(is_cached, (void *)&n_cached));
	it_require(worker_pool_entry(&fixture.worker, "test").n_sequences == 0);
	teardown();
}

IT_TEST(pagedctl_shows_holds)
{
	const char *output;
	int code;

	setup(1);
	worker_create_seq(&fixture.worker, 4);
	output = it_pagedctl(&code, "sequences", NULL);
	it_require(code == 0 && strstr(output, "  hold") == NULL, "%s", output);
	ask_ok(HOLD, 0);
	output = it_pagedctl(&code, "sequences", NULL);
	it_require(code == 0 && strstr(output, "STATE") != NULL && strstr(output, "  hold") != NULL, "%s", output);
	output = it_pagedctl(&code, "--json", "sequences", NULL);
	it_require(code == 0 && strstr(output, "\"state\": \"hold\"") != NULL, "%s", output);
	output = it_pagedctl(&code, "table", "1.1", NULL);
	it_require(code == 0 && strstr(output, "8 pages, a hold\n") != NULL, "%s", output);
	ask_ok(RELEASE, 0);
	teardown();
}

IT_TEST(observers_list_and_hold_nothing)
{
	struct prompt prompt = numbered_prompt(0);
	struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);
	struct worker_fixture observer;
	uint32_t pages[N_PAGES];
	uint64_t serials[N_PAGES];
	paged_seq_id hold;
	size_t n;

	setup(1);
	worker_observe(&observer);
	worker_ok(&observer, paged_pool_open(observer.client, "test", &observer.pool));
	worker_ok(&observer, paged_prefix_pages(observer.pool, &prefix, N_PAGES, pages, serials, &n));
	it_require(n == N_PAGES);
	worker_expect(&observer, paged_pages_hold(observer.pool, n, pages, serials, &hold), PAGED_ERR_PERM);
	worker_close(&observer);
	teardown();
}

/* A mover holds, verifies and releases while competitors publish and evict. */
#define N_ROUNDS 400u

static void
competitor_run(int from, int to, void *argument)
{
	uint64_t random = *(const uint64_t *)argument;
	struct worker_fixture worker;
	char stop = 0;

	worker_open(&worker, NULL, 0);
	it_send(to, &stop, sizeof(stop));
	for (uint32_t i = 0; i < N_ROUNDS; i++) {
		struct prompt prompt = numbered_prompt((uint32_t)random_below(&random, N_PROMPTS));
		struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);
		struct paged_start start = { .prefix = &prefix, .reserve = N_TOKENS };
		uint32_t n_shared;
		paged_seq_id seq;

		/* FULL: the mover and the other competitor have all pages. */
		if (paged_seq_start(worker.pool, 1, &start, &seq, &n_shared) != PAGED_OK)
			continue;
		prompt_verify(&worker, seq, &prompt, n_shared);
		prompt_write(&worker, seq, &prompt, n_shared, N_TOKENS);
		prompt_publish(&worker, seq, &prompt, N_TOKENS);
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}
	it_send(to, &stop, sizeof(stop));
	it_receive(from, &stop, sizeof(stop));
	worker_close(&worker);
}

IT_TEST(a_mover_among_competitors)
{
	/* Room for four prompts of eight, so that each start evicts. */
	static const char config[] =
		"pool test {\n" WORKER_POOL_SHAPE
		"\n" POOL_SIZES(WORKER_PAGE_SIZE, 32, 16, WORKER_MAX_LENGTH) "\n free-pages = 0 pin-limit = 50%\n}\n";
	uint64_t seeds[2] = { test_seed(), test_seed() + 1 }, random = test_seed() + 2;
	uint32_t n_held = 0, n_stale = 0, pages[N_PAGES];
	struct it_worker competitors[2];
	uint64_t serials[N_PAGES];
	paged_seq_id hold;
	char byte = 0;
	size_t n;

	it_daemon_start(&fixture.daemon, config, NULL, NULL);
	for (int i = 0; i < 2; i++) {
		it_fork(&competitors[i], competitor_run, &seeds[i]);
		it_receive(competitors[i].from, &byte, sizeof(byte));
	}
	worker_open(&fixture.worker, NULL, 0);
	/* Ends although the competitors end before: what they leave in the cache can be held. */
	while (n_held + n_stale < N_ROUNDS) {
		struct prompt prompt = numbered_prompt((uint32_t)random_below(&random, N_PROMPTS));
		struct paged_prefix prefix = prompt_prefix(&prompt, N_TOKENS);
		enum paged_status status;

		worker_ok(&fixture.worker,
			  paged_prefix_pages(fixture.worker.pool, &prefix, N_PAGES, pages, serials, &n));
		if (n == 0)
			continue;
		status = paged_pages_hold(fixture.worker.pool, n, pages, serials, &hold);
		n_stale += status == PAGED_ERR_STALE;
		if (status == PAGED_ERR_STALE)
			continue;
		worker_ok(&fixture.worker, status);
		prompt_verify_pages(&fixture.worker, pages, &prompt, (uint32_t)n * WORKER_PAGE_SIZE);
		worker_ok(&fixture.worker, paged_seq_erase(fixture.worker.client, 1, &hold));
		n_held++;
	}
	it_note("%u holds, %u stale", n_held, n_stale);
	for (int i = 0; i < 2; i++) {
		it_receive(competitors[i].from, &byte, sizeof(byte));
		it_send(competitors[i].to, &byte, sizeof(byte));
		it_join(&competitors[i]);
	}
	worker_check_pool(&fixture.worker);
	worker_close(&fixture.worker);
	it_daemon_stop(&fixture.daemon);
}

/* On both back ends: a hold is not planned, and its pages are read as explicit ones. */
static void
hold_in_a_batch(const char *backend)
{
	struct batch_fixture_params params = {
		.backend = backend,
		.pool = PAGED_F32,
		.q = PAGED_F32,
		.q_heads = 4,
		.kv_heads = 2,
		.k_dim = 16,
		.v_dim = 16,
		.page_size = 4,
		.n_rows = 1,
		.rows = { { .kv_len = 24, .q_len = 2 } },
		.n_pages = 32,
	};
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS], *row = &rows[0];
	uint32_t tokens[24], pages[6];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = 24 };
	struct paged_publish publish = { .prefix = &prefix };
	struct paged_seq_item all = { .n_tokens = 0 };
	struct batch_fixture batch;
	uint64_t serials[6];
	paged_seq_id hold;
	size_t n;

	for (uint32_t i = 0; i < 24; i++)
		tokens[i] = i;
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	batch_fixture_open(&batch, &params);
	batch_fixture_write(&batch, 0, 0, 24);
	publish.seq = batch.seq[0];
	batch_fixture_ok(&batch, paged_batch_publish(batch.batch, 1, &publish));
	batch_fixture_ok(&batch, paged_batch_finish(batch.batch));
	batch_fixture_ok(&batch, paged_prefix_pages(batch.pool, &prefix, 6, pages, serials, &n));
	it_require(n == 6);
	batch_fixture_ok(&batch, paged_pages_hold(batch.pool, n, pages, serials, &hold));
	all.seq = batch.seq[0];
	batch_fixture_ok(&batch, paged_seq_truncate(batch.client, 1, &all));

	batch_fixture_rows(&batch, rows);
	row->seq = hold;
	batch_fixture_expect(&batch, paged_batch_plan(batch.batch, 1, row), PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(batch.client), "is a hold, whose pages have no order") != NULL, "%s",
		   paged_client_error(batch.client));
	row->seq = 0;
	row->pages = pages;
	row->n_pages = 6;
	row->flags |= PAGED_ROW_NO_APPEND;
	batch_fixture_ok(&batch, paged_batch_plan(batch.batch, 1, row));
	batch_fixture_ok(&batch, batch_fixture_attend(&batch, NULL));
	batch_fixture_check(&batch);
	batch_fixture_ok(&batch, paged_seq_erase(batch.client, 1, &hold));
	batch_fixture_close(&batch);
}

IT_TEST(holds_on_both_back_ends)
{
	hold_in_a_batch("host");
	hold_in_a_batch("cuda");
}

IT_MAIN
