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

struct compute_ops {
	/** What the kernels are made for: "avx512", "sm_90". */
	const char *(*isa)(const struct paged_pool *pool);
	/** The batch's buffers are there already; makes batch->team, which mods are bound with. */
	enum paged_status (*batch_create)(struct paged_batch *batch, struct paged_error *error);
	void (*batch_destroy)(struct paged_batch *batch, bool in_child);
	/** Rows and tables of a plan are complete: what the kernels need of them elsewhere goes there now. */
	enum paged_status (*plan)(struct paged_batch *batch, struct paged_error *error);
	/** What a block mask needs on the device, when it is bound first, and at its end.  Under the client's mutex. */
	enum paged_status (*mask_open)(struct paged_block_mask *mask, struct paged_error *error);
	void (*mask_close)(struct paged_block_mask *mask, bool in_child);
	enum paged_status (*append)(struct paged_batch *batch, const struct append_args *args,
				    struct paged_error *error);
	enum paged_status (*attention)(struct paged_batch *batch, const struct attention_args *args,
				       struct paged_error *error);
	enum paged_status (*merge)(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error);
};

extern const struct compute_ops compute_ops_host, compute_ops_cuda;

#endif
