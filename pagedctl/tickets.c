/* SPDX-License-Identifier: Apache-2.0 */
/* The command tickets: sequences on their way from one session to another. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Who may adopt: "session 7", "uid 1000", "session 7, uid 1000"; no value: every session that has the ticket. */
static void
taker_print(struct print_list *list, const struct paged_ticket_entry *ticket)
{
	bool has_session = ticket->flags & PAGED_GIVE_SESSION, has_uid = ticket->flags & PAGED_GIVE_UID;
	char session[PRINT_SMALL] = "", uid[PRINT_SMALL] = "", text[2 * PRINT_SMALL];

	if (has_session)
		snprintf(session, sizeof(session), "session %" PRIu32, ticket->to_session);
	if (has_uid)
		snprintf(uid, sizeof(uid), "uid %" PRIu32, ticket->to_uid);
	snprintf(text, sizeof(text), "%s%s%s", session, has_session && has_uid ? ", " : "", uid);
	print_text(list, text);
}

enum ctl_exit
ctl_tickets(struct ctl *ctl)
{
	static const char *const columns[] = { "TICKET", "POOL",   "SESSION",    "ENDED", "SEQUENCES",
					       "PAGES",  "TOKENS", "EXPIRES MS", "FOR" };
	struct paged_ticket_entry *tickets = NULL;
	struct paged_pool_entry *pools = NULL;
	size_t n_tickets = 0, n_pools = 0;
	struct print_list list;
	enum paged_status status;

	status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n_pools);
	if (status == PAGED_OK)
		status = paged_admin_tickets(ctl->client, sizeof(*tickets), &tickets, &n_tickets);
	if (status != PAGED_OK) {
		paged_free(pools);
		return ctl_fail(ctl, status);
	}
	print_begin(&list, "tickets", columns, COUNT(columns), ctl->json);
	for (size_t i = 0; i < n_tickets; i++) {
		print_number(&list, tickets[i].number);
		print_text(&list, ctl_pool_name(pools, n_pools, tickets[i].pool));
		print_number(&list, tickets[i].session);
		print_text(&list, tickets[i].ended ? "yes" : NULL);
		print_number(&list, tickets[i].n_sequences);
		print_number(&list, tickets[i].n_pages);
		print_number(&list, tickets[i].n_tokens);
		print_number(&list, tickets[i].expires_ms);
		taker_print(&list, &tickets[i]);
	}
	if (!ctl->json)
		printf("%zu %s\n", n_tickets, print_plural(n_tickets, "ticket", "tickets"));
	print_end(&list, NULL);
	paged_free(tickets);
	paged_free(pools);
	return CTL_OK;
}
