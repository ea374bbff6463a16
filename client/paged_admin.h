/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_admin.h - inspect a daemon and its pools, check their accounting, end sessions
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 * pagedctl(8) is built on these calls.  None but paged_admin_pin() needs a session: an
 * observer may make them.
 *
 * Errors.  All calls but paged_pool_check() are requests to the owner, with the
 * statuses that all requests have (pagedclient.h, Errors).  A call that names a
 * pool may return:
 *
 *   PAGED_ERR_NOENT  no pool of this name; the message lists the pools
 *   PAGED_ERR_PERM   the pool's allow-list refuses this uid
 *
 * Threads: any; calls on one client are serialised.
 * Blocks: up to timeout_ms per request; a long list takes several requests.
 */
#ifndef PAGED_ADMIN_H
#define PAGED_ADMIN_H

#include <paged_reports.h>
#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/*
 * Calls that list allocate *list_p, an array of *n_p entries, which the caller
 * frees with paged_free(); both are written on PAGED_OK only.  entry_size is
 * sizeof(the entry) in the caller, so that entries can grow: the library writes
 * that many bytes per entry, zeroing those that it does not know.
 */

/** paged_admin_status - describe the daemon; fills info up to its struct_size */
enum paged_status paged_admin_status(struct paged_client *client, struct paged_daemon_info *info);

/**
 * paged_admin_metrics - what the daemon counts: requests by kind and status, their latency, turns of its loop
 *
 * All numbers are of one moment.  An embedded client has no daemon, whose requests or turns could be measured: it lists
 * no kinds of requests.  What happens in a pool is counted in shared memory (paged_pool_get_totals()).
 *
 * @param[out] metrics  filled up to its struct_size
 * @param[out] list_p   one entry for each kind of request, also of those that nobody has made
 */
enum paged_status paged_admin_metrics(struct paged_client *client, struct paged_metrics *metrics, size_t entry_size,
				      struct paged_request_entry **list_p, size_t *n_p);

/** paged_admin_pools - list all pools */
enum paged_status paged_admin_pools(struct paged_client *client, size_t entry_size, struct paged_pool_entry **list_p,
				    size_t *n_p);

/** paged_admin_sessions - list the members of all sessions */
enum paged_status paged_admin_sessions(struct paged_client *client, size_t entry_size,
				       struct paged_session_entry **list_p, size_t *n_p);

/** paged_admin_sequences - list the live sequences of a pool, by its name */
enum paged_status paged_admin_sequences(struct paged_client *client, const char *pool, size_t entry_size,
					struct paged_seq_entry **list_p, size_t *n_p);

/**
 * paged_admin_table - copy the page table of a sequence from the daemon
 *
 * @param[out] entry    entry_size bytes, as for a list
 * @param[out] pages_p  [*n_p] physical pages in logical order; caller frees it with paged_free()
 * @retval PAGED_ERR_STALE  no live sequence has this id
 */
enum paged_status paged_admin_table(struct paged_client *client, paged_seq_id seq, size_t entry_size,
				    struct paged_seq_entry *entry, uint32_t **pages_p, size_t *n_p);

/**
 * paged_admin_check - let the daemon recompute a pool's page accounting from all page tables
 *
 * @param[out] result  filled up to its struct_size
 * @retval PAGED_OK        the check was made; result->holds says whether the accounting is right
 * @retval PAGED_ERR_PERM  needs the daemon's uid, root or the admin group
 */
enum paged_status paged_admin_check(struct paged_client *client, const char *pool, struct paged_check_result *result);

/**
 * paged_pool_check - make the same check in this process, from the mapped page tables; no request
 *
 * @param[out] result  filled up to its struct_size
 * @retval PAGED_OK         the check was made; result->holds says whether the accounting is right
 * @retval PAGED_ERR_AGAIN  the owner changed the tables during every attempt
 */
enum paged_status paged_pool_check(struct paged_pool *pool, struct paged_check_result *result);

/**
 * paged_admin_tickets - list the sequences that were given away and that no session has adopted yet, by ticket
 *
 * The list does not have the bytes of a ticket, which are a secret.
 */
enum paged_status paged_admin_tickets(struct paged_client *client, size_t entry_size,
				      struct paged_ticket_entry **list_p, size_t *n_p);

/** paged_admin_pins - list the pins of a pool, by its name, the oldest first */
enum paged_status paged_admin_pins(struct paged_client *client, const char *pool, size_t entry_size,
				   struct paged_pin_entry **list_p, size_t *n_p);

/**
 * paged_admin_unpin - end a pin of any member
 *
 * @param[in] number  as paged_admin_pins() lists it
 * @retval PAGED_ERR_NOENT  no such pin
 * @retval PAGED_ERR_PERM   needs the daemon's uid, root or the admin group
 */
enum paged_status paged_admin_unpin(struct paged_client *client, const char *pool, uint64_t number);

/**
 * paged_admin_quotas - list what each tenant has in each pool, and its limits (pagedd.conf(5))
 *
 * The list is empty for an embedded client, which has no tenants.
 */
enum paged_status paged_admin_quotas(struct paged_client *client, size_t entry_size, struct paged_quota_entry **list_p,
				     size_t *n_p);

/**
 * paged_admin_kick - end a session
 *
 * The session's pages stay in quarantine until its processes have ended.  Its tickets stay valid; if the session has
 * ended already, they expire now.
 *
 * @param[in] kill_members  1: also send SIGKILL to its processes
 * @retval PAGED_ERR_PERM   needs the daemon's uid, root or the admin group
 * @retval PAGED_ERR_NOENT  no such session, or it has ended and has no tickets
 * @retval PAGED_ERR_SYSTEM the session was ended, but not all of its processes could be killed; the message says how
 *                          many, and why
 */
enum paged_status paged_admin_kick(struct paged_client *client, uint32_t session, int kill_members);

/**
 * paged_admin_drain - give a session no new sequences from now on, and tell its members to leave
 *
 * Create, start, fork, adopt and hold fail with PAGED_ERR_STOPPING in this session.  It may go on with the sequences
 * that it has, give them to other sessions, and erase them.  paged_client_dispatch() of its members returns
 * PAGED_ERR_STOPPING, as soon as they call it; a member that ignores it stays.  A session that is drained already does
 * not change.
 *
 * @retval PAGED_ERR_PERM   needs the daemon's uid, root or the admin group
 * @retval PAGED_ERR_NOENT  no such session
 */
enum paged_status paged_admin_drain(struct paged_client *client, uint32_t session);

/**
 * paged_admin_log_level - set what the daemon logs, until it ends
 *
 * The daemon logs who changed it.
 *
 * @param[in]  level  enum paged_log_level of the least severe lines; 0: leave it as it is
 * @param[out] was_p  level before the call; NULL: not wanted
 * @retval PAGED_ERR_INVALID      there is no such level
 * @retval PAGED_ERR_PERM         needs the daemon's uid, root or the admin group
 * @retval PAGED_ERR_UNSUPPORTED  the client is embedded
 */
enum paged_status paged_admin_log_level(struct paged_client *client, uint32_t level, uint32_t *was_p);

/*
 * Published pages.  Sequences that begin with the same tokens share them; the owner keeps an index of them
 * (libpagedclient(3)).
 */

/**
 * paged_admin_prefixes - list the published pages of a pool, by its name, in the order of their numbers
 *
 * The list takes several requests, and pages may be published and evicted between them.
 */
enum paged_status paged_admin_prefixes(struct paged_client *client, const char *pool, size_t entry_size,
				       struct paged_node_entry **list_p, size_t *n_p);

/**
 * paged_prefix_tokens - copy the token ids of a published page from the table region; no request
 *
 * @param[in]  serial  as listed
 * @param[out] tokens  [n], at least the pool's page size; as many are written
 * @retval PAGED_ERR_STALE  the page is no longer published, or was published again
 * @retval PAGED_ERR_NOENT  the page was published under a key, without token ids
 * @retval PAGED_ERR_RANGE  the pool has no such page, or n is too small
 */
enum paged_status paged_prefix_tokens(struct paged_pool *pool, uint32_t page, uint64_t serial, uint32_t *tokens,
				      size_t n);

/**
 * paged_admin_evict - free up to n_pages cached pages, those first that were not used for the longest time
 *
 * Pinned pages are freed after all others.
 *
 * @param[in]  n_pages      0: all
 * @param[out] n_evicted_p  pages freed; fewer if no more were cached
 * @retval PAGED_ERR_PERM   needs the daemon's uid, root or the admin group
 */
enum paged_status paged_admin_evict(struct paged_client *client, const char *pool, uint32_t n_pages,
				    uint32_t *n_evicted_p);

/**
 * paged_admin_pin - evict a published page, and those before it in its prefix, after all that are not pinned
 *
 * A pin ends after `seconds`, not with the session.  Pinning the same page again replaces its pin.
 *
 * @param[in]  serial     as listed
 * @param[in]  seconds    0: end the pin
 * @param[out] n_pages_p  pages of the prefix
 * @retval PAGED_ERR_STALE  the page, or one before it, is no longer published with this serial
 * @retval PAGED_ERR_LIMIT  the pool's pin-limit, or more than a year
 * @retval PAGED_ERR_RANGE  the pool has no such page
 * @retval PAGED_ERR_PERM   the client is an observer
 */
enum paged_status paged_admin_pin(struct paged_client *client, const char *pool, uint32_t page, uint64_t serial,
				  uint32_t seconds, uint32_t *n_pages_p);

/** paged_free - free a list or picture that the library allocated for the caller; takes NULL */
void paged_free(void *list);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
