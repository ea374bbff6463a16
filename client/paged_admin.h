/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_admin.h - look at a daemon and its pools, recount them, end sessions
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 * pagedctl(8) is made of it.
 */
#ifndef PAGED_ADMIN_H
#define PAGED_ADMIN_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* Lists are allocated by the library and freed with paged_free(). */

struct paged_daemon_info {
	char version[32];
	char boot_id[33]; /* hexadecimal */
	uint64_t uptime_ms;
	uint64_t n_requests; /* RPCs answered in this life, this one not counted */
	uint32_t n_sessions;
	uint32_t n_pools;
	uint32_t pid;
	uint32_t stopping;
};

struct paged_pool_entry {
	char name[PAGED_MAX_NAME + 1];
	char backend[16];
	uint64_t page_bytes;
	uint64_t size;
	uint32_t n_pages, n_free, n_referenced, n_quarantined;
	uint32_t page_size, n_layers, n_kv_heads, k_dim, v_dim, v_in_k;
	enum paged_dtype dtype;
	uint32_t n_slots, n_sequences, max_length;
	char memory[64]; /* "huge pages", "4 KiB pages", "CUDA, vmm, NVIDIA H200" */
	char device[48]; /* of backend "cuda": "GPU-8a1b..."; "" on the host */
	uint32_t number; /* PAGED_SEQ_POOL() of its sequences */
};

struct paged_session_entry {
	uint32_t session;
	uint32_t member; /* one entry a member; 0: the session ended and no member is left */
	uint32_t first;  /* 1: the member whose end ends the session */
	uint32_t ended;  /* 1: the session has ended, its pages wait for its members */
	uint32_t pid;
	uint32_t uid;
	uint64_t n_requests;                          /* of the member */
	uint32_t n_sequences, n_pages, n_quarantined; /* of the session */
	char name[PAGED_MAX_NAME + 1];
};

struct paged_seq_entry {
	paged_seq_id seq;
	uint32_t session;
	uint32_t pid; /* of the session's first member; 0: gone */
	uint32_t length, capacity, n_pages;
	char name[PAGED_MAX_NAME + 1];
	char tag[PAGED_MAX_TAG + 1];
};

struct paged_check_result {
	uint32_t n_pages, n_free, n_referenced, n_quarantined, n_sequences;
	/** 1: the numbers add up and every count is right. */
	uint32_t holds;
	char text[256]; /* what is wrong */
};

enum paged_status paged_admin_status(struct paged_client *client, struct paged_daemon_info *info);
enum paged_status paged_admin_pools(struct paged_client *client, struct paged_pool_entry **list_p, size_t *n_p);
enum paged_status paged_admin_sessions(struct paged_client *client, struct paged_session_entry **list_p, size_t *n_p);
enum paged_status paged_admin_sequences(struct paged_client *client, const char *pool, struct paged_seq_entry **list_p,
					size_t *n_p);

/** paged_admin_table - the row of a sequence, asked of the daemon */
enum paged_status paged_admin_table(struct paged_client *client, paged_seq_id seq, struct paged_seq_entry *entry,
				    uint32_t **pages_p, size_t *n_p);

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
