/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for the rows of a plan: reserved now if a sequence is too short, or ahead of need. */
#include "config.h"

#include <sys/param.h>

#include "client/api/batch/batch.h"

/* No reserve-ahead for this time after the owner refused one, or nothing came of it. */
#define AHEAD_PAUSE_MS 100u
/*
 * Interval at which an outstanding reply is looked for, which costs system
 * calls.  A success needs no reply: it shows in the page table.
 */
#define AHEAD_POLL_INTERVAL_MS 10u

/*
 * Add a sequence to the request.  Two rows of one sequence become one item with
 * the larger n_tokens.  The search is linear, because requests are rare and
 * mostly short.
 */
static uint32_t
reserve_item_add(struct paged_batch *batch, uint32_t n, uint32_t r, uint64_t n_ahead)
{
	struct paged_seq_item item = {
		.seq = batch->row[r].id,
		.n_tokens = batch->kernel_row[r].kv_len,
		.n_ahead = (uint32_t)MIN(n_ahead, UINT32_MAX),
	};

	for (uint32_t i = 0; i < n; i++) {
		if (batch->reserve_items[i].seq != item.seq)
			continue;
		if (batch->reserve_items[i].n_tokens < item.n_tokens)
			batch->reserve_items[i] = item;
		return n;
	}
	batch->reserve_items[n] = item;
	return n + 1;
}

static enum paged_status
batch_row_fail_capacity(const struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];

	return paged_fail(error, PAGED_ERR_CAPACITY,
			  "row %u: kv_len %u exceeds the %u tokens that sequence " SEQ_FORMAT " has reserved", r,
			  batch->kernel_row[r].kv_len, row->capacity, SEQ_ARGS(row->id));
}

/* Fail if a row's capacity cannot be increased by a request of this client. */
static enum paged_status
short_seqs_check(const struct paged_batch *batch, uint32_t n_short, struct paged_error *error)
{
	uint32_t max_length = batch->pool->mapping.view.max_length;

	for (uint32_t i = 0; i < n_short; i++) {
		uint32_t r = batch->short_seqs[i], kv_len = batch->kernel_row[r].kv_len;

		if (kv_len > max_length)
			return paged_fail(error, PAGED_ERR_LIMIT, "row %u: kv_len %u exceeds max_length %u of pool %s",
					  r, kv_len, max_length, batch->pool->mapping.name);
		if (batch->reserve_ahead == 0 || batch_row_is_foreign(batch, r))
			return batch_row_fail_capacity(batch, r, error);
	}
	return PAGED_OK;
}

/*
 * Fill batch->pages_missing after the owner refused the reserve.  The available pages are
 * assigned to the rows in order, and only rows for which they do not suffice are
 * reported, so that rows which grow in lockstep do not all wait for the last
 * page.  If pages became available since the refusal and suffice for all rows, the
 * last row is reported, because a refusal must name at least one row.
 */
static void
pages_missing_fill(struct paged_batch *batch, uint32_t n_short, uint32_t n_available)
{
	for (uint32_t i = 0; i < n_short; i++) {
		uint32_t r = batch->short_seqs[i];
		uint32_t n_missing = batch_pages(batch, batch->kernel_row[r].kv_len) - batch->row[r].n_entries;

		if (n_missing <= n_available && (batch->has_missing || i + 1 < n_short)) {
			n_available -= n_missing;
			continue;
		}
		batch->pages_missing[r] = n_missing;
		batch->has_missing = true;
	}
}

enum paged_status
batch_reserve(struct paged_batch *batch, uint32_t n_short, struct paged_error *error)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = short_seqs_check(batch, n_short, error);
	uint32_t n = 0;

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n_short; i++)
		n = reserve_item_add(batch, n, batch->short_seqs[i], batch->reserve_ahead);
	client_lock(client);
	status = client->owner->ops->reserve(client->owner, n, batch->reserve_items, error);
	client_unlock(client);
	if (status == PAGED_ERR_FULL)
		pages_missing_fill(batch, n_short, region_available_pages(batch->pool->mapping.view.header));
	else if (status == PAGED_ERR_QUOTA) /* the owner alone knows what the limit leaves: report the last row */
		pages_missing_fill(batch, n_short, UINT32_MAX);
	for (uint32_t i = 0; status == PAGED_OK && i < n_short; i++) {
		uint32_t r = batch->short_seqs[i];

		status = batch_row_refresh(batch, r, batch->row[r].id, error);
		if (status == PAGED_OK && batch->kernel_row[r].kv_len > batch->row[r].capacity)
			status = batch_row_fail_capacity(batch, r, error);
		if (status == PAGED_OK)
			status = batch_row_set_first(batch, r, error);
	}
	return status;
}

void
batch_reserve_ahead(struct paged_batch *batch, uint64_t now_ms)
{
	const struct region_header *header = batch->pool->mapping.view.header;
	struct paged_client *client = batch->pool->client;
	const uint64_t n_ahead = 2 * (uint64_t)batch->reserve_ahead;
	enum paged_status status;
	struct paged_error error;
	uint32_t n = 0, first = 0;

	/* The owner reserves ahead only from spare pages. */
	if (region_spare_pages(header->n_pages, region_available_pages(header)) == 0) {
		batch->ahead_after_ms = now_ms + AHEAD_POLL_INTERVAL_MS;
		return;
	}
	/*
	 * Top up every row with room for less than twice the reserve.  Rows that
	 * started at different lengths then share later requests, and the batch's
	 * requests are reserve_ahead steps apart.
	 */
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		if (!batch_row_needs_reserve(batch, r, n_ahead))
			continue;
		if (n == 0)
			first = r;
		n = reserve_item_add(batch, n, r, n_ahead);
	}
	/* If another thread uses the owner, leave the request to the next plan. */
	if (n == 0 || pthread_mutex_trylock(&client->mutex) != 0)
		return;
	status = client->owner->ops->reserve_ahead(client->owner, n, batch->reserve_items, &error);
	client_unlock(client);
	if (status == PAGED_OK) {
		/*
		 * If nothing came of the last request, the session's tenant is at its limit, which the region does
		 * not show: do not ask in every step.
		 */
		if (batch->ahead_seq == batch->row[first].id && batch->ahead_capacity == batch->row[first].capacity)
			batch->ahead_after_ms = now_ms + AHEAD_PAUSE_MS;
		batch->ahead_seq = batch->row[first].id;
		batch->ahead_capacity = batch->row[first].capacity;
		return;
	}
	if (status == PAGED_ERR_AGAIN) {
		batch->ahead_after_ms = now_ms + AHEAD_POLL_INTERVAL_MS;
		return;
	}
	batch->ahead_after_ms = now_ms + AHEAD_PAUSE_MS;
	owner_log(client->owner, PAGED_LOG_DEBUG, "reserve ahead refused: %s", error.text);
}
