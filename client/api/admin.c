/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of paged_admin.h: lists and checks that the owner answers. */
#include "config.h"

#include "client/api/enter.h"
#include "client/params.h"
#include "common/prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

/* Maximum size of a list's entry in any version. */
#define ENTRY_SIZE_MAX 4096u

void
paged_free(void *list)
{
	free(list);
}

/* Enter a call; on PAGED_OK the mutex is held. */
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
	return client_leave(client, status, error);
}

/* Pass the owner's list to the caller, converted to entries of the caller's size. */
static enum paged_status
admin_list_return(void *list, size_t n, size_t our_size, size_t entry_size, void *list_p, struct paged_error *error)
{
	uint8_t *given = list;

	if (entry_size != our_size) {
		given = calloc(n + 1, entry_size);
		if (given == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a list of %zu entries", n);
		for (size_t i = 0; i < n; i++)
			memcpy(given + i * entry_size, (const uint8_t *)list + i * our_size, MIN(our_size, entry_size));
		free(list);
	}
	memcpy(list_p, &given, sizeof(given));
	return PAGED_OK;
}

/* admin_leave() for a call that returns a list; *n_p is written on PAGED_OK only. */
static enum paged_status
admin_list_leave(struct paged_client *client, enum paged_status status, void *list, size_t n, size_t our_size,
		 size_t entry_size, void *list_p, size_t *n_p, struct paged_error *error)
{
	if (status == PAGED_OK && (entry_size == 0 || entry_size > ENTRY_SIZE_MAX))
		status = paged_fail(error, PAGED_ERR_INVALID, "entry_size is %zu; pass sizeof(the entry)", entry_size);
	if (status == PAGED_OK)
		status = admin_list_return(list, n, our_size, entry_size, list_p, error);
	if (status == PAGED_OK)
		*n_p = n;
	else
		free(list);
	return admin_leave(client, status, error);
}

enum paged_status
paged_admin_status(struct paged_client *client, struct paged_daemon_info *info)
{
	enum paged_status status = admin_enter(client, info != NULL);
	struct paged_daemon_info ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->status(client->owner, &ours, &error);
	if (status == PAGED_OK)
		status = client_info_out(info, &ours, sizeof(ours), "paged_daemon_info", &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_metrics(struct paged_client *client, struct paged_metrics *metrics, size_t entry_size,
		    struct paged_request_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, metrics != NULL && list_p != NULL && n_p != NULL);
	struct paged_request_entry *list = NULL;
	struct paged_metrics ours;
	struct paged_error error;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->metrics(client->owner, &ours, &list, &n, &error);
	if (status == PAGED_OK)
		status = client_info_out(metrics, &ours, sizeof(ours), "paged_metrics", &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_pools(struct paged_client *client, size_t entry_size, struct paged_pool_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_pool_entry *list = NULL;
	struct paged_error error;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pools(client->owner, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_sessions(struct paged_client *client, size_t entry_size, struct paged_session_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_session_entry *list = NULL;
	struct paged_error error;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->sessions(client->owner, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_sequences(struct paged_client *client, const char *pool, size_t entry_size, struct paged_seq_entry **list_p,
		      size_t *n_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && list_p != NULL && n_p != NULL);
	struct paged_seq_entry *list = NULL;
	struct paged_error error;
	uint32_t index;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->sequences(client->owner, index, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_table(struct paged_client *client, paged_seq_id seq, size_t entry_size, struct paged_seq_entry *entry,
		  uint32_t **pages_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, entry != NULL && pages_p != NULL && n_p != NULL);
	struct paged_seq_entry ours;
	struct paged_error error;
	uint32_t *pages = NULL;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->table(client->owner, seq, &ours, &pages, &n, &error);
	if (status == PAGED_OK && entry_size > 0 && entry_size <= ENTRY_SIZE_MAX) {
		memset(entry, 0, entry_size);
		memcpy(entry, &ours, MIN(entry_size, sizeof(ours)));
	} else if (status == PAGED_OK) {
		status = paged_fail(&error, PAGED_ERR_INVALID, "entry_size is %zu; pass sizeof(the entry)", entry_size);
	}
	return admin_list_leave(client, status, pages, n, sizeof(*pages), sizeof(*pages), pages_p, n_p, &error);
}

enum paged_status
paged_admin_check(struct paged_client *client, const char *pool, struct paged_check_result *result)
{
	enum paged_status status = admin_enter(client, pool != NULL && result != NULL);
	struct paged_check_result ours;
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->check(client->owner, index, &ours, &error);
	if (status == PAGED_OK)
		status = client_info_out(result, &ours, sizeof(ours), "paged_check_result", &error);
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
paged_admin_drain(struct paged_client *client, uint32_t session)
{
	enum paged_status status = admin_enter(client, true);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->drain(client->owner, session, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_log_level(struct paged_client *client, uint32_t level, uint32_t *was_p)
{
	enum paged_status status = admin_enter(client, true);
	struct paged_error error;
	uint32_t was;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->log_level(client->owner, level, &was, &error);
	if (status == PAGED_OK && was_p != NULL)
		*was_p = was;
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_prefixes(struct paged_client *client, const char *pool, size_t entry_size, struct paged_node_entry **list_p,
		     size_t *n_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && list_p != NULL && n_p != NULL);
	struct paged_node_entry *list = NULL;
	struct paged_error error;
	uint32_t index;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->prefixes(client->owner, index, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_tickets(struct paged_client *client, size_t entry_size, struct paged_ticket_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_ticket_entry *list = NULL;
	struct paged_error error;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->tickets(client->owner, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_quotas(struct paged_client *client, size_t entry_size, struct paged_quota_entry **list_p, size_t *n_p)
{
	enum paged_status status = admin_enter(client, list_p != NULL && n_p != NULL);
	struct paged_quota_entry *list = NULL;
	struct paged_error error;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->quotas(client->owner, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_evict(struct paged_client *client, const char *pool, uint32_t n_pages, uint32_t *n_evicted_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && n_evicted_p != NULL);
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->evict(client->owner, index, n_pages, n_evicted_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_pin(struct paged_client *client, const char *pool, uint32_t page, uint64_t serial, uint32_t seconds,
		uint32_t *n_pages_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && n_pages_p != NULL);
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->pin(client->owner, index, page, serial, seconds, n_pages_p, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_admin_pins(struct paged_client *client, const char *pool, size_t entry_size, struct paged_pin_entry **list_p,
		 size_t *n_p)
{
	enum paged_status status = admin_enter(client, pool != NULL && list_p != NULL && n_p != NULL);
	struct paged_pin_entry *list = NULL;
	struct paged_error error;
	uint32_t index;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->pins(client->owner, index, &list, &n, &error);
	return admin_list_leave(client, status, list, n, sizeof(*list), entry_size, list_p, n_p, &error);
}

enum paged_status
paged_admin_unpin(struct paged_client *client, const char *pool, uint64_t number)
{
	enum paged_status status = admin_enter(client, pool != NULL);
	struct paged_error error;
	uint32_t index;

	if (status != PAGED_OK)
		return status;
	status = client->owner->ops->pool_find(client->owner, pool, &index, &error);
	if (status == PAGED_OK)
		status = client->owner->ops->unpin(client->owner, index, number, &error);
	return admin_leave(client, status, &error);
}

enum paged_status
paged_prefix_tokens(struct paged_pool *pool, uint32_t page, uint64_t serial, uint32_t *tokens, size_t n)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	const struct region_view *view;
	uint32_t ours[PAGED_MAX_PAGE_SIZE];

	if (status != PAGED_OK)
		return status;
	view = &pool->mapping.view;
	if (tokens == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "tokens must not be NULL");
	if (page >= view->n_pages)
		return client_failf(client, PAGED_ERR_RANGE, "pool %s has %u pages, and no page %u", pool->mapping.name,
				    view->n_pages, page);
	if (n < view->page_size)
		return client_failf(client, PAGED_ERR_RANGE, "room for %zu tokens; a page of pool %s has %u", n,
				    pool->mapping.name, view->page_size);
	if (!prefix_tokens(view, page, serial, ours))
		return client_failf(client, PAGED_ERR_STALE, "page %u of pool %s is not published with serial %llu",
				    page, pool->mapping.name, (unsigned long long)serial);
	if (ours[0] == PREFIX_NO_TOKENS)
		return client_failf(client, PAGED_ERR_NOENT, "page %u of pool %s was published under a key", page,
				    pool->mapping.name);
	memcpy(tokens, ours, view->page_size * sizeof(*tokens));
	return PAGED_OK;
}

enum paged_status
paged_pool_check(struct paged_pool *pool, struct paged_check_result *result)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter(client);
	struct paged_check_result ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (result == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "result must not be NULL");
	status = region_check(&pool->mapping.view, &ours, &error);
	if (status == PAGED_OK || status == PAGED_ERR_CORRUPT)
		status = client_info_out(result, &ours, sizeof(ours), "paged_check_result", &error);
	return client_leave(client, status, &error);
}
