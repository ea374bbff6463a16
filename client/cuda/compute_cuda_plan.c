/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning on the device.  A captured graph must not read a stage, because each
 * replay would read what the stage contains at that time.  A captured plan
 * therefore only launches the planner; a plan with tables_only, outside the
 * capture, writes the page tables before each replay.  A plan that would have to
 * write them during a capture is refused before anything is put on the stream, so
 * the capture stays valid.
 */
#include "config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "client/cuda/compute_cuda_batch.h"
#include "client/cuda/compute_cuda_mod_set.h"
#include "client/owner/map_cuda.h"

/*
 * The value of cuda_row.writable_from.  A row of another session's sequence, or of one that was given away, is never
 * written, whatever the lengths in device memory are.
 */
static uint32_t
plan_row_writable_from(const struct paged_batch *batch, uint32_t r)
{
	const struct batch_row *row = &batch->row[r];

	if (batch->kernel_row[r].skip_append)
		return CUDA_WRITABLE_SKIP;
	if (batch_row_is_foreign(batch, r))
		return CUDA_WRITABLE_NONE;
	return row->writable_from;
}

static uint32_t
plan_row_b(const struct paged_batch *batch, uint32_t r)
{
	return (uint32_t)batch->kernel_row[r].b;
}

static uint32_t
plan_row_kv_first(const struct paged_batch *batch, uint32_t r)
{
	return batch->kernel_row[r].kv_first;
}

static enum paged_status
compute_cuda_update_words(struct paged_batch *batch, struct cuda_words *words,
			  uint32_t (*word_of)(const struct paged_batch *batch, uint32_t r), struct paged_error *error)
{
	uint32_t from = words->torn ? 0 : batch->n_rows, to = words->torn ? batch->max_rows : 0;

	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint32_t word = word_of(batch, r);

		if (words->shadow[r] == word)
			continue;
		words->shadow[r] = word;
		from = r < from ? r : from;
		to = r < to ? to : r + 1;
	}
	if (from >= to)
		return PAGED_OK;
	words->torn = true;
	return compute_cuda_scatter_add(batch, words->device + from * sizeof(uint32_t), words->shadow + from, to - from,
					error);
}

/* Lengths */

static enum paged_status
compute_cuda_write_lengths(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct cuda_plan_params *p = &cuda->params;
	uint32_t n = batch->n_rows;
	int64_t *q_base = cuda->lengths_host;
	int32_t *q_indptr = (int32_t *)(q_base + n), *kv_len = q_indptr + n + 1;

	q_indptr[0] = 0;
	for (uint32_t r = 0; r < n; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];

		q_base[r] = row->q_base;
		q_indptr[r + 1] = (int32_t)(row->q_start + row->q_len);
		kv_len[r] = (int32_t)row->kv_len;
	}
	p->q_base = cuda->lengths;
	p->q_base_bytes = sizeof(*q_base);
	p->q_indptr = p->q_base + n * sizeof(*q_base);
	p->kv_len = p->q_indptr + (n + 1) * sizeof(*q_indptr);
	return compute_cuda_scatter_add(batch, cuda->lengths, q_base,
					n * CUDA_LENGTHS_SIZE / (uint32_t)sizeof(uint32_t) + 1, error);
}

/* Write what changed of the page tables and of the rows' words, and the lengths if the host has them: one launch. */
static enum paged_status
compute_cuda_plan_write(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = compute_cuda_mirror_update(batch, error);

	if (status == PAGED_OK)
		status = compute_cuda_update_words(batch, &cuda->writable, plan_row_writable_from, error);
	if (status == PAGED_OK)
		status = compute_cuda_update_words(batch, &cuda->b, plan_row_b, error);
	if (status == PAGED_OK)
		status = compute_cuda_update_words(batch, &cuda->kv_first, plan_row_kv_first, error);
	if (status == PAGED_OK && lengths == NULL)
		status = compute_cuda_write_lengths(batch, error);
	if (status == PAGED_OK)
		status = compute_cuda_scatter_launch(batch, error);
	if (status != PAGED_OK) {
		compute_cuda_scatter_drop(batch);
		return status;
	}
	compute_cuda_mirror_written(batch);
	cuda->writable.torn = cuda->b.torn = cuda->kv_first.torn = false;
	return PAGED_OK;
}

/* Adds the words of a row whose writable_from has changed to the scatter: those in the plans that were made. */
static enum paged_status
compute_cuda_protect_row(struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	uint32_t word = plan_row_writable_from(batch, r);
	uint64_t at = r * sizeof(struct cuda_row) + offsetof(struct cuda_row, writable_from);
	enum paged_status status = PAGED_OK;

	/* A replay plans first, and reads cuda->writable. */
	if (cuda->tables_only || (cuda->writable.shadow[r] == word && !cuda->writable.torn))
		return PAGED_OK;
	for (uint32_t i = 0; status == PAGED_OK && i < CUDA_SHAPES; i++)
		if (cuda->shape[i].planned == batch->plan_number)
			status = compute_cuda_scatter_add(batch, cuda->shape[i].rows + at, &word, 1, error);
	return status;
}

enum paged_status
compute_cuda_protect(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status;
	bool capturing;

	/* A graph has no part for words from the host.  The plan before its replay brings them over. */
	status = compute_cuda_capture(batch, &capturing, error);
	if (status != PAGED_OK || capturing || cuda->captured)
		return status;
	for (uint32_t r = 0; status == PAGED_OK && r < batch->n_rows; r++)
		status = compute_cuda_protect_row(batch, r, error);
	if (status == PAGED_OK)
		status = compute_cuda_update_words(batch, &cuda->writable, plan_row_writable_from, error);
	if (status == PAGED_OK)
		status = compute_cuda_scatter_launch(batch, error);
	if (status != PAGED_OK) {
		compute_cuda_scatter_drop(batch);
		return status;
	}
	cuda->writable.torn = false;
	return compute_cuda_stage_next(batch, error);
}

/* The planner */

static enum paged_status
compute_cuda_shape_launch(struct paged_batch *batch, struct cuda_shape *shape, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct cuda_plan_params p = cuda->params;
	enum paged_status status;

	p.plan = compute_cuda_view(batch, shape);
	p.n_q_heads = shape->n_q_heads;
	p.max_tile_q_rows = shape->tile_q_rows[CUDA_DECODE];
	p.prefill_tile_q_rows = shape->tile_q_rows[CUDA_PREFILL];
	p.wide_kv_chunk_factor = shape->wide_kv_chunk_factor;
	p.max_total_q = (uint32_t)batch->total_q;
	status = cuda_kernels_launch(batch->pool, &cuda->kernels->plan, 1, &p, cuda->stream, error);
	if (status == PAGED_OK) {
		shape->planned = batch->plan_number;
		shape->captured |= cuda->captured;
		shape->dirty = false;
	}
	return status;
}

static bool
cuda_shape_is(const struct cuda_shape *shape, uint32_t n_q_heads, uint32_t n_kv_heads,
	      const struct cuda_attention *attention)
{
	return shape->n_q_heads == n_q_heads &&
	       shape->tile_q_rows[CUDA_DECODE] == attention->choices[CUDA_DECODE].tile_q_rows &&
	       shape->tile_q_rows[CUDA_PREFILL] == attention->choices[CUDA_PREFILL].tile_q_rows &&
	       shape->wide_kv_chunk_factor == cuda_wide_kv_chunk_factor(attention->choices, n_q_heads / n_kv_heads);
}

void
compute_cuda_shape_set(struct cuda_shape *shape, uint32_t n_q_heads, uint32_t n_kv_heads,
		       const struct cuda_attention *attention)
{
	shape->n_q_heads = n_q_heads;
	for (unsigned int part = 0; part < CUDA_N_PARTS; part++)
		shape->tile_q_rows[part] = attention->choices[part].tile_q_rows;
	shape->wide_kv_chunk_factor = cuda_wide_kv_chunk_factor(attention->choices, n_q_heads / n_kv_heads);
	shape->planned = 0;
}

enum paged_status
compute_cuda_shape(struct paged_batch *batch, uint32_t n_q_heads, const struct cuda_attention *attention,
		   const struct cuda_shape **shape_p, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct cuda_shape *shape = NULL, *unused = NULL;
	uint32_t n_kv_heads = batch->pool->mapping.layout.params.n_kv_heads;
	enum paged_status status = PAGED_OK;

	if (n_q_heads > cuda->max_q_heads)
		return paged_fail(error, PAGED_ERR_LIMIT, "q has %u heads, the batch was made for max_q_heads of %u",
				  n_q_heads, cuda->max_q_heads);
	for (uint32_t i = 0; shape == NULL && i < CUDA_SHAPES; i++) {
		struct cuda_shape *at = &cuda->shape[i];

		if (cuda_shape_is(at, n_q_heads, n_kv_heads, attention))
			shape = at;
		else if (at->planned != batch->plan_number && (unused == NULL || at->planned < unused->planned))
			unused = at;
	}
	if (shape == NULL && unused == NULL)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "queries of %u heads: one plan serves at most %u kinds of queries", n_q_heads,
				  CUDA_SHAPES);
	if (shape == NULL) {
		shape = unused;
		compute_cuda_shape_set(shape, n_q_heads, n_kv_heads, attention);
	}
	if (shape->planned != batch->plan_number)
		status = compute_cuda_shape_launch(batch, shape, error);
	if (status != PAGED_OK)
		return status;
	cuda->shape_last = (uint32_t)(shape - cuda->shape);
	*shape_p = shape;
	return PAGED_OK;
}

const struct cuda_shape *
compute_cuda_shape_any(const struct paged_batch *batch)
{
	const struct cuda_batch *cuda = cuda_batch_of(batch);

	return &cuda->shape[cuda->shape_last];
}

/* A replay of any graph plans for the captured shapes.  The other shapes' faults were reported; clear them. */
static enum paged_status
compute_cuda_shapes_keep(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; status == PAGED_OK && i < CUDA_SHAPES; i++) {
		struct cuda_shape *shape = &cuda->shape[i];

		if (shape->captured)
			shape->planned = batch->plan_number;
		if (!shape->dirty)
			continue;
		status = map_cuda_check(&batch->pool->mapping,
					cuda->gpu->driver.fill(shape->head, 0, sizeof(*cuda->heads), cuda->stream),
					error, "cuMemsetD8Async");
		shape->dirty = status != PAGED_OK;
	}
	return status;
}

/* What of the rows' lengths decides which kernels attention needs; if the device has the lengths, of their bounds. */
static void
compute_cuda_set_bounds(struct paged_batch *batch, bool on_device)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	uint32_t least = UINT32_MAX, most = 0, most_kv = on_device ? cuda->params.max_kv_len : 0;

	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];

		most = row->q_len > most ? row->q_len : most;
		least = row->q_len != 0 && row->q_len < least ? row->q_len : least;
		most_kv = !on_device && row->kv_len > most_kv ? row->kv_len : most_kv;
	}
	cuda->params.max_q_len = most;
	cuda->min_q_len = on_device ? 0 : least;
	cuda->most_kv_chunks = (most_kv + CUDA_KV_CHUNK_UNIT - 1) / CUDA_KV_CHUNK_UNIT;
}

/* Launch the planner.  The tables and the host's lengths are written already, or before a replay. */
static enum paged_status
compute_cuda_plan_launch(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status;

	if (cuda->tables_only)
		return compute_cuda_shapes_keep(batch, error);
	status = compute_cuda_mod_set_clear_range(batch, error);
	if (status != PAGED_OK)
		return status;
	compute_cuda_set_bounds(batch, lengths != NULL);
	if (lengths != NULL) {
		cuda->params.q_indptr = lengths->q_indptr;
		cuda->params.kv_len = lengths->kv_len;
		cuda->params.q_base = lengths->q_base;
		cuda->params.q_base_bytes = 4;
	}
	if (batch->n_rows == 0)
		return PAGED_OK;
	return compute_cuda_shape_launch(batch, &cuda->shape[cuda->shape_last], error);
}

/* Check whether this plan may go onto the stream, and set `captured` and `tables_only`. */
static enum paged_status
compute_cuda_plan_enter(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = compute_cuda_capture(batch, &cuda->captured, error);
	uint32_t r = batch->bad_row_foreign;

	cuda->tables_only = lengths != NULL && lengths->tables_only;
	if (status == PAGED_OK && cuda->captured && (lengths == NULL || cuda->tables_only))
		status = paged_fail(error, PAGED_ERR_UNSUPPORTED,
				    "pool %s: the stream is being captured, and a graph has no part for %s from the"
				    " host: %s",
				    batch->pool->mapping.name,
				    cuda->tables_only ? "page tables" : "lengths and page tables",
				    cuda->tables_only ? "bring them over before each replay, outside of the capture"
						      : "capture paged_batch_plan_device()");
	/* A replay cannot return an error for a captured append, so the plan refuses it. */
	if (status == PAGED_OK && cuda->tables_only && cuda->appends && r != BATCH_NO_ROW &&
	    batch->row[r].writable_from == UINT32_MAX)
		status = paged_fail(error, PAGED_ERR_PERM,
				    "row %u: a captured append may not write to sequence " SEQ_FORMAT
				    ", which was given away: plan the row with no_append",
				    r, SEQ_ARGS(batch->row[r].id));
	else if (status == PAGED_OK && cuda->tables_only && cuda->appends && r != BATCH_NO_ROW)
		status = paged_fail(error, PAGED_ERR_PERM,
				    "row %u: a captured append may not write to sequence " SEQ_FORMAT
				    ", of session %u: plan the row with no_append",
				    r, SEQ_ARGS(batch->row[r].id), batch->row[r].owner);
	return status;
}

enum paged_status
compute_cuda_plan(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	struct paged_error staging;
	enum paged_status status, staged;

	if (batch->total_q > cuda->max_q_tokens)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "%" PRIu64 " query rows, the batch was made for max_q_tokens of %u", batch->total_q,
				  cuda->max_q_tokens);
	status = compute_cuda_plan_enter(batch, lengths, error);
	if (status != PAGED_OK)
		return status;
	if (cuda->captured)
		return compute_cuda_plan_launch(batch, lengths, error);
	status = compute_cuda_plan_write(batch, lengths, error);
	if (status == PAGED_OK)
		status = compute_cuda_plan_launch(batch, lengths, error);
	/* What was issued reads the stage, even if the plan failed, so switch to the next stage. */
	staged = compute_cuda_stage_next(batch, status == PAGED_OK ? error : &staging);
	return status == PAGED_OK ? staged : status;
}

/* Faults */

static enum paged_status
compute_cuda_fail_fault(const struct paged_batch *batch, const struct cuda_plan_head *head, struct paged_error *error)
{
	static const struct batch_row none;
	const struct cuda_batch *cuda = cuda_batch_of(batch);
	uint32_t r = head->fault_row;
	const struct batch_row *row = r < batch->n_rows ? &batch->row[r] : &none;

	if ((head->faults & CUDA_FAULT_CAPACITY) != 0)
		return paged_fail(
			error, PAGED_ERR_LIMIT,
			"more work than a batch of max_rows %u, max_q_tokens %u and max_q_heads %u has room for",
			batch->max_rows, cuda->max_q_tokens, cuda->max_q_heads);
	if ((head->faults & CUDA_FAULT_QUERIES) != 0)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "row %u: q_indptr falls, or passes the plan's %" PRIu64
				  " query rows, or gives the row more than the largest bound of q_len",
				  r, batch->total_q);
	if ((head->faults & CUDA_FAULT_LENGTH) != 0)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "row %u: kv_len is negative or exceeds max_length %u of pool %s, or is below its"
				  " kv_first",
				  r, batch->pool->mapping.view.max_length, batch->pool->mapping.name);
	if ((head->faults & CUDA_FAULT_SHARED) != 0 && r < batch->n_rows && batch_row_is_foreign(batch, r))
		return batch_row_fail_foreign(batch, r, error);
	if ((head->faults & CUDA_FAULT_SHARED) != 0)
		return paged_fail(error, PAGED_ERR_PERM,
				  "row %u: a position to append may not be written, the row is writable from %u", r,
				  row->writable_from);
	if ((head->faults & CUDA_FAULT_POSITION) != 0)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "row %u: a token to append lies before position 0 or past max_length %u, or has a "
				  "rotary position at or past n_positions",
				  r, batch->pool->mapping.view.max_length);
	if ((head->faults & CUDA_FAULT_BOUNDS) != 0)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "row %u: tokens to gather end before they begin, or past its kv_len, or begin before"
				  " its kv_first",
				  r);
	if ((head->faults & CUDA_FAULT_PAGE) != 0)
		return paged_fail(error, PAGED_ERR_CAPACITY, "row %u: tokens past the %u that it has room for", r,
				  row->capacity);
	return paged_fail(error, PAGED_ERR_RANGE, "row %u: a mod read an array out of bounds", r);
}

enum paged_status
compute_cuda_faults(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	const struct cuda_driver *driver = &cuda->gpu->driver;
	enum paged_status status = compute_cuda_refuse_capture(batch, ": what is wrong is known after a replay", error);

	for (uint32_t i = 0; status == PAGED_OK && i < CUDA_SHAPES; i++) {
		cuda->heads[i].faults = 0;
		if (cuda->shape[i].planned == batch->plan_number)
			status = map_cuda_check(&batch->pool->mapping,
						driver->copy_out(&cuda->heads[i], cuda->shape[i].head,
								 sizeof(cuda->heads[i]), cuda->stream),
						error, "cuMemcpyDtoHAsync");
	}
	if (status == PAGED_OK)
		status = map_cuda_check(&batch->pool->mapping, driver->stream_synchronize(cuda->stream), error,
					"cuStreamSynchronize");
	for (uint32_t i = 0; status == PAGED_OK && i < CUDA_SHAPES; i++) {
		if (cuda->heads[i].faults == 0)
			continue;
		cuda->shape[i].dirty = true;
		status = compute_cuda_fail_fault(batch, &cuda->heads[i], error);
	}
	return status;
}
