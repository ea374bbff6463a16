/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_test.h - one Criterion test per instruction set; sets that this CPU does not support are reported as skipped
 */
#ifndef PAGED_TESTS_KERNEL_TEST_H
#define PAGED_TESTS_KERNEL_TEST_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/support/random.h"

#ifdef KERNEL_TEST_MODEL

/* For programs linked with isa_model.c. */
#define KERNEL_TEST(suite, name)                         \
	static void suite##_##name(enum kernel_isa isa); \
	Test(suite, name##_avx512bf16)                   \
	{                                                \
		suite##_##name(KERNEL_AVX512_BF16);      \
	}                                                \
	Test(suite, name##_amx)                          \
	{                                                \
		suite##_##name(KERNEL_AMX);              \
	}                                                \
	static void suite##_##name(enum kernel_isa isa)

#else

/** KERNEL_TEST(suite, name) { ... } - the body gets the instruction set in `isa` */
#define KERNEL_TEST(suite, name)                                     \
	static void suite##_##name(enum kernel_isa isa);             \
	Test(suite, name##_generic)                                  \
	{                                                            \
		kernel_test_run(KERNEL_GENERIC, suite##_##name);     \
	}                                                            \
	Test(suite, name##_avx2)                                     \
	{                                                            \
		kernel_test_run(KERNEL_AVX2, suite##_##name);        \
	}                                                            \
	Test(suite, name##_avx512)                                   \
	{                                                            \
		kernel_test_run(KERNEL_AVX512, suite##_##name);      \
	}                                                            \
	Test(suite, name##_avx512bf16)                               \
	{                                                            \
		kernel_test_run(KERNEL_AVX512_BF16, suite##_##name); \
	}                                                            \
	Test(suite, name##_amx)                                      \
	{                                                            \
		kernel_test_run(KERNEL_AMX, suite##_##name);         \
	}                                                            \
	static void suite##_##name(enum kernel_isa isa)

#endif

static inline void
kernel_test_run(enum kernel_isa isa, void (*test)(enum kernel_isa isa))
{
	if (!kernel_isa_supported(isa))
		cr_skip("%s: %s", kernel_isa_name(isa), kernel_isa_unsupported_reason(isa));
	test(isa);
}

static inline struct kernel_team *
kernel_test_team(uint32_t n_threads, enum kernel_isa isa)
{
	const struct kernel_team_params params = { .n_threads = n_threads, .isa = isa };
	struct kernel_team *team = NULL;
	struct paged_error error = { 0 };

	cr_assert_eq(kernel_team_create(&params, &team, &error), PAGED_OK, "%s", error.text);
	return team;
}

#endif
