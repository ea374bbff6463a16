/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void
bench_die(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "paged-bench: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

void
bench_must(enum paged_status status, const struct paged_error *error)
{
	if (status != PAGED_OK)
		bench_die("%s", error->text);
}

void
bench_client_must(struct paged_client *client, enum paged_status status)
{
	if (status != PAGED_OK)
		bench_die("%s: %s", paged_status_name(status), paged_client_error(client));
}

static uint64_t
base_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
bench_now_ns(void)
{
	return base_clock_ns(CLOCK_MONOTONIC);
}

static bool base_cpu_time;

void
bench_use_cpu_time(void)
{
	base_cpu_time = true;
}

bool
bench_uses_cpu_time(void)
{
	return base_cpu_time;
}

uint64_t
bench_timer_ns(void)
{
	return base_clock_ns(base_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

double
bench_since_us(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e3;
}

void *
bench_alloc(size_t n, size_t size)
{
	size_t bytes = ((n != 0 ? n : 1) * size + 63) / 64 * 64;
	void *p = aligned_alloc(64, bytes);

	if (p == NULL)
		bench_die("no memory for %zu elements of %zu bytes", n, size);
	return memset(p, 0, bytes);
}
