/* SPDX-License-Identifier: Apache-2.0 */
/* The core with the fault points of fault.h: checks and readers detect the owner's errors. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/core/core_fixture.h"

static struct paged_seq_item item; /* of a request for 12 tokens */

static void
faults_setup(void)
{
	core_fixture_setup();
	item = (struct paged_seq_item){ .seq = fixture_create(fixture_session, 0), .n_tokens = 12 };
}

static void
faults_teardown(void)
{
	unsetenv("PAGED_FAULT");
	core_fixture_teardown();
}

TestSuite(core_faults, .init = faults_setup, .fini = faults_teardown);

Test(core_faults, an_unknown_fault_name_has_no_effect)
{
	struct paged_check_result accounting;

	setenv("PAGED_FAULT", "corrupt-counts", 1);
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 1, &item, &core_error));
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_OK, "%s", core_error.text);
}

Test(core_faults, checks_report_a_corrupt_count)
{
	struct paged_check_result accounting;

	setenv("PAGED_FAULT", "corrupt-count:2", 1);
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 1, &item, &core_error));
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_OK, "%s", core_error.text);
	item.n_tokens = 16;
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 1, &item, &core_error));
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "pool llama: page 3: count 2, but 1 page table entries name it");
	cr_assert_eq(region_check(core_pool_view(core_fixture.core, 0), &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "page 3: count 2, but 1 page table entries name it");
	/* The core continues: the page is lost, and core_check() still reports it. */
	expect_ok(core_seq_erase(core_fixture.core, fixture_session, 1, &item.seq, &core_error));
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_ERR_CORRUPT);
}

typedef enum paged_status (*change_fn)(struct core *core, uint32_t session, uint32_t n,
				       const struct paged_seq_item *items, struct paged_error *error);

/* The owner is killed inside a request with n_tokens 4, between the stores of a page table. */
static void
expect_busy_after_kill(change_fn change)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	struct paged_check_result accounting;
	struct region_snapshot snapshot;
	int status;
	pid_t child;

	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 1, &item, &core_error));
	child = fork();
	if (child == 0) {
		setenv("PAGED_FAULT", "page-table-update", 1);
		item.n_tokens = 4;
		change(core_fixture.core, fixture_session, 1, &item, &core_error);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cr_assert_eq(region_snapshot_begin(view, item.seq, &snapshot), REGION_BUSY);
	cr_assert_eq(region_check(view, &accounting, &core_error), PAGED_ERR_AGAIN);
}

Test(core_faults, a_reader_is_busy_after_a_kill_during_truncate)
{
	expect_busy_after_kill(core_seq_truncate);
}

Test(core_faults, a_reader_is_busy_after_a_kill_during_trim)
{
	expect_busy_after_kill(core_seq_trim);
}

Test(core_faults, a_reader_is_busy_after_a_kill_during_adopt)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	static const uint8_t ticket[PAGED_TICKET_SIZE] = { 1 };
	struct region_snapshot snapshot;
	int status;
	pid_t child;
	uint32_t n;

	item.n_tokens = 0;
	expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item, &(struct seq_give){ .timeout_ms = 9 },
				ticket, &core_error));
	child = fork();
	if (child == 0) {
		setenv("PAGED_FAULT", "page-table-update", 1);
		core_seq_adopt(core_fixture.core, fixture_session, 0, 0, ticket, 1, &item, &n, &core_error);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cr_assert_eq(region_snapshot_begin(view, item.seq, &snapshot), REGION_BUSY);
}
