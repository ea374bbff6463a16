/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defects of PyTorch's PagedAttention and BlockMask, by their numbers in this
 * project's list of them, and our behaviour.  Tested elsewhere:
 *
 *  5  assign past the capacity overwrites another sequence's page
 *     unit_torch_class.c; here for the last page of the pool
 * 13  reserve waits for the device and copies the free list in each call
 *     it_steady.c, unit_step_allocations.c
 * 15  new closures, values and shapes are compiled again
 *     unit_client_mods.c; unit_step_allocations.c counts allocations
 * 17  results depend on the placement of pages
 *     unit_attention_invariance.c; here with block masks
 * 19  a cropped mask miscounts rows that are not causal
 *     unit_mask.c
 * 21  a wrong ROWS_GUARANTEED_SAFE gives NaN; our callers promise nothing, and
 *     fully masked rows are 0
 *     unit_torch_decode.c
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/reference.h"
#include "tests/torch/pa_memory.h"
#include "tests/support/sequences.h"
#include "tests/torch/torch_fixture.h"

#define PAGE 4u
#define TOKENS 16u
#define DIM 8u

static struct pa pa;

/* k and v of row b's token t depend only on (seed, b, t); 3 rows of at most 16 tokens, pages of 4, 12 pages. */
static void
open_rows(void)
{
	pa_open(&pa, &(struct pa_params){ .n_pages = 12, .page_size = PAGE, .max_batch = 3, .k_dim = DIM });
}

static void
close_rows(void)
{
	pa_close(&pa);
}

TestSuite(torch_defects, .init = open_rows, .fini = close_rows);

/* Write tokens first .. first + n - 1 of contents `id` at those positions of row b. */
static void
write_tokens(uint32_t b, uint32_t id, uint32_t first, uint32_t n)
{
	float k[TOKENS * DIM], v[TOKENS * DIM];
	uint32_t positions[TOKENS];
	const struct pa_tensor keys = { k, 1, n, DIM, 0, 0, 0 }, values = { v, 1, n, DIM, 0, 0, 0 };

	for (uint32_t i = 0; i < n * DIM; i++) {
		k[i] = random_float(2 * id, first * DIM + i, 1);
		v[i] = random_float(2 * id + 1, first * DIM + i, 1);
	}
	for (uint32_t i = 0; i < n; i++)
		positions[i] = first + i;
	expect_ok(pa_assign(&pa, 0, 1, &b, positions, &keys, &values));
}

#define MAX_ROWS 4u

struct attended {
	float out[MAX_ROWS][2][DIM], lse[MAX_ROWS][2], max_score[MAX_ROWS][2];
};

/* Attention of two query heads with one query row each; all results must be finite. */
static struct attended
attend(const struct pa_rows *rows, struct pa_flex flex)
{
	float q[MAX_ROWS * 2 * DIM];
	struct attended attended;

	memset(&attended, 0, sizeof(attended));
	for (uint32_t i = 0; i < MAX_ROWS * 2 * DIM; i++)
		q[i] = random_float(99, i % (2 * DIM), 1);
	flex.q_heads = 2;
	flex.q = q;
	flex.out = attended.out[0][0];
	flex.lse = attended.lse[0];
	flex.max_score = attended.max_score[0];
	expect_ok(pa_flex_attention(&pa, rows, &flex));
	for (uint32_t r = 0; r < rows->n; r++)
		cr_assert(isfinite(attended.out[r][0][0]) && isfinite(attended.out[r][1][DIM - 1]), "row %u", r);
	return attended;
}

static struct paged_mod *
parse(enum paged_mod_kind kind, const char *text)
{
	return torch_parse(&pa, kind, text, &(struct torch_mods){ 0 });
}

/* A mask of one row with `kv_len` keys: counts and indices, the full blocks first. */
static struct paged_block_mask *
mask_from_lists(uint32_t kv_len, uint32_t kv_block, uint32_t n_full, uint32_t n_partial, const uint32_t *blocks)
{
	const struct paged_batch_row row = { .q_len = 1, .kv_len = kv_len, .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .q_block = 1, .kv_block = kv_block
	};
	const uint64_t full[] = { 0, n_full }, partial[] = { 0, n_partial };
	const struct paged_block_lists lists = { .struct_size = sizeof(lists),
						 .start = { partial, full },
						 .indices = { blocks + n_full, blocks } };
	struct paged_block_mask *mask = NULL;

	expect_ok(paged_block_mask_from_lists(pa.pool, &params, &lists, &mask));
	return mask;
}

/* The lists of the mask's only row, the full blocks first. */
static void
expect_lists(const struct paged_block_mask *mask, uint32_t n_full, uint32_t n_partial, const uint32_t *blocks)
{
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };

	expect_ok(paged_block_mask_lists(mask, &lists));
	cr_assert_eq(lists.start[PAGED_BLOCKS_FULL][1], n_full);
	cr_assert_eq(lists.start[PAGED_BLOCKS_PARTIAL][1], n_partial);
	cr_assert_arr_eq(lists.indices[PAGED_BLOCKS_FULL], blocks, n_full * sizeof(*blocks));
	cr_assert_arr_eq(lists.indices[PAGED_BLOCKS_PARTIAL], blocks + n_full, n_partial * sizeof(*blocks));
}

/* 1: the mods of an erased row stay true on its former pages, which may belong to another row. */
Test(torch_defects, row_01_erased_row_maps_no_page)
{
	struct pa_mod noop = { 0 };
	struct pa_converted_mod mod = pa_get_mask_mod(&pa, &noop, &(struct pa_rows){ .n = 2 });

	expect_ok(pa_reserve(&pa, 0, TOKENS));
	cr_assert(pa_mask_at(&mod, 0, 0, 0, 5));
	expect_ok(pa_erase(&pa, 1, (uint32_t[]){ 0 }));
	expect_ok(pa_reserve(&pa, 1, TOKENS));
	for (uint32_t physical = 0; physical < 12 * PAGE; physical++)
		cr_assert_not(pa_mask_at(&mod, 0, 0, 0, physical));
	cr_assert(pa_mask_at(&mod, 1, 0, 0, 5));
}

/* 1: after erase, other tokens in the same pages: neither old tokens nor unwritten ones are visible. */
Test(torch_defects, row_01_erased_pages_are_reused)
{
	struct attended fresh, again;

	expect_ok(pa_reserve(&pa, 0, 7));
	write_tokens(0, 5, 0, 7);
	fresh = attend(&(struct pa_rows){ .n = 1, .kv_len = (uint32_t[]){ 7 } }, (struct pa_flex){ 0 });
	expect_ok(pa_erase(&pa, 1, (uint32_t[]){ 0 }));
	pa_fill_bytes(pa.info.base, 0xff, pa.info.size);
	expect_ok(pa_reserve(&pa, 2, TOKENS));
	write_tokens(2, 5, 0, 7);
	again = attend(&(struct pa_rows){ .n = 1, .batch_idx = (uint32_t[]){ 2 }, .kv_len = (uint32_t[]){ 7 } },
		       (struct pa_flex){ 0 });
	cr_assert_arr_eq(&again, &fresh, sizeof(fresh));
}

/* 2: erasing twice, or one row twice in a call, frees its pages twice. */
Test(torch_defects, row_02_no_double_free)
{
	pa_batch_reserve(&pa, 3, (uint32_t[]){ 8, 8, 8 });
	(void)pa_erase(&pa, 2, (uint32_t[]){ 1, 1 });
	expect_ok(pa_erase(&pa, 1, (uint32_t[]){ 1 }));
	cr_assert_eq(pa_n_free(&pa), 12 - 4);
	expect_ok(pa_erase(&pa, 3, (uint32_t[]){ 2, 0, 1 }));
	cr_assert_eq(pa_n_free(&pa), 12);
}

/* 3: with a batch other than 0 .. n - 1, mods read the page table of another row. */
Test(torch_defects, row_03_batch_subset_uses_its_own_rows)
{
	struct pa_mod by_row = { .mod = parse(PAGED_MOD_MASK, "b == 0 ? kv_idx < 3 : kv_idx < 5") };
	struct pa_rows rows = { .n = 2, .batch_idx = (uint32_t[]){ 2, 0 }, .kv_len = (uint32_t[]){ 16, 11 } };
	struct pa_converted_mod mod = pa_get_mask_mod(&pa, &by_row, &rows);
	struct attended both, one;
	uint32_t pages[4];

	pa_batch_reserve(&pa, 3, (uint32_t[]){ TOKENS, TOKENS, TOKENS });
	for (uint32_t b = 0; b < 3; b++)
		write_tokens(b, b, 0, TOKENS);
	pa_pages(&pa, 2, pages, 4);
	for (uint32_t t = 0; t < TOKENS; t++)
		cr_assert_eq(pa_mask_at(&mod, 0, 0, 0, pages[t / PAGE] * PAGE + t % PAGE), t < 3);
	pa_pages(&pa, 0, pages, 4);
	for (uint32_t t = 0; t < TOKENS; t++)
		cr_assert_eq(pa_mask_at(&mod, 1, 0, 0, pages[t / PAGE] * PAGE + t % PAGE), t < 5);
	both = attend(&rows, (struct pa_flex){ .mask_mod = by_row.mod });
	one = attend(&(struct pa_rows){ .n = 1, .batch_idx = (uint32_t[]){ 2 }, .kv_len = (uint32_t[]){ 3 } },
		     (struct pa_flex){ 0 });
	cr_assert_arr_eq(both.out[0], one.out[0], sizeof(one.out[0]));
	one = attend(&(struct pa_rows){ .n = 1, .batch_idx = (uint32_t[]){ 0 }, .kv_len = (uint32_t[]){ 5 } },
		     (struct pa_flex){ 0 });
	cr_assert_arr_eq(both.out[1], one.out[0], sizeof(one.out[0]));
}

/* 4, 12: a mask longer than its row's pages: negative indices, indices of other rows, or a raw index error. */
Test(torch_defects, row_04_mask_longer_than_its_row_is_refused)
{
	static const uint32_t blocks[] = { 0, 1, 2, 3 };
	struct paged_block_mask *mask = mask_from_lists(TOKENS, PAGE, 4, 0, blocks), *converted = NULL;
	struct pa_rows rows = { .n = 1, .kv_len = (uint32_t[]){ TOKENS } };

	expect_ok(pa_reserve(&pa, 0, 6));
	expect_error(pa_convert_logical_block_mask(&pa, mask, &rows, &converted), PAGED_ERR_CAPACITY,
		     "block mask: row 0: 16 tokens need 4 pages of 4, its sequence has 2");
	rows.kv_len = NULL;
	expect_ok(pa_convert_logical_block_mask(&pa, mask, &rows, &converted));
	expect_lists(converted, 2, 0, (uint32_t[]){ 1, 0 });
}

/* 5: a token past the reserved length is written to the last page of the pool. */
Test(torch_defects, row_05_last_page_is_not_overwritten)
{
	float zeros[DIM] = { 0 };
	const struct pa_tensor k = { zeros, 1, 1, DIM, 0, 0, 0 };
	uint32_t pages[4], b = 0;

	pa_batch_reserve(&pa, 3, (uint32_t[]){ 4, TOKENS, TOKENS });
	write_tokens(2, 2, 0, TOKENS);
	pa_pages(&pa, 2, pages, 4);
	cr_assert_eq(pages[0], 8);
	expect_ok(pa_reserve(&pa, 0, 8 + PAGE));
	pa_row_is(&pa, 0, 0, 10, 9);
	cr_assert_eq(pa_assign(&pa, 0, 1, &b, (uint32_t[]){ 12 }, &k, &k), PAGED_ERR_CAPACITY);
	for (uint32_t physical = 8 * PAGE; physical < 9 * PAGE; physical++)
		cr_assert(pa_cached(&pa, 'k', 0, physical, 0) != 0);
}

/* 6: full blocks contain the end of a sequence, and tokens past it (here NaN) are attended. */
Test(torch_defects, row_06_full_blocks_end_at_kv_len)
{
	static const uint32_t blocks[] = { 0, 1, 2, 3 };
	struct pa_rows rows = { .n = 1, .kv_len = (uint32_t[]){ 6 } };
	struct paged_block_mask *mask = mask_from_lists(TOKENS, PAGE, 4, 0, blocks), *converted = NULL;
	struct attended expected, got;

	expect_ok(pa_reserve(&pa, 0, TOKENS));
	write_tokens(0, 0, 0, 6);
	expect_ok(pa_convert_logical_block_mask(&pa, mask, &rows, &converted));
	expect_lists(converted, 1, 1, (uint32_t[]){ 3, 2 });
	expected = attend(&rows, (struct pa_flex){ 0 });
	got = attend(&rows, (struct pa_flex){ .block_mask = mask });
	cr_assert_arr_eq(&got, &expected, sizeof(got));
	got = attend(&rows, (struct pa_flex){ .block_mask = converted });
	cr_assert_arr_eq(&got, &expected, sizeof(got));
}

/* Copy data to the end of a page whose next page is inaccessible. */
static void *
alloc_before_guard_page(const void *data, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq((void *)memory, MAP_FAILED);
	cr_assert_eq(mprotect(memory + page, page, PROT_NONE), 0);
	return memcpy(memory + page - size, data, size);
}

/* 7: mods run before it is known whether a key is live: arrays are read at -page_size and past the length. */
Test(torch_defects, row_07_arrays_are_read_at_live_keys_only)
{
	static const float bias[] = { 1, -1, 0.5f, 2, 0, 1 };
	static const int32_t document[] = { 0, 0, 1, 1, 1, 0 };
	const struct paged_array arrays[] = {
		{ .name = "bias",
		  .dtype = PAGED_F32,
		  .n_dims = 1,
		  .extents = { 6 },
		  .data = alloc_before_guard_page(bias, 24) },
		{ .name = "doc",
		  .dtype = PAGED_I32,
		  .n_dims = 1,
		  .extents = { 6 },
		  .data = alloc_before_guard_page(document, 24) },
	};
	struct torch_mods mods = { "doc[q_idx] == doc[kv_idx]", "score + bias[kv_idx]", arrays, 2 };
	struct paged_mod *mask_mod = torch_parse(&pa, PAGED_MOD_MASK, mods.mask, &mods);
	struct paged_mod *score_mod = torch_parse(&pa, PAGED_MOD_SCORE, mods.score, &mods);
	struct pa_rows rows = { .n = 1, .kv_len = (uint32_t[]){ 6 }, .q_base = (int64_t[]){ 5 } };
	struct pa_flex flex = { .mask_mod = mask_mod, .score_mod = score_mod, .arrays = arrays, .n_arrays = 2 };
	struct paged_block_mask *partial = mask_from_lists(6, PAGE, 0, 2, (uint32_t[]){ 0, 1 });

	expect_ok(pa_reserve(&pa, 0, TOKENS));
	write_tokens(0, 0, 0, 6);
	/* paged_batch_validate() was called in both: no index was out of bounds. */
	attend(&rows, flex);
	flex.block_mask = partial;
	attend(&rows, flex);
}

/* 8: eager mode ignores the lists, compiled mode trusts them. Here every path visits exactly the listed blocks. */
Test(torch_defects, row_08_block_lists_apply_on_every_path)
{
	struct paged_block_mask *mask;
	struct pa_rows rows = { .n = 1, .kv_len = (uint32_t[]){ TOKENS } };
	struct attended got, expected;

	for (enum kernel_isa isa = KERNEL_GENERIC; isa < KERNEL_N_ISAS; isa++) {
		if (!torch_isa(isa))
			continue;
		pa_close(&pa);
		open_rows();
		expect_ok(pa_reserve(&pa, 0, TOKENS));
		write_tokens(0, 0, 0, TOKENS);
		/*
		 * Block 0 is full although the mod excludes it; block 1 is partial, by the mod; 2
		 * and 3 are not listed.
		 */
		mask = mask_from_lists(TOKENS, PAGE, 1, 1, (uint32_t[]){ 0, 1 });
		got = attend(&rows,
			     (struct pa_flex){ .mask_mod = parse(PAGED_MOD_MASK, "kv_idx >= 6"), .block_mask = mask });
		expected = attend(
			&rows, (struct pa_flex){ .mask_mod = parse(PAGED_MOD_MASK, "kv_idx < 4 || kv_idx / 2 == 3") });
		cr_assert_arr_eq(&got, &expected, sizeof(got));
	}
}

/* 9: pages in several rows, and one page twice in a row, by explicit tables; erase frees each once. */
Test(torch_defects, row_09_pages_are_shared)
{
	float q[3 * 2 * DIM], out[3][2][DIM], lse[3][2];
	struct paged_tensor qt = { .dtype = PAGED_F32, .n_heads = 2, .dim = DIM };
	struct paged_tensor ot = { .dtype = PAGED_F32, .n_heads = 2, .dim = DIM };
	struct paged_attention_params params = { .struct_size = sizeof(params), .mask = PAGED_MASK_NONE };
	uint32_t first[4], second[4];
	struct pa_device_copies copies = { .n = 0 };
	struct attended alone[3];

	pa_batch_reserve(&pa, 3, (uint32_t[]){ 8, 8, TOKENS });
	write_tokens(0, 1, 0, 8);
	write_tokens(1, 1, 0, 4);
	write_tokens(1, 2, 4, 4);
	pa_pages(&pa, 0, first, 4);
	pa_pages(&pa, 1, second, 4);
	/* Row 1 has a copy of row 0's prefix in its own page; row 2 has that page twice. */
	write_tokens(2, 1, 0, 4);
	for (uint32_t i = 0; i < 3; i++)
		alone[i] = attend(&(struct pa_rows){ .n = 1, .batch_idx = &i, .kv_len = (uint32_t[]){ i < 2 ? 8 : 4 } },
				  (struct pa_flex){ 0 });
	for (uint32_t i = 0; i < 3 * 2 * DIM; i++)
		q[i] = random_float(99, i % (2 * DIM), 1);
	expect_ok(paged_batch_plan(
		pa.batch, 3,
		(struct paged_batch_row[]){
			{ .pages = first, .n_pages = 2, .q_len = 1, .kv_len = 8 },
			{ .pages = (uint32_t[]){ first[0], second[1] }, .n_pages = 2, .q_len = 1, .kv_len = 8 },
			{ .pages = (uint32_t[]){ first[0], first[0] }, .n_pages = 2, .q_len = 1, .kv_len = 8 },
		}));
	qt.data = pa_upload(&copies, q, sizeof(q));
	ot.data = pa_upload_output(&copies, out, sizeof(out));
	params.lse = pa_upload_output(&copies, lse, sizeof(lse));
	expect_ok(paged_attention(pa.batch, 0, &qt, &ot, &params));
	pa_download_outputs(&copies);
	cr_assert_arr_eq(out[0], alone[0].out[0], sizeof(out[0]));
	cr_assert_arr_eq(out[1], alone[1].out[0], sizeof(out[1]));
	/* Every key is there twice: the same mean, and an LSE larger by log 2. */
	for (uint32_t d = 0; d < DIM; d++)
		cr_assert_float_eq(out[2][0][d], alone[2].out[0][0][d], 1e-6f);
	cr_assert_float_eq(lse[2][0], alone[2].lse[0][0] + logf(2), 1e-6f);
	expect_ok(pa_erase(&pa, 3, (uint32_t[]){ 0, 1, 2 }));
	cr_assert_eq(pa_n_free(&pa), 12);
}

static uint64_t
resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long size = 0, pages = 0;

	cr_assert_eq(fscanf(file, "%lu %lu", &size, &pages), 2);
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * 10, 11: at 4096 sequences and 32768 pages PyTorch's tables take 2 GiB, and
 * the lists of one decode mask 1 GiB.
 */
Test(torch_defects, row_10_11_page_tables_grow_with_use)
{
	const struct paged_pool_params geometry = { .struct_size = sizeof(geometry),
						    .name = "large",
						    .n_layers = 1,
						    .n_kv_heads = 1,
						    .k_dim = 1,
						    .dtype = PAGED_F16,
						    .page_size = 128,
						    .n_pages = 32768,
						    .n_slots = 4096 };
	struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .n_rows = 4096, .q_block = 1, .physical = 1
	};
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_batch_row *rows = calloc(4096, sizeof(*rows));
	uint32_t *tokens = calloc(4096, sizeof(*tokens));
	paged_seq_id *ids = calloc(4096, sizeof(*ids));
	uint64_t before = resident_bytes();
	struct paged_pool *large = NULL;
	struct paged_block_mask *mask = NULL;
	struct paged_client *own = NULL;
	struct paged_mod *causal = NULL;

	cr_assert_eq(paged_client_open_embedded(&geometry, 1, NULL, &own), PAGED_OK);
	cr_assert_eq(paged_pool_open(own, "large", &large), PAGED_OK);
	cr_assert_eq(seqs_create(own, large, 4096, ids), PAGED_OK);
	for (uint32_t i = 0; i < 4096; i++)
		tokens[i] = 1024;
	cr_assert_eq(seqs_reserve(own, 4096, ids, tokens), PAGED_OK, "%s", paged_client_error(own));
	for (uint32_t i = 0; i < 4096; i++)
		rows[i] = (struct paged_batch_row){ .seq = ids[i], .q_len = 1, .kv_len = 1000 };
	params.rows = rows;
	cr_assert_eq(paged_mod_parse(large, PAGED_MOD_MASK, "causal", 0, NULL, &causal), PAGED_OK);
	cr_assert_eq(paged_block_mask_create(large, &params, causal, 0, NULL, &mask), PAGED_OK, "%s",
		     paged_client_error(own));
	cr_assert_eq(paged_block_mask_get_info(mask, &info), PAGED_OK);
	cr_assert_eq(info.n_blocks, 32768);
	cr_assert_leq(info.bytes, UINT64_C(1) << 20);
	cr_assert_leq(resident_bytes() - before, UINT64_C(64) << 20);
	paged_client_close(own);
	free(rows);
	free(tokens);
	free(ids);
}

/* 12: a mask of one row for several sequences gives all of them the pages of the first. */
Test(torch_defects, row_12_one_mask_for_every_sequence)
{
	static const uint32_t blocks[] = { 0, 1 };
	struct paged_block_mask *mask = mask_from_lists(8, PAGE, 2, 0, blocks), *converted = NULL;
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };

	pa_batch_reserve(&pa, 3, (uint32_t[]){ 4, 8, 8 });
	expect_ok(pa_convert_logical_block_mask(&pa, mask, &(struct pa_rows){ .n = 3 }, &converted));
	expect_ok(paged_block_mask_lists(converted, &lists));
	cr_assert_arr_eq(lists.indices[PAGED_BLOCKS_FULL], ((uint32_t[]){ 0, 2, 1, 4, 3 }), 5 * sizeof(uint32_t));
	cr_assert_arr_eq(lists.start[PAGED_BLOCKS_FULL], ((uint64_t[]){ 0, 1, 3, 5 }), 4 * sizeof(uint64_t));
}

/* 14: create_block_mask first makes the dense matrix, 16 GiB for this mask. */
Test(torch_defects, row_14_no_dense_matrix)
{
	const struct paged_batch_row row = { .q_len = 131072, .kv_len = 131072, .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_block_mask *mask = NULL;
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	expect_ok(paged_block_mask_create(pa.pool, &params, parse(PAGED_MOD_MASK, "causal"), 0, NULL, &mask));
	getrusage(RUSAGE_SELF, &after);
	expect_ok(paged_block_mask_get_info(mask, &info));
	cr_assert_eq(info.n_blocks, 1024 * 1025 / 2);
	cr_assert_leq(info.bytes, UINT64_C(4) << 20);
	cr_assert_leq(after.ru_maxrss - before.ru_maxrss, 32l << 10);
}

/* 16: offsets past 2^31 elements and bytes; the pool takes 5 GiB of addresses but little memory. */
Test(torch_defects, row_16_64_bit_offsets)
{
	const struct paged_pool_params geometry = { .struct_size = sizeof(geometry),
						    .name = "far",
						    .n_layers = 1,
						    .n_kv_heads = 1,
						    .k_dim = 64,
						    .dtype = PAGED_F16,
						    .page_size = 16,
						    .n_pages = 1300000,
						    .n_slots = 1,
						    .max_length = 1024 };
	const uint32_t tables[2][2] = { { 0, 1 }, { 1299999, 1100000 } };
	float k[20 * 64], v[20 * 64], q[64], out[2][64];
	const struct paged_tensor kt = { .data = k, .dtype = PAGED_F32, .n_heads = 1, .dim = 64 };
	const struct paged_tensor vt = { .data = v, .dtype = PAGED_F32, .n_heads = 1, .dim = 64 };
	const struct paged_tensor qt = { .data = q, .dtype = PAGED_F32, .n_heads = 1, .dim = 64 };
	struct paged_client *own = NULL;
	struct paged_pool *far = NULL;
	struct paged_batch *batch = NULL;

	for (uint32_t i = 0; i < 20 * 64; i++) {
		k[i] = random_float(1, i, 1);
		v[i] = random_float(2, i, 1);
		q[i % 64] = random_float(3, i, 1);
	}
	cr_assert_eq(paged_client_open_embedded(&geometry, 1, NULL, &own), PAGED_OK, "%s", paged_client_error(own));
	cr_assert_eq(paged_pool_open(own, "far", &far), PAGED_OK);
	cr_assert_eq(paged_batch_create(far, NULL, &batch), PAGED_OK);
	for (uint32_t i = 0; i < 2; i++) {
		struct paged_batch_row row = { .pages = tables[i], .n_pages = 2, .q_len = 20, .kv_len = 20 };
		const struct paged_tensor ot = { .data = out[i], .dtype = PAGED_F32, .n_heads = 1, .dim = 64 };

		cr_assert_eq(paged_batch_plan(batch, 1, &row), PAGED_OK);
		cr_assert_eq(paged_append(batch, 0, &kt, &vt, NULL), PAGED_OK, "%s", paged_client_error(own));
		row.q_len = 1;
		cr_assert_eq(paged_batch_plan(batch, 1, &row), PAGED_OK);
		cr_assert_eq(paged_attention(batch, 0, &qt, &ot, NULL), PAGED_OK);
	}
	cr_assert_arr_eq(out[0], out[1], sizeof(out[0]));
	paged_client_close(own);
}

/* 17, 18: a mask's blocks may be pages, parts of pages or multiples of pages; the bits of the result are the same. */
Test(torch_defects, row_17_18_any_block_size)
{
	static const uint32_t sizes[] = { 1, 2, 4, 8, 16 };
	static const char text[] = "kv_idx % 7 != 3 && kv_idx < 13";
	const struct paged_batch_row row = { .q_len = 1, .kv_len = TOKENS, .flags = PAGED_ROW_Q_BASE };
	struct attended first, got;

	pa_batch_reserve(&pa, 2, (uint32_t[]){ 4, 4 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 12, 8 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ TOKENS, TOKENS });
	write_tokens(0, 0, 0, TOKENS);
	write_tokens(1, 0, 0, TOKENS);
	first = attend(&(struct pa_rows){ .n = 1 }, (struct pa_flex){ .mask_mod = parse(PAGED_MOD_MASK, text) });
	for (uint32_t i = 0; i < 2 * 5; i++) {
		const struct pa_rows rows = { .n = 1, .batch_idx = (uint32_t[]){ i / 5 } };
		const struct paged_block_mask_params params = {
			.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .kv_block = sizes[i % 5]
		};
		struct pa_flex flex = { .mask_mod = parse(PAGED_MOD_MASK, text) };
		struct paged_block_mask *mask = NULL, *converted = NULL;

		expect_ok(paged_block_mask_create(pa.pool, &params, flex.mask_mod, 0, NULL, &mask));
		expect_ok(pa_convert_logical_block_mask(&pa, mask, &rows, &converted));
		flex.block_mask = mask;
		got = attend(&rows, flex);
		cr_assert_arr_eq(&got, &first, sizeof(got), "blocks of %u", sizes[i % 5]);
		flex.block_mask = converted;
		got = attend(&rows, flex);
		cr_assert_arr_eq(&got, &first, sizeof(got), "pages, of blocks of %u", sizes[i % 5]);
	}
}

/* 20: sparsity() of a 1 x 2048 mask with all of its 16 blocks is -12,700 %. */
Test(torch_defects, row_20_sparsity_counts_blocks)
{
	const struct paged_batch_row row = { .q_len = 1, .kv_len = 2048, .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };
	struct paged_block_mask *mask = NULL;

	expect_ok(paged_block_mask_create(pa.pool, &params, parse(PAGED_MOD_MASK, "true"), 0, NULL, &mask));
	expect_ok(paged_block_mask_get_info(mask, &info));
	cr_assert_eq(info.n_blocks, 16);
	cr_assert_eq(info.sparsity, 0);
	expect_ok(paged_block_mask_create(pa.pool, &params, parse(PAGED_MOD_MASK, "kv_idx < 512"), 0, NULL, &mask));
	expect_ok(paged_block_mask_get_info(mask, &info));
	cr_assert_eq(info.sparsity, 75);
}

/* 22: PyTorch reports mismatched lengths with other numbers ("S=1 and S=1"). */
Test(torch_defects, row_22_error_texts_contain_the_values)
{
	static const uint32_t blocks[] = { 0, 1 };
	struct paged_block_mask *mask = mask_from_lists(8, PAGE, 2, 0, blocks);
	struct pa_rows rows = { .n = 1, .kv_len = (uint32_t[]){ 12 } };
	float q[3 * DIM] = { 0 }, out[3 * DIM];
	struct pa_flex flex = { .block_mask = mask, .q_heads = 1, .q = q, .out = out };

	expect_ok(pa_reserve(&pa, 0, TOKENS));
	expect_error(pa_flex_attention(&pa, &rows, &flex), PAGED_ERR_INVALID,
		     "row 0: kv_len is 12, its block mask was made for 8");
	rows.kv_len = (uint32_t[]){ 8 };
	rows.q_len = (uint32_t[]){ 3 };
	expect_error(pa_flex_attention(&pa, &rows, &flex), PAGED_ERR_INVALID,
		     "row 0: 3 query rows, its block mask was made for 1");
}
