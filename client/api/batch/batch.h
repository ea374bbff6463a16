/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch.h - operations on a batch and on the rows of its plan
 */
#ifndef PAGED_CLIENT_BATCH_H
#define PAGED_CLIENT_BATCH_H

#include <sys/param.h>

#include "client/api/objects.h"
#include "client/params.h"

#define BATCH_ROWS_DEFAULT 256u

/** batch_free - free a batch; call it with the client's mutex held, or in a forked child */
void batch_free(struct paged_batch *batch, bool in_child);

/** batch_enter - PAGED_OK if the process may use the batch and the batch has a plan; refuses NULL */
enum paged_status batch_enter(const struct paged_batch *batch);

/** batch_row_is_valid - does a caller's row have only known flags, zero reserved words and a valid b? */
static inline bool
batch_row_is_valid(const struct paged_batch_row *row)
{
	return (row->flags & ~(PAGED_ROW_Q_BASE | PAGED_ROW_NO_APPEND | PAGED_ROW_B)) == 0 &&
	       client_is_zero(row->reserved, sizeof(row->reserved)) &&
	       ((row->flags & PAGED_ROW_B) != 0 ? row->b <= INT32_MAX : row->b == 0);
}

/** batch_row_fail_invalid - the error for a caller's row r that is not sound; the error text begins with `what` */
enum paged_status batch_row_fail_invalid(const struct paged_batch_row *row, const char *what, size_t r,
					 struct paged_error *error);

/** batch_row_refresh - update row r's copy of its sequence's page table */
enum paged_status batch_row_refresh(struct paged_batch *batch, uint32_t r, paged_seq_id id, struct paged_error *error);

/** batch_row_set_first - attention over row r begins no earlier than its sequence's first page */
enum paged_status batch_row_set_first(struct paged_batch *batch, uint32_t r, struct paged_error *error);

/**
 * batch_row_take_pages - give row r an explicit page table
 *
 * The table is copied, so the caller cannot change it after the check.
 */
enum paged_status batch_row_take_pages(struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from,
				       struct paged_error *error);

/**
 * batch_row_needs_reserve - has row r queries, this session's sequence, and room for fewer than n_ahead more tokens?
 */
static inline bool
batch_row_needs_reserve(const struct paged_batch *batch, uint32_t r, uint64_t n_ahead)
{
	const struct batch_row *row = &batch->row[r];
	const struct kernel_row *to = &batch->kernel_row[r];

	return to->q_len != 0 && row->id != 0 && !batch_row_is_foreign(batch, r) &&
	       row->capacity < MIN(to->kv_len + n_ahead, batch->pool->mapping.view.max_length);
}

/**
 * batch_protect - read the slots of the rows that append writes again, and protect what may not be written any more
 *
 * @retval PAGED_ERR_STALE  entries of a row's page table were replaced or removed since the plan
 * @retval PAGED_ERR_GONE
 */
enum paged_status batch_protect(struct paged_batch *batch, struct paged_error *error);

/**
 * batch_protect_graphs - batch_protect() after a call on the batch that protects tokens, for the appends of captured
 * graphs: their replays are not calls
 */
enum paged_status batch_protect_graphs(struct paged_batch *batch, struct paged_error *error);

/** batch_reserve - get pages for the rows in batch->short_seqs; on a failure, fill batch->pages_missing */
enum paged_status batch_reserve(struct paged_batch *batch, uint32_t n_short, struct paged_error *error);

/** batch_reserve_ahead - request pages for future plans; never waits, and may do nothing */
void batch_reserve_ahead(struct paged_batch *batch, uint64_t now_ms);

#endif
