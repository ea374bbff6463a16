/* SPDX-License-Identifier: Apache-2.0 */
/* Match, start, publish, fork and pin over an embedded owner: what is shared, and that results are the same bits. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

#define Q_HEADS 4u
#define KV_ELEMENTS (FIXTURE_KV_HEADS * FIXTURE_DIM)
#define Q_ELEMENTS (Q_HEADS * FIXTURE_DIM)

static struct paged_batch *batch;
static uint32_t prompt[FIXTURE_MAX_LENGTH];

static void
sharing_setup(void)
{
	client_fixture_setup();
	batch = fixture_create_batch(0, 0);
	for (uint32_t i = 0; i < FIXTURE_MAX_LENGTH; i++)
		prompt[i] = 100 + i;
}

TestSuite(sharing, .init = sharing_setup, .fini = client_fixture_teardown);

static struct paged_prefix
prefix_of(const uint32_t *tokens, size_t n)
{
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix), .tokens = tokens, .n_tokens = n };
}

/* Appends K and V of tokens [from, to), in which the value depends on token id and position only. */
static void
append(paged_seq_id id, const uint32_t *tokens, uint32_t from, uint32_t to)
{
	static float k[FIXTURE_MAX_LENGTH * KV_ELEMENTS], v[FIXTURE_MAX_LENGTH * KV_ELEMENTS];
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM };
	struct paged_tensor tv = tk;

	tv.data = v;
	for (uint32_t t = from; t < to; t++)
		for (uint32_t e = 0; e < KV_ELEMENTS; e++) {
			k[(t - from) * KV_ELEMENTS + e] = random_float(tokens[t], t * KV_ELEMENTS + e, 1);
			v[(t - from) * KV_ELEMENTS + e] = random_float(tokens[t] + 1000, t * KV_ELEMENTS + e, 1);
		}
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = to - from, .kv_len = to }));
	for (uint32_t layer = 0; layer < 2; layer++)
		expect_ok(paged_append(batch, layer, &tk, &tv, NULL));
}

/* The attention of the last q_len tokens of n. */
static void
attend(paged_seq_id id, uint32_t n, uint32_t q_len, float *out)
{
	static float q[FIXTURE_MAX_LENGTH * Q_ELEMENTS];
	struct paged_tensor tq = { .data = q, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = FIXTURE_DIM };
	struct paged_tensor to = tq;

	to.data = out;
	random_fill(q, (size_t)q_len * Q_ELEMENTS, 5);
	expect_ok(paged_batch_plan(
		batch, 1,
		&(struct paged_batch_row){ .seq = id, .q_len = q_len, .kv_len = n, .flags = PAGED_ROW_NO_APPEND }));
	expect_ok(paged_attention(batch, 1, &tq, &to, NULL));
}

static void
expect_same_bits(paged_seq_id a, paged_seq_id b, uint32_t n)
{
	static float of_a[FIXTURE_MAX_LENGTH * Q_ELEMENTS], of_b[FIXTURE_MAX_LENGTH * Q_ELEMENTS];

	attend(a, n, n, of_a);
	attend(b, n, n, of_b);
	cr_assert_eq(memcmp(of_a, of_b, n * Q_ELEMENTS * sizeof(float)), 0);
}

static void
publish(paged_seq_id id, const struct paged_prefix *prefix)
{
	expect_ok(paged_seq_publish(pool, 1, &(struct paged_publish){ .seq = id, .prefix = prefix }));
}

static struct paged_seq_info
info_of(paged_seq_id id)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pool, id, &info, NULL, 0));
	return info;
}

static struct paged_pool_counts
counts(void)
{
	struct paged_pool_counts c = { .struct_size = sizeof(c) };

	expect_ok(paged_pool_get_counts(pool, &c));
	cr_assert_eq(c.n_free + c.n_referenced + c.n_cached + c.n_quarantined, c.n_pages);
	return c;
}

static void
expect_holds(void)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	expect_ok(paged_pool_check(pool, &result));
	cr_assert_eq(result.holds, 1, "%s", result.text);
}

static uint32_t
match(const struct paged_prefix *prefix)
{
	uint32_t n = UINT32_MAX;

	expect_ok(paged_prefix_match(pool, prefix, &n));
	return n;
}

static paged_seq_id
start(const struct paged_prefix *prefix, uint32_t max_tokens, uint32_t reserve, uint32_t *n_shared)
{
	paged_seq_id id = 0;

	expect_ok(paged_seq_start(
		pool, 1, &(struct paged_start){ .prefix = prefix, .max_tokens = max_tokens, .reserve = reserve }, &id,
		n_shared));
	return id;
}

Test(sharing, publish_match_start)
{
	struct paged_prefix prefix = prefix_of(prompt, 22), other;
	paged_seq_id a = fixture_create_seq(24), b, private;
	uint32_t n_shared, changed[22], pages_a[6], pages_b[7];

	append(a, prompt, 0, 22);
	cr_assert_eq(match(&prefix), 0);
	publish(a, &prefix);
	cr_assert_eq(match(&prefix), 20);
	cr_assert_eq(info_of(a).published, 20);
	cr_assert_eq(info_of(a).writable_from, 20);
	memcpy(changed, prompt, sizeof(changed));
	changed[13] = 1;
	other = prefix_of(changed, 22);
	cr_assert_eq(match(&other), 12);

	b = start(&prefix, 0, 28, &n_shared);
	cr_assert_eq(n_shared, 20);
	cr_assert_eq(info_of(b).capacity, 28);
	cr_assert_eq(info_of(b).writable_from, 20);
	expect_ok(paged_seq_read(pool, a, NULL, pages_a, 6));
	expect_ok(paged_seq_read(pool, b, NULL, pages_b, 7));
	cr_assert_arr_eq(pages_a, pages_b, 5 * sizeof(uint32_t));
	append(b, prompt, 20, 27);
	private = fixture_create_seq(28);
	append(private, prompt, 0, 27);
	expect_same_bits(b, private, 27);
	expect_holds();
}

Test(sharing, max_tokens_limits_what_is_shared)
{
	struct paged_prefix prefix = prefix_of(prompt, 20);
	paged_seq_id a = fixture_create_seq(20);
	uint32_t n_shared;

	append(a, prompt, 0, 20);
	publish(a, &prefix);
	start(&prefix, 11, 0, &n_shared);
	cr_assert_eq(n_shared, 8);
	start(&prefix, 3, 0, &n_shared);
	cr_assert_eq(n_shared, 0);
	start(NULL, 0, 4, &n_shared);
	cr_assert_eq(n_shared, 0);
	cr_assert_eq(counts().n_referenced, 6);
}

/* What a sequence published stays when it has ended, and is evicted when pages are needed. */
Test(sharing, cached_pages)
{
	struct paged_prefix prefix = prefix_of(prompt, 24);
	paged_seq_id a = fixture_create_seq(28), b;
	uint32_t n_shared;

	append(a, prompt, 0, 24);
	publish(a, &prefix);
	expect_ok(paged_seq_erase(client, 1, &a));
	cr_assert_eq(counts().n_cached, 6);
	cr_assert_eq(counts().n_referenced, 0);
	cr_assert_eq(match(&prefix), 24);
	b = start(&prefix, 0, 24, &n_shared);
	cr_assert_eq(n_shared, 24);
	cr_assert_eq(counts().n_cached, 0);
	expect_ok(paged_seq_erase(client, 1, &b));
	fixture_create_seq(40);
	expect_ok(paged_pool_wait_free(pool, 6, 0));
	fixture_create_seq(24); /* takes all pages: the tail of the prefix is evicted first, then the rest */
	cr_assert_eq(counts().n_free, 0);
	cr_assert_eq(match(&prefix), 0);
	expect_holds();
}

/* The whole prompt is shared: only its last query is computed. */
Test(sharing, whole_prompt)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	paged_seq_id a = fixture_create_seq(16), b;
	float of_a[Q_ELEMENTS], of_b[Q_ELEMENTS];
	uint32_t n_shared;

	append(a, prompt, 0, 16);
	publish(a, &prefix);
	b = start(&prefix, 0, 20, &n_shared);
	cr_assert_eq(n_shared, 16);
	attend(a, 16, 1, of_a);
	attend(b, 16, 1, of_b);
	cr_assert_arr_eq(of_a, of_b, sizeof(of_a));
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = b, .q_len = 1, .kv_len = 16 }));
	expect_error(
		paged_append(
			batch, 0,
			&(struct paged_tensor){
				.data = of_a, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM },
			&(struct paged_tensor){
				.data = of_a, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM },
			NULL),
		PAGED_ERR_PERM,
		"row 0: position 15 of sequence " SEQ_FORMAT
		" is shared or published: it is writable from 16; fork it at 15, or keep 12",
		SEQ_ARGS(b));
}

Test(sharing, salts_extras_and_keys_tell_apart)
{
	static const uint8_t keys[5][PAGED_DIGEST_SIZE] = { { 1 }, { 2 }, { 3 }, { 4 }, { 5 } };
	struct paged_extra image = { .first = 6, .n_tokens = 3, .digest = { 7 } };
	uint8_t salts[2][PAGED_DIGEST_SIZE];
	struct paged_prefix plain = prefix_of(prompt, 20), salted = plain, imaged = plain, keyed = plain;
	paged_seq_id id = fixture_create_seq(20);
	paged_seq_id by_keys = fixture_create_seq(20);

	paged_salt(salts[0], 1, (const char *const[]){ "a" });
	paged_salt(salts[1], 1, (const char *const[]){ "b" });
	salted.salt = salts[0];
	imaged.extra = &image;
	imaged.n_extra = 1;
	keyed.tokens = NULL;
	keyed.keys = keys;
	append(id, prompt, 0, 20);
	append(by_keys, prompt, 0, 20);
	publish(id, &salted);
	publish(by_keys, &keyed);
	cr_assert_eq(match(&salted), 20);
	cr_assert_eq(match(&plain), 0);
	cr_assert_eq(match(&imaged), 0);
	cr_assert_eq(match(&keyed), 20);
	salted.salt = salts[1];
	cr_assert_eq(match(&salted), 0);
	salted.salt = salts[0];
	salted.extra = &image;
	salted.n_extra = 1;
	cr_assert_eq(match(&salted), 4);
	keyed.keys = keys + 1;
	keyed.n_tokens = 16;
	cr_assert_eq(match(&keyed), 0);
}

/* Two sequences with the same tokens: one node for each page, and both stay what they are. */
Test(sharing, twins)
{
	struct paged_prefix prefix = prefix_of(prompt, 20);
	paged_seq_id a = fixture_create_seq(20), b = fixture_create_seq(20);

	append(a, prompt, 0, 20);
	append(b, prompt, 0, 20);
	publish(a, &prefix);
	publish(b, &prefix);
	cr_assert_eq(info_of(b).published, 20);
	cr_assert_eq(counts().n_referenced, 10);
	expect_ok(paged_seq_erase(client, 1, &b));
	cr_assert_eq(counts().n_cached, 0);
	expect_ok(paged_seq_erase(client, 1, &a));
	cr_assert_eq(counts().n_cached, 5);
}

/* A prefix may be published as it grows; what is published already is not sent again. */
Test(sharing, publish_in_parts)
{
	struct paged_extra image = { .first = 3, .n_tokens = 20, .digest = { 7 } };
	struct paged_prefix prefix = prefix_of(prompt, 0), whole = prefix_of(prompt, 24);
	paged_seq_id a = fixture_create_seq(24);

	prefix.extra = whole.extra = &image;
	whole.n_extra = 1;
	append(a, prompt, 0, 24);
	for (prefix.n_tokens = 0; prefix.n_tokens <= 24; prefix.n_tokens++) {
		prefix.n_extra = prefix.n_tokens > 3;
		publish(a, &prefix);
		cr_assert_eq(info_of(a).published, prefix.n_tokens / 4 * 4);
		cr_assert_eq(match(&whole), prefix.n_tokens / 4 * 4);
	}
	publish(a, &(struct paged_prefix){ .struct_size = sizeof(prefix), .tokens = prompt, .n_tokens = 8 });
	cr_assert_eq(info_of(a).published, 24);
}

Test(sharing, fork)
{
	paged_seq_id a = fixture_create_seq(12), children[3], parents[3], private;
	uint32_t n_tokens[3] = { 10, 10, 4 }, pages_a[3], pages[3], tokens[FIXTURE_MAX_LENGTH], grow[3] = { 12, 12, 4 };

	append(a, prompt, 0, 10);
	parents[0] = parents[1] = parents[2] = a;
	expect_ok(paged_batch_fork(batch, 3, parents, n_tokens, children));
	expect_ok(paged_seq_read(pool, a, NULL, pages_a, 3));
	expect_ok(paged_seq_read(pool, children[0], NULL, pages, 3));
	cr_assert_arr_eq(pages, pages_a, 2 * sizeof(uint32_t));
	cr_assert_neq(pages[2], pages_a[2]);
	cr_assert_eq(counts().n_referenced, 5);
	expect_same_bits(a, children[0], 10);
	expect_ok(seqs_reserve(client, 3, children, grow));

	/* Parent and children go on with other tokens; each as if it were alone. */
	for (uint32_t i = 0; i < 2; i++) {
		memcpy(tokens, prompt, sizeof(tokens));
		tokens[10] = 7 + i;
		append(i == 0 ? a : children[0], tokens, 10, 12);
	}
	private = fixture_create_seq(12);
	append(private, tokens, 0, 12);
	expect_same_bits(children[0], private, 12);
	append(private, prompt, 0, 10);
	expect_same_bits(children[1], private, 10);
	cr_assert_eq(info_of(a).writable_from, 8);
	expect_holds();
}

/* Rows that share pages are different sequences, so a plan of them appends without a complaint. */
Test(sharing, rows_of_shared_pages)
{
	paged_seq_id a = fixture_create_seq(8), child;
	float k[2 * KV_ELEMENTS] = { 0 };
	const struct paged_tensor t = {
		.data = k, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
	};

	append(a, prompt, 0, 8);
	expect_ok(paged_batch_fork(batch, 1, &a, (uint32_t[]){ 8 }, &child));
	expect_ok(seqs_reserve(client, 2, (paged_seq_id[]){ a, child }, (uint32_t[]){ 9, 9 }));
	for (int i = 0; i < 2; i++) {
		expect_ok(paged_batch_plan(batch, 2,
					   (struct paged_batch_row[]){ { .seq = a, .q_len = 1, .kv_len = 9 },
								       { .seq = child, .q_len = 1, .kv_len = 9 } }));
		expect_ok(paged_append(batch, 0, &t, &t, NULL));
	}
}

Test(sharing, pin)
{
	struct paged_prefix prefix = prefix_of(prompt, 16), other;
	paged_seq_id a = fixture_create_seq(16);
	uint32_t n = 0, later[16];

	for (uint32_t i = 0; i < 16; i++)
		later[i] = 500 + i;
	other = prefix_of(later, 16);
	append(a, prompt, 0, 16);
	publish(a, &prefix);
	expect_ok(paged_seq_erase(client, 1, &a));
	expect_ok(paged_prefix_pin(pool, &other, 60, &n));
	cr_assert_eq(n, 0);
	expect_ok(paged_prefix_pin(pool, &prefix, 60, &n));
	cr_assert_eq(n, 16);
	a = fixture_create_seq(16);
	append(a, later, 0, 16);
	publish(a, &other);
	expect_ok(paged_seq_erase(client, 1, &a));
	cr_assert_eq(counts().n_cached, 8);
	a = fixture_create_seq(40); /* 10 pages: evicts 2 of the later prefix */
	cr_assert_eq(match(&prefix), 16);
	cr_assert_eq(match(&other), 8);
	expect_ok(paged_prefix_pin(pool, &prefix, 0, NULL));
	expect_holds();
}

Test(sharing, wait)
{
	struct paged_prefix prefix = prefix_of(prompt, 10);
	paged_seq_id a = fixture_create_seq(12);

	expect_error(paged_prefix_wait(pool, &prefix, 8, 1), PAGED_ERR_TIMEOUT,
		     "pool small: 0 of 8 tokens of the prefix are published after 1 ms");
	expect_error(paged_prefix_wait(pool, &prefix, 12, 1), PAGED_ERR_LIMIT,
		     "12 tokens are waited for, the prefix has whole pages of 8 tokens up to the pool's max_length");
	append(a, prompt, 0, 10);
	publish(a, &prefix);
	expect_ok(paged_prefix_wait(pool, &prefix, 8, 0));
	expect_ok(paged_prefix_wait(pool, &prefix, 11, 0));
	expect_ok(paged_prefix_wait(pool, &prefix, 0, 0));
}

Test(sharing, refused_starts)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	struct paged_start two[2] = { { .prefix = &prefix, .reserve = 40 }, { .reserve = 40 } };
	paged_seq_id ids[2] = { 0 };
	char long_tag[PAGED_MAX_TAG + 2];

	expect_error(paged_seq_start(pool, 0, two, ids, NULL), PAGED_ERR_INVALID,
		     "a request names at least one sequence");
	expect_error(paged_seq_start(pool, 2, two, NULL, NULL), PAGED_ERR_INVALID, "an array of the request is NULL");
	two[1].reserved[2] = 1;
	expect_error(paged_seq_start(pool, 2, two, ids, NULL), PAGED_ERR_INVALID, "starts[1].reserved is not zero");
	two[1].reserved[2] = 0;
	memset(long_tag, 'x', sizeof(long_tag));
	long_tag[sizeof(long_tag) - 1] = '\0';
	two[1].tag = long_tag;
	expect_error(paged_seq_start(pool, 2, two, ids, NULL), PAGED_ERR_LIMIT, "starts[1].tag has more than 31 bytes");
	two[1].tag = NULL;
	prefix.struct_size = 0;
	expect_error(paged_seq_start(pool, 2, two, ids, NULL), PAGED_ERR_INVALID,
		     "starts[0]: paged_prefix: struct_size is 0; set it to sizeof(the struct)");
	prefix.struct_size = sizeof(prefix);
	cr_assert_eq(paged_seq_start(pool, 2, two, ids, NULL), PAGED_ERR_FULL, "%s", paged_client_error(client));
	two[0].reserve = 41;
	cr_assert_eq(paged_seq_start(pool, 1, two, ids, NULL), PAGED_ERR_LIMIT);
	cr_assert_eq(ids[0], 0);
	cr_assert_eq(counts().n_free, FIXTURE_N_PAGES);
}

Test(sharing, refused_publishes_and_forks)
{
	struct paged_prefix prefix = prefix_of(prompt, 13);
	paged_seq_id a = fixture_create_seq(12), child;
	struct paged_publish one = { .seq = a, .prefix = &prefix };

	expect_error(paged_seq_publish(pool, 1, &one), PAGED_ERR_CAPACITY,
		     "publishes[0]: a prefix of 13 tokens exceeds the 12 that sequence " SEQ_FORMAT " has reserved",
		     SEQ_ARGS(a));
	one.prefix = NULL;
	expect_error(paged_seq_publish(pool, 1, &one), PAGED_ERR_INVALID, "publishes[0]: prefix is NULL");
	one = (struct paged_publish){ .seq = a + 1, .prefix = &prefix };
	cr_assert_eq(paged_seq_publish(pool, 1, &one), PAGED_ERR_STALE);
	expect_error(paged_seq_publish(pool, 1, NULL), PAGED_ERR_INVALID, "an array of the request is NULL");
	cr_assert_eq(paged_batch_fork(batch, 1, &a, (uint32_t[]){ 13 }, &child), PAGED_ERR_CAPACITY);
	cr_assert_eq(paged_batch_fork(batch, 1, &one.seq, (uint32_t[]){ 1 }, &child), PAGED_ERR_STALE);
	expect_error(paged_batch_fork(batch, 1, &a, NULL, &child), PAGED_ERR_INVALID,
		     "an array of the request is NULL");
	cr_assert_eq(paged_prefix_match(pool, &prefix, NULL), PAGED_ERR_INVALID);
	cr_assert_eq(paged_prefix_match(NULL, &prefix, &(uint32_t){ 0 }), PAGED_ERR_INVALID);
}

/* Speculative decoding: truncating inside a page that is shared, then growing, never touches the other sequence. */
Test(sharing, truncate_into_shared_pages)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	paged_seq_id a = fixture_create_seq(16), b, private = fixture_create_seq(16), child;

	append(a, prompt, 0, 16);
	append(private, prompt, 0, 16);
	publish(a, &prefix);
	b = start(&prefix, 0, 16, NULL);
	expect_ok(seqs_truncate(client, 1, &b, (uint32_t[]){ 10 }));
	cr_assert_eq(info_of(b).capacity, 12);
	cr_assert_eq(info_of(b).published, 8);
	cr_assert_eq(info_of(b).writable_from, 12);
	expect_ok(paged_batch_fork(batch, 1, &b, (uint32_t[]){ 10 }, &child));
	expect_ok(paged_seq_erase(client, 1, &b));
	append(child, prompt + 1, 10, 12);
	expect_same_bits(a, private, 16);
}

/* What was given back stays in the cache, and the rest is published after it. */
Test(sharing, trim)
{
	struct paged_prefix half = prefix_of(prompt, 8), prefix = prefix_of(prompt, 16);
	struct paged_seq_item item = { .reserved = { 1 } };
	paged_seq_id a = fixture_create_seq(16), b;
	uint32_t before[4], pages[4];

	append(a, prompt, 0, 16);
	publish(a, &half);
	expect_ok(paged_seq_read(pool, a, NULL, before, 4));
	expect_ok(seqs_trim(client, 1, &a, (uint32_t[]){ 11 }));
	cr_assert(info_of(a).n_trimmed == 2 && info_of(a).n_pages == 4 && info_of(a).capacity == 16);
	cr_assert_eq(info_of(a).writable_from, 8);
	expect_ok(paged_seq_read(pool, a, NULL, pages, 4));
	cr_assert(pages[0] == UINT32_MAX && pages[1] == UINT32_MAX && pages[2] == before[2] && pages[3] == before[3]);
	publish(a, &prefix);
	cr_assert_eq(info_of(a).published, 16);
	cr_assert_eq(match(&prefix), 16);
	b = start(&prefix, 0, 16, NULL);
	expect_ok(paged_seq_read(pool, b, NULL, pages, 4));
	cr_assert_eq(memcmp(pages, before, sizeof(pages)), 0);
	expect_error(seqs_trim(client, 1, &a, (uint32_t[]){ 17 }), PAGED_ERR_CAPACITY,
		     "sequence " SEQ_FORMAT " of pool small has room for 16 tokens, cannot be trimmed to token 17",
		     SEQ_ARGS(a));
	expect_error(seqs_trim(client, 0, &a, &pages[0]), PAGED_ERR_INVALID, "a request names at least one sequence");
	expect_error(paged_seq_trim(client, 1, &item), PAGED_ERR_INVALID, "items[0].reserved is not zero");
}

/* The totals of a pool say what its sequences did. */
Test(sharing, totals)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };
	struct paged_give_params give = { .struct_size = sizeof(give), .timeout_ms = 10000 };
	struct paged_ticket ticket;
	paged_seq_id a = fixture_create_seq(16), b, child, adopted;
	uint32_t length;
	size_t n;

	append(a, prompt, 0, 16);
	publish(a, &prefix);
	b = start(&prefix, 0, 20, NULL);
	expect_ok(paged_batch_fork(batch, 1, &b, (uint32_t[]){ 10 }, &child));
	expect_ok(seqs_trim(client, 1, &child, (uint32_t[]){ 4 }));
	expect_ok(paged_seq_give(pool, 1, &a, (uint32_t[]){ 16 }, &give, &ticket));
	expect_ok(paged_ticket_cancel(client, &ticket));
	expect_ok(paged_seq_give(pool, 1, &a, (uint32_t[]){ 16 }, &give, &ticket));
	expect_ok(paged_seq_adopt(pool, &ticket, 1, &adopted, &length, &n));
	expect_ok(paged_seq_erase(client, 1, &child));

	expect_ok(paged_pool_get_totals(pool, &totals));
	cr_assert(totals.n_created == 3 && totals.n_forked == 1 && totals.n_ended == 1 && totals.n_sequences == 2);
	cr_assert(totals.n_starts == 1 && totals.n_tokens_asked == 16 && totals.n_tokens_found == 16);
	cr_assert(totals.n_given == 2 && totals.n_cancelled == 1 && totals.n_adopted == 1 && totals.n_expired == 0);
	cr_assert(totals.n_taken == 4 + 1 + 1 && totals.n_trimmed == 1 && totals.n_published == 4);
	cr_assert(totals.n_evicted == 0 && totals.n_orphaned == 0);
	cr_assert(totals.peak_sequences == 3 && totals.peak_referenced == 6);
	expect_error(paged_pool_get_totals(pool, NULL), PAGED_ERR_INVALID, "totals must not be NULL");
	totals.struct_size = 0;
	expect_error(paged_pool_get_totals(pool, &totals), PAGED_ERR_INVALID,
		     "paged_pool_totals: struct_size is 0; set it to sizeof(the struct)");
}

/* Once a page was given back unpublished, publishing passes over the sequence. */
Test(sharing, trim_before_publish)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	paged_seq_id a = fixture_create_seq(16), b = fixture_create_seq(16);
	struct paged_publish both[2] = { { .seq = a, .prefix = &prefix }, { .seq = b, .prefix = &prefix } };

	append(a, prompt, 0, 16);
	append(b, prompt, 0, 16);
	expect_ok(seqs_trim(client, 1, &a, (uint32_t[]){ 4 }));
	expect_ok(paged_seq_publish(pool, 1, both));
	cr_assert_eq(match(&prefix), 0);
	expect_ok(paged_seq_publish(pool, 2, both));
	cr_assert(info_of(a).published == 0 && info_of(b).published == 16);
}

/* A batch on the host publishes at once. */
Test(sharing, batch_publish_on_the_host)
{
	struct paged_prefix prefix = prefix_of(prompt, 16);
	paged_seq_id a = fixture_create_seq(16);

	append(a, prompt, 0, 16);
	expect_ok(paged_batch_publish(batch, 1, &(struct paged_publish){ .seq = a, .prefix = &prefix }));
	cr_assert_eq(match(&prefix), 16);
	cr_assert_eq(paged_batch_publish(NULL, 1, NULL), PAGED_ERR_INVALID);
}

/* More pages than a message has room for: publish and start take several, and are still one call. */
Test(sharing, long_prefixes)
{
	enum { LONG = 30000, SPARE = 2000 };
	struct paged_pool_params params = fixture_pool_params;
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_client *own;
	struct paged_pool *long_pool;
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .n_tokens = LONG, .salt = salt };
	struct paged_start starts[3] = { { .prefix = &prefix, .max_tokens = 10 },
					 { .prefix = &prefix, .reserve = LONG + 1, .tag = "long" },
					 { .prefix = &prefix, .max_tokens = 9000 } };
	uint32_t *tokens = calloc(LONG, sizeof(*tokens)), n_shared[3];
	struct paged_pool_counts c = { .struct_size = sizeof(c) };
	paged_seq_id ids[3];

	params.page_size = 1;
	params.n_pages = LONG + SPARE;
	params.max_length = LONG + SPARE;
	paged_salt(salt, 0, NULL);
	prefix.tokens = tokens;
	cr_assert_eq(paged_client_open_embedded(&params, 1, NULL, &own), PAGED_OK);
	cr_assert_eq(paged_pool_open(own, "small", &long_pool), PAGED_OK);
	cr_assert_eq(paged_seq_create(own, 1, &(struct paged_seq_params){ .pool = long_pool, .n_tokens = LONG }, ids),
		     PAGED_OK);
	cr_assert_eq(paged_seq_publish(long_pool, 1, &(struct paged_publish){ .seq = ids[0], .prefix = &prefix }),
		     PAGED_OK);
	cr_assert_eq(paged_seq_start(long_pool, 3, starts, ids, n_shared), PAGED_OK, "%s", paged_client_error(own));
	cr_assert_arr_eq(n_shared, ((uint32_t[]){ 10, LONG, 9000 }), sizeof(n_shared));

	/* The last of the sequences does not fit, so none is created. */
	starts[2].reserve = LONG + SPARE;
	starts[0].reserve = 100;
	cr_assert_eq(paged_seq_start(long_pool, 3, starts, ids, NULL), PAGED_ERR_FULL);
	cr_assert_eq(paged_pool_get_counts(long_pool, &c), PAGED_OK);
	cr_assert_eq(c.n_free, SPARE - 1);
	paged_client_close(own);
	free(tokens);
}

/* A program's run() that publishes what the kernel is about to write, as another process might. */
struct overtaker {
	struct paged_pool *pool;
	struct paged_publish publish;
	bool armed;
};

static void
run_and_publish(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct overtaker *overtaker = argument;

	if (overtaker->armed)
		cr_assert_eq(paged_seq_publish(overtaker->pool, 1, &overtaker->publish), PAGED_OK);
	overtaker->armed = false;
	for (uint32_t i = 0; i < n; i++)
		work(work_argument, i);
}

/* A publish that slips in while an append writes cannot be refused any more: validate reports it. */
Test(sharing, validate_reports_an_append_that_was_overtaken)
{
	/* Large enough for the kernel to use threads. */
	enum { TOKENS = 40, HEADS = 32, DIM = 256 };
	static float k[TOKENS * HEADS * DIM];
	struct paged_tensor tensor = { .data = k, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
	struct paged_pool_params wide = fixture_pool_params;
	struct paged_batch_params params = { .struct_size = sizeof(params) };
	struct overtaker overtaker = { 0 };
	const struct paged_client_params with_run = {
		.struct_size = sizeof(with_run), .n_threads = 2, .run = run_and_publish, .run_argument = &overtaker
	};
	struct paged_prefix prefix = prefix_of(prompt, TOKENS);
	struct paged_batch_row row = { .q_len = TOKENS, .kv_len = TOKENS };
	struct paged_client *own;
	struct paged_batch *its;

	wide.n_kv_heads = HEADS;
	wide.k_dim = DIM;
	cr_assert_eq(paged_client_open_embedded(&wide, 1, &with_run, &own), PAGED_OK);
	cr_assert_eq(paged_pool_open(own, "small", &overtaker.pool), PAGED_OK);
	cr_assert_eq(paged_batch_create(overtaker.pool, &params, &its), PAGED_OK);
	cr_assert_eq(seqs_create(own, overtaker.pool, 1, &row.seq), PAGED_OK);
	cr_assert_eq(seqs_reserve(own, 1, &row.seq, (uint32_t[]){ TOKENS }), PAGED_OK);
	cr_assert_eq(paged_batch_plan(its, 1, &row), PAGED_OK);
	cr_assert_eq(paged_append(its, 0, &tensor, &tensor, NULL), PAGED_OK);
	cr_assert_eq(paged_batch_validate(its), PAGED_OK);
	overtaker.publish = (struct paged_publish){ .seq = row.seq, .prefix = &prefix };
	overtaker.armed = true;
	cr_assert_eq(paged_append(its, 1, &tensor, &tensor, NULL), PAGED_OK);
	cr_assert(!overtaker.armed, "run() was not called");
	cr_assert_eq(paged_batch_validate(its), PAGED_ERR_STALE);
	cr_assert_str_eq(paged_client_error(own),
			 "while an append wrote: row 0: position 0 of sequence 0.1 is "
			 "shared or published: it is writable from 40; fork it at 0, or keep 0");
	cr_assert_eq(paged_append(its, 1, &tensor, &tensor, NULL), PAGED_ERR_PERM);
	/* Another plan begins again. */
	row.flags = PAGED_ROW_NO_APPEND;
	cr_assert_eq(paged_batch_plan(its, 1, &row), PAGED_OK);
	cr_assert_eq(paged_batch_validate(its), PAGED_OK);
	paged_client_close(own);
}
