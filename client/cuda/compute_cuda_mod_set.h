/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_mod_set.h - mod sets in attention on a GPU
 *
 * A struct paged_mod_set is translated to CUDA C, which the client's compiler
 * thread (jit_store.h) compiles into the attention kernels for the queries' dtype.
 * Compilation for queries of the pool's dtype (bf16 if the pool's elements are
 * bytes) starts when the struct paged_mod_set is created; for another dtype it
 * starts at the first attention call with that dtype.
 *
 * Values and arrays are in a struct in device memory.  Each bind writes the
 * struct on the batch's stream, so a launch uses the values bound before it.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_MOD_SET_H
#define PAGED_CLIENT_COMPUTE_CUDA_MOD_SET_H

#include "client/api/objects.h"
#include "client/cuda/cuda_kernels.h"

/* Slots of struct compute_ops. */
void compute_cuda_client_close(struct paged_client *client, bool in_child);
enum paged_status compute_cuda_mod_set_open(struct paged_mod_set *set, struct paged_error *error);
void compute_cuda_mod_set_close(struct paged_mod_set *set, bool in_child);
enum paged_status compute_cuda_mod_set_check(const struct paged_mod_set *set, struct paged_error *error);
void compute_cuda_mod_set_bound(struct paged_mod_set *set);
enum paged_status compute_cuda_mod_set_prepare(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms,
					       struct paged_error *error);

/* The functions below are called with the context current. */

/**
 * compute_cuda_mod_set_kernels - the attention kernels with the set's mods; blocks until all are compiled
 *
 * @param[out] kernels_p  by enum cuda_attention_part; the set owns them
 * @param[out] args_p     device address of the mods' values
 */
enum paged_status compute_cuda_mod_set_kernels(struct paged_mod_set *set, enum paged_dtype q,
					       const struct cuda_kernel **kernels_p, uint64_t *args_p,
					       struct paged_error *error);

/** compute_cuda_mod_set_clear_range - clear, in stream order, the batch's recorded out-of-bounds indexes */
enum paged_status compute_cuda_mod_set_clear_range(struct paged_batch *batch, struct paged_error *error);

#endif
