/* SPDX-License-Identifier: Apache-2.0 */
/**
 * builder.h - builds a block mask list by list, in order; every function that makes a mask uses it
 *
 * The first failure sticks: later calls do nothing, and mask_builder_finish() returns its status and message.
 * The index arrays grow by doubling within the limit, so the size of a mask need not be known in
 * advance.
 */
#ifndef PAGED_KERNELS_MASK_BUILDER_H
#define PAGED_KERNELS_MASK_BUILDER_H

#include "kernels/mask/mask.h"

struct mask_builder {
	struct block_mask *mask;
	uint64_t n_lists;    /* of the whole mask */
	uint64_t n_ended;    /* lists ended so far */
	uint64_t free_bytes; /* bytes that may still be allocated */
	uint64_t n[BLOCK_MASK_N_KINDS];
	uint64_t capacity[BLOCK_MASK_N_KINDS];
	uint64_t max_bytes;
	struct paged_error *error;
	enum paged_status status;
};

/**
 * mask_builder_begin - check the shape and start with its first list
 *
 * @param[in] max_bytes  0: BLOCK_MASK_MAX_BYTES
 * @param[in] error      kept until mask_builder_finish()
 */
void mask_builder_begin(struct mask_builder *builder, const struct block_mask_shape *shape, uint64_t max_bytes,
			struct paged_error *error);

/** mask_builder_fail - record an error that the caller found; the first failure counts */
void mask_builder_fail(struct mask_builder *builder, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** mask_builder_reserve - reserve memory for n more indices of a kind; false after a failure */
bool mask_builder_reserve(struct mask_builder *builder, enum block_mask_kind kind, uint64_t n);

/** mask_builder_append - append blocks first .. first + n - 1 to the current list of a kind */
void mask_builder_append(struct mask_builder *builder, enum block_mask_kind kind, uint32_t first, uint64_t n);

/** mask_builder_end_list - end the current list of both kinds */
void mask_builder_end_list(struct mask_builder *builder);

/** mask_builder_repeat - append copies of the n lists from `first` on, which must be ended */
void mask_builder_repeat(struct mask_builder *builder, uint64_t first, uint64_t n);

/**
 * mask_builder_finish - yields the mask, with `ascending` set; after a failure, frees it and returns the failure's
 * status
 *
 * All lists must have been ended.
 */
enum paged_status mask_builder_finish(struct mask_builder *builder, struct block_mask **mask_p);

/** Position of a list, for messages and loops. */
struct mask_position {
	uint32_t row, head;
	uint64_t q_block;
};

#define MASK_POSITION_FORMAT "row %" PRIu32 ", head %" PRIu32 ", query block %" PRIu64
#define MASK_POSITION_ARGS(position) (position)->row, (position)->head, (position)->q_block

/** mask_position_first, mask_position_next - iterate over all lists in order; false: no (more) lists */
bool mask_position_first(const struct block_mask *mask, struct mask_position *position);
bool mask_position_next(const struct block_mask *mask, struct mask_position *position);

/** mask_builder_first_list, mask_builder_next_list - the same over the mask being built; false after a failure too */
bool mask_builder_first_list(const struct mask_builder *builder, struct mask_position *position);
bool mask_builder_next_list(const struct mask_builder *builder, struct mask_position *position);

/** PyTorch's name for the indices of a kind. */
extern const char *const mask_array_names[BLOCK_MASK_N_KINDS];

/** Effect of a row's lengths and kv_first on the blocks of a list. */
struct mask_clip {
	uint64_t n_dropped;       /* KV blocks below it are dropped */
	uint64_t first_unclipped; /* KV blocks at or past it have no key before kv_first; at most n_dropped + 1 */
	uint64_t n_unclipped;     /* KV blocks below it are inside the lengths; 0 also if the query block is not */
	uint64_t n_blocks;        /* KV blocks at or past it are dropped */
};

/** mask_clip - the clip for query block `q_block` of a row with these lengths */
struct mask_clip mask_clip(const struct block_mask_shape *shape, const struct block_mask_row *row, uint64_t q_block);

/** The two lists of a query block, to be copied with changes. */
struct mask_copy_source {
	struct block_mask_list list[BLOCK_MASK_N_KINDS];
	uint32_t n_parts; /* parts of each block, listed in order; clip and pages count parts */
	struct mask_clip clip;
	const uint32_t *pages; /* physical page of each logical page; NULL: blocks keep their numbers */
	uint32_t page_blocks;  /* blocks (parts) per page */
};

/** mask_builder_copy - copy two lists unchanged as the next list */
void mask_builder_copy(struct mask_builder *builder, const struct block_mask_list list[BLOCK_MASK_N_KINDS]);

/**
 * mask_builder_copy_clipped - make the next list from the blocks of a source that its clip keeps
 *
 * Full blocks that extend past the lengths, or begin before kv_first, become partial.
 */
void mask_builder_copy_clipped(struct mask_builder *builder, const struct mask_copy_source *source);

#endif
