/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels that use every function of simt.h, each with ways to go wrong. */
#include "kernels/cuda/simt/simt.h"
#include "kernels/cuda/device/bytes.h"
#include "kernels/cuda/simt/simt_fp8.h"
#include "tests/fake-cuda/kernels/bulk_case.h"
#include "tests/fake-cuda/kernels/cluster_case.h"
#include "tests/fake-cuda/kernels/simt_cases.h"
#include "tests/fake-cuda/kernels/wgmma_case.h"

struct simt_case_shared {
	uint32_t words[1024];
	uint32_t last;
};

/* 128 threads: shuffles, votes, atomics in shared memory, who and where. */
SIMT_KERNEL(simt_case_exchange, simt_exchange_params, 128, 1)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t t = simt_thread(), lane = simt_lane();
	uint32_t *out = p.out + (simt_block() * simt_n_threads() + t) * 8;

	if (t == 0)
		shared.words[0] = shared.words[1] = shared.words[2] = 0;
	simt_sync();
	if (p.bug == BUG_DIVERGENT_SHUFFLE && lane < 16)
		out[0] = simt_shuffle(t, 0);
	else if (p.bug != BUG_PARTIAL_SHUFFLE || lane < 16)
		out[0] = simt_shuffle(t * 3, (int)(lane + 5) % 32);
	out[1] = (uint32_t)simt_shuffle_xor((float)t, 16);
	out[2] = simt_ballot(t % 3 == 0);
	out[3] = (uint32_t)simt_any(t == 40) | (uint32_t)simt_all(t != 40) << 1;
	if (p.bug == BUG_PLAIN_COUNT)
		shared.words[0] += t;
	else
		simt_atomic_add(&shared.words[0], t);
	simt_atomic_max(&shared.words[1], t * 7 % 128);
	simt_atomic_or(&shared.words[2], 1u << t % 32);
	simt_sync();
	out[4] = shared.words[0];
	out[5] = shared.words[1];
	out[6] = shared.words[2];
	out[7] = simt_warp() << 16 | simt_n_blocks();
}

#if !SIMT_DEVICE
static uint32_t
case_recurse(const volatile uint32_t *at)
{
	volatile uint32_t frame[64] = { *at };

	return frame[0] == 1 ? 0 : case_recurse(frame) + frame[1];
}
#endif

/* Reverses 64 threads' words by way of shared memory; the second warp writes the answer. */
SIMT_KERNEL(simt_case_reverse, simt_reverse_params, 64, 1)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t t = simt_thread();

	if (p.bug == BUG_EARLY_END && t == 7)
		return;
	if (p.bug == BUG_WRITE_INPUT)
		const_cast<uint32_t *>(p.in)[t] = 0;
#if !SIMT_DEVICE
	if (p.bug == BUG_STACK)
		p.out[t] = case_recurse(p.in);
#endif
	shared.words[t] = p.in[p.bug == BUG_READ_PAST ? t + 1 : t];
	if (p.bug == BUG_DIVERGENT_BARRIER && t < 32)
		simt_sync();
	else if (p.bug != BUG_NO_BARRIER)
		simt_sync();
	shared.words[64 + t] = shared.words[63 - t];
	simt_sync_part(3, p.bug == BUG_WRONG_COUNT && t < 32 ? 32 : 64);
	if (t >= 32) {
		p.out[t - 32] = shared.words[64 + t - 32];
		p.out[p.bug == BUG_WRITE_PAST ? t + 1 : t] = shared.words[64 + t];
	}
}

/*
 * Each lane of the first warp overwrites the first byte of a word that a lane of each other warp reads.  One warp may be
 * absent from the barrier before, because it reads the second byte.
 */
SIMT_KERNEL(simt_case_readers, simt_readers_params, 128, 1)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t lane = simt_lane(), sum = 0;
	uint8_t *bytes = reinterpret_cast<uint8_t *>(&shared.words[lane]);
	bool absent = simt_warp() != 0 && simt_warp() == p.absent;

	if (simt_warp() == 0)
		shared.words[lane] = (lane + 1) << 8 | lane;
	simt_sync();
	for (uint32_t round = 0; round < READERS_CASE_ROUNDS; round++) {
		if (simt_warp() != 0)
			sum += bytes[absent && p.bug != BUG_LATE_READER];
		if (!absent)
			simt_sync_part(1, p.absent == 0 ? 128 : 96);
		if (simt_warp() == 0)
			bytes[0] = (uint8_t)(lane + round + 1);
		simt_sync();
	}
	p.out[simt_thread()] = sum;
}

/* Two stages of copies: each lane sums what its neighbour's copies brought. */
SIMT_KERNEL(simt_case_pipeline, simt_pipeline_params, 64, 1)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t t = simt_thread(), n = simt_n_threads(), sum = 0;
	uint32_t neighbour = t / 32 * 32 + (t + 1) % 32;

	for (uint32_t stage = 0; stage < 2; stage++) {
		simt_copy_async16(&shared.words[(stage * n + t) * 4 + (p.bug == BUG_UNALIGNED)],
				  p.in + (stage * n + t) * 4, stage < p.n_stages);
		simt_copy_async_commit();
	}
	for (uint32_t stage = 0; stage < p.n_stages; stage++) {
		const uint32_t *words = &shared.words[(stage % 2 * n + neighbour) * 4];

		if (p.bug == BUG_WEAK_WAIT)
			simt_copy_async_wait<2>();
		else if (p.bug != BUG_NO_WAIT)
			simt_copy_async_wait<1>();
		if (p.bug != BUG_NO_WARP_SYNC)
			simt_warp_sync();
		sum += words[0] + words[1] + words[2] + words[3];
		if (p.bug != BUG_EARLY_REUSE)
			simt_warp_sync();
		simt_copy_async16(&shared.words[(stage % 2 * n + t) * 4], p.in + ((stage + 2) % p.n_stages * n + t) * 4,
				  stage + 2 < p.n_stages);
		simt_copy_async_commit();
	}
	p.out[t] = sum;
}

/* Every block leaves a row; the one that takes the last ticket adds them up. */
SIMT_FUNCTION void
sum_case_run(const simt_sum_params &p)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t t = simt_thread(), n = simt_n_threads(), own = simt_block() * n + t, sum = 0;

	p.partial[own] = p.in[own] * 3;
	if (p.bug != BUG_NO_TICKET_SYNC)
		simt_sync();
	if (t == 0) {
		bool relaxed = p.bug == BUG_NO_FENCE || p.bug == BUG_SHARED_FENCE;
		uint32_t ticket = relaxed ? simt_atomic_add(p.ticket, 1) : simt_atomic_add_acq_rel(p.ticket, 1);

		if (p.bug == BUG_SHARED_FENCE) {
			simt_atomic_add_acq_rel(p.partial + own, 0);
			simt_atomic_add(&shared.words[0], 1);
		}
		shared.last = ticket == simt_n_blocks() - 1;
		if (p.bug == BUG_BLOCK_ORDER)
			shared.last = simt_block() == simt_n_blocks() - 1;
		while (p.bug == BUG_SPIN && simt_load_fresh(p.ticket) < simt_n_blocks())
			;
	}
	simt_sync();
	if (!shared.last)
		return;
	for (uint32_t i = 0; i < simt_n_blocks(); i++)
		sum += simt_load_fresh(&p.partial[i * n + t]);
	p.out[t] = sum;
}

SIMT_KERNEL(simt_case_sum, simt_sum_params, 64, 1)
{
	sum_case_run(p);
}

/* One warp: d += a b. */
SIMT_KERNEL(simt_case_matrix, simt_matrix_params, 32, 1)
{
	struct matrices {
		alignas(16) uint16_t a[16][16];
		alignas(16) uint16_t b[16][8];
	};
	matrices &shared = SIMT_SHARED(matrices);
	uint32_t lane = simt_lane(), a[4], b[4];
	float d[4];

	for (uint32_t i = lane; i < 256; i += 32)
		shared.a[i / 16][i % 16] = p.a[i];
	for (uint32_t i = lane; i < 128; i += 32)
		shared.b[i / 8][i % 8] = p.b[i];
	for (uint32_t i = 0; i < 4; i++)
		d[i] = p.d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
	simt_warp_sync();
	simt_ldmatrix_x4(a, &shared.a[lane % 16][lane / 16 * 8]);
	simt_ldmatrix_x4_trans(b, &shared.b[lane % 16][0]);
	if (p.f16)
		simt_mma_f16(d, a, b);
	else
		simt_mma_bf16(d, a, b);
	for (uint32_t i = 0; i < 4; i++)
		p.d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

#if SIMT_HAS_BARRIERS
SIMT_KERNEL(simt_case_bulk, simt_bulk_params, BULK_CASE_THREADS, 1)
{
	bulk_case_run(p);
}

SIMT_KERNEL_OF_CLUSTERS(simt_case_cluster, simt_cluster_params, CLUSTER_CASE_THREADS, 1)
{
#if !SIMT_DEVICE
	if (p.bug == BUG_LOCAL_MAP) {
		const cuda_tensor_map local = p.map;

		cluster_case_run({ &local, p.out, p.bug });
		return;
	}
#endif
	cluster_case_run({ &p.map, p.out, p.bug });
}

SIMT_KERNEL_OF_CLUSTERS(simt_case_cluster_sum, simt_sum_params, 64, 1)
{
	sum_case_run(p);
}
#endif

#if SIMT_HAS_WGMMA
SIMT_KERNEL(simt_case_wgmma, simt_wgmma_params, WGMMA_CASE_THREADS, 1)
{
	wgmma_case_run(p);
}

/* Each block has its own results. */
SIMT_KERNEL_OF_CLUSTERS(simt_case_cluster_wgmma, simt_wgmma_params, WGMMA_CASE_THREADS, 1)
{
	simt_wgmma_params own = p;

	own.d += simt_block() * 64 * 128;
	own.e += simt_block() * 64 * 128;
	own.d_narrow += simt_block() * 64 * 64;
	own.narrow += simt_block() * 64 * 64;
	wgmma_case_run(own);
}
#endif

SIMT_KERNEL(simt_case_convert, simt_convert_params, 128, 1)
{
	for (uint32_t i = simt_block() * simt_n_threads() + simt_thread(); i < p.n;
	     i += simt_n_blocks() * simt_n_threads()) {
		float x = p.in[i];

		p.bf16[i] = simt_to_bf16(x);
		p.f16[i] = simt_to_f16(x);
		p.e4m3[i] = simt_to_e4m3(x);
		p.from_bf16[i] = simt_from_bf16(p.bf16[i]);
		p.from_f16[i] = simt_from_f16(p.f16[i]);
		p.from_e4m3[i] = simt_from_e4m3(p.e4m3[i]);
		p.exp2[i] = simt_exp2(x);
		p.log2[i] = simt_log2(simt_fma(x, x, simt_max(x, 1.0f)));
	}
}

SIMT_KERNEL(simt_case_bytes, simt_bytes_params, 128, 1)
{
	uint32_t first = simt_block() * simt_n_threads() + simt_thread(), step = simt_n_blocks() * simt_n_threads();

	for (uint32_t i = first; i < p.n; i += step) {
		p.e4m3[i] = simt_pack_e4m3(p.in[i], p.in[i + 1]);
		p.e5m2[i] = simt_pack_e5m2(p.in[i], p.in[i + 1]);
		p.e4m3_bits[i] = (uint16_t)(fp8_to_e4m3(p.in[i]) | fp8_to_e4m3(p.in[i + 1]) << 8);
		p.e5m2_bits[i] = (uint16_t)(fp8_to_e5m2(p.in[i]) | fp8_to_e5m2(p.in[i + 1]) << 8);
	}
	for (uint32_t i = first; i < 65536; i += step) {
		p.halves[i * 4] = simt_widen_e4m3((uint16_t)i);
		p.halves[i * 4 + 1] = fp8_widen_e4m3((uint16_t)i);
		p.halves[i * 4 + 2] = simt_widen_e5m2((uint16_t)i);
		p.halves[i * 4 + 3] = fp8_widen_e5m2((uint16_t)i);
	}
}

/* Each byte at each place of a register, as pools have it. */
SIMT_KERNEL(simt_case_widen, simt_widen_params, 128, 1)
{
	for (uint32_t i = simt_thread(); i < 256; i += simt_n_threads()) {
		uint32_t four = i | (i + 1) % 256 << 8 | (i + 2) % 256 << 16 | (i + 3) % 256 << 24;

		bytes_to_f16<1>(four, p.dtype, p.f16 + i * 4);
		bytes_to_f16<2>(four, p.dtype, p.f16 + i * 4 + 2);
		bytes_i8_to_bf16<1>(four, p.bf16 + i * 4);
		bytes_i8_to_bf16<2>(four, p.bf16 + i * 4 + 2);
		p.wild[i] = bytes_non_finite(four, p.dtype);
	}
}

/* Adds 1 to 64 threads' words, of which the launch before wrote some; shared memory may be used before the wait. */
SIMT_ENTRY(simt_case_dependent, simt_exchange_params, 64, 1)
{
	simt_case_shared &shared = SIMT_SHARED(simt_case_shared);
	uint32_t t = simt_thread();

	shared.words[t] = 1;
	if (p.bug == BUG_EARLY_READ)
		shared.words[t] = p.out[t];
	if (p.bug == BUG_EARLY_WRITE)
		p.out[t] = 0;
	if (p.bug == BUG_EARLY_ATOMIC)
		simt_atomic_add(p.out, 1);
	if (p.bug == BUG_EARLY_COPY)
		simt_copy_async4(&shared.words[t], &p.out[t], true);
	if (p.bug != BUG_NO_DEPENDENCY_WAIT || t != 5)
		simt_dependency_wait();
	simt_dependents_launch();
	if (p.bug != BUG_NO_DEPENDENCY_WAIT)
		p.out[t] += shared.words[t];
}
