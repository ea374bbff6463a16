/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pool_read.h - read the state of a pool's sequences from the mapped region
 */
#ifndef PAGED_CLIENT_POOL_READ_H
#define PAGED_CLIENT_POOL_READ_H

#include "client/api/objects.h"

/** pool_refuse_seq - the error for an id that is not of this pool; takes the client's mutex */
enum paged_status pool_refuse_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error);

/** pool_check_seq - fail unless the id is of this pool */
static inline enum paged_status
pool_check_seq(struct paged_pool *pool, paged_seq_id id, struct paged_error *error)
{
	if (PAGED_SEQ_POOL(id) == pool->mapping.index && PAGED_SEQ_GENERATION(id) != 0)
		return PAGED_OK;
	return pool_refuse_seq(pool, id, error);
}

/** pool_check_owner - PAGED_ERR_GONE if the owner or this client's session has ended */
enum paged_status pool_check_owner(struct paged_pool *pool, struct paged_error *error);

/**
 * pool_snapshot - read a sequence's slot consistently (seqlock), with a bounded number of attempts
 *
 * The error text names the sequence.
 *
 * @param[in,out] attempt   0 at first; pass the value on to retry after region_snapshot_valid() failed
 * @retval PAGED_ERR_AGAIN  the slot stayed locked by a writer, and the owner lives
 * @retval PAGED_ERR_GONE   the owner is gone, and the slot stayed locked or has no such sequence
 * @retval PAGED_ERR_STALE  the slot has no such sequence
 */
enum paged_status pool_snapshot(struct paged_pool *pool, paged_seq_id id, unsigned int *attempt,
				struct region_snapshot *snapshot, struct paged_error *error);

#endif
