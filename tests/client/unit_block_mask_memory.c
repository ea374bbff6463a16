/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks created in each step reuse the memory of earlier masks: no array comes
 * from malloc() again, and the program break does not move.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

#define N_SEQS 64u
#define N_TOKENS 8192u
#define N_ROUNDS 10
#define ARRAY_BYTES (64u << 10) /* arrays of indices are larger, all other allocations smaller */

static const struct paged_pool_params long_pool = {
	.struct_size = sizeof(long_pool),
	.name = "long",
	.n_layers = 1,
	.n_kv_heads = 1,
	.k_dim = 8,
	.dtype = PAGED_F16,
	.page_size = 16,
	.n_pages = N_SEQS * N_TOKENS / 16,
	.n_slots = N_SEQS,
	.max_length = N_TOKENS,
};

static struct paged_batch_row rows[N_SEQS];
static struct paged_block_mask_params params;
static struct paged_mod *causal;

static _Atomic unsigned int n_arrays, n_break_moves;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC visibility push(default)

/* glibc's functions under the names that the replacements below call. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

/* sbrk(0) makes no system call: glibc caches the program break. */
static void
watch_allocation(size_t size, const void *end)
{
	n_arrays += size >= ARRAY_BYTES;
	n_break_moves += end != sbrk(0);
}

void *
malloc(size_t size)
{
	const void *end = sbrk(0);
	void *memory = __libc_malloc(size);

	watch_allocation(size, end);
	return memory;
}

void *
calloc(size_t n, size_t size)
{
	const void *end = sbrk(0);
	void *memory = __libc_calloc(n, size);

	watch_allocation(n * size, end);
	return memory;
}

void *
realloc(void *old, size_t size)
{
	const void *end = sbrk(0);
	void *memory = __libc_realloc(old, size);

	watch_allocation(size, end);
	return memory;
}

void
free(void *memory)
{
	const void *end = sbrk(0);

	__libc_free(memory);
	watch_allocation(0, end);
}

#pragma GCC visibility pop
#define COUNTED true
#else
#define COUNTED false
#endif

static void
long_pool_setup(void)
{
	paged_seq_id seqs[N_SEQS];
	uint32_t tokens[N_SEQS];

	expect_ok(paged_client_open_embedded(&long_pool, 1, NULL, &client));
	expect_ok(paged_pool_open(client, "long", &pool));
	expect_ok(seqs_create(client, pool, N_SEQS, seqs));
	for (uint32_t i = 0; i < N_SEQS; i++) {
		tokens[i] = N_TOKENS;
		rows[i] = (struct paged_batch_row){ .seq = seqs[i], .q_len = 1, .kv_len = N_TOKENS - N_SEQS };
	}
	expect_ok(seqs_reserve(client, N_SEQS, seqs, tokens));
	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "causal", 0, NULL, &causal));
	params = (struct paged_block_mask_params){ .struct_size = sizeof(params),
						   .rows = rows,
						   .n_rows = N_SEQS,
						   .q_block = 1,
						   .kv_block = 16,
						   .physical = 1 };
}

TestSuite(block_mask_memory, .init = long_pool_setup, .fini = client_fixture_teardown);

static struct paged_block_mask *
step_mask_create(void)
{
	struct paged_block_mask *mask;

	expect_ok(paged_block_mask_create(pool, &params, causal, 0, NULL, &mask));
	return mask;
}

/* Lengths grow; `overlap`: the next mask is created before the last one is freed. */
static void
count_array_allocations(bool overlap)
{
	struct paged_block_mask *mask = NULL;

	for (int round = -2; round < N_ROUNDS; round++) {
		struct paged_block_mask *last = mask;

		for (uint32_t i = 0; i < N_SEQS; i++)
			rows[i].kv_len++;
		if (round == 0)
			n_arrays = n_break_moves = 0;
		if (!overlap)
			paged_block_mask_destroy(last);
		mask = step_mask_create();
		if (overlap)
			paged_block_mask_destroy(last);
	}
	cr_assert_eq(COUNTED ? n_arrays : 0, 0, "%u arrays in %d rounds", n_arrays, N_ROUNDS);
	cr_assert_eq(COUNTED ? n_break_moves : 0, 0, "the heap's end moved %u times", n_break_moves);
	paged_block_mask_destroy(mask);
}

Test(block_mask_memory, allocations_are_counted)
{
	n_arrays = 0;
	paged_block_mask_destroy(step_mask_create());
	cr_assert(!COUNTED || n_arrays > 0);
}

Test(block_mask_memory, a_rebuilt_mask_reuses_memory)
{
	count_array_allocations(false);
}

Test(block_mask_memory, a_mask_built_before_the_last_is_freed_reuses_memory)
{
	count_array_allocations(true);
}

Test(block_mask_memory, a_converted_mask_reuses_memory)
{
	struct paged_block_mask *logical, *mask;

	params.physical = 0;
	expect_ok(paged_block_mask_create(pool, &params, causal, 0, NULL, &logical));
	for (int round = -2; round < N_ROUNDS; round++) {
		if (round == 0)
			n_arrays = n_break_moves = 0;
		expect_ok(paged_block_mask_to_physical(logical, N_SEQS, rows, &mask));
		paged_block_mask_destroy(mask);
	}
	cr_assert_eq(COUNTED ? n_arrays + n_break_moves : 0, 0);
}

Test(block_mask_memory, a_closed_pool_frees_its_spare_memory)
{
	struct paged_pool *second;

	for (int round = 0; round < N_ROUNDS; round++) {
		struct paged_block_mask *masks[2];
		struct paged_mod *mod;
#ifdef __GLIBC__
		size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
#endif

		expect_ok(paged_pool_open(client, "long", &second));
		expect_ok(paged_mod_parse(second, PAGED_MOD_MASK, "causal", 0, NULL, &mod));
		for (int i = 0; i < 2; i++)
			expect_ok(paged_block_mask_create(second, &params, mod, 0, NULL, &masks[i]));
		paged_block_mask_destroy(masks[0]); /* closing the pool frees the other */
		paged_pool_close(second);
#ifdef __GLIBC__
		cr_assert_leq(mallinfo2().uordblks + mallinfo2().hblkhd,
			      before + ARRAY_BYTES); /* malloc() caches memory, too */
#endif
	}
}

static void *
masks_create_and_free(void *unused)
{
	static const uint32_t n_blocks = N_TOKENS / 16 - N_SEQS / 16;
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };

	for (int round = 0; round < N_ROUNDS; round++) {
		struct paged_block_mask *mask = step_mask_create();

		expect_ok(paged_block_mask_lists(mask, &lists));
		for (uint32_t i = 0; i < N_SEQS; i++)
			if (lists.start[0][i + 1] - lists.start[0][i] + lists.start[1][i + 1] - lists.start[1][i] !=
			    n_blocks)
				return "a list of another length";
		paged_block_mask_destroy(mask);
	}
	return unused;
}

Test(block_mask_memory, masks_in_several_threads)
{
	pthread_t threads[4];
	void *failure;

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, masks_create_and_free, NULL), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failure);
		cr_assert_null(failure, "%s", (const char *)failure);
	}
}

/* The child frees what it inherited, spare arrays included. */
Test(block_mask_memory, a_forked_child_frees_inherited_masks)
{
	struct paged_block_mask *mask = step_mask_create();
	int status;
	pid_t pid;

	paged_block_mask_destroy(step_mask_create());
	pid = fork();
	if (pid == 0) {
		paged_block_mask_destroy(mask);
		paged_pool_close(pool);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	paged_block_mask_destroy(mask);
	paged_block_mask_destroy(step_mask_create());
}
