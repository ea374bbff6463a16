/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log_journal.h - sends lines of the log to journald, with fields, by its native protocol
 *
 * The protocol is documented at https://systemd.io/JOURNAL_NATIVE_PROTOCOL: a
 * datagram has the fields of one entry.  libsystemd is not needed for that.
 *
 * Threads: one at a time.
 */
#ifndef PAGED_DAEMON_LOG_LOG_JOURNAL_H
#define PAGED_DAEMON_LOG_LOG_JOURNAL_H

#include "daemon/log/log_output.h"

/** log_journal_is_stderr - true: JOURNAL_STREAM says that standard error is a stream to journald */
bool log_journal_is_stderr(void);

/**
 * log_journal_send - send a line as an entry
 *
 * A test build sends to the socket that PAGED_TEST_JOURNAL names.
 *
 * @return 0, or an errno: EAGAIN after LOG_WAIT_MS, in which journald did not take it; else journald is not there, or
 * refuses this process
 */
int log_journal_send(const struct log_line *line);

#endif
