/* SPDX-License-Identifier: Apache-2.0 */
/**
 * owner_remote.h - what the files of the remote owner share
 */
#ifndef PAGED_CLIENT_OWNER_REMOTE_H
#define PAGED_CLIENT_OWNER_REMOTE_H

#include "client/owner/control.h"
#include "client/owner/owner.h"
#include "client/owner/rpc.h"

struct remote {
	struct owner owner;
	uint32_t timeout_ms;
	uint32_t member;
	uint8_t boot_id[WIRE_BOOT_ID_SIZE];
	struct control control;
	struct rpc rpc;
};

static inline struct remote *
remote_of(struct owner *owner)
{
	return (struct remote *)owner;
}

/** list_append - append n_more entries of `size` bytes to a list from malloc() */
enum paged_status list_append(void *list_p, size_t *n_p, const void *more, size_t n_more, size_t size,
			      struct paged_error *error);

/* Operations of owner_ops, in owner_remote_admin.c. */
enum paged_status remote_pool_find(struct owner *owner, const char *name, uint32_t *pool_p, struct paged_error *error);
enum paged_status remote_status(struct owner *owner, struct paged_daemon_info *info, struct paged_error *error);
enum paged_status remote_metrics(struct owner *owner, struct paged_metrics *metrics,
				 struct paged_request_entry **list_p, size_t *n_p, struct paged_error *error);
enum paged_status remote_pools(struct owner *owner, struct paged_pool_entry **list_p, size_t *n_p,
			       struct paged_error *error);
enum paged_status remote_sessions(struct owner *owner, struct paged_session_entry **list_p, size_t *n_p,
				  struct paged_error *error);
enum paged_status remote_sequences(struct owner *owner, uint32_t pool, struct paged_seq_entry **list_p, size_t *n_p,
				   struct paged_error *error);
enum paged_status remote_prefixes(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
				  struct paged_error *error);
enum paged_status remote_pins(struct owner *owner, uint32_t pool, struct paged_pin_entry **list_p, size_t *n_p,
			      struct paged_error *error);
enum paged_status remote_unpin(struct owner *owner, uint32_t pool, uint64_t number, struct paged_error *error);
enum paged_status remote_quotas(struct owner *owner, struct paged_quota_entry **list_p, size_t *n_p,
				struct paged_error *error);
enum paged_status remote_table(struct owner *owner, paged_seq_id seq, struct paged_seq_entry *entry, uint32_t **pages_p,
			       size_t *n_p, struct paged_error *error);
enum paged_status remote_check(struct owner *owner, uint32_t pool, struct paged_check_result *result,
			       struct paged_error *error);
enum paged_status remote_kick(struct owner *owner, uint32_t session, bool kill_members, struct paged_error *error);
enum paged_status remote_drain(struct owner *owner, uint32_t session, struct paged_error *error);
enum paged_status remote_evict(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p,
			       struct paged_error *error);
enum paged_status remote_log_level(struct owner *owner, uint32_t level, uint32_t *was_p, struct paged_error *error);

/* Operations of owner_ops, in owner_remote_handover.c. */
enum paged_status remote_give(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
			      const struct seq_give *give, uint8_t ticket[PAGED_TICKET_SIZE],
			      struct paged_error *error);
enum paged_status remote_adopt(struct owner *owner, uint32_t pool, const uint8_t ticket[PAGED_TICKET_SIZE],
			       uint32_t n_max, struct paged_seq_item *items, uint32_t *n_p, struct paged_error *error);
enum paged_status remote_cancel(struct owner *owner, const uint8_t ticket[PAGED_TICKET_SIZE],
				struct paged_error *error);
enum paged_status remote_tickets(struct owner *owner, struct paged_ticket_entry **list_p, size_t *n_p,
				 struct paged_error *error);

#endif
