/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log.h - the daemon's log, on standard error
 *
 * Each message is one line: "pagedd: warning: control: ...".  Under journald
 * (if JOURNAL_STREAM is set) it is "<4>control: ..." with the severity as
 * described in sd-daemon(3).  Never log tokens or endpoints.
 */
#ifndef PAGED_DAEMON_LOG_H
#define PAGED_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

/** As in syslog(3). */
enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/** log_set_level - drop lines less severe than level; the default is LOG_LEVEL_INFO */
void log_set_level(uint32_t level);

void log_write(enum log_level level, const char *token, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define log_error(token, ...) log_write(LOG_LEVEL_ERROR, token, __VA_ARGS__)
#define log_warning(token, ...) log_write(LOG_LEVEL_WARNING, token, __VA_ARGS__)
#define log_info(token, ...) log_write(LOG_LEVEL_INFO, token, __VA_ARGS__)
#define log_debug(token, ...) log_write(LOG_LEVEL_DEBUG, token, __VA_ARGS__)

/** Rate limit for lines that a peer can cause: at most `burst` in LOG_WINDOW_MS; the others are counted. */
struct log_limit {
	unsigned int burst; /* 0: LOG_BURST */
	uint64_t window_ms; /* when the window began */
	unsigned int n_passed;
	unsigned int n_dropped;
};

enum { LOG_BURST = 10, LOG_WINDOW_MS = 10000 };

/** log_limit_pass - true: the line may be written; at the start of a window, logs how many the last one dropped */
bool log_limit_pass(struct log_limit *limit, const char *token, uint64_t now_ms);

#endif
