/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's tests of its class PagedAttention, ported one to one: page tables, caches, errors. */
#include "tests/torch/pa_memory.h"
#include "tests/torch/paged_attention.h"

/* PyTorch's rounds of reserves: rows 0 3 5 7 and 2 1 4 6. */
static void
reserve_in_four_rounds(struct pa *pa)
{
	pa_batch_reserve(pa, 2, (uint32_t[]){ 100, 200 });
	pa_batch_reserve(pa, 2, (uint32_t[]){ 150, 300 });
	pa_batch_reserve(pa, 2, (uint32_t[]){ 300, 512 });
	pa_batch_reserve(pa, 2, (uint32_t[]){ 512, 512 });
	pa_row_is(pa, 0, 0, 3, 5, 7);
	pa_row_is(pa, 1, 2, 1, 4, 6);
}

/* The table of test_convert_logical_block_mask. */
Test(torch_class, reserve_in_rounds)
{
	struct pa pa;

	pa_open(&pa, &(struct pa_params){ .n_pages = 8, .page_size = 128, .max_batch = 2 });
	reserve_in_four_rounds(&pa);
	cr_assert_eq(pa_capacity(&pa, 0), 512);
	cr_assert_eq(pa_capacity(&pa, 1), 512);
	pa_close(&pa);
}

Test(torch_class, test_page_allocation)
{
	struct pa pa;

	pa_open(&pa, &(struct pa_params){ .n_pages = 12, .page_size = 4, .max_batch = 3 });
	pa_batch_reserve(&pa, 3, (uint32_t[]){ 8, 24, 16 });
	expect_error(pa_reserve(&pa, 0, 16), PAGED_ERR_FULL, "pool torch: 2 pages requested, 0 free (0 quarantined)");
	pa_row_is(&pa, 0, 1, 0);
	expect_ok(pa_erase(&pa, 1, (uint32_t[]){ 1 }));
	expect_ok(pa_reserve(&pa, 0, 16));
	pa_row_is(&pa, 0, 1, 0, 3, 2);
	pa_close(&pa);
}

static void
capacities_are(const struct pa *pa, const uint32_t *target)
{
	uint32_t n_pages = 0;

	for (uint32_t b = 0; b < 3; b++) {
		cr_assert_eq(pa_capacity(pa, b), (target[b] + 3) / 4 * 4, "row %u", b);
		n_pages += (target[b] + 3) / 4;
	}
	cr_assert_eq(pa_n_free(pa), 12 - n_pages);
}

Test(torch_class, test_allocate)
{
	struct pa pa;

	pa_open(&pa, &(struct pa_params){ .n_pages = 12, .page_size = 4, .max_batch = 3 });
	pa_batch_reserve(&pa, 3, (uint32_t[]){ 3, 11, 8 });
	capacities_are(&pa, (uint32_t[]){ 3, 11, 8 });
	expect_ok(pa_erase(&pa, 1, (uint32_t[]){ 1 }));
	capacities_are(&pa, (uint32_t[]){ 3, 0, 8 });
	pa_batch_reserve(&pa, 3, (uint32_t[]){ 7, 2, 10 });
	capacities_are(&pa, (uint32_t[]){ 7, 2, 10 });
	expect_ok(pa_erase(&pa, 3, (uint32_t[]){ 0, 1, 2 }));
	capacities_are(&pa, (uint32_t[]){ 0, 0, 0 });
	pa_close(&pa);
}

/* Never shrinks; a length that fits changes nothing. */
Test(torch_class, reserve_is_absolute)
{
	struct pa pa;

	pa_open(&pa, &(struct pa_params){ .n_pages = 12, .page_size = 4, .max_batch = 3 });
	expect_ok(pa_reserve(&pa, 1, 0));
	cr_assert_eq(pa_capacity(&pa, 1), 0);
	for (uint32_t seq_len = 1; seq_len <= 12; seq_len++)
		expect_ok(pa_reserve(&pa, 1, seq_len));
	pa_row_is(&pa, 1, 0, 1, 2);
	expect_ok(pa_reserve(&pa, 1, 5));
	pa_row_is(&pa, 1, 0, 1, 2);
	pa_close(&pa);
}

/* Token t of head h of row b in the cache, three dims from `first` on. */
static void
cache_has(const struct pa *pa, uint32_t head, uint32_t physical, float first)
{
	for (uint32_t d = 0; d < 3; d++)
		cr_assert_eq(pa_cached(pa, 'k', head, physical, d), first + (float)d, "head %u token %u", head,
			     physical);
}

Test(torch_class, test_update)
{
	static const float first[2][12] = { { 0, 3, 42, 45, 36, 39, 6, 9, 48, 51, 12, 15 },
					    { 18, 21, 60, 63, 54, 57, 24, 27, 66, 69, 30, 33 } };
	float arange[2 * 2 * 6 * 3];
	const struct pa_tensor k = { .data = arange, .n_heads = 2, .n_tokens = 6, .dim = 3 };
	struct pa pa;

	for (uint32_t i = 0; i < sizeof(arange) / sizeof(*arange); i++)
		arange[i] = (float)i;
	pa_open(&pa, &(struct pa_params){ .n_pages = 6, .page_size = 2, .max_batch = 2, .kv_heads = 2, .k_dim = 3 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 1, 3 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 4, 5 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 6, 6 });
	pa_row_is(&pa, 0, 0, 3, 5);
	pa_row_is(&pa, 1, 2, 1, 4);
	pa_fill(&pa, 0, 2, &k, &k);
	for (uint32_t head = 0; head < 2; head++)
		for (uint32_t physical = 0; physical < 12; physical++)
			cache_has(&pa, head, physical, first[head][physical]);
	pa_close(&pa);
}

/* A subset of rows in any order, positions in any order. */
Test(torch_class, assign_any_positions)
{
	float values[2 * 2 * 3];
	const struct pa_tensor k = { .data = values, .n_heads = 1, .n_tokens = 2, .dim = 3 };
	struct pa pa;

	for (uint32_t i = 0; i < 12; i++)
		values[i] = (float)i;
	pa_open(&pa, &(struct pa_params){ .n_pages = 6, .page_size = 2, .max_batch = 3, .k_dim = 3 });
	pa_batch_reserve(&pa, 3, (uint32_t[]){ 2, 4, 4 });
	pa_row_is(&pa, 1, 2, 1);
	pa_row_is(&pa, 2, 4, 3);
	expect_ok(pa_assign(&pa, 0, 2, (uint32_t[]){ 2, 1 }, (uint32_t[]){ 3, 0, 1, 2 }, &k, &k));
	cache_has(&pa, 0, 3 * 2 + 1, 0);
	cache_has(&pa, 0, 4 * 2, 3);
	cache_has(&pa, 0, 2 * 2 + 1, 6);
	cache_has(&pa, 0, 1 * 2, 9);
	/* Other rows are unchanged: row 0 keeps its tokens. */
	cr_assert(pa_cached(&pa, 'k', 0, 0, 0) != pa_cached(&pa, 'k', 0, 0, 0));
	pa_close(&pa);
}

/* Each of PyTorch's six checks, and positions outside the row. */
Test(torch_class, assign_checks_arguments)
{
	float values[2 * 2 * 2 * 3] = { 0 };
	struct pa_tensor k = { .data = values, .n_heads = 2, .n_tokens = 2, .dim = 3 }, v = k;
	struct pa pa;

	pa_open(&pa, &(struct pa_params){ .n_pages = 6, .page_size = 2, .max_batch = 2, .kv_heads = 2, .k_dim = 3 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 2, 2 });
	k.n_heads = 1;
	expect_error(pa_assign(&pa, 0, 1, NULL, (uint32_t[]){ 0, 1 }, &k, &v), PAGED_ERR_INVALID,
		     "k has 1 heads, not 2");
	k = v;
	k.dim = 2;
	expect_error(pa_assign(&pa, 0, 1, NULL, (uint32_t[]){ 0, 1 }, &k, &v), PAGED_ERR_INVALID,
		     "k has heads of 2 dims, not 3");
	k = v;
	v.dim = 1;
	expect_error(pa_assign(&pa, 0, 1, NULL, (uint32_t[]){ 0, 1 }, &k, &v), PAGED_ERR_INVALID,
		     "v has heads of 1 dims, not 3");
	v = k;
	/* The GPU kernel finds a wrong position, and its report names only the row. */
	expect_error(pa_assign(&pa, 0, 1, NULL, (uint32_t[]){ 0, 12 }, &k, &v), PAGED_ERR_CAPACITY,
		     pa_on_cuda ? "row 0: tokens past the 2 that it has room for"
				: "row 0: position 12 is past the 2 tokens it has room for");
	expect_error(pa_assign(&pa, 0, 1, NULL, (uint32_t[]){ 0, (uint32_t)-1 }, &k, &v),
		     pa_on_cuda ? PAGED_ERR_RANGE : PAGED_ERR_CAPACITY,
		     pa_on_cuda
			     ? "row 0: a token to append lies before position 0 or past max_length 12, or has a rotary "
			       "position at or past n_positions"
			     : "row 0: position 4294967295 is past the 2 tokens it has room for");
	pa_close(&pa);
}
