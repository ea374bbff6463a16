/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that the core divides into steps.  The model follows what page tables show of their progress, so how far a
 * step goes is left to the core; that each ends, and what it leaves, is not.
 */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

uint32_t
requester_errors(const struct model_session *session)
{
	uint32_t errors = session->active ? 0 : status_bit(PAGED_ERR_GONE);

	return session->pending.kind == PENDING_NONE ? errors : errors | status_bit(PAGED_ERR_AGAIN);
}

static uint32_t
load_pages(const _Atomic uint32_t *field, uint32_t page_size)
{
	return atomic_load_explicit(field, memory_order_relaxed) / page_size;
}

/* The slot as the core has it; NULL: the sequence has ended. */
static const struct region_slot *
core_slot(const struct model_seq *seq)
{
	const struct region_slot *slot =
		region_slot(core_pool_view(model.fixture.core, PAGED_SEQ_POOL(seq->id)), PAGED_SEQ_SLOT(seq->id));

	return atomic_load_explicit(&slot->owner, memory_order_relaxed) == 0 ? NULL : slot;
}

static bool
follow_truncate(struct model_pool *pool, struct model_seq *seq, const struct pending_item *item)
{
	const struct region_slot *slot = core_slot(seq);
	uint32_t page_size = model_geometries[PAGED_SEQ_POOL(seq->id)].page_size, n_keep;

	model_check(slot != NULL);
	n_keep = load_pages(&slot->capacity, page_size);
	if (n_keep < seq->n_pages || atomic_load_explicit(&slot->version, memory_order_relaxed) != seq->version)
		model_truncate(pool, seq, n_keep, item->n_whole, 0);
	return n_keep == item->n_pages && seq->n_published <= item->n_whole;
}

static bool
follow_trim(struct model_pool *pool, struct model_seq *seq, const struct pending_item *item)
{
	const struct region_slot *slot = core_slot(seq);

	model_check(slot != NULL);
	model_trim(pool, seq, load_pages(&slot->first, 1));
	return seq->n_trimmed >= item->n_whole;
}

static bool
follow_erase(struct model_pool *pool, struct model_seq *seq)
{
	const struct region_slot *slot = core_slot(seq);
	uint32_t page_size = model_geometries[PAGED_SEQ_POOL(seq->id)].page_size;
	uint32_t n_keep = slot == NULL ? 0 : load_pages(&slot->capacity, page_size);

	if (slot == NULL || n_keep < seq->n_pages)
		model_truncate(pool, seq, n_keep, n_keep, 0);
	if (slot == NULL)
		model_seq_close(pool, seq);
	return slot == NULL;
}

static const struct model_session *
growing_session(uint32_t i, uint32_t tenant)
{
	const struct model_session *session = &model.sessions[i];

	return session->pending.kind == PENDING_GROWTH && (tenant == UINT32_MAX || session->tenant == tenant) ? session
													      : NULL;
}

uint32_t
model_promised_to(uint32_t p, uint32_t tenant)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		const struct model_session *session = growing_session(i, tenant);

		for (uint32_t k = 0; session != NULL && k < session->pending.n; k++) {
			const struct pending_item *item = &session->pending.items[k];

			if (PAGED_SEQ_POOL(item->seq) == p)
				n += item->n_pages - MAX(item->n_whole, model_seq_find(item->seq)->n_pages);
		}
	}
	return n;
}

uint32_t
model_promised(uint32_t p)
{
	return model_promised_to(p, UINT32_MAX);
}

bool
model_is_long(uint32_t n_shared, const uint32_t *needs)
{
	uint32_t n = n_shared;

	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		n += needs[p] + MAX(needs[p], model.pools[p].free.n) - model.pools[p].free.n;
	return n > model.step;
}

static void
follow_fork(struct model_pool *pool, struct model_seq *seq, const struct pending_item *item, uint32_t n_shared)
{
	const struct model_seq *parent = model_seq_find(item->parent);

	memcpy(&seq->pages[seq->n_pages], &parent->pages[seq->n_pages],
	       (n_shared - seq->n_pages) * sizeof(seq->pages[0]));
	seq->n_pages = seq->n_writable_from = n_shared;
	seq->n_trimmed = MIN(parent->n_trimmed, n_shared);
	seq->version_moves = true;
	if (n_shared == item->n_whole)
		model_fork_published(pool, parent, seq);
}

static bool
follow_growth(struct model_pool *pool, struct model_seq *seq, const struct pending_item *item)
{
	const struct region_slot *slot = core_slot(seq);
	uint32_t n;

	model_check(slot != NULL);
	n = load_pages(&slot->capacity, model_geometries[PAGED_SEQ_POOL(seq->id)].page_size);
	model_check(n >= seq->n_pages && n <= item->n_pages);
	if (seq->n_pages < MIN(n, item->n_whole))
		follow_fork(pool, seq, item, MIN(n, item->n_whole));
	if (seq->n_pages < n) {
		model_make_free(pool, n - seq->n_pages);
		model_take(pool, seq, n);
	}
	return n == item->n_pages;
}

/* Brings the model's item to where the core's is; true: the item is done. */
static bool
follow_item(enum pending_kind kind, const struct pending_item *item)
{
	struct model_pool *pool = &model.pools[PAGED_SEQ_POOL(item->seq)];
	struct model_seq *seq = model_seq_find(item->seq);

	if (seq == NULL) /* erased by an earlier step */
		return true;
	switch (kind) {
	case PENDING_TRUNCATE:
		return follow_truncate(pool, seq, item);
	case PENDING_TRIM:
		return follow_trim(pool, seq, item);
	case PENDING_GROWTH:
		return follow_growth(pool, seq, item);
	default:
		return follow_erase(pool, seq);
	}
}

void
model_follow(struct model_session *session)
{
	bool busy = core_session_is_busy(model.fixture.core, session->id), done = true;

	for (uint32_t i = 0; i < session->pending.n && done; i++)
		done = follow_item(session->pending.kind, &session->pending.items[i]);
	model_check(done || busy);
	if (!busy)
		session->pending.kind = PENDING_NONE;
	else
		model.n_divided++;
}

void
model_grow(struct model_session *session, uint32_t n, struct model_seq *const *seqs, const uint32_t *n_pages,
	   const uint32_t *needs)
{
	if (model_is_long(0, needs)) {
		session->pending = (struct model_pending){ .kind = PENDING_GROWTH, .n = n };
		for (uint32_t i = 0; i < n; i++)
			session->pending.items[i] = (struct pending_item){ .seq = seqs[i]->id, .n_pages = n_pages[i] };
		model_follow(session);
		return;
	}
	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		model_make_free(&model.pools[p], needs[p]);
	for (uint32_t i = 0; i < n; i++)
		model_take(&model.pools[PAGED_SEQ_POOL(seqs[i]->id)], seqs[i], n_pages[i]);
}

void
random_step(void)
{
	struct core_progress progress;
	bool more = core_step(model.fixture.core, &progress), busy = false;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		struct model_session *session = &model.sessions[i];

		if (session->pending.kind == PENDING_NONE)
			continue;
		model_follow(session);
		model_check((session->pending.kind == PENDING_NONE) ==
			    (progress.finished && session->id == progress.session));
		model_check(!progress.finished || progress.error.status == PAGED_OK);
		busy = busy || session->pending.kind != PENDING_NONE;
	}
	model_check(busy == more);
}

void
random_step_size(void)
{
	model.step = random_below(3) == 0 ? CORE_NO_STEP : 1 + random_below(12);
	core_set_step(model.fixture.core, model.step);
}
