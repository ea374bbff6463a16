/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers in shared memory (mbarrier), and bulk copies.  A barrier's phase
 * ends when the expected number of threads has arrived, and as many bytes were
 * copied as these threads expect.  Threads that wait need not arrive, and
 * threads that arrive need not wait.
 *
 * Copies happen as late as possible: when a thread waits at the barrier.  A
 * thread that arrives "with its copies" arrives then.
 */
#include <string.h>

#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define MAX_BARRIERS 64
#define MAX_BULK_COPIES 256 /* to one barrier, on their way */

struct bulk_copy {
	void *to;
	const void *from;
	uint32_t size;
	unsigned int thread;
	uint32_t clock; /* that thread's, when it issued the copy */
	const void *code;
};

struct mbarrier {
	const uint64_t *at;
	uint32_t n_expected, n_arrived;
	int64_t n_bytes; /* that arrived threads expect, and that were not copied; below 0: copied first */
	uint32_t phase;
	unsigned int n_waiting;
	unsigned int n_lists;
	struct copy_list *lists[SIMT_MAX_THREADS]; /* of threads that arrive with them */
	unsigned int n_copies;
	struct bulk_copy copies[MAX_BULK_COPIES];
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

/* End the phase if all have arrived and nothing is to be copied. */
static void
barrier_end(struct mbarrier *barrier)
{
	if (barrier->n_arrived < barrier->n_expected || barrier->n_bytes != 0)
		return;
	barrier->ended = barrier->arriving;
	barrier->n_arrived = 0;
	barrier->phase++;
	block_wake(barrier);
}

/* Count an arrival whose clocks are there. */
static void
barrier_count(struct mbarrier *barrier, const void *code)
{
	if (barrier->n_arrived == barrier->n_expected)
		block_fail_at(code, "more than %u threads arrive at a barrier in one phase", barrier->n_expected);
	barrier->n_arrived++;
	barrier_end(barrier);
}

static void
bulk_copy_finish(struct mbarrier *barrier, const struct bulk_copy *copy)
{
	race_access((uintptr_t)copy->from, copy->size, false, copy->code);
	memcpy(copy->to, copy->from, copy->size);
	race_copy_end((uintptr_t)copy->to, copy->size, true, copy->thread, copy->clock);
	race_release_copy(&barrier->arriving, copy->thread, copy->clock);
	barrier->n_bytes -= copy->size;
}

static void
barrier_copy(struct mbarrier *barrier)
{
	unsigned int n = barrier->n_lists;

	for (unsigned int i = 0; i < barrier->n_copies; i++)
		bulk_copy_finish(barrier, &barrier->copies[i]);
	if (barrier->n_copies != 0)
		barrier_end(barrier);
	barrier->n_copies = barrier->n_lists = 0;
	for (unsigned int i = 0; i < n; i++) {
		copy_async_finish(barrier->lists[i]);
		barrier_count(barrier, NULL);
	}
}

void
simt_barrier_arrive(uint64_t *barrier)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	race_release(&found->arriving);
	barrier_count(found, __builtin_return_address(0));
}

void
simt_barrier_arrive_expecting(uint64_t *barrier, uint32_t n_bytes)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	race_release(&found->arriving);
	found->n_bytes += n_bytes;
	barrier_count(found, __builtin_return_address(0));
}

void
simt_copy_bulk(void *shared, const void *global, uint32_t n_bytes, uint64_t *barrier)
{
	const void *code = __builtin_return_address(0);
	struct mbarrier *found = barrier_find(barrier, code);
	size_t offset = (size_t)((unsigned char *)shared - block.shared);

	if ((uintptr_t)shared % 16 != 0 || (uintptr_t)global % 16 != 0 || n_bytes % 16 != 0 || n_bytes == 0)
		block_fail_at(code, "a bulk copy of %u bytes between addresses of which not all are multiples of 16",
			      n_bytes);
	if (offset >= block.launch->shared_size)
		block_fail_at(code, "a bulk copy to what is not shared memory");
	if (found->n_copies == MAX_BULK_COPIES)
		block_fail_at(code, "more than %u bulk copies to a barrier on their way", MAX_BULK_COPIES);
	race_access((uintptr_t)global, n_bytes, false, code);
	race_copy_begin((uintptr_t)shared, n_bytes, true, code);
	found->copies[found->n_copies++] =
		(struct bulk_copy){ shared, global, n_bytes, block.thread, race_clock_now(), code };
	if (found->n_waiting > 0)
		barrier_copy(found);
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
