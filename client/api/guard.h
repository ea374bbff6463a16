/* SPDX-License-Identifier: Apache-2.0 */
/**
 * guard.h - does this process own the object, or did it inherit it by fork()?
 *
 * A word is kept in a page that the kernel zeroes in a child (MADV_WIPEONFORK,
 * Linux 4.14), so the check is one load.  Where the kernel or the headers lack
 * MADV_WIPEONFORK (gVisor, for one), the check compares process ids, which
 * costs a getpid() system call each time.
 *
 * Threads: a guard is written at init and only read afterwards.
 */
#ifndef PAGED_CLIENT_GUARD_H
#define PAGED_CLIENT_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#define GUARD_WORD 0x50414745444f4b21ull

struct guard {
	uint64_t *page; /* mapped; holds the word or, in a child, zero */
	bool wiped;     /* the kernel wipes the page */
	pid_t pid;      /* compared if the kernel does not wipe the page */
};

/** guard_init - returns false if there is no memory */
bool guard_init(struct guard *guard);

/** guard_destroy - unmap the page; valid in the creating process and in its children */
void guard_destroy(struct guard *guard);

static inline bool
guard_in_child(const struct guard *guard)
{
	if (__builtin_expect(guard->wiped, true))
		return *(const volatile uint64_t *)guard->page != GUARD_WORD;
	return getpid() != guard->pid;
}

#endif
