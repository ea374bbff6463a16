/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h - sequences between two sessions */
#ifndef PAGED_CORE_TICKET_H
#define PAGED_CORE_TICKET_H

#include "core/core_internal.h"

/* ticket.c */

/**
 * ticket_find_valid - find a ticket
 *
 * All reasons for which there is none have one text: it tells nothing about other tickets.
 *
 * @param[out] i_p  in the list of tickets
 */
enum paged_status ticket_find_valid(const struct core *core, const uint8_t bytes[PAGED_TICKET_SIZE], uint32_t *i_p,
				    struct paged_error *error);

/** ticket_suspend - an adopt begins that needs several steps; ticket_resume() if it is refused, or ticket_used() */
void ticket_suspend(struct core *core, struct core_ticket *ticket);
void ticket_resume(struct core *core, struct core_ticket *ticket);

/** ticket_used - remove and free a ticket whose sequences are in a session's list again */
void ticket_used(struct core *core, struct core_ticket *ticket);

/** tickets_disown - a session that has given sequences away has ended; its tickets keep them */
void tickets_disown(struct core *core, const struct core_session *session);

/** tickets_have_expired - true: the deadline of a ticket has passed */
static inline bool
tickets_have_expired(const struct core *core)
{
	return core->tickets.n > 0 && core->tickets.first_deadline_ms <= core->now_ms;
}

/** tickets_expire - return the sequences of such tickets, until these were `budget`; returns how many they were */
uint32_t tickets_expire(struct core *core, uint32_t budget);
void tickets_free(struct core *core);

/** check_tickets - verify that each frozen sequence of the pool is in one ticket; adds them to *n_sequences */
enum paged_status check_tickets(const struct core *core, const struct core_pool *pool, uint32_t *n_sequences,
				struct paged_error *error);

/* adopt.c */

/**
 * adopt_n_moved - first entries of the slot's page table that an unfinished adopt has charged to the tenant *to_p
 */
uint32_t adopt_n_moved(const struct core *core, const struct core_pool *pool, uint32_t slot, uint32_t *to_p);

#endif
