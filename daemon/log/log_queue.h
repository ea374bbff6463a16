/* SPDX-License-Identifier: Apache-2.0 */
/**
 * log_queue.h - a bounded queue of log lines, and the thread that writes them
 *
 * Standard error may be a pipe that nobody reads, a stopped terminal or a slow
 * disk.  Its file description is shared with other processes, so that
 * O_NONBLOCK would change it for them, and poll(2) does not tell of terminals
 * and files whether a write waits.  Therefore only this thread writes.
 *
 * If the queue is full, the new line is dropped and counted.  A part of the
 * queue is kept for warnings and errors.
 */
#ifndef PAGED_DAEMON_LOG_LOG_QUEUE_H
#define PAGED_DAEMON_LOG_LOG_QUEUE_H

#include "daemon/log/log_output.h"

enum { LOG_QUEUE_SIZE = 256 << 10, LOG_QUEUE_RESERVED = LOG_QUEUE_SIZE / 4 };

/** log_queue_start - start the thread, which blocks all signals */
enum paged_status log_queue_start(struct paged_error *error);

/** log_queue_put - queue a copy of a line, and set its n_lost; never waits for standard error.  Any thread */
void log_queue_put(struct log_line *line);

/** log_queue_stop - wait until all lines are written, and end the thread; false: not done after wait_ms */
bool log_queue_stop(unsigned int wait_ms);

#endif
