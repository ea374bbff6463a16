/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child is distinguished from its parent, with and without the wipe-on-fork page. */
#include <criterion/criterion.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/api/guard.h"

/* The guard's result in a child that may only exit; -1: it made a system call. */
static int
guard_state_in_child(const struct guard *guard, bool strict)
{
	int status;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	cr_skip("a thread of the sanitizer outlives the child's own");
#endif
	child = fork();
	if (child == 0) {
		if (strict && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			_exit(99);
		syscall(SYS_exit, guard_in_child(guard));
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(guard, wipe_on_fork_page_needs_no_system_call)
{
	struct guard guard;

	cr_assert(guard_init(&guard));
	if (!guard.wiped)
		cr_skip("this kernel wipes no page");
	cr_assert(!guard_in_child(&guard));
	cr_assert_eq(guard_state_in_child(&guard, true), 1);
	cr_assert(!guard_in_child(&guard));
	guard_destroy(&guard);
}

Test(guard, fallback_compares_process_ids)
{
	struct guard guard;

	cr_assert(guard_init(&guard));
	guard.wiped = false;
	cr_assert(!guard_in_child(&guard));
	cr_assert_eq(guard_state_in_child(&guard, false), 1);
	guard_destroy(&guard);
}
