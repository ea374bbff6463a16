/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden/attention through the public API, on a GPU or the fake CUDA driver.
 *
 * The fake driver runs threads one by one, so with it each case runs only one
 * of its forms, in turn, with the last query rows of each sequence, and the
 * largest cases are omitted.
 */
#include <math.h>
#include <stdio.h>

#include "tests/torch/pa_memory.h"
#include "tests/fake-cuda/load.h"
#include "tests/torch/torch_golden.h"
#include "tests/torch/torch_fixture.h"

#define MAX_PRODUCTS 8e6
#define MAX_QUERIES 1u

/* The cases are dealt to several tests, which run in parallel. */
#define PARTS 4u

static void
attention(uint32_t part)
{
	bool on_fake_driver = fake_cuda_wanted();
	unsigned int n = 0, n_run = 0;

	for (uint32_t i = part; i < TORCH_GOLDEN_CASES; i += PARTS, n++)
		n_run += on_fake_driver ? torch_golden_run(i, 1u << i / PARTS % 3, MAX_QUERIES, MAX_PRODUCTS)
					: torch_golden_run(i, TORCH_BY_MODS | TORCH_BY_BLOCKS | TORCH_BY_PAGES,
							   UINT32_MAX, INFINITY);
	printf("# %u of %u golden cases ran%s\n", n_run, n, n_run < n ? "; the others are too large for the host" : "");
	fflush(stdout);
	cr_assert_geq(n_run, n * 3 / 4);
}

Test(torch_golden_cuda, attention_0)
{
	attention(0);
}

Test(torch_golden_cuda, attention_1)
{
	attention(1);
}

Test(torch_golden_cuda, attention_2)
{
	attention(2);
}

Test(torch_golden_cuda, attention_3)
{
	attention(3);
}
