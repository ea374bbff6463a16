/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching: new sessions, joined sessions, and refusals. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/wire_peer.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define NOBODY 65534u

/* Opening a client must be refused with a message that contains the words. */
static void
refused(const struct paged_client_params *params, enum paged_status status, const char *words)
{
	struct toy toy = { 0 };

	toy_expect(&toy, paged_client_open(NULL, params, &toy.client), status);
	it_require(strstr(paged_client_error(toy.client), words) != NULL, "%s", paged_client_error(toy.client));
	toy_close(&toy);
}

static void
become_nobody(void)
{
	it_require(setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "%m");
}

static void
nobody_is_refused(int from, int to, void *argument)
{
	(void)from, (void)to, (void)argument;
	become_nobody();
	refused(NULL, PAGED_ERR_PERM, "uid 65534");
}

static void
nobody_attaches(int from, int to, void *argument)
{
	struct paged_pool *pool;
	struct toy toy;

	(void)from, (void)to, (void)argument;
	become_nobody();
	toy_open(&toy, NULL, 0);
	toy_sequence(&toy, 5);
	toy_expect(&toy, paged_pool_open(toy.client, "shut", &pool), PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(toy.client), "shut") != NULL, "%s", paged_client_error(toy.client));
	toy_expect(&toy, paged_admin_kick(toy.client, 1, 0), PAGED_ERR_PERM);
	toy_close(&toy);
}

/* A daemon whose runtime directory others can reach. */
static void
public_daemon(struct it_daemon *daemon, const char *allow)
{
	char configuration[1024];

	snprintf(configuration, sizeof(configuration),
		 "%s\n%s pool shut {\n layers = 1\n kv-heads = 1\n head-dim = 16\n pages = 4\n allow-user = { 12345 "
		 "}\n}\n",
		 allow, toy_configuration);
	it_daemon_start(daemon, configuration, NULL, NULL);
	it_require(chmod(daemon->dir, 0711) == 0, "%m");
}

IT_TEST(wrong_uid_by_policy)
{
	struct it_daemon daemon;
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	public_daemon(&daemon, "allow-user = { 12345 }");
	it_fork(&worker, nobody_is_refused, NULL);
	it_join(&worker);
	it_require(it_daemon_logged(&daemon, "uid 65534"));
	it_daemon_stop(&daemon);
}

static void
nobody_is_kept_out(int from, int to, void *argument)
{
	(void)from, (void)to, (void)argument;
	become_nobody();
	refused(NULL, PAGED_ERR_PERM, "no permission to connect as uid 65534");
}

/* Without any list others do not even reach the socket. */
IT_TEST(wrong_uid_by_default)
{
	struct it_daemon daemon;
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	it_require(chmod(daemon.dir, 0711) == 0, "%m");
	it_fork(&worker, nobody_is_kept_out, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(other_uid_allowed_and_one_pool_shut)
{
	struct it_daemon daemon;
	struct it_worker worker;
	struct toy toy;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	public_daemon(&daemon, "allow-user = { 65534 }");
	it_fork(&worker, nobody_attaches, NULL);
	it_join(&worker);
	toy_observe(&toy);
	toy_wait_free(&toy, "toy", 5000);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

/* Uses the raw protocol, because the library sends only its own version. */
IT_TEST(wrong_version)
{
	struct wire_control_request hello = { .kind = WIRE_HELLO,
					      .hello = { .version_major = WIRE_VERSION_MAJOR + 1 } };
	struct it_daemon daemon;
	int fd;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	fd = raw_connect();
	raw_tell_request(fd, &hello);
	raw_expect_refusal(fd, PAGED_ERR_VERSION, "version 1.0 of the protocol, the client 2.0");
	it_daemon_stop(&daemon);
}

static void
attach_and_go(int from, int to, void *argument)
{
	struct toy toy;

	(void)from, (void)to, (void)argument;
	toy_open(&toy, NULL, 0);
	toy_sequence(&toy, 5);
	toy_close(&toy);
}

/* Children of this process live in the new namespace, and so the daemon does not see the process itself. */
IT_TEST(foreign_pid_namespace)
{
	struct it_daemon daemon;
	struct it_worker worker;

	if (unshare(CLONE_NEWPID) != 0)
		it_skip("unshare(CLONE_NEWPID): %s", strerror(errno));
	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	refused(NULL, PAGED_ERR_PERM, "PID namespace");
	it_fork(&worker, attach_and_go, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon);
	fflush(stdout);
	_exit(0); /* LeakSanitizer's helper would live in the new namespace too, and not see us */
}

/* In a chroot the runtime directory has another path, as it may have in a container. */
static void
attaches_at_another_path(int from, int to, void *argument)
{
	const struct it_daemon *daemon = argument;
	struct toy toy = { 0 };

	(void)from, (void)to;
	it_require(chroot(daemon->dir) == 0 && chdir("/") == 0, "%m");
	toy_ok(&toy, paged_client_open("/run", NULL, &toy.client));
	toy_ok(&toy, paged_client_ping(toy.client));
	paged_client_close(toy.client);
	toy.client = NULL;
	toy_ok(&toy, paged_client_open("run", NULL, &toy.client));
	paged_client_close(toy.client);
	_exit(0); /* LeakSanitizer needs /proc */
}

IT_TEST(runtime_directory_at_another_path)
{
	struct it_daemon daemon;
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root for chroot()");
	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	it_fork(&worker, attaches_at_another_path, &daemon);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(no_daemon)
{
	setenv("PAGED_RUNTIME_DIR", "/nonexistent/paged", 1);
	refused(NULL, PAGED_ERR_NO_DAEMON, "/nonexistent/paged");
}

IT_TEST(no_such_pool)
{
	struct it_daemon daemon;
	struct paged_pool *pool;
	struct toy toy;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&toy, NULL, 0);
	toy_expect(&toy, paged_pool_open(toy.client, "bear", &pool), PAGED_ERR_NOENT);
	it_require(strstr(paged_client_error(toy.client), "toy") != NULL, "%s", paged_client_error(toy.client));
	toy_sequence(&toy, 5);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

IT_TEST(two_clients_of_one_process)
{
	uint32_t tokens = 0;
	struct it_daemon daemon;
	struct toy a, b;
	paged_seq_id seq;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&a, NULL, 0);
	toy_open(&b, NULL, 0);
	it_require(paged_client_session(a.client) != paged_client_session(b.client));
	seq = toy_sequence(&a, 8);
	toy_write(&a, seq, 0, 8, 1);
	toy_expect(&b, seqs_truncate(b.client, 1, &seq, &tokens), PAGED_ERR_PERM);
	toy_expect(&b, paged_seq_erase(b.client, 1, &seq), PAGED_ERR_PERM);
	toy_ok(&b, toy_plan(&b, seq, 7, 8, 0));
	toy_expect(&b, toy_append(&b, 0, 7, 8, 2), PAGED_ERR_PERM);
	toy_close(&a);
	it_require(toy_pool(&b, "toy").n_free == TOY_PAGES, "a clean close gives pages back at once");
	toy_sequence(&b, 8);
	toy_check(&b);
	toy_close(&b);
	it_daemon_stop(&daemon);
}

static void
forked_child(int from, int to, void *argument)
{
	struct toy *toy = argument, own;
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_pool_info pool_info = { .struct_size = sizeof(pool_info) };
	struct paged_daemon_info status = { .struct_size = sizeof(status) };
	struct paged_client *client = toy->client;
	paged_seq_id seq;

	(void)to;
	it_hear(from, &seq, sizeof(seq));
	toy_expect(toy, seqs_create(toy->client, toy->pool, 1, &seq), PAGED_ERR_FORK);
	toy_expect(toy, seqs_reserve(toy->client, 1, &seq, (uint32_t[]){ 8 }), PAGED_ERR_FORK);
	toy_expect(toy, seqs_truncate(toy->client, 1, &seq, (uint32_t[]){ 0 }), PAGED_ERR_FORK);
	toy_expect(toy, paged_seq_erase(toy->client, 1, &seq), PAGED_ERR_FORK);
	toy_expect(toy, paged_seq_read(toy->pool, seq, &info, NULL, 0), PAGED_ERR_FORK);
	toy_expect(toy, paged_pool_get_info(toy->pool, &pool_info), PAGED_ERR_FORK);
	toy_expect(toy, toy_plan(toy, seq, 0, 1, 0), PAGED_ERR_FORK);
	toy_expect(toy, toy_append(toy, 0, 0, 1, 1), PAGED_ERR_FORK);
	toy_expect(toy, paged_batch_validate(toy->batch), PAGED_ERR_FORK);
	toy_expect(toy, paged_client_dispatch(client), PAGED_ERR_FORK);
	toy_expect(toy, paged_admin_status(client, &status), PAGED_ERR_FORK);
	toy_close(toy);
	toy_open(&own, NULL, 0);
	toy_sequence(&own, 8);
	toy_close(&own);
}

IT_TEST(fork_then_use_and_close_in_the_child)
{
	float before[TOY_LAYERS * TOY_OUT], after[TOY_LAYERS * TOY_OUT];
	struct it_daemon daemon;
	struct it_worker worker;
	paged_seq_id seq;
	struct toy toy;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&toy, NULL, 0);
	seq = toy_sequence(&toy, 8);
	toy_write(&toy, seq, 0, 8, 1);
	toy_read(&toy, seq, 8, before);
	it_fork(&worker, forked_child, &toy);
	it_say(worker.to, &seq, sizeof(seq));
	it_join(&worker);
	toy_ok(&toy, paged_client_dispatch(toy.client));
	toy_read(&toy, seq, 8, after);
	it_require(memcmp(before, after, sizeof(before)) == 0);
	toy_ok(&toy, seqs_reserve(toy.client, 1, &seq, (uint32_t[]){ 16 }));
	toy_check(&toy);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

IT_TEST(join_token)
{
	struct paged_client_params params = toy_params("rank");
	struct it_daemon daemon;
	struct toy first, rank;
	char token[128];

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&first, NULL, 0);
	snprintf(token, sizeof(token), "%s", paged_client_join_token(first.client));
	it_require(strlen(token) == 32, "%zu", strlen(token));
	params.join_token = token;
	toy_open(&rank, &params, 0);
	it_require(paged_client_session(rank.client) == paged_client_session(first.client));
	it_require(paged_client_join_token(rank.client)[0] == '\0');
	toy_close(&rank);
	toy_ok(&first, paged_client_dispatch(first.client));

	token[0] = token[0] == '0' ? '1' : '0';
	refused(&params, PAGED_ERR_GONE, "join token");
	params.join_token = "no token at all";
	refused(&params, PAGED_ERR_INVALID, "join_token");
	token[0] = token[0] == '0' ? '1' : '0';
	params.join_token = token;
	toy_close(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(observer)
{
	struct it_daemon daemon;
	struct toy toy, worker;
	paged_seq_id seq, own;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&worker, NULL, 0);
	seq = toy_sequence(&worker, 8);
	toy_observe(&toy);
	it_require(paged_client_session(toy.client) == 0);
	it_require(paged_client_join_token(toy.client)[0] == '\0');
	toy_expect(&toy, seqs_create(toy.client, toy.pool, 1, &own), PAGED_ERR_PERM);
	toy_expect(&toy, paged_seq_erase(toy.client, 1, &seq), PAGED_ERR_PERM);
	toy_ok(&toy, paged_seq_read(toy.pool, seq, NULL, NULL, 0));
	toy_check(&toy);
	toy_close(&toy);
	toy_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	toy_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
