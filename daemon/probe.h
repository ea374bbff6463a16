/* SPDX-License-Identifier: Apache-2.0 */
/**
 * probe.h - test in a child process whether exported GPU memory can be opened
 *
 * CUDA does not survive fork(), so the child is a new pagedd process, started
 * with PROBE_ARGUMENT.  It communicates with its parent over PROBE_FD.
 */
#ifndef PAGED_DAEMON_PROBE_H
#define PAGED_DAEMON_PROBE_H

#include "kernels/cuda/host/share_memory.h"

/** The only argument of such a child. */
#define PROBE_ARGUMENT "--probe-export"

/**
 * probe_export - let a child process open the memory and read its canary
 *
 * Blocks for seconds, while CUDA starts in the child.
 * @param[in] fd  the memory's descriptor with CUDA_EXPORT_VMM, else -1
 * @return the child's status and error text; PAGED_ERR_SYSTEM or _TIMEOUT if the child sent none
 */
enum paged_status probe_export(const struct cuda_share *share, int fd, struct paged_error *error);

/** probe_main - main() of the child; returns its exit status */
int probe_main(void);

#endif
