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

extern struct fixture f;
extern struct paged_error error;
extern uint32_t session, member;

void case_setup(void);
void case_teardown(void);

#define assert_ok(call) cr_assert_eq((call), PAGED_OK, "%s", error.text)
#define assert_fails(call, expected, sentence)            \
	do {                                              \
		error.text[0] = '\0';                     \
		cr_assert_eq((call), (expected));         \
		cr_assert_eq(error.status, (expected));   \
		cr_assert_str_eq(error.text, (sentence)); \
		assert_accounting();                      \
	} while (0)

/** assert_accounting - the page accounting of every pool is consistent */
void assert_accounting(void);
void assert_counts(uint32_t pool, uint32_t n_free, uint32_t n_referenced, uint32_t n_quarantined);

/** assert_row - the page table of seq has these pages, written as "3 2 1" */
void assert_row(uint32_t pool, paged_seq_id seq, const char *pages);
void assert_free_list(uint32_t pool, const char *pages);

/* Requests with one item each, made by session `of`. */
paged_seq_id create(uint32_t of, uint32_t pool);
/** create_n - create n sequences in a pool, without tokens or tags */
enum paged_status create_n(uint32_t of, uint32_t pool, uint32_t n, paged_seq_id *ids);
enum paged_status reserve(uint32_t of, paged_seq_id seq, uint32_t tokens);
enum paged_status cut(uint32_t of, paged_seq_id seq, uint32_t tokens);
enum paged_status erase(uint32_t of, paged_seq_id seq);

#endif
