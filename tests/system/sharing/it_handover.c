/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hand-over of sequences between processes: each side is killed or stopped at each step, in both orders.  Whatever
 * happens, the sequence is somebody's with the same bits, or its pages are free in the end.
 */
#include "config.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"

#define LENGTH 30u /* tokens; the last page is not full */
#define SEED 20261124u
#define BITS (WORKER_LAYERS * WORKER_OUT)
/* Time-outs of tickets whose expiry the test waits for, and of others. */
#define EXPIRY_MS 700u
#define LONG_MS 600000u
/* How long a worker waits for a daemon that is stopped. */
#define IMPATIENT_MS 100u

static const char unknown[] = "the ticket is unknown, used or expired";

/* What the test tells a worker to do; the worker answers each. */
enum word { GIVE = 1, GIVE_UNWATCHED, CANCEL, ADOPT, ADOPT_UNWATCHED, READ, EXTEND, VALIDATE, ERASE, END };

struct order {
	enum word word;
	uint32_t timeout_ms; /* of a give */
	uint32_t limit_ms;   /* how long the worker waits for the daemon */
	uint32_t flags, session, uid;
	paged_seq_id seq;
	struct paged_ticket ticket;
};

struct answer {
	enum paged_status status;
	uint32_t session;
	paged_seq_id seq;
	uint32_t length;
	struct paged_ticket ticket;
	char text[128];
	float bits[BITS];
};

static void
obey(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	const struct paged_give_params params = { .struct_size = sizeof(params),
						  .timeout_ms = order->timeout_ms,
						  .flags = order->flags,
						  .session = order->session,
						  .uid = order->uid };
	uint32_t length = LENGTH;
	size_t n = 0;

	worker_set_timeout(worker, order->limit_ms);
	*answer = (struct answer){ .session = paged_client_session(worker->client), .seq = order->seq };
	switch (order->word) {
	case GIVE:
	case GIVE_UNWATCHED:
		answer->status = paged_seq_give(worker->pool, 1, &order->seq, &length, &params, &answer->ticket);
		break;
	case CANCEL:
		answer->status = paged_ticket_cancel(worker->client, &order->ticket);
		break;
	case ADOPT:
	case ADOPT_UNWATCHED:
		answer->status = paged_seq_adopt(worker->pool, &order->ticket, 1, &answer->seq, &answer->length, &n);
		it_require(answer->status != PAGED_OK || n == 1);
		break;
	case READ:
		worker_read(worker, order->seq, LENGTH, answer->bits);
		break;
	case EXTEND:
		answer->status = seqs_reserve(worker->client, 1, &order->seq, (uint32_t[]){ LENGTH + 5 });
		if (answer->status == PAGED_OK)
			worker_write(worker, order->seq, LENGTH, LENGTH + 5, SEED);
		break;
	case VALIDATE:
		answer->status = paged_batch_validate(worker->batch);
		break;
	case ERASE:
		answer->status = paged_seq_erase(worker->client, 1, &order->seq);
		break;
	case END:
		break;
	}
	if (answer->status != PAGED_OK)
		snprintf(answer->text, sizeof(answer->text), "%s", paged_client_error(worker->client));
}

/* The giver is a worker that has created and written a sequence. */
static void
serve(int from, int to, bool writes)
{
	struct worker_fixture worker;
	struct answer answer = { 0 };
	struct order order;

	worker_open(&worker, NULL, 0);
	if (writes) {
		answer.seq = worker_create_seq(&worker, LENGTH);
		worker_write(&worker, answer.seq, 0, LENGTH, SEED);
		worker_read(&worker, answer.seq, LENGTH, answer.bits);
	}
	answer.session = paged_client_session(worker.client);
	it_send(to, &answer, sizeof(answer));
	do {
		it_receive(from, &order, sizeof(order));
		obey(&worker, &order, &answer);
		it_send(to, &answer, sizeof(answer));
	} while (order.word != END);
	worker_close(&worker);
}

static void
giver_run(int from, int to, void *argument)
{
	(void)argument;
	serve(from, to, true);
}

static void
taker_run(int from, int to, void *argument)
{
	(void)argument;
	serve(from, to, false);
}

#define NOBODY_UID 65534u

static void
nobody_run(int from, int to, void *argument)
{
	(void)argument;
	it_require(setgid(NOBODY_UID) == 0 && setuid(NOBODY_UID) == 0, "%m");
	serve(from, to, false);
}

/* A daemon, a giver with a written sequence, a taker, and an observer. */
static struct {
	struct it_daemon daemon;
	struct it_worker giver, taker;
	struct worker_fixture observer;
	struct order order;   /* of the next call of ask() */
	struct answer answer; /* of the last one */
	struct answer given;  /* the giver's first: the sequence and its bits */
	uint32_t taker_session;
} fixture;

static const char *
configuration(void)
{
	return "pool test {\n" WORKER_POOL_SHAPE
	       "\n" POOL_SIZES(WORKER_PAGE_SIZE, 1024, 256, WORKER_MAX_LENGTH) "\n}\n";
}

static void
setup_with(const char *config)
{
	it_daemon_start(&fixture.daemon, config, NULL, NULL);
	it_fork(&fixture.giver, giver_run, NULL);
	it_fork(&fixture.taker, taker_run, NULL);
	it_receive(fixture.giver.from, &fixture.given, sizeof(fixture.given));
	it_receive(fixture.taker.from, &fixture.answer, sizeof(fixture.answer));
	fixture.taker_session = fixture.answer.session;
	fixture.order = (struct order){ .seq = fixture.given.seq, .timeout_ms = LONG_MS, .limit_ms = IT_LIMIT_MS };
	worker_observe(&fixture.observer);
}

static void
setup(void)
{
	setup_with(configuration());
}

static void
start_asking(const struct it_worker *worker, enum word word)
{
	fixture.order.word = word;
	it_send(worker->to, &fixture.order, sizeof(fixture.order));
}

static enum paged_status
finish_asking(const struct it_worker *worker)
{
	it_receive(worker->from, &fixture.answer, sizeof(fixture.answer));
	if (fixture.answer.status == PAGED_OK && fixture.order.word == GIVE)
		fixture.order.ticket = fixture.answer.ticket;
	return fixture.answer.status;
}

static enum paged_status
ask(const struct it_worker *worker, enum word word)
{
	start_asking(worker, word);
	return finish_asking(worker);
}

/* The daemon is stopped, and goes on after the worker has waited long enough. */
static void
ask_too_long(const struct it_worker *worker, enum word word)
{
	kill(fixture.daemon.pid, SIGSTOP);
	fixture.order.limit_ms = IMPATIENT_MS;
	it_require(ask(worker, word) == PAGED_ERR_TIMEOUT, "%s", fixture.answer.text);
	fixture.order.limit_ms = IT_LIMIT_MS;
}

#define ask_ok(worker, word)                                                                                        \
	do {                                                                                                        \
		enum paged_status ask_status_ = ask(worker, word);                                                  \
		it_require(ask_status_ == PAGED_OK, "%s: %s", paged_status_name(ask_status_), fixture.answer.text); \
	} while (0)

static void
expect_bits(const struct it_worker *worker)
{
	ask_ok(worker, READ);
	it_require(memcmp(fixture.answer.bits, fixture.given.bits, sizeof(fixture.given.bits)) == 0, "other bits");
}

static void
end(struct it_worker *worker)
{
	ask_ok(worker, END);
	it_join(worker);
}

/* All sessions have ended: nothing is left of them. */
static void
teardown(void)
{
	worker_wait_free(&fixture.observer, "test");
	worker_check_pool(&fixture.observer);
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

IT_TEST(the_taker_goes_on_where_the_giver_stopped)
{
	setup();
	ask_ok(&fixture.giver, READ);
	ask_ok(&fixture.giver, GIVE);
	ask_ok(&fixture.giver, VALIDATE);
	ask_ok(&fixture.taker, ADOPT);
	it_require(fixture.answer.seq == fixture.given.seq && fixture.answer.length == LENGTH);
	it_require(ask(&fixture.giver, VALIDATE) == PAGED_ERR_STALE, "a plan of the giver is not stale");
	expect_bits(&fixture.taker);
	ask_ok(&fixture.taker, EXTEND);
	expect_bits(&fixture.taker);
	it_require(ask(&fixture.giver, EXTEND) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	expect_bits(&fixture.giver); /* it may read on */
	end(&fixture.giver);
	expect_bits(&fixture.taker);
	ask_ok(&fixture.taker, ERASE);
	end(&fixture.taker);
	teardown();
}

IT_TEST(a_given_sequence_cannot_be_changed_until_it_returns)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	expect_bits(&fixture.giver);
	expect_bits(&fixture.taker);
	it_require(ask(&fixture.giver, EXTEND) == PAGED_ERR_PERM);
	it_require(strstr(fixture.answer.text, "was given away") != NULL, "%s", fixture.answer.text);
	it_require(ask(&fixture.giver, ERASE) == PAGED_ERR_PERM);
	ask_ok(&fixture.giver, CANCEL);
	ask_ok(&fixture.giver, EXTEND);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT);
	it_require(strcmp(fixture.answer.text, unknown) == 0, "%s", fixture.answer.text);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
}

IT_TEST(tickets_used_twice_expired_and_stolen)
{
	setup();
	/* Used twice. */
	ask_ok(&fixture.giver, GIVE);
	ask_ok(&fixture.taker, ADOPT);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT && strcmp(fixture.answer.text, unknown) == 0);
	it_require(ask(&fixture.giver, ADOPT) == PAGED_ERR_NOENT && strcmp(fixture.answer.text, unknown) == 0);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_NOENT);
	/* Stolen: for another session, and for another user. */
	fixture.order.flags = PAGED_GIVE_SESSION;
	fixture.order.session = fixture.given.session;
	ask_ok(&fixture.taker, GIVE);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	ask_ok(&fixture.giver, ADOPT);
	fixture.order.flags = PAGED_GIVE_UID;
	fixture.order.uid = getuid() + 1;
	ask_ok(&fixture.giver, GIVE);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	ask_ok(&fixture.giver, CANCEL);
	fixture.order.uid = getuid();
	ask_ok(&fixture.giver, GIVE);
	ask_ok(&fixture.taker, ADOPT);
	/* Expired: it returns to its giver. */
	fixture.order.flags = 0;
	fixture.order.timeout_ms = 1;
	ask_ok(&fixture.taker, GIVE);
	usleep(100000);
	it_require(ask(&fixture.giver, ADOPT) == PAGED_ERR_NOENT && strcmp(fixture.answer.text, unknown) == 0);
	ask_ok(&fixture.taker, EXTEND);
	/* For a session that does not exist. */
	fixture.order.flags = PAGED_GIVE_SESSION;
	fixture.order.session = 4711;
	it_require(ask(&fixture.taker, GIVE) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
}

/* A prefill worker dies, or hangs, after it has announced its result. */
IT_TEST(the_giver_dies_after_the_give)
{
	for (int stopped = 0; stopped < 2; stopped++) {
		setup();
		ask_ok(&fixture.giver, GIVE);
		if (stopped)
			kill(fixture.giver.pid, SIGSTOP);
		else
			it_kill(&fixture.giver);
		ask_ok(&fixture.taker, ADOPT);
		expect_bits(&fixture.taker);
		ask_ok(&fixture.taker, EXTEND);
		if (stopped)
			it_kill(&fixture.giver);
		expect_bits(&fixture.taker);
		end(&fixture.taker);
		teardown();
	}
}

/* The giver closes in order, and its successor adopts. */
IT_TEST(a_planned_restart)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	end(&fixture.giver);
	worker_check_pool(&fixture.observer);
	ask_ok(&fixture.taker, ADOPT);
	expect_bits(&fixture.taker);
	ask_ok(&fixture.taker, EXTEND);
	end(&fixture.taker);
	teardown();
}

IT_TEST(the_giver_dies_and_nobody_adopts)
{
	setup();
	fixture.order.timeout_ms = EXPIRY_MS;
	ask_ok(&fixture.giver, GIVE);
	it_kill(&fixture.giver);
	usleep((EXPIRY_MS + 100) * 1000);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT);
	end(&fixture.taker);
	teardown();
}

IT_TEST(the_taker_dies_before_it_adopts)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	it_kill(&fixture.taker);
	ask_ok(&fixture.giver, CANCEL);
	ask_ok(&fixture.giver, EXTEND);
	expect_bits(&fixture.giver);
	end(&fixture.giver);
	teardown();
}

IT_TEST(the_taker_dies_after_it_has_adopted)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	ask_ok(&fixture.taker, ADOPT);
	it_kill(&fixture.taker);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_NOENT);
	end(&fixture.giver);
	teardown();
}

/* The requests are in the daemon's socket when their senders die: it reads them before or after the deaths. */
static void
die_while_asking(bool giver_asks, bool giver_dies_first)
{
	struct it_worker *first = giver_dies_first ? &fixture.giver : &fixture.taker;
	struct it_worker *second = giver_dies_first ? &fixture.taker : &fixture.giver;

	setup();
	fixture.order.timeout_ms = EXPIRY_MS;
	if (!giver_asks)
		ask_ok(&fixture.giver, GIVE);
	kill(fixture.daemon.pid, SIGSTOP);
	start_asking(giver_asks ? &fixture.giver : &fixture.taker, giver_asks ? GIVE_UNWATCHED : ADOPT_UNWATCHED);
	usleep(50000);
	it_kill(first);
	kill(fixture.daemon.pid, SIGCONT);
	worker_check_pool(&fixture.observer);
	it_kill(second);
	teardown();
}

IT_TEST(deaths_while_a_request_is_under_way)
{
	for (int order = 0; order < 4; order++)
		die_while_asking(order & 1, order & 2);
}

/* One dies after each step of the other. */
IT_TEST(deaths_in_both_orders)
{
	for (int order = 0; order < 2; order++) {
		setup();
		fixture.order.timeout_ms = EXPIRY_MS;
		ask_ok(&fixture.giver, GIVE);
		if (order == 0) {
			it_kill(&fixture.giver);
			worker_check_pool(&fixture.observer);
			it_kill(&fixture.taker);
		} else {
			it_kill(&fixture.taker);
			worker_check_pool(&fixture.observer);
			it_kill(&fixture.giver);
		}
		teardown();
	}
	for (int order = 0; order < 2; order++) {
		setup();
		ask_ok(&fixture.giver, GIVE);
		ask_ok(&fixture.taker, ADOPT);
		it_kill(order == 0 ? &fixture.giver : &fixture.taker);
		worker_check_pool(&fixture.observer);
		it_kill(order == 0 ? &fixture.taker : &fixture.giver);
		teardown();
	}
}

static bool
is_adopted(void *argument)
{
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };

	(void)argument;
	worker_ok(&fixture.observer, paged_pool_get_totals(fixture.observer.pool, &totals));
	return totals.n_adopted == 1;
}

/* An adopt whose reply comes too late is kept. */
IT_TEST(a_late_reply_to_adopt_is_kept)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	ask_too_long(&fixture.taker, ADOPT);
	kill(fixture.daemon.pid, SIGCONT);
	it_require(it_wait(is_adopted, NULL));
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	ask_ok(&fixture.taker, EXTEND);
	expect_bits(&fixture.taker);
	end(&fixture.giver);
	ask_ok(&fixture.taker, ERASE);
	end(&fixture.taker);
	teardown();
}

static bool
giver_extends(void *argument)
{
	(void)argument;
	return ask(&fixture.giver, EXTEND) == PAGED_OK;
}

/* A give whose reply comes too late: nobody has the ticket, and it expires. */
IT_TEST(a_late_reply_to_give_expires)
{
	setup();
	fixture.order.timeout_ms = EXPIRY_MS;
	ask_too_long(&fixture.giver, GIVE);
	kill(fixture.daemon.pid, SIGCONT);
	it_require(it_wait(giver_extends, NULL), "%s", fixture.answer.text);
	expect_bits(&fixture.giver);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
	/* Until then, it is frozen. */
	setup();
	ask_too_long(&fixture.giver, GIVE);
	kill(fixture.daemon.pid, SIGCONT);
	it_require(ask(&fixture.giver, EXTEND) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	end(&fixture.giver);
	end(&fixture.taker);
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

/* Nobody receives the reply, and then the process that waited for it dies, too. */
IT_TEST(deaths_after_late_replies)
{
	for (int adopts = 0; adopts < 2; adopts++) {
		struct it_worker *late = adopts ? &fixture.taker : &fixture.giver;
		struct it_worker *other = adopts ? &fixture.giver : &fixture.taker;

		setup();
		fixture.order.timeout_ms = EXPIRY_MS;
		if (adopts)
			ask_ok(&fixture.giver, GIVE);
		ask_too_long(late, adopts ? ADOPT : GIVE);
		it_kill(late);
		kill(fixture.daemon.pid, SIGCONT);
		end(other);
		teardown();
	}
}

/* A cancel whose reply comes too late has returned the sequence, and may be repeated. */
IT_TEST(a_late_reply_to_cancel)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	ask_too_long(&fixture.giver, CANCEL);
	kill(fixture.daemon.pid, SIGCONT);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	ask_ok(&fixture.giver, EXTEND);
	expect_bits(&fixture.giver);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
}

/* Two requests for one ticket reach the daemon at a time: one of them gets the sequence, and the other knows. */
static void
race_for_a_ticket(enum word of_giver)
{
	enum paged_status giver, taker;

	ask_ok(&fixture.giver, GIVE);
	kill(fixture.daemon.pid, SIGSTOP);
	start_asking(&fixture.giver, of_giver);
	start_asking(&fixture.taker, ADOPT);
	usleep(20000);
	kill(fixture.daemon.pid, SIGCONT);
	giver = finish_asking(&fixture.giver);
	taker = finish_asking(&fixture.taker);
	it_require((giver == PAGED_OK && taker == PAGED_ERR_NOENT) || (giver == PAGED_ERR_NOENT && taker == PAGED_OK),
		   "%s, %s", paged_status_name(giver), paged_status_name(taker));
	if (taker == PAGED_OK) { /* back to the giver */
		ask_ok(&fixture.taker, EXTEND);
		ask_ok(&fixture.taker, GIVE);
		ask_ok(&fixture.giver, ADOPT);
	}
	ask_ok(&fixture.giver, EXTEND);
	expect_bits(&fixture.giver);
}

IT_TEST(two_requests_for_one_ticket)
{
	setup();
	for (int i = 0; i < 10; i++)
		race_for_a_ticket(i % 2 == 0 ? CANCEL : ADOPT);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
}

/* An administrator ends the giver's session: its process lives, and the ticket stays. */
IT_TEST(the_giver_is_kicked)
{
	char session[16];
	int exit_code;

	setup();
	ask_ok(&fixture.giver, GIVE);
	snprintf(session, sizeof(session), "%u", fixture.given.session);
	it_pagedctl(&exit_code, "kick", session, NULL);
	it_require(exit_code == 0);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_GONE, "%s", fixture.answer.text);
	ask_ok(&fixture.taker, ADOPT);
	expect_bits(&fixture.taker);
	ask_ok(&fixture.taker, EXTEND);
	it_kill(&fixture.giver);
	expect_bits(&fixture.taker);
	end(&fixture.taker);
	teardown();
}

/* The ticket of a session that has ended would be valid for weeks; an administrator ends it. */
IT_TEST(an_ended_giver_is_kicked)
{
	char session[16];
	int exit_code;

	setup();
	ask_ok(&fixture.giver, GIVE);
	end(&fixture.giver);
	snprintf(session, sizeof(session), "%u", fixture.given.session);
	it_pagedctl(&exit_code, "kick", session, NULL);
	it_require(exit_code == 0);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	it_pagedctl(&exit_code, "kick", session, NULL);
	it_require(exit_code != 0);
	end(&fixture.taker);
	teardown();
}

/* With the daemon, tickets and sequences are gone, and both sides learn it. */
IT_TEST(the_daemon_is_killed)
{
	setup();
	ask_ok(&fixture.giver, GIVE);
	it_daemon_kill(&fixture.daemon);
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_GONE, "%s", fixture.answer.text);
	it_require(ask(&fixture.giver, CANCEL) == PAGED_ERR_GONE, "%s", fixture.answer.text);
	end(&fixture.giver);
	end(&fixture.taker);
	/* The next daemon does not know the ticket, which has not expired. */
	it_daemon_restart(&fixture.daemon, NULL, NULL);
	it_fork(&fixture.taker, taker_run, NULL);
	it_receive(fixture.taker.from, &fixture.answer, sizeof(fixture.answer));
	it_require(ask(&fixture.taker, ADOPT) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
	end(&fixture.taker);
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

/* Processes of two users: a ticket for one of them does not serve the other, and stays valid. */
IT_TEST(tickets_of_another_user)
{
	struct it_worker nobody;
	char config[512];

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	snprintf(config, sizeof(config), "allow-user = { 65534 }\n%s", configuration());
	setup_with(config);
	it_require(chmod(fixture.daemon.dir, 0711) == 0, "%m");
	it_fork(&nobody, nobody_run, NULL);
	it_receive(nobody.from, &fixture.answer, sizeof(fixture.answer));
	fixture.order.flags = PAGED_GIVE_UID;
	fixture.order.uid = 0;
	ask_ok(&fixture.giver, GIVE);
	it_require(ask(&nobody, ADOPT) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	it_require(strstr(fixture.answer.text, "is for user id 0, this process has user id 65534") != NULL, "%s",
		   fixture.answer.text);
	it_require(ask(&nobody, CANCEL) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	ask_ok(&fixture.taker, ADOPT);
	fixture.order.uid = NOBODY_UID;
	ask_ok(&fixture.taker, GIVE);
	it_require(ask(&fixture.giver, ADOPT) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	ask_ok(&nobody, ADOPT);
	expect_bits(&nobody);
	ask_ok(&nobody, EXTEND);
	end(&nobody);
	end(&fixture.giver);
	end(&fixture.taker);
	teardown();
}

/* The list of tickets comes in several replies. */
IT_TEST(tickets_of_many_sequences_are_listed)
{
	enum { N_TICKETS = 10, N_SEQUENCES = 4096 };
	static const char config[] = "pool test {\n" WORKER_POOL_SHAPE
				     "\n" POOL_SIZES(WORKER_PAGE_SIZE, 8, 40960, WORKER_MAX_LENGTH) "\n}\n";
	static paged_seq_id seqs[N_SEQUENCES];
	static uint32_t lengths[N_SEQUENCES];
	const struct paged_give_params params = { .struct_size = sizeof(params), .timeout_ms = LONG_MS };
	struct paged_ticket_entry *entries;
	struct worker_fixture worker;
	struct paged_ticket ticket;
	struct it_daemon daemon;
	size_t n;

	it_daemon_start(&daemon, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	for (int i = 0; i < N_TICKETS; i++) {
		worker_ok(&worker, seqs_create(worker.client, worker.pool, N_SEQUENCES, seqs));
		worker_ok(&worker, paged_seq_give(worker.pool, N_SEQUENCES, seqs, lengths, &params, &ticket));
	}
	worker_ok(&worker, paged_admin_tickets(worker.client, sizeof(*entries), &entries, &n));
	it_require(n == N_TICKETS);
	for (size_t i = 0; i < n; i++)
		it_require(entries[i].number == i + 1 && entries[i].n_sequences == N_SEQUENCES);
	paged_free(entries);
	worker_ok(&worker, paged_seq_adopt(worker.pool, &ticket, N_SEQUENCES, seqs, NULL, &n));
	it_require(n == N_SEQUENCES);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* There are neither free pages nor free slots. */
IT_TEST(adopt_in_a_full_pool)
{
	static const char config[] =
		"pool test {\n" WORKER_POOL_SHAPE "\n" POOL_SIZES(WORKER_PAGE_SIZE, 8, 1, WORKER_MAX_LENGTH) "\n}\n";

	setup_with(config);
	it_require(ask(&fixture.giver, EXTEND) == PAGED_ERR_FULL, "%s", fixture.answer.text);
	ask_ok(&fixture.giver, GIVE);
	ask_ok(&fixture.taker, ADOPT);
	expect_bits(&fixture.taker);
	end(&fixture.taker);
	end(&fixture.giver);
	teardown();
}

static bool
giver_has_ended(void *argument)
{
	(void)argument;
	return strstr(it_pagedctl(NULL, "tickets", NULL), "yes") != NULL;
}

IT_TEST(pagedctl_lists_tickets_without_their_bytes)
{
	char giver[32], taker[32];
	const char *output;
	int exit_code;

	setup();
	output = it_pagedctl(&exit_code, "tickets", NULL);
	it_require(exit_code == 0 && strstr(output, "0 tickets") != NULL, "%s", output);
	fixture.order.flags = PAGED_GIVE_SESSION;
	fixture.order.session = fixture.taker_session;
	ask_ok(&fixture.giver, GIVE);
	output = it_pagedctl(&exit_code, "sequences", NULL);
	it_require(exit_code == 0 && strstr(output, "  given") != NULL, "%s", output);
	output = it_pagedctl(&exit_code, "--json", "tickets", NULL);
	/* The two workers attach in any order. */
	snprintf(giver, sizeof(giver), "\"session\": %u,", 3 - fixture.taker_session);
	snprintf(taker, sizeof(taker), "session %u", fixture.taker_session);
	it_require(exit_code == 0 && strstr(output, giver) != NULL && strstr(output, "\"sequences\": 1") != NULL &&
			   strstr(output, "\"tokens\": 30") != NULL && strstr(output, "\"pool\": \"test\"") != NULL &&
			   strstr(output, "\"ended\": null") != NULL,
		   "%s", output);
	it_kill(&fixture.giver);
	it_require(it_wait(giver_has_ended, NULL));
	output = it_pagedctl(&exit_code, "tickets", NULL);
	it_require(exit_code == 0 && strstr(output, taker) != NULL, "%s", output);
	ask_ok(&fixture.taker, ADOPT);
	end(&fixture.taker);
	teardown();
}

/* The library's own checks. */
IT_TEST(arguments_are_checked)
{
	struct paged_give_params params = { .struct_size = sizeof(params), .flags = 8 };
	struct worker_fixture worker;
	struct paged_ticket ticket = { { 0 } };
	struct it_daemon daemon;
	uint32_t length = 1, lengths[2];
	paged_seq_id seq, seqs[2];
	size_t n;

	it_daemon_start(&daemon, configuration(), NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 4);
	worker_expect(&worker, paged_seq_give(worker.pool, 0, &seq, &length, NULL, &ticket), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_give(worker.pool, 1, NULL, &length, NULL, &ticket), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_give(worker.pool, 1, &seq, NULL, NULL, &ticket), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_give(worker.pool, 1, &seq, &length, NULL, NULL), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_give(worker.pool, 1, &seq, &length, &params, &ticket), PAGED_ERR_INVALID);
	length = WORKER_MAX_LENGTH;
	worker_expect(&worker, paged_seq_give(worker.pool, 1, &seq, &length, NULL, &ticket), PAGED_ERR_CAPACITY);
	worker_expect(&worker, paged_seq_adopt(worker.pool, NULL, 2, seqs, lengths, &n), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_adopt(worker.pool, &ticket, 2, NULL, lengths, &n), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_adopt(worker.pool, &ticket, 2, seqs, lengths, NULL), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_seq_adopt(worker.pool, &ticket, 2, seqs, lengths, &n), PAGED_ERR_NOENT);
	worker_expect(&worker, paged_ticket_cancel(worker.client, NULL), PAGED_ERR_INVALID);
	worker_expect(&worker, paged_ticket_cancel(worker.client, &ticket), PAGED_ERR_NOENT);
	length = 4;
	worker_ok(&worker, paged_seq_give(worker.pool, 1, &seq, &length, NULL, &ticket));
	worker_expect(&worker, paged_seq_adopt(worker.pool, &ticket, 0, NULL, NULL, &n), PAGED_ERR_INVALID);
	worker_ok(&worker, paged_seq_adopt(worker.pool, &ticket, 2, seqs, NULL, &n));
	it_require(n == 1 && seqs[0] == seq);
	worker_close(&worker);
	worker_observe(&worker);
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	worker_expect(&worker, paged_seq_give(worker.pool, 1, &seq, &length, NULL, &ticket), PAGED_ERR_PERM);
	worker_expect(&worker, paged_seq_adopt(worker.pool, &ticket, 2, seqs, lengths, &n), PAGED_ERR_PERM);
	worker_expect(&worker, paged_ticket_cancel(worker.client, &ticket), PAGED_ERR_PERM);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* On both back ends: a frozen row is read, and no append writes to it. */
static void
give_and_adopt_in_a_batch(const char *backend)
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
		.n_rows = 2,
		.rows = { { .kv_len = 23, .q_len = 2 }, { .kv_len = 9, .q_len = 1 } },
	};
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_tensor keys, values;
	struct batch_fixture batch;
	struct paged_ticket ticket;
	uint32_t lengths[2];
	paged_seq_id seqs[2];
	size_t n;

	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	batch_fixture_open(&batch, &params);
	batch_fixture_write(&batch, 0, 0, 23);
	batch_fixture_write(&batch, 1, 0, 8);
	batch_fixture_ok(&batch, paged_batch_finish(batch.batch));
	batch_fixture_ok(&batch, paged_seq_give(batch.pool, 2, batch.seq, (uint32_t[]){ 23, 8 }, NULL, &ticket));
	batch_fixture_ok(&batch, paged_seq_read(batch.pool, batch.seq[1], &info, NULL, 0));
	it_require(info.frozen == 1 && info.writable_from == UINT32_MAX);

	rows[0] = (struct paged_batch_row){ .seq = batch.seq[1], .kv_len = 9, .q_len = 1 };
	batch_fixture_ok(&batch, paged_batch_plan(batch.batch, 1, rows));
	keys = batch_fixture_keys(&batch, 1, 8, 9);
	values = batch_fixture_values(&batch, 1, 8, 9);
	batch_fixture_expect(&batch, paged_append(batch.batch, BATCH_FIXTURE_LAYER, &keys, &values, NULL),
			     PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(batch.client), "was given away") != NULL, "%s",
		   paged_client_error(batch.client));

	batch_fixture_ok(&batch, paged_seq_adopt(batch.pool, &ticket, 2, seqs, lengths, &n));
	it_require(n == 2 && memcmp(seqs, batch.seq, sizeof(seqs)) == 0 && lengths[0] == 23 && lengths[1] == 8);
	batch_fixture_expect(&batch, paged_batch_validate(batch.batch), PAGED_ERR_STALE);
	batch_fixture_write(&batch, 1, 8, 9);
	batch_fixture_ok(&batch, paged_seq_give(batch.pool, 2, batch.seq, (uint32_t[]){ 23, 9 }, NULL, &ticket));
	batch_fixture_rows(&batch, rows);
	batch_fixture_ok(&batch, paged_batch_plan(batch.batch, 2, rows));
	batch_fixture_ok(&batch, batch_fixture_attend(&batch, NULL));
	batch_fixture_check(&batch);
	batch_fixture_ok(&batch, paged_ticket_cancel(batch.client, &ticket));
	batch_fixture_close(&batch);
}

IT_TEST(frozen_rows_are_read_only_on_both_back_ends)
{
	give_and_adopt_in_a_batch("host");
	give_and_adopt_in_a_batch("cuda");
}

IT_MAIN
