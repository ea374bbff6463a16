/* SPDX-License-Identifier: Apache-2.0 */
/* interval_grid.h's operations for any CPU. */
#include "kernels/mod/interval_grid.h"
#include "kernels/mod/vec_generic.h"

#include "kernels/mod/interval_grid_body.h"

const struct grid_ops grid_ops_generic = GRID_OPS;
