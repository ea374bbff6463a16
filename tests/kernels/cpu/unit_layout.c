/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in a pool: no two elements overlap, and offsets exceed 32 bits. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/layout.h"

static struct layout_params
small(void)
{
	return (struct layout_params){ .n_layers = 2,
				       .n_kv_heads = 3,
				       .k_dim = 20,
				       .v_dim = 10,
				       .dtype = PAGED_F16,
				       .page_size = 3,
				       .n_pages = 5 };
}

static void
assert_refused(struct layout_params params, enum paged_status status, const char *words)
{
	struct layout layout;
	struct paged_error error = { 0 };

	cr_assert_eq(layout_init(&layout, &params, &error), status);
	cr_assert_eq(error.status, status);
	cr_assert_not_null(strstr(error.text, words), "'%s' does not contain '%s'", error.text, words);
}

#define REFUSED(status, words, ...)               \
	do {                                      \
		struct layout_params p = small(); \
		__VA_ARGS__;                      \
		assert_refused(p, status, words); \
	} while (0)

Test(layout, refuses_invalid_params)
{
	REFUSED(PAGED_ERR_INVALID, "zero", p.n_layers = 0);
	REFUSED(PAGED_ERR_INVALID, "zero", p.n_kv_heads = 0);
	REFUSED(PAGED_ERR_INVALID, "zero", p.k_dim = 0);
	REFUSED(PAGED_ERR_INVALID, "zero", p.v_dim = 0);
	REFUSED(PAGED_ERR_INVALID, "zero", p.page_size = 0);
	REFUSED(PAGED_ERR_INVALID, "zero", p.n_pages = 0);
	REFUSED(PAGED_ERR_INVALID, "dtype 9", p.dtype = 9);
	REFUSED(PAGED_ERR_INVALID, "dtype 0", p.dtype = PAGED_DTYPE_NONE);
	REFUSED(PAGED_ERR_LIMIT, "page size 257", p.page_size = 257);
	REFUSED(PAGED_ERR_LIMIT, "K dim 577", p.k_dim = 577);
	REFUSED(PAGED_ERR_LIMIT, "V dim 577", p.v_dim = 577);
	REFUSED(PAGED_ERR_INVALID, "V dim 21", p.v_in_k = true, p.v_dim = 21);
	REFUSED(PAGED_ERR_INVALID, "alignment 48", p.alignment = 48);
	REFUSED(PAGED_ERR_LIMIT, "2^63", p.n_layers = UINT32_MAX, p.n_pages = UINT32_MAX);
	REFUSED(PAGED_ERR_LIMIT, "2^63", p.n_kv_heads = UINT32_MAX, p.n_pages = UINT32_MAX, p.n_layers = UINT32_MAX);
}

/* V in K, and scale planes of dtypes without scales: they have no bytes. */
static bool
plane_is_alias(const struct layout_params *p, unsigned int plane)
{
	if (plane >= LAYOUT_K_SCALE && p->dtype != PAGED_I8)
		return true;
	return p->v_in_k && (plane == LAYOUT_V || plane == LAYOUT_V_SCALE);
}

/* Every element lies within the layout, no two elements overlap, and each (page, head) is aligned. */
static void
assert_disjoint(const struct layout *layout)
{
	const struct layout_params *p = &layout->params;
	uint8_t *seen = calloc(1, layout->size);

	for (unsigned int plane = 0; plane < LAYOUT_N_PLANES; plane++)
		for (uint64_t i = 0; i < (uint64_t)p->n_layers * p->n_pages * p->n_kv_heads * p->page_size; i++) {
			uint32_t token = (uint32_t)(i % p->page_size), rest = (uint32_t)(i / p->page_size);
			uint32_t head = rest % p->n_kv_heads, page = rest / p->n_kv_heads % p->n_pages;
			uint32_t layer = rest / p->n_kv_heads / p->n_pages;
			uint64_t at = layout_offset(layout, plane, layer, page, head, token);
			uint64_t bytes =
				(uint64_t)layout->plane[plane].dim * paged_dtype_size(layout->plane[plane].dtype);

			if (plane_is_alias(p, plane))
				break;
			cr_assert(token != 0 || at % p->alignment == 0);
			cr_assert_leq(at + bytes, layout->size);
			for (uint64_t b = at; b < at + bytes; b++)
				cr_assert_eq(seen[b]++, 0);
		}
	free(seen);
}

Test(layout, elements_do_not_overlap)
{
	static const uint32_t alignments[] = { 0, 1, 64, 128 };
	static const enum paged_dtype dtypes[] = { PAGED_F16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct paged_error error;

	for (size_t i = 0; i < 4 * 4; i++)
		for (int v_in_k = 0; v_in_k < 2; v_in_k++) {
			struct layout_params params = small();
			struct layout layout;

			params.alignment = alignments[i % 4];
			params.dtype = dtypes[i / 4];
			params.v_in_k = v_in_k;
			cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
			cr_assert_eq(layout.params.alignment, i % 4 == 0 ? LAYOUT_ALIGNMENT_HOST : alignments[i % 4]);
			cr_assert_eq(layout.page_bytes * params.n_pages, layout.size);
			assert_disjoint(&layout);
		}
}

Test(layout, v_in_k_aliases_k)
{
	struct layout_params params = small();
	struct layout layout;
	struct paged_error error;

	params.v_in_k = true;
	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
	cr_assert_eq(layout_offset(&layout, LAYOUT_V, 1, 4, 2, 1), layout_offset(&layout, LAYOUT_K, 1, 4, 2, 1));
	cr_assert_eq(layout.plane[LAYOUT_V].dim, 10);
}

Test(layout, only_i8_has_scale_planes)
{
	struct layout_params params = small();
	struct layout layout;
	struct paged_error error;

	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
	cr_assert_eq(layout.plane[LAYOUT_K_SCALE].dtype, PAGED_DTYPE_NONE);
	cr_assert_eq(layout.plane[LAYOUT_V_SCALE].dim, 0);
	params.dtype = PAGED_I8;
	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
	/* K and V: one 64-byte cache line per page and head, for 3 tokens of 20 and 10 elements; then the scales. */
	for (unsigned int plane = 0; plane < LAYOUT_N_PLANES; plane++)
		cr_assert_eq(layout.plane[plane].offset, plane * 3 * 64);
	cr_assert_eq(layout.plane[LAYOUT_V_SCALE].dtype, PAGED_F32);
	cr_assert_eq(layout.plane[LAYOUT_V_SCALE].dim, 1);
	cr_assert_eq(layout.plane[LAYOUT_V_SCALE].token_stride, 4);
	cr_assert_eq(layout.page_bytes, 2 * 4 * 3 * 64);
	params.v_in_k = true;
	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
	cr_assert_eq(layout_offset(&layout, LAYOUT_V_SCALE, 1, 4, 2, 1),
		     layout_offset(&layout, LAYOUT_K_SCALE, 1, 4, 2, 1));
	cr_assert_eq(layout.page_bytes, 2 * 2 * 3 * 64);
}

Test(layout, offsets_are_64_bit)
{
	struct layout_params params = { .n_layers = 80,
					.n_kv_heads = 8,
					.k_dim = 128,
					.v_dim = 128,
					.dtype = PAGED_BF16,
					.page_size = 16,
					.n_pages = 4000000 };
	struct layout layout;
	struct paged_error error;
	uint64_t page = 2 * 8 * 16 * 128 * 2;

	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
	cr_assert_eq(layout.size, page * 80 * 4000000);
	cr_assert_eq(layout_offset(&layout, LAYOUT_V, 79, 3999999, 7, 15),
		     79 * (page * 4000000) + 3999999 * page + page / 2 + 7 * 4096 + 15 * 256);
}
