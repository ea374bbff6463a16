/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: prefixes that are evicted only after all other cached pages.  A pin names the nodes of its chain by serial, so
 * it needs no change when one of them is removed, and is shortened before the counts of pins matter; each node counts
 * the pins that cover it.
 */
#include "core/node.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#define PIN_MAX_SECONDS (366u * 24 * 3600)

static struct node_ref
pin_last(const struct pool_pin *pin)
{
	return pin->nodes[pin->n_nodes - 1];
}

/* The pin that expires first; of equal ones the oldest; n_pins: there is none. */
static uint32_t
pin_first(const struct core_pool *pool)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i < pool->n_pins; i++)
		if (pool->pins[i].deadline_ms < pool->pins[first].deadline_ms)
			first = i;
	return first;
}

/* After each change but a new pin: each request asks for the deadline. */
static void
pins_update_deadline(struct core_pool *pool)
{
	pool->first_pin_ms = pool->n_pins > 0 ? pool->pins[pin_first(pool)].deadline_ms : CORE_NO_DEADLINE;
}

/* Collects the chain that ends with `last`. */
static enum paged_status
pin_collect(const struct core_pool *pool, struct node_ref last, struct pool_pin *pin, struct paged_error *error)
{
	struct node_ref ref = last;

	*pin = (struct pool_pin){ 0 };
	if (node_is_live(pool, &last)) {
		pin->n_nodes = pool->nodes[last.page].depth + 1;
		pin->nodes = reallocarray(NULL, pin->n_nodes, sizeof(*pin->nodes));
		if (pin->nodes == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory for a pin", pool->name);
	}
	for (uint32_t i = pin->n_nodes; ref.serial != 0; ref = node_parent(pool, ref.page)) {
		if (!node_is_live(pool, &ref)) {
			free(pin->nodes);
			return paged_fail(error, PAGED_ERR_STALE, "pool %s: page %u is not the node of serial %llu",
					  pool->name, ref.page, (unsigned long long)ref.serial);
		}
		pin->nodes[--i] = ref;
	}
	return PAGED_OK;
}

/*
 * Adds a pin to, or removes it from, the counts of its nodes.  Cached nodes move to the hot end of their list, the last
 * one first: a parent stays hotter than its child.
 */
static void
pin_count(struct core_pool *pool, const struct pool_pin *pin, bool add)
{
	uint32_t n_pinned = atomic_load_explicit(&pool->header->n_pinned, memory_order_relaxed);

	core_pool_change_begin(pool);
	pool->n_worked += pin->n_nodes;
	for (uint32_t i = pin->n_nodes; i-- > 0;) {
		uint32_t page = pin->nodes[i].page;
		struct pool_page *own = &pool->pages[page];
		bool changes_list = own->n_pins == (add ? 0 : 1);

		if (!node_is_live(pool, &pin->nodes[i]))
			continue;
		if (changes_list) {
			n_pinned += add ? 1 : -1u;
			lru_unlist(pool, page);
		}
		own->n_pins = add ? own->n_pins + 1 : own->n_pins - 1;
		/* A new pin moves nodes that were pinned before, too. */
		if ((changes_list || add) && page_count(pool, page) == 0)
			lru_touch(pool, page);
	}
	atomic_store_explicit(&pool->header->n_pinned, n_pinned, memory_order_relaxed);
	core_pool_change_end(pool);
	pool->n_pin_nodes = add ? pool->n_pin_nodes + pin->n_nodes : pool->n_pin_nodes - pin->n_nodes;
}

/* Ends a pin; the caller takes it out of the list. */
static void
pin_release(struct core_pool *pool, const struct pool_pin *pin)
{
	pin_count(pool, pin, false);
	tenant_count_pin(pool, pin->tenant, pin->n_nodes, false);
	free(pin->nodes);
}

/* Ends pin i; the others keep their order. */
static void
pin_end(struct core_pool *pool, uint32_t i)
{
	pin_release(pool, &pool->pins[i]);
	pool->n_pins--;
	memmove(&pool->pins[i], &pool->pins[i + 1], (pool->n_pins - i) * sizeof(pool->pins[0]));
	pins_update_deadline(pool);
}

/* Nodes of the pin's chain that are left: those below a node that is gone do not count. */
static uint32_t
pin_n_live(const struct core_pool *pool, const struct pool_pin *pin)
{
	uint32_t low = 0, high = pin->n_nodes;

	if (node_is_live(pool, &pin->nodes[high - 1]))
		return high;
	/* Node high - 1 is gone; those before low are left. */
	for (high--; low < high;) {
		uint32_t middle = low + (high - low) / 2;

		if (node_is_live(pool, &pin->nodes[middle]))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void
pins_shorten(struct core_pool *pool)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < pool->n_pins; i++) {
		struct pool_pin pin = pool->pins[i];
		uint32_t n_gone = pin.n_nodes - pin_n_live(pool, &pin);

		pool->n_pin_nodes -= n_gone;
		tenant_count_held(pool, pin.tenant, -(int64_t)n_gone);
		pin.n_nodes -= n_gone;
		if (pin.n_nodes == 0)
			pin_release(pool, &pin);
		else
			pool->pins[n_kept++] = pin;
	}
	pool->n_pins = n_kept;
	pins_update_deadline(pool);
}

/* The tenant's pin whose chain ends with this node; n_pins: none. */
static uint32_t
pin_find(const struct core_pool *pool, uint32_t tenant, uint64_t serial)
{
	uint32_t i = 0;

	while (i < pool->n_pins && (pin_last(&pool->pins[i]).serial != serial || pool->pins[i].tenant != tenant))
		i++;
	return i;
}

static enum paged_status
pin_add(struct core_pool *pool, struct pool_pin *pin, struct paged_error *error)
{
	enum paged_status status = tenant_check_pin(pool, pin->tenant, 1, pin->n_nodes, error);
	struct pool_pin *pins;

	if (status != PAGED_OK)
		return status;
	if (pool->n_pins == CORE_MAX_PINS)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s has %u pins, the most that a pool may have",
				  pool->name, CORE_MAX_PINS);
	if (pin->n_nodes > pool->pin_limit - pool->n_pin_nodes - pool->n_held)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "pool %s: a pin of %u pages, with %u of other pins%s, exceeds pin-limit (%u)",
				  pool->name, pin->n_nodes, pool->n_pin_nodes + pool->n_held,
				  pool->n_held > 0 ? " and of holds" : "", pool->pin_limit);
	pins = reallocarray(pool->pins, (size_t)pool->n_pins + 1, sizeof(*pins));
	if (pins == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory for a pin", pool->name);
	pool->pins = pins;
	pin_count(pool, pin, true);
	tenant_count_pin(pool, pin->tenant, pin->n_nodes, true);
	pin->number = ++pool->last_pin;
	pins[pool->n_pins++] = *pin;
	pool->first_pin_ms = MIN(pool->first_pin_ms, pin->deadline_ms);
	return PAGED_OK;
}

static enum paged_status
pin_check(const struct core *core, uint32_t pool_index, uint32_t page, uint64_t serial, uint32_t seconds,
	  struct paged_error *error)
{
	enum paged_status status = request_check_pool(core, pool_index, error);
	const struct node_ref last = { .page = page, .serial = serial };
	const struct core_pool *pool;

	if (status != PAGED_OK)
		return status;
	pool = core->pools[pool_index];
	if (page >= pool->view.n_pages)
		return paged_fail(error, PAGED_ERR_RANGE, "pool %s: there is no page %u; there are %u", pool->name,
				  page, pool->view.n_pages);
	if (serial == 0)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: no node has serial 0", pool->name);
	if (seconds > PIN_MAX_SECONDS)
		return paged_fail(error, PAGED_ERR_LIMIT, "a pin of %u seconds; at most %u", seconds, PIN_MAX_SECONDS);
	if (node_is_live(pool, &last) && pool->nodes[page].depth >= CORE_MAX_PIN_PAGES)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "pool %s: a pin of %u pages, and the most are %u: pin the beginning of the prefix",
				  pool->name, pool->nodes[page].depth + 1, CORE_MAX_PIN_PAGES);
	return PAGED_OK;
}

enum paged_status
core_prefix_pin(struct core *core, const struct core_pinner *by, uint32_t pool_index, uint32_t page, uint64_t serial,
		uint32_t seconds, uint32_t *n_pages_p, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = core_session_find_active(core, by->session, &session, error);
	struct core_pool *pool;
	struct pool_pin pin;
	uint32_t i;

	if (status == PAGED_OK)
		status = pin_check(core, pool_index, page, serial, seconds, error);
	if (status != PAGED_OK)
		return status;
	pool = core->pools[pool_index];
	pins_shorten(pool);
	status = pin_collect(pool, (struct node_ref){ .page = page, .serial = serial }, &pin, error);
	if (status != PAGED_OK)
		return status;
	*n_pages_p = pin.n_nodes;
	pin.by = *by;
	pin.tenant = session->tenant;
	pin.deadline_ms = core->now_ms + (uint64_t)seconds * 1000;
	i = pin_find(pool, pin.tenant, serial);
	if (i == pool->n_pins && seconds > 0) {
		status = pin_add(pool, &pin, error);
		if (status == PAGED_OK)
			return PAGED_OK;
	} else if (i < pool->n_pins && seconds > 0) {
		pool->pins[i].by = *by;
		pool->pins[i].deadline_ms = pin.deadline_ms;
		pins_update_deadline(pool);
	} else {
		/* There may be several: of longer prefixes of which as much is left. */
		for (; i < pool->n_pins; i = pin_find(pool, pin.tenant, serial))
			pin_end(pool, i);
	}
	free(pin.nodes);
	return status;
}

bool
core_pin_next(const struct core *core, uint32_t pool_index, uint64_t after, struct paged_pin_entry *entry)
{
	const struct core_pool *pool = core->pools[pool_index];
	const struct pool_pin *pin;
	uint32_t i = 0;

	while (i < pool->n_pins && pool->pins[i].number <= after)
		i++;
	if (i == pool->n_pins)
		return false;
	pin = &pool->pins[i];
	*entry = (struct paged_pin_entry){
		.number = pin->number,
		.serial = pin_last(pin).serial,
		.page = pin_last(pin).page,
		.n_pages = pin->n_nodes,
		.n_tokens = (uint64_t)pin->n_nodes * pool->view.page_size,
		.session = pin->by.session,
		.uid = pin->by.uid,
		.pid = pin->by.pid,
	};
	if (pin->deadline_ms > core->now_ms)
		entry->expires_s = (uint32_t)((pin->deadline_ms - core->now_ms + 999) / 1000);
	if (pin->tenant != 0)
		memcpy(entry->tenant, core->tenants.items[pin->tenant - 1]->name, sizeof(entry->tenant));
	return true;
}

enum paged_status
core_pin_end(struct core *core, uint32_t pool_index, uint64_t number, struct paged_error *error)
{
	struct core_pool *pool = core->pools[pool_index];
	uint32_t i = 0;

	while (i < pool->n_pins && pool->pins[i].number != number)
		i++;
	if (i == pool->n_pins)
		return paged_fail(error, PAGED_ERR_NOENT, "pool %s has no pin %llu", pool->name,
				  (unsigned long long)number);
	pin_end(pool, i);
	return PAGED_OK;
}

bool
pins_have_expired(const struct core *core, const struct core_pool *pool)
{
	return pool->first_pin_ms <= core->now_ms;
}

uint32_t
pins_expire(struct core *core, struct core_pool *pool, uint32_t budget)
{
	uint32_t n = 0;

	while (n < budget && pins_have_expired(core, pool)) {
		uint32_t first = pin_first(pool);

		n += pool->pins[first].n_nodes;
		pin_end(pool, first);
	}
	return n;
}

uint64_t
core_next_deadline(const struct core *core)
{
	uint64_t next = core->tickets.n > 0 ? core->tickets.first_deadline_ms : CORE_NO_DEADLINE;

	for (uint32_t i = 0; i < core->n_pools; i++)
		next = MIN(next, core->pools[i]->first_pin_ms);
	return next;
}

void
pins_free(struct core_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_pins; i++)
		free(pool->pins[i].nodes);
	free(pool->pins);
}
