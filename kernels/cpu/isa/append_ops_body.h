/* SPDX-License-Identifier: Apache-2.0 */
/* append_ops_body.h - part of tile_body.h: the functions of append_ops.h in the compiler's vectors */

#define VECTOR (LANES * sizeof(float))

typedef int32_t vec_ints __attribute__((vector_size(VECTOR)));

static inline void
copy_block(uint8_t *to, const uint8_t *from, size_t size)
{
	size_t at = 0;

	for (; at + VECTOR <= size; at += VECTOR) {
		vec_ints bytes;

		memcpy(&bytes, from + at, sizeof(bytes));
		memcpy(to + at, &bytes, sizeof(bytes));
	}
	if (at < size)
		memcpy(to + at, from + at, size - at);
}

static void
tile_copy(const struct strided_copy *copy)
{
	for (uint32_t i = 0; i < copy->n; i++)
		copy_block(copy->to + i * copy->to_stride, copy->from + i * copy->from_stride, copy->size);
}

static void
tile_copy_stream(const struct strided_copy *copy)
{
	for (uint32_t i = 0; i < copy->n; i++) {
		uint8_t *to = copy->to + i * copy->to_stride;
		const uint8_t *from = copy->from + i * copy->from_stride;

		for (size_t at = 0; at < copy->size; at += VECTOR) {
			vec_ints bytes;

			memcpy(&bytes, from + at, sizeof(bytes));
			VEC_STREAM(to + at, bytes);
		}
	}
}

static inline void
rotate_pair(float *a, float *b, float cosine, float sine)
{
	float first = *a, second = *b;

	*a = first * cosine - second * sine;
	*b = second * cosine + first * sine;
}

static void
tile_rotary_halves(float *elements, const float *angles, uint32_t n)
{
	uint32_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		vec a = vec_load(elements + i), b = vec_load(elements + n + i);
		vec cosine = vec_load(angles + i), sine = vec_load(angles + n + i);

		vec_store(elements + i, a * cosine - b * sine);
		vec_store(elements + n + i, b * cosine + a * sine);
	}
	for (; i < n; i++)
		rotate_pair(&elements[i], &elements[n + i], angles[i], angles[n + i]);
}

static inline vec
lanes_pick(vec v, vec_ints from)
{
#ifdef __clang__ /* clang has no __builtin_shuffle(), but compiles this loop to a shuffle */
	vec picked;

	for (uint32_t i = 0; i < LANES; i++)
		picked[i] = v[from[i]];
	return picked;
#else
	return __builtin_shuffle(v, from);
#endif
}

/*
 * lanes_twice: duplicates each lane of the first or second half of a vector. pairs_swap: swaps the
 * lanes of each pair.
 */
static inline vec
lanes_twice(vec v, int32_t first)
{
	vec_ints from;

	for (uint32_t i = 0; i < LANES; i++)
		from[i] = first + (int32_t)i / 2;
	return lanes_pick(v, from);
}

static inline vec
pairs_swap(vec v)
{
	vec_ints from;

	for (uint32_t i = 0; i < LANES; i++)
		from[i] = (int32_t)(i ^ 1);
	return lanes_pick(v, from);
}

/* a cos - b sin has the same bits as a cos + b (-sin). */
static inline void
rotate_pairs(float *elements, vec cosine, vec sine)
{
	vec v = vec_load(elements), signs;

	for (uint32_t i = 0; i < LANES; i++)
		signs[i] = i % 2 ? 1 : -1;
	vec_store(elements, v * cosine + pairs_swap(v) * (sine * signs));
}

static void
tile_rotary_interleaved(float *elements, const float *angles, uint32_t n)
{
	uint32_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		vec cosine = vec_load(angles + i), sine = vec_load(angles + n + i);

		rotate_pairs(elements + 2 * i, lanes_twice(cosine, 0), lanes_twice(sine, 0));
		rotate_pairs(elements + 2 * i + LANES, lanes_twice(cosine, LANES / 2), lanes_twice(sine, LANES / 2));
	}
	for (; i < n; i++)
		rotate_pair(&elements[2 * i], &elements[2 * i + 1], angles[i], angles[n + i]);
}

static void
tile_rotary(float *elements, const float *angles, uint32_t n, bool interleaved)
{
	if (interleaved)
		tile_rotary_interleaved(elements, angles, n);
	else
		tile_rotary_halves(elements, angles, n);
}

/* Floats without sign have the same order as their bits as ints. */
static uint32_t
tile_absmax(const float *padded, uint32_t n)
{
	vec_ints most = { 0 };
	int32_t all = 0;

	for (uint32_t i = 0; i < n; i += LANES) {
		vec_ints magnitude = (vec_ints)vec_load(padded + i) & 0x7fffffff, more;

		more = magnitude > most;
		most = (magnitude & more) | (most & ~more);
	}
	for (uint32_t i = 0; i < LANES; i++)
		all = most[i] > all ? most[i] : all;
	return (uint32_t)all;
}

static const struct copy_ops tile_copy_ops = {
	.copy = tile_copy,
	.copy_stream = tile_copy_stream,
	.rotary = tile_rotary,
	.absmax = tile_absmax,
};
