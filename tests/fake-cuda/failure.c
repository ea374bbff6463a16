/* SPDX-License-Identifier: Apache-2.0 */
/* The first error of a launch, which ends it: one sentence, with the thread and its source line. */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fibre.h"
#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

static char *failure;
static size_t failure_size;
static bool failed;

void
failure_begin(char *message, size_t size)
{
	failure = message;
	failure_size = size;
	failed = false;
}

bool
failure_happened(void)
{
	return failed;
}

void
failure_write(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(failure, failure_size, format, arguments);
	va_end(arguments);
	failed = true;
}

/* Write what happened to the current thread. */
static void
failure_write_thread(const char *place, const char *format, va_list arguments)
{
	int n = snprintf(failure, failure_size, "kernel %s, block (%u, %u), thread %u: ", block.launch->kernel->name,
			 simt_block(), block.y, simt_thread());

	if (n >= 0 && (size_t)n < failure_size)
		n += vsnprintf(failure + n, failure_size - (size_t)n, format, arguments);
	if (place[0] != '\0' && n >= 0 && (size_t)n < failure_size)
		snprintf(failure + n, failure_size - (size_t)n, " (%s)", place);
	failed = true;
}

void
block_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	failure_write_thread("", format, arguments);
	va_end(arguments);
	fibre_leave(block.thread);
	abort();
}

/* "pages.cu:120" where addr2line is at hand, else the object and offset that it needs. */
static void
place_of(const void *code, char *place, size_t size)
{
	char command[PATH_MAX + 64], object[PATH_MAX], *end;
	Dl_info info;
	FILE *pipe;
	size_t offset;

	place[0] = '\0';
	if (dladdr(code, &info) == 0)
		return;
	offset = (size_t)((const char *)code - 1 - (const char *)info.dli_fbase);
	snprintf(place, size, "%s + %#zx", info.dli_fname, offset);
	/* The program itself goes by whatever it was started as. */
	if (realpath(info.dli_fname, object) == NULL && realpath("/proc/self/exe", object) == NULL)
		return;
	snprintf(command, sizeof(command), "addr2line -s -e '%s' %#zx 2>/dev/null", object, offset);
	pipe = popen(command, "re");
	if (pipe == NULL)
		return;
	if (fgets(command, sizeof(command), pipe) != NULL && strncmp(command, "??", 2) != 0) {
		end = strpbrk(command, "\n ");
		if (end != NULL)
			*end = '\0';
		snprintf(place, size, "%.200s", command);
	}
	pclose(pipe);
}

void
block_fail_at(const void *code, const char *format, ...)
{
	va_list arguments;
	char place[256];

	place_of(code, place, sizeof(place));
	va_start(arguments, format);
	failure_write_thread(place, format, arguments);
	va_end(arguments);
	fibre_leave(block.thread);
	abort();
}
