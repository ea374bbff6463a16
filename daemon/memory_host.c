/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages in host memory: a memfd, populated at start and sealed against
 * resizing.  It uses the largest system pages that it can get: reserved huge
 * pages if enough are free, transparent huge pages if the administrator
 * allows them for shared memory, ordinary pages (4 KiB) otherwise.
 */
#include "daemon/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "daemon/kernel_feature.h"
#include "daemon/service_manager.h"
#include "daemon/system_memory.h"
#include "kernels/layout.h"

/* A thread populates this many bytes at a time, then asks the service manager to extend the timeout by 30 s. */
#define POPULATE_STEP (64ull << 20)
#define POPULATE_NOTICE "EXTEND_TIMEOUT_USEC=30000000"
#define POPULATE_MAX_THREADS 16u

#ifndef MADV_POPULATE_WRITE /* the headers may be older than the kernel */
#define MADV_POPULATE_WRITE 23
#endif

/* Always available. */
static enum paged_status
memory_host_probe(struct paged_error *error)
{
	(void)error;
	return PAGED_OK;
}

/* Where /proc and /sys of control groups are; a test build may read others. */
static const char *
system_root(void)
{
#ifdef PAGED_FAULTS
	const char *root = getenv("PAGED_TEST_ROOT");

	if (root != NULL)
		return root;
#endif
	return "";
}

static enum paged_status
memory_host_limits(const struct memory_request *request, struct memory_limits *limits, struct paged_error *error)
{
	uint64_t limit, available;
	struct system_memory memory;
	enum paged_status status = system_memory_read(&memory, error);

	(void)request;
	if (status != PAGED_OK)
		return status;
	limits->total = memory.total;
	limits->available = memory.available;
	strcpy(limits->location, "the system");
	if (system_memory_cgroup_limit(system_root(), &limit, &available) && available < limits->available) {
		limits->total = limit;
		limits->available = available;
		strcpy(limits->location, "the control group");
	}
	/* A pool uses ordinary pages or reserved huge pages, which are not part of the ordinary memory. */
	limits->available = MAX(limits->available, memory.huge_available);
	return PAGED_OK;
}

/*
 * The kernel populates 4 KiB pages one fault at a time, some microseconds
 * each; in a virtual machine, a first touch also waits for the host.
 * Therefore several threads populate the memory.
 */
struct populate_job {
	uint8_t *map;
	uint64_t size;
	_Atomic uint64_t next; /* offset of the next step */
	_Atomic int failed;    /* errno of a failed step; 0: none */
};

/* A stop signal is pending: signals are blocked, and the loop does not run yet. */
static bool
stop_is_pending(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

static void *
populate_main(void *argument)
{
	struct populate_job *populate_job = argument;
	uint64_t at, step;

	while (populate_job->failed == 0 &&
	       (at = atomic_fetch_add(&populate_job->next, POPULATE_STEP)) < populate_job->size) {
		if (stop_is_pending())
			populate_job->failed = EINTR;
		step = MIN(populate_job->size - at, POPULATE_STEP);
		while (madvise(populate_job->map + at, step, MADV_POPULATE_WRITE) < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			populate_job->failed = errno;
			break;
		}
		service_manager_notify(POPULATE_NOTICE);
	}
	return NULL;
}

static unsigned int
populate_n_threads(uint64_t size)
{
	cpu_set_t cpus;
	uint64_t n = 1;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n = (uint64_t)CPU_COUNT(&cpus);
	return (unsigned int)MIN(MIN(n, POPULATE_MAX_THREADS), howmany(size, POPULATE_STEP));
}

/* Populates the mapping; kernels before 5.14 have no MADV_POPULATE_WRITE and use fallocate(). */
static enum paged_status
memory_host_populate(int fd, uint8_t *map, uint64_t size, struct paged_error *error)
{
	struct populate_job populate_job = { .map = map, .size = size };
	unsigned int n = populate_n_threads(size), n_started = 0;
	pthread_t threads[POPULATE_MAX_THREADS];

	if (!kernel_feature_enabled("PAGED_NO_POPULATE"))
		populate_job.failed = EINVAL;
	/* This thread is one of n; if a thread cannot be started, there are fewer. */
	while (n_started + 1 < n && pthread_create(&threads[n_started], NULL, populate_main, &populate_job) == 0)
		n_started++;
	populate_main(&populate_job);
	while (n_started > 0)
		pthread_join(threads[--n_started], NULL);
	if (populate_job.failed == EINVAL)
		do
			populate_job.failed = fallocate(fd, 0, 0, (off_t)size) < 0 ? errno : 0;
		while (populate_job.failed == EINTR && !stop_is_pending());
	errno = populate_job.failed;
	if (errno == 0)
		return PAGED_OK;
	return paged_fail(error, errno == EINTR ? PAGED_ERR_STOPPING : PAGED_ERR_BACKEND,
			  "populating %" PRIu64 " bytes: %m", size);
}

/* Allocates with one kind of system pages; memory->fd stays open on success only. */
static enum paged_status
memory_host_try_alloc(struct memory *memory, const char *name, unsigned int flags, bool transparent,
		      struct paged_error *error)
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
	status = memory_host_populate(memory->fd, map, memory->size, error);
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
memory_host_alloc(struct memory *memory, const struct memory_request *request, struct paged_error *error)
{
	uint64_t size = request->size;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool transparent = system_memory_transparent_huge_pages();
	struct system_memory system;
	enum paged_status status = system_memory_read(&system, error);

	if (status != PAGED_OK)
		return status;
	*memory = (struct memory){ .ops = &memory_ops_host, .grant.export = WIRE_EXPORT_FD, .fd = -1 };
	if (system.huge_size != 0 && system.huge_available >= roundup(size, system.huge_size)) {
		memory->size = roundup(size, system.huge_size);
		if (memory_host_try_alloc(memory, request->file_name, MFD_HUGETLB, false, error) == PAGED_OK) {
			snprintf(memory->text, sizeof(memory->text), "%" PRIu64 " MiB huge pages",
				 system.huge_size >> 20);
			return PAGED_OK;
		}
		/* Another process took the huge pages meanwhile: fall back to ordinary pages. */
	}
	memory->size = roundup(size, page);
	snprintf(memory->text, sizeof(memory->text), transparent ? "transparent huge pages" : "%" PRIu64 " KiB pages",
		 page >> 10);
	return memory_host_try_alloc(memory, request->file_name, 0, transparent, error);
}

static void
memory_host_release(struct memory *memory)
{
	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
}

const struct memory_ops memory_ops_host = {
	.name = "host",
	.alignment = LAYOUT_ALIGNMENT_HOST,
	.probe = memory_host_probe,
	.limits = memory_host_limits,
	.alloc = memory_host_alloc,
	.handle = memory_no_handle,
	.release = memory_host_release,
	.poll = memory_poll_ok,
};
