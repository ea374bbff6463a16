/* SPDX-License-Identifier: Apache-2.0 */
/* The requests on published pages, sent as messages to a real daemon, and pagedctl's commands on them. */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/pagedclient.h"
#include "common/prefix.h"
#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"

/* LONG_PAGES: of a prefix whose pages a reply cannot list. */
enum { PAGE_SIZE_TOKENS = 4, N_PAGES = SMALL_POOL_PAGES, LONG_PAGES = 2000 };

#define CONFIG(settings) "pool p { " SMALL_POOL_SHAPE " page-size = 4 sequences = 8 pages = 64 " settings " }\n"

/* A daemon, two sessions, and the pool's table region. */
static struct it_daemon daemon_;
static struct wire_peer peer, other;
static struct wire_control_reply grant;
static struct region_view view;
static void *region;

/* Prefix: token t of prefix p is 1000 * p + t. */
static uint32_t tokens[LONG_PAGES * PAGE_SIZE_TOKENS];

static void
region_map(struct wire_peer *of)
{
	const struct wire_control_request request = { .kind = WIRE_OPEN_POOL, .open_pool = { .name = "p" } };
	struct paged_error error;
	int fds[WIRE_N_POOL_FDS];

	wire_peer_send_control(of->control, &request);
	it_require(wire_peer_receive_control(of->control, &grant, fds) && grant.kind == WIRE_POOL_GRANT);
	region = mmap(NULL, grant.pool_grant.region_size, PROT_READ, MAP_SHARED, fds[WIRE_FD_REGION], 0);
	it_require(region != MAP_FAILED, "%m");
	it_require(region_view_init(&view, region, grant.pool_grant.region_size, of->welcome.welcome.boot_id, &error) ==
			   PAGED_OK,
		   "%s", error.text);
	close(fds[WIRE_FD_REGION]);
	close(fds[WIRE_FD_MEMORY]);
}

static void
prefixes_begin(const char *config)
{
	it_daemon_start(&daemon_, config, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	region_map(&peer);
}

static void
prefixes_end(void)
{
	int code;
	const char *text = it_pagedctl(&code, "check", NULL);

	it_require(code == 0, "%s", text);
	munmap(region, grant.pool_grant.region_size);
	wire_peer_bye(&peer);
	wire_peer_bye(&other);
	it_daemon_stop(&daemon_);
}

static uint64_t
version_of(paged_seq_id seq)
{
	return atomic_load(&region_slot(&view, PAGED_SEQ_SLOT(seq))->version);
}

static void
prefix_fill(uint32_t prefix, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < n_tokens; i++)
		tokens[i] = 1000 * prefix + i;
}

/* Creates a sequence of n_pages and publishes all of them as a prefix. */
static paged_seq_id
publish_prefix(uint32_t prefix, uint32_t n_pages)
{
	paged_seq_id seq = wire_peer_create_seq(&peer, n_pages * PAGE_SIZE_TOKENS);
	struct seq_publish_spec spec = { .seq = seq, .version = version_of(seq), .n_pages = n_pages };
	struct wire_request request = { .kind = WIRE_PUBLISH };
	struct wire_reply reply;

	prefix_fill(prefix, n_pages * PAGE_SIZE_TOKENS);
	request.publish.n = 1;
	request.publish.specs = &spec;
	request.publish.n_tokens = n_pages * PAGE_SIZE_TOKENS;
	request.publish.tokens = tokens;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_PUBLISHED && reply.published.n == 1);
	it_require(reply.published.n_pages[0] == n_pages, "%u pages", reply.published.n_pages[0]);
	return seq;
}

static uint32_t
prefix_search(uint32_t prefix, uint32_t n_pages, struct prefix_position *at, uint32_t *pages)
{
	struct prefix_keys keys = { .n_pages = n_pages, .tokens = tokens };

	prefix_fill(prefix, n_pages * PAGE_SIZE_TOKENS);
	*at = prefix_root(&view);
	return prefix_find(&view, &keys, at, pages);
}

static void
erase(struct wire_peer *owner, uint32_t n, const paged_seq_id *ids)
{
	struct wire_request request = { .kind = WIRE_ERASE, .erase = { n, ids } };
	struct wire_reply reply;

	it_require(wire_peer_call(owner, &request, &reply) == PAGED_OK, "%s", reply.text);
}

/* The first `most` pages of a sequence. */
static uint32_t
table_of(paged_seq_id seq, uint32_t *pages, uint32_t most)
{
	struct wire_request request = { .kind = WIRE_GET_TABLE, .get_table = { .seq = seq } };
	struct wire_reply reply;

	it_require(wire_peer_call(&other, &request, &reply) == PAGED_OK, "%s", reply.text);
	for (uint32_t i = 0; i < reply.table.n && i < most; i++)
		pages[i] = reply.table.page[i];
	return reply.table.n;
}

IT_TEST(sessions_share_a_prefix)
{
	struct seq_start_spec specs[2] = { { .n_pages = 3, .n_tokens = 20, .n_asked = 16, .tag = "a" },
					   { .n_pages = 2, .n_asked = 16, .tag = "" } };
	uint32_t found[3], pages[8], both[5], n;
	struct paged_pool_entry pool;
	struct prefix_position at;
	struct wire_request request = { .kind = WIRE_START };
	struct wire_reply reply;
	paged_seq_id seq, starts[2], children[2];

	prefixes_begin(CONFIG(""));
	seq = publish_prefix(1, 3);
	it_require(prefix_search(1, 3, &at, found) == 3);
	specs[0].serial = at.serial;
	prefix_search(1, 2, &at, NULL);
	specs[1].serial = at.serial;
	memcpy(both, found, sizeof(found));
	memcpy(both + 3, found, 2 * sizeof(*found));
	request.start.n = 2;
	request.start.specs = specs;
	request.start.n_pages = 5;
	request.start.pages = both;
	it_require(wire_peer_call(&other, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_IDS && reply.ids.n == 2);
	memcpy(starts, reply.ids.seq, sizeof(starts));
	n = table_of(starts[0], pages, 8);
	it_require(n == 5 && memcmp(pages, found, sizeof(found)) == 0, "%u pages", n);
	n = table_of(starts[1], pages, 8);
	it_require(n == 2 && memcmp(pages, found, 2 * sizeof(*found)) == 0, "%u pages", n);

	/* A child shares the full page; its partial one is its own. */
	request = (struct wire_request){ .kind = WIRE_FORK };
	request.fork.n = 2;
	request.fork.forks = (const struct seq_fork[2]){ { starts[0], 13 }, { starts[1], 4 } };
	it_require(wire_peer_call(&other, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_IDS && reply.ids.n == 2);
	memcpy(children, reply.ids.seq, sizeof(children));
	n = table_of(children[0], pages, 8);
	it_require(n == 4 && memcmp(pages, found, sizeof(found)) == 0, "%u pages", n);
	it_require(table_of(children[1], pages, 8) == 1 && pages[0] == found[0]);

	pool = wire_peer_pool_entry();
	it_require(pool.n_referenced == 6 && pool.n_cached == 0, "%u, %u", pool.n_referenced, pool.n_cached);
	it_require(pool.n_starts == 2 && pool.n_tokens_asked == 32 && pool.n_tokens_found == 20);
	it_require(pool.n_published == 3 && pool.publishes == 1);
	erase(&peer, 1, &seq);
	erase(&other, 2, starts);
	erase(&other, 2, children);
	pool = wire_peer_pool_entry();
	it_require(pool.n_referenced == 0 && pool.n_cached == 3 && pool.n_free == N_PAGES - 3);
	prefixes_end();
}

IT_TEST(prefixes_are_listed_and_evicted)
{
	struct wire_request list = { .kind = WIRE_GET_PREFIXES };
	struct wire_request evict = { .kind = WIRE_EVICT, .evict = { .n_pages = 1 } };
	struct wire_reply reply;
	struct prefix_position at;
	uint32_t found[3];
	paged_seq_id seq;

	prefixes_begin(CONFIG(""));
	seq = publish_prefix(1, 3);
	it_require(prefix_search(1, 3, &at, found) == 3);
	it_require(wire_peer_call(&other, &list, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_PREFIXES && reply.prefixes.n == 3 && !reply.prefixes.more);
	for (uint32_t i = 0; i < 3; i++) {
		const struct paged_node_entry *node = &reply.prefixes.report[i];

		it_require(node->n_references == 1 && node->hits == 0 && node->pinned == 0 && node->used_s < 60);
		if (node->page == found[0])
			it_require(node->parent == UINT32_MAX && node->parent_serial == 0);
		else if (node->page == found[2])
			it_require(node->parent == found[1] && node->serial == at.serial);
		else
			it_require(node->page == found[1] && node->parent == found[0]);
	}
	it_require(wire_peer_call(&other, &evict, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.evicted.n_pages == 0 && !reply.evicted.more, "pages of a sequence stay");
	erase(&peer, 1, &seq);
	it_require(wire_peer_call(&other, &evict, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.evicted.n_pages == 1 && !reply.evicted.more);
	it_require(prefix_search(1, 3, &at, found) == 2, "the last page was evicted first");
	evict.evict.n_pages = 0;
	it_require(wire_peer_call(&other, &evict, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.evicted.n_pages == 2 && !reply.evicted.more);
	it_require(prefix_search(1, 3, &at, found) == 0);
	prefixes_end();
}

static bool
none_is_pinned(void *argument)
{
	(void)argument;
	return wire_peer_pool_entry().n_pinned == 0;
}

/* A pin outlives its session, protects its pages, and expires without any request. */
IT_TEST(pins_expire)
{
	struct wire_request pin = { .kind = WIRE_PIN }, first;
	struct wire_reply reply;
	struct prefix_position at;
	paged_seq_id seqs[2];

	prefixes_begin(CONFIG("pin-limit = 3"));
	seqs[0] = publish_prefix(1, 2);
	seqs[1] = publish_prefix(2, 2);
	prefix_search(1, 2, &at, NULL);
	pin.pin.page = at.page;
	pin.pin.serial = at.serial;
	pin.pin.seconds = 3600;
	first = pin;
	it_require(wire_peer_call(&other, &pin, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_PINNED && reply.pinned.n_pages == 2);
	prefix_search(2, 2, &at, NULL);
	pin.pin.page = at.page;
	pin.pin.serial = at.serial;
	it_require(wire_peer_call(&other, &pin, &reply) == PAGED_ERR_LIMIT, "%s", reply.text);
	pin.pin.serial++;
	it_require(wire_peer_call(&other, &pin, &reply) == PAGED_ERR_STALE, "%s", reply.text);
	erase(&peer, 2, seqs);
	wire_peer_bye(&other);
	wire_peer_attach(&other, WIRE_ROLE_SESSION, NULL);
	it_require(wire_peer_pool_entry().n_pinned == 2);
	first.pin.seconds = 1;
	it_require(wire_peer_call(&other, &first, &reply) == PAGED_OK, "%s", reply.text);
	it_require(it_wait(none_is_pinned, NULL));
	it_require(wire_peer_pool_entry().n_cached == 4);
	prefixes_end();
}

/* The loop evicts until free-pages are free; a request needs not wait for it. */
IT_TEST(pages_are_evicted_ahead_of_need)
{
	struct prefix_position at;
	paged_seq_id seq;

	prefixes_begin(CONFIG("free-pages = 50%"));
	seq = publish_prefix(1, 40);
	erase(&peer, 1, &seq);
	seq = wire_peer_create_seq(&peer, 4);
	it_require(wire_peer_wait_free(N_PAGES / 2));
	it_require(wire_peer_pool_entry().n_cached == 31);
	it_require(prefix_search(1, 40, &at, NULL) == 31, "the tail was evicted");
	prefixes_end();
}

static void
expect_refused(struct wire_peer *from, struct wire_request *request, enum paged_status status, const char *text)
{
	struct wire_reply reply;

	it_require(wire_peer_call(from, request, &reply) == status, "status %d: %s", reply.status, reply.text);
	it_require(strcmp(reply.text, text) == 0, "%s", reply.text);
}

IT_TEST(lists_that_do_not_fit_together_are_refused)
{
	static const uint8_t extra[4 * REGION_EXTRA_SIZE] = { 1 };
	struct seq_start_spec starts[2] = { { .n_pages = 2, .tag = "" }, { .n_pages = UINT32_MAX, .tag = "" } };
	struct seq_publish_spec specs[2] = { { .n_pages = 2 }, { .n_pages = 1 } };
	struct wire_request request = { .kind = WIRE_START };
	const uint32_t pages[3] = { 0, 1, 2 };
	struct wire_reply reply;

	prefixes_begin(CONFIG(""));
	request.start.n = 2;
	request.start.specs = starts;
	request.start.n_pages = 1;
	request.start.pages = pages;
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL,
		       "SeqStart.page has 1 entries, and its sequences have 4294967297 pages");
	request.start.pool = 1;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_NOENT, "%s", reply.text);

	for (int i = 0; i < 2; i++) {
		specs[i].seq = wire_peer_create_seq(&peer, 12);
		specs[i].version = version_of(specs[i].seq);
	}
	request = (struct wire_request){ .kind = WIRE_PUBLISH };
	request.publish.n = 2;
	request.publish.specs = specs;
	request.publish.n_tokens = 11;
	request.publish.tokens = tokens;
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL,
		       "Publish.token has 11 entries, and its pages have 12 tokens");
	request.publish.n_tokens = 12;
	request.publish.extra_size = 33;
	request.publish.extra = extra;
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL, "Publish.extra has 33 bytes; an extra has 32");
	request.publish.extra_size = 64;
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL, "Publish.extra_page has 0 entries for 2 extras");
	request.publish.n_extra_pages = 2;
	request.publish.extra_page = (const uint32_t[2]){ 1, 1 };
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL,
		       "Publish.extra_page: entry 1 is page 1; it must be ascending and below 3");
	request.publish.extra_page = (const uint32_t[2]){ 1, 3 };
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL,
		       "Publish.extra_page: entry 1 is page 3; it must be ascending and below 3");
	request.publish.tokens = NULL;
	request.publish.n_tokens = 0;
	expect_refused(&peer, &request, PAGED_ERR_PROTOCOL,
		       "Publish without tokens has 2 extras, 2 of them for named pages, for 3 pages");
	specs[1].n_pages = WIRE_MAX_PUBLISH_PAGES;
	expect_refused(&peer, &request, PAGED_ERR_LIMIT, "Publish has 4098 pages; it may have 4096");
	it_require(wire_peer_pool_entry().n_published == 0);
	prefixes_end();
}

/* Extras belong to the pages of their own sequence. */
IT_TEST(extras_are_divided_among_the_sequences)
{
	static const uint8_t extra[3][REGION_EXTRA_SIZE] = { { 1 }, { 2 }, { 3 } };
	struct seq_publish_spec specs[2] = { { .n_pages = 2 }, { .n_pages = 2 } };
	struct wire_request request = { .kind = WIRE_PUBLISH };
	struct prefix_keys keys = { .n_pages = 2, .tokens = tokens };
	struct prefix_position at;
	struct wire_reply reply;

	prefixes_begin(CONFIG(""));
	for (int i = 0; i < 2; i++) {
		specs[i].seq = wire_peer_create_seq(&peer, 8);
		specs[i].version = version_of(specs[i].seq);
	}
	prefix_fill(5, 16);
	request.publish.n = 2;
	request.publish.specs = specs;
	request.publish.n_tokens = 16;
	request.publish.tokens = tokens;
	request.publish.n_extra_pages = 3;
	request.publish.extra_page = (const uint32_t[3]){ 0, 2, 3 };
	request.publish.extra_size = sizeof(extra);
	request.publish.extra = extra[0];
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.published.n_pages[0] == 2 && reply.published.n_pages[1] == 2);
	keys.n_extras = 1;
	keys.extra_page = (const uint32_t[1]){ 0 };
	keys.extra = extra;
	at = prefix_root(&view);
	it_require(prefix_find(&view, &keys, &at, NULL) == 2);
	keys.tokens = tokens + 8;
	keys.n_extras = 2;
	keys.extra_page = (const uint32_t[2]){ 0, 1 };
	keys.extra = extra + 1;
	at = prefix_root(&view);
	it_require(prefix_find(&view, &keys, &at, NULL) == 2);
	prefixes_end();
}

IT_TEST(observers_may_only_list)
{
	const struct wire_control_request shard = { .kind = WIRE_OPEN_POOL, .open_pool = { .name = "p", .shard = 1 } };
	struct seq_start_spec start = { .tag = "" };
	struct seq_publish_spec spec = { .seq = PAGED_SEQ(1, 0, 0) };
	struct seq_fork fork = { PAGED_SEQ(1, 0, 0), 4 };
	struct wire_request requests[4] = {
		{ .kind = WIRE_START }, { .kind = WIRE_FORK }, { .kind = WIRE_PUBLISH }, { .kind = WIRE_PIN }
	};
	static const char *const names[4] = { "start", "fork", "publish", "pin" };
	struct wire_request list = { .kind = WIRE_GET_PREFIXES };
	struct wire_control_reply refusal;
	struct wire_reply reply;
	struct wire_peer observer;
	char text[64];

	prefixes_begin(CONFIG("model = \"smollm@1\" publish = no"));
	it_require(strcmp(grant.pool_grant.model, "smollm@1") == 0 && !grant.pool_grant.publishes);
	it_require(grant.pool_grant.n_shards == 1 && grant.pool_grant.n_layer_groups == 1);
	it_require(memcmp(grant.pool_grant.memory_id, view.header->memory_id, WIRE_MEMORY_ID_SIZE) == 0);
	wire_peer_attach(&observer, WIRE_ROLE_OBSERVER, NULL);
	requests[0].start.n = 1;
	requests[0].start.specs = &start;
	requests[1].fork.n = 1;
	requests[1].fork.forks = &fork;
	requests[2].publish.n = 1;
	requests[2].publish.specs = &spec;
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "%s: an observer may only read", names[i]);
		expect_refused(&observer, &requests[i], PAGED_ERR_PERM, text);
	}
	it_require(wire_peer_call(&observer, &list, &reply) == PAGED_OK && reply.prefixes.n == 0 &&
		   !reply.prefixes.more);
	list.get_prefixes.pool = 7;
	expect_refused(&observer, &list, PAGED_ERR_NOENT, "no pool number 7; there are 1");
	wire_peer_send_control(observer.control, &shard);
	it_require(wire_peer_receive_control(observer.control, &refusal, NULL) && refusal.kind == WIRE_REFUSAL);
	it_require(refusal.refusal.status == PAGED_ERR_NOENT &&
			   strcmp(refusal.refusal.text, "pool p: no shard number 1; there is one") == 0,
		   "%s", refusal.refusal.text);
	wire_peer_bye(&observer);
	prefixes_end();
}

/* Tries every request on the pool that uid 65534 may not open. */
static void
requests_without_permission(int from, int to, void *argument)
{
	static const char refused[] = "pool p: its allow-lists do not include uid 65534";
	struct seq_start_spec start = { .tag = "" };
	struct seq_publish_spec spec = { .seq = PAGED_SEQ(1, 0, 0) };
	struct seq_fork fork = { PAGED_SEQ(1, 0, 0), 4 };
	struct wire_request requests[5] = { { .kind = WIRE_START, .start = { .n = 1, .specs = &start } },
					    { .kind = WIRE_FORK, .fork = { 1, &fork } },
					    { .kind = WIRE_PUBLISH, .publish = { .n = 1, .specs = &spec } },
					    { .kind = WIRE_PIN },
					    { .kind = WIRE_GET_PREFIXES } };
	struct wire_request evict = { .kind = WIRE_EVICT };
	struct wire_peer stranger;

	(void)from, (void)to, (void)argument;
	it_require(setgid(65534) == 0 && setuid(65534) == 0, "%m");
	wire_peer_attach(&stranger, WIRE_ROLE_SESSION, NULL);
	for (int i = 0; i < 5; i++)
		expect_refused(&stranger, &requests[i], PAGED_ERR_PERM, refused);
	expect_refused(&stranger, &evict, PAGED_ERR_PERM,
		       "evict: uid 65534 is neither the daemon's, root, nor in the admin-group");
	wire_peer_bye(&stranger);
}

IT_TEST(pools_and_eviction_need_permission)
{
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root, to act as another user");
	/* No threads of ZeroMQ in this process: one could hold a lock of the sanitizer's allocator at the fork. */
	it_daemon_start(&daemon_, "allow-user = 65534\n" CONFIG("allow-user = 0"), NULL, NULL);
	it_require(chmod(daemon_.dir, 0711) == 0, "%m");
	it_fork(&worker, requests_without_permission, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon_);
}

static json_t *
json_parse(const char *text, int code)
{
	json_error_t error;
	json_t *document = json_loads(text, 0, &error);

	it_require(code == 0, "%d: %s", code, text);
	it_require(document != NULL, "%s: %s", error.text, text);
	return document;
}

IT_TEST(pagedctl_lists_pins_and_evicts)
{
	char page[16], serial[24], text[96];
	struct prefix_position at;
	const json_t *node;
	json_t *document;
	const char *output;
	paged_seq_id seq;
	int code;

	prefixes_begin(CONFIG("model = \"smollm@1\""));
	seq = publish_prefix(1, 2);
	prefix_search(1, 2, &at, NULL);
	output = it_pagedctl(&code, "prefixes", "p", NULL);
	it_require(code == 0 && strstr(output, "pool p: 2 published pages, 0 cached, 0 pinned\nPAGE  ") == output, "%s",
		   output);
	it_require(strstr(output, " 1004 1005") == NULL, "no token ids");
	output = it_pagedctl(&code, "prefixes", "p", "--tokens", NULL);
	it_require(code == 0 && strstr(output, "  1004 1005 1006 1007\n") != NULL, "%s", output);
	output = it_pagedctl(&code, "prefixes", "p", "--tokens", "--json", NULL);
	document = json_parse(output, code);
	it_require(strcmp(json_string_value(json_object_get(document, "pool")), "p") == 0);
	it_require(json_array_size(json_object_get(document, "prefixes")) == 2);
	node = json_array_get(json_object_get(document, "prefixes"), 1);
	it_require(json_array_size(json_object_get(node, "tokens")) == 4);
	it_require(json_integer_value(json_object_get(node, "references")) == 1);
	it_require(json_is_null(json_object_get(node, "pinned")));
	json_decref(document);

	erase(&peer, 1, &seq);
	snprintf(page, sizeof(page), "%u", at.page);
	snprintf(serial, sizeof(serial), "%llu", (unsigned long long)at.serial);
	output = it_pagedctl(&code, "pin", "p", page, serial, "60", NULL);
	it_require(code == 0 && strcmp(output, "pool p: 2 pages are pinned for 60 s\n") == 0, "%s", output);
	output = it_pagedctl(&code, "prefixes", "p", NULL);
	it_require(code == 0 && strstr(output, "2 cached, 2 pinned") != NULL, "%s", output);
	output = it_pagedctl(&code, "pin", "p", page, serial, "0", "--json", NULL);
	document = json_parse(output, code);
	it_require(json_integer_value(json_object_get(document, "pages")) == 2);
	json_decref(document);
	it_require(wire_peer_pool_entry().n_pinned == 0);
	output = it_pagedctl(&code, "status", "--json", NULL);
	document = json_parse(output, code);
	node = json_array_get(json_object_get(document, "pools"), 0);
	it_require(json_integer_value(json_object_get(node, "cached")) == 2);
	it_require(json_is_null(json_object_get(node, "hit_rate")));
	json_decref(document);
	output = it_pagedctl(&code, "pools", "--json", NULL);
	document = json_parse(output, code);
	node = json_array_get(json_object_get(document, "pools"), 0);
	it_require(strcmp(json_string_value(json_object_get(node, "model")), "smollm@1") == 0);
	it_require(json_integer_value(json_object_get(node, "published")) == 2);
	json_decref(document);

	output = it_pagedctl(&code, "evict", "p", "1", NULL);
	it_require(code == 0 && strcmp(output, "pool p: 1 cached page was evicted\n") == 0, "%s", output);
	output = it_pagedctl(&code, "evict", "p", NULL);
	it_require(code == 0 && strcmp(output, "pool p: 1 cached page was evicted\n") == 0, "%s", output);
	output = it_pagedctl(&code, "pin", "p", page, serial, "60", NULL);
	snprintf(text, sizeof(text), "page %s is not the node of serial %s", page, serial);
	it_require(code == 1 && strstr(output, text) != NULL, "%s", output);
	it_pagedctl(&code, "evict", "p", "0", NULL);
	it_require(code == 2);
	it_pagedctl(&code, "pin", "p", page, serial, NULL);
	it_require(code == 2);
	output = it_pagedctl(&code, "pin", "p", page, "1x", "60", NULL);
	it_require(code == 2 && strstr(output, "SERIAL 1x is no number from 0 to ") != NULL, "%s", output);
	it_pagedctl(&code, "status", "--tokens", NULL);
	it_require(code == 2);
	prefixes_end();
}

IT_TEST(long_lists_and_evictions_take_several_requests)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	struct paged_node_entry *list;
	struct paged_client *client;
	paged_seq_id seqs[3];
	uint32_t n_evicted;
	size_t n;

	prefixes_begin("pool p { " SMALL_POOL_SHAPE " page-size = 4 sequences = 8 pages = 6400 }\n");
	for (uint32_t i = 0; i < 3; i++)
		seqs[i] = publish_prefix(10 * (i + 1), LONG_PAGES);
	erase(&peer, 3, seqs);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_OK);
	it_require(paged_admin_prefixes(client, "p", sizeof(*list), &list, &n) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(n == 3 * LONG_PAGES, "%zu", n);
	for (size_t i = 0; i < n; i++)
		it_require(list[i].page == i && list[i].n_references == 0);
	paged_free(list);
	it_require(paged_admin_evict(client, "p", 5000, &n_evicted) == PAGED_OK && n_evicted == 5000, "%u", n_evicted);
	it_require(paged_admin_evict(client, "p", 0, &n_evicted) == PAGED_OK && n_evicted == 1000, "%u", n_evicted);
	paged_client_close(client);
	prefixes_end();
}

/* What pagedctl does not reach. */
IT_TEST(library_reads_tokens)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	struct paged_client *client;
	struct paged_pool *pool;
	struct prefix_position at;
	uint32_t got[PAGE_SIZE_TOKENS], n;

	prefixes_begin(CONFIG(""));
	publish_prefix(3, 2);
	prefix_search(3, 2, &at, NULL);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK);
	it_require(paged_prefix_tokens(pool, at.page, at.serial, got, 4) == PAGED_OK, "%s", paged_client_error(client));
	it_require(got[0] == 3004 && got[3] == 3007);
	it_require(paged_prefix_tokens(pool, at.page, at.serial + 1, got, 4) == PAGED_ERR_STALE);
	it_require(paged_prefix_tokens(pool, N_PAGES, at.serial, got, 4) == PAGED_ERR_RANGE);
	it_require(paged_prefix_tokens(pool, at.page, at.serial, got, 3) == PAGED_ERR_RANGE);
	it_require(paged_prefix_tokens(pool, at.page, at.serial, NULL, 4) == PAGED_ERR_INVALID);
	it_require(paged_admin_pin(client, "p", at.page, at.serial, 1, &n) == PAGED_ERR_PERM);
	it_require(paged_admin_evict(client, "q", 0, &n) == PAGED_ERR_NOENT);
	paged_client_close(client);
	prefixes_end();
}

IT_MAIN
