/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

struct thread_pool {
	uint32_t n_threads;
	pthread_t *threads; /* [n_threads]; 0 is the caller */
	atomic_uint n_started;
	pthread_barrier_t start, finish; /* of a job; all threads meet there */

	thread_pool_fn run; /* NULL: the threads end */
	void *job;
	uint32_t n_parts;
	atomic_uint next_part;
};

static void
thread_pool_run_parts(struct thread_pool *thread_pool, uint32_t thread)
{
	uint32_t part;

	while ((part = atomic_fetch_add(&thread_pool->next_part, 1)) < thread_pool->n_parts)
		thread_pool->run(thread_pool->job, part, thread);
}

static void *
thread_pool_main(void *argument)
{
	struct thread_pool *thread_pool = argument;
	uint32_t thread = 1 + atomic_fetch_add(&thread_pool->n_started, 1);

	while (pthread_barrier_wait(&thread_pool->start), thread_pool->run != NULL) {
		thread_pool_run_parts(thread_pool, thread);
		pthread_barrier_wait(&thread_pool->finish);
	}
	return NULL;
}

struct thread_pool *
thread_pool_create(uint32_t n_threads)
{
	struct thread_pool *thread_pool = xcalloc(1, sizeof(*thread_pool));
	int code;

	thread_pool->threads = xcalloc(n_threads, sizeof(*thread_pool->threads));
	thread_pool->n_threads = n_threads;
	pthread_barrier_init(&thread_pool->start, NULL, n_threads);
	pthread_barrier_init(&thread_pool->finish, NULL, n_threads);
	for (uint32_t i = 1; i < n_threads; i++) {
		code = pthread_create(&thread_pool->threads[i], NULL, thread_pool_main, thread_pool);
		if (code != 0)
			die("thread %u of %u: %s", i, n_threads, strerror(code));
	}
	return thread_pool;
}

void
thread_pool_destroy(struct thread_pool *thread_pool)
{
	if (thread_pool == NULL)
		return;
	thread_pool->run = NULL;
	pthread_barrier_wait(&thread_pool->start);
	for (uint32_t i = 1; i < thread_pool->n_threads; i++)
		pthread_join(thread_pool->threads[i], NULL);
	pthread_barrier_destroy(&thread_pool->finish);
	pthread_barrier_destroy(&thread_pool->start);
	free(thread_pool->threads);
	free(thread_pool);
}

uint32_t
thread_pool_n_threads(const struct thread_pool *thread_pool)
{
	return thread_pool->n_threads;
}

void
thread_pool_run(struct thread_pool *thread_pool, uint32_t n_parts, thread_pool_fn run, void *job)
{
	if (thread_pool->n_threads == 1 || n_parts <= 1) {
		for (uint32_t part = 0; part < n_parts; part++)
			run(job, part, 0);
		return;
	}
	thread_pool->run = run;
	thread_pool->job = job;
	thread_pool->n_parts = n_parts;
	atomic_store(&thread_pool->next_part, 0);
	pthread_barrier_wait(&thread_pool->start);
	thread_pool_run_parts(thread_pool, 0);
	pthread_barrier_wait(&thread_pool->finish);
}
