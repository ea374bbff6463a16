/* SPDX-License-Identifier: Apache-2.0 */
/* Random requests that take and drop pages: create, reserve, truncate, trim, erase. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

static uint32_t
random_tokens(uint32_t p)
{
	return random_below(model_geometries[p].max_length / (1 + random_below(6)) + 2);
}

void
random_create(void)
{
	struct model_session *session = random_requester();
	uint32_t n = random_below(4), errors = 0, slots[MODEL_POOLS] = { 0 }, needs[MODEL_POOLS] = { 0 };
	struct model_seq *seqs[3];
	struct seq_spec specs[3];
	uint32_t n_pages[3];
	paged_seq_id ids[3];

	errors |= requester_errors(session);
	errors |= draining_errors(session);
	if (n == 0)
		errors |= status_bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = random_below(MODEL_POOLS);

		specs[i] = (struct seq_spec){ .pool = p, .tag = random_below(2) == 0 ? "" : "tag" };
		if (random_below(2) == 0)
			specs[i].n_tokens = random_tokens(p);
		if (specs[i].n_tokens > model_geometries[p].max_length)
			errors |= status_bit(PAGED_ERR_LIMIT);
		slots[p]++;
		n_pages[i] = pages_of_tokens(p, specs[i].n_tokens);
		needs[p] += n_pages[i];
	}
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		if (slots[p] > model_slots_left(p) || needs[p] > model_available(&model.pools[p]))
			errors |= status_bit(PAGED_ERR_FULL);
		errors |= quota_errors(p, session->tenant, needs[p]) | slot_errors(p, session->tenant, slots[p]);
	}
	model_check_status(core_seq_create(model.fixture.core, session->id, n, specs, ids, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		struct paged_seq_entry entry;

		seqs[i] = model_seq_open(ids[i], specs[i].pool, session->id);
		model_check(core_seq_status(model.fixture.core, ids[i], &entry, &model.error) == PAGED_OK &&
			    strcmp(entry.tag, specs[i].tag) == 0);
	}
	if (errors == 0)
		model_grow(session, n, seqs, n_pages, needs);
}

static uint32_t
random_items(const struct model_session *session, struct paged_seq_item *items, uint32_t *errors_p)
{
	paged_seq_id ids[MODEL_ITEMS];
	uint32_t n = random_seqs(session, MODEL_ITEMS, ids);

	for (uint32_t i = 0; i < n; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i] };
	*errors_p = seq_errors(session, n, ids);
	return n;
}

void
random_reserve(void)
{
	struct model_session *session = random_requester();
	struct paged_seq_item items[MODEL_ITEMS];
	uint32_t errors, n = random_items(session, items, &errors);
	uint32_t needs[MODEL_POOLS] = { 0 }, ahead[MODEL_POOLS] = { 0 }, takes[MODEL_POOLS] = { 0 };
	uint32_t want[MODEL_ITEMS] = { 0 }, want_ahead[MODEL_ITEMS] = { 0 };
	struct model_seq *seqs[MODEL_ITEMS];

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(items[i].seq);
		uint32_t p = PAGED_SEQ_POOL(items[i].seq), has = seq == NULL ? 0 : seq->n_pages, most;

		if (p >= MODEL_POOLS)
			continue;
		items[i].n_tokens = random_tokens(p);
		if (random_below(3) == 0)
			items[i].n_ahead = random_below(2 * model_geometries[p].max_length);
		if (items[i].n_tokens > model_geometries[p].max_length)
			errors |= status_bit(PAGED_ERR_LIMIT);
		want[i] = MAX(pages_of_tokens(p, items[i].n_tokens), has);
		needs[p] += want[i] - has;
		most = MIN(items[i].n_tokens + items[i].n_ahead, model_geometries[p].max_length);
		most = pages_of_tokens(p, most);
		want_ahead[i] = most > want[i] ? most - want[i] : 0;
		ahead[p] += want_ahead[i];
	}
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		if (needs[p] > model_available(&model.pools[p]))
			errors |= status_bit(PAGED_ERR_FULL);
		errors |= quota_errors(p, session->tenant, needs[p]);
	}
	model_check_status(core_seq_reserve(model.fixture.core, session->id, n, items, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(items[i].seq), keep = needs[p] + model_geometries[p].n_pages / 8;
		uint32_t left = model_quota_left(p, session->tenant);
		uint32_t spare = MIN(MAX(model_available(&model.pools[p]), keep) - keep, left - needs[p]);

		if (ahead[p] > spare)
			want_ahead[i] = want_ahead[i] * spare / ahead[p];
		want[i] += want_ahead[i];
		seqs[i] = model_seq_find(items[i].seq);
		takes[p] += want[i] - seqs[i]->n_pages;
	}
	if (errors == 0)
		model_grow(session, n, seqs, want, takes);
}

/* The core has accepted the request, and perhaps finished it. */
static void
pending_begin(struct model_session *session, enum pending_kind kind, uint32_t n, const struct paged_seq_item *items)
{
	session->pending = (struct model_pending){ .kind = kind, .n = n };
	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(items[i].seq);

		session->pending.items[i] = (struct pending_item){
			.seq = items[i].seq,
			.n_pages = pages_of_tokens(p, items[i].n_tokens),
			.n_whole = items[i].n_tokens / model_geometries[p].page_size,
		};
	}
	model_follow(session);
}

void
random_truncate(void)
{
	struct model_session *session = random_requester();
	struct paged_seq_item items[MODEL_ITEMS];
	uint32_t errors, n = random_items(session, items, &errors);

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(items[i].seq);
		uint32_t p = PAGED_SEQ_POOL(items[i].seq);
		uint32_t capacity = seq == NULL ? 8 : seq->n_pages * model_geometries[p].page_size;

		items[i].n_tokens = random_below(capacity + 1 + (random_below(16) == 0));
		if (seq != NULL && random_below(16) != 0)
			items[i].n_tokens = MAX(items[i].n_tokens, seq->n_trimmed * model_geometries[p].page_size);
		if (items[i].n_tokens > capacity)
			errors |= status_bit(PAGED_ERR_CAPACITY);
		if (seq != NULL && items[i].n_tokens < seq->n_trimmed * model_geometries[p].page_size)
			errors |= status_bit(PAGED_ERR_INVALID);
	}
	model_check_status(core_seq_truncate(model.fixture.core, session->id, n, items, &model.error), errors);
	if (errors == 0)
		pending_begin(session, PENDING_TRUNCATE, n, items);
}

/* A hold can be erased, and nothing else. */
static uint32_t
erase_errors(const struct model_session *session, uint32_t n, const paged_seq_id *ids)
{
	bool was_hold[MODEL_ITEMS];
	uint32_t errors;

	for (uint32_t i = 0; i < n; i++) {
		was_hold[i] = model_seq_find(ids[i]) != NULL && model_seq_find(ids[i])->is_hold;
		if (was_hold[i])
			model_seq_find(ids[i])->is_hold = false;
	}
	errors = seq_errors(session, n, ids);
	for (uint32_t i = 0; i < n; i++)
		if (was_hold[i])
			model_seq_find(ids[i])->is_hold = true;
	return errors;
}

void
random_trim(void)
{
	struct model_session *session = random_requester();
	struct paged_seq_item items[MODEL_ITEMS];
	uint32_t errors, n = random_items(session, items, &errors);

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(items[i].seq);
		uint32_t p = PAGED_SEQ_POOL(items[i].seq);
		uint32_t capacity = seq == NULL ? 8 : seq->n_pages * model_geometries[p].page_size;

		/* Mostly a window over the end, as a sliding window model trims. */
		items[i].n_tokens = random_below(capacity + 1 + (random_below(16) == 0));
		if (random_below(2) == 0)
			items[i].n_tokens = MIN(items[i].n_tokens, capacity / 2);
		if (items[i].n_tokens > capacity)
			errors |= status_bit(PAGED_ERR_CAPACITY);
		if (random_below(64) == 0) {
			items[i].n_ahead = 1;
			errors |= status_bit(PAGED_ERR_INVALID);
		}
	}
	model_check_status(core_seq_trim(model.fixture.core, session->id, n, items, &model.error), errors);
	if (errors == 0)
		pending_begin(session, PENDING_TRIM, n, items);
}

void
random_erase(void)
{
	struct model_session *session = random_requester();
	struct paged_seq_item items[MODEL_ITEMS];
	paged_seq_id ids[MODEL_ITEMS];
	uint32_t n = random_seqs(session, MODEL_ITEMS, ids), errors = erase_errors(session, n, ids);

	model_check_status(core_seq_erase(model.fixture.core, session->id, n, ids, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i] };
	if (errors == 0)
		pending_begin(session, PENDING_ERASE, n, items);
}
