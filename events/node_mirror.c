/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/node_mirror.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Links are 1 + a page; 0: none.  So memory that was never written is an empty mirror. */
struct mirror_node {
	uint64_t serial; /* 0: the page has no node */
	uint32_t parent, first_child, next_sibling, previous_sibling;
	uint32_t next_of_hash; /* in its bucket */
	struct block_hash hash;
};

struct node_mirror {
	uint32_t n_pages, n_buckets; /* n_buckets: a power of two */
	struct mirror_node *nodes;
	uint32_t *buckets; /* by hash */
	uint64_t seed;     /* random: an engine chooses its own hashes, and must not make a bucket long */
	size_t nodes_size, buckets_size;
};

static void *
mirror_map(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

struct node_mirror *
node_mirror_create(uint32_t n_pages)
{
	struct node_mirror *mirror = calloc(1, sizeof(*mirror));

	if (mirror == NULL)
		return NULL;
	mirror->n_pages = n_pages;
	randombytes_buf(&mirror->seed, sizeof(mirror->seed));
	for (mirror->n_buckets = 1; mirror->n_buckets < n_pages && mirror->n_buckets < 1u << 31;)
		mirror->n_buckets *= 2;
	mirror->nodes_size = (size_t)n_pages * sizeof(*mirror->nodes);
	mirror->buckets_size = (size_t)mirror->n_buckets * sizeof(*mirror->buckets);
	mirror->nodes = mirror_map(mirror->nodes_size);
	mirror->buckets = mirror_map(mirror->buckets_size);
	if (mirror->nodes == NULL || mirror->buckets == NULL) {
		node_mirror_destroy(mirror);
		return NULL;
	}
	return mirror;
}

void
node_mirror_destroy(struct node_mirror *mirror)
{
	if (mirror == NULL)
		return;
	if (mirror->nodes != NULL)
		munmap(mirror->nodes, mirror->nodes_size);
	if (mirror->buckets != NULL)
		munmap(mirror->buckets, mirror->buckets_size);
	free(mirror);
}

void
node_mirror_clear(struct node_mirror *mirror)
{
	/* Private anonymous memory reads as zero afterwards. */
	madvise(mirror->nodes, mirror->nodes_size, MADV_DONTNEED);
	madvise(mirror->buckets, mirror->buckets_size, MADV_DONTNEED);
}

const struct block_hash *
node_mirror_find(const struct node_mirror *mirror, uint32_t page, uint64_t serial)
{
	if (page >= mirror->n_pages || serial == 0 || mirror->nodes[page].serial != serial)
		return NULL;
	return &mirror->nodes[page].hash;
}

static uint32_t *
mirror_bucket(const struct node_mirror *mirror, const struct block_hash *hash)
{
	return &mirror->buckets[XXH3_64bits_withSeed(hash->bytes, hash->size, mirror->seed) & (mirror->n_buckets - 1)];
}

static bool
mirror_has_hash(const struct node_mirror *mirror, const struct block_hash *hash)
{
	for (uint32_t link = *mirror_bucket(mirror, hash); link != 0; link = mirror->nodes[link - 1].next_of_hash)
		if (block_hash_equal(&mirror->nodes[link - 1].hash, hash))
			return true;
	return false;
}

bool
node_mirror_add(struct node_mirror *mirror, uint32_t page, uint64_t serial, uint32_t parent,
		const struct block_hash *hash)
{
	struct mirror_node *node = &mirror->nodes[page];
	uint32_t *bucket = mirror_bucket(mirror, hash);
	bool is_new = !mirror_has_hash(mirror, hash);

	assert(page < mirror->n_pages && node->serial == 0);
	*node = (struct mirror_node){ .serial = serial, .hash = *hash, .next_of_hash = *bucket };
	*bucket = page + 1;
	if (parent != NODE_MIRROR_ROOT) {
		struct mirror_node *above = &mirror->nodes[parent];

		node->parent = parent + 1;
		node->next_sibling = above->first_child;
		if (above->first_child != 0)
			mirror->nodes[above->first_child - 1].previous_sibling = page + 1;
		above->first_child = page + 1;
	}
	return is_new;
}

/* Takes a node without children out of its bucket and of its parent's list. */
static void
mirror_unlink(struct node_mirror *mirror, uint32_t page)
{
	struct mirror_node *node = &mirror->nodes[page];
	uint32_t *link = mirror_bucket(mirror, &node->hash);

	while (*link != page + 1)
		link = &mirror->nodes[*link - 1].next_of_hash;
	*link = node->next_of_hash;
	if (node->next_sibling != 0)
		mirror->nodes[node->next_sibling - 1].previous_sibling = node->previous_sibling;
	if (node->previous_sibling != 0)
		mirror->nodes[node->previous_sibling - 1].next_sibling = node->next_sibling;
	else if (node->parent != 0)
		mirror->nodes[node->parent - 1].first_child = node->next_sibling;
	node->serial = 0;
}

void
node_mirror_remove(struct node_mirror *mirror, uint32_t page, node_mirror_gone_fn gone, void *argument)
{
	uint32_t at = page, above;

	if (page >= mirror->n_pages || mirror->nodes[page].serial == 0)
		return;
	do {
		struct block_hash hash;

		while (mirror->nodes[at].first_child != 0)
			at = mirror->nodes[at].first_child - 1;
		hash = mirror->nodes[at].hash;
		above = mirror->nodes[at].parent;
		mirror_unlink(mirror, at);
		if (!mirror_has_hash(mirror, &hash))
			gone(argument, &hash);
		if (at == page)
			return;
		at = above - 1;
	} while (true);
}
