/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror: a batch's page tables in device memory, which the planner reads.  Changed entries are copied from
 * page-locked (pinned) stages (compute_cuda_stream.c); `shadow` is the host's record of what the device has.
 */
#include "config.h"

#include <string.h>

#include "client/cuda/compute_cuda_batch.h"

/* Entries [from, to) of a row. */
static enum paged_status
mirror_copy_entries(struct paged_batch *batch, uint32_t r, const uint32_t *entries, uint32_t from, uint32_t to,
		    struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	uint64_t row = r * batch->table_stride;
	enum paged_status status = PAGED_OK;

	while (status == PAGED_OK && from < to) {
		uint32_t n = to - from < CUDA_STAGE_ENTRIES / 4 ? to - from : CUDA_STAGE_ENTRIES / 4;

		status = compute_cuda_stage_copy(batch, cuda->table + (row + from) * 4, entries + from, n * 4, error);
		if (status == PAGED_OK)
			memcpy(cuda->shadow + row + from, entries + from, n * 4);
		from += n;
	}
	return status;
}

/* Changed entries that are closer than this are copied together, which is cheaper than two copies. */
#define ENTRIES_APART 64u

/* Copy those of entries [0, to) that differ from the device's, as runs. */
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
		for (uint32_t i = end; i < to && i - end < ENTRIES_APART; i++)
			if (entries[i] != shadow[i])
				end = i + 1;
		status = mirror_copy_entries(batch, r, entries, from, end, error);
		from = end;
	}
	return status;
}

enum paged_status
compute_cuda_mirror_update_row(struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct batch_row *row = &batch->row[r];
	struct cuda_mirror_row *mirror = &cuda_batch_of(batch)->mirror[r];
	uint32_t *entries = batch->table + r * batch->table_stride;
	uint32_t n = row->capacity / batch->pool->mapping.view.page_size, known = mirror->n,
		 both = n < known ? n : known;
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
		status = mirror_copy_entries(batch, r, entries, both, n, error);
	/* If the row had more entries, the rest becomes unmapped. */
	if (status == PAGED_OK && n < known) {
		memset(entries + n, 0xff, (known - n) * sizeof(*entries));
		status = mirror_copy_entries(batch, r, entries, n, known, error);
	}
	if (status == PAGED_OK)
		*mirror = (struct cuda_mirror_row){ .id = row->id, .version = row->version, .n = n };
	return status;
}

/*
 * A captured planner reads as many rows as its plan had at capture.  Rows past
 * the current n_rows are unmapped, so that a nonzero length in them is a fault
 * and not an access to another sequence's pages.
 */
enum paged_status
compute_cuda_mirror_shrink(struct paged_batch *batch, struct paged_error *error)
{
	struct cuda_batch *cuda = cuda_batch_of(batch);
	enum paged_status status = PAGED_OK;

	for (uint32_t r = batch->n_rows; status == PAGED_OK && r < cuda->n_mirrored; r++) {
		batch->row[r] = (struct batch_row){ 0 };
		status = compute_cuda_mirror_update_row(batch, r, error);
	}
	if (status == PAGED_OK && cuda->n_mirrored > batch->n_rows)
		cuda->n_mirrored = batch->n_rows;
	return status;
}
