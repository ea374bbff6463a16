/* SPDX-License-Identifier: Apache-2.0 */
/* What evictions take first while a tenant has more cached pages than its share. */
#include "tests/core/core_model.h"

#include <string.h>

void
model_share_remove(struct model_pool *pool, uint32_t page)
{
	struct model_list *list = &pool->shared;

	for (uint32_t i = 0; i < list->n; i++) {
		if (list->pages[i] != page)
			continue;
		list->n--;
		memmove(&list->pages[i], &list->pages[i + 1], (list->n - i) * sizeof(list->pages[0]));
	}
}

static struct model_place
parent_of(const struct model_pool *pool, uint32_t page)
{
	return pool->nodes[page].parent;
}

void
model_share_insert(struct model_pool *pool, uint32_t page, bool hottest)
{
	struct model_list *list = &pool->shared;
	uint32_t at = list->n;

	if (pool->share == CORE_NO_LIMIT || pool->nodes[page].tenant != MODEL_SHARER || model_is_pinned(pool, page))
		return;
	for (struct model_place above = parent_of(pool, page); !hottest && above.serial != 0 && at == list->n;
	     above = parent_of(pool, above.page))
		for (uint32_t i = 0; i < list->n; i++)
			if (list->pages[i] == above.page)
				at = i;
	memmove(&list->pages[at + 1], &list->pages[at], (list->n - at) * sizeof(list->pages[0]));
	list->pages[at] = page;
	list->n++;
}

/* True: a page of others depends on this one. */
static bool
others_depend_on(const struct model_pool *pool, uint32_t page)
{
	for (uint32_t other = 0; other < pool->n_pages; other++)
		if (pool->nodes[other].serial != 0 && pool->nodes[other].tenant != MODEL_SHARER &&
		    model_is_in_chain(pool, other, page))
			return true;
	return false;
}

/* The last cached page at or below this one, if each page comes before its children, and these youngest first. */
static uint32_t
last_cached(const struct model_pool *pool, uint32_t page)
{
	uint32_t found = model_count(pool, page) == 0 ? page : REGION_NO_PAGE;
	uint64_t serial = UINT64_MAX;

	for (;;) {
		uint32_t child = REGION_NO_PAGE, below;

		for (uint32_t other = 0; other < pool->n_pages; other++)
			if (pool->nodes[other].serial != 0 && pool->nodes[other].serial < serial &&
			    pool->nodes[other].parent.serial == pool->nodes[page].serial &&
			    (child == REGION_NO_PAGE || pool->nodes[other].serial > pool->nodes[child].serial))
				child = other;
		if (child == REGION_NO_PAGE)
			return found;
		serial = pool->nodes[child].serial;
		below = last_cached(pool, child);
		found = below != REGION_NO_PAGE ? below : found;
	}
}

uint32_t
model_share_coldest(struct model_pool *pool)
{
	while (pool->share != CORE_NO_LIMIT && pool->shared.n > pool->share) {
		uint32_t page = pool->shared.pages[0];

		if (!others_depend_on(pool, page)) {
			page = last_cached(pool, page);
			model.n_share_evictions += pool->lru.pages[0] != page;
			return page;
		}
		model_share_remove(pool, page);
	}
	return REGION_NO_PAGE;
}

void
random_share(void)
{
	uint32_t p = random_below(MODEL_POOLS);
	struct model_pool *pool = &model.pools[p];
	uint32_t before = pool->share;

	pool->share = random_below(4) == 0 ? CORE_NO_LIMIT : random_below(4);
	model_check(core_tenant_share_cache(model.fixture.core, MODEL_SHARER, p, pool->share, &model.error) ==
		    PAGED_OK);
	if (pool->share == CORE_NO_LIMIT)
		pool->shared.n = 0;
	if (before == CORE_NO_LIMIT)
		for (uint32_t i = 0; i < pool->lru.n; i++)
			model_share_insert(pool, pool->lru.pages[i], true);
	model.n_done++;
}
