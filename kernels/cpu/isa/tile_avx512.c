/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/isa/tile_avx512.h"

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

const struct kernel_tile_ops kernel_tile_ops_avx512 = TILE_OPS;
