/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steady decoding: a thousand steps ask the daemon for pages and for nothing
 * else, and plan, with mods bound anew, makes no system call but these requests
 * and one look a second.
 */
#include "config.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define STEPS 1000u
#define SEQS 4u
#define AHEAD 64u /* tokens */
#define PAGE 16u  /* tokens */
#define START 20u /* tokens of the prompt */

static const char configuration[] = "pool test {\n"
				    "    layers = 2\n kv-heads = 2\n head-dim = 32\n dtype = f32\n page-size = 16\n"
				    "    pages = 512\n sequences = 32\n max-length = 2048\n"
				    "}\n";

/* A pause between two steps: where a model would compute. */
#define STEP_US 200

struct decode {
	struct worker_fixture worker;
	paged_seq_id seq[SEQS];
	struct paged_batch_row rows[SEQS];
	struct paged_mod_set *mod_set;
	int32_t window, offset[SEQS];
};

/* Other values in each step. */
static enum paged_status
decode_bind(struct decode *decode)
{
	const struct paged_array arrays[] = {
		{ .name = "window", .data = &decode->window, .dtype = PAGED_I32 },
		{ .name = "offset", .data = decode->offset, .dtype = PAGED_I32, .n_dims = 1, .extents = { SEQS } },
	};

	decode->window = 10 + (decode->window + 7) % 100;
	for (uint32_t i = 0; i < SEQS; i++)
		decode->offset[i] = (int32_t)(decode->rows[i].kv_len / (i + 2));
	return paged_mod_set_bind(decode->mod_set, 2, arrays, NULL);
}

static void
decode_begin_mods(struct decode *decode)
{
	static const struct paged_array names[] = { { .name = "window", .dtype = PAGED_I32 },
						    { .name = "offset", .dtype = PAGED_I32, .n_dims = 1 } };
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_mod *mask, *score;
	struct worker_fixture *worker = &decode->worker;

	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_MASK, "kv_idx < offset[b] || q_idx - kv_idx < window",
					  2, names, &mask));
	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_SCORE, "soft_cap(30.0)", 0, NULL, &score));
	params.mask = mask;
	params.score = score;
	worker_ok(worker, paged_mod_set_create(worker->batch, &params, &decode->mod_set));
}

static void
decode_begin(struct decode *decode)
{
	uint32_t tokens[SEQS];

	worker_open(&decode->worker, NULL, AHEAD);
	worker_ok(&decode->worker, seqs_create(decode->worker.client, decode->worker.pool, SEQS, decode->seq));
	for (uint32_t i = 0; i < SEQS; i++) {
		/* Prompts of different lengths. */
		decode->rows[i] =
			(struct paged_batch_row){ .seq = decode->seq[i], .q_len = 1, .kv_len = START + 5 * i };
		tokens[i] = decode->rows[i].kv_len + AHEAD;
	}
	worker_ok(&decode->worker, seqs_reserve(decode->worker.client, SEQS, decode->seq, tokens));
	decode_begin_mods(decode);
}

static enum paged_status
decode_plan(struct decode *decode)
{
	enum paged_status status;

	for (uint32_t i = 0; i < SEQS; i++)
		decode->rows[i].kv_len++;
	status = paged_batch_plan(decode->worker.batch, SEQS, decode->rows);
	return status == PAGED_OK ? decode_bind(decode) : status;
}

/* The other work of a step. */
static void
decode_run(struct decode *decode)
{
	static float data[SEQS * WORKER_OUT], out[SEQS * WORKER_OUT];
	const struct paged_tensor kv = {
		.data = data, .dtype = PAGED_F32, .n_heads = WORKER_KV_HEADS, .dim = WORKER_DIM
	};
	const struct paged_tensor q = { .data = data, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };
	const struct paged_tensor o = { .data = out, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };

	const struct paged_attention_params params = { .struct_size = sizeof(params), .mod_set = decode->mod_set };

	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		worker_ok(&decode->worker, paged_append(decode->worker.batch, layer, &kv, &kv, NULL));
		worker_ok(&decode->worker, paged_attention(decode->worker.batch, layer, &q, &o, &params));
	}
	usleep(STEP_US);
}

static uint64_t
requests_so_far(struct worker_fixture *observer)
{
	struct paged_daemon_info info = { .struct_size = sizeof(info) };

	worker_ok(observer, paged_admin_status(observer->client, &info));
	return info.n_requests;
}

/*
 * Each row consumes a token a step, and a request tops every row up to
 * AHEAD tokens or more beyond what it needs; so requests are at least AHEAD
 * steps apart, but for the first, which finds the prompts' own reserves.
 */
#define REQUESTS_BOUND (STEPS / AHEAD + 2)

IT_TEST(requests_of_a_thousand_steps)
{
	struct it_daemon daemon;
	struct decode decode;
	struct worker_fixture observer;
	uint64_t before, n;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	worker_observe(&observer);
	decode_begin(&decode);
	worker_ok(&decode.worker, decode_plan(&decode));
	before = requests_so_far(&observer);
	for (uint32_t step = 0; step < STEPS; step++) {
		decode_run(&decode);
		worker_ok(&decode.worker, decode_plan(&decode));
	}
	n = requests_so_far(&observer) - before - 1; /* the count itself */
	it_note("%u steps of %u sequences took %u pages with %llu requests, at most %u expected", STEPS, SEQS,
		worker_pool_entry(&observer, "test").n_referenced, (unsigned long long)n, REQUESTS_BOUND);
	it_require(n >= 1 && n <= REQUESTS_BOUND);
	it_require(worker_pool_entry(&observer, "test").n_referenced >= SEQS * (STEPS + START) / PAGE);
	worker_check_pool(&observer);
	worker_close(&decode.worker);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* The traced process: getppid() opens and closes each plan. */
static void
traced(int from, int to, void *argument)
{
	static struct decode decode;
	uint32_t n_steps = *(uint32_t *)argument;
	char word;

	decode_begin(&decode);
	worker_ok(&decode.worker, decode_plan(&decode));
	it_send(to, "b", 1);
	it_receive(from, &word, 1);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	raise(SIGSTOP);
	for (uint32_t step = 0; step < n_steps; step++) {
		enum paged_status status;

		decode_run(&decode);
		syscall(SYS_getppid);
		status = decode_plan(&decode);
		syscall(SYS_getppid);
		worker_ok(&decode.worker, status);
	}
	fflush(stdout);
	_exit(0); /* LeakSanitizer cannot work while it is traced */
}

struct tally {
	uint32_t n_plans, n_with_calls, n_calls;
	uint32_t n_blocking;
	uint32_t by_number[512];
};

static bool
may_block(const struct __ptrace_syscall_info *info)
{
	switch (info->entry.nr) {
	case SYS_poll:
		return (int)info->entry.args[2] != 0;
	case SYS_ppoll:
	case SYS_select:
	case SYS_pselect6:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
		return true;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)info->entry.args[3] != 0;
	case SYS_futex:
		return (info->entry.args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ||
		       (info->entry.args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
	}
	return false;
}

static void
tally_add(struct tally *tally, const struct __ptrace_syscall_info *info, bool *inside, uint32_t *here)
{
	if (info->entry.nr == SYS_getppid) {
		if (*inside) {
			tally->n_plans++;
			tally->n_with_calls += *here != 0;
			tally->n_calls += *here;
		}
		*inside = !*inside;
		*here = 0;
	} else if (*inside) {
		++*here;
		tally->n_blocking += may_block(info);
		if (info->entry.nr < 512)
			tally->by_number[info->entry.nr]++;
	}
}

/* The traced thread until it ends; its wait status. */
static int
trace_until_end(pid_t pid, struct tally *tally)
{
	struct __ptrace_syscall_info info;
	bool inside = false;
	uint32_t here = 0;
	int status, signal_number = 0;

	it_require(waitpid(pid, &status, 0) == pid, "%m");
	if (!WIFSTOPPED(status))
		return status;
	it_require(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0, "%m");
	for (;;) {
		it_require(ptrace(PTRACE_SYSCALL, pid, NULL, signal_number) == 0, "%m");
		it_require(waitpid(pid, &status, 0) == pid, "%m");
		if (!WIFSTOPPED(status))
			return status;
		signal_number = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			signal_number = WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
			continue;
		}
		it_require(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0, "%m");
		if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
			tally_add(tally, &info, &inside, &here);
	}
}

static void
trace(struct it_worker *child, struct tally *tally)
{
	int status = trace_until_end(child->pid, tally);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		it_skip("ptrace is refused");
	it_require(status == 0, "wait status %x", (unsigned int)status);
	close(child->to);
	close(child->from);
}

IT_TEST(system_calls_inside_plan)
{
	struct tally tally = { 0 };
	uint64_t before, n, seconds, began;
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture observer;
	char word;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, traced, &(uint32_t){ STEPS });
	it_receive(child.from, &word, 1);
	before = requests_so_far(&observer);
	it_send(child.to, "g", 1);
	began = it_now_ms();
	trace(&child, &tally);
	seconds = (it_now_ms() - began) / 1000 + 1;
	n = requests_so_far(&observer) - before - 1;
	for (uint32_t i = 0; i < 512; i++)
		if (tally.by_number[i] != 0)
			it_note("system call %u: %u times", i, tally.by_number[i]);
	it_note("%u plans: %u with system calls (%u calls in all), %llu requests, %llu seconds", tally.n_plans,
		tally.n_with_calls, tally.n_calls, (unsigned long long)n, (unsigned long long)seconds);
	it_require(tally.n_plans == STEPS);
	it_require(tally.n_blocking == 0, "%u of them may block", tally.n_blocking);
	it_require(n <= REQUESTS_BOUND);
	/* Each request's send, a look a second, and on a busy machine one or two for an answer that takes its time. */
	it_require(tally.n_with_calls <= 3 * n + seconds + 1);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* While a request has no answer, looking for it is no reason to leave the step either. */
IT_TEST(system_calls_while_the_daemon_does_not_answer)
{
	uint32_t n_steps = AHEAD - 2; /* the first row asks at once and has as much left */
	struct tally tally = { 0 };
	struct it_daemon daemon;
	struct it_worker child;
	uint64_t began, ms;
	char word;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	it_fork(&child, traced, &n_steps);
	it_receive(child.from, &word, 1);
	kill(daemon.pid, SIGSTOP);
	it_send(child.to, "g", 1);
	began = it_now_ms();
	trace(&child, &tally);
	kill(daemon.pid, SIGCONT);
	ms = it_now_ms() - began;
	it_note("%u plans in %llu ms: %u with system calls", tally.n_plans, (unsigned long long)ms, tally.n_with_calls);
	it_require(tally.n_plans == n_steps && tally.n_blocking == 0);
	/* The send, a look at the control socket a second, and one for the answer each 10 ms. */
	it_require(tally.n_with_calls <= 2 + ms / 1000 + ms / 10 + 1);
	it_daemon_stop(&daemon);
}

IT_MAIN
