/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_bitmasks.h - conditions as one word per q_row: comparisons, runs of bits, logic
 *
 * A part of vm_body.h.
 */
typedef uint32_t (*bits_fn)(ivec a, ivec b);

INLINE void
compare_rows(const struct vm_call *call, bits_fn f, bool a_scalar, bool b_scalar)
{
	uint64_t *words = (uint64_t *)(void *)call->to;

	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		const int32_t *b = call->in[1].at + row * call->in[1].step;
		ivec all_a = splat(*a), all_b = splat(*b);
		uint64_t word = 0;

#pragma GCC unroll 4
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			word |= (uint64_t)f(a_scalar ? all_a : load(a + i), b_scalar ? all_b : load(b + i)) << i;
		words[row] = word;
	}
}

INLINE void
compare(const struct vm_call *call, bits_fn f)
{
	if (call->in[0].scalar && call->in[1].scalar)
		compare_rows(call, f, true, true);
	else if (call->in[0].scalar)
		compare_rows(call, f, true, false);
	else if (call->in[1].scalar)
		compare_rows(call, f, false, true);
	else
		compare_rows(call, f, false, false);
}

typedef uint64_t wvec __attribute__((vector_size(4 * LANES)));

INLINE lvec
wide(const struct vm_operand *operand, uint32_t row)
{
	half narrow;

	if (operand->scalar)
		return (lvec){ 0 } + *operand->at;
	memcpy(&narrow, operand->at + row, sizeof(narrow));
	return __builtin_convertvector(narrow, lvec);
}

/* Mask of the first n bits: all for n >= 64, none for n < 0. */
INLINE wvec
first_bits(lvec n)
{
	wvec count = (wvec)(n & (n > 0));

	count = (count & (wvec)(n < 64)) | (64 & (wvec)(n >= 64));
	return ((((wvec){ 0 } + 1) << (count & 63)) - 1) | (0 - (count >> 6));
}

/* True if a row, extended by its slope, leaves the range of ints and wraps. */
INLINE lvec
wraps(lvec first, int32_t slope)
{
	return (first > INT32_MAX - (slope > 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0)) |
	       (first < INT32_MIN + (slope < 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0));
}

/* Compares key by key, with wrapping ints. */
static uint64_t
slope_exactly(const struct vm_call *call, uint32_t row, enum mod_op op)
{
	uint32_t a = (uint32_t)call->in[0].at[call->in[0].scalar ? 0 : row];
	uint32_t b = (uint32_t)call->in[1].at[call->in[1].scalar ? 0 : row];
	uint64_t word = 0;

	for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
		bool less = (int32_t)a < (int32_t)b, equal = a == b;

		word |= (uint64_t)(op == MOD_OP_LT   ? less
				   : op == MOD_OP_LE ? less || equal
						     : equal == (op == MOD_OP_EQ))
			<< i;
		a += (uint32_t)call->slopes[0];
		b += (uint32_t)call->slopes[1];
	}
	return word;
}

/*
 * If a + slope * i = b at i = n, then a < b is i < n, or i > n for the opposite slope; the same for
 * <=. == holds where < and <= differ.
 */
INLINE void
compare_slopes(const struct vm_call *call, enum mod_op op)
{
	bool rises = call->slopes[0] > call->slopes[1];
	uint64_t *words = (uint64_t *)(void *)call->to;
	lvec wrapped = { 0 };

	for (uint32_t row = 0; row < call->n_rows; row += LANES / 2) {
		lvec a = wide(&call->in[0], row), b = wide(&call->in[1], row), n = rises ? b - a : a - b;
		wvec word;

		if (op == MOD_OP_EQ || op == MOD_OP_NE)
			word = first_bits(n) ^ first_bits(n + 1);
		else
			word = first_bits((op == MOD_OP_LT) == rises ? n : n + 1);
		if (op == MOD_OP_NE || (op != MOD_OP_EQ && !rises))
			word = ~word;
		memcpy(words + row, &word, sizeof(word));
		wrapped |= wraps(a, call->slopes[0]) | wraps(b, call->slopes[1]);
	}
	if (!any((ivec)wrapped))
		return;
	for (uint32_t row = 0; row < call->n_rows; row++)
		words[row] = slope_exactly(call, row, op);
}

#ifndef COMPARE_BITS
#define BITS(name)                                  \
	INLINE uint32_t bits_##name(ivec a, ivec b) \
	{                                           \
		return vec_bits(name(a, b));        \
	}
BITS(int_lt)
BITS(int_le)
BITS(int_eq)
BITS(int_ne)
BITS(float_lt)
BITS(float_le)
BITS(float_eq)
BITS(float_ne)
#endif

/* Comparisons to words: the table in struct vm_ops, and the expression that compares. */
#define VM_COMPARISONS(X)                                       \
	X(words_of_int, LT, compare(call, bits_int_lt))         \
	X(words_of_int, LE, compare(call, bits_int_le))         \
	X(words_of_int, EQ, compare(call, bits_int_eq))         \
	X(words_of_int, NE, compare(call, bits_int_ne))         \
	X(words_of_float, LT, compare(call, bits_float_lt))     \
	X(words_of_float, LE, compare(call, bits_float_le))     \
	X(words_of_float, EQ, compare(call, bits_float_eq))     \
	X(words_of_float, NE, compare(call, bits_float_ne))     \
	X(words_of_slopes, LT, compare_slopes(call, MOD_OP_LT)) \
	X(words_of_slopes, LE, compare_slopes(call, MOD_OP_LE)) \
	X(words_of_slopes, EQ, compare_slopes(call, MOD_OP_EQ)) \
	X(words_of_slopes, NE, compare_slopes(call, MOD_OP_NE))

#define RUN_COMPARISON(table, op, comparison)                \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		comparison;                                  \
	}

VM_COMPARISONS(RUN_COMPARISON)

_Static_assert(LANES / 2 <= VM_WORDS_ROUND, "words fill whole vectors");

static void
words_not(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, ~load(call->in[0].at + i));
}

static void
words_and(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, load(call->in[0].at + i) & load(call->in[1].at + i));
}

static void
words_or(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, load(call->in[0].at + i) | load(call->in[1].at + i));
}

static void
words_select(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i,
		      choose(load(call->in[0].at + i), load(call->in[1].at + i), load(call->in[2].at + i)));
}

static void
bits_of(uint64_t *bits, const int32_t *conditions, uint32_t n_rows)
{
	for (uint32_t row = 0; row < n_rows; row++, conditions += MOD_TILE_KEYS) {
		uint64_t word = 0;

		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			word |= (uint64_t)vec_bits(load(conditions + i)) << i;
		bits[row] = word;
	}
}
