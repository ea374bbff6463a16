/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/batch_mask.h"

#include <inttypes.h>
#include <stdlib.h>

#include "kernels/mask/mod_evaluator.h"

enum paged_status
batch_mask_shape(const struct batch_mask_request *request, struct block_mask_shape *shape, struct paged_error *error)
{
	struct block_mask_row *rows = calloc((size_t)request->n_rows + 1, sizeof(*rows));

	if (rows == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  request->n_rows);
	for (uint32_t r = 0; r < request->n_rows; r++)
		rows[r] = (struct block_mask_row){
			.q_base = request->rows[r].q_base,
			.q_len = request->rows[r].q_len,
			.kv_len = request->rows[r].kv_len,
			.kv_first = request->rows[r].kv_first,
		};
	*shape = (struct block_mask_shape){
		.n_rows = request->n_rows,
		.n_heads = request->n_heads != 0 ? request->n_heads : 1,
		.q_block = request->q_block,
		.kv_block = request->kv_block,
		.rows = rows,
		.memory = request->memory,
	};
	return PAGED_OK;
}

static enum paged_status
create_logical(const struct batch_mask_request *request, struct mod_evaluator *evaluator, struct block_mask **logical_p,
	       struct paged_error *error)
{
	int32_t *b = calloc((size_t)request->n_rows + 1, sizeof(*b));
	struct block_mask_shape shape = { .rows = NULL };
	enum paged_status status;

	if (b == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  request->n_rows);
	for (uint32_t r = 0; r < request->n_rows; r++)
		b[r] = request->rows[r].b;
	evaluator->base.b = b;
	status = batch_mask_shape(request, &shape, error);
	if (status == PAGED_OK)
		status = block_mask_create(&shape, &evaluator->base, request->max_bytes, logical_p, error);
	free((void *)shape.rows);
	free(b);
	return status;
}

enum paged_status
batch_mask_create(const struct batch_mask_request *request, struct mod_binding *binding, enum kernel_isa isa,
		  struct block_mask **logical_p, struct paged_error *error)
{
	enum paged_status status = mod_binding_add_range_trees(binding, error);
	struct block_mask *logical = NULL;
	struct mod_evaluator evaluator;

	if (status == PAGED_OK)
		status = mod_evaluator_open(&evaluator, binding, isa, error);
	if (status != PAGED_OK)
		return status;
	if (request->n_heads == 0 && !evaluator.base.same_heads)
		status = paged_fail(error, PAGED_ERR_INVALID,
				    "block mask: '%.80s' depends on h: say with n_heads how many heads there are",
				    mod_text(mod_binding_mod(binding)));
	if (status == PAGED_OK)
		status = create_logical(request, &evaluator, &logical, error);
	if (status == PAGED_OK)
		status = mod_evaluator_bad_index(&evaluator, error);
	mod_evaluator_close(&evaluator);
	if (status == PAGED_OK)
		*logical_p = logical;
	else
		block_mask_destroy(logical);
	return status;
}

/* Reads the page tables of a request's rows, one at a time. */
struct page_table_reader {
	const struct batch_mask_request *request;
	uint32_t *pages; /* one row's pages; sized for the longest row */
	uint64_t *version;
};

/*
 * Copies only the entries that kv_len needs; later entries may change at the same time without harm.  The keys of pages
 * that were given back are dropped, as those before the row's kv_first.
 */
static enum paged_status
page_table_copy_live(struct page_table_reader *reader, uint32_t r, struct block_mask_sequence *sequence,
		     struct paged_error *error)
{
	const struct region_view *view = reader->request->view;
	const struct batch_mask_row *row = &reader->request->rows[r];
	uint32_t n_needed = (uint32_t)mask_ceil_div(row->kv_len, view->page_size);

	for (unsigned int attempt = 0; attempt < REGION_ATTEMPTS; attempt++) {
		struct region_snapshot snapshot;
		enum region_result result = region_snapshot_begin(view, row->seq, &snapshot);
		uint32_t n;

		if (result == REGION_STALE)
			return paged_fail(error, PAGED_ERR_STALE,
					  "block mask: row %" PRIu32 ": no live sequence %" PRIu32 ".%" PRIu32, r,
					  PAGED_SEQ_SLOT(row->seq), PAGED_SEQ_GENERATION(row->seq));
		if (result == REGION_READ && (snapshot.flags & REGION_SLOT_HOLD))
			return paged_fail(error, PAGED_ERR_PERM,
					  "block mask: row %" PRIu32 ": sequence %" PRIu32 ".%" PRIu32
					  " is a hold, whose pages have no order",
					  r, PAGED_SEQ_SLOT(row->seq), PAGED_SEQ_GENERATION(row->seq));
		n = result == REGION_READ ? snapshot.capacity / view->page_size : 0;
		if (result == REGION_READ &&
		    region_snapshot_copy(view, row->seq, &snapshot, n < n_needed ? n : n_needed, reader->pages)) {
			reader->version[r] = snapshot.version;
			*sequence = (struct block_mask_sequence){
				reader->pages,
				n,
				row->kv_len,
				mask_max(row->kv_first, (uint64_t)snapshot.first * view->page_size),
			};
			return PAGED_OK;
		}
		region_pause(attempt);
	}
	return paged_fail(error, PAGED_ERR_AGAIN,
			  "block mask: row %" PRIu32 ": sequence %" PRIu32 ".%" PRIu32 " is being changed just now", r,
			  PAGED_SEQ_SLOT(row->seq), PAGED_SEQ_GENERATION(row->seq));
}

static enum paged_status
page_table_read(void *context, uint32_t r, struct block_mask_sequence *sequence, struct paged_error *error)
{
	struct page_table_reader *reader = context;
	const struct batch_mask_row *row = &reader->request->rows[r];

	if ((row->seq != 0) == (row->pages != NULL))
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: row %" PRIu32 " names %s a sequence %s pages",
				  r, row->seq != 0 ? "both" : "neither", row->seq != 0 ? "and" : "nor");
	if (row->seq != 0)
		return page_table_copy_live(reader, r, sequence, error);
	reader->version[r] = 0;
	*sequence = (struct block_mask_sequence){ row->pages, row->n_pages, row->kv_len, row->kv_first };
	return PAGED_OK;
}

enum paged_status
batch_mask_to_physical(const struct batch_mask_request *request, const struct block_mask *logical,
		       struct block_mask **physical_p, uint64_t *version, struct paged_error *error)
{
	struct page_table_reader reader = { .request = request, .version = version };
	const struct block_mask_table table = {
		.n_sequences = request->n_rows,
		.page_size = request->view->page_size,
		.n_pages = request->view->n_pages,
		.read = page_table_read,
		.context = &reader,
	};
	enum paged_status status;

	reader.pages = malloc((request->view->table_entries + UINT64_C(1)) * sizeof(*reader.pages));
	if (reader.pages == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a row of %" PRIu32 " pages",
				  request->view->table_entries);
	status = block_mask_to_physical(logical, &table, request->max_bytes, physical_p, error);
	free(reader.pages);
	return status;
}
