/* SPDX-License-Identifier: Apache-2.0 */
/**
 * internal.h - the objects behind the handles
 *
 * Every public call begins with client_enter() (or its relatives), which
 * answers PAGED_ERR_FORK in a child before anything else is looked at, and
 * ends with client_fail() when it failed.  In between, functions pass a
 * struct paged_error on as everywhere in the tree.
 */
#ifndef PAGED_CLIENT_INTERNAL_H
#define PAGED_CLIENT_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "client/guard.h"
#include "client/owner.h"
#include "client/pagedclient.h"
#include "kernels/kernels.h"
#include "kernels/mask/memory.h"

#define CLIENT_TIMEOUT_MS_DEFAULT 5000u

struct paged_client {
	struct guard guard;
	uint64_t serial;       /* of its errors */
	pthread_mutex_t mutex; /* the owner's operations, the lists below */
	struct owner *owner;   /* NULL: the client failed to open */
	LIST_HEAD(, paged_pool) pools;
	enum paged_status open_status;
	struct kernel_team_params team; /* of each batch */
	uint32_t *cpus;                 /* what it points to */
	struct cuda_compiler *compiler; /* of mods for pools in a GPU's memory; NULL: none was needed yet */
	_Atomic uint64_t looked_ms;     /* when plan last looked whether the owner lives */
};

struct paged_pool {
	struct paged_client *client;
	LIST_ENTRY(paged_pool) link;
	LIST_HEAD(, paged_batch) batches;
	struct paged_mod *mods;
	LIST_HEAD(, paged_block_mask) block_masks;
	struct mask_memory mask_memory; /* of its block masks */
	struct cuda_kernels *kernels;   /* of the back end cuda, while there are batches */
	struct owner_pool at;
};

/** client_fail - keep the sentence for this thread, return its status */
enum paged_status client_fail(const struct paged_client *client, const struct paged_error *error);

enum paged_status client_failf(const struct paged_client *client, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** pool_client - NULL for a pool that is NULL: client_enter() refuses both */
static inline struct paged_client *
pool_client(const struct paged_pool *pool)
{
	return pool != NULL ? pool->client : NULL;
}

/** client_enter - PAGED_OK when the calling process may use this client and it is open; NULL is refused */
enum paged_status client_enter(const struct paged_client *client);

/** client_enter_owner - likewise, for calls that the owner must answer: PAGED_ERR_GONE when it cannot */
enum paged_status client_enter_owner(const struct paged_client *client);

/** client_gone - the sentence of an owner that is no more there to ask */
enum paged_status client_gone(const struct owner *owner, struct paged_error *error);

/** client_look - take in what the owner said, unless another thread is busy with it and will; never blocks */
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
 * client_params_in - the caller's struct, as far as it goes, into ours
 *
 * Both begin with struct_size.  What the caller's lacks becomes zero.  What
 * ours lacks must be zero: a newer program's wish is refused, not ignored.
 *
 * @param[in] user  NULL: all zero
 */
enum paged_status client_params_in(void *ours, size_t our_size, const void *user, const char *name,
				   struct paged_error *error);

/** client_is_zero - reserved words of structs that have a fixed size; inline, since each row of a plan has some */
static inline bool
client_is_zero(const void *words, size_t size)
{
	const uint8_t *bytes = words;
	uint8_t any = 0;

	for (size_t i = 0; i < size; i++)
		any |= bytes[i];
	return any == 0;
}

/** client_info_out - ours into the caller's struct as far as its struct_size goes, zero past what we know */
enum paged_status client_info_out(void *user, const void *ours, size_t our_size, const char *name,
				  struct paged_error *error);
/** pool_free - with its batches and block masks; the client's mutex is held, or the process is a child */
void pool_free(struct paged_pool *pool, bool in_child);

/**
 * pool_let_go - of the pages, if the owner is gone; the last batch was destroyed, the client's mutex is held
 *
 * None is made after that, nor planned.
 */
void pool_let_go(struct paged_pool *pool);

/** batch_free - the client's mutex is held, or the process is a child */
void batch_free(struct paged_batch *batch, bool in_child);

/** pool_refuse_seq - why an id is none of the pool's; takes the client's mutex */
enum paged_status pool_refuse_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error);

/** pool_check_seq - the id is one of the pool's */
static inline enum paged_status
pool_check_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error)
{
	if (PAGED_SEQ_POOL(id) == pool->at.index && PAGED_SEQ_GENERATION(id) != 0)
		return PAGED_OK;
	return pool_refuse_seq(pool, id, error);
}

/** pool_check_owner - PAGED_ERR_GONE if the owner, or its session with this client, has ended */
enum paged_status pool_check_owner(struct paged_pool *pool, struct paged_error *error);

/**
 * pool_look - one consistent look at a slot, with a bounded number of attempts
 *
 * @param[in,out] attempt   0 at first; then as it was left, when entries that were read after a look do not hold
 * @retval PAGED_ERR_AGAIN  it stayed busy, and the owner lives
 * @retval PAGED_ERR_GONE   it stayed busy, or has no such sequence, and the owner is gone
 * @retval PAGED_ERR_STALE  it has no such sequence
 * The sentence names the sequence.
 */
enum paged_status pool_look(struct paged_pool *pool, paged_seq_id id, unsigned int *attempt, struct region_look *look,
			    struct paged_error *error);

#endif
