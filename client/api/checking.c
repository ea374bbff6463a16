/* SPDX-License-Identifier: Apache-2.0 */
/* A bit for each token and layer of a sequence: this client has appended it. */
#include "config.h"

#include "client/api/checking.h"

#include <stdio.h>
#include <stdlib.h>

struct checked_seq {
	paged_seq_id id;
	uint32_t n_shared; /* tokens before it were written by others */
	uint64_t words[];  /* [n_layers][n_words] */
};

struct checking {
	pthread_mutex_t mutex;
	bool appends; /* this client has appended; until then another process of its session may be the one that does */
	uint32_t n_layers, n_words, max_length;
	struct checked_seq *seqs[]; /* [n_slots]; NULL: not checked */
};

enum paged_status
checking_open(struct paged_pool *pool, struct paged_error *error)
{
	const struct region_view *view = &pool->mapping.view;
	struct checking *checking = calloc(1, sizeof(*checking) + view->n_slots * sizeof(checking->seqs[0]));

	if (checking == NULL || pthread_mutex_init(&checking->mutex, NULL) != 0) {
		free(checking);
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to check %u sequences (PAGED_CHECK)",
				  pool->mapping.name, view->n_slots);
	}
	checking->n_layers = pool->mapping.layout.params.n_layers;
	checking->max_length = view->table_entries * view->page_size;
	checking->n_words = (checking->max_length + 63) / 64;
	pool->checking = checking;
	return PAGED_OK;
}

void
checking_close(struct paged_pool *pool, bool in_child)
{
	struct checking *checking = pool->checking;

	if (checking == NULL)
		return;
	for (uint32_t slot = 0; slot < pool->mapping.view.n_slots; slot++)
		free(checking->seqs[slot]);
	if (!in_child)
		pthread_mutex_destroy(&checking->mutex);
	free(checking);
}

/* The sequence's place, if it is checked; the mutex is held. */
static struct checked_seq *
checking_find(const struct checking *checking, paged_seq_id id)
{
	struct checked_seq *seq = checking->seqs[PAGED_SEQ_SLOT(id)];

	return seq != NULL && seq->id == id ? seq : NULL;
}

void
checking_begin(struct paged_pool *pool, paged_seq_id id, uint32_t n_shared)
{
	struct checking *checking = pool->checking;
	struct checked_seq *seq = calloc(1, sizeof(*seq) + (size_t)checking->n_layers * checking->n_words * 8);

	if (seq != NULL)
		*seq = (struct checked_seq){ .id = id, .n_shared = n_shared };
	pthread_mutex_lock(&checking->mutex);
	free(checking->seqs[PAGED_SEQ_SLOT(id)]);
	checking->seqs[PAGED_SEQ_SLOT(id)] = seq;
	pthread_mutex_unlock(&checking->mutex);
}

static uint64_t *
checking_layer(const struct checking *checking, struct checked_seq *seq, uint32_t layer)
{
	return seq->words + (size_t)layer * checking->n_words;
}

void
checking_truncate(struct paged_pool *pool, paged_seq_id id, uint32_t n_tokens)
{
	struct checking *checking = pool->checking;
	struct checked_seq *seq;

	pthread_mutex_lock(&checking->mutex);
	seq = checking_find(checking, id);
	for (uint32_t layer = 0; seq != NULL && layer < checking->n_layers; layer++)
		for (uint32_t t = n_tokens; t < checking->max_length; t++)
			checking_layer(checking, seq, layer)[t / 64] &= ~(1ull << t % 64);
	if (seq != NULL && seq->n_shared > n_tokens)
		seq->n_shared = n_tokens;
	pthread_mutex_unlock(&checking->mutex);
}

void
checking_forget(struct paged_pool *pool, paged_seq_id id)
{
	struct checking *checking = pool->checking;
	struct checked_seq *seq;

	pthread_mutex_lock(&checking->mutex);
	seq = checking_find(checking, id);
	if (seq != NULL)
		checking->seqs[PAGED_SEQ_SLOT(id)] = NULL;
	free(seq);
	pthread_mutex_unlock(&checking->mutex);
}

void
checking_append(const struct paged_batch *batch, uint32_t layer, bool positions)
{
	struct checking *checking = batch->pool->checking;

	pthread_mutex_lock(&checking->mutex);
	checking->appends = true;
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		uint32_t from = positions || row->q_len > row->kv_len ? 0 : row->kv_len - row->q_len;
		struct checked_seq *seq = batch->row[r].id != 0 ? checking_find(checking, batch->row[r].id) : NULL;

		for (uint32_t t = from; seq != NULL && row->q_len > 0 && !row->skip_append && t < row->kv_len; t++)
			checking_layer(checking, seq, layer)[t / 64] |= 1ull << t % 64;
	}
	pthread_mutex_unlock(&checking->mutex);
}

/* The first of tokens [from, end) that was not appended; end: all were. */
static uint32_t
checking_first_missing(const struct checking *checking, struct checked_seq *seq, uint32_t layer, uint32_t from,
		       uint32_t end)
{
	const uint64_t *words = checking_layer(checking, seq, layer);

	if (from < seq->n_shared)
		from = seq->n_shared;
	while (from < end && (words[from / 64] >> from % 64 & 1) != 0)
		from++;
	return from < end ? from : end;
}

static enum paged_status
checking_fail(const char *what, paged_seq_id id, uint32_t layer, uint32_t token, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_INVALID,
			  "%ssequence " SEQ_FORMAT
			  ": token %u was never appended in layer %u by this client (PAGED_CHECK)",
			  what, SEQ_ARGS(id), token, layer);
}

enum paged_status
checking_attention(const struct paged_batch *batch, uint32_t layer, struct paged_error *error)
{
	struct checking *checking = batch->pool->checking;
	enum paged_status status = PAGED_OK;
	char what[24];

	pthread_mutex_lock(&checking->mutex);
	for (uint32_t r = 0; r < batch->n_rows && status == PAGED_OK; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		struct checked_seq *seq = batch->row[r].id != 0 ? checking_find(checking, batch->row[r].id) : NULL;
		uint32_t token;

		if (seq == NULL || row->q_len == 0)
			continue;
		token = checking_first_missing(checking, seq, layer, row->kv_first, row->kv_len);
		snprintf(what, sizeof(what), "row %u: ", r);
		if (token < row->kv_len)
			status = checking_fail(what, seq->id, layer, token, error);
	}
	pthread_mutex_unlock(&checking->mutex);
	return status;
}

enum paged_status
checking_publish(const struct paged_pool *pool, paged_seq_id id, uint32_t from, uint32_t end, struct paged_error *error)
{
	struct checking *checking = pool->checking;
	enum paged_status status = PAGED_OK;
	struct checked_seq *seq;

	pthread_mutex_lock(&checking->mutex);
	seq = checking->appends ? checking_find(checking, id) : NULL;
	for (uint32_t layer = 0; seq != NULL && layer < checking->n_layers && status == PAGED_OK; layer++) {
		uint32_t token = checking_first_missing(checking, seq, layer, from, end);

		if (token < end)
			status = checking_fail("", id, layer, token, error);
	}
	pthread_mutex_unlock(&checking->mutex);
	return status;
}
