/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clusters that move boxes of a tensor through shared memory.  In each round
 * a warp of each block copies one of two boxes to both blocks, and four warps of
 * each block read both boxes.  A stage is filled again once the readers of both
 * blocks have arrived.  For unit_simt_cluster.c, and for conformance.cu on a GPU.
 */
#ifndef TESTS_FAKE_CUDA_KERNELS_CLUSTER_CASE_H
#define TESTS_FAKE_CUDA_KERNELS_CLUSTER_CASE_H

#include "kernels/cuda/simt.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

#if SIMT_HAS_BARRIERS

#define CLUSTER_CASE_STAGES 2u
#define CLUSTER_CASE_BOX_VECS (CLUSTER_CASE_BOX_WORDS / 4)
#define CLUSTER_CASE_READERS 4u /* warps of a block */

struct cluster_case_args {
	const cuda_tensor_map *map; /* in the kernel's parameters */
	uint32_t *out;
	enum simt_bug bug;
};

struct cluster_case {
	alignas(1024) simt_vec4 boxes[CLUSTER_CASE_STAGES][SIMT_CLUSTER_BLOCKS][CLUSTER_CASE_BOX_VECS];
	uint64_t full[CLUSTER_CASE_STAGES], empty[CLUSTER_CASE_STAGES];
};

/* The words that a block writes in a round. */
SIMT_FUNCTION uint32_t *
cluster_case_out(const cluster_case_args &p, uint32_t block, uint32_t round)
{
	return p.out + block * CLUSTER_CASE_WORDS + round * SIMT_CLUSTER_BLOCKS * CLUSTER_CASE_BOX_WORDS;
}

SIMT_FUNCTION void
cluster_case_copy(const cluster_case_args &p, cluster_case &shared, uint32_t round)
{
	uint32_t stage = round % CLUSTER_CASE_STAGES, parity = (round / CLUSTER_CASE_STAGES + 1) % 2;
	uint32_t rank = simt_cluster_rank(), expected = SIMT_CLUSTER_BLOCKS * CLUSTER_CASE_BOX_WORDS * 4;
	uint32_t box = CLUSTER_CASE_BOX(simt_block() / SIMT_CLUSTER_BLOCKS, round, rank);
	const unsigned char *map = reinterpret_cast<const unsigned char *>(p.map);

	if (p.bug == BUG_WEAK_WAIT)
		simt_barrier_wait(&shared.empty[stage], parity);
	else
		simt_barrier_wait_cluster(&shared.empty[stage], parity);
	if (simt_lane() != 0)
		return;
	if ((p.bug == BUG_FAR_GLOBAL || p.bug == BUG_NEAR_GLOBAL) && round >= CLUSTER_CASE_STAGES)
		simt_load_fresh(
			cluster_case_out(p, simt_block() ^ (p.bug == BUG_FAR_GLOBAL), round - CLUSTER_CASE_STAGES));
	if (p.bug == BUG_COPIED_GLOBAL && round == 0)
		cluster_case_out(p, simt_block(), CLUSTER_CASE_ROUNDS - 1)[0] = 1;
	simt_barrier_arrive_expecting(&shared.full[stage], expected + (p.bug == BUG_WRONG_COUNT ? 16 : 0));
	simt_copy_tensor(&shared.boxes[stage][rank][p.bug == BUG_UNALIGNED ? 32 : 0],
			 map + (p.bug == BUG_UNALIGNED_MAP ? 8 : 0), CLUSTER_CASE_X(box), CLUSTER_CASE_TOKEN(box),
			 CLUSTER_CASE_HEAD(box), CLUSTER_CASE_PAGE(box), &shared.full[stage]);
}

SIMT_FUNCTION void
cluster_case_read(const cluster_case_args &p, cluster_case &shared, uint32_t round)
{
	uint32_t stage = round % CLUSTER_CASE_STAGES, parity = round / CLUSTER_CASE_STAGES % 2;
	simt_vec4 *out = reinterpret_cast<simt_vec4 *>(cluster_case_out(p, simt_block(), round));

	if (p.bug != BUG_NO_WAIT)
		simt_barrier_wait(&shared.full[stage], parity);
	if (p.bug == BUG_COPIED_GLOBAL && round == 0)
		simt_load_fresh(cluster_case_out(p, simt_block() ^ 1, CLUSTER_CASE_ROUNDS - 1));
	for (uint32_t i = simt_thread(); i < SIMT_CLUSTER_BLOCKS * CLUSTER_CASE_BOX_VECS;
	     i += CLUSTER_CASE_READERS * 32) {
		const simt_vec4 *rows = shared.boxes[stage][i / CLUSTER_CASE_BOX_VECS];
		uint32_t row = i % CLUSTER_CASE_BOX_VECS / 8, chunk = i % 8;

		out[i] = rows[row * 8 + (chunk ^ row % 8)];
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
			simt_barrier_init(&shared.full[stage], 1);
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
			*given = &shared.full[0];
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
		if (simt_warp() == CLUSTER_CASE_READERS)
			cluster_case_copy(p, shared, round);
		else
			cluster_case_read(p, shared, round);
	if (p.bug == BUG_LOST_COPY && simt_warp() == CLUSTER_CASE_READERS)
		cluster_case_copy(p, shared, CLUSTER_CASE_ROUNDS);
	if (p.bug != BUG_NO_LAST_SYNC)
		simt_cluster_sync();
}

#endif

#endif
