/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid_body.h - grid.h's operations over the compiler's vectors
 *
 * Included once by each grid_*.c, which before that gives LANES (a divisor of
 * MOD_GRID_COLUMNS), vec.h, and vec_bits(ivec): one bit a lane.  Conditions are
 * 0 and 1 in values, none or all bits while computed.
 */
#include <string.h>

struct bounds {
	ivec low, high;
};

typedef struct bounds (*bounds_fn)(struct bounds a, struct bounds b);

INLINE ivec
vec_least(ivec a, ivec b)
{
	return choose(a < b, a, b);
}

INLINE ivec
vec_most(ivec a, ivec b)
{
	return choose(a > b, a, b);
}

INLINE ivec
is_point(struct bounds x)
{
	return x.low == x.high;
}

/* Any int where the operation may have wrapped. */
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
vec_double(const ivec *v, uint32_t part)
{
	half from;

	memcpy(&from, (const char *)v + part * sizeof(from), sizeof(from));
	return __builtin_convertvector(from, dvec);
}

INLINE void
vec_from_double(ivec *v, uint32_t part, dvec from)
{
	half to = __builtin_convertvector(from, half);

	memcpy((char *)v + part * sizeof(to), &to, sizeof(to));
}

INLINE dvec
vec_double_choose(lvec condition, dvec yes, dvec no)
{
	return (dvec)((condition & (lvec)yes) | (~condition & (lvec)no));
}

INLINE dvec
vec_double_least(dvec a, dvec b)
{
	return vec_double_choose(a < b, a, b);
}

INLINE dvec
vec_double_most(dvec a, dvec b)
{
	return vec_double_choose(a > b, a, b);
}

/* Half of the lanes, by doubles: exact wherever they fit in 32 bits. */
INLINE void
multiply_part(struct bounds *to, const struct bounds *a, const struct bounds *b, uint32_t part)
{
	const dvec a_low = vec_double(&a->low, part), a_high = vec_double(&a->high, part);
	const dvec b_low = vec_double(&b->low, part), b_high = vec_double(&b->high, part);
	const dvec least = (dvec){ 0 } + INT32_MIN, most = (dvec){ 0 } + INT32_MAX;
	dvec one = a_low * b_low, two = a_low * b_high, three = a_high * b_low, four = a_high * b_high;
	dvec low = vec_double_least(vec_double_least(one, two), vec_double_least(three, four));
	dvec high = vec_double_most(vec_double_most(one, two), vec_double_most(three, four));
	lvec wrapped = (low < least) | (high > most);

	vec_from_double(&to->low, part, vec_double_choose(wrapped, least, low));
	vec_from_double(&to->high, part, vec_double_choose(wrapped, most, high));
}

INLINE struct bounds
bounds_multiply(struct bounds a, struct bounds b)
{
	ivec point = is_point(a) & is_point(b), product = multiply(a.low, b.low);
	struct bounds to;

	multiply_part(&to, &a, &b, 0);
	multiply_part(&to, &a, &b, 1);
	return (struct bounds){ choose(point, product, to.low), choose(point, product, to.high) };
}

INLINE struct bounds
bounds_negative(struct bounds a, struct bounds b)
{
	(void)b;
	return bounds_subtract((struct bounds){ splat(0), splat(0) }, a);
}

INLINE struct bounds
bounds_least(struct bounds a, struct bounds b)
{
	return (struct bounds){ vec_least(a.low, b.low), vec_least(a.high, b.high) };
}

INLINE struct bounds
bounds_most(struct bounds a, struct bounds b)
{
	return (struct bounds){ vec_most(a.low, b.low), vec_most(a.high, b.high) };
}

INLINE ivec
vec_absolute(ivec v)
{
	return choose(v < 0, subtract(splat(0), v), v);
}

INLINE struct bounds
bounds_absolute(struct bounds a, struct bounds b)
{
	ivec low = vec_absolute(a.low), high = vec_absolute(a.high), zero = (a.low <= 0) & (a.high >= 0);

	(void)b;
	return unless((a.low == INT32_MIN) & ~is_point(a),
		      (struct bounds){ ~zero & vec_least(low, high), vec_most(low, high) });
}

INLINE struct bounds
bounds_not_bits(struct bounds a, struct bounds b)
{
	(void)b;
	return (struct bounds){ ~a.high, ~a.low };
}

INLINE struct bounds
bounds_opposite(struct bounds a, struct bounds b)
{
	(void)b;
	return (struct bounds){ 1 - a.high, 1 - a.low };
}

INLINE struct bounds
bounds_and(struct bounds a, struct bounds b)
{
	return (struct bounds){ a.low & b.low, a.high & b.high };
}

INLINE struct bounds
bounds_or(struct bounds a, struct bounds b)
{
	return (struct bounds){ a.low | b.low, a.high | b.high };
}

INLINE struct bounds
bounds_same(struct bounds a, struct bounds b)
{
	(void)b;
	return a;
}

INLINE struct bounds
truth(ivec surely_true, ivec surely_false)
{
	return (struct bounds){ surely_true & 1, ~surely_false & 1 };
}

INLINE struct bounds
bounds_less(struct bounds a, struct bounds b)
{
	return truth(a.high < b.low, a.low >= b.high);
}

INLINE struct bounds
bounds_at_most(struct bounds a, struct bounds b)
{
	return truth(a.high <= b.low, a.low > b.high);
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

INLINE struct bounds
bounds_equal(struct bounds a, struct bounds b)
{
	return truth(one(a, b), apart(a, b));
}

INLINE struct bounds
bounds_unlike(struct bounds a, struct bounds b)
{
	return truth(apart(a, b), one(a, b));
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

/* Operations of one operand or two, and what bounds a vector. */
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
			struct bounds to = { vec_least(yes.low, no.low), vec_most(yes.high, no.high) };

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
