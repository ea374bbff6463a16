/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log/log_output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log/log_journal.h"

/* A line with its prefix. */
enum { MAX_LINE = LOG_MAX_TEXT + 64 };

static struct {
	int journal; /* -1: not yet known */
	bool torn;   /* the last line was written in part: begin a new line */
	bool stuck;  /* a wait for standard error ended without success: do not wait again */
	unsigned int n_lost;
	int error; /* errno of the last line that could not be written; 0: there was no time to write it */
} output = { .journal = -1 };

/*
 * Waits until standard error accepts a line; false: it did not within wait_ms.  Regular files always accept, and
 * pipes that accept anything accept a line, which is shorter than PIPE_BUF.
 */
static bool
stderr_wait(int wait_ms)
{
	struct pollfd poll_fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	int n;

	do {
		n = poll(&poll_fd, 1, output.stuck && wait_ms > 0 ? 0 : wait_ms);
	} while (n < 0 && errno == EINTR);
	output.stuck = n == 0;
	errno = 0;
	return n != 0;
}

/* False: errno says why, or is 0 if standard error accepted nothing in time. */
static bool
stderr_write(const char *bytes, size_t n, int wait_ms)
{
	ssize_t written;

	if (wait_ms >= 0 && !stderr_wait(wait_ms))
		return false;
	while (n > 0) {
		written = write(STDERR_FILENO, bytes, n);
		if (written < 0 && errno == EINTR)
			continue;
		/* Another process made the description non-blocking. */
		if (written < 0 && errno == EAGAIN && stderr_wait(wait_ms))
			continue;
		if (written < 0)
			return false;
		output.torn = (size_t)written < n;
		bytes += written;
		n -= (size_t)written;
	}
	return true;
}

/* False: journald refuses entries, or is not there; write the line to its stream, which may still take it. */
static bool
journal_write(const struct log_line *line, int wait_ms)
{
	int error;

	do {
		error = log_journal_send(line);
	} while (error == EAGAIN && wait_ms < 0);
	return error == 0;
}

static bool
line_write(const struct log_line *line, int wait_ms)
{
	char text[MAX_LINE];
	int n, prefix;

	if (output.journal < 0)
		output.journal = log_journal_is_stderr();
	if (output.journal && journal_write(line, wait_ms))
		return true;
	if (output.journal)
		prefix = snprintf(text, sizeof(text), "%s<%d>%s: ", output.torn ? "\n" : "", (int)line->level,
				  line->token);
	else
		prefix = snprintf(text, sizeof(text), "%spagedd: %s: %s: ", output.torn ? "\n" : "",
				  log_level_name(line->level), line->token);
	n = snprintf(text + prefix, sizeof(text) - (size_t)prefix, "%.*s\n", (int)line->n, line->text);
	if (stderr_write(text, (size_t)prefix + (size_t)n, wait_ms))
		return true;
	output.error = errno;
	return false;
}

/* Writes how many lines were lost; false: not possible, either. */
static bool
lost_write(int wait_ms)
{
	struct log_line report = { .level = LOG_LEVEL_WARNING, .token = "log" };
	char cause[96] = "standard error was not read in time";

	if (output.error != 0)
		snprintf(cause, sizeof(cause), "standard error: %s", strerror(output.error));
	report.n = (size_t)snprintf(report.text, sizeof(report.text), "%u %s lost: %s", output.n_lost,
				    output.n_lost == 1 ? "line was" : "lines were", cause);
	if (!line_write(&report, wait_ms))
		return false;
	output.n_lost = 0;
	output.error = 0;
	return true;
}

void
log_output_write(const struct log_line *line, int wait_ms)
{
	output.n_lost += line->n_lost;
	if (output.n_lost > 0 && !lost_write(wait_ms))
		output.n_lost += line->n > 0;
	else if (line->n > 0 && !line_write(line, wait_ms))
		output.n_lost++;
}
