/* SPDX-License-Identifier: Apache-2.0 */
/* A step allocates nothing, as pagedclient.h promises: every malloc is counted. */
#include <stdatomic.h>
#include <stddef.h>

#include "tests/support/client_fixture.h"

#define ROWS 2u
#define MAX_ROWS_OF_Q 8u
#define DOC_LEN 200u /* so large that the array gets a range tree */

TestSuite(step_allocations, .init = client_fixture_setup, .fini = client_fixture_teardown);

static _Atomic unsigned int n_allocations;

/* A sanitizer has its own allocator. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTED true

/* The library must call these; the build hides symbols by default. */
#pragma GCC visibility push(default)

/* glibc's functions under the names that the replacements below call. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *
malloc(size_t size)
{
	n_allocations++;
	return __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	n_allocations++;
	return __libc_calloc(n, size);
}

void *
realloc(void *memory, size_t size)
{
	n_allocations++;
	return __libc_realloc(memory, size);
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	n_allocations++;
	return __libc_memalign(alignment, size);
}

#pragma GCC visibility pop
#else
#define COUNTED false
#endif

/* A batch with its mods and block mask. */
struct step_fixture {
	struct paged_batch *batch;
	struct paged_mod_set *mod_set;
	int32_t window;
	int32_t doc[DOC_LEN];
};

static void
step_fixture_bind(struct step_fixture *step_fixture)
{
	const struct paged_array arrays[] = {
		{ .name = "window", .data = &step_fixture->window, .dtype = PAGED_I32 },
		{ .name = "doc", .data = step_fixture->doc, .dtype = PAGED_I32, .n_dims = 1, .extents = { DOC_LEN } },
	};

	step_fixture->window++;
	step_fixture->doc[step_fixture->window % DOC_LEN]++;
	expect_ok(paged_mod_set_bind(step_fixture->mod_set, 2, arrays, NULL));
}

static struct step_fixture
step_fixture_open(uint32_t reserve_ahead)
{
	static const struct paged_array names[] = { { .name = "window", .dtype = PAGED_I32 },
						    { .name = "doc", .dtype = PAGED_I32, .n_dims = 1 } };
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct step_fixture step_fixture = { .batch = fixture_create_batch(ROWS, reserve_ahead) };
	struct paged_mod *mask, *score;

	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "sliding_window && document", 2, names, &mask));
	expect_ok(paged_mod_parse(pool, PAGED_MOD_SCORE, "soft_cap(window) + doc[kv_idx]", 2, names, &score));
	params.mask = mask;
	params.score = score;
	expect_ok(paged_mod_set_create(step_fixture.batch, &params, &step_fixture.mod_set));
	step_fixture_bind(&step_fixture); /* with the largest arrays of the test */
	return step_fixture;
}

/* One engine step with a plan. */
static void
run_step(struct step_fixture *step_fixture, const struct paged_batch_row *rows)
{
	struct paged_batch *batch = step_fixture->batch;
	static float q[MAX_ROWS_OF_Q * FIXTURE_KV_HEADS * FIXTURE_DIM],
		out[MAX_ROWS_OF_Q * FIXTURE_KV_HEADS * FIXTURE_DIM];
	const struct paged_tensor in = {
		.data = q, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
	};
	const struct paged_tensor to = {
		.data = out, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
	};
	int32_t indptr[ROWS + 1], indices[FIXTURE_N_PAGES], last[ROWS], table[ROWS * FIXTURE_N_PAGES], kv_len[ROWS];
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_attention_params params = { .struct_size = sizeof(params) };
	static float lse[MAX_ROWS_OF_Q * FIXTURE_KV_HEADS];
	const struct paged_merge_params merge = { .struct_size = sizeof(merge),
						  .n_tokens = MAX_ROWS_OF_Q,
						  .part = { in, to },
						  .part_lse = { lse, lse },
						  .out = to };
	uint32_t tokens[FIXTURE_MAX_LENGTH] = { 0 };
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .salt = salt };
	uint32_t n_found;
	size_t n_needed;

	expect_ok(paged_batch_plan(batch, ROWS, rows));
	step_fixture_bind(step_fixture);
	params.mod_set = step_fixture->mod_set;
	for (uint32_t layer = 0; layer < fixture_pool_params.n_layers; layer++) {
		expect_ok(paged_append(batch, layer, &in, &in, NULL));
		expect_ok(paged_attention(batch, layer, &in, &to, layer == 0 ? NULL : &params));
	}
	expect_ok(paged_merge(batch, &merge));
	expect_ok(paged_batch_tables_csr(batch, indptr, indices, FIXTURE_N_PAGES, last, &n_needed));
	expect_ok(paged_batch_tables_padded(batch, table, FIXTURE_N_PAGES, kv_len));
	paged_salt(salt, 0, NULL);
	prefix.n_tokens = rows[0].kv_len;
	expect_ok(paged_batch_publish(batch, 1, &(struct paged_publish){ .seq = rows[0].seq, .prefix = &prefix }));
	expect_ok(paged_prefix_match(pool, &prefix, &n_found));
	expect_ok(paged_batch_validate(batch));
	expect_ok(paged_seq_read(pool, rows[0].seq, &info, NULL, 0));
}

static void
count_step_allocations(struct step_fixture step_fixture)
{
	struct paged_batch_row rows[ROWS] = {
		{ .seq = fixture_create_seq(FIXTURE_MAX_LENGTH / 2), .q_len = 6, .kv_len = 6 },
		{ .seq = fixture_create_seq(FIXTURE_MAX_LENGTH / 2), .q_len = 1, .kv_len = 1 }
	};
	unsigned int before = n_allocations;

	while (rows[0].kv_len < FIXTURE_MAX_LENGTH / 2) {
		run_step(&step_fixture, rows);
		rows[0].q_len = rows[1].q_len = 1;
		rows[0].kv_len++;
		rows[1].kv_len++;
	}
	cr_assert_eq(n_allocations, before, "%u allocations", n_allocations - before);
}

Test(step_allocations, allocations_are_counted)
{
	unsigned int before = n_allocations;

	fixture_create_batch(ROWS, 0);
	cr_assert(!COUNTED || n_allocations > before);
}

Test(step_allocations, a_step_does_not_allocate)
{
	count_step_allocations(step_fixture_open(0));
}

/* reserve_ahead covers all steps, so there is no request. */
Test(step_allocations, a_step_with_reserve_ahead_does_not_allocate)
{
	count_step_allocations(step_fixture_open(1));
}

Test(step_allocations, a_step_with_threads_does_not_allocate)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 3 };
	struct paged_client *one_thread = client;
	struct paged_pool *its_pool = pool;

	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client));
	expect_ok(paged_pool_open(client, "small", &pool));
	count_step_allocations(step_fixture_open(0));
	paged_client_close(client);
	client = one_thread;
	pool = its_pool;
}
