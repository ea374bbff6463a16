/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mark.h - what is in a struct paged_mark
 *
 * It comes from another process, by a way that the library does not know:
 * mark_open() checks all of it that can be known before it is acted upon.  The
 * handle is the driver's to judge.
 */
#ifndef PAGED_CLIENT_MARK_H
#define PAGED_CLIENT_MARK_H

#include "client/pagedclient.h"
#include "client/process.h"
#include "common/region.h"
#include "kernels/cuda/driver.h"

enum mark_kind {
	MARK_REACHED = 1, /* when it was made */
	MARK_EVENT = 2,   /* when this event of that process is */
};

struct mark {
	uint32_t magic;
	uint32_t version;
	uint32_t kind; /* enum mark_kind */
	uint32_t pool; /* its number; with boot_id, nobody else's */
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	/* Of MARK_EVENT, else zero: */
	struct cuda_uuid device;
	struct process_name process;
	uint64_t event; /* its number in that process */
	struct cuda_ipc_handle handle;
};

#endif
