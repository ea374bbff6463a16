/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded owner's requests on tickets; its only session gives to itself. */
#include "config.h"

#include "client/owner/owner_embedded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/clock.h"

enum paged_status
embedded_give(struct owner *owner, uint32_t n, const struct paged_seq_item *items, const struct seq_give *give,
	      uint8_t ticket[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	struct seq_give how = *give;
	uint8_t bytes[PAGED_TICKET_SIZE];
	enum paged_status status;

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return paged_fail(error, PAGED_ERR_SYSTEM, "getrandom: %s", strerror(errno));
	if (how.timeout_ms == 0)
		how.timeout_ms = CORE_TICKET_MS;
	status = core_seq_give(core, owner->session, n, items, &how, bytes, error);
	if (status == PAGED_OK)
		memcpy(ticket, bytes, sizeof(bytes));
	return embedded_core_done(core, status);
}

enum paged_status
embedded_adopt(struct owner *owner, uint32_t pool, const uint8_t ticket[PAGED_TICKET_SIZE], uint32_t n_max,
	       struct paged_seq_item *items, uint32_t *n_p, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_adopt(core, owner->session, (uint32_t)geteuid(), pool, ticket, n_max,
						       items, n_p, error));
}

enum paged_status
embedded_cancel(struct owner *owner, const uint8_t ticket[PAGED_TICKET_SIZE], struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_ticket_cancel(core, owner->session, ticket, error));
}

enum paged_status
embedded_tickets(struct owner *owner, struct paged_ticket_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	struct paged_ticket_entry entry, *grown;
	size_t room = 0;

	for (uint64_t after = 0; core_ticket_next(core, after, &entry); after = entry.number) {
		if (*n_p == room) {
			room = 2 * room + 16;
			grown = reallocarray(*list_p, room, sizeof(*grown));
			if (grown == NULL)
				return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list %zu tickets", room);
			*list_p = grown;
		}
		(*list_p)[(*n_p)++] = entry;
	}
	return PAGED_OK;
}
