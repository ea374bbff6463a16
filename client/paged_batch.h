/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_batch.h - batches and their plans
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * A batch holds one plan at a time: the rows (sequences) of one step, with their
 * lengths and page tables.  Plan once per step, then call paged_append() and
 * paged_attention() once per layer (paged_attention.h).  A call that needs a
 * plan returns PAGED_ERR_INVALID if the batch has none.
 */
#ifndef PAGED_BATCH_H
#define PAGED_BATCH_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct paged_batch_params {
	size_t struct_size;
	/** Most rows of a plan, at most PAGED_MAX_REQUEST_SEQS.  0: 256. */
	uint32_t max_rows;
	/**
	 * 0, the default: the caller reserves.  Else tokens to keep reserved beyond
	 * what a plan uses, so that steady decoding never waits for the daemon.  When fewer tokens are reserved for a
	 * row, the plan requests the next pages without waiting.  The request raises every row to 2 * reserve_ahead
	 * tokens beyond its kv_len (never past max_length), so that the rows need their next request at the same time,
	 * and a batch sends about one request in reserve_ahead steps.  A client has at most one such request
	 * outstanding.  While an eighth of the pool's pages or less is free, nothing is requested ahead; the plan
	 * reserves what it needs and waits for it.
	 */
	uint32_t reserve_ahead;
	/**
	 * Only for pools in GPU memory, where it sizes the batch's buffers: most
	 * query rows of a plan, all sequences together.  0: 512, or max_rows if
	 * that is more.
	 */
	uint32_t max_q_tokens;
	/**
	 * Only for pools in GPU memory: most heads of q, at least the KV heads.
	 * 0: 8 per KV head; 128 if V lies in K.
	 */
	uint32_t max_q_heads;
};

/**
 * paged_batch_create - allocate a batch with all buffers that its steps need
 *
 * @param[in]  params   NULL: defaults
 * @param[out] batch_p  written on PAGED_OK only; caller destroys it with paged_batch_destroy()
 * @retval PAGED_ERR_LIMIT    max_rows is too large
 * @retval PAGED_ERR_BACKEND  the GPU has no memory for the buffers, or its driver failed
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session
 */
enum paged_status paged_batch_create(struct paged_pool *pool, const struct paged_batch_params *params,
				     struct paged_batch **batch_p);

/**
 * paged_batch_destroy - free a batch and its mod sets; takes NULL
 *
 * On a GPU, all work that the batch has put on its stream must have ended, also
 * work of a plan that failed: call paged_batch_finish() first.
 */
void paged_batch_destroy(struct paged_batch *batch);

/** q_base of the row is valid; without it q_base is kv_len - q_len. */
#define PAGED_ROW_Q_BASE 1u
/** paged_append() skips this row (reading another session's sequence, cross-attention). */
#define PAGED_ROW_NO_APPEND 2u
/** b of the row is valid; without it mods see the row's index in the plan. */
#define PAGED_ROW_B 4u

/** One sequence's part of a batch.  Zero unused fields. */
struct paged_batch_row {
	paged_seq_id seq;
	/**
	 * Instead of seq, an explicit page table: n_pages physical pages, copied
	 * by the plan.  The library checks that each entry is a page of the pool,
	 * except for entries of pages that lie wholly before kv_first: these may be any number, and no call reads
	 * or writes such a page.  The caller ensures that the pages belong to the right sequence and that
	 * nothing else writes them.
	 */
	const uint32_t *pages;
	uint32_t n_pages;
	/** Query rows of this row in the packed tensors.  0: the row is idle in this step. */
	uint32_t q_len;
	/** Tokens of the sequence, including those that this step appends.  Attention reads no key at or past it. */
	uint32_t kv_len;
	uint32_t flags;
	/** With PAGED_ROW_Q_BASE: q_idx of the first query row. */
	int64_t q_base;
	/**
	 * With PAGED_ROW_B: the value that mods see as b, at most 2^31 - 1.  A
	 * sequence that keeps its b while others come and go finds its data at the
	 * same index of captured arrays.  Several rows may have the same b.
	 */
	uint32_t b;
	/**
	 * Attention reads no key before this token, at most kv_len.  The keys that a query sees are
	 * [kv_first, kv_len), restricted further by the mask, mods and block mask.  It counts tokens and need not begin
	 * a page.  0: all keys.  For a trimmed sequence (paged_seq_trim()) the plan takes its first page's beginning,
	 * if that is later.
	 */
	uint32_t kv_first;
	uint32_t reserved[4];
};

/**
 * paged_batch_plan - set rows, lengths and page tables for one step
 *
 * The plan reads the page tables from shared memory.  It allocates nothing and
 * sends no request, except with reserve_ahead; its only other system calls are
 * one check of the channels to the daemon per second.  If a row's capacity is
 * too small and the batch has reserve_ahead, the plan reserves the missing
 * pages and waits for the daemon, up to timeout_ms; it may then also return any
 * status of paged_seq_reserve().  After a failure the batch has no plan.
 *
 * @param[in] rows  n_rows; not kept, explicit page tables are copied
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity, and the batch cannot reserve:
 *                             reserve_ahead is 0, the sequence belongs to another
 *                             session, or the row has explicit pages
 * @retval PAGED_ERR_FULL      the pool lacks pages; paged_batch_pages_missing() names the
 *                             rows to leave out.  Plan again without them
 * @retval PAGED_ERR_QUOTA     the session's tenant may not have the pages, whether or not some are free;
 *                             paged_batch_pages_missing() names the last row that lacks some
 * @retval PAGED_ERR_INVALID   also: an id belongs to another pool, or a kv_first exceeds its kv_len
 * @retval PAGED_ERR_STALE     an id names no live sequence, or all tokens before kv_len were given back
 * @retval PAGED_ERR_PERM      an id is of paged_pages_hold(): a hold's pages have no order
 * @retval PAGED_ERR_LIMIT     more rows than max_rows, kv_len or n_pages past max_length,
 *                             or, on a GPU, more query rows than max_q_tokens
 * @retval PAGED_ERR_RANGE     an entry of a page table that is not wholly before kv_first is outside the pool
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 * @retval PAGED_ERR_AGAIN     the owner is changing a page table; call again
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: use paged_batch_plan_device()
 */
enum paged_status paged_batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows);

/**
 * paged_batch_pages_missing - number of pages that row `row` of the last refused plan lacks
 *
 * 0: the row lacks none, or the free pages suffice for it.  Free pages are
 * assigned to rows in plan order, so put the most urgent rows first.
 * The rows with 0 can be planned together, unless other sessions have taken the
 * pages meanwhile.  After PAGED_ERR_QUOTA only the last row that lacks pages is
 * named, because the library does not know how many pages the limit leaves:
 * plan without that row, until a plan succeeds.
 */
uint32_t paged_batch_pages_missing(const struct paged_batch *batch, size_t row);

/**
 * paged_batch_stream - set the CUDA stream on which this batch runs from now on
 *
 * A new batch uses the legacy default stream.  The call discards the plan: plan
 * again.  The batch's buffers are reused, so work on the old stream must have
 * ended, or the new stream must wait for it (with an event).
 *
 * @param[in] stream  CUstream or cudaStream_t of the pool's device; borrowed
 *                    until another is set or the batch is destroyed.  NULL: the
 *                    legacy default stream; the only value for a pool in host
 *                    memory
 * @retval PAGED_ERR_UNSUPPORTED  a stream for a pool in host memory
 */
enum paged_status paged_batch_stream(struct paged_batch *batch, void *stream);

struct paged_plan_device_params {
	size_t struct_size;
	size_t n_rows;
	/**
	 * [n_rows] in host memory: seq or pages, flags without PAGED_ROW_Q_BASE,
	 * and b.  q_len and kv_len are upper bounds of the lengths on the device;
	 * capacity is checked and reserved for these bounds.  A row that may be
	 * empty has neither seq nor pages, and bounds of 0.
	 */
	const struct paged_batch_row *rows;
	/* Device addresses, aligned to 4 bytes: */
	/** [n_rows + 1] first query row of each row in the packed tensors, and the end of the last row. */
	const int32_t *q_indptr;
	/** [n_rows] as paged_batch_row.kv_len, also for rows without query rows. */
	const int32_t *kv_len;
	/** [n_rows] q_idx of each row's first query row.  NULL: kv_len - q_len. */
	const int32_t *q_base;
	/** 1: only update the page tables, for the next replay of a captured plan; launch nothing. */
	uint32_t tables_only;
	uint32_t reserved; /* 0 */
};

/**
 * paged_batch_plan_device - paged_batch_plan() with lengths in GPU memory
 *
 * For lengths that earlier kernels on the stream compute, and for CUDA graphs
 * (paged_marks.h, Graphs).  The lengths must not change until the last kernel of
 * the plan has ended.  The host knows only their bounds: tensors have as many query
 * rows as the bounds of q_len add up to, and block masks and exported page tables
 * cover the bounds.  paged_batch_validate() reports rows that exceed their bounds;
 * they are not computed.
 *
 * @param[in] params  required
 * @retval PAGED_ERR_LIMIT        also: the bounds of q_len add up to more than max_q_tokens
 * @retval PAGED_ERR_PERM         tables_only, and a captured append would write
 *                                to another session's sequence
 * @retval PAGED_ERR_UNSUPPORTED  the pool is in host memory; or tables_only while
 *                                the stream is being captured
 * Other statuses as for paged_batch_plan().
 */
enum paged_status paged_batch_plan_device(struct paged_batch *batch, const struct paged_plan_device_params *params);

/**
 * paged_batch_validate - check after the kernels that what they read was valid
 *
 * Call it if rows read sequences of other sessions, which may have changed
 * meanwhile; if mods read arrays; and on a GPU, where some errors are found only by
 * the device.  On a GPU it waits for the stream first.  Rows with such an error
 * were not computed.  PAGED_OK also means that the daemon was alive after these
 * reads; asking costs one system call.
 *
 * @retval PAGED_ERR_STALE     page table entries of a planned sequence were replaced
 *                             or removed since the plan, also by a truncate of
 *                             pages past the plan's, or inside a page: results of
 *                             that row are void.  Also, in host memory: tokens were
 *                             published or shared while paged_append() wrote them,
 *                             so other processes may read other values than the
 *                             tokens stand for
 * @retval PAGED_ERR_RANGE     a mod read an array out of bounds since the plan, for a key
 *                             that is not otherwise masked out; the mod got 0.  The message
 *                             names array, index and bounds.  On a GPU also: an
 *                             invalid length or position, with its row
 * @retval PAGED_ERR_CAPACITY  on a GPU: a length or position exceeds a row's pages
 * @retval PAGED_ERR_PERM      on a GPU: an append before a row's writable_from, or to
 *                             another session's sequence; it wrote nothing there
 * @retval PAGED_ERR_LIMIT     on a GPU: more work than the batch's buffers hold
 * @retval PAGED_ERR_BACKEND   on a GPU: an error of its driver
 * @retval PAGED_ERR_UNSUPPORTED  on a GPU: the stream is being captured
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 */
enum paged_status paged_batch_validate(struct paged_batch *batch);

/**
 * paged_batch_tables_csr - copy the plan's page tables in FlashInfer's format
 *
 * Entries of pages that lie wholly before a row's kv_first, or were given back by paged_seq_trim(), are 0: another
 * kernel must mask the keys before kv_first, as it masks those outside a window.
 * indptr, last_page_len, and indices with n_indices 0, may be NULL: not wanted.
 *
 * @param[out] indptr         [n_rows + 1] first entry of each row in indices, and the end of the last
 * @param[out] indices        [n_indices] physical pages of all rows, in plan order
 * @param[out] last_page_len  [n_rows] tokens in the last page, 1 to page_size; 0 for a row without tokens
 * @param[out] n_needed       entries that indices needs; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  indices is too short; n_needed is written
 */
enum paged_status paged_batch_tables_csr(const struct paged_batch *batch, int32_t *indptr, int32_t *indices,
					 size_t n_indices, int32_t *last_page_len, size_t *n_needed);

/**
 * paged_batch_tables_padded - copy the plan's page tables in the format of vLLM and FlashAttention
 *
 * @param[out] table   [n_rows][width] physical pages of each row; entries past the row's own are 0
 *                     (a kernel that has kv_len never reads them), as are those of pages that lie wholly
 *                     before its kv_first or were given back by paged_seq_trim(): the kernel must mask their keys
 * @param[out] kv_len  [n_rows] tokens; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  a row has more pages than width
 */
enum paged_status paged_batch_tables_padded(const struct paged_batch *batch, int32_t *table, size_t width,
					    int32_t *kv_len);

/**
 * paged_batch_kv_first - the first key that attention reads in each row of the plan
 *
 * A row's own kv_first, or the first token of a trimmed sequence if that is later.
 *
 * @param[out] kv_first  [n_rows] tokens
 */
enum paged_status paged_batch_kv_first(const struct paged_batch *batch, uint32_t *kv_first);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
