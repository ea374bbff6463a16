/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: processes of two users compete for a pool, each up to its limit.  The test runs as root, so that it can
 * start workers as other users; root itself belongs to no tenant unless a test says so.
 */
#include "config.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fake-cuda/load.h"
#include "tests/support/random.h"
#include "tests/support/sequences.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/prompt_fixture.h"

/* Users and groups need no name. */
#define RESEARCHER 61001u
#define SELLER 61002u
#define SALES_GROUP 61012u
#define RESEARCH_PAGES 10u
#define SALES_PAGES 32u
#define N_STEPS 200u

/* What the test tells a worker to do; the worker answers each. */
enum word { CREATE = 1, RESERVE, FORK, START, COMPUTE, PLAN, STEPS, ERASE, GIVE, ADOPT, TOKEN, COMPETE, END };

struct order {
	enum word word;
	paged_seq_id seq;
	uint32_t n_tokens;
	uint32_t prompt; /* seed */
	struct paged_ticket ticket;
};

struct answer {
	enum paged_status status;
	paged_seq_id seq;
	uint32_t n; /* pages that a plan lacked, tokens that a start shares, requests that a limit refused */
	struct paged_ticket ticket;
	char text[256];
};

/* Who the worker is. */
struct identity {
	uint32_t uid, gid;
	const char *token; /* of the session to join; NULL: a new one */
};

static enum paged_status
start(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	struct prompt prompt = prompt_make(order->prompt, order->n_tokens);
	struct paged_prefix prefix = prompt_prefix(&prompt, prompt.n);
	struct paged_start params = { .prefix = &prefix, .reserve = prompt.n };

	return paged_seq_start(worker->pool, 1, &params, &answer->seq, &answer->n);
}

/* Takes and gives back pages at random; the limit refuses some requests, and nothing else does. */
static enum paged_status
compete(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	enum { N_SEQS = 6, MAX_TOKENS = 40 };
	paged_seq_id seqs[N_SEQS] = { 0 };
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < order->n_tokens && (status == PAGED_OK || status == PAGED_ERR_QUOTA); i++) {
		uint64_t random = random_bits(order->prompt, i);
		uint32_t which = (uint32_t)(random % N_SEQS), parent = (uint32_t)(random >> 8) % N_SEQS;
		uint32_t n_tokens = 1 + (uint32_t)(random >> 16) % MAX_TOKENS;
		struct paged_seq_params params = { .pool = worker->pool, .n_tokens = n_tokens };

		if (seqs[which] == 0)
			status = random >> 60 < 12 || seqs[parent] == 0
					 ? paged_seq_create(worker->client, 1, &params, &seqs[which])
					 : paged_batch_fork(worker->batch, 1, &seqs[parent], &(uint32_t){ 1 },
							    &seqs[which]);
		else if (random >> 60 < 8)
			status = seqs_reserve(worker->client, 1, &seqs[which], &n_tokens);
		else
			status = paged_seq_erase(worker->client, 1, &seqs[which]), seqs[which] = 0;
		answer->n += status == PAGED_ERR_QUOTA;
	}
	for (uint32_t i = 0; i < N_SEQS; i++)
		if (seqs[i] != 0)
			worker_ok(worker, paged_seq_erase(worker->client, 1, &seqs[i]));
	return status == PAGED_ERR_QUOTA ? PAGED_OK : status;
}

/* The worker with another batch, which reserves ahead. */
static struct worker_fixture
worker_ahead(const struct worker_fixture *worker)
{
	const struct paged_batch_params params = { .struct_size = sizeof(params),
						   .reserve_ahead = 2 * WORKER_PAGE_SIZE };
	struct worker_fixture ahead = *worker;

	worker_ok(worker, paged_batch_create(worker->pool, &params, &ahead.batch));
	return ahead;
}

static void
obey(struct worker_fixture *worker, const struct order *order, struct answer *answer)
{
	const struct paged_seq_params params = { .pool = worker->pool, .n_tokens = order->n_tokens };
	struct worker_fixture planner = *worker;
	struct prompt prompt;
	size_t n;

	if (order->word == PLAN || order->word == STEPS)
		planner = worker_ahead(worker);
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
	case COMPUTE:
		prompt = prompt_make(order->prompt, order->n_tokens);
		answer->seq = prompt_compute(worker, &prompt);
		break;
	case PLAN:
		answer->status = worker_plan(&planner, order->seq, order->n_tokens - 1, order->n_tokens, 0);
		answer->n = paged_batch_pages_missing(planner.batch, 0);
		break;
	case STEPS: /* with a round trip after each, so that no reply is outstanding when the next is planned */
		for (uint32_t i = 0; i < N_STEPS && answer->status == PAGED_OK; i++) {
			answer->status = worker_plan(&planner, order->seq, order->n_tokens - 1, order->n_tokens, 0);
			worker_ok(worker, paged_client_ping(worker->client));
		}
		break;
	case ERASE:
		answer->status = paged_seq_erase(worker->client, 1, &order->seq);
		break;
	case GIVE:
		answer->status = paged_seq_give(worker->pool, 1, &order->seq, &order->n_tokens, NULL, &answer->ticket);
		break;
	case ADOPT:
		answer->status = paged_seq_adopt(worker->pool, &order->ticket, 1, &answer->seq, NULL, &n);
		break;
	case TOKEN:
		snprintf(answer->text, sizeof(answer->text), "%s", paged_client_join_token(worker->client));
		break;
	case COMPETE:
		answer->status = compete(worker, order, answer);
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
	struct paged_client_params params = worker_params("worker");
	const struct identity *identity = argument;
	struct worker_fixture worker;
	struct answer answer;
	struct order order;

	become(identity);
	params.join_token = identity->token;
	worker_open(&worker, &params, 0);
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
			      "tenant research { allow-user = 61001\n limit test = 10 share = 75 % }\n"
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
	it_fork(&fixture.researcher, serve, &(struct identity){ RESEARCHER, RESEARCHER, NULL });
	it_fork(&fixture.colleague, serve, &(struct identity){ RESEARCHER, RESEARCHER, NULL });
	it_fork(&fixture.seller, serve, &(struct identity){ SELLER, SALES_GROUP, NULL });
}

static void
start_asking(const struct it_worker *worker, enum word word, paged_seq_id seq, uint32_t n_tokens)
{
	fixture.order.word = word;
	fixture.order.seq = seq;
	fixture.order.n_tokens = n_tokens;
	it_send(worker->to, &fixture.order, sizeof(fixture.order));
}

static enum paged_status
finish_asking(const struct it_worker *worker)
{
	it_receive(worker->from, &fixture.answer, sizeof(fixture.answer));
	return fixture.answer.status;
}

static enum paged_status
ask(const struct it_worker *worker, enum word word, paged_seq_id seq, uint32_t n_tokens)
{
	start_asking(worker, word, seq, n_tokens);
	return finish_asking(worker);
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

/* Pages that the tenants are charged; their limits are those of the configuration. */
static void
read_charged(uint32_t *research, uint32_t *sales)
{
	struct paged_quota_entry *list;
	size_t n;

	worker_ok(&fixture.observer, paged_admin_quotas(fixture.observer.client, sizeof(*list), &list, &n));
	it_require(n == 2 && strcmp(list[0].tenant, "research") == 0 && strcmp(list[1].tenant, "sales") == 0);
	it_require(list[0].pool == 0 && list[0].limited && list[0].limit == RESEARCH_PAGES);
	it_require(list[1].pool == 0 && list[1].limited && list[1].limit == SALES_PAGES);
	*research = list[0].n_charged;
	*sales = list[1].n_charged;
	paged_free(list);
}

static void
expect_charged(uint32_t research, uint32_t sales)
{
	uint32_t seen_research, seen_sales;

	read_charged(&seen_research, &seen_sales);
	it_require(seen_research == research && seen_sales == sales, "research %u, sales %u", seen_research,
		   seen_sales);
	worker_check_pool(&fixture.observer);
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
	prompt_wait_unused(&fixture.observer);
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

/*
 * Mooncake's tenant_quota_test: charges of processes that compete never exceed a limit.  The limits leave the pool some
 * pages, so nothing else refuses a request.
 */
IT_TEST(competing_processes_never_exceed_a_limit)
{
	const struct it_worker *workers[] = { &fixture.researcher, &fixture.colleague, &fixture.seller };
	uint32_t research, sales;

	setup();
	for (size_t i = 0; i < 3; i++) {
		fixture.order.prompt = (uint32_t)i;
		start_asking(workers[i], COMPETE, 0, 3000);
	}
	for (uint32_t i = 0; i < 500; i++) {
		read_charged(&research, &sales);
		it_require(research <= RESEARCH_PAGES && sales <= SALES_PAGES, "research %u, sales %u", research,
			   sales);
	}
	for (size_t i = 0; i < 3; i++) {
		it_require(finish_asking(workers[i]) == PAGED_OK, "%s", fixture.answer.text);
		it_require(fixture.answer.n > 0, "worker %zu met no limit", i);
	}
	expect_charged(0, 0);
	teardown();
}

static bool
research_is_uncharged(void *argument)
{
	uint32_t research, sales;

	(void)argument;
	read_charged(&research, &sales);
	return research == 0;
}

/* Mooncake's tenant_quota_test: what a dead process was charged returns to its tenant. */
IT_TEST(charges_end_with_a_killed_process)
{
	setup();
	ask_ok(&fixture.researcher, CREATE, 0, 40);
	ask_ok(&fixture.seller, CREATE, 0, 8);
	expect_charged(10, 2);
	it_require(ask(&fixture.colleague, CREATE, 0, 1) == PAGED_ERR_QUOTA, "%s", fixture.answer.text);
	it_kill(&fixture.researcher);
	it_require(it_wait(research_is_uncharged, NULL));
	expect_charged(0, 2);
	ask_ok(&fixture.colleague, CREATE, 0, 40);
	expect_charged(10, 2);
	it_fork(&fixture.researcher, serve, &(struct identity){ RESEARCHER, RESEARCHER, NULL });
	teardown();
}

IT_TEST(adopted_pages_are_charged_to_the_taker)
{
	paged_seq_id seq, own;

	setup();
	seq = ask_ok(&fixture.researcher, CREATE, 0, 32);
	ask_ok(&fixture.researcher, GIVE, seq, 30);
	expect_charged(8, 0);
	fixture.order.ticket = fixture.answer.ticket;
	ask_ok(&fixture.seller, ADOPT, 0, 0);
	expect_charged(0, 8);
	own = ask_ok(&fixture.researcher, CREATE, 0, 16);
	ask_ok(&fixture.seller, GIVE, seq, 30);
	fixture.order.ticket = fixture.answer.ticket;
	expect_quota(ask(&fixture.researcher, ADOPT, 0, 0),
		     "tenant research, pool test: 8 pages requested, 4 charged, limit 10: free pages of its "
		     "sequences, or raise the limit");
	expect_charged(4, 8);
	/* The ticket stays valid. */
	ask_ok(&fixture.researcher, ERASE, own, 0);
	ask_ok(&fixture.researcher, ADOPT, 0, 0);
	expect_charged(8, 0);
	teardown();
}

IT_TEST(shared_pages_are_charged_once_to_each_tenant)
{
	paged_seq_id seqs[3];

	setup();
	fixture.order.prompt = 7;
	seqs[0] = ask_ok(&fixture.seller, COMPUTE, 0, 16);
	expect_charged(0, 4);
	seqs[1] = ask_ok(&fixture.researcher, START, 0, 16);
	it_require(fixture.answer.n == 16, "%u tokens shared", fixture.answer.n);
	expect_charged(4, 4);
	seqs[2] = ask_ok(&fixture.colleague, START, 0, 16);
	expect_charged(4, 4);
	prompt_expect_pages(&fixture.observer, WORKER_PAGES - 4, 4, 0);
	ask_ok(&fixture.seller, ERASE, seqs[0], 0);
	expect_charged(4, 0);
	ask_ok(&fixture.researcher, ERASE, seqs[1], 0);
	expect_charged(4, 0);
	ask_ok(&fixture.colleague, ERASE, seqs[2], 0);

	/* Cached pages are charged to no tenant, and shared ones count when they are taken again. */
	expect_charged(0, 0);
	prompt_expect_pages(&fixture.observer, WORKER_PAGES - 4, 0, 4);
	ask_ok(&fixture.colleague, CREATE, 0, 32);
	expect_quota(ask(&fixture.researcher, START, 0, 16),
		     "tenant research, pool test: 4 pages requested, 8 charged, limit 10: free pages of its "
		     "sequences, or raise the limit");
	fixture.order.prompt = 8;
	ask_ok(&fixture.researcher, START, 0, 8);
	expect_charged(10, 0);
	teardown();
}

/* A process that joins a session is in the session's tenant. */
IT_TEST(members_are_charged_to_the_tenant_of_their_session)
{
	struct identity identity = { RESEARCHER, RESEARCHER, NULL };
	struct it_worker member;
	const char *output;
	int exit_code;

	setup();
	ask_ok(&fixture.seller, TOKEN, 0, 0);
	identity.token = fixture.answer.text;
	it_fork(&member, serve, &identity);
	ask_ok(&member, CREATE, 0, (RESEARCH_PAGES + 1) * WORKER_PAGE_SIZE);
	expect_charged(0, RESEARCH_PAGES + 1);
	output = it_pagedctl(&exit_code, "sessions", NULL);
	output = strstr(output, "sales");
	it_require(exit_code == 0 && output != NULL && strstr(output + 1, "sales") != NULL);
	end(&member);
	teardown();
}

/* What a plan reserves ahead of need is cut to what the limit leaves; it never refuses the step. */
IT_TEST(pages_ahead_are_cut_to_the_limit)
{
	paged_seq_id seq;

	setup();
	seq = ask_ok(&fixture.researcher, CREATE, 0, 36);
	for (uint32_t n_tokens = 37; n_tokens <= 40; n_tokens++) {
		ask_ok(&fixture.researcher, PLAN, seq, n_tokens);
		expect_charged(10, 0);
	}
	expect_quota(ask(&fixture.researcher, PLAN, seq, 41), AT_LIMIT(1));
	it_require(fixture.answer.n == 1, "%u pages missing", fixture.answer.n);
	teardown();
}

static uint64_t
count_requests(void)
{
	struct paged_session_entry *list;
	uint64_t n_requests = 0;
	size_t n;

	worker_ok(&fixture.observer, paged_admin_sessions(fixture.observer.client, sizeof(*list), &list, &n));
	for (size_t i = 0; i < n; i++)
		n_requests += list[i].n_requests;
	paged_free(list);
	return n_requests;
}

/* Steps at the limit ask for pages ahead now and then, not each of them. */
IT_TEST(steps_at_the_limit_make_few_requests)
{
	uint64_t n_before, n_ahead;
	paged_seq_id seq;

	setup();
	seq = ask_ok(&fixture.researcher, CREATE, 0, 40);
	n_before = count_requests();
	ask_ok(&fixture.researcher, STEPS, seq, 39);
	n_ahead = count_requests() - n_before - N_STEPS;
	it_require(n_ahead > 0 && n_ahead < N_STEPS / 2, "%ju requests in %u steps", (uintmax_t)n_ahead, N_STEPS);
	teardown();
}

IT_TEST(pagedctl_lists_quotas)
{
	const char *output;
	int exit_code;

	setup();
	ask_ok(&fixture.seller, CREATE, 0, 32);
	output = it_pagedctl(&exit_code, "quota", NULL);
	it_require(exit_code == 0 &&
			   strncmp(output, "TENANT    POOL  CHARGED  LIMIT  USED  QUARANTINED  SEQUENCES", 59) == 0 &&
			   strstr(output, "\nresearch  test        0     10   0 % ") != NULL &&
			   strstr(output, "\nsales     test        8     32  25 % ") != NULL,
		   "%s", output);
	output = it_pagedctl(&exit_code, "--json", "quota", NULL);
	it_require(exit_code == 0 && strstr(output, "\"quotas\"") != NULL && strstr(output, "\"limit\": 32") != NULL &&
			   strstr(output, "\"charged\": 8") != NULL && strstr(output, "\"used\": 0.25") != NULL &&
			   strstr(output, "\"tenant\": \"sales\"") != NULL &&
			   strstr(output, "\"pool\": \"test\"") != NULL && strstr(output, "\"sessions\": 2") != NULL &&
			   strstr(output, "\"members\": 1") != NULL &&
			   strstr(output, "\"max_sessions\": 768") != NULL &&
			   strstr(output, "\"sequences\": 1") != NULL,
		   "%s", output);
	teardown();
}

/* The core is the same for every back end; the error of a plan must pass the back end of the GPU. */
IT_TEST(plans_on_a_gpu_are_refused_at_the_limit)
{
	struct paged_batch_row rows[2];
	struct worker_fixture worker;
	char tenant[96];
	paged_seq_id seq;

	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	snprintf(tenant, sizeof(tenant), "tenant research { allow-user = %u limit test = 10 share = 75%% }\n",
		 (unsigned)getuid());
	cuda_daemon_start(&fixture.daemon, EXPORT_SETTING_AUTO, "", tenant);
	worker_open(&worker, NULL, 2 * WORKER_PAGE_SIZE);
	seq = worker_create_seq(&worker, 36);
	worker_ok(&worker, worker_plan(&worker, seq, 39, 40, 0));
	worker_expect(&worker, worker_plan(&worker, seq, 40, 41, 0), PAGED_ERR_QUOTA);
	it_require(strcmp(paged_client_error(worker.client), AT_LIMIT(1)) == 0, "%s",
		   paged_client_error(worker.client));
	it_require(paged_batch_pages_missing(worker.batch, 0) == 1);
	worker_ok(&worker, worker_plan(&worker, seq, 39, 40, 0));
	it_require(paged_batch_pages_missing(worker.batch, 0) == 0);

	/* Two rows lack a page each, and the limit leaves one: the first row gets it. */
	worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 20 }));
	rows[0] = (struct paged_batch_row){ .seq = seq, .q_len = 1, .kv_len = 21 };
	rows[1] = (struct paged_batch_row){ .seq = worker_create_seq(&worker, 16), .q_len = 1, .kv_len = 17 };
	worker_expect(&worker, paged_batch_plan(worker.batch, 2, rows), PAGED_ERR_QUOTA);
	it_require(paged_batch_pages_missing(worker.batch, 0) == 0 && paged_batch_pages_missing(worker.batch, 1) == 1);
	worker_ok(&worker, paged_batch_plan(worker.batch, 1, rows));
	worker_close(&worker);
	it_daemon_stop(&fixture.daemon);
}

/* --check-config refuses what a start refuses. */
IT_TEST(wrong_limits_stop_a_start_and_a_check)
{
	static const char config[] = PROMPT_POOL("") "tenant research { allow-user = 0 limit tes = 10 }\n";
	static const char why[] = "tenant research: limit tes = 10: there is no pool tes; did you mean test?";
	const char *argv[] = { "daemon/pagedd", "--check-config", "--config", fixture.daemon.config, NULL };
	const char *output;
	int exit_code;

	output = it_daemon_start_failing(&fixture.daemon, config);
	it_require(strstr(output, why) != NULL, "%s", output);
	output = it_command(&exit_code, argv);
	it_require(exit_code == 1 && strstr(output, why) != NULL, "%d: %s", exit_code, output);
}

/* More tenants than one reply holds; a tenant without limits is listed for what it is charged. */
IT_TEST(lists_of_many_tenants)
{
	enum { N_TENANTS = 300 };
	static char config[N_TENANTS * 64];
	struct paged_quota_entry *list;
	struct worker_fixture worker;
	size_t length = 0, n;

	for (uint32_t i = 0; i < N_TENANTS; i++)
		length += (size_t)snprintf(config + length, sizeof(config) - length, "tenant t%u { allow-user = %u }\n",
					   i, i == 290 ? 0 : 70000 + i);
	snprintf(config + length, sizeof(config) - length, "%s", worker_pool_config);
	daemon_start(config);
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 8);
	worker_ok(&worker, paged_admin_quotas(worker.client, sizeof(*list), &list, &n));
	it_require(n == N_TENANTS, "%zu", n);
	for (uint32_t i = 0; i < N_TENANTS; i++)
		it_require(atoi(list[i].tenant + 1) == (int)i && !list[i].limited && list[i].limit == 0 &&
			   list[i].n_charged == (i == 290 ? 2 : 0));
	paged_free(list);
	worker_close(&worker);
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

IT_MAIN
