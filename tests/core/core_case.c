/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/core_case.h"

#include <stdio.h>

struct fixture f;
struct paged_error error;
uint32_t session, member;

void
case_setup(void)
{
	fixture_open(&f);
	fixture_add_pool(&f, "llama", 12, 4, 5, 40);
	fixture_add_pool(&f, "draft", 3, 16, 2, 100);
	cr_assert_eq(core_session_open(f.core, &session, &member, &error), PAGED_OK);
}

void
case_teardown(void)
{
	fixture_close(&f);
}

void
assert_accounting(void)
{
	struct paged_error found;
	struct paged_check_result accounting;

	for (uint32_t i = 0; i < core_n_pools(f.core); i++)
		cr_assert_eq(core_check(f.core, i, &accounting, &found), PAGED_OK, "%s", found.text);
}

enum paged_status
create_n(uint32_t of, uint32_t pool, uint32_t n, paged_seq_id *ids)
{
	static struct seq_spec specs[PAGED_MAX_REQUEST_SEQS];

	for (uint32_t i = 0; i < n && i < PAGED_MAX_REQUEST_SEQS; i++)
		specs[i] = (struct seq_spec){ .pool = pool, .tag = "" };
	return core_seq_create(f.core, of, n, specs, ids, &error);
}

paged_seq_id
create(uint32_t of, uint32_t pool)
{
	paged_seq_id seq = 0;

	assert_ok(create_n(of, pool, 1, &seq));
	return seq;
}

enum paged_status
reserve(uint32_t of, paged_seq_id seq, uint32_t tokens)
{
	return core_seq_reserve(f.core, of, 1, &(struct paged_seq_item){ .seq = seq, .n_tokens = tokens }, &error);
}

enum paged_status
cut(uint32_t of, paged_seq_id seq, uint32_t tokens)
{
	return core_seq_truncate(f.core, of, 1, &(struct paged_seq_item){ .seq = seq, .n_tokens = tokens }, &error);
}

enum paged_status
erase(uint32_t of, paged_seq_id seq)
{
	return core_seq_erase(f.core, of, 1, &seq, &error);
}

/* Numbers as "3 2 1". */
static const char *
text_of(const uint32_t *numbers, uint32_t n)
{
	static char text[256];
	int length = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < n; i++)
		length += snprintf(text + length, sizeof(text) - (size_t)length, "%s%u", i == 0 ? "" : " ", numbers[i]);
	return text;
}

void
assert_row(uint32_t pool, paged_seq_id seq, const char *pages)
{
	uint32_t numbers[16], n = fixture_row(&f, pool, seq, numbers);

	cr_assert_str_eq(text_of(numbers, n), pages);
}

void
assert_free_list(uint32_t pool, const char *pages)
{
	struct paged_pool_entry status;
	uint32_t numbers[16];

	core_pool_status(f.core, pool, &status);
	core_pool_free_list(f.core, pool, numbers);
	cr_assert_str_eq(text_of(numbers, status.n_free), pages);
}

void
assert_counts(uint32_t pool, uint32_t n_free, uint32_t n_referenced, uint32_t n_quarantined)
{
	struct paged_pool_entry status;

	core_pool_status(f.core, pool, &status);
	cr_assert_eq(status.n_free, n_free, "%u free", status.n_free);
	cr_assert_eq(status.n_referenced, n_referenced, "%u referenced", status.n_referenced);
	cr_assert_eq(status.n_quarantined, n_quarantined, "%u quarantined", status.n_quarantined);
	assert_accounting();
}
