/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of pools and of page tables on the host, and the machine's limits. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/memory.h"
#include "daemon/system_memory.h"

#define SIZE (5ull << 20)

static struct memory memory;
static struct paged_error error;

static void
alloc(void)
{
	cr_assert_eq(
		memory_ops_host.alloc(&memory, &(struct memory_request){ .file_name = "unit", .size = SIZE }, &error),
		PAGED_OK, "%s", error.text);
}

static void
release(void)
{
	memory_ops_host.release(&memory);
	cr_assert_eq(memory.fd, -1);
}

Test(memory_host, is_present_and_says_what_it_is, .init = alloc, .fini = release)
{
	struct stat stat;

	cr_assert_eq(fstat(memory.fd, &stat), 0);
	cr_expect_eq((uint64_t)stat.st_size, memory.size);
	cr_expect_geq(memory.size, SIZE);
	cr_expect_geq((uint64_t)stat.st_blocks * 512, SIZE, "populated");
	cr_expect_gt(strlen(memory.text), 0);
}

/* More than one thread has something to do, and the last step is short. */
Test(memory_host, is_populated_by_threads)
{
	const struct memory_request request = { .file_name = "unit", .size = (130ull << 20) + 4096 };
	struct stat stat;

	cr_assert_eq(memory_ops_host.alloc(&memory, &request, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(fstat(memory.fd, &stat), 0);
	cr_expect_geq((uint64_t)stat.st_blocks * 512, request.size);
	release();
}

Test(memory_host, signal_ends_the_population)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	raise(SIGTERM);
	cr_expect_eq(
		memory_ops_host.alloc(&memory, &(struct memory_request){ .file_name = "unit", .size = SIZE }, &error),
		PAGED_ERR_STOPPING);
	cr_expect(strstr(error.text, "Interrupted system call") != NULL, "%s", error.text);
	cr_expect_eq(memory.fd, -1);
}

/* A tree of proc and sys, made of "path content" pairs. */
static void
expect_cgroup(const char *const *files, bool expected, uint64_t expected_limit, uint64_t expected_available)
{
	char root[] = "/tmp/unit-system_memory-XXXXXX", command[512];
	uint64_t limit = 0, available = 0;

	cr_assert_not_null(mkdtemp(root));
	for (; *files != NULL; files += 2) {
		snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s) && printf '%s' >%s/%s", root, files[0],
			 files[1], root, files[0]);
		cr_assert_eq(system(command), 0, "%s", command);
	}
	cr_expect_eq(system_memory_cgroup_limit(root, &limit, &available), expected);
	cr_expect_eq(limit, expected_limit);
	cr_expect_eq(available, expected_available);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert_eq(system(command), 0);
}

Test(system_memory, limits_of_control_groups)
{
#define V1 "sys/fs/cgroup/memory/"
#define V2 "sys/fs/cgroup/"
	expect_cgroup((const char *const[]){ "proc/self/cgroup", "0::/a/b\n", V2 "a/memory.max", "4000\n",
					     V2 "a/memory.current", "3000\n", V2 "a/memory.stat",
					     "anon 5\ninactive_file 400\nactive_file 100\n", V2 "a/b/memory.max",
					     "max\n", V2 "a/b/memory.current", "3000\n", NULL },
		      true, 4000, 1500);
	/* The group's own limit, and one above it. */
	expect_cgroup((const char *const[]){ "proc/self/cgroup", "5:cpu,memory:/a/b\n3:pids:/x\n0::/\n",
					     V1 "a/b/memory.limit_in_bytes", "9223372036854771712\n",
					     V1 "a/b/memory.usage_in_bytes", "7000\n", V1 "a/memory.limit_in_bytes",
					     "10000\n", V1 "a/memory.usage_in_bytes", "8000\n", V1 "a/memory.stat",
					     "inactive_file 7\ntotal_inactive_file 500\ntotal_active_file 0\n", NULL },
		      true, 10000, 2500);
	/* A container sees its own group as the root. */
	expect_cgroup((const char *const[]){ "proc/self/cgroup", "4:memory:/docker/123\n", V1 "memory.limit_in_bytes",
					     "600\n", V1 "memory.usage_in_bytes", "700\n", NULL },
		      true, 600, 0);
	expect_cgroup((const char *const[]){ "proc/self/cgroup", "1:name=systemd:/\n0::/\n", NULL }, false, 0, 0);
}

Test(memory_host, workers_may_write_but_not_resize, .init = alloc, .fini = release)
{
	uint8_t *map = mmap(NULL, memory.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);

	cr_assert_neq(map, MAP_FAILED);
	cr_expect_eq(map[memory.size - 1], 0);
	map[memory.size - 1] = 1;
	munmap(map, memory.size);
	cr_expect_eq(ftruncate(memory.fd, 0), -1);
	cr_expect_eq(errno, EPERM);
	cr_expect_eq(ftruncate(memory.fd, (off_t)memory.size * 2), -1);
	cr_expect_eq(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_WRITE), -1, "no further seals can be added");
}

Test(memory_host, more_than_available_memory_is_an_error)
{
	struct memory_limits limits;

	cr_assert_eq(memory_ops_host.limits(NULL, &limits, &error), PAGED_OK);
	cr_expect_gt(limits.total, 0);
	cr_expect_gt(limits.available, 0);
	cr_expect_eq(memory_ops_host.alloc(&memory, &(struct memory_request){ .file_name = "unit", .size = 1ull << 62 },
					   &error),
		     PAGED_ERR_BACKEND);
	cr_expect_eq(memory.fd, -1);
}

static void *region;
static int region_fd;
#define REGION_SIZE (1ull << 30)

static void
region_create(void)
{
	cr_assert_eq(memory_region_create("unit", REGION_SIZE, &region, &region_fd, &error), PAGED_OK, "%s",
		     error.text);
}

/* What a member may try with the descriptor that it is given; returns how many of these the kernel allowed. */
static int
member_writes(void)
{
	uint8_t *map = mmap(NULL, REGION_SIZE, PROT_READ, MAP_SHARED, region_fd, 0);
	int n_allowed = map == MAP_FAILED;

	n_allowed += mprotect(map, 4096, PROT_READ | PROT_WRITE) == 0;
	n_allowed += madvise(map, 4096, MADV_REMOVE) == 0;
	n_allowed += mmap(NULL, REGION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0) != MAP_FAILED;
	n_allowed += pwrite(region_fd, "x", 1, 0) >= 0;
	n_allowed += ftruncate(region_fd, 0) == 0;
	n_allowed += fallocate(region_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
	n_allowed += fcntl(region_fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
	munmap(map, REGION_SIZE);
	return n_allowed;
}

Test(memory_region, is_the_daemons_alone_to_write, .init = region_create)
{
	uint8_t *map = mmap(NULL, REGION_SIZE, PROT_READ, MAP_SHARED, region_fd, 0);
	struct stat stat;

	cr_assert_neq(map, MAP_FAILED);
	memset(region, 7, 100);
	cr_expect_eq(map[99], 7, "the daemon's mapping still writes");
	cr_expect_eq(member_writes(), 0);
	cr_expect_eq(map[99], 7);
	cr_assert_eq(fstat(region_fd, &stat), 0);
	cr_expect_eq(stat.st_mode & 0777, 0400);
	cr_expect_eq(fcntl(region_fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

/* A member of another user; returns how many of its attempts the kernel allowed. */
static int
other_user_writes(void)
{
	char path[64];
	int n_allowed;

	if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
		return 100;
	n_allowed = member_writes() + (fchmod(region_fd, 0600) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", region_fd);
	n_allowed += open(path, O_RDWR | O_CLOEXEC) >= 0;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), region_fd);
	return n_allowed + (open(path, O_RDWR | O_CLOEXEC) >= 0);
}

Test(memory_region, other_users_cannot_open_it_for_writing, .init = region_create)
{
	pid_t child;
	int state;

	if (geteuid() != 0)
		cr_skip_test("only root can become another user");
	child = fork();
	if (child == 0)
		_exit(other_user_writes());
	cr_assert_eq(waitpid(child, &state, 0), child);
	cr_assert(WIFEXITED(state));
	cr_expect_eq(WEXITSTATUS(state), 0);
}

Test(memory_region, costs_what_was_written, .init = region_create)
{
	struct stat stat;

	((uint8_t *)region)[REGION_SIZE - 1] = 1;
	cr_assert_eq(fstat(region_fd, &stat), 0);
	cr_expect_leq(stat.st_blocks * 512, 4096);
}
