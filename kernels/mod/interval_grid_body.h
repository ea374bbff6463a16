/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interval_grid_body.h - interval_grid.h's operations in the compiler's vectors
 *
 * Each interval_grid_*.c includes it once, after the vec_*.h of its instruction set; LANES divides
 * MOD_GRID_COLUMNS.  In values, conditions are 0 and 1; during computation they have
 * no or all bits set.
 */
#include <string.h>

struct vec_bounds {
	ivec low, high;
};

typedef struct vec_bounds (*bounds_fn)(struct vec_bounds a, struct vec_bounds b);

INLINE ivec
bounds_are_point(struct vec_bounds x)
{
	return x.low == x.high;
}

/* The widest bounds where the operation may have wrapped. */
INLINE struct vec_bounds
bounds_unless_wrapped(ivec wrapped, struct vec_bounds to)
{
	return (struct vec_bounds){ ivec_select(wrapped, ivec_splat(INT32_MIN), to.low),
				    ivec_select(wrapped, ivec_splat(INT32_MAX), to.high) };
}

INLINE struct vec_bounds
bounds_add(struct vec_bounds a, struct vec_bounds b)
{
	struct vec_bounds to = { ivec_add(a.low, b.low), ivec_add(a.high, b.high) };
	ivec wrapped = ((a.low ^ to.low) & (b.low ^ to.low)) | ((a.high ^ to.high) & (b.high ^ to.high));

	return bounds_unless_wrapped((wrapped < 0) & ~(bounds_are_point(a) & bounds_are_point(b)), to);
}

INLINE struct vec_bounds
bounds_subtract(struct vec_bounds a, struct vec_bounds b)
{
	struct vec_bounds to = { ivec_sub(a.low, b.high), ivec_sub(a.high, b.low) };
	ivec wrapped = ((a.low ^ b.high) & (a.low ^ to.low)) | ((a.high ^ b.low) & (a.high ^ to.high));

	return bounds_unless_wrapped((wrapped < 0) & ~(bounds_are_point(a) & bounds_are_point(b)), to);
}

INLINE dvec
dvec_select(lvec condition, dvec yes, dvec no)
{
	return (dvec)((condition & (lvec)yes) | (~condition & (lvec)no));
}

#define IVEC_MIN(a, b) ivec_select((a) < (b), a, b)
#define IVEC_MAX(a, b) ivec_select((a) > (b), a, b)
#define DVEC_MIN(a, b) dvec_select((a) < (b), a, b)
#define DVEC_MAX(a, b) dvec_select((a) > (b), a, b)

struct products {
	dvec low, high;
};

/* Products of half of the lanes, in double: exact if they fit in 32 bits. */
INLINE struct products
multiply_half(struct vec_bounds a, struct vec_bounds b, uint32_t part)
{
	const dvec a_low = vec_double(a.low, part), a_high = vec_double(a.high, part);
	const dvec b_low = vec_double(b.low, part), b_high = vec_double(b.high, part);
	const dvec least = (dvec){ 0 } + INT32_MIN, most = (dvec){ 0 } + INT32_MAX;
	dvec one = a_low * b_low, two = a_low * b_high, three = a_high * b_low, four = a_high * b_high;
	dvec low_of[2] = { DVEC_MIN(one, two), DVEC_MIN(three, four) };
	dvec high_of[2] = { DVEC_MAX(one, two), DVEC_MAX(three, four) };
	dvec low = DVEC_MIN(low_of[0], low_of[1]), high = DVEC_MAX(high_of[0], high_of[1]);
	lvec wrapped = (low < least) | (high > most);

	return (struct products){ dvec_select(wrapped, least, low), dvec_select(wrapped, most, high) };
}

INLINE struct vec_bounds
bounds_multiply(struct vec_bounds a, struct vec_bounds b)
{
	ivec point = bounds_are_point(a) & bounds_are_point(b), product = ivec_mul(a.low, b.low);
	struct products first = multiply_half(a, b, 0), second = multiply_half(a, b, 1);

	return (struct vec_bounds){ ivec_select(point, product, vec_truncate(first.low, second.low)),
				    ivec_select(point, product, vec_truncate(first.high, second.high)) };
}

INLINE struct vec_bounds
bounds_absolute(struct vec_bounds a, struct vec_bounds b)
{
	ivec low = ivec_select(a.low < 0, ivec_sub(ivec_splat(0), a.low), a.low);
	ivec high = ivec_select(a.high < 0, ivec_sub(ivec_splat(0), a.high), a.high),
	     zero = (a.low <= 0) & (a.high >= 0);

	(void)b;
	return bounds_unless_wrapped((a.low == INT32_MIN) & ~bounds_are_point(a),
				     (struct vec_bounds){ ~zero & IVEC_MIN(low, high), IVEC_MAX(low, high) });
}

INLINE ivec
bounds_disjoint(struct vec_bounds a, struct vec_bounds b)
{
	return (a.high < b.low) | (a.low > b.high);
}

INLINE ivec
bounds_same_point(struct vec_bounds a, struct vec_bounds b)
{
	return bounds_are_point(a) & bounds_are_point(b) & (a.low == b.low);
}

/* Operations whose bounds are expressions.  For a condition, low: certainly true; high: not certainly false. */
#define BOUNDS(name, low_value, high_value)                                     \
	INLINE struct vec_bounds name(struct vec_bounds a, struct vec_bounds b) \
	{                                                                       \
		(void)b;                                                        \
		return (struct vec_bounds){ low_value, high_value };            \
	}

BOUNDS(bounds_min, IVEC_MIN(a.low, b.low), IVEC_MIN(a.high, b.high))
BOUNDS(bounds_max, IVEC_MAX(a.low, b.low), IVEC_MAX(a.high, b.high))
BOUNDS(bounds_bitnot, ~a.high, ~a.low)
BOUNDS(bounds_not, 1 - a.high, 1 - a.low)
BOUNDS(bounds_and, a.low &b.low, a.high &b.high)
BOUNDS(bounds_or, a.low | b.low, a.high | b.high)
BOUNDS(bounds_identity, a.low, a.high)
BOUNDS(bounds_less, (a.high < b.low) & 1, ~(a.low >= b.high) & 1)
BOUNDS(bounds_at_most, (a.high <= b.low) & 1, ~(a.low > b.high) & 1)
BOUNDS(bounds_equal, bounds_same_point(a, b) & 1, ~bounds_disjoint(a, b) & 1)
BOUNDS(bounds_not_equal, bounds_disjoint(a, b) & 1, ~bounds_same_point(a, b) & 1)

INLINE struct vec_bounds
bounds_negate(struct vec_bounds a, struct vec_bounds b)
{
	(void)b;
	return bounds_subtract((struct vec_bounds){ ivec_splat(0), ivec_splat(0) }, a);
}

INLINE struct vec_bounds
grid_load(const struct grid_operand *operand, uint32_t row, uint32_t column)
{
	const struct grid_bounds *from = operand->rows + row * operand->step;

	return (struct vec_bounds){ ivec_load(from->low + column), ivec_load(from->high + column) };
}

INLINE void
grid_store(const struct grid_call *call, uint32_t row, uint32_t column, struct vec_bounds bounds)
{
	memcpy(call->to[row].low + column, &bounds.low, sizeof(bounds.low));
	memcpy(call->to[row].high + column, &bounds.high, sizeof(bounds.high));
}

INLINE void
grid_apply(const struct grid_call *call, bounds_fn fn)
{
	for (uint32_t r = 0; r < call->n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES)
			grid_store(call, r, c, fn(grid_load(&call->in[0], r, c), grid_load(&call->in[1], r, c)));
}

/* Operations with one operand or two, and the function that bounds a vector of them. */
#define GRID_OPERATIONS(X)       \
	X(NOT, bounds_not)       \
	X(AND, bounds_and)       \
	X(OR, bounds_or)         \
	X(LT, bounds_less)       \
	X(LE, bounds_at_most)    \
	X(EQ, bounds_equal)      \
	X(NE, bounds_not_equal)  \
	X(ADD, bounds_add)       \
	X(SUB, bounds_subtract)  \
	X(MIN, bounds_min)       \
	X(MAX, bounds_max)       \
	X(MUL, bounds_multiply)  \
	X(NEG, bounds_negate)    \
	X(ABS, bounds_absolute)  \
	X(BITNOT, bounds_bitnot) \
	X(FROM_BOOL, bounds_identity)

#define GRID_RUN(op, name)                                  \
	static void grid_##op(const struct grid_call *call) \
	{                                                   \
		grid_apply(call, name);                     \
	}

GRID_OPERATIONS(GRID_RUN)

static void
grid_select(const struct grid_call *call)
{
	for (uint32_t r = 0; r < call->n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES) {
			struct vec_bounds condition = grid_load(&call->in[0], r, c);
			struct vec_bounds yes = grid_load(&call->in[1], r, c), no = grid_load(&call->in[2], r, c);
			ivec all = condition.low != 0, none = condition.high == 0;
			struct vec_bounds to = { IVEC_MIN(yes.low, no.low), IVEC_MAX(yes.high, no.high) };

			to.low = ivec_select(all, yes.low, ivec_select(none, no.low, to.low));
			to.high = ivec_select(all, yes.high, ivec_select(none, no.high, to.high));
			grid_store(call, r, c, to);
		}
}

static void
grid_bits(const struct grid_bounds *rows, uint32_t n_rows, uint64_t *all_true, uint64_t *all_false)
{
	*all_true = *all_false = 0;
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES) {
			uint32_t at = r * MOD_GRID_COLUMNS + c;

			*all_true |= (uint64_t)vec_bits(ivec_load(rows[r].low + c) != 0) << at;
			*all_false |= (uint64_t)vec_bits(ivec_load(rows[r].high + c) == 0) << at;
		}
}

#define GRID_ENTRY(op, name) .of[MOD_OP_##op] = grid_##op,

#define GRID_OPS                                                                                 \
	{                                                                                        \
		.of[MOD_OP_SELECT] = grid_select, .bits = grid_bits, GRID_OPERATIONS(GRID_ENTRY) \
	}
