/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan's rows may still write.  A sequence may have been published, forked, given away or changed since the plan
 * was made, so append reads the rows' slots again: one cache line for each row that it writes.
 */
#include "config.h"

#include "client/api/batch/batch.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/api/seq/publishing.h"

/* Does the row differ from its sequence's slot in what append depends on?  A hold is not planned. */
static bool
row_has_changed(const struct paged_batch *batch, const struct batch_row *row, bool publishing)
{
	const struct region_view *view = &batch->pool->mapping.view;
	const struct region_slot *slot = region_slot(view, PAGED_SEQ_SLOT(row->id));

	if (row->writable_from == UINT32_MAX)
		return false;
	return publishing || atomic_load_explicit(&slot->writable_from, memory_order_acquire) > row->writable_from ||
	       atomic_load_explicit(&slot->flags, memory_order_relaxed) != 0 ||
	       atomic_load_explicit(&slot->version, memory_order_relaxed) != row->version;
}

/* The row may write less than at the plan: find out whether append must refuse it. */
static void
row_restrict(struct paged_batch *batch, uint32_t r, uint32_t writable_from)
{
	const struct kernel_row *to = &batch->kernel_row[r];

	batch->row[r].writable_from = writable_from;
	batch->restricted = true;
	if (writable_from == UINT32_MAX)
		batch->bad_row_foreign = MIN(batch->bad_row_foreign, r);
	/* Lengths in device memory are checked by the append kernel. */
	else if (!batch->on_device && (to->q_len > to->kv_len || to->kv_len - to->q_len < writable_from))
		batch->bad_row_unwritable = MIN(batch->bad_row_unwritable, r);
}

static enum paged_status
row_read_again(struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];
	const struct region_slot *slot = region_slot(&batch->pool->mapping.view, PAGED_SEQ_SLOT(row->id));
	uint32_t writable_from = atomic_load_explicit(&slot->writable_from, memory_order_acquire);
	struct region_snapshot snapshot = { .version = row->version };
	enum paged_status status;

	if (atomic_load_explicit(&slot->flags, memory_order_relaxed) & REGION_SLOT_FROZEN)
		writable_from = UINT32_MAX;
	if (!region_snapshot_valid(&batch->pool->mapping.view, row->id, &snapshot)) {
		/* The end of the session also removes pages; its notice arrives first, so report it instead. */
		status = pool_check_owner(batch->pool, error);
		if (status != PAGED_OK)
			return status;
		return paged_fail(error, PAGED_ERR_STALE,
				  "row %u: sequence " SEQ_FORMAT
				  " was given away, truncated, trimmed or erased since the plan: plan again",
				  r, SEQ_ARGS(row->id));
	}
	writable_from = publishing_writable_from(batch->pool, row->id, row->version, writable_from);
	if (writable_from > row->writable_from)
		row_restrict(batch, r, writable_from);
	return PAGED_OK;
}

enum paged_status
batch_protect(struct paged_batch *batch, struct paged_error *error)
{
	/* Asked before the slots are read: what is answered in between is in the slots. */
	bool publishing = publishing_any(batch->pool);
	enum paged_status status = PAGED_OK, row_status, protect_status;
	struct paged_error other;

	for (uint32_t r = 0; status != PAGED_ERR_GONE && r < batch->n_rows; r++) {
		const struct kernel_row *to = &batch->kernel_row[r];

		if (batch->row[r].id == 0 || to->q_len == 0 || to->skip_append ||
		    !row_has_changed(batch, &batch->row[r], publishing))
			continue;
		/* A graph's replay may leave out the row that fails, so the others are protected all the same. */
		row_status = row_read_again(batch, r, status == PAGED_OK ? error : &other);
		if (status == PAGED_OK)
			status = row_status;
	}
	if (!batch->restricted || status == PAGED_ERR_GONE)
		return status;
	protect_status = batch->pool->compute_ops->protect(batch, status == PAGED_OK ? error : &other);
	if (protect_status == PAGED_OK)
		batch->restricted = false;
	return status == PAGED_OK ? protect_status : status;
}

enum paged_status
batch_protect_graphs(struct paged_batch *batch, struct paged_error *error)
{
	enum paged_status status;

	if (!batch->planned || !batch->on_device)
		return PAGED_OK;
	status = batch_protect(batch, error);
	return status == PAGED_ERR_STALE || status == PAGED_ERR_GONE ? PAGED_OK : status;
}
