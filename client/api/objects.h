/* SPDX-License-Identifier: Apache-2.0 */
/**
 * objects.h - the objects behind the handles
 *
 * A client has pools; a pool has batches, mods, block masks and watches; a batch has a
 * plan and mod sets.  Each object is in a list of the one that it belongs to,
 * and is freed with it at the latest.  The client's mutex guards the lists of
 * the client and of its pools.  Only the batch's thread uses a batch's list.
 */
#ifndef PAGED_CLIENT_OBJECTS_H
#define PAGED_CLIENT_OBJECTS_H

#include <pthread.h>
#include <sys/queue.h>

#include "client/api/guard.h"
#include "client/owner/owner.h"
#include "client/pagedclient.h"
#include "kernels/kernels.h"
#include "kernels/mask/mask.h"
#include "kernels/mask/spare_arrays.h"
#include "kernels/mod/mod.h"

struct compute_ops;
struct publish_message;
struct publishing;

struct paged_client {
	struct guard guard;
	uint64_t serial;       /* key of its error texts (error.h) */
	pthread_mutex_t mutex; /* guards the owner's operations and the lists below */
	struct owner *owner;   /* NULL: the client failed to open */
	LIST_HEAD(, paged_pool) pools;
	pthread_mutex_t pools_mutex; /* also guards `pools`, for readers that cannot wait for the owner; taken last */
	enum paged_status open_status;
	bool checks;                      /* pools check what is published and read (checking.h) */
	struct kernel_team_params team;   /* of each batch */
	uint32_t *cpus;                   /* the CPU list that `team` points to */
	struct cuda_compiler *compiler;   /* for mods of pools in GPU memory; NULL: not needed yet */
	struct publish_message *publish;  /* what is being published; guarded by the mutex */
	_Atomic uint64_t owner_polled_ms; /* time of the last check in client_enter_shared() */
	/* Messages to publish: publishing.h.  Changed with the mutex held. */
	_Atomic uint64_t publishes_sent, publishes_answered;
};

struct paged_pool {
	struct paged_client *client;
	LIST_ENTRY(paged_pool) link;
	LIST_HEAD(, paged_batch) batches;
	LIST_HEAD(, paged_watch) watches;
	struct paged_mod *mods;
	LIST_HEAD(, paged_block_mask) block_masks;
	struct mask_memory mask_memory; /* spare arrays for its block masks */
	struct cuda_kernels *kernels;   /* back end cuda: loaded while the pool has batches */
	struct checking *checking;      /* NULL: off */
	struct publishing *publishing;  /* publishes without a reply; NULL: the pool publishes nothing */
	struct owner_pool mapping;
	const struct compute_ops *compute_ops;
};

/** Messages of a batch that wait for their events. */
#define PUBLISH_QUEUE 16u

/** The last page of a slot's sequence that was put into a batch's queue. */
struct publish_queued {
	uint64_t version; /* of the page table */
	uint32_t end;     /* pages */
	uint32_t number;  /* of the message */
};

/** Messages of a batch that wait for their events, the oldest at `first`. */
struct publish_queue {
	struct publish_message *messages; /* [PUBLISH_QUEUE] */
	struct publish_queued *queued;    /* [slots of the pool]; valid while the message is in the queue */
	uint32_t first, n;
	uint32_t first_number; /* of the oldest message */
};

#define BATCH_NO_ROW UINT32_MAX

/** The sequence of a row, as of the last read of its slot. */
struct batch_row {
	paged_seq_id id; /* 0: an explicit table, or nothing yet */
	uint64_t version;
	uint32_t n_entries; /* copied and checked */
	uint32_t capacity;  /* tokens */
	uint32_t owner;
	uint32_t writable_from; /* UINT32_MAX: nothing may be written, the sequence was given away */
	uint32_t first;         /* pages at the beginning that were given back: their entries are REGION_NO_PAGE */
};

/**
 * A plan and its buffers.
 *
 * All buffers are in one mapping, from paged_batch_create() to batch_free();
 * the kernel allocates its pages as plans touch them.  Row r keeps its copy of
 * a sequence's page table from plan to plan.  While row r has the same sequence
 * and no entry of its page table was replaced, a plan copies only new entries.
 */
struct paged_batch {
	struct paged_pool *pool;
	LIST_ENTRY(paged_batch) link;
	struct kernel_team *team;
	void *backend_state; /* state of the back end */
	struct paged_mod_set *mod_sets;
	uint32_t max_rows;
	uint32_t reserve_ahead;  /* tokens */
	uint64_t ahead_after_ms; /* no reserve-ahead before this time: there were no pages, or a reply is outstanding */
	/* The first sequence of the last reserve-ahead, and its capacity then. */
	paged_seq_id ahead_seq;
	uint32_t ahead_capacity;

	void *buffer;
	size_t buffer_size;
	struct batch_row *row;                /* [max_rows] */
	struct kernel_row *kernel_row;        /* [max_rows] */
	uint32_t *pages_missing;              /* [max_rows] pages that the last refused plan lacked */
	uint32_t *short_seqs;                 /* [max_rows] rows whose sequence has too little capacity */
	struct paged_seq_item *reserve_items; /* [max_rows] items of a request */
	uint64_t *writer;      /* [pages of the pool] last pass over the rows that found a row that writes the page */
	uint64_t *row_pass;    /* [slots of the pool] last pass over the rows that found a row of the slot's sequence */
	uint32_t *table;       /* [max_rows][table_stride] */
	uint64_t table_stride; /* entries */
	struct publish_queue publish_queue; /* on a GPU */

	/* The plan. */
	bool planned;
	bool on_device; /* the lengths are in device memory; those in kernel_row are upper bounds */
	bool has_missing;
	bool restricted; /* rows may write less than the back end knows */
	uint32_t n_rows;
	uint64_t total_q;
	uint32_t uniform_q_len;      /* q_len of every row; 0: they differ */
	uint32_t bad_row_foreign;    /* first row that appends to a sequence of another session, or to one given away */
	uint32_t bad_row_unwritable; /* first row whose default positions must not be written */
	uint32_t bad_row_wide;       /* first row whose q_idx or kv_idx exceeds the 32-bit ints of mods */
	/* The first two rows that would append to the same token; bad_row_duplicate is BATCH_NO_ROW: none. */
	uint32_t bad_row_duplicate, duplicate_of;
	uint32_t duplicate_position; /* of bad_row_duplicate */
	uint64_t plan_number;        /* from 1 on */
	uint64_t writer_pass; /* number of the current pass over the rows, for `writer` and `row_pass`; from 1 on */
	uint32_t n_distinct;  /* the last check found distinct sequences in rows [0, n_distinct); 0: unknown */
	/* An append wrote tokens that were published or shared meanwhile; status PAGED_OK: none. */
	struct paged_error overtaken;
	/* PAGED_ERR_RANGE from mod sets that were rebound or destroyed since the plan; status PAGED_OK: none. */
	struct paged_error mod_range_error;
};

/** batch_row_is_foreign - true: this session may not write to row r's sequence: it is another's, or was given away */
static inline bool
batch_row_is_foreign(const struct paged_batch *batch, uint32_t r)
{
	const struct batch_row *row = &batch->row[r];

	return row->id != 0 && (row->owner != batch->pool->client->owner->session || row->writable_from == UINT32_MAX);
}

/** batch_row_fail_foreign - the error for a row that batch_row_is_foreign() and that is written */
enum paged_status batch_row_fail_foreign(const struct paged_batch *batch, uint32_t r, struct paged_error *error);

/** A parsed expression. */
struct paged_mod {
	struct paged_pool *pool;
	struct paged_mod *next;
	struct mod *mod;
};

/**
 * A mask mod and a score mod bound for one batch.
 *
 * It has a binding for each mod and scratch memory for the batch's threads.
 * The bindings are allocated with it, empty at first, so a bind changes them in
 * place and allocates nothing.
 */
struct paged_mod_set {
	struct paged_batch *batch;
	struct paged_mod_set *next;
	struct mod_binding *mask; /* NULL: none */
	struct mod_binding *score;
	struct kernel_mod_set *kernel;
	struct cuda_mod_set *device;   /* state on the device; NULL on the host */
	bool bound;                    /* every name that the mods use is bound */
	struct array_values *narrowed; /* 32-bit copies of the bound PAGED_I64 arrays */
	const struct paged_block_mask *blocks;
	/* Plan number and query heads that the block mask was last checked against; checked_plan 0: none yet. */
	uint64_t checked_plan;
	uint32_t checked_heads;
};

/**
 * A block mask.
 *
 * A physical mask keeps a copy of the logical mask that it was made from.  The
 * copy has the physical mask's rows and is clipped to the rows' lengths.  For
 * each row, a physical mask also keeps the sequence and the version of the page
 * table that was read; these detect a stale mask.
 * A mask is immutable, except that its copy in device memory is created when it
 * is first bound.
 */
struct paged_block_mask {
	struct paged_pool *pool;
	LIST_ENTRY(paged_block_mask) link;
	struct block_mask *logical;
	struct block_mask *physical; /* NULL: a logical mask */
	/* Arrays of [n_rows] for a physical mask; 0 and NULL for a logical one. */
	uint32_t n_rows;
	paged_seq_id *seq; /* 0: an explicit table */
	uint64_t *version;
	struct cuda_block_mask_device *device; /* a copy in a GPU's memory; NULL: none yet */
};

/** A reader of the ring of changes. */
struct paged_watch {
	struct paged_pool *pool;
	LIST_ENTRY(paged_watch) link;
	uint64_t position; /* number of the last change that was read, or that precedes the next walk */
	uint64_t n_lost;
};

/** pool_client - the pool's client; NULL if the pool is NULL, which client_enter() refuses */
static inline struct paged_client *
pool_client(const struct paged_pool *pool)
{
	return pool != NULL ? pool->client : NULL;
}

static inline struct paged_client *
batch_client(const struct paged_batch *batch)
{
	return batch != NULL ? batch->pool->client : NULL;
}

static inline uint32_t
batch_pages(const struct paged_batch *batch, uint32_t n_tokens)
{
	uint32_t page_size = batch->pool->mapping.view.page_size;

	return n_tokens / page_size + (n_tokens % page_size != 0);
}

/** block_mask_pool - the mask's pool; NULL if the mask is NULL, which client_enter() refuses */
static inline struct paged_pool *
block_mask_pool(const struct paged_block_mask *mask)
{
	return mask != NULL ? mask->pool : NULL;
}

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

#endif
