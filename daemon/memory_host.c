/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages in host memory: a memfd, present from the start, sealed against
 * resizing.  It takes the largest pages that the system offers for it:
 * reserved huge pages when enough of them are free, transparent ones when
 * the administrator allows them for shared memory, 4 KiB ones otherwise.
 */
#include "daemon/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "daemon/facility.h"
#include "daemon/sysmem.h"
#include "kernels/layout.h"

/* Populated so much at a time, so that a signal gets through. */
#define POPULATE_STEP (256ull << 20)

#ifndef MADV_POPULATE_WRITE /* headers older than the kernel may be */
#define MADV_POPULATE_WRITE 23
#endif

/* Every machine has memory. */
static enum paged_status
host_probe(struct paged_error *error)
{
	(void)error;
	return PAGED_OK;
}

static enum paged_status
host_limits(const struct memory_wish *wish, struct memory_limits *limits, struct paged_error *error)
{
	uint64_t limit, available;
	struct sysmem memory;
	enum paged_status status = sysmem_read(&memory, error);

	(void)wish;
	if (status != PAGED_OK)
		return status;
	limits->total = memory.total;
	limits->available = memory.available;
	strcpy(limits->whose, "the system");
	if (sysmem_cgroup("", &limit, &available) && available < limits->available) {
		limits->total = limit;
		limits->available = available;
		strcpy(limits->whose, "the control group");
	}
	/* A pool lies in ordinary pages or in reserved huge ones, which are nobody's ordinary memory. */
	limits->available = MAX(limits->available, memory.huge_available);
	return PAGED_OK;
}

/* Make every page of the mapping present; -1 and EINVAL: this kernel cannot (before 5.14). */
static int
populate_map(uint8_t *map, uint64_t size)
{
	if (!facility_wanted("PAGED_NO_POPULATE")) {
		errno = EINVAL;
		return -1;
	}
	for (uint64_t done = 0; done < size;) {
		uint64_t step = MIN(size - done, POPULATE_STEP);

		if (madvise(map + done, step, MADV_POPULATE_WRITE) == 0)
			done += step;
		else if (errno != EINTR && errno != EAGAIN)
			return -1;
	}
	return 0;
}

static enum paged_status
populate(int fd, uint8_t *map, uint64_t size, struct paged_error *error)
{
	int result = populate_map(map, size);

	if (result < 0 && errno == EINVAL)
		do
			result = fallocate(fd, 0, 0, (off_t)size);
		while (result < 0 && errno == EINTR);
	if (result == 0)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_BACKEND, "populating %" PRIu64 " bytes: %m", size);
}

/* One attempt with one kind of pages; memory->fd stays open on success only. */
static enum paged_status
attempt(struct memory *memory, const char *name, unsigned int flags, bool transparent, struct paged_error *error)
{
	enum paged_status status;
	void *map;

	memory->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (memory->fd < 0)
		return paged_fail(error, PAGED_ERR_BACKEND, "memfd_create: %m");
	if (ftruncate(memory->fd, (off_t)memory->size) < 0) {
		status = paged_fail(error, PAGED_ERR_BACKEND, "ftruncate to %" PRIu64 " bytes: %m", memory->size);
		goto err_close;
	}
	map = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	if (map == MAP_FAILED) {
		status = paged_fail(error, PAGED_ERR_BACKEND, "mmap of %" PRIu64 " bytes: %m", memory->size);
		goto err_close;
	}
	madvise(map, memory->size, MADV_DONTFORK);
	if (transparent)
		madvise(map, memory->size, MADV_HUGEPAGE);
	status = populate(memory->fd, map, memory->size, error);
	munmap(map, memory->size);
	if (status != PAGED_OK)
		goto err_close;
	if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		status = paged_fail(error, PAGED_ERR_BACKEND, "F_ADD_SEALS: %m");
		goto err_close;
	}
	return PAGED_OK;

err_close:
	close(memory->fd);
	memory->fd = -1;
	return status;
}

static enum paged_status
host_alloc(struct memory *memory, const struct memory_wish *wish, struct paged_error *error)
{
	uint64_t size = wish->size;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool transparent = sysmem_transparent();
	struct sysmem system;
	enum paged_status status = sysmem_read(&system, error);

	if (status != PAGED_OK)
		return status;
	*memory = (struct memory){ .ops = &memory_ops_host, .grant.export = WIRE_EXPORT_FD, .fd = -1 };
	if (system.huge_size != 0 && system.huge_available >= roundup(size, system.huge_size)) {
		memory->size = roundup(size, system.huge_size);
		if (attempt(memory, wish->name, MFD_HUGETLB, false, error) == PAGED_OK) {
			snprintf(memory->text, sizeof(memory->text), "%" PRIu64 " MiB huge pages",
				 system.huge_size >> 20);
			return PAGED_OK;
		}
		/* Somebody else was faster; ordinary pages will do. */
	}
	memory->size = roundup(size, page);
	snprintf(memory->text, sizeof(memory->text), transparent ? "transparent huge pages" : "%" PRIu64 " KiB pages",
		 page >> 10);
	return attempt(memory, wish->name, 0, transparent, error);
}

static void
host_release(struct memory *memory)
{
	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
}

const struct memory_ops memory_ops_host = {
	.name = "host",
	.alignment = LAYOUT_ALIGNMENT_HOST,
	.probe = host_probe,
	.limits = host_limits,
	.alloc = host_alloc,
	.handle = memory_no_handle,
	.release = host_release,
	.look = memory_sound,
};
