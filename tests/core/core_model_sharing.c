/* SPDX-License-Identifier: Apache-2.0 */
/* Random starts on published pages, and forks. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"
#include "tests/core/sharing_fixture.h"

#define MAX_STARTS 3

/* Starts */

struct start_item {
	uint32_t pool;
	struct model_seq *seq; /* to go on with, or NULL */
	uint32_t n;
	uint32_t pages[MODEL_PAGES];
	uint64_t serial;
	uint32_t n_tokens, n_asked;
};

/* A random walk from a place towards the leaves. */
static uint32_t
random_chain(const struct model_pool *pool, struct model_place at, uint32_t most, uint32_t *pages, uint64_t *serial_p)
{
	uint32_t n = 0, children[MODEL_SYMBOLS], n_children, page;

	for (; n < most; n++) {
		n_children = 0;
		for (enum model_symbol symbol = 0; symbol < MODEL_SYMBOLS; symbol++) {
			page = model_child(pool, at, symbol);
			if (page != REGION_NO_PAGE)
				children[n_children++] = page;
		}
		if (n_children == 0)
			break;
		page = children[random_below(n_children)];
		pages[n] = page;
		at = (struct model_place){ .page = page, .serial = pool->nodes[page].serial };
	}
	*serial_p = n == 0 ? 0 : at.serial;
	return n;
}

/* Makes a chain shuffled, stale, foreign or too short at its beginning. */
static void
spoil_chain(uint32_t p, struct start_item *item)
{
	uint32_t i = random_below(item->n), other = random_below(item->n), page = item->pages[i];

	switch (random_below(5)) {
	case 0:
		item->pages[i] = item->pages[other];
		item->pages[other] = page;
		break;
	case 1:
		item->pages[i] = random_below(model_geometries[p].n_pages + 1);
		break;
	case 2:
		item->serial = random_below(2) == 0 ? item->serial + 1 : random_below((uint32_t)item->serial);
		break;
	case 3:
		item->pages[i] = UINT32_MAX - random_below(2);
		break;
	default:
		memmove(item->pages, &item->pages[1], --item->n * sizeof(item->pages[0]));
		if (item->n == 0)
			item->serial = 0;
	}
}

static struct model_seq *
random_published_seq(uint32_t p, const struct model_session *session)
{
	struct model_seq *seq = &model.pools[p].seqs[random_below(model_geometries[p].n_slots)];

	return seq->state == MODEL_SEQ_LIVE && (seq->session == session->id || random_below(8) == 0) &&
			       (seq->n_published == seq->n_pages || random_below(8) == 0)
		       ? seq
		       : NULL;
}

static struct start_item
random_start_item(const struct model_session *session, uint32_t pool_index)
{
	struct start_item item = { .pool = pool_index };
	const struct model_pool *pool = &model.pools[item.pool];
	struct model_place from = { .page = REGION_NO_PAGE };

	if (random_below(3) == 0)
		item.seq = random_published_seq(item.pool, session);
	if (item.seq != NULL)
		from = item.seq->tip;
	item.n = random_chain(pool, from, 1 + random_below(MODEL_PAGES), item.pages, &item.serial);
	if (item.n == 0)
		item.seq = NULL;
	if (item.n > 0 && random_below(6) == 0)
		spoil_chain(item.pool, &item);
	if (item.n == 0)
		item.seq = NULL;
	if (random_below(2) == 0)
		item.n_tokens = random_below(model_geometries[item.pool].max_length + 2);
	if (random_below(2) == 0)
		item.n_asked = random_below(100);
	return item;
}

/* Pages of the sequence that it has before more are reserved. */
static uint32_t
start_n_shared(const struct start_item *item)
{
	return item->n + (item->seq == NULL ? 0 : item->seq->n_pages);
}

static uint32_t
chain_errors(const struct start_item *item)
{
	const struct model_pool *pool = &model.pools[item->pool];
	struct model_place at = { .page = REGION_NO_PAGE };
	uint32_t errors = 0;

	if (item->seq != NULL)
		at = item->seq->tip;
	for (uint32_t i = 0; i < item->n; i++) {
		uint32_t page = item->pages[i];

		if (page >= pool->n_pages)
			return errors | status_bit(PAGED_ERR_RANGE);
		if (pool->nodes[page].serial == 0 || pool->nodes[page].parent.page != at.page ||
		    pool->nodes[page].parent.serial != at.serial)
			errors |= status_bit(PAGED_ERR_STALE);
		at = (struct model_place){ .page = page, .serial = pool->nodes[page].serial };
	}
	if (item->n > 0 && at.serial != item->serial)
		errors |= status_bit(PAGED_ERR_STALE);
	return errors;
}

/* Is the page published, and named first by this item and entry? */
static bool
start_names_first(const struct start_item *items, uint32_t i, uint32_t k)
{
	uint32_t page = items[i].pages[k];

	if (page >= model.pools[items[i].pool].n_pages || model.pools[items[i].pool].nodes[page].serial == 0)
		return false;
	for (uint32_t j = 0; j <= i; j++)
		for (uint32_t m = 0; m < (j < i ? items[j].n : k); m++)
			if (items[j].pool == items[i].pool && items[j].pages[m] == page)
				return false;
	return true;
}

static uint32_t
start_errors(const struct model_session *session, uint32_t n, const struct start_item *items, uint32_t *needs)
{
	uint32_t errors = requester_errors(session), slots[MODEL_POOLS] = { 0 };
	uint32_t named[MODEL_POOLS] = { 0 }, charged[MODEL_POOLS] = { 0 };

	if (n == 0)
		errors |= status_bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		const struct start_item *item = &items[i];
		uint32_t p = item->pool, n_pages = pages_of_tokens(p, item->n_tokens);

		errors |= chain_errors(item);
		if (item->seq == NULL) {
			slots[p]++;
			errors |= draining_errors(session);
		} else if (item->seq->session != session->id || item->seq->frozen || item->seq->is_hold)
			errors |= status_bit(PAGED_ERR_PERM);
		else if (item->seq->n_published < item->seq->n_pages)
			errors |= status_bit(PAGED_ERR_STALE);
		for (uint32_t j = 0; j < i; j++)
			if (item->seq != NULL && items[j].seq == item->seq)
				errors |= status_bit(PAGED_ERR_INVALID);
		if (item->n_tokens > model_geometries[p].max_length ||
		    start_n_shared(item) > pages_of_tokens(p, model_geometries[p].max_length))
			errors |= status_bit(PAGED_ERR_LIMIT);
		needs[p] += MAX(n_pages, start_n_shared(item)) - start_n_shared(item);
		for (uint32_t k = 0; k < item->n; k++) {
			if (!start_names_first(items, i, k))
				continue;
			named[p] += model_count(&model.pools[p], item->pages[k]) == 0;
			charged[p] += !model_is_charged(p, session->tenant, item->pages[k]);
		}
	}
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		if (slots[p] > model_slots_left(p) || needs[p] + named[p] > model_available(&model.pools[p]))
			errors |= status_bit(PAGED_ERR_FULL);
		errors |= quota_errors(p, session->tenant, needs[p] + charged[p]) |
			  slot_errors(p, session->tenant, slots[p]);
	}
	return errors;
}

static void
start_share(struct model_pool *pool, const struct start_item *item, struct model_seq *seq)
{
	for (uint32_t i = 0; i < item->n; i++) {
		struct model_node *node = &pool->nodes[item->pages[i]];

		model_cached_remove(pool, item->pages[i]);
		seq->content[seq->n_pages] = seq->said[seq->n_pages] = node->symbol;
		seq->pages[seq->n_pages++] = item->pages[i];
		node->hits++;
		model_note_user(node, seq);
		node->used = (uint32_t)(model.now_ms / 1000);
	}
	pool->totals.n_starts += item->n_asked > 0 && item->seq == NULL;
	pool->totals.n_tokens_asked += item->n_asked;
	pool->totals.n_tokens_found += (uint64_t)item->n * model_geometries[item->pool].page_size;
	if (item->n == 0)
		return;
	seq->n_writable_from = seq->n_pages;
	model_set_published(seq, seq->n_pages,
			    (struct model_place){ .page = item->pages[item->n - 1], .serial = item->serial });
}

void
random_start(void)
{
	struct model_session *session = random_requester();
	uint32_t n = random_below(MAX_STARTS + 1), pool = random_below(MODEL_POOLS), needs[MODEL_POOLS] = { 0 }, errors;
	struct sharing_start_item requests[MAX_STARTS];
	struct start_item items[MAX_STARTS];
	struct model_seq *seqs[MAX_STARTS];
	paged_seq_id ids[MAX_STARTS];
	uint32_t n_pages[MAX_STARTS];

	for (uint32_t i = 0; i < n; i++) {
		items[i] = random_start_item(session, pool);
		requests[i] = (struct sharing_start_item){
			.n_pages = items[i].n,
			.pages = items[i].pages,
			.serial = items[i].serial,
			.n_tokens = items[i].n_tokens,
			.n_asked = items[i].n_asked,
			.seq = items[i].seq == NULL ? 0 : items[i].seq->id,
			.tag = "",
		};
	}
	errors = start_errors(session, n, items, needs);
	model_check_status(sharing_starts(model.fixture.core, session->id, pool, n, requests, ids, &model.error),
			   errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		model_check(items[i].seq == NULL || ids[i] == items[i].seq->id);
		seqs[i] = items[i].seq != NULL ? items[i].seq : model_seq_open(ids[i], items[i].pool, session->id);
		start_share(&model.pools[items[i].pool], &items[i], seqs[i]);
		n_pages[i] = MAX(seqs[i]->n_pages, pages_of_tokens(items[i].pool, items[i].n_tokens));
	}
	if (errors == 0)
		model_grow(session, n, seqs, n_pages, needs);
}

/* Forks */

void
model_fork_published(struct model_pool *pool, const struct model_seq *parent, struct model_seq *child)
{
	child->n_published = parent->n_published;
	child->tip = parent->tip;
	child->twins_begin = parent->twins_begin;
	child->twins_end = parent->twins_end;
	/* What is published past the child's full pages is given up as in a truncate that drops nothing. */
	model_truncate(pool, child, child->n_pages, child->n_pages, 0);
}

/* A child without pages. */
static void
fork_open(struct model_pool *pool, struct model_seq *parent, uint32_t n_full, struct model_seq *child)
{
	pool->totals.n_forked++;
	memcpy(child->content, parent->content, sizeof(child->content));
	memcpy(child->said, parent->said, sizeof(child->said));
	parent->n_writable_from = MAX(parent->n_writable_from, n_full);
}

static void
fork_child(struct model_pool *pool, uint32_t p, const struct model_seq *parent, uint32_t n_tokens,
	   struct model_seq *child)
{
	uint32_t n_full = n_tokens / model_geometries[p].page_size;

	memcpy(child->pages, parent->pages, n_full * sizeof(child->pages[0]));
	child->n_pages = child->n_writable_from = n_full;
	child->n_trimmed = parent->n_trimmed;
	model_fork_published(pool, parent, child);
	model_take(pool, child, pages_of_tokens(p, n_tokens));
}

/* Opens the children; unless `pending` is NULL, steps do the rest. */
static void
fork_children(struct model_session *session, uint32_t n, const struct seq_fork *forks, const paged_seq_id *children,
	      struct model_pending *pending)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(forks[i].parent);
		uint32_t n_full = forks[i].n_tokens / model_geometries[p].page_size;
		struct model_seq *parent = model_seq_find(forks[i].parent);
		struct model_seq *child = model_seq_open(children[i], p, session->id);

		fork_open(&model.pools[p], parent, n_full, child);
		if (pending == NULL)
			fork_child(&model.pools[p], p, parent, forks[i].n_tokens, child);
		else
			pending->items[pending->n++] = (struct pending_item){
				.seq = children[i],
				.n_pages = pages_of_tokens(p, forks[i].n_tokens),
				.n_whole = n_full,
				.parent = forks[i].parent,
			};
	}
}

void
random_fork(void)
{
	struct model_session *session = random_requester();
	paged_seq_id ids[MODEL_ITEMS], children[MODEL_ITEMS];
	uint32_t n = random_seqs(session, MODEL_ITEMS, ids), n_distinct = n, errors;
	uint32_t needs[MODEL_POOLS] = { 0 }, slots[MODEL_POOLS] = { 0 }, n_shared = 0;
	struct seq_fork forks[MODEL_ITEMS];
	bool is_long;

	errors = seq_errors(session, n, ids);
	if (n > 0 && (errors & status_bit(PAGED_ERR_INVALID)) != 0) { /* for a fork, ids named twice are no error */
		errors = 0;
		for (uint32_t i = 0; i < n; i++)
			errors |= seq_errors(session, 1, &ids[i]);
	}
	for (; n > 0 && n < MODEL_ITEMS && random_below(2) == 0; n++)
		ids[n] = ids[random_below(n_distinct)];
	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(ids[i]);
		uint32_t p = PAGED_SEQ_POOL(ids[i]), page_size = p < MODEL_POOLS ? model_geometries[p].page_size : 1;
		uint32_t capacity = seq == NULL ? 8 : seq->n_pages * page_size;

		forks[i] = (struct seq_fork){ .parent = ids[i], .n_tokens = random_below(capacity + 1) };
		if (seq != NULL && random_below(16) != 0)
			forks[i].n_tokens = MAX(forks[i].n_tokens, seq->n_trimmed * page_size);
		if (random_below(2) == 0)
			forks[i].n_tokens -= forks[i].n_tokens % page_size;
		if (random_below(32) == 0)
			forks[i].n_tokens = capacity + 1;
		if (forks[i].n_tokens > capacity)
			errors |= status_bit(PAGED_ERR_CAPACITY);
		if (seq != NULL && forks[i].n_tokens < seq->n_trimmed * page_size)
			errors |= status_bit(PAGED_ERR_INVALID);
		if (p >= MODEL_POOLS)
			continue;
		slots[p]++;
		needs[p] += forks[i].n_tokens % page_size != 0;
		n_shared += forks[i].n_tokens / page_size;
	}
	errors |= draining_errors(session);
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		if (slots[p] > model_slots_left(p) || needs[p] > model_available(&model.pools[p]))
			errors |= status_bit(PAGED_ERR_FULL);
		errors |= quota_errors(p, session->tenant, needs[p]) | slot_errors(p, session->tenant, slots[p]);
	}
	model_check_status(core_seq_fork(model.fixture.core, session->id, n, forks, children, &model.error), errors);
	if (errors != 0)
		return;
	is_long = model_is_long(n_shared, needs);
	for (uint32_t p = 0; !is_long && p < MODEL_POOLS; p++)
		model_make_free(&model.pools[p], needs[p]);
	if (is_long)
		session->pending = (struct model_pending){ .kind = PENDING_GROWTH };
	fork_children(session, n, forks, children, is_long ? &session->pending : NULL);
	if (is_long)
		model_follow(session);
}
