/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log_output.h - writes lines of the log to standard error, or to the journal behind it
 *
 * Threads: one at a time.
 */
#ifndef PAGED_DAEMON_LOG_LOG_OUTPUT_H
#define PAGED_DAEMON_LOG_LOG_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/log/log.h"

enum { LOG_MAX_TEXT = 1024 };

struct log_line {
	enum log_level level;
	const char *token;   /* borrowed */
	size_t n;            /* bytes of text; 0: no line */
	unsigned int n_lost; /* lines that were lost before this one */
	uint32_t session, member, pid;
	char pool[PAGED_MAX_NAME + 1];
	char text[LOG_MAX_TEXT]; /* not terminated; the last member: log_queue.c copies n bytes of it */
};

/**
 * log_output_write - write a line; first, if lines were lost, a line that says how many
 *
 * Lines that cannot be written are counted as lost before the next one.
 *
 * @param[in] wait_ms  how long to wait until standard error accepts it; -1: without limit
 */
void log_output_write(const struct log_line *line, int wait_ms);

#endif
