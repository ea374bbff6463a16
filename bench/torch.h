/* SPDX-License-Identifier: Apache-2.0 */
/**
 * torch.h - PyTorch's attention, whose samples alternate with ours
 *
 * Two child processes run peers/cpu_torch.py with as many threads as we have,
 * pinned: the OpenMP threads of one wait actively, those of the other sleep.  A
 * batch is opened in both, and the faster one's samples count.  A child is
 * stopped (SIGSTOP) while it is not asked, because threads that wait actively
 * would take our cores.
 */
#ifndef PAGED_BENCH_TORCH_H
#define PAGED_BENCH_TORCH_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/kv_case.h"

struct torch_case {
	int number;
	unsigned int child; /* the faster one */
	char method[96];    /* which implementation it used, and how its threads waited */
};

/** A batch to open, with K and V in bf16. */
struct torch_batch {
	const struct kv_rows *rows; /* [KV_ROW_KINDS]; those with n of 0 are left out */
	uint32_t q_heads, kv_heads, dim;
	bool quick; /* one try of each implementation, none compiled */
};

/**
 * torch_start - start both children and wait until they are ready; ends the program with advice if there is no torch
 *
 * $PAGED_TORCH is the Python to run, by default python3; peers/setup makes one.
 * Call after pinned_threads_start().
 */
void torch_start(void);
void torch_stop(void);

/** torch_version - "torch 2.15.0"; valid once started */
const char *torch_version(void);

/** torch_open - open a batch; false: no implementation accepts the batch, and `method` has the reason */
bool torch_open(struct torch_case *torch_case, const struct torch_batch *batch);
double torch_sample_us(const struct torch_case *torch_case);
void torch_close(const struct torch_case *torch_case);

#endif
