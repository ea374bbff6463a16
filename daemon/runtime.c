/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/log/log.h"

enum {
	PREFIX_LENGTH = 4, /* "rpc-" */
	HEX_LENGTH = 2 * RUNTIME_RANDOM_SIZE,
	PID_LENGTH = 7, /* Linux has at most 2^22 processes */
	NAME_LENGTH = PREFIX_LENGTH + HEX_LENGTH + 1 + PID_LENGTH,
	/* An endpoint, "ipc://" DIR "/" NAME and a zero byte, must fit in Welcome, and its path in a sockaddr_un. */
	MAX_DIR = WIRE_MAX_ENDPOINT - 1 - 6 - 1 - NAME_LENGTH,
};

static bool
is_public(const struct config *config)
{
	return config->allow_users.n > 0 || config->allow_groups.n > 1;
}

/* Checks that the paths of sockets in the directory are not too long. */
static enum paged_status
dir_check_length(const char *dir, struct paged_error *error)
{
	if (strlen(dir) <= MAX_DIR)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_LIMIT,
			  "runtime directory %s: %zu bytes; with more than %d, names of sockets in it are too long",
			  dir, strlen(dir), MAX_DIR);
}

static enum paged_status
dir_create(struct runtime *runtime, const char *dir, const struct config *config, struct paged_error *error)
{
	mode_t mode = is_public(config) ? 0711 : 0750;

	umask(0);
	if (mkdir(dir, mode) < 0 && errno != EEXIST)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: %m", dir);
	runtime->dir = realpath(dir, NULL);
	if (runtime->dir == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: %m", dir);
	runtime->dir_fd = open(runtime->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (runtime->dir_fd < 0 && errno != ENOTDIR && errno != ELOOP)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: %m", dir);
	return dir_check_length(runtime->dir, error);
}

/* Another user with write permission could replace the daemon's sockets by his own. */
static enum paged_status
dir_check(const char *dir, struct paged_error *error)
{
	struct stat stat;

	if (lstat(dir, &stat) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: %m", dir);
	if (!S_ISDIR(stat.st_mode))
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: it is a file", dir);
	if (stat.st_uid != geteuid() || (stat.st_mode & S_IWOTH) != 0)
		return paged_fail(error, PAGED_ERR_PERM,
				  "runtime directory %s: uid %u, mode %o: it must belong to uid %u and be writable by "
				  "nobody else",
				  dir, (unsigned)stat.st_uid, (unsigned)stat.st_mode & 07777, (unsigned)geteuid());
	return PAGED_OK;
}

/* With the set-group-ID bit, sockets inherit the directory's group. */
static enum paged_status
dir_permit(const struct runtime *runtime, const struct config *config, struct paged_error *error)
{
	mode_t mode = is_public(config) ? 0711 : 0750;
	gid_t group;

	if (config->allow_groups.n == 1) {
		group = config->allow_groups.id[0];
		mode |= S_ISGID;
		if (chown(runtime->dir, (uid_t)-1, group) < 0)
			return paged_fail(error, PAGED_ERR_SYSTEM,
					  "runtime directory %s: cannot be given to the allow-group %u: %m",
					  runtime->dir, (unsigned)group);
	}
	if (chmod(runtime->dir, mode) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: chmod %o: %m", runtime->dir,
				  (unsigned)mode);
	return PAGED_OK;
}

static enum paged_status
runtime_lock(struct runtime *runtime, struct paged_error *error)
{
	char owner[16] = "";
	ssize_t n;

	runtime->lock_fd = openat(runtime->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (runtime->lock_fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "%s/lock: %m", runtime->dir);
	if (flock(runtime->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return paged_fail(error, PAGED_ERR_SYSTEM, "%s/lock: flock: %m", runtime->dir);
		n = pread(runtime->lock_fd, owner, sizeof(owner) - 1, 0);
		owner[n > 0 ? (size_t)n : 0] = '\0';
		owner[strcspn(owner, "\n")] = '\0';
		return paged_fail(error, PAGED_ERR_AGAIN, "runtime directory %s belongs to another pagedd, process %s",
				  runtime->dir, owner[0] ? owner : "unknown");
	}
	if (ftruncate(runtime->lock_fd, 0) < 0 || dprintf(runtime->lock_fd, "%d\n", (int)getpid()) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "%s/lock: %m", runtime->dir);
	return PAGED_OK;
}

/* False: the directory's files were removed, and another daemon may have made new ones. */
static bool
runtime_is_owned(const struct runtime *runtime)
{
	struct stat held, named;

	return fstat(runtime->lock_fd, &held) == 0 &&
	       fstatat(runtime->dir_fd, "lock", &named, AT_SYMLINK_NOFOLLOW) == 0 && held.st_dev == named.st_dev &&
	       held.st_ino == named.st_ino;
}

/* Whether the name is that of an RPC socket; writes its member's process. */
static bool
endpoint_parse(const char *name, pid_t *pid_p)
{
	const char *pid = name + PREFIX_LENGTH + HEX_LENGTH + 1;

	if (strlen(name) != NAME_LENGTH || strncmp(name, "rpc-", PREFIX_LENGTH) != 0 || pid[-1] != '-' ||
	    strspn(name + PREFIX_LENGTH, "0123456789abcdef") != HEX_LENGTH || strspn(pid, "0123456789") != PID_LENGTH)
		return false;
	*pid_p = (pid_t)strtol(pid, NULL, 10);
	return true;
}

static DIR *
dir_open(const struct runtime *runtime)
{
	int fd = openat(runtime->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir == NULL)
		log_warning("runtime", "%s: %m", runtime->dir);
	if (dir == NULL && fd >= 0)
		close(fd);
	return dir;
}

static void
sockets_remove(const struct runtime *runtime)
{
	DIR *dir = dir_open(runtime);
	const struct dirent *entry;
	pid_t pid;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if ((strcmp(entry->d_name, "control") == 0 || endpoint_parse(entry->d_name, &pid)) &&
		    unlinkat(dirfd(dir), entry->d_name, 0) < 0 && errno != ENOENT)
			log_warning("runtime", "%s/%s: %m", runtime->dir, entry->d_name);
	if (dir != NULL)
		closedir(dir);
}

/* Finds the processes whose endpoints a killed daemon left. */
static enum paged_status
sockets_find_stale(struct runtime *runtime, struct paged_error *error)
{
	DIR *dir = dir_open(runtime);
	const struct dirent *entry;
	pid_t pid, *grown;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (!endpoint_parse(entry->d_name, &pid))
			continue;
		grown = reallocarray(runtime->stale, runtime->n_stale + 1, sizeof(*grown));
		if (grown == NULL) {
			closedir(dir);
			return paged_fail(error, PAGED_ERR_NOMEM, "runtime directory %s: no memory", runtime->dir);
		}
		runtime->stale = grown;
		runtime->stale[runtime->n_stale++] = pid;
	}
	if (dir != NULL)
		closedir(dir);
	return PAGED_OK;
}

static void
runtime_release(struct runtime *runtime)
{
	if (runtime->lock_fd >= 0)
		close(runtime->lock_fd);
	if (runtime->dir_fd >= 0)
		close(runtime->dir_fd);
	free(runtime->stale);
	free(runtime->dir);
	*runtime = (struct runtime){ .dir_fd = -1, .lock_fd = -1 };
}

enum paged_status
runtime_open(struct runtime *runtime, const char *dir, const struct config *config, struct paged_error *error)
{
	enum paged_status status;

	*runtime = (struct runtime){ .dir_fd = -1, .lock_fd = -1 };
	status = dir_create(runtime, dir, config, error);
	if (status == PAGED_OK)
		status = dir_check(runtime->dir, error);
	if (status == PAGED_OK)
		status = runtime_lock(runtime, error);
	if (status == PAGED_OK)
		status = dir_permit(runtime, config, error);
	if (status == PAGED_OK)
		status = sockets_find_stale(runtime, error);
	if (status != PAGED_OK) {
		runtime_release(runtime);
		return status;
	}
	/* umask instead of chmod(): between bind() and chmod() a socket would be open to others. */
	umask(is_public(config) ? 0111 : 0117);
	return PAGED_OK;
}

/* Checks that a missing directory can be created. */
static enum paged_status
dir_check_parent(const char *dir, struct paged_error *error)
{
	char *copy = strdup(dir), *path = NULL, *parent = NULL;
	const char *name = strrchr(dir, '/');
	enum paged_status status;

	if (copy != NULL)
		parent = realpath(dirname(copy), NULL);
	if (parent == NULL || access(parent, W_OK | X_OK) < 0)
		status = paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s cannot be made: %m", dir);
	else if (asprintf(&path, "%s/%s", parent, name != NULL ? name + 1 : dir) < 0)
		status = paged_fail(error, PAGED_ERR_NOMEM, "runtime directory %s: no memory", dir);
	else
		status = dir_check_length(path, error);
	free(path);
	free(parent);
	free(copy);
	return status;
}

enum paged_status
runtime_check(const char *dir, const struct config *config, struct paged_error *error)
{
	char *path = realpath(dir, NULL);
	enum paged_status status;
	gid_t group;

	if (path == NULL && errno != ENOENT)
		return paged_fail(error, PAGED_ERR_SYSTEM, "runtime directory %s: %m", dir);
	status = path != NULL ? dir_check_length(path, error) : dir_check_parent(dir, error);
	if (status == PAGED_OK && path != NULL)
		status = dir_check(path, error);
	free(path);
	if (status != PAGED_OK || config->allow_groups.n != 1)
		return status;
	group = config->allow_groups.id[0];
	if (geteuid() == 0 || getegid() == group || group_member(group))
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_PERM,
			  "runtime directory %s: cannot be given to the allow-group %u, of which uid %u is no member",
			  dir, (unsigned)group, (unsigned)geteuid());
}

void
runtime_claim(struct runtime *runtime)
{
	sockets_remove(runtime);
	runtime->claimed = true;
}

void
runtime_close(struct runtime *runtime)
{
	if (runtime->dir == NULL)
		return;
	if (runtime_is_owned(runtime) && runtime->claimed)
		sockets_remove(runtime);
	else if (runtime->claimed)
		log_warning("runtime",
			    "%s: its lock file is another one or was removed: files there are left to their owner",
			    runtime->dir);
	runtime_release(runtime);
}

void
runtime_endpoint(const struct runtime *runtime, const uint8_t random[RUNTIME_RANDOM_SIZE], pid_t pid,
		 char endpoint[WIRE_MAX_ENDPOINT])
{
	char hex[HEX_LENGTH + 1];

	text_hex(hex, random, RUNTIME_RANDOM_SIZE);
	snprintf(endpoint, WIRE_MAX_ENDPOINT, "ipc://%.*s/rpc-%s-%0*d", MAX_DIR, runtime->dir, hex, PID_LENGTH,
		 (int)pid);
}

void
runtime_endpoint_remove(const struct runtime *runtime, const char *endpoint)
{
	const char *name = strrchr(endpoint, '/') + 1; /* random, so that it is no other daemon's */

	if (unlinkat(runtime->dir_fd, name, 0) < 0 && errno != ENOENT)
		log_warning("runtime", "%s/%s: %m", runtime->dir, name);
}
