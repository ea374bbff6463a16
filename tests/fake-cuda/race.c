/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Race detector with vector clocks.  A thread's clock increases at every
 * barrier; a barrier also merges the vector clocks of the threads that meet
 * there.  An access is ordered before the current thread's if that thread's
 * vector clock includes it.  Blocks synchronise by an atomic that follows a
 * fence: it stores the clocks that the fence covered at its word, and the next
 * atomic on that word acquires them.  An acquire fence is not required.  Shared
 * memory is each block's own: atomics on it order nothing.
 *
 * A cluster counts as one block, with the threads of all its blocks: their
 * vector clocks also order accesses to each other's shared memory.  In a cluster
 * a thread has a second vector clock, for accesses to shared memory, because
 * some barriers order these alone.  It includes the first one.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/race_cell.h"
#include "tests/fake-cuda/race_readers.h"
#include "tests/fake-cuda/simt_block.h"

/* What a block had fenced, left at a word by an atomic. */
struct release {
	struct release *next;
	uint32_t serial;
	unsigned int rank;
	const uint32_t *clocks;
};

struct word {
	struct word *next;
	uintptr_t address;
	struct release *releases;
};

/* A release that a thread of this block has met; others know it once they know the thread's clock. */
struct met {
	uint32_t serial;
	const uint32_t *clocks;
	uint32_t thread, clock;
};

struct arena_block { /* of memory that lives until the launch ends */
	struct arena_block *next;
};

#define N_WORD_LISTS 256

static uint32_t first_serial, serial; /* of the launch, of the block */
static unsigned int n;                /* threads of a block, or of all blocks of a cluster */
static uint32_t *clocks, *fenced;     /* n of n each */
static uint32_t *shared_clocks;       /* n of n, for shared memory; those above if there is no cluster */
static uint32_t *in_proxy;            /* n of n: what the asynchronous proxy sees of what a thread knows */
static uint32_t *latest;              /* n: a join */
static uint32_t *met_all;             /* n: a thread's clock after the last barrier of all threads */
static uint32_t *reached;             /* n: a thread's clock when it last reached another block's shared memory */
static bool any_fence, any_proxy_fence;
static bool is_proxy;                         /* the access that is checked is the asynchronous proxy's */
static const uint32_t *checked;               /* the vector clocks that order it: clocks or shared_clocks */
static uint32_t *snapshots[SIMT_MAX_THREADS]; /* of a thread's fenced row, until it changes */
static struct word *words[N_WORD_LISTS];
static struct met *mets;
static unsigned int n_mets, n_met_places;
static struct arena_block *arena_blocks;

static void *
arena_alloc(size_t size)
{
	struct arena_block *arena_block = malloc(sizeof(*arena_block) + size);

	if (arena_block == NULL)
		block_fail("no memory");
	arena_block->next = arena_blocks;
	arena_blocks = arena_block;
	return arena_block + 1;
}

/* Launches and blocks */

bool
race_launch_begin(unsigned int n_threads, unsigned int n_blocks)
{
	if (serial + (uint64_t)n_blocks + 1 > RACE_SERIAL_MAX) {
		region_forget_shadows();
		serial = 0;
	}
	first_serial = serial + 1;
	n = n_threads;
	clocks = calloc((size_t)n * n, sizeof(*clocks));
	shared_clocks = block.n_blocks > 1 ? calloc((size_t)n * n, sizeof(*clocks)) : clocks;
	fenced = calloc((size_t)n * n, sizeof(*fenced));
	in_proxy = calloc((size_t)n * n, sizeof(*in_proxy));
	latest = calloc(n, sizeof(*latest));
	met_all = calloc(n, sizeof(*met_all));
	reached = calloc(n, sizeof(*reached));
	if (clocks != NULL && shared_clocks != NULL && fenced != NULL && in_proxy != NULL && latest != NULL &&
	    met_all != NULL && reached != NULL)
		return true;
	race_launch_end();
	return false;
}

void
race_launch_end(void)
{
	if (shared_clocks != clocks)
		free(shared_clocks);
	free(clocks);
	free(fenced);
	free(in_proxy);
	free(latest);
	free(met_all);
	free(reached);
	clocks = shared_clocks = fenced = in_proxy = latest = met_all = reached = NULL;
	while (arena_blocks != NULL) {
		struct arena_block *next = arena_blocks->next;

		free(arena_blocks);
		arena_blocks = next;
	}
	memset(words, 0, sizeof(words));
}

void
race_block_begin(void)
{
	serial++;
	memset(clocks, 0, (size_t)n * n * sizeof(*clocks));
	for (unsigned int t = 0; t < n; t++)
		clocks[t * n + t] = 1;
	if (shared_clocks != clocks)
		memcpy(shared_clocks, clocks, (size_t)n * n * sizeof(*clocks));
	if (any_fence)
		memset(fenced, 0, (size_t)n * n * sizeof(*fenced));
	if (any_proxy_fence)
		memset(in_proxy, 0, (size_t)n * n * sizeof(*in_proxy));
	any_fence = any_proxy_fence = is_proxy = false;
	memset(snapshots, 0, sizeof(snapshots));
	memset(met_all, 0, n * sizeof(*met_all));
	memset(reached, 0, n * sizeof(*reached));
	n_mets = 0;
	race_readers_begin(n);
}

/* Four clocks at a time: n is a multiple of that, and no clock uses the sign. */
typedef int32_t four_clocks __attribute__((vector_size(16), aligned(4), may_alias));

static void
clocks_join(uint32_t *to, const uint32_t *row)
{
	for (unsigned int t = 0; t < n; t += 4) {
		const four_clocks ours = *(const four_clocks *)(to + t), theirs = *(const four_clocks *)(row + t);
		const four_clocks later = theirs > ours;

		*(four_clocks *)(to + t) = (theirs & later) | (ours & ~later);
	}
}

static void
clocks_join_all(uint32_t *rows, const uint16_t *threads, unsigned int n_joined)
{
	memcpy(latest, rows + (size_t)threads[0] * n, n * sizeof(*latest));
	for (unsigned int i = 1; i < n_joined; i++)
		clocks_join(latest, rows + (size_t)threads[i] * n);
	for (unsigned int i = 0; i < n_joined; i++)
		memcpy(rows + (size_t)threads[i] * n, latest, n * sizeof(*latest));
}

/* What the thread does from now on is later than what others know. */
static void
thread_advance(unsigned int thread)
{
	size_t own = (size_t)thread * n + thread;

	clocks[own]++;
	shared_clocks[own] = clocks[own];
}

void
race_join(const uint16_t *threads, unsigned int n_joined)
{
	clocks_join_all(clocks, threads, n_joined);
	if (shared_clocks != clocks)
		clocks_join_all(shared_clocks, threads, n_joined);
	for (unsigned int i = 0; i < n_joined; i++)
		thread_advance(threads[i]);
	for (unsigned int t = 0; n_joined == n && t < n; t++)
		met_all[t] = clocks[(size_t)t * n + t];
	if (any_proxy_fence)
		clocks_join_all(in_proxy, threads, n_joined);
	if (!any_fence)
		return;
	clocks_join_all(fenced, threads, n_joined);
	for (unsigned int i = 0; i < n_joined; i++)
		snapshots[threads[i]] = NULL;
}

void
race_release(struct race_clocks *to, bool shared_only)
{
	size_t self = (size_t)block.thread * n;

	if (!shared_only) {
		clocks_join(to->known, clocks + self);
		clocks_join(to->fenced, fenced + self);
	}
	clocks_join(to->shared, shared_clocks + self);
	clocks_join(to->in_proxy, in_proxy + self);
	thread_advance(block.thread);
}

void
race_release_copy(struct race_clocks *to, unsigned int thread, uint32_t clock, bool shared_only)
{
	if (to->known[thread] < clock && !shared_only)
		to->known[thread] = clock;
	if (to->shared[thread] < clock)
		to->shared[thread] = clock;
}

void
race_acquire(const struct race_clocks *from, bool shared_only)
{
	size_t self = (size_t)block.thread * n;

	clocks_join(shared_clocks + self, from->shared);
	clocks_join(in_proxy + self, from->in_proxy);
	if (shared_only)
		return;
	clocks_join(clocks + self, from->known);
	clocks_join(fenced + self, from->fenced);
	snapshots[block.thread] = NULL;
}

void
race_proxy_fence(void)
{
	size_t self = (size_t)block.thread * n;

	clocks_join(in_proxy + self, shared_clocks + self);
	any_proxy_fence = true;
}

/* Between blocks */

void
race_fence(void)
{
	unsigned int self = block.thread;

	memcpy(fenced + (size_t)self * n, clocks + (size_t)self * n, n * sizeof(*fenced));
	snapshots[self] = NULL;
	any_fence = true;
}

static struct word *
word_find(uintptr_t address)
{
	struct word *word = words[address / 4 % N_WORD_LISTS];

	while (word != NULL && word->address != address)
		word = word->next;
	return word;
}

static void
word_leave(struct word *word, uint32_t from, unsigned int rank, const uint32_t *row)
{
	struct release *release;

	for (release = word->releases; release != NULL; release = release->next)
		if (release->clocks == row)
			return;
	release = arena_alloc(sizeof(*release));
	*release = (struct release){ .next = word->releases, .serial = from, .rank = rank, .clocks = row };
	word->releases = release;
}

static bool
met_known(const struct met *met)
{
	return clocks[(size_t)block.thread * n + met->thread] >= met->clock;
}

static void
met_add(const struct release *release)
{
	uint32_t self = block.thread;

	for (unsigned int i = 0; i < n_mets; i++)
		if (mets[i].clocks == release->clocks && met_known(&mets[i]))
			return;
	if (n_mets == n_met_places) {
		struct met *grown = realloc(mets, (n_met_places * 2 + 64) * sizeof(*mets));

		if (grown == NULL)
			block_fail("no memory");
		mets = grown;
		n_met_places = n_met_places * 2 + 64;
	}
	mets[n_mets++] = (struct met){ release->serial, release->clocks, self, clocks[(size_t)self * n + self] };
}

static void
thread_learn(const uint32_t *row)
{
	clocks_join(clocks + (size_t)block.thread * n, row);
	if (shared_clocks != clocks)
		clocks_join(shared_clocks + (size_t)block.thread * n, row);
}

static void
word_meet(const struct word *word)
{
	for (const struct release *release = word->releases; release != NULL; release = release->next)
		if (release->serial != serial)
			met_add(release);
		else if (release->rank != block_rank())
			thread_learn(release->clocks);
}

/* What the thread's fence covered: its own block's accesses, and what it had met of other blocks. */
static void
word_release(struct word *word)
{
	unsigned int self = block.thread;
	const uint32_t *row = fenced + (size_t)self * n;

	if (!any_fence || row[self] == 0)
		return;
	if (snapshots[self] == NULL) {
		snapshots[self] = arena_alloc(n * sizeof(*row));
		memcpy(snapshots[self], row, n * sizeof(*row));
	}
	word_leave(word, serial, block_rank(), snapshots[self]);
	for (unsigned int i = 0; i < n_mets; i++)
		if (met_known(&mets[i]))
			word_leave(word, mets[i].serial, 0, mets[i].clocks);
}

static bool
race_met(uint32_t other, uint32_t thread, uint32_t clock)
{
	for (unsigned int i = 0; i < n_mets; i++)
		if (mets[i].serial == other && mets[i].clocks[thread] >= clock && met_known(&mets[i]))
			return true;
	return false;
}

/* Accesses */

/* `fenced_only`: what the current thread knows must also have been fenced for the asynchronous proxy. */
static bool
race_ordered(uint64_t access, bool fenced_only)
{
	uint32_t other = race_serial(access), thread = race_thread(access), clock = race_clock(access);

	if (other < first_serial)
		return true;
	if (clock == RACE_CLOCK_MAX)
		return false;
	if (other == serial)
		return clock <= (fenced_only ? in_proxy : checked)[(size_t)block.thread * n + thread];
	return race_met(other, thread, clock);
}

static void
race_report(uintptr_t address, uint64_t access, bool was_write, bool writes, const void *code)
{
	const char *now = writes ? "writes" : "reads", *then = was_write ? "wrote" : "read";
	const char *where = region_describe(address);
	unsigned int number = race_thread(access);
	const char *thread = block_thread_name(number);

	if (race_serial(access) != serial)
		block_fail_at(code,
			      "race: it %s %s, which thread %u of another block %s; no fence and atomic lie between",
			      now, where, number % block.n_threads, then);
	if (is_proxy && race_clock(access) <= checked[(size_t)block.thread * n + number])
		block_fail_at(code, "race: %s %s, which %s wrote; no proxy fence lies between",
			      writes ? "a bulk copy writes" : "wgmma reads", where, thread);
	if (race_clock(access) == RACE_CLOCK_MAX)
		block_fail_at(code, "race: it %s %s, where a copy of %s is on its way", now, where, thread);
	if (race_clock(access) <= shared_clocks[(size_t)block.thread * n + number])
		block_fail_at(code, "race: it %s %s, which %s %s; the barrier between orders shared memory alone", now,
			      where, thread, then);
	block_fail_at(code, "race: it %s %s, which %s %s; no barrier lies between", now, where, thread, then);
}

/* One slot for the newest, one for another thread's. */
static void
slots_put(uint64_t slots[2], uint64_t access)
{
	uint64_t who = access >> RACE_THREAD_SHIFT;
	unsigned int at;

	if (slots[0] == 0 || slots[0] >> RACE_THREAD_SHIFT == who || (slots[0] & RACE_BYTES & ~access) == 0)
		at = 0;
	else
		at = 1;
	if (slots[at] >> RACE_CLOCK_SHIFT == access >> RACE_CLOCK_SHIFT)
		access |= slots[at];
	slots[at] = access;
}

static void
slots_clear(uint64_t slots[2], uint32_t bytes)
{
	for (unsigned int i = 0; i < 2; i++)
		if ((slots[i] & RACE_BYTES & ~bytes) == 0)
			slots[i] = 0;
}

/* The vector of this block's reads; NULL: reads[0] is one read, or names a vector of a block that has ended. */
static struct race_readers *
cell_readers(const struct race_cell *cell)
{
	if ((cell->reads[0] & RACE_READERS) == 0 || race_serial(cell->reads[0]) != serial)
		return NULL;
	return race_readers_at((uint32_t)cell->reads[0]);
}

static void
cell_put_read(struct race_cell *cell, uint64_t access)
{
	struct race_readers *readers = cell_readers(cell);
	uint64_t last = cell->reads[0];
	uint32_t index;

	if (readers != NULL) {
		race_readers_put(readers, block.thread, (uint32_t)access);
		cell->reads[1] = access;
		return;
	}
	if (race_serial(last) != serial) {
		if (last != 0 && (last & RACE_READERS) == 0)
			cell->reads[1] = last;
		cell->reads[0] = access;
		return;
	}
	if (last >> RACE_CLOCK_SHIFT == access >> RACE_CLOCK_SHIFT) {
		cell->reads[0] |= access;
		return;
	}
	if (race_thread(last) == block.thread || ((last & RACE_BYTES & ~access) == 0 && race_ordered(last, false))) {
		cell->reads[0] = access;
		return;
	}
	index = race_readers_new();
	readers = race_readers_at(index);
	race_readers_put(readers, race_thread(last), (uint32_t)last);
	race_readers_put(readers, block.thread, (uint32_t)access);
	cell->reads[0] = RACE_READERS | race_pack(serial, 0, 0, 0) | index;
	cell->reads[1] = access;
}

/* A write of these bytes must be ordered after every read of them. */
static void
cell_check_reads(const struct race_cell *cell, uintptr_t address, uint32_t bytes, const void *code)
{
	const struct race_readers *readers = cell_readers(cell);
	uint64_t newest = cell->reads[1];

	/* All threads have met since the newest read. */
	if (readers != NULL && newest != 0 && race_clock(newest) < met_all[race_thread(newest)])
		return;
	if (readers != NULL) {
		unsigned int t = race_readers_unordered(readers, checked + (size_t)block.thread * n, bytes);

		if (t < n)
			race_report(address, race_pack(serial, t, 0, 0) | readers->read[t], false, true, code);
		return;
	}
	for (unsigned int i = 0; i < 2; i++)
		if ((cell->reads[i] & RACE_READERS) == 0 && (cell->reads[i] & bytes) != 0 &&
		    !race_ordered(cell->reads[i], false))
			race_report(address, cell->reads[i], false, true, code);
}

static void
cell_forget_reads(struct race_cell *cell, uint32_t bytes)
{
	struct race_readers *readers = cell_readers(cell);

	if (readers != NULL && bytes != RACE_BYTES) {
		race_readers_forget(readers, bytes);
		return;
	}
	if (readers != NULL)
		race_readers_free((uint32_t)cell->reads[0]);
	if ((cell->reads[0] & RACE_READERS) != 0)
		cell->reads[0] = 0;
	slots_clear(cell->reads, bytes);
}

static bool
cell_has_access(const struct race_cell *cell, uint64_t access, bool writes)
{
	if (writes)
		return cell->writes[0] == access && race_clock(access) != RACE_CLOCK_MAX;
	return cell->reads[0] == access || cell->reads[1] == access;
}

static void
cell_access(struct race_cell *cell, uintptr_t address, uint64_t access, bool writes, const void *code)
{
	uint32_t bytes = access & RACE_BYTES;

	/* The same again: whatever came between was checked against it. */
	if (cell_has_access(cell, access, writes))
		return;
	/* The asynchronous proxy needs a fence after others' writes, but not after reads that happened before. */
	for (unsigned int i = 0; i < 2; i++)
		if ((cell->writes[i] & bytes) != 0 &&
		    !race_ordered(cell->writes[i], is_proxy && (cell->writes[i] & RACE_PROXY) == 0))
			race_report(address, cell->writes[i], true, writes, code);
	if (!writes) {
		cell_put_read(cell, access);
		return;
	}
	cell_check_reads(cell, address, bytes, code);
	slots_clear(cell->writes, bytes);
	cell_forget_reads(cell, bytes);
	slots_put(cell->writes, access);
}

/* Copies may write another block's shared memory, but threads may not. */
static struct region *
own_region(uintptr_t address, size_t size, bool writes, const void *code)
{
	struct region *region = region_checked(address, size, writes, code);
	unsigned int rank;

	if (block.n_blocks == 1)
		return region;
	rank = block_rank_shared(region->start);
	if (rank < block.n_blocks && rank != block_rank())
		block_fail_at(code, "it %s %s, which is not its block's", writes ? "writes" : "reads",
			      region_describe(address));
	return region;
}

/* The vector clocks that order accesses to the region. */
static const uint32_t *
clocks_of(const struct region *region)
{
	return block_rank_shared(region->start) < block.n_blocks ? shared_clocks : clocks;
}

static void
race_note(struct region *region, uintptr_t address, size_t size, bool writes, uint32_t clock, const void *code)
{
	uintptr_t from = address - (region->start & ~(uintptr_t)3), end = from + size;

	/* Nothing that the launch does may write there. */
	if (!region->writable)
		return;
	checked = clocks_of(region);
	for (uintptr_t at = from & ~(uintptr_t)3; at < end; at += 4) {
		uint32_t bytes = RACE_BYTES;

		if (at < from)
			bytes &= RACE_BYTES << (from - at);
		if (end - at < 4)
			bytes &= RACE_BYTES >> (4 - (end - at));
		cell_access(&region->cells[at / 4], address - from + at, race_pack(serial, block.thread, clock, bytes),
			    writes, code);
	}
}

void
race_access(uintptr_t address, size_t size, bool writes, const void *code)
{
	race_note(own_region(address, size, writes, code), address, size, writes, race_clock_now(), code);
}

void
race_reach(uintptr_t address, size_t size, const void *code)
{
	struct region *region = region_checked(address, size, false, code);

	race_note(region, address, size, false, race_clock_now(), code);
	if (region->start != (uintptr_t)block_shared())
		reached[block.thread] = race_clock_now();
}

/* The latest clock of a thread that any thread of the current thread's block knows, of shared memory. */
static uint32_t
known_in_block(unsigned int thread)
{
	unsigned int first = block_rank() * block.n_threads;
	uint32_t known = 0;

	for (unsigned int t = first; t < first + block.n_threads; t++)
		if (shared_clocks[(size_t)t * n + thread] > known)
			known = shared_clocks[(size_t)t * n + thread];
	return known;
}

void
race_block_end(void)
{
	for (unsigned int t = 0; t < n; t++)
		if (block_rank_of(t) != block_rank() && reached[t] > known_in_block(t))
			block_fail("its block ends, and %s reached it; no barrier lies between", block_thread_name(t));
}

void
race_proxy_read(uintptr_t address, size_t size, const void *code)
{
	is_proxy = true;
	race_access(address, size, false, code);
	is_proxy = false;
}

uint32_t
race_clock_now(void)
{
	return clocks[(size_t)block.thread * n + block.thread];
}

void
race_copy_begin(uintptr_t address, size_t size, bool bulk, const void *code)
{
	is_proxy = bulk;
	race_note(region_checked(address, size, true, code), address, size, true, RACE_CLOCK_MAX, code);
	is_proxy = false;
}

void
race_copy_end(uintptr_t address, size_t size, bool bulk, unsigned int thread, uint32_t clock)
{
	struct region *region = region_find(address);
	uintptr_t from = address - (region->start & ~(uintptr_t)3);
	uint64_t access = race_pack(serial, thread, clock, RACE_BYTES) | (bulk ? RACE_PROXY : 0);

	/* Aligned words that no other thread can access meanwhile. */
	for (size_t i = 0; i < size / 4; i++)
		region->cells[from / 4 + i].writes[0] = access;
}

/* An atomic races with plain accesses of others, not with other atomics. */
void
race_atomic(uintptr_t address, size_t size, const void *code)
{
	struct region *region = own_region(address, size, true, code);
	struct race_cell *cell;
	struct word *word = word_find(address);

	if (address % size != 0)
		block_fail_at(code, "it uses an atomic at %s, which is not aligned", region_describe(address));
	checked = clocks_of(region);
	cell = &region->cells[(address - (region->start & ~(uintptr_t)3)) / 4];
	for (unsigned int i = 0; i < 2; i++)
		if (cell->writes[i] != 0 && !race_ordered(cell->writes[i], false))
			race_report(address, cell->writes[i], true, true, code);
	cell_check_reads(cell, address, RACE_BYTES, code);
	if (word == NULL) {
		word = arena_alloc(sizeof(*word));
		*word = (struct word){ .next = words[address / 4 % N_WORD_LISTS], .address = address };
		words[address / 4 % N_WORD_LISTS] = word;
	}
	if (region->start == (uintptr_t)block_shared())
		return;
	word_meet(word);
	word_release(word);
}

bool
race_atomic_load(uintptr_t address, size_t size)
{
	const struct word *word = size == 4 ? word_find(address) : NULL;

	if (word != NULL)
		word_meet(word);
	return word != NULL;
}
