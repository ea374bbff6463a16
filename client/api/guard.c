/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/guard.h"

#include <sys/mman.h>

bool
guard_init(struct guard *guard)
{
	/* The kernel rounds the size up to whole pages. */
	guard->page = mmap(NULL, sizeof(*guard->page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (guard->page == MAP_FAILED)
		return false;
#if HAVE_DECL_MADV_WIPEONFORK
	guard->wiped = madvise(guard->page, sizeof(*guard->page), MADV_WIPEONFORK) == 0;
#else
	guard->wiped = false;
#endif
	guard->pid = getpid();
	*guard->page = GUARD_WORD;
	return true;
}

void
guard_destroy(struct guard *guard)
{
	munmap(guard->page, sizeof(*guard->page));
}
