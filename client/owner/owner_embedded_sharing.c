/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded owner's requests on published pages: start, fork, publish, pin, list, evict. */
#include "config.h"

#include "client/owner/owner_embedded.h"

#include <stdlib.h>

#include "common/clock.h"

/* A message has the pages of all sequences in one list; the core takes a list for each. */
enum paged_status
embedded_start(struct owner *owner, const struct owner_start *start, paged_seq_id *ids, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	struct core_start *starts = calloc(start->n, sizeof(*starts));
	const uint32_t *pages = start->pages;
	enum paged_status status;

	if (starts == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to start %u sequences", start->n);
	for (uint32_t i = 0; i < start->n; i++) {
		const struct wire_start_spec *spec = &start->specs[i];

		starts[i] = (struct core_start){
			.pool = start->pool,
			.n_pages = spec->n_pages,
			.pages = pages,
			.serial = spec->serial,
			.n_tokens = spec->n_tokens,
			.n_asked = spec->n_asked,
			.seq = spec->seq,
			.tag = spec->tag,
		};
		pages += spec->n_pages;
	}
	status = embedded_core_done(core, core_seq_start(core, owner->session, start->n, starts, ids, error));
	free(starts);
	return status;
}

enum paged_status
embedded_fork(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	      struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_fork(core, owner->session, n, forks, children, error));
}

/* The block keys of spec i of a message, whose first page is page `first` of the message. */
static struct prefix_keys
embedded_publish_keys(const struct owner_publish *publish, uint32_t i, uint32_t first, uint32_t page_size,
		      uint32_t *extra_p, uint32_t *extra_page)
{
	struct prefix_keys keys = { .n_pages = publish->specs[i].n_pages };

	if (publish->tokens == NULL) {
		keys.n_extras = keys.n_pages;
		keys.extra = publish->extra + first;
		return keys;
	}
	keys.tokens = publish->tokens + (size_t)first * page_size;
	keys.extra_page = extra_page + *extra_p;
	keys.extra = publish->extra + *extra_p;
	for (; *extra_p < publish->n_extras && publish->extra_page[*extra_p] < first + keys.n_pages; ++*extra_p) {
		extra_page[*extra_p] = publish->extra_page[*extra_p] - first;
		keys.n_extras++;
	}
	return keys;
}

enum paged_status
embedded_publish(struct owner *owner, const struct owner_publish *publish, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct core *core = embedded_core_request(owner);
	uint32_t n_published[WIRE_MAX_PUBLISHES], first = 0, extra = 0;
	enum paged_status status;

	for (uint32_t i = 0; i < publish->n; i++) {
		const struct wire_publish_spec *spec = &publish->specs[i];

		embedded->publishes[i] = (struct core_publish){
			.seq = spec->seq,
			.version = spec->version,
			.from = spec->from,
			.keys = embedded_publish_keys(publish, i, first,
						      core_pool_view(core, PAGED_SEQ_POOL(spec->seq))->page_size,
						      &extra, embedded->extra_page),
		};
		first += spec->n_pages;
	}
	status = core_seq_publish(core, owner->session, publish->n, embedded->publishes, n_published, error);
	owner_log_refused_publish(owner, status, error);
	return embedded_core_done(core, PAGED_OK);
}

enum paged_status
embedded_pin(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds, uint32_t *n_pages_p,
	     struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_prefix_pin(core, pool, page, serial, seconds, n_pages_p, error));
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
