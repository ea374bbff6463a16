/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_mods.h - mods in attention on a GPU
 *
 * A pair of mods becomes CUDA C, which the client's helper thread compiles
 * into the kernel that the queries' dtype gets.  Code for queries of the pool's
 * dtype, of bf16 where that is a byte, is asked for when the pair is made, for others when attention comes
 * with them.  Values and arrays are a struct in the device's memory, written
 * on the batch's stream at each bind, so that each launch has those that were
 * bound before it.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_MODS_H
#define PAGED_CLIENT_COMPUTE_CUDA_MODS_H

#include "client/cuda_kernels.h"
#include "client/mods.h"

struct cuda_compiler;

/** cuda_compiler_free - of a client, when its pools are closed; takes NULL */
void cuda_compiler_free(struct cuda_compiler *compiler, bool in_child);

/* Slots of struct compute_ops. */
enum paged_status compute_cuda_mods_open(struct paged_mods *mods, struct paged_error *error);
void compute_cuda_mods_close(struct paged_mods *mods, bool in_child);
enum paged_status compute_cuda_mods_check(const struct paged_mods *mods, struct paged_error *error);
void compute_cuda_mods_bound(struct paged_mods *mods);
enum paged_status compute_cuda_mods_prepare(struct paged_mods *mods, enum paged_dtype q, int timeout_ms,
					    struct paged_error *error);

/* The rest is called with the context current. */

/** compute_cuda_mods_kernel - attention with the mods in it, which waits for its code; and where their values lie */
enum paged_status compute_cuda_mods_kernel(struct paged_mods *mods, enum paged_dtype q, struct cuda_kernel *kernel,
					   uint64_t *args_p, struct paged_error *error);

/** compute_cuda_mods_forget - on the stream: indexes out of bounds so far, of all mods of the batch */
enum paged_status compute_cuda_mods_forget(struct paged_batch *batch, struct paged_error *error);

#endif
