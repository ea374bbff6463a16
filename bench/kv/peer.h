/* SPDX-License-Identifier: Apache-2.0 */
/**
 * peer.h - another library's kernels, whose samples alternate with ours
 *
 * Two child processes run the peer's program (peers/cpu_*.py) with as many threads
 * as we have, pinned: the OpenMP threads of one wait actively, those of the other
 * sleep.  A batch is opened in both, and the faster one's samples count.  A child is
 * stopped (SIGSTOP) while it is not asked, because threads that wait actively would
 * take our cores.  One peer runs at a time.
 */
#ifndef PAGED_BENCH_KV_PEER_H
#define PAGED_BENCH_KV_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/kv/kv_case.h"

enum peer_kind { PEER_TORCH, PEER_VLLM, N_PEERS };

struct peer_case {
	int number;
	unsigned int child; /* the faster one */
	char method[160]; /* which implementation it used, and how its threads waited; with kv_peer.c the errors, too */
};

/** A batch to open; tensors, K and V are bf16. */
struct peer_batch {
	const char *work;           /* "attention" or "append" */
	const struct kv_rows *rows; /* [KV_ROW_KINDS]; those with n of 0 are left out */
	uint32_t q_heads, kv_heads, dim;
	const char *data; /* path of the tensors (kv_peer.c has the layout); "": any numbers */
	bool quick;       /* one try of each implementation, none compiled */
};

/**
 * peer_start - start both children and wait until they are ready; ends the program with advice if there is no such peer
 *
 * $PAGED_TORCH or $PAGED_VLLM is the Python to run, by default python3; peers/setup makes one.
 * Call after pinned_threads_start().
 */
void peer_start(enum peer_kind kind);
void peer_stop(void);

/** peer_version - "torch 2.15.0"; valid once started */
const char *peer_version(void);

/** peer_open - open a batch; false: no implementation accepts the batch, and `method` has the reason */
bool peer_open(struct peer_case *peer_case, const struct peer_batch *batch);
double peer_sample_us(const struct peer_case *peer_case);

/** peer_write_result - compute once and write the result into the file of the tensors */
void peer_write_result(const struct peer_case *peer_case, const char *data);
void peer_close(const struct peer_case *peer_case);

#endif
