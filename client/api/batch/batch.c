/* SPDX-License-Identifier: Apache-2.0 */
/* A batch's life, its buffers, validation, and its page tables in the formats of other kernels. */
#include "config.h"

#include "client/api/batch/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mods/mod_set.h"
#include "client/api/seq/publish.h"
#include "client/owner/map_ops.h"

/* Place one array in the buffer; arrays do not share cache lines. */
static size_t
batch_buffer_place(size_t *at, size_t n, size_t size)
{
	size_t here = *at;

	*at = (here + n * size + 63) & ~(size_t)63;
	return here;
}

/* Place the queue of what waits to be published, which only batches on a GPU have; returns whether there is one. */
static bool
batch_place_publish_queue(const struct paged_batch *batch, size_t *size, size_t *messages, size_t *queued)
{
	if (!batch->pool->compute_ops->on_device)
		return false;
	*messages = batch_buffer_place(size, PUBLISH_QUEUE, sizeof(struct publish_message));
	*queued = batch_buffer_place(size, batch->pool->mapping.view.n_slots, sizeof(struct publish_queued));
	return true;
}

/* No overflow: at most 4096 rows of at most 2^30 entries. */
static enum paged_status
batch_map_buffer(struct paged_batch *batch, struct paged_error *error)
{
	size_t n = batch->max_rows, size = 0, row, kernel_row, pages_missing, short_seqs, reserve_items, writer,
	       row_pass, table, messages = 0, queued = 0;
	bool publishes;
	uint8_t *base;

	batch->table_stride = ((uint64_t)batch->pool->mapping.view.table_entries + 15) & ~(uint64_t)15;
	row = batch_buffer_place(&size, n, sizeof(*batch->row));
	kernel_row = batch_buffer_place(&size, n, sizeof(*batch->kernel_row));
	pages_missing = batch_buffer_place(&size, n, sizeof(*batch->pages_missing));
	short_seqs = batch_buffer_place(&size, n, sizeof(*batch->short_seqs));
	reserve_items = batch_buffer_place(&size, n, sizeof(*batch->reserve_items));
	writer = batch_buffer_place(&size, batch->pool->mapping.view.n_pages, sizeof(*batch->writer));
	row_pass = batch_buffer_place(&size, batch->pool->mapping.view.n_slots, sizeof(*batch->row_pass));
	table = batch_buffer_place(&size, n * batch->table_stride, sizeof(*batch->table));
	publishes = batch_place_publish_queue(batch, &size, &messages, &queued);

	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_NOMEM, "no %zu bytes for a batch of %zu rows: %s", size, n,
				  strerror(errno));
	batch->buffer = base;
	batch->buffer_size = size;
	batch->row = (struct batch_row *)(base + row);
	batch->kernel_row = (struct kernel_row *)(base + kernel_row);
	batch->pages_missing = (uint32_t *)(base + pages_missing);
	batch->short_seqs = (uint32_t *)(base + short_seqs);
	batch->reserve_items = (struct paged_seq_item *)(base + reserve_items);
	batch->writer = (uint64_t *)(base + writer);
	batch->row_pass = (uint64_t *)(base + row_pass);
	batch->table = (uint32_t *)(base + table);
	if (publishes)
		batch->publish_queue = (struct publish_queue){
			.messages = (struct publish_message *)(base + messages),
			.queued = (struct publish_queued *)(base + queued),
		};
	return PAGED_OK;
}

static enum paged_status
batch_create(struct paged_pool *pool, const struct paged_batch_params *params, struct paged_batch **batch_p,
	     struct paged_error *error)
{
	/* Each batch has its own team, because batches of one client may run in different threads at the same time. */
	struct kernel_team_params team = pool->client->team;
	struct paged_batch *batch;
	enum paged_status status;

	if (pool->compute_ops->on_device)
		team = (struct kernel_team_params){ .n_threads = 1, .isa = team.isa };
	batch = calloc(1, sizeof(*batch));
	if (batch == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a batch");
	batch->pool = pool;
	batch->max_rows = params->max_rows != 0 ? params->max_rows : BATCH_ROWS_DEFAULT;
	batch->reserve_ahead = params->reserve_ahead;
	status = batch_map_buffer(batch, error);
	if (status != PAGED_OK)
		goto err_free;
	status = kernel_team_create(&team, &batch->team, error);
	if (status != PAGED_OK)
		goto err_unmap;
	status = pool->compute_ops->batch_create(batch, params, error);
	if (status != PAGED_OK)
		goto err_team;
	*batch_p = batch;
	return PAGED_OK;

err_team:
	kernel_team_destroy(batch->team);
err_unmap:
	munmap(batch->buffer, batch->buffer_size);
err_free:
	free(batch);
	return status;
}

enum paged_status
paged_batch_create(struct paged_pool *pool, const struct paged_batch_params *params, struct paged_batch **batch_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_owner(client);
	struct paged_batch_params complete;
	struct paged_batch *batch = NULL;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (batch_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a batch needs a place for its handle");
	if (pool->mapping.tables_only)
		return client_failf(client, PAGED_ERR_UNSUPPORTED,
				    "pool %s was opened without its pages (paged_client_params.tables_only)",
				    pool->mapping.name);
	status = client_params_in(&complete, sizeof(complete), params, "paged_batch_params", &error);
	if (status == PAGED_OK && complete.max_rows > PAGED_MAX_REQUEST_SEQS)
		status = paged_fail(&error, PAGED_ERR_LIMIT, "max_rows %u exceeds %u", complete.max_rows,
				    PAGED_MAX_REQUEST_SEQS);
	if (status == PAGED_OK)
		status = batch_create(pool, &complete, &batch, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	client_lock(client);
	LIST_INSERT_HEAD(&pool->batches, batch, link);
	client_unlock(client);
	*batch_p = batch;
	return PAGED_OK;
}

/* Release the pages of a pool whose owner is gone.  No batch can be created or planned afterwards. */
static void
pool_release_pages(struct paged_pool *pool)
{
	if (owner_state(pool->client->owner) < OWNER_ENDED || pool->mapping.map == NULL || pool->mapping.pages_released)
		return;
	pool->mapping.map->release_pages(&pool->mapping);
	pool->mapping.pages_released = true;
}

void
batch_free(struct paged_batch *batch, bool in_child)
{
	LIST_REMOVE(batch, link);
	batch_publish_drop(batch);
	while (batch->mod_sets != NULL)
		mod_set_free(batch->mod_sets, in_child);
	batch->pool->compute_ops->batch_destroy(batch, in_child);
	if (in_child)
		kernel_team_abandon(batch->team);
	else
		kernel_team_destroy(batch->team);
	munmap(batch->buffer, batch->buffer_size);
	if (!in_child && LIST_EMPTY(&batch->pool->batches))
		pool_release_pages(batch->pool);
	free(batch);
}

void
paged_batch_destroy(struct paged_batch *batch)
{
	struct paged_client *client;
	bool in_child;

	if (batch == NULL)
		return;
	client = batch->pool->client;
	in_child = guard_in_child(&client->guard);
	if (!in_child) {
		batch_publish_dispatch(batch);
		client_lock(client);
	}
	batch_free(batch, in_child);
	if (!in_child)
		client_unlock(client);
}

enum paged_status
batch_enter(const struct paged_batch *batch)
{
	enum paged_status status = client_enter(batch_client(batch));

	if (status != PAGED_OK)
		return status;
	if (!batch->planned)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "the batch has no plan");
	return PAGED_OK;
}

uint32_t
paged_batch_pages_missing(const struct paged_batch *batch, size_t row)
{
	if (batch == NULL || guard_in_child(&batch->pool->client->guard) || row >= batch->max_rows)
		return 0;
	return batch->pages_missing[row];
}

/* The first row whose page table entries were replaced or removed since the plan; n_rows: none. */
static uint32_t
batch_stale_row(const struct paged_batch *batch)
{
	uint32_t r;

	for (r = 0; r < batch->n_rows; r++) {
		const struct batch_row *row = &batch->row[r];
		struct region_snapshot snapshot = { .version = row->version };

		/* A slot's version never repeats, so the check also covers the id's generation. */
		if (row->id != 0 && !region_snapshot_valid(&batch->pool->mapping.view, row->id, &snapshot))
			break;
	}
	return r;
}

enum paged_status
paged_batch_validate(struct paged_batch *batch)
{
	enum paged_status status = batch_enter(batch);
	const struct paged_pool *pool;
	struct paged_error error;
	uint32_t stale;

	if (status != PAGED_OK)
		return status;
	pool = batch->pool;
	status = client_enter_owner(pool->client);
	if (status != PAGED_OK)
		return status;
	status = pool->compute_ops->validate(batch, &error);
	if (status != PAGED_OK)
		return client_fail(pool->client, &error);
	batch_publish_dispatch(batch);
	stale = batch_stale_row(batch);
	/* The end of the session also removes pages; its notice arrives first. */
	if (stale < batch->n_rows)
		client_poll_owner(pool->client);
	/* After the tables: those of a dead daemon do not change any more when a new one gives its memory to others. */
	status = client_check_owner(pool->client);
	if (status != PAGED_OK)
		return status;
	if (stale < batch->n_rows)
		return client_failf(pool->client, PAGED_ERR_STALE,
				    "row %u: pages of sequence " SEQ_FORMAT " were replaced or removed since the plan",
				    stale, SEQ_ARGS(batch->row[stale].id));
	if (batch->overtaken.status != PAGED_OK)
		return client_fail(pool->client, &batch->overtaken);
	status = mod_set_check_range(batch, &error);
	return client_leave(pool->client, status, &error);
}

enum paged_status
paged_batch_stream(struct paged_batch *batch, void *stream)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = batch->pool->compute_ops->stream(batch, stream, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	batch->planned = false;
	return PAGED_OK;
}

/* Copies a row's first n entries.  Entries of pages wholly before kv_first may be no pages: they become 0. */
static void
batch_row_export(const struct paged_batch *batch, const struct kernel_row *row, int32_t *to, uint32_t n)
{
	uint32_t first = row->kv_first / batch->pool->mapping.view.page_size;

	memset(to, 0, MIN(first, n) * sizeof(*to));
	for (uint32_t i = first; i < n; i++)
		to[i] = (int32_t)row->pages[i];
}

enum paged_status
paged_batch_tables_csr(const struct paged_batch *batch, int32_t *indptr, int32_t *indices, size_t n_indices,
		       int32_t *last_page_len, size_t *n_needed)
{
	enum paged_status status = batch_enter(batch);
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	for (uint32_t r = 0; r < batch->n_rows; r++)
		n += batch_pages(batch, batch->kernel_row[r].kv_len);
	if (n_needed != NULL)
		*n_needed = n;
	if (n > INT32_MAX || (indices != NULL && n > n_indices))
		return client_failf(batch->pool->client, PAGED_ERR_LIMIT, "the plan's rows have %zu pages, indices %zu",
				    n, n_indices);
	n = 0;
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		uint32_t n_pages = batch_pages(batch, row->kv_len);

		if (indptr != NULL)
			indptr[r] = (int32_t)n;
		if (indices != NULL)
			batch_row_export(batch, row, indices + n, n_pages);
		if (last_page_len != NULL)
			last_page_len[r] =
				n_pages > 0
					? (int32_t)(row->kv_len - (n_pages - 1) * batch->pool->mapping.view.page_size)
					: 0;
		n += n_pages;
	}
	if (indptr != NULL)
		indptr[batch->n_rows] = (int32_t)n;
	return PAGED_OK;
}

enum paged_status
paged_batch_tables_padded(const struct paged_batch *batch, int32_t *table, size_t width, int32_t *kv_len)
{
	enum paged_status status = batch_enter(batch);

	if (status != PAGED_OK)
		return status;
	if (table == NULL)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "table is NULL");
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint32_t n_pages = batch_pages(batch, batch->kernel_row[r].kv_len);

		if (n_pages > width)
			return client_failf(batch->pool->client, PAGED_ERR_LIMIT, "row %u has %u pages, width is %zu",
					    r, n_pages, width);
	}
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		uint32_t n_pages = batch_pages(batch, row->kv_len);
		int32_t *to = table + r * width;

		batch_row_export(batch, row, to, n_pages);
		memset(to + n_pages, 0, (width - n_pages) * sizeof(*to));
		if (kv_len != NULL)
			kv_len[r] = (int32_t)row->kv_len;
	}
	return PAGED_OK;
}

enum paged_status
paged_batch_kv_first(const struct paged_batch *batch, uint32_t *kv_first)
{
	enum paged_status status = batch_enter(batch);

	if (status != PAGED_OK)
		return status;
	if (kv_first == NULL && batch->n_rows != 0)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "kv_first is NULL");
	for (uint32_t r = 0; r < batch->n_rows; r++)
		kv_first[r] = batch->kernel_row[r].kv_first;
	return PAGED_OK;
}
