/* SPDX-License-Identifier: Apache-2.0 */
/**
 * relaunch.h - this program anew, in the same process
 *
 * Some of CUDA's errors stay with a process until it ends (driver.h,
 * cuda_is_sticky()).  So pagedd executes itself: same process id, arguments
 * and environment, everything else as after a crash.  Descriptors close, which
 * tells every member; sockets are bound anew; nothing is taken over.
 *
 * Memory that members of the last life still map is not free at once, so a
 * start that follows a loss is tried for RELAUNCH_WINDOW_MS.  A second loss
 * within that time is the last: the service manager knows better then.
 *
 * When it was lost is told from life to life in an environment variable.
 */
#ifndef PAGED_DAEMON_RELAUNCH_H
#define PAGED_DAEMON_RELAUNCH_H

#define RELAUNCH_WINDOW_MS 30000u

/** Exit status: it was lost again too soon. */
#define RELAUNCH_EXIT 3

/** relaunch_begin - first of all, before there are threads */
void relaunch_begin(void);

/** relaunch_lost - executes the program anew; returns an exit status when that shall not be, or fails */
int relaunch_lost(char *const *argv);

/**
 * relaunch_retry - a start has failed: after a loss, waits a second and tries again
 *
 * SIGTERM and SIGINT, which daemon_open() blocked, end the waiting.
 *
 * @return an exit status: there was no loss, its window is over, a signal came, or it fails
 */
int relaunch_retry(char *const *argv);

#endif
