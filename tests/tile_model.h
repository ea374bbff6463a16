/* SPDX-License-Identifier: Apache-2.0 */
/* tile_model.h - products of bf16 pairs over models of the instructions in plain C, for machines without them */
#ifndef PAGED_TESTS_TILE_MODEL_H
#define PAGED_TESTS_TILE_MODEL_H

#include "kernels/cpu/tile.h"

extern const struct kernel_tile_ops tile_ops_model;     /* vdpbf16ps */
extern const struct kernel_tile_ops tile_ops_model_amx; /* tdpbf16ps, and how tiles are loaded and stored */

#endif
