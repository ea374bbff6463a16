/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/guard.h"

#include <sys/mman.h>

static bool
page_wipe_on_fork(void *page, size_t size)
{
#if HAVE_DECL_MADV_WIPEONFORK
	return madvise(page, size, MADV_WIPEONFORK) == 0;
#else
	(void)page;
	(void)size;
	return false;
#endif
}

bool
guard_init(struct guard *guard)
{
	/* The kernel maps whole pages, whatever their size. */
	guard->page = mmap(NULL, sizeof(*guard->page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (guard->page == MAP_FAILED)
		return false;
	guard->wiped = page_wipe_on_fork(guard->page, sizeof(*guard->page));
	guard->pid = getpid();
	*guard->page = GUARD_WORD;
	return true;
}

void
guard_destroy(struct guard *guard)
{
	munmap(guard->page, sizeof(*guard->page));
}
