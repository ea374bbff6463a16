/* SPDX-License-Identifier: Apache-2.0 */
/* Append, copies of pages and merge by CUDA kernels, run on the host: bit-identical to the CPU kernels. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
static const enum paged_dtype pool_dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

#define N_HEADS 3u
#define N_PAGES 9u
#define TOTAL 9u

/* Two rows with pages in arbitrary order; row 2 skips append. */
struct append_fixture {
	struct layout layout;
	uint8_t *pool, *expected;
	struct kernel_tensor k, v;
	struct kernel_row rows[3];
	uint32_t pages[3][N_PAGES];
};

static void
tensor_fill(struct kernel_tensor *tensor, uint64_t seed)
{
	for (uint32_t t = 0; t < TOTAL; t++)
		for (uint32_t h = 0; h < tensor->n_heads; h++)
			for (uint32_t d = 0; d < tensor->dim; d++)
				reference_store((uint8_t *)tensor->data + t * tensor->token_stride +
							h * tensor->head_stride,
						tensor->dtype, d, random_float(seed, (t * 8 + h) * 600 + d, 70000.0f));
}

static void
append_fixture_create(struct append_fixture *fixture, const struct layout_params *params, enum paged_dtype tensor,
		      uint32_t padding)
{
	uint32_t page = 0;
	struct paged_error error;
	size_t bytes;

	cr_assert_eq(layout_init(&fixture->layout, params, &error), PAGED_OK, "%s", error.text);
	fixture->pool = malloc(fixture->layout.size);
	fixture->expected = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	memset(fixture->expected, 0xff, fixture->layout.size);
	fixture->k = kernel_tensor_create(tensor, TOTAL, N_HEADS, params->k_dim, padding, &bytes);
	fixture->v = kernel_tensor_create(tensor, TOTAL, N_HEADS, params->v_dim, padding, &bytes);
	tensor_fill(&fixture->k, 1);
	tensor_fill(&fixture->v, 2);
	if (params->v_in_k)
		fixture->v.data = NULL;
	fixture->rows[0] = (struct kernel_row){ .q_start = 0, .q_len = 4, .kv_len = 4 };
	fixture->rows[1] = (struct kernel_row){ .q_start = 4, .q_len = 3, .kv_len = 7 };
	fixture->rows[2] = (struct kernel_row){ .q_start = 7, .q_len = 2, .kv_len = 5, .skip_append = true };
	for (uint32_t r = 0; r < 3; r++) {
		for (uint32_t i = 0; i * params->page_size < fixture->rows[r].kv_len; i++)
			fixture->pages[r][i] = page++ * 5 % params->n_pages;
		fixture->rows[r].pages = fixture->pages[r];
	}
}

/* The result of the CPU kernel for these rows. */
static void
append_fixture_run_on_host(struct append_fixture *fixture, const struct kernel_row *rows, uint32_t n_rows,
			   const uint32_t *positions)
{
	struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);

	kernel_append(team, &(struct append_args){ .pages = { &fixture->layout, fixture->expected, 1 },
						   .rows = rows,
						   .n_rows = n_rows,
						   .k = fixture->k,
						   .v = fixture->v,
						   .positions = positions });
	kernel_team_destroy(team);
}

/* Run the CUDA kernel; writable_from NULL: as the rows say. Returns the plan's head with its faults. */
static struct cuda_plan_head
append_fixture_run(struct append_fixture *fixture, const uint32_t *positions, const uint32_t *writable_from,
		   uint64_t seed)
{
	struct kernel_pages pages = { &fixture->layout, fixture->pool, 1 };
	struct cuda_append_params p;
	struct cuda_batch batch;
	struct cuda_plan_head head;

	cuda_batch_create(&batch, &(struct cuda_batch_params){ .rows = fixture->rows,
							       .n_rows = 3,
							       .page_size = fixture->layout.params.page_size,
							       .n_q_heads = N_HEADS,
							       .n_kv_heads = N_HEADS,
							       .v_dim = fixture->layout.params.v_dim });
	if (writable_from != NULL)
		memcpy(batch.writable_from, writable_from, 3 * sizeof(*writable_from));
	cuda_batch_plan(&batch, seed);
	p = (struct cuda_append_params){
		.pages = cuda_fixture_pages(&batch.arena, &pages, true),
		.plan = batch.plan.plan,
		.k = cuda_fixture_tensor(&batch.arena, &fixture->k, TOTAL, false, "keys"),
		.v = cuda_fixture_tensor(&batch.arena, &fixture->v, TOTAL, false, "values"),
		.positions = cuda_arena_register(&batch.arena, positions, TOTAL * sizeof(uint32_t), false, "positions"),
	};
	cuda_kernel_run("append_tokens", &p, 1 + (uint32_t)seed % 11, 64 << seed % 3, 0, seed);
	head = *batch.head;
	cuda_batch_destroy(&batch);
	return head;
}

static void
append_fixture_check(struct append_fixture *fixture, const uint32_t *positions, uint64_t seed)
{
	append_fixture_run_on_host(fixture, fixture->rows, 3, positions);
	cr_assert_eq(append_fixture_run(fixture, positions, NULL, seed).faults, 0);
	cr_assert_eq(memcmp(fixture->pool, fixture->expected, fixture->layout.size), 0);
}

static void
append_fixture_destroy(struct append_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->expected);
	free(fixture->k.data);
	free(fixture->v.data);
}

Test(cuda_append, dtypes_dims_and_pages)
{
	static const uint32_t dims[][2] = { { 1, 1 }, { 19, 33 }, { 64, 64 }, { 128, 8 }, { 9, 40 } };
	static const uint32_t page_sizes[] = { 1, 3, 16, 256 };

	for (uint32_t i = 0; i < 9 * 5; i++) {
		struct layout_params params = { .n_layers = 2,
						.n_kv_heads = N_HEADS,
						.k_dim = dims[i / 9][0],
						.v_dim = dims[i / 9][1],
						.dtype = dtypes[i % 3],
						.page_size = page_sizes[i % 4],
						.n_pages = 17 };
		struct append_fixture fixture;

		append_fixture_create(&fixture, &params, dtypes[i / 3 % 3], i % 2 ? 0 : i % 5);
		append_fixture_check(&fixture, NULL, i);
		append_fixture_destroy(&fixture);
	}
}

/* Each token finds its row, also past rows without queries. */
Test(cuda_append, many_rows)
{
	enum { MANY = 150 };
	const struct layout_params params = { .n_layers = 1,
					      .n_kv_heads = 1,
					      .k_dim = 1,
					      .v_dim = 1,
					      .dtype = PAGED_F32,
					      .page_size = 1,
					      .n_pages = MANY };
	static float numbers[MANY];
	struct kernel_tensor tensor = {
		.data = numbers, .token_stride = 4, .head_stride = 4, .dtype = PAGED_F32, .n_heads = 1, .dim = 1
	};
	struct kernel_row rows[MANY];
	uint32_t pages[MANY], q = 0;
	struct cuda_append_params p;
	struct paged_error error;
	struct cuda_batch batch;
	struct layout layout;
	uint8_t *pool;

	cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK, "%s", error.text);
	pool = calloc(1, layout.size);
	for (uint32_t r = 0; r < MANY; r++) {
		pages[r] = (r * 7 + 3) % MANY;
		rows[r] = (struct kernel_row){ .pages = &pages[r], .q_start = q, .q_len = r % 5 != 2, .kv_len = 1 };
		q += r % 5 != 2;
		numbers[r] = (float)r + 1;
	}
	cuda_batch_create(
		&batch,
		&(struct cuda_batch_params){
			.rows = rows, .n_rows = MANY, .page_size = 1, .n_q_heads = 1, .n_kv_heads = 1, .v_dim = 1 });
	cuda_batch_plan(&batch, 3);
	p = (struct cuda_append_params){
		.pages = cuda_fixture_pages(&batch.arena, &(struct kernel_pages){ &layout, pool, 0 }, true),
		.plan = batch.plan.plan,
		.k = cuda_fixture_tensor(&batch.arena, &tensor, q, false, "keys"),
	};
	p.v = p.k;
	cuda_kernel_run("append_tokens", &p, 4, 64, 0, 3);
	cr_assert_eq(batch.head->faults, 0);
	for (uint32_t r = 0; r < MANY; r++)
		cr_assert_eq(reference_load(pool + layout_offset(&layout, LAYOUT_V, 0, pages[r], 0, 0), PAGED_F32, 0),
			     rows[r].q_len == 0 ? 0 : (float)rows[r].q_start + 1, "row %u", r);
	cuda_batch_destroy(&batch);
	free(pool);
}

Test(cuda_append, explicit_positions_and_v_in_k)
{
	static const uint32_t positions[TOTAL] = { 3, 0, 2, 1, 6, 0, 3, 0, 0 };
	struct layout_params params = { .n_layers = 2,
					.n_kv_heads = N_HEADS,
					.k_dim = 40,
					.v_dim = 24,
					.v_in_k = true,
					.dtype = PAGED_BF16,
					.page_size = 3,
					.n_pages = 17 };
	struct append_fixture fixture;

	for (uint64_t seed = 0; seed < 4; seed++) {
		append_fixture_create(&fixture, &params, dtypes[seed % 3], 0);
		append_fixture_check(&fixture, positions, seed);
		append_fixture_destroy(&fixture);
	}
}

/* A position below the row's writable_from is reported and not written; the row's other positions are written. */
Test(cuda_append, reports_writes_to_shared_pages)
{
	static const uint32_t explicit[TOTAL] = { 3, 0, 2, 1, 6, 0, 3, 0, 0 };
	static const uint32_t appended[TOTAL] = { 0, 1, 2, 3, 4, 5, 6, 3, 4 };
	static const uint32_t writable_from[3] = { 2, 4, CUDA_WRITABLE_SKIP };
	static const uint32_t none[3] = { 2, CUDA_WRITABLE_NONE, CUDA_WRITABLE_SKIP };
	const struct layout_params params = { .n_layers = 2,
					      .n_kv_heads = N_HEADS,
					      .k_dim = 19,
					      .v_dim = 24,
					      .dtype = PAGED_F16,
					      .page_size = 3,
					      .n_pages = 17 };

	for (uint64_t seed = 0; seed < 4; seed++) {
		const uint32_t *positions = seed % 2 == 0 ? appended : explicit,
			       *from = seed < 2 ? writable_from : none;
		struct cuda_plan_head head;
		struct append_fixture fixture;

		append_fixture_create(&fixture, &params, PAGED_F32, 0);
		for (uint32_t i = 0; i < 7; i++) {
			uint32_t r = i < 4 ? 0 : 1;
			struct kernel_row token = fixture.rows[r];

			token.q_start = i;
			token.q_len = 1;
			token.kv_len = positions[i] + 1;
			if (positions[i] >= from[r])
				append_fixture_run_on_host(&fixture, &token, 1, NULL);
		}
		head = append_fixture_run(&fixture, seed % 2 == 0 ? NULL : positions, from, seed);
		cr_assert_eq(head.faults, CUDA_FAULT_SHARED);
		/* With seed 0, all positions of row 1 are writable. */
		cr_assert_eq(head.fault_row, seed == 0 ? 0 : 1);
		cr_assert_eq(memcmp(fixture.pool, fixture.expected, fixture.layout.size), 0);
		append_fixture_destroy(&fixture);
	}
}

/* List the planes that have memory of their own. */
static uint32_t
planes_stored(const struct layout *layout, unsigned int planes[LAYOUT_N_PLANES])
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < LAYOUT_N_PLANES; i++)
		if (layout->plane[i].dtype != PAGED_DTYPE_NONE &&
		    !(layout->params.v_in_k && (i == LAYOUT_V || i == LAYOUT_V_SCALE)))
			planes[n++] = i;
	return n;
}

/* Copy n pages within the pool, or gather them into a packed buffer, and compare with memcpy(). */
static void
copy_check(const struct layout *layout, uint8_t *pool, bool gather, uint64_t seed)
{
	static const uint32_t from[] = { 4, 0, 6 }, to[] = { 1, 5, 2 }, tokens[] = { 1, 5, 3 };
	unsigned int planes[LAYOUT_N_PLANES];
	uint32_t n_planes = planes_stored(layout, planes);
	uint8_t *expected = malloc(layout->size), *packed = malloc(layout->size);
	struct cuda_arena arena = { .n = 0 };
	struct cuda_copy_params p = { .from = { .pages = cuda_arena_alloc(&arena, from, sizeof(from), false, "from"),
						.n_pages = layout->params.n_pages },
				      .to = { .pages = gather ? 0
							      : cuda_arena_alloc(&arena, to, sizeof(to), false, "to"),
					      .n_pages = gather ? 3 : layout->params.n_pages },
				      .n_tokens = cuda_arena_alloc(&arena, tokens, sizeof(tokens), false, "tokens"),
				      .n_planes = n_planes,
				      .n_copies = 3,
				      .n_layers = layout->params.n_layers,
				      .n_heads = layout->params.n_kv_heads,
				      .page_size = layout->params.page_size };
	uint64_t base = cuda_arena_register(&arena, pool, layout->size, true, "the pool"), other = base;
	uint64_t page_bytes = 0;

	memcpy(expected, pool, layout->size);
	memset(packed, 0, layout->size);
	if (gather)
		other = cuda_arena_register(&arena, packed, layout->page_bytes * 3, true, "the buffer");
	for (uint32_t i = 0; i < n_planes; i++) {
		const struct layout_plane *plane = &layout->plane[planes[i]];

		p.token_stride[i] = (uint32_t)plane->token_stride;
		p.from.address[i] = base + plane->offset;
		p.from.layer_stride[i] = plane->layer_stride;
		p.from.page_stride[i] = plane->page_stride;
		p.from.head_stride[i] = plane->head_stride;
		p.to.address[i] = gather ? other + page_bytes : base + plane->offset;
		p.to.layer_stride[i] = gather ? layout->page_bytes / layout->params.n_layers : plane->layer_stride;
		p.to.page_stride[i] = gather ? layout->page_bytes : plane->page_stride;
		p.to.head_stride[i] = plane->head_stride;
		page_bytes += plane->head_stride * p.n_heads;
	}
	cuda_kernel_run("copy_pages", &p, 5, 64, 0, seed);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t plane = 0; plane < n_planes; plane++)
			for (uint32_t layer = 0; layer < p.n_layers; layer++)
				for (uint32_t h = 0; h < p.n_heads; h++) {
					size_t n = tokens[i] * p.token_stride[plane];
					uint64_t at = layout_offset(layout, planes[plane], layer, from[i], h, 0);
					uint64_t packed_at = p.to.address[plane] - other + i * p.to.page_stride[plane] +
							     layer * p.to.layer_stride[plane] +
							     h * p.to.head_stride[plane];

					if (gather)
						cr_assert_eq(memcmp(packed + packed_at, pool + at, n), 0);
					else
						memcpy(expected +
							       layout_offset(layout, planes[plane], layer, to[i], h, 0),
						       expected + at, n);
				}
	cr_assert_eq(memcmp(pool, expected, layout->size), 0);
	cuda_arena_destroy(&arena);
	free(expected);
	free(packed);
}

Test(cuda_pages, copy_and_gather)
{
	static const uint32_t dims[][2] = { { 19, 33 }, { 64, 64 }, { 3, 1 } };
	struct paged_error error;
	struct layout layout;

	for (uint32_t i = 0; i < 24; i++) {
		struct layout_params params = { .n_layers = 3,
						.n_kv_heads = 2,
						.k_dim = dims[i % 3][0],
						.v_dim = dims[i % 3][1],
						.v_in_k = i % 3 == 1,
						.dtype = pool_dtypes[i / 3 % 6],
						.page_size = 5,
						.n_pages = 7 };
		uint8_t *pool;

		cr_assert_eq(layout_init(&layout, &params, &error), PAGED_OK);
		pool = malloc(layout.size);
		for (uint64_t at = 0; at < layout.size; at++)
			pool[at] = (uint8_t)random_bits(i, at);
		copy_check(&layout, pool, i % 2, i);
		free(pool);
	}
}

/* A page index out of bounds is reported; the other pages are copied. */
Test(cuda_pages, reports_page_out_of_bounds)
{
	static const uint32_t from[] = { 1, 9 };
	uint32_t data[4][16] = { { 0 }, { 7, 8, 9 } }, faults = 0;
	struct cuda_arena arena = { .n = 0 };
	uint64_t base = cuda_arena_register(&arena, data, sizeof(data), true, "the pool");
	struct cuda_copy_params p = {
		.from = { .address = { base },
			  .page_stride = { 64 },
			  .pages = cuda_arena_alloc(&arena, from, sizeof(from), false, "from"),
			  .n_pages = 4 },
		.to = { .address = { base + 128 }, .page_stride = { 64 }, .n_pages = 2 },
		.faults = cuda_arena_register(&arena, &faults, 4, true, "faults"),
		.token_stride = { 12 },
		.n_planes = 1,
		.n_copies = 2,
		.n_layers = 1,
		.n_heads = 1,
		.page_size = 1,
	};

	cuda_kernel_run("copy_pages", &p, 1, 32, 0, 2);
	cr_assert_eq(faults, CUDA_FAULT_PAGE);
	cr_assert(data[2][0] == 7 && data[2][2] == 9 && data[2][3] == 0 && data[3][0] == 0);
	cuda_arena_destroy(&arena);
}

#define MERGE_HEADS 6u
#define MERGE_DIM 37u
#define MERGE_TOKENS 11u

/* Compared with the CPU kernel: an LSE may differ in its last bit, and outputs accordingly. */
Test(cuda_merge, matches_the_cpu_kernel)
{
	struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);

	for (uint32_t i = 0; i < 27; i++) {
		size_t n = MERGE_TOKENS * MERGE_HEADS * sizeof(float), bytes;
		float lse[2][MERGE_TOKENS * MERGE_HEADS], host_lse[MERGE_TOKENS * MERGE_HEADS];
		float got_lse[MERGE_TOKENS * MERGE_HEADS];
		struct merge_args args = { .n_tokens = MERGE_TOKENS, .lse = host_lse };
		struct cuda_arena arena = { .n = 0 };
		struct cuda_merge_params p = { .n_tokens = MERGE_TOKENS, .n_heads = MERGE_HEADS };
		struct kernel_tensor out;

		out = args.out = kernel_tensor_create(dtypes[i % 3], MERGE_TOKENS, MERGE_HEADS, MERGE_DIM, 1, &bytes);
		out.data = malloc(bytes);
		for (uint32_t part = 0; part < 2; part++) {
			struct kernel_tensor *from = &args.part[part].out;

			*from = kernel_tensor_create(dtypes[(i / 3 + part * (i / 9)) % 3], MERGE_TOKENS, MERGE_HEADS,
						     MERGE_DIM, part, &bytes);
			for (uint32_t at = 0; at < MERGE_TOKENS * MERGE_HEADS; at++) {
				uint8_t *to = (uint8_t *)from->data + at / MERGE_HEADS * from->token_stride +
					      at % MERGE_HEADS * from->head_stride;

				lse[part][at] = random_float(i + part, at, 10);
				for (uint32_t d = 0; d < MERGE_DIM; d++)
					reference_store(to, from->dtype, d,
							random_float(i + 5 + part, at * MERGE_DIM + d, 1));
			}
			lse[part][3] = -INFINITY;
			lse[part][4 + part] = -INFINITY;
			lse[part][7 + part] = NAN;
			args.part[part].lse = lse[part];
			p.part[part] = cuda_fixture_tensor(&arena, from, MERGE_TOKENS, false, "a part");
			p.part_lse[part] = cuda_arena_register(&arena, lse[part], n, false, "a part's LSE");
		}
		kernel_attention_merge(team, &args);
		p.out = cuda_fixture_tensor(&arena, &out, MERGE_TOKENS, true, "the output");
		p.lse = cuda_arena_register(&arena, got_lse, n, true, "the LSE");
		cuda_kernel_run("merge_results", &p, 1 + i % 4, CUDA_MERGE_THREADS, 0, i);
		for (uint32_t at = 0; at < MERGE_TOKENS * MERGE_HEADS; at++) {
			cr_assert(got_lse[at] == host_lse[at] || (isnan(got_lse[at]) && isnan(host_lse[at])) ||
				  fabsf(got_lse[at] - host_lse[at]) < 0x1p-21f * (1 + fabsf(host_lse[at])));
			for (uint32_t d = 0; d < MERGE_DIM; d++) {
				float got = kernel_tensor_element(&out, at / MERGE_HEADS, at % MERGE_HEADS, d);
				float expected =
					kernel_tensor_element(&args.out, at / MERGE_HEADS, at % MERGE_HEADS, d);

				cr_assert((isnan(got) && isnan(expected)) ||
						  fabs((double)got - (double)expected) <=
							  0x1p-20 + 2 * reference_unit(out.dtype) *
									    fabs((double)expected),
					  "line %u dim %u: %g, host %g", at, d, (double)got, (double)expected);
			}
		}
		cuda_arena_destroy(&arena);
		free(out.data);
		free(args.out.data);
		free(args.part[0].out.data);
		free(args.part[1].out.data);
	}
	kernel_team_destroy(team);
}
