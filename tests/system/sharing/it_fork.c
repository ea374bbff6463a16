/* SPDX-License-Identifier: Apache-2.0 */
/* Forks in real processes: trees of forks whose worker is killed at each step, beams, speculative tokens. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/random.h"
#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define PROMPT_SEED 20261124u
#define LENGTH 34u /* tokens of the prompt; the last page is not full */

static paged_seq_id
fork_at(struct worker_fixture *worker, paged_seq_id parent, uint32_t n_tokens)
{
	paged_seq_id child = 0;

	worker_ok(worker, paged_batch_fork(worker->batch, 1, &parent, &n_tokens, &child));
	return child;
}

static void
erase(struct worker_fixture *worker, paged_seq_id seq)
{
	worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
}

/* A child's content: the prompt up to the fork, then tokens of its own. */
static void
child_write(struct worker_fixture *worker, paged_seq_id child, struct prompt *prompt, uint32_t at, uint32_t n,
	    uint64_t seed)
{
	*prompt = prompt_diverge(prompt, at, seed, n);
	worker_ok(worker, seqs_reserve(worker->client, 1, &child, &n));
	prompt_write(worker, child, prompt, at, n);
}

/*
 * Forks of forks.  Each step makes one request or more; `stop` is the step that the worker does not go beyond.  Returns
 * false if there are no more steps.
 */
static bool
tree_run(struct worker_fixture *worker, uint32_t stop)
{
	struct prompt trunk = prompt_make(PROMPT_SEED, LENGTH), prompt[5];
	paged_seq_id seq[5], twice[2];
	uint32_t step = 0;

#define TREE_STEP(...)               \
	do {                         \
		if (step++ == stop)  \
			return true; \
		__VA_ARGS__;         \
	} while (0)
	for (int i = 0; i < 5; i++)
		prompt[i] = trunk;
	TREE_STEP(seq[0] = prompt_start(worker, &trunk, NULL));
	TREE_STEP(prompt_write(worker, seq[0], &trunk, prompt_info(worker, seq[0], NULL).writable_from, LENGTH));
	TREE_STEP(seq[1] = fork_at(worker, seq[0], 33));
	TREE_STEP(child_write(worker, seq[1], &prompt[1], 33, 50, 1));
	TREE_STEP(prompt_publish(worker, seq[0], &trunk, LENGTH));
	prompt[2] = prompt[1];
	TREE_STEP(seq[2] = fork_at(worker, seq[1], 46));
	TREE_STEP(child_write(worker, seq[2], &prompt[2], 46, 49, 2));
	TREE_STEP(it_require(prompt_publish(worker, seq[2], &prompt[2], 49) == 48));
	/* A fork in the middle of what is published, and one of no tokens. */
	TREE_STEP(seq[3] = fork_at(worker, seq[2], 22));
	TREE_STEP(child_write(worker, seq[3], &prompt[3], 22, 30, 3));
	TREE_STEP(worker_ok(worker, paged_batch_fork(worker->batch, 2, (paged_seq_id[]){ seq[3], seq[3] },
						     (uint32_t[]){ 0, 29 }, twice)));
	TREE_STEP(erase(worker, twice[0]));
	TREE_STEP(erase(worker, seq[0]));
	TREE_STEP(worker_ok(worker, seqs_truncate(worker->client, 1, &seq[1], (uint32_t[]){ 12 })));
	TREE_STEP(seq[4] = prompt_start(worker, &prompt[2], NULL));
	TREE_STEP(erase(worker, seq[2]));
	prompt_verify(worker, seq[1], &prompt[1], 12);
	prompt_verify(worker, seq[3], &prompt[3], 30);
	prompt_verify(worker, twice[1], &prompt[3], 29);
	prompt_verify(worker, seq[4], &prompt[2], 48);
#undef TREE_STEP
	return false;
}

static void
tree_worker(int from, int to, void *argument)
{
	struct worker_fixture worker;
	char stopped;

	(void)from;
	worker_open(&worker, NULL, 0);
	stopped = (char)tree_run(&worker, *(uint32_t *)argument);
	it_send(to, &stopped, 1);
	for (;;)
		pause();
}

IT_TEST(worker_is_killed_after_each_step_of_a_tree)
{
	struct worker_fixture observer;
	struct it_daemon daemon;
	struct it_worker child;
	char stopped = true;
	uint32_t step;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_observe(&observer);
	for (step = 0; stopped; step++) {
		it_fork(&child, tree_worker, &step);
		it_receive(child.from, &stopped, 1);
		worker_check_pool(&observer);
		it_kill(&child);
		prompt_wait_unused(&observer);
		worker_check_pool(&observer);
	}
	it_note("%u steps", step - 1);
	it_require(step > 16);
	worker_ok(&observer, paged_admin_evict(observer.client, "test", 0, &step));
	worker_wait_free(&observer, "test");
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

static void
tree_repeatedly(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)argument;
	worker_open(&worker, NULL, 0);
	it_send(to, "r", 1);
	for (;;) {
		struct paged_seq_entry *list;
		size_t n;

		it_require(!tree_run(&worker, UINT32_MAX));
		worker_ok(&worker, paged_admin_sequences(worker.client, "test", sizeof(*list), &list, &n));
		for (size_t i = 0; i < n; i++)
			erase(&worker, list[i].seq);
		paged_free(list);
	}
}

/* The signal finds the worker inside a request, or between two. */
IT_TEST(worker_is_killed_at_random_in_a_tree)
{
	struct worker_fixture observer;
	struct it_daemon daemon;
	struct it_worker child;
	uint64_t random = test_seed();
	char word;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_observe(&observer);
	for (int i = 0; i < 100; i++) {
		it_fork(&child, tree_repeatedly, NULL);
		it_receive(child.from, &word, 1);
		usleep((useconds_t)random_below(&random, 20000));
		it_require(waitpid(child.pid, NULL, WNOHANG) == 0, "the worker has failed");
		it_kill(&child);
		prompt_wait_unused(&observer);
		worker_check_pool(&observer);
	}
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* What was written before the fork belongs to both: neither can write it, and each goes on by itself. */
IT_TEST(neither_parent_nor_child_writes_shared_pages)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH), own[2] = { prompt, prompt };
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq[2];

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq[0] = worker_create_seq(&worker, LENGTH);
	prompt_write(&worker, seq[0], &prompt, 0, LENGTH);
	it_require(prompt_info(&worker, seq[0], NULL).writable_from == 0);
	seq[1] = fork_at(&worker, seq[0], LENGTH);
	for (uint32_t i = 0; i < 2; i++) {
		it_require(prompt_info(&worker, seq[i], NULL).writable_from == 32, "sequence %u", i);
		worker_ok(&worker, worker_plan(&worker, seq[i], 31, LENGTH, 0));
		worker_expect(&worker, worker_append(&worker, 0, 31, LENGTH, 1), PAGED_ERR_PERM);
		/* The page that is not full is each one's own. */
		child_write(&worker, seq[i], &own[i], 32, 40, i);
	}
	for (uint32_t i = 0; i < 2; i++)
		prompt_verify(&worker, seq[i], &own[i], 40);
	prompt_expect_pages(&worker, WORKER_PAGES - 12, 12, 0);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Speculative decoding: draft tokens are written behind shared pages, and dropped. */
IT_TEST(drafts_on_shared_pages_are_truncated)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, 40), draft;
	struct worker_fixture worker, other;
	struct it_daemon daemon;
	paged_seq_id seq, reader, child;
	uint32_t n_shared;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_open(&other, NULL, 0);
	reader = prompt_compute(&other, &prompt);
	seq = prompt_start(&worker, &prompt, &n_shared);
	it_require(n_shared == 40);
	for (uint32_t round = 0; round < 5; round++) {
		draft = prompt_diverge(&prompt, 40, round, 45);
		worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 45 }));
		prompt_write(&worker, seq, &draft, 40, 45);
		prompt_verify(&worker, seq, &draft, 45);
		worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 40 }));
	}
	/* Into the shared pages: 38 of them stay readable, and their page cannot be written. */
	worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 38 }));
	prompt_verify(&worker, seq, &prompt, 38);
	it_require(prompt_info(&worker, seq, NULL).writable_from == 40);
	worker_ok(&worker, worker_plan(&worker, seq, 38, 40, 0));
	worker_expect(&worker, worker_append(&worker, 0, 38, 40, 1), PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(worker.client), "it is writable from 40") != NULL &&
			   strstr(paged_client_error(worker.client), "fork") != NULL,
		   "%s", paged_client_error(worker.client));
	/* What the sentence says: a fork has a copy of the page. */
	child = fork_at(&worker, seq, 38);
	draft = prompt;
	child_write(&worker, child, &draft, 38, 44, 99);
	prompt_verify(&worker, child, &draft, 44);
	/* Whole pages are given back. */
	worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 16 }));
	draft = prompt;
	child_write(&worker, seq, &draft, 16, 44, 100);
	prompt_verify(&worker, seq, &draft, 44);
	prompt_verify(&other, reader, &prompt, 40);
	it_require(prompt_match(&other, &prompt) == 40);
	worker_check_pool(&worker);
	worker_close(&worker);
	prompt_verify(&other, reader, &prompt, 40);
	worker_close(&other);
	it_daemon_stop(&daemon);
}

#define N_BEAMS 8u
#define BEAM_STEPS 50u

/*
 * Beam search: in each step every beam is the continuation of one of the beams before.  One fork and one erase a step.
 * Each beam's K and V must be those of a sequence of its own with the same tokens.
 */
IT_TEST(beams_equal_independent_sequences)
{
	struct prompt beams[N_BEAMS], next[N_BEAMS], prompt = prompt_make(PROMPT_SEED, LENGTH);
	paged_seq_id ids[N_BEAMS], children[N_BEAMS], parents[N_BEAMS];
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint64_t random = test_seed();
	uint32_t lengths[N_BEAMS];

	it_daemon_start(&daemon,
			"pool test {\n" WORKER_POOL_SHAPE
			"\n" POOL_SIZES(WORKER_PAGE_SIZE, 512, 32, WORKER_MAX_LENGTH) "\n free-pages = 0\n}\n",
			NULL, NULL);
	worker_open(&worker, NULL, 0);
	parents[0] = prompt_compute(&worker, &prompt);
	for (uint32_t b = 0; b < N_BEAMS; b++) {
		parents[b] = parents[0];
		lengths[b] = LENGTH;
		beams[b] = prompt;
	}
	worker_ok(&worker, paged_batch_fork(worker.batch, N_BEAMS, parents, lengths, ids));
	erase(&worker, parents[0]);
	for (uint32_t step = 0; step < BEAM_STEPS; step++) {
		uint32_t length = LENGTH + step;

		for (uint32_t b = 0; b < N_BEAMS; b++) {
			uint32_t from = (uint32_t)random_below(&random, N_BEAMS);

			parents[b] = ids[from];
			lengths[b] = length;
			next[b] = prompt_diverge(&beams[from], length, random_bits(test_seed(), step * N_BEAMS + b),
						 length + 1);
		}
		worker_ok(&worker, paged_batch_fork(worker.batch, N_BEAMS, parents, lengths, children));
		worker_ok(&worker, paged_seq_erase(worker.client, N_BEAMS, ids));
		for (uint32_t b = 0; b < N_BEAMS; b++) {
			ids[b] = children[b];
			beams[b] = next[b];
			lengths[b] = length + 1;
		}
		worker_ok(&worker, seqs_reserve(worker.client, N_BEAMS, ids, lengths));
		for (uint32_t b = 0; b < N_BEAMS; b++)
			prompt_write(&worker, ids[b], &beams[b], length, length + 1);
		for (uint32_t b = 0; b < N_BEAMS && step % 7 == 0; b++)
			prompt_verify(&worker, ids[b], &beams[b], length + 1);
	}
	for (uint32_t b = 0; b < N_BEAMS; b++) {
		float beam[WORKER_LAYERS * WORKER_OUT], alone[WORKER_LAYERS * WORKER_OUT];
		paged_seq_id seq = worker_create_seq(&worker, LENGTH + BEAM_STEPS);

		prompt_verify(&worker, ids[b], &beams[b], LENGTH + BEAM_STEPS);
		prompt_write(&worker, seq, &beams[b], 0, LENGTH + BEAM_STEPS);
		worker_read(&worker, ids[b], LENGTH + BEAM_STEPS, beam);
		worker_read(&worker, seq, LENGTH + BEAM_STEPS, alone);
		it_require(memcmp(beam, alone, sizeof(beam)) == 0, "beam %u", b);
	}
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Starts and forks, of two sequences each, until one fails; n is the number of those that did not. */
static enum paged_status
start_and_fork(struct worker_fixture *worker, const struct prompt *prompt, paged_seq_id ids[2], uint32_t *n)
{
	struct paged_prefix prefix = prompt_prefix(prompt, prompt->n);
	const struct paged_start start = { .prefix = &prefix, .reserve = prompt->n };
	uint32_t n_tokens[2] = { LENGTH, LENGTH - 10 }, n_shared[2];
	enum paged_status status = PAGED_OK;
	paged_seq_id parents[2];

	for (*n = 0; status == PAGED_OK && *n < 4; ++*n) {
		memcpy(parents, ids, sizeof(parents));
		ids[0] = ids[1] = 0;
		if (*n % 2 == 0)
			status =
				paged_seq_start(worker->pool, 2, (struct paged_start[]){ start, start }, ids, n_shared);
		else
			status = paged_batch_fork(worker->batch, 2, parents, n_tokens, ids);
	}
	return status;
}

/*
 * The daemon kills itself in each update of these requests in turn.  Their callers get PAGED_ERR_GONE, and so does a
 * process that reads what they share.
 */
IT_TEST(daemon_is_killed_inside_a_start_or_fork)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH), other = prompt_make(PROMPT_SEED + 1, LENGTH);
	enum paged_status status = PAGED_ERR_GONE;
	uint32_t n = 0, n_kills = 0;

	/* The first update belongs to the sequence that publishes. */
	for (uint32_t update = 2; status == PAGED_ERR_GONE; update++) {
		struct worker_fixture worker, reader;
		struct it_daemon daemon;
		struct paged_prefix prefix = prompt_prefix(&prompt, LENGTH), missing = prompt_prefix(&other, LENGTH);
		paged_seq_id published, ids[2];
		uint32_t n_matched;
		char fault[64];

		snprintf(fault, sizeof(fault), "PAGED_FAULT=page-table-update:%u", update);
		it_daemon_start(&daemon, PROMPT_POOL(""), "tests/daemon/pagedd-faults",
				(const char *[]){ fault, NULL });
		worker_open(&reader, NULL, 0);
		worker_open(&worker, NULL, 0);
		published = prompt_compute(&reader, &prompt);
		worker_ok(&reader, worker_plan(&reader, published, LENGTH - 1, LENGTH, PAGED_ROW_NO_APPEND));
		status = start_and_fork(&worker, &prompt, ids, &n);
		it_daemon_kill(&daemon);
		if (status != PAGED_OK) {
			n_kills++;
			worker_expect(&worker, status, PAGED_ERR_GONE);
			it_require(ids[0] == 0 && ids[1] == 0);
			worker_expect(&worker, paged_seq_start(worker.pool, 0, NULL, NULL, NULL), PAGED_ERR_GONE);
			worker_expect(&reader, paged_batch_validate(reader.batch), PAGED_ERR_GONE);
			worker_expect(&reader, paged_prefix_wait(reader.pool, &missing, LENGTH, IT_LIMIT_MS),
				      PAGED_ERR_GONE);
			worker_expect(&reader, paged_prefix_match(reader.pool, &prefix, &n_matched), PAGED_ERR_GONE);
			worker_expect(&reader, paged_seq_erase(reader.client, 1, &published), PAGED_ERR_GONE);
		}
		worker_close(&worker);
		worker_close(&reader);
	}
	it_note("%u kills", n_kills);
	it_require(status == PAGED_OK && n == 4 && n_kills == 12, "%u kills", n_kills);
}

IT_MAIN
