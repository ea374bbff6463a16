/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that call every function of simt.h.  conformance.c compares the
 * results of a GPU with the models'.  Input and output are words, so that
 * layouts are compared bit for bit.
 */
#include "kernels/cuda/simt/simt.h"
#include "tests/fake-cuda/kernels/bulk_case.h"
#include "tests/fake-cuda/kernels/cluster_case.h"
#include "tests/fake-cuda/kernels/wgmma_case.h"
#include "tests/gpu/conformance.h"

union conformance_word {
	uint32_t bits;
	float number;
};

SIMT_FUNCTION float
number_of(uint32_t bits)
{
	union conformance_word word;

	word.bits = bits;
	return word.number;
}

SIMT_FUNCTION uint32_t
bits_of(float number)
{
	union conformance_word word;

	word.number = number;
	return word.bits;
}

/* out: 7 words a thread */
SIMT_KERNEL(conformance_where, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	uint32_t block = simt_block_y() * simt_n_blocks() + simt_block();
	uint32_t *out = p.out + (block * simt_n_threads() + simt_thread()) * 7;

	out[0] = simt_thread();
	out[1] = simt_lane();
	out[2] = simt_warp();
	out[3] = simt_n_threads();
	out[4] = simt_block();
	out[5] = simt_block_y();
	out[6] = simt_n_blocks();
}

/* in: value, lane, mask of a thread; out: 6 words */
SIMT_KERNEL(conformance_warp, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	uint32_t thread = simt_block() * simt_n_threads() + simt_thread();
	const uint32_t *in = p.in + thread * 3;
	uint32_t *out = p.out + thread * 6;

	out[0] = simt_shuffle(in[0], (int)(in[1] % 32));
	out[1] = (uint32_t)simt_shuffle((int32_t)in[0], (int)(in[1] % 64));
	out[2] = bits_of(simt_shuffle_xor(number_of(in[0]), (int)(in[2] % 32)));
	out[3] = simt_ballot(in[0] % 3 == 0);
	out[4] = simt_any(in[0] % 64 == 0);
	out[5] = simt_all(in[0] % 64 != 1);
}

/* in, out: a word a thread, 128 of them; each barrier lets a thread see what another one wrote */
SIMT_KERNEL(conformance_barrier, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	struct words {
		uint32_t at[CONFORMANCE_MAX_THREADS];
	};
	words &shared = SIMT_SHARED(words);
	uint32_t t = simt_thread(), own = simt_block() * simt_n_threads() + t, half = t / 64, word;

	shared.at[t] = p.in[own];
	simt_sync();
	word = shared.at[simt_n_threads() - 1 - t];
	simt_sync();
	shared.at[t] = word + 1;
	simt_sync_part(1 + (int)half, 64);
	word = shared.at[half * 64 + 63 - t % 64];
	simt_sync_part(1 + (int)half, 64);
	shared.at[t] = word * 3;
	simt_warp_sync();
	p.out[own] = shared.at[t ^ 31];
}

/* Store this thread's words for the last block, at three widths. */
SIMT_FUNCTION void
thread_words_store(uint32_t *words, uint32_t word)
{
	*reinterpret_cast<simt_vec4 *>(words) = { word, word + 1, word + 2, word + 3 };
	*reinterpret_cast<simt_vec2 *>(words + 4) = { word * 3, word * 5 };
	words[6] = word * 7;
}

SIMT_FUNCTION void
thread_words_combine(uint32_t *combined, const uint32_t *words, uint32_t n_blocks)
{
	uint32_t t = simt_thread(), n = simt_n_threads();

	for (uint32_t i = 0; i < n_blocks; i++) {
		const uint32_t *from = words + (i * n + t) * CONFORMANCE_THREAD_WORDS;
		simt_vec4 four = simt_load_fresh(reinterpret_cast<const simt_vec4 *>(from));
		simt_vec2 two = simt_load_fresh(reinterpret_cast<const simt_vec2 *>(from + 4));

		combined[t * CONFORMANCE_COMBINED] += four.x + 2 * four.y + 3 * four.z + 4 * four.w;
		combined[t * CONFORMANCE_COMBINED + 1] += two.x + 2 * two.y;
		combined[t * CONFORMANCE_COMBINED + 2] += simt_load_fresh(from + 6);
	}
}

/*
 * in: a word a thread.  out: results of the grid by atomics, a mark for each ticket that was drawn, results of each
 * block by atomics in shared memory, and all threads' words, combined by the last block.
 */
SIMT_KERNEL(conformance_between, conformance_params, CONFORMANCE_BLOCK, 1)
{
	struct results {
		uint32_t sum, maximum, any, last;
	};
	results &shared = SIMT_SHARED(results);
	uint32_t t = simt_thread(), n = simt_n_blocks() * simt_n_threads(), own = simt_block() * simt_n_threads() + t;
	uint32_t *of_block = p.out + CONFORMANCE_GRID_RESULTS,
		 *words = of_block + simt_n_blocks() * CONFORMANCE_BLOCK_RESULTS;
	uint32_t *marks = words + n * CONFORMANCE_THREAD_WORDS, *combined = marks + n, word = p.in[own];

	if (t == 0)
		shared.sum = shared.maximum = shared.any = 0;
	simt_sync();
	simt_atomic_add(&shared.sum, word);
	simt_atomic_max(&shared.maximum, word);
	simt_atomic_or(&shared.any, 1u << word % 32);
	simt_atomic_add(&p.out[0], word);
	simt_atomic_max(&p.out[1], word);
	simt_atomic_or(&p.out[2], word & 0x11111111u << word % 4);
	thread_words_store(words + own * CONFORMANCE_THREAD_WORDS, word);
	simt_sync();
	if (t == 0) {
		of_block[simt_block() * CONFORMANCE_BLOCK_RESULTS] = shared.sum;
		of_block[simt_block() * CONFORMANCE_BLOCK_RESULTS + 1] = shared.maximum;
		of_block[simt_block() * CONFORMANCE_BLOCK_RESULTS + 2] = shared.any;
	}
	marks[simt_atomic_add(&p.out[3], 1)] = 1;
	simt_sync();
	if (t == 0)
		shared.last = simt_atomic_add_acq_rel(&p.out[4], 1) == simt_n_blocks() - 1;
	simt_sync();
	if (shared.last)
		thread_words_combine(combined, words, simt_n_blocks());
}

/* in: 2 words a thread, the second tells whether the first is valid; out: a neighbour's */
SIMT_KERNEL(conformance_copy_word, conformance_params, CONFORMANCE_BLOCK, 1)
{
	struct words {
		uint32_t at[CONFORMANCE_BLOCK];
	};
	words &shared = SIMT_SHARED(words);
	uint32_t t = simt_thread(), own = simt_block() * CONFORMANCE_BLOCK + t;

	shared.at[t] = 1;
	simt_copy_async4(&shared.at[t], p.in + own * 2, p.in[own * 2 + 1] % 4 != 0);
	simt_copy_async_commit();
	simt_copy_async_wait<0>();
	simt_sync();
	p.out[own] = shared.at[CONFORMANCE_BLOCK - 1 - t];
}

/* in: 3 stages of 16 bytes a thread, then a word for each that tells whether it is valid; out: a neighbour's stages */
SIMT_KERNEL(conformance_copy, conformance_params, CONFORMANCE_BLOCK, 1)
{
	struct stages {
		alignas(16) uint32_t at[3][CONFORMANCE_BLOCK][4];
	};
	stages &shared = SIMT_SHARED(stages);
	uint32_t t = simt_thread(), other = CONFORMANCE_BLOCK - 1 - t;
	const uint32_t *in = p.in + simt_block() * CONFORMANCE_BLOCK * 16, *valid = in + CONFORMANCE_BLOCK * 12;
	uint32_t *out = p.out + (simt_block() * CONFORMANCE_BLOCK + t) * 12;

	for (uint32_t s = 0; s < 3; s++) {
		simt_copy_async16(shared.at[s][t], in + (s * CONFORMANCE_BLOCK + t) * 4,
				  valid[s * CONFORMANCE_BLOCK + t] % 4 != 0);
		simt_copy_async_commit();
	}
	simt_copy_async_wait<2>();
	simt_sync();
	for (uint32_t i = 0; i < 4; i++)
		out[i] = shared.at[0][other][i];
	simt_copy_async_wait<1>();
	simt_sync();
	for (uint32_t i = 0; i < 4; i++)
		out[4 + i] = shared.at[1][other][i];
	simt_copy_async_wait<0>();
	simt_sync();
	for (uint32_t i = 0; i < 4; i++)
		out[8 + i] = shared.at[2][other][i];
}

/* in: 32 rows of 16 bytes, and which of them each lane gives; out: 4 words of each lane as they lie, 4 transposed */
SIMT_KERNEL(conformance_ldmatrix, conformance_params, 32, 1)
{
	struct rows {
		alignas(16) uint32_t at[32][12]; /* 48 bytes apart */
	};
	rows &shared = SIMT_SHARED(rows);
	uint32_t lane = simt_lane(), r[4], transposed[4];
	const uint32_t *in = p.in + simt_block() * 160;
	uint32_t *out = p.out + (simt_block() * 32 + lane) * 8;

	for (uint32_t i = 0; i < 4; i++)
		shared.at[lane][i] = in[lane * 4 + i];
	simt_warp_sync();
	simt_ldmatrix_x4(r, shared.at[in[128 + lane] % 32]);
	simt_ldmatrix_x4_trans(transposed, shared.at[in[128 + lane] % 32]);
	for (uint32_t i = 0; i < 4; i++) {
		out[i] = r[i];
		out[4 + i] = transposed[i];
	}
}

/* in: a's 4 words, b's 2, d's 4 of each lane; out: d's 4 */
template <bool f16>
SIMT_FUNCTION void
matrix(const conformance_params &p)
{
	uint32_t lane = simt_block() * 32 + simt_lane();
	const uint32_t *in = p.in + lane * 10;
	uint32_t a[4], b[2];
	float d[4];

	for (uint32_t i = 0; i < 4; i++) {
		a[i] = in[i];
		d[i] = number_of(in[6 + i]);
	}
	b[0] = in[4];
	b[1] = in[5];
	if (f16)
		simt_mma_f16(d, a, b);
	else
		simt_mma_bf16(d, a, b);
	for (uint32_t i = 0; i < 4; i++)
		p.out[lane * 4 + i] = bits_of(d[i]);
}

SIMT_KERNEL(conformance_mma_bf16, conformance_params, 32, 1)
{
	matrix<false>(p);
}

SIMT_KERNEL(conformance_mma_f16, conformance_params, 32, 1)
{
	matrix<true>(p);
}

#if SIMT_HAS_BARRIERS
/* in and out: those of simt_bulk_params of each block */
SIMT_KERNEL(conformance_bulk, conformance_params, BULK_CASE_THREADS, 1)
{
	uint32_t first = simt_block() * CONFORMANCE_BULK_WORDS;
	simt_bulk_params own = { p.in + first, p.out + first, BUG_NONE };

	bulk_case_run(own);
}
#endif

#if SIMT_HAS_WGMMA
/* in: the tensor of params.map; out: that of simt_cluster_params */
SIMT_KERNEL_OF_CLUSTERS(conformance_cluster, conformance_params, CLUSTER_CASE_THREADS, 1)
{
	cluster_case_run({ &p.map, p.out, BUG_NONE });
}

SIMT_FUNCTION void
wgmma_matrices(const conformance_params &p, bool f16)
{
	const uint32_t *in = p.in + simt_block() * CONFORMANCE_WGMMA_IN;
	float *out = reinterpret_cast<float *>(p.out + simt_block() * CONFORMANCE_WGMMA_OUT);
	simt_wgmma_params own = { reinterpret_cast<const uint16_t *>(in),
				  reinterpret_cast<const uint16_t *>(in + CONFORMANCE_WGMMA_A),
				  reinterpret_cast<const uint16_t *>(in + CONFORMANCE_WGMMA_A + CONFORMANCE_WGMMA_B),
				  out,
				  out + CONFORMANCE_WGMMA_D,
				  out + 2 * CONFORMANCE_WGMMA_D,
				  out + 2 * CONFORMANCE_WGMMA_D + CONFORMANCE_WGMMA_NARROW,
				  f16,
				  BUG_NONE };

	wgmma_case_run(own);
}

/* in: the matrices a, b and c of each block; out: d, e, d_narrow and narrow */
SIMT_KERNEL(conformance_wgmma_bf16, conformance_params, WGMMA_CASE_THREADS, 1)
{
	wgmma_matrices(p, false);
}

SIMT_KERNEL(conformance_wgmma_f16, conformance_params, WGMMA_CASE_THREADS, 1)
{
	wgmma_matrices(p, true);
}
#endif

/* in: 3 numbers of each of n; out: 10 words */
SIMT_KERNEL(conformance_number, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	for (uint32_t i = simt_block() * simt_n_threads() + simt_thread(); i < p.n;
	     i += simt_n_blocks() * simt_n_threads()) {
		float a = number_of(p.in[i * 3]), b = number_of(p.in[i * 3 + 1]), c = number_of(p.in[i * 3 + 2]);
		uint32_t *out = p.out + i * 10;

		out[0] = bits_of(simt_exp2(a));
		out[1] = bits_of(simt_log2(a));
		out[2] = bits_of(simt_fma(a, b, c));
		out[3] = bits_of(simt_max(a, b));
		out[4] = simt_to_bf16(a);
		out[5] = simt_to_f16(a);
		out[6] = simt_to_e4m3(a);
		out[7] = simt_pack_bf16(a, b);
		out[8] = simt_pack_f16(a, b);
		out[9] = bits_of(simt_max_number(a, b));
	}
}

/* in: n words, of which the low bits count; out: 3 numbers of each */
SIMT_KERNEL(conformance_from, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	for (uint32_t i = simt_block() * simt_n_threads() + simt_thread(); i < p.n;
	     i += simt_n_blocks() * simt_n_threads()) {
		p.out[i * 3] = bits_of(simt_from_bf16((uint16_t)p.in[i]));
		p.out[i * 3 + 1] = bits_of(simt_from_f16((uint16_t)p.in[i]));
		p.out[i * 3 + 2] = bits_of(simt_from_e4m3((uint8_t)p.in[i]));
	}
}

/* in: 3 words of each of n; out: 9 words: two codes each, an integer, numbers, pairs of halves, bytes */
SIMT_KERNEL(conformance_bytes, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	for (uint32_t i = simt_block() * simt_n_threads() + simt_thread(); i < p.n;
	     i += simt_n_blocks() * simt_n_threads()) {
		float a = number_of(p.in[i * 3]), b = number_of(p.in[i * 3 + 1]);
		uint32_t *out = p.out + i * 9;

		out[0] = simt_pack_e4m3(a, b);
		out[1] = simt_pack_e5m2(a, b);
		out[2] = simt_to_e5m2(b);
		out[3] = (uint32_t)simt_to_int(a);
		out[4] = bits_of(simt_mul(a, b));
		out[5] = bits_of(simt_add(a, b));
		out[6] = simt_fma_f16(p.in[i * 3], p.in[i * 3 + 1], p.in[i * 3 + 2]);
		out[7] = simt_fma_bf16(p.in[i * 3], p.in[i * 3 + 1], p.in[i * 3 + 2]);
		out[8] = simt_permute(p.in[i * 3], p.in[i * 3 + 1], p.in[i * 3 + 2] & 0x7777);
	}
}

/* in: n words, of which the low 16 bits count; out: 10 numbers of each, the halves of five pairs, as f32 */
SIMT_KERNEL(conformance_widen, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	for (uint32_t i = simt_block() * simt_n_threads() + simt_thread(); i < p.n;
	     i += simt_n_blocks() * simt_n_threads()) {
		uint32_t e4m3 = simt_widen_e4m3((uint16_t)p.in[i]), e5m2 = simt_widen_e5m2((uint16_t)p.in[i]);
		uint32_t *out = p.out + i * 10, pairs[2];

		simt_widen_four_e4m3(p.in[i] << 16 | (~p.in[i] & 0xffff), pairs);
		for (uint32_t j = 0; j < 4; j++)
			out[6 + j] = bits_of(simt_from_f16((uint16_t)(pairs[j / 2] >> j % 2 * 16)));
		out[0] = bits_of(simt_from_f16((uint16_t)e4m3));
		out[1] = bits_of(simt_from_f16((uint16_t)(e4m3 >> 16)));
		out[2] = bits_of(simt_from_f16((uint16_t)e5m2));
		out[3] = bits_of(simt_from_f16((uint16_t)(e5m2 >> 16)));
		out[4] = bits_of(simt_from_e5m2((uint8_t)p.in[i]));
		out[5] = bits_of(simt_from_e4m3((uint8_t)p.in[i]));
	}
}

/*
 * Step `n` of a chain: reads words that other blocks wrote in the step before, over words that they read in that one.
 * Blocks take different times.  in: a word a thread; out: two
 */
SIMT_KERNEL(conformance_chain, conformance_params, CONFORMANCE_MAX_THREADS, 1)
{
	uint32_t total = simt_n_blocks() * simt_n_threads(), t = simt_block() * simt_n_threads() + simt_thread();
	const uint32_t *from = p.n == 0 ? p.in : p.out + p.n % 2 * total;
	uint32_t word = from[(t * 5 + 3) % total], turns = 500 * (simt_block() % 4 + 1);

	for (uint32_t i = 0; i < turns; i++)
		word = simt_opaque(word * 1664525 + 1013904223);
	p.out[(p.n + 1) % 2 * total + t] = word;
}
