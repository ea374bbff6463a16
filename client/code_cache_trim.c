/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/code_cache_files.h"

#define ABANDONED_S 3600

struct image_file {
	char name[CODE_CACHE_NAME_SIZE];
	struct timespec used;
	uint64_t size;
};

struct listing {
	struct image_file *files;
	size_t n, room;
	uint64_t bytes;
};

static bool
is_image(const char *name)
{
	return strlen(name) == CODE_CACHE_NAME_SIZE - 1 && strspn(name, "0123456789abcdef") == CODE_CACHE_NAME_SIZE - 1;
}

static bool
is_abandoned(const char *name, const struct stat *stat)
{
	return strncmp(name, CODE_CACHE_TEMPORARY, strlen(CODE_CACHE_TEMPORARY)) == 0 &&
	       stat->st_mtime + ABANDONED_S < time(NULL);
}

/* false: no memory. */
static bool
listing_add(struct listing *listing, const char *name, const struct stat *stat)
{
	struct image_file *file;

	if (listing->n == listing->room) {
		size_t room = listing->room != 0 ? 2 * listing->room : 64;
		struct image_file *more = reallocarray(listing->files, room, sizeof(*more));

		if (more == NULL)
			return false;
		listing->files = more;
		listing->room = room;
	}
	file = &listing->files[listing->n++];
	strcpy(file->name, name);
	file->used = stat->st_mtim;
	file->size = (uint64_t)stat->st_size;
	listing->bytes += file->size;
	return true;
}

static int
by_use(const void *left, const void *right)
{
	const struct timespec *a = &((const struct image_file *)left)->used;
	const struct timespec *b = &((const struct image_file *)right)->used;

	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

static void
list(DIR *stream, struct listing *listing)
{
	struct dirent *entry;
	struct stat stat;

	while ((entry = readdir(stream)) != NULL) {
		if (fstatat(dirfd(stream), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (is_abandoned(entry->d_name, &stat))
			(void)unlinkat(dirfd(stream), entry->d_name, 0);
		else if (is_image(entry->d_name) && !listing_add(listing, entry->d_name, &stat))
			break;
	}
}

void
code_cache_trim(int dir, uint64_t max_bytes)
{
	struct listing listing = { .files = NULL };
	/* A descriptor of its own: positions are the open file's. */
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;

	if (stream == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	list(stream, &listing);
	if (listing.n > 0)
		qsort(listing.files, listing.n, sizeof(*listing.files), by_use);
	for (size_t i = 0; i < listing.n && listing.bytes > max_bytes; i++) {
		(void)unlinkat(dir, listing.files[i].name, 0);
		listing.bytes -= listing.files[i].size;
	}
	free(listing.files);
	closedir(stream);
}
