/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/die.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const char *die_label = "paged-llama";
int die_status = EXIT_FAILED;

void
die(const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", die_label, text);
	/* Not exit(): other threads may still use what its handlers destroy. */
	_exit(die_status);
}
