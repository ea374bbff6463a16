/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages in host memory: a memfd, present from the start, sealed against
 * resizing.  It takes the largest pages that the system offers for it:
 * reserved huge pages when enough of them are free, transparent ones when
 * the administrator allows them for shared memory, 4 KiB ones otherwise.
 */
#include "daemon/memory.h"

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "daemon/sysmem.h"

/* Populated so much at a time, so that a signal gets through. */
#define POPULATE_STEP (256ull << 20)

static enum paged_status
host_limits(struct memory_limits *limits, struct paged_error *error)
{
	uint64_t limit, available;
	struct sysmem memory;
	enum paged_status status = sysmem_read(&memory, error);

	if (status != PAGED_OK)
		return status;
	limits->total = memory.total;
	limits->available = memory.available;
	limits->whose = "the system";
	if (sysmem_cgroup(&limit, &available) && available < limits->available) {
		limits->total = limit;
		limits->available = available;
		limits->whose = "the control group";
	}
	/* A pool lies in ordinary pages or in reserved huge ones, which are nobody's ordinary memory. */
	limits->available = MAX(limits->available, memory.huge_available);
	return PAGED_OK;
}

/* Make every page present; a plain fallocate() does it where madvise() cannot (Linux before 5.14). */
static enum paged_status
populate(int fd, uint8_t *map, uint64_t size, struct paged_error *error)
{
#if HAVE_DECL_MADV_POPULATE_WRITE
	for (uint64_t done = 0; done < size;) {
		uint64_t step = MIN(size - done, POPULATE_STEP);

		if (madvise(map + done, step, MADV_POPULATE_WRITE) == 0) {
			done += step;
			continue;
		}
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL && done == 0)
			goto fallback;
		return paged_fail(error, PAGED_ERR_BACKEND, "populating %" PRIu64 " bytes: %m", size);
	}
	return PAGED_OK;
fallback:
#else
	(void)map;
#endif
	while (fallocate(fd, 0, 0, (off_t)size) < 0)
		if (errno != EINTR)
			return paged_fail(error, PAGED_ERR_BACKEND, "populating %" PRIu64 " bytes: %m", size);
	return PAGED_OK;
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
host_alloc(struct memory *memory, const char *name, uint64_t size, struct paged_error *error)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool transparent = sysmem_transparent();
	struct sysmem system;
	enum paged_status status = sysmem_read(&system, error);

	if (status != PAGED_OK)
		return status;
	*memory = (struct memory){ .ops = &memory_ops_host, .fd = -1 };
	if (system.huge_size != 0 && system.huge_available >= roundup(size, system.huge_size)) {
		memory->size = roundup(size, system.huge_size);
		if (attempt(memory, name, MFD_HUGETLB, false, error) == PAGED_OK) {
			snprintf(memory->text, sizeof(memory->text), "%" PRIu64 " MiB huge pages",
				 system.huge_size >> 20);
			return PAGED_OK;
		}
		/* Somebody else was faster; ordinary pages will do. */
	}
	memory->size = roundup(size, page);
	snprintf(memory->text, sizeof(memory->text), transparent ? "transparent huge pages" : "%" PRIu64 " KiB pages",
		 page >> 10);
	return attempt(memory, name, 0, transparent, error);
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
	.limits = host_limits,
	.alloc = host_alloc,
	.release = host_release,
};
