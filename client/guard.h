/* SPDX-License-Identifier: Apache-2.0 */
/**
 * guard.h - does this process own the object, or did it inherit it by fork()?
 *
 * A page that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14)
 * holds a word: asking is one load.  Where the kernel or the headers lack
 * that (gVisor, for one) the process id is compared, which costs a
 * getpid() a call; correct, but no longer free of system calls.
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
	pid_t pid;      /* for a kernel that does not */
};

/** guard_init - false: no memory */
bool guard_init(struct guard *guard);

/** guard_destroy - gives the page back, in the process that made it and in children */
void guard_destroy(struct guard *guard);

static inline bool
guard_in_child(const struct guard *guard)
{
	if (__builtin_expect(guard->wiped, true))
		return *(const volatile uint64_t *)guard->page != GUARD_WORD;
	return getpid() != guard->pid;
}

#endif
