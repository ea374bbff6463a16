/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/jit_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"

#define DEFAULT_MAX_BYTES (UINT64_C(256) << 20)

/* An image's name: 64 hexadecimal digits. */
#define NAME_SIZE 65
/* A file's name begins with this while it is written. */
#define TEMPORARY ".new-"
/* A temporary file that is older than this was left by a process that died. */
#define ABANDONED_S 3600

/* The header of a file; the image follows. */
struct header {
	char magic[8];
	struct jit_key key;
	uint64_t size;                /* of the image */
	uint8_t digest[JIT_KEY_SIZE]; /* SHA-256 of the fields below and the image */
	char maker[48];               /* zero-terminated */
};

_Static_assert(sizeof(struct header) == 128, "no padding");
_Static_assert(JIT_KEY_SIZE == crypto_hash_sha256_BYTES, "a key is a SHA-256");

static const char magic[8] = "pagedcc2";

struct jit_cache {
	int dir;
	uint64_t max_bytes;
	char path[];
};

struct jit_key
jit_key_make(const struct jit_key_part *parts, size_t n_parts)
{
	crypto_hash_sha256_state state;
	struct jit_key key;

	crypto_hash_sha256_init(&state);
	for (size_t i = 0; i < n_parts; i++) {
		uint64_t size = parts[i].size;

		crypto_hash_sha256_update(&state, (const unsigned char *)&size, sizeof(size));
		crypto_hash_sha256_update(&state, parts[i].bytes, parts[i].size);
	}
	crypto_hash_sha256_final(&state, key.bytes);
	return key;
}

/* The directory */

static enum paged_status
jit_cache_make_path(char *path, size_t size, const char *name, const char *parent, const char *rest,
		    struct paged_error *error)
{
	int length = snprintf(path, size, "%s%s", parent, rest);

	if (parent[0] != '/')
		return paged_fail(error, PAGED_ERR_INVALID, "code cache: %s=%.100s is no absolute path", name, parent);
	if (length < 0 || (size_t)length >= size)
		return paged_fail(error, PAGED_ERR_INVALID, "code cache: %s has %zu bytes, which is too long", name,
				  strlen(parent));
	return PAGED_OK;
}

enum paged_status
jit_cache_path(char *path, size_t size, struct paged_error *error)
{
	const char *own = secure_getenv("PAGED_CACHE_DIR"), *shared = secure_getenv("XDG_CACHE_HOME");
	const char *home = secure_getenv("HOME");
	struct passwd entry, *found = NULL;
	char room[4096];

	if (own != NULL && own[0] == '\0') {
		path[0] = '\0';
		return PAGED_OK;
	}
	if (own != NULL)
		return jit_cache_make_path(path, size, "PAGED_CACHE_DIR", own, "", error);
	/* The XDG specification requires that a relative path is ignored. */
	if (shared != NULL && shared[0] == '/')
		return jit_cache_make_path(path, size, "XDG_CACHE_HOME", shared, "/paged", error);
	if ((home == NULL || home[0] == '\0') && getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) == 0 &&
	    found != NULL)
		home = entry.pw_dir;
	if (home == NULL || home[0] == '\0')
		return paged_fail(error, PAGED_ERR_NOENT, "code cache: uid %u has no home directory",
				  (unsigned int)geteuid());
	return jit_cache_make_path(path, size, "HOME", home, "/.cache/paged", error);
}

static void
jit_cache_make_directories(const char *path)
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%s", path);
	for (char *at = strchr(part + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(part, 0700);
		*at = '/';
	}
	/* A failure shows when the directory is opened. */
	(void)mkdir(part, 0700);
}

enum paged_status
jit_cache_open(const char *path, uint64_t max_bytes, struct jit_cache **cache_p, struct paged_error *error)
{
	struct jit_cache *cache = malloc(sizeof(*cache) + strlen(path) + 1);
	enum paged_status status = PAGED_OK;
	struct stat stat;

	if (cache == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for the code cache");
	jit_cache_make_directories(path);
	cache->max_bytes = max_bytes != 0 ? max_bytes : DEFAULT_MAX_BYTES;
	strcpy(cache->path, path);
	cache->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cache->dir < 0 || fstat(cache->dir, &stat) != 0)
		status = paged_fail(error, PAGED_ERR_SYSTEM, "code cache: %s: %s", path, strerror(errno));
	else if (stat.st_uid != geteuid())
		status = paged_fail(error, PAGED_ERR_PERM, "code cache: %s belongs to uid %u, not to %u", path,
				    (unsigned int)stat.st_uid, (unsigned int)geteuid());
	else if ((stat.st_mode & 077) != 0)
		status = paged_fail(error, PAGED_ERR_PERM,
				    "code cache: %s has mode %04o: others may get at it, 0700 is wanted", path,
				    (unsigned int)(stat.st_mode & 07777));
	if (status == PAGED_OK)
		*cache_p = cache;
	else
		jit_cache_close(cache);
	return status;
}

void
jit_cache_close(struct jit_cache *cache)
{
	if (cache == NULL)
		return;
	if (cache->dir >= 0)
		close(cache->dir);
	free(cache);
}

/* Files */

/* Returns NULL and sets errno on a failure. */
static FILE *
jit_cache_open_file(const struct jit_cache *cache, const char *name, int flags, const char *mode)
{
	int fd = openat(cache->dir, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd >= 0 ? fdopen(fd, mode) : NULL;

	if (fd >= 0 && file == NULL)
		close(fd);
	return file;
}

static void
jit_cache_digest(const struct header *header, const char *bytes, uint8_t digest[JIT_KEY_SIZE])
{
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const unsigned char *)header->maker, sizeof(header->maker));
	crypto_hash_sha256_update(&state, (const unsigned char *)bytes, header->size);
	crypto_hash_sha256_final(&state, digest);
}

/* Read the image of an open file and check header and digest. */
static enum paged_status
jit_cache_read_image(FILE *file, const struct jit_key *key, char **bytes_p, size_t *size_p, struct paged_error *error)
{
	uint8_t digest[JIT_KEY_SIZE];
	struct header header;
	struct stat stat;
	char *bytes;

	if (fstat(fileno(file), &stat) != 0 || !S_ISREG(stat.st_mode) || (size_t)stat.st_size < sizeof(header) ||
	    fread(&header, sizeof(header), 1, file) != 1 || memcmp(header.magic, magic, sizeof(magic)) != 0 ||
	    memcmp(&header.key, key, sizeof(*key)) != 0 || header.size != (uint64_t)stat.st_size - sizeof(header))
		return PAGED_ERR_CORRUPT;
	bytes = malloc(header.size + 1);
	if (bytes == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %" PRIu64 " bytes of compiled code",
				  header.size);
	if (fread(bytes, 1, header.size, file) != header.size)
		goto err_free;
	jit_cache_digest(&header, bytes, digest);
	if (memcmp(digest, header.digest, sizeof(digest)) != 0)
		goto err_free;
	*bytes_p = bytes;
	*size_p = header.size;
	return PAGED_OK;

err_free:
	free(bytes);
	return PAGED_ERR_CORRUPT;
}

enum paged_status
jit_cache_get(struct jit_cache *cache, const struct jit_key *key, char **bytes_p, size_t *size_p,
	      struct paged_error *error)
{
	enum paged_status status;
	char name[NAME_SIZE];
	FILE *file;

	if (cache == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no code cache");
	text_hex(name, key->bytes, JIT_KEY_SIZE);
	file = jit_cache_open_file(cache, name, O_RDONLY | O_NONBLOCK, "r");
	if (file == NULL && errno == ENOENT)
		return paged_fail(error, PAGED_ERR_NOENT, "code cache: no %s", name);
	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "code cache: %s/%s: %s", cache->path, name, strerror(errno));
	status = jit_cache_read_image(file, key, bytes_p, size_p, error);
	if (status == PAGED_OK)
		(void)futimens(fileno(file), NULL); /* used now: jit_cache_trim() takes the oldest */
	(void)fclose(file);
	if (status != PAGED_ERR_CORRUPT)
		return status;
	(void)unlinkat(cache->dir, name, 0);
	return paged_fail(error, PAGED_ERR_CORRUPT, "code cache: %s/%s was damaged, and is removed", cache->path, name);
}

/* Remove files of dead writers and, if the images exceed max_bytes, the least recently used; false: the images fit. */
static bool
jit_cache_remove_oldest(DIR *stream, uint64_t max_bytes)
{
	char oldest[NAME_SIZE] = "";
	struct timespec used = { 0 };
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat stat;

	while ((entry = readdir(stream)) != NULL) {
		const char *name = entry->d_name;

		if (fstatat(dirfd(stream), name, &stat, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 && stat.st_mtime + ABANDONED_S < time(NULL))
			(void)unlinkat(dirfd(stream), name, 0);
		if (!S_ISREG(stat.st_mode) || strlen(name) != NAME_SIZE - 1 ||
		    strspn(name, "0123456789abcdef") != NAME_SIZE - 1)
			continue;
		bytes += (uint64_t)stat.st_size;
		if (oldest[0] != '\0' && (stat.st_mtim.tv_sec != used.tv_sec ? stat.st_mtim.tv_sec > used.tv_sec
									     : stat.st_mtim.tv_nsec > used.tv_nsec))
			continue;
		strcpy(oldest, name);
		used = stat.st_mtim;
	}
	/* Another process may have removed it meanwhile. */
	return bytes > max_bytes && (unlinkat(dirfd(stream), oldest, 0) == 0 || errno == ENOENT);
}

static void
jit_cache_trim(const struct jit_cache *cache)
{
	/* Open the directory again, because a duplicated descriptor would share the read position. */
	int fd = openat(cache->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;

	if (stream == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (jit_cache_remove_oldest(stream, cache->max_bytes))
		rewinddir(stream);
	closedir(stream);
}

enum paged_status
jit_cache_put(struct jit_cache *cache, const struct jit_key *key, const char *maker, const char *bytes, size_t size,
	      struct paged_error *error)
{
	struct header header = { .key = *key, .size = size };
	char name[NAME_SIZE], temporary[NAME_SIZE];
	uint64_t random;
	bool written;
	FILE *file;

	if (cache == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no code cache");
	if (size > cache->max_bytes - sizeof(header) || cache->max_bytes < sizeof(header))
		return paged_fail(error, PAGED_ERR_LIMIT, "code cache: %zu bytes, it keeps %" PRIu64, size,
				  cache->max_bytes);
	memcpy(header.magic, magic, sizeof(magic));
	snprintf(header.maker, sizeof(header.maker), "%s", maker);
	jit_cache_digest(&header, bytes, header.digest);
	text_hex(name, key->bytes, JIT_KEY_SIZE);
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = (uint64_t)getpid();
	snprintf(temporary, sizeof(temporary), TEMPORARY "%016" PRIx64, random);
	file = jit_cache_open_file(cache, temporary, O_WRONLY | O_CREAT | O_EXCL, "w");
	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "code cache: %s: %s", cache->path, strerror(errno));
	written = fwrite(&header, sizeof(header), 1, file) == 1 && fwrite(bytes, 1, size, file) == size;
	written = fclose(file) == 0 && written;
	if (!written || renameat(cache->dir, temporary, cache->dir, name) != 0) {
		paged_fail(error, PAGED_ERR_SYSTEM, "code cache: %s/%s: %s", cache->path, name, strerror(errno));
		(void)unlinkat(cache->dir, temporary, 0);
		return PAGED_ERR_SYSTEM;
	}
	jit_cache_trim(cache);
	return PAGED_OK;
}

void
jit_cache_remove(struct jit_cache *cache, const struct jit_key *key)
{
	char name[NAME_SIZE];

	if (cache == NULL)
		return;
	text_hex(name, key->bytes, JIT_KEY_SIZE);
	(void)unlinkat(cache->dir, name, 0);
}
