/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/memory_wait.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "daemon/log/log.h"
#include "daemon/pools.h"
#include "daemon/service_manager.h"

enum {
	CHECK_MS = 200,     /* interval at which the memory is checked */
	LOOK_MS = 5000,     /* interval at which processes are looked at, which takes longer */
	RELEASE_MS = 10000, /* a process that ends maps nothing before all its memory is free */
	MAX_NAMED = 8,      /* processes in a line of the log */
	COMM_SIZE = 16 + 1, /* of a process's name */
	HOLDERS_TEXT_SIZE = 512
};

/* Asks for more time than until the next look. */
#define EXTEND_NOTICE "EXTEND_TIMEOUT_USEC=30000000"

/* Processes that map memory of an earlier daemon, or may. */
struct holders {
	uint32_t n;
	bool uncertain; /* some may: they were its members, and this user may not see what they map */
	struct {
		pid_t pid;
		char name[COMM_SIZE]; /* "": hidden */
	} named[MAX_NAMED];
};

static void
file_name_prefix(char *prefix, size_t size, const struct runtime *runtime)
{
	snprintf(prefix, size, "pagedd:%s:", runtime->dir);
}

void
memory_file_name(char name[MEMORY_FILE_NAME_SIZE], const struct runtime *runtime, const char *pool)
{
	char prefix[MEMORY_FILE_NAME_SIZE];

	file_name_prefix(prefix, sizeof(prefix), runtime);
	snprintf(name, MEMORY_FILE_NAME_SIZE, "%.*s%s", MEMORY_FILE_NAME_SIZE - PAGED_MAX_NAME - 1, prefix, pool);
}

static FILE *
process_file_open(int proc, const char *pid, const char *name)
{
	char path[300];
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", pid, name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	file = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (file == NULL && fd >= 0)
		close(fd);
	return file;
}

/* Whether the process maps a file whose name has the prefix; errno is not 0: this user may not look. */
static bool
process_maps(int proc, const char *pid, const char *prefix)
{
	FILE *file = process_file_open(proc, pid, "maps");
	bool found = false;
	char line[512];

	errno = file != NULL ? 0 : errno;
	while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
		found = strstr(line, prefix) != NULL;
	if (file != NULL)
		fclose(file);
	return found;
}

/* A process chooses its name: printable characters only. */
static void
process_name(int proc, const char *pid, char name[COMM_SIZE])
{
	FILE *file = process_file_open(proc, pid, "comm");
	size_t bad, n;

	name[0] = '\0';
	if (file == NULL)
		return;
	n = fread(name, 1, COMM_SIZE - 1, file);
	fclose(file);
	name[n > 0 ? n - 1 : 0] = '\0'; /* in place of the newline */
	while (name[bad = text_bad_byte(name)] != '\0')
		name[bad] = '?';
}

static void
holders_add(struct holders *holders, int proc, const char *pid)
{
	if (holders->n < MAX_NAMED) {
		holders->named[holders->n].pid = (pid_t)strtol(pid, NULL, 10);
		process_name(proc, pid, holders->named[holders->n].name);
	}
	holders->n++;
}

/* Adds the members of a killed daemon that live, and that /proc does not show to this user. */
static void
holders_add_members(struct holders *holders, int proc, const struct runtime *runtime)
{
	char pid[16];

	for (uint32_t i = 0; i < runtime->n_stale; i++) {
		bool repeated = runtime->stale[i] <= 0;

		for (uint32_t k = 0; k < i; k++)
			repeated |= runtime->stale[k] == runtime->stale[i];
		if (repeated || (kill(runtime->stale[i], 0) < 0 && errno != EPERM))
			continue;
		snprintf(pid, sizeof(pid), "%d", (int)runtime->stale[i]);
		if (process_maps(proc, pid, "") || errno == 0)
			continue;
		holders_add(holders, proc, pid);
		holders->uncertain = true;
	}
}

static void
holders_find(struct holders *holders, const struct runtime *runtime)
{
	char prefix[MEMORY_FILE_NAME_SIZE + 8] = "/memfd:";
	DIR *dir = opendir("/proc");
	const struct dirent *entry;

	*holders = (struct holders){ 0 };
	if (dir == NULL)
		return;
	file_name_prefix(prefix + strlen(prefix), sizeof(prefix) - strlen(prefix), runtime);
	while ((entry = readdir(dir)) != NULL)
		if (isdigit((unsigned char)entry->d_name[0]) && process_maps(dirfd(dir), entry->d_name, prefix))
			holders_add(holders, dirfd(dir), entry->d_name);
	holders_add_members(holders, dirfd(dir), runtime);
	closedir(dir);
}

/* "processes 4711 (python3), 4712 (python3) map memory of an earlier pagedd: end or restart them" */
static void
holders_describe(const struct holders *holders, char text[HOLDERS_TEXT_SIZE])
{
	size_t n = 0, size = HOLDERS_TEXT_SIZE;
	bool one = holders->n == 1;

	n += (size_t)snprintf(text, size, "process%s", one ? "" : "es");
	for (uint32_t i = 0; i < MIN(holders->n, MAX_NAMED); i++) {
		const char *name = holders->named[i].name;

		n += (size_t)snprintf(text + n, size - n, "%s %d%s%s%s", i > 0 ? "," : "", (int)holders->named[i].pid,
				      name[0] != '\0' ? " (" : "", name, name[0] != '\0' ? ")" : "");
	}
	if (holders->n > MAX_NAMED)
		n += (size_t)snprintf(text + n, size - n, " and %u more", holders->n - MAX_NAMED);
	snprintf(text + n, size - n, " %s memory of an earlier pagedd: end or restart %s",
		 holders->uncertain ? "may map"
		 : one              ? "maps"
				    : "map",
		 one ? "it" : "them");
}

/* Waits for an interval; false: a stop signal came. */
static bool
wait_interval(void)
{
	const struct timespec interval = { .tv_nsec = CHECK_MS * 1000000L };
	sigset_t signals;
	int signal;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	signal = sigtimedwait(&signals, NULL, &interval);
	if (signal > 0)
		log_info("pagedd", "SIG%s: stopping; the start was waiting for memory", sigabbrev_np(signal));
	return signal <= 0;
}

/* Logs what the start waits for, if that is new, and tells it to the service manager. */
static void
wait_report(const struct config *config, const char *why, const char *holders, char reported[HOLDERS_TEXT_SIZE])
{
	char status[HOLDERS_TEXT_SIZE + 16];

	service_manager_notify(EXTEND_NOTICE);
	if (strcmp(reported, holders) == 0)
		return;
	strcpy(reported, holders);
	log_warning("pool", "%s; %s; this start waits for memory up to %" PRIu32 " s (start-timeout)", why, holders,
		    config->start_timeout_ms / 1000);
	snprintf(status, sizeof(status), "STATUS=%s", holders);
	service_manager_notify(status);
}

enum paged_status
memory_wait(const struct config *config, const struct runtime *runtime, struct paged_error *error)
{
	char text[HOLDERS_TEXT_SIZE], reported[HOLDERS_TEXT_SIZE] = "";
	uint64_t began = clock_ms(), next_look = began;
	uint64_t release_ends = runtime->n_stale > 0 ? began + RELEASE_MS : began;
	enum paged_status status;
	struct holders holders;

	/* Only a lack of memory that could be there is worth waiting for. */
	while ((status = daemon_pools_check(config, error)) == PAGED_ERR_FULL) {
		uint64_t now = clock_ms();

		if (now >= next_look) {
			next_look = now + LOOK_MS;
			holders_find(&holders, runtime);
			if (holders.n > 0) {
				release_ends = now + RELEASE_MS;
				holders_describe(&holders, text);
				wait_report(config, error->text, text, reported);
			} else if (now >= release_ends) {
				return status;
			}
		}
		if (now - began >= config->start_timeout_ms)
			return status;
		if (!wait_interval())
			return paged_fail(error, PAGED_ERR_STOPPING, "stopped while the start waited for memory");
	}
	if (reported[0] != '\0' && status == PAGED_OK) {
		log_info("pool", "there is room for the pools after %" PRIu64 " ms", clock_ms() - began);
		service_manager_notify("STATUS=");
	}
	return status;
}
