/* SPDX-License-Identifier: Apache-2.0 */
/**
 * internal.h - the objects behind the handles
 *
 * Every public call begins with client_enter() or a function that calls it:
 * in a forked child it returns PAGED_ERR_FORK before anything else is
 * examined.  A public call that fails ends with client_fail().  The functions
 * in between pass a struct paged_error, as everywhere in this code base.
 */
#ifndef PAGED_CLIENT_INTERNAL_H
#define PAGED_CLIENT_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "client/api/guard.h"
#include "client/owner/owner.h"
#include "client/pagedclient.h"
#include "kernels/kernels.h"
#include "kernels/mask/memory.h"

#define CLIENT_TIMEOUT_MS_DEFAULT 5000u

struct paged_client {
	struct guard guard;
	uint64_t serial;       /* key of its error texts (error.h) */
	pthread_mutex_t mutex; /* guards the owner's operations and the lists below */
	struct owner *owner;   /* NULL: the client failed to open */
	LIST_HEAD(, paged_pool) pools;
	enum paged_status open_status;
	struct kernel_team_params team; /* of each batch */
	uint32_t *cpus;                 /* the CPU list that `team` points to */
	struct cuda_compiler *compiler; /* for mods of pools in GPU memory; NULL: not needed yet */
	_Atomic uint64_t looked_ms;     /* time of a plan's last check of the owner's state */
};

struct paged_pool {
	struct paged_client *client;
	LIST_ENTRY(paged_pool) link;
	LIST_HEAD(, paged_batch) batches;
	struct paged_mod *mods;
	LIST_HEAD(, paged_block_mask) block_masks;
	struct mask_memory mask_memory; /* spare arrays for its block masks */
	struct cuda_kernels *kernels;   /* back end cuda: loaded while the pool has batches */
	struct owner_pool at;
};

/** client_fail - set the calling thread's error text for this client; returns the error's status */
enum paged_status client_fail(const struct paged_client *client, const struct paged_error *error);

enum paged_status client_failf(const struct paged_client *client, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** pool_client - the pool's client; NULL if the pool is NULL, which client_enter() refuses */
static inline struct paged_client *
pool_client(const struct paged_pool *pool)
{
	return pool != NULL ? pool->client : NULL;
}

/** client_enter - PAGED_OK if the client is open and belongs to the calling process; refuses NULL */
enum paged_status client_enter(const struct paged_client *client);

/** client_enter_owner - client_enter() for calls that need the owner; PAGED_ERR_GONE if it has ended */
enum paged_status client_enter_owner(const struct paged_client *client);

/** client_gone - fail with PAGED_ERR_GONE and a text that says how the owner or the session ended */
enum paged_status client_gone(const struct owner *owner, struct paged_error *error);

/** client_look - handle the owner's notices, unless another thread holds the client's mutex; never blocks */
void client_look(struct paged_client *client);

static inline void
client_lock(struct paged_client *client)
{
	pthread_mutex_lock(&client->mutex);
}

static inline void
client_unlock(struct paged_client *client)
{
	pthread_mutex_unlock(&client->mutex);
}

/**
 * client_params_in - copy the caller's parameter struct, which may be of another version
 *
 * Both structs begin with struct_size.  Fields that the caller's struct lacks
 * become zero.  Fields that this library does not know must be zero: a request
 * of a newer program is refused, not ignored.
 *
 * @param[in] user  NULL: all zero
 */
enum paged_status client_params_in(void *ours, size_t our_size, const void *user, const char *name,
				   struct paged_error *error);

/** client_is_zero - are all bytes zero?  Inline, because a plan checks the reserved words of each row */
static inline bool
client_is_zero(const void *words, size_t size)
{
	const uint8_t *bytes = words;
	uint8_t any = 0;

	for (size_t i = 0; i < size; i++)
		any |= bytes[i];
	return any == 0;
}

/** client_info_out - copy an info struct to the caller's, up to its struct_size; fields unknown here become zero */
enum paged_status client_info_out(void *user, const void *ours, size_t our_size, const char *name,
				  struct paged_error *error);

/** pool_free - free a pool with its batches and block masks; the client's mutex is held, or the process is a child */
void pool_free(struct paged_pool *pool, bool in_child);

/**
 * pool_let_go - release the pages of a pool whose owner is gone
 *
 * Called with the client's mutex held, after the pool's last batch was
 * destroyed.  No batch can be created or planned afterwards.
 */
void pool_let_go(struct paged_pool *pool);

/** batch_free - called with the client's mutex held, or in a forked child */
void batch_free(struct paged_batch *batch, bool in_child);

/** pool_refuse_seq - the error for an id that is not of this pool; takes the client's mutex */
enum paged_status pool_refuse_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error);

/** pool_check_seq - fail unless the id is of this pool */
static inline enum paged_status
pool_check_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error)
{
	if (PAGED_SEQ_POOL(id) == pool->at.index && PAGED_SEQ_GENERATION(id) != 0)
		return PAGED_OK;
	return pool_refuse_seq(pool, id, error);
}

/** pool_check_owner - PAGED_ERR_GONE if the owner or this client's session has ended */
enum paged_status pool_check_owner(struct paged_pool *pool, struct paged_error *error);

/**
 * pool_look - read a sequence's slot consistently (seqlock), with a bounded number of attempts
 *
 * The error text names the sequence.
 *
 * @param[in,out] attempt   0 at first; pass the value on to retry after region_snapshot_valid() failed
 * @retval PAGED_ERR_AGAIN  the slot stayed locked by a writer, and the owner lives
 * @retval PAGED_ERR_GONE   the owner is gone, and the slot stayed locked or has no such sequence
 * @retval PAGED_ERR_STALE  the slot has no such sequence
 */
enum paged_status pool_look(struct paged_pool *pool, paged_seq_id id, unsigned int *attempt,
			    struct region_snapshot *snapshot, struct paged_error *error);

#endif
