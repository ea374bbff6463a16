/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "bench/memory_limits.h"

#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/pinned_threads.h"
#include "bench/stream_kernels.h"
#include "kernels/kernels.h"

#define CHUNK_BYTES 4096u
/* Chunks in a thread's unit of work; a multiple of every number of streams. */
#define UNIT_CHUNKS 48u
/* Largest prefetch distance, in chunks. */
#define MAX_PREFETCH_DISTANCE 2u
#define N_WAYS (LIMIT_MAX_STREAMS * (MAX_PREFETCH_DISTANCE + 1))
#define TUNE_TRIES 4
#define COPY_UNIT_BYTES (128u << 10)
/* With `interleaved`: bytes that are copied of a chunk at a time, and number of interleaved chunks. */
#define INTERLEAVE_BYTES 256u
#define INTERLEAVE_CHUNKS 16u

static const struct limit_stream_ops *
limit_stream_select(void)
{
#ifdef PAGED_X86_64
	if (kernel_isa_supported(KERNEL_AVX512))
		return &limit_stream_avx512;
	if (kernel_isa_supported(KERNEL_AVX2))
		return &limit_stream_avx2;
#endif
	return &limit_stream_generic;
}

const char *
limit_isa_name(void)
{
	return limit_stream_select()->name;
}

/* Read */

void
limit_read_open(struct limit_read *read, const uint8_t *const *spans, size_t n_spans, size_t span_bytes)
{
	size_t bytes = CHUNK_BYTES, each, n;

	while (span_bytes % bytes != 0)
		bytes /= 2;
	if (bytes < 64)
		bench_die("spans of %zu bytes are no cache lines", span_bytes);
	each = span_bytes / bytes;
	n = n_spans * each;
	*read = (struct limit_read){ .n_chunks = n, .chunk_bytes = bytes, .n_streams = 1 };
	read->chunks = bench_alloc(n + MAX_PREFETCH_DISTANCE, sizeof(*read->chunks));
	for (size_t i = 0; i < n; i++)
		read->chunks[i] = spans[i / each] + i % each * bytes;
	for (size_t i = n; i < n + MAX_PREFETCH_DISTANCE; i++)
		read->chunks[i] = read->chunks[n - 1];
}

void
limit_read_close(struct limit_read *read)
{
	free(read->chunks);
	read->chunks = NULL;
}

static void
limit_read_units(void *context)
{
	const struct limit_read *read = context;
	const struct limit_stream_ops *ops = limit_stream_select();
	size_t first;

	while ((first = pinned_threads_next_unit() * UNIT_CHUNKS) < read->n_chunks) {
		size_t n = read->n_chunks - first;
		unsigned int streams = read->n_streams;

		if (n >= UNIT_CHUNKS)
			n = UNIT_CHUNKS;
		else
			streams = 1;
		n /= streams;
		ops->read[streams - 1](read->chunks + first, n, n, read->chunk_bytes, read->prefetch_distance);
	}
}

double
limit_read_us(const struct limit_read *read)
{
	return (double)pinned_threads_run(limit_read_units, (void *)read) / 1e3;
}

void
limit_read_tune(struct limit_read *read)
{
	struct limit_read attempt = *read;
	double best_us = 0;

	/* Interleave the candidates, because a burst of load could spoil consecutive tries of one. */
	for (unsigned int i = 0; i < TUNE_TRIES * N_WAYS; i++) {
		double us;

		attempt.n_streams = 1 + i % LIMIT_MAX_STREAMS;
		attempt.prefetch_distance = i / LIMIT_MAX_STREAMS % (MAX_PREFETCH_DISTANCE + 1);
		us = limit_read_us(&attempt);
		if (best_us == 0 || us < best_us) {
			best_us = us;
			*read = attempt;
		}
	}
}

/* Copy */

static void
limit_copy_part(const struct limit_copy *copy, size_t i, size_t begin, size_t bytes)
{
	const struct limit_copy_chunk *chunk = &copy->chunks[i];

	if (copy->non_temporal)
		limit_stream_select()->copy_non_temporal(chunk->to + begin, chunk->from + begin, bytes);
	else
		memcpy(chunk->to + begin, chunk->from + begin, bytes);
}

static void
limit_copy_interleaved(const struct limit_copy *copy, size_t first, size_t end)
{
	bool any = true;

	for (size_t begin = 0; any; begin += INTERLEAVE_BYTES) {
		any = false;
		for (size_t i = first; i < end; i++) {
			size_t bytes = copy->chunks[i].bytes;

			if (begin >= bytes)
				continue;
			limit_copy_part(copy, i, begin,
					bytes - begin < INTERLEAVE_BYTES ? bytes - begin : INTERLEAVE_BYTES);
			any = true;
		}
	}
}

static void
limit_copy_chunks(const struct limit_copy *copy, size_t first, size_t end)
{
	if (copy->interleaved) {
		for (size_t next; first < end; first = next) {
			next = end - first < INTERLEAVE_CHUNKS ? end : first + INTERLEAVE_CHUNKS;
			limit_copy_interleaved(copy, first, next);
		}
		return;
	}
	for (size_t i = first; i < end; i++)
		limit_copy_part(copy, i, 0, copy->chunks[i].bytes);
}

static void
limit_copy_units(void *context)
{
	const struct limit_copy *copy = context;
	size_t each = COPY_UNIT_BYTES / copy->chunks[0].bytes + 1, first;

	while ((first = pinned_threads_next_unit() * each) < copy->n_chunks)
		limit_copy_chunks(copy, first, first + each < copy->n_chunks ? first + each : copy->n_chunks);
}

double
limit_copy_us(const struct limit_copy *copy)
{
	uint64_t start;

	if (!copy->single_thread)
		return (double)pinned_threads_run(limit_copy_units, (void *)copy) / 1e3;
	start = bench_timer_ns();
	limit_copy_chunks(copy, 0, copy->n_chunks);
	return (double)(bench_timer_ns() - start) / 1e3;
}

void
limit_copy_tune(struct limit_copy *copy)
{
	struct limit_copy attempt = *copy;
	bool aligned = true; /* as non-temporal stores require */
	double best_us = 0;

	for (size_t i = 0; i < copy->n_chunks; i++)
		aligned = aligned && (uintptr_t)copy->chunks[i].to % 64 == 0;

	for (int way = 0; way < 8 * TUNE_TRIES; way++) {
		double us;

		attempt.non_temporal = aligned && (way & 1);
		attempt.single_thread = way & 2;
		attempt.interleaved = way & 4;
		us = limit_copy_us(&attempt);
		if (best_us == 0 || us < best_us) {
			best_us = us;
			*copy = attempt;
		}
	}
}
