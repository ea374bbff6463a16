/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_bitmasks.h - conditions as one bitmask per q_row: comparisons, runs of bits, logic
 *
 * A part of vm_body.h.
 */
typedef uint32_t (*vm_compare_fn)(ivec a, ivec b);

INLINE void
compare_rows_to_bitmasks(const struct vm_call *call, vm_compare_fn f, bool a_scalar, bool b_scalar)
{
	uint64_t *bitmasks = (uint64_t *)(void *)call->to;

	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		const int32_t *a = call->in[0].values + tile_row * call->in[0].step;
		const int32_t *b = call->in[1].values + tile_row * call->in[1].step;
		ivec all_a = ivec_splat(*a), all_b = ivec_splat(*b);
		uint64_t bitmask = 0;

#pragma GCC unroll 4
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			bitmask |= (uint64_t)f(a_scalar ? all_a : ivec_load(a + i), b_scalar ? all_b : ivec_load(b + i))
				   << i;
		bitmasks[tile_row] = bitmask;
	}
}

INLINE void
compare_to_bitmasks(const struct vm_call *call, vm_compare_fn f)
{
	if (call->in[0].scalar && call->in[1].scalar)
		compare_rows_to_bitmasks(call, f, true, true);
	else if (call->in[0].scalar)
		compare_rows_to_bitmasks(call, f, true, false);
	else if (call->in[1].scalar)
		compare_rows_to_bitmasks(call, f, false, true);
	else
		compare_rows_to_bitmasks(call, f, false, false);
}

typedef uint64_t wvec __attribute__((vector_size(4 * LANES)));

INLINE lvec
vm_operand_widen(const struct vm_operand *operand, uint32_t tile_row)
{
	half narrow;

	if (operand->scalar)
		return (lvec){ 0 } + *operand->values;
	memcpy(&narrow, operand->values + tile_row, sizeof(narrow));
	return __builtin_convertvector(narrow, lvec);
}

/* Mask of the first n bits: all for n >= 64, none for n < 0. */
INLINE wvec
first_n_bits(lvec n)
{
	wvec count = (wvec)(n & (n > 0));

	count = (count & (wvec)(n < 64)) | (64 & (wvec)(n >= 64));
	return ((((wvec){ 0 } + 1) << (count & 63)) - 1) | (0 - (count >> 6));
}

/* True if a tile row, extended by its slope, leaves the range of ints and wraps. */
INLINE lvec
linear_wraps(lvec first, int32_t slope)
{
	return (first > INT32_MAX - (slope > 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0)) |
	       (first < INT32_MIN + (slope < 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0));
}

/* Compares key by key, with wrapping ints. */
static uint64_t
linear_compare_exactly(const struct vm_call *call, uint32_t tile_row, enum mod_op op)
{
	uint32_t a = (uint32_t)call->in[0].values[call->in[0].scalar ? 0 : tile_row];
	uint32_t b = (uint32_t)call->in[1].values[call->in[1].scalar ? 0 : tile_row];
	uint64_t bitmask = 0;

	for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
		bool less = (int32_t)a < (int32_t)b, equal = a == b;

		bitmask |= (uint64_t)(op == MOD_OP_LT   ? less
				      : op == MOD_OP_LE ? less || equal
							: equal == (op == MOD_OP_EQ))
			   << i;
		a += (uint32_t)call->slopes[0];
		b += (uint32_t)call->slopes[1];
	}
	return bitmask;
}

/*
 * If a + slope * i = b at i = n, then a < b is i < n, or i > n for the opposite slope; the same for
 * <=. == holds where < and <= differ.
 */
INLINE void
linear_compare(const struct vm_call *call, enum mod_op op)
{
	bool rises = call->slopes[0] > call->slopes[1];
	uint64_t *bitmasks = (uint64_t *)(void *)call->to;
	lvec wrapped = { 0 };

	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row += LANES / 2) {
		lvec a = vm_operand_widen(&call->in[0], tile_row), b = vm_operand_widen(&call->in[1], tile_row),
		     n = rises ? b - a : a - b;
		wvec bitmask;

		if (op == MOD_OP_EQ || op == MOD_OP_NE)
			bitmask = first_n_bits(n) ^ first_n_bits(n + 1);
		else
			bitmask = first_n_bits((op == MOD_OP_LT) == rises ? n : n + 1);
		if (op == MOD_OP_NE || (op != MOD_OP_EQ && !rises))
			bitmask = ~bitmask;
		memcpy(bitmasks + tile_row, &bitmask, sizeof(bitmask));
		wrapped |= linear_wraps(a, call->slopes[0]) | linear_wraps(b, call->slopes[1]);
	}
	if (!ivec_any((ivec)wrapped))
		return;
	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++)
		bitmasks[tile_row] = linear_compare_exactly(call, tile_row, op);
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

/* Comparisons to bitmasks: the table in struct vm_ops, and the expression that compares. */
#define VM_COMPARISONS(X)                                                  \
	X(bitmasks_of_int, LT, compare_to_bitmasks(call, bits_int_lt))     \
	X(bitmasks_of_int, LE, compare_to_bitmasks(call, bits_int_le))     \
	X(bitmasks_of_int, EQ, compare_to_bitmasks(call, bits_int_eq))     \
	X(bitmasks_of_int, NE, compare_to_bitmasks(call, bits_int_ne))     \
	X(bitmasks_of_float, LT, compare_to_bitmasks(call, bits_float_lt)) \
	X(bitmasks_of_float, LE, compare_to_bitmasks(call, bits_float_le)) \
	X(bitmasks_of_float, EQ, compare_to_bitmasks(call, bits_float_eq)) \
	X(bitmasks_of_float, NE, compare_to_bitmasks(call, bits_float_ne)) \
	X(bitmasks_of_linear, LT, linear_compare(call, MOD_OP_LT))         \
	X(bitmasks_of_linear, LE, linear_compare(call, MOD_OP_LE))         \
	X(bitmasks_of_linear, EQ, linear_compare(call, MOD_OP_EQ))         \
	X(bitmasks_of_linear, NE, linear_compare(call, MOD_OP_NE))

#define DEFINE_COMPARISON(table, op, comparison)             \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		comparison;                                  \
	}

VM_COMPARISONS(DEFINE_COMPARISON)

_Static_assert(LANES / 2 <= VM_BITMASKS_ROUND, "bitmasks fill whole vectors");

static void
bitmasks_not(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_tile_rows; i += LANES)
		ivec_store(call->to + i, ~ivec_load(call->in[0].values + i));
}

static void
bitmasks_and(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_tile_rows; i += LANES)
		ivec_store(call->to + i, ivec_load(call->in[0].values + i) & ivec_load(call->in[1].values + i));
}

static void
bitmasks_or(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_tile_rows; i += LANES)
		ivec_store(call->to + i, ivec_load(call->in[0].values + i) | ivec_load(call->in[1].values + i));
}

static void
bitmasks_select(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_tile_rows; i += LANES)
		ivec_store(call->to + i,
			   ivec_select(ivec_load(call->in[0].values + i), ivec_load(call->in[1].values + i),
				       ivec_load(call->in[2].values + i)));
}

static void
conditions_to_bitmasks(uint64_t *bits, const int32_t *conditions, uint32_t n_tile_rows)
{
	for (uint32_t tile_row = 0; tile_row < n_tile_rows; tile_row++, conditions += MOD_TILE_KEYS) {
		uint64_t bitmask = 0;

		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			bitmask |= (uint64_t)vec_bits(ivec_load(conditions + i)) << i;
		bits[tile_row] = bitmask;
	}
}
