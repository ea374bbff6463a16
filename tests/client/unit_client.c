/* SPDX-License-Identifier: Apache-2.0 */
/* The client library over an embedded owner: every call and every error message. */
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

TestSuite(client, .init = client_fixture_setup, .fini = client_fixture_teardown);

Test(open, a_failed_open_returns_a_client_with_the_error)
{
	struct paged_pool_params bad = fixture_pool_params;
	struct paged_client_params params = { .struct_size = sizeof(params), .join_token = "00" };

	expect_error(paged_client_open_embedded(NULL, 0, NULL, &client), PAGED_ERR_INVALID,
		     "an embedded client needs at least one pool");
	expect_error(paged_pool_open(client, "small", &pool), PAGED_ERR_INVALID,
		     "the client did not open (invalid argument)");
	cr_assert_eq(paged_client_session(client), 0);
	cr_assert_str_empty(paged_client_join_token(client));
	cr_assert_eq(paged_client_fd(client), -1);
	paged_client_close(client);

	bad.dtype = PAGED_DTYPE_NONE;
	expect_error(paged_client_open_embedded(&bad, 1, NULL, &client), PAGED_ERR_INVALID,
		     "dtype 0 is none of f32, f16, bf16, e4m3, e5m2, i8");
	paged_client_close(client);

	bad.name = NULL;
	expect_error(paged_client_open_embedded(&bad, 1, NULL, &client), PAGED_ERR_INVALID, "pool 0 has no name");
	paged_client_close(client);

	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client), PAGED_ERR_UNSUPPORTED,
		     "an embedded client's session has no other members");
	paged_client_close(client);
	params.observer = 1;
	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client), PAGED_ERR_INVALID,
		     "an observer joins no session: join_token is not possible");
	paged_client_close(client);
	paged_client_close(NULL);
	cr_assert_str_eq(paged_client_error(NULL), "there is no client: out of memory, or an argument is NULL");
}

Test(open, instruction_set_from_the_environment)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };

	setenv("PAGED_ISA", "sse", 1);
	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, NULL, &client), PAGED_ERR_INVALID,
		     "PAGED_ISA=sse is none of generic, avx2, avx512, avx512bf16, amx");
	paged_client_close(client);
	setenv("PAGED_ISA", "generic", 1);
	client_fixture_setup();
	expect_ok(paged_pool_get_info(pool, &info));
	cr_assert_str_eq(info.isa, "generic");
	cr_assert_null(info.device);
	paged_client_close(client);
}

Test(open, time_limit_from_the_environment)
{
	static const char *const bad[] = { "0",   "-1",         "+5",
					   " 5",  "5 ",         "5s",
					   "0.5", "1000000000", "99999999999999999999" };
	struct paged_client_params params = { .struct_size = sizeof(params), .timeout_ms = 1 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("PAGED_TIMEOUT_MS", bad[i], 1);
		expect_error(paged_client_open_embedded(&fixture_pool_params, 1, NULL, &client), PAGED_ERR_INVALID,
			     "PAGED_TIMEOUT_MS=%s is not a number of milliseconds from 1 to 999999999", bad[i]);
		paged_client_close(client);
		/* A program that sets a limit does not read the variable. */
		expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client));
		paged_client_close(client);
	}
	setenv("PAGED_TIMEOUT_MS", "", 1);
	client_fixture_setup();
	paged_client_close(client);
	setenv("PAGED_TIMEOUT_MS", "999999999", 1);
	client_fixture_setup();
	paged_client_close(client);
}

static void
expect_isa(const char *isa_name, const char *expected)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .isa = isa_name };
	struct paged_pool_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client));
	expect_ok(paged_pool_open(client, "small", &pool));
	expect_ok(paged_pool_get_info(pool, &info));
	cr_assert_str_eq(info.isa, expected);
	paged_client_close(client);
}

Test(open, instruction_set_from_a_parameter)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .isa = "sse" };

	unsetenv("PAGED_ISA");
	expect_isa("generic", "generic");
	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client), PAGED_ERR_INVALID,
		     "isa=sse is none of generic, avx2, avx512, avx512bf16, amx");
	paged_client_close(client);
	/* The environment overrides the parameter. */
	setenv("PAGED_ISA", "generic", 1);
	expect_isa("avx2", "generic");
	setenv("PAGED_ISA", "", 1);
	expect_isa("generic", "generic");
}

Test(open, struct_size)
{
	struct {
		struct paged_client_params known;
		uint64_t newer;
	} params = { .known = { .struct_size = 0 } };
	struct paged_pool_params both[2] = { fixture_pool_params, fixture_pool_params };

	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params.known, &client), PAGED_ERR_INVALID,
		     "paged_client_params: struct_size is 0; set it to sizeof(the struct)");
	paged_client_close(client);
	params.known.struct_size = 1u << 20;
	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params.known, &client), PAGED_ERR_INVALID,
		     "paged_client_params: struct_size is 1048576; set it to sizeof(the struct)");
	paged_client_close(client);

	/* A newer program's struct: fields unknown to the library must be 0. */
	params.known.struct_size = sizeof(params);
	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params.known, &client));
	paged_client_close(client);
	params.newer = 1;
	expect_error(paged_client_open_embedded(&fixture_pool_params, 1, &params.known, &client), PAGED_ERR_UNSUPPORTED,
		     "paged_client_params: a field past byte %zu is set, which this library does not know",
		     sizeof(params.known));
	paged_client_close(client);

	/* An older program's struct: bytes past struct_size are not read. */
	params.known.struct_size = offsetof(struct paged_client_params, observer);
	params.known.observer = 7;
	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params.known, &client));
	paged_client_close(client);

	both[1].name = "other";
	both[1].struct_size = sizeof(size_t);
	expect_error(paged_client_open_embedded(both, 2, NULL, &client), PAGED_ERR_INVALID,
		     "paged_pool_params 1: struct_size is 8, the first one's is %zu", sizeof(*both));
	paged_client_close(client);
	both[1].struct_size = sizeof(*both);
	expect_ok(paged_client_open_embedded(both, 2, NULL, &client));
	paged_client_close(client);
	both[1].name = "small";
	cr_assert_eq(paged_client_open_embedded(both, 2, NULL, &client), PAGED_ERR_INVALID);
	paged_client_close(client);
}

/* Size in KiB of the mapping that begins at base, and whether it was advised to use huge pages. */
static size_t
mapping_size(const void *base, bool *huge)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	size_t size = 0, kib;
	char line[512], begin[32];
	bool here = false;

	cr_assert_not_null(smaps);
	*huge = false;
	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)base);
	while (fgets(line, sizeof(line), smaps) != NULL) {
		here = here || strncmp(line, begin, strlen(begin)) == 0;
		if (here && sscanf(line, "Size: %zu", &kib) == 1)
			size = kib;
		if (here && strncmp(line, "VmFlags:", 8) == 0) {
			*huge = strstr(line, " hg") != NULL;
			break;
		}
	}
	fclose(smaps);
	return size;
}

Test(open, pages_are_aligned_for_huge_pages)
{
	struct paged_pool_params large = {
		.struct_size = sizeof(large),
		.name = "large",
		.n_layers = 1,
		.n_kv_heads = 1,
		.k_dim = 64,
		.dtype = PAGED_F32,
		.page_size = 1,
		.n_pages = 10001,
	};
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool huge;

	expect_ok(paged_client_open_embedded(&large, 1, NULL, &client));
	expect_ok(paged_pool_open(client, "large", &pool));
	expect_ok(paged_pool_get_info(pool, &info));
	cr_assert_eq((uintptr_t)info.base % (2u << 20), 0);
	cr_assert_eq(mapping_size(info.base, &huge), (info.size + page - 1) / page * page >> 10);
	cr_assert_eq(huge, access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0);
	memset(info.base, 0x55, info.size);
	paged_client_close(client);
}

Test(client, dtype_names)
{
	cr_expect_str_eq(paged_dtype_name(PAGED_F32), "f32");
	cr_expect_str_eq(paged_dtype_name(PAGED_E4M3), "e4m3");
	cr_expect_str_eq(paged_dtype_name(PAGED_I8), "i8");
	cr_expect_str_eq(paged_dtype_name(PAGED_I64), "i64");
	cr_expect_str_eq(paged_dtype_name(PAGED_DTYPE_NONE), "?");
	cr_expect_str_eq(paged_dtype_name((enum paged_dtype)99), "?");
}

Test(client, ping)
{
	expect_ok(paged_client_ping(client));
}

Test(client, pool_info_fills_struct_size_bytes)
{
	struct paged_pool_info info;

	memset(&info, 0x55, sizeof(info));
	info.struct_size = offsetof(struct paged_pool_info, page_bytes);
	expect_ok(paged_pool_get_info(pool, &info));
	cr_assert_str_eq(info.name, "small");
	cr_assert_str_eq(info.backend, "host");
	cr_assert_eq(info.size,
		     2 * FIXTURE_N_PAGES * 2 * FIXTURE_KV_HEADS * FIXTURE_PAGE_SIZE * FIXTURE_DIM * sizeof(float));
	cr_assert_eq(info.page_bytes, 0x5555555555555555u);

	info.struct_size = sizeof(info);
	expect_ok(paged_pool_get_info(pool, &info));
	cr_assert_eq(info.n_pages, FIXTURE_N_PAGES);
	cr_assert_eq(info.max_length, FIXTURE_MAX_LENGTH);
	cr_assert_eq(info.k.dim, FIXTURE_DIM);
	cr_assert_eq(info.v.dim, FIXTURE_DIM);
	cr_assert_eq(info.v.offset, FIXTURE_KV_HEADS * FIXTURE_PAGE_SIZE * FIXTURE_DIM * sizeof(float));
	info.struct_size = 0;
	expect_error(paged_pool_get_info(pool, &info), PAGED_ERR_INVALID,
		     "paged_pool_info: struct_size is 0; set it to sizeof(the struct)");
	expect_error(paged_pool_get_info(pool, NULL), PAGED_ERR_INVALID, "info must not be NULL");
}

Test(client, pool_open)
{
	struct paged_pool *other;
	char name[PAGED_MAX_NAME + 2];

	cr_assert_eq(paged_pool_open(client, "large", &other), PAGED_ERR_NOENT);
	cr_assert_not_null(strstr(paged_client_error(client), "small"), "%s", paged_client_error(client));
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	expect_error(paged_pool_open(client, name, &other), PAGED_ERR_INVALID, "a pool's name has at most 63 bytes");
	expect_error(paged_pool_open(client, NULL, &other), PAGED_ERR_INVALID,
		     "a pool needs a name and a place for its handle");
	expect_ok(paged_pool_open(client, "small", &other));
	paged_pool_close(other);
	paged_pool_close(NULL);
	expect_ok(paged_client_dispatch(client));
}

Test(client, sequences)
{
	paged_seq_id id = fixture_create_seq(5), stale;
	uint32_t tokens = 5, pages[FIXTURE_N_PAGES], too_long = FIXTURE_MAX_LENGTH + 1;
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pool, id, &info, pages, FIXTURE_N_PAGES));
	cr_assert_eq(info.owner, paged_client_session(client));
	cr_assert_eq(info.capacity, 8);
	cr_assert_eq(info.n_pages, 2);
	cr_assert(pages[0] < FIXTURE_N_PAGES && pages[1] < FIXTURE_N_PAGES && pages[0] != pages[1]);

	cr_assert_eq(seqs_reserve(client, 1, &id, &too_long), PAGED_ERR_LIMIT);
	tokens = 4;
	expect_ok(seqs_truncate(client, 1, &id, &tokens));
	cr_assert_eq(fixture_seq_capacity(id), 4);
	stale = id;
	expect_ok(paged_seq_erase(client, 1, &id));
	expect_error(paged_seq_read(pool, stale, NULL, NULL, 0), PAGED_ERR_STALE,
		     "pool small has no live sequence " SEQ_FORMAT, SEQ_ARGS(stale));
	cr_assert_eq(seqs_reserve(client, 1, &stale, &tokens), PAGED_ERR_STALE);
	expect_error(paged_seq_read(pool, 0, NULL, NULL, 3), PAGED_ERR_INVALID, "pages is NULL but n_max is 3");
}

Test(client, requests_are_checked_before_they_are_sent)
{
	paged_seq_id id = fixture_create_seq(0);
	uint32_t tokens = 1;
	struct paged_seq_item item = { .seq = id, .n_tokens = 4, .reserved = { 1 } };
	struct paged_seq_params params = { .pool = NULL };
	char tag[PAGED_MAX_TAG + 2];

	expect_error(seqs_create(client, pool, 0, &id), PAGED_ERR_INVALID, "a request names at least one sequence");
	expect_error(seqs_create(client, pool, 1, NULL), PAGED_ERR_INVALID, "an array of the request is NULL");
	expect_error(paged_seq_reserve(client, 1, NULL), PAGED_ERR_INVALID, "an array of the request is NULL");
	expect_error(paged_seq_erase(client, 4097, &id), PAGED_ERR_LIMIT, "4097 sequences in a request, at most 4096");
	expect_error(seqs_truncate(client, 0, &id, &tokens), PAGED_ERR_INVALID,
		     "a request names at least one sequence");
	expect_error(paged_seq_reserve(client, 1, &item), PAGED_ERR_INVALID, "items[0].reserved is not zero");
	expect_error(paged_seq_truncate(client, 1, &item), PAGED_ERR_INVALID, "items[0].reserved is not zero");
	item.reserved[0] = 0;
	expect_ok(paged_seq_reserve(client, 1, &item));
	cr_assert_eq(fixture_seq_capacity(id), 4);
	expect_error(paged_seq_create(client, 1, &params, &id), PAGED_ERR_INVALID,
		     "params[0].pool is no pool of this client");
	params.pool = pool;
	params.reserved[4] = 1;
	expect_error(paged_seq_create(client, 1, &params, &id), PAGED_ERR_INVALID, "params[0].reserved is not zero");
	params.reserved[4] = 0;
	memset(tag, 'x', sizeof(tag) - 1);
	tag[sizeof(tag) - 1] = '\0';
	params.tag = tag;
	expect_error(paged_seq_create(client, 1, &params, &id), PAGED_ERR_LIMIT,
		     "params[0].tag has more than 31 bytes");
	params.tag = "a\tb";
	expect_error(paged_seq_create(client, 1, &params, &id), PAGED_ERR_INVALID,
		     "params[0].tag is not UTF-8 without control characters and invisible ones");
}

Test(client, tags_of_a_request_share_one_limit)
{
	static struct paged_seq_params params[PAGED_MAX_REQUEST_SEQS];
	static paged_seq_id ids[PAGED_MAX_REQUEST_SEQS];

	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
		params[i] = (struct paged_seq_params){ .pool = pool, .tag = i == 0 ? "abc" : "ab" };
	expect_error(paged_seq_create(client, PAGED_MAX_REQUEST_SEQS, params, ids), PAGED_ERR_LIMIT,
		     "the tags of a request have at most 8192 bytes together");
	params[0].tag = "ab";
	expect_error(paged_seq_create(client, PAGED_MAX_REQUEST_SEQS, params, ids), PAGED_ERR_FULL,
		     "pool small: 4096 sequences requested, 8 of 8 slots free");
}

Test(client, sequences_are_created_with_tag_and_capacity)
{
	struct paged_seq_params params[2] = { { .pool = pool, .tag = "chat 7", .n_tokens = 5 }, { .pool = pool } };
	struct paged_check_result result = { .struct_size = sizeof(result) };
	struct paged_seq_entry *list;
	paged_seq_id ids[2];
	size_t n;

	expect_ok(paged_seq_create(client, 2, params, ids));
	cr_assert_eq(fixture_seq_capacity(ids[0]), 8);
	cr_assert_eq(fixture_seq_capacity(ids[1]), 0);
	expect_ok(paged_admin_sequences(client, "small", sizeof(*list), &list, &n));
	cr_assert_eq(n, 2);
	cr_assert_str_eq(list[0].tag, "chat 7");
	cr_assert_str_eq(list[1].tag, "");
	paged_free(list);
	params[0].n_tokens = params[1].n_tokens = 29;
	expect_error(paged_seq_create(client, 2, params, ids), PAGED_ERR_FULL,
		     "pool small: 16 pages requested, 14 free (0 quarantined)");
	expect_ok(paged_pool_check(pool, &result));
	cr_assert_eq(result.n_sequences, 2);
}

/* The first sequences of both pools have the same slot and generation. */
Test(client, an_id_of_another_pool_is_refused)
{
	struct paged_pool_params params[2] = { fixture_pool_params, fixture_pool_params };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_block_mask *mask = NULL;
	struct paged_pool *target, *draft;
	struct paged_batch_row row = { .q_len = 1, .kv_len = 1 };
	struct paged_mod *causal;
	struct paged_batch *batch;
	struct paged_client *two;
	paged_seq_id ids[2];

	params[0].name = "target";
	params[1].name = "draft";
	expect_ok(paged_client_open_embedded(params, 2, NULL, &two));
	expect_ok(paged_pool_open(two, "target", &target));
	expect_ok(paged_pool_open(two, "draft", &draft));
	expect_ok(paged_pool_get_info(draft, &info));
	cr_assert_eq(info.number, 1);
	expect_ok(paged_seq_create(
		two, 2,
		(struct paged_seq_params[]){ { .pool = target, .n_tokens = 4 }, { .pool = draft, .n_tokens = 4 } },
		ids));
	cr_assert_eq(ids[0], PAGED_SEQ(1, 0, 0));
	cr_assert_eq(ids[1], PAGED_SEQ(1, 1, 0));

	cr_assert_eq(paged_seq_read(draft, ids[0], NULL, NULL, 0), PAGED_ERR_INVALID);
	cr_assert_str_eq(paged_client_error(two), "sequence 0.1 is of pool target, not of pool draft");
	cr_assert_eq(paged_seq_read(draft, 0, NULL, NULL, 0), PAGED_ERR_INVALID);
	cr_assert_str_eq(paged_client_error(two), "0 is not a sequence id");
	cr_assert_eq(paged_seq_read(draft, PAGED_SEQ(1, 7, 0), NULL, NULL, 0), PAGED_ERR_INVALID);
	cr_assert_str_eq(paged_client_error(two), "sequence 0.1 is of pool number 7, not of pool draft");
	expect_ok(paged_batch_create(target, NULL, &batch));
	row.seq = ids[1];
	cr_assert_eq(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID);
	cr_assert_str_eq(paged_client_error(two), "sequence 0.1 is of pool draft, not of pool target");
	expect_ok(paged_mod_parse(target, PAGED_MOD_MASK, "causal", 0, NULL, &causal));
	cr_assert_eq(paged_block_mask_create(
			     target,
			     &(struct paged_block_mask_params){ .struct_size = sizeof(struct paged_block_mask_params),
								.rows = &row,
								.n_rows = 1,
								.physical = 1 },
			     causal, 0, NULL, &mask),
		     PAGED_ERR_INVALID);
	cr_assert_str_eq(paged_client_error(two), "sequence 0.1 is of pool draft, not of pool target");

	/* Erase needs no pool: the id contains it. */
	expect_ok(paged_seq_erase(two, 1, &ids[1]));
	expect_ok(paged_seq_read(target, ids[0], NULL, NULL, 0));
	cr_assert_eq(paged_seq_read(draft, ids[1], NULL, NULL, 0), PAGED_ERR_STALE);
	paged_client_close(two);
}

Test(client, slot_numbers_fit_an_id)
{
	struct paged_pool_params params = fixture_pool_params;
	struct paged_client *large;

	params.n_slots = PAGED_MAX_SLOTS + 1;
	cr_assert_eq(paged_client_open_embedded(&params, 1, NULL, &large), PAGED_ERR_LIMIT);
	cr_assert_str_eq(paged_client_error(large), "pool small: 16777217 sequences, at most 16777216");
	paged_client_close(large);
}

Test(client, a_request_that_fails_with_full_changes_nothing)
{
	paged_seq_id ids[9], half[2] = { fixture_create_seq(0), fixture_create_seq(0) };
	uint32_t tokens[2] = { 36, 36 };
	struct paged_check_result here = { .struct_size = sizeof(here) }, there = { .struct_size = sizeof(there) };

	cr_assert_eq(seqs_reserve(client, 2, half, tokens), PAGED_ERR_FULL);
	cr_assert_eq(fixture_seq_capacity(half[0]), 0);
	cr_assert_eq(seqs_create(client, pool, 9, ids), PAGED_ERR_FULL);
	expect_ok(paged_pool_check(pool, &here));
	expect_ok(paged_admin_check(client, "small", &there));
	cr_assert(here.holds && there.holds);
	cr_assert_eq(here.n_free, FIXTURE_N_PAGES);
	cr_assert_eq(memcmp(&here, &there, sizeof(here)), 0);
}

Test(client, two_clients_in_one_process)
{
	struct paged_client *first = client, *second;
	struct paged_pool *first_pool = pool;

	client_fixture_setup();
	second = client;
	cr_assert_eq(fixture_create_seq(4), ((uint64_t)1 << 32));
	expect_error(paged_pool_open(second, NULL, NULL), PAGED_ERR_INVALID,
		     "a pool needs a name and a place for its handle");
	cr_assert_str_empty(paged_client_error(first));
	client = first;
	pool = first_pool;
	expect_error(paged_seq_read(pool, PAGED_SEQ(1, 0, 1), NULL, NULL, 0), PAGED_ERR_STALE,
		     "pool small has no live sequence 1.1");
	cr_assert_str_eq(paged_client_error(second), "a pool needs a name and a place for its handle");
	paged_client_close(second);
}

static void *
thread_fail_call(void *argument)
{
	(void)argument;
	cr_assert_str_empty(paged_client_error(client));
	expect_error(seqs_create(client, pool, 0, NULL), PAGED_ERR_INVALID, "a request names at least one sequence");
	return NULL;
}

Test(client, error_text_is_per_thread)
{
	pthread_t thread;

	expect_error(seqs_create(client, pool, 1, NULL), PAGED_ERR_INVALID, "an array of the request is NULL");
	cr_assert_eq(pthread_create(&thread, NULL, thread_fail_call, NULL), 0);
	pthread_join(thread, NULL);
	cr_assert_str_eq(paged_client_error(client), "an array of the request is NULL");
}

Test(client, a_thread_keeps_error_text_of_eight_clients)
{
	struct paged_client *others[8];

	cr_assert_str_empty(paged_client_error(client));
	for (int i = 0; i < 8; i++) {
		expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, NULL, &others[i]));
		cr_assert_eq(paged_pool_open(others[i], "other", &(struct paged_pool *){ NULL }), PAGED_ERR_NOENT);
		/* The first client fails again each time, so its text is never the oldest. */
		cr_assert_eq(seqs_create(client, pool, 1, NULL), PAGED_ERR_INVALID);
	}
	cr_assert_str_eq(paged_client_error(client), "an array of the request is NULL");
	cr_assert_str_empty(paged_client_error(others[0]));
	for (int i = 1; i < 8; i++)
		cr_assert_str_eq(paged_client_error(others[i]), "there is no pool other; there are: small");
	for (int i = 0; i < 8; i++)
		paged_client_close(others[i]);
}

Test(client, a_forked_child_may_only_close)
{
	static const char sentence[] = "the client belongs to the parent of this forked process; open one here";
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(4);
	uint32_t tokens = 8;
	int exit_status;
	pid_t child;

	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .kv_len = 1 }));
	child = fork();
	if (child == 0) {
		bool right = seqs_reserve(client, 1, &id, &tokens) == PAGED_ERR_FORK &&
			     strcmp(paged_client_error(client), sentence) == 0 &&
			     paged_batch_plan(batch, 0, NULL) == PAGED_ERR_FORK &&
			     paged_batch_validate(batch) == PAGED_ERR_FORK &&
			     paged_append(batch, 0, NULL, NULL, NULL) == PAGED_ERR_FORK &&
			     paged_client_dispatch(client) == PAGED_ERR_FORK &&
			     paged_pool_check(pool, NULL) == PAGED_ERR_FORK;

		paged_batch_destroy(batch);
		paged_pool_close(pool);
		paged_client_close(client);
		_exit(right ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &exit_status, 0), child);
	cr_assert(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0);
	/* The parent is not affected. */
	expect_ok(paged_batch_validate(batch));
	expect_ok(seqs_reserve(client, 1, &id, &tokens));
}

/* seccomp kills the child at any system call except read, write and exit. */
Test(client, a_forked_child_is_refused_without_a_system_call)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(4);
	int exit_status;
	pid_t child;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	cr_skip("the sanitizer makes system calls of its own");
#endif
	child = fork();
	if (child == 0) {
		bool right = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0 &&
			     paged_seq_erase(client, 1, &id) == PAGED_ERR_FORK &&
			     paged_seq_read(pool, id, NULL, NULL, 0) == PAGED_ERR_FORK &&
			     paged_batch_plan(batch, 0, NULL) == PAGED_ERR_FORK &&
			     paged_attention(batch, 0, NULL, NULL, NULL) == PAGED_ERR_FORK &&
			     paged_client_ping(client) == PAGED_ERR_FORK;

		syscall(SYS_exit, right ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &exit_status, 0), child);
	cr_assert(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0, "status %x", (unsigned int)exit_status);
}

Test(client, an_observer_is_read_only)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	struct paged_session_entry *sessions;
	paged_seq_id id;
	size_t n;

	paged_client_close(client);
	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client));
	expect_ok(paged_pool_open(client, "small", &pool));
	expect_error(seqs_create(client, pool, 1, &id), PAGED_ERR_PERM, "an observer has no sequences");
	expect_ok(paged_admin_sessions(client, sizeof(*sessions), &sessions, &n));
	cr_assert_eq(n, 0);
	paged_free(sessions);
}

Test(client, administration)
{
	struct paged_daemon_info info = { .struct_size = sizeof(info) };
	struct paged_pool_entry *pools;
	struct paged_session_entry *sessions;
	struct paged_seq_entry *sequences, entry;
	uint32_t *pages, row[2];
	paged_seq_id first = fixture_create_seq(4), id = fixture_create_seq(8);
	size_t n;

	expect_ok(paged_admin_status(client, &info));
	cr_assert_eq(info.n_pools, 1);
	cr_assert_eq(info.pid, (uint32_t)getpid());
	cr_assert_eq(strlen(info.boot_id), 32);
	expect_ok(paged_admin_pools(client, sizeof(*pools), &pools, &n));
	cr_assert_eq(n, 1);
	cr_assert_str_eq(pools[0].name, "small");
	cr_assert_eq(pools[0].n_referenced, 3);
	cr_assert_eq(pools[0].n_sequences, 2);
	paged_free(pools);
	expect_ok(paged_admin_sessions(client, sizeof(*sessions), &sessions, &n));
	cr_assert_eq(n, 1);
	cr_assert_eq(sessions[0].session, paged_client_session(client));
	cr_assert_eq(sessions[0].n_pages, 3);
	paged_free(sessions);
	expect_ok(paged_admin_sequences(client, "small", sizeof(*sequences), &sequences, &n));
	cr_assert_eq(n, 2);
	cr_assert_eq(sequences[0].seq, first);
	cr_assert_eq(sequences[1].capacity, 8);
	paged_free(sequences);
	cr_assert_eq(paged_admin_sequences(client, "large", sizeof(*sequences), &sequences, &n), PAGED_ERR_NOENT);
	expect_ok(paged_admin_table(client, id, sizeof(entry), &entry, &pages, &n));
	expect_ok(paged_seq_read(pool, id, NULL, row, 2));
	cr_assert_eq(n, 2);
	cr_assert_eq(memcmp(pages, row, sizeof(row)), 0);
	paged_free(pages);

	expect_error(paged_admin_pools(client, sizeof(struct paged_pool_entry), NULL, &n), PAGED_ERR_INVALID,
		     "an argument is NULL");
	expect_error(paged_admin_kick(client, 1, 1), PAGED_ERR_UNSUPPORTED,
		     "an embedded owner does not kill its own process");
	cr_assert_eq(paged_admin_kick(client, 77, 0), PAGED_ERR_NOENT);
	expect_ok(paged_admin_kick(client, paged_client_session(client), 0));
	cr_assert_eq(seqs_create(client, pool, 1, &id), PAGED_ERR_GONE);
	expect_ok(paged_admin_pools(client, sizeof(*pools), &pools, &n));
	cr_assert_eq(pools[0].n_quarantined, 3);
	paged_free(pools);
}

/* A program built with an older or a newer header has smaller or larger entries. */
Test(client, report_entries_have_the_callers_size)
{
	struct newer {
		struct paged_pool_entry known;
		uint64_t unknown;
	} * newer;
	struct older {
		char name[PAGED_MAX_NAME + 1];
		char backend[16];
	} * older;
	struct paged_daemon_info info = { .struct_size = 0 };
	struct paged_pool_entry *pools;
	size_t n;

	expect_ok(paged_admin_pools(client, sizeof(*newer), &pools, &n));
	newer = (struct newer *)pools;
	cr_assert_str_eq(newer->known.name, "small");
	cr_assert_eq(newer->known.n_pages, newer->known.n_free);
	cr_assert_eq(newer->unknown, 0);
	paged_free(newer);
	expect_ok(paged_admin_pools(client, sizeof(*older), &pools, &n));
	older = (struct older *)pools;
	cr_assert_str_eq(older->name, "small");
	cr_assert_str_eq(older->backend, "host");
	paged_free(older);
	expect_error(paged_admin_pools(client, 0, &pools, &n), PAGED_ERR_INVALID,
		     "entry_size is 0; pass sizeof(the entry)");
	expect_error(paged_admin_status(client, &info), PAGED_ERR_INVALID,
		     "paged_daemon_info: struct_size is 0; set it to sizeof(the struct)");
}

static void
store_log_line(void *argument, enum paged_log_level level, const char *text)
{
	cr_assert_eq(level, PAGED_LOG_DEBUG);
	snprintf(argument, 64, "%s", text);
}

Test(open, failures_are_logged_if_a_log_function_is_set)
{
	char line[64] = "";
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .log = store_log_line,
					      .log_argument = line };

	expect_ok(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client));
	cr_assert_eq(paged_pool_open(client, NULL, NULL), PAGED_ERR_INVALID);
	cr_assert_str_eq(line, "PAGED_ERR_INVALID: a pool needs a name and a place for its hand");
	paged_client_close(client);
}
