/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics that paged-events serves: their values after real work; slow and hostile clients; daemons that die. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

enum { ANSWER_MAX = 1 << 18, SILENT_CONNECTIONS = 200 };

static struct it_daemon daemon_;
static struct events {
	struct it_worker process;
	char log[128];
	uint16_t port;
} events;

/* The program */

static void
events_run(int from, int to, void *argument)
{
	const char *const *arguments = argument;
	int log = open(events.log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	close(from);
	close(to);
	it_require(log >= 0 && dup2(log, STDERR_FILENO) >= 0, "%m");
	execl(it_build_path("events/paged-events"), "paged-events", "--log-level", "debug", "--metrics-listen",
	      arguments[0], arguments[1], arguments[2], (char *)NULL);
	it_require(false, "%m");
}

/* Finds a text in the log; the result is valid until the next call. */
static const char *
events_find(const char *text)
{
	static char log[1 << 16];
	FILE *file = fopen(events.log, "r");
	size_t n = 0;

	if (file != NULL) {
		n = fread(log, 1, sizeof(log) - 1, file);
		fclose(file);
	}
	log[n] = '\0';
	return strstr(log, text);
}

static bool
events_has_logged(void *text)
{
	return events_find(text) != NULL;
}

static void
events_start(const char *listen_at, const char *option, const char *value)
{
	static const char serving[] = "serving http://";
	const char *arguments[] = { listen_at, option, value }, *end;

	snprintf(events.log, sizeof(events.log), "%s/events.log", daemon_.dir);
	unlink(events.log);
	it_fork(&events.process, events_run, arguments);
	it_require(it_wait(events_has_logged, (void *)serving));
	end = strstr(events_find(serving), "/metrics\n");
	it_require(end != NULL);
	while (end[-1] != ':')
		end--;
	events.port = (uint16_t)atoi(end);
	it_require(events.port != 0);
}

static void
events_stop(void)
{
	it_require(kill(events.process.pid, SIGTERM) == 0);
	it_join(&events.process);
}

/* HTTP */

static struct sockaddr_in
http_address(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(events.port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int
http_connect(void)
{
	const struct sockaddr_in address = http_address();
	const struct timeval limit = { .tv_sec = IT_LIMIT_MS / 1000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	it_require(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0, "%m");
	it_require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0, "%m");
	return fd;
}

/* Sends a request and reads until the server closes the connection; "" if it answers nothing.  Static buffer. */
static const char *
http_send(const char *request, size_t size)
{
	static char answer[ANSWER_MAX];
	size_t n_sent = 0, n = 0;
	int fd = http_connect();
	ssize_t more;

	while (n_sent < size && (more = send(fd, request + n_sent, size - n_sent, MSG_NOSIGNAL)) > 0)
		n_sent += (size_t)more;
	shutdown(fd, SHUT_WR);
	while (n < sizeof(answer) - 1 && (more = recv(fd, answer + n, sizeof(answer) - 1 - n, 0)) > 0)
		n += (size_t)more;
	it_require(more == 0 || errno == ECONNRESET, "the server does not close the connection: %m");
	answer[n] = '\0';
	close(fd);
	return answer;
}

/* The text that a scrape gets. */
static const char *
http_scrape(void)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	const char *answer = http_send(request, strlen(request)), *body = strstr(answer, "\r\n\r\n");

	it_require(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17) == 0 && body != NULL, "%s", answer);
	it_require(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != NULL, "%s", answer);
	return body + 4;
}

/* The value of a sample, which is written as name and labels; the test fails if the text does not have it once. */
static double
sample(const char *text, const char *name)
{
	const char *at = NULL;
	char line[256];
	unsigned int n = 0;

	snprintf(line, sizeof(line), "\n%s ", name);
	for (const char *found = strstr(text, line); found != NULL; found = strstr(found + 1, line)) {
		at = found + strlen(line);
		n++;
	}
	it_require(n == 1, "%u samples %s in:\n%s", n, name, text);
	return strtod(at, NULL);
}

static double
up_now(void)
{
	return sample(http_scrape(), "paged_up");
}

static bool
is_up(void *wanted)
{
	return up_now() == *(const double *)wanted;
}

/* Scrapes with another snapshot than the last one. */
static const char *
http_scrape_new(void)
{
	usleep(250000); /* METRICS_AGE_MS and some time: the values do not change meanwhile */
	return http_scrape();
}

/* Values */

#define POOL_SAMPLE(name) "paged_pool_" name "{pool=\"test\"}"

static void
expect_pool(struct worker_fixture *observer, const char *text)
{
	const struct paged_pool_entry pool = worker_pool_entry(observer, "test");
	const struct {
		const char *name;
		uint64_t value;
	} expected[] = {
		{ "paged_pool_pages{pool=\"test\",state=\"free\"}", pool.n_free },
		{ "paged_pool_pages{pool=\"test\",state=\"referenced\"}", pool.n_referenced },
		{ "paged_pool_pages{pool=\"test\",state=\"cached\"}", pool.n_cached },
		{ "paged_pool_pages{pool=\"test\",state=\"quarantined\"}", pool.n_quarantined },
		{ POOL_SAMPLE("page_size_bytes"), pool.page_bytes },
		{ POOL_SAMPLE("page_size_tokens"), WORKER_PAGE_SIZE },
		{ POOL_SAMPLE("pinned_pages"), pool.n_pinned },
		{ POOL_SAMPLE("referenced_pages_peak"), pool.peak_referenced },
		{ POOL_SAMPLE("sequences"), pool.n_sequences },
		{ POOL_SAMPLE("sequences_peak"), pool.peak_sequences },
		{ POOL_SAMPLE("sequences_limit"), WORKER_SLOTS },
		{ POOL_SAMPLE("page_tables_bytes"), pool.table_used },
		{ POOL_SAMPLE("page_tables_populated_bytes"), pool.table_populated },
		{ POOL_SAMPLE("page_tables_limit_bytes"), pool.table_limit },
		{ POOL_SAMPLE("pages_taken_total"), pool.n_taken },
		{ POOL_SAMPLE("pages_trimmed_total"), pool.n_trimmed },
		{ POOL_SAMPLE("pages_published_total"), pool.n_published },
		{ POOL_SAMPLE("pages_evicted_total"), pool.n_evicted },
		{ POOL_SAMPLE("pages_orphaned_total"), pool.n_orphaned },
		{ POOL_SAMPLE("pages_displaced_total"), pool.n_displaced },
		{ POOL_SAMPLE("publishes_stopped_removed_total"), pool.n_stopped_removed },
		{ POOL_SAMPLE("publishes_stopped_trimmed_total"), pool.n_stopped_trimmed },
		{ POOL_SAMPLE("publishes_stopped_other_total"), pool.n_stopped_other },
		{ POOL_SAMPLE("publishes_stopped_bucket_total"), pool.n_stopped_bucket },
		{ POOL_SAMPLE("sequences_created_total"), pool.n_created },
		{ POOL_SAMPLE("sequences_ended_total"), pool.n_ended },
		{ POOL_SAMPLE("sequences_forked_total"), pool.n_forked },
		{ POOL_SAMPLE("sequences_given_total"), pool.n_given },
		{ POOL_SAMPLE("sequences_adopted_total"), pool.n_adopted },
		{ POOL_SAMPLE("sequences_cancelled_total"), pool.n_cancelled },
		{ POOL_SAMPLE("sequences_expired_total"), pool.n_expired },
		{ POOL_SAMPLE("prefix_starts_total"), pool.n_starts },
		{ POOL_SAMPLE("prefix_tokens_asked_total"), pool.n_tokens_asked },
		{ POOL_SAMPLE("prefix_tokens_found_total"), pool.n_tokens_found },
	};

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		it_require(sample(text, expected[i].name) == (double)expected[i].value, "%s is not %" PRIu64 ":\n%s",
			   expected[i].name, expected[i].value, text);
}

/* Every kind of work once, so that no two numbers of the pool are alike by chance. */
static void
work(struct worker_fixture *worker)
{
	uint32_t tokens[20], length, n_shared;
	const struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = 20 };
	const struct paged_start start = { .prefix = &prefix, .reserve = 24 };
	struct paged_ticket ticket;
	paged_seq_id a, b, children[3];
	size_t n;

	for (uint32_t i = 0; i < 20; i++)
		tokens[i] = i;
	a = worker_create_seq(worker, 20);
	worker_write(worker, a, 0, 20, 1);
	worker_ok(worker, paged_seq_publish(worker->pool, 1, &(struct paged_publish){ .seq = a, .prefix = &prefix }));
	worker_ok(worker, paged_client_ping(worker->client)); /* the publish was sent without waiting */
	worker_ok(worker, paged_seq_start(worker->pool, 1, &start, &b, &n_shared));
	it_require(n_shared == 20);
	worker_ok(worker, paged_batch_fork(worker->batch, 3, (paged_seq_id[]){ b, b, b }, (uint32_t[]){ 20, 20, 20 },
					   children));
	worker_ok(worker, paged_seq_give(worker->pool, 2, children, (uint32_t[]){ 20, 20 }, NULL, &ticket));
	worker_ok(worker, paged_ticket_cancel(worker->client, &ticket));
	worker_ok(worker, paged_seq_give(worker->pool, 1, children, (uint32_t[]){ 20 }, NULL, &ticket));
	worker_ok(worker, paged_seq_adopt(worker->pool, &ticket, 1, children, &length, &n));
	worker_ok(worker, paged_seq_trim(worker->client, 1, &(struct paged_seq_item){ .seq = b, .n_tokens = 8 }));
	worker_ok(worker, paged_seq_erase(worker->client, 2, children));
	worker_expect(worker,
		      paged_seq_create(worker->client, 1,
				       &(struct paged_seq_params){ .pool = worker->pool, .n_tokens = 1000 }, &a),
		      PAGED_ERR_LIMIT);
}

IT_TEST(values)
{
	struct worker_fixture worker, observer;
	const char *text;

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_observe(&observer);
	work(&worker);
	text = http_scrape_new();
	expect_pool(&observer, text);
	it_require(sample(text, "paged_up") == 1 && sample(text, "paged_stopping") == 0);
	it_require(sample(text, "paged_sessions") == 1 && sample(text, "paged_members") == 3);
	it_require(sample(text, "paged_sessions_opened_total") == 1);
	it_require(sample(text, "paged_members_attached_total") == 3);
	it_require(sample(text, POOL_SAMPLE("sequences_given_total")) == 3);
	it_require(sample(text, POOL_SAMPLE("prefix_tokens_found_total")) == 20);
	it_require(sample(text, "paged_requests_total{request=\"create\",status=\"ok\"}") == 1);
	it_require(sample(text, "paged_requests_total{request=\"create\",status=\"limit\"}") == 1);
	it_require(sample(text, "paged_requests_total{request=\"give\",status=\"ok\"}") == 2);
	it_require(sample(text, "paged_requests_total{request=\"kick\",status=\"ok\"}") == 0);
	it_require(sample(text, "paged_request_duration_seconds_count{request=\"create\"}") == 2);
	it_require(sample(text, "paged_request_duration_seconds_bucket{request=\"create\",le=\"+Inf\"}") == 2);
	it_require(sample(text, "paged_request_duration_seconds_sum{request=\"create\"}") > 0);
	it_require(strstr(text, "paged_request_duration_seconds_count{request=\"kick\"}") == NULL);
	it_require(sample(text, "paged_loop_turn_duration_seconds_count") > 10);

	it_kill(&events.process); /* paged-events costs the daemon nothing when it dies */
	worker_check_pool(&observer);
	events_start("127.0.0.1:0", "--pool", "other");
	it_require(strstr(http_scrape(), "pool=\"test\"") == NULL);
	worker_close(&observer);
	worker_close(&worker);
	events_stop();
	it_daemon_stop(&daemon_);
}

/* The output of a command; its exit status must be 0. */
static const char *
command_output(const char *command)
{
	static char output[ANSWER_MAX];
	FILE *pipe = popen(command, "r");
	size_t n;
	int status;

	it_require(pipe != NULL, "%m");
	n = fread(output, 1, sizeof(output) - 1, pipe);
	output[n] = '\0';
	status = pclose(pipe);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %s", command, output);
	return output;
}

/* The Python that has Prometheus's library; NULL: none. */
static const char *
python_with_parser(void)
{
	if (system("python3 -c 'import prometheus_client' 2>/dev/null") == 0)
		return "python3";
	if (system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") == 0)
		return "/usr/bin/python3";
	return NULL;
}

/* What Prometheus's own parsers say about the text, which curl gets; and the dashboard asks for what is in it. */
IT_TEST(parsers)
{
	const char *python = python_with_parser(), *source = getenv("PAGED_SRCDIR");
	struct worker_fixture worker;
	char command[512];

	if (system("command -v curl >/dev/null") != 0)
		it_skip("no curl");
	if (python == NULL)
		it_skip("no Python with prometheus_client");
	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	worker_open(&worker, NULL, 0);
	work(&worker);
	http_scrape_new();
	snprintf(command, sizeof(command), "curl -sS --fail --max-time 20 http://127.0.0.1:%u/metrics >%s/metrics",
		 events.port, daemon_.dir);
	command_output(command);
	if (system("command -v promtool >/dev/null") == 0) {
		snprintf(command, sizeof(command), "promtool check metrics <%s/metrics 2>&1", daemon_.dir);
		it_require(command_output(command)[0] == '\0', "%s", command_output(command));
	}
	snprintf(command, sizeof(command),
		 "%s %s/tests/system/admin/metrics_parse.py %s/metrics %s/examples/grafana/paged.json "
		 "%s/docs/MONITORING.md "
		 "2>&1",
		 python, source, daemon_.dir, source, source);
	it_note("%s", command_output(command));
	worker_close(&worker);
	events_stop();
	it_daemon_stop(&daemon_);
}

/* Clients */

static uint64_t
count_requests(struct worker_fixture *observer)
{
	struct paged_daemon_info info = { .struct_size = sizeof(info) };

	worker_ok(observer, paged_admin_status(observer->client, &info));
	return info.n_requests;
}

static unsigned int events_fds;

/* Its descriptors without connections, once it has attached. */
static void
events_count_fds(void)
{
	static double yes = 1;

	it_require(it_wait(is_up, &yes));
	events_fds = it_count_fds(events.process.pid);
}

static bool
events_has_closed(void *argument)
{
	(void)argument;
	return it_count_fds(events.process.pid) <= events_fds;
}

/*
 * Connections that send a byte of a header now and then, so that none of them is ever idle for long.  Those that the
 * server has closed stay closed.
 */
static void
silent_run(int from, int to, void *argument)
{
	static const char half[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nX-";
	const struct sockaddr_in address = http_address();
	struct pollfd end = { .fd = from, .events = POLLIN };
	int fds[SILENT_CONNECTIONS];

	(void)argument;
	for (int i = 0; i < SILENT_CONNECTIONS; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		it_require(fds[i] >= 0 && (connect(fds[i], (const struct sockaddr *)&address, sizeof(address)) == 0 ||
					   errno == EINPROGRESS),
			   "%m");
	}
	it_send(to, "a", 1);
	for (uint32_t step = 0; poll(&end, 1, 100) == 0; step++)
		for (int i = 0; i < SILENT_CONNECTIONS; i++)
			send(fds[i], step == 0 ? half : "x", step == 0 ? strlen(half) : 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool
events_has_many_connections(void *argument)
{
	(void)argument;
	return it_count_fds(events.process.pid) >= events_fds + 40;
}

/* A connection that is used stays, however many others of its address (on loopback: of all) are not. */
IT_TEST(unused_connections_displace_each_other)
{
	static const char request[] = "HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n";
	const struct sockaddr_in other = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1) };
	const double up = 1;
	struct sockaddr_in to;
	char answer[1024];
	int kept, fds[100];

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	to = http_address();
	kept = http_connect();
	for (int i = 0; i < 100; i++) {
		if (i % 10 == 0) {
			it_require(send(kept, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request));
			it_require(recv(kept, answer, sizeof(answer), 0) > 12, "%m");
			it_require(memcmp(answer, "HTTP/1.1 404", 12) == 0);
		}
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		it_require(bind(fds[i], (const struct sockaddr *)&other, sizeof(other)) == 0, "%m");
		it_require(connect(fds[i], (const struct sockaddr *)&to, sizeof(to)) == 0, "%m");
	}
	/* New ones are served. */
	it_require(it_wait(is_up, (void *)&up));
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	close(kept);
	events_stop();
	it_daemon_stop(&daemon_);
}

/* Connections that never end their requests keep no scrape away, and cost the daemon no request. */
IT_TEST(silent_clients)
{
	struct worker_fixture observer;
	struct it_worker silent;
	uint64_t n_before;
	char byte;

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	worker_observe(&observer);
	events_count_fds();
	n_before = count_requests(&observer);
	it_fork(&silent, silent_run, NULL);
	it_receive(silent.from, &byte, 1);
	it_require(it_wait(events_has_many_connections, NULL));
	it_require(count_requests(&observer) == n_before + 1);
	for (int i = 0; i < 5; i++)
		it_require(sample(http_scrape(), "paged_up") == 1);
	it_require(it_count_fds(events.process.pid) <= events_fds + 64);
	it_send(silent.to, "a", 1);
	it_join(&silent);
	it_require(it_wait(events_has_closed, NULL), "%u descriptors", it_count_fds(events.process.pid));
	worker_close(&observer);
	events_stop();
	it_daemon_stop(&daemon_);
}

/* No number of scrapes costs the daemon more than three requests in METRICS_AGE_MS. */
IT_TEST(many_scrapes)
{
	struct worker_fixture observer;
	uint64_t n_requests, from_ms, passed_ms;

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	worker_observe(&observer);
	n_requests = count_requests(&observer);
	from_ms = it_now_ms();
	for (int i = 0; i < 1000; i++)
		http_scrape();
	passed_ms = it_now_ms() - from_ms;
	n_requests = count_requests(&observer) - n_requests - 1;
	it_require(n_requests <= 3 * (passed_ms / 200 + 2), "%" PRIu64 " requests in %" PRIu64 " ms", n_requests,
		   passed_ms);
	worker_close(&observer);
	events_stop();
	it_daemon_stop(&daemon_);
}

static void
expect_refused(const char *request, size_t size, const char *code)
{
	const char *answer = http_send(request, size);

	it_require(answer[0] == '\0' ||
			   (strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 9, code, strlen(code)) == 0),
		   "%.40s... is answered with %.200s", request, answer);
	it_require(sample(http_scrape(), "paged_up") == 1);
}

#define REFUSED(request, code) expect_refused(request, sizeof(request) - 1, code)

/* Requests that are wrong, too long or no HTTP at all are refused, and the next scrape is served. */
IT_TEST(hostile_requests)
{
	static char big[1 << 20];

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("0", NULL, NULL);
	events_count_fds();
	REFUSED("GET /other HTTP/1.1\r\nHost: x\r\n\r\n", "404");
	REFUSED("GET /metrics/../metrics HTTP/1.1\r\nHost: x\r\n\r\n", "404");
	REFUSED("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405");
	REFUSED("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "405");
	REFUSED("POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "4");
	REFUSED("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "4");
	REFUSED("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", "4");
	REFUSED("GET /metrics\r\n\r\n", "");
	REFUSED("\r\n\r\n\r\n", "4");
	REFUSED("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "4");
	REFUSED("\0\0\0\0\n\n\0", "4");
	memset(big, 'a', sizeof(big));
	memcpy(big, "GET /", 5);
	expect_refused(big, sizeof(big), "4");
	memcpy(big, "GET /metrics HTTP/1.1\r\nX: ", 26);
	expect_refused(big, sizeof(big), "4");
	for (size_t i = 23; i + 6 < sizeof(big); i += 6)
		memcpy(big + i, "X: y\r\n", 6);
	expect_refused(big, sizeof(big), "4");
	/* Many requests at once, without reading an answer. */
	for (size_t i = 0; i + 30 < sizeof(big); i += 30)
		memcpy(big + i, "GET /metrics HTTP/1.1\r\nA: b\r\n\r\n", 30);
	http_send(big, 30 * 2000);
	it_require(sample(http_scrape(), "paged_up") == 1);
	it_require(it_wait(events_has_closed, NULL), "%u descriptors", it_count_fds(events.process.pid));
	events_stop();
	it_daemon_stop(&daemon_);
}

/* Daemons that die, stall and come back */

static bool
is_up_without_sequences(void *argument)
{
	(void)argument;
	return strstr(http_scrape(), POOL_SAMPLE("sequences_created_total") " 0\n") != NULL;
}

IT_TEST(daemon_comes_and_goes)
{
	static double yes = 1, no = 0;
	struct worker_fixture worker;
	char limit[16];

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	setenv("PAGED_TIMEOUT_MS", "2000", 1);
	events_start("0", NULL, NULL);
	snprintf(limit, sizeof(limit), "%u", IT_LIMIT_MS);
	setenv("PAGED_TIMEOUT_MS", limit, 1);
	it_require(it_wait(is_up, &yes));
	for (int i = 0; i < 3; i++) {
		worker_open(&worker, NULL, 0);
		worker_create_seq(&worker, 20);
		it_daemon_kill(&daemon_);
		it_require(it_wait(is_up, &no));
		it_require(strstr(http_scrape(), "pool=") == NULL);
		worker_close(&worker);
		it_daemon_restart(&daemon_, NULL, NULL);
		it_require(it_wait(is_up_without_sequences, NULL));
	}
	/* A daemon that does not answer is down after the library's time limit, and up when it answers again. */
	it_require(kill(daemon_.pid, SIGSTOP) == 0);
	it_require(it_wait(is_up, &no));
	it_require(kill(daemon_.pid, SIGCONT) == 0);
	it_require(it_wait(is_up, &yes));
	events_stop();
	it_daemon_stop(&daemon_);
}

static void
expect_no_start(const char *listen_at, const char *text)
{
	const char *arguments[] = { listen_at, NULL, NULL };
	int status;

	it_fork(&events.process, events_run, arguments);
	it_require(waitpid(events.process.pid, &status, 0) == events.process.pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d", status);
	it_require(events_find(text) != NULL, "%s", events_find(""));
	close(events.process.from);
	close(events.process.to);
}

IT_TEST(addresses)
{
	struct events first;
	char taken[32], text[64];

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	events_start("[::1]:0", NULL, NULL);
	it_require(events_find("serving http://[::1]:") != NULL);
	events_stop();
	events_start("127.0.0.1:0", NULL, NULL);
	first = events;
	snprintf(taken, sizeof(taken), "%u", first.port);
	snprintf(text, sizeof(text), "--metrics-listen %u: Address already in use", first.port);
	snprintf(events.log, sizeof(events.log), "%s/second.log", daemon_.dir);
	expect_no_start(taken, text);
	expect_no_start("localhost:1x", "--metrics-listen localhost:1x is not [ADDRESS:]PORT");
	expect_no_start("65536", "--metrics-listen 65536 is not [ADDRESS:]PORT");
	expect_no_start(":80", "--metrics-listen :80 is not [ADDRESS:]PORT");
	expect_no_start("[::1:80", "--metrics-listen [::1:80 is not [ADDRESS:]PORT");
	events = first;
	it_require(up_now() == 1);
	events_stop();
	it_daemon_stop(&daemon_);
}

IT_MAIN
