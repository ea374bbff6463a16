/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of mods: the texts of mod_texts.h, canonical round trips, errors, limits. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/ir.h"
#include "tests/support/mod_fixture.h"
#include "tests/support/mod_texts.h"

#define I32(array_name, rank)                                            \
	{                                                                \
		.name = (array_name), .dtype = MOD_I32, .n_dims = (rank) \
	}
#define N(array) (sizeof(array) / sizeof((array)[0]))

static struct mod *
parse(enum mod_kind kind, const char *text)
{
	struct paged_error error = { 0 };
	struct mod *mod = NULL;

	cr_assert_eq(mod_parse(kind, text, strlen(text), mod_texts_names, MOD_TEXTS_NAMES, &mod, &error), PAGED_OK,
		     "%s", error.text);
	return mod;
}

static void
expect_round_trip(enum mod_kind kind, const char *text)
{
	struct mod *once = parse(kind, text), *twice = parse(kind, mod_text(once));

	cr_expect_str_eq(mod_text(once), mod_text(twice));
	cr_expect_eq(once->n_nodes, twice->n_nodes, "%s", text);
	cr_expect(once->n_nodes == twice->n_nodes &&
			  memcmp(once->nodes, twice->nodes, once->n_nodes * sizeof(*once->nodes)) == 0,
		  "%s: %s", text, mod_text(once));
	mod_destroy(once);
	mod_destroy(twice);
}

Test(mod_parse, texts_round_trip)
{
	for (size_t i = 0; mod_texts_masks[i] != NULL; i++)
		expect_round_trip(MOD_MASK, mod_texts_masks[i]);
	for (size_t i = 0; mod_texts_scores[i] != NULL; i++)
		expect_round_trip(MOD_SCORE, mod_texts_scores[i]);
}

Test(mod_parse, builtin_mods)
{
	for (uint32_t i = 0; mod_builtin(i) != NULL; i++) {
		const char *text = mod_builtin(i)->name;
		bool is_score = strstr(mod_builtin(i)->text, "score") != NULL;
		struct paged_error error = { 0 };
		struct mod *mod;

		cr_assert_eq(mod_parse(is_score ? MOD_SCORE : MOD_MASK, text, strlen(text), mod_texts_scalars,
				       MOD_TEXTS_SCALARS, &mod, &error),
			     PAGED_OK, "%s", error.text);
		mod_destroy(mod);
	}
}

static void
expect_canonical(enum mod_kind kind, const char *text, const char *expected)
{
	struct mod *mod = parse(kind, text);

	cr_expect_str_eq(mod_text(mod), expected);
	mod_destroy(mod);
}

Test(mod_parse, canonical_texts)
{
	expect_canonical(MOD_MASK, " ( q_idx>=kv_idx )", "kv_idx <= q_idx");
	expect_canonical(MOD_MASK, "not causal or b", "!(kv_idx <= q_idx) || b != 0");
	expect_canonical(MOD_SCORE, "score*2", "score * 2.0");
	expect_canonical(MOD_SCORE, "soft_cap(30.0)", "30.0 * tanh(score / 30.0)");
	expect_canonical(MOD_SCORE, "score + (h - (b - 1)) + 0x10", "score + float(h - (b - 1)) + 16.0");
	expect_canonical(MOD_MASK, "(b | 1) & 2 ^ h << 3", "((b | 1) & 2 ^ h << 3) != 0");
	expect_canonical(MOD_SCORE, "clamp(score, -1, 1)", "min(max(score, -1.0), 1.0)");
	/* Indices as in C and as in Python. */
	expect_canonical(MOD_SCORE, "score + bias[q_idx, kv_idx]", "score + bias[q_idx][kv_idx]");
	expect_canonical(MOD_SCORE, "score + bias3[b, min(q_idx, 3)][kv_idx]",
			 "score + bias3[b][min(q_idx, 3)][kv_idx]");
	expect_canonical(MOD_SCORE, "bias4[b, h, q_idx , kv_idx] + score", "bias4[b][h][q_idx][kv_idx] + score");
}

Test(mod_parse, names_and_inputs)
{
	struct mod *mod = parse(MOD_MASK, "doc[q_idx] == doc[kv_idx] && q_idx - kv_idx < window");
	struct mod_array name;

	cr_expect_eq(mod_inputs(mod), MOD_ON_Q | MOD_ON_KV);
	cr_expect(mod_uses(mod, "doc"));
	cr_expect_not(mod_uses(mod, "slope"));
	cr_expect(mod_name(mod, 0, &name) && mod_name(mod, 1, &name));
	cr_expect_not(mod_name(mod, 2, &name));
	for (uint32_t i = 0; mod_name(mod, i, &name); i++)
		cr_expect_eq(name.n_dims, strcmp(name.name, "doc") == 0 ? 1 : 0, "%s", name.name);
	mod_destroy(mod);
}

static void
expect_refused(enum mod_kind kind, const char *text, enum paged_status status, const char *expected)
{
	struct paged_error error = { 0 };
	struct mod *mod = NULL;

	cr_expect_eq(mod_parse(kind, text, strlen(text), mod_texts_names, MOD_TEXTS_NAMES, &mod, &error), status,
		     "%.60s", text);
	cr_expect_not_null(strstr(error.text, expected), "%.60s: said %s", text, error.text);
	mod_destroy(mod);
}

Test(mod_parse, errors)
{
	expect_refused(
		MOD_MASK, "kv_idx <= q_indx", PAGED_ERR_INVALID,
		"mod, line 1, column 11: no name 'q_indx'; nearest is 'q_idx'\n  kv_idx <= q_indx\n            ^");
	expect_refused(
		MOD_MASK, "causal &&\n  sliding_windw", PAGED_ERR_INVALID,
		"line 2, column 3: no name 'sliding_windw'; nearest is 'sliding_window'\n    sliding_windw\n    ^");
	expect_refused(MOD_MASK, "(kv_idx <= q_idx", PAGED_ERR_INVALID,
		       "expected ')' or an operator, but the text ends");
	expect_refused(MOD_MASK, "kv_idx <= ", PAGED_ERR_INVALID, "expected a number, a name or '('");
	expect_refused(MOD_MASK, "", PAGED_ERR_INVALID, "but the text ends here");
	expect_refused(MOD_SCORE, "bias[q_idx, kv_idx", PAGED_ERR_INVALID, "expected ',' or ']', but the text ends");
	expect_refused(MOD_SCORE, "bias[q_idx,]", PAGED_ERR_INVALID, "expected a number, a name or '('");
	expect_refused(MOD_SCORE, "score + bias[q_idx, 1, 2]", PAGED_ERR_INVALID, "'bias' has 2 dimensions");
	expect_refused(MOD_MASK, "kv_idx q_idx", PAGED_ERR_INVALID,
		       "column 8: expected an operator or the end, not 'q_idx'");
	expect_refused(MOD_MASK, "kv_idx = q_idx", PAGED_ERR_INVALID, "equality is '=='");
	expect_refused(MOD_MASK, "0 <= kv_idx < 5", PAGED_ERR_INVALID, "comparisons do not chain");
	expect_refused(MOD_MASK, "score > 0", PAGED_ERR_INVALID, "a mask mod has no score");
	expect_refused(MOD_SCORE, "causal", PAGED_ERR_INVALID, "write ... ? score : -inf");
	expect_refused(MOD_MASK, "doc == 3", PAGED_ERR_INVALID, "'doc' has 1 dimension, but 0 indexes");
	expect_refused(MOD_MASK, "window[3]", PAGED_ERR_INVALID, "'window' has 0 dimensions, but 1 index");
	expect_refused(MOD_MASK, "doc[1.5] == 3", PAGED_ERR_INVALID, "an index of 'doc' is a float; write int(...)");
	expect_refused(MOD_MASK, "doc(3)", PAGED_ERR_INVALID, "'doc' is no function");
	expect_refused(MOD_MASK, "h[3]", PAGED_ERR_INVALID, "'h' is no array");
	expect_refused(MOD_SCORE, "tanh", PAGED_ERR_INVALID, "expected '(' behind the function 'tanh'");
	expect_refused(MOD_SCORE, "tanh(score, 1)", PAGED_ERR_INVALID, "'tanh' takes 1 argument, here are more");
	expect_refused(MOD_SCORE, "min(score)", PAGED_ERR_INVALID, "'min' takes 2 arguments, here are fewer");
	expect_refused(MOD_SCORE, "min()", PAGED_ERR_INVALID, "here are fewer");
	expect_refused(MOD_SCORE, "score % 2", PAGED_ERR_INVALID, "'%' takes integers");
	expect_refused(MOD_SCORE, "~score", PAGED_ERR_INVALID, "'~' takes an integer");
	expect_refused(MOD_MASK, "~causal", PAGED_ERR_INVALID, "write '!'");
	expect_refused(MOD_MASK, "kv_idx < 2147483648", PAGED_ERR_INVALID, "larger than any int");
	expect_refused(MOD_MASK, "kv_idx < 99999999999999999999", PAGED_ERR_INVALID, "larger than any int");
	expect_refused(MOD_MASK, "kv_idx < 0x100000000", PAGED_ERR_INVALID, "does not fit 32 bits");
	expect_refused(MOD_SCORE, "1e39", PAGED_ERR_INVALID, "write inf");
	expect_refused(MOD_SCORE, "1.5f", PAGED_ERR_INVALID, "takes no suffix");
	expect_refused(MOD_SCORE, "score $ 1", PAGED_ERR_INVALID, "'$' has no meaning");
	expect_refused(MOD_SCORE, "score \x01", PAGED_ERR_INVALID, "byte 0x01 has no meaning");
	expect_refused(MOD_MASK, "b ? h", PAGED_ERR_INVALID, "expected ':' of the '?'");
	expect_refused(MOD_MASK, "causal(3)", PAGED_ERR_INVALID, "'causal' takes (), here are 1");
	expect_refused(MOD_MASK, "causal_offset", PAGED_ERR_INVALID, "causal_offset: 'offset' has 1 dimension");
}

/* n copies of `open`, `middle`, n copies of `close`. */
static char *
nest(uint32_t n, const char *open, const char *middle, const char *close)
{
	char *text = calloc(n * (strlen(open) + strlen(close)) + strlen(middle) + 1, 1), *at = text;

	for (uint32_t i = 0; i < n; i++)
		at = stpcpy(at, open);
	at = stpcpy(at, middle);
	for (uint32_t i = 0; i < n; i++)
		at = stpcpy(at, close);
	return text;
}

static void
expect_limit(enum mod_kind kind, char *text, const char *expected)
{
	expect_refused(kind, text, PAGED_ERR_LIMIT, expected);
	free(text);
}

Test(mod_parse, limits)
{
	expect_limit(MOD_MASK, nest(5000, " ", "b", ""), "5001 bytes, 4096 at most");
	expect_limit(MOD_MASK, nest(1500, "(", "b", ")"), "nested more than");
	expect_limit(MOD_MASK, nest(4000, "!", "b", ""), "nested more than");
	expect_limit(MOD_SCORE, nest(500, "-", "score", ""), "nested more than");
	expect_limit(MOD_SCORE, nest(1000, "h + ", "score", ""), "nested more than");
	expect_limit(MOD_SCORE, nest(100, "tanh(", "score", ")"), "nested more than");
	expect_limit(MOD_SCORE, nest(40, "soft_cap(soft_cap(", "score", ",1.0),1.0)"), "more than");
	expect_limit(MOD_MASK, nest(1, "an_unusually_long_name_of_a_param", "", ""), "33 characters, 31 at most");
}

/* paged_mods(7) and the errors say the same limits. */
Test(mod_parse, limits_are_those_of_the_manual)
{
	char path[512], line[256], text[32];
	unsigned int bytes = 0, levels = 0, operations = 0, names = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/man/paged_mods.7", getenv("PAGED_SRCDIR") ? getenv("PAGED_SRCDIR") : ".");
	file = fopen(path, "r");
	cr_assert(file != NULL, "%s", path);
	while (names == 0 && fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "A text has at most %u bytes, %u levels of nesting, %u operations and %u names.", &bytes,
		       &levels, &operations, &names);
	fclose(file);
	cr_expect_eq(bytes, MOD_MAX_TEXT);
	cr_expect_eq(levels, MOD_MAX_DEPTH);
	cr_expect_eq(operations, MOD_MAX_NODES);
	cr_expect_eq(names, MOD_MAX_NAMES);
	snprintf(text, sizeof(text), "nested more than %u deep\n", levels);
	expect_limit(MOD_MASK, nest(1500, "(", "b", ")"), text);
	expect_limit(MOD_SCORE, nest(500, "-", "score", ""), text);
	expect_limit(MOD_SCORE, nest(levels, "tanh(", "score", ")"), text);
	mod_destroy(parse(MOD_MASK, nest(levels, "(", "b", ")")));
	mod_destroy(parse(MOD_SCORE, nest(levels - 1, "tanh(", "score", ")")));
}

Test(mod_parse, more_operations_than_allowed)
{
	char text[4096], *at = text;

	for (uint32_t i = 0; i < 300; i++)
		at += sprintf(at, "%s%sh*%u", i > 0 && i % 30 == 0 ? ")^" : "", i % 30 == 0 ? "(" : "|", i + 2);
	strcpy(at, ")");
	expect_refused(MOD_MASK, text, PAGED_ERR_LIMIT, "different operations");
}

/* The program may use a locale with decimal commas. */
Test(mod_parse, locale)
{
	if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL)
		cr_skip("no locale de_DE.UTF-8 here");
	expect_canonical(MOD_SCORE, "score * 0.5", "score * 0.5");
}

Test(mod_parse, bad_names)
{
	static const struct mod_array bad[][2] = {
		{ I32("score", 0), I32("x", 0) }, { I32("tanh", 0), I32("x", 0) },  { I32("not", 0), I32("x", 0) },
		{ I32("1x", 0), I32("x", 0) },    { I32("", 0), I32("x", 0) },      { I32("x", 0), I32("x", 0) },
		{ I32("y", 5), I32("x", 0) },     { { .name = "y" }, I32("x", 0) },
	};

	for (size_t i = 0; i < N(bad); i++) {
		struct paged_error error = { 0 };
		struct mod *mod;

		cr_expect_eq(mod_parse(MOD_MASK, "true", 4, bad[i], 2, &mod, &error), PAGED_ERR_INVALID, "%zu", i);
	}
}

Test(mod_parse, binding)
{
	int32_t window = 5, doc[4] = { 0 };
	const struct mod_array given[] = {
		{ .name = "window", .dtype = MOD_I32, .data = &window },
		{ .name = "doc", .dtype = MOD_I32, .n_dims = 1, .extents = { 4 }, .data = doc },
		{ .name = "doc", .dtype = MOD_F32, .n_dims = 1, .extents = { 4 }, .data = doc },
		{ .name = "doc", .dtype = MOD_I32, .n_dims = 1, .extents = { 4 } },
		{ .name = "doc",
		  .dtype = MOD_I32,
		  .n_dims = 1,
		  .extents = { 4 },
		  .strides = { INT64_MAX },
		  .data = doc },
	};
	struct mod *mod = parse(MOD_MASK, "doc[q_idx] < window");
	struct mod_binding *binding = NULL;
	struct paged_error error = { 0 };

	cr_expect_eq(mod_bind(mod, given, 2, &binding, &error), PAGED_OK);
	mod_binding_destroy(binding);
	cr_expect_eq(mod_bind(mod, given, 1, &binding, &error), PAGED_ERR_NOENT);
	cr_expect_str_eq(error.text, "mod: array 'doc' is not given");
	cr_expect_eq(mod_bind(mod, given, 3, &binding, &error), PAGED_ERR_INVALID);
	cr_expect_str_eq(error.text, "mod: 'doc' is given twice");
	cr_expect_eq(mod_bind(mod, given + 1, 1, &binding, &error), PAGED_ERR_NOENT);
	cr_expect_str_eq(error.text, "mod: parameter 'window' is not given");
	for (uint32_t i = 2; i < N(given); i++) {
		const struct mod_array two[] = { given[0], given[i] };

		cr_expect_eq(mod_bind(mod, two, 2, &binding, &error), i == 4 ? PAGED_ERR_LIMIT : PAGED_ERR_INVALID);
	}
	mod_destroy(mod);
}

/* A binding keeps its values if a rebind fails. */
Test(mod_parse, rebinding)
{
	int32_t low = 5, high = 9, zeros[4] = { 0 }, sevens[2] = { 7, 7 };
	const struct mod_array first[] = { MOD_PARAM("window", MOD_I32, low), MOD_1D("doc", MOD_I32, zeros) };
	const struct mod_array second[] = { MOD_1D("doc", MOD_I32, sevens), MOD_PARAM("window", MOD_I32, high) };
	const struct mod_array wrong[] = { MOD_PARAM("window", MOD_I32, high), MOD_1D("doc", MOD_F32, sevens) };
	struct mod_fixture fixture = mod_fixture_open(MOD_MASK, "doc[q_idx] < window - 2", first, N(first));
	const struct mod_point seen = { .q_idx = 1 }, past = { .q_idx = 2 };
	struct paged_error error = { 0 };
	struct mod_bad_index range = { 0 };

	cr_expect_eq(mod_rebind(fixture.binding, wrong, N(wrong), &error), PAGED_ERR_INVALID);
	cr_expect_eq(mod_rebind(fixture.binding, second, 1, &error), PAGED_ERR_NOENT);
	cr_expect_str_eq(error.text, "mod: parameter 'window' is not given");
	cr_expect_eq(mod_rebind_prepare(fixture.binding, wrong, N(wrong), &error), PAGED_ERR_INVALID);
	cr_expect_eq(mod_rebind_prepare(fixture.binding, second, N(second), &error), PAGED_OK);
	cr_expect(mod_scalar(fixture.binding, &past, &range) == 1 && !range.found);

	cr_expect_eq(mod_rebind(fixture.binding, second, N(second), &error), PAGED_OK);
	cr_expect(mod_scalar(fixture.binding, &seen, &range) == 0 && !range.found);
	cr_expect(mod_scalar(fixture.binding, &past, &range) == 1 && range.found && range.extent == 2);
	mod_fixture_close(&fixture);
}

/* A binding without arrays reads nothing until arrays are bound. */
Test(mod_parse, binding_to_nothing)
{
	int32_t window = 9, sevens[2] = { 7, 7 };
	const struct mod_array arrays[] = { MOD_PARAM("window", MOD_I32, window), MOD_1D("doc", MOD_I32, sevens) };
	struct mod_fixture fixture = mod_fixture_open(MOD_MASK, "doc[q_idx] < window - 2", arrays, N(arrays));
	const struct mod_point point = { .q_idx = 1 };
	struct mod_binding *binding;
	struct paged_error error = { 0 };
	struct mod_bad_index range = { 0 };

	cr_assert_eq(mod_bind_empty(fixture.mod, &binding, &error), PAGED_OK);
	cr_expect(mod_scalar(binding, &point, &range) == 0 && range.found && range.extent == 0);
	range.found = false;
	cr_expect_eq(mod_rebind(binding, arrays, N(arrays), &error), PAGED_OK);
	cr_expect(mod_scalar(binding, &point, &range) == 0 && !range.found);
	window = 10;
	cr_expect_eq(mod_rebind(binding, arrays, N(arrays), &error), PAGED_OK);
	cr_expect_eq(mod_scalar(binding, &point, &range), 1);
	mod_binding_destroy(binding);
	mod_fixture_close(&fixture);
}
