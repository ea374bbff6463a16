/* SPDX-License-Identifier: Apache-2.0 */
/**
 * torch_golden.h - runs the cases of golden/attention through the public API
 *
 * Page tables are made by pa_reserve(), caches filled by pa_assign().  Attention
 * runs with mods alone, with a logical block mask and with a physical one.
 * unit_attention_golden.c derives a tolerance for each number; here it is
 *
 *     2^-24 (256 + 24 |largest score|)
 *
 * for LSE and largest score, and four times that for outputs.  This is
 * torch_fixture.h's formula with larger factors, because the cases' scores reach
 * hundreds and their dot products have larger errors.
 */
#ifndef TESTS_TORCH_GOLDEN_H
#define TESTS_TORCH_GOLDEN_H

#include "tests/support/golden_attention.h"

#define TORCH_GOLDEN_CASES 111u

enum { TORCH_BY_MODS = 1, TORCH_BY_BLOCKS = 2, TORCH_BY_PAGES = 4 };

/**
 * torch_golden_run - run one case, given by its number
 *
 * @param[in] forms         TORCH_BY_* flags.  The first form is compared with the golden results; the others must be
 *                          bit-identical to it
 * @param[in] max_queries   use only the last max_queries query rows of each sequence; UINT32_MAX: all
 * @param[in] max_products  the function returns false for a case with more products; INFINITY: no limit
 */
bool torch_golden_run(uint32_t index, unsigned int forms, uint32_t max_queries, double max_products);

#endif
