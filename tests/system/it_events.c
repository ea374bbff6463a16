/* SPDX-License-Identifier: Apache-2.0 */
/* paged-events beside real daemons and publishers: what routers know is what the pool holds. */
#include "config.h"

#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/system/router_fixture.h"

#define MODEL "meta/llama@1"
#define MODEL_POOL CHAIN_POOL(1024, "model = \"" MODEL "\"")

static struct it_daemon daemon_;
static struct events_process events;
static struct worker_fixture worker;
static struct router router;
static struct block_hasher hasher;
static struct router_block expected[ROUTER_MAX_BLOCKS];

/* The daemon runs. */
static void
events_follow(const char *const *arguments)
{
	events_start(&events, &daemon_, arguments);
	worker_open(&worker, NULL, 0);
	router_open(&router, &events, "");
	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
}

static void
events_begin(const char *configuration, const char *const *arguments)
{
	it_daemon_start(&daemon_, configuration, NULL, NULL);
	events_follow(arguments);
}

static void
events_end(void)
{
	router_close(&router);
	worker_close(&worker);
	events_stop(&events);
	it_daemon_stop(&daemon_);
}

static void
evict(uint32_t n_pages)
{
	uint32_t n_evicted;

	worker_ok(&worker, paged_admin_evict(worker.client, "test", n_pages, &n_evicted));
	it_require(n_pages == 0 || n_evicted == n_pages);
}

static void
model_salt(uint8_t *salt, const char *tenant)
{
	const char *const parts[] = { MODEL, "", tenant };

	paged_salt(salt, 3, parts);
}

/* Publishes a chain under a salt, and expects it with the extra key that the salt gives its first page. */
static size_t
publish_salted(size_t n, uint32_t chain, uint32_t n_pages, const char *tenant)
{
	uint8_t salt[PAGED_DIGEST_SIZE], extra[PAGED_DIGEST_SIZE];

	model_salt(salt, tenant);
	crypto_hash_sha256(extra, salt, sizeof(salt));
	chain_erase(&worker, chain_create(&worker, chain, n_pages, salt));
	return router_expect_chain(expected, n, &hasher, chain, n_pages, tenant[0] != '\0' ? extra : NULL);
}

/* Publishes two pages under an engine's own hashes; with tokens, or NULL. */
static size_t
publish_keys(size_t n, const uint32_t *tokens)
{
	static const uint8_t keys[2][PAGED_DIGEST_SIZE] = { { [24] = 7 }, { [31] = 9 } };
	struct paged_prefix prefix = {
		.struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = 2 * CHAIN_PAGE_SIZE, .keys = keys
	};
	struct paged_publish publish = { .seq = worker_create_seq(&worker, 2 * CHAIN_PAGE_SIZE), .prefix = &prefix };

	worker_ok(&worker, paged_seq_publish(worker.pool, 1, &publish));
	worker_ok(&worker, paged_client_ping(worker.client));
	chain_erase(&worker, publish.seq);
	memset(&expected[n], 0, 2 * sizeof(expected[0]));
	expected[n].hash = UINT64_C(7) << 56;
	expected[n + 1].hash = 9;
	expected[n + 1].parent = expected[n].hash;
	for (uint32_t i = 0; tokens != NULL && i < 2; i++) {
		expected[n + i].n_tokens = CHAIN_PAGE_SIZE;
		memcpy(expected[n + i].tokens, tokens + (size_t)i * CHAIN_PAGE_SIZE, sizeof(expected[n].tokens));
	}
	return n + 2;
}

/* Publishes chains of the model alone, of a tenant, without salt, and of keys. */
static size_t
publish_all(void)
{
	static const uint8_t zeros[PAGED_DIGEST_SIZE];
	size_t n = 0;

	n = publish_salted(n, 1, 40, "");
	n = publish_salted(n, 1, 3, "tenant");
	chain_publish(&worker, 1, 5);
	/* The pool has a model, so no salt is another content than the model's. */
	n = router_expect_chain(expected, n, &hasher, 1, 5, zeros);
	return publish_keys(n, NULL);
}

static void
publish_and_evict(void)
{
	size_t n = publish_all();

	router_follow(&router, expected, n);
	/* From the end of the first chain. */
	evict(38);
	memmove(expected + 2, expected + 40, (n - 40) * sizeof(expected[0]));
	router_follow(&router, expected, n - 38);
	n = publish_all();
	router_follow(&router, expected, n);
	evict(0);
	router_follow(&router, expected, 0);
	it_require(router.n_cleared == 1);
}

IT_TEST(routers_know_what_is_published)
{
	events_begin(MODEL_POOL, NULL);
	publish_and_evict();
	events_end();
}

IT_TEST(hashes_as_bytes_and_by_cbor)
{
	static const char *const arguments[] = {
		"--block-hashes", "bytes", "--prefix-caching-hash-algo", "sha256_cbor", "--hash-seed", "0", NULL
	};

	events_begin(MODEL_POOL, arguments);
	it_require(block_hasher_init(&hasher, "sha256_cbor", "0") == NULL);
	publish_and_evict();
	events_end();
}

IT_TEST(hashes_of_indexers)
{
	static const char *const arguments[] = { "--prefix-caching-hash-algo", "xxh3_64", NULL };

	events_begin(MODEL_POOL, arguments);
	it_require(block_hasher_init(&hasher, "xxh3_64", NULL) == NULL);
	publish_and_evict();
	events_end();
}

/* Indexers place the pages of an engine's own keys by the token ids that it has given with them. */
IT_TEST(token_ids_attached_to_keys)
{
	uint32_t tokens[2 * CHAIN_PAGE_SIZE];
	size_t n;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	chain_tokens(5, 2, tokens);
	n = publish_keys(0, tokens);
	/* The same tokens without keys are another prefix. */
	chain_publish(&worker, 5, 2);
	n = router_expect_chain(expected, n, &hasher, 5, 2, NULL);
	router_follow(&router, expected, n);
	events_end();
}

/* Without a model, a prefix without salt has no extra keys. */
IT_TEST(pool_without_model)
{
	size_t n;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	chain_publish(&worker, 3, 9);
	n = router_expect_chain(expected, 0, &hasher, 3, 9, NULL);
	router_follow(&router, expected, n);
	events_end();
}

/* What an engine publishes by keys, another one by token ids: the block goes when the last of the two pages goes. */
IT_TEST(one_hash_of_two_pages)
{
	struct block_hash hash;
	uint32_t tokens[CHAIN_PAGE_SIZE];
	uint8_t keys[1][PAGED_DIGEST_SIZE];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .n_tokens = CHAIN_PAGE_SIZE };
	struct paged_publish publish = { .prefix = &prefix };
	size_t n;

	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
	n = router_expect_chain(expected, 0, &hasher, 1, 1, NULL);
	chain_tokens(1, 1, tokens);
	block_hash_next(&hasher, NULL, tokens, CHAIN_PAGE_SIZE, NULL, &hash);
	memcpy(keys[0], hash.bytes, sizeof(keys[0]));
	prefix.keys = (const uint8_t(*)[PAGED_DIGEST_SIZE])keys;
	events_begin(CHAIN_POOL(1024, ""), NULL);
	chain_publish(&worker, 1, 1);
	publish.seq = worker_create_seq(&worker, CHAIN_PAGE_SIZE);
	worker_ok(&worker, paged_seq_publish(worker.pool, 1, &publish));
	worker_ok(&worker, paged_client_ping(worker.client));
	chain_erase(&worker, publish.seq);
	router_follow(&router, expected, n);
	evict(1);
	chain_publish(&worker, 2, 1);
	n = router_expect_chain(expected, n, &hasher, 2, 1, NULL);
	router_follow(&router, expected, n);
	evict(1);
	router_follow(&router, expected + 1, 1);
	events_end();
}

/* Publishes and evicts until it is told to end, then says which chain was the last. */
static void
publisher_run(int from, int to, void *argument)
{
	uint32_t chain = 1;
	char end;

	(void)argument;
	it_receive(from, &end, sizeof(end));
	worker_open(&worker, NULL, 0);
	for (; chain < 2000; chain++)
		chain_publish(&worker, chain, 1 + chain % 60);
	it_receive(from, &end, sizeof(end));
	it_send(to, &chain, sizeof(chain));
	worker_close(&worker);
}

/* Events that come late, beside nodes that are gone: the table fits each of them, and in the end the pool. */
IT_TEST(events_beside_a_publisher)
{
	struct it_worker publisher;
	uint32_t chain;
	size_t n = 0;

	it_daemon_start(&daemon_, CHAIN_POOL(64, ""), NULL, NULL);
	it_fork(&publisher, publisher_run, NULL); /* while this process has no threads: the leak sanitizer stops them */
	events_follow(NULL);
	it_send(publisher.to, "go", 2);
	it_receive(publisher.from, &chain, sizeof(chain));
	it_join(&publisher);
	evict(0);
	chain_publish(&worker, chain, 60);
	n = router_expect_chain(expected, n, &hasher, chain, 60, NULL);
	router_follow(&router, expected, n);
	it_note("%u batches, %u replays", router.n_batches, router.n_replays);
	events_end();
}

static void
batch_expect_equal(const struct router_batch *a, const struct router_batch *b)
{
	it_require(a->sequence == b->sequence && strcmp(a->topic, b->topic) == 0 && a->size == b->size &&
		   memcmp(a->payload, b->payload, a->size) == 0);
}

/* A replay has the same frames as the subscription, from the wanted number to the last one. */
IT_TEST(replay_of_a_missed_range)
{
	static const char *const arguments[] = { "--topic", "kv@1", NULL };
	struct router_batch batch, batches[20] = { 0 };
	uint32_t n = 0;

	events_begin(CHAIN_POOL(1024, ""), arguments);
	for (uint32_t chain = 0; n < 10; chain++) {
		chain_publish(&worker, chain, 2);
		while (n < 10 && router_receive(&router, &batches[n], 200)) {
			it_require(strcmp(batches[n].topic, "kv@1") == 0);
			it_require(n == 0 || batches[n].sequence == batches[n - 1].sequence + 1);
			n++;
		}
	}
	for (uint32_t from = 0; from < n; from += 3) {
		router_request(&router, batches[from].sequence);
		for (uint32_t i = from; i < n; i++) {
			it_require(router_replayed(&router, &batch));
			batch_expect_equal(&batch, &batches[i]);
			router_batch_free(&batch);
		}
		while (router_replayed(&router, &batch))
			router_batch_free(&batch);
	}
	/* Nothing is there yet. */
	router_request(&router, UINT64_MAX);
	it_require(!router_replayed(&router, &batch));
	for (uint32_t i = 0; i < n; i++)
		router_batch_free(&batches[i]);
	events_end();
}

IT_TEST(the_replay_buffer_is_bounded)
{
	static const char *const arguments[] = { "--buffer-steps", "3", NULL };
	struct router_batch batch;
	uint64_t last = 0;
	uint32_t n = 0;

	events_begin(CHAIN_POOL(1024, ""), arguments);
	for (uint32_t chain = 0; last < 8; chain++) {
		chain_publish(&worker, chain, 1);
		while (router_receive(&router, &batch, 100)) {
			last = batch.sequence;
			router_batch_free(&batch);
		}
	}
	router_request(&router, 0);
	for (; router_replayed(&router, &batch); n++) {
		it_require(batch.sequence == last - 2 + n);
		router_batch_free(&batch);
	}
	it_require(n == 3, "%u", n);
	events_end();
}

/* Peers that send garbage, ask for everything again and again, and never read. */
static void
attack(void *zmq)
{
	static uint8_t big[1 << 20];
	static void *sockets[40];
	const int linger = 0, one = 1;

	for (int i = 0; i < 40; i++) {
		sockets[i] = zmq_socket(zmq, i % 4 == 3 ? ZMQ_SUB : ZMQ_DEALER);
		zmq_setsockopt(sockets[i], ZMQ_LINGER, &linger, sizeof(linger));
		zmq_setsockopt(sockets[i], ZMQ_RCVHWM, &one, sizeof(one));
		if (i % 4 == 3)
			zmq_setsockopt(sockets[i], ZMQ_SUBSCRIBE, "", 0);
		it_require(zmq_connect(sockets[i], i % 4 == 3 ? events.endpoint : events.replay_endpoint) == 0);
	}
	for (int round = 0; round < 100; round++)
		for (int i = 0; i < 40; i++) {
			if (i % 4 == 0) {
				zmq_send(sockets[i], "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
				zmq_send(sockets[i], "\0\0\0\0\0\0\0\0", 8, ZMQ_DONTWAIT);
			} else if (i % 4 == 1) {
				zmq_send(sockets[i], "garbage", (size_t)round % 8, ZMQ_SNDMORE | ZMQ_DONTWAIT);
				zmq_send(sockets[i], "\xff\xff\xff\xff\xff\xff\xff\xff\xff", (size_t)round % 10,
					 round % 3 != 0 ? ZMQ_SNDMORE | ZMQ_DONTWAIT : ZMQ_DONTWAIT);
				zmq_send(sockets[i], "", 0, ZMQ_DONTWAIT);
			} else if (i % 4 == 2) {
				zmq_send(sockets[i], big, round % 10 == 0 ? sizeof(big) : 900, ZMQ_DONTWAIT);
			}
		}
	usleep(300000);
	/* Half of them stay. */
	for (int i = 0; i < 40; i += 2)
		zmq_close(sockets[i]);
	for (int i = 1; i < 40; i += 2)
		zmq_setsockopt(sockets[i], ZMQ_LINGER, &linger, sizeof(linger));
}

static void
attacker_run(int from, int to, void *argument)
{
	char end;

	(void)argument;
	attack(zmq_ctx_new());
	it_send(to, "", 1);
	/* Killed while its peers wait for it. */
	it_receive(from, &end, sizeof(end));
}

IT_TEST(hostile_peers_cost_others_nothing)
{
	struct it_worker attacker;
	unsigned long before_kib;
	uint32_t chain = 1;
	size_t n = 0;
	char ready;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	for (; chain < 400; chain++)
		chain_publish(&worker, chain, 2);
	evict(0);
	router_follow(&router, expected, 0);
	before_kib = it_private_kib(events.pid);
	it_fork(&attacker, attacker_run, NULL);
	it_receive(attacker.from, &ready, sizeof(ready));
	for (uint32_t i = 0; i < 50; i++, chain++) {
		chain_publish(&worker, chain, 3);
		n = router_expect_chain(expected, n, &hasher, chain, 3, NULL);
	}
	router_follow(&router, expected, n);
	it_note("%lu KiB before, %lu KiB with hostile peers", before_kib, it_private_kib(events.pid));
	it_require(it_sanitized() || it_private_kib(events.pid) < before_kib + 64 * 1024);
	it_kill(&attacker);
	evict(0);
	router_follow(&router, expected, 0);
	events_end();
}

/* More changes than the ring holds while the program stands still. */
IT_TEST(overtaken_by_the_ring)
{
	size_t n = 0;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	chain_publish(&worker, 1, 7);
	n = router_expect_chain(expected, n, &hasher, 1, 7, NULL);
	router_follow(&router, expected, n);
	it_require(router.n_cleared == 1);
	kill(events.pid, SIGSTOP);
	for (uint32_t chain = 2; chain < 150; chain++)
		chain_publish(&worker, chain, CHAIN_MAX_PAGES);
	kill(events.pid, SIGCONT);
	n = 0;
	for (uint32_t chain = 146; chain < 150; chain++)
		n = router_expect_chain(expected, n, &hasher, chain, CHAIN_MAX_PAGES, NULL);
	router_follow(&router, expected, n);
	it_require(router.n_cleared == 2 && events_logged(&events, "changes were lost"));
	chain_publish(&worker, 150, 1);
	events_end();
}

/* Pages that were evicted before the program could read them are never mentioned. */
IT_TEST(gone_before_they_were_read)
{
	size_t n = 0;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	router_follow(&router, expected, 0);
	kill(events.pid, SIGSTOP);
	chain_publish(&worker, 1, 20);
	evict(20);
	chain_publish(&worker, 2, 20);
	evict(14);
	chain_publish(&worker, 1, 5);
	kill(events.pid, SIGCONT);
	n = router_expect_chain(expected, n, &hasher, 2, 6, NULL);
	n = router_expect_chain(expected, n, &hasher, 1, 5, NULL);
	router_follow(&router, expected, n);
	it_require(router.n_cleared == 1);
	events_end();
}

static uint32_t
count_published(void)
{
	struct paged_node_entry *list;
	size_t n;

	worker_ok(&worker, paged_admin_prefixes(worker.client, "test", sizeof(*list), &list, &n));
	paged_free(list);
	return (uint32_t)n;
}

/* With a page all below it are removed, also where a sequence has them. */
IT_TEST(pages_below_evicted_ones_are_removed)
{
	paged_seq_id first, second;
	size_t n;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	first = chain_create(&worker, 1, 2, NULL);
	/* Has pages of its own for the first two, and publishes the third. */
	second = chain_create(&worker, 1, 3, NULL);
	n = router_expect_chain(expected, 0, &hasher, 1, 3, NULL);
	router_follow(&router, expected, n);
	chain_erase(&worker, first);
	evict(2);
	it_require(count_published() == 0);
	router_follow(&router, expected, 0);
	it_require(router.n_cleared == 1);

	/* Nor are they announced by a program that comes later. */
	router_close(&router);
	events_stop(&events);
	events_start(&events, &daemon_, NULL);
	router_open(&router, &events, "");
	chain_publish(&worker, 2, 1);
	n = router_expect_chain(expected, 0, &hasher, 2, 1, NULL);
	router_follow(&router, expected, n);
	chain_erase(&worker, second);
	it_require(count_published() == 1);
	chain_publish(&worker, 1, 3);
	n = router_expect_chain(expected, n, &hasher, 1, 3, NULL);
	router_follow(&router, expected, n);
	events_end();
}

/* A program that comes later announces what is published already, parents before children wherever they lie. */
IT_TEST(published_before_the_start)
{
	size_t n = 0;

	it_daemon_start(&daemon_, CHAIN_POOL(64, ""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
	/* Pages that were evicted from the end are used again in another order. */
	for (uint32_t chain = 0; chain < 20; chain++)
		chain_publish(&worker, chain, 13 + chain);
	evict(0);
	chain_publish(&worker, 21, 17);
	chain_publish(&worker, 22, 30);
	n = router_expect_chain(expected, n, &hasher, 21, 17, NULL);
	n = router_expect_chain(expected, n, &hasher, 22, 30, NULL);
	events_start(&events, &daemon_, NULL);
	router_open(&router, &events, "");
	router_follow(&router, expected, n);
	it_require(router.n_cleared == 1);
	events_end();
}

IT_TEST(daemon_is_killed_and_comes_back)
{
	size_t n;

	events_begin(CHAIN_POOL(1024, ""), NULL);
	chain_publish(&worker, 1, 7);
	n = router_expect_chain(expected, 0, &hasher, 1, 7, NULL);
	router_follow(&router, expected, n);
	it_daemon_kill(&daemon_);
	worker_close(&worker);
	router_follow(&router, expected, 0);
	it_require(router.n_cleared == 2);
	it_daemon_restart(&daemon_, NULL, NULL);
	worker_open(&worker, NULL, 0);
	chain_publish(&worker, 2, 3);
	n = router_expect_chain(expected, 0, &hasher, 2, 3, NULL);
	router_follow(&router, expected, n);
	it_require(router.n_cleared == 3);

	/* A daemon that stops does not wait for the program. */
	worker_close(&worker);
	it_daemon_stop(&daemon_);
	router_follow(&router, expected, 0);
	router_close(&router);
	events_stop(&events);
}

/* Waits for a daemon that is not there yet. */
IT_TEST(started_before_the_daemon)
{
	size_t n;

	it_daemon_start(&daemon_, CHAIN_POOL(1024, ""), NULL, NULL);
	it_daemon_stop(&daemon_);
	events_start(&events, &daemon_, NULL);
	it_require(events_logged(&events, "is pagedd running?"));
	it_daemon_restart(&daemon_, NULL, NULL);
	worker_open(&worker, NULL, 0);
	router_open(&router, &events, "");
	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
	chain_publish(&worker, 2, 3);
	n = router_expect_chain(expected, 0, &hasher, 2, 3, NULL);
	router_follow(&router, expected, n);
	events_end();
}

/* Each pool has its own stream; the second one's endpoints have a suffix, as ports would be one higher. */
IT_TEST(all_pools)
{
	struct events_process second;
	struct router other;
	size_t n;

	events_begin("pool mute { " SMALL_POOL_SHAPE " pages = 4 publish = no }\n" CHAIN_POOL(64, ""), NULL);
	second = events;
	strncat(second.endpoint, "_1", sizeof(second.endpoint) - strlen(second.endpoint) - 1);
	strncat(second.replay_endpoint, "_1", sizeof(second.replay_endpoint) - strlen(second.replay_endpoint) - 1);
	router_open(&other, &second, "");
	chain_publish(&worker, 2, 3);
	n = router_expect_chain(expected, 0, &hasher, 2, 3, NULL);
	router_follow(&other, expected, n);
	router_close(&other);
	events_end();
}

/* A port that nothing uses. */
static void
free_endpoint(char *endpoint, size_t size)
{
	void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_PUB);

	it_require(zmq_bind(socket, "tcp://127.0.0.1:*") == 0);
	it_require(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0);
	zmq_close(socket);
	zmq_ctx_term(zmq);
}

/* An endpoint of one address is connected to, as by vLLM, or bound. */
IT_TEST(endpoints_by_tcp)
{
	const char *arguments[] = { "--endpoint", NULL, "--bind", NULL };
	void *zmq = zmq_ctx_new(), *subscriber;
	struct router_batch batch;
	char endpoint[64];
	size_t n;

	free_endpoint(endpoint, sizeof(endpoint));
	arguments[1] = endpoint;
	it_daemon_start(&daemon_, CHAIN_POOL(64, ""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(block_hasher_init(&hasher, "sha256", NULL) == NULL);
	chain_publish(&worker, 2, 3);
	n = router_expect_chain(expected, 0, &hasher, 2, 3, NULL);
	events_start(&events, &daemon_, arguments);
	snprintf(events.endpoint, sizeof(events.endpoint), "%s", endpoint);
	router_open(&router, &events, "");
	router_follow(&router, expected, n);
	router_close(&router);
	events_stop(&events);

	/* Here the subscriber is bound. */
	arguments[2] = NULL;
	subscriber = zmq_socket(zmq, ZMQ_SUB);
	it_require(zmq_bind(subscriber, endpoint) == 0, "%s", zmq_strerror(zmq_errno()));
	zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0);
	events_start(&events, &daemon_, arguments);
	router = (struct router){ .subscriber = subscriber };
	for (uint32_t chain = 3; !router_receive(&router, &batch, 100); chain++)
		chain_publish(&worker, chain, 3);
	router_batch_free(&batch);
	zmq_close(subscriber);
	zmq_ctx_term(zmq);
	worker_close(&worker);
	events_stop(&events);
	it_daemon_stop(&daemon_);
}

/* Runs paged-events, which must end with this status and say this. */
static void
expect_failure(int status, const char *text, const char *const *argv)
{
	int code;
	const char *output = it_command(&code, argv);

	it_require(code == status && strstr(output, text) != NULL, "%d: %s", code, output);
}

IT_TEST(refusals)
{
#define EVENTS "events/paged-events"
	it_daemon_start(&daemon_, CHAIN_POOL(64, ""), NULL, NULL);
	expect_failure(2, "nothing to serve: give --endpoint, --metrics-listen or both",
		       (const char *[]){ EVENTS, NULL });
	expect_failure(2, "without --endpoint", (const char *[]){ EVENTS, "--topic", "t", NULL });
	expect_failure(2, "--hwm 0 is no number from 1 to 2147483647",
		       (const char *[]){ EVENTS, "--endpoint", "ipc:///tmp/x", "--hwm", "0", NULL });
	expect_failure(2, "one of sha256, sha256_cbor, xxhash, xxhash_cbor, xxh3_64",
		       (const char *[]){ EVENTS, "--prefix-caching-hash-algo", "md5", NULL });
	expect_failure(2, "PYTHONHASHSEED", (const char *[]){ EVENTS, "--prefix-caching-hash-algo", "xxhash", NULL });
	expect_failure(2, "--pool a is given twice", (const char *[]){ EVENTS, "-p", "a", "-p", "a", NULL });
	expect_failure(2, "--block-hashes hex is neither int nor bytes",
		       (const char *[]){ EVENTS, "--block-hashes", "hex", NULL });
	expect_failure(1, "nowhere", (const char *[]){ EVENTS, "--endpoint", "ipc:///tmp/x", "-p", "nowhere", NULL });
	expect_failure(1, "Protocol not supported", (const char *[]){ EVENTS, "--endpoint", "ftp://*:1", NULL });
	expect_failure(1, "a port is at most 65535",
		       (const char *[]){ EVENTS, "--endpoint", "tcp://127.0.0.1:65536", NULL });
	it_daemon_stop(&daemon_);
}

IT_MAIN
