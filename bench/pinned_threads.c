/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/pinned_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "bench/base.h"

#define MAX_THREADS 64u

static struct {
	unsigned int n;
	cpu_set_t allowed; /* before any thread was pinned */
	uint32_t cpus[MAX_THREADS];
	pthread_barrier_t begin; /* the other threads sleep here, so they use no processor time between runs */
	pinned_threads_fn work;
	void *context;
	_Atomic unsigned int n_ready, n_done;
	_Atomic uint64_t begin_ns; /* of the first thread */
	_Alignas(64) _Atomic size_t next_unit;
} threads;

static void
pinned_threads_pin(uint32_t cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0)
		bench_die("CPU %u: %m", cpu);
}

static void
pinned_threads_wait(_Atomic unsigned int *count)
{
	while (atomic_load_explicit(count, memory_order_acquire) < threads.n) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
}

/*
 * A busy machine may deschedule any thread, so every thread reads the clock
 * before it works; the earliest time counts.
 */
static void
pinned_threads_work(void)
{
	uint64_t now, first;

	atomic_fetch_add(&threads.n_ready, 1);
	pinned_threads_wait(&threads.n_ready);
	now = bench_timer_ns();
	first = atomic_load(&threads.begin_ns);
	while (now < first && !atomic_compare_exchange_weak(&threads.begin_ns, &first, now))
		;
	threads.work(threads.context);
	atomic_fetch_add(&threads.n_done, 1);
}

static void *
pinned_threads_main(void *argument)
{
	pinned_threads_pin(*(const uint32_t *)argument);
	for (;;) {
		pthread_barrier_wait(&threads.begin);
		pinned_threads_work();
	}
	return NULL;
}

unsigned int
pinned_threads_start(unsigned int n)
{
	if (threads.n != 0) {
		pinned_threads_pin(threads.cpus[0]);
		return threads.n;
	}
	if (sched_getaffinity(0, sizeof(threads.allowed), &threads.allowed) != 0)
		bench_die("sched_getaffinity: %m");
	for (uint32_t cpu = 0; cpu < CPU_SETSIZE && threads.n < n && threads.n < MAX_THREADS; cpu++)
		if (CPU_ISSET(cpu, &threads.allowed))
			threads.cpus[threads.n++] = cpu;
	pinned_threads_pin(threads.cpus[0]);
	pthread_barrier_init(&threads.begin, NULL, threads.n);
	for (unsigned int i = 1; i < threads.n; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, pinned_threads_main, &threads.cpus[i]) != 0)
			bench_die("no thread");
		pthread_detach(thread);
	}
	return threads.n;
}

unsigned int
pinned_threads_count(void)
{
	return threads.n;
}

uint64_t
pinned_threads_run(pinned_threads_fn work, void *context)
{
	threads.work = work;
	threads.context = context;
	atomic_store(&threads.n_ready, 0);
	atomic_store(&threads.n_done, 0);
	atomic_store(&threads.begin_ns, UINT64_MAX);
	atomic_store(&threads.next_unit, 0);
	pthread_barrier_wait(&threads.begin);
	pinned_threads_work();
	pinned_threads_wait(&threads.n_done);
	return bench_timer_ns() - atomic_load(&threads.begin_ns);
}

size_t
pinned_threads_next_unit(void)
{
	return atomic_fetch_add_explicit(&threads.next_unit, 1, memory_order_relaxed);
}

const uint32_t *
pinned_threads_cpus(void)
{
	return threads.cpus;
}

void
pinned_threads_unpin(void)
{
	if (threads.n != 0 && sched_setaffinity(0, sizeof(threads.allowed), &threads.allowed) != 0)
		bench_die("sched_setaffinity: %m");
}

void
pinned_threads_omp_places(char *text, size_t size)
{
	size_t n = 0;

	text[0] = 0;
	for (unsigned int i = 0; i < threads.n && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s{%u}", i > 0 ? "," : "", threads.cpus[i]);
}
