/* SPDX-License-Identifier: Apache-2.0 */
/**
 * peak.h - the machine's best speed of multiplying, on registers only
 */
#ifndef PAGED_BENCH_PEAK_H
#define PAGED_BENCH_PEAK_H

#include "kernels/kernels.h"

/** peak_unit_name - the unit that multiplies matrices in an instruction set; best last */
const char *peak_unit_name(enum kernel_isa unit);

/** peak_gflops - operations a nanosecond (GFLOP/s) of all threads on registers only; a new sample of about 1 ms */
double peak_gflops(enum kernel_isa unit);

/** peak_best_unit - the unit with the highest peak on this machine; measured once */
enum kernel_isa peak_best_unit(void);

#endif
