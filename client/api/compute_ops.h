/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_ops.h - a back end's operations on a pool's pages
 *
 * The public calls check their arguments and fill the argument structs of
 * kernels.h; a back end executes them.  The back end decides where its buffers
 * are and which of a caller's pointers are device addresses.  Its per-batch
 * state is batch->backend_state, from batch_create() to batch_destroy().
 *
 * No slot is NULL.
 */
#ifndef PAGED_CLIENT_COMPUTE_OPS_H
#define PAGED_CLIENT_COMPUTE_OPS_H

#include "client/api/objects.h"

struct mark; /* mark.h */

/** Device addresses of a plan's lengths, from paged_batch_plan_device(). */
struct compute_lengths {
	uint64_t q_indptr;
	uint64_t kv_len;
	uint64_t q_base; /* 0: none */
	bool tables_only;
};

struct compute_ops {
	const char *name; /* of the back end, as in owner_pool.backend */
	/** Tensors, positions and other arrays are device addresses, which the host must not dereference. */
	bool on_device;
	/**
	 * Fills info->isa, the instruction set of the kernels ("avx512", "sm_90"), and info->device: "GPU-8a1b...",
	 * valid while the pool is open, or NULL on the host.
	 */
	void (*describe)(const struct paged_pool *pool, struct paged_pool_info *info);
	/** Frees the back end's state of a client, after the client's pools were closed. */
	void (*client_close)(struct paged_client *client, bool in_child);
	/** Called after the batch's buffers and its team exist. */
	enum paged_status (*batch_create)(struct paged_batch *batch, const struct paged_batch_params *params,
					  struct paged_error *error);
	void (*batch_destroy)(struct paged_batch *batch, bool in_child);
	/** Sets the stream for all later operations of the batch. */
	enum paged_status (*stream)(struct paged_batch *batch, void *stream, struct paged_error *error);
	/**
	 * Called when the batch's rows, n_rows and total_q are those of a new plan;
	 * lengths NULL: use the rows' lengths.
	 */
	enum paged_status (*plan)(struct paged_batch *batch, const struct compute_lengths *lengths,
				  struct paged_error *error);
	/**
	 * Called when rows of the plan may write less than before: later appends, also captured ones, must not write
	 * tokens before the rows' writable_from.
	 */
	enum paged_status (*protect)(struct paged_batch *batch, struct paged_error *error);
	/** Waits for the work launched since the plan and reports its faults. */
	enum paged_status (*validate)(struct paged_batch *batch, struct paged_error *error);
	/**
	 * Create and free a block mask's state on the device.  mask_open is called when the mask is first bound.  Both
	 * are called with the client's mutex held.
	 */
	enum paged_status (*mask_open)(struct paged_block_mask *mask, struct paged_error *error);
	void (*mask_close)(struct paged_block_mask *mask, bool in_child);
	/** Create and free set->device, the state of a mod set on the device. */
	enum paged_status (*mod_set_open)(struct paged_mod_set *set, struct paged_error *error);
	void (*mod_set_close)(struct paged_mod_set *set, bool in_child);
	/** Waits for the work launched since the plan; PAGED_ERR_RANGE if a mod's array index was out of bounds. */
	enum paged_status (*mod_set_check)(const struct paged_mod_set *set, struct paged_error *error);
	/** Called after values, arrays or blocks of the mod set were bound. */
	void (*mod_set_bound)(struct paged_mod_set *set);
	/**
	 * Gets the mod set's code for queries of this dtype.  timeout_ms 0: PAGED_ERR_AGAIN if it is not compiled yet;
	 * negative: no limit.
	 */
	enum paged_status (*mod_set_prepare)(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms,
					     struct paged_error *error);
	enum paged_status (*append)(struct paged_batch *batch, const struct append_args *args,
				    struct paged_error *error);
	enum paged_status (*gather)(struct paged_batch *batch, const struct gather_args *args,
				    struct paged_error *error);
	/** set NULL: none; else args->mod_set belongs to it. */
	enum paged_status (*attention)(struct paged_batch *batch, const struct attention_args *args,
				       struct paged_mod_set *set, struct paged_error *error);
	enum paged_status (*merge)(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error);
	/** PAGED_ERR_UNSUPPORTED if the batch's stream is being captured; `why` ends the text. */
	enum paged_status (*refuse_capture)(struct paged_batch *batch, const char *why, struct paged_error *error);
	/**
	 * Copies pages of the pool in stream order, at least the first n_tokens[i] tokens of page from[i] to to[i].  No
	 * page is in both lists.
	 */
	enum paged_status (*copy_pages)(struct paged_batch *batch, uint32_t n, const uint32_t *from, const uint32_t *to,
					const uint32_t *n_tokens, struct paged_error *error);
	/** Records the batch's event number i, below PUBLISH_QUEUE, on its stream. */
	enum paged_status (*event_record)(struct paged_batch *batch, uint32_t i, struct paged_error *error);
	/** Has the stream done all work before event i?  Never waits. */
	bool (*event_reached)(struct paged_batch *batch, uint32_t i);
	/** Sets the mark's kind and the fields of that kind; the caller has set the others. */
	enum paged_status (*mark)(struct paged_batch *batch, struct mark *mark, struct paged_error *error);
	/**
	 * The caller has checked magic, version, boot id and pool of the mark; the back end checks the other fields.
	 */
	enum paged_status (*wait)(struct paged_batch *batch, const struct mark *mark, struct paged_error *error);
	enum paged_status (*finish)(struct paged_batch *batch, struct paged_error *error);
};

extern const struct compute_ops compute_ops_host, compute_ops_cuda;

#endif
