/* SPDX-License-Identifier: Apache-2.0 */
/* The code cache: directory, ownership, damaged files, size limit, concurrent processes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cuda/jit_cache.h"

static char home[64];
static struct paged_error error;

static void
home_create(void)
{
	strcpy(home, "/tmp/paged-cache.XXXXXX");
	cr_assert_not_null(mkdtemp(home));
}

static void
home_remove(void)
{
	char command[256];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -r %s", home, home);
	cr_assert_eq(system(command), 0);
}

TestSuite(jit_cache, .init = home_create, .fini = home_remove);

static struct jit_key
test_key(const char *text)
{
	const struct jit_key_part part = { text, strlen(text) };

	return jit_key_make(&part, 1);
}

static struct jit_cache *
test_cache_open(uint64_t max_bytes)
{
	struct jit_cache *cache = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/a/b", home);
	cr_assert_eq(jit_cache_open(path, max_bytes, &cache, &error), PAGED_OK, "%s", error.text);
	return cache;
}

static void
cache_put(struct jit_cache *cache, const char *name, const char *bytes, size_t size)
{
	struct jit_key key = test_key(name);

	cr_assert_eq(jit_cache_put(cache, &key, "test 1.0", bytes, size, &error), PAGED_OK, "%s", error.text);
}

static enum paged_status
expect_cached(struct jit_cache *cache, const char *name, const char *expected, size_t size)
{
	struct jit_key key = test_key(name);
	enum paged_status status;
	size_t got_size = 0;
	char *got = NULL;

	status = jit_cache_get(cache, &key, &got, &got_size, &error);
	if (status == PAGED_OK)
		cr_expect(got_size == size && memcmp(got, expected, size) == 0, "%s", name);
	free(got);
	return status;
}

/* Path of the n-th file in the cache's directory; returns the number of files. */
static unsigned int
cache_file_find(const char *number, char *path, size_t size)
{
	unsigned int n = 0;
	struct dirent *entry;
	char dir_path[128];
	DIR *dir;

	snprintf(dir_path, sizeof(dir_path), "%s/a/b", home);
	dir = opendir(dir_path);
	cr_assert_not_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (number == NULL || strncmp(entry->d_name, number, strlen(number)) == 0)
			snprintf(path, size, "%s/%s", dir_path, entry->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

Test(jit_cache, keys_depend_on_the_parts)
{
	const struct jit_key_part a[] = { { "ab", 2 }, { "c", 1 } }, b[] = { { "a", 1 }, { "bc", 2 } };
	struct jit_key keys[] = { jit_key_make(a, 2), jit_key_make(b, 2), jit_key_make(a, 1) };
	struct jit_key again = jit_key_make(a, 2);

	cr_expect_neq(memcmp(&keys[0], &keys[1], sizeof(keys[0])), 0);
	cr_expect_neq(memcmp(&keys[0], &keys[2], sizeof(keys[0])), 0);
	cr_expect_eq(memcmp(&keys[0], &again, sizeof(again)), 0);
}

Test(jit_cache, directory_from_the_environment)
{
	char path[64];

	setenv("HOME", "/home/u", 1);
	unsetenv("PAGED_CACHE_DIR");
	unsetenv("XDG_CACHE_HOME");
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_OK);
	cr_expect_str_eq(path, "/home/u/.cache/paged");
	setenv("XDG_CACHE_HOME", "relative", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_OK);
	cr_expect_str_eq(path, "/home/u/.cache/paged");
	setenv("XDG_CACHE_HOME", "/var/tmp/x", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_OK);
	cr_expect_str_eq(path, "/var/tmp/x/paged");
	setenv("PAGED_CACHE_DIR", "/srv/code", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_OK);
	cr_expect_str_eq(path, "/srv/code");
	setenv("PAGED_CACHE_DIR", "", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_OK);
	cr_expect_str_eq(path, "");
	setenv("PAGED_CACHE_DIR", "code", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_ERR_INVALID);
	cr_expect_str_eq(error.text, "code cache: PAGED_CACHE_DIR=code is no absolute path");
	setenv("PAGED_CACHE_DIR", "/a-path-that-is-longer-than-the-room-that-there-is-for-it-here-aaaaaa", 1);
	cr_expect_eq(jit_cache_path(path, sizeof(path), &error), PAGED_ERR_INVALID);
}

Test(jit_cache, put_get_and_replace)
{
	struct jit_cache *cache = test_cache_open(0);
	struct stat stat;
	char path[512];

	cr_expect_eq(expect_cached(cache, "one", "", 0), PAGED_ERR_NOENT);
	cache_put(cache, "one", "first", 5);
	cache_put(cache, "two", "", 0);
	cr_expect_eq(expect_cached(cache, "one", "first", 5), PAGED_OK);
	cr_expect_eq(expect_cached(cache, "two", "", 0), PAGED_OK);
	cache_put(cache, "one", "second", 6);
	jit_cache_close(cache);
	cache = test_cache_open(0);
	cr_expect_eq(expect_cached(cache, "one", "second", 6), PAGED_OK);
	cr_expect_eq(cache_file_find(NULL, path, sizeof(path)), 2);
	cr_assert_eq(lstat(path, &stat), 0);
	cr_expect_eq(stat.st_mode & 07777, 0600);
	snprintf(path, sizeof(path), "%s/a", home);
	cr_assert_eq(lstat(path, &stat), 0);
	cr_expect_eq(stat.st_mode & 07777, 0700);
	jit_cache_close(cache);
}

Test(jit_cache, disabled_cache)
{
	struct jit_key key = test_key("one");
	size_t size;
	char *bytes;

	cr_expect_eq(jit_cache_get(NULL, &key, &bytes, &size, &error), PAGED_ERR_NOENT);
	cr_expect_eq(jit_cache_put(NULL, &key, "", "", 0, &error), PAGED_ERR_NOENT);
	jit_cache_close(NULL);
}

Test(jit_cache, a_directory_writable_by_others_is_refused)
{
	struct jit_cache *cache;
	char path[512];

	snprintf(path, sizeof(path), "%s/open", home);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0750), 0);
	cr_expect_eq(jit_cache_open(path, 0, &cache, &error), PAGED_ERR_PERM);
	cr_expect_not_null(strstr(error.text, "has mode 0750: others may get at it, 0700 is wanted"), "%s", error.text);
	cr_assert_eq(chmod(path, 0700), 0);
	cr_expect_eq(jit_cache_open(path, 0, &cache, &error), PAGED_OK);
	jit_cache_close(cache);
}

Test(jit_cache, a_directory_of_another_user_is_refused)
{
	struct jit_cache *cache;

	if (geteuid() == 0) {
		char path[512];

		snprintf(path, sizeof(path), "%s/theirs", home);
		cr_assert_eq(mkdir(path, 0700), 0);
		cr_assert_eq(chown(path, 12345, 12345), 0);
		cr_expect_eq(jit_cache_open(path, 0, &cache, &error), PAGED_ERR_PERM);
		cr_expect_not_null(strstr(error.text, "belongs to uid 12345, not to 0"), "%s", error.text);
	} else {
		cr_expect_eq(jit_cache_open("/", 0, &cache, &error), PAGED_ERR_PERM);
		cr_expect_not_null(strstr(error.text, "belongs to uid 0"), "%s", error.text);
	}
}

Test(jit_cache, a_directory_that_cannot_be_created)
{
	struct jit_cache *cache;
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/file", home);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	fclose(file);
	cr_expect_eq(jit_cache_open(path, 0, &cache, &error), PAGED_ERR_SYSTEM);
	cr_expect_not_null(strstr(error.text, "Not a directory"), "%s", error.text);
}

/* Each byte of a file is changed in turn, and the file truncated to each length. */
Test(jit_cache, damaged_files_are_misses)
{
	struct jit_cache *cache = test_cache_open(0);
	char path[512], good[256], bad[256];
	size_t size;
	FILE *file;

	cache_put(cache, "one", "image", 5);
	cr_assert_eq(cache_file_find(NULL, path, sizeof(path)), 1);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	size = fread(good, 1, sizeof(good), file);
	fclose(file);
	cr_expect_not_null(memmem(good, size, "test 1.0", 9), "who made it can be read");
	cr_assert_eq(size, 133);
	for (size_t i = 0; i < 2 * size; i++) {
		size_t length = i < size ? size : i - size;

		memcpy(bad, good, size);
		bad[i % size] ^= 0x10;
		file = fopen(path, "we");
		cr_assert_not_null(file);
		cr_assert_eq(fwrite(i < size ? bad : good, 1, length, file), length);
		fclose(file);
		cr_expect_eq(expect_cached(cache, "one", "image", 5), PAGED_ERR_CORRUPT, "%zu", i);
		cr_expect_eq(access(path, F_OK), -1);
	}
	cache_put(cache, "one", "image", 5);
	cr_expect_eq(expect_cached(cache, "one", "image", 5), PAGED_OK);
	jit_cache_close(cache);
}

Test(jit_cache, removed_files_are_misses)
{
	struct jit_cache *cache = test_cache_open(0);
	struct jit_key key = test_key("one");

	cache_put(cache, "one", "image", 5);
	cache_put(cache, "two", "image", 5);
	jit_cache_remove(cache, &key);
	jit_cache_remove(cache, &key);
	jit_cache_remove(NULL, &key);
	cr_expect_eq(expect_cached(cache, "one", "", 0), PAGED_ERR_NOENT);
	cr_expect_eq(expect_cached(cache, "two", "image", 5), PAGED_OK);
	jit_cache_close(cache);
}

/* The file of another key under this key's name is a miss. */
Test(jit_cache, a_renamed_file_is_a_miss)
{
	struct jit_cache *cache = test_cache_open(0);
	char one[512], two[512];

	cache_put(cache, "one", "image", 5);
	cr_assert_eq(cache_file_find(NULL, one, sizeof(one)), 1);
	cr_assert_eq(expect_cached(cache, "two", "", 0), PAGED_ERR_NOENT);
	snprintf(two, sizeof(two), "%s/a/b/%s", home, strrchr(error.text, ' ') + 1);
	cr_assert_eq(rename(one, two), 0);
	cr_expect_eq(expect_cached(cache, "two", "image", 5), PAGED_ERR_CORRUPT);
	jit_cache_close(cache);
}

Test(jit_cache, eviction_is_least_recently_used)
{
	static const char bytes[1000];
	struct jit_cache *cache = test_cache_open(3500);
	char name[2] = "a", path[512];
	struct jit_key key = test_key("large");

	for (name[0] = 'a'; name[0] <= 'c'; name[0]++) {
		cache_put(cache, name, bytes, sizeof(bytes));
		usleep(12000); /* file times have the resolution of the timer interrupt */
	}
	cr_expect_eq(expect_cached(cache, "a", bytes, sizeof(bytes)), PAGED_OK);
	usleep(12000);
	cache_put(cache, "d", bytes, sizeof(bytes));
	cr_expect_eq(cache_file_find(NULL, path, sizeof(path)), 3);
	cr_expect_eq(expect_cached(cache, "b", "", 0), PAGED_ERR_NOENT);
	cr_expect_eq(expect_cached(cache, "a", bytes, sizeof(bytes)), PAGED_OK);
	cr_expect_eq(expect_cached(cache, "d", bytes, sizeof(bytes)), PAGED_OK);
	cr_expect_eq(jit_cache_put(cache, &key, "", bytes, 3373, &error), PAGED_ERR_LIMIT);
	jit_cache_close(cache);
}

Test(jit_cache, temporary_files_of_dead_writers_are_removed)
{
	const struct timespec long_ago[2] = { { 1000, 0 }, { 1000, 0 } };
	struct jit_cache *cache = test_cache_open(0);
	char path[512];
	int fd;

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/a/b/%s", home, i == 0 ? ".new-1" : i == 1 ? ".new-2" : "notes");
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		cr_assert_geq(fd, 0);
		if (i != 1)
			cr_assert_eq(futimens(fd, long_ago), 0);
		close(fd);
	}
	cache_put(cache, "one", "image", 5);
	cr_expect_eq(cache_file_find(NULL, path, sizeof(path)), 3);
	snprintf(path, sizeof(path), "%s/a/b/.new-1", home);
	cr_expect_eq(access(path, F_OK), -1);
	jit_cache_close(cache);
}

/* Readers get complete contents while other processes write and evict. */
static int
cache_child(unsigned int number)
{
	static char bytes[20000];
	struct jit_cache *cache = test_cache_open(50000);

	for (unsigned int i = 0; i < 300; i++) {
		char name[2] = { (char)('a' + (i + number) % 5), '\0' };
		enum paged_status status;

		memset(bytes, name[0], sizeof(bytes));
		if (i % 3 == 0) {
			struct jit_key key = test_key(name);

			if (jit_cache_put(cache, &key, "", bytes, sizeof(bytes), &error) != PAGED_OK)
				return 1;
			continue;
		}
		status = expect_cached(cache, name, bytes, sizeof(bytes));
		if (status != PAGED_OK && status != PAGED_ERR_NOENT)
			return 2;
	}
	jit_cache_close(cache);
	return 0;
}

Test(jit_cache, concurrent_processes)
{
	pid_t children[4];
	int status;

	for (unsigned int i = 0; i < 4; i++) {
		children[i] = fork();
		cr_assert_geq(children[i], 0);
		if (children[i] == 0)
			_exit(cache_child(i));
	}
	for (unsigned int i = 0; i < 4; i++) {
		cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
		cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
	}
}
