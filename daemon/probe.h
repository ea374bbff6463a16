/* SPDX-License-Identifier: Apache-2.0 */
/**
 * probe.h - can another process open what this one exports?
 *
 * CUDA does not survive fork(), so the other process is this program started
 * anew.  It speaks to its parent over PROBE_FD and has no other purpose.
 */
#ifndef PAGED_DAEMON_PROBE_H
#define PAGED_DAEMON_PROBE_H

#include "kernels/cuda/share.h"

/** The one argument that makes a pagedd such a child. */
#define PROBE_ARGUMENT "--probe-export"

/**
 * probe_export - let a child open the memory and read its canary
 *
 * Blocks: for seconds, while CUDA starts there.
 * @param[in] fd  of vmm, else -1
 * @return the child's status with its sentence; PAGED_ERR_SYSTEM, _TIMEOUT: there was none
 */
enum paged_status probe_export(const struct cuda_share *share, int fd, struct paged_error *error);

/** probe_main - the child's part; the process's exit code */
int probe_main(void);

#endif
