/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces isa.c. The bf16 instruction sets run as models in plain C, on any
 * machine; the only other instruction set is generic C.
 */
#include <string.h>

#include "tests/kernels/cpu/tile_model.h"

static const struct {
	const char *name;
	const struct kernel_tile_ops *ops;
} models[KERNEL_N_ISAS] = {
	[KERNEL_GENERIC] = { "generic", &kernel_tile_ops_generic },
	[KERNEL_AVX512_BF16] = { "avx512bf16's model", &tile_ops_model },
	[KERNEL_AMX] = { "amx's model", &tile_ops_model_amx },
};

const char *
kernel_isa_name(enum kernel_isa isa)
{
	return isa < KERNEL_N_ISAS && models[isa].name != NULL ? models[isa].name : "?";
}

const char *
kernel_isa_unsupported_reason(enum kernel_isa isa)
{
	return models[isa].ops != NULL ? NULL : "there is no model of it";
}

bool
kernel_isa_supported(enum kernel_isa isa)
{
	return kernel_isa_unsupported_reason(isa) == NULL;
}

enum kernel_isa
kernel_isa_best(void)
{
	return KERNEL_AMX;
}

enum kernel_isa
kernel_isa_parse(const char *name)
{
	enum kernel_isa isa = KERNEL_GENERIC;

	while (isa < KERNEL_N_ISAS && strcmp(name, kernel_isa_name(isa)) != 0)
		isa++;
	return isa;
}

const struct kernel_tile_ops *
kernel_tile_ops(enum kernel_isa isa)
{
	return models[isa].ops;
}
