/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tile_model.h"

#include "kernels/cpu/tile_generic.h"

#define TILE_PAIRS

/* vdpbf16ps, which takes subnormal numbers as 0 besides. */
static inline vec
vec_dot(vec a, vec b, vec c)
{
	bits x = (bits)a, y = (bits)b;

	for (unsigned int i = 0; i < LANES; i++) {
		c[i] += convert_from_bf16((uint16_t)(x[i] >> 16)) * convert_from_bf16((uint16_t)(y[i] >> 16));
		c[i] += convert_from_bf16((uint16_t)x[i]) * convert_from_bf16((uint16_t)y[i]);
	}
	return c;
}

static inline vec
vec_join(vec low, vec high)
{
	return (vec)((bits)low >> 16 | (bits)high);
}

/* vcvtneps2bf16 */
static inline void
vec_round_bf16(uint8_t *at, vec v)
{
	vec_store_bf16(at, v);
}

#include "kernels/cpu/tile_body.h"
#include "kernels/cpu/tile_packed.h"

const struct kernel_tile_ops tile_ops_model = TILE_OPS;
