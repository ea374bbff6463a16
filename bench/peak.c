/* SPDX-License-Identifier: Apache-2.0 */
/* Peak of each multiplying unit on registers only: no load, no store, enough independent chains to hide latency. */
#include "config.h"

#include "bench/peak.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bench/pinned_threads.h"

#ifdef PAGED_X86_64
#include <immintrin.h>
#endif

#define N_CHAINS 12
#define SAMPLE_US 1000.0
#define TUNE_TRIES 30

/*
 * The compiler cannot see the inputs' values and must produce the sums, so it can neither precompute nor drop the work.
 * Vectors have `bytes` bytes; `step` adds `n_flops` operations per element to sums[i].
 */
#define PEAK(name, isa, bytes, n_flops, step)                                           \
	isa static double name(size_t n_rounds)                                         \
	{                                                                               \
		typedef float vector __attribute__((vector_size(bytes)));               \
		vector a = { 0.5f }, b = { 0.25f }, sums[N_CHAINS] = { { 0 } };         \
                                                                                        \
		for (size_t round = 0; round < n_rounds; round++) {                     \
			__asm__ volatile("" : "+" REGISTER(a), "+" REGISTER(b));        \
			_Pragma("GCC unroll 12") for (int i = 0; i < N_CHAINS; i++)     \
			{                                                               \
				__asm__ volatile("" : "+" REGISTER(a));                 \
				sums[i] = (step);                                       \
			}                                                               \
		}                                                                       \
		for (int i = 0; i < N_CHAINS; i++)                                      \
			__asm__ volatile("" : : REGISTER(sums[i]));                     \
		return (double)n_rounds * N_CHAINS * (bytes / sizeof(float)) * n_flops; \
	}

#ifdef PAGED_X86_64

#define REGISTER "x"
#define X86(function) function
#define FMA_AVX2 __attribute__((target("avx2,fma")))
#define FMA_AVX512 __attribute__((target("avx512f")))
#define BF16_AVX512 __attribute__((target("avx512f,avx512bf16")))
PEAK(peak_vector, , 16, 2, sums[i] + a * b)
PEAK(peak_fma_avx2, FMA_AVX2, 32, 2, sums[i] + a * b)
PEAK(peak_fma_avx512, FMA_AVX512, 64, 2, sums[i] + a * b)
PEAK(peak_bf16_avx512, BF16_AVX512, 64, 4, (vector)_mm512_dpbf16_ps((__m512)sums[i], (__m512bh)a, (__m512bh)b))

#define AMX_ROWS 16
#define AMX_ROW_BYTES 64

/* Four accumulator tiles and two tiles of each operand, as the inner loop of a larger matrix product has. */
__attribute__((target("amx-tile,amx-bf16"))) static double
peak_amx(size_t n_rounds)
{
	struct {
		uint8_t palette_id, start_row, reserved[14];
		uint16_t colsb[16];
		uint8_t rows[16];
	} config = { .palette_id = 1 };
	static _Alignas(64) const uint8_t zeros[AMX_ROWS * AMX_ROW_BYTES];

	for (int tile = 0; tile < 8; tile++) {
		config.colsb[tile] = AMX_ROW_BYTES;
		config.rows[tile] = AMX_ROWS;
	}
	/* The compiler assumes that _tile_loadconfig() reads only eight bytes; this makes it store all of config. */
	__asm__ volatile("" : : "r"(&config) : "memory");
	_tile_loadconfig(&config);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_loadd(4, zeros, AMX_ROW_BYTES);
	_tile_loadd(5, zeros, AMX_ROW_BYTES);
	_tile_loadd(6, zeros, AMX_ROW_BYTES);
	_tile_loadd(7, zeros, AMX_ROW_BYTES);
	for (size_t round = 0; round < n_rounds; round++) {
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_release();
	return (double)n_rounds * 4 * AMX_ROWS * 16 * 32 * 2;
}

#else
#define REGISTER "m"
#define X86(function) NULL
PEAK(peak_vector, , 16, 2, sums[i] + a * b)
#endif

static const struct {
	const char *name;
	double (*multiply)(size_t n_rounds); /* runs all chains; returns the number of operations */
} peak_units[KERNEL_N_ISAS] = {
	[KERNEL_GENERIC] = { "f32 vectors of 16 bytes", peak_vector },
	[KERNEL_AVX2] = { "f32 FMA, AVX2", X86(peak_fma_avx2) },
	[KERNEL_AVX512] = { "f32 FMA, AVX-512", X86(peak_fma_avx512) },
	[KERNEL_AVX512_BF16] = { "bf16 products, AVX-512", X86(peak_bf16_avx512) },
	[KERNEL_AMX] = { "bf16 tiles, AMX", X86(peak_amx) },
};

const char *
peak_unit_name(enum kernel_isa unit)
{
	return peak_units[unit].name;
}

struct peak_run {
	enum kernel_isa unit;
	size_t n_rounds;
	double flops; /* of one thread */
};

static void
peak_work(void *context)
{
	struct peak_run *run = context;
	double flops = peak_units[run->unit].multiply(run->n_rounds);

	__atomic_store(&run->flops, &flops, __ATOMIC_RELAXED);
}

double
peak_gflops(enum kernel_isa unit)
{
	static size_t n_rounds[KERNEL_N_ISAS];
	struct peak_run run = { .unit = unit, .n_rounds = 10000 };
	double ns, least_ns = INFINITY;

	/* Choose the rounds so that a sample takes SAMPLE_US. */
	for (int i = 0; i < TUNE_TRIES && n_rounds[unit] == 0; i++)
		least_ns = fmin(least_ns, (double)pinned_threads_run(peak_work, &run));
	if (n_rounds[unit] == 0)
		n_rounds[unit] = (size_t)((double)run.n_rounds * SAMPLE_US * 1e3 / least_ns) + 1;
	run.n_rounds = n_rounds[unit];
	ns = (double)pinned_threads_run(peak_work, &run);
	return run.flops * pinned_threads_count() / ns;
}

enum kernel_isa
peak_best_unit(void)
{
	static enum kernel_isa best = KERNEL_N_ISAS;
	double most = 0;

	if (best != KERNEL_N_ISAS)
		return best;
	/* Interleave the units, because a burst of load could spoil consecutive tries of one. */
	for (int i = 0; i < TUNE_TRIES; i++)
		for (enum kernel_isa unit = 0; unit < KERNEL_N_ISAS; unit++) {
			double here = kernel_isa_supported(unit) ? peak_gflops(unit) : 0;

			if (here > most) {
				most = here;
				best = unit;
			}
		}
	return best;
}
