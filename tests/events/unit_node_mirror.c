/* SPDX-License-Identifier: Apache-2.0 */
/* The mirror, compared with a naive one: an array of nodes. */
#include <criterion/criterion.h>
#include <string.h>

#include "events/node_mirror.h"
#include "tests/support/random.h"

#define N_PAGES 24u
#define N_HASHES 40u
#define N_STEPS 200000u

static struct naive_node {
	uint64_t serial; /* 0: none */
	uint32_t parent, hash;
} naive[N_PAGES];
static uint32_t n_gone[N_HASHES]; /* hashes that the mirror has withdrawn in this step */

static struct block_hash
hash_make(uint32_t number)
{
	/* Hashes of both sizes; some differ in the size alone. */
	struct block_hash hash = { .size = number % 2 == 0 ? 32 : 16 };

	hash.bytes[0] = (uint8_t)(number / 2);
	return hash;
}

static uint32_t
naive_count(uint32_t hash)
{
	uint32_t n = 0;

	for (uint32_t page = 0; page < N_PAGES; page++)
		n += naive[page].serial != 0 && naive[page].hash == hash;
	return n;
}

static void
naive_remove(uint32_t page)
{
	naive[page].serial = 0;
	for (uint32_t child = 0; child < N_PAGES; child++)
		if (naive[child].serial != 0 && naive[child].parent == page)
			naive_remove(child);
}

static void
count_gone(void *argument, const struct block_hash *hash)
{
	cr_assert_null(argument);
	n_gone[2 * hash->bytes[0] + (hash->size == 16)]++;
}

static void
step_add(struct node_mirror *mirror, uint32_t page, uint64_t serial, uint64_t random)
{
	uint32_t hash = (uint32_t)(random % N_HASHES), parent = (uint32_t)(random / N_HASHES % (N_PAGES + 4));
	struct block_hash made = hash_make(hash);
	bool is_new = naive_count(hash) == 0;

	if (parent >= N_PAGES || parent == page || naive[parent].serial == 0)
		parent = NODE_MIRROR_ROOT;
	cr_assert_eq(node_mirror_add(mirror, page, serial, parent, &made), is_new);
	naive[page] = (struct naive_node){ serial, parent, hash };
}

static void
step_remove(struct node_mirror *mirror, uint32_t page)
{
	uint32_t before[N_HASHES];

	for (uint32_t hash = 0; hash < N_HASHES; hash++)
		before[hash] = naive_count(hash);
	memset(n_gone, 0, sizeof(n_gone));
	node_mirror_remove(mirror, page, count_gone, NULL);
	if (naive[page].serial != 0)
		naive_remove(page);
	for (uint32_t hash = 0; hash < N_HASHES; hash++)
		cr_assert_eq(n_gone[hash], before[hash] > 0 && naive_count(hash) == 0);
}

static void
expect_equal(const struct node_mirror *mirror)
{
	for (uint32_t page = 0; page < N_PAGES; page++) {
		struct block_hash hash = hash_make(naive[page].hash);
		const struct block_hash *found = node_mirror_find(mirror, page, naive[page].serial);

		cr_assert_eq(found != NULL, naive[page].serial != 0);
		cr_assert(found == NULL || block_hash_equal(found, &hash));
		cr_assert_null(node_mirror_find(mirror, page, naive[page].serial + 1));
	}
}

Test(node_mirror, is_the_naive_one)
{
	struct node_mirror *mirror = node_mirror_create(N_PAGES);

	cr_assert_not_null(mirror);
	for (uint64_t step = 1; step <= N_STEPS; step++) {
		uint64_t random = random_bits(20261127, step);
		uint32_t page = (uint32_t)(random % N_PAGES);

		if (random >> 32 & 3)
			naive[page].serial == 0 ? step_add(mirror, page, step, random / N_PAGES)
						: step_remove(mirror, (uint32_t)(random >> 40) % N_PAGES);
		else
			step_remove(mirror, page);
		if (step % 10000 == 0) {
			node_mirror_clear(mirror);
			memset(naive, 0, sizeof(naive));
		}
		expect_equal(mirror);
	}
	node_mirror_destroy(mirror);
}

Test(node_mirror, pages_that_the_pool_does_not_have)
{
	struct node_mirror *mirror = node_mirror_create(N_PAGES);

	cr_assert_null(node_mirror_find(mirror, N_PAGES, 1));
	cr_assert_null(node_mirror_find(mirror, UINT32_MAX, 1));
	node_mirror_remove(mirror, UINT32_MAX, count_gone, NULL);
	node_mirror_destroy(mirror);
}
