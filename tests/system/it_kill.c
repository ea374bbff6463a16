/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL of workers, a thousand times, at named stages.
 *
 * A worker reaches its stage, reports it by pipe, and stays in it: it waits
 * there, or repeats nothing but that stage, so that the signal finds it
 * inside.  Stages at which the library does not stop are reached with
 * wire_peer.  For a request or a reserve-ahead without a reply yet
 * the daemon itself is stopped: it reads them after their sender's death.
 */
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/wire_peer.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define BATCH_WORKERS 12
#define BATCHES_PER_STAGE 7
/* The daemon's heap may grow to its working size during these kills. */
#define WARM_UP_KILLS 100u
#define GROWTH_LIMIT_KIB 256
#define QUEUED_TIMEOUT_MS 20

static const char configuration[] =
	"pool test {\n" WORKER_POOL_SHAPE "\n" POOL_SIZES(WORKER_PAGE_SIZE, 1024, 256, WORKER_MAX_LENGTH) "\n}\n";

static const struct wire_control_request hello = {
	.kind = WIRE_HELLO, .hello = { .version_major = WIRE_VERSION_MAJOR, .role = WIRE_ROLE_SESSION, .name = "peer" }
};
static const struct wire_control_request open_pool = { .kind = WIRE_OPEN_POOL, .open_pool = { "test" } };

static struct it_daemon daemon_;

/* Stays open while the worker waits for the signal. */
static struct worker_fixture worker;

struct stage {
	const char *name;
	void (*prepare)(void);
	/* Reach the stage, call reached(), and stay there. */
	void (*run)(int to);
	/* The daemon is stopped between the two, and goes on after the kill. */
	bool daemon_stopped;
};

static void
reached(int to)
{
	it_send(to, "r", 1);
}

static void
wait_for_kill(int to)
{
	reached(to);
	for (;;)
		pause();
}

static void
connected(int to)
{
	wire_peer_connect_control();
	wait_for_kill(to);
}

static void
hello_sent(int to)
{
	wire_peer_send_control(wire_peer_connect_control(), &hello);
	wait_for_kill(to);
}

/* Control socket only: the worker has a token and an endpoint, but no DEALER. */
static int
attach_control(void)
{
	struct wire_control_reply reply;
	int fd = wire_peer_connect_control();

	wire_peer_hello(fd, WIRE_ROLE_SESSION, NULL, &reply);
	it_require(reply.kind == WIRE_WELCOME);
	return fd;
}

static void
control_attached(int to)
{
	attach_control();
	wait_for_kill(to);
}

static void
pool_requested(int to)
{
	wire_peer_send_control(attach_control(), &open_pool);
	wait_for_kill(to);
}

static void
pool_granted(int to)
{
	struct wire_control_reply reply;
	int fd = attach_control(), fds[WIRE_N_POOL_FDS];

	wire_peer_send_control(fd, &open_pool);
	it_require(wire_peer_receive_control(fd, &reply, fds) && reply.kind == WIRE_POOL_GRANT);
	wait_for_kill(to);
}

/* Attach and detach on both channels. */
static void
attach_repeatedly(int to)
{
	bool told = false;

	for (;;) {
		worker_open(&worker, NULL, 0);
		if (!told)
			reached(to);
		told = true;
		worker_close(&worker);
	}
}

static void
holding_pages(int to)
{
	worker_open(&worker, NULL, 0);
	worker_write(&worker, worker_create_seq(&worker, 20), 0, 20, 1);
	wait_for_kill(to);
}

/* Two members of one session, which are killed at the same time. */
static void
session_of_two_members(int to)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "rank" };
	struct worker_fixture rank;

	worker_open(&worker, NULL, 0);
	worker_write(&worker, worker_create_seq(&worker, 20), 0, 20, 1);
	params.join_token = paged_client_join_token(worker.client);
	worker_open(&rank, &params, 0);
	wait_for_kill(to);
}

static void
request_repeatedly(int to)
{
	paged_seq_id seq;

	worker_open(&worker, NULL, 0);
	reached(to);
	for (;;) {
		seq = worker_create_seq(&worker, 24);
		worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ 7 }));
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}
}

static void
open_with_short_timeout(void)
{
	worker_open(&worker, NULL, 0);
	worker_set_timeout(&worker, QUEUED_TIMEOUT_MS);
}

/* The request that timed out is in the daemon's queue. */
static void
request_queued(int to)
{
	paged_seq_id seq;

	worker_expect(&worker, seqs_create(worker.client, worker.pool, 1, &seq), PAGED_ERR_TIMEOUT);
	wait_for_kill(to);
}

static paged_seq_id decode_seq;

static void
open_with_reserve_ahead(void)
{
	worker_open(&worker, NULL, 8);
	decode_seq = worker_create_seq(&worker, 8);
}

static void
reserve_ahead_outstanding(int to)
{
	worker_write(&worker, decode_seq, 0, 8, 1);
	usleep(2000); /* ZeroMQ's thread sends it */
	wait_for_kill(to);
}

static void
append_repeatedly(int to)
{
	paged_seq_id seq;

	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 128);
	worker_write(&worker, seq, 0, 128, 1);
	reached(to);
	for (uint64_t seed = 2;; seed++)
		worker_ok(&worker, worker_append(&worker, (uint32_t)seed % WORKER_LAYERS, 0, 128, seed));
}

static void
attend_repeatedly(int to)
{
	static float out[128 * WORKER_OUT];
	paged_seq_id seq;

	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 128);
	worker_write(&worker, seq, 0, 128, 1);
	reached(to);
	for (uint32_t layer = 0;; layer ^= 1)
		worker_attend(&worker, layer, 128, out);
}

/* A model's steps with reserve-ahead, one sequence after another. */
static void
decode_repeatedly(int to)
{
	float out[WORKER_OUT];
	paged_seq_id seq;

	worker_open(&worker, NULL, 8);
	reached(to);
	for (;;) {
		seq = worker_create_seq(&worker, 0);
		for (uint32_t token = 0; token < 100; token++) {
			worker_write(&worker, seq, token, token + 1, 1);
			worker_attend(&worker, 1, 1, out);
		}
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}
}

static const struct stage stages[] = {
	{ "connected, no hello", NULL, connected, false },
	{ "hello sent", NULL, hello_sent, false },
	{ "between the channels", NULL, control_attached, false },
	{ "pool asked for", NULL, pool_requested, false },
	{ "pool granted", NULL, pool_granted, false },
	{ "attaching and leaving", NULL, attach_repeatedly, false },
	{ "idle, holding pages", NULL, holding_pages, false },
	{ "two members of a session", NULL, session_of_two_members, false },
	{ "requesting", NULL, request_repeatedly, false },
	{ "request queued", open_with_short_timeout, request_queued, true },
	{ "reserve-ahead outstanding", open_with_reserve_ahead, reserve_ahead_outstanding, true },
	{ "inside append", NULL, append_repeatedly, false },
	{ "inside attention", NULL, attend_repeatedly, false },
	{ "decoding", NULL, decode_repeatedly, false },
};
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))
_Static_assert(N_STAGES *BATCHES_PER_STAGE *BATCH_WORKERS >= 1000, "a thousand");
_Static_assert(BATCHES_PER_STAGE *BATCH_WORKERS >= 50, "fifty a stage");

static void
member_run(int from, int to, void *argument)
{
	const struct stage *stage = argument;
	char word;

	if (stage->prepare != NULL)
		stage->prepare();
	it_send(to, "p", 1);
	it_receive(from, &word, 1);
	stage->run(to);
}

static void
all_sent(struct it_worker *workers, char wanted)
{
	char word;

	for (int i = 0; i < BATCH_WORKERS; i++) {
		it_receive(workers[i].from, &word, 1);
		it_require(word == wanted);
	}
}

static void
batch_kill(const struct stage *stage)
{
	struct it_worker workers[BATCH_WORKERS];

	for (int i = 0; i < BATCH_WORKERS; i++)
		it_fork(&workers[i], member_run, (void *)stage);
	all_sent(workers, 'p');
	if (stage->daemon_stopped)
		kill(daemon_.pid, SIGSTOP);
	for (int i = 0; i < BATCH_WORKERS; i++)
		it_send(workers[i].to, "g", 1);
	all_sent(workers, 'r');
	for (int i = 0; i < BATCH_WORKERS; i++) {
		usleep((useconds_t)(random() % 500));
		it_kill(&workers[i]);
	}
	if (stage->daemon_stopped)
		kill(daemon_.pid, SIGCONT);
}

static bool
fds_are_at_most(void *argument)
{
	return it_count_fds(daemon_.pid) <= *(unsigned int *)argument;
}

static void
batch_check(struct worker_fixture *observer, const struct stage *stage, unsigned int n_fds)
{
	const char *text;
	int code;

	worker_wait_free(observer, "test");
	text = it_pagedctl(&code, "check", NULL);
	it_require(code == 0, "%s: %s", stage->name, text);
	it_require(it_wait(fds_are_at_most, &n_fds), "%s: %u descriptors, %u before", stage->name,
		   it_count_fds(daemon_.pid), n_fds);
}

/* pagedd returns freed memory to the system a moment after the last death. */
static bool
memory_is_at_most(void *kib)
{
	return it_private_kib(daemon_.pid) <= *(const unsigned long *)kib;
}

IT_TEST(workers_killed_at_each_stage_leak_nothing)
{
	unsigned long warm_kib = 0, most_kib;
	uint64_t began = it_now_ms();
	unsigned int n_kills = 0, n_fds = 0, seed = 20261121;
	struct worker_fixture observer;

	srandom(seed);
	it_daemon_start(&daemon_, configuration, NULL, NULL);
	worker_observe(&observer);
	/* All stages in turn, so that the first hundred kills cover most of them. */
	for (int batch = 0; batch < BATCHES_PER_STAGE; batch++) {
		for (size_t i = 0; i < N_STAGES; i++) {
			batch_kill(&stages[i]);
			n_kills += BATCH_WORKERS;
			if (n_fds == 0) {
				/* ZeroMQ opens descriptors of its own for the first peer. */
				worker_wait_free(&observer, "test");
				n_fds = it_count_fds(daemon_.pid);
			}
			batch_check(&observer, &stages[i], n_fds);
			if (warm_kib == 0 && n_kills >= WARM_UP_KILLS)
				warm_kib = it_private_kib(daemon_.pid);
		}
	}
	most_kib = warm_kib + GROWTH_LIMIT_KIB;
	if (it_sanitized())
		it_note("memory not judged: AddressSanitizer keeps what was freed");
	else
		it_require(it_wait(memory_is_at_most, &most_kib), "pagedd grew from %lu to %lu KiB", warm_kib,
			   it_private_kib(daemon_.pid));
	it_note("%u workers killed at %zu stages in %llu ms; pagedd: %u descriptors, %lu KiB after %u, %lu KiB at the "
		"end",
		n_kills, N_STAGES, (unsigned long long)(it_now_ms() - began), it_count_fds(daemon_.pid), warm_kib,
		WARM_UP_KILLS, it_private_kib(daemon_.pid));
	worker_close(&observer);
	it_daemon_stop(&daemon_);
}

IT_MAIN
