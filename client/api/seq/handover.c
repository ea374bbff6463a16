/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences between sessions: paged_seq_give(), paged_seq_adopt(), paged_ticket_cancel(). */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/checking.h"
#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/api/seq/seq.h"
#include "client/params.h"

static enum paged_status
give_items_fill(struct paged_pool *pool, size_t n, const paged_seq_id *seqs, const uint32_t *lengths,
		struct paged_seq_item *items, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (size_t i = 0; i < n && status == PAGED_OK; i++) {
		items[i] = (struct paged_seq_item){ .seq = seqs[i], .n_tokens = lengths[i] };
		status = pool_check_seq(pool, seqs[i], error);
	}
	return status;
}

enum paged_status
paged_seq_give(struct paged_pool *pool, size_t n, const paged_seq_id *seqs, const uint32_t *lengths,
	       const struct paged_give_params *params, struct paged_ticket *ticket)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = seq_request_enter(client, n, seqs != NULL && lengths != NULL && ticket != NULL);
	struct paged_give_params ours;
	struct paged_seq_item *items;
	struct paged_error error;
	struct seq_give give;

	if (status != PAGED_OK)
		return status;
	items = calloc(n, sizeof(*items));
	if (items == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for a request of %zu sequences", n);
	status = client_params_in(&ours, sizeof(ours), params, "paged_give_params", &error);
	if (status == PAGED_OK)
		status = give_items_fill(pool, n, seqs, lengths, items, &error);
	if (status == PAGED_OK) {
		give = (struct seq_give){
			.timeout_ms = ours.timeout_ms,
			.flags = ours.flags,
			.session = ours.session,
			.uid = ours.uid,
		};
		client_lock(client);
		status = client->owner->ops->give(client->owner, (uint32_t)n, items, &give, ticket->bytes, &error);
		client_unlock(client);
	}
	for (size_t i = 0; status == PAGED_OK && pool->checking != NULL && i < n; i++)
		checking_forget(pool, seqs[i]);
	free(items);
	return client_leave(client, status, &error);
}

static enum paged_status
ticket_enter(const struct paged_client *client, bool has_arguments)
{
	enum paged_status status = client_enter_owner(client);

	if (status != PAGED_OK)
		return status;
	if (!has_arguments)
		return client_failf(client, PAGED_ERR_INVALID, "an argument is NULL");
	if (client->owner->session == 0)
		return client_failf(client, PAGED_ERR_PERM, "an observer has no sequences");
	return PAGED_OK;
}

enum paged_status
paged_seq_adopt(struct paged_pool *pool, const struct paged_ticket *ticket, size_t n_max, paged_seq_id *seqs,
		uint32_t *lengths, size_t *n_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = ticket_enter(client, ticket != NULL && (seqs != NULL || n_max == 0) && n_p != NULL);
	uint32_t n_room = (uint32_t)MIN(n_max, PAGED_MAX_REQUEST_SEQS), n;
	struct paged_seq_item *items;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	items = calloc((size_t)n_room + 1, sizeof(*items));
	if (items == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for %u sequences", n_room);
	client_lock(client);
	status =
		client->owner->ops->adopt(client->owner, pool->mapping.index, ticket->bytes, n_room, items, &n, &error);
	client_unlock(client);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++) {
		seqs[i] = items[i].seq;
		if (lengths != NULL)
			lengths[i] = items[i].n_tokens;
	}
	if (status == PAGED_OK)
		*n_p = n;
	free(items);
	return client_leave(client, status, &error);
}

enum paged_status
paged_ticket_cancel(struct paged_client *client, const struct paged_ticket *ticket)
{
	enum paged_status status = ticket_enter(client, ticket != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	status = client->owner->ops->cancel(client->owner, ticket->bytes, &error);
	client_unlock(client);
	return client_leave(client, status, &error);
}
