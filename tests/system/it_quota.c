/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: processes of two users compete for a pool, each up to its limit.  The test runs as root, so that it can
 * start workers as other users; root itself belongs to no tenant unless a test says so.
 */
#include "config.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

/* Users and groups need no name. */
#define RESEARCHER 61001u
#define SELLER 61002u
#define SALES_GROUP 61012u
#define RESEARCH_PAGES 10u
#define SALES_PAGES 32u

/* What the test tells a worker to do; the worker answers each. */
enum word { CREATE = 1, RESERVE, FORK, START, PLAN, ERASE, END };

struct order {
	enum word word;
	paged_seq_id seq;
	uint32_t n_tokens;
	uint32_t prompt; /* seed */
};

struct answer {
	enum paged_status status;
	paged_seq_id seq;
	uint32_t n; /* pages that a plan lacked, tokens that a start shares */
	char text[256];
};

/* Who the worker is. */
struct identity {
	uint32_t uid, gid;
};

static enum paged_status
start(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	struct prompt prompt = prompt_make(order->prompt, order->n_tokens);
	struct paged_prefix prefix = prompt_prefix(&prompt, prompt.n);
	struct paged_start params = { .prefix = &prefix, .reserve = prompt.n };

	return paged_seq_start(worker->pool, 1, &params, &answer->seq, &answer->n);
}

static void
obey(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	const struct paged_seq_params params = { .pool = worker->pool, .n_tokens = order->n_tokens };

	*answer = (struct answer){ .seq = order->seq };
	switch (order->word) {
	case CREATE:
		answer->status = paged_seq_create(worker->client, 1, &params, &answer->seq);
		break;
	case RESERVE:
		answer->status = seqs_reserve(worker->client, 1, &order->seq, &order->n_tokens);
		break;
	case FORK:
		answer->status = paged_batch_fork(worker->batch, 1, &order->seq, &order->n_tokens, &answer->seq);
		break;
	case START:
		answer->status = start(worker, order, answer);
		break;
	case PLAN:
		answer->status = worker_plan(worker, order->seq, order->n_tokens - 1, order->n_tokens, 0);
		answer->n = paged_batch_pages_missing(worker->batch, 0);
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

static void
become(const struct identity *identity)
{
	gid_t group = identity->gid;

	if (identity->uid != 0)
		it_require(setgroups(1, &group) == 0 && setgid(RESEARCHER) == 0 && setuid(identity->uid) == 0, "%m");
}

static void
serve(int from, int to, void *argument)
{
	struct worker_fixture worker;
	struct answer answer;
	struct order order;

	become(argument);
	worker_open(&worker, NULL, 2 * WORKER_PAGE_SIZE);
	do {
		it_receive(from, &order, sizeof(order));
		obey(&worker, &order, &answer);
		it_send(to, &answer, sizeof(answer));
	} while (order.word != END);
	worker_close(&worker);
}

/* A daemon with two tenants, two researchers and a seller. */
static struct {
	struct it_daemon daemon;
	struct it_worker researcher, colleague, seller;
	struct worker_fixture observer;
	struct order order;   /* for what ask() does not set */
	struct answer answer; /* the last one */
} fixture;

static const char tenants[] = "allow-user = 61001 allow-group = 61012\n"
			      "tenant research { allow-user = 61001\n limit test = 10 }\n"
			      "tenant sales { allow-group = 61012\n limit test = 50 % }\n" PROMPT_POOL("");

static void
daemon_start(const char *config)
{
	if (geteuid() != 0)
		it_skip("needs root to become other users");
	it_daemon_start(&fixture.daemon, config, NULL, NULL);
	it_require(chmod(fixture.daemon.dir, 0711) == 0, "%m");
	worker_observe(&fixture.observer);
}

static void
setup(void)
{
	daemon_start(tenants);
	it_fork(&fixture.researcher, serve, &(struct identity){ RESEARCHER, RESEARCHER });
	it_fork(&fixture.colleague, serve, &(struct identity){ RESEARCHER, RESEARCHER });
	it_fork(&fixture.seller, serve, &(struct identity){ SELLER, SALES_GROUP });
}

static enum paged_status
ask(const struct it_worker *worker, enum word word, paged_seq_id seq, uint32_t n_tokens)
{
	fixture.order.word = word;
	fixture.order.seq = seq;
	fixture.order.n_tokens = n_tokens;
	it_send(worker->to, &fixture.order, sizeof(fixture.order));
	it_receive(worker->from, &fixture.answer, sizeof(fixture.answer));
	return fixture.answer.status;
}

static paged_seq_id
ask_ok(const struct it_worker *worker, enum word word, paged_seq_id seq, uint32_t n_tokens)
{
	enum paged_status status = ask(worker, word, seq, n_tokens);

	it_require(status == PAGED_OK, "%d: %s: %s", word, paged_status_name(status), fixture.answer.text);
	return fixture.answer.seq;
}

static void
expect_quota(enum paged_status status, const char *text)
{
	it_require(status == PAGED_ERR_QUOTA && strcmp(fixture.answer.text, text) == 0, "%d: %s", status,
		   fixture.answer.text);
}

static void
end(struct it_worker *worker)
{
	ask_ok(worker, END, 0, 0);
	it_join(worker);
}

static void
teardown(void)
{
	end(&fixture.researcher);
	end(&fixture.colleague);
	end(&fixture.seller);
	prompt_wait_unused(&fixture.observer, 20000);
	worker_check_pool(&fixture.observer);
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

#define AT_LIMIT(requested)                                                                                    \
	"tenant research, pool test: " #requested " pages requested, 10 charged, limit 10: free pages of its " \
	"sequences, or raise the limit"

/* Each request that takes pages is refused at the limit; the other tenant and sessions without one go on. */
IT_TEST(each_request_is_refused_at_the_limit)
{
	struct worker_fixture root;
	paged_seq_id seq, child, sold;

	setup();
	expect_quota(ask(&fixture.researcher, CREATE, 0, 44),
		     "tenant research, pool test: 11 pages requested, 0 charged, limit 10: ask for less, or raise the "
		     "limit");
	seq = ask_ok(&fixture.researcher, CREATE, 0, 32);
	sold = ask_ok(&fixture.seller, CREATE, 0, 64);
	ask_ok(&fixture.researcher, RESERVE, seq, 40);
	expect_quota(ask(&fixture.researcher, RESERVE, seq, 41), AT_LIMIT(1));
	expect_quota(ask(&fixture.researcher, FORK, seq, 38), AT_LIMIT(1));
	expect_quota(ask(&fixture.researcher, START, 0, 8), AT_LIMIT(2));
	expect_quota(ask(&fixture.researcher, PLAN, seq, 41), AT_LIMIT(1));
	/* The limit is the tenant's, not the session's. */
	expect_quota(ask(&fixture.colleague, CREATE, 0, 4), AT_LIMIT(1));
	ask_ok(&fixture.colleague, CREATE, 0, 0);
	/* A page is charged once to a tenant, so a child that only shares whole pages costs nothing. */
	child = ask_ok(&fixture.researcher, FORK, seq, 40);
	ask_ok(&fixture.researcher, ERASE, child, 0);

	ask_ok(&fixture.seller, RESERVE, sold, SALES_PAGES * WORKER_PAGE_SIZE);
	it_require(ask(&fixture.seller, CREATE, 0, 1) == PAGED_ERR_QUOTA, "%s", fixture.answer.text);
	worker_open(&root, NULL, 0);
	worker_create_seq(&root, (WORKER_PAGES - RESEARCH_PAGES - SALES_PAGES) * WORKER_PAGE_SIZE);

	/* In a full pool, a tenant at its limit learns of the limit, as it would wait for other sessions in vain. */
	expect_quota(ask(&fixture.researcher, RESERVE, seq, 41), AT_LIMIT(1));
	ask_ok(&fixture.researcher, ERASE, seq, 0);
	ask_ok(&fixture.colleague, CREATE, 0, RESEARCH_PAGES * WORKER_PAGE_SIZE);
	worker_close(&root);
	teardown();
}

IT_MAIN
