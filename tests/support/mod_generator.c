/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mod_generator.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/support/reference.h"

#define N_DOC 40u

static uint64_t seed, counter;

uint64_t
generator_bits(void)
{
	return random_bits(seed, counter++);
}

uint32_t
generator_pick(uint32_t n)
{
	return (uint32_t)(generator_bits() >> 33) % n;
}

float
generator_float(float amplitude)
{
	return random_float(seed, counter++, amplitude);
}

static int32_t doc[N_DOC], grid[6][7];
static uint8_t bytes[N_DOC];
static float slope[N_DOC], cap, table[6][7];
static int32_t window;

const struct mod_array generator_arrays[GENERATOR_N_ARRAYS] = {
	[GENERATOR_DOC] = MOD_1D("doc", MOD_I32, doc),
	[GENERATOR_BYTES] = MOD_1D("bytes", MOD_U8, bytes),
	[GENERATOR_SLOPE] = MOD_1D("slope", MOD_F32, slope),
	[GENERATOR_CAP] = MOD_PARAM("cap", MOD_F32, cap),
	[GENERATOR_WINDOW] = MOD_PARAM("window", MOD_I32, window),
	[GENERATOR_GRID] = { "grid", MOD_I32, 2, { 6, 7 }, { 0 }, grid },
	[GENERATOR_TABLE] = { "table", MOD_F32, 2, { 6, 7 }, { 0 }, table },
};

static void
fill_arrays(void)
{
	for (uint32_t i = 0; i < N_DOC; i++) {
		doc[i] = i == 13 ? INT32_MAX : (int32_t)(i / 7 + generator_pick(2));
		bytes[i] = (uint8_t)(generator_pick(4) == 0 ? 0 : generator_pick(256));
		slope[i] = generator_float(3);
	}
	slope[9] = INFINITY;
	for (uint32_t i = 0; i < 42; i++) {
		grid[i / 7][i % 7] = (int32_t)generator_pick(10) - 3;
		table[i / 7][i % 7] = generator_float(2);
	}
	cap = 0.5f + (float)generator_pick(8);
	window = (int32_t)generator_pick(20);
}

void
generator_seed(uint64_t number)
{
	seed = number;
	counter = 0;
	fill_arrays();
}

static void put(struct generator_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void
put(struct generator_text *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	text->length += (size_t)vsnprintf(text->at + text->length, sizeof(text->at) - text->length, format, arguments);
	va_end(arguments);
	cr_assert_lt(text->length, sizeof(text->at));
}

static void grow(struct generator_text *text, uint32_t depth);

static void
grow_infix(struct generator_text *text, uint32_t depth, const char *op)
{
	put(text, "(");
	grow(text, depth - 1);
	put(text, " %s ", op);
	grow(text, depth - 1);
	put(text, ")");
}

static void
grow_int(struct generator_text *text, uint32_t depth)
{
	put(text, "int(");
	grow(text, depth - 1);
	put(text, ")");
}

static void
grow_leaf(struct generator_text *text)
{
	static const char *const leaves[] = { "b", "h", "q_idx", "kv_idx", "q_idx", "kv_idx", "window", "1", "7", "-3",
					      "2", "0x7fffffff", "-2147483648", "0", "true", "(q_idx - kv_idx)",
					      /* floats */
					      "cap", "0.5", "-1.25", "3e5", "inf", "score" };
	uint32_t n = text->score ? 22 : text->floats ? 21 : 16;

	put(text, "%s", leaves[generator_pick(n)]);
}

static void
grow_load(struct generator_text *text, uint32_t depth)
{
	static const char *const names[] = { "doc", "bytes", "grid", "slope", "table" };
	uint32_t name = generator_pick(text->floats ? 5 : 3);
	bool near = generator_pick(2) == 0;

	put(text, "%s[", names[name]);
	for (uint32_t i = 0; i < (name == 2 || name == 4 ? 2u : 1u); i++) {
		put(text, i > 0 ? "][" : "");
		if (near)
			put(text, "%s", i > 0 ? "h" : generator_pick(2) ? "q_idx" : "kv_idx");
		else
			grow_int(text, depth);
	}
	put(text, "]");
}

static void
grow(struct generator_text *text, uint32_t depth)
{
	static const char *const infix[] = { "+", "-", "*", "/", "&&", "||", "==", "!=", "+", "-", "&&" };
	static const char *const ints[] = { "%", "&", "|", "^", "<<", ">>", "/" };
	static const char *const comparisons[] = { "<", "<=", ">", ">=" };
	static const char *const functions[] = { "exp", "exp2", "log",     "tanh", "sin",
						 "cos", "tan",  "sigmoid", "sqrt", "float" };
	static const char *const unary[] = { "-", "!", "abs", "floor", "+" };

	if (depth == 0 || generator_pick(9) == 0) {
		grow_leaf(text);
		return;
	}
	switch (generator_pick(text->floats ? 10 : 9)) {
	case 0:
	case 1:
	case 2:
		grow_infix(text, depth, infix[generator_pick(11)]);
		break;
	case 3:
		put(text, "(");
		grow_int(text, depth);
		put(text, " %s ", ints[generator_pick(7)]);
		grow_int(text, depth);
		put(text, ")");
		break;
	case 4:
		put(text, "(+");
		grow_infix(text, depth, "-");
		put(text, " %s +", comparisons[generator_pick(4)]);
		grow_int(text, depth);
		put(text, ")");
		break;
	case 5:
		put(text, "(");
		grow(text, depth - 1);
		put(text, " ? ");
		grow(text, depth - 1);
		put(text, " : ");
		grow(text, depth - 1);
		put(text, ")");
		break;
	case 6:
		put(text, "%s(", unary[generator_pick(5)]);
		grow(text, depth - 1);
		put(text, ")");
		break;
	case 7:
		put(text, "%s(", generator_pick(2) ? "min" : "max");
		grow(text, depth - 1);
		put(text, ", ");
		grow(text, depth - 1);
		put(text, ")");
		break;
	case 8:
		grow_load(text, depth);
		break;
	default:
		put(text, "%s(", functions[generator_pick(10)]);
		grow(text, depth - 1);
		put(text, ")");
		break;
	}
}

struct generator_text
generator_expression(enum mod_kind kind)
{
	struct generator_text text = { .score = kind == MOD_SCORE,
				       .floats = kind == MOD_SCORE || generator_pick(2) == 0 };

	put(&text, kind == MOD_SCORE ? "0.0 + " : "");
	grow(&text, 2 + generator_pick(3));
	return text;
}

/* Comparisons of sums and differences, also near the limits of the integer range. */
static void
grow_sum(struct generator_text *text)
{
	static const char *const terms[] = { "q_idx",  "kv_idx", "kv_idx",     "window",      "b",
					     "doc[h]", "7",      "2147483600", "-2147483590", "-(q_idx - kv_idx)" };
	uint32_t n = 1 + generator_pick(3);

	for (uint32_t i = 0; i < n; i++)
		put(text, "%s%s", i == 0 ? "" : generator_pick(2) ? " + " : " - ", terms[generator_pick(10)]);
}

struct generator_text
generator_comparisons(enum mod_kind kind)
{
	static const char *const comparisons[] = { "<", "<=", ">", ">=", "==", "!=" };
	struct generator_text text = { 0 };
	uint32_t n = 1 + generator_pick(3);

	(void)kind;
	for (uint32_t i = 0; i < n; i++) {
		put(&text, i == 0 ? "" : generator_pick(2) ? " && " : " || ");
		grow_sum(&text);
		put(&text, " %s ", comparisons[generator_pick(6)]);
		grow_sum(&text);
	}
	return text;
}

struct mod_fixture
generator_mod(enum mod_kind kind, struct generator_text (*make)(enum mod_kind kind), struct generator_text *text)
{
	struct mod_fixture fixture = { 0 };
	struct paged_error error = { 0 };

	for (;;) {
		enum paged_status status;

		*text = make(kind);
		status = mod_parse(kind, text->at, text->length, generator_arrays, GENERATOR_N_ARRAYS, &fixture.mod,
				   &error);
		if (status == PAGED_OK)
			break;
		cr_assert_eq(status, PAGED_ERR_LIMIT, "seed %llu: %s\n%s", (unsigned long long)seed, error.text,
			     text->at);
	}
	cr_assert_eq(mod_bind(fixture.mod, generator_arrays, GENERATOR_N_ARRAYS, &fixture.binding, &error), PAGED_OK,
		     "%s", error.text);
	if (generator_pick(2))
		cr_assert_eq(mod_binding_add_range_trees(fixture.binding, &error), PAGED_OK);
	return fixture;
}
