/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/schedule/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/schedule/cpus.h"
#include "kernels/cpu/scratch.h"

/* Polls of a futex word before sleeping on it: about 10 us, the cost of a sleep and a wake-up. */
#define TEAM_SPINS 300
#define TEAM_MAX_THREADS 1024u

/* Gate word: this bit means open; the other bits count the threads inside. */
#define GATE_OPEN 0x80000000u

struct team_thread {
	struct kernel_team *team;
	struct team_scratch *scratch;
	pthread_t thread;
};

struct kernel_team {
	enum kernel_isa isa;
	const struct kernel_tile_ops *ops;
	uint32_t n_threads;  /* the caller included */
	uint32_t n_to_start; /* n_threads - 1; 0 with `run` */
	uint32_t n_started;
	int home_cpu;      /* CPU on which the creator ran */
	bool bound;        /* threads are bound to CPUs of the creator's choice */
	kernel_run_fn run; /* the caller's parallel-for, used instead of threads of the team; NULL: none */
	void *run_context;
	uint64_t section; /* counts calls of run() */
	void *memory;
	size_t memory_size;
	float *workspace;
	struct team_scratch *caller_scratch;

	/* The job: written only while the gate is shut and no thread is inside. */
	kernel_team_work_fn work;
	void *context;

	_Alignas(64) _Atomic uint64_t next_item;
	_Alignas(64) _Atomic uint32_t call; /* counts jobs; threads sleep on it */
	_Atomic uint32_t n_asleep;
	_Atomic bool stop;
	_Alignas(64) _Atomic uint32_t gate; /* the caller sleeps on it until it is 0 */
	_Atomic bool caller_asleep;

	_Alignas(64) _Atomic uint32_t n_done; /* parts of this section that are done */
	_Atomic uint32_t n_wrong;             /* indices out of range or repeated */
	uint32_t faulty_done, faulty_wrong;   /* of the first faulty section */
	bool faulty;

	struct team_thread threads[];
};

static void
futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void
futex_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void
cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Waits until the word is no longer `value`, and returns its new value. */
static uint32_t
team_wait_for_call(struct kernel_team *team, uint32_t value)
{
	uint32_t now;

	for (unsigned int i = 0; i < TEAM_SPINS; i++) {
		now = atomic_load(&team->call);
		if (now != value)
			return now;
		cpu_relax();
	}
	atomic_fetch_add(&team->n_asleep, 1);
	while ((now = atomic_load(&team->call)) == value)
		futex_wait(&team->call, value);
	atomic_fetch_sub(&team->n_asleep, 1);
	return now;
}

static bool
team_gate_enter(struct kernel_team *team)
{
	uint32_t gate = atomic_load(&team->gate);

	while (gate & GATE_OPEN)
		if (atomic_compare_exchange_weak(&team->gate, &gate, gate + 1))
			return true;
	return false;
}

static void
team_gate_leave(struct kernel_team *team)
{
	if (atomic_fetch_sub(&team->gate, 1) == 1 && atomic_load(&team->caller_asleep))
		futex_wake_all(&team->gate);
}

/*
 * Moves the calling thread to a CPU of its own, then allows all CPUs again.  A thread starts on its
 * creator's CPU.  If calls are too short for the load balancer to notice, Linux would always wake the
 * thread there, behind the caller.
 */
static void
team_thread_spread(const struct kernel_team *team, uint32_t index)
{
	cpu_set_t allowed, one;
	int cpu = team->home_cpu;

	if (pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed) != 0 || cpu < 0)
		return;
	for (uint32_t steps = index + 1; steps > 0; steps--)
		do
			cpu = (cpu + 1) % CPU_SETSIZE;
		while (!CPU_ISSET(cpu, &allowed));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0)
		pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed);
}

static void *
team_thread_main(void *argument)
{
	struct team_thread *team_thread = argument;
	struct kernel_team *team = team_thread->team;
	uint32_t call = 0;

	/*
	 * A team may be destroyed before its threads have run for the first time.  On a busy machine each move to
	 * another CPU puts the thread behind all that waits there, and the caller waits for it in pthread_join().
	 */
	if (!team->bound && !atomic_load(&team->stop))
		team_thread_spread(team, (uint32_t)(team_thread - team->threads));
	for (;;) {
		call = team_wait_for_call(team, call);
		if (atomic_load(&team->stop))
			return NULL;
		if (team_gate_enter(team)) {
			team->work(team, team->context, team_thread->scratch);
			team_gate_leave(team);
		}
	}
}

static void
team_wait_until_left(struct kernel_team *team)
{
	uint32_t gate;

	for (unsigned int i = 0; i < TEAM_SPINS; i++) {
		if (atomic_load(&team->gate) == 0)
			return;
		cpu_relax();
	}
	atomic_store(&team->caller_asleep, true);
	while ((gate = atomic_load(&team->gate)) != 0)
		futex_wait(&team->gate, gate);
	atomic_store(&team->caller_asleep, false);
}

static void
team_wake(struct kernel_team *team)
{
	atomic_fetch_add(&team->call, 1);
	if (atomic_load(&team->n_asleep) != 0)
		futex_wake_all(&team->call);
}

/* One part of a section, on a thread of run(). */
static void
team_part(void *argument, uint32_t index)
{
	struct kernel_team *team = argument;
	struct team_scratch *scratch = team->caller_scratch;

	if (index >= team->n_threads || atomic_exchange(&scratch[index].section, team->section) == team->section) {
		atomic_fetch_add(&team->n_wrong, 1);
		return;
	}
	team->work(team, team->context, &scratch[index]);
	atomic_fetch_add(&team->n_done, 1);
}

static void
team_run_parts(struct kernel_team *team)
{
	uint32_t n_done, n_wrong;

	team->section++;
	atomic_store(&team->n_done, 0);
	atomic_store(&team->n_wrong, 0);
	team->run(team->run_context, team_part, team, team->n_threads);
	n_done = atomic_load(&team->n_done);
	n_wrong = atomic_load(&team->n_wrong);
	if (team->faulty || (n_done == team->n_threads && n_wrong == 0))
		return;
	team->faulty = true;
	team->faulty_done = n_done;
	team->faulty_wrong = n_wrong;
}

enum paged_status
kernel_team_check(struct kernel_team *team, struct paged_error *error)
{
	if (!team->faulty)
		return PAGED_OK;
	team->faulty = false;
	if (team->faulty_wrong > 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "run() called work %u times for an index that had been, or is none of %u",
				  team->faulty_wrong, team->n_threads);
	return paged_fail(error, PAGED_ERR_INVALID, "run() returned when %u of %u parts were done", team->faulty_done,
			  team->n_threads);
}

void
kernel_team_run(struct kernel_team *team, bool alone, kernel_team_work_fn work, void *context)
{
	atomic_store(&team->next_item, 0);
	if (alone || team->n_threads == 1) {
		work(team, context, team->caller_scratch);
		return;
	}
	team->work = work;
	team->context = context;
	if (team->run != NULL) {
		team_run_parts(team);
		return;
	}
	atomic_store(&team->gate, GATE_OPEN);
	team_wake(team);
	work(team, context, team->caller_scratch);
	atomic_fetch_and(&team->gate, ~GATE_OPEN);
	team_wait_until_left(team);
}

uint64_t
kernel_team_next_item(struct kernel_team *team)
{
	return atomic_fetch_add_explicit(&team->next_item, 1, memory_order_relaxed);
}

enum kernel_isa
kernel_team_isa(const struct kernel_team *team)
{
	return team->isa;
}

const struct kernel_tile_ops *
kernel_team_ops(const struct kernel_team *team)
{
	return team->ops;
}

uint32_t
kernel_team_n_threads(const struct kernel_team *team)
{
	return team->n_threads;
}

float *
kernel_team_workspace(const struct kernel_team *team)
{
	return team->workspace;
}

/* Reserves address space only: memory that is never touched costs nothing. */
static enum paged_status
team_map_memory(struct kernel_team *team, struct paged_error *error)
{
	size_t workspace = team->n_threads > 1 ? KERNEL_TEAM_WORKSPACE * sizeof(float) : 0;
	struct team_scratch *scratch;

	team->memory_size = workspace + team->n_threads * sizeof(struct team_scratch);
	team->memory = mmap(NULL, team->memory_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (team->memory == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_NOMEM, "kernel threads: mapping %zu bytes of scratch: %s",
				  team->memory_size, strerror(errno));
	team->workspace = team->memory;
	scratch = (struct team_scratch *)(void *)((uint8_t *)team->memory + workspace);
	team->caller_scratch = scratch;
	for (uint32_t i = 0; i < team->n_threads; i++)
		scratch[i].thread = i;
	for (uint32_t i = 0; i < team->n_to_start; i++)
		team->threads[i] = (struct team_thread){ .team = team, .scratch = &scratch[i + 1] };
	return PAGED_OK;
}

/* If bound, the thread starts on its CPU, so the memory that it touches first is local (NUMA first touch). */
static int
team_thread_start(struct team_thread *team_thread, const uint32_t *cpu)
{
	pthread_attr_t attributes;
	int code;

	if (cpu == NULL)
		return pthread_create(&team_thread->thread, NULL, team_thread_main, team_thread);
	code = pthread_attr_init(&attributes);
	if (code != 0)
		return code;
	code = cpus_set_affinity(&attributes, *cpu);
	if (code == 0)
		code = pthread_create(&team_thread->thread, &attributes, team_thread_main, team_thread);
	pthread_attr_destroy(&attributes);
	return code;
}

/* Threads block all signals: signals are handled by the program's own threads. */
static enum paged_status
team_threads_start(struct kernel_team *team, const uint32_t *cpus, struct paged_error *error)
{
	sigset_t all, before;
	int code = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (team->n_started < team->n_to_start) {
		code = team_thread_start(&team->threads[team->n_started],
					 cpus != NULL ? &cpus[team->n_started + 1] : NULL);
		if (code != 0)
			break;
		team->n_started++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code == 0)
		return PAGED_OK;
	if (cpus != NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM,
				  "kernel threads: %u of %u started, the next one on CPU %u: %s", team->n_started + 1,
				  team->n_threads, cpus[team->n_started + 1], strerror(code));
	return paged_fail(error, PAGED_ERR_SYSTEM, "kernel threads: %u of %u started: %s", team->n_started + 1,
			  team->n_threads, strerror(code));
}

enum paged_status
kernel_team_create(const struct kernel_team_params *params, struct kernel_team **team_p, struct paged_error *error)
{
	uint32_t n_threads = params->n_threads;
	enum paged_status status;
	struct kernel_team *team;
	size_t size;

	if (!kernel_isa_supported(params->isa))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "kernels for %s: %s", kernel_isa_name(params->isa),
				  kernel_isa_unsupported_reason(params->isa));
	if (n_threads == 0 || n_threads > TEAM_MAX_THREADS)
		return paged_fail(error, PAGED_ERR_INVALID, "%u kernel threads: 1 to %u are possible", n_threads,
				  TEAM_MAX_THREADS);
	size = sizeof(*team) + (n_threads - 1) * sizeof(team->threads[0]);
	size = (size + 63) & ~(size_t)63;
	team = aligned_alloc(64, size);
	if (team == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "kernel threads: no memory for %u", n_threads);
	memset(team, 0, size);
	team->isa = params->isa;
	team->ops = kernel_tile_ops(params->isa);
	team->n_threads = n_threads;
	team->run = params->run;
	team->run_context = params->run_context;
	team->n_to_start = team->run != NULL ? 0 : n_threads - 1;
	team->home_cpu = sched_getcpu();
	team->bound = params->cpus != NULL;

	status = team_map_memory(team, error);
	if (status != PAGED_OK) {
		free(team);
		return status;
	}
	status = team_threads_start(team, params->cpus, error);
	if (status != PAGED_OK) {
		kernel_team_destroy(team);
		return status;
	}
	*team_p = team;
	return PAGED_OK;
}

void
kernel_team_destroy(struct kernel_team *team)
{
	if (team == NULL)
		return;
	atomic_store(&team->stop, true);
	team_wake(team);
	for (uint32_t i = 0; i < team->n_started; i++)
		pthread_join(team->threads[i].thread, NULL);
	kernel_team_abandon(team);
}

void
kernel_team_abandon(struct kernel_team *team)
{
	if (team == NULL)
		return;
	munmap(team->memory, team->memory_size);
	free(team);
}
