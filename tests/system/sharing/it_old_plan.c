/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends by a plan that was made before its sequence was published, forked, given away or changed, by this process or
 * by another member of the session: they are refused, and write nothing.
 */
#include "config.h"

#include <signal.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define N_TOKENS 12u /* 3 pages; the plan writes the second one */
#define FROM WORKER_PAGE_SIZE
#define TO (2 * WORKER_PAGE_SIZE)
#define SEED 1u
#define OTHER_SEED 2u /* of what must not be written */

struct old_plan {
	struct it_daemon daemon;
	struct worker_fixture worker, other; /* members of one session */
	paged_seq_id seq;
};

static const uint32_t n_tokens = N_TOKENS;

static void
publish(struct worker_fixture *worker, paged_seq_id seq, uint32_t n)
{
	uint32_t tokens[N_TOKENS];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = n };

	for (uint32_t i = 0; i < N_TOKENS; i++)
		tokens[i] = PAGED_SEQ_GENERATION(seq) * 1000 + i;
	worker_ok(worker, paged_seq_publish(worker->pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
}

static void
plan_open(struct old_plan *plan)
{
	struct paged_client_params params = worker_params("member");

	it_daemon_start(&plan->daemon, worker_pool_config, NULL, NULL);
	worker_open(&plan->worker, NULL, 0);
	params.join_token = paged_client_join_token(plan->worker.client);
	worker_open(&plan->other, &params, 0);
	plan->seq = worker_create_seq(&plan->worker, N_TOKENS);
	worker_write(&plan->worker, plan->seq, 0, N_TOKENS, SEED);
}

static void
plan_close(struct old_plan *plan)
{
	worker_close(&plan->other);
	worker_close(&plan->worker);
	it_daemon_stop(&plan->daemon);
}

static enum paged_status
append_at_positions(struct worker_fixture *worker)
{
	static const float data[WORKER_PAGE_SIZE * WORKER_KV_HEADS * WORKER_DIM];
	struct paged_tensor k = worker_tensor(worker, WORKER_K, data, WORKER_PAGE_SIZE, WORKER_KV_HEADS);
	struct paged_tensor v = worker_tensor(worker, WORKER_V, data, WORKER_PAGE_SIZE, WORKER_KV_HEADS);
	uint32_t positions[WORKER_PAGE_SIZE];
	struct paged_append_params params = { .struct_size = sizeof(params), .positions = positions };

	for (uint32_t i = 0; i < WORKER_PAGE_SIZE; i++)
		positions[i] = TO - 1 - i;
	return paged_append(worker->batch, 0, &k, &v, &params);
}

/* Appends by a plan made before `event`. */
static void
expect_refused(struct old_plan *plan, void (*event)(struct old_plan *), enum paged_status wanted)
{
	float before[WORKER_LAYERS * WORKER_OUT], after[WORKER_LAYERS * WORKER_OUT];
	struct worker_fixture *worker = &plan->worker;

	worker_read(&plan->other, plan->seq, TO, before);
	worker_ok(worker, worker_plan(worker, plan->seq, FROM, TO, 0));
	event(plan);
	worker_expect(worker, worker_append(worker, 0, FROM, TO, OTHER_SEED), wanted);
	it_note("%s", paged_client_error(worker->client));
	if (!worker->device.used)
		worker_expect(worker, append_at_positions(worker), wanted);
	worker_read(&plan->other, plan->seq, TO, after);
	it_require(memcmp(before, after, sizeof(before)) == 0, "a refused append has written");
}

static void
run_refused(void (*event)(struct old_plan *), enum paged_status wanted)
{
	struct old_plan plan;

	plan_open(&plan);
	expect_refused(&plan, event, wanted);
	plan_close(&plan);
}

/* Published */

static void
published(struct old_plan *plan)
{
	publish(&plan->worker, plan->seq, N_TOKENS);
	worker_ok(&plan->worker, paged_client_ping(plan->worker.client));
}

static void
published_by_the_other_member(struct old_plan *plan)
{
	publish(&plan->other, plan->seq, N_TOKENS);
	worker_ok(&plan->other, paged_client_ping(plan->other.client));
}

IT_TEST(published_tokens_are_not_written)
{
	run_refused(published, PAGED_ERR_PERM);
	run_refused(published_by_the_other_member, PAGED_ERR_PERM);
}

/* The daemon has not seen the publish. */
static void
publishing(struct old_plan *plan)
{
	kill(plan->daemon.pid, SIGSTOP);
	publish(&plan->worker, plan->seq, N_TOKENS);
}

IT_TEST(tokens_that_are_being_published_are_not_written)
{
	struct old_plan plan;
	struct worker_fixture *worker = &plan.worker;
	paged_seq_id unsent;

	plan_open(&plan);
	unsent = worker_create_seq(worker, N_TOKENS);
	expect_refused(&plan, publishing, PAGED_ERR_PERM);
	/* Nor by a plan that is made while the publish has no answer. */
	worker_ok(worker, worker_plan(worker, plan.seq, FROM, TO, 0));
	worker_expect(worker, worker_append(worker, 0, FROM, TO, OTHER_SEED), PAGED_ERR_PERM);
	/* Four publishes are sent; tokens of the fifth, which is not, may be written. */
	for (unsigned int i = 0; i < 4; i++)
		publish(worker, plan.seq, N_TOKENS);
	publish(worker, unsent, N_TOKENS);
	worker_write(worker, unsent, FROM, TO, OTHER_SEED);
	kill(plan.daemon.pid, SIGCONT);
	worker_ok(worker, paged_client_ping(worker->client));
	publish(worker, unsent, N_TOKENS);
	worker_expect(worker, worker_append(worker, 0, FROM, TO, OTHER_SEED), PAGED_ERR_PERM);
	plan_close(&plan);
}

/* As a program would meet it: each append follows its publish at once. */
IT_TEST(an_append_after_a_publish_is_always_refused)
{
	float before[WORKER_LAYERS * WORKER_OUT], after[WORKER_LAYERS * WORKER_OUT];
	struct old_plan plan;
	struct worker_fixture *worker = &plan.worker;

	plan_open(&plan);
	for (unsigned int i = 0; i < 100; i++) {
		paged_seq_id seq = worker_create_seq(worker, N_TOKENS);

		worker_write(worker, seq, 0, N_TOKENS, SEED);
		worker_read(&plan.other, seq, TO, before);
		worker_ok(worker, worker_plan(worker, seq, FROM, TO, 0));
		publish(worker, seq, N_TOKENS);
		worker_expect(worker, worker_append(worker, 0, FROM, TO, OTHER_SEED), PAGED_ERR_PERM);
		worker_read(&plan.other, seq, TO, after);
		it_require(memcmp(before, after, sizeof(before)) == 0, "append %u has written", i);
		worker_ok(worker, paged_batch_validate(worker->batch));
		worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
	}
	plan_close(&plan);
}

/* Publishing what a plan has written is no fault of the plan. */
IT_TEST(publishing_what_a_plan_wrote_is_valid)
{
	struct old_plan plan;
	struct worker_fixture *worker = &plan.worker;

	plan_open(&plan);
	worker_ok(worker, worker_plan(worker, plan.seq, FROM, N_TOKENS, 0));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++)
		worker_ok(worker, worker_append(worker, layer, FROM, N_TOKENS, SEED));
	worker_ok(worker, paged_batch_finish(worker->batch));
	publish(worker, plan.seq, N_TOKENS);
	worker_ok(worker, paged_batch_validate(worker->batch));
	worker_ok(worker, paged_client_ping(worker->client));
	worker_ok(worker, paged_batch_validate(worker->batch));
	/* Tokens after the published ones are written as before. */
	worker_ok(worker, seqs_reserve(worker->client, 1, &plan.seq, (uint32_t[]){ N_TOKENS + 4 }));
	worker_ok(worker, worker_plan(worker, plan.seq, N_TOKENS, N_TOKENS + 1, 0));
	publish(worker, plan.seq, N_TOKENS);
	worker_ok(worker, worker_append(worker, 0, N_TOKENS, N_TOKENS + 1, SEED));
	plan_close(&plan);
}

/* Forked, given away */

static void
fork_by(struct worker_fixture *worker, paged_seq_id seq)
{
	paged_seq_id child;

	worker_ok(worker, paged_batch_fork(worker->batch, 1, &seq, &n_tokens, &child));
}

static void
forked(struct old_plan *plan)
{
	fork_by(&plan->worker, plan->seq);
}

static void
forked_by_the_other_member(struct old_plan *plan)
{
	fork_by(&plan->other, plan->seq);
}

static void
given_by_the_other_member(struct old_plan *plan)
{
	struct paged_ticket ticket;

	worker_ok(&plan->other, paged_seq_give(plan->other.pool, 1, &plan->seq, &n_tokens, NULL, &ticket));
}

IT_TEST(shared_and_given_tokens_are_not_written)
{
	run_refused(forked, PAGED_ERR_PERM);
	run_refused(forked_by_the_other_member, PAGED_ERR_PERM);
	run_refused(given_by_the_other_member, PAGED_ERR_PERM);
}

/* Changed: the plan's pages may be another sequence's. */

static void
truncated_by_the_other_member(struct old_plan *plan)
{
	worker_ok(&plan->other, seqs_truncate(plan->other.client, 1, &plan->seq, (uint32_t[]){ TO }));
}

static void
cut_by_the_other_member(struct old_plan *plan)
{
	worker_ok(&plan->other, seqs_truncate(plan->other.client, 1, &plan->seq, (uint32_t[]){ N_TOKENS - 1 }));
}

static void
given_and_returned(struct old_plan *plan)
{
	struct paged_ticket ticket;
	paged_seq_id seq;
	uint32_t length;
	size_t n;

	worker_ok(&plan->other, paged_seq_give(plan->other.pool, 1, &plan->seq, &n_tokens, NULL, &ticket));
	worker_ok(&plan->other, paged_seq_adopt(plan->other.pool, &ticket, 1, &seq, &length, &n));
	it_require(n == 1 && seq == plan->seq);
}

IT_TEST(changed_sequences_are_not_written)
{
	run_refused(truncated_by_the_other_member, PAGED_ERR_STALE);
	run_refused(cut_by_the_other_member, PAGED_ERR_STALE);
	run_refused(given_and_returned, PAGED_ERR_STALE);
}

IT_TEST(trimmed_and_erased_sequences_are_not_written)
{
	struct old_plan plan;
	struct worker_fixture *worker = &plan.worker;
	float before[WORKER_LAYERS * WORKER_OUT], after[WORKER_LAYERS * WORKER_OUT];
	paged_seq_id next;

	plan_open(&plan);
	worker_ok(worker, worker_plan(worker, plan.seq, FROM, TO, 0));
	worker_ok(&plan.other, seqs_trim(plan.other.client, 1, &plan.seq, (uint32_t[]){ TO }));
	worker_expect(worker, worker_append(worker, 0, FROM, TO, OTHER_SEED), PAGED_ERR_STALE);
	worker_ok(worker, worker_plan(worker, plan.seq, TO, N_TOKENS, 0));
	worker_ok(&plan.other, paged_seq_erase(plan.other.client, 1, &plan.seq));
	next = worker_create_seq(&plan.other, N_TOKENS);
	worker_write(&plan.other, next, 0, N_TOKENS, SEED);
	worker_read(&plan.other, next, N_TOKENS, before);
	worker_expect(worker, worker_append(worker, 0, TO, N_TOKENS, OTHER_SEED), PAGED_ERR_STALE);
	worker_read(&plan.other, next, N_TOKENS, after);
	it_require(memcmp(before, after, sizeof(before)) == 0, "the slot's next sequence was written");
	worker_expect(worker, paged_batch_validate(worker->batch), PAGED_ERR_STALE);
	plan_close(&plan);
}

/*
 * While a publish waits in a batch's queue, another member cuts the last page and writes it again: the page must not be
 * published with the tokens of the publish.  In host memory nothing waits: the cut page is published, and not written.
 */
IT_TEST(a_page_that_is_cut_is_not_published)
{
	uint32_t n_matched, tokens[N_TOKENS];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = N_TOKENS };
	struct old_plan plan;
	struct worker_fixture *worker = &plan.worker, *other = &plan.other;
	struct paged_publish publish_all = { .seq = 0, .prefix = &prefix };
	enum paged_status written;

	plan_open(&plan);
	publish_all.seq = plan.seq;
	for (uint32_t i = 0; i < N_TOKENS; i++)
		tokens[i] = i;
	worker_ok(worker, paged_batch_publish(worker->batch, 1, &publish_all));
	worker_ok(worker, paged_client_ping(worker->client));
	worker_ok(other, seqs_truncate(other->client, 1, &plan.seq, (uint32_t[]){ N_TOKENS - 2 }));
	worker_ok(other, worker_plan(other, plan.seq, N_TOKENS - 2, N_TOKENS, 0));
	written = worker_append(other, 0, N_TOKENS - 2, N_TOKENS, OTHER_SEED);
	it_require(written == PAGED_OK || written == PAGED_ERR_PERM, "%s", paged_client_error(other->client));
	it_require(worker->device.used == (written == PAGED_OK), "the publish has not waited");
	worker_ok(other, paged_batch_finish(other->batch));
	worker_ok(worker, paged_batch_finish(worker->batch));
	worker_ok(worker, paged_client_ping(worker->client));
	worker_ok(worker, paged_prefix_match(worker->pool, &prefix, &n_matched));
	it_require(n_matched == (written == PAGED_OK ? 0 : N_TOKENS), "%u tokens are published", n_matched);
	plan_close(&plan);
}

IT_MAIN
