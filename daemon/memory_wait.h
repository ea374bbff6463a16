/* SPDX-License-Identifier: Apache-2.0 */
/**
 * memory_wait.h - waits at start until processes of an earlier pagedd have released its memory
 *
 * Memory of a pool lives as long as a process maps it.  Workers that were attached to a daemon that was killed, and
 * make no call, keep its pools, so that there may be no room for new ones.  The daemon's memory files have its runtime
 * directory in their names, of which there is one daemon at a time: once it holds the lock, each mapping of such a
 * file is of an earlier one.
 */
#ifndef PAGED_DAEMON_MEMORY_WAIT_H
#define PAGED_DAEMON_MEMORY_WAIT_H

#include "daemon/config/config.h"
#include "daemon/runtime.h"

/** Bytes of a memory file's name, with the terminating zero. */
enum { MEMORY_FILE_NAME_SIZE = 200 };

/** memory_file_name - write the name of the memory files of a pool, by which later daemons recognise them */
void memory_file_name(char name[MEMORY_FILE_NAME_SIZE], const struct runtime *runtime, const char *pool);

/**
 * memory_wait - wait until there is room for the pools, as daemon_pools_check() finds
 *
 * Waits for up to start-timeout while processes map memory of an earlier daemon, or may because they were members of
 * one that was killed, and this user may not see what they map.  Meanwhile it asks the service manager for more time,
 * and logs which processes they are.  Signals that stop the daemon are blocked by the caller.
 *
 * @retval PAGED_ERR_STOPPING  a signal ended the wait
 * @retval others              of daemon_pools_check(): waiting does not help, or did not
 */
enum paged_status memory_wait(const struct config *config, const struct runtime *runtime, struct paged_error *error);

#endif
