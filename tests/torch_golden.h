/* SPDX-License-Identifier: Apache-2.0 */
/**
 * torch_golden.h - golden/attention through the public API
 *
 * Tables by reserve, caches by assign, attention by mods alone, by logical
 * blocks and by pages.  unit_attention_golden.c derives a tolerance for each
 * number; here it is
 *
 *     2^-24 (256 + 24 |largest score|)
 *
 * for LSE and largest score, four times that for outputs: torch_scene.h's,
 * with more for the dot products of scores of hundreds.
 */
#ifndef TESTS_TORCH_GOLDEN_H
#define TESTS_TORCH_GOLDEN_H

#include "tests/golden_case.h"

#define TORCH_GOLDEN_CASES 111u

enum { TORCH_BY_MODS = 1, TORCH_BY_BLOCKS = 2, TORCH_BY_PAGES = 4 };

/**
 * torch_golden_run - one case, by its number
 *
 * @param[in] forms          which; the first against PyTorch, the others the same bits
 * @param[in] most_queries   of each sequence its last so many query rows; UINT32_MAX: all
 * @param[in] most_products  false is returned for a case of more; INFINITY: none
 */
bool torch_golden_run(uint32_t index, unsigned int forms, uint32_t most_queries, double most_products);

#endif
