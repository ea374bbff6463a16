/* SPDX-License-Identifier: Apache-2.0 */
/* Physical block masks through the public API: the pages of blocks, and detection of pages that changed since. */
#include <stdlib.h>
#include <string.h>

#include "tests/client/block_mask_fixture.h"
#include "tests/support/sequences.h"

#define ROUNDS 200u
#define MAX_ROWS 4u
#define MAX_PARTS 64u

TestSuite(block_mask_physical, .init = client_fixture_setup, .fini = client_fixture_teardown);

/* Creates sequences, and allocates their pages in random order. */
static void
shuffled_seqs_create(paged_seq_id *seq, uint32_t n, uint64_t *state)
{
	uint32_t tokens;

	for (uint32_t i = 0; i < n; i++)
		expect_ok(seqs_create(client, pool, 1, &seq[i]));
	for (uint32_t pages = 0; pages < FIXTURE_N_PAGES - 3; pages++) {
		uint32_t i = (uint32_t)random_below(state, n);

		tokens = fixture_seq_capacity(seq[i]) + FIXTURE_PAGE_SIZE;
		if (tokens <= FIXTURE_MAX_LENGTH)
			expect_ok(seqs_reserve(client, 1, &seq[i], &tokens));
	}
}

/* Each row has a random sequence, possibly that of another row, or explicit pages, which begin at kv_first. */
static void
random_rows(struct paged_batch_row *rows, uint32_t n, const paged_seq_id *seq, uint32_t n_seqs,
	    uint32_t (*explicit)[FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE], uint64_t *state)
{
	for (uint32_t r = 0; r < n; r++) {
		uint32_t capacity;

		if (random_below(state, 4) == 0) {
			for (uint32_t i = 0; i < FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE; i++)
				explicit[r][i] = (uint32_t)random_below(state, FIXTURE_N_PAGES);
			rows[r].pages = explicit[r];
			rows[r].n_pages = (uint32_t)random_below(state, FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE + 1);
			capacity = rows[r].n_pages * FIXTURE_PAGE_SIZE;
		} else {
			rows[r].seq = seq[random_below(state, n_seqs)];
			capacity = fixture_seq_capacity(rows[r].seq);
		}
		rows[r].kv_len = (uint32_t)random_below(state, capacity + 1);
		rows[r].kv_first = random_below(state, 2) == 0 ? (uint32_t)random_below(state, rows[r].kv_len + 1) : 0;
		for (uint32_t i = 0; rows[r].pages != NULL && i < rows[r].kv_first / FIXTURE_PAGE_SIZE; i++)
			explicit[r][i] = UINT32_MAX;
	}
}

static void
row_pages(const struct paged_batch_row *row, uint32_t *pages)
{
	if (row->pages != NULL)
		memcpy(pages, row->pages, row->n_pages * sizeof(*pages));
	else
		expect_ok(paged_seq_read(pool, row->seq, NULL, pages, FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE));
}

/* By definition: the coverage of each part of the logical blocks; 0 empty, 1 partial, 2 full. */
static void
expected_coverage(const struct paged_block_mask *logical, uint64_t kv_first, uint64_t kv_len, uint32_t part, uint32_t r,
		  uint32_t h, uint64_t q, uint8_t *parts)
{
	uint32_t kv_block = fixture_mask_info(logical).kv_block, n_parts = kv_block > part ? kv_block / part : 1;

	memset(parts, 0, MAX_PARTS);
	for (int kind = 0; kind < 2; kind++) {
		struct fixture_mask_list list = fixture_mask_list(logical, kind, r, h, q);

		for (uint64_t i = 0; i < list.n; i++)
			for (uint64_t p = (uint64_t)list.blocks[i] * n_parts; p < (list.blocks[i] + 1ull) * n_parts;
			     p++)
				if (p * part < kv_len && (p + 1) * part > kv_first && kv_first < kv_len)
					parts[p] = kind == PAGED_BLOCKS_FULL && p * part >= kv_first &&
								   (p + 1) * part <= kv_len
							   ? 2
							   : 1;
	}
}

static void
expect_physical_list(const struct paged_block_mask *physical, uint32_t r, uint32_t h, uint64_t q, const uint8_t *parts,
		     const uint32_t *pages)
{
	uint32_t part = fixture_mask_info(physical).kv_block, in_page = FIXTURE_PAGE_SIZE / part;
	uint64_t at[2] = { 0 };

	for (uint32_t p = 0; p < MAX_PARTS; p++) {
		int kind = parts[p] == 2;
		struct fixture_mask_list list = fixture_mask_list(physical, kind, r, h, q);

		if (parts[p] == 0)
			continue;
		cr_assert_lt(at[kind], list.n);
		cr_assert_eq(list.blocks[at[kind]], pages[p / in_page] * in_page + p % in_page);
		at[kind]++;
	}
	for (int kind = 0; kind < 2; kind++)
		cr_assert_eq(at[kind], fixture_mask_list(physical, kind, r, h, q).n);
}

static uint64_t
seq_version(paged_seq_id seq)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pool, seq, &info, NULL, 0));
	return info.version;
}

static void
expect_physical_mask(const struct paged_block_mask *physical, const struct paged_block_mask *logical,
		     const struct paged_batch_row *rows)
{
	struct paged_block_mask_info info = fixture_mask_info(physical), from = fixture_mask_info(logical);
	uint32_t pages[FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE];
	uint8_t parts[MAX_PARTS];

	cr_assert_eq(info.physical, 1);
	cr_assert_eq(info.kv_block, from.kv_block < FIXTURE_PAGE_SIZE ? from.kv_block : FIXTURE_PAGE_SIZE);
	for (uint32_t r = 0; r < info.n_rows; r++) {
		uint32_t of = from.n_rows == 1 ? 0 : r;
		struct paged_block_mask_row row = fixture_mask_row(physical, r), whole = fixture_mask_row(logical, of);
		uint64_t kv_len = whole.kv_len < rows[r].kv_len ? whole.kv_len : rows[r].kv_len;
		uint64_t kv_first = whole.kv_first > rows[r].kv_first ? whole.kv_first : rows[r].kv_first;

		cr_assert(row.q_len == whole.q_len && row.q_base == whole.q_base && row.seq == rows[r].seq);
		cr_assert_eq(row.kv_len, FIXTURE_N_PAGES * FIXTURE_PAGE_SIZE, "the pool's tokens");
		cr_assert_eq(row.version, rows[r].seq != 0 ? seq_version(rows[r].seq) : 0);
		row_pages(&rows[r], pages);
		for (uint32_t h = 0; h < info.n_heads; h++)
			for (uint64_t q = 0; q * info.q_block < row.q_len; q++) {
				expected_coverage(logical, kv_first, kv_len, info.kv_block, of, h, q, parts);
				expect_physical_list(physical, r, h, q, parts, pages);
			}
	}
}

/*
 * Converting back gives the logical mask, cropped to the lengths of the physical mask's rows.  No call crops to
 * kv_first: rows that begin later than the logical mask's are compared after converting again only.
 */
static void
expect_logical_again(const struct paged_block_mask *physical, const struct paged_block_mask *logical,
		     const struct paged_batch_row *rows)
{
	struct paged_block_mask *back = NULL, *one = NULL, *cropped = NULL;

	expect_ok(paged_block_mask_to_logical(physical, &back));
	for (uint32_t r = 0; r < fixture_mask_info(physical).n_rows; r++) {
		struct paged_block_mask_part part = { .struct_size = sizeof(part), .first_row = r, .n_rows = 1 };
		struct paged_block_mask *row = NULL;

		expect_ok(paged_block_mask_select(back, &part, &row));
		part.first_row = fixture_mask_info(logical).n_rows == 1 ? 0 : r;
		expect_ok(paged_block_mask_select(logical, &part, &one));
		expect_ok(paged_block_mask_crop(one, UINT32_MAX, rows[r].kv_len, &cropped));
		if (rows[r].kv_first <= fixture_mask_row(cropped, 0).kv_first)
			expect_same_mask(row, cropped, "converted back");
		paged_block_mask_destroy(row);
		paged_block_mask_destroy(one);
		paged_block_mask_destroy(cropped);
	}
	/*
	 * If blocks are larger than pages, all pages of a partial block are partial,
	 * so this holds for small blocks only.
	 */
	if (fixture_mask_info(logical).kv_block <= FIXTURE_PAGE_SIZE) {
		expect_ok(paged_block_mask_to_physical(back, fixture_mask_info(physical).n_rows, rows, &one));
		expect_same_mask(one, physical, "converted again");
		paged_block_mask_destroy(one);
	}
	paged_block_mask_destroy(back);
}

static struct paged_block_mask_params
physical_mask_params(const struct paged_batch_row *rows, uint32_t n_rows, uint32_t q_block, uint32_t kv_block)
{
	return (struct paged_block_mask_params){
		.struct_size = sizeof(struct paged_block_mask_params),
		.rows = rows,
		.n_rows = n_rows,
		.n_heads = 2,
		.q_block = q_block,
		.kv_block = kv_block,
	};
}

/* Block sizes that divide the page size, equal it, and are multiples of it. */
Test(block_mask_physical, logical_to_physical_and_back)
{
	static const uint32_t kv_blocks[] = { 1, 2, 4, 8, 12, 40 };
	paged_seq_id seq[3];
	uint64_t state = 11;

	shuffled_seqs_create(seq, 3, &state);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const struct mask_rule *rule = &mask_rules[random_below(&state, n_mask_rules)];
		uint32_t n_rows = 1 + (uint32_t)random_below(&state, MAX_ROWS), n_logical;
		struct paged_batch_row logical_rows[MAX_ROWS], rows[MAX_ROWS] = { 0 };
		uint32_t explicit[MAX_ROWS][FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE];
		struct paged_block_mask *logical, *physical = NULL;
		struct paged_block_mask_params params;

		n_logical = random_below(&state, 3) == 0 ? 1 : n_rows;
		mask_random_rows(logical_rows, n_logical, &state);
		params = physical_mask_params(logical_rows, n_logical, 1 + (uint32_t)random_below(&state, 8),
					      kv_blocks[random_below(&state, 6)]);
		random_rows(rows, n_rows, seq, 3, explicit, &state);
		logical = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays);
		expect_ok(paged_block_mask_to_physical(logical, n_rows, rows, &physical));
		expect_physical_mask(physical, logical, rows);
		expect_logical_again(physical, logical, rows);
		expect_ok(paged_block_mask_validate(physical));
		paged_block_mask_destroy(physical);
		paged_block_mask_destroy(logical);
	}
}

/* Creating a physical mask equals creating a logical mask and converting it. */
Test(block_mask_physical, create_physical_equals_create_and_convert)
{
	paged_seq_id seq[3];
	uint64_t state = 12;

	shuffled_seqs_create(seq, 3, &state);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const struct mask_rule *rule = &mask_rules[random_below(&state, n_mask_rules)];
		uint32_t n_rows = 1 + (uint32_t)random_below(&state, MAX_ROWS);
		uint32_t explicit[MAX_ROWS][FIXTURE_MAX_LENGTH / FIXTURE_PAGE_SIZE];
		struct paged_batch_row rows[MAX_ROWS];
		struct paged_block_mask_params params = physical_mask_params(rows, n_rows, 3, 0);
		struct paged_block_mask *logical, *physical = NULL, *created;

		mask_random_rows(rows, n_rows, &state);
		random_rows(rows, n_rows, seq, 3, explicit, &state);
		params.kv_block = FIXTURE_PAGE_SIZE;
		logical = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays);
		expect_ok(paged_block_mask_to_physical(logical, n_rows, rows, &physical));
		params.kv_block = 0;
		params.physical = 1;
		created = fixture_mask_create(&params, rule->text, 2, mask_rule_arrays);
		expect_same_mask(created, physical, rule->text);
		paged_block_mask_destroy(created);
		expect_ok(paged_block_mask_to_logical(physical, &created));
		expect_same_mask(created, logical, "its logical blocks");
		paged_block_mask_destroy(created);
		paged_block_mask_destroy(physical);
		paged_block_mask_destroy(logical);
	}
}

/* A trimmed sequence has no blocks before its first page, whatever the rows say. */
Test(block_mask_physical, trimmed_sequence)
{
	struct paged_batch_row rows[2] = {
		{ .seq = fixture_create_seq(16), .q_len = 4, .kv_len = 15 },
		{ .seq = fixture_create_seq(16), .q_len = 4, .kv_len = 15, .kv_first = 8 },
	};
	struct paged_block_mask_params params = physical_mask_params(rows, 2, 4, 0);
	struct paged_block_mask *trimmed, *first;
	struct paged_seq_item item = { .seq = rows[0].seq, .n_tokens = 8 };

	params.physical = 1;
	first = fixture_mask_create(&params, "true", 0, NULL);
	expect_ok(paged_seq_trim(client, 1, &item));
	expect_error(paged_block_mask_validate(first), PAGED_ERR_STALE,
		     "block mask: row 0: pages of sequence %u.%u were replaced or removed since it was made",
		     PAGED_SEQ_SLOT(rows[0].seq), PAGED_SEQ_GENERATION(rows[0].seq));
	trimmed = fixture_mask_create(&params, "true", 0, NULL);
	for (uint32_t h = 0; h < 2; h++)
		for (int kind = 0; kind < 2; kind++) {
			struct fixture_mask_list list = fixture_mask_list(trimmed, kind, 0, h, 0);
			uint32_t pages[4];

			expect_ok(paged_seq_read(pool, rows[0].seq, NULL, pages, 4));
			cr_assert_eq(list.n, 1);
			cr_assert_eq(list.blocks[0], pages[kind == PAGED_BLOCKS_FULL ? 2 : 3]);
			cr_assert_eq(fixture_mask_list(first, kind, 0, h, 0).n, kind == PAGED_BLOCKS_FULL ? 3 : 1);
			cr_assert_eq(fixture_mask_list(trimmed, kind, 1, h, 0).n, 1);
		}
	paged_block_mask_destroy(trimmed);
	paged_block_mask_destroy(first);
	rows[0].kv_len = 5; /* all its keys were given back */
	trimmed = fixture_mask_create(&params, "true", 0, NULL);
	for (int kind = 0; kind < 2; kind++)
		cr_assert_eq(fixture_mask_list(trimmed, kind, 0, 0, 0).n, 0);
	paged_block_mask_destroy(trimmed);
}

/* A part of a physical mask is the physical mask of the part. */
Test(block_mask_physical, selected_parts_keep_their_sequences)
{
	const struct paged_batch_row rows[] = {
		{ .seq = fixture_create_seq(8), .q_len = 3, .kv_len = 8 },
		{ .seq = fixture_create_seq(12), .q_len = 9, .kv_len = 11 },
	};
	struct paged_block_mask_params params = physical_mask_params(rows, 2, 4, 0);
	struct paged_block_mask_part part = { .struct_size = sizeof(part), .first_row = 1, .n_heads = 1 };
	struct paged_block_mask *physical, *got = NULL, *logical = NULL, *expected = NULL;
	uint32_t tokens = 4;

	params.physical = 1;
	physical = fixture_mask_create(&params, "causal", 0, NULL);
	expect_ok(paged_block_mask_select(physical, &part, &got));
	expect_ok(paged_block_mask_to_logical(got, &logical));
	expect_ok(paged_block_mask_to_physical(logical, 1, &rows[1], &expected));
	expect_same_mask(got, expected, "row 1");
	expect_ok(seqs_truncate(client, 1, &rows[0].seq, &tokens));
	expect_ok(paged_block_mask_validate(got));
	expect_error(paged_block_mask_validate(physical), PAGED_ERR_STALE,
		     "block mask: row 0: pages of sequence " SEQ_FORMAT " were replaced or removed since it was made",
		     SEQ_ARGS(rows[0].seq));
}

static struct paged_block_mask *
physical_mask_create(paged_seq_id seq, uint32_t kv_len)
{
	const struct paged_batch_row rows[] = { { .seq = seq, .q_len = 1, .kv_len = kv_len } };
	struct paged_block_mask_params params = physical_mask_params(rows, 1, 0, 0);

	params.physical = 1;
	return fixture_mask_create(&params, "causal", 0, NULL);
}

/* A mask is stale if its own rows changed; other sequences do not matter. */
Test(block_mask_physical, stale_only_if_its_own_rows_changed)
{
	paged_seq_id mine = fixture_create_seq(8), other = fixture_create_seq(8);
	struct paged_block_mask *mask = physical_mask_create(mine, 7), *logical = NULL;
	uint32_t tokens = 16;

	expect_ok(seqs_reserve(client, 1, &mine, &tokens));
	expect_ok(paged_block_mask_validate(mask));
	tokens = 4;
	expect_ok(seqs_truncate(client, 1, &other, &tokens));
	expect_ok(paged_seq_erase(client, 1, &other));
	expect_ok(paged_block_mask_validate(mask));
	expect_ok(paged_block_mask_to_logical(mask, &logical));
	expect_ok(paged_block_mask_validate(logical));

	expect_ok(seqs_truncate(client, 1, &mine, &tokens));
	expect_error(paged_block_mask_validate(mask), PAGED_ERR_STALE,
		     "block mask: row 0: pages of sequence " SEQ_FORMAT " were replaced or removed since it was made",
		     SEQ_ARGS(mine));
	paged_block_mask_destroy(mask);
	mask = physical_mask_create(mine, 4);
	expect_ok(paged_block_mask_validate(mask));
	expect_ok(paged_seq_erase(client, 1, &mine));
	cr_assert_eq(paged_block_mask_validate(mask), PAGED_ERR_STALE);
	/* The next sequence in the slot is a different one, even with the same pages. */
	mine = fixture_create_seq(8);
	cr_assert_eq(paged_block_mask_validate(mask), PAGED_ERR_STALE);
}

Test(block_mask_physical, errors_name_row_and_numbers)
{
	static const uint32_t pages[] = { 3, FIXTURE_N_PAGES };
	paged_seq_id seq = fixture_create_seq(8);
	struct paged_batch_row rows[] = { { .seq = seq, .q_len = 1, .kv_len = 8 },
					  { .seq = seq, .q_len = 1, .kv_len = 8 },
					  { .seq = seq, .kv_len = 8 } };
	struct paged_block_mask_params params = physical_mask_params(rows, 2, 1, 4);
	struct paged_block_mask *logical = fixture_mask_create(&params, "true", 0, NULL), *mask = NULL, *odd;
	struct paged_mod *mod = fixture_mod_parse("true", 0, NULL);

	expect_error(paged_block_mask_to_physical(logical, 3, rows, &mask), PAGED_ERR_INVALID,
		     "block mask: 3 rows for a mask of 2");
	expect_error(paged_block_mask_to_physical(logical, 0, rows, &mask), PAGED_ERR_INVALID, "block mask: 0 rows");
	expect_error(paged_block_mask_to_physical(logical, 2, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: rows is NULL");
	expect_error(paged_block_mask_to_physical(logical, 2, rows, NULL), PAGED_ERR_INVALID,
		     "a block mask needs a place for its handle");
	rows[1].kv_len = 9;
	expect_error(paged_block_mask_to_physical(logical, 2, rows, &mask), PAGED_ERR_CAPACITY,
		     "block mask: row 1: 9 tokens need 3 pages of 4, its sequence has 2");
	rows[1].pages = pages;
	expect_error(paged_block_mask_to_physical(logical, 2, rows, &mask), PAGED_ERR_INVALID,
		     "block mask: row 1 names both a sequence and pages");
	rows[1].seq = 0;
	rows[1].n_pages = 2;
	rows[1].kv_len = 8;
	expect_error(paged_block_mask_to_physical(logical, 2, rows, &mask), PAGED_ERR_RANGE,
		     "block mask: row 1: logical page 1 is page 16 of a pool of 16");
	rows[1].pages = NULL;
	expect_error(paged_block_mask_to_physical(logical, 2, rows, &mask), PAGED_ERR_INVALID,
		     "block mask: row 1 names neither a sequence nor pages");
	params.physical = 1;
	expect_error(paged_block_mask_create(pool, &params, mod, 0, NULL, &mask), PAGED_ERR_INVALID,
		     "block mask: row 1 names neither a sequence nor pages");
	params.physical = 0;
	params.kv_block = 6;
	odd = fixture_mask_create(&params, "true", 0, NULL);
	rows[1] = rows[0];
	expect_error(paged_block_mask_to_physical(odd, 2, rows, &mask), PAGED_ERR_INVALID,
		     "block mask: KV blocks of 6 and pages of 4 tokens: neither divides the other");
	expect_ok(paged_block_mask_to_physical(logical, 2, rows, &odd));
	expect_error(paged_block_mask_to_physical(odd, 2, rows, &mask), PAGED_ERR_INVALID,
		     "block mask: it is physical already");
	expect_error(paged_block_mask_crop(odd, 1, 4, &mask), PAGED_ERR_INVALID,
		     "block mask: a physical one has no lengths to crop: crop the logical one");
	expect_ok(paged_seq_erase(client, 1, &seq));
	expect_error(paged_block_mask_to_physical(logical, 2, rows, &mask), PAGED_ERR_STALE,
		     "block mask: row 0: no live sequence " SEQ_FORMAT, SEQ_ARGS(seq));
	cr_assert_null(mask);
}
