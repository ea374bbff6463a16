/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mark.h - the contents of a struct paged_mark
 *
 * A mark comes from another process over a channel that the library does not
 * know.  Every field but `handle` is checked before use; the driver checks
 * `handle`.
 */
#ifndef PAGED_CLIENT_MARK_H
#define PAGED_CLIENT_MARK_H

#include "client/owner/process.h"
#include "client/pagedclient.h"
#include "common/region.h"
#include "kernels/cuda/host/driver.h"

enum mark_kind {
	MARK_REACHED = 1, /* the marked work was complete when the mark was made */
	MARK_EVENT = 2,   /* the marked work is complete when the event is */
};

struct mark {
	uint32_t magic;
	uint32_t version;
	uint32_t kind;                            /* enum mark_kind */
	uint32_t pool;                            /* index */
	uint8_t memory_id[REGION_MEMORY_ID_SIZE]; /* of the pool's memory */
	/* The rest is zero unless kind is MARK_EVENT. */
	struct cuda_uuid device;
	struct process_name process;
	uint64_t event; /* number of the event in that process */
	struct cuda_ipc_handle handle;
};

#endif
