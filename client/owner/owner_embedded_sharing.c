/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded owner's requests on published pages: start, fork, publish, pin, hold, list, evict. */
#include "config.h"

#include "client/owner/owner_embedded.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"

enum paged_status
embedded_start(struct owner *owner, const struct seq_start_list *start, paged_seq_id *ids, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_start(core, owner->session, start, ids, error));
}

enum paged_status
embedded_fork(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	      struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_fork(core, owner->session, n, forks, children, error));
}

enum paged_status
embedded_publish(struct owner *owner, const struct seq_publish_list *publish, uint64_t number,
		 struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct core *core = embedded_core_request(owner);
	uint32_t n_published[WIRE_MAX_PUBLISHES], ends[WIRE_MAX_PUBLISHES];
	enum paged_status status;

	(void)number;
	core_divide_publish(core, publish, embedded->publishes, embedded->extra_page);
	status = core_seq_publish(core, owner->session, publish->n, embedded->publishes, n_published, ends, error);
	owner_log_refused_publish(owner, status, error);
	return embedded_core_done(core, PAGED_OK);
}

/* Each publish is handled before the call returns. */
uint64_t
embedded_oldest_publish(const struct owner *owner)
{
	(void)owner;
	return 0;
}

enum paged_status
embedded_pin(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds, uint32_t *n_pages_p,
	     struct paged_error *error)
{
	const struct core_pinner by = { owner->session, (uint32_t)geteuid(), (uint32_t)getpid() };
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_prefix_pin(core, &by, pool, page, serial, seconds, n_pages_p, error));
}

enum paged_status
embedded_pins(struct owner *owner, uint32_t pool, struct paged_pin_entry **list_p, size_t *n_p,
	      struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	struct paged_pin_entry entry;

	*list_p = calloc(CORE_MAX_PINS, sizeof(**list_p));
	if (*list_p == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list pins");
	for (uint64_t after = 0; *n_p < CORE_MAX_PINS && core_pin_next(core, pool, after, &entry); after = entry.number)
		(*list_p)[(*n_p)++] = entry;
	return PAGED_OK;
}

enum paged_status
embedded_unpin(struct owner *owner, uint32_t pool, uint64_t number, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_pin_end(core, pool, number, error));
}

enum paged_status
embedded_hold(struct owner *owner, uint32_t pool, uint32_t n, const uint32_t *pages, const uint64_t *serials,
	      paged_seq_id *hold_p, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_pages_hold(core, owner->session, pool, n, pages, serials, hold_p, error));
}

enum paged_status
embedded_prefixes(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
		  struct paged_error *error)
{
	struct core *core = embedded_of(owner)->core;
	struct paged_node_entry entry, *grown;
	size_t room = 0;

	core_set_now(core, clock_ms());
	for (uint32_t page = 0; core_node_next(core, pool, page, UINT32_MAX, &entry); page = entry.page + 1) {
		if (*n_p == room) {
			room = 2 * room + 64;
			grown = reallocarray(*list_p, room, sizeof(*grown));
			if (grown == NULL)
				return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list %zu pages", room);
			*list_p = grown;
		}
		(*list_p)[(*n_p)++] = entry;
	}
	return PAGED_OK;
}

enum paged_status
embedded_evict(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	uint32_t n_evicted = 0, n_now;

	(void)error;
	do {
		n_now = core_prefix_evict(core, pool, n > 0 ? n - n_evicted : 0);
		n_evicted += n_now;
	} while (n_now > 0 && n_evicted != n);
	core_wake(core);
	*n_evicted_p = n_evicted;
	return PAGED_OK;
}
