/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/tile_avx512.h"

#include "kernels/cpu/tile_body.h"
#include "kernels/cpu/tile_packed.h"

const struct kernel_tile_ops kernel_tile_ops_avx512 = TILE_OPS;
