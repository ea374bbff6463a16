/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/enter.h"

#include <stdarg.h>

#include "client/api/error.h"
#include "common/clock.h"

/* Interval at which calls that send no request check that the owner lives. */
#define OWNER_POLL_INTERVAL_MS 1000u

const char *
paged_status_name(enum paged_status status)
{
#define NAME(s) \
	case s: \
		return #s
	switch (status) {
		NAME(PAGED_OK);
		NAME(PAGED_ERR_INVALID);
		NAME(PAGED_ERR_NOMEM);
		NAME(PAGED_ERR_NOENT);
		NAME(PAGED_ERR_PERM);
		NAME(PAGED_ERR_FULL);
		NAME(PAGED_ERR_CAPACITY);
		NAME(PAGED_ERR_LIMIT);
		NAME(PAGED_ERR_STALE);
		NAME(PAGED_ERR_RANGE);
		NAME(PAGED_ERR_GONE);
		NAME(PAGED_ERR_AGAIN);
		NAME(PAGED_ERR_TIMEOUT);
		NAME(PAGED_ERR_FORK);
		NAME(PAGED_ERR_UNSUPPORTED);
		NAME(PAGED_ERR_VERSION);
		NAME(PAGED_ERR_BACKEND);
		NAME(PAGED_ERR_SYSTEM);
		NAME(PAGED_ERR_PROTOCOL);
		NAME(PAGED_ERR_NO_DAEMON);
		NAME(PAGED_ERR_STOPPING);
		NAME(PAGED_ERR_CORRUPT);
		NAME(PAGED_ERR_QUOTA);
	}
#undef NAME
	return "PAGED_ERR_?";
}

enum paged_status
client_fail(const struct paged_client *client, const struct paged_error *error)
{
	error_keep(client->serial, error);
	if (client->owner != NULL && error->status != PAGED_ERR_FORK)
		owner_log(client->owner, PAGED_LOG_DEBUG, "%s: %s", paged_status_name(error->status), error->text);
	return error->status;
}

enum paged_status
client_failf(const struct paged_client *client, enum paged_status status, const char *format, ...)
{
	struct paged_error error;
	va_list arguments;

	va_start(arguments, format);
	paged_vfail(&error, status, format, arguments);
	va_end(arguments);
	return client_fail(client, &error);
}

void
client_poll_owner(struct paged_client *client)
{
	if (pthread_mutex_trylock(&client->mutex) != 0)
		return;
	client->owner->ops->dispatch(client->owner);
	client_unlock(client);
}

enum paged_status
client_check_owner(struct paged_client *client)
{
	if (client->owner->ops->hung_up(client->owner)) {
		/* A notice that says why may precede the hang-up. */
		client_poll_owner(client);
		owner_advance(client->owner, OWNER_GONE);
	}
	return client_enter_owner(client);
}

enum paged_status
client_enter_shared(struct paged_client *client)
{
	enum paged_status status = client_enter(client);
	uint64_t now_ms = clock_coarse_ms();

	if (status != PAGED_OK)
		return status;
	if (now_ms - atomic_load_explicit(&client->owner_polled_ms, memory_order_relaxed) >= OWNER_POLL_INTERVAL_MS) {
		atomic_store_explicit(&client->owner_polled_ms, now_ms, memory_order_relaxed);
		/* Reads notices, but only if no other thread waits for the owner; the second check needs no mutex. */
		client_poll_owner(client);
		return client_check_owner(client);
	}
	return client_enter_owner(client);
}

enum paged_status
client_enter(const struct paged_client *client)
{
	if (client == NULL)
		return PAGED_ERR_INVALID;
	if (guard_in_child(&client->guard))
		return client_failf(client, PAGED_ERR_FORK,
				    "the client belongs to the parent of this forked process; open one here");
	if (client->owner == NULL)
		return client_failf(client, client->open_status, "the client did not open (%s)",
				    paged_status_text(client->open_status));
	return PAGED_OK;
}

enum paged_status
client_enter_owner(const struct paged_client *client)
{
	enum paged_status status = client_enter(client);
	struct paged_error error;

	if (status != PAGED_OK || owner_state(client->owner) < OWNER_ENDED)
		return status;
	owner_fail_gone(client->owner, &error);
	return client_fail(client, &error);
}
