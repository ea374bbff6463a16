/* SPDX-License-Identifier: Apache-2.0 */
/**
 * catch_die.h - the demo's die() in a unit test: its sentence is kept, and the test goes on
 *
 * The definition here takes the place of the one in the demo's library.  What
 * the failed call had allocated is lost.
 */
#ifndef TESTS_CATCH_DIE_H
#define TESTS_CATCH_DIE_H

#include <criterion/criterion.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "examples/llama/support.h"

const char *die_label = "test";
int die_status = EXIT_FAILED;
static char die_text[512];
static jmp_buf *die_target; /* NULL: an error is not expected */

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

/** dies - whether a call ends in die(), with its sentence in die_text */
static inline bool
dies(void (*call)(void *argument), void *argument)
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
