/* SPDX-License-Identifier: Apache-2.0 */
/* interval_grid.h's operations for AVX2. */
#include "kernels/mod/interval_grid.h"
#include "kernels/mod/vec_avx2.h"

#include "kernels/mod/interval_grid_body.h"

const struct grid_ops grid_ops_avx2 = GRID_OPS;
