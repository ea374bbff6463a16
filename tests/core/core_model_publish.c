/* SPDX-License-Identifier: Apache-2.0 */
/* Random publishes, and searches for every prefix that was published. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

#define MAX_PAGE_SIZE 4

enum model_symbol
random_symbol(bool keys)
{
	if (keys)
		return random_below(4) == 0 ? SYMBOL_KEY_B : SYMBOL_KEY_A;
	return random_below(4) != 0 ? SYMBOL_A : random_below(3) == 0 ? SYMBOL_A_EXTRA : SYMBOL_B;
}

void
model_block_key(enum model_symbol symbol, uint32_t page_size, uint32_t *tokens, uint8_t extra[REGION_EXTRA_SIZE],
		bool *has_tokens_p)
{
	*has_tokens_p = symbol < SYMBOL_KEY_A;
	for (uint32_t i = 0; i < page_size; i++)
		tokens[i] = 'a';
	if (symbol == SYMBOL_B)
		tokens[page_size - 1] = 'b';
	memset(extra, 0, REGION_EXTRA_SIZE);
	if (symbol >= SYMBOL_A_EXTRA)
		extra[REGION_EXTRA_SIZE - 1] = symbol;
}

/* Block keys of pages, in the form of a request. */
struct keys_buffer {
	uint32_t tokens[MODEL_PAGES * MAX_PAGE_SIZE];
	uint32_t extra_page[MODEL_PAGES];
	uint8_t extra[MODEL_PAGES][REGION_EXTRA_SIZE];
};

/* All of the symbols have token ids, or none has. */
static struct prefix_keys
keys_of_symbols(struct keys_buffer *buffer, uint32_t page_size, uint32_t n, const enum model_symbol *symbols)
{
	bool has_tokens = true;
	uint32_t n_extras = 0;

	for (uint32_t i = 0; i < n; i++) {
		model_block_key(symbols[i], page_size, &buffer->tokens[(size_t)i * page_size], buffer->extra[n_extras],
				&has_tokens);
		/* An extra of zeros is the same as none. */
		if (has_tokens && symbols[i] != SYMBOL_A_EXTRA && random_below(8) != 0)
			continue;
		buffer->extra_page[n_extras++] = i;
	}
	return (struct prefix_keys){
		.n_pages = n,
		.tokens = has_tokens ? buffer->tokens : NULL,
		.n_extras = n_extras,
		.extra_page = has_tokens ? buffer->extra_page : NULL,
		.extra = buffer->extra,
	};
}

/* Symbols at the beginning of the array that one request can have. */
static uint32_t
count_same_kind(const enum model_symbol *symbols, uint32_t n)
{
	uint32_t same = 1;

	while (same < n && (symbols[same] >= SYMBOL_KEY_A) == (symbols[0] >= SYMBOL_KEY_A))
		same++;
	return MIN(same, n);
}

/* Searches */

/* The longest live chain of these block keys, by searching all nodes. */
static uint32_t
longest_chain(const struct model_pool *pool, const struct model_path *path, uint32_t *pages)
{
	struct model_place at = { .page = REGION_NO_PAGE };
	uint32_t n = 0, page;

	for (; n < path->n; n++) {
		page = model_child(pool, at, path->symbols[n]);
		if (page == REGION_NO_PAGE)
			break;
		pages[n] = page;
		at = (struct model_place){ .page = page, .serial = pool->nodes[page].serial };
	}
	return n;
}

/* A path may have pages with token ids and pages without, so it can take several searches. */
static uint32_t
search_path(uint32_t p, const struct model_path *path, struct prefix_position *at, uint32_t *pages)
{
	const struct region_view *view = core_pool_view(model.fixture.core, p);
	struct keys_buffer buffer;
	struct prefix_keys keys;
	uint32_t n_found = 0, n;

	*at = prefix_root(view);
	do {
		n = count_same_kind(&path->symbols[n_found], path->n - n_found);
		keys = keys_of_symbols(&buffer, view->page_size, n, &path->symbols[n_found]);
		keys.n_pages = prefix_find(view, &keys, at, &pages[n_found]);
		n_found += keys.n_pages;
	} while (keys.n_pages == n && n_found < path->n);
	return n_found;
}

static void
find_path(uint32_t p, const struct model_path *path)
{
	uint32_t expected[MODEL_PAGES], pages[MODEL_PAGES];
	uint32_t n_expected = longest_chain(&model.pools[p], path, expected);
	struct prefix_position at;
	uint32_t n_found = search_path(p, path, &at, pages);

	model_check(n_found == n_expected && memcmp(pages, expected, n_found * sizeof(pages[0])) == 0);
	model_check(n_found == 0 ||
		    (at.page == pages[n_found - 1] && at.serial == model.pools[p].nodes[at.page].serial &&
		     at.hash == model.pools[p].nodes[at.page].hash));
	model.n_searched++;
	model.n_found += n_found > 0;
}

void
model_check_published(uint32_t p, const struct model_seq *seq)
{
	struct model_path path = { .n = seq->n_published };
	uint32_t pages[MODEL_PAGES];
	struct prefix_position at;

	memcpy(path.symbols, seq->said, sizeof(path.symbols));
	model_check(path.n == 0 || search_path(p, &path, &at, pages) == path.n);
}

void
model_find_paths(uint32_t p, uint32_t n_paths)
{
	uint32_t n = MIN(model.n_paths[p], MODEL_PATHS);

	for (uint32_t i = 0; i < n_paths && i < n; i++)
		find_path(p, &model.paths[p][(model.operation * n_paths + i) % n]);
}

/* Any prefix, published or not. */
void
random_search(void)
{
	uint32_t p = random_below(MODEL_POOLS);
	struct model_path path = { .n = 1 + random_below(8) };

	for (uint32_t i = 0; i < path.n; i++)
		path.symbols[i] = random_symbol(random_below(3) == 0);
	find_path(p, &path);
	model_find_paths(p, MODEL_PATHS);
}

/* Records the prefix that ends with a new node. */
static void
record_path(const struct model_pool *pool, uint32_t p, uint32_t page)
{
	enum model_symbol reversed[MODEL_PAGES];
	struct model_path *path = &model.paths[p][model.n_paths[p] % MODEL_PATHS];
	uint32_t n = 0;
	struct model_place at = { .page = page, .serial = pool->nodes[page].serial };

	if (at.serial == 0)
		return; /* the operation has removed it, too */
	for (; at.serial != 0; at = pool->nodes[at.page].parent) {
		if (!model_is_live(pool, at) || n == MODEL_PAGES)
			return; /* its beginning is gone, so no search can find it */
		reversed[n++] = pool->nodes[at.page].symbol;
	}
	path->n = n;
	for (uint32_t i = 0; i < n; i++)
		path->symbols[i] = reversed[n - 1 - i];
	model.n_paths[p]++;
}

/* Publishing */

struct publish_item {
	paged_seq_id seq;
	uint64_t version;
	uint32_t from, n;
	enum model_symbol symbols[MODEL_PAGES];
	bool bad_token, bad_extras;
};

/* Sessions that have ended are 0. */
static uint32_t
active_session(uint32_t id)
{
	const struct model_session *session = model_session_find(id);

	return session != NULL && session->active ? id : 0;
}

/* Nodes of the bucket that a tenant's sessions, or with `session` one of them, have published; the new one counts. */
static uint32_t
bucket_share(const struct model_pool *pool, const uint32_t *bucket, uint32_t n, const struct model_seq *seq,
	     const struct model_node *of, bool session)
{
	uint32_t own = active_session(of->session);
	uint32_t n_same = seq->tenant == of->tenant && (!session || active_session(seq->session) == own);

	for (uint32_t i = 0; i < n; i++) {
		const struct model_node *node = &pool->nodes[bucket[i]];

		n_same += node->tenant == of->tenant && (!session || active_session(node->session) == own);
	}
	return n_same;
}

/* Removes a node of a full bucket; false: all of them are the sequence's own. */
static bool
make_room(struct model_pool *pool, const struct model_seq *seq, const uint32_t *bucket, uint32_t n)
{
	uint64_t best[5] = { 0 };
	uint32_t found = REGION_NO_PAGE;

	for (uint32_t i = 0; i < n; i++) {
		const struct model_node *node = &pool->nodes[bucket[i]];
		/* The first in which two differ decides, and the smaller one goes. */
		uint64_t ranks[5] = { MODEL_PAGES - bucket_share(pool, bucket, n, seq, node, false),
				      MODEL_PAGES - bucket_share(pool, bucket, n, seq, node, true), node->users,
				      node->used, node->serial };
		bool above = false;
		uint32_t k = 0;

		for (uint32_t m = seq->n_trimmed; m < seq->n_published; m++)
			above = above || seq->pages[m] == bucket[i];
		while (k < 4 && ranks[k] == best[k])
			k++;
		if (above || (found != REGION_NO_PAGE && ranks[k] > best[k]))
			continue;
		found = bucket[i];
		memcpy(best, ranks, sizeof(best));
	}
	if (found == REGION_NO_PAGE)
		return false;
	model_node_remove(pool, found);
	pool->totals.n_displaced++;
	return true;
}

/* Stores the node of the next page, if its bucket has room. */
static enum paged_publish_end
publish_store(struct model_pool *pool, uint32_t p, struct model_seq *seq, enum model_symbol symbol)
{
	uint32_t mask = core_pool_view(model.fixture.core, p)->n_buckets - 1, bucket[MODEL_PAGES], n = 0;
	uint64_t hash = model_hash(pool, p, seq->tip, symbol);
	struct model_place above = seq->tip;

	for (uint32_t page = 0; page < pool->n_pages; page++)
		if (pool->nodes[page].serial != 0 && ((pool->nodes[page].hash ^ hash) & mask) == 0)
			bucket[n++] = page;
	model_check(n <= PREFIX_BUCKET_MAX);
	if (n == PREFIX_BUCKET_MAX && !make_room(pool, seq, bucket, n))
		return PAGED_PUBLISH_BUCKET;
	if (above.serial != 0 && !model_is_live(pool, above))
		return PAGED_PUBLISH_REMOVED;
	model_node_store(pool, p, seq, seq->pages[seq->n_published], above, symbol);
	return PAGED_PUBLISH_DONE;
}

/* Publishes the next page, of which another sequence's may be a twin. */
static enum paged_publish_end
publish_next(struct model_pool *pool, uint32_t p, struct model_seq *seq, enum model_symbol symbol)
{
	uint32_t i = seq->n_published, page = seq->pages[i], other;
	const struct model_node *node = &pool->nodes[page];
	enum paged_publish_end end;

	if (node->serial != 0) {
		if (node->parent.page != seq->tip.page || node->parent.serial != seq->tip.serial ||
		    node->symbol != symbol)
			return PAGED_PUBLISH_OTHER;
		other = page;
	} else {
		other = model_child(pool, seq->tip, symbol);
	}
	if (other == REGION_NO_PAGE) {
		end = publish_store(pool, p, seq, symbol);
		if (end != PAGED_PUBLISH_DONE)
			return end;
		other = page;
	}
	seq->said[i] = symbol;
	model_set_published(seq, i + 1, (struct model_place){ .page = other, .serial = pool->nodes[other].serial });
	if (other != page) {
		if (seq->twins_begin == seq->twins_end)
			seq->twins_begin = i;
		seq->twins_end = i + 1;
		model_note_user(&pool->nodes[other], seq);
		model.n_twins++;
	}
	seq->n_writable_from = MAX(seq->n_writable_from, i + 1);
	return PAGED_PUBLISH_DONE;
}

static void
publish_apply(struct model_pool *pool, const struct publish_item *item)
{
	uint32_t p = PAGED_SEQ_POOL(item->seq), end = item->from + item->n;
	struct model_seq *seq = &pool->seqs[PAGED_SEQ_SLOT(item->seq)];

	seq->end = PAGED_PUBLISH_DONE;
	if (seq->n_published >= end)
		return;
	/* What comes next was given back, or the caller has not sent it. */
	if (seq->n_published < seq->n_trimmed)
		seq->end = PAGED_PUBLISH_TRIMMED;
	else if (seq->n_published < item->from)
		seq->end = PAGED_PUBLISH_REMOVED;
	while (seq->end == PAGED_PUBLISH_DONE && seq->n_published < end)
		seq->end = publish_next(pool, p, seq, item->symbols[seq->n_published - item->from]);
	pool->totals.n_stopped_removed += seq->end == PAGED_PUBLISH_REMOVED;
	pool->totals.n_stopped_trimmed += seq->end == PAGED_PUBLISH_TRIMMED;
	pool->totals.n_stopped_other += seq->end == PAGED_PUBLISH_OTHER;
	pool->totals.n_stopped_bucket += seq->end == PAGED_PUBLISH_BUCKET;
}

/* A request that tells the truth, mostly; its errors are or'ed to *errors. */
static void
random_publish_item(struct publish_item *item, uint32_t *errors)
{
	const struct model_seq *seq = model_seq_find(item->seq);
	uint32_t n_pages = seq == NULL ? 3 : seq->n_pages;
	uint32_t n_published = seq == NULL ? 0 : seq->n_published;
	bool lies = random_below(12) == 0;

	item->version = seq == NULL ? 2 : seq->version;
	item->from = random_below(3) == 0 ? 0 : random_below(3) == 0 ? random_below(n_published + 1) : n_published;
	if (random_below(16) == 0)
		item->from = n_published + random_below(2); /* possibly a gap */
	item->n = 1 + (item->from < n_pages ? random_below(n_pages - item->from) : 0);
	if (random_below(3) == 0)
		item->n = 1;
	if (seq != NULL && item->from < n_pages)
		item->n = MIN(item->n, count_same_kind(&seq->content[item->from], n_pages - item->from));
	if (seq != NULL)
		item->n = MIN(item->n, MODEL_PAGES - item->from);
	for (uint32_t i = 0; i < item->n; i++)
		item->symbols[i] = seq != NULL && item->from + i < n_pages ? seq->content[item->from + i] : SYMBOL_A;
	for (uint32_t i = 0; lies && i < item->n; i++)
		item->symbols[i] = random_symbol(item->symbols[0] >= SYMBOL_KEY_A);
	if (random_below(32) == 0) {
		item->version += 2;
		*errors |= status_bit(PAGED_ERR_STALE);
	}
	item->bad_token = random_below(64) == 0 && item->symbols[0] < SYMBOL_KEY_A;
	item->bad_extras = random_below(64) == 0 && item->symbols[0] < SYMBOL_KEY_A && item->n > 1;
	if (item->bad_token || item->bad_extras)
		*errors |= status_bit(PAGED_ERR_INVALID);
	if (item->from + item->n > n_pages)
		*errors |= status_bit(PAGED_ERR_CAPACITY);
}

static void
request_of_item(const struct publish_item *item, struct keys_buffer *buffer, struct core_publish *request)
{
	uint32_t p = MIN(PAGED_SEQ_POOL(item->seq), MODEL_POOLS - 1), page_size = model_geometries[p].page_size;

	*request = (struct core_publish){ .seq = item->seq, .version = item->version, .from = item->from };
	request->keys = keys_of_symbols(buffer, page_size, item->n, item->symbols);
	if (item->bad_token)
		buffer->tokens[item->n * page_size - 1 - random_below(page_size)] = PREFIX_NO_TOKENS;
	if (item->bad_extras) {
		memset(buffer->extra, 1, sizeof(buffer->extra));
		buffer->extra_page[0] = 1;
		buffer->extra_page[1] = random_below(2);
		request->keys.n_extras = 2;
	}
}

/* Rarely sequences that have nothing to publish. */
static uint32_t
random_publishers(const struct model_session *session, paged_seq_id *ids)
{
	uint32_t n = random_seqs(session, MODEL_ITEMS, ids), n_kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(ids[i]);

		if (seq == NULL || seq->n_published < seq->n_pages || random_below(8) == 0)
			ids[n_kept++] = ids[i];
	}
	return n_kept;
}

void
random_publish(void)
{
	const struct model_session *session = random_requester();
	struct publish_item items[MODEL_ITEMS];
	struct keys_buffer buffers[MODEL_ITEMS];
	struct core_publish requests[MODEL_ITEMS];
	uint32_t n_published[MODEL_ITEMS], ends[MODEL_ITEMS];
	paged_seq_id ids[MODEL_ITEMS];
	uint32_t n = random_publishers(session, ids), errors = seq_errors(session, n, ids);

	for (uint32_t i = 0; i < n; i++) {
		items[i] = (struct publish_item){ .seq = ids[i] };
		random_publish_item(&items[i], &errors);
		request_of_item(&items[i], &buffers[i], &requests[i]);
	}
	model_check_status(
		core_seq_publish(model.fixture.core, session->id, n, requests, n_published, ends, &model.error),
		errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		struct model_pool *pool = &model.pools[PAGED_SEQ_POOL(ids[i])];
		uint32_t n_changes = pool->n_changes;

		publish_apply(pool, &items[i]);
		model_check(n_published[i] == model_seq_find(ids[i])->n_published);
		model_check(ends[i] == model_seq_find(ids[i])->end);
		model.n_trims_published += model_seq_find(ids[i])->n_trimmed > 0 && pool->n_changes > n_changes;
		for (uint32_t k = n_changes; k < pool->n_changes; k++)
			if (pool->changes[k].kind == REGION_RING_STORED)
				record_path(pool, PAGED_SEQ_POOL(ids[i]), pool->changes[k].page);
	}
}
