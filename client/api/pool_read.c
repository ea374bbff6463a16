/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/pool_read.h"

#include <stdio.h>

#include "client/api/enter.h"

/* The header stays mapped after the owner has ended, but its numbers are then invalid. */
enum paged_status
pool_check_owner(struct paged_pool *pool, struct paged_error *error)
{
	struct owner *owner = pool->client->owner;

	client_poll_owner(pool->client);
	/* While another thread waits for the owner, its notices are not read. */
	if (owner->ops->hung_up(owner))
		owner_advance(owner, OWNER_GONE);
	return owner_state(pool->client->owner) < OWNER_ENDED ? PAGED_OK : owner_fail_gone(pool->client->owner, error);
}

enum paged_status
pool_refuse_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error)
{
	struct paged_client *client = pool->client;
	const struct paged_pool *other;
	char name[PAGED_MAX_NAME + 16];

	if (PAGED_SEQ_GENERATION(id) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%llu is not a sequence id", (unsigned long long)id);
	client_lock(client);
	LIST_FOREACH(other, &client->pools, link)
		if (other->mapping.index == PAGED_SEQ_POOL(id))
			break;
	if (other != NULL)
		snprintf(name, sizeof(name), "%s", other->mapping.name);
	else
		snprintf(name, sizeof(name), "number %u", PAGED_SEQ_POOL(id));
	client_unlock(client);
	return paged_fail(error, PAGED_ERR_INVALID, "sequence " SEQ_FORMAT " is of pool %s, not of pool %s",
			  SEQ_ARGS(id), name, pool->mapping.name);
}

enum paged_status
pool_snapshot(struct paged_pool *pool, paged_seq_id id, unsigned int *attempt, struct region_snapshot *snapshot,
	      struct paged_error *error)
{
	enum region_result result = REGION_BUSY;
	enum paged_status status;

	while (result == REGION_BUSY && *attempt < REGION_ATTEMPTS) {
		if (*attempt > 0)
			region_pause(*attempt - 1);
		result = region_snapshot_begin(&pool->mapping.view, id, snapshot);
		++*attempt;
	}
	if (result == REGION_READ)
		return PAGED_OK;
	/* The end of the session also removes sequences; its notice arrives first, so report it instead. */
	status = pool_check_owner(pool, error);
	if (status != PAGED_OK)
		return status;
	if (result == REGION_STALE)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s has no live sequence " SEQ_FORMAT,
				  pool->mapping.name, SEQ_ARGS(id));
	return paged_fail(error, PAGED_ERR_AGAIN, "sequence " SEQ_FORMAT " of pool %s is being changed just now",
			  SEQ_ARGS(id), pool->mapping.name);
}
