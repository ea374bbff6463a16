/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of arrays, and the load of one element. */
#include "config.h"

#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/mod/ir.h"

static const struct dtype_info {
	const char *name;
	uint32_t size;
} dtypes[] = {
	[MOD_DTYPE_NONE] = { "?", 0 }, [MOD_F32] = { "f32", 4 }, [MOD_F16] = { "f16", 2 },
	[MOD_BF16] = { "bf16", 2 },    [MOD_I32] = { "i32", 4 }, [MOD_U8] = { "u8", 1 },
};

/* The value may come from a peer and be invalid. */
static const struct dtype_info *
dtype_info_of(enum mod_dtype dtype)
{
	bool is_valid = (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[dtype].size != 0;

	return &dtypes[is_valid ? dtype : MOD_DTYPE_NONE];
}

const char *
mod_dtype_name(enum mod_dtype dtype)
{
	return dtype_info_of(dtype)->name;
}

uint32_t
mod_dtype_size(enum mod_dtype dtype)
{
	return dtype_info_of(dtype)->size;
}

struct mod_value
mod_load_element(enum mod_dtype dtype, const uint8_t *element)
{
	struct mod_value value = { 0 };
	uint16_t half;

	switch (dtype) {
	case MOD_U8:
		value.i = *element;
		break;
	case MOD_I32:
		memcpy(&value.i, element, sizeof(value.i));
		break;
	case MOD_F32:
		memcpy(&value.f, element, sizeof(value.f));
		break;
	case MOD_F16:
		memcpy(&half, element, sizeof(half));
		value.f = convert_from_f16(half);
		break;
	case MOD_BF16:
		memcpy(&half, element, sizeof(half));
		value.f = convert_from_bf16(half);
		break;
	case MOD_DTYPE_NONE:
		break;
	}
	return value;
}
