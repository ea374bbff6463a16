/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/core_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void
fixture_require(bool holds, const char *text)
{
	if (!holds) {
		fprintf(stderr, "fixture: %s\n", text);
		abort();
	}
}

void
core_fixture_open(struct core_fixture *fixture)
{
	static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "life of a test";
	struct paged_error error = { 0 };

	*fixture = (struct core_fixture){ 0 };
	fixture_require(core_create(boot_id, &fixture->core, &error) == PAGED_OK, error.text);
}

void
core_fixture_close(struct core_fixture *fixture)
{
	core_destroy(fixture->core);
	for (uint32_t i = 0; i < fixture->n_pools; i++)
		munmap(fixture->regions[i], fixture->region_sizes[i]);
}

uint32_t
core_fixture_add(struct core_fixture *fixture, const struct core_pool_params *params)
{
	size_t size = core_region_size(params);
	struct paged_error error = { 0 };
	uint32_t pool;
	void *region;

	fixture_require(size != 0 && fixture->n_pools < CORE_FIXTURE_MAX_POOLS, "no such pool can be");
	region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	fixture_require(region != MAP_FAILED, "no memory");
	fixture_require(core_pool_add(fixture->core, params, region, &pool, &error) == PAGED_OK, error.text);
	fixture->regions[pool] = region;
	fixture->region_sizes[pool] = size;
	fixture->n_pools++;
	return pool;
}

uint32_t
core_fixture_add_pool(struct core_fixture *fixture, const char *name, uint32_t n_pages, uint32_t page_size,
		      uint32_t n_slots, uint32_t max_length)
{
	struct core_pool_params params = {
		.name = name,
		.n_pages = n_pages,
		.page_size = page_size,
		.n_slots = n_slots,
		.max_length = max_length,
		.publish = true,
		.pin_limit = n_pages / 4,
		.seed = 0x123456789abcdef0,
		.memory_id = "memory of a test",
	};

	return core_fixture_add(fixture, &params);
}

uint32_t
core_fixture_page_table(const struct core_fixture *fixture, uint32_t pool, paged_seq_id seq, uint32_t *pages)
{
	const struct region_view *view = core_pool_view(fixture->core, pool);
	struct region_snapshot snapshot;
	uint32_t n;

	fixture_require(region_snapshot_begin(view, seq, &snapshot) == REGION_READ, "no such sequence");
	fixture_require(snapshot.capacity % view->page_size == 0, "a capacity is no multiple of the page size");
	n = snapshot.capacity / view->page_size;
	for (uint32_t i = 0; i < n; i++)
		pages[i] = atomic_load_explicit(&region_page_table(view, PAGED_SEQ_SLOT(seq))[i], memory_order_relaxed);
	fixture_require(region_snapshot_valid(view, seq, &snapshot), "a snapshot is invalid although nothing changes");
	return n;
}

/* The fixture of a suite. */

struct core_fixture core_fixture;
uint32_t fixture_ends[2];
struct paged_error core_error;
uint32_t fixture_session, fixture_member;

void
core_fixture_setup(void)
{
	core_fixture_open(&core_fixture);
	core_fixture_add_pool(&core_fixture, "llama", CORE_FIXTURE_N_PAGES, CORE_FIXTURE_PAGE_SIZE,
			      CORE_FIXTURE_N_SLOTS, CORE_FIXTURE_MAX_LENGTH);
	core_fixture_add_pool(&core_fixture, "draft", 3, 16, 2, 100);
	cr_assert_eq(core_session_open(core_fixture.core, &fixture_session, &fixture_member, &core_error), PAGED_OK);
}

void
core_fixture_teardown(void)
{
	core_fixture_close(&core_fixture);
}

void
expect_accounting(void)
{
	struct paged_error found;
	struct paged_check_result accounting;

	for (uint32_t i = 0; i < core_n_pools(core_fixture.core); i++)
		cr_assert_eq(core_check(core_fixture.core, i, &accounting, &found), PAGED_OK, "%s", found.text);
}

enum paged_status
fixture_create_n(uint32_t by_session, uint32_t pool, uint32_t n, paged_seq_id *ids)
{
	static struct seq_spec specs[PAGED_MAX_REQUEST_SEQS];

	for (uint32_t i = 0; i < n && i < PAGED_MAX_REQUEST_SEQS; i++)
		specs[i] = (struct seq_spec){ .pool = pool, .tag = "" };
	return core_seq_create(core_fixture.core, by_session, n, specs, ids, &core_error);
}

paged_seq_id
fixture_create(uint32_t by_session, uint32_t pool)
{
	paged_seq_id seq = 0;

	expect_ok(fixture_create_n(by_session, pool, 1, &seq));
	return seq;
}

enum paged_status
fixture_reserve(uint32_t by_session, paged_seq_id seq, uint32_t tokens)
{
	return core_seq_reserve(core_fixture.core, by_session, 1,
				&(struct paged_seq_item){ .seq = seq, .n_tokens = tokens }, &core_error);
}

enum paged_status
fixture_truncate(uint32_t by_session, paged_seq_id seq, uint32_t tokens)
{
	return core_seq_truncate(core_fixture.core, by_session, 1,
				 &(struct paged_seq_item){ .seq = seq, .n_tokens = tokens }, &core_error);
}

enum paged_status
fixture_erase(uint32_t by_session, paged_seq_id seq)
{
	return core_seq_erase(core_fixture.core, by_session, 1, &seq, &core_error);
}

const char *
fixture_numbers_text(const uint32_t *numbers, uint32_t n)
{
	static char text[256];
	int length = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < n; i++)
		length += snprintf(text + length, sizeof(text) - (size_t)length, "%s%u", i == 0 ? "" : " ", numbers[i]);
	return text;
}

void
expect_page_table(uint32_t pool, paged_seq_id seq, const char *pages)
{
	uint32_t numbers[16], n = core_fixture_page_table(&core_fixture, pool, seq, numbers);

	cr_assert_str_eq(fixture_numbers_text(numbers, n), pages);
}

void
expect_free_list(uint32_t pool, const char *pages)
{
	struct paged_pool_entry status;
	uint32_t numbers[16];

	core_pool_status(core_fixture.core, pool, &status);
	core_pool_free_list(core_fixture.core, pool, numbers);
	cr_assert_str_eq(fixture_numbers_text(numbers, status.n_free), pages);
}

void
expect_counts(uint32_t pool, uint32_t n_free, uint32_t n_referenced, uint32_t n_quarantined)
{
	struct paged_pool_entry status;

	core_pool_status(core_fixture.core, pool, &status);
	cr_assert_eq(status.n_free, n_free, "%u free", status.n_free);
	cr_assert_eq(status.n_referenced, n_referenced, "%u referenced", status.n_referenced);
	cr_assert_eq(status.n_quarantined, n_quarantined, "%u quarantined", status.n_quarantined);
	expect_accounting();
}
