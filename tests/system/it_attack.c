/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks by a permitted user on a daemon and on its other users. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "client/pagedclient.h"
#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"

static struct it_daemon daemon_;

IT_TEST(invalid_pool_name_keeps_the_session)
{
	struct paged_client *client;
	struct paged_pool *pool;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p\n", &pool) == PAGED_ERR_INVALID, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

IT_TEST(idle_connections_do_not_block_others)
{
	int fd[200];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	for (int i = 0; i < 200; i++)
		fd[i] = wire_peer_connect_control();
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	for (int i = 0; i < 200; i++)
		close(fd[i]);
	it_daemon_stop(&daemon_);
}

/* Attach and hang up until refused; sends the number of accepted attempts and the refusal. */
static void
attach_until_refused(int from, int to, void *argument)
{
	const uid_t *uid = argument;
	struct wire_control_reply reply;
	uint32_t n;
	char c;

	if (uid != NULL)
		it_require(setresgid(*uid, *uid, *uid) == 0 && setresuid(*uid, *uid, *uid) == 0, "%m");
	for (n = 0;; n++) {
		int fd = wire_peer_connect_control();

		wire_peer_hello(fd, n % 2 ? WIRE_ROLE_SESSION : WIRE_ROLE_OBSERVER, NULL, &reply);
		close(fd);
		if (reply.kind == WIRE_REFUSAL)
			break;
	}
	it_send(to, &n, sizeof(n));
	it_send(to, &reply, sizeof(reply));
	it_receive(from, &c, 1);
}

static void
expect_refusal_after(struct it_worker *worker, uint32_t n_expected, const char *part)
{
	struct wire_control_reply reply;
	uint32_t n;

	it_receive(worker->from, &n, sizeof(n));
	it_receive(worker->from, &reply, sizeof(reply));
	it_require(n == n_expected, "%u", n);
	it_require(reply.refusal.status == PAGED_ERR_LIMIT && strstr(reply.refusal.text, part) != NULL, "%s",
		   reply.refusal.text);
}

static void
worker_finish(struct it_worker *worker)
{
	it_send(worker->to, "x", 1);
	it_join(worker);
}

IT_TEST(member_limit_per_process)
{
	struct it_worker worker;

	it_daemon_start(&daemon_, "max-members = 100\n" SMALL_POOL_CONFIG, NULL, NULL);
	it_fork(&worker, attach_until_refused, NULL);
	expect_refusal_after(&worker, 64, "has 64 members, the maximum for one process");
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	worker_finish(&worker);
	it_daemon_stop(&daemon_);
}

IT_TEST(root_attaches_at_max_members)
{
	uid_t one = 60001, other = 60002;
	struct it_worker first, second;

	if (geteuid() != 0)
		it_skip("needs root, to be others");
	it_daemon_start(
		&daemon_,
		"max-members = 10  max-members-per-user = 7\nallow-user = { \"60001\", \"60002\" }\n" SMALL_POOL_CONFIG,
		NULL, NULL);
	it_require(chmod(daemon_.dir, 0711) == 0);
	it_fork(&first, attach_until_refused, &one);
	expect_refusal_after(&first, 7, "uid 60001 has 7 members, and max-members-per-user is 7");
	it_fork(&second, attach_until_refused, &other);
	expect_refusal_after(&second, 3, "10 members, and max-members is 10");
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES, "root looks");
	worker_finish(&first);
	worker_finish(&second);
	it_daemon_stop(&daemon_);
}

IT_TEST(session_that_kicks_itself_gets_a_reply)
{
	struct wire_request kick = { .kind = WIRE_KICK }, ping = { .kind = WIRE_PING };
	struct wire_reply reply;
	struct wire_peer peer;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_create_seq(&peer, 16);
	kick.kick.session = peer.welcome.welcome.session;
	it_require(wire_peer_call(&peer, &kick, &reply) == PAGED_OK, "%s", reply.text);
	it_require(wire_peer_call(&peer, &kick, &reply) == PAGED_OK, "%s", reply.text);
	it_require(wire_peer_call(&peer, &ping, &reply) == PAGED_ERR_GONE, "status %d: %s", reply.status, reply.text);
	wire_peer_bye(&peer);
	it_require(wire_peer_wait_free(SMALL_POOL_PAGES));
	it_daemon_stop(&daemon_);
}

IT_TEST(invalid_utf8_name_is_escaped_in_listings)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .name = "w\xff\xc2\x9b\xe4x"
						      "\xc3\xa4" };
	struct paged_client *client;
	const char *text;
	int code;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_OK, "%s", paged_client_error(client));
	text = it_pagedctl(&code, "--json", "sessions", NULL);
	it_require(code == 0, "exit code %d: %s", code, text);
	it_require(strstr(text, "\"w????x\xc3\xa4\"") != NULL, "%s", text);
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

static unsigned int
count_lines(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned int n = 0;
	int c;

	it_require(file != NULL, "%m");
	while ((c = getc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

IT_TEST(attach_and_detach_log_is_bounded)
{
	const struct wire_control_request bye = { .kind = WIRE_BYE };

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	for (int i = 0; i < 1000; i++) {
		struct wire_control_reply reply;
		int fd = wire_peer_connect_control();

		wire_peer_hello(fd, WIRE_ROLE_SESSION, NULL, &reply);
		it_require(reply.kind == WIRE_WELCOME);
		wire_peer_send_control(fd, &bye);
		it_require(wire_peer_receive_control(fd, &reply, NULL));
		close(fd);
	}
	it_note("1000 came and went: %u lines", count_lines(daemon_.log));
	it_require(count_lines(daemon_.log) < 2500);
	it_daemon_stop(&daemon_);
}

/* Each of these messages makes the daemon log an error. */
IT_TEST(log_of_protocol_errors_is_rate_limited)
{
	struct wire_request ping = { .kind = WIRE_PING };
	struct wire_reply reply;
	uint64_t began, windows;
	struct wire_peer peer;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	began = it_now_ms();
	for (int i = 0; i < 10000; i++) {
		ping.id = 0;
		wire_peer_send(&peer, &ping);
		wire_peer_receive(&peer, &reply);
		zmq_send(peer.dealer, "a", 1, ZMQ_SNDMORE);
		zmq_send(peer.dealer, "b", 1, 0);
	}
	for (int i = 0; i < 10000; i++) {
		int fd = wire_peer_connect_control();

		wire_peer_send_bytes(fd, "\xff", 1);
		close(fd);
	}
	it_require(wire_peer_call(&peer, &ping, &reply) == PAGED_OK, "%s", reply.text);
	wire_peer_bye(&peer);
	it_note("30000 provocations: %u lines", count_lines(daemon_.log));
	windows = (it_now_ms() - began) / 10000 + 1;
	it_require(count_lines(daemon_.log) < 200 * windows);
	it_daemon_stop(&daemon_);
}

static void
connect_then_exit_in_parent(int from, int to, void *argument)
{
	struct wire_control_reply reply;
	pid_t parent = getpid();
	int fd = wire_peer_connect_control();
	char c;

	(void)argument;
	if (fork() != 0)
		_exit(0);
	while (getppid() == parent)
		usleep(1000);
	it_receive(from, &c, 1); /* the parent has been reaped by now */
	wire_peer_hello(fd, WIRE_ROLE_SESSION, NULL, &reply);
	/* Refused, or accepted and then ended because the pidfd says that the process has ended. */
	c = reply.kind == WIRE_REFUSAL ? reply.refusal.status == PAGED_ERR_GONE
				       : !wire_peer_receive_control(fd, &reply, NULL);
	it_send(to, &c, 1);
	_exit(0);
}

static void
expect_dead_process_refused(const char *const *environment)
{
	struct it_worker worker;
	char c;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, environment ? "tests/daemon/pagedd-faults" : NULL, environment);
	it_fork(&worker, connect_then_exit_in_parent, NULL);
	it_require(waitpid(worker.pid, NULL, 0) == worker.pid);
	it_send(worker.to, "x", 1);
	it_receive(worker.from, &c, 1);
	close(worker.to);
	close(worker.from);
	it_require(c, "this member's death would go unnoticed");
	it_daemon_stop(&daemon_);
}

IT_TEST(socket_of_exited_process_is_refused)
{
	expect_dead_process_refused(NULL);
	expect_dead_process_refused((const char *const[]){ "PAGED_NO_PEERPIDFD=1", NULL });
}

IT_MAIN
