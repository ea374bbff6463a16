/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steady decoding: a thousand steps request pages from the daemon and nothing
 * else; plan, with mods bound in each step, makes no system call but these
 * requests and one poll a second.
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

#define N_STEPS 1000u
#define N_SEQS 4u
#define RESERVE_AHEAD 64u /* tokens */
#define PAGE_SIZE 16      /* tokens */
#define PROMPT_TOKENS 20u /* tokens of the prompt */

static const char configuration[] = "pool test {\n" WORKER_POOL_SHAPE "\n" POOL_SIZES(PAGE_SIZE, 512, 32, 2048) "\n}\n";

/* The pause between two steps stands for the model's computation. */
#define STEP_US 200

struct decode_loop {
	struct worker_fixture worker;
	paged_seq_id seq[N_SEQS];
	struct paged_batch_row rows[N_SEQS];
	struct paged_mod_set *mod_set;
	int32_t window, offset[N_SEQS];
};

/* Other values in each step. */
static enum paged_status
decode_loop_bind(struct decode_loop *decode_loop)
{
	const struct paged_array arrays[] = {
		{ .name = "window", .data = &decode_loop->window, .dtype = PAGED_I32 },
		{ .name = "offset",
		  .data = decode_loop->offset,
		  .dtype = PAGED_I32,
		  .n_dims = 1,
		  .extents = { N_SEQS } },
	};

	decode_loop->window = 10 + (decode_loop->window + 7) % 100;
	for (uint32_t i = 0; i < N_SEQS; i++)
		decode_loop->offset[i] = (int32_t)(decode_loop->rows[i].kv_len / (i + 2));
	return paged_mod_set_bind(decode_loop->mod_set, 2, arrays, NULL);
}

static void
decode_loop_begin_mods(struct decode_loop *decode_loop)
{
	static const struct paged_array names[] = { { .name = "window", .dtype = PAGED_I32 },
						    { .name = "offset", .dtype = PAGED_I32, .n_dims = 1 } };
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_mod *mask, *score;
	struct worker_fixture *worker = &decode_loop->worker;

	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_MASK, "kv_idx < offset[b] || q_idx - kv_idx < window",
					  2, names, &mask));
	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_SCORE, "soft_cap(30.0)", 0, NULL, &score));
	params.mask = mask;
	params.score = score;
	worker_ok(worker, paged_mod_set_create(worker->batch, &params, &decode_loop->mod_set));
}

static void
decode_loop_begin(struct decode_loop *decode_loop)
{
	uint32_t tokens[N_SEQS];

	worker_open(&decode_loop->worker, NULL, RESERVE_AHEAD);
	worker_ok(&decode_loop->worker,
		  seqs_create(decode_loop->worker.client, decode_loop->worker.pool, N_SEQS, decode_loop->seq));
	for (uint32_t i = 0; i < N_SEQS; i++) {
		/* Prompts of different lengths. */
		decode_loop->rows[i] = (struct paged_batch_row){ .seq = decode_loop->seq[i],
								 .q_len = 1,
								 .kv_len = PROMPT_TOKENS + 5 * i };
		tokens[i] = decode_loop->rows[i].kv_len + RESERVE_AHEAD;
	}
	worker_ok(&decode_loop->worker, seqs_reserve(decode_loop->worker.client, N_SEQS, decode_loop->seq, tokens));
	decode_loop_begin_mods(decode_loop);
}

static enum paged_status
decode_loop_plan(struct decode_loop *decode_loop)
{
	enum paged_status status;

	for (uint32_t i = 0; i < N_SEQS; i++)
		decode_loop->rows[i].kv_len++;
	status = paged_batch_plan(decode_loop->worker.batch, N_SEQS, decode_loop->rows);
	return status == PAGED_OK ? decode_loop_bind(decode_loop) : status;
}

/* Append and attention of a step. */
static void
decode_loop_attend(struct decode_loop *decode_loop)
{
	static float data[N_SEQS * WORKER_OUT], out[N_SEQS * WORKER_OUT];
	const struct paged_tensor kv = {
		.data = data, .dtype = PAGED_F32, .n_heads = WORKER_KV_HEADS, .dim = WORKER_DIM
	};
	const struct paged_tensor q = { .data = data, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };
	const struct paged_tensor o = { .data = out, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };

	const struct paged_attention_params params = { .struct_size = sizeof(params), .mod_set = decode_loop->mod_set };

	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		worker_ok(&decode_loop->worker, paged_append(decode_loop->worker.batch, layer, &kv, &kv, NULL));
		worker_ok(&decode_loop->worker, paged_attention(decode_loop->worker.batch, layer, &q, &o, &params));
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
#define REQUESTS_BOUND (N_STEPS / RESERVE_AHEAD + 2)

IT_TEST(reserve_ahead_bounds_requests)
{
	struct it_daemon daemon;
	struct decode_loop decode_loop;
	struct worker_fixture observer;
	uint64_t before, n;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	worker_observe(&observer);
	decode_loop_begin(&decode_loop);
	worker_ok(&decode_loop.worker, decode_loop_plan(&decode_loop));
	before = requests_so_far(&observer);
	for (uint32_t step = 0; step < N_STEPS; step++) {
		decode_loop_attend(&decode_loop);
		worker_ok(&decode_loop.worker, decode_loop_plan(&decode_loop));
	}
	n = requests_so_far(&observer) - before - 1; /* the count itself */
	it_note("%u steps of %u sequences took %u pages with %llu requests, at most %u expected", N_STEPS, N_SEQS,
		worker_pool_entry(&observer, "test").n_referenced, (unsigned long long)n, REQUESTS_BOUND);
	it_require(n >= 1 && n <= REQUESTS_BOUND);
	it_require(worker_pool_entry(&observer, "test").n_referenced >= N_SEQS * (N_STEPS + PROMPT_TOKENS) / PAGE_SIZE);
	worker_check_pool(&observer);
	worker_close(&decode_loop.worker);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

struct traced {
	uint32_t n_steps;
	uint32_t ping_steps; /* steps between pings */
};

/* Often enough that a slow daemon has replied before the pages that were reserved ahead are used up. */
#define PING_STEPS 16u

/* The traced process: getppid() opens and closes each plan. */
static void
traced_process(int from, int to, void *argument)
{
	static struct decode_loop decode_loop;
	const struct traced *traced = argument;
	char word;

	decode_loop_begin(&decode_loop);
	worker_ok(&decode_loop.worker, decode_loop_plan(&decode_loop));
	it_send(to, "b", 1);
	it_receive(from, &word, 1);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	raise(SIGSTOP);
	for (uint32_t step = 0; step < traced->n_steps; step++) {
		enum paged_status status;

		decode_loop_attend(&decode_loop);
		syscall(SYS_getppid);
		status = decode_loop_plan(&decode_loop);
		syscall(SYS_getppid);
		worker_ok(&decode_loop.worker, status);
		if (step % traced->ping_steps == traced->ping_steps - 1)
			worker_ok(&decode_loop.worker, paged_client_ping(decode_loop.worker.client));
	}
	fflush(stdout);
	_exit(0); /* LeakSanitizer cannot work while it is traced */
}

struct syscall_counts {
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
syscall_count_add(struct syscall_counts *syscall_counts, const struct __ptrace_syscall_info *info, bool *inside,
		  uint32_t *here)
{
	if (info->entry.nr == SYS_getppid) {
		if (*inside) {
			syscall_counts->n_plans++;
			syscall_counts->n_with_calls += *here != 0;
			syscall_counts->n_calls += *here;
		}
		*inside = !*inside;
		*here = 0;
	} else if (*inside) {
		++*here;
		syscall_counts->n_blocking += may_block(info);
		if (info->entry.nr < 512)
			syscall_counts->by_number[info->entry.nr]++;
	}
}

/* Trace the thread until it ends; returns its wait status. */
static int
trace_until_end(pid_t pid, struct syscall_counts *syscall_counts)
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
			syscall_count_add(syscall_counts, &info, &inside, &here);
	}
}

static void
trace_process(struct it_worker *child, struct syscall_counts *syscall_counts)
{
	int status = trace_until_end(child->pid, syscall_counts);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		it_skip("ptrace is refused");
	it_require(status == 0, "wait status %x", (unsigned int)status);
	close(child->to);
	close(child->from);
}

IT_TEST(plan_makes_few_system_calls)
{
	struct syscall_counts syscall_counts = { 0 };
	uint64_t before, n, ms, began;
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture observer;
	char word;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, traced_process, &(struct traced){ N_STEPS, PING_STEPS });
	it_receive(child.from, &word, 1);
	before = requests_so_far(&observer);
	it_send(child.to, "g", 1);
	began = it_now_ms();
	trace_process(&child, &syscall_counts);
	ms = it_now_ms() - began;
	n = requests_so_far(&observer) - before - 1 - N_STEPS / PING_STEPS;
	for (uint32_t i = 0; i < 512; i++)
		if (syscall_counts.by_number[i] != 0)
			it_note("system call %u: %u times", i, syscall_counts.by_number[i]);
	it_note("%u plans: %u with system calls (%u calls in all), %llu requests, %llu ms", syscall_counts.n_plans,
		syscall_counts.n_with_calls, syscall_counts.n_calls, (unsigned long long)n, (unsigned long long)ms);
	it_require(syscall_counts.n_plans == N_STEPS);
	it_require(syscall_counts.n_blocking == 0, "%u of them may block", syscall_counts.n_blocking);
	it_require(n <= REQUESTS_BOUND);
	/* One send per request, one poll of the control socket a second, and one for a late reply every 10 ms. */
	it_require(syscall_counts.n_with_calls <= n + ms / 1000 + ms / 10 + 2);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* While a request has no reply, plan does not poll for it in each step either. */
IT_TEST(plan_makes_few_system_calls_while_daemon_is_stopped)
{
	uint32_t n_steps =
		RESERVE_AHEAD - 2; /* the first row sends a request in the first step and has capacity for this many */
	struct syscall_counts syscall_counts = { 0 };
	struct it_daemon daemon;
	struct it_worker child;
	uint64_t began, ms;
	char word;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	it_fork(&child, traced_process, &(struct traced){ n_steps, UINT32_MAX });
	it_receive(child.from, &word, 1);
	kill(daemon.pid, SIGSTOP);
	it_send(child.to, "g", 1);
	began = it_now_ms();
	trace_process(&child, &syscall_counts);
	kill(daemon.pid, SIGCONT);
	ms = it_now_ms() - began;
	it_note("%u plans in %llu ms: %u with system calls", syscall_counts.n_plans, (unsigned long long)ms,
		syscall_counts.n_with_calls);
	it_require(syscall_counts.n_plans == n_steps && syscall_counts.n_blocking == 0);
	/* The send, one poll of the control socket a second, and one poll for the reply every 10 ms. */
	it_require(syscall_counts.n_with_calls <= 2 + ms / 1000 + ms / 10 + 1);
	it_daemon_stop(&daemon);
}

IT_MAIN
