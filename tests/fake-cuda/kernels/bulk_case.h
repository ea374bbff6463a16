/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block that moves words through shared memory by bulk copies: a warp copies,
 * round after round, to the same place, and four warps read it.  In every
 * second round the warp stores zeros in the second half instead.  For
 * unit_simt_async.c, and for conformance.cu on a GPU.
 */
#ifndef TESTS_FAKE_CUDA_KERNELS_BULK_CASE_H
#define TESTS_FAKE_CUDA_KERNELS_BULK_CASE_H

#include "kernels/cuda/simt/simt.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

#if SIMT_HAS_BARRIERS

#define BULK_CASE_VECS (BULK_CASE_WORDS / 4)

struct bulk_case {
	alignas(16) simt_vec4 words[BULK_CASE_VECS];
	uint64_t full, empty;
};

SIMT_FUNCTION void
bulk_case_copy(const simt_bulk_params &p, bulk_case &shared, uint32_t round)
{
	uint32_t lane = simt_lane(), n_halves = round % 2 == 0 ? 2 : 1;
	uint32_t expected = n_halves * (BULK_CASE_VECS / 2) * 16;

	if (p.bug != BUG_EARLY_REUSE)
		simt_barrier_wait(&shared.empty, (round + 1) % 2);
	for (uint32_t i = BULK_CASE_VECS / 2 + lane; n_halves == 1 && i < BULK_CASE_VECS; i += 32)
		shared.words[i] = { 0, 0, 0, 0 };
	if (n_halves == 1 && p.bug != BUG_NO_PROXY_FENCE)
		simt_proxy_fence();
	if (p.bug != BUG_NO_WARP_SYNC)
		simt_warp_sync();
	if (lane == 0)
		simt_barrier_arrive_expecting(&shared.full, expected + (p.bug == BUG_WRONG_COUNT ? 16 : 0));
	if (lane < n_halves)
		simt_copy_bulk(&shared.words[lane * (BULK_CASE_VECS / 2)],
			       p.in + round * BULK_CASE_WORDS + lane * (BULK_CASE_WORDS / 2) +
				       (p.bug == BUG_UNALIGNED ? 2 : 0),
			       BULK_CASE_VECS / 2 * 16, &shared.full);
}

SIMT_FUNCTION void
bulk_case_read(const simt_bulk_params &p, bulk_case &shared, uint32_t round)
{
	simt_vec4 *out = reinterpret_cast<simt_vec4 *>(p.out + round * BULK_CASE_WORDS);

	if (p.bug != BUG_NO_WAIT)
		simt_barrier_wait(&shared.full, round % 2);
	for (uint32_t i = simt_thread(); i < BULK_CASE_VECS; i += 128)
		out[i] = shared.words[i];
	simt_warp_sync();
	if (simt_lane() == 0)
		simt_barrier_arrive(&shared.empty);
}

SIMT_FUNCTION void
bulk_case_run(const simt_bulk_params &p)
{
	bulk_case &shared = SIMT_SHARED(bulk_case);

	if (simt_thread() == 0) {
		simt_barrier_init(&shared.full, 1);
		simt_barrier_init(&shared.empty, 4);
	}
	simt_sync();
	for (uint32_t round = 0; round < BULK_CASE_ROUNDS; round++)
		if (simt_warp() == 4)
			bulk_case_copy(p, shared, round);
		else
			bulk_case_read(p, shared, round);
}

#endif

#endif
