/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct memory_ops *const back_ends[] = { &memory_ops_host, &memory_ops_cuda };

enum paged_status
memory_ops_find(const char *name, const struct memory_ops **ops_p, struct paged_error *error)
{
	for (size_t i = 0; i < sizeof(back_ends) / sizeof(back_ends[0]); i++) {
		if (strcmp(name, back_ends[i]->name) == 0) {
			*ops_p = back_ends[i];
			return PAGED_OK;
		}
	}
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "this build has the back ends host and cuda");
}

enum paged_status
memory_no_handle(const struct memory *memory, struct wire_handle *handle, struct paged_error *error)
{
	(void)handle;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "memory of %s is opened by its descriptor, it has no handle",
			  memory->text);
}

enum paged_status
memory_poll_ok(const struct memory *memory, struct paged_error *error)
{
	(void)memory, (void)error;
	return PAGED_OK;
}

enum paged_status
memory_region_create(const char *name, size_t size, void **map_p, int *fd_p, struct paged_error *error)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64];
	void *map;

	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "memfd_create: %m");
	if (ftruncate(fd, (off_t)size) < 0) {
		paged_fail(error, PAGED_ERR_SYSTEM, "table region of %zu bytes: ftruncate: %m", size);
		goto err_close;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED) {
		paged_fail(error, PAGED_ERR_SYSTEM, "table region of %zu bytes: mmap: %m", size);
		goto err_close;
	}
	/* A huge page would populate more than what is written.  EINVAL: a kernel without huge pages. */
	madvise(map, size, MADV_NOHUGEPAGE);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		paged_fail(error, PAGED_ERR_SYSTEM, "table region: F_ADD_SEALS: %m");
		goto err_unmap;
	}
	/*
	 * Members get a descriptor that is open for reading, and the mode keeps other users from opening it for
	 * writing through /proc.  F_SEAL_FUTURE_WRITE would also keep the daemon from giving memory of the region back.
	 */
	if (fchmod(fd, S_IRUSR) < 0) {
		paged_fail(error, PAGED_ERR_SYSTEM, "table region: fchmod: %m");
		goto err_unmap;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*fd_p = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd_p < 0) {
		paged_fail(error, PAGED_ERR_SYSTEM, "table region: /proc/self/fd: %m");
		goto err_unmap;
	}
	close(fd);
	*map_p = map;
	return PAGED_OK;

err_unmap:
	munmap(map, size);
err_close:
	close(fd);
	return error->status;
}
