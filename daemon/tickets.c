/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tickets.h"

#include <inttypes.h>
#include <unistd.h>

static void
ticket_free(struct tickets *tickets, struct ticket *ticket)
{
	tickets->n_bytes -= ticket->size;
	*ticket = (struct ticket){ 0 };
}

static void
ticket_drop(struct tickets *tickets, struct ticket *ticket)
{
	close(ticket->fd);
	ticket_free(tickets, ticket);
}

/* Nobody came for these. */
static void
timer_fire(struct loop_timer *timer)
{
	struct tickets *tickets = container_of(timer, struct tickets, timer);
	uint64_t now_ms = loop_now_ms(), next_ms = UINT64_MAX;

	for (int i = 0; i < TICKETS_MAX; i++) {
		struct ticket *ticket = &tickets->ticket[i];

		if (ticket->id == 0)
			continue;
		if (ticket->due_ms <= now_ms)
			ticket_drop(tickets, ticket);
		else if (ticket->due_ms < next_ms)
			next_ms = ticket->due_ms;
	}
	if (next_ms != UINT64_MAX)
		loop_timer_start(tickets->loop, timer, next_ms - now_ms);
}

void
tickets_open(struct tickets *tickets, struct loop *loop, uint64_t max_bytes)
{
	*tickets = (struct tickets){ .loop = loop, .max_bytes = max_bytes, .timer.fire = timer_fire };
}

void
tickets_close(struct tickets *tickets)
{
	if (tickets->loop == NULL)
		return;
	loop_timer_stop(&tickets->timer);
	for (int i = 0; i < TICKETS_MAX; i++)
		if (tickets->ticket[i].id != 0)
			ticket_drop(tickets, &tickets->ticket[i]);
}

/* Of a member, or of all for 0. */
static struct ticket *
oldest_find(struct tickets *tickets, uint32_t member)
{
	struct ticket *oldest = NULL;

	for (int i = 0; i < TICKETS_MAX; i++) {
		struct ticket *ticket = &tickets->ticket[i];

		if (ticket->id != 0 && (member == 0 || ticket->member == member) &&
		    (oldest == NULL || ticket->id < oldest->id))
			oldest = ticket;
	}
	return oldest;
}

static unsigned int
count_of(const struct tickets *tickets, uint32_t member)
{
	unsigned int n = 0;

	for (int i = 0; i < TICKETS_MAX; i++)
		n += tickets->ticket[i].id != 0 && tickets->ticket[i].member == member;
	return n;
}

static struct ticket *
free_find(struct tickets *tickets)
{
	for (int i = 0; i < TICKETS_MAX; i++)
		if (tickets->ticket[i].id == 0)
			return &tickets->ticket[i];
	return NULL;
}

enum paged_status
tickets_put(struct tickets *tickets, uint32_t member, int fd, uint64_t size, uint64_t *id_p, struct paged_error *error)
{
	struct ticket *ticket;

	if (size > tickets->max_bytes)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask of %" PRIu64 " bytes: the most that may wait to be fetched are %" PRIu64,
				  size, tickets->max_bytes);
	if (count_of(tickets, member) >= TICKETS_MEMBER)
		ticket_drop(tickets, oldest_find(tickets, member));
	while ((ticket = free_find(tickets)) == NULL || tickets->n_bytes > tickets->max_bytes - size)
		ticket_drop(tickets, oldest_find(tickets, 0));
	*ticket = (struct ticket){
		.id = ++tickets->last_id, .member = member, .fd = fd, .size = size, .due_ms = loop_now_ms() + TICKETS_MS
	};
	tickets->n_bytes += size;
	if (!tickets->timer.armed)
		loop_timer_start(tickets->loop, &tickets->timer, TICKETS_MS);
	*id_p = ticket->id;
	return PAGED_OK;
}

enum paged_status
tickets_take(struct tickets *tickets, uint32_t member, uint64_t id, int *fd_p, uint64_t *size_p,
	     struct paged_error *error)
{
	for (int i = 0; i < TICKETS_MAX; i++) {
		struct ticket *ticket = &tickets->ticket[i];

		if (id == 0 || ticket->id != id || ticket->member != member)
			continue;
		*fd_p = ticket->fd;
		*size_p = ticket->size;
		ticket_free(tickets, ticket);
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_NOENT, "no block mask waits for member %u with ticket %" PRIu64, member, id);
}

void
tickets_drop(struct tickets *tickets, uint32_t member)
{
	for (int i = 0; i < TICKETS_MAX; i++)
		if (tickets->ticket[i].id != 0 && tickets->ticket[i].member == member)
			ticket_drop(tickets, &tickets->ticket[i]);
}
