/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on shared pages that the library never sends: pages, serials, sequences and versions that do not fit.  Each
 * is refused with its numbers, changes nothing, and another worker's shared pages stay as they are.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "client/api/objects.h"
#include "common/prefix.h"
#include "tests/support/random.h"
#include "tests/support/sequences.h"
#include "tests/support/wire_peer.h"
#include "tests/system/prompt_fixture.h"

#define PROMPT_SEED 20261125u
#define LENGTH 34u
#define N_NODES 8u /* published pages of the prompt */
#define YEAR_S (365u * 24 * 3600)

/* A worker that has published a prompt, an idle sequence of it, and the peer that sends the messages. */
static struct it_daemon daemon_;
static struct worker_fixture worker;
static struct wire_peer peer;
static struct prompt prompt;
static paged_seq_id published, private_seq;
static uint32_t pages[WORKER_MAX_LENGTH];
static uint64_t serials[N_NODES];
static struct paged_pool_entry before;

static void
hostile_begin(void)
{
	struct paged_node_entry *nodes;
	size_t n;

	it_daemon_start(&daemon_, PROMPT_POOL("") "pool other {\n" WORKER_POOL_SETTINGS "\n}\n", NULL, NULL);
	worker_open(&worker, NULL, 0);
	prompt = prompt_make(PROMPT_SEED, LENGTH);
	published = prompt_compute(&worker, &prompt);
	private_seq = worker_create_seq(&worker, 8);
	prompt_info(&worker, published, pages);
	worker_ok(&worker, paged_admin_prefixes(worker.client, "test", sizeof(*nodes), &nodes, &n));
	it_require(n == N_NODES);
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < N_NODES; k++)
			if (nodes[i].page == pages[k])
				serials[k] = nodes[i].serial;
	paged_free(nodes);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	before = worker_pool_entry(&worker, "test");
}

static void
hostile_end(void)
{
	prompt_verify(&worker, published, &prompt, LENGTH);
	it_require(prompt_match(&worker, &prompt) == N_NODES * WORKER_PAGE_SIZE);
	wire_peer_bye(&peer);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon_);
}

/* The request is refused with this status and a text that contains the formatted part, and changes nothing. */
static void __attribute__((format(printf, 3, 4)))
expect_refused(struct wire_request *request, enum paged_status status, const char *format, ...)
{
	struct paged_pool_entry after;
	struct wire_reply reply;
	char part[200];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(part, sizeof(part), format, arguments);
	va_end(arguments);
	it_require(wire_peer_call(&peer, request, &reply) == status, "%s: %s", paged_status_name(reply.status),
		   reply.text);
	it_require(strstr(reply.text, part) != NULL, "\"%s\" lacks \"%s\"", reply.text, part);
	after = worker_pool_entry(&worker, "test");
	it_require(memcmp(&before, &after, sizeof(before)) == 0, "%s changed the pool's numbers", reply.text);
}

/* A start on n pages in pool 0; the caller changes what it wants to. */
static struct seq_start_spec start_spec;

static struct wire_request
start_request(uint32_t n, const uint32_t *of, uint64_t serial)
{
	struct wire_request request = { .kind = WIRE_START };

	start_spec = (struct seq_start_spec){ .n_pages = n, .serial = serial, .tag = "" };
	request.start.n = 1;
	request.start.specs = &start_spec;
	request.start.n_pages = n;
	request.start.pages = of;
	return request;
}

IT_TEST(starts_on_pages_that_are_no_prefix)
{
	uint32_t list[64] = { 0 };
	struct wire_request request;

	hostile_begin();
	memcpy(list, pages, sizeof(list));
	list[1] = WORKER_PAGES;
	request = start_request(2, list, serials[1]);
	expect_refused(&request, PAGED_ERR_RANGE,
		       "pool test: page 1 of the prefix is physical page 64 of a pool of 64");
	list[1] = UINT32_MAX;
	expect_refused(&request, PAGED_ERR_RANGE, "is physical page 4294967295 of a pool of 64");

	/* Shuffled, from the middle, with a gap, twice the same. */
	list[1] = pages[2];
	list[2] = pages[1];
	request = start_request(3, list, serials[1]);
	expect_refused(&request, PAGED_ERR_STALE,
		       "page 1 of the prefix is physical page %u, which does not follow the page before it", list[1]);
	request = start_request(3, pages + 1, serials[3]);
	expect_refused(&request, PAGED_ERR_STALE, "page 0 of the prefix is physical page %u, which does not follow",
		       pages[1]);
	list[1] = pages[0];
	request = start_request(2, list, serials[0]);
	expect_refused(&request, PAGED_ERR_STALE, "page 1 of the prefix is physical page %u, which does not follow",
		       pages[0]);

	/* Pages that are in a sequence but not published, that are free, of another pool; serials. */
	memcpy(list, pages, sizeof(list));
	request = start_request(N_NODES + 1, list, serials[7]);
	expect_refused(&request, PAGED_ERR_STALE, "page 8 of the prefix is physical page %u, which is not published",
		       pages[8]);
	list[0] = WORKER_PAGES - 1;
	request = start_request(1, list, 1);
	expect_refused(&request, PAGED_ERR_STALE, "page 0 of the prefix is physical page 63, which is not published");
	request = start_request(N_NODES, pages, serials[7]);
	request.start.pool = 1;
	expect_refused(&request, PAGED_ERR_STALE,
		       "pool other: page 0 of the prefix is physical page %u, which is not published", pages[0]);
	request.start.pool = 9;
	expect_refused(&request, PAGED_ERR_NOENT, "no pool number 9");
	for (uint64_t wrong = 0; wrong < 3; wrong++) {
		request = start_request(N_NODES, pages, wrong < 2 ? wrong * (serials[7] + 1) : serials[6]);
		expect_refused(&request, PAGED_ERR_STALE, "page 7 of the prefix is physical page %u, which has been",
			       pages[7]);
	}
	hostile_end();
}

IT_TEST(starts_that_go_on_from_a_sequence)
{
	struct seq_start_spec twice[2];
	struct wire_request request;
	struct wire_reply reply;
	paged_seq_id own;

	hostile_begin();
	request = start_request(4, pages, serials[3]);
	start_spec.n_tokens = WORKER_MAX_LENGTH + 1;
	expect_refused(&request, PAGED_ERR_LIMIT, "a sequence may hold 128 tokens; 129 tokens, and a prefix of 16");
	request = start_request(40, pages, serials[3]);
	expect_refused(&request, PAGED_ERR_LIMIT, "0 tokens, and a prefix of 160 requested");
	request = start_request(4, pages, serials[3]);
	start_spec.seq = published;
	expect_refused(&request, PAGED_ERR_PERM, "belongs to session");
	start_spec.seq = PAGED_SEQ(99, 0, 5);
	expect_refused(&request, PAGED_ERR_STALE, "5.99");

	start_spec.seq = 0;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	own = reply.ids.seq[0];
	before = worker_pool_entry(&worker, "test");
	start_spec.seq = own;
	expect_refused(&request, PAGED_ERR_STALE, "does not follow the page before it");
	request = start_request(4, pages + 4, serials[6]);
	start_spec.seq = own;
	expect_refused(&request, PAGED_ERR_STALE, "has been published again");
	start_spec.serial = serials[7];
	request.start.pool = 1;
	expect_refused(&request, PAGED_ERR_INVALID, "is not of pool 1");
	request.start.pool = 0;
	twice[0] = twice[1] = start_spec;
	twice[1].n_pages = 0;
	request.start.n = 2;
	request.start.specs = twice;
	expect_refused(&request, PAGED_ERR_INVALID, "is named twice");
	request.start.n = 1;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.ids.seq[0] == own, "%s", reply.text);
	prompt_verify(&worker, own, &prompt, N_NODES * WORKER_PAGE_SIZE);

	/* A sequence with a page that is not published has no end to go on from. */
	request = (struct wire_request){ .kind = WIRE_RESERVE,
					 .change = { 1, &(struct paged_seq_item){ .seq = own, .n_tokens = 33 } } };
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	before = worker_pool_entry(&worker, "test");
	request = start_request(0, pages, 0);
	start_spec.seq = own;
	expect_refused(&request, PAGED_ERR_STALE,
		       "has 36 tokens, of which 32 are published: it cannot go on from its end");
	hostile_end();
}

static struct seq_publish_spec publish_spec;

/* A publish of a sequence's first n pages, with the prompt's tokens. */
static struct wire_request
publish_request(paged_seq_id seq, uint32_t from, uint32_t n)
{
	struct wire_request request = { .kind = WIRE_PUBLISH };

	publish_spec = (struct seq_publish_spec){
		.seq = seq, .version = prompt_info(&worker, seq, NULL).version, .from = from, .n_pages = n
	};
	request.publish.n = 1;
	request.publish.specs = &publish_spec;
	request.publish.n_tokens = n * WORKER_PAGE_SIZE;
	request.publish.tokens = n > 0 ? prompt.tokens : NULL;
	return request;
}

IT_TEST(publishes_of_what_is_not_there)
{
	struct seq_publish_spec twice[2];
	uint32_t tokens[8] = { 1, 2, 3, 4, 5, 6, UINT32_MAX, 8 };
	struct wire_request request;
	struct wire_reply reply;
	paged_seq_id own;

	hostile_begin();
	request = publish_request(private_seq, 0, 2);
	expect_refused(&request, PAGED_ERR_PERM, "belongs to session");
	own = wire_peer_create_seq(&peer, 8);
	before = worker_pool_entry(&worker, "test");
	request = publish_request(own, 0, 2);
	publish_spec.version += 2;
	expect_refused(&request, PAGED_ERR_STALE, "pages were replaced");
	publish_spec.seq += 1ull << 32;
	expect_refused(&request, PAGED_ERR_STALE, "%u.%u", PAGED_SEQ_SLOT(own), PAGED_SEQ_GENERATION(own) + 1);
	request = publish_request(own, 0, 3);
	expect_refused(&request, PAGED_ERR_CAPACITY, "has 2 pages; pages 0 to 2 cannot be published");
	/* The page before it is not published, perhaps any more: nothing is stored. */
	request = publish_request(own, 1, 1);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.published.n_pages[0] == 0 &&
			   reply.published.ends[0] == PAGED_PUBLISH_REMOVED,
		   "%s", reply.text);
	before = worker_pool_entry(&worker, "test");
	request = publish_request(own, UINT32_MAX, 1);
	expect_refused(&request, PAGED_ERR_CAPACITY, "pages 4294967295 to 4294967295 cannot be published");
	request = publish_request(own, 0, 2);
	request.publish.tokens = tokens;
	expect_refused(&request, PAGED_ERR_INVALID, "has token id 0xffffffff");
	request = publish_request(own, 0, 1);
	twice[0] = twice[1] = publish_spec;
	request.publish.n = 2;
	request.publish.specs = twice;
	request.publish.n_tokens = 8;
	expect_refused(&request, PAGED_ERR_INVALID, "is named twice");

	/* No pages: allowed, and changes nothing. */
	request = publish_request(own, 0, 0);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.published.n_pages[0] == 0, "%s",
		   reply.text);
	it_require(worker_pool_entry(&worker, "test").n_published == N_NODES);
	/* The same content as the worker's: the worker's pages stand for it. */
	request = publish_request(own, 0, 2);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.published.n_pages[0] == 2, "%s",
		   reply.text);
	it_require(worker_pool_entry(&worker, "test").n_published == N_NODES);
	/* Repeated: OK, and no change. */
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.published.n_pages[0] == 2, "%s",
		   reply.text);
	hostile_end();
}

IT_TEST(forks_and_pins_of_what_is_not_there)
{
	static struct seq_fork forks[PAGED_MAX_REQUEST_SEQS];
	struct wire_request request = { .kind = WIRE_FORK, .fork = { 1, forks } };
	paged_seq_id own;

	hostile_begin();
	forks[0] = (struct seq_fork){ published, 8 };
	expect_refused(&request, PAGED_ERR_PERM, "belongs to session");
	forks[0] = (struct seq_fork){ PAGED_SEQ(77, 0, 6), 8 };
	expect_refused(&request, PAGED_ERR_STALE, "6.77");
	own = wire_peer_create_seq(&peer, 8);
	before = worker_pool_entry(&worker, "test");
	forks[0] = (struct seq_fork){ own, 9 };
	expect_refused(&request, PAGED_ERR_CAPACITY, "has room for 8 tokens, a fork cannot begin with 9");
	forks[0].n_tokens = UINT32_MAX;
	expect_refused(&request, PAGED_ERR_CAPACITY, "a fork cannot begin with 4294967295");
	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
		forks[i] = (struct seq_fork){ own, 8 };
	request.fork.n = PAGED_MAX_REQUEST_SEQS;
	expect_refused(&request, PAGED_ERR_FULL, "%u sequences requested, %u of %u slots free", PAGED_MAX_REQUEST_SEQS,
		       WORKER_SLOTS - 3, WORKER_SLOTS);

	request = (struct wire_request){ .kind = WIRE_PIN, .pin = { .page = WORKER_PAGES, .serial = 1, .seconds = 1 } };
	expect_refused(&request, PAGED_ERR_RANGE, "64");
	request.pin.page = pages[3];
	expect_refused(&request, PAGED_ERR_STALE, "%u", pages[3]);
	request.pin.serial = 0;
	expect_refused(&request, PAGED_ERR_STALE, "no node has serial 0");
	request.pin.serial = serials[3];
	request.pin.seconds = YEAR_S + 24 * 3600 + 1;
	expect_refused(&request, PAGED_ERR_LIMIT, "%u", request.pin.seconds);
	request.pin.seconds = UINT32_MAX;
	expect_refused(&request, PAGED_ERR_LIMIT, "4294967295");
	request.pin.pool = 5;
	expect_refused(&request, PAGED_ERR_NOENT, "no pool number 5");
	request = (struct wire_request){ .kind = WIRE_EVICT, .evict = { .pool = 5 } };
	expect_refused(&request, PAGED_ERR_NOENT, "no pool number 5");
	hostile_end();
}

/* A hold of n pages in pool 0. */
static struct wire_request
hold_request(uint32_t n, const uint32_t *of, const uint64_t *of_serials)
{
	return (struct wire_request){ .kind = WIRE_HOLD, .hold = { .n = n, .pages = of, .serials = of_serials } };
}

IT_TEST(holds_of_what_is_not_there)
{
	static uint32_t many[PAGED_MAX_HOLD_PAGES];
	static uint64_t many_serials[PAGED_MAX_HOLD_PAGES];
	struct wire_request request;
	uint64_t list_serials[3];
	uint32_t list[3];

	hostile_begin();
	memcpy(list, pages, sizeof(list));
	memcpy(list_serials, serials, sizeof(list_serials));
	list[2] = WORKER_PAGES;
	request = hold_request(3, list, list_serials);
	expect_refused(&request, PAGED_ERR_RANGE, "pool test: there is no page 64; there are 64");
	list[2] = UINT32_MAX;
	expect_refused(&request, PAGED_ERR_RANGE, "there is no page 4294967295");
	list[2] = pages[0];
	expect_refused(&request, PAGED_ERR_STALE, "page %u is not the node of serial %llu", pages[0],
		       (unsigned long long)serials[2]);
	list_serials[2] = serials[0];
	expect_refused(&request, PAGED_ERR_INVALID, "page %u is named twice", pages[0]);
	list[2] = pages[N_NODES]; /* in a sequence, and not published */
	expect_refused(&request, PAGED_ERR_STALE, "page %u is not the node", list[2]);
	list_serials[2] = 0;
	expect_refused(&request, PAGED_ERR_STALE, "is not the node of serial 0");
	list[2] = WORKER_PAGES - 1; /* never used */
	expect_refused(&request, PAGED_ERR_STALE, "page 63 is not the node of serial 0");
	request = hold_request(2, pages, serials);
	request.hold.pool = 1;
	expect_refused(&request, PAGED_ERR_STALE, "pool other: page %u is not the node", pages[0]);
	request.hold.pool = 9;
	expect_refused(&request, PAGED_ERR_NOENT, "no pool number 9");
	request = hold_request(PAGED_MAX_HOLD_PAGES, many, many_serials);
	expect_refused(&request, PAGED_ERR_LIMIT, "a hold may have 32 pages, 5400 requested");
	request = hold_request(17, many, many_serials);
	expect_refused(&request, PAGED_ERR_LIMIT,
		       "a hold of 17 pages, with 0 of other holds and 0 of pins, exceeds pin-limit (16)");
	hostile_end();
}

/* What the library never asks of a hold. */
IT_TEST(requests_on_holds)
{
	static const char text[] = "is a hold, which can only be erased";
	struct paged_seq_item item = { .n_tokens = 4 };
	struct wire_request request;
	struct wire_reply reply;
	struct seq_fork fork = { .n_tokens = 4 };

	hostile_begin();
	request = hold_request(N_NODES, pages, serials);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.ids.n == 1, "%s", reply.text);
	item.seq = fork.parent = reply.ids.seq[0];
	before = worker_pool_entry(&worker, "test");
	request = (struct wire_request){ .kind = WIRE_RESERVE, .change = { 1, &item } };
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request.kind = WIRE_TRUNCATE;
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request.kind = WIRE_TRIM;
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request = (struct wire_request){ .kind = WIRE_FORK, .fork = { 1, &fork } };
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request = (struct wire_request){ .kind = WIRE_GIVE, .give = { 1, &item, { .timeout_ms = 1000 } } };
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request = publish_request(item.seq, 0, 2);
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	request = start_request(1, pages, serials[0]);
	start_spec.seq = item.seq;
	expect_refused(&request, PAGED_ERR_PERM, "%s", text);
	/* Its pages are in the sequence of the worker, too, so that nothing becomes free. */
	request = (struct wire_request){ .kind = WIRE_ERASE, .erase = { 1, &item.seq } };
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	before = worker_pool_entry(&worker, "test");
	expect_refused(&request, PAGED_ERR_STALE, "has ended");
	hostile_end();
}

/* Pages and serials that were noted before a restart; the pool's pages hold the same again. */
IT_TEST(pages_and_serials_of_an_earlier_life)
{
	uint64_t earlier_serials[N_NODES];
	uint32_t earlier_pages[N_NODES];
	struct wire_request request;

	hostile_begin();
	memcpy(earlier_pages, pages, sizeof(earlier_pages));
	memcpy(earlier_serials, serials, sizeof(earlier_serials));
	hostile_end();
	hostile_begin();
	it_require(memcmp(earlier_pages, pages, sizeof(earlier_pages)) == 0);
	request = hold_request(2, earlier_pages, earlier_serials);
	expect_refused(&request, PAGED_ERR_STALE, "is not the node of serial %llu",
		       (unsigned long long)earlier_serials[0]);
	request = start_request(N_NODES, earlier_pages, earlier_serials[N_NODES - 1]);
	expect_refused(&request, PAGED_ERR_STALE, "has been published again");
	it_require(serials[N_NODES - 1] < 1ull << 53, "exact as a number of JSON");
	hostile_end();
}

#define N_FLOOD 64u

/* The peer publishes prefixes of one page that fall into the bucket of a hash. */
static void
flood(uint64_t hash)
{
	const struct region_view *view = &worker.pool->mapping.view;
	uint8_t key[REGION_EXTRA_SIZE] = { 0 };
	struct prefix_block block = { .extra = key };
	struct seq_publish_spec spec = { .n_pages = 1 };
	struct wire_request request = { .kind = WIRE_PUBLISH };
	struct wire_request erase = { .kind = WIRE_ERASE, .erase = { 1, &spec.seq } };
	static uint64_t count;
	struct wire_reply reply;

	request.publish.n = 1;
	request.publish.specs = &spec;
	request.publish.extra = key;
	request.publish.extra_size = sizeof(key);
	for (uint32_t i = 0; i < N_FLOOD; i++) {
		do {
			count++;
			memcpy(key, &count, sizeof(count));
		} while (((prefix_hash(&block, view->page_size, view->header->seed) ^ hash) & (view->n_buckets - 1)) !=
			 0);
		spec.seq = wire_peer_create_seq(&peer, view->page_size);
		spec.version = prompt_info(&worker, spec.seq, NULL).version;
		it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK && reply.published.n_pages[0] == 1, "%s",
			   reply.text);
		it_require(wire_peer_call(&peer, &erase, &reply) == PAGED_OK, "%s", reply.text);
	}
}

/* A session fills the bucket of another's prompt: the prompt is published whole, and found, also after its end. */
IT_TEST(a_bucket_of_the_index_is_flooded)
{
	struct prompt victim = prompt_make(PROMPT_SEED + 1, LENGTH);
	struct prefix_block block = { .tokens = victim.tokens };
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };
	const struct region_view *view;
	uint64_t hash;
	paged_seq_id seq;

	hostile_begin();
	view = &worker.pool->mapping.view;
	hash = prefix_hash(&block, view->page_size, view->header->seed);
	flood(hash);
	seq = prompt_compute(&worker, &victim);
	it_require(prompt_info(&worker, seq, NULL).publish_end == PAGED_PUBLISH_DONE);
	it_require(prompt_match(&worker, &victim) == N_NODES * WORKER_PAGE_SIZE);
	flood(hash);
	it_require(prompt_match(&worker, &victim) == N_NODES * WORKER_PAGE_SIZE);
	worker_ok(&worker, paged_pool_get_totals(worker.pool, &totals));
	it_require(totals.n_displaced >= 2 * N_FLOOD - PREFIX_BUCKET_MAX, "%llu",
		   (unsigned long long)totals.n_displaced);
	wire_peer_bye(&peer);
	it_require(prompt_match(&worker, &victim) == N_NODES * WORKER_PAGE_SIZE);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	flood(hash);
	it_require(prompt_match(&worker, &victim) == N_NODES * WORKER_PAGE_SIZE);
	hostile_end();
}

#define N_RANDOM 4000u

static uint64_t random_state;

static uint32_t
below(uint32_t n)
{
	return (uint32_t)random_below(&random_state, n);
}

/* A number that is nearly right, or an extreme one. */
static uint32_t
almost(uint32_t right)
{
	static const uint32_t extremes[] = { 0, 1, 63, 64, 65, 0x7fffffff, 0x80000000, UINT32_MAX };

	return below(4) > 0 ? right : below(2) > 0 ? extremes[below(8)] : right + below(3) - 1;
}

static struct wire_request
random_request(const paged_seq_id *own, uint32_t n_own)
{
	static uint32_t list[64];
	static uint64_t list_serials[N_NODES + 2];
	static struct seq_fork forks[2];
	paged_seq_id seq = below(8) > 0 && n_own > 0 ? own[below(n_own)] : published;
	uint32_t n = below(N_NODES + 2), kind = below(6);
	struct wire_request request;

	for (uint32_t i = 0; i < 64; i++)
		list[i] = almost(pages[i % 9]);
	request = start_request(n, below(4) > 0 ? pages : list, n > 0 ? serials[(n - 1) % N_NODES] : 0);
	start_spec.serial += below(8) == 0;
	start_spec.n_tokens = below(2) > 0 ? 0 : almost(below(60));
	start_spec.seq = below(4) > 0 ? 0 : seq;
	if (kind == 1) {
		request = publish_request(published, almost(0), below(4));
		publish_spec.seq = seq;
		publish_spec.version = almost(2 * below(6));
	} else if (kind == 2) {
		forks[0] = (struct seq_fork){ seq, almost(below(40)) };
		forks[1] = (struct seq_fork){ published, almost(8) };
		request = (struct wire_request){ .kind = WIRE_FORK, .fork = { 1 + (below(8) == 0), forks } };
	} else if (kind == 3) {
		request = (struct wire_request){ .kind = WIRE_PIN,
						 .pin = { .page = almost(pages[n % N_NODES]),
							  .serial = serials[n % N_NODES],
							  .seconds = almost(2) } };
	} else if (kind == 4) {
		request = (struct wire_request){ .kind = WIRE_EVICT, .evict = { .n_pages = almost(3) } };
	} else if (kind == 5 && n > 0) {
		for (uint32_t i = 0; i < n; i++)
			list_serials[i] = serials[i % N_NODES] + (below(32) == 0);
		request = hold_request(n, below(4) > 0 ? pages : list, list_serials);
	}
	return request;
}

/* Requests with random faults: each is answered, and the accounting stays right. */
IT_TEST(random_requests)
{
	uint32_t n_own = 0, n_accepted = 0;
	paged_seq_id own[20];
	struct wire_reply reply;

	random_state = test_seed();
	hostile_begin();
	for (uint32_t i = 0; i < N_RANDOM; i++) {
		struct wire_request request = random_request(own, n_own);
		bool creates = request.kind == WIRE_FORK || request.kind == WIRE_HOLD ||
			       (request.kind == WIRE_START && start_spec.seq == 0);

		if (wire_peer_call(&peer, &request, &reply) == PAGED_OK) {
			n_accepted++;
			for (uint32_t k = 0; creates && k < reply.ids.n; k++)
				own[n_own++] = reply.ids.seq[k];
		}
		if (n_own >= 18 || below(20) == 0) {
			request = (struct wire_request){ .kind = WIRE_ERASE, .erase = { n_own, own } };
			it_require(n_own == 0 || wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
			n_own = 0;
		}
		if (i % 200 == 0)
			worker_check_pool(&worker);
	}
	it_note("%u of %u requests were accepted", n_accepted, N_RANDOM);
	it_require(n_accepted > N_RANDOM / 10);
	hostile_end();
}

IT_MAIN
