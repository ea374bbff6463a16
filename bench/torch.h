/* SPDX-License-Identifier: Apache-2.0 */
/**
 * torch.h - PyTorch's attention, measured in turn with ours
 *
 * Two child processes run peers/cpu_torch.py with as many threads as we have,
 * pinned: one whose OpenMP threads wait actively, one whose sleep.  A case is
 * opened in both, and the faster one's samples count.  Who is not asked is
 * stopped (SIGSTOP), for threads that wait actively would take our cores.
 */
#ifndef PAGED_BENCH_TORCH_H
#define PAGED_BENCH_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_fixture;

struct torch_case {
	int number;
	unsigned int child; /* the faster one */
	char how[96];       /* which way it went, and how it waited */
};

/**
 * torch_start - both children, ready; ends the program with advice if there is no torch
 *
 * $PAGED_TORCH is the Python to run, by default python3; peers/setup makes one.
 * After threads_start().
 */
void torch_start(void);
void torch_stop(void);

/** torch_version - "torch 2.15.0"; valid once started */
const char *torch_version(void);

/** torch_open - the fixture's batch; false: no way of it took the batch, and `how` says why */
bool torch_open(struct torch_case *of, const struct kv_fixture *fixture);
double torch_sample_us(const struct torch_case *of);
void torch_close(const struct torch_case *of);

#endif
