/* SPDX-License-Identifier: Apache-2.0 */
/**
 * prefill_fixture.h - a batch of prefill and decode, and which kernels of attention ran
 *
 * For it_* programs on the fake CUDA driver, or on a GPU, where the kernels that
 * run are not known.  Any failure in these functions ends the test.
 */
#ifndef TESTS_PREFILL_FIXTURE_H
#define TESTS_PREFILL_FIXTURE_H

#include "tests/system/batch_fixture.h"

/** How often kernels ran. */
struct prefill_runs {
	unsigned int decode, prefill;
};

/** Rows for both kernels, of 4 q_rows for each query. */
extern const struct batch_fixture_params prefill_mixed;

/** prefill_begin - load the fake driver and NVRTC, which record calls and kernels; there is no code cache */
void prefill_begin(void);
void prefill_end(void);

/** prefill_source - the source of the prefill kernel of f16 and bf16: attention_wgmma if PAGED_WGMMA is 1 */
const char *prefill_source(void);

/**
 * prefill_mla_source - the source of the kernel of pools with V in K
 *
 * attention_mla_wgmma if PAGED_WGMMA is 1; attention_mla_cluster if PAGED_CLUSTERS is 1 too, for 128 heads without a
 * block mask.
 */
const char *prefill_mla_source(const struct batch_fixture_params *params, bool with_blocks);

/** prefill_decode_source - the source of the decode kernel of these params: attention_bulk if PAGED_BULK is 1 */
const char *prefill_decode_source(const struct batch_fixture_params *params);

/** prefill_expect_runs - which kernels of attention ran since the last call, by the beginnings of their names */
void prefill_expect_runs(const struct prefill_runs *wanted, const char *decode, const char *prefill);

/** prefill_expect_switch - the variable is read when kernels are loaded, and what is neither 0 nor 1 is refused */
void prefill_expect_switch(const struct batch_fixture_params *params, const char *variable);

/** prefill_fail_after - make the fake driver's next call of this function after `skip` others fail */
void prefill_fail_after(const char *function, unsigned int skip, int result);

#endif
