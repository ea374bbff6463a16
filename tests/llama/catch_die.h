/* SPDX-License-Identifier: Apache-2.0 */
/**
 * catch_die.h - replaces the demo's die() in a unit test: keeps the message and returns to the test
 *
 * The definition here overrides the one in the demo's library.  Memory that
 * the failed call had allocated is leaked.
 */
#ifndef TESTS_CATCH_DIE_H
#define TESTS_CATCH_DIE_H

#include <criterion/criterion.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "examples/llama/die.h"

const char *die_label = "test";
int die_status = EXIT_FAILED;
static char die_text[512];
static jmp_buf *die_target; /* NULL: no error is expected */

void
die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(die_text, sizeof(die_text), format, arguments);
	va_end(arguments);
	cr_assert(die_target != NULL, "%s", die_text);
	longjmp(*die_target, 1);
}

/** dies - whether a call ends in die(); its message is then in die_text */
static inline bool
call_dies(void (*call)(void *argument), void *argument)
{
	jmp_buf target;
	volatile bool died = true;

	die_text[0] = '\0';
	die_target = &target;
	if (setjmp(target) == 0) {
		call(argument);
		died = false;
	}
	die_target = NULL;
	return died;
}

#endif
