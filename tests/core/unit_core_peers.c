/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of other systems' prefix caches, by their names there: vLLM's tests/v1/core/test_prefix_caching.py, and
 * SGLang's test_radix_cache_unit.py.  The pool is as vLLM's: 10 blocks of 16 tokens.  What differs is the order of the
 * free list, which is PyTorch's, and that a page is evicted only when no free one is left.
 */
#include <sodium.h>
#include <string.h>

#include "tests/core/sharing_fixture.h"

TestSuite(core_peers, .init = sharing_setup, .fini = core_fixture_teardown);

#define POOL SHARING_PEERS
#define BLOCK 16u

/* A text of blocks: each character 16 times. */
static const char *
blocks(const char *each)
{
	static char texts[4][SHARING_MAX_TOKENS];
	static uint32_t next;
	char *text = texts[next++ % 4];

	for (uint32_t i = 0; i <= strlen(each); i++)
		memset(&text[i * BLOCK], each[i], BLOCK);
	return text;
}

/* A request in vLLM's sense: starts on what is cached, reserves the rest, computes it and publishes its full blocks. */
static paged_seq_id
run_request(const char *each, const char *salt, uint32_t n_tokens)
{
	uint32_t n_shared = sharing_find(POOL, blocks(each), salt).n;
	paged_seq_id seq = sharing_start(fixture_session, POOL, blocks(each), salt, n_tokens);

	cr_assert_eq(sharing_publish(seq, n_shared, blocks(each), salt), strlen(each));
	return seq;
}

/* vLLM: test_prefill */
Test(core_peers, vllm_prefill)
{
	paged_seq_id first, second, third;

	first = run_request("012", NULL, 55);
	expect_page_table(POOL, first, "3 2 1 0");
	/* A hit in the common prefix while the first request runs. */
	second = run_request("012", NULL, 53);
	expect_page_table(POOL, second, "3 2 1 4");
	cr_assert(sharing_count(POOL, 3) == 2 && sharing_count(POOL, 2) == 2 && sharing_count(POOL, 1) == 2);
	cr_assert_eq(sharing_count(POOL, 0), 1);
	expect_counts(POOL, 5, 5, 0);
	expect_ok(fixture_erase(fixture_session, first));
	expect_ok(fixture_erase(fixture_session, second));
	/* The partial pages are free, and the first to be taken; the prefix is evicted from its end. */
	expect_free_list(POOL, "9 8 7 6 5 0 4");
	expect_cached(POOL, "1 2 3");
	/* A hit after both have ended. */
	third = run_request("012", NULL, 54);
	expect_page_table(POOL, third, "3 2 1 4");
	expect_counts(POOL, 6, 4, 0);
	expect_ok(fixture_erase(fixture_session, third));
	/* A miss that needs the whole pool. */
	third = sharing_start(fixture_session, POOL, blocks("9"), NULL, 160);
	expect_page_table(POOL, third, "9 8 7 6 5 0 4 1 2 3");
	expect_counts(POOL, 0, 10, 0);
	expect_found(POOL, blocks("012"), NULL, "");
}

/* vLLM: test_decode.  A block becomes findable when it is full. */
Test(core_peers, vllm_decode)
{
	paged_seq_id seq = run_request("012", NULL, 55);
	uint32_t n_published;

	expect_ok(fixture_reserve(fixture_session, seq, 59)); /* in the same page */
	expect_page_table(POOL, seq, "3 2 1 0");
	expect_found(POOL, blocks("0123"), NULL, "3 2 1");
	expect_ok(fixture_reserve(fixture_session, seq, 78));
	expect_page_table(POOL, seq, "3 2 1 0 4");
	cr_assert_eq(sharing_publish(seq, 3, blocks("0123"), NULL), 4);
	expect_found(POOL, blocks("01234"), NULL, "3 2 1 0");
	expect_refused(sharing_try_publish(seq, 4, blocks("012345"), NULL, &n_published), PAGED_ERR_CAPACITY);
}

/* vLLM: test_evict */
Test(core_peers, vllm_evict)
{
	paged_seq_id first = run_request("01234", NULL, 5 * BLOCK + 7), second = run_request("abc", NULL, 3 * BLOCK);

	expect_counts(POOL, 1, 9, 0);
	expect_ok(fixture_erase(fixture_session, first));
	expect_ok(fixture_erase(fixture_session, second));
	expect_free_list(POOL, "9 0");
	expect_cached(POOL, "1 2 3 4 5 6 7 8");
	/* Shares two blocks, which leave the list. */
	first = run_request("01", NULL, 2 * BLOCK + 3);
	expect_page_table(POOL, first, "5 4 0");
	expect_counts(POOL, 1, 3, 0);
	expect_cached(POOL, "1 2 3 6 7 8");
}

/* vLLM: test_hash_block_correct_reuse.  A page that is taken for another sequence is no node any more. */
Test(core_peers, vllm_hash_block_correct_reuse)
{
	paged_seq_id seq = run_request("0", NULL, BLOCK), other;

	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, POOL), 9 * BLOCK));
	expect_ok(fixture_erase(fixture_session, seq));
	expect_found(POOL, blocks("0"), NULL, "0");
	other = fixture_create(fixture_session, POOL);
	expect_ok(fixture_reserve(fixture_session, other, 1));
	expect_page_table(POOL, other, "0");
	expect_found(POOL, blocks("0"), NULL, "");
	cr_assert_eq(atomic_load(&region_page(core_pool_view(core_fixture.core, POOL), 0)->flags), 0);
}

/* vLLM: test_computed_blocks_not_evicted.  The hit is the coldest page; another one is evicted. */
Test(core_peers, vllm_computed_blocks_not_evicted)
{
	paged_seq_id first, second;

	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, POOL), 8 * BLOCK));
	first = run_request("0", NULL, BLOCK);
	second = run_request("1", NULL, BLOCK);
	expect_ok(fixture_erase(fixture_session, first));
	expect_ok(fixture_erase(fixture_session, second));
	expect_cached(POOL, "8 9");
	first = sharing_start(fixture_session, POOL, blocks("0"), NULL, 2 * BLOCK);
	expect_page_table(POOL, first, "8 9");
	expect_found(POOL, blocks("1"), NULL, "");
}

/* vLLM: test_basic_prefix_caching_disabled */
Test(core_peers, vllm_basic_prefix_caching_disabled)
{
	paged_seq_id first = fixture_create(fixture_session, SHARING_CLOSED), second;
	uint32_t n_published;

	expect_ok(fixture_reserve(fixture_session, first, 10));
	expect_refused(sharing_try_publish(first, 0, "aaaabbbb", NULL, &n_published), PAGED_ERR_UNSUPPORTED);
	expect_ok(fixture_erase(fixture_session, first));
	expect_counts(SHARING_CLOSED, 4, 0, 0);
	first = sharing_start(fixture_session, SHARING_CLOSED, "aaaabbbb", NULL, 16);
	expect_seq(first, 0, 0);
	second = fixture_create(fixture_session, SHARING_CLOSED);
	expect_refused(fixture_reserve(fixture_session, second, 4), PAGED_ERR_FULL);
}

/* vLLM: test_cache_key_salting */
Test(core_peers, vllm_cache_key_salting)
{
	paged_seq_id first = run_request("012", "salt1", 59), second;

	second = run_request("012", "salt1", 59);
	expect_found(POOL, blocks("012"), "salt1", "3 2 1");
	cr_assert_eq(sharing_count(POOL, 3), 2);
	expect_found(POOL, blocks("012"), "salt2", "");
	expect_found(POOL, blocks("012"), NULL, "");
	expect_ok(fixture_erase(fixture_session, second));
	second = run_request("012", "salt2", 48);
	expect_page_table(POOL, second, "6 5 4");
	expect_page_table(POOL, first, "3 2 1 0");
}

/* vLLM: test_prefill_not_enough_free_blocks_with_computed_blocks.  A start that fails leaves the counts of its hits. */
Test(core_peers, vllm_prefill_not_enough_free_blocks_with_computed_blocks)
{
	struct sharing_found found;
	paged_seq_id first, second, seq;

	first = run_request("012", NULL, 3 * BLOCK);
	second = run_request("012345", NULL, 6 * BLOCK);
	expect_ok(fixture_erase(fixture_session, second));
	expect_counts(POOL, 4, 3, 0);
	second = run_request("xy", NULL, 2 * BLOCK);
	/* Hits: three in use, three cached.  The request needs four more, and two are free. */
	found = sharing_find(POOL, blocks("012345"), NULL);
	cr_assert_eq(found.n, 6);
	expect_refused(sharing_try_start(fixture_session, POOL, &found, 10 * BLOCK, &seq), PAGED_ERR_FULL);
	cr_assert_eq(sharing_count(POOL, found.pages[0]), 1);
	cr_assert_eq(sharing_count(POOL, found.pages[3]), 0);
	expect_page_table(POOL, first, fixture_numbers_text(found.pages, 3));
	expect_ok(sharing_try_start(fixture_session, POOL, &found, 8 * BLOCK, &seq));
	expect_counts(POOL, 0, 10, 0);
}

/*
 * vLLM: test_maybe_evict_cached_block.  Two sequences compute the same block.  There both blocks have the hash; here
 * one is the node, and the other becomes it when the first is gone and its sequence publishes again.
 */
Test(core_peers, vllm_maybe_evict_cached_block)
{
	paged_seq_id first = fixture_create(fixture_session, POOL), second = fixture_create(fixture_session, POOL);

	expect_ok(fixture_reserve(fixture_session, first, BLOCK));
	expect_ok(fixture_reserve(fixture_session, second, 2 * BLOCK));
	cr_assert_eq(sharing_publish(first, 0, blocks("0"), NULL), 1);
	cr_assert_eq(sharing_publish(second, 0, blocks("0"), NULL), 1);
	expect_found(POOL, blocks("0"), NULL, "0");
	expect_ok(fixture_erase(fixture_session, first));
	core_prefix_evict(core_fixture.core, POOL, 0);
	expect_found(POOL, blocks("0"), NULL, "");
	cr_assert_eq(sharing_publish(second, 1, blocks("01"), NULL), 0);
	cr_assert_eq(sharing_publish(second, 0, blocks("01"), NULL), 2);
	expect_found(POOL, blocks("01"), NULL, "2 1");
}

/* vLLM: test_reset_prefix_cache.  Pages in use stay; the others are gone. */
Test(core_peers, vllm_reset_prefix_cache)
{
	paged_seq_id first = run_request("012", NULL, 55), second = run_request("01x", NULL, 55);

	expect_ok(fixture_erase(fixture_session, second));
	cr_assert_eq(core_prefix_evict(core_fixture.core, POOL, 0), 1);
	expect_found(POOL, blocks("01x"), NULL, "3 2");
	expect_ok(fixture_erase(fixture_session, first));
	cr_assert_eq(core_prefix_evict(core_fixture.core, POOL, 0), 3);
	expect_counts(POOL, 10, 0, 0);
}

/* SGLang: test_radix_cache_unit.py, isolation by extra_key, with the same tokens under no key and two keys. */
Test(core_peers, sglang_extra_key_isolation)
{
	run_request("01", "key1", 2 * BLOCK);
	run_request("02", "key2", 2 * BLOCK);
	run_request("03", NULL, 2 * BLOCK);
	cr_assert_eq(sharing_find(POOL, blocks("01"), "key1").n, 2);
	cr_assert_eq(sharing_find(POOL, blocks("01"), "key2").n, 1);
	cr_assert_eq(sharing_find(POOL, blocks("01"), NULL).n, 1);
	cr_assert_eq(sharing_find(POOL, blocks("01"), "key3").n, 0);
}

/* SGLang: a partial match, of whole pages; a prefix that goes on differently shares the pages before. */
Test(core_peers, sglang_partial_match)
{
	const struct region_view *view = core_pool_view(core_fixture.core, POOL);
	char text[4 * BLOCK + 1];

	run_request("012", NULL, 3 * BLOCK);
	memcpy(text, blocks("0123"), sizeof(text));
	cr_assert_eq(sharing_find(POOL, text, NULL).n, 3);
	text[2 * BLOCK + 15] = 'x'; /* the last token of a page */
	cr_assert_eq(sharing_find(POOL, text, NULL).n, 2);
	text[BLOCK] = 'x'; /* the first of one */
	cr_assert_eq(sharing_find(POOL, text, NULL).n, 1);
	text[BLOCK - 1] = '\0';
	cr_assert_eq(sharing_find(POOL, text, NULL).n, 0);
	run_request("01x", NULL, 3 * BLOCK);
	expect_counts(POOL, 6, 4, 0);
	cr_assert_eq(atomic_load(&view->header->n_published), 4);
}

/* vLLM's block hashes: sha256_cbor of (parent's hash, token ids, extra keys); of the first block's parent: of "0" */

static uint32_t
cbor_head(uint8_t *out, uint8_t type, uint32_t value)
{
	if (value < 24) {
		out[0] = (uint8_t)(type | value);
		return 1;
	}
	for (uint32_t n = 1, code = 24;; n *= 2, code++) {
		if (n < 4 && value >> (8 * n) != 0)
			continue;
		out[0] = (uint8_t)(type | code);
		for (uint32_t i = 0; i < n; i++)
			out[1 + i] = (uint8_t)(value >> (8 * (n - 1 - i)));
		return 1 + n;
	}
}

static void
vllm_block_hash(const prefix_key parent, const uint32_t *tokens, const char *salt, prefix_key hash)
{
	uint8_t text[5 * BLOCK + 128];
	uint32_t n = cbor_head(text, 0x80, 3);

	n += cbor_head(&text[n], 0x40, sizeof(prefix_key));
	memcpy(&text[n], parent, sizeof(prefix_key));
	n += sizeof(prefix_key);
	n += cbor_head(&text[n], 0x80, BLOCK);
	for (uint32_t i = 0; i < BLOCK; i++)
		n += cbor_head(&text[n], 0x00, tokens[i]);
	if (salt == NULL) {
		text[n++] = 0xf6; /* None */
	} else {
		n += cbor_head(&text[n], 0x80, 1);
		n += cbor_head(&text[n], 0x60, (uint32_t)strlen(salt));
		memcpy(&text[n], salt, strlen(salt));
		n += (uint32_t)strlen(salt);
	}
	cr_assert_eq(crypto_hash_sha256(hash, text, n), 0);
}

/* init_none_hash() with PYTHONHASHSEED=0 */
static void
vllm_none_hash(prefix_key hash)
{
	static const uint8_t seed[2] = { 0x61, '0' };

	cr_assert_eq(crypto_hash_sha256(hash, seed, sizeof(seed)), 0);
}

/* Hashes of the blocks of token ids; the salt is in the first block's alone. */
static void
vllm_block_hashes(uint32_t n, const uint32_t *tokens, const char *salt, prefix_key *hashes)
{
	prefix_key parent;

	vllm_none_hash(parent);
	for (uint32_t i = 0; i < n; i++) {
		vllm_block_hash(parent, &tokens[i * BLOCK], i == 0 ? salt : NULL, hashes[i]);
		memcpy(parent, hashes[i], sizeof(parent));
	}
}

static void
expect_hex(const prefix_key hash, const char *expected)
{
	char text[2 * sizeof(prefix_key) + 1];

	cr_assert_str_eq(sodium_bin2hex(text, sizeof(text), hash, sizeof(prefix_key)), expected);
}

/* The expected hashes are those of hashlib and cbor2 6.2. */
Test(core_peers, vllm_hashes_are_right)
{
	uint32_t tokens[2 * BLOCK] = { 0 };
	prefix_key hash, second;

	for (uint32_t i = 0; i < BLOCK; i++)
		tokens[BLOCK + i] = 1;
	tokens[BLOCK] = 30;
	tokens[BLOCK + 1] = 300;
	tokens[BLOCK + 2] = 70000;
	vllm_none_hash(hash);
	expect_hex(hash, "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
	vllm_block_hash(hash, tokens, NULL, second);
	expect_hex(second, "2211943d896700fd8b1dc90d9c6372bb747165ec462d81ea97bb45e9086de399");
	vllm_block_hash(second, &tokens[BLOCK], "salt1", hash);
	expect_hex(hash, "55ef985dacbd72e5c89f47c45bcecd6ee26d2723729f70589a8d9265884a659e");
}

/* An engine publishes and finds by its own hashes.  They are other block keys than the token ids that they hash. */
Test(core_peers, vllm_block_hashes_as_keys)
{
	uint32_t tokens[4 * BLOCK];
	prefix_key hashes[4], salted[4];
	struct prefix_keys keys = { .n_pages = 4, .n_extras = 4, .extra = hashes };
	paged_seq_id seq = fixture_create(fixture_session, POOL), other;
	struct sharing_found found;

	for (uint32_t i = 0; i < 4 * BLOCK; i++)
		tokens[i] = i * 7919 % 128000;
	vllm_block_hashes(4, tokens, NULL, hashes);
	vllm_block_hashes(4, tokens, "tenant", salted);
	expect_ok(fixture_reserve(fixture_session, seq, 4 * BLOCK));
	cr_assert_eq(sharing_publish_keys(seq, 0, 2, hashes), 2);
	cr_assert_eq(sharing_publish_keys(seq, 2, 2, &hashes[2]), 4);
	found = sharing_find_keys(POOL, &keys);
	cr_assert_eq(found.n, 4);
	keys.extra = salted;
	cr_assert_eq(sharing_find_keys(POOL, &keys).n, 0);
	cr_assert_eq(sharing_find_keys(POOL, &(struct prefix_keys){ .n_pages = 4, .tokens = tokens }).n, 0);

	tokens[3 * BLOCK - 1]++; /* the third block differs, and with it the fourth */
	vllm_block_hashes(4, tokens, NULL, hashes);
	keys.extra = hashes;
	found = sharing_find_keys(POOL, &keys);
	cr_assert_eq(found.n, 2);
	expect_ok(sharing_try_start(fixture_session, POOL, &found, 4 * BLOCK, &other));
	cr_assert_eq(sharing_publish_keys(other, 2, 2, &hashes[2]), 4);
	cr_assert_eq(sharing_find_keys(POOL, &keys).n, 4);
	expect_counts(POOL, 4, 6, 0);
}
