/* SPDX-License-Identifier: Apache-2.0 */
/* golden/attention through the public API, on every CPU path. */
#include <math.h>

#include "tests/torch/torch_golden.h"
#include "tests/torch/torch_fixture.h"

static void
attention(enum kernel_isa isa)
{
	if (!torch_isa(isa))
		cr_skip("this CPU or build has no %s", kernel_isa_name(isa));
	for (uint32_t i = 0; i < TORCH_GOLDEN_CASES; i++)
		torch_golden_run(i, TORCH_BY_MODS | TORCH_BY_BLOCKS | TORCH_BY_PAGES, UINT32_MAX, INFINITY);
}

Test(torch_golden, attention_generic)
{
	attention(KERNEL_GENERIC);
}

Test(torch_golden, attention_avx2)
{
	attention(KERNEL_AVX2);
}

Test(torch_golden, attention_avx512)
{
	attention(KERNEL_AVX512);
}

Test(torch_golden, attention_avx512bf16)
{
	attention(KERNEL_AVX512_BF16);
}

Test(torch_golden, attention_amx)
{
	attention(KERNEL_AMX);
}
