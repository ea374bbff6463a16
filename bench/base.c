/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/suite.h"

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

uint64_t
bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

uint32_t
bench_random(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % below);
}

uint32_t *
bench_permutation(uint32_t n)
{
	uint32_t *order = bench_alloc(n, sizeof(*order));
	uint64_t state = 1;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = bench_random(&state, i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

double
bench_ping_us(const void *client_p)
{
	struct paged_client *client = *(struct paged_client *const *)client_p;
	uint64_t start = bench_now_ns();

	for (int i = 0; i < BENCH_TRIPS; i++)
		bench_client_must(client, paged_client_ping(client));
	return bench_since_us(start) / BENCH_TRIPS;
}
