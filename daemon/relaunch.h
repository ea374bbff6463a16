/* SPDX-License-Identifier: Apache-2.0 */
/**
 * relaunch.h - re-executes the daemon after the loss of a GPU
 *
 * Some CUDA errors are sticky: they stay with a process until it ends
 * (driver.h, cuda_is_sticky()).  pagedd then calls execv() on itself.  It
 * keeps process id, arguments and environment; everything else is as after a
 * crash.  All descriptors above 2 close, which tells every member that the
 * daemon has ended; sockets are bound again; no state is taken over.
 *
 * Members of the last life may still map their memory, which is then not free
 * at once.  A start that follows a loss is therefore retried for
 * RELAUNCH_WINDOW_MS.  After a second loss within that time the daemon exits,
 * and the service manager decides.
 *
 * An environment variable passes the time of the loss to the next life.
 */
#ifndef PAGED_DAEMON_RELAUNCH_H
#define PAGED_DAEMON_RELAUNCH_H

#define RELAUNCH_WINDOW_MS 30000u

/** Exit status: the GPU was lost twice within RELAUNCH_WINDOW_MS. */
#define RELAUNCH_EXIT 3

/** relaunch_begin - read and unset the environment variable; call first in main(), before there are threads */
void relaunch_begin(void);

/**
 * relaunch_lost - re-execute the daemon
 *
 * Returns only if it must not or cannot do so.
 * @return exit status: RELAUNCH_EXIT after a second loss, EXIT_FAILURE if execv() fails
 */
int relaunch_lost(char *const *argv);

/**
 * relaunch_retry - after a failed start within RELAUNCH_WINDOW_MS of a GPU loss, wait a second and re-execute the
 * daemon
 *
 * SIGTERM and SIGINT, which daemon_open() blocked, end the wait.
 *
 * @return exit status: EXIT_SUCCESS after a signal; EXIT_FAILURE if no GPU was lost, RELAUNCH_WINDOW_MS has passed
 *         since, or execv() fails
 */
int relaunch_retry(char *const *argv);

#endif
