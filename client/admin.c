/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
paged_free(void *list)
{
	free(list);
}

/* Enters with the mutex held on PAGED_OK. */
static enum paged_status
admin_enter(struct paged_client *client, bool has_outputs)
{
	enum paged_status status = client_enter_owner(client);

	if (status != PAGED_OK)
		return status;
	if (!has_outputs)
		return client_failf(client, PAGED_ERR_INVALID, "an argument is NULL");
	client_lock(client);
	return PAGED_OK;
}

static enum paged_status
admin_leave(struct paged_client *client, enum paged_status status, const struct paged_error *error)
{
	client_unlock(client);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, error);
}

enum paged_status
paged_admin_status(struct paged_client *client, struct paged_daemon_info *info)
{
	enum paged_status status = admin_enter(client, info != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->status(client->owner, info, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_pools(struct paged_client *client, struct paged_pool_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pools(client->owner, list_p, n_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_sessions(struct paged_client *client, struct paged_session_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->sessions(client->owner, list_p, n_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_sequences(struct paged_client *client, const char *pool, struct paged_seq_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && list_p != NULL && n_p != NULL);
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->sequences(client->owner, index, list_p, n_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_table(struct paged_client *client, paged_seq_id seq, struct paged_seq_entry *entry, uint32_t **pages_p,
		  size_t *n_p)
{
	enum paged_status status = admin_enter(client, entry != NULL && pages_p != NULL && n_p != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->table(client->owner, seq, entry, pages_p, n_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_check(struct paged_client *client, const char *pool, struct paged_check_result *result)
{
	enum paged_status status = admin_enter(client, pool != NULL && result != NULL);
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->check(client->owner, index, result, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_kick(struct paged_client *client, uint32_t session, int kill_members)
{
	enum paged_status status = admin_enter(client, true);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->kick(client->owner, session, kill_members != 0, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_pool_check(struct paged_pool *pool, struct paged_check_result *result)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter(client);
	struct region_books books;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (result == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "result must not be NULL");
	status = region_check(&pool->at.view, &books, &error);
	if (status != PAGED_OK && status != PAGED_ERR_CORRUPT)
		return client_fail(client, &error);
	owner_check_result(result, &books, status == PAGED_OK ? NULL : &error);
	return PAGED_OK;
}
