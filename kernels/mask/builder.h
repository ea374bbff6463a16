/* SPDX-License-Identifier: Apache-2.0 */
/**
 * builder.h - builds a block mask list by list, in order; every function that makes a mask uses it
 *
 * The first failure sticks: later calls do nothing, and build_finish() returns its status and message.
 * The index arrays grow by doubling within the limit, so the size of a mask need not be known in
 * advance.
 */
#ifndef PAGED_KERNELS_MASK_BUILDER_H
#define PAGED_KERNELS_MASK_BUILDER_H

#include "kernels/mask/mask.h"

struct build {
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
 * build_begin - check the shape and start with its first list
 *
 * @param[in] max_bytes  0: BLOCK_MASK_MAX_BYTES
 * @param[in] error      kept until build_finish()
 */
void build_begin(struct build *build, const struct block_mask_shape *shape, uint64_t max_bytes,
		 struct paged_error *error);

/** build_fail - record an error that the caller found; the first failure counts */
void build_fail(struct build *build, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** build_room - reserve memory for n more indices of a kind; false after a failure */
bool build_room(struct build *build, enum block_mask_kind kind, uint64_t n);

/** build_add - append blocks first .. first + n - 1 to the current list of a kind */
void build_add(struct build *build, enum block_mask_kind kind, uint32_t first, uint64_t n);

/** build_end_list - end the current list of both kinds */
void build_end_list(struct build *build);

/** build_repeat - append copies of the n lists from `first` on, which must be ended */
void build_repeat(struct build *build, uint64_t first, uint64_t n);

/**
 * build_finish - yields the mask, with `ascending` set, if all lists were ended without failure; else
 * frees everything
 */
enum paged_status build_finish(struct build *build, struct block_mask **mask_p);

/** Position of a list, for messages and loops. */
struct build_place {
	uint32_t row, head;
	uint64_t q_block;
};

#define BUILD_PLACE "row %" PRIu32 ", head %" PRIu32 ", query block %" PRIu64
#define BUILD_PLACE_OF(place) (place)->row, (place)->head, (place)->q_block

/** build_place_first, build_place_next - iterate over all lists in order; false: no (more) lists */
bool build_place_first(const struct block_mask *mask, struct build_place *place);
bool build_place_next(const struct block_mask *mask, struct build_place *place);

/** build_first, build_next - the same over the mask being built; false after a failure too */
bool build_first(const struct build *build, struct build_place *place);
bool build_next(const struct build *build, struct build_place *place);

/** PyTorch's name for the indices of a kind. */
extern const char *const build_array_names[BLOCK_MASK_N_KINDS];

/** Effect of a row's lengths on the blocks of a list. */
struct build_cut {
	uint64_t n_whole;  /* KV blocks below it are not cut; 0 also if the query block is cut */
	uint64_t n_blocks; /* KV blocks at or past it are dropped */
};

/** build_cut - the cut for query block `q_block` of a row with these lengths */
struct build_cut build_cut(const struct block_mask_shape *shape, const struct block_mask_row *row, uint64_t q_block);

/** The two lists of a query block, to be copied with changes. */
struct build_source {
	struct block_mask_list list[BLOCK_MASK_N_KINDS];
	uint32_t n_parts; /* parts of each block, listed in order; cut and pages count parts */
	struct build_cut cut;
	const uint32_t *pages; /* physical page of each logical page; NULL: blocks keep their numbers */
	uint32_t page_blocks;  /* blocks (parts) per page */
};

/** build_take - copy two lists unchanged as the next list */
void build_take(struct build *build, const struct block_mask_list list[BLOCK_MASK_N_KINDS]);

/**
 * build_copy - copy what the cut leaves of a source as the next list; full blocks that the cut divides
 * become partial
 */
void build_copy(struct build *build, const struct build_source *source);

#endif
