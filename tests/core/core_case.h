/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core_case.h - fixture and assertions that the core's test cases share
 *
 * Pool 0 "llama": 12 pages of 4 tokens, 5 sequences of 40 tokens.
 * Pool 1 "draft": 3 pages of 16, 2 of 100.  Session 1 with member 1.
 */
#ifndef PAGED_CORE_CASE_H
#define PAGED_CORE_CASE_H

#include <criterion/criterion.h>

#include "tests/core/core_fixture.h"

extern struct core_fixture core_fixture;
extern struct paged_error core_error;
extern uint32_t fixture_session, fixture_member;

void core_fixture_setup(void);
void core_fixture_teardown(void);

#define expect_ok(call) cr_assert_eq((call), PAGED_OK, "%s", core_error.text)
#define expect_error(call, expected, sentence)                 \
	do {                                                   \
		core_error.text[0] = '\0';                     \
		cr_assert_eq((call), (expected));              \
		cr_assert_eq(core_error.status, (expected));   \
		cr_assert_str_eq(core_error.text, (sentence)); \
		expect_accounting();                           \
	} while (0)

/** assert_accounting - the page accounting of every pool is consistent */
void expect_accounting(void);
void expect_counts(uint32_t pool, uint32_t n_free, uint32_t n_referenced, uint32_t n_quarantined);

/** assert_row - the page table of seq has these pages, written as "3 2 1" */
void expect_page_table(uint32_t pool, paged_seq_id seq, const char *pages);
void expect_free_list(uint32_t pool, const char *pages);

/* Requests with one item each, made by session `of`. */
paged_seq_id fixture_create(uint32_t by_session, uint32_t pool);
/** create_n - create n sequences in a pool, without tokens or tags */
enum paged_status fixture_create_n(uint32_t by_session, uint32_t pool, uint32_t n, paged_seq_id *ids);
enum paged_status fixture_reserve(uint32_t by_session, paged_seq_id seq, uint32_t tokens);
enum paged_status fixture_truncate(uint32_t by_session, paged_seq_id seq, uint32_t tokens);
enum paged_status fixture_erase(uint32_t by_session, paged_seq_id seq);

#endif
