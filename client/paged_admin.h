/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_admin.h - look at a daemon and its pools, recount them, end sessions
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 * pagedctl(8) is made of it.
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
 * Lists are allocated by the library and freed with paged_free().  entry_size is sizeof(the entry) of the program, so
 * that entries can grow: the library writes that many bytes of each, and zero past what it knows.
 */

enum paged_status paged_admin_status(struct paged_client *client, struct paged_daemon_info *info);
enum paged_status paged_admin_pools(struct paged_client *client, size_t entry_size, struct paged_pool_entry **list_p,
				    size_t *n_p);
enum paged_status paged_admin_sessions(struct paged_client *client, size_t entry_size,
				       struct paged_session_entry **list_p, size_t *n_p);
enum paged_status paged_admin_sequences(struct paged_client *client, const char *pool, size_t entry_size,
					struct paged_seq_entry **list_p, size_t *n_p);

/** paged_admin_table - the page table of a sequence, as the daemon has it, and its entry */
enum paged_status paged_admin_table(struct paged_client *client, paged_seq_id seq, size_t entry_size,
				    struct paged_seq_entry *entry, uint32_t **pages_p, size_t *n_p);

/**
 * paged_admin_check - let the daemon recompute a pool's books from every row
 *
 * @return PAGED_OK also when the books are wrong; see result->holds
 */
enum paged_status paged_admin_check(struct paged_client *client, const char *pool, struct paged_check_result *result);

/** paged_pool_check - recompute the same here, from the mapped table region alone */
enum paged_status paged_pool_check(struct paged_pool *pool, struct paged_check_result *result);

/**
 * paged_admin_kick - end a session; its pages wait in quarantine while its processes live
 *
 * @param[in] kill_members  1: also send SIGKILL to them
 * @retval PAGED_ERR_PERM   needs the daemon's uid, root or the admin group
 * @retval PAGED_ERR_NOENT  no such session
 */
enum paged_status paged_admin_kick(struct paged_client *client, uint32_t session, int kill_members);

/** paged_free - give back what the library allocated for the caller: a list, a picture; takes NULL */
void paged_free(void *list);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
