/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "bench/memory_limits.h"

#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/pinned_threads.h"
#include "bench/stream_kernels.h"
#include "kernels/kernels.h"

#define PIECE_BYTES 4096u
/* Pieces in a thread's unit of work; a multiple of every number of streams. */
#define UNIT_PIECES 48u
/* Largest prefetch distance, in pieces. */
#define MOST_AHEAD 2u
#define N_WAYS (LIMIT_MAX_STREAMS * (MOST_AHEAD + 1))
#define TUNE_TRIES 4
#define COPY_UNIT_BYTES (128u << 10)
/* With in_turn: bytes that are copied of a piece at a time, and number of interleaved pieces. */
#define TURN_BYTES 256u
#define TURN_PIECES 16u

static const struct limit_stream_ops *
stream_ops(void)
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
	return stream_ops()->name;
}

/* Read */

void
limit_read_open(struct limit_read *read, const uint8_t *const *spans, size_t n_spans, size_t span_bytes)
{
	size_t bytes = PIECE_BYTES, each, n;

	while (span_bytes % bytes != 0)
		bytes /= 2;
	if (bytes < 64)
		bench_die("spans of %zu bytes are no cache lines", span_bytes);
	each = span_bytes / bytes;
	n = n_spans * each;
	*read = (struct limit_read){ .n_pieces = n, .piece_bytes = bytes, .n_streams = 1 };
	read->pieces = bench_alloc(n + MOST_AHEAD, sizeof(*read->pieces));
	for (size_t i = 0; i < n; i++)
		read->pieces[i] = spans[i / each] + i % each * bytes;
	for (size_t i = n; i < n + MOST_AHEAD; i++)
		read->pieces[i] = read->pieces[n - 1];
}

void
limit_read_close(struct limit_read *read)
{
	free(read->pieces);
	read->pieces = NULL;
}

static void
read_units(void *context)
{
	const struct limit_read *read = context;
	const struct limit_stream_ops *ops = stream_ops();
	size_t first;

	while ((first = threads_take() * UNIT_PIECES) < read->n_pieces) {
		size_t n = read->n_pieces - first;
		unsigned int streams = read->n_streams;

		if (n >= UNIT_PIECES)
			n = UNIT_PIECES;
		else
			streams = 1;
		n /= streams;
		ops->read[streams - 1](read->pieces + first, n, n, read->piece_bytes, read->ahead);
	}
}

double
limit_read_us(const struct limit_read *read)
{
	return (double)threads_run(read_units, (void *)read) / 1e3;
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
		attempt.ahead = i / LIMIT_MAX_STREAMS % (MOST_AHEAD + 1);
		us = limit_read_us(&attempt);
		if (best_us == 0 || us < best_us) {
			best_us = us;
			*read = attempt;
		}
	}
}

/* Copy */

static void
copy_part(const struct limit_copy *copy, size_t i, size_t begin, size_t bytes)
{
	const struct limit_copy_piece *piece = &copy->pieces[i];

	if (copy->past_cache)
		stream_ops()->copy_past_cache(piece->to + begin, piece->from + begin, bytes);
	else
		memcpy(piece->to + begin, piece->from + begin, bytes);
}

static void
copy_in_turn(const struct limit_copy *copy, size_t first, size_t end)
{
	bool any = true;

	for (size_t begin = 0; any; begin += TURN_BYTES) {
		any = false;
		for (size_t i = first; i < end; i++) {
			size_t bytes = copy->pieces[i].bytes;

			if (begin >= bytes)
				continue;
			copy_part(copy, i, begin, bytes - begin < TURN_BYTES ? bytes - begin : TURN_BYTES);
			any = true;
		}
	}
}

static void
copy_pieces(const struct limit_copy *copy, size_t first, size_t end)
{
	if (copy->in_turn) {
		for (size_t next; first < end; first = next) {
			next = end - first < TURN_PIECES ? end : first + TURN_PIECES;
			copy_in_turn(copy, first, next);
		}
		return;
	}
	for (size_t i = first; i < end; i++)
		copy_part(copy, i, 0, copy->pieces[i].bytes);
}

static void
copy_units(void *context)
{
	const struct limit_copy *copy = context;
	size_t each = COPY_UNIT_BYTES / copy->pieces[0].bytes + 1, first;

	while ((first = threads_take() * each) < copy->n_pieces)
		copy_pieces(copy, first, first + each < copy->n_pieces ? first + each : copy->n_pieces);
}

double
limit_copy_us(const struct limit_copy *copy)
{
	uint64_t start;

	if (!copy->alone)
		return (double)threads_run(copy_units, (void *)copy) / 1e3;
	start = bench_now_ns();
	copy_pieces(copy, 0, copy->n_pieces);
	return (double)(bench_now_ns() - start) / 1e3;
}

void
limit_copy_tune(struct limit_copy *copy)
{
	struct limit_copy attempt = *copy;
	bool aligned = true; /* as non-temporal stores require */
	double best_us = 0;

	for (size_t i = 0; i < copy->n_pieces; i++)
		aligned = aligned && (uintptr_t)copy->pieces[i].to % 64 == 0;

	for (int way = 0; way < 8 * TUNE_TRIES; way++) {
		double us;

		attempt.past_cache = aligned && (way & 1);
		attempt.alone = way & 2;
		attempt.in_turn = way & 4;
		us = limit_copy_us(&attempt);
		if (best_us == 0 || us < best_us) {
			best_us = us;
			*copy = attempt;
		}
	}
}
