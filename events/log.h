/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log.h - the log of paged-events, on standard error
 *
 * Each message is one line: "paged-events: warning: kv: ...".  Under journald
 * (if JOURNAL_STREAM is set) it is "<4>kv: ..." with the severity as described
 * in sd-daemon(3).
 *
 * Threads: any; a line is written at once.
 */
#ifndef PAGED_EVENTS_LOG_H
#define PAGED_EVENTS_LOG_H

#include <stdbool.h>

/** As in syslog(3). */
enum events_log_level {
	EVENTS_LOG_ERROR = 3,
	EVENTS_LOG_WARNING = 4,
	EVENTS_LOG_INFO = 6,
	EVENTS_LOG_DEBUG = 7,
};

/** events_log_set_level - "error", "warning", "info" (the default) or "debug"; false: none of them */
bool events_log_set_level(const char *name);

/**
 * events_log - write a line, unless it is less severe than the level
 *
 * @param[in] part  which part of the program: "events", "kv", "metrics"
 */
void events_log(enum events_log_level level, const char *part, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
