/* SPDX-License-Identifier: Apache-2.0 */
/* pagedctl against a real daemon, and check against a daemon that miscounts. */
#include "config.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

#define OTHER_UID 60001u

/* What pagedctl(8) documents. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_WRONG_USAGE = 2, EXIT_NO_DAEMON = 3, EXIT_CHECK_FAILED = 4 };

static const struct paged_client_params worker_a_params = { .struct_size = sizeof(worker_a_params),
							    .name = "worker-a" };

/* A daemon, and a worker with a sequence of 20 tokens. */
struct check_fixture {
	struct it_daemon daemon;
	struct worker_fixture worker;
	paged_seq_id seq;
	char seq_text[32], session[16], pid[16];
};

static void
check_fixture_open(struct check_fixture *fixture)
{
	it_daemon_start(&fixture->daemon, worker_pool_config, NULL, NULL);
	worker_open(&fixture->worker, &worker_a_params, 0);
	fixture->seq = worker_create_seq(&fixture->worker, 20);
	snprintf(fixture->seq_text, sizeof(fixture->seq_text), "%u.%u", PAGED_SEQ_SLOT(fixture->seq),
		 PAGED_SEQ_GENERATION(fixture->seq));
	snprintf(fixture->session, sizeof(fixture->session), "%u", paged_client_session(fixture->worker.client));
	snprintf(fixture->pid, sizeof(fixture->pid), "%d", (int)getpid());
}

static void
check_fixture_close(struct check_fixture *fixture)
{
	worker_close(&fixture->worker);
	it_daemon_stop(&fixture->daemon);
}

/* The command succeeded and its output contains all these strings. */
#define expect_output(text, code, ...)                                                                 \
	do {                                                                                           \
		const char *const words_[] = { __VA_ARGS__ };                                          \
		it_require((code) == EXIT_DONE, "%d: %s", code, text);                                 \
		for (size_t i_ = 0; i_ < sizeof(words_) / sizeof(words_[0]); i_++)                     \
			it_require(strstr(text, words_[i_]) != NULL, "no %s in %s", words_[i_], text); \
	} while (0)

static json_t *
json_parse(const char *text, int code)
{
	json_error_t error;
	json_t *document;

	it_require(code == EXIT_DONE || code == EXIT_CHECK_FAILED, "%d: %s", code, text);
	document = json_loads(text, 0, &error);
	it_require(document != NULL, "%s: %s", error.text, text);
	return document;
}

static json_int_t
json_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	it_require(json_is_integer(value), "%s", key);
	return json_integer_value(value);
}

static const char *
json_text(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	it_require(json_is_string(value), "%s", key);
	return json_string_value(value);
}

IT_TEST(pagedctl_prints_tables)
{
	struct check_fixture fixture;
	const char *text;
	int code;

	check_fixture_open(&fixture);
	text = it_pagedctl(&code, "status", NULL);
	expect_output(text, code, "pagedd ", "1 session,", "POOL", "test", "host", "4 KiB", "64", "59");
	text = it_pagedctl(&code, "pools", NULL);
	expect_output(text, code, "test", "256 KiB", "f32", "128");
	text = it_pagedctl(&code, "sessions", NULL);
	expect_output(text, code, fixture.session, "worker-a", fixture.pid, "first", "active");
	text = it_pagedctl(&code, "sequences", "--pool", "test", NULL);
	expect_output(text, code, fixture.seq_text, "worker-a", fixture.pid, "20", "5");
	text = it_pagedctl(&code, "table", fixture.seq_text, NULL);
	expect_output(text, code, fixture.seq_text, "capacity 20", "5 pages");
	text = it_pagedctl(&code, "check", NULL);
	expect_output(text, code, "pool test: 64 pages = 59 free + 5 referenced + 0 cached + 0 quarantined: holds");
	check_fixture_close(&fixture);
}

IT_TEST(pagedctl_prints_json)
{
	uint32_t pages[5];
	struct check_fixture fixture;
	json_t *document, *list;
	const char *text;
	int code;

	check_fixture_open(&fixture);
	worker_ok(&fixture.worker, paged_seq_read(fixture.worker.pool, fixture.seq, NULL, pages, 5));

	text = it_pagedctl(&code, "--json", "status", NULL);
	document = json_parse(text, code);
	it_require(json_number(document, "sessions") == 1 && json_number(document, "pid") == fixture.daemon.pid);
	it_require(strlen(json_text(document, "boot_id")) == 32);
	it_require(json_number(json_array_get(json_object_get(document, "pools"), 0), "free") == 59);
	json_decref(document);

	text = it_pagedctl(&code, "--json", "pools", NULL);
	document = json_parse(text, code);
	list = json_object_get(document, "pools");
	it_require(json_array_size(list) == 1 && json_number(json_array_get(list, 0), "page_size") == WORKER_PAGE_SIZE);
	it_require(strcmp(json_text(json_array_get(list, 0), "pool"), "test") == 0);
	it_require(json_number(json_array_get(list, 0), "kv_heads") > 0);
	json_decref(document);

	text = it_pagedctl(&code, "--json", "sessions", NULL);
	document = json_parse(text, code);
	list = json_object_get(document, "sessions");
	it_require(json_array_size(list) == 1 && json_number(json_array_get(list, 0), "pid") == getpid());
	it_require(json_number(json_array_get(list, 0), "pages") == 5);
	json_decref(document);

	text = it_pagedctl(&code, "--json", "sequences", NULL);
	document = json_parse(text, code);
	list = json_object_get(document, "sequences");
	it_require(json_array_size(list) == 1 && json_number(json_array_get(list, 0), "capacity") == 20);
	it_require(strcmp(json_text(json_array_get(list, 0), "sequence"), fixture.seq_text) == 0);
	json_decref(document);

	text = it_pagedctl(&code, "--json", "table", fixture.seq_text, NULL);
	document = json_parse(text, code);
	it_require(json_array_size(json_object_get(document, "table")) == 5);
	for (size_t i = 0; i < 5; i++)
		it_require(json_integer_value(json_array_get(json_object_get(document, "table"), i)) == pages[i]);
	json_decref(document);

	text = it_pagedctl(&code, "--json", "check", NULL);
	document = json_parse(text, code);
	it_require(code == EXIT_DONE &&
		   json_is_true(json_object_get(json_array_get(json_object_get(document, "pools"), 0), "holds")));
	json_decref(document);
	check_fixture_close(&fixture);
}

IT_TEST(pagedctl_kick)
{
	char expected[128];
	struct check_fixture fixture;
	const char *text;
	int code;

	check_fixture_open(&fixture);
	snprintf(expected, sizeof(expected), "session %s was ended; 5 pages wait for process %s (worker-a)\n",
		 fixture.session, fixture.pid);
	text = it_pagedctl(&code, "kick", fixture.session, NULL);
	it_require(code == EXIT_DONE && strcmp(text, expected) == 0, "%d: %s", code, text);
	snprintf(expected, sizeof(expected), "session %s had ended already; 5 pages wait for process %s (worker-a)\n",
		 fixture.session, fixture.pid);
	text = it_pagedctl(&code, "kick", fixture.session, NULL);
	it_require(code == EXIT_DONE && strcmp(text, expected) == 0, "%d: %s", code, text);
	text = it_pagedctl(&code, "status", NULL);
	expect_output(text, code, "59");
	text = it_pagedctl(&code, "sessions", NULL);
	expect_output(text, code, "ended");
	text = it_pagedctl(&code, "check", NULL);
	expect_output(text, code, "59 free + 0 referenced + 0 cached + 5 quarantined: holds");
	worker_expect(&fixture.worker, paged_client_dispatch(fixture.worker.client), PAGED_ERR_GONE);
	check_fixture_close(&fixture);
}

static void
hold_pages(int from, int to, void *argument)
{
	uint32_t session;
	struct worker_fixture worker;

	(void)from, (void)argument;
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 20);
	session = paged_client_session(worker.client);
	it_send(to, &session, sizeof(session));
	for (;;)
		pause();
}

IT_TEST(pagedctl_kick_kill)
{
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture observer;
	uint32_t session;
	const char *text;
	char word[16];
	int code;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, hold_pages, NULL);
	it_receive(child.from, &session, sizeof(session));
	snprintf(word, sizeof(word), "%u", session);
	text = it_pagedctl(&code, "--json", "kick", "--kill", word, NULL);
	it_require(code == EXIT_DONE && strstr(text, "\"killed\": true") != NULL, "%d: %s", code, text);
	it_require(it_wait_signal(&child) == SIGKILL);
	worker_wait_free(&observer, "test");
	text = it_pagedctl(&code, "kick", word, NULL);
	it_require(code == EXIT_FAILED && strstr(text, word) != NULL, "%d: %s", code, text);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* Starts a daemon in the first one's place that runs as another user, and so may not kill this user's processes. */
static void
daemon_restart_unprivileged(struct it_daemon *daemon)
{
	const char *runtime_dir = getenv("PAGED_RUNTIME_DIR"), *path = it_build_path("daemon/pagedd");
	int binary = open(path, O_RDONLY | O_CLOEXEC);
	char *const arguments[] = {
		(char *)path, "--config", daemon->config, "--runtime-dir", (char *)runtime_dir, NULL
	};
	char lock[128];

	it_daemon_stop(daemon);
	it_require(truncate(daemon->log, 0) == 0 && chmod(daemon->dir, 0755) == 0, "%m");
	it_require(chown(runtime_dir, OTHER_UID, OTHER_UID) == 0, "%m");
	snprintf(lock, sizeof(lock), "%s/lock", runtime_dir);
	it_require(unlink(lock) == 0, "%m");
	it_require(chmod(daemon->config, 0644) == 0, "%m");
	daemon->pid = fork();
	it_require(daemon->pid >= 0, "%m");
	if (daemon->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		it_require(freopen(daemon->log, "a", stderr) != NULL, "%m");
		it_require(setresgid(OTHER_UID, OTHER_UID, OTHER_UID) == 0 &&
				   setresuid(OTHER_UID, OTHER_UID, OTHER_UID) == 0,
			   "%m");
		fexecve(binary, arguments, environ);
		_exit(127);
	}
	close(binary);
	it_require(it_daemon_logged(daemon, "ready at "));
}

/* The daemon's user may not kill the worker, which is root's: the command must not claim that it did. */
IT_TEST(pagedctl_kick_kill_without_permission)
{
	struct worker_fixture observer;
	struct it_daemon daemon;
	struct it_worker child;
	char word[16], expected[160];
	uint32_t session;
	const char *text;
	int code;

	if (geteuid() != 0)
		it_skip("needs root to start a daemon of another user");
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	daemon_restart_unprivileged(&daemon);
	it_fork(&child, hold_pages, NULL);
	it_receive(child.from, &session, sizeof(session));
	snprintf(word, sizeof(word), "%u", session);
	text = it_pagedctl(&code, "kick", "--kill", word, NULL);
	snprintf(expected, sizeof(expected),
		 "session %u was ended, but of its processes 0 were killed and 1 not: process %d of uid 0: Operation "
		 "not "
		 "permitted; pagedd runs as uid %u",
		 session, (int)child.pid, OTHER_UID);
	it_require(code == EXIT_FAILED && strstr(text, expected) != NULL, "%d: %s", code, text);
	it_require(strstr(text, "were killed\n") == NULL, "%s", text);
	worker_observe(&observer);
	worker_expect(&observer, paged_admin_kick(observer.client, session, 1), PAGED_ERR_SYSTEM);
	worker_close(&observer);
	text = it_pagedctl(&code, "sessions", NULL);
	it_require(code == EXIT_DONE && strstr(text, "ended") != NULL, "%d: %s", code, text);
	it_kill(&child);
	it_daemon_stop(&daemon);
}

IT_TEST(pagedctl_exit_codes)
{
	struct check_fixture fixture;
	const char *text;
	int code;

	setenv("PAGED_RUNTIME_DIR", "/nonexistent/paged", 1);
	text = it_pagedctl(&code, "status", NULL);
	it_require(code == EXIT_NO_DAEMON && strstr(text, "no daemon at /nonexistent/paged") != NULL, "%d: %s", code,
		   text);
	check_fixture_open(&fixture);
	text = it_pagedctl(&code, "dance", NULL);
	it_require(code == EXIT_WRONG_USAGE && strstr(text, "dance") != NULL, "%d: %s", code, text);
	text = it_pagedctl(&code, "table", "twelve", NULL);
	it_require(code == EXIT_WRONG_USAGE, "%d: %s", code, text);
	text = it_pagedctl(&code, "table", NULL);
	it_require(code == EXIT_WRONG_USAGE, "%d: %s", code, text);
	text = it_pagedctl(&code, "table", "7.7", NULL);
	it_require(code == EXIT_FAILED && strstr(text, "7.7") != NULL, "%d: %s", code, text);
	text = it_pagedctl(&code, "sequences", "--pool", "bear", NULL);
	it_require(code == EXIT_FAILED && strstr(text, "bear") != NULL, "%d: %s", code, text);
	text = it_pagedctl(&code, "--pool", "bear", "check", NULL);
	it_require(code == EXIT_FAILED && strstr(text, "bear") != NULL, "%d: %s", code, text);
	text = it_pagedctl(&code, "--pool", "test", "sessions", NULL);
	it_require(code == EXIT_WRONG_USAGE &&
			   strstr(text, "--pool goes with sequences, table, check and pins") != NULL,
		   "%d: %s", code, text);
	text = it_pagedctl(&code, "--version", NULL);
	expect_output(text, code, PACKAGE_VERSION);
	check_fixture_close(&fixture);
}

/* A monitor that polls every second does not fill the log. */
IT_TEST(status_requests_are_not_logged)
{
	struct it_daemon daemon;
	char log[4096];
	FILE *file;
	int code;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_pagedctl(&code, "status", NULL);
	it_pagedctl(&code, "check", NULL);
	it_require(code == EXIT_DONE);
	it_daemon_stop(&daemon);
	file = fopen(daemon.log, "re");
	it_require(file != NULL, "%s: %m", daemon.log);
	log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
	fclose(file);
	it_require(strstr(log, "ready at") != NULL && strstr(log, "process") == NULL, "%s", log);
}

static void
list_as_nobody(int from, int to, void *argument)
{
	const char *text;
	int code;

	(void)from, (void)to, (void)argument;
	it_require(setgid(65534) == 0 && setuid(65534) == 0, "%m");
	text = it_pagedctl(&code, "sequences", NULL);
	if (code == 126 || code == 127) {
		it_note("not tried: the build tree is closed to uid 65534");
		return;
	}
	expect_output(text, code, "omitted: pool shut: its allow-lists do not include uid 65534", "worker-a");
	text = it_pagedctl(&code, "sequences", "--pool", "shut", NULL);
	it_require(code == EXIT_FAILED && strstr(text, "pool shut: its allow-list") != NULL, "%d: %s", code, text);
}

/* A pool without permission for this user does not hide the others. */
IT_TEST(pools_without_permission_are_omitted)
{
	struct it_daemon daemon;
	struct it_worker child;
	char configuration[1024];
	struct worker_fixture worker;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	snprintf(configuration, sizeof(configuration),
		 "allow-user = 65534\n"
		 "pool shut { layers = 1 kv-heads = 1 head-dim = 16 pages = 4 allow-user = 12345 }\n%s",
		 worker_pool_config);
	it_daemon_start(&daemon, configuration, NULL, NULL);
	it_require(chmod(daemon.dir, 0711) == 0, "%m");
	worker_open(&worker, &worker_a_params, 0);
	worker_create_seq(&worker, 20);
	it_fork(&child, list_as_nobody, NULL);
	it_join(&child);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* One reference count is one too high: the daemon's check and the region's check both find the page. */
IT_TEST(both_checks_find_a_wrong_refcount)
{
	const char *environment[] = { "PAGED_FAULT=corrupt-count", NULL };
	struct paged_check_result daemon_result = { .struct_size = sizeof(daemon_result) },
				  region_result = { .struct_size = sizeof(region_result) };
	const json_t *pool;
	struct it_daemon daemon;
	struct worker_fixture worker;
	json_t *document;
	const char *text;
	int code;

	it_daemon_start(&daemon, worker_pool_config, "tests/daemon/pagedd-faults", environment);
	worker_open(&worker, NULL, 0);
	text = it_pagedctl(&code, "check", NULL);
	it_require(code == EXIT_DONE, "%d: %s", code, text);
	worker_create_seq(&worker, 20);

	worker_ok(&worker, paged_admin_check(worker.client, "test", &daemon_result));
	it_require(!daemon_result.holds && strstr(daemon_result.text, "page") != NULL, "%s", daemon_result.text);
	worker_expect(&worker, paged_pool_check(worker.pool, &region_result), PAGED_OK);
	it_require(!region_result.holds && strstr(region_result.text, "page") != NULL, "%s", region_result.text);

	text = it_pagedctl(&code, "check", NULL);
	it_require(code == EXIT_CHECK_FAILED, "%d: %s", code, text);
	it_require(strstr(text, "DOES NOT HOLD") != NULL && strstr(text, daemon_result.text) != NULL &&
			   strstr(text, region_result.text) != NULL,
		   "%s", text);
	text = it_pagedctl(&code, "--json", "check", NULL);
	document = json_parse(text, code);
	pool = json_array_get(json_object_get(document, "pools"), 0);
	it_require(code == EXIT_CHECK_FAILED && json_is_false(json_object_get(pool, "holds")));
	it_require(json_is_false(json_object_get(json_object_get(pool, "daemon"), "holds")));
	it_require(json_is_false(json_object_get(json_object_get(pool, "region"), "holds")));
	json_decref(document);
	worker_close(&worker);
	it_daemon_kill(&daemon);
}

IT_MAIN
