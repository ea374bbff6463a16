/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/batch.h"

#include <string.h>

enum paged_status
paged_batch_tables_csr(const struct paged_batch *batch, int32_t *indptr, int32_t *indices, size_t n_indices,
		       int32_t *last_page_len, size_t *n_needed)
{
	enum paged_status status = batch_enter(batch);
	uint32_t page_size = batch->pool->at.view.page_size;
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
		for (uint32_t i = 0; indices != NULL && i < n_pages; i++)
			indices[n + i] = (int32_t)row->pages[i];
		if (last_page_len != NULL)
			last_page_len[r] = n_pages > 0 ? (int32_t)(row->kv_len - (n_pages - 1) * page_size) : 0;
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

		for (uint32_t i = 0; i < n_pages; i++)
			to[i] = (int32_t)row->pages[i];
		memset(to + n_pages, 0, (width - n_pages) * sizeof(*to));
		if (kv_len != NULL)
			kv_len[r] = (int32_t)row->kv_len;
	}
	return PAGED_OK;
}
