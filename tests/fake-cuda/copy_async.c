/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp.async: nothing is copied before the thread waits for it, so a kernel that
 * does not wait reads the old contents.  Until then no thread may access the
 * destination; afterwards the bytes are this thread's writes.  A thread can
 * hand its copies to a barrier in shared memory (mbarrier.c): then they happen
 * when a thread waits there.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define MAX_COPIES 256 /* of a thread, on their way */

struct copy {
	void *to;
	const void *from; /* NULL: zeros */
	size_t size;
	unsigned int group;
	const void *code;
};

struct queue {
	struct copy copies[MAX_COPIES];
	unsigned int n;
	unsigned int group;      /* the one being filled */
	unsigned int n_detached; /* lists of this thread that have not happened */
};

/* Copies that their thread handed over, and that thread's clock then. */
struct copy_list {
	unsigned int thread;
	uint32_t clock;
	unsigned int n;
	struct copy copies[];
};

static struct queue queues[SIMT_MAX_THREADS];

void
copy_async_begin(unsigned int n_threads)
{
	for (unsigned int t = 0; t < n_threads; t++)
		queues[t].n = queues[t].group = queues[t].n_detached = 0;
}

static void
copy_begin(void *shared, const void *global, bool valid, size_t size, const void *code)
{
	struct queue *queue = &queues[block.thread];
	size_t offset = (size_t)((unsigned char *)shared - block_shared());

	if ((uintptr_t)shared % size != 0 || (valid && (uintptr_t)global % size != 0))
		block_fail_at(code, "cp.async of %zu bytes between addresses that are not aligned to %zu", size, size);
	if (offset >= block.launch->shared_size)
		block_fail_at(code, "cp.async to what is not shared memory");
	if (queue->n == MAX_COPIES)
		block_fail_at(code, "more than %u copies of a thread on their way", MAX_COPIES);
	if (valid)
		race_access((uintptr_t)global, size, false, code);
	race_copy_begin((uintptr_t)shared, size, false, code);
	queue->copies[queue->n++] = (struct copy){ shared, valid ? global : NULL, size, queue->group, code };
}

void
simt_copy_async16(void *shared, const void *global, bool valid)
{
	copy_begin(shared, global, valid, 16, __builtin_return_address(0));
}

void
simt_copy_async4(void *shared, const void *global, bool valid)
{
	copy_begin(shared, global, valid, 4, __builtin_return_address(0));
}

void
simt_copy_async_commit(void)
{
	queues[block.thread].group++;
}

static void
copy_finish(const struct copy *copy, unsigned int thread, uint32_t clock)
{
	if (copy->from == NULL) {
		memset(copy->to, 0, copy->size);
	} else {
		race_access((uintptr_t)copy->from, copy->size, false, copy->code);
		memcpy(copy->to, copy->from, copy->size);
	}
	race_copy_end((uintptr_t)copy->to, copy->size, false, thread, clock);
}

void
simt_model_copy_async_wait(unsigned int n_groups)
{
	struct queue *queue = &queues[block.thread];
	unsigned int i;

	if (queue->n_detached != 0)
		block_fail("it waits for groups of copies while a barrier in shared memory has others: not modelled");
	for (i = 0; i < queue->n && queue->copies[i].group + n_groups < queue->group; i++)
		copy_finish(&queue->copies[i], block.thread, race_clock_now());
	queue->n -= i;
	memmove(queue->copies, queue->copies + i, queue->n * sizeof(queue->copies[0]));
}

struct copy_list *
copy_async_detach(void)
{
	struct queue *queue = &queues[block.thread];
	struct copy_list *list = malloc(sizeof(*list) + queue->n * sizeof(list->copies[0]));

	if (list == NULL)
		block_fail("no memory");
	*list = (struct copy_list){ .thread = block.thread, .clock = race_clock_now(), .n = queue->n };
	memcpy(list->copies, queue->copies, queue->n * sizeof(list->copies[0]));
	queue->n = 0;
	queue->n_detached++;
	return list;
}

void
copy_async_finish(struct copy_list *list)
{
	for (unsigned int i = 0; i < list->n; i++)
		copy_finish(&list->copies[i], list->thread, list->clock);
	queues[list->thread].n_detached--;
	free(list);
}

void
copy_async_drop(struct copy_list *list)
{
	free(list);
}
