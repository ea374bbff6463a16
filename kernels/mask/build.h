/* SPDX-License-Identifier: Apache-2.0 */
/**
 * build.h - how every maker of a block mask fills it: list by list, in order
 *
 * The first failure sticks: later calls do nothing, and build_finish() gives
 * its status and sentence.  Indices grow by doubling within the limit, so that
 * a mask's size need not be known beforehand.
 */
#ifndef PAGED_KERNELS_MASK_BUILD_H
#define PAGED_KERNELS_MASK_BUILD_H

#include "kernels/mask/mask.h"

struct build {
	struct block_mask *mask;
	uint64_t n_lists;    /* of the whole mask */
	uint64_t n_ended;    /* of them */
	uint64_t free_bytes; /* that may still be allocated */
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

/** build_fail - for what the maker itself finds wrong; the first failure counts */
void build_fail(struct build *build, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** build_room - memory for n more indices of a kind; false after a failure */
bool build_room(struct build *build, enum block_mask_kind kind, uint64_t n);

/** build_add - blocks first .. first + n - 1 at the end of the present list */
void build_add(struct build *build, enum block_mask_kind kind, uint32_t first, uint64_t n);

/** build_end_list - what follows belongs to the next list */
void build_end_list(struct build *build);

/** build_repeat - the next n lists are the same as the n from `first` on, which are ended */
void build_repeat(struct build *build, uint64_t first, uint64_t n);

/** build_finish - the mask, if all lists were ended, and said to ascend; else everything is freed */
enum paged_status build_finish(struct build *build, struct block_mask **mask_p);

/** Where a list stands, for sentences and loops. */
struct build_place {
	uint32_t row, head;
	uint64_t q_block;
};

#define BUILD_PLACE "row %" PRIu32 ", head %" PRIu32 ", query block %" PRIu64
#define BUILD_PLACE_OF(place) (place)->row, (place)->head, (place)->q_block

/** build_place_first, build_place_next - all lists in order; false: there is none (more) */
bool build_place_first(const struct block_mask *mask, struct build_place *place);
bool build_place_next(const struct block_mask *mask, struct build_place *place);

/** build_first, build_next - of the mask that is built; false after a failure too */
bool build_first(const struct build *build, struct build_place *place);
bool build_next(const struct build *build, struct build_place *place);

/** What PyTorch calls the indices of a kind. */
extern const char *const build_array_names[BLOCK_MASK_N_KINDS];

/** What of a list's blocks a length leaves. */
struct build_cut {
	uint64_t n_whole;  /* KV blocks below are not cut by the length; 0 too if the query block is cut */
	uint64_t n_blocks; /* KV blocks at or past it vanish */
};

/** build_cut - for query block `q_block` of a row with these lengths */
struct build_cut build_cut(const struct block_mask_shape *shape, const struct block_mask_row *row, uint64_t q_block);

/** The two lists of a query block, to be taken over with changes. */
struct build_source {
	struct block_mask_list list[BLOCK_MASK_N_KINDS];
	uint32_t n_parts; /* of each block, listed in order; cut and pages count parts */
	struct build_cut cut;
	const uint32_t *pages; /* where blocks lie; NULL: they keep their numbers */
	uint32_t page_blocks;  /* blocks (parts) in a page */
};

/** build_take - the next list, as it is */
void build_take(struct build *build, const struct block_mask_list list[BLOCK_MASK_N_KINDS]);

/** build_copy - the next list: what the cut leaves of a source, full blocks that it cuts among the partial ones */
void build_copy(struct build *build, const struct build_source *source);

#endif
