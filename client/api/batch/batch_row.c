/* SPDX-License-Identifier: Apache-2.0 */
/* A row's copy of its page table. */
#include "config.h"

#include "client/api/batch/batch.h"
#include "client/api/pool_read.h"
#include "client/api/seq/publishing.h"

/*
 * Copies entries [row->n_entries, n) of the sequence's page table.  Returns false if they changed during the copy.
 * *bad_p is the index of the first entry that is not a page of the pool, or n.
 */
static bool
batch_row_copy_entries(struct paged_batch *batch, uint32_t r, uint32_t n, const struct region_snapshot *snapshot,
		       uint32_t *bad_p)
{
	const struct region_view *view = &batch->pool->mapping.view;
	struct batch_row *row = &batch->row[r];
	const _Atomic uint32_t *from = region_page_table(view, PAGED_SEQ_SLOT(row->id));
	uint32_t *to = batch->table + r * batch->table_stride;
	uint32_t i;

	for (i = row->n_entries; i < n; i++) {
		to[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
		if (to[i] >= view->n_pages)
			break;
	}
	if (!region_snapshot_valid(view, row->id, snapshot))
		return false;
	row->n_entries = i;
	*bad_p = i;
	return true;
}

/* Begins to copy a page table: the entries of pages that were given back are not read, and no call uses them. */
static void
batch_row_begin(struct paged_batch *batch, uint32_t r, paged_seq_id id, const struct region_snapshot *snapshot)
{
	struct batch_row *row = &batch->row[r];
	uint32_t *to = batch->table + r * batch->table_stride;
	uint32_t from = row->id == id ? row->first : 0;

	if (row->id != id || row->version != snapshot->version)
		*row = (struct batch_row){ .id = id, .version = snapshot->version };
	for (uint32_t i = from; i < snapshot->first; i++)
		to[i] = REGION_NO_PAGE;
	row->first = snapshot->first;
	if (row->n_entries < row->first)
		row->n_entries = row->first;
}

enum paged_status
batch_row_refresh(struct paged_batch *batch, uint32_t r, paged_seq_id id, struct paged_error *error)
{
	const struct region_view *view = &batch->pool->mapping.view;
	struct batch_row *row = &batch->row[r];
	struct region_snapshot snapshot;
	unsigned int attempt = 0;
	uint32_t n, bad, writable_from;
	enum paged_status status = pool_check_seq(batch->pool, id, error);

	if (status != PAGED_OK)
		return status;
	do {
		status = pool_snapshot(batch->pool, id, &attempt, &snapshot, error);
		if (status == PAGED_OK && (snapshot.flags & REGION_SLOT_HOLD))
			status = paged_fail(error, PAGED_ERR_PERM,
					    "row %u: sequence " SEQ_FORMAT
					    " is a hold, whose pages have no order: it cannot be planned",
					    r, SEQ_ARGS(id));
		if (status != PAGED_OK)
			return status;
		writable_from = publishing_writable_from(batch->pool, id, snapshot.version, snapshot.writable_from);
		if (row->id != id || row->version != snapshot.version) {
			if (row->id != id)
				batch->n_distinct = 0;
		} else if (row->capacity == snapshot.capacity && row->owner == snapshot.owner &&
			   row->writable_from == writable_from) {
			return PAGED_OK;
		}
		batch_row_begin(batch, r, id, &snapshot);
		n = snapshot.capacity / view->page_size;
	} while (!batch_row_copy_entries(batch, r, n, &snapshot, &bad));
	if (bad < n)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "row %u: logical page %u of sequence " SEQ_FORMAT
				  " is physical page %u of a pool of %u",
				  r, bad, SEQ_ARGS(id), batch->table[r * batch->table_stride + bad], view->n_pages);
	row->capacity = n * view->page_size;
	row->owner = snapshot.owner;
	row->writable_from = writable_from;
	return PAGED_OK;
}

enum paged_status
batch_row_set_first(struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];
	struct kernel_row *to = &batch->kernel_row[r];
	uint32_t first = row->first * batch->pool->mapping.view.page_size;

	if (to->kv_first >= first || to->kv_len == 0)
		return PAGED_OK;
	if (to->kv_len < first)
		return paged_fail(error, PAGED_ERR_STALE,
				  "row %u: the tokens before %u of sequence " SEQ_FORMAT
				  " were given back, so it cannot end at kv_len %u",
				  r, first, SEQ_ARGS(row->id), to->kv_len);
	to->kv_first = first;
	return PAGED_OK;
}

enum paged_status
batch_row_fail_foreign(const struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];
	uint32_t session = batch->pool->client->owner->session;

	if (row->writable_from == UINT32_MAX)
		return paged_fail(error, PAGED_ERR_PERM,
				  "row %u: sequence " SEQ_FORMAT
				  " was given away: until it is adopted or returned it can be read only",
				  r, SEQ_ARGS(row->id));
	return paged_fail(error, PAGED_ERR_PERM,
			  "row %u: sequence " SEQ_FORMAT " belongs to session %u, this is session %u", r,
			  SEQ_ARGS(row->id), row->owner, session);
}

enum paged_status
batch_row_take_pages(struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from,
		     struct paged_error *error)
{
	const struct region_view *view = &batch->pool->mapping.view;
	uint32_t *to = batch->table + r * batch->table_stride, first = from->kv_first / view->page_size;

	if (from->n_pages > view->table_entries)
		return paged_fail(error, PAGED_ERR_LIMIT, "row %u: %u pages exceed the %u that max_length %u takes", r,
				  from->n_pages, view->table_entries, view->max_length);
	batch->n_distinct = 0;
	/* Entries before `first` may be no pages, so append must not use them. */
	batch->row[r] = (struct batch_row){ .capacity = from->n_pages * view->page_size,
					    .writable_from = first * view->page_size };
	for (uint32_t i = 0; i < from->n_pages; i++) {
		to[i] = from->pages[i];
		if (i >= first && to[i] >= view->n_pages)
			return paged_fail(error, PAGED_ERR_RANGE, "row %u: pages[%u] is %u, the pool has %u pages", r,
					  i, to[i], view->n_pages);
	}
	if (from->kv_len > batch->row[r].capacity)
		return paged_fail(error, PAGED_ERR_CAPACITY, "row %u: kv_len %u exceeds the %u tokens of its %u pages",
				  r, from->kv_len, batch->row[r].capacity, from->n_pages);
	return PAGED_OK;
}

enum paged_status
batch_row_fail_invalid(const struct paged_batch_row *row, const char *what, size_t r, struct paged_error *error)
{
	if ((row->flags & ~(PAGED_ROW_Q_BASE | PAGED_ROW_NO_APPEND | PAGED_ROW_B)) != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%srow %zu: flags 0x%x has bits this library does not know",
				  what, r, row->flags);
	if (!client_is_zero(row->reserved, sizeof(row->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "%srow %zu: reserved words must be 0", what, r);
	if ((row->flags & PAGED_ROW_B) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%srow %zu: b is %u without its flag PAGED_ROW_B", what, r,
				  row->b);
	return paged_fail(error, PAGED_ERR_INVALID, "%srow %zu: b is %u, and 2^31 - 1 is the most", what, r, row->b);
}
