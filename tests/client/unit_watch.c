/* SPDX-License-Identifier: Apache-2.0 */
/* Watches over an embedded owner: block keys of all kinds, a waiting thread, the life of a watch. */
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

#define N_TOKENS (2 * FIXTURE_PAGE_SIZE)

static uint32_t prompt[N_TOKENS];
static struct paged_watch *watch;

static void
watch_setup(void)
{
	client_fixture_setup();
	for (uint32_t i = 0; i < N_TOKENS; i++)
		prompt[i] = 100 + i;
	expect_ok(paged_watch_open(pool, &watch));
}

TestSuite(watch, .init = watch_setup, .fini = client_fixture_teardown);

static struct paged_prefix
prompt_prefix(void)
{
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix),
				      .tokens = prompt,
				      .n_tokens = N_TOKENS };
}

/* Publishes two pages; changes[2] and the sequence's pages are those. */
static paged_seq_id
publish(const struct paged_prefix *prefix, struct paged_change *changes)
{
	paged_seq_id seq = fixture_create_seq(N_TOKENS);
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	uint32_t pages[2];
	size_t n;

	expect_ok(paged_seq_publish(pool, 1, &(struct paged_publish){ .seq = seq, .prefix = prefix }));
	expect_ok(paged_watch_next(watch, changes, 2, 0, &n));
	cr_assert_eq(n, 2);
	expect_ok(paged_seq_read(pool, seq, &info, pages, 2));
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(changes[i].kind, PAGED_CHANGE_STORED);
		cr_assert_eq(changes[i].page, pages[i]);
	}
	return seq;
}

static struct paged_block_key
key_of(const struct paged_change *change, uint32_t *tokens)
{
	struct paged_block_key key = { .struct_size = sizeof(key) };

	expect_ok(paged_watch_read(watch, change->page, change->serial, &key, tokens, FIXTURE_PAGE_SIZE));
	return key;
}

/* The extra of a page, as paged_watch.h documents it. */
static void
expect_extra(const struct paged_block_key *key, const void *salt, const void *image, size_t image_size)
{
	uint8_t extra[PAGED_DIGEST_SIZE];
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	if (salt != NULL)
		crypto_hash_sha256_update(&state, salt, PAGED_DIGEST_SIZE);
	if (image != NULL)
		crypto_hash_sha256_update(&state, image, image_size);
	crypto_hash_sha256_final(&state, extra);
	cr_assert_eq(memcmp(key->extra, extra, sizeof(extra)), 0);
}

Test(watch, keys_of_tokens)
{
	struct paged_prefix prefix = prompt_prefix();
	uint32_t tokens[FIXTURE_PAGE_SIZE];
	struct paged_change changes[2];
	struct paged_block_key key;

	publish(&prefix, changes);
	for (uint32_t i = 0; i < 2; i++) {
		key = key_of(&changes[i], tokens);
		cr_assert_eq(key.has_tokens, 1);
		cr_assert_eq(memcmp(tokens, prompt + (size_t)i * FIXTURE_PAGE_SIZE, sizeof(tokens)), 0);
		cr_assert_eq(key.parent, i == 0 ? UINT32_MAX : changes[0].page);
		cr_assert_eq(key.parent_serial, i == 0 ? 0 : changes[0].serial);
		for (uint32_t k = 0; k < PAGED_DIGEST_SIZE; k++)
			cr_assert_eq(key.extra[k], 0);
	}
}

Test(watch, keys_with_salt_and_image)
{
	struct paged_extra image = { .first = FIXTURE_PAGE_SIZE - 1, .n_tokens = 2, .digest = "image" };
	/* The image's place, seen from the second page: first -1, n_tokens 2. */
	struct {
		uint8_t numbers[8], digest[PAGED_DIGEST_SIZE];
	} seen = { .numbers = { 0xff, 0xff, 0xff, 0xff, 2 }, .digest = "image" };
	struct paged_prefix prefix = prompt_prefix();
	static const char *const parts[] = { "model" };
	struct paged_change changes[2];
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_block_key key;

	paged_salt(salt, 1, parts);
	prefix.salt = salt;
	publish(&prefix, changes);
	key = key_of(&changes[0], NULL);
	expect_extra(&key, salt, NULL, 0);
	prefix.salt = NULL;
	prefix.extra = &image;
	prefix.n_extra = 1;
	publish(&prefix, changes);
	key = key_of(&changes[1], NULL);
	expect_extra(&key, NULL, &seen, sizeof(seen));
}

Test(watch, keys_of_an_engine)
{
	static const uint8_t keys[2][PAGED_DIGEST_SIZE] = { "first", "second" };
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .n_tokens = N_TOKENS, .keys = keys };
	uint32_t tokens[FIXTURE_PAGE_SIZE] = { 12345 };
	struct paged_change changes[2];
	struct paged_block_key key;

	publish(&prefix, changes);
	for (uint32_t i = 0; i < 2; i++) {
		key = key_of(&changes[i], tokens);
		cr_assert(key.has_tokens == 0 && key.keyed == 1);
		cr_assert_eq(memcmp(key.extra, keys[i], PAGED_DIGEST_SIZE), 0);
		cr_assert_eq(tokens[0], 12345);
	}
}

/* Token ids attached to keys are read by watches, and make no difference to a search. */
Test(watch, keys_of_an_engine_with_token_ids)
{
	static const uint8_t keys[2][PAGED_DIGEST_SIZE] = { "first", "second" };
	struct paged_prefix prefix = prompt_prefix(), found;
	uint32_t tokens[FIXTURE_PAGE_SIZE];
	struct paged_change changes[2];
	struct paged_block_key key;
	uint32_t n_tokens;

	prefix.keys = keys;
	publish(&prefix, changes);
	for (uint32_t i = 0; i < 2; i++) {
		key = key_of(&changes[i], tokens);
		cr_assert(key.has_tokens == 1 && key.keyed == 1);
		cr_assert_eq(memcmp(key.extra, keys[i], PAGED_DIGEST_SIZE), 0);
		cr_assert_eq(memcmp(tokens, prefix.tokens + i * FIXTURE_PAGE_SIZE, sizeof(tokens)), 0);
	}
	found = prefix;
	found.tokens = NULL;
	expect_ok(paged_prefix_match(pool, &found, &n_tokens));
	cr_assert_eq(n_tokens, N_TOKENS);
	found = prefix;
	found.keys = NULL;
	expect_ok(paged_prefix_match(pool, &found, &n_tokens));
	cr_assert_eq(n_tokens, 0);
}

Test(watch, walk_lists_the_nodes)
{
	struct paged_prefix prefix = prompt_prefix();
	struct paged_node_info nodes[3];
	struct paged_change changes[2];
	uint32_t from = 0;
	size_t n, n_all = 0;

	publish(&prefix, changes);
	for (;;) {
		expect_ok(paged_watch_walk(watch, &from, &nodes[n_all], 1, &n));
		if (n == 0)
			break;
		cr_assert_eq(n, 1);
		n_all++;
		cr_assert_leq(n_all, 2);
	}
	cr_assert_eq(n_all, 2);
	for (uint32_t i = 0; i < 2; i++) {
		const struct paged_change *change = &changes[nodes[i].page == changes[0].page ? 0 : 1];

		cr_assert(nodes[i].page == change->page && nodes[i].serial == change->serial &&
			  nodes[i].hash == change->hash && nodes[i].hits == 0);
	}
}

static void *
waiter_run(void *argument)
{
	struct paged_change change;
	size_t n;

	/* A minute: the test ends long before, because the change wakes the thread. */
	expect_ok(paged_watch_next(watch, &change, 1, 60000, &n));
	*(struct paged_change *)argument = change;
	return NULL;
}

Test(watch, a_change_wakes_a_waiting_thread, .timeout = 1800)
{
	struct paged_prefix prefix = prompt_prefix();
	paged_seq_id seq = fixture_create_seq(N_TOKENS);
	struct paged_change change = { 0 };
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, waiter_run, &change), 0);
	usleep(50000);
	expect_ok(paged_seq_publish(pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
	pthread_join(thread, NULL);
	cr_assert_eq(change.kind, PAGED_CHANGE_STORED);
}

Test(watch, an_embedded_owner_has_the_pages)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .tables_only = 1 };
	struct paged_client *other;

	cr_assert_eq(paged_client_open_embedded(&fixture_pool_params, 1, &params, &other), PAGED_ERR_INVALID);
	paged_client_close(other);
}

Test(watch, older_programs_get_their_part)
{
	struct paged_watch_info info;
	struct paged_prefix prefix = prompt_prefix();
	struct paged_change changes[2];

	publish(&prefix, changes);
	memset(&info, 0xff, sizeof(info));
	info.struct_size = offsetof(struct paged_watch_info, n_behind);
	expect_ok(paged_watch_get_info(watch, &info));
	cr_assert_eq(info.position, changes[1].number);
	cr_assert_eq(info.n_behind, UINT64_MAX);
}

Test(watch, ends_with_its_pool_and_not_in_a_child)
{
	struct paged_change change;
	struct paged_watch *other;
	int status;
	size_t n;
	pid_t pid;

	expect_ok(paged_watch_open(pool, &other));
	pid = fork();
	if (pid == 0) {
		if (paged_watch_next(watch, &change, 1, 0, &n) != PAGED_ERR_FORK)
			_exit(1);
		paged_watch_close(watch);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	paged_watch_close(other);
	/* `watch` is closed with the pool; leak checkers see if it is not. */
}
