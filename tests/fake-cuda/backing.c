/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backing of device memory and shared events: memfds that another process
 * opens through /proc, if the kernel permits it to access this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fake-cuda/fake_cuda.h"

static size_t
page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Clock ticks since boot at which a process began; 0: there is none. */
static uint64_t
process_started(pid_t pid)
{
	char path[64], text[1024], *at;
	unsigned long long started = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strrchr(text, ')');
	if (at == NULL || sscanf(at + 1,
				 " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
				 "%*d %llu",
				 &started) != 1)
		return 0;
	return started;
}

bool
process_gone(int pidfd)
{
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) != 0;
}

static bool
backing_map(struct backing *backing)
{
	void *control = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, backing->fd, (off_t)backing->size);

	if (control == MAP_FAILED) {
		close(backing->fd);
		backing->fd = -1;
		return false;
	}
	backing->control = control;
	return true;
}

bool
backing_make(struct backing *backing, uint32_t magic, size_t size, cuda_device device)
{
	struct backing_control *control;

	size = (size + page_size() - 1) / page_size() * page_size();
	backing->size = size;
	backing->fd = memfd_create("paged-fake-cuda", MFD_CLOEXEC);
	if (backing->fd < 0)
		return false;
	if (ftruncate(backing->fd, (off_t)(size + page_size())) != 0) {
		close(backing->fd);
		return false;
	}
	if (!backing_map(backing))
		return false;
	control = backing->control;
	*control = (struct backing_control){ .magic = magic, .alive = 1, .size = size };
	if (magic != BACKING_EVENT)
		control->device = *device_uuid_of(device);
	return getrandom(&control->id, sizeof(control->id), 0) == sizeof(control->id);
}

bool
backing_open(struct backing *backing, int fd, uint32_t magic)
{
	struct stat stat;

	*backing = (struct backing){ .fd = fd };
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || (size_t)stat.st_size < page_size()) {
		close(fd);
		return false;
	}
	backing->size = (size_t)stat.st_size - page_size();
	if (!backing_map(backing))
		return false;
	if (backing->control->magic == magic && backing->control->size == backing->size)
		return true;
	backing_close(backing);
	return false;
}

void
backing_close(struct backing *backing)
{
	munmap(backing->control, page_size());
	close(backing->fd);
	backing->fd = -1;
}

struct cuda_ipc_handle
backing_export(const struct backing *backing)
{
	const struct backing_handle inside = {
		.magic = backing->control->magic,
		.pid = getpid(),
		.started = process_started(getpid()),
		.fd = backing->fd,
		.id = backing->control->id,
	};
	struct cuda_ipc_handle handle = { { 0 } };

	_Static_assert(sizeof(inside) <= sizeof(handle), "it fits");
	memcpy(&handle, &inside, sizeof(inside));
	return handle;
}

/*
 * The owner in another process-id namespace, of another user, or one that is
 * not dumpable, cannot be looked into: mapping fails.  One that has ended, or
 * freed what the handle named, makes it invalid.
 */
int
backing_import(struct backing *backing, const struct cuda_ipc_handle *handle, uint32_t magic, int *owner_p)
{
	struct backing_handle inside;
	char path[64];
	int fd, owner;

	memcpy(&inside, handle, sizeof(inside));
	if (inside.magic != magic)
		return CUDA_ERROR_INVALID_VALUE;
	if (inside.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (process_started(inside.pid) != inside.started)
		return CUDA_ERROR_INVALID_HANDLE;
	owner = (int)syscall(SYS_pidfd_open, inside.pid, 0);
	if (owner < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)inside.pid, (int)inside.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		int result = errno == ENOENT ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_MAP_FAILED;

		close(owner);
		return result;
	}
	if (!backing_open(backing, fd, magic)) {
		close(owner);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (backing->control->id != inside.id || !backing->control->alive || process_gone(owner)) {
		backing_close(backing);
		close(owner);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*owner_p = owner;
	return CUDA_SUCCESS;
}
