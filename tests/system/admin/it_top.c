/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagedctl top, driven in a terminal of tmux: what it shows in 80 x 24, keys, other sizes, the daemon's death and
 * return, terminals that it cannot use; top --once as text and JSON.
 */
#include "config.h"

#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"
#include "tests/system/admin/terminal_fixture.h"

#define PREFIX_TOKENS 16

static const char pools_config[] = "pool test {\n" WORKER_POOL_SETTINGS " free-pages = 0\n}\n" SMALL_POOL_CONFIG;

static void
begin(struct it_daemon *daemon)
{
	setenv("LC_ALL", "C.UTF-8", 1);
	setlocale(LC_CTYPE, "C.UTF-8");
	it_daemon_start(daemon, pools_config, NULL, NULL);
}

static void
worker_named(struct worker_fixture *worker, const char *name)
{
	struct paged_client_params params = worker_params(name);

	worker_attach(worker, &params);
	worker_ok(worker, paged_pool_open(worker->client, "test", &worker->pool));
}

/* Leaves the pages of a prefix in the cache, and looks for the prefix once more. */
static void
prefix_publish(struct worker_fixture *worker)
{
	uint32_t tokens[PREFIX_TOKENS] = { 1, 2, 3 }, n_shared;
	const struct paged_prefix prefix = { .struct_size = sizeof(prefix),
					     .tokens = tokens,
					     .n_tokens = PREFIX_TOKENS };
	const struct paged_start start = { .prefix = &prefix, .reserve = PREFIX_TOKENS };
	paged_seq_id seq;

	for (int i = 0; i < 2; i++) {
		worker_ok(worker, paged_seq_start(worker->pool, 1, &start, &seq, &n_shared));
		worker_ok(worker,
			  paged_seq_publish(worker->pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
		worker_ok(worker, paged_client_ping(worker->client));
		worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
	}
	it_require(n_shared > 0);
}

struct fixture {
	struct it_daemon daemon;
	struct worker_fixture writer, ghost, zeta;
};

/* 8 referenced pages in 2 sequences, 4 cached, 3 in quarantine of a kicked session, and a drained session without
 * pages. */
static void
fixture_begin(struct fixture *fixture)
{
	begin(&fixture->daemon);
	worker_named(&fixture->writer, "wörker");
	worker_create_seq(&fixture->writer, 16);
	worker_create_seq(&fixture->writer, 16);
	prefix_publish(&fixture->writer);
	worker_named(&fixture->ghost, "ghost");
	worker_create_seq(&fixture->ghost, 12);
	worker_ok(&fixture->writer,
		  paged_admin_kick(fixture->writer.client, paged_client_session(fixture->ghost.client), 0));
	worker_named(&fixture->zeta, "zeta");
	worker_ok(&fixture->writer,
		  paged_admin_drain(fixture->writer.client, paged_client_session(fixture->zeta.client)));
}

static void
fixture_end(struct fixture *fixture)
{
	worker_close(&fixture->zeta);
	worker_close(&fixture->ghost);
	worker_close(&fixture->writer);
	it_daemon_stop(&fixture->daemon);
}

IT_TEST(page_of_80_x_24)
{
	struct fixture fixture;
	const char *line;

	fixture_begin(&fixture);
	terminal_start(&fixture.daemon, "80", "24", "TOP -d 0.2");
	screen_wait("zeta");
	screen_wait("ended");
	screen_expect_size(80, 24);
	it_require(strstr(screen_line("zeta"), "draining") != NULL, "%s", screen);
	line = screen_line("wörker");
	it_require(strstr(line, " 2        8 ") != NULL && strstr(line, "active") != NULL, "%s", line);
	it_require(strstr(screen_line("test "), "test                   8       4           3      49 "), "%s",
		   screen_line("test "));
	/* 59 columns for 64 pages: 7.4, 3.7, 2.8 and the rest.  2 of 32 sequences. */
	line = screen_line(" 64 pages, tables 6 %");
	it_require(text_count(line, "█") == 7 && text_count(line, "▒") == 3 && text_count(line, "×") == 2 &&
			   text_count(line, "·") == 47,
		   "%s", line);
	it_require(strstr(screen, "█ referenced  ▒ cached  × quarantined  · free") != NULL, "%s", screen);
	/* Half of the tokens looked for were found, since the start; none in the last interval. */
	screen_wait(" -  50 %");
	it_require(strstr(screen, " requests/s, ") != NULL && strstr(screen, ", p50 ≤ ") != NULL, "%s", screen);
	it_require(strstr(tmux("capture-pane", "-p", "-e", NULL), "\033[32m") != NULL, "no colour");
	screen_keys("q");
	screen_wait("ended with 0");
	terminal_stop();
	fixture_end(&fixture);
}

IT_TEST(keys_sort_filter_and_help)
{
	struct fixture fixture;

	fixture_begin(&fixture);
	terminal_start(&fixture.daemon, "80", "24", "NO_COLOR=1 TOP -d 0.2");
	screen_wait("zeta");
	for (const char *color = "1236"; *color != '\0'; color++) {
		char sequence[] = { '\033', '[', '3', *color, 'm', '\0' };

		it_require(strstr(tmux("capture-pane", "-p", "-e", NULL), sequence) == NULL, "NO_COLOR, and colour %c",
			   *color);
	}
	screen_wait_order("wörker", "ghost"); /* by id */
	screen_keys("n");
	screen_wait_order("ghost", "wörker"); /* by name */
	screen_keys("r");
	screen_wait_order("wörker", "ghost");
	screen_keys("p");
	screen_wait_order("zeta", "wörker"); /* by pages, reversed */
	screen_keys("r");
	screen_wait_order("wörker", "zeta");

	screen_keys("/");
	screen_wait("show names with: _");
	screen_keys("xör");
	screen_wait("show names with: xör_");
	screen_keys("BSpace");
	screen_keys("BSpace");
	screen_keys("BSpace");
	screen_keys("wö");
	screen_keys("Enter");
	screen_wait("only names with \"wö\"");
	screen_wait_gone("zeta");
	screen_wait("wörker");
	screen_keys("Escape");
	screen_wait("zeta");
	screen_keys("/");
	screen_keys("test");
	screen_keys("Enter");
	screen_wait_gone("zeta");
	screen_wait_gone("\np ");
	screen_wait(" 64 pages");
	screen_keys("Escape");
	screen_wait("\np ");

	screen_keys("h");
	screen_wait("Press a key.");
	screen_keys("q"); /* leaves the help, not the program */
	screen_wait("zeta");
	screen_keys("C-c");
	screen_wait("ended with 0");
	terminal_stop();
	fixture_end(&fixture);
}

enum { N_SESSIONS = 30 };

IT_TEST(other_sizes)
{
	static struct worker_fixture workers[N_SESSIONS];
	struct it_daemon daemon;
	char name[32];

	begin(&daemon);
	for (int i = 0; i < N_SESSIONS; i++) {
		snprintf(name, sizeof(name), "worker-%02d", i);
		worker_named(&workers[i], name);
	}
	terminal_start(&daemon, "80", "24", "TOP -d 0.2");
	screen_wait("worker-00");
	screen_expect_size(80, 24);
	it_require(strstr(screen, "worker-29") == NULL, "%s", screen);
	screen_keys("Down");
	screen_wait_gone("worker-00");
	for (int i = 0; i < 4; i++)
		screen_keys("NPage");
	screen_wait("worker-29");
	it_require(strstr(screen, "h help") != NULL, "the last line is lost:\n%s", screen);
	for (int i = 0; i < 4; i++)
		screen_keys("PPage");
	screen_wait("worker-00");

	tmux("resize-window", "-x", "132", "-y", "50", NULL);
	screen_wait("worker-29");
	screen_expect_size(132, 50);
	tmux("resize-window", "-x", "40", "-y", "6", NULL);
	screen_wait_gone("worker-00");
	screen_expect_size(40, 6);
	tmux("resize-window", "-x", "80", "-y", "24", NULL);
	screen_wait("worker-05");
	screen_expect_size(80, 24);
	screen_keys("q");
	screen_wait("ended with 0");
	terminal_stop();
	for (int i = 0; i < N_SESSIONS; i++)
		worker_close(&workers[i]);
	it_daemon_stop(&daemon);
}

IT_TEST(daemon_dies_and_returns)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	char process[64];

	begin(&daemon);
	worker_named(&worker, "before");
	terminal_start(&daemon, "80", "24", "TOP -d 0.2");
	screen_wait("before");
	/* A daemon that hangs; keys work meanwhile. */
	kill(daemon.pid, SIGSTOP);
	screen_wait("no answer");
	screen_keys("h");
	screen_wait("Press a key.");
	screen_keys("h");
	kill(daemon.pid, SIGCONT);
	screen_wait("before");

	it_daemon_kill(&daemon);
	screen_wait("pagedd ended at ");
	it_require(strstr(screen, "before") != NULL, "the last numbers stay:\n%s", screen);
	worker_close(&worker);
	it_daemon_restart(&daemon, NULL, NULL);
	screen_wait_gone("pagedd ended at ");
	snprintf(process, sizeof(process), "process %d, up", (int)daemon.pid);
	screen_wait(process);
	it_require(strstr(screen, "before") == NULL, "%s", screen);
	worker_named(&worker, "after");
	screen_wait("after");
	screen_keys("q");
	screen_wait("ended with 0");
	terminal_stop();
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(terminals_that_cannot)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	begin(&daemon);
	terminal_start(&daemon, "120", "24", "TERM=dumb TOP");
	screen_wait("ended with 1");
	it_require(strstr(screen, "pagedctl: the terminal dumb (TERM) cannot move its cursor; use top --once\n"), "%s",
		   screen);
	terminal_stop();
	terminal_start(&daemon, "120", "24", "env -u TERM TOP");
	screen_wait("ended with 1");
	it_require(strstr(screen, "pagedctl: TERM is not set, so that top cannot use the terminal; use top --once\n"),
		   "%s", screen);
	terminal_stop();
	terminal_start(&daemon, "120", "24", "TERM=no-such TOP");
	screen_wait("ended with 1");
	it_require(strstr(screen, "pagedctl: there is no description of the terminal no-such (TERM); use top --once\n"),
		   "%s", screen);
	terminal_stop();

	output = it_pagedctl(&code, "top", (char *)NULL);
	it_require(code == 1 && strcmp(output, "pagedctl: top needs a terminal; use top --once\n") == 0, "%s", output);
	output = it_pagedctl(&code, "top", "--json", (char *)NULL);
	it_require(code == 2 && strstr(output, "top --json goes with --once") != NULL, "%s", output);
	output = it_pagedctl(&code, "--once", "pools", (char *)NULL);
	it_require(code == 2 && strstr(output, "--once and --delay go with top") != NULL, "%s", output);
	it_daemon_stop(&daemon);
	output = it_pagedctl(&code, "top", "--once", (char *)NULL);
	it_require(code == 3, "%d: %s", code, output);
}

static double
json_number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	it_require(json_is_number(value), "%s", name);
	return json_number_value(value);
}

static void
once_expect_json(void)
{
	const char *output;
	const json_t *pool;
	json_error_t error;
	json_t *root;
	int code;

	output = it_pagedctl(&code, "top", "--once", "--json", "-d", "0.2", (char *)NULL);
	root = json_loads(output, 0, &error);
	it_require(code == 0 && root != NULL, "%d: %s: %s", code, error.text, output);
	pool = json_array_get(json_object_get(root, "pools"), 0);
	it_require(json_number(pool, "referenced") == 8 && json_number(pool, "cached") == 4 &&
			   json_number(pool, "quarantined") == 3 && json_number(pool, "free") == 49 &&
			   json_number(pool, "pages") == 64,
		   "%s", output);
	it_require(json_is_null(json_object_get(pool, "hit_rate")), "%s", output);
	it_require(json_number(root, "interval_s") >= 0.2 && json_number(root, "requests_per_s") > 0, "%s", output);
	it_require(json_array_size(json_object_get(root, "sessions")) == 3, "%s", output);
	json_decref(root);
}

IT_TEST(once_in_a_pipe)
{
	struct fixture fixture;
	const char *output;
	int code;

	fixture_begin(&fixture);
	output = it_pagedctl(&code, "top", "--once", "-d", "0.2", (char *)NULL);
	snprintf(screen, sizeof(screen), "%s", output);
	it_require(code == 0 && strncmp(output, "pagedd ", 7) == 0 && strchr(output, '\033') == NULL, "%d: %s", code,
		   output);
	it_require(strstr(screen, " \n") == NULL, "blanks at the end of a line:\n%s", screen);
	it_require(text_count(screen_line(" 64 pages"), "█") == 7, "%s", screen);
	it_require(strstr(screen_line("wörker"), " active") != NULL, "%s", screen);
	once_expect_json();

	/* Without UTF-8. */
	setenv("LC_ALL", "C", 1);
	output = it_pagedctl(&code, "top", "--once", "-d", "0.2", (char *)NULL);
	snprintf(screen, sizeof(screen), "%s", output);
	for (const char *byte = screen; *byte != '\0'; byte++)
		it_require((*byte & 0x80) == 0, "%s", screen);
	it_require(strncmp(screen_line(" 64 pages"), "#######===!!...", 15) == 0, "%s", screen);
	it_require(strstr(screen, "w?rker") != NULL, "%s", screen);
	fixture_end(&fixture);
}

IT_MAIN
