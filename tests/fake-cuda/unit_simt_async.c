/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous instructions on the host: copies, bulk copies with barriers in shared memory, and wgmma. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/simt_fixture.h"

#define N_STAGES 5

static void
pipeline_prepare(struct simt_pipeline_params *p)
{
	uint32_t *in = region(N_STAGES * 64 * 16, false, "in");

	for (uint32_t i = 0; i < N_STAGES * 64 * 4; i++)
		in[i] = i * 7;
	*p = (struct simt_pipeline_params){ .in = in, .out = region(64 * 4, true, "out"), .n_stages = N_STAGES };
}

Test(simt_async, copies_arrive)
{
	struct simt_pipeline_params p;

	pipeline_prepare(&p);
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		expect_no_report("simt_case_pipeline", &p, 1, 64, seed);
		for (uint32_t t = 0; t < 64; t++) {
			uint32_t sum = 0;

			for (uint32_t i = 0; i < N_STAGES * 4; i++)
				sum += p.in[i / 4 * 256 + (t / 32 * 32 + (t + 1) % 32) * 4 + i % 4];
			cr_assert_eq(p.out[t], sum);
		}
	}
	region_free((void *)p.in);
	region_free(p.out);
}

Test(simt_async, missing_waits_for_copies_are_reported)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} cases[] = {
		{ BUG_NO_WAIT, "is on its way" },
		{ BUG_WEAK_WAIT, "is on its way" },
		{ BUG_NO_WARP_SYNC, "no barrier lies between" },
		{ BUG_EARLY_REUSE, "no barrier lies between" },
		{ BUG_UNALIGNED, "not aligned to 16" },
	};
	struct simt_pipeline_params p;

	pipeline_prepare(&p);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.bug = cases[i].bug;
		expect_report(cases[i].words, "simt_case_pipeline", &p, 1, 64);
	}
	region_free((void *)p.in);
	region_free(p.out);
}

static void
wgmma_prepare(struct simt_wgmma_params *p, bool f16)
{
	uint16_t *a = region(64 * 64 * 2, false, "a"), *b = region(128 * 64 * 2, false, "b"),
		 *c = region(64 * 128 * 2, false, "c");

	*p = (struct simt_wgmma_params){ .a = a,
					 .b = b,
					 .c = c,
					 .d = region(64 * 128 * 4, true, "d"),
					 .e = region(64 * 128 * 4, true, "e"),
					 .d_narrow = region(64 * 64 * 4, true, "d_narrow"),
					 .narrow = region(64 * 64 * 4, true, "narrow"),
					 .f16 = f16 };
	/* Small integers, so that all sums are exact. */
	for (unsigned int i = 0; i < 128 * 64; i++) {
		float x = (float)(rand() % 9 - 4), y = (float)(rand() % 9 - 4);

		if (i < 64 * 64)
			a[i] = f16 ? convert_to_f16(x) : convert_to_bf16(x);
		b[i] = f16 ? convert_to_f16(y) : convert_to_bf16(y);
		c[i] = f16 ? convert_to_f16(x + y) : convert_to_bf16(x + y);
	}
}

static void
wgmma_drop(struct simt_wgmma_params *p)
{
	region_free((void *)p->a);
	region_free((void *)p->b);
	region_free((void *)p->c);
	region_free(p->d);
	region_free(p->e);
	region_free(p->d_narrow);
	region_free(p->narrow);
}

static void
wgmma_check(const struct simt_wgmma_params *p)
{
	for (unsigned int i = 0; i < 64 * 128; i++) {
		unsigned int row = i / 128, column = i % 128;
		float d = 0, e = 0;

		for (unsigned int k = 0; k < 64; k++) {
			float weight = p->d[row * 128 + k];

			d += element(p->a[row * 64 + k], p->f16) * element(p->b[column * 64 + k], p->f16);
			weight = element(p->f16 ? convert_to_f16(weight) : convert_to_bf16(weight), p->f16);
			e += weight * element(p->c[k * 128 + column], p->f16);
		}
		cr_assert_float_eq(p->d[i], d, 0, "d %u, %u: %f, want %f", row, column, (double)p->d[i], (double)d);
		cr_assert_float_eq(p->e[i], e, 0, "e %u, %u: %f, want %f", row, column, (double)p->e[i], (double)e);
		cr_assert(column >= 64 || p->d_narrow[row * 64 + column] == d);
		cr_assert(column >= 64 || p->narrow[row * 64 + column] == e);
	}
}

Test(simt_async, groups_of_warps_multiply)
{
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		struct simt_wgmma_params p;

		wgmma_prepare(&p, seed % 2 != 0);
		expect_no_report("simt_case_wgmma", &p, 1, WGMMA_CASE_THREADS, seed);
		wgmma_check(&p);
		wgmma_drop(&p);
	}
}

Test(simt_async, wrong_products_are_reported)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} cases[] = {
		{ BUG_NO_WAIT, "is on its way" },
		{ BUG_NO_PROXY_FENCE, "no proxy fence lies between" },
		{ BUG_NO_WGMMA_FENCE, "wgmma without a fence" },
		{ BUG_EARLY_REUSE, "race: it " },
		{ BUG_OTHER_MATRIX, "other matrices in another lane or warp" },
		{ BUG_REGISTERS, "setmaxnreg: the warps ask for 65536 registers, and the block has 64512" },
		{ BUG_LOST_ARRIVAL, "waits in a barrier in shared memory" },
	};
	struct simt_wgmma_params p;

	wgmma_prepare(&p, false);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.bug = cases[i].bug;
		expect_report(cases[i].words, "simt_case_wgmma", &p, 1, WGMMA_CASE_THREADS);
	}
	p.bug = BUG_NO_WGMMA_WAIT;
	expect_no_report("simt_case_wgmma", &p, 1, WGMMA_CASE_THREADS, 0);
	cr_assert(isnan(p.e[0]), "products in flight were used");
	wgmma_drop(&p);
}

static void
bulk_prepare(struct simt_bulk_params *p)
{
	size_t size = BULK_CASE_ROUNDS * BULK_CASE_WORDS * sizeof(uint32_t);
	uint32_t *in = region(size, false, "in");

	*p = (struct simt_bulk_params){ .in = in, .out = region(size, true, "out") };
	for (unsigned int i = 0; i < BULK_CASE_ROUNDS * BULK_CASE_WORDS; i++)
		in[i] = (uint32_t)rand() | 1;
}

static void
bulk_drop(struct simt_bulk_params *p)
{
	region_free((void *)p->in);
	region_free(p->out);
}

Test(simt_async, bulk_copies_complete_a_barrier)
{
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		struct simt_bulk_params p;

		bulk_prepare(&p);
		expect_no_report("simt_case_bulk", &p, 1, BULK_CASE_THREADS, seed);
		for (unsigned int i = 0; i < BULK_CASE_ROUNDS * BULK_CASE_WORDS; i++) {
			bool zero = i / BULK_CASE_WORDS % 2 != 0 && i % BULK_CASE_WORDS >= BULK_CASE_WORDS / 2;

			cr_assert_eq(p.out[i], zero ? 0 : p.in[i], "word %u is %08x", i, p.out[i]);
		}
		bulk_drop(&p);
	}
}

Test(simt_async, wrong_bulk_copies_are_reported)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} cases[] = {
		{ BUG_NO_WAIT, "race: " },
		{ BUG_EARLY_REUSE, "race: " },
		{ BUG_NO_PROXY_FENCE, "a bulk copy writes" },
		{ BUG_NO_WARP_SYNC, "no barrier lies between" },
		{ BUG_WRONG_COUNT, "waits in a barrier in shared memory" },
		{ BUG_UNALIGNED, "not all are multiples of 16" },
	};
	struct simt_bulk_params p;

	bulk_prepare(&p);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.bug = cases[i].bug;
		expect_report(cases[i].words, "simt_case_bulk", &p, 1, BULK_CASE_THREADS);
	}
	bulk_drop(&p);
}
