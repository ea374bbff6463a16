/* SPDX-License-Identifier: Apache-2.0 */
/* Planning a step: rows, lengths and page tables. */
#include "config.h"

#include <string.h>

#include "client/api/checking.h"
#include "client/api/batch/batch.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mods/mod_set.h"
#include "client/api/seq/publish.h"
#include "common/clock.h"

static enum paged_status
plan_check_row(const struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from,
	       struct paged_error *error)
{
	if (!batch_row_is_valid(from))
		return batch_row_fail_invalid(from, "", r, error);
	if (from->pages != NULL && from->seq != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: names both sequence " SEQ_FORMAT " and pages", r,
				  SEQ_ARGS(from->seq));
	if (batch->on_device && (from->flags & PAGED_ROW_Q_BASE) != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: its q_base is the device's to say, in the array q_base", r);
	if (from->pages == NULL && from->seq == 0 && !batch->on_device)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: names neither a sequence nor pages", r);
	if (from->kv_first > from->kv_len)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: kv_first %u exceeds its kv_len %u", r,
				  from->kv_first, from->kv_len);
	return PAGED_OK;
}

/* Find rows that append, or attention with mods, must refuse: once per plan instead of in each layer. */
static void
plan_find_bad_rows(struct paged_batch *batch, uint32_t r)
{
	const struct kernel_row *to = &batch->kernel_row[r];
	const struct batch_row *row = &batch->row[r];

	if (to->q_len == 0)
		return;
	/* Positions that mods see are 32-bit ints. */
	if (batch->bad_row_wide == BATCH_NO_ROW &&
	    (to->q_base < INT32_MIN || to->q_base > INT32_MAX - ((int64_t)to->q_len - 1) || to->kv_len > INT32_MAX))
		batch->bad_row_wide = r;
	if (to->skip_append)
		return;
	if (batch->bad_row_foreign == BATCH_NO_ROW && batch_row_is_foreign(batch, r))
		batch->bad_row_foreign = r;
	/* Lengths in device memory are checked by the append kernel. */
	if (batch->bad_row_unwritable == BATCH_NO_ROW && !batch->on_device &&
	    (to->q_len > to->kv_len || to->kv_len - to->q_len < row->writable_from))
		batch->bad_row_unwritable = r;
}

static enum paged_status
batch_plan_row(struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from, struct paged_error *error)
{
	enum paged_status status = plan_check_row(batch, r, from, error);

	if (status != PAGED_OK)
		return status;
	if (from->seq == 0)
		status = batch_row_take_pages(batch, r, from, error);
	else
		status = batch_row_refresh(batch, r, from->seq, error);
	if (status != PAGED_OK)
		return status;
	batch->kernel_row[r] = (struct kernel_row){
		.pages = batch->table + r * batch->table_stride,
		.q_start = batch->total_q,
		.q_base = from->flags & PAGED_ROW_Q_BASE ? from->q_base : (int64_t)from->kv_len - from->q_len,
		.q_len = from->q_len,
		.kv_len = from->kv_len,
		.kv_first = from->kv_first,
		.skip_append = (from->flags & PAGED_ROW_NO_APPEND) != 0,
		.b = (int32_t)(from->flags & PAGED_ROW_B ? from->b : r),
	};
	status = batch_row_set_first(batch, r, error);
	if (status != PAGED_OK)
		return status;
	batch->total_q += from->q_len;
	batch->uniform_q_len = r == 0 || batch->uniform_q_len == from->q_len ? from->q_len : 0;
	plan_find_bad_rows(batch, r);
	return PAGED_OK;
}

static enum paged_status
batch_plan_rows(struct paged_batch *batch, uint32_t n_rows, const struct paged_batch_row *rows, bool *wants_ahead_p,
		struct paged_error *error)
{
	bool wants_ahead = false;
	uint32_t n_short = 0;

	for (uint32_t r = 0; r < n_rows; r++) {
		enum paged_status status = batch_plan_row(batch, r, &rows[r], error);

		if (status != PAGED_OK)
			return status;
		if (rows[r].kv_len > batch->row[r].capacity)
			batch->short_seqs[n_short++] = r;
		else if (batch_row_needs_reserve(batch, r, batch->reserve_ahead))
			wants_ahead = true;
	}
	*wants_ahead_p = wants_ahead;
	return n_short == 0 ? PAGED_OK : batch_reserve(batch, n_short, error);
}

/* Does append write tokens of the row at its default positions?  If not, their page table entries may be no pages. */
static bool
plan_row_writes(const struct paged_batch *batch, uint32_t r)
{
	const struct kernel_row *row = &batch->kernel_row[r];

	return row->q_len != 0 && !row->skip_append && row->q_len <= row->kv_len &&
	       row->kv_len - row->q_len >= batch->row[r].writable_from;
}

/* Called when two rows write the same page, which is rare: find a token of logical page i of row r that both write. */
static void
plan_find_duplicate_token(struct paged_batch *batch, uint32_t r, uint32_t i)
{
	const struct kernel_row *row = &batch->kernel_row[r];
	uint32_t page_size = batch->pool->mapping.view.page_size;
	uint32_t first = i * page_size, begin = row->kv_len - row->q_len;

	begin = begin > first ? begin - first : 0;
	for (uint32_t o = 0; o < r; o++) {
		const struct kernel_row *other = &batch->kernel_row[o];
		uint32_t from = other->kv_len - other->q_len;

		for (uint32_t j = from / page_size; plan_row_writes(batch, o) && j * page_size < other->kv_len; j++) {
			uint32_t at = j * page_size, other_begin = from > at ? from - at : 0;
			uint32_t position = begin > other_begin ? begin : other_begin;

			if (other->pages[j] != row->pages[i] || position >= row->kv_len - first ||
			    position >= other->kv_len - at || position >= page_size)
				continue;
			batch->bad_row_duplicate = r;
			batch->duplicate_of = o;
			batch->duplicate_position = first + position;
			return;
		}
	}
}

/*
 * Find a token that two rows would append.  writer[page] is the last pass over
 * the rows that found a row that writes the page.
 */
static void
plan_find_duplicate(struct paged_batch *batch)
{
	uint32_t page_size = batch->pool->mapping.view.page_size, last;

	batch->writer_pass++;
	for (uint32_t r = 0; r < batch->n_rows && batch->bad_row_duplicate == BATCH_NO_ROW; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];

		if (!plan_row_writes(batch, r))
			continue;
		last = (row->kv_len - 1) / page_size;
		for (uint32_t i = row->q_len == 1 ? last : (row->kv_len - row->q_len) / page_size; i <= last; i++) {
			uint64_t *writer = &batch->writer[row->pages[i]];

			if (*writer == batch->writer_pass)
				plan_find_duplicate_token(batch, r, i);
			*writer = batch->writer_pass;
		}
	}
}

/*
 * Do all rows have different sequences?  Then no two rows write the same token, whatever their lengths:
 * pages that several sequences share are not writable.  The answer is kept while rows keep their sequences, as in
 * steady decoding.
 */
static bool
plan_rows_are_distinct(struct paged_batch *batch)
{
	if (batch->n_rows <= batch->n_distinct)
		return true;
	batch->writer_pass++;
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint64_t *pass;

		if (batch->row[r].id == 0)
			return false;
		pass = &batch->row_pass[PAGED_SEQ_SLOT(batch->row[r].id)];
		if (*pass == batch->writer_pass)
			return false;
		*pass = batch->writer_pass;
	}
	batch->n_distinct = batch->n_rows;
	return true;
}

static void
batch_plan_clear(struct paged_batch *batch, bool on_device)
{
	batch->planned = false;
	batch->on_device = on_device;
	batch->n_rows = 0;
	batch->total_q = 0;
	batch->bad_row_foreign = BATCH_NO_ROW;
	batch->bad_row_unwritable = BATCH_NO_ROW;
	batch->bad_row_wide = BATCH_NO_ROW;
	batch->bad_row_duplicate = BATCH_NO_ROW;
	batch->restricted = false;
	batch->overtaken.status = PAGED_OK;
	batch->plan_number++;
	mod_set_clear_range(batch);
	if (batch->has_missing)
		memset(batch->pages_missing, 0, batch->max_rows * sizeof(*batch->pages_missing));
	batch->has_missing = false;
}

static enum paged_status
batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows,
	   const struct compute_lengths *lengths)
{
	struct paged_client *client = batch_client(batch);
	uint64_t now = clock_coarse_ms();
	enum paged_status status = client_enter_shared(client);
	struct paged_error error;
	bool wants_ahead;

	if (batch == NULL || status == PAGED_ERR_FORK)
		return status;
	batch_plan_clear(batch, lengths != NULL);
	if (status != PAGED_OK)
		return status;
	if (n_rows > batch->max_rows)
		return client_failf(client, PAGED_ERR_LIMIT, "%zu rows exceed the batch's max_rows of %u", n_rows,
				    batch->max_rows);
	if (rows == NULL && n_rows != 0)
		return client_failf(client, PAGED_ERR_INVALID, "rows is NULL");
	status = batch_plan_rows(batch, (uint32_t)n_rows, rows, &wants_ahead, &error);
	if (status == PAGED_OK) {
		batch->n_rows = (uint32_t)n_rows;
		if (lengths == NULL && !plan_rows_are_distinct(batch))
			plan_find_duplicate(batch);
		status = batch->pool->compute_ops->plan(batch, lengths, &error);
	}
	if (status != PAGED_OK)
		return client_fail(client, &error);
	batch->planned = true;
	batch_publish_dispatch(batch);
	if (wants_ahead && now >= batch->ahead_after_ms)
		batch_reserve_ahead(batch, now);
	return PAGED_OK;
}

enum paged_status
paged_batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows)
{
	return batch_plan(batch, n_rows, rows, NULL);
}

static enum paged_status
plan_lengths_in(struct compute_lengths *to, const struct paged_plan_device_params *from, struct paged_error *error)
{
	static const char *const names[] = { "q_indptr", "kv_len", "q_base" };
	const int32_t *const arrays[] = { from->q_indptr, from->kv_len, from->q_base };

	for (unsigned int i = 0; i < 3; i++) {
		if (arrays[i] == NULL && i < 2 && from->n_rows != 0 && from->tables_only == 0)
			return paged_fail(error, PAGED_ERR_INVALID, "%s is NULL", names[i]);
		if ((uintptr_t)arrays[i] % sizeof(int32_t) != 0)
			return paged_fail(error, PAGED_ERR_INVALID, "%s is not aligned to its elements of 4 bytes",
					  names[i]);
	}
	if (from->tables_only > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "tables_only is %u, neither 0 nor 1", from->tables_only);
	if (from->reserved != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "reserved words must be 0");
	*to = (struct compute_lengths){
		.q_indptr = (uintptr_t)from->q_indptr,
		.kv_len = (uintptr_t)from->kv_len,
		.q_base = (uintptr_t)from->q_base,
		.tables_only = from->tables_only != 0,
	};
	return PAGED_OK;
}

enum paged_status
paged_batch_plan_device(struct paged_batch *batch, const struct paged_plan_device_params *params)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_plan_device_params complete;
	struct compute_lengths lengths;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	batch->planned = false;
	status = client_params_in(&complete, sizeof(complete), params, "paged_plan_device_params", &error);
	if (status == PAGED_OK)
		status = plan_lengths_in(&lengths, &complete, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	status = batch_plan(batch, complete.n_rows, complete.rows, &lengths);
	for (uint32_t r = 0; status == PAGED_OK && batch->pool->checking != NULL && r < batch->n_rows; r++)
		if (batch->row[r].id != 0)
			checking_forget(batch->pool, batch->row[r].id);
	return status;
}
