/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: what a request, an attachment, a plan and a death cost. */
#include "bench/bench.h"

#include <pagedclient.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_SEQS 256
#define N_TRIPS 50  /* round trips a sample */
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

static void
must(enum paged_status status, struct paged_client *of)
{
	if (status != PAGED_OK)
		bench_die("%s: %s", paged_status_name(status), paged_client_error(of));
}

/* 4096 tokens each: a decode batch of some size. */
static void
sequences_setup(void)
{
	uint32_t tokens[N_SEQS];

	must(paged_seq_create(pool, N_SEQS, seqs), client);
	for (int i = 0; i < N_SEQS; i++)
		tokens[i] = 2048;
	must(paged_seq_reserve(pool, N_SEQS, seqs, tokens), client);
	for (int i = 0; i < N_SEQS; i++)
		rows[i] = (struct paged_batch_row){ .seq = seqs[i], .q_len = 1, .kv_len = 1024 };
	must(paged_batch_create(pool, NULL, &batch), client);
}

static void
setup(void)
{
	runtime = bench_daemon_start(configuration);
	must(paged_client_open(runtime, NULL, &client), client);
	must(paged_pool_open(client, "bench", &pool), client);
	sequences_setup();
	echo = bench_echo_start();
	bench_dealer_open(&dealer, echo);
}

static void
teardown(void)
{
	bench_dealer_close(&dealer);
	bench_echo_stop();
	paged_client_close(client);
	bench_daemon_stop();
}

static double
per_trip_us(uint64_t start_ns)
{
	return (double)(bench_now_ns() - start_ns) / 1e3 / N_TRIPS;
}

/* The limit: the same transport with nothing behind it. */
static double
sample_zmq(void)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++)
		bench_dealer_trip(&dealer);
	return per_trip_us(start);
}

static double
sample_ping(void)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < N_TRIPS; i++)
		must(paged_client_ping(client), client);
	return per_trip_us(start);
}

/* One more page for each of 256 sequences in one request; what was taken is given back untimed. */
static double
sample_reserve(void)
{
	uint32_t tokens[N_SEQS], before[N_SEQS];
	uint64_t total = 0;

	for (int i = 0; i < N_SEQS; i++)
		before[i] = 2048;
	for (int trip = 0; trip < N_TRIPS; trip++) {
		uint64_t start;

		for (int i = 0; i < N_SEQS; i++)
			tokens[i] = 2048 + 16;
		start = bench_now_ns();
		must(paged_seq_reserve(pool, N_SEQS, seqs, tokens), client);
		total += bench_now_ns() - start;
		must(paged_seq_truncate(pool, N_SEQS, seqs, before), client);
	}
	return (double)total / 1e3 / N_TRIPS;
}

/* A plan of a decode step in steady state: every row one token longer than last time. */
static double
sample_plan(void)
{
	uint64_t start = bench_now_ns();

	for (int step = 0; step < N_PLANS; step++) {
		for (int i = 0; i < N_SEQS; i++)
			rows[i].kv_len = 1024 + (uint32_t)step;
		must(paged_batch_plan(batch, N_SEQS, rows), client);
	}
	return (double)(bench_now_ns() - start) / N_PLANS / N_SEQS;
}

static double
sample_attach(void)
{
	struct paged_client *other;
	struct paged_pool *other_pool;
	uint64_t start = bench_now_ns();
	double ms;

	must(paged_client_open(runtime, NULL, &other), other);
	must(paged_pool_open(other, "bench", &other_pool), other);
	ms = (double)(bench_now_ns() - start) / 1e6;
	paged_client_close(other);
	return ms;
}

/* The limit of attaching: a ZeroMQ context, a socket, a connection, one round trip. */
static double
sample_zmq_attach(void)
{
	struct bench_dealer other;
	uint64_t start = bench_now_ns();
	double ms;

	bench_dealer_open(&other, echo);
	bench_dealer_trip(&other);
	ms = (double)(bench_now_ns() - start) / 1e6;
	bench_dealer_close(&other);
	return ms;
}

/* A worker that holds pages says so through the pipe and sleeps until it is killed. */
static void
victim(int ready)
{
	struct paged_client *own;
	struct paged_pool *own_pool;
	uint32_t tokens = KILL_PAGES * 16;
	paged_seq_id seq;

	must(paged_client_open(runtime, NULL, &own), own);
	must(paged_pool_open(own, "bench", &own_pool), own);
	must(paged_seq_create(own_pool, 1, &seq), own);
	must(paged_seq_reserve(own_pool, 1, &seq, &tokens), own);
	if (write(ready, &seq, sizeof(seq)) != sizeof(seq))
		_exit(1);
	pause();
	_exit(0);
}

static pid_t
victim_start(paged_seq_id *seq)
{
	int ready[2];
	pid_t pid;

	if (pipe(ready) != 0)
		bench_die("pipe: %m");
	pid = fork();
	if (pid == 0)
		victim(ready[1]);
	if (read(ready[0], seq, sizeof(*seq)) != sizeof(*seq))
		bench_die("the victim failed");
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static double
sample_kill(void)
{
	paged_seq_id seq;
	pid_t pid = victim_start(&seq);
	uint64_t start = bench_now_ns();
	double ms;

	kill(pid, SIGKILL);
	/* The sequence is stale in the shared table once its pages are back. */
	while (paged_seq_read(pool, seq, NULL, NULL, 0) != PAGED_ERR_STALE)
		sched_yield();
	ms = (double)(bench_now_ns() - start) / 1e6;
	waitpid(pid, NULL, 0);
	return ms;
}

/* The limit of noticing a death: such a worker killed, until its pidfd is readable. */
static double
sample_pidfd(void)
{
	struct pollfd poll_fd = { .events = POLLIN };
	paged_seq_id seq;
	pid_t pid = victim_start(&seq);
	uint64_t start;
	double ms;

	poll_fd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	start = bench_now_ns();
	kill(pid, SIGKILL);
	poll(&poll_fd, 1, -1);
	ms = (double)(bench_now_ns() - start) / 1e6;
	close(poll_fd.fd);
	waitpid(pid, NULL, 0);
	return ms;
}

static const struct bench_figure figures[] = {
	{ "zmq round trip", "us", NULL, NULL, sample_zmq },
	{ "ping", "us", "zmq round trip", NULL, sample_ping },
	{ "reserve 256 x 1 page", "us", "zmq round trip", "<= 1.3", sample_reserve },
	{ "zmq attach", "ms", NULL, NULL, sample_zmq_attach },
	{ "attach", "ms", "zmq attach", NULL, sample_attach },
	{ "plan, a sequence", "ns", NULL, "<= 100 ns", sample_plan },
	{ "pidfd after SIGKILL", "ms", NULL, NULL, sample_pidfd },
	{ "SIGKILL to pages free", "ms", "pidfd after SIGKILL", NULL, sample_kill },
};

const struct bench_suite bench_suite_control = {
	.name = "control",
	.what = "requests, attaching, planning and a worker's death, against bare ZeroMQ and pidfd",
	.setup = setup,
	.teardown = teardown,
	.figures = figures,
	.n_figures = sizeof(figures) / sizeof(figures[0]),
};
