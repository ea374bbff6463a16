/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/bpe.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

bool
bpe_begin(struct bpe *bpe, size_t n, struct error *error)
{
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;

	bpe->n_symbols = 0;
	bpe->n_heap = 0;
	if (n <= bpe->n_allocated)
		return true;
	if (n > UINT32_MAX / 4)
		return error_set(error, "a piece of text of %zu bytes is too long", n);
	symbols = realloc(bpe->symbols, n * sizeof(*symbols));
	if (symbols != NULL)
		bpe->symbols = symbols;
	/* Each of the n - 1 pairs is a candidate, and each merge makes at most two new ones. */
	heap = realloc(bpe->heap, 3 * n * sizeof(*heap));
	if (heap != NULL)
		bpe->heap = heap;
	if (symbols == NULL || heap == NULL)
		return error_set(error, "no memory for a piece of text of %zu bytes", n);
	bpe->n_allocated = (uint32_t)n;
	return true;
}

void
bpe_add(struct bpe *bpe, uint32_t id)
{
	uint32_t i = bpe->n_symbols++;

	assert(i < bpe->n_allocated);
	bpe->symbols[i] = (struct bpe_symbol){ .id = id, .previous = i > 0 ? i - 1 : NONE, .next = NONE };
	if (i > 0)
		bpe->symbols[i - 1].next = i;
}

static bool
before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void
heap_push(struct bpe *bpe, struct bpe_candidate candidate)
{
	uint32_t i = bpe->n_heap++;

	assert(i < 3 * bpe->n_allocated);
	for (; i > 0 && before(&candidate, &bpe->heap[(i - 1) / 2]); i = (i - 1) / 2)
		bpe->heap[i] = bpe->heap[(i - 1) / 2];
	bpe->heap[i] = candidate;
}

static struct bpe_candidate
heap_pop(struct bpe *bpe)
{
	struct bpe_candidate top = bpe->heap[0], last = bpe->heap[--bpe->n_heap];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < bpe->n_heap) {
		if (child + 1 < bpe->n_heap && before(&bpe->heap[child + 1], &bpe->heap[child]))
			child++;
		if (!before(&bpe->heap[child], &last))
			break;
		bpe->heap[i] = bpe->heap[child];
		i = child;
	}
	bpe->heap[i] = last;
	return top;
}

static void
consider(struct bpe *bpe, const struct vocabulary *vocabulary, uint32_t left)
{
	const struct vocabulary_merge *merge;
	uint32_t right;

	if (left == NONE || (right = bpe->symbols[left].next) == NONE)
		return;
	merge = vocabulary_merge(vocabulary, bpe->symbols[left].id, bpe->symbols[right].id);
	if (merge != NULL)
		heap_push(bpe, (struct bpe_candidate){ merge->rank, left, merge->left, merge->right, merge->merged });
}

void
bpe_merge(struct bpe *bpe, const struct vocabulary *vocabulary)
{
	for (uint32_t i = 0; i + 1 < bpe->n_symbols; i++)
		consider(bpe, vocabulary, i);
	while (bpe->n_heap > 0) {
		struct bpe_candidate best = heap_pop(bpe);
		struct bpe_symbol *left = &bpe->symbols[best.left], *right;

		if (left->id != best.left_id || left->next == NONE || bpe->symbols[left->next].id != best.right_id)
			continue;
		right = &bpe->symbols[left->next];
		left->id = best.merged;
		left->next = right->next;
		right->id = VOCABULARY_NONE;
		if (left->next != NONE)
			bpe->symbols[left->next].previous = best.left;
		consider(bpe, vocabulary, left->previous);
		consider(bpe, vocabulary, best.left);
	}
}

void
bpe_destroy(struct bpe *bpe)
{
	free(bpe->heap);
	free(bpe->symbols);
	*bpe = (struct bpe){ 0 };
}
