/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/support.h"

struct team {
	uint32_t n_threads;
	pthread_t *threads; /* [n_threads]; 0 is the caller */
	atomic_uint n_started;
	pthread_barrier_t start, finish; /* of a job; all threads meet there */

	team_fn run; /* NULL: the threads end */
	void *job;
	uint32_t n_parts;
	atomic_uint next_part;
};

static void
take_parts(struct team *team, uint32_t thread)
{
	uint32_t part;

	while ((part = atomic_fetch_add(&team->next_part, 1)) < team->n_parts)
		team->run(team->job, part, thread);
}

static void *
member_main(void *argument)
{
	struct team *team = argument;
	uint32_t thread = 1 + atomic_fetch_add(&team->n_started, 1);

	while (pthread_barrier_wait(&team->start), team->run != NULL) {
		take_parts(team, thread);
		pthread_barrier_wait(&team->finish);
	}
	return NULL;
}

struct team *
team_create(uint32_t n_threads)
{
	struct team *team = allocate(1, sizeof(*team));
	int code;

	team->threads = allocate(n_threads, sizeof(*team->threads));
	team->n_threads = n_threads;
	pthread_barrier_init(&team->start, NULL, n_threads);
	pthread_barrier_init(&team->finish, NULL, n_threads);
	for (uint32_t i = 1; i < n_threads; i++) {
		code = pthread_create(&team->threads[i], NULL, member_main, team);
		if (code != 0)
			die("thread %u of %u: %s", i, n_threads, strerror(code));
	}
	return team;
}

void
team_destroy(struct team *team)
{
	if (team == NULL)
		return;
	team->run = NULL;
	pthread_barrier_wait(&team->start);
	for (uint32_t i = 1; i < team->n_threads; i++)
		pthread_join(team->threads[i], NULL);
	pthread_barrier_destroy(&team->finish);
	pthread_barrier_destroy(&team->start);
	free(team->threads);
	free(team);
}

uint32_t
team_n_threads(const struct team *team)
{
	return team->n_threads;
}

void
team_run(struct team *team, uint32_t n_parts, team_fn run, void *job)
{
	if (team->n_threads == 1 || n_parts <= 1) {
		for (uint32_t part = 0; part < n_parts; part++)
			run(job, part, 0);
		return;
	}
	team->run = run;
	team->job = job;
	team->n_parts = n_parts;
	atomic_store(&team->next_part, 0);
	pthread_barrier_wait(&team->start);
	take_parts(team, 0);
	pthread_barrier_wait(&team->finish);
}
