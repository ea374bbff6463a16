/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch.h - a plan and its buffers
 *
 * All buffers are in one mapping, from paged_batch_create() to batch_free();
 * the kernel allocates its pages as plans touch them.  Row r keeps its copy of
 * a sequence's page table from plan to plan.  While row r has the same sequence
 * and no entry of its page table was replaced, a plan copies only new entries.
 */
#ifndef PAGED_CLIENT_BATCH_H
#define PAGED_CLIENT_BATCH_H

#include <sys/param.h>

#include "client/api/internal.h"

#define BATCH_ROWS_DEFAULT 256u
#define BATCH_NO_ROW UINT32_MAX

/** The sequence of a row, as of the last read of its slot. */
struct batch_row {
	paged_seq_id id; /* 0: an explicit table, or nothing yet */
	uint64_t version;
	uint32_t n_entries; /* copied and checked */
	uint32_t capacity;  /* tokens */
	uint32_t owner;
	uint32_t writable_from;
};

struct compute_lengths; /* compute_ops.h */

struct paged_batch {
	struct paged_pool *pool;
	LIST_ENTRY(paged_batch) link;
	struct kernel_team *team;
	void *compute; /* state of the back end */
	struct paged_mods *mods;
	uint32_t max_rows;
	uint32_t reserve_ahead;  /* tokens */
	uint64_t ahead_after_ms; /* no reserve-ahead before: the pool was full, or a reply is outstanding */

	void *buffer;
	size_t buffer_size;
	struct batch_row *row;         /* [max_rows] */
	struct kernel_row *kernel_row; /* [max_rows] */
	uint32_t *missing;             /* [max_rows] pages that the last refused plan lacked */
	uint32_t *lacking;             /* [max_rows] rows whose sequence has too little capacity */
	struct paged_seq_item *items;  /* [max_rows] items of a request */
	uint64_t *writer;              /* [pages of the pool] last pass over the rows that found a writer of it */
	uint32_t *table;               /* [max_rows][table_stride] */
	uint64_t table_stride;         /* entries */

	/* The plan. */
	bool planned;
	bool on_device; /* the lengths are in device memory; those in kernel_row are upper bounds */
	bool has_missing;
	uint32_t n_rows;
	uint64_t total_q;
	uint32_t each_q;       /* q_len of every row; 0: they differ */
	uint32_t foreign_row;  /* first row that appends to another session's sequence */
	uint32_t unplaced_row; /* first row whose default positions must not be written */
	uint32_t wide_row;     /* first row whose q_idx or kv_idx exceeds the 32-bit ints of mods */
	/* The first two rows that would append to the same token; twin_row is BATCH_NO_ROW: none. */
	uint32_t twin_row, twin_of;
	uint32_t twin_position; /* of twin_row */
	uint64_t plan_number;   /* from 1 on */
	uint64_t writer_pass;   /* number of the current pass over the rows, written to `writer`; from 1 on */
	uint32_t n_distinct;    /* the last check found distinct sequences in rows [0, n_distinct); 0: unknown */
	/* PAGED_ERR_RANGE from mods that were rebound or destroyed since the plan; status PAGED_OK: none. */
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

/** batch_enter - PAGED_OK if the process may use the batch and the batch has a plan; refuses NULL */
enum paged_status batch_enter(const struct paged_batch *batch);

/** batch_row_is_sound - does a caller's row have only known flags, zero reserved words and a valid b? */
static inline bool
batch_row_is_sound(const struct paged_batch_row *row)
{
	return (row->flags & ~(PAGED_ROW_Q_BASE | PAGED_ROW_NO_APPEND | PAGED_ROW_B)) == 0 &&
	       client_is_zero(row->reserved, sizeof(row->reserved)) &&
	       ((row->flags & PAGED_ROW_B) != 0 ? row->b <= INT32_MAX : row->b == 0);
}

/** batch_row_refuse - the error for a caller's row r that is not sound; the error text begins with `what` */
enum paged_status batch_row_refuse(const struct paged_batch_row *row, const char *what, size_t r,
				   struct paged_error *error);

/** batch_row_refresh - update row r's copy of its sequence's page table */
enum paged_status batch_row_refresh(struct paged_batch *batch, uint32_t r, paged_seq_id id, struct paged_error *error);

/** batch_row_wants - has row r queries, this session's sequence, and room for fewer than n_ahead more tokens? */
static inline bool
batch_row_wants(const struct paged_batch *batch, uint32_t r, uint64_t n_ahead)
{
	const struct batch_row *row = &batch->row[r];
	const struct kernel_row *to = &batch->kernel_row[r];

	return to->q_len != 0 && row->id != 0 && row->owner == batch->pool->client->owner->session &&
	       row->capacity < MIN(to->kv_len + n_ahead, batch->pool->at.view.max_length);
}

/** batch_reserve - get pages for the rows in batch->lacking; on a failure, fill batch->missing */
enum paged_status batch_reserve(struct paged_batch *batch, uint32_t n_lacking, struct paged_error *error);

/** batch_reserve_ahead - request pages for future plans; never waits, and may do nothing */
void batch_reserve_ahead(struct paged_batch *batch, uint64_t now_ms);

#endif
