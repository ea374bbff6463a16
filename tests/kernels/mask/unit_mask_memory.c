/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of freed arrays of block masks. */
#include "kernels/mask/spare_arrays.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

#ifdef __SANITIZE_ADDRESS__
#define CACHED(n) 0u
#else
#define CACHED(n) (n)
#endif

static struct mask_memory memory;

static void
check_cache_is_empty(void)
{
	mask_memory_release(&memory);
	for (uint32_t i = 0; i < MASK_MEMORY_SPARES; i++)
		cr_assert_null(memory.spares[i]);
}

TestSuite(mask_memory, .fini = check_cache_is_empty);

static uint32_t
count_spares(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MASK_MEMORY_SPARES; i++)
		n += memory.spares[i] != NULL;
	return n;
}

/* Allocate an array and fill it with ones. */
static uint8_t *
alloc_ones(uint64_t bytes)
{
	uint8_t *array = mask_memory_grow(&memory, NULL, bytes);

	cr_assert_not_null(array);
	memset(array, 1, bytes);
	return array;
}

/* Put n blocks of different sizes into the cache: 1 MiB, 2 MiB and so on. */
static void
fill_cache(uint32_t n)
{
	uint8_t *arrays[2 * MASK_MEMORY_SPARES];

	for (uint32_t i = 0; i < n; i++)
		arrays[i] = alloc_ones((i + 1) * MIB);
	for (uint32_t i = 0; i < n; i++)
		mask_memory_free(&memory, arrays[i]);
}

static bool
is_all(const uint8_t *array, uint8_t value, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (array[i] != value)
			return false;
	return true;
}

Test(mask_memory, freed_block_is_reused)
{
	uint8_t *array = alloc_ones(MIB), *reused;

	mask_memory_free(&memory, array);
	cr_assert_eq(count_spares(), CACHED(1u));
	reused = mask_memory_alloc(&memory, MIB);
	cr_assert(CACHED(1u) == 0 || reused == array);
	cr_assert(is_all(reused, 0, MIB));
	cr_assert_eq(count_spares(), 0);
	mask_memory_free(&memory, reused);
}

Test(mask_memory, keeps_the_largest_blocks)
{
	uint8_t *array;

	fill_cache(2 * MASK_MEMORY_SPARES);
	cr_assert_eq(count_spares(), CACHED(MASK_MEMORY_SPARES));
	for (uint32_t i = 0; i < MASK_MEMORY_SPARES; i++) /* a block begins with its size */
		cr_assert(memory.spares[i] == NULL ||
			  *(const uint64_t *)(const void *)memory.spares[i] > MASK_MEMORY_SPARES * MIB);
	array = alloc_ones(MASK_MEMORY_MIN_BYTES);
	cr_assert_eq(count_spares(), CACHED(MASK_MEMORY_SPARES - 1));
	mask_memory_free(&memory, array);
}

Test(mask_memory, ignores_small_blocks_and_bounds_the_total)
{
	mask_memory_free(&memory, alloc_ones(MASK_MEMORY_MIN_BYTES - 1));
	mask_memory_free(&memory, alloc_ones(MASK_MEMORY_MAX_BYTES + 1));
	mask_memory_free(&memory, NULL);
	cr_assert_eq(count_spares(), 0);
	mask_memory_free(&memory, alloc_ones(MASK_MEMORY_MIN_BYTES));
	mask_memory_free(&memory, alloc_ones(MASK_MEMORY_MAX_BYTES));
	cr_assert_eq(count_spares(), CACHED(2u));
}

Test(mask_memory, resize_keeps_contents)
{
	uint8_t *array = NULL, *grown;
	uint64_t bytes = 0;

	fill_cache(2);
	for (uint64_t larger = 256; larger <= 4 * MIB; larger *= 2) {
		array = mask_memory_grow(&memory, array, larger);
		memset(array + bytes, 1, larger - bytes);
		cr_assert(is_all(array, 1, larger), "%ju bytes", (uintmax_t)larger);
		bytes = larger;
	}
	grown = mask_memory_grow(&memory, array, bytes);
	cr_assert(is_all(grown, 1, bytes));
	mask_memory_free(&memory, grown);
}

Test(mask_memory, trim_replaces_a_much_larger_block)
{
	uint8_t *array;

	fill_cache(1);
	array = alloc_ones(8 * KIB);
	cr_assert_eq(count_spares(), 0);
	array = mask_memory_trim(&memory, array, 8 * KIB, 6 * KIB);
	cr_assert(is_all(array, 1, 6 * KIB));
	cr_assert_eq(count_spares(), CACHED(1u));
	mask_memory_free(&memory, array);
	cr_assert_eq(count_spares(), CACHED(2u));
}

Test(mask_memory, trim_does_not_move_a_block_that_fits)
{
	uint8_t *array = alloc_ones(8 * KIB);

	cr_assert(CACHED(1u) == 0 || mask_memory_trim(&memory, array, 8 * KIB, 5 * KIB) == array);
	mask_memory_free(&memory, array);
}

/* The cache is busy, as in the child of a fork() at which another thread held it. */
Test(mask_memory, contended_cache_falls_back_to_malloc)
{
	uint8_t *array, *other;

	fill_cache(2);
	atomic_store(&memory.busy, true);
	array = alloc_ones(MIB);
	other = mask_memory_alloc(&memory, MIB);
	cr_assert_eq(count_spares(), CACHED(2u));
	mask_memory_free(&memory, array);
	mask_memory_free(&memory, other);
	cr_assert_eq(count_spares(), CACHED(2u));
	atomic_store(&memory.busy, false);
}

/* AddressSanitizer ends a program that requests so much. */
#ifndef __SANITIZE_ADDRESS__
Test(mask_memory, allocation_failure)
{
	uint8_t *array;

	cr_assert_null(mask_memory_grow(&memory, NULL, UINT64_MAX));
	cr_assert_null(mask_memory_alloc(&memory, UINT64_MAX));
	array = alloc_ones(MIB);
	cr_assert_null(mask_memory_grow(&memory, array, UINT64_MAX - 64));
	cr_assert(is_all(array, 1, MIB));
	mask_memory_free(&memory, array);
}
#endif

Test(mask_memory, null_cache_uses_malloc)
{
	uint8_t *array = mask_memory_alloc(NULL, MIB);

	cr_assert(is_all(array, 0, MIB));
	array = mask_memory_grow(NULL, array, 2 * MIB);
	array = mask_memory_trim(NULL, array, 2 * MIB, KIB);
	cr_assert(is_all(array, 0, KIB));
	mask_memory_free(NULL, array);
}
