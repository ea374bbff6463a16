/* SPDX-License-Identifier: Apache-2.0 */
/* The core with the fault points of fault.h: checks and readers detect the owner's errors. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/core/core_fixture.h"

static struct core_fixture f;
static struct paged_error error;
static uint32_t session;
static struct paged_seq_item item;

static void
setup(void)
{
	uint32_t member;

	core_fixture_open(&f);
	core_fixture_add_pool(&f, "llama", 12, 4, 5, 40);
	cr_assert_eq(core_session_open(f.core, &session, &member, &error), PAGED_OK);
	cr_assert_eq(core_seq_create(f.core, session, 1, &(struct seq_spec){ .tag = "" }, &item.seq, &error), PAGED_OK);
	item.n_tokens = 12;
}

static void
teardown(void)
{
	unsetenv("PAGED_FAULT");
	core_fixture_close(&f);
}

TestSuite(core_faults, .init = setup, .fini = teardown);

Test(core_faults, an_unknown_fault_name_has_no_effect)
{
	struct paged_check_result accounting;

	setenv("PAGED_FAULT", "corrupt-counts", 1);
	cr_assert_eq(core_seq_reserve(f.core, session, 1, &item, &error), PAGED_OK);
	cr_assert_eq(core_check(f.core, 0, &accounting, &error), PAGED_OK, "%s", error.text);
}

Test(core_faults, checks_report_a_corrupt_count)
{
	struct paged_check_result accounting;

	setenv("PAGED_FAULT", "corrupt-count:2", 1);
	cr_assert_eq(core_seq_reserve(f.core, session, 1, &item, &error), PAGED_OK);
	cr_assert_eq(core_check(f.core, 0, &accounting, &error), PAGED_OK, "%s", error.text);
	item.n_tokens = 16;
	cr_assert_eq(core_seq_reserve(f.core, session, 1, &item, &error), PAGED_OK);
	cr_assert_eq(core_check(f.core, 0, &accounting, &error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(error.text, "pool llama: page 3: count 2, but 1 page table entries name it");
	cr_assert_eq(region_check(core_pool_view(f.core, 0), &accounting, &error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(error.text, "page 3: count 2, but 1 page table entries name it");
	/* The core continues: the page is lost, and core_check() still reports it. */
	cr_assert_eq(core_seq_erase(f.core, session, 1, &item.seq, &error), PAGED_OK);
	cr_assert_eq(core_check(f.core, 0, &accounting, &error), PAGED_ERR_CORRUPT);
}

Test(core_faults, a_reader_is_busy_after_a_kill_during_truncate)
{
	const struct region_view *view = core_pool_view(f.core, 0);
	struct paged_check_result accounting;
	struct region_snapshot snapshot;
	int status;
	pid_t child;

	cr_assert_eq(core_seq_reserve(f.core, session, 1, &item, &error), PAGED_OK);
	child = fork();
	if (child == 0) {
		setenv("PAGED_FAULT", "x", 1);
		item.n_tokens = 4;
		core_seq_truncate(f.core, session, 1, &item, &error);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cr_assert_eq(region_snapshot_begin(view, item.seq, &snapshot), REGION_BUSY);
	cr_assert_eq(region_check(view, &accounting, &error), PAGED_ERR_AGAIN);
}
