/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch.h - a plan and its buffers
 *
 * All buffers lie in one mapping that batch_create makes and batch_free
 * gives back; memory that no plan touches is never there.  Row r of a plan
 * keeps its copy of a sequence's table from plan to plan: as long as the
 * same sequence stands in row r and nothing in its table was replaced, a
 * plan copies only what grew.
 */
#ifndef PAGED_CLIENT_BATCH_H
#define PAGED_CLIENT_BATCH_H

#include <sys/param.h>

#include "client/internal.h"

#define BATCH_ROWS_DEFAULT 256u
#define BATCH_NO_ROW UINT32_MAX

/** What is known of the sequence in a row. */
struct batch_row {
	paged_seq_id id; /* 0: an explicit table, or nothing yet */
	uint64_t version;
	uint32_t n_entries; /* copied and checked */
	uint32_t capacity;  /* tokens */
	uint32_t owner;
	uint32_t writable_from;
};

struct compute_lengths; /* compute.h */

struct paged_batch {
	struct paged_pool *pool;
	LIST_ENTRY(paged_batch) link;
	struct kernel_team *team;
	void *compute; /* the back end's */
	struct paged_mods *mods;
	uint32_t max_rows;
	uint32_t reserve_ahead;  /* tokens */
	uint64_t ahead_after_ms; /* ask for nothing before: the pool was full, or an answer is awaited */

	void *buffer;
	size_t buffer_size;
	struct batch_row *row;         /* [max_rows] */
	struct kernel_row *kernel_row; /* [max_rows] */
	uint32_t *missing;             /* [max_rows] pages, of the last refused plan */
	uint32_t *lacking;             /* [max_rows] rows whose capacity is short */
	struct paged_seq_item *items;  /* [max_rows] a request being put together */
	uint64_t *writer;              /* [pages of the pool] the last pass over the rows that met a writer of it */
	uint32_t *table;               /* [max_rows][table_stride] */
	uint64_t table_stride;         /* entries */

	/* The plan. */
	bool planned;
	bool on_device; /* a device has the lengths; those of kernel_row are bounds of them */
	bool has_missing;
	uint32_t n_rows;
	uint64_t total_q;
	uint32_t each_q;       /* q_len of every row; 0: they differ */
	uint32_t foreign_row;  /* the first that appends to another session's sequence */
	uint32_t unplaced_row; /* the first whose default positions cannot be written */
	uint32_t wide_row;     /* the first whose q_idx or kv_idx mods cannot count */
	/* The first two rows of which append would write one token twice; twin_row is BATCH_NO_ROW: none. */
	uint32_t twin_row, twin_of;
	uint32_t twin_position; /* of twin_row */
	uint64_t plan_number;   /* from 1 on */
	uint64_t writer_pass;   /* stamps `writer`; each pass over the rows has its own, from 1 on */
	uint32_t n_distinct; /* the first so many rows had sequences of their own when last looked at; 0: not known */
	/* PAGED_ERR_RANGE of mods that were bound anew or destroyed since the plan; status PAGED_OK: none. */
	struct paged_error range;
};

static inline struct paged_client *
batch_client(const struct paged_batch *batch)
{
	return batch != NULL ? batch->pool->client : NULL;
}

static inline uint32_t
batch_pages(const struct paged_batch *batch, uint32_t n_tokens)
{
	uint32_t page_size = batch->pool->at.view.page_size;

	return n_tokens / page_size + (n_tokens % page_size != 0);
}

/** batch_enter - PAGED_OK when the process may use the batch and it has a plan; NULL is refused */
enum paged_status batch_enter(const struct paged_batch *batch);

/** batch_row_is_sound - a caller's row has known flags, zeros in its reserved words, and a b that may be */
static inline bool
batch_row_is_sound(const struct paged_batch_row *row)
{
	return (row->flags & ~(PAGED_ROW_Q_BASE | PAGED_ROW_NO_APPEND | PAGED_ROW_B)) == 0 &&
	       client_is_zero(row->reserved, sizeof(row->reserved)) &&
	       ((row->flags & PAGED_ROW_B) != 0 ? row->b <= INT32_MAX : row->b == 0);
}

/** batch_row_refuse - why the caller's row r is not sound; `what` begins the sentence */
enum paged_status batch_row_refuse(const struct paged_batch_row *row, const char *what, size_t r,
				   struct paged_error *error);

/** batch_row_refresh - bring row r's copy of its sequence's table up to date */
enum paged_status batch_row_refresh(struct paged_batch *batch, uint32_t r, paged_seq_id id, struct paged_error *error);

/** batch_row_wants - true: row r has queries, is this session's, and has room for fewer than n_ahead more tokens */
static inline bool
batch_row_wants(const struct paged_batch *batch, uint32_t r, uint64_t n_ahead)
{
	const struct batch_row *row = &batch->row[r];
	const struct kernel_row *to = &batch->kernel_row[r];

	return to->q_len != 0 && row->id != 0 && row->owner == batch->pool->client->owner->session &&
	       row->capacity < MIN(to->kv_len + n_ahead, batch->pool->at.view.max_length);
}

/** batch_reserve - the rows in batch->lacking get pages now, or batch->missing says what lacks */
enum paged_status batch_reserve(struct paged_batch *batch, uint32_t n_lacking, struct paged_error *error);

/** batch_reserve_ahead - ask for pages that coming plans will need; never waits, and may do nothing */
void batch_reserve_ahead(struct paged_batch *batch, uint64_t now_ms);

#endif
