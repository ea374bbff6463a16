/* SPDX-License-Identifier: Apache-2.0 */
/**
 * criterion.h - the part of Criterion that unit tests use, for builds with ThreadSanitizer
 *
 * Criterion itself starts no test there: it maps memory at addresses that ThreadSanitizer keeps for itself.  Here each
 * test runs in a fork of the program, and fails if ThreadSanitizer reports something (cases.c).
 */
#ifndef TESTS_THREAD_SANITIZER_CRITERION_H
#define TESTS_THREAD_SANITIZER_CRITERION_H

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct case_options {
	void (*init)(void);
	void (*fini)(void);
	double timeout;
	bool disabled;
};

struct test_case {
	const char *suite;
	const char *name; /* NULL: the options of the suite */
	void (*run)(void);
	struct case_options options;
	struct test_case *next;
};

void case_add(struct test_case *test);
void case_fail(bool fatal, const char *file, int line, const char *what, const char *format, ...);
_Noreturn void case_skip(const char *format, ...);

#define TestSuite(suite_, ...)                                                                      \
	static struct test_case suite_##_suite_ = { .suite = #suite_, .options = { __VA_ARGS__ } }; \
	__attribute__((constructor)) static void suite_##_suite_add_(void)                          \
	{                                                                                           \
		case_add(&suite_##_suite_);                                                         \
	}                                                                                           \
	struct test_case

#define Test(suite_, name_, ...)                                                \
	static void suite_##_##name_##_run_(void);                              \
	static struct test_case suite_##_##name_##_case_ = {                    \
		#suite_, #name_, suite_##_##name_##_run_, { __VA_ARGS__ }, NULL \
	};                                                                      \
	__attribute__((constructor)) static void suite_##_##name_##_add_(void)  \
	{                                                                       \
		case_add(&suite_##_##name_##_case_);                            \
	}                                                                       \
	static void suite_##_##name_##_run_(void)

#define case_check(fatal, condition, what, ...)                                          \
	do {                                                                             \
		if (!(condition))                                                        \
			case_fail(fatal, __FILE__, __LINE__, what, ##__VA_ARGS__, NULL); \
	} while (0)
#define case_compare(fatal, a, operator, b, ...) \
	case_check(fatal, (a) operator(b), #a " " #operator" " #b, ##__VA_ARGS__)
#define case_strings(fatal, a, b, ...) case_check(fatal, strcmp(a, b) == 0, #a " is " #b, ##__VA_ARGS__)
#define case_arrays(fatal, a, b, size, ...) case_check(fatal, memcmp(a, b, size) == 0, #a " is " #b, ##__VA_ARGS__)
#define case_near(fatal, a, b, error, ...) \
	case_check(fatal, fabs((double)(a) - (double)(b)) <= (double)(error), #a " is near " #b, ##__VA_ARGS__)

#define cr_assert(condition, ...) case_check(true, condition, #condition, ##__VA_ARGS__)
#define cr_expect(condition, ...) case_check(false, condition, #condition, ##__VA_ARGS__)
#define cr_assert_not(condition, ...) case_check(true, !(condition), "not " #condition, ##__VA_ARGS__)
#define cr_expect_not(condition, ...) case_check(false, !(condition), "not " #condition, ##__VA_ARGS__)
#define cr_assert_fail(...) case_check(true, false, "must not be reached", ##__VA_ARGS__)
#define cr_assert_null(a, ...) case_compare(true, a, ==, NULL, ##__VA_ARGS__)
#define cr_expect_null(a, ...) case_compare(false, a, ==, NULL, ##__VA_ARGS__)
#define cr_assert_not_null(a, ...) case_compare(true, a, !=, NULL, ##__VA_ARGS__)
#define cr_expect_not_null(a, ...) case_compare(false, a, !=, NULL, ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...) case_compare(true, a, ==, b, ##__VA_ARGS__)
#define cr_expect_eq(a, b, ...) case_compare(false, a, ==, b, ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...) case_compare(true, a, !=, b, ##__VA_ARGS__)
#define cr_expect_neq(a, b, ...) case_compare(false, a, !=, b, ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...) case_compare(true, a, <, b, ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...) case_compare(true, a, <=, b, ##__VA_ARGS__)
#define cr_expect_leq(a, b, ...) case_compare(false, a, <=, b, ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...) case_compare(true, a, >, b, ##__VA_ARGS__)
#define cr_expect_gt(a, b, ...) case_compare(false, a, >, b, ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...) case_compare(true, a, >=, b, ##__VA_ARGS__)
#define cr_expect_geq(a, b, ...) case_compare(false, a, >=, b, ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) case_strings(true, a, b, ##__VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) case_strings(false, a, b, ##__VA_ARGS__)
#define cr_assert_str_empty(a, ...) case_strings(true, a, "", ##__VA_ARGS__)
#define cr_expect_str_empty(a, ...) case_strings(false, a, "", ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) case_arrays(true, a, b, size, ##__VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...) case_arrays(false, a, b, size, ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, error, ...) case_near(true, a, b, error, ##__VA_ARGS__)
#define cr_expect_float_eq(a, b, error, ...) case_near(false, a, b, error, ##__VA_ARGS__)
#define cr_skip(...) case_skip(__VA_ARGS__)
#define cr_skip_test(...) case_skip(__VA_ARGS__)

#endif
