/* SPDX-License-Identifier: Apache-2.0 */
/* paged_prefix_pages() and paged_pages_hold() over an embedded owner: what is listed, kept, and refused. */
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

#define N_PAGES 4u /* of the prompt; a quarter of the pool, the most that an embedded client holds */
#define LENGTH (N_PAGES * FIXTURE_PAGE_SIZE)

static struct paged_batch *batch;
static uint32_t prompt[LENGTH + 4];
static struct paged_prefix prefix;
static uint32_t pages[N_PAGES + 1], order[N_PAGES];
static uint64_t serials[N_PAGES + 1];
static paged_seq_id hold;

/* A published prompt whose sequence has ended. */
static void
holds_setup(void)
{
	struct paged_publish publish = { .prefix = &prefix };
	size_t n;

	client_fixture_setup();
	batch = fixture_create_batch(0, 8);
	for (uint32_t i = 0; i < LENGTH + 4; i++)
		prompt[i] = 100 + i;
	prefix = (struct paged_prefix){ .struct_size = sizeof(prefix), .tokens = prompt, .n_tokens = LENGTH };
	publish.seq = fixture_create_seq(LENGTH);
	expect_ok(paged_seq_read(pool, publish.seq, NULL, order, N_PAGES));
	expect_ok(paged_seq_publish(pool, 1, &publish));
	expect_ok(paged_seq_erase(client, 1, &publish.seq));
	expect_ok(paged_prefix_pages(pool, &prefix, N_PAGES + 1, pages, serials, &n));
	cr_assert_eq(n, N_PAGES);
}

TestSuite(holds, .init = holds_setup, .fini = client_fixture_teardown);

static uint32_t
n_cached(void)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };

	expect_ok(paged_pool_get_counts(pool, &counts));
	return counts.n_cached;
}

Test(holds, pages_of_a_prefix)
{
	uint32_t some[N_PAGES] = { 77, 77, 77, 77 };
	uint64_t some_serials[N_PAGES] = { 0 };
	struct paged_node_entry *nodes;
	struct paged_prefix longer = prefix, bad = prefix;
	size_t n = 99, n_nodes;

	cr_assert_arr_eq(pages, order, sizeof(order));
	expect_ok(paged_admin_prefixes(client, "small", sizeof(*nodes), &nodes, &n_nodes));
	cr_assert_eq(n_nodes, N_PAGES);
	for (size_t i = 0; i < n_nodes; i++)
		for (uint32_t k = 0; k < N_PAGES; k++)
			cr_assert(nodes[i].page != pages[k] || nodes[i].serial == serials[k]);
	paged_free(nodes);

	/* As many as there is room for; as far as the prefix is published. */
	expect_ok(paged_prefix_pages(pool, &prefix, 2, some, some_serials, &n));
	cr_assert(n == 2 && some[1] == pages[1] && some_serials[1] == serials[1] && some[2] == 77);
	expect_ok(paged_prefix_pages(pool, &prefix, 0, NULL, NULL, &n));
	cr_assert_eq(n, 0);
	longer.n_tokens = LENGTH + 4;
	expect_ok(paged_prefix_pages(pool, &longer, N_PAGES + 1, pages, serials, &n));
	cr_assert_eq(n, N_PAGES);
	longer.tokens = prompt + 1;
	longer.n_tokens = LENGTH;
	expect_ok(paged_prefix_pages(pool, &longer, N_PAGES + 1, pages, serials, &n));
	cr_assert_eq(n, 0);

	expect_error(paged_prefix_pages(pool, &prefix, 1, some, some_serials, NULL), PAGED_ERR_INVALID, "n_p is NULL");
	expect_error(paged_prefix_pages(pool, &prefix, 1, NULL, some_serials, &n), PAGED_ERR_INVALID, "pages is NULL");
	expect_error(paged_prefix_pages(pool, &prefix, 1, some, NULL, &n), PAGED_ERR_INVALID, "serials is NULL");
	bad.tokens = NULL;
	cr_assert_eq(paged_prefix_pages(pool, &bad, 1, some, some_serials, &n), PAGED_ERR_INVALID);
	cr_assert_eq(paged_prefix_pages(pool, NULL, 1, some, some_serials, &n), PAGED_ERR_INVALID);
}

Test(holds, held_pages_stay)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	uint32_t n_tokens, reversed[N_PAGES], read[N_PAGES];
	uint64_t reversed_serials[N_PAGES];
	paged_seq_id seq;

	for (uint32_t i = 0; i < N_PAGES; i++) {
		reversed[i] = pages[N_PAGES - 1 - i];
		reversed_serials[i] = serials[N_PAGES - 1 - i];
	}
	expect_ok(paged_pages_hold(pool, N_PAGES, reversed, reversed_serials, &hold));
	cr_assert_eq(n_cached(), 0);
	expect_ok(paged_seq_read(pool, hold, &info, read, N_PAGES));
	cr_assert_arr_eq(read, reversed, sizeof(read));
	cr_assert(info.hold == 1 && info.frozen == 0 && info.writable_from == UINT32_MAX && info.n_pages == N_PAGES);
	fixture_create_seq(40);
	seq = fixture_create_seq(0);
	expect_error(seqs_reserve(client, 1, &seq, (uint32_t[]){ 12 }), PAGED_ERR_FULL,
		     "pool small: 3 pages requested, 2 free (0 quarantined, holds keep 4)");
	expect_ok(paged_prefix_match(pool, &prefix, &n_tokens));
	cr_assert_eq(n_tokens, LENGTH);
	expect_ok(paged_seq_erase(client, 1, &hold));
	cr_assert_eq(n_cached(), N_PAGES);
	expect_ok(seqs_reserve(client, 1, &seq, (uint32_t[]){ 12 }));
	cr_assert_eq(n_cached(), N_PAGES - 1);
}

Test(holds, refused_holds)
{
	uint32_t many[PAGED_MAX_HOLD_PAGES + 1] = { 0 };
	uint64_t many_serials[PAGED_MAX_HOLD_PAGES + 1] = { 0 };

	hold = 77;
	expect_error(paged_pages_hold(pool, 0, pages, serials, &hold), PAGED_ERR_INVALID,
		     "a hold has at least one page");
	expect_error(paged_pages_hold(pool, 1, NULL, serials, &hold), PAGED_ERR_INVALID,
		     "an argument of the hold is NULL");
	expect_error(paged_pages_hold(pool, 1, pages, NULL, &hold), PAGED_ERR_INVALID,
		     "an argument of the hold is NULL");
	expect_error(paged_pages_hold(pool, 1, pages, serials, NULL), PAGED_ERR_INVALID,
		     "an argument of the hold is NULL");
	expect_error(paged_pages_hold(pool, PAGED_MAX_HOLD_PAGES + 1, many, many_serials, &hold), PAGED_ERR_LIMIT,
		     "5401 pages in a hold, at most 5400: make several holds");
	expect_error(paged_pages_hold(pool, 11, many, many_serials, &hold), PAGED_ERR_LIMIT,
		     "pool small: a hold may have 10 pages, 11 requested: make several holds");
	expect_error(
		paged_pages_hold(pool, 5, many, many_serials, &hold), PAGED_ERR_LIMIT,
		"pool small: a hold of 5 pages, with 0 of other holds and 0 of pins, exceeds pin-limit (4): release "
		"holds or pins, or raise pin-limit");
	serials[2]++;
	expect_error(paged_pages_hold(pool, N_PAGES, pages, serials, &hold), PAGED_ERR_STALE,
		     "pool small: page %u is not the node of serial %llu", pages[2], (unsigned long long)serials[2]);
	serials[2]--;
	pages[2] = FIXTURE_N_PAGES;
	expect_error(paged_pages_hold(pool, N_PAGES, pages, serials, &hold), PAGED_ERR_RANGE,
		     "pool small: there is no page 16; there are 16");
	cr_assert(hold == 77 && n_cached() == N_PAGES);
}

/* A page that was evicted and published again is not the page that was listed. */
Test(holds, evicted_and_published_again)
{
	struct paged_publish publish = { .prefix = &prefix };
	uint32_t n_evicted;

	expect_ok(paged_admin_evict(client, "small", 0, &n_evicted));
	cr_assert_eq(n_evicted, N_PAGES);
	publish.seq = fixture_create_seq(LENGTH);
	expect_ok(paged_seq_publish(pool, 1, &publish));
	cr_assert_eq(paged_pages_hold(pool, N_PAGES, pages, serials, &hold), PAGED_ERR_STALE);
}

/* The pages of a hold have no order, so that no call takes them for a sequence's tokens. */
Test(holds, calls_on_a_hold_are_refused)
{
	struct paged_batch_row row = { .kv_len = LENGTH, .q_len = 1, .flags = PAGED_ROW_NO_APPEND };
	struct paged_block_mask_params mask_params = {
		.struct_size = sizeof(mask_params), .n_rows = 1, .rows = &row, .kv_block = FIXTURE_PAGE_SIZE
	};
	struct paged_publish publish = { .prefix = &prefix };
	struct paged_block_mask *logical, *physical;
	struct paged_mod *causal;
	struct paged_ticket ticket;
	uint32_t length = 4;
	paged_seq_id child;
	char text[128];

	expect_ok(paged_pages_hold(pool, N_PAGES, pages, serials, &hold));
	row.seq = publish.seq = hold;
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_PERM,
		     "row 0: sequence " SEQ_FORMAT " is a hold, whose pages have no order: it cannot be planned",
		     SEQ_ARGS(hold));
	row.kv_len = LENGTH + 1; /* with reserve_ahead */
	cr_assert_eq(paged_batch_plan(batch, 1, &row), PAGED_ERR_PERM);
	row.kv_len = LENGTH;
	expect_error(paged_seq_publish(pool, 1, &publish), PAGED_ERR_PERM,
		     "publishes[0]: sequence " SEQ_FORMAT " is a hold, whose pages are published already",
		     SEQ_ARGS(hold));
	snprintf(text, sizeof(text), "sequence " SEQ_FORMAT " of pool small is a hold, which can only be erased",
		 SEQ_ARGS(hold));
	expect_error(seqs_reserve(client, 1, &hold, &length), PAGED_ERR_PERM, "%s", text);
	expect_error(seqs_truncate(client, 1, &hold, &length), PAGED_ERR_PERM, "%s", text);
	expect_error(seqs_trim(client, 1, &hold, &length), PAGED_ERR_PERM, "%s", text);
	expect_error(paged_batch_fork(batch, 1, &hold, &length, &child), PAGED_ERR_PERM, "%s", text);
	expect_error(paged_seq_give(pool, 1, &hold, &length, NULL, &ticket), PAGED_ERR_PERM, "%s", text);

	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "causal", 0, NULL, &causal));
	expect_ok(paged_block_mask_create(pool, &mask_params, causal, 0, NULL, &logical));
	expect_error(paged_block_mask_to_physical(logical, 1, &row, &physical), PAGED_ERR_PERM,
		     "block mask: row 0: sequence " SEQ_FORMAT " is a hold, whose pages have no order", SEQ_ARGS(hold));
	paged_block_mask_destroy(logical);
	paged_mod_destroy(causal);

	/* What a mover does instead: explicit pages. */
	row.seq = 0;
	row.pages = pages;
	row.n_pages = N_PAGES;
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_seq_erase(client, 1, &hold));
	cr_assert_eq(paged_seq_erase(client, 1, &hold), PAGED_ERR_STALE);
}
