/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log.h - the daemon's log, on standard error
 *
 * Each message is one line: "pagedd: warning: control: ...".  If standard error
 * is connected to journald, each is an entry of the journal, with fields
 * (log_journal.h).  If journald does not take it, the line is "<4>control: ..."
 * with the severity as described in sd-daemon(3).  Never log tokens or endpoints.
 *
 * A program begins without a queue: each line is written before log_write()
 * returns, unless standard error accepts nothing for LOG_WAIT_MS.  Between
 * log_start() and log_stop() a thread writes the lines (log_queue.h), and
 * log_write() never waits.  Lines that are lost are counted, and a line says
 * how many as soon as standard error accepts lines again.
 *
 * Threads: log_write() may be called by any, the others by one.
 */
#ifndef PAGED_DAEMON_LOG_LOG_H
#define PAGED_DAEMON_LOG_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/** As in syslog(3). */
enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* How long a line waits without a queue, and log_stop() for the queue. */
enum { LOG_WAIT_MS = 2000 };

/** log_set_level - drop lines less severe than level, an enum log_level; the default is LOG_LEVEL_INFO */
void log_set_level(uint32_t level);
uint32_t log_get_level(void);

/** log_level_name - "info"; NULL: there is no such level */
const char *log_level_name(uint32_t level);

/** log_start - let a thread write the lines from now on; it blocks all signals */
enum paged_status log_start(struct paged_error *error);

/**
 * log_stop - write what the queue has, and end its thread
 *
 * If that takes longer than LOG_WAIT_MS, the thread and its lines are left to
 * the end of the process, and later lines are lost.  Does nothing without a queue.
 */
void log_stop(void);

/** What a line is about, for fields of the journal's entry.  0, NULL: not about one. */
struct log_ids {
	uint32_t session, member;
	uint32_t pid;     /* of a member or peer */
	const char *pool; /* name */
};

/**
 * log_write - log a line, if log_set_level() admits its level
 *
 * @param[in] token  names the part of the daemon; it must live as long as the process
 */
void log_write(enum log_level level, const char *token, struct log_ids ids, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#define log_error(token, ...) log_write(LOG_LEVEL_ERROR, token, (struct log_ids){ 0 }, __VA_ARGS__)
#define log_warning(token, ...) log_write(LOG_LEVEL_WARNING, token, (struct log_ids){ 0 }, __VA_ARGS__)
#define log_info(token, ...) log_write(LOG_LEVEL_INFO, token, (struct log_ids){ 0 }, __VA_ARGS__)
#define log_debug(token, ...) log_write(LOG_LEVEL_DEBUG, token, (struct log_ids){ 0 }, __VA_ARGS__)

/** Rate limit for lines that a peer can cause: at most `burst` in LOG_WINDOW_MS; the others are counted. */
struct log_limit {
	unsigned int burst; /* 0: LOG_BURST */
	uint64_t window_ms; /* when the window began */
	unsigned int n_passed;
	unsigned int n_dropped;
};

enum { LOG_BURST = 10, LOG_WINDOW_MS = 10000 };

/**
 * log_limit_pass - true: the line may be written; at the start of a window, logs how many the last one dropped
 *
 * @param[in] level  of the line; one that log_set_level() does not admit is neither written nor counted
 */
bool log_limit_pass(struct log_limit *limit, enum log_level level, const char *token, uint64_t now_ms);

#endif
