/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopt: a session becomes the owner of a ticket's sequences.  If it is of another tenant than their giver, each page
 * is charged to the one and discharged from the other, in steps if there are many: the sequences are frozen meanwhile,
 * so their page tables do not change.  If the tenant then has more pages than its limit, they move back in the same
 * way.
 */
#include <string.h>
#include <sys/param.h>

#include "core/page_table.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"
#include "core/ticket.h"

/* The tenant of the sequences, as long as they are in the ticket. */
static uint32_t
ticket_tenant(const struct core_ticket *ticket)
{
	return ticket->giver->tenant;
}

static uint32_t
ticket_slot(const struct core_ticket *ticket, uint32_t item)
{
	return PAGED_SEQ_SLOT(ticket->items[item].seq);
}

static void
page_move(struct core_pool *pool, uint32_t from, uint32_t to, uint32_t page)
{
	if (to != 0)
		tenant_charge(pool, to, page, 1);
	if (from != 0)
		tenant_discharge(pool, from, page);
	pool->n_worked++;
}

/* Moves the next entry of the present sequence. */
static void
move_entry(struct core_pool *pool, struct core_ticket *ticket)
{
	struct ticket_move *move = &ticket->move;
	uint32_t page = load_u32(&region_page_table(&pool->view, ticket_slot(ticket, move->item))[move->entry]);

	move->n_new += move->to != 0 && !tenant_is_charged(pool, move->to, page);
	page_move(pool, ticket_tenant(ticket), move->to, page);
	move->entry++;
}

/* Moves about *budget entries; true: all are moved, and move->back is set if they exceed the limit. */
static bool
move_forward(struct core_pool *pool, struct core_ticket *ticket, uint32_t *budget)
{
	struct ticket_move *move = &ticket->move;

	for (; *budget > 0 && move->item < ticket->n; --*budget) {
		uint32_t slot = ticket_slot(ticket, move->item);

		move->entry = MAX(move->entry, page_table_first(pool, slot));
		if (move->entry < page_table_n_pages(pool, slot)) {
			move_entry(pool, ticket);
			continue;
		}
		move->item++;
		move->entry = 0;
	}
	if (move->item < ticket->n)
		return false;
	move->back = move->n_new > 0 && tenant_is_over(pool, move->to);
	return true;
}

/* True: all entries that were moved are charged to the giver's tenant again. */
static bool
move_back(struct core_pool *pool, struct core_ticket *ticket, uint32_t *budget)
{
	struct ticket_move *move = &ticket->move;

	for (; *budget > 0; --*budget) {
		if (move->item < ticket->n && move->entry > page_table_first(pool, ticket_slot(ticket, move->item))) {
			uint32_t slot = ticket_slot(ticket, move->item);

			move->entry--;
			page_move(pool, move->to, ticket_tenant(ticket),
				  load_u32(&region_page_table(&pool->view, slot)[move->entry]));
			continue;
		}
		if (move->item == 0)
			return true;
		move->item--;
		move->entry = page_table_n_pages(pool, ticket_slot(ticket, move->item));
	}
	return false;
}

uint32_t
adopt_n_moved(const struct core *core, const struct core_pool *pool, uint32_t slot, uint32_t *to_p)
{
	for (uint32_t i = 0; i < core->tickets.n; i++) {
		const struct core_ticket *ticket = core->tickets.entries[i].ticket;

		for (uint32_t k = 0; ticket->move.active && ticket->pool == pool->index && k < ticket->n; k++) {
			if (ticket_slot(ticket, k) != slot)
				continue;
			*to_p = ticket->move.to;
			return k < ticket->move.item    ? page_table_n_pages(pool, slot)
			       : k == ticket->move.item ? ticket->move.entry
							: 0;
		}
	}
	return 0;
}

/* Shares that depend on the number of sequences and the size of their page tables. */
static enum paged_status
adopt_check_shares(const struct core_pool *pool, const struct core_ticket *ticket, uint32_t to,
		   struct paged_error *error)
{
	enum paged_status status;

	if (to == ticket_tenant(ticket))
		return PAGED_OK;
	status = tenant_check_slots(pool, to, ticket->n, error);
	return status == PAGED_OK ? table_memory_check_move(pool, to, ticket->n, ticket->items, error) : status;
}

/* The pages are charged to the session's tenant: it becomes the owner, and the ticket is used. */
static void
adopt_finish(struct core *core, struct core_session *session, struct core_ticket *ticket)
{
	struct core_pool *pool = core->pools[ticket->pool];

	for (uint32_t i = 0; i < ticket->n; i++) {
		uint32_t slot = ticket_slot(ticket, i);

		if (session->tenant != ticket_tenant(ticket)) {
			tenant_count_slots(pool, ticket_tenant(ticket), -1);
			tenant_count_slots(pool, session->tenant, 1);
			table_memory_move(pool, slot, session->tenant);
			pool->slots[slot].tenant = session->tenant;
		}
		page_table_adopt(pool, session, slot);
	}
	counter_add(&pool->header->n_adopted, ticket->n);
	ticket_used(core, ticket);
}

/* Steps */

static bool
adopt_step_back(struct core *core, struct core_operation *operation, uint32_t *budget)
{
	struct core_ticket *ticket = operation->ticket;
	uint32_t to = ticket->move.to;

	if (!move_back(core->pools[ticket->pool], ticket, budget))
		return false;
	/* Without a session there is no reply; with one, it was a share, whose error is set, or the limit. */
	if (operation->session != NULL && operation->error.status == PAGED_OK)
		tenant_fail_pages(core->pools[ticket->pool], to, ticket->move.n_new, &operation->error);
	ticket_resume(core, ticket);
	tenant_count_moves(core, to, -1);
	return true;
}

static bool
adopt_step(struct core *core, struct core_operation *operation, const struct operation_item *item, uint32_t *budget)
{
	struct core_ticket *ticket = operation->ticket;
	uint32_t to = ticket->move.to;

	(void)item;
	ticket->move.back = ticket->move.back || operation->session == NULL;
	if (!ticket->move.back && !move_forward(core->pools[ticket->pool], ticket, budget))
		return false;
	if (!ticket->move.back &&
	    adopt_check_shares(core->pools[ticket->pool], ticket, to, &operation->error) != PAGED_OK)
		ticket->move.back = true;
	if (ticket->move.back)
		return adopt_step_back(core, operation, budget);
	adopt_finish(core, operation->session, ticket);
	tenant_count_moves(core, to, -1);
	return true;
}

static enum paged_status
adopt_begin(struct core *core, struct core_session *session, struct core_ticket *ticket, struct paged_error *error)
{
	static const struct operation_ops ops = { .step = adopt_step, .outlives = true };
	struct core_operation *operation;
	enum paged_status status = operation_create(session, &ops, 1, &operation, error);

	if (status != PAGED_OK)
		return status;
	operation->ticket = ticket;
	ticket_suspend(core, ticket);
	tenant_count_moves(core, session->tenant, 1);
	operation_queue(core, operation);
	return PAGED_OK;
}

/* Moves the pages to the session's tenant; *finished: at once. */
static enum paged_status
adopt_move(struct core *core, struct core_session *session, struct core_ticket *ticket, bool *finished,
	   struct paged_error *error)
{
	struct core_pool *pool = core->pools[ticket->pool];
	uint32_t budget = core->step, no_limit = UINT32_MAX;
	uint64_t n_work = ticket->n;

	ticket->move = (struct ticket_move){ .to = session->tenant };
	*finished = true;
	if (session->tenant == ticket_tenant(ticket))
		return PAGED_OK;
	for (uint32_t i = 0; i < ticket->n; i++)
		n_work += page_table_n_named(pool, ticket_slot(ticket, i));
	if (n_work > core->step) {
		*finished = false;
		return adopt_begin(core, session, ticket, error);
	}
	move_forward(pool, ticket, &budget);
	if (!ticket->move.back)
		return PAGED_OK;
	move_back(pool, ticket, &no_limit);
	return tenant_fail_pages(pool, session->tenant, ticket->move.n_new, error);
}

/* The request */

static enum paged_status
adopt_check(const struct core_ticket *ticket, const struct core_session *session, uint32_t uid, uint32_t n_max,
	    struct paged_error *error)
{
	if ((ticket->give.flags & PAGED_GIVE_SESSION) && ticket->give.session != session->id)
		return paged_fail(error, PAGED_ERR_PERM, "the ticket is for session %u, this is session %u",
				  ticket->give.session, session->id);
	if ((ticket->give.flags & PAGED_GIVE_UID) && ticket->give.uid != uid)
		return paged_fail(error, PAGED_ERR_PERM, "the ticket is for user id %u, this process has user id %u",
				  ticket->give.uid, uid);
	if (ticket->n > n_max)
		return paged_fail(error, PAGED_ERR_INVALID, "the ticket has %u sequences, there is room for %u",
				  ticket->n, n_max);
	return PAGED_OK;
}

enum paged_status
core_seq_adopt(struct core *core, uint32_t session_id, uint32_t uid, uint32_t pool,
	       const uint8_t bytes[PAGED_TICKET_SIZE], uint32_t n_max, struct paged_seq_item *items, uint32_t *n_p,
	       struct paged_error *error)
{
	struct core_ticket *ticket;
	struct core_session *session;
	enum paged_status status = request_session(core, session_id, &session, error);
	uint32_t found;
	bool finished;

	if (status == PAGED_OK)
		status = request_check_draining(session, error);
	if (status == PAGED_OK)
		status = request_check_pool(core, pool, error);
	if (status == PAGED_OK)
		status = ticket_find_valid(core, bytes, &found, error);
	if (status != PAGED_OK)
		return status;
	ticket = core->tickets.entries[found].ticket;
	if (ticket->pool != pool)
		return paged_fail(error, PAGED_ERR_NOENT, "the ticket is unknown, used or expired");
	status = adopt_check(ticket, session, uid, n_max, error);
	if (status == PAGED_OK)
		status = core_session_make_pool(core, session, pool, error);
	if (status == PAGED_OK)
		status = adopt_check_shares(core->pools[pool], ticket, session->tenant, error);
	if (status == PAGED_OK)
		status = adopt_move(core, session, ticket, &finished, error);
	if (status != PAGED_OK)
		return status;
	memcpy(items, ticket->items, ticket->n * sizeof(*items));
	*n_p = ticket->n;
	if (finished)
		adopt_finish(core, session, ticket);
	return PAGED_OK;
}
