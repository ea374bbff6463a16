/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "daemon/log/log_journal.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

bool
log_journal_is_stderr(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	struct stat facts;

	/* The variable is inherited also by programs whose standard error was redirected since. */
	return stream != NULL && sscanf(stream, "%ju:%ju", &device, &inode) == 2 && fstat(2, &facts) == 0 &&
	       (uintmax_t)facts.st_dev == device && (uintmax_t)facts.st_ino == inode;
}

static const char *
journal_path(void)
{
#ifdef PAGED_FAULTS
	const char *path = getenv("PAGED_TEST_JOURNAL");

	if (path != NULL)
		return path;
#endif
	return "/run/systemd/journal/socket";
}

/* -1: errno says why. */
static int
journal_socket(void)
{
	const struct timeval limit = { .tv_sec = LOG_WAIT_MS / 1000, .tv_usec = LOG_WAIT_MS % 1000 * 1000 };
	static int fd = -1;

	if (fd < 0) {
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fd >= 0)
			setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	}
	return fd;
}

/* An entry while it is written: `size` bytes of text, which is always large enough. */
struct entry {
	size_t size;
	char text[LOG_MAX_TEXT + 512];
};

static void __attribute__((format(printf, 2, 3))) entry_add(struct entry *entry, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	entry->size +=
		(size_t)vsnprintf(entry->text + entry->size, sizeof(entry->text) - entry->size, format, arguments);
	va_end(arguments);
}

/* MESSAGE is sent with its size, since texts about mods have several lines. */
static void
entry_fill(struct entry *entry, const struct log_line *line)
{
	uint64_t size = htole64(strlen(line->token) + 2 + line->n);

	entry->size = 0;
	entry_add(entry, "PRIORITY=%d\nSYSLOG_IDENTIFIER=pagedd\nPAGED_TOKEN=%s\n", (int)line->level, line->token);
	if (line->pool[0] != '\0')
		entry_add(entry, "PAGED_POOL=%s\n", line->pool);
	if (line->session != 0)
		entry_add(entry, "PAGED_SESSION=%" PRIu32 "\n", line->session);
	if (line->member != 0)
		entry_add(entry, "PAGED_MEMBER=%" PRIu32 "\n", line->member);
	if (line->pid != 0)
		entry_add(entry, "OBJECT_PID=%" PRIu32 "\n", line->pid);
	entry_add(entry, "MESSAGE\n");
	memcpy(entry->text + entry->size, &size, sizeof(size));
	entry->size += sizeof(size);
	entry_add(entry, "%s: %.*s\n", line->token, (int)line->n, line->text);
}

int
log_journal_send(const struct log_line *line)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct entry entry;
	ssize_t n;

	entry_fill(&entry, line);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", journal_path());
	do {
		n = sendto(journal_socket(), entry.text, entry.size, MSG_NOSIGNAL, (struct sockaddr *)&address,
			   sizeof(address));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? errno : 0;
}
