/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/compute.h"
#include "client/mods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* How often plan looks whether the owner lives. */
#define LOOK_INTERVAL_MS 1000u

/* Hands out one array of the buffer, each on cache lines of its own. */
static size_t
buffer_place(size_t *at, size_t n, size_t size)
{
	size_t here = *at;

	*at = (here + n * size + 63) & ~(size_t)63;
	return here;
}

/* No overflow: at most 4096 rows of at most 2^30 entries. */
static enum paged_status
buffer_map(struct paged_batch *batch, struct paged_error *error)
{
	size_t n = batch->max_rows, size = 0, row, kernel_row, missing, lacking, items, table;
	uint8_t *base;

	batch->table_stride = ((uint64_t)batch->pool->at.view.row_entries + 15) & ~(uint64_t)15;
	row = buffer_place(&size, n, sizeof(*batch->row));
	kernel_row = buffer_place(&size, n, sizeof(*batch->kernel_row));
	missing = buffer_place(&size, n, sizeof(*batch->missing));
	lacking = buffer_place(&size, n, sizeof(*batch->lacking));
	items = buffer_place(&size, n, sizeof(*batch->items));
	table = buffer_place(&size, n * batch->table_stride, sizeof(*batch->table));

	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_NOMEM, "no %zu bytes for a batch of %zu rows: %s", size, n,
				  strerror(errno));
	batch->buffer = base;
	batch->buffer_size = size;
	batch->row = (struct batch_row *)(base + row);
	batch->kernel_row = (struct kernel_row *)(base + kernel_row);
	batch->missing = (uint32_t *)(base + missing);
	batch->lacking = (uint32_t *)(base + lacking);
	batch->items = (struct paged_seq_item *)(base + items);
	batch->table = (uint32_t *)(base + table);
	return PAGED_OK;
}

static enum paged_status
batch_create(struct paged_pool *pool, const struct paged_batch_params *params, struct paged_batch **batch_p,
	     struct paged_error *error)
{
	struct paged_batch *batch;
	enum paged_status status;

	batch = calloc(1, sizeof(*batch));
	if (batch == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a batch");
	batch->pool = pool;
	batch->max_rows = params->max_rows != 0 ? params->max_rows : BATCH_ROWS_DEFAULT;
	batch->reserve_ahead = params->reserve_ahead;
	status = buffer_map(batch, error);
	if (status != PAGED_OK)
		goto err_free;
	status = pool->at.compute->batch_create(batch, params, error);
	if (status != PAGED_OK)
		goto err_unmap;
	*batch_p = batch;
	return PAGED_OK;

err_unmap:
	munmap(batch->buffer, batch->buffer_size);
err_free:
	free(batch);
	return status;
}

enum paged_status
paged_batch_create(struct paged_pool *pool, const struct paged_batch_params *params, struct paged_batch **batch_p)
{
	struct paged_client *client = pool->client;
	enum paged_status status = client_enter_owner(client);
	struct paged_batch_params complete;
	struct paged_batch *batch = NULL;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (batch_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a batch needs a place for its handle");
	status = client_params_in(&complete, sizeof(complete), params, "paged_batch_params", &error);
	if (status == PAGED_OK && complete.max_rows > PAGED_MAX_REQUEST_SEQS)
		status = paged_fail(&error, PAGED_ERR_LIMIT, "max_rows %u exceeds %u", complete.max_rows,
				    PAGED_MAX_REQUEST_SEQS);
	if (status == PAGED_OK)
		status = batch_create(pool, &complete, &batch, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	client_lock(client);
	batch->next = pool->batches;
	pool->batches = batch;
	client_unlock(client);
	*batch_p = batch;
	return PAGED_OK;
}

void
batch_free(struct paged_batch *batch, bool in_child)
{
	struct paged_batch **link;

	for (link = &batch->pool->batches; *link != batch; link = &(*link)->next)
		;
	*link = batch->next;
	while (batch->mods != NULL)
		mods_free(batch->mods, in_child);
	batch->pool->at.compute->batch_destroy(batch, in_child);
	munmap(batch->buffer, batch->buffer_size);
	if (!in_child && batch->pool->batches == NULL)
		pool_let_go(batch->pool);
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
	if (!in_child)
		client_lock(client);
	batch_free(batch, in_child);
	if (!in_child)
		client_unlock(client);
}

enum paged_status
batch_enter(const struct paged_batch *batch)
{
	enum paged_status status = client_enter(batch->pool->client);

	if (status != PAGED_OK)
		return status;
	if (!batch->planned)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "the batch has no plan");
	return PAGED_OK;
}

/* Milliseconds of a clock that costs no system call; coarse is enough. */
static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The once-a-second look at the control socket. */
static enum paged_status
plan_enter(struct paged_client *client, uint64_t now)
{
	enum paged_status status = client_enter(client);
	uint64_t looked;

	if (status != PAGED_OK)
		return status;
	looked = atomic_load_explicit(&client->looked_ms, memory_order_relaxed);
	if (now - looked >= LOOK_INTERVAL_MS) {
		atomic_store_explicit(&client->looked_ms, now, memory_order_relaxed);
		client_look(client);
	}
	return client_enter_owner(client);
}

/* Entries [row->n_entries, n) of the sequence's row; false: they were being replaced. */
static bool
entries_copy(struct paged_batch *batch, uint32_t r, uint32_t n, const struct region_look *look, uint32_t *bad_p)
{
	const struct region_view *view = &batch->pool->at.view;
	struct batch_row *row = &batch->row[r];
	const _Atomic uint32_t *from = region_row(view, PAGED_SEQ_SLOT(row->id));
	uint32_t *to = batch->table + r * batch->table_stride;
	uint32_t i;

	for (i = row->n_entries; i < n; i++) {
		to[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
		if (to[i] >= view->n_pages)
			break;
	}
	if (!region_look_holds(view, row->id, look))
		return false;
	row->n_entries = i;
	*bad_p = i;
	return true;
}

enum paged_status
batch_row_refresh(struct paged_batch *batch, uint32_t r, paged_seq_id id, struct paged_error *error)
{
	const struct region_view *view = &batch->pool->at.view;
	struct batch_row *row = &batch->row[r];
	struct region_look look;
	enum paged_status status = pool_check_seq(batch->pool, id, error);

	if (status != PAGED_OK)
		return status;
	for (unsigned int attempt = 0; attempt < REGION_ATTEMPTS; attempt++) {
		uint32_t n, bad;

		status = pool_look(batch->pool, id, &look, error);
		if (status != PAGED_OK)
			return status;
		if (row->id != id || row->version != look.version) {
			*row = (struct batch_row){ .id = id, .version = look.version };
		} else if (row->capacity == look.capacity && row->owner == look.owner &&
			   row->writable_from == look.writable_from) {
			return PAGED_OK;
		}
		n = look.capacity / view->page_size;
		if (entries_copy(batch, r, n, &look, &bad)) {
			if (bad < n)
				return paged_fail(error, PAGED_ERR_RANGE,
						  "row %u: logical page %u of sequence " SEQ_FORMAT
						  " is physical page %u of a pool of %u",
						  r, bad, SEQ_ARGS(id), batch->table[r * batch->table_stride + bad],
						  view->n_pages);
			row->capacity = n * view->page_size;
			row->owner = look.owner;
			row->writable_from = look.writable_from;
			return PAGED_OK;
		}
		region_pause(attempt);
	}
	return pool_busy(batch->pool, id, error);
}

/* An explicit table: copied, so that what was checked is what is used. */
static enum paged_status
row_take_pages(struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from, struct paged_error *error)
{
	const struct region_view *view = &batch->pool->at.view;
	uint32_t *to = batch->table + r * batch->table_stride;

	if (from->n_pages > view->row_entries)
		return paged_fail(error, PAGED_ERR_LIMIT, "row %u: %u pages exceed the %u that max_length %u takes", r,
				  from->n_pages, view->row_entries, view->max_length);
	batch->row[r] = (struct batch_row){ .capacity = from->n_pages * view->page_size };
	for (uint32_t i = 0; i < from->n_pages; i++) {
		to[i] = from->pages[i];
		if (to[i] >= view->n_pages)
			return paged_fail(error, PAGED_ERR_RANGE, "row %u: pages[%u] is %u, the pool has %u pages", r,
					  i, to[i], view->n_pages);
	}
	if (from->kv_len > batch->row[r].capacity)
		return paged_fail(error, PAGED_ERR_CAPACITY, "row %u: kv_len %u exceeds the %u tokens of its %u pages",
				  r, from->kv_len, batch->row[r].capacity, from->n_pages);
	return PAGED_OK;
}

static enum paged_status
row_check(const struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from, struct paged_error *error)
{
	if ((from->flags & ~(PAGED_ROW_Q_BASE | PAGED_ROW_NO_APPEND)) != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: flags 0x%x has bits this library does not know", r,
				  from->flags);
	if (!client_is_zero(from->reserved, sizeof(from->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: reserved words must be 0", r);
	if (from->pages != NULL && from->seq != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: names both sequence " SEQ_FORMAT " and pages", r,
				  SEQ_ARGS(from->seq));
	if (batch->on_device && (from->flags & PAGED_ROW_Q_BASE) != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: its q_base is the device's to say, in the array q_base", r);
	if (from->pages == NULL && from->seq == 0 && !batch->on_device)
		return paged_fail(error, PAGED_ERR_INVALID, "row %u: names neither a sequence nor pages", r);
	return PAGED_OK;
}

/* Which rows append has to refuse, found here so that it need not look at each layer. */
static void
row_judge_append(struct paged_batch *batch, uint32_t r)
{
	const struct kernel_row *to = &batch->kernel_row[r];
	const struct batch_row *row = &batch->row[r];
	bool unplaced = false;

	if (to->skip_append || to->q_len == 0)
		return;
	if (row->id != 0 && row->owner != batch->pool->client->owner->session && batch->foreign_row == BATCH_NO_ROW)
		batch->foreign_row = r;
	/* Of lengths that the device has the kernel judges. */
	if (!batch->on_device && (to->q_len > to->kv_len || to->kv_len - to->q_len < row->writable_from))
		unplaced = true;
	if (unplaced && batch->unplaced_row == BATCH_NO_ROW)
		batch->unplaced_row = r;
}

/* Likewise for attention with mods, which count with ints. */
static void
row_judge_mods(struct paged_batch *batch, uint32_t r)
{
	const struct kernel_row *row = &batch->kernel_row[r];

	if (row->q_len != 0 && batch->wide_row == BATCH_NO_ROW &&
	    (row->q_base < INT32_MIN || row->q_base > INT32_MAX - ((int64_t)row->q_len - 1) || row->kv_len > INT32_MAX))
		batch->wide_row = r;
}

static enum paged_status
plan_row(struct paged_batch *batch, uint32_t r, const struct paged_batch_row *from, struct paged_error *error)
{
	enum paged_status status = row_check(batch, r, from, error);

	if (status != PAGED_OK)
		return status;
	if (from->seq == 0)
		status = row_take_pages(batch, r, from, error);
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
		.skip_append = (from->flags & PAGED_ROW_NO_APPEND) != 0,
	};
	batch->total_q += from->q_len;
	row_judge_append(batch, r);
	row_judge_mods(batch, r);
	return PAGED_OK;
}

/* Rows of this session that wait for no query do not grow. */
static bool
row_wants_ahead(const struct paged_batch *batch, uint32_t r)
{
	const struct batch_row *row = &batch->row[r];
	const struct kernel_row *to = &batch->kernel_row[r];

	return to->q_len != 0 && row->id != 0 && row->capacity - to->kv_len < batch->reserve_ahead &&
	       row->capacity < batch->pool->at.view.max_length && row->owner == batch->pool->client->owner->session;
}

static enum paged_status
plan_rows(struct paged_batch *batch, uint32_t n_rows, const struct paged_batch_row *rows, bool *wants_ahead_p,
	  struct paged_error *error)
{
	bool wants_ahead = false;
	uint32_t n_lacking = 0;

	for (uint32_t r = 0; r < n_rows; r++) {
		enum paged_status status = plan_row(batch, r, &rows[r], error);

		if (status != PAGED_OK)
			return status;
		if (rows[r].kv_len > batch->row[r].capacity)
			batch->lacking[n_lacking++] = r;
		else if (row_wants_ahead(batch, r))
			wants_ahead = true;
	}
	*wants_ahead_p = wants_ahead;
	return n_lacking == 0 ? PAGED_OK : batch_reserve(batch, n_lacking, error);
}

static void
plan_forget(struct paged_batch *batch, bool on_device)
{
	batch->planned = false;
	batch->on_device = on_device;
	batch->n_rows = 0;
	batch->total_q = 0;
	batch->foreign_row = BATCH_NO_ROW;
	batch->unplaced_row = BATCH_NO_ROW;
	batch->wide_row = BATCH_NO_ROW;
	batch->plan_number++;
	mods_forget_range(batch);
	if (batch->has_missing)
		memset(batch->missing, 0, batch->max_rows * sizeof(*batch->missing));
	batch->has_missing = false;
}

enum paged_status
batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows,
	   const struct compute_lengths *lengths)
{
	struct paged_client *client = batch->pool->client;
	uint64_t now = now_ms();
	enum paged_status status = plan_enter(client, now);
	struct paged_error error;
	bool wants_ahead;

	if (status == PAGED_ERR_FORK)
		return status;
	plan_forget(batch, lengths != NULL);
	if (status != PAGED_OK)
		return status;
	if (n_rows > batch->max_rows)
		return client_failf(client, PAGED_ERR_LIMIT, "%zu rows exceed the batch's max_rows of %u", n_rows,
				    batch->max_rows);
	if (rows == NULL && n_rows != 0)
		return client_failf(client, PAGED_ERR_INVALID, "rows is NULL");
	status = plan_rows(batch, (uint32_t)n_rows, rows, &wants_ahead, &error);
	if (status == PAGED_OK) {
		batch->n_rows = (uint32_t)n_rows;
		status = batch->pool->at.compute->plan(batch, lengths, &error);
	}
	if (status != PAGED_OK)
		return client_fail(client, &error);
	batch->planned = true;
	if (wants_ahead && now >= batch->ahead_after_ms)
		batch_reserve_ahead(batch, now);
	return PAGED_OK;
}

enum paged_status
paged_batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows)
{
	return batch_plan(batch, n_rows, rows, NULL);
}

uint32_t
paged_batch_missing(const struct paged_batch *batch, size_t row)
{
	if (guard_in_child(&batch->pool->client->guard) || row >= batch->max_rows)
		return 0;
	return batch->missing[row];
}

enum paged_status
paged_batch_validate(struct paged_batch *batch)
{
	const struct paged_pool *pool = batch->pool;
	enum paged_status status = batch_enter(batch);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_enter_owner(pool->client);
	if (status != PAGED_OK)
		return status;
	status = pool->at.compute->validate(batch, &error);
	if (status != PAGED_OK)
		return client_fail(pool->client, &error);
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct batch_row *row = &batch->row[r];
		struct region_look look = { .version = row->version };

		/* A slot's version never returns, so it stands for the id's generation too. */
		if (row->id == 0 || region_look_holds(&pool->at.view, row->id, &look))
			continue;
		client_look(pool->client); /* the session's end removes pages too, and was announced before it did */
		status = client_enter_owner(pool->client);
		if (status != PAGED_OK)
			return status;
		return client_failf(pool->client, PAGED_ERR_STALE,
				    "row %u: pages of sequence " SEQ_FORMAT " were replaced or removed since the plan",
				    r, SEQ_ARGS(row->id));
	}
	status = mods_check_range(batch, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(pool->client, &error);
}
