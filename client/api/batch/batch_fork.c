/* SPDX-License-Identifier: Apache-2.0 */
/* paged_batch_fork(): one request, then copies of the partial pages. */
#include "config.h"

#include <stdlib.h>

#include "client/api/batch/batch.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/api/seq/seq.h"

/* The pages that a fork copies. */
struct batch_fork_copies {
	uint32_t n;
	uint32_t *from, *to, *n_tokens; /* [children] */
};

static enum paged_status
batch_fork_check(struct paged_batch *batch, uint32_t n, const struct seq_fork *forks, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = pool_check_seq(batch->pool, forks[i].parent, error);
	if (status != PAGED_OK)
		return status;
	return batch->pool->compute_ops->refuse_capture(batch, ": fork before the replay", error);
}

/* The physical page of a sequence's page i. */
static enum paged_status
batch_fork_read_page(struct paged_pool *pool, paged_seq_id id, uint32_t i, uint32_t *page_p, struct paged_error *error)
{
	const struct region_view *view = &pool->mapping.view;
	struct region_snapshot snapshot;
	unsigned int attempt = 0;
	enum paged_status status;

	do {
		status = pool_snapshot(pool, id, &attempt, &snapshot, error);
		if (status == PAGED_OK && snapshot.capacity / view->page_size <= i)
			status = paged_fail(error, PAGED_ERR_STALE, "sequence " SEQ_FORMAT " was truncated meanwhile",
					    SEQ_ARGS(id));
		if (status != PAGED_OK)
			return status;
		*page_p = atomic_load_explicit(&region_page_table(view, PAGED_SEQ_SLOT(id))[i], memory_order_relaxed);
	} while (!region_snapshot_valid(view, id, &snapshot));
	if (*page_p >= view->n_pages)
		return paged_fail(error, PAGED_ERR_RANGE,
				  "logical page %u of sequence " SEQ_FORMAT " is physical page %u of a pool of %u", i,
				  SEQ_ARGS(id), *page_p, view->n_pages);
	return PAGED_OK;
}

/* Copies the partial last page of each child from its parent. */
static enum paged_status
batch_fork_copy(struct paged_batch *batch, uint32_t n, const struct seq_fork *forks, const paged_seq_id *children,
		struct batch_fork_copies *copies, struct paged_error *error)
{
	uint32_t page_size = batch->pool->mapping.view.page_size;
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++) {
		uint32_t page = forks[i].n_tokens / page_size, k = copies->n;

		if (forks[i].n_tokens % page_size == 0)
			continue;
		copies->n_tokens[k] = forks[i].n_tokens % page_size;
		status = batch_fork_read_page(batch->pool, forks[i].parent, page, &copies->from[k], error);
		if (status == PAGED_OK)
			status = batch_fork_read_page(batch->pool, children[i], page, &copies->to[k], error);
		copies->n++;
	}
	if (status != PAGED_OK || copies->n == 0)
		return status;
	return batch->pool->compute_ops->copy_pages(batch, copies->n, copies->from, copies->to, copies->n_tokens,
						    error);
}

/* Children whose partial pages were not copied must not be used. */
static void
batch_fork_undo(struct paged_client *client, uint32_t n, const paged_seq_id *children)
{
	struct paged_error error;
	enum paged_status status;

	client_lock(client);
	status = client->owner->ops->erase(client->owner, n, children, &error);
	client_unlock(client);
	if (status != PAGED_OK)
		owner_log(client->owner, PAGED_LOG_WARNING, "undoing a fork of %u sequences: %s", n, error.text);
}

static enum paged_status
batch_fork_run(struct paged_batch *batch, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	       struct batch_fork_copies *copies, struct paged_error *error)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = batch_fork_check(batch, n, forks, error);

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	status = client->owner->ops->fork(client->owner, n, forks, children, error);
	client_unlock(client);
	if (status != PAGED_OK)
		return status;
	status = batch_fork_copy(batch, n, forks, children, copies, error);
	if (status == PAGED_OK)
		status = batch_protect_graphs(batch, error);
	if (status != PAGED_OK)
		batch_fork_undo(client, n, children);
	return status;
}

enum paged_status
paged_batch_fork(struct paged_batch *batch, size_t n, const paged_seq_id *parents, const uint32_t *n_tokens,
		 paged_seq_id *children)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status =
		seq_request_enter(client, n, parents != NULL && n_tokens != NULL && children != NULL);
	struct batch_fork_copies copies = { 0 };
	struct paged_error error;
	struct seq_fork *forks;
	paged_seq_id *ids;
	uint32_t *words;

	if (status != PAGED_OK)
		return status;
	forks = calloc(n, sizeof(*forks));
	ids = calloc(n, sizeof(*ids));
	words = calloc(3 * n, sizeof(*words));
	if (forks == NULL || ids == NULL || words == NULL) {
		status = paged_fail(&error, PAGED_ERR_NOMEM, "no memory to fork %zu sequences", n);
	} else {
		copies = (struct batch_fork_copies){ .from = words, .to = words + n, .n_tokens = words + 2 * n };
		for (size_t i = 0; i < n; i++)
			forks[i] = (struct seq_fork){ .parent = parents[i], .n_tokens = n_tokens[i] };
		status = batch_fork_run(batch, (uint32_t)n, forks, ids, &copies, &error);
	}
	for (size_t i = 0; i < n && status == PAGED_OK; i++)
		children[i] = ids[i];
	free(forks);
	free(ids);
	free(words);
	return client_leave(client, status, &error);
}
