/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute.h - what runs on a pool's pages
 *
 * The public calls check what their callers said and fill the args of
 * kernels.h; a back end runs them.  It decides where its buffers lie and
 * which of a caller's pointers are a device's, and keeps what a batch needs
 * there from batch_create() to batch_destroy() in batch->compute.
 *
 * No slot is NULL.
 */
#ifndef PAGED_CLIENT_COMPUTE_H
#define PAGED_CLIENT_COMPUTE_H

#include "client/internal.h"

struct mark; /* mark.h */

/** Lengths that a device's memory holds; addresses there. */
struct compute_lengths {
	uint64_t q_indptr;
	uint64_t kv_len;
	uint64_t q_base; /* 0: none */
	bool tables_only;
};

struct compute_ops {
	/** Tensors, positions and the like are device addresses, which the host must not follow. */
	bool on_device;
	/**
	 * Fills isa, what the kernels are made for ("avx512", "sm_90"), and device: "GPU-8a1b...", as long as the pool
	 * is open; NULL: the host.
	 */
	void (*describe)(const struct paged_pool *pool, struct paged_pool_info *info);
	/** The batch's buffers and team are there already. */
	enum paged_status (*batch_create)(struct paged_batch *batch, const struct paged_batch_params *params,
					  struct paged_error *error);
	void (*batch_destroy)(struct paged_batch *batch, bool in_child);
	/** The stream that everything below goes to from now on. */
	enum paged_status (*stream)(struct paged_batch *batch, void *stream, struct paged_error *error);
	/** The batch's rows, row count and total_q are a new plan's; lengths NULL: the rows' own. */
	enum paged_status (*plan)(struct paged_batch *batch, const struct compute_lengths *lengths,
				  struct paged_error *error);
	/** Waits for what was launched since the plan, and says what was wrong with it. */
	enum paged_status (*validate)(struct paged_batch *batch, struct paged_error *error);
	/** What a block mask needs on the device, when it is bound first, and at its end.  Under the client's mutex. */
	enum paged_status (*mask_open)(struct paged_block_mask *mask, struct paged_error *error);
	void (*mask_close)(struct paged_block_mask *mask, bool in_child);
	/** What mods run with on the device; mods->device. */
	enum paged_status (*mods_open)(struct paged_mods *mods, struct paged_error *error);
	void (*mods_close)(struct paged_mods *mods, bool in_child);
	/** Waits for what was launched since the plan; PAGED_ERR_RANGE if an index was out of bounds in it. */
	enum paged_status (*mods_check)(const struct paged_mods *mods, struct paged_error *error);
	/** They have other values, arrays or blocks. */
	void (*mods_bound)(struct paged_mods *mods);
	/** Code for queries of this dtype; timeout_ms 0: PAGED_ERR_AGAIN if it is not there yet; negative: no end. */
	enum paged_status (*mods_prepare)(struct paged_mods *mods, enum paged_dtype q, int timeout_ms,
					  struct paged_error *error);
	enum paged_status (*append)(struct paged_batch *batch, const struct append_args *args,
				    struct paged_error *error);
	enum paged_status (*gather)(struct paged_batch *batch, const struct gather_args *args,
				    struct paged_error *error);
	/** mods NULL: none; else args->mods is theirs. */
	enum paged_status (*attention)(struct paged_batch *batch, const struct attention_args *args,
				       struct paged_mods *mods, struct paged_error *error);
	enum paged_status (*merge)(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error);
	/** Kind, and what it needs; the rest is there. */
	enum paged_status (*mark)(struct paged_batch *batch, struct mark *mark, struct paged_error *error);
	/** Of this pool in this life of its daemon; nothing else of it was checked. */
	enum paged_status (*wait)(struct paged_batch *batch, const struct mark *mark, struct paged_error *error);
	enum paged_status (*finish)(struct paged_batch *batch, struct paged_error *error);
};

extern const struct compute_ops compute_ops_host, compute_ops_cuda;

#endif
