/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interval_grid_body.h - interval_grid.h's operations in the compiler's vectors
 *
 * Each grid_*.c includes it once, after it defines LANES (a divisor of MOD_GRID_COLUMNS), vec.h, and
 * vec_bits(ivec), one bit per lane.  In values, conditions are 0 and 1; during computation they have
 * no or all bits set.
 */
#include <string.h>

struct bounds {
	ivec low, high;
};

typedef struct bounds (*bounds_fn)(struct bounds a, struct bounds b);

INLINE ivec
is_point(struct bounds x)
{
	return x.low == x.high;
}

/* The widest bounds where the operation may have wrapped. */
INLINE struct bounds
unless(ivec wrapped, struct bounds to)
{
	return (struct bounds){ choose(wrapped, splat(INT32_MIN), to.low), choose(wrapped, splat(INT32_MAX), to.high) };
}

INLINE struct bounds
bounds_add(struct bounds a, struct bounds b)
{
	struct bounds to = { add(a.low, b.low), add(a.high, b.high) };
	ivec wrapped = ((a.low ^ to.low) & (b.low ^ to.low)) | ((a.high ^ to.high) & (b.high ^ to.high));

	return unless((wrapped < 0) & ~(is_point(a) & is_point(b)), to);
}

INLINE struct bounds
bounds_subtract(struct bounds a, struct bounds b)
{
	struct bounds to = { subtract(a.low, b.high), subtract(a.high, b.low) };
	ivec wrapped = ((a.low ^ b.high) & (a.low ^ to.low)) | ((a.high ^ b.low) & (a.high ^ to.high));

	return unless((wrapped < 0) & ~(is_point(a) & is_point(b)), to);
}

INLINE dvec
vec_double_choose(lvec condition, dvec yes, dvec no)
{
	return (dvec)((condition & (lvec)yes) | (~condition & (lvec)no));
}

#define LEAST(a, b) choose((a) < (b), a, b)
#define MOST(a, b) choose((a) > (b), a, b)
#define DOUBLE_LEAST(a, b) vec_double_choose((a) < (b), a, b)
#define DOUBLE_MOST(a, b) vec_double_choose((a) > (b), a, b)

struct products {
	dvec low, high;
};

/* Products of half of the lanes, in double: exact if they fit in 32 bits. */
INLINE struct products
multiply_part(struct bounds a, struct bounds b, uint32_t part)
{
	const dvec a_low = vec_double(a.low, part), a_high = vec_double(a.high, part);
	const dvec b_low = vec_double(b.low, part), b_high = vec_double(b.high, part);
	const dvec least = (dvec){ 0 } + INT32_MIN, most = (dvec){ 0 } + INT32_MAX;
	dvec one = a_low * b_low, two = a_low * b_high, three = a_high * b_low, four = a_high * b_high;
	dvec low_of[2] = { DOUBLE_LEAST(one, two), DOUBLE_LEAST(three, four) };
	dvec high_of[2] = { DOUBLE_MOST(one, two), DOUBLE_MOST(three, four) };
	dvec low = DOUBLE_LEAST(low_of[0], low_of[1]), high = DOUBLE_MOST(high_of[0], high_of[1]);
	lvec wrapped = (low < least) | (high > most);

	return (struct products){ vec_double_choose(wrapped, least, low), vec_double_choose(wrapped, most, high) };
}

INLINE struct bounds
bounds_multiply(struct bounds a, struct bounds b)
{
	ivec point = is_point(a) & is_point(b), product = multiply(a.low, b.low);
	struct products first = multiply_part(a, b, 0), second = multiply_part(a, b, 1);

	return (struct bounds){ choose(point, product, vec_truncate(first.low, second.low)),
				choose(point, product, vec_truncate(first.high, second.high)) };
}

INLINE struct bounds
bounds_absolute(struct bounds a, struct bounds b)
{
	ivec low = choose(a.low < 0, subtract(splat(0), a.low), a.low);
	ivec high = choose(a.high < 0, subtract(splat(0), a.high), a.high), zero = (a.low <= 0) & (a.high >= 0);

	(void)b;
	return unless((a.low == INT32_MIN) & ~is_point(a),
		      (struct bounds){ ~zero & LEAST(low, high), MOST(low, high) });
}

INLINE ivec
apart(struct bounds a, struct bounds b)
{
	return (a.high < b.low) | (a.low > b.high);
}

INLINE ivec
one(struct bounds a, struct bounds b)
{
	return is_point(a) & is_point(b) & (a.low == b.low);
}

/* Operations whose bounds are expressions.  For a condition, low: certainly true; high: not certainly false. */
#define BOUNDS(name, low_value, high_value)                         \
	INLINE struct bounds name(struct bounds a, struct bounds b) \
	{                                                           \
		(void)b;                                            \
		return (struct bounds){ low_value, high_value };    \
	}

BOUNDS(bounds_least, LEAST(a.low, b.low), LEAST(a.high, b.high))
BOUNDS(bounds_most, MOST(a.low, b.low), MOST(a.high, b.high))
BOUNDS(bounds_not_bits, ~a.high, ~a.low)
BOUNDS(bounds_opposite, 1 - a.high, 1 - a.low)
BOUNDS(bounds_and, a.low &b.low, a.high &b.high)
BOUNDS(bounds_or, a.low | b.low, a.high | b.high)
BOUNDS(bounds_same, a.low, a.high)
BOUNDS(bounds_less, (a.high < b.low) & 1, ~(a.low >= b.high) & 1)
BOUNDS(bounds_at_most, (a.high <= b.low) & 1, ~(a.low > b.high) & 1)
BOUNDS(bounds_equal, one(a, b) & 1, ~apart(a, b) & 1)
BOUNDS(bounds_unlike, apart(a, b) & 1, ~one(a, b) & 1)

INLINE struct bounds
bounds_negative(struct bounds a, struct bounds b)
{
	(void)b;
	return bounds_subtract((struct bounds){ splat(0), splat(0) }, a);
}

INLINE struct bounds
operand(const struct grid_operand *operand, uint32_t row, uint32_t column)
{
	const struct grid_bounds *from = operand->rows + row * operand->step;

	return (struct bounds){ load(from->low + column), load(from->high + column) };
}

INLINE void
result(const struct grid_call *call, uint32_t row, uint32_t column, struct bounds bounds)
{
	memcpy(call->to[row].low + column, &bounds.low, sizeof(bounds.low));
	memcpy(call->to[row].high + column, &bounds.high, sizeof(bounds.high));
}

INLINE void
each(const struct grid_call *call, bounds_fn fn)
{
	for (uint32_t r = 0; r < call->n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES)
			result(call, r, c, fn(operand(&call->in[0], r, c), operand(&call->in[1], r, c)));
}

/* Operations with one operand or two, and the function that bounds a vector of them. */
#define GRID_OPERATIONS(X)         \
	X(NOT, bounds_opposite)    \
	X(AND, bounds_and)         \
	X(OR, bounds_or)           \
	X(LT, bounds_less)         \
	X(LE, bounds_at_most)      \
	X(EQ, bounds_equal)        \
	X(NE, bounds_unlike)       \
	X(ADD, bounds_add)         \
	X(SUB, bounds_subtract)    \
	X(MIN, bounds_least)       \
	X(MAX, bounds_most)        \
	X(MUL, bounds_multiply)    \
	X(NEG, bounds_negative)    \
	X(ABS, bounds_absolute)    \
	X(BITNOT, bounds_not_bits) \
	X(FROM_BOOL, bounds_same)

#define GRID_RUN(op, name)                                  \
	static void grid_##op(const struct grid_call *call) \
	{                                                   \
		each(call, name);                           \
	}

GRID_OPERATIONS(GRID_RUN)

static void
grid_select(const struct grid_call *call)
{
	for (uint32_t r = 0; r < call->n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES) {
			struct bounds condition = operand(&call->in[0], r, c);
			struct bounds yes = operand(&call->in[1], r, c), no = operand(&call->in[2], r, c);
			ivec all = condition.low != 0, none = condition.high == 0;
			struct bounds to = { LEAST(yes.low, no.low), MOST(yes.high, no.high) };

			to.low = choose(all, yes.low, choose(none, no.low, to.low));
			to.high = choose(all, yes.high, choose(none, no.high, to.high));
			result(call, r, c, to);
		}
}

static void
grid_bits(const struct grid_bounds *rows, uint32_t n_rows, uint64_t *all_true, uint64_t *all_false)
{
	*all_true = *all_false = 0;
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c += LANES) {
			uint32_t at = r * MOD_GRID_COLUMNS + c;

			*all_true |= (uint64_t)vec_bits(load(rows[r].low + c) != 0) << at;
			*all_false |= (uint64_t)vec_bits(load(rows[r].high + c) == 0) << at;
		}
}

#define GRID_ENTRY(op, name) .of[MOD_OP_##op] = grid_##op,

#define GRID_OPS                                                                                 \
	{                                                                                        \
		.of[MOD_OP_SELECT] = grid_select, .bits = grid_bits, GRID_OPERATIONS(GRID_ENTRY) \
	}
