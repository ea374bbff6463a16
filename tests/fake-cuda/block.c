/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler: runs blocks or clusters one after another, switches between threads, implements barriers. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fibre.h"
#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define N_BARRIERS 16 /* of a block: 0 is the block's; the others have names */
#define CLUSTER_BARRIER (SIMT_MAX_CLUSTER * N_BARRIERS)

enum thread_state { THREAD_READY, THREAD_IN_MEETING, THREAD_AT_BARRIER, THREAD_ASLEEP, THREAD_ENDED };

struct thread {
	enum thread_state state;
	bool waited;          /* for the launch before */
	unsigned int barrier; /* THREAD_AT_BARRIER: its place in `barriers` */
	const void *on;       /* THREAD_ASLEEP: until block_wake() of this */
	const char *what;     /* it waits for */
	const char *file;     /* where from */
	int line;
	const unsigned char *params; /* its copy of them */
};

struct meeting {
	unsigned int n_arrived;
	unsigned int first;
	block_complete_fn complete;
	void *arguments[SIMT_WARP];
};

struct barrier {
	unsigned int n_arrived, n_expected;
	unsigned int first;
};

struct block block;
static struct thread threads[SIMT_MAX_THREADS];
static struct meeting meetings[SIMT_MAX_THREADS / SIMT_WARP];
static struct barrier barriers[CLUSTER_BARRIER + 1]; /* those of each block, then the cluster's */
static uint16_t order[SIMT_MAX_THREADS], position[SIMT_MAX_THREADS];
static unsigned int n_ended[SIMT_MAX_CLUSTER];

/* Orders */

static uint64_t
random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static void
order_fill(unsigned int *numbers, unsigned int n, uint64_t seed, uint64_t *random)
{
	for (unsigned int i = 0; i < n; i++)
		numbers[i] = seed == 1 ? n - 1 - i : i;
	for (unsigned int i = n; seed > 1 && i > 1; i--) {
		unsigned int j = (unsigned int)(random_next(random) % i), swapped = numbers[i - 1];

		numbers[i - 1] = numbers[j];
		numbers[j] = swapped;
	}
}

/* Warps in some order, the lanes of each in some order: lanes of a warp are neighbours, which saves looking. */
static void
order_threads(uint64_t seed, uint64_t *random)
{
	unsigned int warps[SIMT_MAX_THREADS / SIMT_WARP], lanes[SIMT_WARP], n = 0;

	order_fill(warps, block.n_all_threads / SIMT_WARP, seed, random);
	for (unsigned int i = 0; i < block.n_all_threads / SIMT_WARP; i++) {
		order_fill(lanes, SIMT_WARP, seed, random);
		for (unsigned int j = 0; j < SIMT_WARP; j++, n++) {
			order[n] = (uint16_t)(warps[i] * SIMT_WARP + lanes[j]);
			position[order[n]] = (uint16_t)n;
		}
	}
}

/* Scheduling */

const char *
block_thread_name(unsigned int thread)
{
	static char text[2][64];
	static unsigned int next;
	char *at = text[next++ % 2];

	if (block_rank_of(thread) == block_rank())
		snprintf(at, sizeof(text[0]), "thread %u", thread % block.n_threads);
	else
		snprintf(at, sizeof(text[0]), "thread %u of block (%u, %u)", thread % block.n_threads,
			 block.x + block_rank_of(thread), block.y);
	return at;
}

static const char *
thread_describe(unsigned int t)
{
	static char text[2][200];
	static unsigned int next;
	char *at = text[next++ % 2];
	const struct thread *thread = &threads[t];

	if (thread->state == THREAD_ENDED)
		snprintf(at, sizeof(text[0]), "%s has ended", block_thread_name(t));
	else if (thread->state == THREAD_READY)
		snprintf(at, sizeof(text[0]), "%s runs", block_thread_name(t));
	else
		snprintf(at, sizeof(text[0]), "%s waits in %s (%s:%d)", block_thread_name(t), thread->what,
			 thread->file, thread->line);
	return at;
}

/* Deadlock: every thread that has not ended waits.  Reports a waiting thread and one that it waits for. */
static void
fail_stuck(void)
{
	unsigned int waits = 0, other = 0;

	while (threads[waits].state == THREAD_ENDED)
		waits++;
	for (other = 0; other < block.n_all_threads; other++) {
		const struct thread *t = &threads[other];

		if (threads[waits].state == THREAD_IN_MEETING && other / SIMT_WARP != waits / SIMT_WARP)
			continue;
		if (threads[waits].state == THREAD_AT_BARRIER && threads[waits].barrier != CLUSTER_BARRIER &&
		    block_rank_of(other) != block_rank_of(waits))
			continue;
		if (t->state != threads[waits].state ||
		    (t->state == THREAD_AT_BARRIER && t->barrier != threads[waits].barrier))
			break;
	}
	if (other == block.n_all_threads)
		block_fail("%s, for threads that do not exist", thread_describe(waits));
	block_fail("%s, but %s", thread_describe(waits), thread_describe(other));
}

static void
run_another(void)
{
	unsigned int self = block.thread, at = position[self];

	for (unsigned int i = 1; i < block.n_all_threads; i++) {
		unsigned int next = order[(at + i) % block.n_all_threads];

		if (threads[next].state == THREAD_READY) {
			block.thread = next;
			fibre_change(self, next);
			return;
		}
	}
	fail_stuck();
}

static void
wait_in(enum thread_state state, const char *what, const char *file, int line)
{
	struct thread *thread = &threads[block.thread];

	thread->state = state;
	thread->what = what;
	thread->file = file;
	thread->line = line;
}

bool
block_has_ended(unsigned int rank)
{
	return n_ended[rank] == block.n_threads;
}

static bool
all_ended(void)
{
	for (unsigned int rank = 0; rank < block.n_blocks; rank++)
		if (!block_has_ended(rank))
			return false;
	return true;
}

static void
thread_start(void)
{
	block.launch->kernel->run(block.launch->params);
	if (block_begins_early())
		block_fail("it ends without simt_dependency_wait(), in a dependent launch");
	threads[block.thread].state = THREAD_ENDED;
	if (++n_ended[block_rank()] == block.n_threads) {
		mbarrier_block_end();
		race_block_end();
	}
	if (all_ended())
		fibre_leave(block.thread);
	else
		run_another();
	abort();
}

void
block_sleep(const void *on, const char *what, const char *file, int line)
{
	wait_in(THREAD_ASLEEP, what, file, line);
	threads[block.thread].on = on;
	run_another();
}

void
block_wake(const void *on)
{
	for (unsigned int t = 0; t < block.n_all_threads; t++)
		if (threads[t].state == THREAD_ASLEEP && threads[t].on == on)
			threads[t].state = THREAD_READY;
}

/* Barriers and meetings */

static bool
thread_is_at(unsigned int t, const char *file, int line)
{
	return threads[t].line == line && (threads[t].file == file || strcmp(threads[t].file, file) == 0);
}

void
block_meet(block_complete_fn complete, const char *what, void *argument, const char *file, int line)
{
	unsigned int self = block.thread, warp = self / SIMT_WARP;
	struct meeting *meeting = &meetings[warp];

	if (meeting->n_arrived == 0) {
		meeting->first = self;
		meeting->complete = complete;
	} else if (meeting->complete != complete || !thread_is_at(meeting->first, file, line)) {
		block_fail("%s in divergent code: this lane is at %s:%d, %s", what, file, line,
			   thread_describe(meeting->first));
	}
	meeting->arguments[self % SIMT_WARP] = argument;
	if (++meeting->n_arrived < SIMT_WARP) {
		wait_in(THREAD_IN_MEETING, what, file, line);
		run_another();
		return;
	}
	meeting->n_arrived = 0;
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++)
		threads[warp * SIMT_WARP + lane].state = THREAD_READY;
	complete(meeting->arguments);
}

static void
barrier_release(unsigned int index)
{
	uint16_t met[SIMT_MAX_THREADS];
	unsigned int n = 0;

	for (unsigned int t = 0; t < block.n_all_threads; t++) {
		if (threads[t].state != THREAD_AT_BARRIER || threads[t].barrier != index)
			continue;
		threads[t].state = THREAD_READY;
		met[n++] = (uint16_t)t;
	}
	barriers[index].n_arrived = 0;
	race_join(met, n);
}

static void
barrier_wait(unsigned int index, const char *what, unsigned int n_expected, const char *file, int line)
{
	struct barrier *barrier = &barriers[index];

	if (barrier->n_arrived == 0) {
		barrier->first = block.thread;
		barrier->n_expected = n_expected;
	}
	wait_in(THREAD_AT_BARRIER, what, file, line);
	threads[block.thread].barrier = index;
	if (++barrier->n_arrived < n_expected)
		run_another();
	else
		barrier_release(index);
}

void
simt_model_sync(const char *file, int line)
{
	unsigned int index = block_rank() * N_BARRIERS;
	const struct barrier *barrier = &barriers[index];

	if (barrier->n_arrived != 0 && !thread_is_at(barrier->first, file, line))
		block_fail("barrier in divergent code: this thread is at %s:%d, %s", file, line,
			   thread_describe(barrier->first));
	barrier_wait(index, "a barrier", block.n_threads, file, line);
}

void
simt_model_sync_part(int id, int n_threads, const char *file, int line)
{
	const struct barrier *barrier;
	unsigned int index;

	if (id < 1 || id >= N_BARRIERS || n_threads < SIMT_WARP || n_threads % SIMT_WARP != 0 ||
	    (unsigned int)n_threads > block.n_threads)
		block_fail("named barrier %d of %d threads: 1 to 15, of whole warps of the block (%s:%d)", id,
			   n_threads, file, line);
	index = block_rank() * N_BARRIERS + (unsigned int)id;
	barrier = &barriers[index];
	if (barrier->n_arrived != 0 && barrier->n_expected != (unsigned int)n_threads)
		block_fail("barrier %d is of %d threads here (%s:%d), but of %u where %s", id, n_threads, file, line,
			   barrier->n_expected, thread_describe(barrier->first));
	barrier_wait(index, "a named barrier", (unsigned int)n_threads, file, line);
}

static void
cluster_sync_complete(void *const arguments[SIMT_WARP])
{
	(void)arguments;
}

/* Warps may come from different places; the lanes of each are converged. */
void
simt_model_cluster_sync(const char *file, int line)
{
	block_meet(cluster_sync_complete, "a cluster's barrier", NULL, file, line);
	barrier_wait(CLUSTER_BARRIER, "a cluster's barrier", block.n_all_threads, file, line);
}

/* Dependent launches */

bool
block_begins_early(void)
{
	return block.launch->dependent && !threads[block.thread].waited;
}

void
simt_model_dependency_wait(void)
{
	threads[block.thread].waited = true;
}

/* Who and where */

uint32_t
simt_thread(void)
{
	return block.thread % block.n_threads;
}

uint32_t
simt_n_threads(void)
{
	return block.n_threads;
}

uint32_t
simt_block(void)
{
	return block.x + block_rank();
}

uint32_t
simt_block_y(void)
{
	return block.y;
}

uint32_t
simt_n_blocks(void)
{
	return block.launch->grid[0];
}

uint32_t
simt_cluster_rank(void)
{
	return block_rank();
}

void
simt_model_params(const void *params)
{
	threads[block.thread].params = params;
}

bool
block_params_have(const void *at, size_t size)
{
	size_t offset = (size_t)((const unsigned char *)at - threads[block.thread].params);

	return offset < block.launch->kernel->params_size && block.launch->kernel->params_size - offset >= size;
}

void *
simt_model_shared(size_t size, size_t alignment)
{
	if (size > block.launch->shared_size)
		block_fail("%zu bytes of shared memory used, %zu given at launch", size, block.launch->shared_size);
	if (alignment > 1024)
		block_fail("shared memory aligned to %zu bytes wanted; it is to 1024", alignment);
	return block_shared();
}

/* Launches */

/* The blocks of a cluster are adjacent in x. */
static bool
cluster_run(unsigned int number, uint64_t *random)
{
	unsigned int n_clusters_x = block.launch->grid[0] / block.n_blocks;

	block.x = number % n_clusters_x * block.n_blocks;
	block.y = number / n_clusters_x;
	memset(threads, 0, block.n_all_threads * sizeof(threads[0]));
	memset(meetings, 0, sizeof(meetings));
	memset(barriers, 0, sizeof(barriers));
	for (unsigned int rank = 0; rank < block.n_blocks; rank++) {
		/* NaN, or a number that no table has */
		memset(block.shared[rank], 0xff, block.launch->shared_size);
		region_forget_shared((uintptr_t)block.shared[rank]);
	}
	memset(n_ended, 0, sizeof(n_ended));
	order_threads(block.launch->seed, random);
	race_block_begin();
	copy_async_begin(block.n_all_threads);
	mbarrier_begin();
	wgmma_begin();
	for (unsigned int t = 0; t < block.n_all_threads; t++) {
		if (!fibre_prepare(t, thread_start)) {
			failure_write("no memory for %u stacks", block.n_all_threads);
			return false;
		}
	}
	block.thread = order[0];
	fibre_enter(block.thread);
	return !failure_happened();
}

static const char *
launch_refusal(const struct simt_launch *launch)
{
	unsigned int n_cluster_blocks = launch->kernel->n_cluster_blocks;

	if (launch->n_threads == 0 || launch->n_threads > launch->kernel->max_threads ||
	    launch->n_threads > SIMT_MAX_THREADS)
		return "more threads than its launch bounds, or none";
	if (launch->n_threads % SIMT_WARP != 0)
		return "a block that is no whole number of warps";
	if (launch->grid[0] == 0 || launch->grid[1] == 0)
		return "an empty grid";
	if (launch->grid[0] % n_cluster_blocks != 0)
		return "a grid that is no whole number of clusters";
	if (launch->n_threads * n_cluster_blocks > SIMT_MAX_THREADS)
		return "a cluster of more threads than are modelled";
	if (launch->shared_size > SIMT_MAX_SHARED)
		return "more shared memory than a block can have";
	return NULL;
}

static bool
launch_clusters(const struct simt_launch *launch, unsigned int n_clusters)
{
	unsigned int *clusters = malloc(n_clusters * sizeof(*clusters));
	uint64_t random = launch->seed;
	bool good = clusters != NULL && race_launch_begin(block.n_all_threads, n_clusters);

	if (!good) {
		failure_write("kernel %s: no memory", launch->kernel->name);
		free(clusters);
		return false;
	}
	order_fill(clusters, n_clusters, launch->seed, &random);
	for (unsigned int i = 0; good && i < n_clusters; i++)
		good = cluster_run(clusters[i], &random);
	race_launch_end();
	free(clusters);
	return good;
}

bool
simt_run(const struct simt_launch *launch, char *message, size_t size)
{
	static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;
	static _Alignas(1024) unsigned char shared[SIMT_MAX_CLUSTER][SIMT_MAX_SHARED];
	static const char *const names[SIMT_MAX_CLUSTER] = { "shared memory of rank 0", "shared memory of rank 1" };
	unsigned int n_blocks = launch->kernel->n_cluster_blocks;
	const char *refusal = launch_refusal(launch);
	bool good;

	if (refusal != NULL) {
		snprintf(message, size, "kernel %s: launched with %s", launch->kernel->name, refusal);
		return false;
	}
	pthread_mutex_lock(&launch_lock);
	failure_begin(message, size);
	block = (struct block){
		.launch = launch,
		.n_blocks = n_blocks,
		.n_threads = launch->n_threads,
		.n_all_threads = launch->n_threads * n_blocks,
	};
	for (unsigned int rank = 0; rank < n_blocks; rank++) {
		block.shared[rank] = shared[rank];
		if (launch->shared_size > 0)
			simt_region_add(shared[rank], launch->shared_size, true,
					n_blocks == 1 ? "shared memory" : names[rank]);
	}
	if (launch->kernel->params_size > 0)
		simt_region_add(launch->params, launch->kernel->params_size, false, "the kernel's parameters");
	good = launch_clusters(launch, launch->grid[0] / n_blocks * launch->grid[1]);
	simt_region_remove(launch->params);
	for (unsigned int rank = 0; rank < n_blocks; rank++)
		simt_region_remove(shared[rank]);
	block.launch = NULL;
	pthread_mutex_unlock(&launch_lock);
	return good;
}
