/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers in shared memory (mbarrier), bulk copies and tensor copies.  A barrier's phase
 * ends when the expected number of threads has arrived, and as many bytes were
 * copied as these threads expect.  Threads that wait need not arrive, and
 * threads that arrive need not wait.
 *
 * Copies happen as late as possible: when a thread waits at the barrier.  A
 * thread that arrives "with its copies" arrives then.
 *
 * Threads of a cluster's other block arrive too.  A wait of block scope does not
 * order their accesses, only one of cluster scope does.  Arrivals and waits of
 * cluster scope order accesses to shared memory alone, also in one block.
 */
#include <string.h>

#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define MAX_BARRIERS 64
#define MAX_BULK_COPIES 256 /* to one barrier, on their way */

struct bulk_copy {
	void *to;
	const void *from; /* NULL: the box */
	struct tensor_box box;
	uint32_t size;
	unsigned int thread;
	uint32_t clock; /* that thread's, when it issued the copy */
	const void *code;
};

/* Whose arrivals: threads of the barrier's block and copies; threads of the other one. */
enum { NEAR, FAR, N_SIDES };

struct mbarrier {
	const uint64_t *at;
	unsigned int rank; /* of its block */
	uint32_t n_expected, n_arrived;
	int64_t n_bytes; /* that arrived threads expect, and that were not copied; below 0: copied first */
	uint32_t phase;
	unsigned int n_waiting;
	unsigned int n_lists;
	struct copy_list *lists[SIMT_MAX_THREADS]; /* of threads that arrive with them */
	unsigned int n_copies;
	struct bulk_copy copies[MAX_BULK_COPIES];
	struct race_clocks arriving[N_SIDES], ended[N_SIDES]; /* of this phase, and of those before */
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

void
mbarrier_block_end(void)
{
	for (unsigned int i = 0; i < n_barriers; i++)
		if (barriers[i].rank == block_rank() && barriers[i].n_copies > 0)
			block_fail_at(barriers[i].copies[0].code,
				      "its block ends, and a bulk copy to it is on its way");
}

static struct mbarrier *
barrier_reached(const uint64_t *at, const void *code)
{
	for (unsigned int i = 0; i < n_barriers; i++)
		if (barriers[i].at == at)
			return &barriers[i];
	block_fail_at(code, "no barrier was initialised at %s", region_describe((uintptr_t)at));
}

static struct mbarrier *
barrier_find(const uint64_t *at, const void *code)
{
	race_access((uintptr_t)at, sizeof(*at), false, code);
	return barrier_reached(at, code);
}

/* The same place in the shared memory of the block of this rank. */
static void *
place_in(unsigned int rank, const void *own, const void *code)
{
	size_t offset = (size_t)((const unsigned char *)own - block_shared());

	if (rank >= block.n_blocks)
		block_fail_at(code, "it reaches a block of rank %u, in a cluster of %u", rank, block.n_blocks);
	if (offset >= block.launch->shared_size)
		block_fail_at(code, "it reaches what is not shared memory");
	if (block_has_ended(rank))
		block_fail_at(code, "it reaches block (%u, %u), which has ended", block.x + rank, block.y);
	return block.shared[rank] + offset;
}

static struct mbarrier *
barrier_in(unsigned int rank, const uint64_t *own, const void *code)
{
	const uint64_t *at = place_in(rank, own, code);

	race_reach((uintptr_t)at, sizeof(*at), code);
	return barrier_reached(at, code);
}

void
simt_barrier_init(uint64_t *barrier, uint32_t n)
{
	const void *code = __builtin_return_address(0);

	race_access((uintptr_t)barrier, sizeof(*barrier), true, code);
	if (n == 0 || n > block.n_all_threads || n_barriers == MAX_BARRIERS)
		block_fail_at(code, "barrier of %u threads, where there are %u with %u barriers", n,
			      block.n_all_threads, n_barriers);
	memset(&barriers[n_barriers], 0, sizeof(barriers[0]));
	barriers[n_barriers].at = barrier;
	barriers[n_barriers].rank = block_rank();
	barriers[n_barriers++].n_expected = n;
}

/* End the phase if all have arrived and nothing is to be copied. */
static void
barrier_end(struct mbarrier *barrier)
{
	if (barrier->n_arrived < barrier->n_expected || barrier->n_bytes != 0)
		return;
	barrier->ended[NEAR] = barrier->arriving[NEAR];
	if (block.n_blocks > 1)
		barrier->ended[FAR] = barrier->arriving[FAR];
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
	if (copy->from != NULL) {
		race_access((uintptr_t)copy->from, copy->size, false, copy->code);
		memcpy(copy->to, copy->from, copy->size);
	} else {
		tensor_box_check(&copy->box, copy->code);
		tensor_box_copy(copy->to, &copy->box);
	}
	race_copy_end((uintptr_t)copy->to, copy->size, true, copy->thread, copy->clock);
	race_release_copy(&barrier->arriving[NEAR], copy->thread, copy->clock,
			  block_rank_of(copy->thread) != barrier->rank);
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

static void
barrier_arrive(struct mbarrier *barrier, uint32_t n_bytes, bool shared_only, const void *code)
{
	race_release(&barrier->arriving[barrier->rank == block_rank() ? NEAR : FAR], shared_only);
	barrier->n_bytes += n_bytes;
	barrier_count(barrier, code);
}

void
simt_barrier_arrive(uint64_t *barrier)
{
	const void *code = __builtin_return_address(0);

	barrier_arrive(barrier_find(barrier, code), 0, false, code);
}

void
simt_barrier_arrive_expecting(uint64_t *barrier, uint32_t n_bytes)
{
	const void *code = __builtin_return_address(0);

	barrier_arrive(barrier_find(barrier, code), n_bytes, false, code);
}

void
simt_barrier_arrive_at(uint64_t *barrier, uint32_t rank)
{
	const void *code = __builtin_return_address(0);

	barrier_arrive(barrier_in(rank, barrier, code), 0, true, code);
}

/* A copy whose source was checked is on its way. */
static void
barrier_add_copy(struct mbarrier *barrier, struct bulk_copy copy)
{
	if (barrier->n_copies == MAX_BULK_COPIES)
		block_fail_at(copy.code, "more than %u bulk copies to a barrier on their way", MAX_BULK_COPIES);
	race_copy_begin((uintptr_t)copy.to, copy.size, true, copy.code);
	copy.thread = block.thread;
	copy.clock = race_clock_now();
	barrier->copies[barrier->n_copies++] = copy;
	if (barrier->n_waiting > 0)
		barrier_copy(barrier);
}

void
simt_copy_bulk(void *shared, const void *global, uint32_t n_bytes, uint64_t *barrier)
{
	const void *code = __builtin_return_address(0);
	struct mbarrier *found = barrier_find(barrier, code);
	size_t offset = (size_t)((unsigned char *)shared - block_shared());

	if ((uintptr_t)shared % 16 != 0 || (uintptr_t)global % 16 != 0 || n_bytes % 16 != 0 || n_bytes == 0)
		block_fail_at(code, "a bulk copy of %u bytes between addresses of which not all are multiples of 16",
			      n_bytes);
	if (offset >= block.launch->shared_size)
		block_fail_at(code, "a bulk copy to what is not shared memory");
	race_access((uintptr_t)global, n_bytes, false, code);
	barrier_add_copy(found, (struct bulk_copy){ .to = shared, .from = global, .size = n_bytes, .code = code });
}

void
simt_copy_tensor(void *shared, const void *map, uint32_t x, uint32_t token, uint32_t head, uint32_t page,
		 uint64_t *barrier)
{
	const void *code = __builtin_return_address(0);
	const uint32_t at[TENSOR_MAP_RANK] = { x, token, head, page };
	struct bulk_copy copy = { .box = tensor_box_find(map, at, code), .code = code };

	if (block.n_blocks == 1)
		block_fail_at(code, "a tensor copy in a kernel without clusters");
	if ((uintptr_t)shared % 1024 != 0)
		block_fail_at(code, "a tensor copy to what is no multiple of 1024 in shared memory");
	copy.size = tensor_box_size(&copy.box);
	tensor_box_check(&copy.box, code);
	for (unsigned int rank = 0; rank < block.n_blocks; rank++) {
		copy.to = place_in(rank, shared, code);
		barrier_add_copy(barrier_in(rank, barrier, code), copy);
	}
}

void
simt_barrier_arrive_copies(uint64_t *barrier)
{
	struct mbarrier *found = barrier_find(barrier, __builtin_return_address(0));

	if (found->n_arrived + found->n_lists >= found->n_expected)
		block_fail_at(__builtin_return_address(0), "more than %u threads arrive at a barrier in one phase",
			      found->n_expected);
	found->lists[found->n_lists++] = copy_async_detach();
	race_release(&found->arriving[NEAR], false);
	if (found->n_waiting > 0)
		barrier_copy(found);
}

static struct mbarrier *
barrier_wait_for(uint64_t *barrier, uint32_t parity, const char *file, int line, const void *code)
{
	struct mbarrier *found = barrier_find(barrier, code);

	found->n_waiting++;
	while ((found->phase & 1) == parity) {
		barrier_copy(found);
		if ((found->phase & 1) == parity)
			block_sleep(found, "a barrier in shared memory", file, line);
	}
	found->n_waiting--;
	return found;
}

void
simt_model_barrier_wait(uint64_t *barrier, uint32_t parity, const char *file, int line)
{
	const struct mbarrier *found = barrier_wait_for(barrier, parity, file, line, __builtin_return_address(0));

	race_acquire(&found->ended[NEAR], false);
}

void
simt_model_barrier_wait_cluster(uint64_t *barrier, uint32_t parity, const char *file, int line)
{
	const struct mbarrier *found = barrier_wait_for(barrier, parity, file, line, __builtin_return_address(0));

	race_acquire(&found->ended[NEAR], true);
	if (block.n_blocks > 1)
		race_acquire(&found->ended[FAR], true);
}
