/* SPDX-License-Identifier: Apache-2.0 */
/* What a permitted user can do to a daemon and to its other users, and what signals do to the library. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "client/pagedclient.h"
#include "tests/raw.h"

#define POOL "pool p { layers = 1 kv-heads = 1 head-dim = 32 pages = 64 page-size = 4 sequences = 8 }\n"

static struct it_daemon daemon_;

static void
tick(int signal)
{
	(void)signal;
}

/* Signals without SA_RESTART all the time: every call that can sleep is interrupted. */
static void
ticking(long interval_us)
{
	const struct sigaction action = { .sa_handler = tick };
	const struct itimerval timer = { { 0, interval_us }, { 0, interval_us } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static unsigned int
count_threads(void)
{
	unsigned int n = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");

	it_require(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "Threads: %u", &n);
	fclose(file);
	return n;
}

IT_TEST(a_client_under_signals_leaves_nothing)
{
	unsigned int fds = 0, threads = 0;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	for (int i = 0; i < 301; i++) {
		struct paged_client *client;
		struct paged_pool *pool;
		paged_seq_id id;

		if (i == 1) {
			fds = it_count_fds(getpid());
			threads = count_threads();
			ticking(150);
		}
		it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
		it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
		it_require(paged_seq_create(pool, 1, &id) == PAGED_OK, "%s", paged_client_error(client));
		paged_client_close(client);
	}
	ticking(0);
	it_require(it_count_fds(getpid()) == fds, "%u descriptors, %u before", it_count_fds(getpid()), fds);
	it_require(count_threads() == threads, "%u threads, %u before", count_threads(), threads);
	it_daemon_stop(&daemon_);
}

IT_TEST(a_name_that_cannot_be_costs_no_session)
{
	struct paged_client *client;
	struct paged_pool *pool;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p\n", &pool) == PAGED_ERR_INVALID, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

static bool
readable(struct paged_client *client)
{
	struct pollfd polled = { .fd = paged_client_fd(client), .events = POLLIN };

	return poll(&polled, 1, 0) > 0;
}

IT_TEST(the_descriptor_is_quiet_after_dispatch)
{
	struct paged_client *client;
	struct paged_pool *pool;
	paged_seq_id id;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK);
	for (int i = 0; i < 50; i++) {
		if (i % 2)
			it_require(paged_seq_create(pool, 1, &id) == PAGED_OK &&
				   paged_seq_erase(pool, 1, &id) == PAGED_OK);
		usleep(1000);
		it_require(paged_client_dispatch(client) == PAGED_OK);
		it_require(!readable(client), "turn %d", i);
	}
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

IT_TEST(silent_connections_keep_nobody_out)
{
	int fd[200];

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	for (int i = 0; i < 200; i++)
		fd[i] = raw_connect();
	it_require(raw_pool().n_free == 64);
	for (int i = 0; i < 200; i++)
		close(fd[i]);
	it_daemon_stop(&daemon_);
}

/* Attaches and hangs up until it is refused; how often it was let in, and why not again. */
static void
attach_and_drop(int from, int to, void *argument)
{
	const uid_t *uid = argument;
	struct wire_control_reply reply;
	uint32_t n;
	char c;

	if (uid != NULL)
		it_require(setresgid(*uid, *uid, *uid) == 0 && setresuid(*uid, *uid, *uid) == 0, "%m");
	for (n = 0;; n++) {
		int fd = raw_connect();

		raw_hello(fd, n % 2 ? WIRE_ROLE_SESSION : WIRE_ROLE_OBSERVER, NULL, &reply);
		close(fd);
		if (reply.kind == WIRE_REFUSAL)
			break;
	}
	it_say(to, &n, sizeof(n));
	it_say(to, &reply, sizeof(reply));
	it_hear(from, &c, 1);
}

static void
expect_refusal_after(struct it_worker *worker, uint32_t n_expected, const char *part)
{
	struct wire_control_reply reply;
	uint32_t n;

	it_hear(worker->from, &n, sizeof(n));
	it_hear(worker->from, &reply, sizeof(reply));
	it_require(n == n_expected, "%u", n);
	it_require(reply.refusal.status == PAGED_ERR_LIMIT && strstr(reply.refusal.text, part) != NULL, "%s",
		   reply.refusal.text);
}

static void
dismiss(struct it_worker *worker)
{
	it_say(worker->to, "x", 1);
	it_join(worker);
}

IT_TEST(one_process_cannot_take_every_seat)
{
	struct it_worker worker;

	it_daemon_start(&daemon_, "max-members = 100\n" POOL, NULL, NULL);
	it_fork(&worker, attach_and_drop, NULL);
	expect_refusal_after(&worker, 64, "has 64 members, the most for one");
	it_require(raw_pool().n_free == 64);
	dismiss(&worker);
	it_daemon_stop(&daemon_);
}

IT_TEST(a_full_house_lets_administrators_in)
{
	uid_t one = 60001, other = 60002;
	struct it_worker first, second;

	if (geteuid() != 0)
		it_skip("needs root, to be others");
	it_daemon_start(&daemon_,
			"max-members = 10  max-members-per-user = 7\nallow-user = { \"60001\", \"60002\" }\n" POOL,
			NULL, NULL);
	it_require(chmod(daemon_.dir, 0711) == 0);
	it_fork(&first, attach_and_drop, &one);
	expect_refusal_after(&first, 7, "uid 60001 has 7 members, and max-members-per-user is 7");
	it_fork(&second, attach_and_drop, &other);
	expect_refusal_after(&second, 3, "10 members, and max-members is 10");
	it_require(raw_pool().n_free == 64, "root looks");
	dismiss(&first);
	dismiss(&second);
	it_daemon_stop(&daemon_);
}

/* 98,304 slots were used once, one is in use. */
IT_TEST(no_listing_looks_at_all_slots_at_once)
{
	struct wire_request request = { .kind = WIRE_CREATE, .create.n = PAGED_MAX_REQUEST_SEQS };
	enum { N = 100000 / PAGED_MAX_REQUEST_SEQS };
	static uint64_t ids[N][PAGED_MAX_REQUEST_SEQS];
	const uint32_t pool = 0;
	struct wire_reply reply;
	unsigned int n_parts = 0;
	struct raw raw;

	it_daemon_start(
		&daemon_,
		"pool p { layers = 1 kv-heads = 1 head-dim = 32 pages = 64 page-size = 4 sequences = 100000 }\n", NULL,
		NULL);
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < N; i++) {
		it_require(raw_call(&raw, &request, &reply) == PAGED_OK, "%s", reply.text);
		memcpy(ids[i], reply.ids.seq, sizeof(ids[i]));
	}
	for (int i = 0; i < N; i++) {
		/* All but the very last. */
		request = (struct wire_request){
			.kind = WIRE_ERASE,
			.items = { .n = PAGED_MAX_REQUEST_SEQS - (i == N - 1),
				   .seq = ids[i],
				   .pool = &pool,
				   .n_pools = 1 },
		};
		it_require(raw_call(&raw, &request, &reply) == PAGED_OK, "%s", reply.text);
	}
	request = (struct wire_request){ .kind = WIRE_GET_SEQUENCES };
	do {
		it_require(raw_call(&raw, &request, &reply) == PAGED_OK, "%s", reply.text);
		it_require(reply.sequences.next_slot - request.get_sequences.from_slot <= 16384);
		request.get_sequences.from_slot = reply.sequences.next_slot;
		n_parts++;
	} while (reply.sequences.n == 0 && reply.sequences.more);
	it_require(reply.sequences.n == 1 && n_parts > 1);
	it_require(reply.sequences.report[0].seq == ids[N - 1][PAGED_MAX_REQUEST_SEQS - 1]);
	raw_bye(&raw);
	it_daemon_stop(&daemon_);
}

IT_TEST(who_kicks_himself_hears_it)
{
	struct wire_request kick = { .kind = WIRE_KICK };
	struct wire_reply reply;
	struct raw raw;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	raw_reserve(&raw, 16);
	kick.kick.session = raw.welcome.welcome.session;
	it_require(raw_call(&raw, &kick, &reply) == PAGED_OK, "%s", reply.text);
	it_require(raw_call(&raw, &kick, &reply) == PAGED_OK, "%s", reply.text);
	raw_bye(&raw);
	it_require(raw_wait_free(64, 2000));
	it_daemon_stop(&daemon_);
}

IT_TEST(a_name_of_bytes_breaks_no_listing)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .name = "w\xff\xc2\x9b\xe4x"
						      "\xc3\xa4" };
	struct paged_client *client;
	const char *text;
	int code;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_OK, "%s", paged_client_error(client));
	text = it_pagedctl(&code, "--json", "sessions", NULL);
	it_require(code == 0, "exit code %d: %s", code, text);
	it_require(strstr(text, "\"w????x\xc3\xa4\"") != NULL, "%s", text);
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

/* Two million pages, which a check at one go takes 10 ms for. */
#define BIG                                                                                                       \
	"pool p { layers = 1 kv-heads = 1 head-dim = 1 page-size = 1 pages = 2000000 sequences = 4 max-length = " \
	"2000000 }\n"

static double
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void
check_again_and_again(int from, int to, void *argument)
{
	struct paged_check_result result;
	struct paged_client *client;
	uint32_t n = 0;

	(void)argument;
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_say(to, &n, sizeof(n));
	for (;;) {
		struct pollfd polled = { .fd = from, .events = POLLIN };
		double started = now_us();

		it_require(paged_admin_check(client, "p", &result) == PAGED_OK, "%s", paged_client_error(client));
		it_require(result.holds == 1, "%s", result.text);
		n++;
		if (poll(&polled, 1, 0) == 1) {
			it_note("%u checks, the last in %.0f us, %u of %u pages free", n, now_us() - started,
				result.n_free, result.n_pages);
			break;
		}
	}
	it_say(to, &n, sizeof(n));
	paged_client_close(client);
}

static int
by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

IT_TEST(a_check_of_a_big_pool_keeps_nobody_waiting)
{
	enum { N = 400 };
	static double us[N];
	uint32_t tokens = 1900000, n;
	struct it_worker worker;
	struct paged_client *client;
	struct paged_pool *pool;
	paged_seq_id id[2];

	it_daemon_start(&daemon_, BIG, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_seq_create(pool, 2, id) == PAGED_OK);
	it_require(paged_seq_reserve(pool, 1, id, &tokens) == PAGED_OK, "%s", paged_client_error(client));
	it_fork(&worker, check_again_and_again, NULL);
	it_hear(worker.from, &n, sizeof(n));
	for (uint32_t i = 0; i < N; i++) {
		double started = now_us();

		tokens = i % 2 ? 0 : 100;
		if (i % 2)
			it_require(paged_seq_truncate(pool, 1, &id[1], &tokens) == PAGED_OK);
		else
			it_require(paged_seq_reserve(pool, 1, &id[1], &tokens) == PAGED_OK);
		us[i] = now_us() - started;
		usleep(500);
	}
	it_say(worker.to, &n, sizeof(n));
	it_hear(worker.from, &n, sizeof(n));
	it_join(&worker);
	qsort(us, N, sizeof(us[0]), by_size);
	it_note("%d requests beside %u checks: median %.0f us, 95%% below %.0f us", N, n, us[N / 2], us[N * 95 / 100]);
	it_require(n > 0);
	it_require(it_sanitized() || us[N * 3 / 4] < 2000, "three quarters took less than %.0f us", us[N * 3 / 4]);
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

/* Everything that threads may do with one client, at once. */
static struct paged_client *shared_client;
static _Atomic bool threads_stop;

#define shared_ok(call)                                                                                              \
	do {                                                                                                         \
		enum paged_status status_ = (call);                                                                  \
		it_require(status_ == PAGED_OK || status_ == PAGED_ERR_FULL || status_ == PAGED_ERR_AGAIN, "%s: %s", \
			   paged_status_name(status_), paged_client_error(shared_client));                           \
	} while (0)

static void *
thread_sequences(void *argument)
{
	struct paged_pool *pool = argument;
	uint32_t tokens[2] = { 9, 5 };
	paged_seq_id id[2];

	while (!threads_stop) {
		if (paged_seq_create(pool, 2, id) != PAGED_OK)
			continue;
		shared_ok(paged_seq_reserve(pool, 2, id, tokens));
		shared_ok(paged_seq_read(pool, id[0], NULL, NULL, 0));
		shared_ok(paged_seq_erase(pool, 2, id));
		it_require(paged_seq_erase(pool, 2, id) == PAGED_ERR_STALE);
		it_require(strstr(paged_client_error(shared_client), "has ended") != NULL);
	}
	return NULL;
}

static void *
thread_batches(void *argument)
{
	struct paged_pool *pool = argument;
	const struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 2, .reserve_ahead = 8 };
	float kv[32] = { 1 }, q[32] = { 1 }, out[32];
	struct paged_tensor k = { .data = kv, .dtype = PAGED_F32, .n_heads = 1, .dim = 32 }, in = k, result = k;

	in.data = q;
	result.data = out;
	while (!threads_stop) {
		struct paged_batch_row row = { .q_len = 1 };
		struct paged_batch *batch;

		if (paged_seq_create(pool, 1, &row.seq) != PAGED_OK)
			continue;
		shared_ok(paged_batch_create(pool, &params, &batch));
		for (row.kv_len = 1; row.kv_len <= 24; row.kv_len++) {
			enum paged_status status = paged_batch_plan(batch, 1, &row);

			shared_ok(status);
			if (status != PAGED_OK)
				break;
			shared_ok(paged_append(batch, 0, &k, &k, NULL));
			shared_ok(paged_attention(batch, 0, &in, &result, NULL));
			shared_ok(paged_batch_validate(batch));
		}
		paged_batch_destroy(batch);
		shared_ok(paged_seq_erase(pool, 1, &row.seq));
	}
	return NULL;
}

static void *
thread_looks(void *argument)
{
	struct paged_check_result result;
	struct paged_session_entry *sessions;
	struct paged_daemon_info info;
	struct paged_pool *pool;
	size_t n;

	(void)argument;
	while (!threads_stop) {
		shared_ok(paged_client_dispatch(shared_client));
		shared_ok(paged_admin_status(shared_client, &info));
		shared_ok(paged_admin_sessions(shared_client, &sessions, &n));
		paged_free(sessions);
		shared_ok(paged_admin_check(shared_client, "p", &result));
		it_require(result.holds == 1, "%s", result.text);
		shared_ok(paged_pool_open(shared_client, "p", &pool));
		shared_ok(paged_pool_check(pool, &result));
		it_require(result.holds == 1, "%s", result.text);
		paged_pool_close(pool);
		it_require(paged_pool_open(shared_client, "nope", &pool) == PAGED_ERR_NOENT);
		it_require(strstr(paged_client_error(shared_client), "nope") != NULL);
	}
	return NULL;
}

IT_TEST(many_threads_of_one_client)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 2 };
	void *(*const run[])(void *) = { thread_sequences, thread_sequences, thread_batches,
					 thread_batches,   thread_looks,     thread_looks };
	pthread_t thread[6];
	struct paged_pool *pool;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	it_require(paged_client_open(NULL, &params, &shared_client) == PAGED_OK);
	it_require(paged_pool_open(shared_client, "p", &pool) == PAGED_OK);
	for (int i = 0; i < 6; i++)
		it_require(pthread_create(&thread[i], NULL, run[i], pool) == 0);
	usleep(1500000);
	threads_stop = true;
	for (int i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	paged_client_close(shared_client);
	it_require(raw_pool().n_free == 64);
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

IT_TEST(coming_and_going_does_not_fill_the_log)
{
	const struct wire_control_request bye = { .kind = WIRE_BYE };

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	for (int i = 0; i < 1000; i++) {
		struct wire_control_reply reply;
		int fd = raw_connect();

		raw_hello(fd, WIRE_ROLE_SESSION, NULL, &reply);
		it_require(reply.kind == WIRE_WELCOME);
		raw_tell_request(fd, &bye);
		it_require(raw_hear(fd, &reply, NULL));
		close(fd);
	}
	it_note("1000 came and went: %u lines", count_lines(daemon_.log));
	it_require(count_lines(daemon_.log) < 2500);
	it_daemon_stop(&daemon_);
}

/* The dearest requests there are, as many as the daemon takes. */
static void
burden(int from, int to, void *argument)
{
	static uint64_t ids[PAGED_MAX_REQUEST_SEQS];
	static uint32_t tokens[2][PAGED_MAX_REQUEST_SEQS];
	static uint8_t message[2][WIRE_MAX_MESSAGE], reply_bytes[WIRE_MAX_MESSAGE];
	struct wire_request request = { .kind = WIRE_CREATE, .create.n = PAGED_MAX_REQUEST_SEQS };
	const uint32_t pool = 0;
	struct wire_reply reply;
	struct paged_error error;
	struct wire_arena arena;
	size_t size[2];
	struct raw raw;

	(void)from, (void)argument;
	raw_attach(&raw, WIRE_ROLE_SESSION, NULL);
	it_require(raw_call(&raw, &request, &reply) == PAGED_OK, "%s", reply.text);
	memcpy(ids, reply.ids.seq, sizeof(ids));
	it_require(wire_arena_create(&arena, &error) == PAGED_OK);
	for (int k = 0; k < 2; k++) {
		for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
			tokens[k][i] = k ? 0 : 32;
		request = (struct wire_request){
			.kind = k ? WIRE_TRUNCATE : WIRE_RESERVE,
			.items = { .n = PAGED_MAX_REQUEST_SEQS,
				   .seq = ids,
				   .tokens = tokens[k],
				   .pool = &pool,
				   .n_pools = 1 },
		};
		size[k] = wire_request_pack(&request, &arena, message[k], sizeof(message[k]));
	}
	it_say(to, "x", 1);
	for (int i = 0;; i ^= 1) {
		while (zmq_recv(raw.dealer, reply_bytes, sizeof(reply_bytes), ZMQ_DONTWAIT) >= 0)
			;
		if (zmq_send(raw.dealer, message[i], size[i], ZMQ_DONTWAIT) < 0)
			usleep(100);
	}
}

IT_TEST(who_asks_much_does_not_bar_the_door)
{
	enum { N = 100 };
	struct it_worker worker[2];
	double us[N];
	char c;

	it_daemon_start(
		&daemon_,
		"pool p { layers = 1 kv-heads = 1 head-dim = 1 page-size = 1 pages = 300000 sequences = 8192 }\n", NULL,
		NULL);
	for (int i = 0; i < 2; i++) {
		it_fork(&worker[i], burden, NULL);
		it_hear(worker[i].from, &c, 1);
	}
	for (int i = 0; i < N; i++) {
		const struct wire_control_request bye = { .kind = WIRE_BYE };
		double started = now_us();
		struct wire_control_reply reply;
		int fd = raw_connect();

		raw_hello(fd, WIRE_ROLE_OBSERVER, NULL, &reply);
		us[i] = now_us() - started;
		raw_tell_request(fd, &bye);
		it_require(raw_hear(fd, &reply, NULL));
		close(fd);
	}
	qsort(us, N, sizeof(us[0]), by_size);
	it_note("%d hellos beside two that ask all they can: median %.0f us, 95%% below %.0f us", N, us[N / 2],
		us[N * 95 / 100]);
	it_require(it_sanitized() || us[N / 2] < 20000);
	for (int i = 0; i < 2; i++)
		it_kill(&worker[i]);
	it_require(raw_wait_free(300000, 5000));
	it_daemon_stop(&daemon_);
}

static void
connect_and_leave_it_to_a_child(int from, int to, void *argument)
{
	struct wire_control_reply reply;
	pid_t parent = getpid();
	int fd = raw_connect();
	char c;

	(void)argument;
	if (fork() != 0)
		_exit(0);
	while (getppid() == parent)
		usleep(1000);
	it_hear(from, &c, 1); /* by now it was waited for, too */
	raw_hello(fd, WIRE_ROLE_SESSION, NULL, &reply);
	/* Refused, or let in and out again by a descriptor of the process that has ended. */
	c = reply.kind == WIRE_REFUSAL ? reply.refusal.status == PAGED_ERR_GONE : !raw_hear(fd, &reply, NULL);
	it_say(to, &c, 1);
	_exit(0);
}

static void
dead_man(const char *const *environment)
{
	struct it_worker worker;
	char c;

	it_daemon_start(&daemon_, POOL, environment ? "tests/pagedd-faults" : NULL, environment);
	it_fork(&worker, connect_and_leave_it_to_a_child, NULL);
	it_require(waitpid(worker.pid, NULL, 0) == worker.pid);
	it_say(worker.to, "x", 1);
	it_hear(worker.from, &c, 1);
	close(worker.to);
	close(worker.from);
	it_require(c, "nobody would see this member's death");
	it_daemon_stop(&daemon_);
}

IT_TEST(the_socket_of_a_dead_process_attaches_nobody)
{
	dead_man(NULL);
	dead_man((const char *const[]){ "PAGED_NO_PEERPIDFD=1", NULL });
}
