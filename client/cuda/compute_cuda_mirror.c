/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror: a batch's page tables in device memory, which the planner reads.  Changed entries are written by the
 * scatter (compute_cuda_stream.c); `shadow` is the host's record of what the device has.
 */
#include "config.h"

#include <string.h>

#include "client/cuda/compute_cuda_batch.h"

/* Entries [from, to) of a row. */
static enum paged_status
mirror_write_entries(struct paged_batch *batch, uint32_t r, const uint32_t *entries, uint32_t from, uint32_t to,
		     struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	uint64_t at = r * batch->table_stride + from;

	if (from >= to)
		return PAGED_OK;
	memcpy(cuda->shadow + at, entries + from, (to - from) * sizeof(*entries));
	return compute_cuda_scatter_add(batch, cuda->table + at * sizeof(*entries), entries + from, to - from, error);
}

/*
 * Write those of entries [0, to) that differ from the device's, as runs.  A run goes on as long as the entries between
 * are fewer than those of a record, which is what another run would cost.
 */
static enum paged_status
mirror_update_entries(struct paged_batch *batch, uint32_t r, uint32_t to, struct paged_error *error)
{
	const uint32_t *entries = batch->table + r * batch->table_stride;
	const uint32_t *shadow = cuda_batch_of(batch)->shadow + r * batch->table_stride;
	enum paged_status status = PAGED_OK;
	uint32_t from = 0;

	while (status == PAGED_OK) {
		uint32_t end;

		while (from < to && entries[from] == shadow[from])
			from++;
		if (from == to)
			break;
		end = from + 1;
		for (uint32_t i = end; i < to && i - end < CUDA_SCATTER_WORDS; i++)
			if (entries[i] != shadow[i])
				end = i + 1;
		status = mirror_write_entries(batch, r, entries, from, end, error);
		from = end;
	}
	return status;
}

static uint32_t
mirror_row_entries(const struct paged_batch *batch, uint32_t r)
{
	return batch->row[r].capacity / batch->pool->mapping.view.page_size;
}

/* The row is torn until compute_cuda_mirror_written(). */
static enum paged_status
mirror_update_row(struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];
	struct cuda_mirror_row *mirror = &cuda_batch_of(batch)->mirror[r];
	uint32_t *entries = batch->table + r * batch->table_stride;
	uint32_t n = mirror_row_entries(batch, r), known = mirror->n, both = n < known ? n : known;
	enum paged_status status = PAGED_OK;

	if (!mirror->torn && row->id != 0 && mirror->id == row->id && mirror->version == row->version && n == known)
		return PAGED_OK;
	if (mirror->torn)
		both = 0;
	else if (row->id == 0 || mirror->id != row->id || mirror->version != row->version)
		status = mirror_update_entries(batch, r, both, error);
	mirror->torn = true;
	mirror->n = n > known ? n : known;
	if (status == PAGED_OK)
		status = mirror_write_entries(batch, r, entries, both, n, error);
	/* If the row had more entries, the rest becomes unmapped. */
	if (status == PAGED_OK && n < known) {
		memset(entries + n, 0xff, (known - n) * sizeof(*entries));
		status = mirror_write_entries(batch, r, entries, n, known, error);
	}
	return status;
}

/*
 * A captured planner reads as many rows as its plan had at capture.  With
 * tables_only, rows past the current n_rows are unmapped, so that a nonzero length
 * in them is a fault and not an access to another sequence's pages.
 */
enum paged_status
compute_cuda_mirror_update(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = PAGED_OK;

	if (cuda->n_mirrored < batch->n_rows)
		cuda->n_mirrored = batch->n_rows;
	cuda->n_updated = cuda->tables_only ? cuda->n_mirrored : batch->n_rows;
	for (uint32_t r = 0; status == PAGED_OK && r < cuda->n_updated; r++) {
		if (r >= batch->n_rows)
			batch->row[r] = (struct batch_row){ 0 };
		status = mirror_update_row(batch, r, error);
	}
	return status;
}

void
compute_cuda_mirror_written(struct paged_batch *batch)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);

	for (uint32_t r = 0; r < cuda->n_updated; r++)
		if (cuda->mirror[r].torn)
			cuda->mirror[r] = (struct cuda_mirror_row){ .id = batch->row[r].id,
								    .version = batch->row[r].version,
								    .n = mirror_row_entries(batch, r) };
	if (cuda->tables_only)
		cuda->n_mirrored = batch->n_rows;
}
