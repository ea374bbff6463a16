/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clusters that move boxes of a tensor through shared memory, as attention_mla_cluster.cu does.  In each round two
 * warps of each block copy boxes to both blocks, a box a lane, and four warps of each block read them.  Each block
 * copies every second box of part 0.  Part 1 is the last matrix, which the block of rank 0 copies alone: the other one
 * only expects its bytes.  A stage is filled again once the readers of both blocks have arrived.  For
 * unit_simt_cluster.c, and for conformance.cu on a GPU.
 */
#ifndef TESTS_FAKE_CUDA_KERNELS_CLUSTER_CASE_H
#define TESTS_FAKE_CUDA_KERNELS_CLUSTER_CASE_H

#include "kernels/cuda/simt/simt.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

#if SIMT_HAS_BARRIERS

#define CLUSTER_CASE_STAGES 2u
#define CLUSTER_CASE_READERS 4u /* warps of a block; a warp for each part follows */
#define CLUSTER_CASE_PARTS 2u
#define CLUSTER_CASE_BOXES (CLUSTER_CASE_MATRICES * CLUSTER_CASE_TILE_BOXES) /* of a round, matrix by matrix */
#define CLUSTER_CASE_PART_1 (CLUSTER_CASE_BOXES - CLUSTER_CASE_TILE_BOXES)   /* its first box */

struct cluster_case_args {
	const cuda_tensor_map *map; /* in the kernel's parameters */
	uint32_t *out;
	enum simt_bug bug;
};

struct cluster_case {
	/* [row][chunk]; a stage is CLUSTER_CASE_TILE_ROWS rows of each matrix */
	alignas(1024) simt_vec4 matrices[CLUSTER_CASE_MATRICES][CLUSTER_CASE_STAGES * CLUSTER_CASE_TILE_ROWS * 8];
	uint64_t full[CLUSTER_CASE_STAGES][CLUSTER_CASE_PARTS], empty[CLUSTER_CASE_STAGES];
};

/* The words that a block writes in a round. */
SIMT_FUNCTION uint32_t *
cluster_case_out(const cluster_case_args &p, uint32_t block, uint32_t round)
{
	return p.out + block * CLUSTER_CASE_WORDS + round * CLUSTER_CASE_ROUND_WORDS;
}

/* Copy the lane's box of a part, if it has one. */
SIMT_FUNCTION void
cluster_case_box_copy(const cluster_case_args &p, cluster_case &shared, uint32_t round, uint32_t part)
{
	uint32_t stage = round % CLUSTER_CASE_STAGES, rank = simt_cluster_rank();
	uint32_t number = part == 0 ? simt_lane() * SIMT_CLUSTER_BLOCKS + rank : CLUSTER_CASE_PART_1 + simt_lane();
	uint32_t matrix = number / CLUSTER_CASE_TILE_BOXES, in_tile = number % CLUSTER_CASE_TILE_BOXES;
	uint32_t box = CLUSTER_CASE_BOX(simt_block() / SIMT_CLUSTER_BLOCKS, round, in_tile);
	uint32_t row = stage * CLUSTER_CASE_TILE_ROWS + in_tile * CLUSTER_CASE_BOX_ROWS;
	const unsigned char *map = reinterpret_cast<const unsigned char *>(p.map);

	if (part == 0 ? number >= CLUSTER_CASE_PART_1 : number >= CLUSTER_CASE_BOXES || rank != 0)
		return;
	simt_copy_tensor(&shared.matrices[matrix][row * 8 + (p.bug == BUG_UNALIGNED ? 32 : 0)],
			 map + (p.bug == BUG_UNALIGNED_MAP ? 8 : 0), CLUSTER_CASE_X(matrix), CLUSTER_CASE_TOKEN(box),
			 CLUSTER_CASE_HEAD(box), CLUSTER_CASE_PAGE(box), &shared.full[stage][part]);
}

SIMT_FUNCTION void
cluster_case_copy(const cluster_case_args &p, cluster_case &shared, uint32_t round)
{
	uint32_t stage = round % CLUSTER_CASE_STAGES, parity = (round / CLUSTER_CASE_STAGES + 1) % 2;
	uint32_t part = simt_warp() - CLUSTER_CASE_READERS;
	uint32_t n_boxes = part == 0 ? CLUSTER_CASE_PART_1 : CLUSTER_CASE_TILE_BOXES;

	if (p.bug == BUG_WEAK_WAIT)
		simt_barrier_wait(&shared.empty[stage], parity);
	else
		simt_barrier_wait_cluster(&shared.empty[stage], parity);
	if ((p.bug == BUG_FAR_GLOBAL || p.bug == BUG_NEAR_GLOBAL) && round >= CLUSTER_CASE_STAGES)
		simt_load_fresh(
			cluster_case_out(p, simt_block() ^ (p.bug == BUG_FAR_GLOBAL), round - CLUSTER_CASE_STAGES));
	if (p.bug == BUG_COPIED_GLOBAL && round == 0 && simt_thread() == CLUSTER_CASE_READERS * 32)
		cluster_case_out(p, simt_block(), CLUSTER_CASE_ROUNDS - 1)[0] = 1;
	if (simt_lane() == 0)
		simt_barrier_arrive_expecting(&shared.full[stage][part], n_boxes * CLUSTER_CASE_BOX_ROWS * 128 +
										 (p.bug == BUG_WRONG_COUNT ? 16 : 0));
	cluster_case_box_copy(p, shared, round, part);
}

SIMT_FUNCTION void
cluster_case_read(const cluster_case_args &p, cluster_case &shared, uint32_t round)
{
	uint32_t stage = round % CLUSTER_CASE_STAGES, parity = round / CLUSTER_CASE_STAGES % 2;
	simt_vec4 *out = reinterpret_cast<simt_vec4 *>(cluster_case_out(p, simt_block(), round));

	for (uint32_t part = 0; part < CLUSTER_CASE_PARTS && p.bug != BUG_NO_WAIT; part++)
		simt_barrier_wait(&shared.full[stage][part], parity);
	if (p.bug == BUG_COPIED_GLOBAL && round == 0)
		simt_load_fresh(cluster_case_out(p, simt_block() ^ 1, CLUSTER_CASE_ROUNDS - 1));
	for (uint32_t i = simt_thread(); i < CLUSTER_CASE_ROUND_WORDS / 4; i += CLUSTER_CASE_READERS * 32) {
		uint32_t row = stage * CLUSTER_CASE_TILE_ROWS + i / 8 % CLUSTER_CASE_TILE_ROWS, chunk = i % 8;

		out[i] = shared.matrices[i / (CLUSTER_CASE_TILE_ROWS * 8)][row * 8 + (chunk ^ row % 8)];
	}
	simt_warp_sync();
	if (p.bug == BUG_LATE_READER && simt_lane() == 0)
		simt_barrier_arrive(&shared.empty[stage]);
	if (p.bug != BUG_LATE_READER && simt_lane() < SIMT_CLUSTER_BLOCKS)
		simt_barrier_arrive_at(&shared.empty[stage], simt_lane());
}

SIMT_FUNCTION void
cluster_case_begin(const cluster_case_args &p, cluster_case &shared)
{
	if (simt_thread() == 0) {
		for (uint32_t stage = 0; stage < CLUSTER_CASE_STAGES; stage++) {
			for (uint32_t part = 0; part < CLUSTER_CASE_PARTS; part++)
				simt_barrier_init(&shared.full[stage][part], 1);
			simt_barrier_init(&shared.empty[stage],
					  CLUSTER_CASE_READERS * (p.bug == BUG_LATE_READER ? 1 : SIMT_CLUSTER_BLOCKS));
		}
	}
	if (p.bug == BUG_NO_BARRIER)
		simt_sync();
	else
		simt_cluster_sync();
#if !SIMT_DEVICE
	/* An address in rank 0's shared memory, given to rank 1 */
	if (p.bug == BUG_OTHER_SHARED) {
		uint64_t **given = reinterpret_cast<uint64_t **>(p.out);

		if (simt_cluster_rank() == 0 && simt_thread() == 0)
			*given = &shared.full[0][0];
		simt_cluster_sync();
		if (simt_cluster_rank() == 1 && simt_thread() == 0)
			simt_barrier_arrive(*given);
	}
#endif
}

SIMT_FUNCTION void
cluster_case_run(const cluster_case_args &p)
{
	cluster_case &shared = SIMT_SHARED(cluster_case);

	cluster_case_begin(p, shared);
	if (p.bug == BUG_EARLY_END && simt_cluster_rank() == 1)
		return;
	for (uint32_t round = 0; round < CLUSTER_CASE_ROUNDS; round++)
		if (simt_warp() >= CLUSTER_CASE_READERS)
			cluster_case_copy(p, shared, round);
		else
			cluster_case_read(p, shared, round);
	if (p.bug == BUG_LOST_COPY && simt_warp() >= CLUSTER_CASE_READERS)
		cluster_case_copy(p, shared, CLUSTER_CASE_ROUNDS);
	simt_warp_sync(); /* lanes that copied may have diverged */
	if (p.bug != BUG_NO_LAST_SYNC)
		simt_cluster_sync();
}

#endif

#endif
