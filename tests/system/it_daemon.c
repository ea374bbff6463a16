/* SPDX-License-Identifier: Apache-2.0 */
/* Start and stop of the daemon; attach and end of its members. */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"

static const uint8_t no_token[WIRE_TOKEN_SIZE];
static struct it_daemon daemon_;

static unsigned int
count_sockets(void)
{
	DIR *dir = opendir(getenv("PAGED_RUNTIME_DIR"));
	const struct dirent *entry;
	unsigned int n = 0;

	it_require(dir != NULL, "%m");
	while ((entry = readdir(dir)) != NULL)
		n += strncmp(entry->d_name, "rpc-", 4) == 0 || strcmp(entry->d_name, "control") == 0;
	closedir(dir);
	return n;
}

IT_TEST(start_status_and_stop)
{
	struct wire_request request = { .kind = WIRE_GET_STATUS };
	struct wire_reply reply;
	struct wire_peer peer;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_require(memcmp(peer.welcome.welcome.join_token, no_token, sizeof(no_token)) != 0);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.status_report.pid == (uint32_t)daemon_.pid);
	it_require(reply.status_report.n_sessions == 1 && reply.status_report.n_pools == 1);
	it_require(reply.status_report.n_requests == 0, "this one is not counted");
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
	it_require(count_sockets() == 0, "sockets are left");
}

IT_TEST(second_daemon_in_a_directory_is_refused)
{
	const char *argv[] = { "daemon/pagedd", "--config", NULL, "--runtime-dir", NULL, NULL };
	const char *output;
	char expected[64];
	int code;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	argv[2] = daemon_.config;
	argv[4] = getenv("PAGED_RUNTIME_DIR");
	output = it_command(&code, argv);
	it_require(code == 1, "%s", output);
	snprintf(expected, sizeof(expected), "belongs to another pagedd, process %d\n", (int)daemon_.pid);
	it_require(strstr(output, expected) != NULL, "%s", output);
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES, "the first one goes on");
	it_daemon_stop(&daemon_);
}

IT_TEST(restart_removes_stale_sockets)
{
	struct wire_peer peer;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_daemon_kill(&daemon_);
	it_require(count_sockets() == 2);
	it_daemon_restart(&daemon_, NULL, NULL);
	it_require(count_sockets() == 1, "stale sockets are removed");
	wire_peer_close(&peer);
	wire_peer_pool_entry();
	it_daemon_stop(&daemon_);
}

/* The first daemon's files are removed, and a second daemon makes new ones at the same paths. */
static void
expect_second_daemon_unharmed(const char *remove)
{
	struct it_daemon second;
	char command[256];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	snprintf(command, sizeof(command), "rm -r %s%s", getenv("PAGED_RUNTIME_DIR"), remove);
	it_require(system(command) == 0, "%s", command);
	second = daemon_;
	it_daemon_restart(&second, NULL, NULL);
	it_daemon_stop(&daemon_);
	it_require(it_daemon_logged(&second, "/run: its lock file is another one or was removed"));
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES, "the second daemon cannot be reached");
	it_daemon_stop(&second);
	it_require(count_sockets() == 0, "sockets are left");
}

IT_TEST(files_of_a_second_daemon_are_left)
{
	expect_second_daemon_unharmed("");
	expect_second_daemon_unharmed("/*");
}

IT_TEST(invalid_settings_are_refused_in_one_line)
{
	const char *output = it_daemon_start_failing(
		&daemon_, "pool p { layers = 1000\nkv-heads = 1 head-dim = 32\nsize = 500TiB }\n");
	const char *argv[] = { "daemon/pagedd", "--check-config", "--config", "/nonexistent", NULL };
	const char *bad_level[] = { "daemon/pagedd", "--log-level", "loud", "--config", daemon_.config, NULL };
	const char *too_long[] = { "daemon/pagedd", "--config", NULL, "--runtime-dir", NULL, NULL };
	char dir[128];
	int code;

	it_require(strstr(output, "pagedd.conf:3: pool p: size = 500TiB: the ") != NULL, "%s", output);
	it_require(strchr(output, '\n') == output + strlen(output) - 1, "more than a line: %s", output);
	output = it_command(&code, argv);
	it_require(code == 1 && strcmp(output, "/nonexistent: No such file or directory\n") == 0, "%s", output);
	output = it_command(&code, bad_level);
	it_require(code == 2 && strcmp(output, "pagedd: --log-level loud: none of error, warning, info, debug\n") == 0,
		   "%s", output);

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	snprintf(dir, sizeof(dir), "%s/%0*d", daemon_.dir, 50, 0);
	too_long[2] = daemon_.config;
	too_long[4] = dir;
	output = it_command(&code, too_long);
	it_require(code == 1 && strstr(output, "bytes; with more than 64, names of sockets in it are too long") != NULL,
		   "%s", output);
	rmdir(dir);
	it_daemon_stop(&daemon_);
}

/* Checks the configuration of the last daemon against another runtime directory. */
static void
expect_check(const char *runtime_dir, const char *part)
{
	const char *argv[] = { "daemon/pagedd", "--check-config", "--config", daemon_.config,
			       "--runtime-dir", runtime_dir,      NULL };
	const char *output;
	int code;

	output = it_command(&code, argv);
	it_require(code == (part != NULL) && (part == NULL || strstr(output, part) != NULL), "%d: %s", code, output);
}

/* The option precedes the environment, and that the file. */
IT_TEST(runtime_directory_of_the_environment)
{
	const char *argv[] = { "daemon/pagedd", "--check-config", "--config", daemon_.config, NULL, NULL, NULL };
	const char *output;
	FILE *file;
	int code;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_daemon_stop(&daemon_);
	file = fopen(daemon_.config, "w");
	it_require(file != NULL && fputs("runtime-dir = /no/file\n" SMALL_POOL_CONFIG, file) > 0 && fclose(file) == 0);
	output = it_command(&code, argv); /* the variable is the harness's */
	it_require(code == 0, "%s", output);
	setenv("PAGED_RUNTIME_DIR", "/no/variable", 1);
	output = it_command(&code, argv);
	it_require(code == 1 && strstr(output, "runtime directory /no/variable cannot be made") != NULL, "%s", output);
	setenv("PAGED_RUNTIME_DIR", "", 1);
	output = it_command(&code, argv);
	it_require(code == 1 && strstr(output, "runtime directory /no/file cannot be made") != NULL, "%s", output);
	setenv("PAGED_RUNTIME_DIR", "/no/variable", 1);
	argv[4] = "--runtime-dir";
	argv[5] = daemon_.dir;
	output = it_command(&code, argv);
	it_require(code == 0, "%s", output);
}

IT_TEST(check_config_refuses_what_start_refuses)
{
	struct rlimit few_fds = { 512, 512 };
	char dir[128], file[128];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	expect_check(getenv("PAGED_RUNTIME_DIR"), NULL);
	snprintf(dir, sizeof(dir), "%s/new", daemon_.dir);
	expect_check(dir, NULL);
	it_require(access(dir, F_OK) < 0, "it was made");
	snprintf(file, sizeof(file), "%s/%0*d", daemon_.dir, 50, 0);
	expect_check(file, "bytes; with more than 64, names of sockets in it are too long");
	it_require(chdir(daemon_.dir) == 0);
	expect_check(strrchr(file, '/') + 1, "bytes; with more than 64, names of sockets in it are too long");
	expect_check("new", NULL);
	expect_check("log", "it is a file");
	expect_check("no/where", "runtime directory no/where cannot be made: No such file or directory");
	it_require(mkdir(dir, 0700) == 0 && chmod(dir, 0777) == 0);
	expect_check(dir, "mode 777: it must belong to uid");
	it_daemon_stop(&daemon_);
	it_require(setrlimit(RLIMIT_NOFILE, &few_fds) == 0, "%m");
	expect_check(dir, "max-members = 1024 (the default): needs");
}

IT_TEST(stop_waits_for_members_and_refuses_requests)
{
	struct wire_request create = wire_peer_create_request(0, 1, 0), ping = { .kind = WIRE_PING };
	struct wire_control_reply notice;
	struct wire_reply reply;
	struct wire_peer peer;
	int status;

	it_daemon_start(&daemon_, "stop-timeout = 60min\n" SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	kill(daemon_.pid, SIGTERM);
	it_require(wire_peer_receive_control(peer.control, &notice, NULL));
	it_require(notice.kind == WIRE_NOTICE && notice.notice.kind == WIRE_NOTICE_STOPPING);
	it_require(notice.notice.deadline_ms == 3600000);
	it_require(wire_peer_call(&peer, &ping, &reply) == PAGED_OK);
	it_require(wire_peer_call(&peer, &create, &reply) == PAGED_ERR_STOPPING, "%s", reply.text);
	it_require(waitpid(daemon_.pid, &status, WNOHANG) == 0, "it waits");
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

IT_TEST(stop_timeout_ends_the_wait)
{
	struct wire_peer peer;
	uint64_t begin;

	it_daemon_start(&daemon_, "stop-timeout = 300ms\n" SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	begin = it_now_ms();
	it_daemon_stop(&daemon_);
	it_require(it_now_ms() - begin >= 290);
	it_require(count_sockets() == 0);
	wire_peer_close(&peer);
}

IT_TEST(second_signal_ends_the_wait)
{
	struct wire_control_reply notice;
	struct wire_peer peer;

	it_daemon_start(&daemon_, "stop-timeout = 60min\n" SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	kill(daemon_.pid, SIGINT);
	it_require(wire_peer_receive_control(peer.control, &notice, NULL));
	it_daemon_stop(&daemon_);
	wire_peer_close(&peer);
}

/* Attach, reserve pages, report it, and wait to be killed. */
static void
attach_and_hold_pages(int from, int to, void *argument)
{
	struct wire_peer peer;
	char c = 0;

	(void)argument;
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_create_seq(&peer, 40);
	it_send(to, peer.welcome.welcome.join_token, WIRE_TOKEN_SIZE);
	it_receive(from, &c, 1);
	if (c == 'd') { /* close both channels and stay alive */
		wire_peer_close(&peer);
		it_send(to, &c, 1);
		it_receive(from, &c, 1);
	}
}

IT_TEST(sighup_is_ignored)
{
	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	kill(daemon_.pid, SIGHUP);
	it_require(it_daemon_logged(&daemon_, "SIGHUP: ignored; settings are read once, at start"));
	wire_peer_pool_entry();
	it_daemon_stop(&daemon_);
}

IT_TEST(file_size_limit_is_reported)
{
	const struct rlimit limit = { 8 << 20, 8 << 20 };
	const char *output;

	it_require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "%m");
	output = it_daemon_start_failing(&daemon_, "pool p { layers = 1 kv-heads = 1 head-dim = 32 size = 16MiB }\n");
	it_require(strstr(output, ":1: pool p: size = 16MiB: takes a file of 16 MiB, and the limit of a file's size is "
				  "8 MiB (ulimit -f, LimitFSIZE)\n") != NULL,
		   "%s", output);
}

/* A notification socket in the abstract namespace receives this state next. */
static void
expect_state(int fd, const char *state)
{
	char text[128];
	ssize_t n;

	it_require(it_readable(fd), "no %s", state);
	n = recv(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	it_require(strcmp(text, state) == 0, "%s instead of %s", text, state);
}

IT_TEST(systemd_notifications)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), status;
	const char *pagedd = it_build_path("daemon/pagedd");
	char name[64];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_daemon_stop(&daemon_);
	snprintf(name, sizeof(name), "@paged-it-%d", (int)getpid());
	memcpy(address.sun_path + 1, name + 1, strlen(name + 1));
	it_require(bind(fd, (struct sockaddr *)&address,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) == 0,
		   "%m");
	daemon_.pid = fork();
	if (daemon_.pid == 0) {
		setenv("NOTIFY_SOCKET", name, 1);
		setenv("WATCHDOG_USEC", "100000", 1);
		execl(pagedd, pagedd, "--config", daemon_.config, "--runtime-dir", getenv("PAGED_RUNTIME_DIR"),
		      (char *)NULL);
		_exit(127);
	}
	expect_state(fd, "EXTEND_TIMEOUT_USEC=30000000");
	expect_state(fd, "READY=1");
	expect_state(fd, "WATCHDOG=1");
	expect_state(fd, "WATCHDOG=1");
	kill(daemon_.pid, SIGTERM);
	expect_state(fd, "STOPPING=1");
	it_require(waitpid(daemon_.pid, &status, 0) == daemon_.pid && status == 0, "wait status %x", (unsigned)status);
	close(fd);
}

static void
expect_pages_of_killed_member_free(const char *program, const char *const *environment)
{
	struct it_worker worker;
	uint8_t token[WIRE_TOKEN_SIZE];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, program, environment);
	for (int i = 0; i < 5; i++) {
		it_fork(&worker, attach_and_hold_pages, NULL);
		it_receive(worker.from, token, sizeof(token));
		it_require(wire_peer_pool_entry().n_free == 54);
		it_kill(&worker);
		it_require(wire_peer_wait_free(SMALL_POOL_PAGES), "%u free", wire_peer_pool_entry().n_free);
		close(worker.to);
		close(worker.from);
	}
	it_daemon_stop(&daemon_);
}

IT_TEST(pages_of_a_killed_member_are_freed)
{
	expect_pages_of_killed_member_free(NULL, NULL);
}

IT_TEST(pages_are_freed_on_an_older_kernel)
{
	expect_pages_of_killed_member_free(
		"tests/daemon/pagedd-faults",
		(const char *const[]){ "PAGED_NO_PEERPIDFD=1", "PAGED_NO_POPULATE=1", NULL });
}

/* Attach up to the stage, then die. */
static void
die_at_stage(int from, int to, void *argument)
{
	struct wire_control_reply reply;
	struct wire_peer peer;
	int stage = *(int *)argument;

	(void)from, (void)to;
	peer = (struct wire_peer){ .control = wire_peer_connect_control() };
	if (stage >= 1)
		wire_peer_hello(peer.control, WIRE_ROLE_SESSION, NULL, &peer.welcome);
	if (stage >= 2)
		wire_peer_connect_dealer(&peer, peer.welcome.welcome.member, peer.welcome.welcome.token);
	if (stage >= 3)
		wire_peer_create_seq(&peer, 40);
	if (stage >= 4) {
		wire_peer_send_control(peer.control,
				       &(struct wire_control_request){ .kind = WIRE_OPEN_POOL, .open_pool.name = "p" });
		wire_peer_receive_control(peer.control, &reply, NULL);
	}
	if (stage >= 5) { /* requests whose replies are not read */
		static const uint8_t ping[] = { 0x08, 0x01, 0x12, 0x00 };

		for (int i = 0; i < 50; i++)
			zmq_send(peer.dealer, ping, sizeof(ping), ZMQ_DONTWAIT);
	}
	raise(SIGKILL);
}

static bool
fds_are_at_most(void *argument)
{
	return it_count_fds(daemon_.pid) <= *(unsigned int *)argument;
}

static bool __attribute__((unused)) memory_is_at_most(void *kib)
{
	return it_private_kib(daemon_.pid) <= *(const unsigned long *)kib;
}

IT_TEST(deaths_leak_nothing)
{
	enum { STAGES = 6, WARM = 100, TOTAL = 400 };
	unsigned long kib = 0;
	unsigned int fds;

	it_daemon_start(&daemon_, "log-level = warning\n" SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_pool_entry();
	fds = it_count_fds(daemon_.pid);
	for (int i = 0; i < TOTAL; i++) {
		int stage = i % STAGES;
		struct it_worker worker;

		if (i == WARM)
			kib = it_private_kib(daemon_.pid);
		it_fork(&worker, die_at_stage, &stage);
		it_require(waitpid(worker.pid, NULL, 0) == worker.pid);
		close(worker.to);
		close(worker.from);
	}
	it_require(wire_peer_wait_free(SMALL_POOL_PAGES));
	it_require(it_wait(fds_are_at_most, &fds), "%u descriptors, %u before", it_count_fds(daemon_.pid), fds);
	it_require(count_sockets() == 1, "%u files, the control socket alone is wanted", count_sockets());
	it_note("%d deaths: %+ld KiB after the first %d", TOTAL, (long)(it_private_kib(daemon_.pid) - kib), WARM);
#ifndef __SANITIZE_ADDRESS__ /* it retains freed memory */
	kib += 256;
	it_require(it_wait(memory_is_at_most, &kib), "%lu KiB", it_private_kib(daemon_.pid));
#endif
	it_daemon_stop(&daemon_);
}

/* The daemon moves the pages of ended sessions in steps. */
static bool
has_quarantined(void *n)
{
	return wire_peer_pool_entry().n_quarantined == *(uint32_t *)n;
}

IT_TEST(pages_stay_quarantined_while_the_process_lives)
{
	struct it_worker worker;
	uint8_t token[WIRE_TOKEN_SIZE];

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_fork(&worker, attach_and_hold_pages, NULL);
	it_receive(worker.from, token, sizeof(token));
	it_send(worker.to, "d", 1);
	it_receive(worker.from, token, 1);
	it_require(it_daemon_logged(&daemon_, "its control socket closed"));
	it_require(it_wait(has_quarantined, &(uint32_t){ 10 }));
	it_require(wire_peer_pool_entry().n_free == 54, "%u free", wire_peer_pool_entry().n_free);
	it_kill(&worker);
	it_require(wire_peer_wait_free(SMALL_POOL_PAGES));
	it_daemon_stop(&daemon_);
}

IT_TEST(pages_stay_quarantined_until_the_last_member_ends)
{
	struct wire_request create = wire_peer_create_request(0, 1, 0);
	struct wire_control_reply notice;
	struct it_worker worker;
	uint8_t token[WIRE_TOKEN_SIZE];
	struct wire_reply reply;
	struct wire_peer joined;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_fork(&worker, attach_and_hold_pages, NULL);
	it_receive(worker.from, token, sizeof(token));
	wire_peer_attach(&joined, WIRE_ROLE_JOIN, token);
	it_require(memcmp(joined.welcome.welcome.join_token, no_token, sizeof(no_token)) == 0);
	wire_peer_create_seq(&joined, 8);
	it_kill(&worker);
	it_require(wire_peer_receive_control(joined.control, &notice, NULL));
	it_require(notice.kind == WIRE_NOTICE && notice.notice.kind == WIRE_NOTICE_ENDED, "kind %d", notice.kind);
	it_require(wire_peer_call(&joined, &create, &reply) == PAGED_ERR_GONE, "%s", reply.text);
	it_require(it_wait(has_quarantined, &(uint32_t){ 12 }));
	wire_peer_bye(&joined);
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES, "free when the farewell is heard");
	it_daemon_stop(&daemon_);
}

static void
kick_session(bool kill_members)
{
	struct wire_request request = { .kind = WIRE_KICK, .kick.kill = kill_members };
	struct it_worker worker;
	uint8_t token[WIRE_TOKEN_SIZE];
	struct wire_reply reply;
	struct wire_peer admin;

	it_fork(&worker, attach_and_hold_pages, NULL);
	it_receive(worker.from, token, sizeof(token));
	wire_peer_attach(&admin, WIRE_ROLE_OBSERVER, NULL);
	request.kick.session = 1000;
	it_require(wire_peer_call(&admin, &request, &reply) == PAGED_ERR_NOENT, "%s", reply.text);
	request.kick.session = kill_members ? 2 : 1;
	it_require(wire_peer_call(&admin, &request, &reply) == PAGED_OK, "%s", reply.text);
	if (kill_members) {
		it_require(it_wait_signal(&worker) == SIGKILL);
	} else {
		it_require(it_wait(has_quarantined, &(uint32_t){ 10 }));
		it_kill(&worker);
	}
	it_require(wire_peer_wait_free(SMALL_POOL_PAGES));
	wire_peer_bye(&admin);
	it_daemon_logged(&daemon_, "kicked by process");
}

IT_TEST(kick_ends_a_session)
{
	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	kick_session(false);
	kick_session(true);
	it_daemon_stop(&daemon_);
}

/* Attach as a user who is neither the daemon's nor root, and check what the allow-lists permit. */
static void
attach_as_uid(int from, int to, void *argument)
{
	struct wire_control_request open = { .kind = WIRE_OPEN_POOL };
	struct wire_request request = { .kind = WIRE_CHECK };
	struct wire_control_reply answer;
	uid_t uid = *(uid_t *)argument;
	struct wire_reply reply;
	struct wire_peer peer;
	int fd;

	(void)from;
	it_require(setresgid(60000, 60000, 60000) == 0 && setresuid(uid, uid, uid) == 0, "%m");
	fd = wire_peer_connect_control();
	if (uid != 60001) {
		const struct wire_control_request hello = { .kind = WIRE_HELLO,
							    .hello = { .version_major = WIRE_VERSION_MAJOR } };

		wire_peer_send_control(fd, &hello);
		wire_peer_expect_refusal(fd, PAGED_ERR_PERM, "not listed in allow-user or allow-group");
		it_send(to, "x", 1);
		return;
	}
	close(fd);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	strcpy(open.open_pool.name, "q");
	wire_peer_send_control(peer.control, &open);
	it_require(wire_peer_receive_control(peer.control, &answer, NULL));
	it_require(answer.kind == WIRE_REFUSAL && answer.refusal.status == PAGED_ERR_PERM);
	strcpy(open.open_pool.name, "p");
	wire_peer_send_control(peer.control, &open);
	it_require(wire_peer_receive_control(peer.control, &answer, NULL));
	it_require(answer.kind == WIRE_POOL_GRANT);
	wire_peer_create_seq(&peer, 8);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_PERM, "%s", reply.text);
	request = wire_peer_create_request(1, 1, 0);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_PERM, "%s", reply.text);
	request = wire_peer_create_request(2, 1, 0);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_NOENT, "%s", reply.text);
	wire_peer_bye(&peer);
	it_send(to, "x", 1);
}

IT_TEST(allow_lists_apply_to_attach_and_pools)
{
	uid_t listed = 60001, stranger = 60002;
	struct it_worker worker;
	char c;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	it_daemon_start(&daemon_,
			"allow-user = 60001\n" SMALL_POOL_CONFIG
			"pool q { layers = 1 kv-heads = 1 head-dim = 32 pages = 1 allow-user = 60003 }\n",
			NULL, NULL);
	it_require(chmod(daemon_.dir, 0711) == 0);
	it_fork(&worker, attach_as_uid, &listed);
	it_receive(worker.from, &c, 1);
	it_join(&worker);
	it_fork(&worker, attach_as_uid, &stranger);
	it_receive(worker.from, &c, 1);
	it_join(&worker);
	it_daemon_stop(&daemon_);
}

/* The daemon is process 1 of a PID namespace that does not contain this process. */
IT_TEST(process_in_other_pid_namespace_is_refused)
{
	const struct wire_control_request hello = { .kind = WIRE_HELLO,
						    .hello = { .version_major = WIRE_VERSION_MAJOR } };
	int fd;

#ifdef __SANITIZE_ADDRESS__
	it_skip("the leak sanitizer cannot look at process 1");
#endif
	if (unshare(CLONE_NEWPID) < 0)
		it_skip("a PID namespace needs privilege: %m");
	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	fd = wire_peer_connect_control();
	wire_peer_send_control(fd, &hello);
	wire_peer_expect_refusal(fd, PAGED_ERR_PERM, "this process is in another PID namespace");
	it_daemon_stop(&daemon_);
}

IT_TEST(observer_cannot_allocate)
{
	struct wire_request create = wire_peer_create_request(0, 1, 0), check = { .kind = WIRE_CHECK };
	struct wire_reply reply;
	struct wire_peer peer;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_OBSERVER, NULL);
	it_require(peer.welcome.welcome.session == 0 && (peer.welcome.welcome.member & 0x80000000u) != 0);
	it_require(wire_peer_call(&peer, &create, &reply) == PAGED_ERR_PERM, "%s", reply.text);
	it_require(wire_peer_call(&peer, &check, &reply) == PAGED_OK && reply.check_result.holds, "%s", reply.text);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

IT_TEST(large_pool_takes_little_daemon_memory)
{
	it_daemon_start(&daemon_,
			"pool p { layers = 1 kv-heads = 1 head-dim = 8 page-size = 1 dtype = f16 pages = 10000000 "
			"sequences = 100000 max-length = 131072 }\n",
			NULL, NULL);
	it_note("10,000,000 pages, 100,000 slots: %lu KiB resident", it_rss_kib(daemon_.pid));
	it_require(it_rss_kib(daemon_.pid) <= 64 << 10);
	it_daemon_stop(&daemon_);
}

IT_MAIN
