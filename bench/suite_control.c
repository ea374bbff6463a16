/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: the cost of a request, an attach, a plan and a worker's death. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/processes.h"
#include "bench/suite.h"

#define N_SEQS 256
#define N_PLANS 200 /* plans a sample */
#define KILL_PAGES 1024

static const char configuration[] = "pool bench {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 16  pages = 65536  sequences = 4096  max-length = 65536\n"
				    "}\n";

static const char *runtime;
static struct paged_client *client;
static struct paged_pool *pool;
static struct paged_batch *batch;
static paged_seq_id seqs[N_SEQS];
static struct paged_batch_row rows[N_SEQS];
static const char *echo;
static struct bench_dealer dealer;

static struct paged_client *
suite_control_attach(struct paged_pool **pool_p)
{
	struct paged_client *new = NULL;
	enum paged_status status = paged_client_open(runtime, NULL, &new);

	bench_client_must(new, status);
	bench_client_must(new, paged_pool_open(new, "bench", pool_p));
	return new;
}

/* 2048 tokens each: a decode batch of some size. */
static void
suite_control_setup(void)
{
	struct paged_seq_params params[N_SEQS];

	runtime = bench_daemon_start(configuration);
	client = suite_control_attach(&pool);
	for (int i = 0; i < N_SEQS; i++)
		params[i] = (struct paged_seq_params){ .pool = pool, .n_tokens = 2048 };
	bench_client_must(client, paged_seq_create(client, N_SEQS, params, seqs));
	for (int i = 0; i < N_SEQS; i++)
		rows[i] = (struct paged_batch_row){ .seq = seqs[i], .q_len = 1, .kv_len = 1024 };
	bench_client_must(client, paged_batch_create(pool, NULL, &batch));
	echo = bench_echo_start();
	bench_dealer_open(&dealer, echo);
}

static void
suite_control_teardown(void)
{
	bench_dealer_close(&dealer);
	bench_echo_stop();
	paged_client_close(client);
	bench_daemon_stop();
}

/* One more page for each of 256 sequences in one request; truncating them again is not timed. */
static double
sample_reserve(const void *context)
{
	struct paged_seq_item more[N_SEQS], before[N_SEQS];
	double us = 0;

	(void)context;
	for (int i = 0; i < N_SEQS; i++) {
		more[i] = (struct paged_seq_item){ .seq = seqs[i], .n_tokens = 2048 + 16 };
		before[i] = (struct paged_seq_item){ .seq = seqs[i], .n_tokens = 2048 };
	}
	for (int trip = 0; trip < BENCH_TRIPS; trip++) {
		uint64_t start = bench_now_ns();

		bench_client_must(client, paged_seq_reserve(client, N_SEQS, more));
		us += bench_since_us(start);
		bench_client_must(client, paged_seq_truncate(client, N_SEQS, before));
	}
	return us / BENCH_TRIPS;
}

/* Plans a decode step in steady state: every row is one token longer than in the plan before. */
static double
sample_plan(const void *context)
{
	uint64_t start = bench_now_ns();

	(void)context;
	for (int step = 0; step < N_PLANS; step++) {
		for (int i = 0; i < N_SEQS; i++)
			rows[i].kv_len = 1024 + (uint32_t)step;
		bench_client_must(client, paged_batch_plan(batch, N_SEQS, rows));
	}
	return bench_since_us(start) * 1e3 / N_PLANS / N_SEQS;
}

static double
sample_attach(const void *context)
{
	struct paged_pool *other_pool;
	uint64_t start = bench_now_ns();
	struct paged_client *other = suite_control_attach(&other_pool);
	double us = bench_since_us(start);

	(void)context;
	paged_client_close(other);
	return us / 1e3;
}

/* The limit of attaching: a ZeroMQ context, a socket, a connection, one round trip. */
static double
sample_zmq_attach(const void *context)
{
	struct bench_dealer other;
	uint64_t start = bench_now_ns();
	double us;

	(void)context;
	bench_dealer_open(&other, echo);
	bench_dealer_trip(&other);
	us = bench_since_us(start);
	bench_dealer_close(&other);
	return us / 1e3;
}

/* A worker that holds pages writes its sequence to the pipe and sleeps until it is killed. */
static void
suite_control_worker(int ready)
{
	struct paged_pool *own_pool;
	struct paged_client *own = suite_control_attach(&own_pool);
	struct paged_seq_params params = { .pool = own_pool, .n_tokens = KILL_PAGES * 16 };
	paged_seq_id seq;

	bench_client_must(own, paged_seq_create(own, 1, &params, &seq));
	if (write(ready, &seq, sizeof(seq)) != sizeof(seq))
		_exit(1);
	pause();
	_exit(0);
}

/* From SIGKILL until the pages are free, or as a limit until the pidfd is readable. */
static double
sample_kill_ms(const void *only_pidfd)
{
	struct pollfd poll_fd = { .events = POLLIN };
	paged_seq_id seq;
	uint64_t start;
	int ready[2];
	double us;
	pid_t pid;

	if (pipe(ready) != 0)
		bench_die("pipe: %m");
	pid = fork();
	if (pid == 0)
		suite_control_worker(ready[1]);
	if (read(ready[0], &seq, sizeof(seq)) != sizeof(seq))
		bench_die("the worker failed");
	poll_fd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	start = bench_now_ns();
	kill(pid, SIGKILL);
	if (*(const bool *)only_pidfd)
		poll(&poll_fd, 1, -1);
	else /* the sequence is stale in the shared table once its pages are back */
		while (paged_seq_read(pool, seq, NULL, NULL, 0) != PAGED_ERR_STALE)
			sched_yield();
	us = bench_since_us(start);
	close(poll_fd.fd);
	close(ready[0]);
	close(ready[1]);
	waitpid(pid, NULL, 0);
	return us / 1e3;
}

static const struct bench_case cases[] = {
	BENCH_CASE("zmq round trip", "us", NULL, NULL, bench_dealer_trip_us, &dealer),
	BENCH_CASE("ping", "us", "zmq round trip", NULL, bench_ping_us, &client),
	BENCH_CASE("reserve 256 x 1 page", "us", "zmq round trip", "<= 1.3", sample_reserve, NULL),
	BENCH_CASE("zmq attach", "ms", NULL, NULL, sample_zmq_attach, NULL),
	BENCH_CASE("attach", "ms", "zmq attach", NULL, sample_attach, NULL),
	BENCH_CASE("plan, per sequence", "ns", NULL, "<= 100 ns", sample_plan, NULL),
	BENCH_CASE("pidfd after SIGKILL", "ms", NULL, NULL, sample_kill_ms, &(const bool){ true }),
	BENCH_CASE("SIGKILL to pages free", "ms", "pidfd after SIGKILL", NULL, sample_kill_ms, &(const bool){ false }),
};

const struct bench_suite bench_suite_control = {
	.name = "control",
	.description = "requests, attaching, planning and a worker's death, compared with bare ZeroMQ and pidfd",
	.setup = suite_control_setup,
	.teardown = suite_control_teardown,
	.cases = cases,
	.n_cases = BENCH_N(cases),
};
