/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels' source on the host: each model against a plain computation, under
 * several orders of blocks and threads, and each detector on a kernel that
 * has one bug.  unit_simt_async.c tests asynchronous instructions.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/simt_fixture.h"

Test(simt, warps_exchange)
{
	struct simt_exchange_params p = { .out = region(2 * 128 * 8 * 4, true, "out") };
	uint32_t sum = 127 * 128 / 2;

	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		expect_no_report("simt_case_exchange", &p, 2, 128, seed);
		for (uint32_t i = 0; i < 2 * 128; i++) {
			uint32_t t = i % 128, ballot = 0;
			const uint32_t *out = p.out + i * 8;

			for (uint32_t lane = 0; lane < 32; lane++)
				ballot |= (uint32_t)((t / 32 * 32 + lane) % 3 == 0) << lane;
			cr_assert_eq(out[0], (t / 32 * 32 + (t + 5) % 32) * 3);
			cr_assert_eq(out[1], t ^ 16);
			cr_assert_eq(out[2], ballot);
			cr_assert_eq(out[3], t / 32 == 1 ? 1 : 2);
			cr_assert_eq(out[4], sum);
			cr_assert_eq(out[5], 127);
			cr_assert_eq(out[6], 0xffffffff);
			cr_assert_eq(out[7], t / 32 << 16 | 2);
		}
	}
	region_free(p.out);
}

Test(simt, invalid_exchanges_are_reported)
{
	struct simt_exchange_params p = { .out = region(128 * 8 * 4, true, "out") };

	p.bug = BUG_DIVERGENT_SHUFFLE;
	expect_report("a shuffle in divergent code", "simt_case_exchange", &p, 1, 128);
	p.bug = BUG_PARTIAL_SHUFFLE;
	expect_report("a shuffle in divergent code", "simt_case_exchange", &p, 1, 128);
	p.bug = BUG_PLAIN_COUNT;
	expect_report("race: it ", "simt_case_exchange", &p, 1, 128);
	region_free(p.out);
}

/* A dependent launch may begin before the launch before has ended. */
Test(simt, dependent_launches_wait_for_the_launch_before)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} bugs[] = { { BUG_EARLY_READ, "it reads out + 0 before simt_dependency_wait()" },
		     { BUG_EARLY_WRITE, "it writes out + 0 before simt_dependency_wait()" },
		     { BUG_EARLY_ATOMIC, "it writes out + 0 before simt_dependency_wait()" },
		     { BUG_EARLY_COPY, "it reads out + 0 before simt_dependency_wait()" },
		     { BUG_NO_DEPENDENCY_WAIT, "thread 5: it ends without simt_dependency_wait()" } };
	struct simt_exchange_params p = { .out = region(64 * 4, true, "out") };
	struct simt_launch launch = { .params = &p, .grid = { 1, 1 }, .n_threads = 64, .shared_size = 8192 };

	simt_cases_link();
	launch.kernel = simt_find("simt_case_dependent");
	for (uint64_t dependent = 0; dependent < 2; dependent++) {
		launch.dependent = dependent != 0;
		cr_assert(simt_run(&launch, report, sizeof(report)), "%s", report);
		cr_assert(p.out[0] == dependent + 1 && p.out[63] == dependent + 1);
	}
	for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
		p.bug = bugs[i].bug;
		cr_assert(!simt_run(&launch, report, sizeof(report)));
		cr_assert_not_null(strstr(report, bugs[i].words), "\"%s\" expected: %s", bugs[i].words, report);
	}
	/* Another launch begins after everything before. */
	p.bug = BUG_NO_DEPENDENCY_WAIT;
	launch.dependent = false;
	cr_assert(simt_run(&launch, report, sizeof(report)), "%s", report);
	region_free(p.out);
}

static void
reverse_prepare(struct simt_reverse_params *p)
{
	uint32_t *in = region(64 * 4, false, "in");

	for (uint32_t i = 0; i < 64; i++)
		in[i] = i * i;
	*p = (struct simt_reverse_params){ .in = in, .out = region(64 * 4, true, "out") };
}

Test(simt, barriers)
{
	struct simt_reverse_params p;

	reverse_prepare(&p);
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		memset(p.out, 0, 64 * 4);
		expect_no_report("simt_case_reverse", &p, 1, 64, seed);
		for (uint32_t i = 0; i < 64; i++)
			cr_assert_eq(p.out[i], (63 - i) * (63 - i));
	}
	region_free((void *)p.in);
	region_free(p.out);
}

/* Reads of a word need no order among themselves, and a write of other bytes needs none after them. */
Test(simt, words_with_several_readers)
{
	struct simt_readers_params p = { .out = region(128 * 4, true, "out") };

	for (uint64_t seed = 0; seed < 4 * N_SEEDS; seed++) {
		p.absent = seed % 4;
		expect_no_report("simt_case_readers", &p, 1, 128, seed);
		for (uint32_t t = 32; t < 128; t++) {
			uint32_t sum = 0;

			for (uint32_t round = 0; round < READERS_CASE_ROUNDS; round++)
				sum += t % 32 + (t / 32 == p.absent ? 1 : round);
			cr_assert_eq(p.out[t], sum);
		}
	}
	region_free(p.out);
}

/* A write must be ordered after each of them, in whichever order they were. */
Test(simt, a_write_before_one_of_several_readers_is_reported)
{
	struct simt_readers_params p = { .out = region(128 * 4, true, "out"), .bug = BUG_LATE_READER };

	for (uint64_t seed = 0; seed < 3 * 4 * N_SEEDS; seed++) {
		p.absent = 1 + seed % 3;
		cr_assert(!simt_run_kernel("simt_case_readers", &p, 1, 128, seed), "seed %u, warp %u: nothing found",
			  (unsigned int)seed, p.absent);
		cr_assert_not_null(strstr(report, "no barrier lies between"), "%s", report);
	}
	region_free(p.out);
}

Test(simt, invalid_barriers_and_accesses_are_reported)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} cases[] = {
		{ BUG_NO_BARRIER, "no barrier lies between" },
		{ BUG_DIVERGENT_BARRIER, "barrier in divergent code" },
		{ BUG_EARLY_END, "but thread 7 has ended" },
		{ BUG_WRONG_COUNT, "barrier 3 is of" },
		{ BUG_READ_PAST, "reads 4 bytes at address" },
		{ BUG_WRITE_PAST, "0 bytes past the end of out (of 256 bytes)" },
		{ BUG_WRITE_INPUT, "it writes in + " },
	};
	struct simt_reverse_params p;

	reverse_prepare(&p);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.bug = cases[i].bug;
		expect_report(cases[i].words, "simt_case_reverse", &p, 1, 64);
	}
	p.bug = BUG_NONE;
	expect_no_report("simt_case_reverse", &p, 1, 64, 0);
	region_free((void *)p.in);
	region_free(p.out);
}

/* The message has the line if addr2line is installed, else the offset. */
Test(simt, race_report_names_the_line)
{
	struct simt_reverse_params p;

	reverse_prepare(&p);
	p.bug = BUG_NO_BARRIER;
	expect_report("(", "simt_case_reverse", &p, 1, 64);
	cr_assert(strstr(report, "simt_cases.cu:") != NULL || strstr(report, "unit_simt + 0x") != NULL, "%s", report);
	region_free((void *)p.in);
	region_free(p.out);
}

#ifdef __SANITIZE_ADDRESS__ /* it catches the signal, reports and exits */
#define GUARD_PAGE_FAULT .exit_code = 1
#else
#define GUARD_PAGE_FAULT .signal = SIGSEGV
#endif

Test(simt, stack_overflow_meets_the_guard_page, GUARD_PAGE_FAULT)
{
	struct simt_reverse_params p;

	reverse_prepare(&p);
	p.bug = BUG_STACK;
	simt_run_kernel("simt_case_reverse", &p, 1, 64, 0);
}

#define N_BLOCKS 7

static void
sum_prepare(struct simt_sum_params *p)
{
	uint32_t *in = region(N_BLOCKS * 64 * 4, false, "in");

	for (uint32_t i = 0; i < N_BLOCKS * 64; i++)
		in[i] = i + 1;
	*p = (struct simt_sum_params){ .in = in,
				       .partial = region(N_BLOCKS * 64 * 4, true, "partial"),
				       .ticket = region(4, true, "ticket"),
				       .out = region(64 * 4, true, "out") };
}

static void
sum_drop(struct simt_sum_params *p)
{
	region_free((void *)p->in);
	region_free(p->partial);
	region_free(p->ticket);
	region_free(p->out);
}

Test(simt, last_block_combines)
{
	struct simt_sum_params p;

	sum_prepare(&p);
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		*p.ticket = 0;
		memset(p.out, 0, 64 * 4);
		expect_no_report("simt_case_sum", &p, N_BLOCKS, 64, seed);
		for (uint32_t t = 0; t < 64; t++) {
			uint32_t sum = 0;

			for (uint32_t i = 0; i < N_BLOCKS; i++)
				sum += p.in[i * 64 + t] * 3;
			cr_assert_eq(p.out[t], sum);
		}
	}
	sum_drop(&p);
}

Test(simt, missing_fences_are_reported)
{
	struct simt_sum_params p;

	sum_prepare(&p);
	p.bug = BUG_NO_FENCE;
	expect_report("of another block wrote; no fence and atomic lie between", "simt_case_sum", &p, N_BLOCKS, 64);
	*p.ticket = 0;
	p.bug = BUG_SHARED_FENCE;
	expect_report("of another block wrote; no fence and atomic lie between", "simt_case_sum", &p, N_BLOCKS, 64);
	*p.ticket = 0;
	p.bug = BUG_NO_TICKET_SYNC;
	expect_report("of another block wrote", "simt_case_sum", &p, N_BLOCKS, 64);
	/* Blocks in order do not show it: the tickets say the same. */
	*p.ticket = 0;
	p.bug = BUG_BLOCK_ORDER;
	expect_no_report("simt_case_sum", &p, N_BLOCKS, 64, 0);
	*p.ticket = 0;
	expect_report("of another block", "simt_case_sum", &p, N_BLOCKS, 64);
	*p.ticket = 0;
	p.bug = BUG_SPIN;
	expect_report("it waits for another block", "simt_case_sum", &p, N_BLOCKS, 64);
	sum_drop(&p);
}

static void
matrix_check(bool f16)
{
	struct simt_matrix_params p = {
		.a = region(512, false, "a"), .b = region(256, false, "b"), .d = region(512, true, "d"), .f16 = f16
	};
	uint16_t *a = (uint16_t *)p.a, *b = (uint16_t *)p.b;
	float want[128];

	for (unsigned int i = 0; i < 256; i++) {
		float x = (float)(rand() % 2001 - 1000) / 64.0f;

		a[i] = f16 ? convert_to_f16(x) : convert_to_bf16(x);
		if (i < 128)
			b[i] = f16 ? convert_to_f16(-x / 3) : convert_to_bf16(-x / 3);
	}
	for (unsigned int i = 0; i < 128; i++) {
		double sum = p.d[i] = (float)i;

		for (unsigned int k = 0; k < 16; k++)
			sum += (double)element(a[i / 8 * 16 + k], f16) * (double)element(b[k * 8 + i % 8], f16);
		want[i] = (float)sum;
	}
	expect_no_report("simt_case_matrix", &p, 1, 32, 2);
	for (unsigned int i = 0; i < 128; i++)
		cr_assert_float_eq(p.d[i], want[i], 1e-4f * fabsf(want[i]) + 1e-3f, "%u: %f, want %f", i,
				   (double)p.d[i], (double)want[i]);
	region_free(a);
	region_free(b);
	region_free(p.d);
}

Test(simt, matrices_multiply)
{
	matrix_check(false);
	matrix_check(true);
}

/* The nearest of all 256, ties to even. */
static uint8_t
nearest_e4m3(float x, const float *values)
{
	uint8_t best = 0;

	for (unsigned int i = 0; i < 127; i++) {
		float apart = fabsf(values[i] - fabsf(x)), least = fabsf(values[best] - fabsf(x));

		if (apart < least || (apart == least && i % 2 == 0))
			best = (uint8_t)i;
	}
	return best | (signbit(x) ? 0x80 : 0);
}

#define N_NUMBERS 4096

Test(simt, numbers_convert)
{
	static const float special[] = { 0.0f,     -0.0f,     1.0f,      448.0f,   464.0f,    -1e9f,
					 0x1p-9f,  0x1p-10f,  0x1.8p-9f, 65520.0f, 0x1p-24f,  0x1p-25f,
					 INFINITY, -INFINITY, 17.0f,     19.0f,    -0x1.fp-7f };
	float e4m3_values[127];
	struct simt_convert_params p = {
		.in = region(N_NUMBERS * 4, false, "in"),
		.bf16 = region(N_NUMBERS * 2, true, "bf16"),
		.f16 = region(N_NUMBERS * 2, true, "f16"),
		.e4m3 = region(N_NUMBERS, true, "e4m3"),
		.from_bf16 = region(N_NUMBERS * 4, true, "from bf16"),
		.from_f16 = region(N_NUMBERS * 4, true, "from f16"),
		.from_e4m3 = region(N_NUMBERS * 4, true, "from e4m3"),
		.exp2 = region(N_NUMBERS * 4, true, "exp2"),
		.log2 = region(N_NUMBERS * 4, true, "log2"),
		.n = N_NUMBERS,
	};
	float *in = (float *)p.in;

	for (unsigned int i = 0; i < 127; i++)
		e4m3_values[i] = i < 8 ? ldexpf((float)i, -9) : ldexpf((float)(i % 8 + 8), (int)(i / 8) - 10);
	for (unsigned int i = 0; i < N_NUMBERS; i++)
		in[i] = ldexpf((float)(rand() % 65537 - 32768), rand() % 40 - 36);
	memcpy(in, special, sizeof(special));
	in[N_NUMBERS - 1] = NAN;
	expect_no_report("simt_case_convert", &p, 3, 128, 3);
	for (unsigned int i = 0; i < N_NUMBERS - 1; i++) {
		uint8_t e4m3 = nearest_e4m3(in[i], e4m3_values);

		cr_assert_eq(p.bf16[i], convert_to_bf16(in[i]));
		cr_assert_eq(p.f16[i], convert_to_f16(in[i]));
		cr_assert_eq(p.e4m3[i], e4m3, "%a: %02x, want %02x", (double)in[i], p.e4m3[i], e4m3);
		cr_assert_eq(p.from_e4m3[i], copysignf(e4m3_values[e4m3 & 0x7f], in[i]));
		cr_assert_eq(convert_bits(p.from_bf16[i]), convert_bits(convert_from_bf16(p.bf16[i])));
		cr_assert_eq(convert_bits(p.from_f16[i]), convert_bits(convert_from_f16(p.f16[i])));
		cr_assert_eq(p.exp2[i], exp2f(in[i]));
	}
	cr_assert(isnan(p.from_bf16[N_NUMBERS - 1]) && isnan(p.from_f16[N_NUMBERS - 1]) &&
		  isnan(p.from_e4m3[N_NUMBERS - 1]) && isnan(p.log2[N_NUMBERS - 1]));
}

/* Every sign, exponent and beginning of a mantissa, with ends that decide how it is rounded. */
static unsigned int
byte_numbers(float *in)
{
	static const uint32_t ends[] = { 0, 1, 0xffff };
	unsigned int n = 0;

	for (uint32_t high = 0; high < 65536; high += 4)
		for (unsigned int i = 0; i < 3; i++)
			in[n++] = convert_float((high + i * 2 % 4) << 16 | ends[i]);
	for (uint32_t high = 0x3300; high < 0x4800; high++) /* 2^-25 to 2^17, each */
		for (unsigned int i = 0; i < 3; i++)
			in[n++] = convert_float(high << 16 | ends[i]);
	return n;
}

#define N_BYTE_NUMBERS (3 * (16384 + 0x1500))

static void
halves_check(const uint32_t *halves, uint32_t two)
{
	for (unsigned int i = 0; i < 4; i++) {
		float got = convert_from_f16((uint16_t)(halves[i & 2] >> i % 2 * 16));
		float bits = convert_from_f16((uint16_t)(halves[(i & 2) + 1] >> i % 2 * 16));

		cr_assert(got == bits ? signbit(got) == signbit(bits) : isnan(got) && isnan(bits),
			  "codes %04x, number %u: %g, by bits %g", two, i, (double)got, (double)bits);
	}
}

/* The replacements of fp8 instructions that a GPU lacks, compared with the instructions' models. */
Test(simt, fp8_emulation_equals_the_model)
{
	struct simt_bytes_params p = {
		.in = region((N_BYTE_NUMBERS + 1) * 4, false, "in"),
		.e4m3 = region(N_BYTE_NUMBERS * 2, true, "e4m3"),
		.e5m2 = region(N_BYTE_NUMBERS * 2, true, "e5m2"),
		.e4m3_bits = region(N_BYTE_NUMBERS * 2, true, "e4m3 by bits"),
		.e5m2_bits = region(N_BYTE_NUMBERS * 2, true, "e5m2 by bits"),
		.n = N_BYTE_NUMBERS,
		.halves = region(65536 * 16, true, "halves"),
	};

	cr_assert_eq(byte_numbers((float *)p.in), N_BYTE_NUMBERS);
	expect_no_report("simt_case_bytes", &p, 3, 128, 3);
	for (unsigned int i = 0; i < N_BYTE_NUMBERS; i++) {
		cr_assert_eq(p.e4m3[i], p.e4m3_bits[i], "%a: e4m3 %04x, by bits %04x", (double)p.in[i], p.e4m3[i],
			     p.e4m3_bits[i]);
		cr_assert(p.e4m3[i] == (convert_to_e4m3(p.in[i]) | convert_to_e4m3(p.in[i + 1]) << 8) &&
			  p.e5m2[i] == (convert_to_e5m2(p.in[i]) | convert_to_e5m2(p.in[i + 1]) << 8));
		cr_assert_eq(p.e5m2[i], p.e5m2_bits[i], "%a: e5m2 %04x, by bits %04x", (double)p.in[i], p.e5m2[i],
			     p.e5m2_bits[i]);
	}
	for (uint32_t two = 0; two < 65536; two++)
		halves_check(p.halves + two * 4, two);
}

static float
code_value(uint8_t code, enum paged_dtype dtype)
{
	if (dtype == PAGED_I8)
		return (float)(int8_t)code;
	return dtype == PAGED_E4M3 ? convert_from_e4m3(code) : convert_from_e5m2(code);
}

/* Check half `half` of a register, which is that of a code. */
static void
widened_check(uint32_t halves, unsigned int half, bool f16, uint8_t code, enum paged_dtype dtype)
{
	float got = element((uint16_t)(halves >> half * 16), f16), want = code_value(code, dtype);

	cr_assert(isnan(want) ? isnan(got) : got == want, "%s %02x: %g as %s", paged_dtype_name(dtype), code,
		  (double)got, f16 ? "f16" : "bf16");
}

/* Codes of pools of bytes as halves in registers, all of them, at each place, in pairs of both kinds. */
Test(simt, bytes_widen)
{
	static const enum paged_dtype dtypes[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct simt_widen_params p = { .f16 = region(256 * 16, true, "f16"),
				       .bf16 = region(256 * 16, true, "bf16"),
				       .wild = region(256 * 4, true, "wild") };

	for (unsigned int i = 0; i < 3 * 1024; i++) {
		unsigned int at = i % 4, word = i / 4 % 256 * 4;
		uint8_t code = (uint8_t)(i / 4 % 256 + at);

		p.dtype = dtypes[i / 1024];
		if (i % 1024 == 0)
			expect_no_report("simt_case_widen", &p, 1, 128, i / 1024);
		widened_check(p.f16[word + at / 2], at % 2, true, code, p.dtype);
		widened_check(p.f16[word + 2 + at % 2], at / 2, true, code, p.dtype);
		widened_check(p.bf16[word + at / 2], at % 2, false, code, PAGED_I8);
		widened_check(p.bf16[word + 2 + at % 2], at / 2, false, code, PAGED_I8);
		cr_assert_eq(isfinite(code_value(code, p.dtype)), (p.wild[word / 4] >> at * 8 & 0xff) == 0);
	}
	region_free(p.f16);
	region_free(p.bf16);
	region_free(p.wild);
}

Test(simt, invalid_launches_are_refused)
{
	struct simt_reverse_params p;

	reverse_prepare(&p);
	cr_assert_not(simt_run_kernel("simt_case_reverse", &p, 1, 96, 0));
	cr_assert_str_eq(report,
			 "kernel simt_case_reverse: launched with more threads than its launch bounds, or none");
	cr_assert_not(simt_run_kernel("simt_case_reverse", &p, 1, 33, 0));
	cr_assert_str_eq(report, "kernel simt_case_reverse: launched with a block that is no whole number of warps");
	cr_assert_not(simt_run_kernel("simt_case_reverse", &p, 0, 32, 0));
	region_free((void *)p.in);
	region_free(p.out);
}
