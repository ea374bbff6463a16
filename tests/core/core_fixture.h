/* SPDX-License-Identifier: Apache-2.0 */
/** core_fixture.h - a core with the pools that a test adds, and the fixture and assertions of the core's suites */
#ifndef PAGED_CORE_FIXTURE_H
#define PAGED_CORE_FIXTURE_H

#include <criterion/criterion.h>

#include "core/core.h"

#define CORE_FIXTURE_MAX_POOLS PAGED_MAX_POOLS

struct core_fixture {
	struct core *core;
	uint32_t n_pools;
	void *regions[CORE_FIXTURE_MAX_POOLS];
	size_t region_sizes[CORE_FIXTURE_MAX_POOLS];
};

void core_fixture_open(struct core_fixture *fixture);
void core_fixture_close(struct core_fixture *fixture);

/** core_fixture_add - returns the pool's index; the region is shared with children forked later */
uint32_t core_fixture_add(struct core_fixture *fixture, const struct core_pool_params *params);

/** core_fixture_add_pool - adds a pool whose sequences can be published, and a quarter of whose pages can be pinned */
uint32_t core_fixture_add_pool(struct core_fixture *fixture, const char *name, uint32_t n_pages, uint32_t page_size,
			       uint32_t n_slots, uint32_t max_length);

/** core_fixture_page_table - read a sequence's page table in logical order; returns the number of pages */
uint32_t core_fixture_page_table(const struct core_fixture *fixture, uint32_t pool, paged_seq_id seq, uint32_t *pages);

/** The pool "llama" of a suite's fixture; "draft" has 3 pages of 16 tokens, and 2 sequences of 100 tokens. */
#define CORE_FIXTURE_N_PAGES 12u
#define CORE_FIXTURE_PAGE_SIZE 4u
#define CORE_FIXTURE_N_SLOTS 5u
#define CORE_FIXTURE_MAX_LENGTH 40u

/** A suite's fixture: pool 0 is "llama", pool 1 "draft"; one session, with one member. */
/** How the publishes of the last request ended. */
extern uint32_t fixture_ends[2];

extern struct core_fixture core_fixture;
extern struct paged_error core_error;
extern uint32_t fixture_session, fixture_member;

void core_fixture_setup(void);
void core_fixture_teardown(void);

#define expect_ok(call) cr_assert_eq((call), PAGED_OK, "%s", core_error.text)

/** expect_error - the call fails with this status and error text; the page accounting is consistent */
#define expect_error(call, expected, sentence)                 \
	do {                                                   \
		core_error.text[0] = '\0';                     \
		cr_assert_eq((call), (expected));              \
		cr_assert_eq(core_error.status, (expected));   \
		cr_assert_str_eq(core_error.text, (sentence)); \
		expect_accounting();                           \
	} while (0)

/** expect_accounting - the page accounting of every pool is consistent */
void expect_accounting(void);
void expect_counts(uint32_t pool, uint32_t n_free, uint32_t n_referenced, uint32_t n_quarantined);

/** fixture_numbers_text - numbers as "3 2 1", until the next call */
const char *fixture_numbers_text(const uint32_t *numbers, uint32_t n);

/** expect_page_table - the page table of seq has these pages, written as "3 2 1" */
void expect_page_table(uint32_t pool, paged_seq_id seq, const char *pages);
void expect_free_list(uint32_t pool, const char *pages);

/* Requests with one item each, made by a session. */
paged_seq_id fixture_create(uint32_t by_session, uint32_t pool);
/** fixture_create_n - create n sequences in a pool, without tokens or tags */
enum paged_status fixture_create_n(uint32_t by_session, uint32_t pool, uint32_t n, paged_seq_id *ids);
enum paged_status fixture_reserve(uint32_t by_session, paged_seq_id seq, uint32_t tokens);
enum paged_status fixture_truncate(uint32_t by_session, paged_seq_id seq, uint32_t tokens);
enum paged_status fixture_erase(uint32_t by_session, paged_seq_id seq);

#endif
