/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of arrays, and the load of one element. */
#include "config.h"

#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/mod/ir.h"

static const struct dtype {
	const char *name;
	uint32_t size;
} dtypes[] = {
	[MOD_DTYPE_NONE] = { "?", 0 }, [MOD_F32] = { "f32", 4 }, [MOD_F16] = { "f16", 2 },
	[MOD_BF16] = { "bf16", 2 },    [MOD_I32] = { "i32", 4 }, [MOD_U8] = { "u8", 1 },
};

/* The value may come from a peer and be invalid. */
static const struct dtype *
dtype_of(enum mod_dtype dtype)
{
	bool is_one = (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[dtype].size != 0;

	return &dtypes[is_one ? dtype : MOD_DTYPE_NONE];
}

const char *
mod_dtype_name(enum mod_dtype dtype)
{
	return dtype_of(dtype)->name;
}

uint32_t
mod_dtype_size(enum mod_dtype dtype)
{
	return dtype_of(dtype)->size;
}

struct mod_value
mod_load(enum mod_dtype dtype, const uint8_t *at)
{
	struct mod_value value = { 0 };
	uint16_t half;

	switch (dtype) {
	case MOD_U8:
		value.i = *at;
		break;
	case MOD_I32:
		memcpy(&value.i, at, sizeof(value.i));
		break;
	case MOD_F32:
		memcpy(&value.f, at, sizeof(value.f));
		break;
	case MOD_F16:
		memcpy(&half, at, sizeof(half));
		value.f = convert_from_f16(half);
		break;
	case MOD_BF16:
		memcpy(&half, at, sizeof(half));
		value.f = convert_from_bf16(half);
		break;
	case MOD_DTYPE_NONE:
		break;
	}
	return value;
}
