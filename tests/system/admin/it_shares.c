/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares: what one user, who follows no rule of the library, can take from the others.  The test runs as root, so that
 * it can start processes of other users, which are no tenant's unless the configuration says so.
 */
#include "config.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/wire_peer.h"
#include "tests/support/worker_fixture.h"
#include "tests/system/prompt_fixture.h"

/* Users need no name. */
#define ATTACKER 61001u
#define OTHER 61002u

#define POOL                                                                            \
	"pool test { layers = 1 kv-heads = 1 head-dim = 16 dtype = f16 page-size = 4\n" \
	" pages = 64 sequences = 16 max-length = 256 free-pages = 0 }\n"
#define USERS "allow-user = { 61001, 61002 }\n"

/* What a process of a user has done: how many requests succeeded, and how the first other one failed. */
struct report {
	uint32_t n_ok, n_failed;
	enum paged_status status;
	char text[256];
};

struct user {
	uint32_t uid;
	void (*act)(struct report *report);
};

static void
report_add(struct report *report, enum paged_status status, const char *text)
{
	if (status == PAGED_OK) {
		report->n_ok++;
	} else if (report->n_failed++ == 0) {
		report->status = status;
		snprintf(report->text, sizeof(report->text), "%s", text);
	}
}

static void
report_call(struct report *report, struct wire_peer *peer, struct wire_request request)
{
	struct wire_reply reply;
	enum paged_status status = wire_peer_call(peer, &request, &reply);

	report_add(report, status, reply.text);
}

/* Acts, reports, and lives until it is told to end. */
static void
user_run(int from, int to, void *argument)
{
	const struct user *user = argument;
	struct report report = { .status = PAGED_OK };
	gid_t group = user->uid;
	char word;

	it_require(setgroups(1, &group) == 0 && setgid(user->uid) == 0 && setuid(user->uid) == 0, "%m");
	user->act(&report);
	it_send(to, &report, sizeof(report));
	it_receive(from, &word, 1);
}

static struct it_daemon pagedd;

static void
setup(const char *config)
{
	if (geteuid() != 0)
		it_skip("needs root to become other users");
	it_daemon_start(&pagedd, config, NULL, NULL);
	it_require(chmod(pagedd.dir, 0711) == 0, "%m");
}

/* Starts a process of a user that acts, and goes on living. */
static struct report
user_start(struct it_worker *worker, uint32_t uid, void (*act)(struct report *report))
{
	struct report report;

	it_fork(worker, user_run, &(struct user){ uid, act });
	it_receive(worker->from, &report, sizeof(report));
	return report;
}

static void
user_end(struct it_worker *worker)
{
	it_send(worker->to, "", 1);
	it_join(worker);
}

/* The page accounting is consistent, and nothing is left once the processes have ended. */
static void
teardown(void)
{
	struct worker_fixture observer;

	it_require(wire_peer_wait_free(64), "pages are lost");
	worker_observe(&observer);
	worker_check_pool(&observer);
	worker_close(&observer);
	it_daemon_stop(&pagedd);
}

/* Ten sessions take ten pages each, and lose their control socket without a goodbye. */
static void
leave_pages_in_quarantine(struct report *report)
{
	struct wire_peer peer;

	for (int i = 0; i < 10; i++) {
		wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
		report_call(report, &peer, wire_peer_create_request(0, 1, 40));
		wire_peer_close(&peer);
	}
}

static void
take_forty_pages(struct report *report)
{
	struct wire_peer peer;

	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	report_call(report, &peer, wire_peer_create_request(0, 1, 160));
}

static bool
has_quarantined(void *argument)
{
	return wire_peer_pool_entry().n_quarantined == *(uint32_t *)argument;
}

/* Charges of ended sessions add up for as long as their process may write the pages. */
IT_TEST(quarantined_pages_are_charged)
{
	struct it_worker attacker, other;
	struct report report;

	setup(USERS "tenant attackers { allow-user = 61001 limit test = 10 }\n" POOL);
	report = user_start(&attacker, ATTACKER, leave_pages_in_quarantine);
	it_require(report.n_ok == 1 && report.n_failed == 9 && report.status == PAGED_ERR_QUOTA, "%u, %u: %s",
		   report.n_ok, report.n_failed, report.text);
	it_require(strncmp(report.text, "tenant attackers, pool test: 10 pages requested, 10 charged", 59) == 0, "%s",
		   report.text);
	it_require(it_wait(has_quarantined, &(uint32_t){ 10 }));
	report = user_start(&other, OTHER, take_forty_pages);
	it_require(report.n_ok == 1, "%s", report.text);
	user_end(&attacker);
	user_end(&other);
	teardown();
}

/* As many empty sequences as the pool has slots. */
static void
take_all_slots(struct report *report)
{
	struct wire_peer peer;

	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < 16; i++)
		report_call(report, &peer, wire_peer_create_request(0, 1, 0));
}

/* A user of no tenant has a share of the slots: another one still gets some, and root has no share. */
IT_TEST(empty_sequences_do_not_take_all_slots)
{
	struct it_worker attacker, other;
	struct report report;
	struct wire_peer root;

	setup(USERS POOL);
	report = user_start(&attacker, ATTACKER, take_all_slots);
	it_require(report.n_ok == 12 && report.n_failed == 4 && report.status == PAGED_ERR_QUOTA, "%u, %u: %s",
		   report.n_ok, report.n_failed, report.text);
	it_require(strcmp(report.text,
			  "tenant uid 61001, pool test: 1 sequences requested, 12 in use, and its share is 12 of 16: "
			  "end some, or raise user-share or sequences") == 0,
		   "%s", report.text);
	report = user_start(&other, OTHER, take_all_slots);
	it_require(report.n_ok == 4 && report.status == PAGED_ERR_FULL, "%u: %s", report.n_ok, report.text);
	user_end(&other);
	user_end(&attacker);
	it_require(wire_peer_wait_free(64));
	wire_peer_attach(&root, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < 16; i++)
		wire_peer_create_seq(&root, 0);
	wire_peer_bye(&root);
	teardown();
}

/* Gives all that it can in tickets, from several sessions, and ends them without a goodbye. */
static void
take_all_tickets(struct report *report)
{
	struct paged_seq_item item = { .n_tokens = 0 };
	struct wire_request give = { .kind = WIRE_GIVE,
				     .give = { .n = 1, .items = &item, .how = { .timeout_ms = 600000 } } };
	struct wire_peer peer;

	for (int i = 0; i < 2; i++) {
		wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
		for (int k = 0; k < 500; k++) {
			item.seq = wire_peer_create_seq(&peer, 0);
			report_call(report, &peer, give);
		}
		wire_peer_close(&peer);
	}
}

/* Gives an empty sequence until a time that is far away. */
static void
give_for_weeks(struct report *report)
{
	struct paged_seq_item item = { .n_tokens = 0 };
	struct wire_request give = { .kind = WIRE_GIVE, .give = { .n = 1, .items = &item } };
	struct wire_peer peer;

	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	item.seq = wire_peer_create_seq(&peer, 0);
	give.give.how.timeout_ms = UINT32_MAX;
	report_call(report, &peer, give);
	give.give.how.timeout_ms = 2001;
	report_call(report, &peer, give);
	give.give.how.timeout_ms = 2000;
	report_call(report, &peer, give);
	wire_peer_close(&peer);
}

/* Without a time, a ticket is valid for as long as it may be. */
static void
give_by_default(struct report *report)
{
	struct worker_fixture worker;
	struct paged_ticket ticket;
	uint32_t length = 0;
	paged_seq_id seq;

	worker_open(&worker, NULL, 0);
	worker_ok(&worker, seqs_create(worker.client, worker.pool, 1, &seq));
	report_add(report, paged_seq_give(worker.pool, 1, &seq, &length, NULL, &ticket),
		   paged_client_error(worker.client));
}

static bool
has_no_sequences(void *argument)
{
	(void)argument;
	return wire_peer_pool_entry().n_sequences == 0;
}

/* No ticket outlives its giver for longer than the configuration allows. */
IT_TEST(a_ticket_has_a_longest_time)
{
	struct it_worker attacker;
	struct report report;

	setup(USERS "max-ticket-time = 2s\n" POOL);
	report = user_start(&attacker, ATTACKER, give_for_weeks);
	it_require(report.n_ok == 1 && report.n_failed == 2 && report.status == PAGED_ERR_LIMIT, "%u: %s", report.n_ok,
		   report.text);
	it_require(strcmp(report.text, "a ticket of 4294967295 ms, and max-ticket-time is 2000 ms") == 0, "%s",
		   report.text);
	user_end(&attacker);
	report = user_start(&attacker, ATTACKER, give_by_default);
	it_require(report.n_ok == 1, "%s", report.text);
	user_end(&attacker);
	it_require(it_wait(has_no_sequences, NULL));
	teardown();
}

/* Publishes prompts of four pages, and pins each. */
static void
pin_prompts(struct report *report, struct worker_fixture *worker, uint32_t n, uint32_t seconds)
{
	for (uint32_t i = 0; i < n; i++) {
		struct prompt prompt = prompt_make(i, 16);
		struct paged_prefix prefix = prompt_prefix(&prompt, 16);
		enum paged_status status;
		paged_seq_id seq;

		seq = prompt_compute(worker, &prompt);
		worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
		status = paged_prefix_pin(worker->pool, &prefix, seconds, NULL);
		report_add(report, status, paged_client_error(worker->client));
	}
}

static void
pin_too_much(struct report *report)
{
	struct worker_fixture worker;

	worker_open(&worker, NULL, 0);
	pin_prompts(report, &worker, 4, 24 * 3600);
}

static void
pin_one(struct report *report)
{
	struct worker_fixture worker;

	worker_open(&worker, NULL, 0);
	pin_prompts(report, &worker, 1, 24 * 3600);
}

static void
pin_for_too_long(struct report *report)
{
	struct worker_fixture worker;

	worker_open(&worker, NULL, 0);
	pin_prompts(report, &worker, 1, 24 * 3600 + 1);
}

/* Ends the pins that it can. */
static void
unpin(struct report *report)
{
	struct worker_fixture worker;

	worker_open(&worker, NULL, 0);
	pin_prompts(report, &worker, 4, 0);
}

/* The list says who made each of the four pins; their sessions have ended. */
static void
expect_pins(void)
{
	const char *output;
	int exit_code;

	output = it_pagedctl(&exit_code, "pins", NULL);
	it_require(exit_code == 0 && strncmp(output, "POOL  PIN  PAGE ", 16) == 0 &&
			   strstr(output, " TENANT ") != NULL && strstr(output, "16  uid 61001 ") != NULL &&
			   strstr(output, "16  uid 61002 ") != NULL,
		   "%s", output);
	output = it_pagedctl(&exit_code, "--json", "quota", NULL);
	it_require(exit_code == 0 && strstr(output, "\"tenant\": \"uid 61001\"") != NULL &&
			   strstr(output, "\"pins\": 3") != NULL && strstr(output, "\"max_pin_pages\": 12") != NULL &&
			   strstr(output, "\"limit\": null") != NULL,
		   "%s", output);
}

/* An administrator ends the pin of another: the fourth one, as the attacker's are 1 to 3. */
static void
expect_unpin(void)
{
	const char *output;
	int exit_code;

	output = it_pagedctl(&exit_code, "unpin", "test", "3", NULL);
	it_require(exit_code == 1 && strstr(output, "pool test has no pin 3") != NULL, "%s", output);
	output = it_pagedctl(&exit_code, "unpin", "test", "4", NULL);
	it_require(exit_code == 0 && strcmp(output, "pin 4 of pool test ended\n") == 0, "%s", output);
	it_require(wire_peer_pool_entry().n_pinned == 0, "%u", wire_peer_pool_entry().n_pinned);
	/* The tenants that have ended stay while the index has pages that they published. */
	output = it_pagedctl(&exit_code, "quota", NULL);
	it_require(exit_code == 0 && strstr(output, "uid 61001") != NULL, "%s", output);
	it_pagedctl(&exit_code, "evict", "test", NULL);
	it_require(exit_code == 0, "%d", exit_code);
	output = it_pagedctl(&exit_code, "quota", NULL);
	it_require(exit_code == 0 && strstr(output, "uid") == NULL, "a tenant without anything is listed: %s", output);
}

/* Of 16 pages that may be pinned, a user may pin 12, and no user ends another's pins. */
IT_TEST(pins_are_shared)
{
	struct it_worker attacker, other;
	struct report report;

	setup(USERS PROMPT_POOL(""));
	report = user_start(&attacker, ATTACKER, pin_too_much);
	it_require(report.n_ok == 3 && report.status == PAGED_ERR_QUOTA, "%u: %s", report.n_ok, report.text);
	it_require(strcmp(report.text, "tenant uid 61001, pool test: a pin of 4 pages, with 12 of its other pins and "
				       "holds, exceeds its share of pin-limit (12): end some, or raise user-share or "
				       "pin-limit") == 0,
		   "%s", report.text);
	user_end(&attacker);
	report = user_start(&other, OTHER, pin_one);
	it_require(report.n_ok == 1, "%s", report.text);
	user_end(&other);
	it_require(wire_peer_pool_entry().n_pinned == 12, "%u", wire_peer_pool_entry().n_pinned);
	expect_pins();
	report = user_start(&attacker, ATTACKER, pin_for_too_long);
	it_require(report.n_ok == 0 && report.status == PAGED_ERR_LIMIT && strstr(report.text, "max-pin-time"), "%s",
		   report.text);
	user_end(&attacker);
	report = user_start(&attacker, ATTACKER, unpin);
	it_require(report.n_ok == 4, "%s", report.text);
	user_end(&attacker);
	it_require(wire_peer_pool_entry().n_pinned == 4, "%u", wire_peer_pool_entry().n_pinned);
	expect_unpin();
	it_daemon_stop(&pagedd);
}

/* The share of open tickets is the user's, whatever sessions gave them. */
IT_TEST(tickets_are_shared)
{
	struct it_worker attacker, other;
	struct report report;

	setup(USERS "pool test { layers = 1 kv-heads = 1 head-dim = 16 dtype = f16 page-size = 4\n"
		    " pages = 64 sequences = 4096 max-length = 256 }\n");
	report = user_start(&attacker, ATTACKER, take_all_tickets);
	it_require(report.n_ok == 768 && report.n_failed == 232 && report.status == PAGED_ERR_QUOTA, "%u, %u: %s",
		   report.n_ok, report.n_failed, report.text);
	it_require(strcmp(report.text, "tenant uid 61001: 768 open tickets, and its share is 768: have some adopted or "
				       "cancelled, or raise user-share") == 0,
		   "%s", report.text);
	report = user_start(&other, OTHER, take_all_tickets);
	it_require(report.n_ok == 768, "%u: %s", report.n_ok, report.text);
	user_end(&attacker);
	user_end(&other);
	teardown();
}

/* Opens sessions until one is refused. */
static void
take_all_sessions(struct report *report)
{
	struct wire_control_reply reply;

	do {
		wire_peer_hello(wire_peer_connect_control(), WIRE_ROLE_SESSION, NULL, &reply);
		report_add(report, reply.kind == WIRE_WELCOME ? PAGED_OK : reply.refusal.status,
			   reply.kind == WIRE_WELCOME ? "" : reply.refusal.text);
	} while (reply.kind == WIRE_WELCOME);
}

static void
take_all_observers(struct report *report)
{
	struct wire_control_reply reply;

	do {
		wire_peer_hello(wire_peer_connect_control(), WIRE_ROLE_OBSERVER, NULL, &reply);
		report_add(report, reply.kind == WIRE_WELCOME ? PAGED_OK : reply.refusal.status,
			   reply.kind == WIRE_WELCOME ? "" : reply.refusal.text);
	} while (reply.kind == WIRE_WELCOME);
}

/* The defaults leave others sessions and members; what a process leaves ends with it. */
IT_TEST(sessions_and_members_are_shared)
{
	struct it_worker attacker, other;
	struct report report;

	setup(USERS "max-sessions = 8 max-members = 20\n" POOL);
	report = user_start(&attacker, ATTACKER, take_all_sessions);
	it_require(report.n_ok == 6 && report.status == PAGED_ERR_LIMIT, "%u: %s", report.n_ok, report.text);
	it_require(strncmp(report.text, "tenant uid 61001: 6 sessions, and its share is 6: close some", 60) == 0, "%s",
		   report.text);
	report = user_start(&other, OTHER, take_all_sessions);
	it_require(report.n_ok == 2, "%u: %s", report.n_ok, report.text);
	user_end(&other);
	user_end(&attacker);
	it_require(wire_peer_wait_free(64));
	report = user_start(&attacker, ATTACKER, take_all_observers);
	it_require(report.n_ok == 15 && report.status == PAGED_ERR_LIMIT, "%u: %s", report.n_ok, report.text);
	it_require(strcmp(report.text, "tenant uid 61001: 15 members, and its share is 15: end some, or raise "
				       "user-share or max-members") == 0,
		   "%s", report.text);
	report = user_start(&other, OTHER, take_all_observers);
	it_require(report.n_ok == 5, "%u: %s", report.n_ok, report.text);
	user_end(&attacker);
	user_end(&other);
	teardown();
}

/* What the configuration says of one tenant and of all users. */
IT_TEST(shares_are_configured)
{
	struct it_worker attacker, other;
	struct report report;

	setup(USERS "user-share = 25%\n tenant others { allow-user = 61002 share = 50 % }\n" POOL);
	report = user_start(&attacker, ATTACKER, take_all_slots);
	it_require(report.n_ok == 4, "%u: %s", report.n_ok, report.text);
	report = user_start(&other, OTHER, take_all_slots);
	it_require(report.n_ok == 8 && strstr(report.text, "raise share or sequences") != NULL, "%u: %s", report.n_ok,
		   report.text);
	user_end(&attacker);
	user_end(&other);
	teardown();
}

IT_MAIN
