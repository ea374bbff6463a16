/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that the tests of kernels' source on the host share. */
#ifndef TESTS_FAKE_CUDA_SIMT_FIXTURE_H
#define TESTS_FAKE_CUDA_SIMT_FIXTURE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

#define N_SEEDS 6
#define SHARED_SIZE (48u << 10)

static char report[512];

/* Memory that kernels may touch, up to its last byte. */
static inline void *
region(size_t size, bool writable, const char *name)
{
	void *at = aligned_alloc(64, (size + 63) / 64 * 64);

	cr_assert_not_null(at);
	memset(at, 0, size);
	cr_assert(simt_region_add(at, size, writable, name));
	return at;
}

static inline void
region_free(void *at)
{
	simt_region_remove(at);
	free(at);
}

static inline bool
simt_run_kernel(const char *name, const void *params, unsigned int n_blocks, unsigned int n_threads, uint64_t seed)
{
	const struct simt_launch launch = {
		.kernel = simt_find(name),
		.params = params,
		.grid = { n_blocks, 1 },
		.n_threads = n_threads,
		.shared_size = SHARED_SIZE,
		.seed = seed,
	};

	cr_assert_not_null(launch.kernel, "no kernel %s", name);
	simt_cases_link();
	report[0] = '\0';
	return simt_run(&launch, report, sizeof(report));
}

static inline void
expect_no_report(const char *name, const void *params, unsigned int n_blocks, unsigned int n_threads, uint64_t seed)
{
	cr_assert(simt_run_kernel(name, params, n_blocks, n_threads, seed), "seed %u: %s", (unsigned int)seed, report);
}

/* A seed exists for which the simulator reports this text. */
static inline void
expect_report(const char *words, const char *name, const void *params, unsigned int n_blocks, unsigned int n_threads)
{
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		if (simt_run_kernel(name, params, n_blocks, n_threads, seed))
			continue;
		cr_log_info("%s", report);
		cr_assert(strstr(report, words) != NULL, "\"%s\" expected: %s", words, report);
		return;
	}
	cr_assert_fail("nothing found; expected: %s", words);
}

static inline float
element(uint16_t bits, bool f16)
{
	return f16 ? convert_from_f16(bits) : convert_from_bf16(bits);
}

#endif
