/* SPDX-License-Identifier: Apache-2.0 */
/* Random holds of published pages, and sessions that get no new sequences. */
#include <sys/param.h>

#include "tests/core/core_model.h"

#define MAX_HELD 6

uint32_t
model_n_held(uint32_t p)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++) {
		const struct model_seq *seq = &model.pools[p].seqs[s];

		if (seq->state != MODEL_SEQ_NONE && seq->is_hold)
			n += seq->n_pages;
	}
	return n;
}

/* Mostly published pages, each once, with their serials; sometimes others. */
static uint32_t
random_pages(uint32_t p, uint32_t *pages, uint64_t *serials)
{
	const struct model_pool *pool = &model.pools[p];
	uint32_t n = random_below(MAX_HELD + 1), n_chosen = 0;
	bool wrong = random_below(8) == 0;

	for (int tries = 0; tries < 32 && n_chosen < n; tries++) {
		uint32_t page = random_below(pool->n_pages + (wrong ? 2 : 0));
		bool named = false;

		for (uint32_t i = 0; i < n_chosen; i++)
			named = named || pages[i] == page;
		if (!wrong && (named || pool->nodes[page].serial == 0))
			continue;
		pages[n_chosen] = page;
		serials[n_chosen++] =
			page < pool->n_pages ? pool->nodes[page].serial + (wrong && random_below(4) == 0) : 1;
	}
	return n_chosen;
}

static uint32_t
pages_errors(uint32_t p, uint32_t n, const uint32_t *pages, const uint64_t *serials)
{
	const struct model_pool *pool = &model.pools[p];
	uint32_t errors = n == 0 ? status_bit(PAGED_ERR_INVALID) : 0;

	for (uint32_t i = 0; i < n; i++) {
		if (pages[i] >= pool->n_pages)
			errors |= status_bit(PAGED_ERR_RANGE);
		else if (serials[i] == 0 || pool->nodes[pages[i]].serial != serials[i])
			errors |= status_bit(PAGED_ERR_STALE);
		for (uint32_t k = 0; k < i; k++)
			if (pages[k] == pages[i])
				errors |= status_bit(PAGED_ERR_INVALID);
	}
	return errors;
}

/* The refusals for the limit of pages that pins and holds name. */
static uint32_t
limit_errors(const struct model_session *session, uint32_t p, uint32_t n)
{
	uint32_t n_limited = n + model_n_held(p);

	for (uint32_t i = 0; i < model.pools[p].n_pins; i++)
		n_limited += model.pools[p].pins[i].n;
	return (n_limited > model_geometries[p].pin_limit ? status_bit(PAGED_ERR_LIMIT) : 0) |
	       pin_errors(p, session->tenant, 0, n);
}

static uint32_t
hold_errors(const struct model_session *session, uint32_t p, uint32_t n, const uint32_t *pages, const uint64_t *serials)
{
	uint32_t errors = requester_errors(session) | draining_errors(session), n_charged = 0, n_kept = 0;

	if (n > pages_of_tokens(p, model_geometries[p].max_length))
		errors |= status_bit(PAGED_ERR_LIMIT);
	else if (errors == 0 && n > 0 && limit_errors(session, p, n) != 0)
		model_pins_shorten(&model.pools[p]);
	errors |= pages_errors(p, n, pages, serials) | limit_errors(session, p, n);
	if (model_slots_left(p) == 0)
		errors |= status_bit(PAGED_ERR_FULL);
	for (uint32_t i = 0; i < n; i++) {
		n_charged += pages[i] < model.pools[p].n_pages && !model_is_charged(p, session->tenant, pages[i]);
		n_kept += pages[i] < model.pools[p].n_pages && model_count(&model.pools[p], pages[i]) == 0;
	}
	if (n_kept > model_available(&model.pools[p]))
		errors |= status_bit(PAGED_ERR_FULL);
	return errors | quota_errors(p, session->tenant, n_charged) | slot_errors(p, session->tenant, 1);
}

void
random_hold(void)
{
	const struct model_session *session = random_requester();
	uint32_t p = random_below(MODEL_POOLS), pages[MAX_HELD], n, errors;
	uint64_t serials[MAX_HELD];
	struct model_seq *seq;
	paged_seq_id id;

	n = random_pages(p, pages, serials);
	errors = hold_errors(session, p, n, pages, serials);
	model_check_status(core_pages_hold(model.fixture.core, session->id, p, n, pages, serials, &id, &model.error),
			   errors);
	if (errors != 0)
		return;
	seq = model_seq_open(id, p, session->id);
	seq->is_hold = true;
	for (uint32_t i = 0; i < n; i++) {
		model_cached_remove(&model.pools[p], pages[i]);
		seq->content[i] = model.pools[p].nodes[pages[i]].symbol;
		seq->pages[i] = pages[i];
	}
	seq->n_pages = seq->n_writable_from = n;
	model.n_holds++;
}

/* Rarely, so that most sessions go on. */
void
random_drain(void)
{
	struct model_session *session = random_requester();

	if (!session->active || random_below(8) != 0)
		return;
	model_check_status(core_session_drain(model.fixture.core, session->id, &model.error), 0);
	session->draining = true;
}
