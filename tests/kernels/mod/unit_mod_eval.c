/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of mods: PyTorch's values, corner cases, arrays, indexes out of bounds, accuracy of functions. */
#include <dirent.h>
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/mod_fixture.h"
#include "tests/support/reference.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The parts of a golden .mods file that evaluation at logical positions needs. */
struct golden_mods {
	char mask[256], score[256];
	struct mod_array arrays[8];
	char name[8][32];
	float floats[8][32];
	int32_t ints[8];
	uint32_t n_arrays;
	uint32_t page_size, kv_len[8], row[8][64], n_row[8];
};

static void
read_param(struct golden_mods *golden, const char *line)
{
	uint32_t i = golden->n_arrays++;
	char value[32];
	bool is_float;

	cr_assert_eq(sscanf(line, "param %31s %31s", golden->name[i], value), 2, "%s", line);
	is_float = strpbrk(value, ".ei") != NULL;
	golden->floats[i][0] = strtof(value, NULL);
	golden->ints[i] = (int32_t)strtol(value, NULL, 10);
	golden->arrays[i] = (struct mod_array){ .name = golden->name[i],
						.dtype = is_float ? MOD_F32 : MOD_I32,
						.data = is_float ? (void *)golden->floats[i] : &golden->ints[i] };
}

static void
read_array(struct golden_mods *golden, const char *line)
{
	uint32_t i = golden->n_arrays++, n;
	const char *at = strchr(line, ':') + 1;
	char *end;

	cr_assert_eq(sscanf(line, "array %31s f32 %u :", golden->name[i], &n), 2, "%s", line);
	cr_assert_leq(n, N(golden->floats[i]));
	for (uint32_t j = 0; j < n; j++, at = end)
		golden->floats[i][j] = strtof(at, &end);
	golden->arrays[i] = (struct mod_array){
		.name = golden->name[i], .dtype = MOD_F32, .n_dims = 1, .extents = { n }, .data = golden->floats[i]
	};
}

static uint32_t
read_list(const char *at, uint32_t *values, uint32_t max)
{
	uint32_t n = 0;
	char *end;

	for (;; at = end) {
		uint32_t value = (uint32_t)strtoul(at, &end, 10);

		if (end == at)
			return n;
		cr_assert_lt(n, max);
		values[n++] = value;
	}
}

/* PyTorch's allocator: the free list begins as n - 1 ... 0; the last entries are taken, in list order. */
static void
reserve_pages(struct golden_mods *golden, uint32_t *n_free, uint32_t n_pages, uint32_t b, uint32_t tokens)
{
	uint32_t wanted = (tokens + golden->page_size - 1) / golden->page_size;
	uint32_t need = wanted > golden->n_row[b] ? wanted - golden->n_row[b] : 0;

	cr_assert_leq(need, *n_free);
	*n_free -= need;
	for (uint32_t j = 0; j < need; j++)
		golden->row[b][golden->n_row[b]++] = n_pages - 1 - (*n_free + j);
}

/* The logical position of a physical one; -1: none below kv_len. */
static int32_t
logical(const struct golden_mods *golden, uint32_t b, uint32_t physical)
{
	for (uint32_t i = 0; i < golden->n_row[b]; i++) {
		uint32_t token = i * golden->page_size + physical % golden->page_size;

		if (golden->row[b][i] == physical / golden->page_size && token < golden->kv_len[b])
			return (int32_t)token;
	}
	return -1;
}

static void
check_point(const struct golden_mods *golden, const struct mod_fixture *mask, const struct mod_fixture *score,
	    enum kernel_isa isa, const char *line)
{
	struct mod_point point;
	double got, got_mask;
	uint32_t physical;
	float expected, input;
	int expected_mask;

	cr_assert_eq(sscanf(line, "point %d %d %d %u %f : %d %f", &point.b, &point.h, &point.q_idx, &physical, &input,
			    &expected_mask, &expected),
		     7, "%s", line);
	point.score = (double)input;
	point.kv_idx = logical(golden, (uint32_t)point.b, physical);
	if (point.kv_idx < 0) {
		cr_expect(expected_mask == 0 && expected == -INFINITY, "%s", line);
		return;
	}
	got_mask = mod_scalar(mask->binding, &point, NULL);
	got = mod_scalar(score->binding, &point, NULL);
	cr_expect_eq(got_mask, expected_mask, "%s", line);
	cr_expect_eq(mod_fixture_vm(mask, isa, &point), (float)expected_mask, "%s", line);
	/* Scores have a magnitude of up to about 30 and are rounded a few times. */
	cr_expect(got == (double)expected || fabs(got - (double)expected) < 1e-5, "%s: %g", line, got);
	got = (double)mod_fixture_vm(score, isa, &point);
	cr_expect(got == (double)expected || fabs(got - (double)expected) < 1e-5, "%s: %g", line, got);
}

static uint32_t
check_file(const char *path, enum kernel_isa isa)
{
	struct golden_mods golden = { 0 };
	struct mod_fixture mask = { 0 }, score = { 0 };
	uint32_t n_points = 0, n_pages = 0, n_free = 0, b, tokens;
	FILE *file = fopen(path, "r");
	char line[1024];

	cr_assert_not_null(file, "%s", path);
	while (fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "pool %u %u", &n_pages, &golden.page_size) == 2)
			n_free = n_pages;
		else if (sscanf(line, "reserve %u %u ok", &b, &tokens) == 2)
			reserve_pages(&golden, &n_free, n_pages, b, tokens);
		else if (strncmp(line, "kv_len ", 7) == 0)
			read_list(line + 7, golden.kv_len, N(golden.kv_len));
		else if (strncmp(line, "mask ", 5) == 0)
			strcpy(golden.mask, line + 5);
		else if (strncmp(line, "score ", 6) == 0)
			strcpy(golden.score, line + 6);
		else if (strncmp(line, "param ", 6) == 0)
			read_param(&golden, line);
		else if (strncmp(line, "array ", 6) == 0)
			read_array(&golden, line);
		if (strncmp(line, "point ", 6) != 0)
			continue;
		if (n_points++ == 0) {
			mask = mod_fixture_open(MOD_MASK, golden.mask, golden.arrays, golden.n_arrays);
			score = mod_fixture_open(MOD_SCORE, golden.score, golden.arrays, golden.n_arrays);
		}
		check_point(&golden, &mask, &score, isa, line);
	}
	fclose(file);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
	return n_points;
}

KERNEL_TEST(mod_eval, golden_points)
{
	char folder[4096], path[8192];
	struct dirent *entry;
	uint32_t n_files = 0;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%s/tests/golden/mods", getenv("PAGED_SRCDIR"));
	dir = opendir(folder);
	cr_assert_not_null(dir, "%s", folder);
	while ((entry = readdir(dir)) != NULL) {
		if (strstr(entry->d_name, ".mods") == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		cr_expect_gt(check_file(path, isa), 0, "%s", path);
		n_files++;
	}
	closedir(dir);
	cr_assert_eq(n_files, 12);
}

/* Evaluate a text at b 1, h 2, q_idx 7, kv_idx 5, score 0.5, by mod_scalar() and by the tiles. */
static void
expect_score(enum kernel_isa isa, const char *text, double expected)
{
	static const float f16_free[2] = { 1.5f, -2 };
	static const int32_t least = INT32_MIN, minus = -1, zero = 0;
	static const uint8_t bytes[3] = { 1, 0, 255 };
	static const int32_t doc[4] = { 3, 1, 4, 1 };
	static const uint16_t halves[2] = { 0x3e00, 0xc000 }, brains[2] = { 0x3fc0, 0xc000 };
	static const float nan_value = NAN;
	const struct mod_array arrays[] = {
		MOD_PARAM("least", MOD_I32, least),
		MOD_PARAM("minus", MOD_I32, minus),
		MOD_PARAM("zero", MOD_I32, zero),
		MOD_PARAM("nan", MOD_F32, nan_value),
		MOD_1D("bytes", MOD_U8, bytes),
		MOD_1D("doc", MOD_I32, doc),
		MOD_1D("halves", MOD_F16, halves),
		MOD_1D("brains", MOD_BF16, brains),
		MOD_1D("floats", MOD_F32, f16_free),
		/* doc with a negative stride, and as 2 x 2 */
		{ "back", MOD_I32, 1, { 4 }, { -4 }, doc + 3 },
		{ "square", MOD_I32, 2, { 2, 2 }, { 0 }, doc },
		{ "none", MOD_I32, 1, { 0 }, { 0 }, NULL },
	};
	const struct mod_point point = { 0.5, 1, 2, 7, 5 };
	struct mod_fixture fixture = mod_fixture_open(MOD_SCORE, text, arrays, N(arrays));
	double scalar = mod_scalar(fixture.binding, &point, NULL), tile = (double)mod_fixture_vm(&fixture, isa, &point);

	cr_expect(scalar == expected || (isnan(scalar) && isnan(expected)), "%s: %g, not %g", text, scalar, expected);
	cr_expect(tile == expected || (isnan(tile) && isnan(expected)), "%s: %g, not %g", text, tile, expected);
	mod_fixture_close(&fixture);
}

KERNEL_TEST(mod_eval, integers)
{
	expect_score(isa, "-7 / 2", -4);
	expect_score(isa, "7 / -2", -4);
	expect_score(isa, "-7 / -2", 3);
	expect_score(isa, "-8 / 2", -4);
	expect_score(isa, "-7 % 3", 2);
	expect_score(isa, "7 % -3", -2);
	expect_score(isa, "-6 % 3", 0);
	expect_score(isa, "b / zero", 0);
	expect_score(isa, "b % zero", 0);
	expect_score(isa, "least / minus", INT32_MIN);
	expect_score(isa, "least % minus", 0);
	expect_score(isa, "least / least", 1);
	expect_score(isa, "(least + 1) / least", 0);
	expect_score(isa, "2147483647 / least", -1);
	expect_score(isa, "2147483647 % least", -1);
	expect_score(isa, "least / 2147483647", -2);
	expect_score(isa, "least % 2147483647 - 2147483640", 6);
	expect_score(isa, "2147483647 + b", INT32_MIN);
	expect_score(isa, "-least", INT32_MIN);
	expect_score(isa, "abs(least)", INT32_MIN);
	expect_score(isa, "65536 * 65536 + 5", 5);
	expect_score(isa, "1 << 33", 2);
	expect_score(isa, "1 << -1", INT32_MIN);
	expect_score(isa, "-8 >> 33", -4);
	expect_score(isa, "(6 & 3) + (6 | 3) * 10 + (6 ^ 3) * 100", 572);
	expect_score(isa, "~q_idx", -8);
	expect_score(isa, "(q_idx > 3) + (kv_idx > 100) + true", 2);
	expect_score(isa, "min(3, -5) + max(2, 9) + clamp(15, 0, 7)", 11);
	expect_score(isa, "2 + 3 * 4 - 10 / 2 % 3", 12);
	expect_score(isa, "1 < 2 == true ? 5 : 6", 5);
}

KERNEL_TEST(mod_eval, floats)
{
	expect_score(isa, "float(7) / 2", 3.5);
	expect_score(isa, "score / 0", INFINITY);
	expect_score(isa, "inf - inf", NAN);
	expect_score(isa, "min(nan, score)", NAN);
	expect_score(isa, "max(score, nan)", NAN);
	expect_score(isa, "clamp(nan, 0, 1)", NAN);
	expect_score(isa, "nan < 1 || nan >= 1 || nan == nan ? 1 : 0", 0);
	expect_score(isa, "nan != nan ? 1 : 0", 1);
	expect_score(isa, "nan ? 1 : 0", 1);
	expect_score(isa, "int(nan)", 0);
	expect_score(isa, "int(inf) - 2147483640", 7);
	expect_score(isa, "int(-1e20)", INT32_MIN);
	expect_score(isa, "int(-2.9)", -2);
	expect_score(isa, "floor(-2.1)", -3);
	expect_score(isa, "floor(2.9)", 2);
	expect_score(isa, "floor(1e20)", (double)1e20f);
	expect_score(isa, "1 / floor(-0.0)", -INFINITY);
	expect_score(isa, "floor(-inf)", -INFINITY);
	expect_score(isa, "sqrt(6.25)", 2.5);
	expect_score(isa, "sqrt(-1)", NAN);
	expect_score(isa, "log(0)", -INFINITY);
	expect_score(isa, "log(-1)", NAN);
	expect_score(isa, "log(inf)", INFINITY);
	expect_score(isa, "exp(-inf) + exp(inf)", INFINITY);
	expect_score(isa, "tanh(inf) - tanh(-inf)", 2);
	expect_score(isa, "sin(inf)", NAN);
	expect_score(isa, "cos(0) + exp2(3)", 9);
	expect_score(isa, "sigmoid(0) + sigmoid(-inf) + sigmoid(inf)", 1.5);
	expect_score(isa, "exp(nan) + 1", NAN);
	expect_score(isa, "tanh(nan)", NAN);
}

KERNEL_TEST(mod_eval, arrays)
{
	expect_score(isa, "bytes[2] + doc[0]", 258);
	expect_score(isa, "halves[0] + brains[1] + floats[0]", 1);
	expect_score(isa, "back[0] + 10 * back[3]", 31);
	expect_score(isa, "square[1][0] * 10 + square[b][b]", 41);
	expect_score(isa, "doc[4]", 0);
	expect_score(isa, "doc[-1]", 0);
	expect_score(isa, "none[0]", 0);
	expect_score(isa, "square[0][2]", 0);
	expect_score(isa, "floats[doc[0]]", 0);
}

static void
expect_bad_index(enum kernel_isa isa, const char *text, const char *expected)
{
	static const int32_t doc[4] = { 3, 1, 4, 1 };
	const struct mod_array arrays[] = { MOD_1D("doc", MOD_I32, doc),
					    { "square", MOD_I32, 2, { 2, 2 }, { 0 }, doc } };
	const struct mod_point point = { 0, 1, 2, 7, 5 };
	struct mod_fixture fixture = mod_fixture_open(MOD_MASK, text, arrays, N(arrays));
	struct paged_error scalar = { 0 }, tile = { 0 };
	struct mod_bad_index range = { 0 };
	struct mod_vm *vm;
	uint64_t bits;

	mod_scalar(fixture.binding, &point, &range);
	mod_bad_index_fail(fixture.mod, &range, &scalar);
	cr_assert_eq(mod_vm_create(fixture.mod, isa, &vm, &tile), PAGED_OK);
	mod_vm_bind(vm, fixture.binding);
	mod_vm_set_q_rows(vm, point.b, &point.h, &point.q_idx, 1);
	mod_vm_mask(vm, point.kv_idx, 1, NULL, &bits);
	mod_bad_index_fail(fixture.mod, mod_vm_bad_index(vm), &tile);
	mod_vm_destroy(vm);
	cr_expect_str_eq(scalar.text, expected, "%s", text);
	cr_expect_str_eq(tile.text, expected, "%s", text);
	mod_fixture_close(&fixture);
}

KERNEL_TEST(mod_eval, indexes_out_of_bounds)
{
	expect_bad_index(isa, "doc[3]", "");
	expect_bad_index(isa, "doc[kv_idx]", "mod: array 'doc', index 0 is 5, bounds are 0 to 3");
	expect_bad_index(isa, "square[1][b - 2]", "mod: array 'square', index 1 is -1, bounds are 0 to 1");
	expect_bad_index(isa, "q_idx < kv_idx && doc[kv_idx]", "");
	expect_bad_index(isa, "kv_idx < q_idx || doc[kv_idx]", "");
	expect_bad_index(isa, "kv_idx < q_idx ? doc[1] : doc[q_idx]", "");
	expect_bad_index(isa, "(q_idx < kv_idx ? doc[q_idx] : h < 100 && (b || doc[-5]))", "");
	expect_bad_index(isa, "sliding_window(doc[kv_idx])", "mod: array 'doc', index 0 is 5, bounds are 0 to 3");
	expect_bad_index(isa, "q_idx < kv_idx && sliding_window(doc[kv_idx])", "");
	expect_bad_index(isa, "doc[b] && doc[kv_idx]", "mod: array 'doc', index 0 is 5, bounds are 0 to 3");
}

/* The largest error of a function, in ulp. */
static double
max_ulp_error(enum kernel_isa isa, const char *text, double (*exact)(double), float low, float high)
{
	struct mod_fixture fixture = mod_fixture_open(MOD_SCORE, text, NULL, 0);
	struct paged_error error;
	struct mod_vm *vm;
	float x[MOD_TILE_KEYS], y[MOD_TILE_KEYS];
	const int32_t zero = 0;
	double max_error = 0;

	cr_assert_eq(mod_vm_create(fixture.mod, isa, &vm, &error), PAGED_OK);
	mod_vm_bind(vm, fixture.binding);
	mod_vm_set_q_rows(vm, 0, &zero, &zero, 1);
	for (uint32_t round = 0; round < 1500; round++) {
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i++)
			x[i] = low + (high - low) * (0.5f + 0.5f * random_float(round, i, 1));
		memcpy(y, x, sizeof(y));
		mod_vm_score(vm, 0, MOD_TILE_KEYS, NULL, y, MOD_TILE_KEYS);
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
			double expected = exact((double)x[i]), unit = ldexp(1, ilogb(expected) - 23);

			if (unit < 0x1p-149 || expected == 0)
				unit = 0x1p-149;
			max_error = fmax(max_error, fabs((double)y[i] - expected) / unit);
		}
	}
	mod_vm_destroy(vm);
	mod_fixture_close(&fixture);
	return max_error;
}

static double
sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* The accuracy that mod.h states. */
KERNEL_TEST(mod_eval, accuracy)
{
	static const struct {
		const char *text;
		double (*exact)(double);
		float low, high;
		double units;
	} cases[] = {
		{ "exp(score)", exp, -103, 88.7f, 3 },    { "exp(score)", exp, -1, 1, 3 },
		{ "exp2(score)", exp2, -148, 127.9f, 3 }, { "exp2(score)", exp2, -1, 1, 3 },
		{ "log(score)", log, 1e-40f, 2e-38f, 3 }, { "log(score)", log, 1e-3f, 3, 3 },
		{ "log(score)", log, 1, 1e30f, 3 },       { "tanh(score)", tanh, -1, 1, 4 },
		{ "tanh(score)", tanh, -30, 30, 4 },      { "tanh(score)", tanh, -0.1f, 0.1f, 4 },
		{ "tanh(score)", tanh, 8, 10, 4 },        { "sigmoid(score)", sigmoid, -86, 30, 3 },
		{ "sin(score)", sin, -10, 10, 4 },        { "sin(score)", sin, -5e5f, 5e5f, 4 },
		{ "sin(score)", sin, 1e6f, 1e9f, 4 },     { "cos(score)", cos, -10, 10, 4 },
		{ "cos(score)", cos, -5e5f, 5e5f, 4 },    { "tan(score)", tan, -10, 10, 8 },
		{ "tan(score)", tan, -5e5f, 5e5f, 8 },
	};

	for (size_t i = 0; i < N(cases); i++) {
		double max_error = max_ulp_error(isa, cases[i].text, cases[i].exact, cases[i].low, cases[i].high);

		cr_expect_leq(max_error, cases[i].units, "%s in [%g, %g]: %g units", cases[i].text,
			      (double)cases[i].low, (double)cases[i].high, max_error);
	}
}

/* The scores of a tile that begins at key 40. */
static void
scores_of(enum kernel_isa isa, const char *text, uint32_t n_q_rows, uint32_t n_keys, float scores[][MOD_TILE_KEYS])
{
	static const float bias[128] = { [41] = 3.5f, [70] = -1e30f, [90] = 0x1p-130f };
	const struct mod_array array = MOD_1D("bias", MOD_F32, bias);
	struct mod_fixture fixture = mod_fixture_open(MOD_SCORE, text, &array, 1);
	int32_t h[MOD_TILE_Q_ROWS], q_idx[MOD_TILE_Q_ROWS];
	struct paged_error error;
	struct mod_vm *vm;

	for (uint32_t i = 0; i < MOD_TILE_Q_ROWS; i++) {
		h[i] = (int32_t)(i % 4);
		q_idx[i] = (int32_t)(60 + i / 4);
		for (uint32_t j = 0; j < MOD_TILE_KEYS; j++)
			scores[i][j] = 40 * random_float(i, j, 5);
	}
	cr_assert_eq(mod_vm_create(fixture.mod, isa, &vm, &error), PAGED_OK);
	mod_vm_bind(vm, fixture.binding);
	mod_vm_set_q_rows(vm, 0, h, q_idx, n_q_rows);
	mod_vm_score(vm, 40, n_keys, NULL, scores[0], MOD_TILE_KEYS);
	mod_vm_destroy(vm);
	mod_fixture_close(&fixture);
}

/* A value that is used twice is stored between operations; other operations are fused. The bits are the same. */
KERNEL_TEST(mod_eval, q_rows_together_equal_single_ones)
{
#define TWICE(text) "max(" text ", " text ")"
	static const char *const texts[][2] = {
		{ "score + 0.3 * h * (kv_idx - q_idx)", "score + " TWICE("0.3 * h * (kv_idx - q_idx)") },
		{ "(q_idx - kv_idx) * exp2(-h) + score", TWICE("(q_idx - kv_idx) * exp2(-h)") " + score" },
		{ "score - 0.7 * (q_idx - kv_idx)", "score - " TWICE("0.7 * (q_idx - kv_idx)") },
		{ "score + (q_idx - kv_idx)", "score + " TWICE("float(q_idx - kv_idx)") },
		{ "score + (q_idx - kv_idx) % 3", "score + " TWICE("float((q_idx - kv_idx) % 3)") },
		{ "score - 0.7 * ((q_idx - kv_idx) % 7)", "score - " TWICE("0.7 * ((q_idx - kv_idx) % 7)") },
		{ "score + 1.1 * h * bias[kv_idx]", "score + " TWICE("1.1 * h * bias[kv_idx]") },
		{ "score + 1.7 * score", "score + " TWICE("1.7 * score") },
		{ "1.1 * score - 1.7 * score", TWICE("1.1 * score") " - " TWICE("1.7 * score") },
		{ "7.0 * tanh(score / 7.0)", "7.0 * " TWICE("tanh(" TWICE("score / 7.0") ")") },
		{ "tanh(score * (h + 0.1)) * h", TWICE("tanh(" TWICE("score * (h + 0.1)") ")") " * h" },
		{ "sigmoid(score / 3.0)", "sigmoid(" TWICE("score / 3.0") ")" },
		{ "0.3 * exp(score)", "0.3 * " TWICE("exp(score)") },
		{ "score + 3.0 * exp2(score * 0.1)", "score + 3.0 * " TWICE("exp2(" TWICE("score * 0.1") ")") },
		{ "5.0 * tanh((score + 0.1 * (kv_idx - q_idx)) / 5.0) - score * h",
		  "5.0 * tanh(" TWICE("(score + " TWICE("0.1 * (kv_idx - q_idx)") ") / 5.0") ") - " TWICE(
			  "score * h") },
	};
	static const uint32_t sizes[][2] = { { 64, 64 }, { 37, 64 }, { 4, 64 }, { 1, 23 }, { 64, 37 } };
	static float joined[MOD_TILE_Q_ROWS][MOD_TILE_KEYS], separate[MOD_TILE_Q_ROWS][MOD_TILE_KEYS];

	for (size_t i = 0; i < N(texts); i++)
		for (size_t s = 0; s < N(sizes); s++) {
			scores_of(isa, texts[i][0], sizes[s][0], sizes[s][1], joined);
			scores_of(isa, texts[i][1], sizes[s][0], sizes[s][1], separate);
			cr_expect_arr_eq(joined, separate, sizeof(joined), "%s, %u q_rows, %u keys", texts[i][0],
					 sizes[s][0], sizes[s][1]);
		}
}

/*
 * Quotients near integers, where the reciprocals of the tiles may be wrong:
 * divisors from an array, and a constant.
 */
KERNEL_TEST(mod_eval, division)
{
	static int32_t x[MOD_TILE_KEYS], y[MOD_TILE_KEYS], divisor;
	const struct mod_array arrays[] = { MOD_1D("x", MOD_I32, x), MOD_1D("y", MOD_I32, y),
					    MOD_PARAM("d", MOD_I32, divisor) };
	static const char *const texts[] = { "x[kv_idx] / y[kv_idx] == q_idx", "x[kv_idx] % y[kv_idx] == q_idx",
					     "x[kv_idx] / d == q_idx", "x[kv_idx] % d == q_idx" };

	for (uint32_t round = 0; round < 400; round++) {
		const char *text = texts[round % 4];
		int64_t b = (int32_t)random_bits(1, round) >> (round / 4 % 31);
		int64_t whole = (int32_t)random_bits(2, round) >> (round / 4 % 29);
		struct mod_fixture fixture;
		struct paged_error error;
		struct mod_vm *vm;

		for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
			y[i] = divisor = (int32_t)b;
			x[i] = (int32_t)((b != 0 ? whole / b - i / 3 : 5) * b + (int64_t)(i % 3) - 1);
		}
		fixture = mod_fixture_open(MOD_MASK, text, arrays, N(arrays));
		cr_assert_eq(mod_vm_create(fixture.mod, isa, &vm, &error), PAGED_OK);
		mod_vm_bind(vm, fixture.binding);
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
			int64_t rest = b != 0 ? (x[i] % b + b) % b : 0, quotient = b != 0 ? (x[i] - rest) / b : 0;
			int32_t zero = 0, expected = (int32_t)(strchr(text, '%') != NULL ? rest : quotient);
			uint64_t bits;

			mod_vm_set_q_rows(vm, 0, &zero, &expected, 1);
			mod_vm_mask(vm, 0, MOD_TILE_KEYS, NULL, &bits);
			cr_expect(bits >> i & 1, "%s: %d, %lld, %d", text, x[i], (long long)b, expected);
		}
		mod_vm_destroy(vm);
		mod_fixture_close(&fixture);
	}
}
