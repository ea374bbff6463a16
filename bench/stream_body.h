/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and copying with one instruction set; stream.c includes this for each,
 * with STREAM_NAME(x), STREAM_TARGET, the bytes of a vector and the store that
 * leaves the cache out.  A vector of 64 bytes lies where a cache line does.
 */

typedef uint64_t STREAM_NAME(vector) __attribute__((vector_size(STREAM_BYTES), may_alias));

#define LINE 64u

/* Of stream j, into its own sum. */
#define READ_LINE(j)                                                    \
	if (ahead != 0)                                                 \
		__builtin_prefetch(pieces[i + (j)*apart + ahead] + at); \
	for (size_t b = 0; b < LINE; b += STREAM_BYTES)                 \
		sum##j ^= *(const STREAM_NAME(vector) *)(pieces[i + (j)*apart] + at + b);

/* What was read is used, in the compiler's eyes. */
#define READ_STREAMS(n_streams, ...)                                                                                  \
	STREAM_TARGET static void STREAM_NAME(read_##n_streams)(const uint8_t *const *pieces, size_t n, size_t apart, \
								size_t bytes, size_t ahead)                           \
	{                                                                                                             \
		STREAM_NAME(vector) sum0 = { 0 }, sum1 = { 0 }, sum2 = { 0 }, sum3 = { 0 }, all;                      \
                                                                                                                      \
		for (size_t i = 0; i < n; i++)                                                                        \
			for (size_t at = 0; at < bytes; at += LINE) {                                                 \
				__VA_ARGS__                                                                           \
			}                                                                                             \
		all = sum0 ^ sum1 ^ sum2 ^ sum3;                                                                      \
		__asm__ volatile("" : : "m"(all));                                                                    \
	}

READ_STREAMS(1, READ_LINE(0))
READ_STREAMS(2, READ_LINE(0) READ_LINE(1))
READ_STREAMS(3, READ_LINE(0) READ_LINE(1) READ_LINE(2))
READ_STREAMS(4, READ_LINE(0) READ_LINE(1) READ_LINE(2) READ_LINE(3))

STREAM_TARGET static void
STREAM_NAME(copy_past_cache)(uint8_t *to, const uint8_t *from, size_t bytes)
{
	size_t at = 0;

	for (; at + STREAM_BYTES <= bytes; at += STREAM_BYTES) {
		STREAM_NAME(vector) value;

		memcpy(&value, from + at, sizeof(value));
		STREAM_STORE(to + at, value);
	}
	memcpy(to + at, from + at, bytes - at);
	STREAM_FENCE();
}

const struct limit_stream_ops STREAM_OPS = {
	.name = STREAM_ISA,
	.read = { STREAM_NAME(read_1), STREAM_NAME(read_2), STREAM_NAME(read_3), STREAM_NAME(read_4) },
	.copy_past_cache = STREAM_NAME(copy_past_cache),
};

#undef READ_STREAMS
#undef READ_LINE
#undef LINE
#undef STREAM_NAME
#undef STREAM_TARGET
#undef STREAM_BYTES
#undef STREAM_STORE
#undef STREAM_FENCE
#undef STREAM_OPS
#undef STREAM_ISA
