/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers in shared memory (mbarrier).  A barrier's phase ends when the
 * expected number of threads has arrived.  Threads that wait need not arrive,
 * and threads that arrive need not wait.
 *
 * A thread that arrives "with its copies" arrives when these have happened.
 * That is as late as possible: when another thread waits.
 */
#include <string.h>

#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define MAX_BARRIERS 64

struct mbarrier {
	const uint64_t *at;
	uint32_t n_expected, n_arrived;
	uint32_t phase;
	unsigned int n_waiting;
	unsigned int n_lists;
	struct copy_list *lists[SIMT_MAX_THREADS]; /* of threads that arrive with them */
	struct race_clocks arriving, ended;        /* of this phase, and of those before */
};

static struct mbarrier barriers[MAX_BARRIERS];
static unsigned int n_barriers;

void
mbarrier_begin(void)
{
	/* Copies that no thread waited for, or of a block that failed. */
	for (unsigned int i = 0; i < n_barriers; i++)
		while (barriers[i].n_lists > 0)
			copy_async_drop(barriers[i].lists[--barriers[i].n_lists]);
	n_barriers = 0;
}

static struct mbarrier *
barrier_find(const uint64_t *at, const void *code)
{
	race_access((uintptr_t)at, sizeof(*at), false, code);
	for (unsigned int i = 0; i < n_barriers; i++)
		if (barriers[i].at == at)
			return &barriers[i];
	block_fail_at(code, "no barrier was initialised at %s", region_describe((uintptr_t)at));
}

void
simt_barrier_init(uint64_t *barrier, uint32_t n)
{
	const void *code = __builtin_return_address(0);

	race_access((uintptr_t)barrier, sizeof(*barrier), true, code);
	if (n == 0 || n > block.n_threads || n_barriers == MAX_BARRIERS)
		block_fail_at(code, "barrier of %u threads, of a block of %u with %u barriers", n, block.n_threads,
			      n_barriers);
	memset(&barriers[n_barriers], 0, sizeof(barriers[0]));
	barriers[n_barriers].at = barrier;
	barriers[n_barriers++].n_expected = n;
}

/* Count an arrival whose clocks are there. */
static void
barrier_count(struct mbarrier *barrier)
{
	if (++barrier->n_arrived < barrier->n_expected)
		return;
	barrier->ended = barrier->arriving;
	barrier->n_arrived = 0;
	barrier->phase++;
	block_wake(barrier);
}

static void
barrier_copy(struct mbarrier *barrier)
{
	unsigned int n = barrier->n_lists;

	barrier->n_lists = 0;
	for (unsigned int i = 0; i < n; i++) {
		copy_async_finish(barrier->lists[i]);
		barrier_count(barrier);
	}
}

void
simt_barrier_arrive(uint64_t *barrier)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	race_release(&found->arriving);
	barrier_count(found);
}

void
simt_barrier_arrive_copies(uint64_t *barrier)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	if (found->n_arrived + found->n_lists >= found->n_expected)
		block_fail_at(__builtin_return_address(0), "more than %u threads arrive at a barrier in one phase",
			      found->n_expected);
	found->lists[found->n_lists++] = copy_async_detach();
	race_release(&found->arriving);
	if (found->n_waiting > 0)
		barrier_copy(found);
}

void
simt_model_barrier_wait(uint64_t *barrier, uint32_t parity, const char *file, int line)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	found->n_waiting++;
	while ((found->phase & 1) == parity) {
		barrier_copy(found);
		if ((found->phase & 1) == parity)
			block_sleep(found, "a barrier in shared memory", file, line);
	}
	found->n_waiting--;
	race_acquire(&found->ended);
}
