/* SPDX-License-Identifier: Apache-2.0 */
/* What each unit that multiplies gives on registers alone: no load, no store, enough chains to hide its latency. */
#include "config.h"

#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/limits.h"
#include "bench/threads.h"
#include "kernels/kernels.h"

#ifdef PAGED_X86_64
#include <cpuid.h>
#include <immintrin.h>
#endif

#define N_CHAINS 12
#define SAMPLE_US 1000.0
#define TUNE_TRIES 30

/* n_rounds of all chains; how many operations that was. */
typedef double (*peak_fn)(size_t n_rounds);

/* The numbers are opaque, and the sums are asked for: nothing is computed in advance or left out. */
#define PEAK_CHAINS(vector, zero, step)                                     \
	vector sums[N_CHAINS];                                              \
                                                                            \
	for (int i = 0; i < N_CHAINS; i++)                                  \
		sums[i] = (zero);                                           \
	for (size_t round = 0; round < n_rounds; round++) {                 \
		__asm__ volatile("" : "+x"(a), "+x"(b));                    \
		_Pragma("GCC unroll 12") for (int i = 0; i < N_CHAINS; i++) \
		{                                                           \
			__asm__ volatile("" : "+x"(a));                     \
			sums[i] = (step);                                   \
		}                                                           \
	}                                                                   \
	for (int i = 0; i < N_CHAINS; i++)                                  \
		__asm__ volatile("" : : "x"(sums[i]));

#ifdef PAGED_X86_64

static double
peak_vector(size_t n_rounds)
{
	__m128 a = _mm_set1_ps(0.5f), b = _mm_set1_ps(0.25f);

	PEAK_CHAINS(__m128, _mm_setzero_ps(), _mm_add_ps(sums[i], _mm_mul_ps(a, b)))
	return (double)n_rounds * N_CHAINS * 8;
}

__attribute__((target("avx2,fma"))) static double
peak_fma_avx2(size_t n_rounds)
{
	__m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);

	PEAK_CHAINS(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, sums[i]))
	return (double)n_rounds * N_CHAINS * 16;
}

__attribute__((target("avx512f"))) static double
peak_fma_avx512(size_t n_rounds)
{
	__m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);

	PEAK_CHAINS(__m512, _mm512_setzero_ps(), _mm512_fmadd_ps(a, b, sums[i]))
	return (double)n_rounds * N_CHAINS * 32;
}

__attribute__((target("avx512f,avx512bf16"))) static double
peak_bf16_avx512(size_t n_rounds)
{
	__m512i a = _mm512_set1_epi32(0x3f003f00), b = _mm512_set1_epi32(0x3e803e80);

	PEAK_CHAINS(__m512, _mm512_setzero_ps(), _mm512_dpbf16_ps(sums[i], (__m512bh)a, (__m512bh)b))
	return (double)n_rounds * N_CHAINS * 64;
}

#define AMX_ROWS 16
#define AMX_ROW_BYTES 64

/* Four tiles of sums, two of each side: what a product of larger matrices would hold. */
__attribute__((target("amx-tile,amx-bf16"))) static double
peak_amx(size_t n_rounds)
{
	struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} config = { .palette = 1 };
	static _Alignas(64) const uint8_t zeros[AMX_ROWS * AMX_ROW_BYTES];

	for (int tile = 0; tile < 8; tile++) {
		config.row_bytes[tile] = AMX_ROW_BYTES;
		config.rows[tile] = AMX_ROWS;
	}
	/* The compiler's _tile_loadconfig() says that it reads eight bytes. */
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

/* A process has to ask for the tiles' registers. */
static bool
amx_permitted(void)
{
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
	       syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool
cpu_has(enum limit_unit unit)
{
	unsigned int a, b, c, d;

	switch (unit) {
	case LIMIT_VECTOR:
		return true;
	case LIMIT_FMA_AVX2:
		return kernel_isa_supported(KERNEL_AVX2);
	case LIMIT_FMA_AVX512:
		return kernel_isa_supported(KERNEL_AVX512);
	case LIMIT_BF16_AVX512:
		return kernel_isa_supported(KERNEL_AVX512) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
	case LIMIT_AMX:
		return amx_permitted();
	case LIMIT_N_UNITS:
		break;
	}
	return false;
}

static const peak_fn peaks[LIMIT_N_UNITS] = { peak_vector, peak_fma_avx2, peak_fma_avx512, peak_bf16_avx512, peak_amx };

#else

static double
peak_vector(size_t n_rounds)
{
	typedef float vector __attribute__((vector_size(16)));
	vector a = { 0.5f }, sums[N_CHAINS] = { 0 };

	for (size_t round = 0; round < n_rounds; round++) {
		__asm__ volatile("" : "+m"(a));
		for (int i = 0; i < N_CHAINS; i++)
			sums[i] += a * a;
	}
	__asm__ volatile("" : : "r"(sums) : "memory");
	return (double)n_rounds * N_CHAINS * 8;
}

static bool
cpu_has(enum limit_unit unit)
{
	return unit == LIMIT_VECTOR;
}

static const peak_fn peaks[LIMIT_N_UNITS] = { peak_vector, peak_vector, peak_vector, peak_vector, peak_vector };

#endif

const char *
limit_unit_name(enum limit_unit unit)
{
	static const char *const names[LIMIT_N_UNITS] = { "f32 vectors of 16 bytes", "f32 FMA, AVX2",
							  "f32 FMA, AVX-512", "bf16 products, AVX-512",
							  "bf16 tiles, AMX" };

	return names[unit];
}

const char *
limit_unit_missing(enum limit_unit unit)
{
	static int known[LIMIT_N_UNITS]; /* 1: it has, -1: it has not */

	if (known[unit] == 0)
		known[unit] = cpu_has(unit) ? 1 : -1;
	return known[unit] > 0 ? NULL : "this CPU or kernel has it not";
}

struct peak_run {
	peak_fn multiply;
	size_t n_rounds;
	double flops; /* of one thread */
};

static void
peak_work(void *context)
{
	struct peak_run *run = context;
	double flops = run->multiply(run->n_rounds);

	__atomic_store(&run->flops, &flops, __ATOMIC_RELAXED);
}

/* As many rounds as make a sample of some length. */
static size_t
rounds_of(enum limit_unit unit)
{
	struct peak_run run = { .multiply = peaks[unit], .n_rounds = 10000 };
	double ns, least_ns = 0;

	for (int i = 0; i < TUNE_TRIES; i++) {
		ns = (double)threads_run(peak_work, &run);
		least_ns = i == 0 || ns < least_ns ? ns : least_ns;
	}
	return (size_t)((double)run.n_rounds * SAMPLE_US * 1e3 / least_ns) + 1;
}

double
limit_peak(enum limit_unit unit)
{
	static size_t n_rounds[LIMIT_N_UNITS];
	struct peak_run run = { .multiply = peaks[unit] };
	double ns;

	if (n_rounds[unit] == 0)
		n_rounds[unit] = rounds_of(unit);
	run.n_rounds = n_rounds[unit];
	ns = (double)threads_run(peak_work, &run);
	return run.flops * threads_number() / ns;
}

enum limit_unit
limit_peak_unit(void)
{
	static enum limit_unit best = LIMIT_N_UNITS;
	double most = 0;

	if (best != LIMIT_N_UNITS)
		return best;
	/* In turn, for a busy machine may spoil the tries of any one in a row. */
	for (int i = 0; i < TUNE_TRIES; i++)
		for (enum limit_unit unit = 0; unit < LIMIT_N_UNITS; unit++) {
			double here = limit_unit_missing(unit) == NULL ? limit_peak(unit) : 0;

			if (here > most) {
				most = here;
				best = unit;
			}
		}
	return best;
}

enum limit_unit
limit_peak_unit_f32(void)
{
	enum limit_unit unit = LIMIT_FMA_AVX512;

	while (unit > LIMIT_VECTOR && limit_unit_missing(unit) != NULL)
		unit--;
	return unit;
}
