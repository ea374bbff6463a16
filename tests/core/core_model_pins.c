/* SPDX-License-Identifier: Apache-2.0 */
/* Random pins, the clock, and evictions that no request needs. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

#define SECONDS_PER_YEAR (366u * 24 * 60 * 60)

/* The pages from a node up to the root, in this order; 0: one of them is gone. */
static uint32_t
chain_of_node(const struct model_pool *pool, struct model_place at, struct model_place *chain)
{
	uint32_t n = 0;

	for (; at.serial != 0; at = pool->nodes[at.page].parent) {
		if (!model_is_live(pool, at))
			return 0;
		model_check(n < MODEL_PAGES);
		chain[n++] = at;
	}
	return n;
}

static void
pin_begin(struct model_pool *pool, uint32_t tenant, uint32_t n, const struct model_place *chain, uint64_t deadline)
{
	struct model_pin *pin = &pool->pins[pool->n_pins];

	model_check(pool->n_pins < MODEL_PINS);
	*pin = (struct model_pin){ .deadline = deadline, .tenant = tenant, .n = n };
	memcpy(pin->chain, chain, n * sizeof(*chain));
	pool->n_pins++;
	for (uint32_t i = 0; i < n; i++)
		if (model_count(pool, chain[i].page) == 0)
			model_cached_hot(pool, chain[i].page);
}

static void
pin_end(struct model_pool *pool, uint32_t index)
{
	struct model_pin pin = pool->pins[index];

	memmove(&pool->pins[index], &pool->pins[index + 1], (--pool->n_pins - index) * sizeof(pin));
	for (uint32_t i = 0; i < pin.n; i++)
		if (model_is_live(pool, pin.chain[i]) && !model_is_pinned(pool, pin.chain[i].page) &&
		    model_count(pool, pin.chain[i].page) == 0)
			model_cached_hot(pool, pin.chain[i].page);
}

void
model_pins_shorten(struct model_pool *pool)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < pool->n_pins; i++) {
		struct model_pin *pin = &pool->pins[i];

		while (pin->n > 0 && !model_is_live(pool, pin->chain[0]))
			memmove(pin->chain, pin->chain + 1, --pin->n * sizeof(*pin->chain));
		if (pin->n > 0 && n_kept != i)
			pool->pins[n_kept] = *pin;
		n_kept += pin->n > 0;
	}
	pool->n_pins = n_kept;
}

/* The tenant's oldest pin of this node; UINT32_MAX: none. */
static uint32_t
find_pin(const struct model_pool *pool, struct model_place at, uint32_t tenant)
{
	for (uint32_t i = 0; i < pool->n_pins; i++)
		if (pool->pins[i].chain[0].page == at.page && pool->pins[i].chain[0].serial == at.serial &&
		    pool->pins[i].tenant == tenant)
			return i;
	return UINT32_MAX;
}

void
random_pin(void)
{
	uint32_t p = random_below(MODEL_POOLS), errors = 0, known, n_all = model_n_held(p), n, n_pages;
	struct model_pool *pool = &model.pools[p];
	struct model_place at = { .page = random_below(pool->n_pages) }, chain[MODEL_PAGES];
	uint32_t seconds = random_below(3) == 0 ? 0 : 1 + random_below(20);
	const struct model_session *session = random_requester();
	const struct core_pinner by = { .session = session->id };

	if (!session->active)
		errors |= status_bit(PAGED_ERR_GONE);
	for (int tries = 0; tries < 24 && pool->nodes[at.page].serial == 0; tries++)
		at.page = random_below(pool->n_pages);
	at.serial = pool->nodes[at.page].serial + (random_below(16) == 0);
	if (random_below(32) == 0)
		at.page = pool->n_pages + random_below(2);
	if (random_below(32) == 0)
		seconds = SECONDS_PER_YEAR + random_below(2);
	if (seconds > SECONDS_PER_YEAR)
		errors |= status_bit(PAGED_ERR_LIMIT);
	if (session->active && at.page < pool->n_pages && at.serial != 0 && seconds <= SECONDS_PER_YEAR)
		model_pins_shorten(pool);
	n = at.page < pool->n_pages && at.serial != 0 ? chain_of_node(pool, at, chain) : 0;
	if (at.page >= pool->n_pages)
		errors |= status_bit(PAGED_ERR_RANGE);
	else if (n == 0)
		errors |= status_bit(PAGED_ERR_STALE);
	for (uint32_t i = 0; i < pool->n_pins; i++)
		n_all += pool->pins[i].n;
	known = find_pin(pool, at, session->tenant);
	if (known == UINT32_MAX && seconds > 0)
		errors |= pin_errors(p, session->tenant, 1, n);
	if (known == UINT32_MAX && seconds > 0 && n_all + n > model_geometries[p].pin_limit)
		errors |= status_bit(PAGED_ERR_LIMIT);
	model_check_status(
		core_prefix_pin(model.fixture.core, &by, p, at.page, at.serial, seconds, &n_pages, &model.error),
		errors);
	if (errors != 0)
		return;
	model_check(n_pages == n);
	for (; seconds == 0 && known != UINT32_MAX; known = find_pin(pool, at, session->tenant))
		pin_end(pool, known);
	if (seconds > 0 && known != UINT32_MAX)
		pool->pins[known].deadline = model.now_ms + (uint64_t)seconds * 1000;
	else if (seconds > 0)
		pin_begin(pool, session->tenant, n, chain, model.now_ms + (uint64_t)seconds * 1000);
}

void
random_clock(void)
{
	model.now_ms += random_below(3) == 0 ? random_below(30000) : random_below(2000);
	core_set_now(model.fixture.core, model.now_ms);
}

/* The pin that expires first, of those that have expired; of two, the older one. */
static uint32_t
expired_pin(const struct model_pool *pool)
{
	uint32_t first = UINT32_MAX;

	for (uint32_t i = 0; i < pool->n_pins; i++)
		if (pool->pins[i].deadline <= model.now_ms &&
		    (first == UINT32_MAX || pool->pins[i].deadline < pool->pins[first].deadline))
			first = i;
	return first;
}

void
random_tick(void)
{
	uint32_t budget = 1 + random_below(6), n_evicted = 0;
	struct paged_pool_entry status;
	bool more;

	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		if (expired_pin(&model.pools[p]) != UINT32_MAX)
			budget = 1000;
	if (model_tickets_have_expired())
		budget = 1000;
	more = core_tick(model.fixture.core, budget);
	model_tickets_expire();
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		struct model_pool *pool = &model.pools[p];

		for (uint32_t i = expired_pin(pool); i != UINT32_MAX; i = expired_pin(pool))
			pin_end(pool, i);
		core_pool_status(model.fixture.core, p, &status);
		for (; pool->free.n < status.n_free; n_evicted++) {
			model_check(pool->free.n < model_geometries[p].free_pages && pool->lru.n > 0);
			model_evict(pool);
		}
		model_check(more || pool->free.n >= model_geometries[p].free_pages || pool->lru.n == 0);
	}
	model_check(n_evicted <= budget);
	model_check(!more || n_evicted > 0);
	model.n_done++;
}

void
random_evict(void)
{
	uint32_t p = random_below(MODEL_POOLS), n = random_below(4) == 0 ? 0 : 1 + random_below(8), n_evicted;
	struct model_pool *pool = &model.pools[p];
	uint32_t expected = pool->lru.n + pool->pinned.n;

	if (n == 0 && random_below(8) != 0)
		return;
	if (n > 0)
		expected = MIN(expected, n);
	n_evicted = core_prefix_evict(model.fixture.core, p, n);
	model_check(n_evicted == expected);
	model_make_free(pool, pool->free.n + expected);
	model.n_done++;
}
