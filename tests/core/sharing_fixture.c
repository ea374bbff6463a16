/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/sharing_fixture.h"

#include <stdlib.h>
#include <string.h>

static const struct region_view *
pool_view(uint32_t pool)
{
	return core_pool_view(core_fixture.core, pool);
}

static const struct region_slot *
seq_slot(paged_seq_id seq)
{
	return region_slot(pool_view(PAGED_SEQ_POOL(seq)), PAGED_SEQ_SLOT(seq));
}

void
sharing_setup(void)
{
	core_fixture_setup();
	core_fixture_add(&core_fixture, &(struct core_pool_params){
						.name = "wide",
						.n_pages = 400,
						.page_size = 1,
						.n_slots = 140,
						.max_length = 300,
						.publish = true,
						.free_pages = 390,
						.pin_limit = 10,
						.seed = 7,
					});
	core_fixture_add(&core_fixture,
			 &(struct core_pool_params){
				 .name = "closed", .n_pages = 4, .page_size = 4, .n_slots = 5, .max_length = 16 });
	core_fixture_add_pool(&core_fixture, "peers", 10, 16, 5, 160);
}

/* Block keys */

void
sharing_keys_init(struct sharing_keys *keys, uint32_t pool, const char *text, const char *salt)
{
	uint32_t page_size = pool_view(pool)->page_size, n_pages = (uint32_t)strlen(text) / page_size;

	cr_assert(n_pages * page_size <= SHARING_MAX_TOKENS && n_pages <= SHARING_MAX_PAGES);
	memset(keys, 0, sizeof(*keys));
	for (uint32_t i = 0; i < n_pages * page_size; i++)
		keys->tokens[i] = (uint8_t)text[i];
	if (salt != NULL)
		memcpy(keys->extra, salt, strlen(salt));
	keys->keys = (struct prefix_keys){
		.n_pages = n_pages,
		.tokens = keys->tokens,
		.n_extras = salt != NULL,
		.extra_page = &keys->extra_page,
		.extra = &keys->extra,
	};
}

/* Searches */

struct sharing_found
sharing_find_keys(uint32_t pool, const struct prefix_keys *keys)
{
	struct prefix_position at = prefix_root(pool_view(pool));
	struct sharing_found found;

	found.n = prefix_find(pool_view(pool), keys, &at, found.pages);
	found.serial = at.serial;
	return found;
}

struct sharing_found
sharing_find(uint32_t pool, const char *text, const char *salt)
{
	struct sharing_keys keys;

	sharing_keys_init(&keys, pool, text, salt);
	return sharing_find_keys(pool, &keys.keys);
}

void
expect_found(uint32_t pool, const char *text, const char *salt, const char *pages)
{
	struct sharing_found found = sharing_find(pool, text, salt);

	cr_assert_str_eq(fixture_numbers_text(found.pages, found.n), pages);
}

/* Requests */

uint64_t
sharing_version(paged_seq_id seq)
{
	return atomic_load(&seq_slot(seq)->version);
}

/* Tests publish other sessions' sequences in the name of their owners. */
static uint32_t
seq_owner(paged_seq_id seq)
{
	return atomic_load(&seq_slot(seq)->owner);
}

struct core_publish
sharing_publish_request(struct sharing_keys *keys, paged_seq_id seq, uint32_t from, const char *text, const char *salt)
{
	struct core_publish request = { .seq = seq, .version = sharing_version(seq), .from = from };

	sharing_keys_init(keys, PAGED_SEQ_POOL(seq), text, salt);
	request.keys = keys->keys;
	request.keys.tokens += (size_t)from * pool_view(PAGED_SEQ_POOL(seq))->page_size;
	request.keys.n_pages -= from;
	if (from > 0)
		request.keys.n_extras = 0;
	return request;
}

enum paged_status
sharing_try_publish(paged_seq_id seq, uint32_t from, const char *text, const char *salt, uint32_t *n_published)
{
	struct sharing_keys keys;
	struct core_publish request = sharing_publish_request(&keys, seq, from, text, salt);

	return core_seq_publish(core_fixture.core, seq_owner(seq), 1, &request, n_published, fixture_ends, &core_error);
}

uint32_t
sharing_publish(paged_seq_id seq, uint32_t from, const char *text, const char *salt)
{
	uint32_t n_published;

	expect_ok(sharing_try_publish(seq, from, text, salt, &n_published));
	expect_accounting();
	return n_published;
}

uint32_t
sharing_publish_keys(paged_seq_id seq, uint32_t from, uint32_t n, const prefix_key *keys)
{
	struct core_publish request = {
		.seq = seq,
		.version = sharing_version(seq),
		.from = from,
		.keys = { .n_pages = n, .n_extras = n, .extra = keys },
	};
	uint32_t n_published;

	expect_ok(core_seq_publish(core_fixture.core, seq_owner(seq), 1, &request, &n_published, fixture_ends,
				   &core_error));
	return n_published;
}

paged_seq_id
sharing_write(uint32_t by_session, uint32_t pool, const char *text, const char *salt)
{
	paged_seq_id seq = fixture_create(by_session, pool);
	uint32_t n_tokens = (uint32_t)strlen(text);

	expect_ok(fixture_reserve(by_session, seq, n_tokens));
	cr_assert_eq(sharing_publish(seq, 0, text, salt), n_tokens / pool_view(pool)->page_size);
	return seq;
}

enum paged_status
sharing_starts(struct core *core, uint32_t by_session, uint32_t pool, uint32_t n,
	       const struct sharing_start_item *items, paged_seq_id *ids, struct paged_error *error)
{
	struct seq_start_spec specs[SHARING_MAX_STARTS];
	uint32_t pages[SHARING_MAX_PAGES];
	struct seq_start_list list = { .pool = pool, .n = n, .specs = specs, .pages = pages };

	for (uint32_t i = 0; i < n; i++) {
		const struct sharing_start_item *item = &items[i];

		cr_assert(i < SHARING_MAX_STARTS && list.n_pages + item->n_pages <= SHARING_MAX_PAGES);
		specs[i] = (struct seq_start_spec){ .n_pages = item->n_pages,
						    .n_tokens = item->n_tokens,
						    .n_asked = item->n_asked,
						    .serial = item->serial,
						    .seq = item->seq,
						    .tag = item->tag };
		for (uint32_t j = 0; j < item->n_pages; j++)
			pages[list.n_pages++] = item->pages[j];
	}
	return core_seq_start(core, by_session, &list, ids, error);
}

enum paged_status
sharing_try_start(uint32_t by_session, uint32_t pool, const struct sharing_found *found, uint32_t n_tokens,
		  paged_seq_id *seq)
{
	struct sharing_start_item start = {
		.n_pages = found->n,
		.pages = found->pages,
		.serial = found->serial,
		.n_tokens = n_tokens,
		.tag = "",
	};

	return sharing_starts(core_fixture.core, by_session, pool, 1, &start, seq, &core_error);
}

paged_seq_id
sharing_start(uint32_t by_session, uint32_t pool, const char *text, const char *salt, uint32_t n_tokens)
{
	struct sharing_found found = sharing_find(pool, text, salt);
	paged_seq_id seq = 0;

	expect_ok(sharing_try_start(by_session, pool, &found, n_tokens, &seq));
	expect_accounting();
	return seq;
}

enum paged_status
sharing_try_fork(uint32_t by_session, paged_seq_id parent, uint32_t n_tokens, paged_seq_id *child)
{
	return core_seq_fork(core_fixture.core, by_session, 1,
			     &(struct seq_fork){ .parent = parent, .n_tokens = n_tokens }, child, &core_error);
}

paged_seq_id
sharing_fork(uint32_t by_session, paged_seq_id parent, uint32_t n_tokens)
{
	paged_seq_id child = 0;

	expect_ok(sharing_try_fork(by_session, parent, n_tokens, &child));
	expect_accounting();
	return child;
}

enum paged_status
sharing_pin(uint32_t pool, const struct sharing_found *found, uint32_t seconds)
{
	uint32_t n_pages;

	return core_prefix_pin(core_fixture.core, &(struct core_pinner){ .session = fixture_session }, pool,
			       found->n == 0 ? 0 : found->pages[found->n - 1], found->serial, seconds, &n_pages,
			       &core_error);
}

/* State */

static void
expect_list(uint32_t pool, bool pinned, const char *pages)
{
	uint32_t numbers[SHARING_MAX_PAGES], n = core_pool_lru(core_fixture.core, pool, pinned, numbers);

	cr_assert_str_eq(fixture_numbers_text(numbers, n), pages);
}

void
expect_cached(uint32_t pool, const char *pages)
{
	expect_list(pool, false, pages);
}

void
expect_pinned(uint32_t pool, const char *pages)
{
	expect_list(pool, true, pages);
}

void
expect_seq(paged_seq_id seq, uint32_t n_writable_from, uint32_t n_published)
{
	uint32_t page_size = pool_view(PAGED_SEQ_POOL(seq))->page_size;

	cr_assert_eq(atomic_load(&seq_slot(seq)->writable_from), n_writable_from * page_size, "writable from %u",
		     atomic_load(&seq_slot(seq)->writable_from));
	cr_assert_eq(atomic_load(&seq_slot(seq)->published), n_published * page_size, "%u published",
		     atomic_load(&seq_slot(seq)->published));
}

uint32_t
sharing_count(uint32_t pool, uint32_t page)
{
	return atomic_load(&region_page(pool_view(pool), page)->count);
}

static void *saved[CORE_FIXTURE_MAX_POOLS];

void
sharing_save(void)
{
	for (uint32_t i = 0; i < core_fixture.n_pools; i++) {
		free(saved[i]);
		saved[i] = malloc(core_fixture.region_sizes[i]);
		cr_assert_not_null(saved[i]);
		memcpy(saved[i], core_fixture.regions[i], core_fixture.region_sizes[i]);
	}
}

bool
sharing_is_saved(void)
{
	bool same = true;

	for (uint32_t i = 0; i < core_fixture.n_pools; i++) {
		same = same && memcmp(saved[i], core_fixture.regions[i], core_fixture.region_sizes[i]) == 0;
		free(saved[i]);
		saved[i] = NULL;
	}
	return same;
}
