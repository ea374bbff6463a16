/* SPDX-License-Identifier: Apache-2.0 */
/* tile_model.h - bf16 tile operations with models of the instructions in plain C, for CPUs without them */
#ifndef PAGED_TESTS_TILE_MODEL_H
#define PAGED_TESTS_TILE_MODEL_H

#include "kernels/cpu/tile.h"

extern const struct kernel_tile_ops tile_ops_model;     /* vdpbf16ps */
extern const struct kernel_tile_ops tile_ops_model_amx; /* tdpbf16ps, and the loads and stores of AMX tiles */

#endif
