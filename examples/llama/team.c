/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct member {
	struct team *team;
	pthread_t thread;
	uint32_t index;
};

struct team {
	uint32_t n_threads;
	struct member *members; /* [n_threads]; 0 is the caller */
	pthread_mutex_t mutex;
	pthread_cond_t start, finish;
	uint64_t round;     /* jobs begun */
	uint32_t n_working; /* started threads that are not through with this round */
	bool end;

	team_fn run;
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
	struct member *member = argument;
	struct team *team = member->team;
	uint64_t seen = 0;

	pthread_mutex_lock(&team->mutex);
	for (;;) {
		while (team->round == seen && !team->end)
			pthread_cond_wait(&team->start, &team->mutex);
		if (team->end)
			break;
		seen = team->round;
		pthread_mutex_unlock(&team->mutex);
		take_parts(team, member->index);
		pthread_mutex_lock(&team->mutex);
		if (--team->n_working == 0)
			pthread_cond_signal(&team->finish);
	}
	pthread_mutex_unlock(&team->mutex);
	return NULL;
}

bool
team_create(uint32_t n_threads, struct team **team_p, struct error *error)
{
	struct team *team = calloc(1, sizeof(*team));
	int code;

	if (team != NULL)
		team->members = calloc(n_threads, sizeof(*team->members));
	if (team == NULL || team->members == NULL) {
		free(team);
		return error_set(error, "no memory for %u threads", n_threads);
	}
	pthread_mutex_init(&team->mutex, NULL);
	pthread_cond_init(&team->start, NULL);
	pthread_cond_init(&team->finish, NULL);
	team->n_threads = 1;
	for (uint32_t i = 1; i < n_threads; i++) {
		team->members[i] = (struct member){ .team = team, .index = i };
		code = pthread_create(&team->members[i].thread, NULL, member_main, &team->members[i]);
		if (code != 0) {
			team_destroy(team);
			return error_set(error, "thread %u of %u: %s", i, n_threads, strerror(code));
		}
		team->n_threads++;
	}
	*team_p = team;
	return true;
}

void
team_destroy(struct team *team)
{
	if (team == NULL)
		return;
	pthread_mutex_lock(&team->mutex);
	team->end = true;
	pthread_cond_broadcast(&team->start);
	pthread_mutex_unlock(&team->mutex);
	for (uint32_t i = 1; i < team->n_threads; i++)
		pthread_join(team->members[i].thread, NULL);
	pthread_cond_destroy(&team->finish);
	pthread_cond_destroy(&team->start);
	pthread_mutex_destroy(&team->mutex);
	free(team->members);
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
	if (team->n_threads == 1) {
		for (uint32_t part = 0; part < n_parts; part++)
			run(job, part, 0);
		return;
	}
	pthread_mutex_lock(&team->mutex);
	team->run = run;
	team->job = job;
	team->n_parts = n_parts;
	atomic_store(&team->next_part, 0);
	team->n_working = team->n_threads - 1;
	team->round++;
	pthread_cond_broadcast(&team->start);
	pthread_mutex_unlock(&team->mutex);

	take_parts(team, 0);

	pthread_mutex_lock(&team->mutex);
	while (team->n_working > 0)
		pthread_cond_wait(&team->finish, &team->mutex);
	pthread_mutex_unlock(&team->mutex);
}
