/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/spare_arrays.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TRIM_PART 16u

#ifdef __SANITIZE_ADDRESS__
#define IS_CACHING false
#else
#define IS_CACHING true
#endif

/* Header of each array that a mask_memory allocates. */
struct mask_memory_array {
	alignas(max_align_t) uint64_t bytes; /* size of the data that follows */
};

static struct mask_memory_array *
array_of_data(void *data)
{
	return data != NULL ? (struct mask_memory_array *)data - 1 : NULL;
}

static void *
data_of_array(struct mask_memory_array *array)
{
	return array != NULL ? array + 1 : NULL;
}

static bool
cache_trylock(struct mask_memory *memory)
{
	return !atomic_exchange_explicit(&memory->busy, true, memory_order_acquire);
}

static void
cache_unlock(struct mask_memory *memory)
{
	atomic_store_explicit(&memory->busy, false, memory_order_release);
}

/* Takes the largest spare within the size range; NULL: there is none, or another thread holds the cache. */
static struct mask_memory_array *
spare_take(struct mask_memory *memory, uint64_t least_bytes, uint64_t most_bytes)
{
	struct mask_memory_array *array = NULL, **from = NULL;

	if (least_bytes < MASK_MEMORY_MIN_BYTES || !cache_trylock(memory))
		return NULL;
	for (uint32_t i = 0; i < MASK_MEMORY_SPARES; i++) {
		struct mask_memory_array *spare = memory->spares[i];

		if (spare != NULL && spare->bytes >= least_bytes && spare->bytes <= most_bytes &&
		    (array == NULL || spare->bytes > array->bytes)) {
			array = spare;
			from = &memory->spares[i];
		}
	}
	if (from != NULL)
		*from = NULL;
	cache_unlock(memory);
	return array;
}

/* Caches an array in a free place or in that of the smallest spare; returns the array to be freed, or NULL. */
static struct mask_memory_array *
spare_put(struct mask_memory *memory, struct mask_memory_array *array)
{
	struct mask_memory_array **to = &memory->spares[0], *smallest;

	if (array->bytes < MASK_MEMORY_MIN_BYTES || array->bytes > MASK_MEMORY_MAX_BYTES || !cache_trylock(memory))
		return array;
	for (uint32_t i = 1; i < MASK_MEMORY_SPARES && *to != NULL; i++)
		if (memory->spares[i] == NULL || memory->spares[i]->bytes < (*to)->bytes)
			to = &memory->spares[i];
	smallest = *to;
	if (smallest == NULL || smallest->bytes < array->bytes) {
		*to = array;
		array = smallest;
	}
	cache_unlock(memory);
	return array;
}

static struct mask_memory_array *
array_realloc(struct mask_memory_array *array, uint64_t bytes)
{
	struct mask_memory_array *larger;
	uint64_t total;

	if (__builtin_add_overflow(bytes, (uint64_t)sizeof(*array), &total) || total > SIZE_MAX)
		return NULL;
	larger = realloc(array, total);
	if (larger != NULL)
		larger->bytes = bytes;
	return larger;
}

/* An array with undefined contents, at most twice as large as requested if it was a spare. */
static struct mask_memory_array *
array_new(struct mask_memory *memory, uint64_t bytes)
{
	struct mask_memory_array *array = spare_take(memory, bytes, bytes <= UINT64_MAX / 2 ? 2 * bytes : bytes);

	return array != NULL ? array : array_realloc(NULL, bytes);
}

void *
mask_memory_alloc(struct mask_memory *memory, uint64_t bytes)
{
	struct mask_memory_array *array;

	if (!IS_CACHING || memory == NULL)
		return bytes <= SIZE_MAX ? calloc(1, bytes) : NULL;
	array = array_new(memory, bytes);
	if (array != NULL)
		memset(array + 1, 0, bytes);
	return data_of_array(array);
}

void *
mask_memory_grow(struct mask_memory *memory, void *data, uint64_t bytes)
{
	struct mask_memory_array *array, *larger;

	if (!IS_CACHING || memory == NULL)
		return bytes <= SIZE_MAX ? realloc(data, bytes) : NULL;
	array = array_of_data(data);
	if (array != NULL && array->bytes >= bytes)
		return data;
	larger = spare_take(memory, bytes, UINT64_MAX);
	if (larger == NULL)
		return data_of_array(array_realloc(array, bytes));
	if (array != NULL)
		memcpy(larger + 1, data, array->bytes);
	mask_memory_free(memory, data);
	return data_of_array(larger);
}

void *
mask_memory_trim(struct mask_memory *memory, void *data, uint64_t had_bytes, uint64_t bytes)
{
	struct mask_memory_array *array, *smaller;

	if (!IS_CACHING || memory == NULL) {
		/* A small excess is kept: allocators are fastest with sizes that recur. */
		void *less = had_bytes - bytes <= bytes / TRIM_PART ? NULL : realloc(data, bytes);

		return less != NULL ? less : data;
	}
	array = array_of_data(data);
	if (array->bytes < MASK_MEMORY_MIN_BYTES || array->bytes / 2 <= bytes)
		return data;
	smaller = array_new(memory, bytes);
	if (smaller == NULL)
		return data;
	memcpy(smaller + 1, data, bytes);
	mask_memory_free(memory, data);
	return data_of_array(smaller);
}

void
mask_memory_free(struct mask_memory *memory, void *data)
{
	if (!IS_CACHING || memory == NULL)
		free(data);
	else if (data != NULL)
		free(spare_put(memory, array_of_data(data)));
}

void
mask_memory_release(struct mask_memory *memory)
{
	for (uint32_t i = 0; i < MASK_MEMORY_SPARES; i++) {
		free(memory->spares[i]);
		memory->spares[i] = NULL;
	}
}
