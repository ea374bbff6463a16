/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of isa.c: AMX's kernels are those of the model, which any
 * machine runs, and beside them there is generic C alone.
 */
#include <string.h>

#include "tests/tile_model.h"

const char *
kernel_isa_name(enum kernel_isa isa)
{
	return isa == KERNEL_AMX ? "amx's model" : isa == KERNEL_GENERIC ? "generic" : "?";
}

const char *
kernel_isa_lacks(enum kernel_isa isa)
{
	return isa == KERNEL_AMX || isa == KERNEL_GENERIC ? NULL : "there is a model of AMX here";
}

bool
kernel_isa_supported(enum kernel_isa isa)
{
	return kernel_isa_lacks(isa) == NULL;
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
	return isa == KERNEL_AMX ? &tile_ops_model_amx : &kernel_tile_ops_generic;
}
