/* SPDX-License-Identifier: Apache-2.0 */
/**
 * checking.h - which tokens this client has appended (paged_client_params.check, PAGED_CHECK)
 *
 * Only of sequences that this client created or started; a sequence whose lengths are in device memory is forgotten.
 * So are those of captured graphs, which are planned in no other way, and those that were given away, when they come
 * back.  A client that has appended nothing is not checked when it publishes, because another process of its session
 * may append.  Without checking, paged_pool.checking is NULL, and each caller tests that before it calls.
 *
 * Threads: any; the tables of a pool have a mutex.
 */
#ifndef PAGED_CLIENT_CHECKING_H
#define PAGED_CLIENT_CHECKING_H

#include "client/api/objects.h"

/** checking_open - begin to check a pool; sets pool->checking; PAGED_ERR_NOMEM */
enum paged_status checking_open(struct paged_pool *pool, struct paged_error *error);

void checking_close(struct paged_pool *pool, bool in_child);

/** checking_begin - a new sequence of this client, whose first n_shared tokens others have written */
void checking_begin(struct paged_pool *pool, paged_seq_id seq, uint32_t n_shared);

/** checking_truncate - tokens from n_tokens on are to be written again */
void checking_truncate(struct paged_pool *pool, paged_seq_id seq, uint32_t n_tokens);

/** checking_forget - check a sequence no more, because others write it, too */
void checking_forget(struct paged_pool *pool, paged_seq_id seq);

/** checking_append - the planned rows were appended in a layer; positions: at positions that are not read here */
void checking_append(const struct paged_batch *batch, uint32_t layer, bool positions);

/** checking_attention - PAGED_ERR_INVALID if a planned row has a token that was not appended in the layer */
enum paged_status checking_attention(const struct paged_batch *batch, uint32_t layer, struct paged_error *error);

/** checking_publish - PAGED_ERR_INVALID if one of tokens [from, end) was not appended in all layers */
enum paged_status checking_publish(const struct paged_pool *pool, paged_seq_id seq, uint32_t from, uint32_t end,
				   struct paged_error *error);

#endif
