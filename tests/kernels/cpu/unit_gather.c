/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering tokens from pages, and copies between pages: against plain loops. */
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype pools[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
static const float k_scales[] = { 0.5f, 3.1f, 1e-3f }, v_scales[] = { 7, 0.3f, 1 };

#define KV_HEADS 3u
#define N_ROWS 4u

/* Row 2 is a prefix of row 0 in the same pages. */
struct gather_fixture {
	struct kernel_fixture base;
	struct kernel_row rows[N_ROWS];
	uint32_t id[N_ROWS];
	uint32_t begin[N_ROWS], end[N_ROWS];
	bool bounds;
	uint32_t total;
};

static void
gather_fixture_create(struct gather_fixture *fixture, uint32_t i, bool v_in_k)
{
	static const uint32_t page_sizes[] = { 1, 3, 16, 64 };
	enum paged_dtype pool = pools[i % COUNT(pools)];
	bool scales = pool == PAGED_E4M3 || pool == PAGED_E5M2;
	struct kernel_fixture_params params = { .seed = test_seed() + i,
						.placement = i,
						.q_heads = KV_HEADS,
						.kv_heads = KV_HEADS,
						.k_dim = 5 + i * 7 % 60,
						.v_dim = v_in_k ? 5 : 3 + i * 11 % 70,
						.v_in_k = v_in_k,
						.pool = pool,
						.q = PAGED_F32,
						.out = PAGED_F32,
						.page_size = page_sizes[i / COUNT(pools) % 4],
						.k_scale = scales ? k_scales : NULL,
						.v_scale = scales && !v_in_k ? v_scales : NULL,
						.n_rows = 3,
						.rows = { { 1, 37, 1, 36 }, { 2, 1, 0, 0 }, { 3, 70, 1, 69 } } };
	static const uint32_t base_row[N_ROWS] = { 0, 1, 0, 2 };

	*fixture = (struct gather_fixture){ .bounds = i % 3 != 0 };
	kernel_fixture_create(&fixture->base, &params);
	for (uint32_t r = 0; r < N_ROWS; r++) {
		struct kernel_row *row = &fixture->rows[r];

		*row = fixture->base.rows[base_row[r]];
		fixture->id[r] = base_row[r] + 1;
		if (r == 2)
			row->kv_len = 20;
		fixture->begin[r] = fixture->bounds ? random_bits(i, r) % (row->kv_len + 1) : 0;
		fixture->end[r] = row->kv_len;
		if (fixture->bounds)
			fixture->end[r] -= random_bits(i, r + 3) % (row->kv_len - fixture->begin[r] + 1);
		fixture->total += fixture->end[r] - fixture->begin[r];
	}
}

static void
gather_fixture_run(struct gather_fixture *fixture, struct kernel_tensor k, struct kernel_tensor v, enum kernel_isa isa)
{
	const struct kernel_fixture_params *p = &fixture->base.params;
	struct kernel_team *team = kernel_test_team(2, isa);

	kernel_gather(team, &(struct gather_args){
				    .pages = { &fixture->base.layout, fixture->base.pool, KERNEL_FIXTURE_LAYER },
				    .rows = fixture->rows,
				    .n_rows = N_ROWS,
				    .begin = fixture->bounds ? fixture->begin : NULL,
				    .end = fixture->bounds ? fixture->end : NULL,
				    .k = k,
				    .v = v,
				    .k_scale = p->k_scale,
				    .v_scale = p->v_scale });
	kernel_team_destroy(team);
}

static void
element_check(const struct kernel_tensor *got, uint64_t packed_token, uint32_t h, uint32_t d, float expected)
{
	uint32_t bits = 0, expected_bits = 0;
	const uint8_t *at =
		(const uint8_t *)got->data + (int64_t)packed_token * got->token_stride + h * got->head_stride;
	size_t size = paged_dtype_size(got->dtype);

	memcpy(&bits, at + d * size, size);
	reference_store(&expected_bits, got->dtype, 0, expected);
	/* The fixture's i8 zeros have a sign, the pool's do not. */
	if (expected == 0 && reference_load(at, got->dtype, d) == 0)
		return;
	cr_assert(bits == expected_bits || (isnan(expected) && isnan(reference_load(at, got->dtype, d))),
		  "token %lu head %u dim %u: %#x, not %#x", (unsigned long)packed_token, h, d, bits, expected_bits);
}

/* Check all elements and set them to 0xff; then every byte must be 0xff, so nothing else was written. */
static void
tensor_check(struct gather_fixture *fixture, struct kernel_tensor *got, size_t bytes, bool of_v)
{
	uint64_t packed_token = 0;

	for (uint32_t r = 0; r < N_ROWS; r++)
		for (uint32_t t = fixture->begin[r]; t < fixture->end[r]; t++, packed_token++)
			for (uint32_t h = 0; h < KV_HEADS; h++) {
				for (uint32_t d = 0; d < got->dim; d++)
					element_check(
						got, packed_token, h, d,
						of_v ? kernel_fixture_value(&fixture->base, fixture->id[r], t, h, d)
						     : kernel_fixture_key(&fixture->base, fixture->id[r], t, h, d));
				memset((uint8_t *)got->data + (int64_t)packed_token * got->token_stride +
					       h * got->head_stride,
				       0xff, got->dim * paged_dtype_size(got->dtype));
			}
	for (size_t i = 0; i < bytes; i++)
		cr_assert_eq(((uint8_t *)got->data)[i], 0xff, "byte %zu was written", i);
}

KERNEL_TEST(gather, tokens_of_rows)
{
	for (uint32_t i = 0; i < 24 * 3; i++) {
		enum paged_dtype to = PAGED_F32 + i / 24;
		struct kernel_tensor k, v, none = { 0 };
		struct gather_fixture fixture;
		size_t k_bytes, v_bytes;

		gather_fixture_create(&fixture, i, i % 5 == 4);
		k = kernel_tensor_create(to, fixture.total + 1, KV_HEADS, fixture.base.params.k_dim, i % 4, &k_bytes);
		v = kernel_tensor_create(to, fixture.total + 1, KV_HEADS, fixture.base.params.v_dim, i % 3, &v_bytes);
		gather_fixture_run(&fixture, i % 7 == 3 ? none : k, i % 7 == 5 ? none : v, isa);
		if (i % 7 != 3)
			tensor_check(&fixture, &k, k_bytes, false);
		if (i % 7 != 5)
			tensor_check(&fixture, &v, v_bytes, true);
		free(k.data);
		free(v.data);
		kernel_fixture_destroy(&fixture.base);
	}
}

#define LARGE_TOKENS 2600u
#define LARGE_HEADS 4u
#define LARGE_DIM 128u
#define LARGE_PAGE_SIZE 16u
#define LARGE_PAGES ((LARGE_TOKENS + LARGE_PAGE_SIZE - 1) / LARGE_PAGE_SIZE)

static struct layout
layout_of(enum paged_dtype dtype, uint32_t alignment, uint32_t n_pages)
{
	struct layout layout;
	struct paged_error error;

	cr_assert_eq(layout_init(&layout,
				 &(struct layout_params){ .n_layers = 2,
							  .n_kv_heads = LARGE_HEADS,
							  .k_dim = LARGE_DIM,
							  .v_dim = LARGE_DIM - 3,
							  .dtype = dtype,
							  .page_size = LARGE_PAGE_SIZE,
							  .n_pages = n_pages,
							  .alignment = alignment },
				 &error),
		     PAGED_OK);
	return layout;
}

static uint8_t *
pool_of(const struct layout *layout, uint64_t seed)
{
	uint8_t *pool = aligned_alloc(128, (layout->size + 127) / 128 * 128);

	for (uint64_t i = 0; i < layout->size; i++)
		pool[i] = (uint8_t)random_bits(seed, i);
	return pool;
}

/* A large gather uses non-temporal stores and writes the same bytes. */
KERNEL_TEST(gather, non_temporal_stores_write_equal_bytes)
{
	const struct layout layout = layout_of(PAGED_BF16, 0, LARGE_PAGES);
	uint8_t *pool = pool_of(&layout, 1);
	struct kernel_team *team = kernel_test_team(2, isa);
	uint32_t pages[LARGE_PAGES];
	struct kernel_row row = { .pages = pages, .kv_len = LARGE_TOKENS };
	struct gather_args args = { .pages = { &layout, pool, 1 }, .rows = &row, .n_rows = 1 };
	size_t bytes;

	for (uint32_t i = 0; i < LARGE_PAGES; i++)
		pages[i] = (i * 5 + 2) % LARGE_PAGES;
	args.k = kernel_tensor_create(PAGED_BF16, LARGE_TOKENS, LARGE_HEADS, LARGE_DIM, 0, &bytes);
	free(args.k.data);
	args.k.data = aligned_alloc(64, (bytes + 63) / 64 * 64);
	args.v = kernel_tensor_create(PAGED_BF16, LARGE_TOKENS, LARGE_HEADS, LARGE_DIM - 3, 0, &bytes);
	kernel_gather(team, &args);
	for (uint32_t t = 0; t < LARGE_TOKENS; t++)
		for (uint32_t h = 0; h < LARGE_HEADS; h++) {
			uint32_t page = pages[t / LARGE_PAGE_SIZE], slot = t % LARGE_PAGE_SIZE;

			cr_assert_eq(memcmp((uint8_t *)args.k.data + t * args.k.token_stride + h * args.k.head_stride,
					    pool + layout_offset(&layout, LAYOUT_K, 1, page, h, slot), LARGE_DIM * 2),
				     0);
			cr_assert_eq(memcmp((uint8_t *)args.v.data + t * args.v.token_stride + h * args.v.head_stride,
					    pool + layout_offset(&layout, LAYOUT_V, 1, page, h, slot),
					    (LARGE_DIM - 3) * 2),
				     0);
		}
	free(args.k.data);
	free(args.v.data);
	free(pool);
	kernel_team_destroy(team);
}

static void
pages_check(const struct copy_args *args, const uint8_t *before)
{
	const struct layout *from = args->from.layout, *to = args->to.layout;
	uint8_t *expected = malloc(to->size);

	memcpy(expected, before, to->size);
	for (uint32_t i = 0; i < args->n; i++)
		for (uint32_t at = 0; at < 2 * LAYOUT_N_PLANES * LARGE_HEADS; at++) {
			uint32_t layer = at / LAYOUT_N_PLANES / LARGE_HEADS, plane = at / LARGE_HEADS % LAYOUT_N_PLANES;
			uint32_t n = args->n_tokens != NULL ? args->n_tokens[i] : LARGE_PAGE_SIZE, h = at % LARGE_HEADS;

			if (from->plane[plane].dtype != PAGED_DTYPE_NONE)
				memcpy(expected + layout_offset(to, plane, layer, args->to.pages[i], h, 0),
				       args->from.base +
					       layout_offset(from, plane, layer,
							     args->from.pages != NULL ? args->from.pages[i] : i, h, 0),
				       n * from->plane[plane].token_stride);
		}
	cr_assert_eq(memcmp(args->to.base, expected, to->size), 0);
	free(expected);
}

/* Few and many pages, whole and partial, within a pool and between pools of different alignment. */
KERNEL_TEST(gather, copy_pages)
{
	static const uint32_t numbers[] = { 3, 100 };

	for (uint32_t i = 0; i < COUNT(pools) * 4; i++) {
		uint32_t n = numbers[i / COUNT(pools) % 2], from[100], to[100], n_tokens[100];
		const struct layout layout = layout_of(pools[i % COUNT(pools)], 0, 210);
		const struct layout other_layout = layout_of(pools[i % COUNT(pools)], i % 5 == 0 ? 16 : 128, 100);
		uint8_t *pool = pool_of(&layout, 1), *other = pool_of(&other_layout, 2), *before = malloc(layout.size);
		struct kernel_team *team = kernel_test_team(2, isa);
		struct copy_args args = { .from = { &layout, pool, from }, .to = { &layout, pool, to }, .n = n };

		for (uint32_t page = 0; page < n; page++) {
			from[page] = page * 2;
			to[page] = page * 2 + 1;
			n_tokens[page] = page % (LARGE_PAGE_SIZE + 1);
		}
		if (i % 2)
			args.n_tokens = n_tokens;
		if (i >= COUNT(pools) * 2)
			args.from = (struct copy_side){ &other_layout, other, NULL };
		memcpy(before, pool, layout.size);
		kernel_copy_pages(team, &args);
		pages_check(&args, before);
		kernel_team_destroy(team);
		free(pool);
		free(other);
		free(before);
	}
}
