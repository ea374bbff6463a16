/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "kernels/cpu/tile.h"

static const char *const isa_names[KERNEL_N_ISAS] = {
	[KERNEL_GENERIC] = "generic",
	[KERNEL_AVX2] = "avx2",
	[KERNEL_AVX512] = "avx512",
	[KERNEL_AVX512_BF16] = "avx512bf16",
};

const char *
kernel_isa_name(enum kernel_isa isa)
{
	return isa < KERNEL_N_ISAS ? isa_names[isa] : "?";
}

bool
kernel_isa_supported(enum kernel_isa isa)
{
	switch (isa) {
	case KERNEL_GENERIC:
		return true;
#ifdef PAGED_X86_64
	case KERNEL_AVX2:
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       __builtin_cpu_supports("f16c");
	case KERNEL_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
	case KERNEL_AVX2:
	case KERNEL_AVX512:
#endif
#ifdef PAGED_AVX512_BF16
	case KERNEL_AVX512_BF16:
		return kernel_isa_supported(KERNEL_AVX512) && __builtin_cpu_supports("avx512vbmi") &&
		       __builtin_cpu_supports("avx512bf16");
#else
	case KERNEL_AVX512_BF16:
#endif
	case KERNEL_N_ISAS:
		break;
	}
	return false;
}

enum kernel_isa
kernel_isa_best(void)
{
	enum kernel_isa isa = KERNEL_N_ISAS - 1;

	while (!kernel_isa_supported(isa))
		isa--;
	return isa;
}

enum kernel_isa
kernel_isa_parse(const char *name)
{
	enum kernel_isa isa = KERNEL_GENERIC;

	while (isa < KERNEL_N_ISAS && strcmp(name, isa_names[isa]) != 0)
		isa++;
	return isa;
}

const struct kernel_tile_ops *
kernel_tile_ops(enum kernel_isa isa)
{
#ifdef PAGED_X86_64
	if (isa == KERNEL_AVX2)
		return &kernel_tile_ops_avx2;
	if (isa == KERNEL_AVX512)
		return &kernel_tile_ops_avx512;
#else
	(void)isa;
#endif
#ifdef PAGED_AVX512_BF16
	if (isa == KERNEL_AVX512_BF16)
		return &kernel_tile_ops_avx512bf16;
#endif
	return &kernel_tile_ops_generic;
}
