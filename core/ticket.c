/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets: sequences on their way from one session to another.  A ticket owns its sequences until a session adopts
 * them, or they return to their giver.  The ticket exists before the first sequence is frozen, and a sequence leaves it
 * only into a session's list, so each always has one owner.
 */
#include <stdlib.h>
#include <string.h>

#include "core/page_table.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"
#include "core/ticket.h"

/* The list */

static bool
tickets_make_room(struct ticket_list *list)
{
	struct ticket_entry *entries;

	if (list->n < list->room)
		return true;
	entries = reallocarray(list->entries, 2 * (size_t)list->room + 16, sizeof(*entries));
	if (entries == NULL)
		return false;
	list->entries = entries;
	list->room = 2 * list->room + 16;
	return true;
}

static void
tickets_update_deadline(struct ticket_list *list)
{
	list->first_deadline_ms = UINT64_MAX;
	for (uint32_t i = 0; i < list->n; i++)
		if (list->entries[i].deadline_ms < list->first_deadline_ms)
			list->first_deadline_ms = list->entries[i].deadline_ms;
}

static uint64_t
ticket_head(const uint8_t bytes[PAGED_TICKET_SIZE])
{
	uint64_t head;

	memcpy(&head, bytes, sizeof(head));
	return head;
}

/*
 * The entry of a ticket; n: there is none.  The first half is compared in one instruction, and only who knows it can
 * learn from the time of the other comparison, so that time helps nobody to guess a ticket.
 */
static uint32_t
tickets_find(const struct ticket_list *list, const uint8_t bytes[PAGED_TICKET_SIZE])
{
	uint64_t head = ticket_head(bytes);
	uint32_t i = 0;

	while (i < list->n &&
	       (list->entries[i].head != head || memcmp(list->entries[i].ticket->bytes, bytes, PAGED_TICKET_SIZE) != 0))
		i++;
	return i;
}

static void
tickets_append(struct core *core, struct core_ticket *ticket)
{
	struct ticket_list *list = &core->tickets;
	uint64_t deadline_ms = core->now_ms + ticket->give.timeout_ms;

	ticket->number = ++list->last_number;
	ticket->giver->n_tickets++;
	tenant_count_tickets(core, ticket->giver->tenant, 1);
	list->entries[list->n++] = (struct ticket_entry){
		.head = ticket_head(ticket->bytes),
		.deadline_ms = deadline_ms,
		.ticket = ticket,
	};
	if (list->n == 1 || deadline_ms < list->first_deadline_ms)
		list->first_deadline_ms = deadline_ms;
}

/* Frees a ticket that is in the list no more, and whose sequences are in a session's list again. */
static void
ticket_free(struct core *core, struct core_ticket *ticket)
{
	ticket->giver->n_tickets--;
	tenant_count_tickets(core, ticket->giver->tenant, -1);
	core_session_queue_or_free(core, ticket->giver);
	free(ticket);
}

/* Removes a ticket whose sequences are in a session's list again. */
static void
tickets_remove(struct core *core, uint32_t i)
{
	struct ticket_list *list = &core->tickets;
	struct ticket_entry entry = list->entries[i];

	list->n--;
	memmove(&list->entries[i], &list->entries[i + 1], (list->n - i) * sizeof(*list->entries));
	if (entry.deadline_ms == list->first_deadline_ms)
		tickets_update_deadline(list);
	ticket_free(core, entry.ticket);
}

void
tickets_free(struct core *core)
{
	for (uint32_t i = 0; i < core->tickets.n; i++)
		free(core->tickets.entries[i].ticket);
	free(core->tickets.entries);
}

/* Give */

static enum paged_status
give_check_item(struct core *core, const struct core_session *session, const struct paged_seq_item *item,
		uint32_t pool_index, struct paged_error *error)
{
	enum paged_status status = request_check_seq(core, session, item->seq, true, error);
	const struct core_pool *pool;
	uint32_t capacity;

	if (status != PAGED_OK)
		return status;
	pool = request_pool(core, item->seq);
	capacity = page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)) * pool->view.page_size;
	if (PAGED_SEQ_POOL(item->seq) != pool_index)
		return request_fail(core, item->seq, error, PAGED_ERR_INVALID,
				    "is given together with sequences of pool %s", core->pools[pool_index]->name);
	if (item->n_ahead != 0)
		return request_fail(core, item->seq, error, PAGED_ERR_INVALID, "is given, but n_ahead is %u",
				    item->n_ahead);
	if (item->n_tokens > capacity)
		return request_fail(core, item->seq, error, PAGED_ERR_CAPACITY,
				    "has room for %u tokens, cannot be given with %u", capacity, item->n_tokens);
	return request_check_trimmed(core, item->seq, item->n_tokens, "it cannot be given with", error);
}

static enum paged_status
give_check(struct core *core, const struct core_session *session, const struct seq_give *give,
	   const uint8_t bytes[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct core_session *taker;
	struct paged_error gone;

	if (give->flags & ~(PAGED_GIVE_SESSION | PAGED_GIVE_UID))
		return paged_fail(error, PAGED_ERR_INVALID, "flags 0x%x: the flags of a give are 0x%x", give->flags,
				  PAGED_GIVE_SESSION | PAGED_GIVE_UID);
	if ((give->flags & PAGED_GIVE_SESSION) &&
	    core_session_find_active(core, give->session, &taker, &gone) != PAGED_OK)
		return paged_fail(error, PAGED_ERR_NOENT, "sequences are given to a session that cannot adopt: %s",
				  gone.text);
	if (session->n_tickets >= PAGED_MAX_TICKETS)
		return paged_fail(error, PAGED_ERR_LIMIT, "session %u has %u tickets, the most that a session may have",
				  session->id, PAGED_MAX_TICKETS);
	if (tickets_find(&core->tickets, bytes) < core->tickets.n)
		return paged_fail(error, PAGED_ERR_INVALID, "session %u: there is a ticket with these bytes",
				  session->id);
	return tenant_check_tickets(core, session->tenant, error);
}

enum paged_status
core_seq_give(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
	      const struct seq_give *give, const uint8_t bytes[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct core_ticket *ticket;
	struct core_session *session;
	enum paged_status status = request_begin(core, session_id, n, &session, error);

	if (status == PAGED_OK)
		status = give_check(core, session, give, bytes, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = give_check_item(core, session, &items[i], PAGED_SEQ_POOL(items[0].seq), error);
	if (status != PAGED_OK)
		return status;
	ticket = malloc(sizeof(*ticket) + n * sizeof(*items));
	if (ticket == NULL || !tickets_make_room(&core->tickets)) {
		free(ticket);
		return paged_fail(error, PAGED_ERR_NOMEM, "session %u: no memory for a ticket of %u sequences",
				  session_id, n);
	}
	*ticket = (struct core_ticket){
		.giver = session,
		.give = *give,
		.pool = PAGED_SEQ_POOL(items[0].seq),
		.n = n,
	};
	memcpy(ticket->bytes, bytes, sizeof(ticket->bytes));
	memcpy(ticket->items, items, n * sizeof(*items));
	tickets_append(core, ticket);
	for (uint32_t i = 0; i < n; i++)
		page_table_freeze(core->pools[ticket->pool], session, PAGED_SEQ_SLOT(items[i].seq));
	counter_add(&core->pools[ticket->pool]->header->n_given, n);
	return PAGED_OK;
}

/* Cancel, expiry */

/* A ticket that is being adopted counts as used. */
enum paged_status
ticket_find_valid(const struct core *core, const uint8_t bytes[PAGED_TICKET_SIZE], uint32_t *i_p,
		  struct paged_error *error)
{
	const struct ticket_entry *entry;

	*i_p = tickets_find(&core->tickets, bytes);
	/* Before the first ticket, the list has no memory. */
	entry = *i_p < core->tickets.n ? &core->tickets.entries[*i_p] : NULL;
	if (entry == NULL || entry->deadline_ms <= core->now_ms || entry->ticket->move.active)
		return paged_fail(error, PAGED_ERR_NOENT, "the ticket is unknown, used or expired");
	return PAGED_OK;
}

static uint32_t
tickets_position(const struct ticket_list *list, const struct core_ticket *ticket)
{
	uint32_t i = 0;

	while (list->entries[i].ticket != ticket)
		i++;
	return i;
}

void
ticket_suspend(struct core *core, struct core_ticket *ticket)
{
	struct ticket_entry *entry = &core->tickets.entries[tickets_position(&core->tickets, ticket)];

	ticket->move.active = true;
	ticket->move.deadline_ms = entry->deadline_ms;
	entry->deadline_ms = UINT64_MAX;
	tickets_update_deadline(&core->tickets);
}

void
ticket_resume(struct core *core, struct core_ticket *ticket)
{
	core->tickets.entries[tickets_position(&core->tickets, ticket)].deadline_ms = ticket->move.deadline_ms;
	ticket->move.active = false;
	tickets_update_deadline(&core->tickets);
}

void
ticket_used(struct core *core, struct core_ticket *ticket)
{
	tickets_remove(core, tickets_position(&core->tickets, ticket));
}

static void
ticket_return(struct core *core, const struct core_ticket *ticket)
{
	for (uint32_t i = 0; i < ticket->n; i++)
		page_table_return(core->pools[ticket->pool], ticket->giver, PAGED_SEQ_SLOT(ticket->items[i].seq));
}

enum paged_status
core_ticket_cancel(struct core *core, uint32_t session_id, const uint8_t bytes[PAGED_TICKET_SIZE],
		   struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = request_session(core, session_id, &session, error);
	const struct core_ticket *ticket;
	uint32_t found;

	if (status == PAGED_OK)
		status = ticket_find_valid(core, bytes, &found, error);
	if (status != PAGED_OK)
		return status;
	ticket = core->tickets.entries[found].ticket;
	if (ticket->giver != session)
		return paged_fail(error, PAGED_ERR_PERM, "the sequences of the ticket were given by session %u",
				  ticket->giver->id);
	counter_add(&core->pools[ticket->pool]->header->n_cancelled, ticket->n);
	ticket_return(core, ticket);
	tickets_remove(core, found);
	return PAGED_OK;
}

uint32_t
core_tickets_revoke(struct core *core, uint32_t session_id)
{
	struct ticket_list *list = &core->tickets;
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		struct core_ticket *ticket = list->entries[i].ticket;

		if (ticket->giver->id != session_id || !ticket->giver->ended)
			continue;
		if (ticket->move.active)
			ticket->move.deadline_ms = core->now_ms;
		else
			list->entries[i].deadline_ms = list->first_deadline_ms = core->now_ms;
		n++;
	}
	return n;
}

/* One pass over the list, whatever number of tickets expire at a time. */
uint32_t
tickets_expire(struct core *core, uint32_t budget)
{
	struct ticket_list *list = &core->tickets;
	uint32_t n = 0, n_kept = 0;

	if (!tickets_have_expired(core))
		return 0;
	for (uint32_t i = 0; i < list->n; i++) {
		struct ticket_entry entry = list->entries[i];

		if (n >= budget || entry.deadline_ms > core->now_ms) {
			list->entries[n_kept++] = entry;
			continue;
		}
		n += entry.ticket->n;
		counter_add(&core->pools[entry.ticket->pool]->header->n_expired, entry.ticket->n);
		ticket_return(core, entry.ticket);
		ticket_free(core, entry.ticket);
	}
	list->n = n_kept;
	tickets_update_deadline(list);
	return n;
}

void
tickets_disown(struct core *core, const struct core_session *session)
{
	for (uint32_t i = 0; session->n_tickets > 0 && i < core->tickets.n; i++) {
		const struct core_ticket *ticket = core->tickets.entries[i].ticket;

		for (uint32_t k = 0; ticket->giver == session && k < ticket->n; k++)
			page_table_disown(core->pools[ticket->pool], PAGED_SEQ_SLOT(ticket->items[k].seq));
	}
}

/* Reports */

bool
core_ticket_next(const struct core *core, uint64_t after, struct paged_ticket_entry *entry)
{
	const struct ticket_list *list = &core->tickets;
	uint32_t low = 0, high = list->n;
	const struct core_ticket *ticket;
	uint64_t deadline_ms;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (list->entries[middle].ticket->number > after)
			high = middle;
		else
			low = middle + 1;
	}
	if (low == list->n)
		return false;
	ticket = list->entries[low].ticket;
	*entry = (struct paged_ticket_entry){
		.number = ticket->number,
		.session = ticket->giver->id,
		.ended = ticket->giver->ended,
		.pool = ticket->pool,
		.n_sequences = ticket->n,
		.flags = ticket->give.flags,
		.to_session = ticket->give.session,
		.to_uid = ticket->give.uid,
	};
	deadline_ms = ticket->move.active ? ticket->move.deadline_ms : list->entries[low].deadline_ms;
	if (deadline_ms > core->now_ms)
		entry->expires_ms = (uint32_t)(deadline_ms - core->now_ms);
	for (uint32_t i = 0; i < ticket->n; i++) {
		entry->n_tokens += ticket->items[i].n_tokens;
		entry->n_pages += page_table_n_named(core->pools[ticket->pool], PAGED_SEQ_SLOT(ticket->items[i].seq));
	}
	return true;
}

enum paged_status
check_tickets(const struct core *core, const struct core_pool *pool, uint32_t *n_sequences, struct paged_error *error)
{
	uint32_t n_given = 0, n_frozen = 0;

	for (uint32_t i = 0; i < core->tickets.n; i++) {
		const struct core_ticket *ticket = core->tickets.entries[i].ticket;
		uint32_t owner = ticket->giver->ended ? REGION_OWNER_TICKET : ticket->giver->id;

		for (uint32_t k = 0; ticket->pool == pool->index && k < ticket->n; k++, n_given++) {
			uint32_t slot = PAGED_SEQ_SLOT(ticket->items[k].seq);

			if (!page_table_is_live(pool, ticket->items[k].seq) || !page_table_is_frozen(pool, slot) ||
			    page_table_owner(pool, slot) != owner)
				return paged_fail(
					error, PAGED_ERR_CORRUPT,
					"pool %s: ticket %llu has slot %u, which is not frozen for session %u",
					pool->name, (unsigned long long)ticket->number, slot, ticket->giver->id);
		}
	}
	for (uint32_t slot = 0; slot < pool->high_slot; slot++)
		n_frozen += page_table_owner(pool, slot) != 0 && page_table_is_frozen(pool, slot);
	if (n_frozen != n_given)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: %u sequences are frozen, tickets have %u",
				  pool->name, n_frozen, n_given);
	*n_sequences += n_given;
	return PAGED_OK;
}
