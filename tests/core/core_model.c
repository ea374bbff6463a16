/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/core_model.h"

#include <string.h>
#include <sys/param.h>

const struct model_geometry model_geometries[MODEL_POOLS] = {
	{ .n_pages = 24,
	  .page_size = 4,
	  .n_slots = 8,
	  .max_length = 64,
	  .free_pages = 4,
	  .pin_limit = 12,
	  .n_tables = 8 },
	{ .n_pages = 5,
	  .page_size = 1,
	  .n_slots = 3,
	  .max_length = 12,
	  .free_pages = 0,
	  .pin_limit = 4,
	  .n_tables = 3 },
	{ .n_pages = 17,
	  .page_size = 3,
	  .n_slots = 6,
	  .max_length = 40,
	  .free_pages = 1,
	  .pin_limit = 0,
	  .n_tables = 5 },
};

struct model model;

uint32_t
random_below(uint32_t n)
{
	uint64_t z = (model.random += 0x9E3779B97F4A7C15ull);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t)((z ^ (z >> 31)) >> 11) % n;
}

/* Statuses */

uint32_t
status_bit(enum paged_status status)
{
	return 1u << status;
}

void
model_check_status(enum paged_status status, uint32_t errors)
{
	if (errors == 0)
		model_check(status == PAGED_OK);
	else if ((errors & status_bit(status)) == 0)
		model_fail("status %d instead of one of the set 0x%x", status, errors);
	if (errors == 0) {
		model.n_done++;
	} else {
		model_check(model.error.status == status && model.error.text[0] != '\0');
		model.n_refused++;
	}
}

/* Sessions */

struct model_session *
random_requester(void)
{
	struct model_session *session = &model.sessions[random_below(MODEL_SESSIONS)];

	for (int tries = 0; !session->active && tries < 12; tries++)
		session = &model.sessions[random_below(MODEL_SESSIONS)];
	return session;
}

uint32_t
count_members(const struct model_session *session)
{
	uint32_t n = 0;

	for (int i = 0; i < MODEL_MEMBERS; i++)
		n += session->members[i] != 0;
	return n;
}

uint32_t
draining_errors(const struct model_session *session)
{
	return session->draining ? status_bit(PAGED_ERR_STOPPING) : 0;
}

struct model_session *
model_session_find(uint32_t id)
{
	for (int i = 0; i < MODEL_SESSIONS; i++)
		if (model.sessions[i].id == id)
			return &model.sessions[i];
	return NULL;
}

bool
model_session_has_work(const struct model_session *session)
{
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		for (uint32_t s = 0; s < MODEL_SEQS; s++)
			if (model.pools[p].seqs[s].state == MODEL_SEQ_ENDED &&
			    model.pools[p].seqs[s].session == session->id)
				return true;
		for (uint32_t page = 0; count_members(session) == 0 && page < MODEL_PAGES; page++)
			if (model.pools[p].quarantine[page] == session->id)
				return true;
	}
	return false;
}

void
model_session_queue(struct model_session *session)
{
	if (!session->active && session->queued == 0 && model_session_has_work(session))
		session->queued = ++model.n_queued;
}

/* Sequences */

uint32_t
pages_of_tokens(uint32_t pool, uint32_t tokens)
{
	uint32_t page_size = model_geometries[pool].page_size;

	return (tokens + page_size - 1) / page_size;
}

struct model_seq *
model_seq_find(paged_seq_id id)
{
	struct model_seq *seq;
	uint32_t p = PAGED_SEQ_POOL(id);

	if (p >= MODEL_POOLS || PAGED_SEQ_SLOT(id) >= model_geometries[p].n_slots)
		return NULL;
	seq = &model.pools[p].seqs[PAGED_SEQ_SLOT(id)];
	return seq->state == MODEL_SEQ_LIVE && seq->id == id ? seq : NULL;
}

struct model_seq *
model_seq_open(paged_seq_id id, uint32_t pool, uint32_t session)
{
	struct model_seq *seq;

	model_check(PAGED_SEQ_POOL(id) == pool && PAGED_SEQ_SLOT(id) < model_geometries[pool].n_slots);
	seq = &model.pools[pool].seqs[PAGED_SEQ_SLOT(id)];
	model_check(seq->state == MODEL_SEQ_NONE && PAGED_SEQ_GENERATION(id) > PAGED_SEQ_GENERATION(seq->id));
	*seq = (struct model_seq){
		.state = MODEL_SEQ_LIVE,
		.id = id,
		.session = session,
		.tenant = model_session_find(session)->tenant,
		.born = model.n_born++,
		.tip = { .page = REGION_NO_PAGE },
		.version_moves = true,
	};
	model.pools[pool].totals.n_created++;
	return seq;
}

void
model_seq_close(struct model_pool *pool, struct model_seq *seq)
{
	model_check(seq->n_pages == 0);
	seq->state = MODEL_SEQ_NONE;
	pool->totals.n_ended++;
}

uint32_t
random_seqs(const struct model_session *session, uint32_t most, paged_seq_id *ids)
{
	uint32_t n = random_below(16) == 0 ? 0 : 1 + random_below(most), n_found = 0;
	bool invalid = random_below(8) == 0;

	for (uint32_t tries = 0; n_found < n && tries < 24; tries++) {
		uint32_t p = random_below(MODEL_POOLS);
		const struct model_seq *seq = &model.pools[p].seqs[random_below(model_geometries[p].n_slots)];
		bool known = false;

		for (uint32_t i = 0; i < n_found; i++)
			known = known || ids[i] == seq->id;
		if (invalid || (seq->state == MODEL_SEQ_LIVE && seq->session == session->id && !seq->frozen && !known))
			ids[n_found++] = seq->id;
	}
	if (invalid && n_found > 0 && random_below(4) == 0)
		ids[0] |= PAGED_SEQ(1, MODEL_POOLS, 0);
	if (invalid && n_found > 0 && random_below(4) == 0)
		ids[0] ^= (paged_seq_id)(1 + random_below(3)) << (random_below(2) == 0 ? 32 : 0);
	return n_found;
}

uint32_t
seq_errors(const struct model_session *session, uint32_t n, const paged_seq_id *ids)
{
	uint32_t errors = requester_errors(session);

	if (n == 0)
		errors |= status_bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(ids[i]);

		if (PAGED_SEQ_GENERATION(ids[i]) == 0)
			errors |= status_bit(PAGED_ERR_INVALID);
		else if (PAGED_SEQ_POOL(ids[i]) >= MODEL_POOLS)
			errors |= status_bit(PAGED_ERR_NOENT);
		else if (seq == NULL) /* a sequence of an ended session may not have been reaped yet */
			errors |= status_bit(PAGED_ERR_STALE) | status_bit(PAGED_ERR_PERM);
		else if (seq->session != session->id || seq->frozen || seq->is_hold)
			errors |= status_bit(PAGED_ERR_PERM);
		for (uint32_t j = 0; j < i; j++)
			if (ids[j] == ids[i])
				errors |= status_bit(PAGED_ERR_INVALID);
	}
	return errors;
}

/* Lists */

static void
list_push(struct model_list *list, uint32_t page)
{
	model_check(list->n < MODEL_PAGES);
	list->pages[list->n++] = page;
}

static bool
list_remove(struct model_list *list, uint32_t page)
{
	for (uint32_t i = 0; i < list->n; i++) {
		if (list->pages[i] != page)
			continue;
		memmove(&list->pages[i], &list->pages[i + 1], (list->n - i - 1) * sizeof(list->pages[0]));
		list->n--;
		return true;
	}
	return false;
}

static void
list_add_once(struct model_list *list, uint32_t page)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->pages[i] == page)
			return;
	list_push(list, page);
}

/* Nodes */

uint32_t
model_count(const struct model_pool *pool, uint32_t page)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < MODEL_SEQS; s++)
		for (uint32_t i = 0; pool->seqs[s].state != MODEL_SEQ_NONE && i < pool->seqs[s].n_pages; i++)
			n += pool->seqs[s].pages[i] == page;
	return n;
}

bool
model_is_live(const struct model_pool *pool, struct model_place place)
{
	return place.serial != 0 && pool->nodes[place.page].serial == place.serial;
}

bool
model_is_pinned(const struct model_pool *pool, uint32_t page)
{
	for (uint32_t i = 0; i < pool->n_pins; i++)
		for (uint32_t k = 0; k < pool->pins[i].n; k++)
			if (pool->pins[i].chain[k].page == page && model_is_live(pool, pool->pins[i].chain[k]))
				return true;
	return false;
}

uint32_t
model_child(const struct model_pool *pool, struct model_place parent, enum model_symbol symbol)
{
	for (uint32_t page = 0; page < pool->n_pages; page++) {
		const struct model_node *node = &pool->nodes[page];

		if (node->serial != 0 && node->parent.page == parent.page && node->parent.serial == parent.serial &&
		    node->symbol == symbol)
			return page;
	}
	return REGION_NO_PAGE;
}

void
model_cached_remove(struct model_pool *pool, uint32_t page)
{
	if (!list_remove(&pool->lru, page))
		list_remove(&pool->pinned, page);
	model_share_remove(pool, page);
}

void
model_cached_hot(struct model_pool *pool, uint32_t page)
{
	model_cached_remove(pool, page);
	list_push(model_is_pinned(pool, page) ? &pool->pinned : &pool->lru, page);
	model_share_insert(pool, page, true);
}

static void
model_change(struct model_pool *pool, enum region_ring_kind kind, uint32_t page)
{
	model_check(pool->n_changes < MODEL_CHANGES);
	pool->changes[pool->n_changes++] = (struct model_change){
		.kind = kind, .page = page, .serial = pool->nodes[page].serial, .hash = pool->nodes[page].hash
	};
}

uint64_t
model_hash(const struct model_pool *pool, uint32_t p, struct model_place parent, enum model_symbol symbol)
{
	uint32_t tokens[MODEL_PAGES];
	uint8_t extra[REGION_EXTRA_SIZE];
	bool has_tokens;
	struct prefix_block block;

	model_block_key(symbol, model_geometries[p].page_size, tokens, extra, &has_tokens);
	block = (struct prefix_block){ .tokens = has_tokens ? tokens : NULL,
				       .extra = symbol == SYMBOL_A || symbol == SYMBOL_B ? NULL : extra };
	return prefix_hash(&block, model_geometries[p].page_size,
			   parent.serial == 0 ? core_pool_view(model.fixture.core, p)->header->seed
					      : pool->nodes[parent.page].hash);
}

void
model_node_store(struct model_pool *pool, uint32_t p, const struct model_seq *seq, uint32_t page,
		 struct model_place parent, enum model_symbol symbol)
{
	pool->nodes[page] = (struct model_node){
		.serial = pool->next_serial++,
		.parent = parent,
		.symbol = symbol,
		.hash = model_hash(pool, p, parent, symbol),
		.used = (uint32_t)(model.now_ms / 1000),
		.session = seq->session,
		.tenant = seq->tenant,
	};
	pool->totals.n_published++;
	model_change(pool, REGION_RING_STORED, page);
}

void
model_note_user(struct model_node *node, const struct model_seq *seq)
{
	uint32_t users = seq->tenant != node->tenant ? 2 : seq->session != node->session;

	node->users = MAX(node->users, users);
}

void
model_set_published(struct model_seq *seq, uint32_t n_pages, struct model_place tip)
{
	seq->n_published = n_pages;
	seq->tip = tip;
	seq->twins_end = MIN(seq->twins_end, n_pages);
	seq->twins_begin = MIN(seq->twins_begin, seq->twins_end);
}

/* The child that was stored last; REGION_NO_PAGE: none. */
static uint32_t
youngest_child(const struct model_pool *pool, struct model_place parent)
{
	uint32_t youngest = REGION_NO_PAGE;

	for (uint32_t page = 0; page < pool->n_pages; page++) {
		const struct model_node *node = &pool->nodes[page];

		if (node->serial != 0 && node->parent.page == parent.page && node->parent.serial == parent.serial &&
		    (youngest == REGION_NO_PAGE || node->serial > pool->nodes[youngest].serial))
			youngest = page;
	}
	return youngest;
}

/* Removes a node, then those below it, the youngest first; sequences that they stand for are published less. */
static uint32_t
remove_below(struct model_pool *pool, uint32_t page, uint32_t n_above, struct model_place above)
{
	struct model_place place = { .page = page, .serial = pool->nodes[page].serial };
	uint32_t child, n = 1;

	for (uint32_t s = 0; s < MODEL_SEQS; s++)
		if (pool->seqs[s].state != MODEL_SEQ_NONE && pool->seqs[s].tip.serial == place.serial) {
			if (n_above < pool->seqs[s].n_trimmed)
				model_set_published(&pool->seqs[s], 0, (struct model_place){ .page = REGION_NO_PAGE });
			else
				model_set_published(&pool->seqs[s], n_above, above);
			model.n_lowered++;
		}
	model_change(pool, REGION_RING_REMOVED, page);
	model_share_remove(pool, page);
	if (list_remove(&pool->lru, page) || list_remove(&pool->pinned, page))
		list_push(&pool->free, page);
	pool->nodes[page].serial = 0;
	while ((child = youngest_child(pool, place)) != REGION_NO_PAGE)
		n += remove_below(pool, child, n_above, above);
	return n;
}

void
model_node_remove(struct model_pool *pool, uint32_t page)
{
	struct model_place above = pool->nodes[page].parent, at;
	uint32_t n_above = 0;

	for (at = above; at.serial != 0; at = pool->nodes[at.page].parent)
		n_above++;
	pool->totals.n_orphaned += remove_below(pool, page, n_above, above) - 1;
}

/* Pages taken and evicted */

uint32_t
model_slots_left(uint32_t p)
{
	uint32_t n_sequences = 0;

	for (uint32_t s = 0; s < MODEL_SEQS; s++)
		n_sequences += model.pools[p].seqs[s].state != MODEL_SEQ_NONE;
	return MIN(model_geometries[p].n_slots, model_geometries[p].n_tables) - n_sequences;
}

uint32_t
model_available(const struct model_pool *pool)
{
	return pool->free.n + pool->lru.n + pool->pinned.n - model_promised((uint32_t)(pool - model.pools));
}

void
model_evict(struct model_pool *pool)
{
	struct model_list *list = pool->lru.n > 0 ? &pool->lru : &pool->pinned;
	uint32_t page = model_share_coldest(pool);

	model_check(list->n > 0);
	if (page == REGION_NO_PAGE)
		page = list->pages[0];
	model_node_remove(pool, page);
	pool->totals.n_evicted++;
}

void
model_make_free(struct model_pool *pool, uint32_t n)
{
	while (pool->free.n < n)
		model_evict(pool);
}

void
model_take(struct model_pool *pool, struct model_seq *seq, uint32_t n_pages)
{
	model_check(n_pages - seq->n_pages <= pool->free.n);
	pool->free.n -= n_pages - seq->n_pages;
	memcpy(&seq->pages[seq->n_pages], &pool->free.pages[pool->free.n],
	       (n_pages - seq->n_pages) * sizeof(seq->pages[0]));
	/* A worker writes mostly what others write too: the same kind of block key throughout a sequence. */
	for (uint32_t i = seq->n_pages; i < n_pages; i++)
		seq->content[i] = random_symbol(i == 0 ? random_below(4) == 0 : seq->content[i - 1] >= SYMBOL_KEY_A);
	pool->totals.n_taken += n_pages - seq->n_pages;
	seq->n_pages = n_pages;
}

/* Pages dropped */

/*
 * Moves what dropped pages depend on to the hot end, the deepest first: at each depth the sequence's own node, the tip,
 * and the parents of the nodes at the depth below.
 */
static void
drop_make_hot(struct model_pool *pool, const uint32_t *pages, uint32_t from, uint32_t to, uint32_t n_published,
	      struct model_place tip)
{
	struct model_list below = { 0 };
	uint32_t n_depths = n_published;

	for (uint32_t i = from; i < to; i++)
		if (pool->nodes[pages[i]].serial != 0)
			n_depths = MAX(n_depths, i + 1);
	for (uint32_t depth = n_depths; depth-- > 0;) {
		struct model_list here = { 0 };

		if (depth >= from && depth < to && pool->nodes[pages[depth]].serial != 0)
			list_add_once(&here, pages[depth]);
		if (depth + 1 == n_published && model_is_live(pool, tip))
			list_add_once(&here, tip.page);
		for (uint32_t i = 0; i < below.n; i++)
			if (model_is_live(pool, pool->nodes[below.pages[i]].parent))
				list_add_once(&here, pool->nodes[below.pages[i]].parent.page);
		for (uint32_t i = 0; i < here.n; i++)
			if (model_count(pool, here.pages[i]) == 0)
				model_cached_hot(pool, here.pages[i]);
		below = here;
	}
}

bool
model_is_in_chain(const struct model_pool *pool, uint32_t page, uint32_t node)
{
	struct model_place at = { .page = page, .serial = pool->nodes[page].serial };

	for (; model_is_live(pool, at); at = pool->nodes[at.page].parent)
		if (at.page == node)
			return true;
	return false;
}

/* A hold's pages, from the last to the first, each followed by its ancestors that belong to no page before it. */
static void
drop_make_hold_hot(struct model_pool *pool, const struct model_seq *seq, uint32_t n_keep, uint32_t n_before)
{
	for (uint32_t i = n_before; i-- > n_keep;) {
		struct model_place at = { .page = seq->pages[i], .serial = pool->nodes[seq->pages[i]].serial };
		bool other = false;

		for (; model_is_live(pool, at); at = pool->nodes[at.page].parent) {
			for (uint32_t k = n_keep; k < i; k++)
				other = other || model_is_in_chain(pool, seq->pages[k], at.page);
			if (other)
				break;
			if (model_count(pool, at.page) == 0)
				model_cached_hot(pool, at.page);
		}
	}
}

/* Drops the references of pages that the sequence no longer has; true: one is cached now. */
static bool
model_unref(struct model_pool *pool, const uint32_t *pages, uint32_t n, uint32_t session)
{
	const struct model_session *ended = session == 0 ? NULL : model_session_find(session);
	bool cached = false;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t page = pages[i];

		if (model_count(pool, page) > 0)
			continue;
		if (pool->nodes[page].serial != 0) {
			cached = true;
			continue;
		}
		if (ended == NULL)
			list_push(&pool->free, page);
		else
			pool->quarantine[page] = count_members(ended) > 0 ? session : MODEL_RELEASED;
	}
	return cached;
}

/* Nodes of the pages' chains, each once. */
static uint32_t
drop_count_chains(const struct model_pool *pool, const struct model_seq *seq, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (uint32_t page = 0; page < pool->n_pages; page++) {
		bool found = false;

		for (uint32_t i = from; i < to; i++)
			found = found || model_is_in_chain(pool, seq->pages[i], page);
		n += found;
	}
	return n;
}

/* Puts a dropped page below the coldest of its ancestors in the same list. */
static void
drop_make_cached(struct model_pool *pool, uint32_t page)
{
	struct model_list *list = model_is_pinned(pool, page) ? &pool->pinned : &pool->lru;
	uint32_t at = 0;

	if (pool->nodes[page].serial == 0 || model_count(pool, page) > 0)
		return;
	while (at < list->n && !model_is_in_chain(pool, page, list->pages[at]))
		at++;
	memmove(&list->pages[at + 1], &list->pages[at], (list->n - at) * sizeof(list->pages[0]));
	list->pages[at] = page;
	list->n++;
	model_share_insert(pool, page, at + 1 == list->n);
}

static void
model_drop(struct model_pool *pool, struct model_seq *seq, uint32_t n_keep, uint32_t session)
{
	uint32_t n_before = seq->n_pages, from = MAX(n_keep, seq->n_trimmed);
	bool cached;

	seq->n_pages = n_keep;
	seq->n_trimmed = MIN(seq->n_trimmed, n_keep);
	seq->version_moves = seq->version_moves || n_keep < n_before;
	cached = model_unref(pool, &seq->pages[from], n_before - from, session);
	if (cached && (seq->is_hold ? drop_count_chains(pool, seq, from, n_before) : MAX(n_before, seq->n_published)) >
			      model.step)
		for (uint32_t i = from; i < n_before; i++)
			drop_make_cached(pool, seq->pages[i]);
	else if (cached && seq->is_hold)
		drop_make_hold_hot(pool, seq, from, n_before);
	else if (cached)
		drop_make_hot(pool, seq->pages, from, n_before, seq->n_published, seq->tip);
}

void
model_truncate(struct model_pool *pool, struct model_seq *seq, uint32_t n_keep, uint32_t n_whole, uint32_t session)
{
	uint32_t last = n_whole - 1;

	seq->version_moves = seq->version_moves || n_whole < n_keep;
	model_drop(pool, seq, n_keep, session);
	seq->n_writable_from = MIN(seq->n_writable_from, n_keep);
	if (seq->n_published <= n_whole)
		return;
	if (n_whole == 0 || seq->pages[last] == REGION_NO_PAGE || (last >= seq->twins_begin && last < seq->twins_end))
		model_set_published(seq, 0, (struct model_place){ .page = REGION_NO_PAGE });
	else
		model_set_published(seq, n_whole,
				    (struct model_place){ .page = seq->pages[last],
							  .serial = pool->nodes[seq->pages[last]].serial });
}

void
model_trim(struct model_pool *pool, struct model_seq *seq, uint32_t n)
{
	uint32_t pages[MODEL_PAGES], n_before = seq->n_trimmed;

	if (n <= n_before)
		return;
	memcpy(pages, seq->pages, sizeof(pages));
	for (uint32_t i = n_before; i < n; i++)
		seq->pages[i] = REGION_NO_PAGE;
	seq->n_trimmed = n;
	if (seq->n_published < n)
		model_set_published(seq, 0, (struct model_place){ .page = REGION_NO_PAGE });
	pool->totals.n_trimmed += n - n_before;
	seq->n_writable_from = MAX(seq->n_writable_from, n);
	seq->version_moves = true;
	if (model_unref(pool, &pages[n_before], n - n_before, 0)) {
		for (uint32_t i = n_before; i < n; i++)
			drop_make_cached(pool, pages[i]);
		model.n_trims_cached++;
	}
}
