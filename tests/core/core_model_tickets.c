/* SPDX-License-Identifier: Apache-2.0 */
/* Random give, adopt and cancel; what happens to given sequences when their session ends, and when tickets expire. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

/* Few different tickets, so that many are unknown, used or still valid. */
#define TICKET_NUMBERS 20

static void
ticket_bytes(uint32_t number, uint8_t bytes[PAGED_TICKET_SIZE])
{
	memset(bytes, 0xa5, PAGED_TICKET_SIZE);
	/* Half of them differ in the second half alone. */
	bytes[number % 2 == 0 ? 3 : PAGED_TICKET_SIZE - 1] = (uint8_t)number;
}

/* The ticket with these bytes, also if it has expired and was not removed; n_tickets: none. */
static uint32_t
ticket_find(uint32_t number)
{
	uint32_t i = 0;

	while (i < model.n_tickets && model.tickets[i].bytes_number != number)
		i++;
	return i;
}

static void
ticket_remove(uint32_t i)
{
	model.n_tickets--;
	memmove(&model.tickets[i], &model.tickets[i + 1], (model.n_tickets - i) * sizeof(model.tickets[0]));
}

uint32_t
model_count_tickets(uint32_t session)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model.n_tickets; i++)
		n += model.tickets[i].giver == session;
	return n;
}

static struct model_seq *
ticket_seq(const struct model_ticket *ticket, uint32_t i)
{
	return &model.pools[ticket->pool].seqs[PAGED_SEQ_SLOT(ticket->items[i].seq)];
}

void
random_give(void)
{
	const struct model_session *session = random_requester();
	struct model_ticket ticket = { .giver = session->id, .bytes_number = random_below(TICKET_NUMBERS) };
	uint8_t bytes[PAGED_TICKET_SIZE];
	paged_seq_id ids[MODEL_ITEMS];
	uint32_t errors;

	ticket.n = random_seqs(session, MODEL_ITEMS, ids);
	/* Usually of one pool. */
	for (uint32_t i = 1; random_below(8) != 0 && i < ticket.n; i++)
		if (PAGED_SEQ_POOL(ids[i]) != PAGED_SEQ_POOL(ids[0]))
			ids[i--] = ids[--ticket.n];
	errors = seq_errors(session, ticket.n, ids);
	ticket.pool = ticket.n == 0 ? 0 : PAGED_SEQ_POOL(ids[0]);
	for (uint32_t i = 0; i < ticket.n; i++) {
		const struct model_seq *seq = model_seq_find(ids[i]);
		uint32_t p = PAGED_SEQ_POOL(ids[i]);
		uint32_t capacity = seq == NULL ? 0 : seq->n_pages * model_geometries[p].page_size;

		ticket.items[i] = (struct paged_seq_item){ .seq = ids[i] };
		ticket.items[i].n_tokens = capacity == 0 ? 0 : random_below(capacity + 1);
		if (seq != NULL && random_below(8) != 0)
			ticket.items[i].n_tokens =
				MAX(ticket.items[i].n_tokens, seq->n_trimmed * model_geometries[p].page_size);
		if (random_below(32) == 0)
			ticket.items[i].n_tokens = capacity + 1;
		if (random_below(64) == 0)
			ticket.items[i].n_ahead = 1;
		if (p != ticket.pool || ticket.items[i].n_ahead != 0)
			errors |= status_bit(PAGED_ERR_INVALID);
		if (seq != NULL && ticket.items[i].n_tokens < seq->n_trimmed * model_geometries[p].page_size)
			errors |= status_bit(PAGED_ERR_INVALID);
		if (ticket.items[i].n_tokens > capacity)
			errors |= status_bit(PAGED_ERR_CAPACITY);
	}
	ticket.give.timeout_ms = random_below(8) == 0 ? 0 : random_below(20000);
	ticket.give.flags = random_below(2) == 0 ? 0 : random_below(random_below(16) == 0 ? 5 : 4);
	ticket.give.session = model.sessions[random_below(MODEL_SESSIONS)].id;
	ticket.give.uid = random_below(2);
	if (ticket.give.flags > (PAGED_GIVE_SESSION | PAGED_GIVE_UID))
		errors |= status_bit(PAGED_ERR_INVALID);
	else if ((ticket.give.flags & PAGED_GIVE_SESSION) &&
		 (ticket.give.session == 0 || !model_session_find(ticket.give.session)->active))
		errors |= status_bit(PAGED_ERR_NOENT);
	if (ticket_find(ticket.bytes_number) < model.n_tickets)
		errors |= status_bit(PAGED_ERR_INVALID);
	errors |= ticket_errors(session->tenant);
	ticket_bytes(ticket.bytes_number, bytes);
	model_check_status(core_seq_give(model.fixture.core, session->id, ticket.n, ticket.items, &ticket.give, bytes,
					 &model.error),
			   errors);
	if (errors != 0)
		return;
	ticket.number = ++model.n_given;
	ticket.deadline = model.now_ms + ticket.give.timeout_ms;
	model_check(model.n_tickets < MODEL_TICKETS);
	model.tickets[model.n_tickets++] = ticket;
	for (uint32_t i = 0; i < ticket.n; i++)
		ticket_seq(&ticket, i)->frozen = true;
	model.pools[ticket.pool].totals.n_given += ticket.n;
}

/* The ticket's sequences go back to the session that gave them; if it has ended, they are reaped. */
static void
model_ticket_return(uint32_t i, uint64_t *n_total)
{
	struct model_ticket ticket = model.tickets[i];
	struct model_session *giver = model_session_find(ticket.giver);

	*n_total += ticket.n;
	ticket_remove(i);
	for (uint32_t k = 0; k < ticket.n; k++) {
		struct model_seq *seq = ticket_seq(&ticket, k);

		seq->frozen = false;
		seq->session = ticket.giver;
		seq->born = model.n_born++;
		if (!giver->active)
			seq->state = MODEL_SEQ_ENDED;
	}
	model_session_queue(giver);
}

void
model_tickets_disown(uint32_t session)
{
	for (uint32_t i = 0; i < model.n_tickets; i++)
		for (uint32_t k = 0; model.tickets[i].giver == session && k < model.tickets[i].n; k++)
			ticket_seq(&model.tickets[i], k)->session = REGION_OWNER_TICKET;
}

bool
model_tickets_have_expired(void)
{
	for (uint32_t i = 0; i < model.n_tickets; i++)
		if (model.tickets[i].deadline <= model.now_ms)
			return true;
	return false;
}

void
model_tickets_expire(void)
{
	for (uint32_t i = 0; i < model.n_tickets;) {
		if (model.tickets[i].deadline > model.now_ms)
			i++;
		else
			model_ticket_return(i, &model.pools[model.tickets[i].pool].totals.n_expired);
	}
}

/* Distinct pages of a ticket that a tenant is not charged yet. */
static uint32_t
count_uncharged(const struct model_ticket *ticket, uint32_t tenant)
{
	bool counted[MODEL_PAGES] = { false };
	uint32_t n = 0;

	for (uint32_t i = 0; i < ticket->n; i++) {
		const struct model_seq *seq = ticket_seq(ticket, i);

		for (uint32_t k = seq->n_trimmed; k < seq->n_pages; k++) {
			n += !counted[seq->pages[k]] && !model_is_charged(ticket->pool, tenant, seq->pages[k]);
			counted[seq->pages[k]] = true;
		}
	}
	return n;
}

void
random_adopt(void)
{
	const struct model_session *session = random_requester();
	uint32_t number = random_below(TICKET_NUMBERS), uid = random_below(2), p, i, errors = 0;
	uint32_t n_max = random_below(8) == 0 ? random_below(MODEL_ITEMS) : MODEL_ITEMS, n;
	struct paged_seq_item items[MODEL_ITEMS];
	uint8_t bytes[PAGED_TICKET_SIZE];
	struct model_ticket ticket;

	for (int tries = 0; tries < 12 && ticket_find(number) == model.n_tickets; tries++)
		number = random_below(TICKET_NUMBERS);
	i = ticket_find(number);
	ticket = model.tickets[i % MODEL_TICKETS];
	p = i == model.n_tickets || random_below(16) == 0 ? random_below(MODEL_POOLS + 1) : ticket.pool;
	errors |= requester_errors(session);
	errors |= draining_errors(session);
	if (i == model.n_tickets || p != ticket.pool || ticket.deadline <= model.now_ms)
		errors |= status_bit(PAGED_ERR_NOENT);
	else if (((ticket.give.flags & PAGED_GIVE_SESSION) && ticket.give.session != session->id) ||
		 ((ticket.give.flags & PAGED_GIVE_UID) && ticket.give.uid != uid))
		errors |= status_bit(PAGED_ERR_PERM);
	else if (ticket.n > n_max)
		errors |= status_bit(PAGED_ERR_INVALID);
	else
		errors |= quota_errors(p, session->tenant, count_uncharged(&ticket, session->tenant)) |
			  (model_session_find(ticket.giver)->tenant == session->tenant
				   ? 0
				   : slot_errors(p, session->tenant, ticket.n));
	ticket_bytes(number, bytes);
	/* At once: unit_core_adopt.c has the steps. */
	core_set_step(model.fixture.core, CORE_NO_STEP);
	model_check_status(
		core_seq_adopt(model.fixture.core, session->id, uid, p, bytes, n_max, items, &n, &model.error), errors);
	core_set_step(model.fixture.core, model.step);
	if (errors != 0)
		return;
	model_check(n == ticket.n && memcmp(items, ticket.items, n * sizeof(*items)) == 0);
	ticket_remove(i);
	for (uint32_t k = 0; k < n; k++) {
		struct model_seq *seq = ticket_seq(&ticket, k);

		seq->frozen = false;
		seq->session = session->id;
		seq->tenant = session->tenant;
		seq->born = model.n_born++;
		seq->version_moves = true;
	}
	model.pools[p].totals.n_adopted += n;
	model.n_adopted++;
	model.n_adopted_of_ended += !model_session_find(ticket.giver)->active;
}

void
random_cancel(void)
{
	const struct model_session *session = random_requester();
	uint32_t number = random_below(TICKET_NUMBERS), i = ticket_find(number), errors = 0;
	uint8_t bytes[PAGED_TICKET_SIZE];

	if (i < model.n_tickets && random_below(4) != 0)
		session = model_session_find(model.tickets[i].giver);
	errors |= requester_errors(session);
	if (i == model.n_tickets || model.tickets[i].deadline <= model.now_ms)
		errors |= status_bit(PAGED_ERR_NOENT);
	else if (model.tickets[i].giver != session->id)
		errors |= status_bit(PAGED_ERR_PERM);
	ticket_bytes(number, bytes);
	model_check_status(core_ticket_cancel(model.fixture.core, session->id, bytes, &model.error), errors);
	if (errors == 0)
		model_ticket_return(i, &model.pools[model.tickets[i].pool].totals.n_cancelled);
}

/* I8: a live sequence is in one ticket, or its session's; and the reports of the tickets. */
void
model_compare_tickets(void)
{
	struct paged_ticket_entry entry = { .number = 0 };
	uint32_t n_given = 0, n_frozen = 0;

	for (uint32_t i = 0; i < model.n_tickets; i++) {
		const struct model_ticket *ticket = &model.tickets[i];
		uint64_t n_tokens = 0, n_pages = 0;

		for (uint32_t k = 0; k < ticket->n; k++, n_given++) {
			const struct model_seq *seq = ticket_seq(ticket, k);

			model_check(seq->frozen && seq->state == MODEL_SEQ_LIVE && seq->id == ticket->items[k].seq);
			n_tokens += ticket->items[k].n_tokens;
			n_pages += seq->n_pages - seq->n_trimmed;
		}
		model_check(core_ticket_next(model.fixture.core, entry.number, &entry));
		model_check(entry.number == ticket->number && entry.session == ticket->giver);
		model_check(entry.ended == !model_session_find(ticket->giver)->active);
		model_check(entry.pool == ticket->pool && entry.n_sequences == ticket->n);
		model_check(entry.n_tokens == n_tokens && entry.n_pages == n_pages);
		model_check(entry.expires_ms ==
			    (ticket->deadline > model.now_ms ? ticket->deadline - model.now_ms : 0));
	}
	model_check(!core_ticket_next(model.fixture.core, entry.number, &entry));
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		for (uint32_t s = 0; s < MODEL_SEQS; s++) {
			const struct model_seq *seq = &model.pools[p].seqs[s];
			const struct model_session *session = model_session_find(seq->session);

			if (seq->state == MODEL_SEQ_NONE)
				continue;
			n_frozen += seq->frozen;
			if (!seq->frozen)
				model_check(session != NULL && session->active == (seq->state == MODEL_SEQ_LIVE));
		}
	}
	model_check(n_frozen == n_given);
}
