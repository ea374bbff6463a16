/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block that multiplies matrices by wgmma: four warps copy three matrices to
 * shared memory, four warps multiply two of them, and the result, rounded to
 * halves, by the third.  Four more only ask for registers, as many as the others,
 * so that the block needs all that it has: as the attention kernels do.  For
 * unit_simt_async.c, and for conformance.cu on a GPU.
 */
#ifndef TESTS_FAKE_CUDA_KERNELS_WGMMA_CASE_H
#define TESTS_FAKE_CUDA_KERNELS_WGMMA_CASE_H

#include "kernels/cuda/simt/simt.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

#if SIMT_HAS_WGMMA

/* Matrices as simt.h describes them: of each 64 elements of a row, a row of eight chunks. */
struct wgmma_case {
	alignas(1024) simt_vec4 a[64 * 8], b[128 * 8], c[2 * 64 * 8];
	uint64_t full, empty;
};

SIMT_FUNCTION uint32_t
wgmma_case_chunk(uint32_t n_rows, uint32_t row, uint32_t chunk)
{
	return (chunk / 8 * n_rows + row) * 8 + (chunk % 8 ^ row % 8);
}

SIMT_FUNCTION void
wgmma_case_copy(simt_vec4 *to, const uint16_t *from, uint32_t n_rows, uint32_t n_chunks)
{
	for (uint32_t i = simt_thread(); i < n_rows * n_chunks; i += 128)
		simt_copy_async16(&to[wgmma_case_chunk(n_rows, i / n_chunks, i % n_chunks)], from + i * 8, true);
}

SIMT_FUNCTION void
wgmma_case_produce(const simt_wgmma_params &p, wgmma_case &shared)
{
	simt_barrier_wait(&shared.empty, 1);
	wgmma_case_copy(shared.a, p.a, 64, 8);
	wgmma_case_copy(shared.b, p.b, 128, 8);
	wgmma_case_copy(shared.c, p.c, 64, 16);
	if (p.bug != BUG_LOST_ARRIVAL || simt_thread() != 5)
		simt_barrier_arrive_copies(&shared.full);
	simt_barrier_wait(&shared.empty, 0);
	shared.b[simt_thread()] = { 0, 0, 0, 0 };
}

template <unsigned int N>
SIMT_FUNCTION void
wgmma_case_store(float *to, const float (&d)[N])
{
	float *own = to + (simt_warp() % 4 * 16 + simt_lane() / 4) * (N * 2) + simt_lane() % 4 * 2;

	SIMT_UNROLL
	for (uint32_t i = 0; i < N; i++)
		own[i / 2 % 2 * 8 * (N * 2) + i / 4 * 8 + i % 2] = d[i];
}

template <bool F16>
SIMT_FUNCTION void
wgmma_case_consume(const simt_wgmma_params &p, wgmma_case &shared)
{
	float d[64], d_narrow[32], e[64] = {}, narrow[32] = {};
	uint32_t a[4][4], other = p.bug == BUG_OTHER_MATRIX && simt_warp() == 6 ? 64 : 0;

	if (p.bug != BUG_NO_WAIT)
		simt_barrier_wait(&shared.full, 0);
	if (p.bug != BUG_NO_PROXY_FENCE)
		simt_proxy_fence();
	if (p.bug != BUG_NO_WGMMA_FENCE)
		simt_wgmma_fence();
	SIMT_UNROLL
	for (uint32_t k = 0; k < 4; k++)
		simt_wgmma_shared<F16>(d_narrow, simt_matrix_after(simt_matrix(shared.a, 1024, 0), k * 32),
				       simt_matrix_after(simt_matrix(shared.b, 1024, 0), k * 32), k != 0);
	simt_wgmma_commit();
	simt_wgmma_wait<0>(d_narrow);
	wgmma_case_store(p.d_narrow, d_narrow);
	simt_wgmma_fence();
	SIMT_UNROLL
	for (uint32_t k = 0; k < 4; k++)
		simt_wgmma_shared<F16>(d, simt_matrix(&shared.a[k * 2], 1024, 0),
				       simt_matrix(&shared.b[other + k * 2], 1024, 0), k != 0);
	simt_wgmma_commit();
	if (p.bug == BUG_EARLY_REUSE)
		simt_barrier_arrive(&shared.empty);
	if (p.bug != BUG_NO_WGMMA_WAIT)
		simt_wgmma_wait<0>(d);
	if (p.bug != BUG_EARLY_REUSE && p.bug != BUG_NO_WGMMA_WAIT)
		simt_barrier_arrive(&shared.empty);
	SIMT_UNROLL
	for (uint32_t i = 0; i < 16; i++)
		a[i / 4][i % 4] = F16 ? simt_pack_f16(d[i * 2], d[i * 2 + 1]) : simt_pack_bf16(d[i * 2], d[i * 2 + 1]);
	wgmma_case_store(p.d, d);
	simt_wgmma_fence();
	SIMT_UNROLL
	for (uint32_t k = 0; k < 4; k++)
		simt_wgmma_registers<F16>(e, a[k], simt_matrix(&shared.c[k * 16 * 8], 1024, 64 * 8 * 16));
	simt_wgmma_commit();
	simt_wgmma_wait<0>(e);
	wgmma_case_store(p.e, e);
	simt_wgmma_fence();
	SIMT_UNROLL
	for (uint32_t k = 0; k < 4; k++)
		simt_wgmma_registers<F16>(narrow, a[k], simt_matrix(&shared.c[k * 16 * 8], 1024, 0));
	simt_wgmma_commit();
	simt_wgmma_wait<0>(narrow);
	if (p.bug == BUG_NO_WGMMA_WAIT)
		simt_barrier_arrive(&shared.empty);
	wgmma_case_store(p.narrow, narrow);
}

SIMT_FUNCTION void
wgmma_case_run(const simt_wgmma_params &p)
{
	wgmma_case &shared = SIMT_SHARED(wgmma_case);

	if (simt_thread() == 0) {
		simt_barrier_init(&shared.full, 128);
		simt_barrier_init(&shared.empty, 128);
	}
	simt_sync();
	if (simt_warp() < 4) {
		if (p.bug == BUG_REGISTERS)
			simt_registers_shrink<48>();
		else
			simt_registers_shrink<40>();
		wgmma_case_produce(p, shared);
		return;
	}
	simt_registers_grow<232>();
	if (simt_warp() >= 8)
		return;
	if (p.f16)
		wgmma_case_consume<true>(p, shared);
	else
		wgmma_case_consume<false>(p, shared);
}

#endif

#endif
