/* SPDX-License-Identifier: Apache-2.0 */
/**
 * owner_embedded.h - what the files of the embedded owner share
 */
#ifndef PAGED_CLIENT_OWNER_EMBEDDED_H
#define PAGED_CLIENT_OWNER_EMBEDDED_H

#include "client/owner/owner.h"
#include "core/core.h"

/** Pages that one request evicts ahead of need. */
#define EMBEDDED_TICK_PAGES 512u

struct embedded {
	struct owner owner;
	struct core *core;
	struct owner_pool *pools; /* clients get copies; this owner owns memory and region, or cuda */
	size_t n_pools;
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	uint32_t member; /* 0: observer */
	uint64_t opened_ms;
	uint64_t n_requests;
	char name[PAGED_MAX_NAME + 1];
	/* The publish that is being made. */
	struct core_publish publishes[WIRE_MAX_PUBLISHES];
	uint32_t extra_page[WIRE_MAX_EXTRAS];
};

static inline struct embedded *
embedded_of(struct owner *owner)
{
	return (struct embedded *)owner;
}

/** embedded_core_request - count a request and return the core that executes it */
struct core *embedded_core_request(struct owner *owner);

/** embedded_core_done - after a request that changed pages: the work that the daemon does between requests */
enum paged_status embedded_core_done(struct core *core, enum paged_status status);

/** embedded_add_pools - create the pools of an owner; those that were created are closed with it, also after a failure
 */
enum paged_status embedded_add_pools(struct embedded *embedded, const struct paged_pool_params *pools, size_t n_pools,
				     struct paged_error *error);

/* Operations of owner_ops, in owner_embedded_sharing.c. */
enum paged_status embedded_start(struct owner *owner, const struct seq_start_list *start, paged_seq_id *ids,
				 struct paged_error *error);
enum paged_status embedded_fork(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
				struct paged_error *error);
enum paged_status embedded_publish(struct owner *owner, const struct seq_publish_list *publish, uint64_t number,
				   struct paged_error *error);
uint64_t embedded_oldest_publish(const struct owner *owner);
enum paged_status embedded_pin(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds,
			       uint32_t *n_pages_p, struct paged_error *error);
enum paged_status embedded_hold(struct owner *owner, uint32_t pool, uint32_t n, const uint32_t *pages,
				const uint64_t *serials, paged_seq_id *hold_p, struct paged_error *error);
enum paged_status embedded_prefixes(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
				    struct paged_error *error);
enum paged_status embedded_pins(struct owner *owner, uint32_t pool, struct paged_pin_entry **list_p, size_t *n_p,
				struct paged_error *error);
enum paged_status embedded_unpin(struct owner *owner, uint32_t pool, uint64_t number, struct paged_error *error);
enum paged_status embedded_evict(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p,
				 struct paged_error *error);

/* Operations of owner_ops, in owner_embedded_handover.c. */
enum paged_status embedded_give(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
				const struct seq_give *give, uint8_t ticket[PAGED_TICKET_SIZE],
				struct paged_error *error);
enum paged_status embedded_adopt(struct owner *owner, uint32_t pool, const uint8_t ticket[PAGED_TICKET_SIZE],
				 uint32_t n_max, struct paged_seq_item *items, uint32_t *n_p,
				 struct paged_error *error);
enum paged_status embedded_cancel(struct owner *owner, const uint8_t ticket[PAGED_TICKET_SIZE],
				  struct paged_error *error);
enum paged_status embedded_tickets(struct owner *owner, struct paged_ticket_entry **list_p, size_t *n_p,
				   struct paged_error *error);

#endif
