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

#define NOBODY_UID 65534u

/* Opening a client must be refused with a message that contains the words. */
static void
expect_open_refused(const struct paged_client_params *params, enum paged_status status, const char *words)
{
	struct worker_fixture worker = { 0 };

	worker_expect(&worker, paged_client_open(NULL, params, &worker.client), status);
	it_require(strstr(paged_client_error(worker.client), words) != NULL, "%s", paged_client_error(worker.client));
	worker_close(&worker);
}

static void
drop_to_nobody(void)
{
	it_require(setgid(NOBODY_UID) == 0 && setuid(NOBODY_UID) == 0, "%m");
}

static void
nobody_open_refused(int from, int to, void *argument)
{
	(void)from, (void)to, (void)argument;
	drop_to_nobody();
	expect_open_refused(NULL, PAGED_ERR_PERM, "uid 65534");
}

static void
nobody_worker(int from, int to, void *argument)
{
	struct paged_pool *pool;
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	drop_to_nobody();
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 5);
	worker_expect(&worker, paged_pool_open(worker.client, "shut", &pool), PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(worker.client), "shut") != NULL, "%s", paged_client_error(worker.client));
	worker_expect(&worker, paged_admin_kick(worker.client, 1, 0), PAGED_ERR_PERM);
	worker_expect(&worker, paged_admin_log_level(worker.client, 0, NULL), PAGED_ERR_PERM);
	worker_close(&worker);
}

/* Start a daemon whose runtime directory other users can reach. */
static void
public_daemon_start(struct it_daemon *daemon, const char *allow)
{
	char configuration[1024];

	snprintf(configuration, sizeof(configuration),
		 "%s\n%s pool shut {\n layers = 1\n kv-heads = 1\n head-dim = 16\n pages = 4\n allow-user = { 12345 "
		 "}\n}\n",
		 allow, worker_pool_config);
	it_daemon_start(daemon, configuration, NULL, NULL);
	it_require(chmod(daemon->dir, 0711) == 0, "%m");
}

IT_TEST(uid_not_in_allow_list_is_refused)
{
	struct it_daemon daemon;
	struct it_worker child;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	public_daemon_start(&daemon, "allow-user = { 12345 }");
	it_fork(&child, nobody_open_refused, NULL);
	it_join(&child);
	it_require(it_daemon_logged(&daemon, "uid 65534"));
	it_daemon_stop(&daemon);
}

static void
nobody_connect_refused(int from, int to, void *argument)
{
	(void)from, (void)to, (void)argument;
	drop_to_nobody();
	expect_open_refused(NULL, PAGED_ERR_PERM, "no permission to connect as uid 65534");
}

/* Without allow-user and allow-group, other users cannot reach the socket. */
IT_TEST(other_uids_are_refused_by_default)
{
	struct it_daemon daemon;
	struct it_worker child;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_require(chmod(daemon.dir, 0711) == 0, "%m");
	it_fork(&child, nobody_connect_refused, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

IT_TEST(allow_user_applies_per_pool)
{
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture worker;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	public_daemon_start(&daemon, "allow-user = { 65534 }");
	it_fork(&child, nobody_worker, NULL);
	it_join(&child);
	worker_observe(&worker);
	worker_wait_free(&worker, "test");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Sends the hello itself, because the library sends only its own version. */
IT_TEST(other_major_version_is_refused)
{
	struct wire_control_request hello = { .kind = WIRE_HELLO,
					      .hello = { .version_major = WIRE_VERSION_MAJOR + 1 } };
	struct it_daemon daemon;
	int fd;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &hello);
	wire_peer_expect_refusal(fd, PAGED_ERR_VERSION, "version 2.0 of the protocol, the client 3.0");
	it_daemon_stop(&daemon);
}

static void
attach_and_close(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 5);
	worker_close(&worker);
}

/* Children of this process, the daemon among them, are in the new namespace; the process itself is not. */
IT_TEST(client_in_other_pid_namespace_is_refused)
{
	struct it_daemon daemon;
	struct it_worker child;

	if (unshare(CLONE_NEWPID) != 0)
		it_skip("unshare(CLONE_NEWPID): %s", strerror(errno));
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	expect_open_refused(NULL, PAGED_ERR_PERM, "PID namespace");
	it_fork(&child, attach_and_close, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
	fflush(stdout);
	_exit(0); /* LeakSanitizer's thread would run in the new namespace and not see this process */
}

/* In a chroot the runtime directory has another path, as it may have in a container. */
static void
attaches_at_another_path(int from, int to, void *argument)
{
	const struct it_daemon *daemon = argument;
	struct worker_fixture worker = { 0 };

	(void)from, (void)to;
	it_require(chroot(daemon->dir) == 0 && chdir("/") == 0, "%m");
	worker_ok(&worker, paged_client_open("/run", NULL, &worker.client));
	worker_ok(&worker, paged_client_ping(worker.client));
	paged_client_close(worker.client);
	worker.client = NULL;
	worker_ok(&worker, paged_client_open("run", NULL, &worker.client));
	paged_client_close(worker.client);
	_exit(0); /* LeakSanitizer needs /proc */
}

IT_TEST(runtime_directory_at_another_path)
{
	struct it_daemon daemon;
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root for chroot()");
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_fork(&worker, attaches_at_another_path, &daemon);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(open_without_daemon_fails)
{
	setenv("PAGED_RUNTIME_DIR", "/nonexistent/paged", 1);
	expect_open_refused(NULL, PAGED_ERR_NO_DAEMON, "/nonexistent/paged");
}

IT_TEST(unknown_pool_is_refused)
{
	struct it_daemon daemon;
	struct paged_pool *pool;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_expect(&worker, paged_pool_open(worker.client, "bear", &pool), PAGED_ERR_NOENT);
	it_require(strstr(paged_client_error(worker.client), "test") != NULL, "%s", paged_client_error(worker.client));
	worker_create_seq(&worker, 5);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(clients_of_one_process_have_separate_sessions)
{
	uint32_t tokens = 0;
	struct it_daemon daemon;
	struct worker_fixture a, b;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&a, NULL, 0);
	worker_open(&b, NULL, 0);
	it_require(paged_client_session(a.client) != paged_client_session(b.client));
	seq = worker_create_seq(&a, 8);
	worker_write(&a, seq, 0, 8, 1);
	worker_expect(&b, seqs_truncate(b.client, 1, &seq, &tokens), PAGED_ERR_PERM);
	worker_expect(&b, paged_seq_erase(b.client, 1, &seq), PAGED_ERR_PERM);
	worker_ok(&b, worker_plan(&b, seq, 7, 8, 0));
	worker_expect(&b, worker_append(&b, 0, 7, 8, 2), PAGED_ERR_PERM);
	worker_close(&a);
	it_require(worker_pool_entry(&b, "test").n_free == WORKER_PAGES, "a clean close gives pages back at once");
	worker_create_seq(&b, 8);
	worker_check_pool(&b);
	worker_close(&b);
	it_daemon_stop(&daemon);
}

static void
use_inherited_client(int from, int to, void *argument)
{
	struct worker_fixture *worker = argument, own;
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_pool_info pool_info = { .struct_size = sizeof(pool_info) };
	struct paged_daemon_info status = { .struct_size = sizeof(status) };
	struct paged_client *client = worker->client;
	paged_seq_id seq;

	(void)to;
	it_receive(from, &seq, sizeof(seq));
	worker_expect(worker, seqs_create(worker->client, worker->pool, 1, &seq), PAGED_ERR_FORK);
	worker_expect(worker, seqs_reserve(worker->client, 1, &seq, (uint32_t[]){ 8 }), PAGED_ERR_FORK);
	worker_expect(worker, seqs_truncate(worker->client, 1, &seq, (uint32_t[]){ 0 }), PAGED_ERR_FORK);
	worker_expect(worker, paged_seq_erase(worker->client, 1, &seq), PAGED_ERR_FORK);
	worker_expect(worker, paged_seq_read(worker->pool, seq, &info, NULL, 0), PAGED_ERR_FORK);
	worker_expect(worker, paged_pool_get_info(worker->pool, &pool_info), PAGED_ERR_FORK);
	worker_expect(worker, worker_plan(worker, seq, 0, 1, 0), PAGED_ERR_FORK);
	worker_expect(worker, worker_append(worker, 0, 0, 1, 1), PAGED_ERR_FORK);
	worker_expect(worker, paged_batch_validate(worker->batch), PAGED_ERR_FORK);
	worker_expect(worker, paged_client_dispatch(client), PAGED_ERR_FORK);
	worker_expect(worker, paged_admin_status(client, &status), PAGED_ERR_FORK);
	worker_close(worker);
	worker_open(&own, NULL, 0);
	worker_create_seq(&own, 8);
	worker_close(&own);
}

IT_TEST(inherited_client_is_unusable_after_fork)
{
	float before[WORKER_LAYERS * WORKER_OUT], after[WORKER_LAYERS * WORKER_OUT];
	struct it_daemon daemon;
	struct it_worker child;
	paged_seq_id seq;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 8);
	worker_write(&worker, seq, 0, 8, 1);
	worker_read(&worker, seq, 8, before);
	it_fork(&child, use_inherited_client, &worker);
	it_send(child.to, &seq, sizeof(seq));
	it_join(&child);
	worker_ok(&worker, paged_client_dispatch(worker.client));
	worker_read(&worker, seq, 8, after);
	it_require(memcmp(before, after, sizeof(before)) == 0);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 16 }));
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(join_token_attaches_to_a_session)
{
	struct paged_client_params params = worker_params("rank");
	struct it_daemon daemon;
	struct worker_fixture first, rank;
	char token[128];

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&first, NULL, 0);
	snprintf(token, sizeof(token), "%s", paged_client_join_token(first.client));
	it_require(strlen(token) == 32, "%zu", strlen(token));
	params.join_token = token;
	worker_open(&rank, &params, 0);
	it_require(paged_client_session(rank.client) == paged_client_session(first.client));
	it_require(paged_client_join_token(rank.client)[0] == '\0');
	worker_close(&rank);
	worker_ok(&first, paged_client_dispatch(first.client));

	token[0] = token[0] == '0' ? '1' : '0';
	expect_open_refused(&params, PAGED_ERR_GONE, "join token");
	params.join_token = "no token at all";
	expect_open_refused(&params, PAGED_ERR_INVALID, "join_token");
	token[0] = token[0] == '0' ? '1' : '0';
	params.join_token = token;
	worker_close(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(observer_cannot_allocate)
{
	struct it_daemon daemon;
	struct worker_fixture worker, child;
	paged_seq_id seq, own;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&child, NULL, 0);
	seq = worker_create_seq(&child, 8);
	worker_observe(&worker);
	it_require(paged_client_session(worker.client) == 0);
	it_require(paged_client_join_token(worker.client)[0] == '\0');
	worker_expect(&worker, seqs_create(worker.client, worker.pool, 1, &own), PAGED_ERR_PERM);
	worker_expect(&worker, paged_seq_erase(worker.client, 1, &seq), PAGED_ERR_PERM);
	worker_ok(&worker, paged_seq_read(worker.pool, seq, NULL, NULL, 0));
	worker_check_pool(&worker);
	worker_close(&worker);
	worker_ok(&child, paged_seq_erase(child.client, 1, &seq));
	worker_close(&child);
	it_daemon_stop(&daemon);
}

IT_MAIN
