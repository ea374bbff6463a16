/* SPDX-License-Identifier: Apache-2.0 */
/* A client's life: parameters, time limit, instruction set, threads, and the owner that it attaches to. */
#include "config.h"

#include "client/api/compute_backends.h"
#include "client/api/enter.h"
#include "client/api/pool.h"
#include "client/api/seq/publish.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/error.h"
#include "client/params.h"
#include "common/clock.h"

#define CLIENT_TIMEOUT_MS_DEFAULT 5000u
/* Between two attempts to attach to a daemon that is starting. */
#define CLIENT_RETRY_MS 20

uint32_t
paged_version(void)
{
	return PAGED_VERSION;
}

static enum paged_status
client_choose_isa(enum kernel_isa *isa_p, const char *wanted, struct paged_error *error)
{
	const char *forced = secure_getenv("PAGED_ISA"), *what = "PAGED_ISA", *name = forced;

	if (forced == NULL || forced[0] == '\0') {
		what = "isa";
		name = wanted;
	}
	if (name == NULL) {
		*isa_p = kernel_isa_best();
		return PAGED_OK;
	}
	*isa_p = kernel_isa_parse(name);
	if (*isa_p == KERNEL_N_ISAS)
		return paged_fail(error, PAGED_ERR_INVALID, "%s=%s is none of generic, avx2, avx512, avx512bf16, amx",
				  what, name);
	if (!kernel_isa_supported(*isa_p))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "%s=%s: %s", what, name,
				  kernel_isa_unsupported_reason(*isa_p));
	return PAGED_OK;
}

static enum paged_status
client_choose_timeout(uint32_t *timeout_ms_p, struct paged_error *error)
{
	const char *text = secure_getenv("PAGED_TIMEOUT_MS");
	unsigned long ms;

	if (*timeout_ms_p != 0)
		return PAGED_OK;
	*timeout_ms_p = CLIENT_TIMEOUT_MS_DEFAULT;
	if (text == NULL || text[0] == '\0')
		return PAGED_OK;
	/* Nine digits, so that nothing overflows, and no sign or space, which strtoul() accepts. */
	ms = strlen(text) <= 9 && text[strspn(text, "0123456789")] == '\0' ? strtoul(text, NULL, 10) : 0;
	if (ms == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "PAGED_TIMEOUT_MS=%.64s is not a number of milliseconds from 1 to 999999999", text);
	*timeout_ms_p = (uint32_t)ms;
	return PAGED_OK;
}

static bool
client_is_checked(void)
{
	const char *text = secure_getenv("PAGED_CHECK");

	return text != NULL && text[0] == '1' && text[1] == '\0';
}

/* Create a client that is not attached yet; NULL if there is no memory. */
static struct paged_client *
client_create(void)
{
	struct paged_client *client = calloc(1, sizeof(*client));

	if (client == NULL)
		return NULL;
	client->serial = error_serial();
	client->open_status = PAGED_ERR_INVALID;
	client->publish = calloc(1, sizeof(*client->publish)); /* touched by programs that publish */
	if (client->publish == NULL)
		goto err_free;
	if (!guard_init(&client->guard))
		goto err_publish;
	if (pthread_mutex_init(&client->mutex, NULL) != 0)
		goto err_guard;
	if (pthread_mutex_init(&client->pools_mutex, NULL) != 0)
		goto err_mutex;
	return client;

err_mutex:
	pthread_mutex_destroy(&client->mutex);
err_guard:
	guard_destroy(&client->guard);
err_publish:
	free(client->publish);
err_free:
	free(client);
	return NULL;
}

/* Check and copy the parameters of the threads that run the kernels of the client's batches. */
static enum paged_status
client_threads_in(struct paged_client *client, const struct paged_client_params *params, struct paged_error *error)
{
	uint32_t n = params->n_cpus;
	enum paged_status status;

	client->team.n_threads = params->n_threads != 0 ? params->n_threads : 1;
	client->team.run = params->run;
	client->team.run_context = params->run_argument;
	if (params->cpus == NULL && n == 0)
		return PAGED_OK;
	if (params->run != NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "run() brings threads of its own: cpus is not possible");
	if (params->cpus == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "n_cpus is %u, cpus is NULL", n);
	if (n != client->team.n_threads)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%u cpus for %u threads: each has one, the calling thread too", n,
				  client->team.n_threads);
	status = kernel_cpus_check(params->cpus, n, error);
	if (status != PAGED_OK)
		return status;
	client->cpus = malloc(n * sizeof(*client->cpus));
	if (client->cpus == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %u cpus", n);
	memcpy(client->cpus, params->cpus, n * sizeof(*client->cpus));
	client->team.cpus = client->cpus;
	return PAGED_OK;
}

static enum paged_status
client_complete_params(struct paged_client *client, struct paged_client_params *params,
		       const struct paged_client_params *user, struct paged_error *error)
{
	enum paged_status status = client_params_in(params, sizeof(*params), user, "paged_client_params", error);

	if (status != PAGED_OK)
		return status;
	status = client_choose_timeout(&params->timeout_ms, error);
	if (status != PAGED_OK)
		return status;
	if (params->name == NULL)
		params->name = program_invocation_short_name;
	if (params->observer > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "observer is %u, must be 0 or 1", params->observer);
	if (params->tables_only > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "tables_only is %u, must be 0 or 1", params->tables_only);
	if (params->check > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "check is %u, must be 0 or 1", params->check);
	client->checks = params->check != 0 || client_is_checked();
	if (params->observer != 0 && params->join_token != NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "an observer joins no session: join_token is not possible");
	status = client_threads_in(client, params, error);
	return status == PAGED_OK ? client_choose_isa(&client->team.isa, params->isa, error) : status;
}

/* The owner to attach to: the daemon of a runtime directory, or an embedded owner with these pools. */
struct open_target {
	bool embedded;
	const char *runtime_dir;
	const struct paged_pool_params *pools;
	size_t n_pools;
};

/* Whether a daemon that starts now may answer the next attempt otherwise. */
static bool
client_open_may_succeed_later(enum paged_status status, const struct paged_client_params *params)
{
	switch (status) {
	case PAGED_ERR_NO_DAEMON:
	case PAGED_ERR_STOPPING:
	case PAGED_ERR_TIMEOUT:
		return true;
	case PAGED_ERR_GONE:
		return params->join_token == NULL; /* else the session to join has ended for ever */
	default:
		return false;
	}
}

static enum paged_status
client_open_remote(const char *runtime_dir, const struct paged_client_params *params, struct owner **owner_p,
		   struct paged_error *error)
{
	uint64_t end_ms = clock_ms() + params->wait_ms;
	enum paged_status status;

	for (;;) {
		status = owner_remote_open(runtime_dir, params, owner_p, error);
		if (!client_open_may_succeed_later(status, params) || clock_ms() >= end_ms)
			return status;
		poll(NULL, 0, CLIENT_RETRY_MS);
	}
}

static enum paged_status
client_open(const struct open_target *target, const struct paged_client_params *params, struct paged_client **client_p)
{
	struct paged_client_params complete;
	struct paged_client *client;
	struct owner *owner = NULL;
	enum paged_status status;
	struct paged_error error;

	if (client_p == NULL)
		return PAGED_ERR_INVALID;
	*client_p = client = client_create();
	if (client == NULL)
		return PAGED_ERR_NOMEM;
	status = client_complete_params(client, &complete, params, &error);
	if (status == PAGED_OK && !target->embedded)
		status = client_open_remote(target->runtime_dir, &complete, &owner, &error);
	else if (status == PAGED_OK && complete.tables_only != 0)
		status =
			paged_fail(&error, PAGED_ERR_INVALID, "an embedded owner has the pages: tables_only must be 0");
	else if (status == PAGED_OK)
		status = owner_embedded_open(target->pools, target->n_pools, &complete, &owner, &error);
	client->open_status = status;
	if (status != PAGED_OK)
		return client_fail(client, &error);
	client->owner = owner;
	return PAGED_OK;
}

enum paged_status
paged_client_open(const char *runtime_dir, const struct paged_client_params *params, struct paged_client **client_p)
{
	return client_open(&(struct open_target){ .runtime_dir = runtime_dir }, params, client_p);
}

enum paged_status
paged_client_open_embedded(const struct paged_pool_params *pools, size_t n_pools,
			   const struct paged_client_params *params, struct paged_client **client_p)
{
	return client_open(&(struct open_target){ .embedded = true, .pools = pools, .n_pools = n_pools }, params,
			   client_p);
}

void
paged_client_close(struct paged_client *client)
{
	bool in_child;

	if (client == NULL)
		return;
	in_child = guard_in_child(&client->guard);
	while (!LIST_EMPTY(&client->pools))
		pool_free(LIST_FIRST(&client->pools), in_child);
	if (client->owner != NULL)
		client->owner->ops->close(client->owner, in_child);
	compute_backends_close(client, in_child);
	/* In a forked child the mutexes may be held by threads that do not exist there. */
	if (!in_child) {
		pthread_mutex_destroy(&client->pools_mutex);
		pthread_mutex_destroy(&client->mutex);
	}
	guard_destroy(&client->guard);
	free(client->publish);
	free(client->cpus);
	free(client);
}

const char *
paged_client_error(const struct paged_client *client)
{
	return client != NULL ? error_text(client->serial)
			      : "there is no client: out of memory, or an argument is NULL";
}

uint32_t
paged_client_session(const struct paged_client *client)
{
	return client != NULL && client->owner != NULL ? client->owner->session : 0;
}

const char *
paged_client_join_token(const struct paged_client *client)
{
	return client != NULL && client->owner != NULL ? client->owner->join_token : "";
}

int
paged_client_fd(const struct paged_client *client)
{
	return client != NULL && client->owner != NULL ? client->owner->fd : -1;
}

enum paged_status
paged_client_ping(struct paged_client *client)
{
	enum paged_status status = client_enter_owner(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	status = client->owner->ops->ping(client->owner, &error);
	client_unlock(client);
	return client_leave(client, status, &error);
}

enum paged_status
paged_client_dispatch(struct paged_client *client)
{
	enum paged_status status = client_enter(client);

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	client->owner->ops->dispatch(client->owner);
	client_unlock(client);
	if (owner_state(client->owner) == OWNER_DRAINING)
		return client_failf(client, PAGED_ERR_STOPPING,
				    "session %u is drained and gets no new sequences: finish or give away those it "
				    "has, then close",
				    client->owner->session);
	if (owner_state(client->owner) == OWNER_STOPPING)
		return client_failf(client, PAGED_ERR_STOPPING, "the daemon is stopping: finish, then close");
	return client_enter_owner(client);
}
