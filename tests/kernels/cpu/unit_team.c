/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of threads: items, signals, fork, refused parameters. */
#include "config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/schedule/team.h"
#include "tests/support/kernel_test.h"

#define N_ITEMS 1000u

static void
count_items(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	_Atomic uint32_t *counts = context;
	uint64_t item;

	cr_assert_eq((uintptr_t)scratch % 64, 0);
	while ((item = kernel_team_next_item(team)) < N_ITEMS)
		atomic_fetch_add(&counts[item], 1);
}

Test(team, runs_each_item_once)
{
	static _Atomic uint32_t counts[N_ITEMS];

	for (uint32_t n = 1; n <= 4; n++) {
		struct kernel_team *team = kernel_test_team(n, KERNEL_GENERIC);

		memset((void *)counts, 0, sizeof(counts));
		for (uint32_t call = 1; call <= 2000; call++) {
			kernel_team_run(team, false, count_items, counts);
			if (call % 500 == 0)
				usleep(2000); /* long enough that the team's threads sleep */
		}
		for (uint32_t i = 0; i < N_ITEMS; i++)
			cr_assert_eq(counts[i], 2000);
		kernel_team_destroy(team);
	}
}

static _Atomic pid_t signalled_thread;

static void
note_thread(int number)
{
	(void)number;
	signalled_thread = gettid();
}

/* A thread of the program handles its signals, even while it sleeps. */
Test(team, worker_threads_block_signals)
{
	struct kernel_team *team = kernel_test_team(4, KERNEL_GENERIC);
	sigset_t usr1;

	signal(SIGUSR1, note_thread);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	kill(getpid(), SIGUSR1);
	usleep(20000);
	cr_assert_eq(signalled_thread, 0);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	cr_assert_eq(signalled_thread, gettid());
	kernel_team_destroy(team);
}

static _Atomic pid_t probe_thread;
static _Atomic uint32_t n_on_other_threads;
static _Atomic bool probe_done;

static void
count_on_other_threads(int number)
{
	(void)number;
	if (gettid() != probe_thread)
		atomic_fetch_add(&n_on_other_threads, 1);
}

static void *
probe_cpus(void *argument)
{
	struct paged_error error;
	sigset_t usr1;

	probe_thread = gettid();
	for (uint32_t i = 0; i < 300; i++)
		kernel_cpus_check(NULL, 0, &error);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	probe_done = true;
	return argument;
}

/* The thread that probes CPUs blocks signals too. */
Test(team, cpu_probe_thread_blocks_signals)
{
	pthread_t thread;
	sigset_t usr1;

	signal(SIGUSR1, count_on_other_threads);
	cr_assert_eq(pthread_create(&thread, NULL, probe_cpus, NULL), 0);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	while (probe_thread == 0)
		usleep(100);
	while (!probe_done)
		kill(getpid(), SIGUSR1);
	pthread_join(thread, NULL);
	cr_assert_eq(n_on_other_threads, 0, "%u were handled there", n_on_other_threads);
}

Test(team, forked_child_abandons_the_team)
{
	struct kernel_team *team = kernel_test_team(3, KERNEL_GENERIC);
	pid_t child = fork();
	int status;

	if (child == 0) {
		kernel_team_abandon(team);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kernel_team_destroy(team);
}

Test(team, refuses_invalid_params)
{
	const struct kernel_team_params none = { .isa = KERNEL_GENERIC };
	const struct kernel_team_params unknown = { .n_threads = 1, .isa = KERNEL_N_ISAS };
	struct kernel_team *team = NULL;
	struct paged_error error = { 0 };

	cr_assert_eq(kernel_team_create(&none, &team, &error), PAGED_ERR_INVALID);
	cr_assert_eq(kernel_team_create(&unknown, &team, &error), PAGED_ERR_UNSUPPORTED);
	cr_assert_null(team);
	kernel_team_destroy(NULL);
	kernel_team_abandon(NULL);
}

Test(team, isa_names_round_trip)
{
	for (enum kernel_isa isa = 0; isa < KERNEL_N_ISAS; isa++)
		cr_assert_eq(kernel_isa_parse(kernel_isa_name(isa)), isa);
	cr_assert_eq(kernel_isa_parse("sse9"), KERNEL_N_ISAS);
	cr_assert(kernel_isa_supported(KERNEL_GENERIC));
	cr_assert(kernel_isa_supported(kernel_isa_best()));
	for (enum kernel_isa limit = KERNEL_GENERIC; limit < KERNEL_N_ISAS; limit++) {
		enum kernel_isa best = kernel_isa_best_up_to(limit);

		cr_assert(best <= limit && kernel_isa_supported(best) &&
			  (best == limit || !kernel_isa_supported(limit)));
	}
}

/* With `late`, threads run for the first time when another thread waits for one of them to end. */
static struct {
	_Atomic bool late, joining;
	_Atomic unsigned int n_late, n_moves;
} threads;

struct late_start {
	void *(*run)(void *);
	void *argument;
};

static void *
run_late(void *argument)
{
	struct late_start start = *(struct late_start *)argument;

	free(argument);
	while (!atomic_load(&threads.joining))
		sched_yield();
	threads.n_late++;
	return start.run(start.argument);
}

/* These interpose the C library's. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	struct late_start *start;

	*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	if (!atomic_load(&threads.late))
		return create(thread, attributes, run, argument);
	start = malloc(sizeof(*start));
	cr_assert_not_null(start);
	*start = (struct late_start){ run, argument };
	return create(thread, attributes, run_late, start);
}

int
pthread_join(pthread_t thread, void **result)
{
	int (*join)(pthread_t, void **);

	*(void **)&join = dlsym(RTLD_NEXT, "pthread_join");
	atomic_store(&threads.joining, true);
	return join(thread, result);
}

int
pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *cpus)
{
	int (*set)(pthread_t, size_t, const cpu_set_t *);

	*(void **)&set = dlsym(RTLD_NEXT, "pthread_setaffinity_np");
	threads.n_moves++;
	return set(thread, size, cpus);
}

/* A team that ends before its threads have run waits for nothing but their start. */
Test(team, threads_that_start_after_the_end_do_nothing)
{
	struct kernel_team *team;

	threads.joining = false;
	threads.late = true;
	team = kernel_test_team(4, KERNEL_GENERIC);
	threads.late = false;
	kernel_team_destroy(team);
	cr_assert_eq(threads.n_late, 3);
	cr_assert_eq(threads.n_moves, 0, "they moved to other CPUs first");
}
