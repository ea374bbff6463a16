/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mod's source, compiled for the host. Random mods, the texts of mod_texts.h and
 * the builtin mods: bit-identical to the tiles if no function of the C library is
 * called, else within the accuracy of mod_scalar(). Indexes out of bounds are
 * reported where mod_scalar() reports them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval_bounds.h"
#include "kernels/mod/cuda_source.h"
#include "tests/support/kernel_test.h"
#include "tests/kernels/mod/mod_compiled.h"
#include "tests/support/mod_generator.h"
#include "tests/support/mod_texts.h"

#define N_RANDOM 120u

static uint64_t seed; /* of the subject */

static void
start(uint64_t of)
{
	seed = of;
	generator_seed(of);
}

struct tile {
	int32_t b, h[MOD_TILE_Q_ROWS], q_idx[MOD_TILE_Q_ROWS], kv_idx;
	uint32_t n_q_rows, n_keys;
	float scores[MOD_TILE_Q_ROWS][MOD_TILE_KEYS];
};

static struct tile
random_tile(void)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, -0.0f, 1e-40f, 3e38f };
	struct tile tile = { .b = (int32_t)generator_pick(3),
			     .n_q_rows = 1 + generator_pick(MOD_TILE_Q_ROWS),
			     .n_keys = 1 + generator_pick(MOD_TILE_KEYS) };

	tile.kv_idx = generator_pick(8) == 0 ? INT32_MAX - 70 : (int32_t)generator_pick(40);
	for (uint32_t i = 0; i < tile.n_q_rows; i++) {
		tile.h[i] = (int32_t)generator_pick(4);
		tile.q_idx[i] = (int32_t)generator_pick(60);
		for (uint32_t j = 0; j < tile.n_keys; j++)
			tile.scores[i][j] = generator_pick(50) == 0 ? odd[generator_pick(6)] : generator_float(4);
	}
	return tile;
}

/* A compiled function with the mod that it must agree with. */
struct compiled_mod {
	struct mod_fixture fixture;
	struct mod_interval *interval;
	mod_compiled_fn call;
	struct cuda_mod_args args;
	struct cuda_mod_range range;
	bool exact;   /* only integer operations */
	bool bitwise; /* bit-identical to the tiles: every float operation is rounded correctly */
};

static bool
is_bitwise(const struct mod *mod)
{
	for (uint32_t i = 0; i < mod->n_nodes; i++)
		if (mod->nodes[i].op >= MOD_OP_EXP && mod->nodes[i].op <= MOD_OP_SIGMOID)
			return false;
	return true;
}

static void
compiled_mod_open(struct compiled_mod *compiled_mod, struct mod_fixture fixture, mod_compiled_fn call)
{
	struct paged_error error;

	*compiled_mod = (struct compiled_mod){ .fixture = fixture,
					       .interval = mod_fixture_interval(&fixture, KERNEL_GENERIC),
					       .call = call,
					       .exact = mod_is_exact(fixture.mod),
					       .bitwise = is_bitwise(fixture.mod) };
	cr_assert_eq(mod_cuda_args(fixture.binding, &compiled_mod->args, &error), PAGED_OK, "%s", error.text);
	compiled_mod->args.range = (uintptr_t)&compiled_mod->range;
}

/* A mask's results are 0 and 1. */
static bool
tile_run(const struct compiled_mod *compiled_mod, const struct tile *tile,
	 float results[MOD_TILE_Q_ROWS][MOD_TILE_KEYS])
{
	struct paged_error error = { 0 };
	uint64_t bits[MOD_TILE_Q_ROWS];
	struct mod_vm *vm;
	bool found;

	cr_assert_eq(mod_vm_create(compiled_mod->fixture.mod, KERNEL_GENERIC, &vm, &error), PAGED_OK, "%s", error.text);
	mod_vm_bind(vm, compiled_mod->fixture.binding);
	mod_vm_set_q_rows(vm, tile->b, tile->h, tile->q_idx, tile->n_q_rows);
	memcpy(results, tile->scores, sizeof(tile->scores));
	if (mod_kind(compiled_mod->fixture.mod) == MOD_SCORE)
		mod_vm_score(vm, tile->kv_idx, tile->n_keys, NULL, results[0], MOD_TILE_KEYS);
	else
		mod_vm_mask(vm, tile->kv_idx, tile->n_keys, NULL, bits);
	for (uint32_t at = 0; mod_kind(compiled_mod->fixture.mod) == MOD_MASK && at < tile->n_q_rows * MOD_TILE_KEYS;
	     at++)
		results[at / MOD_TILE_KEYS][at % MOD_TILE_KEYS] =
			(float)(bits[at / MOD_TILE_KEYS] >> at % MOD_TILE_KEYS & 1);
	found = mod_vm_bad_index(vm)->found;
	mod_vm_destroy(vm);
	return found;
}

/* Bounds of -inf to inf include NaN. */
static bool
is_within(double x, const double *bounds)
{
	return isnan(x) ? bounds[0] == -INFINITY && bounds[1] == INFINITY : x >= bounds[0] && x <= bounds[1];
}

static void
value_check(const struct compiled_mod *compiled_mod, const struct mod_point *point, float value, float tile)
{
	const struct mod_box box = mod_point_box(point);
	const double score[2] = { point->score, point->score };
	double bounds[2];

	mod_interval_bounds(compiled_mod->interval, &box, score, bounds);
	cr_assert(is_within((double)value, bounds) &&
			  (!compiled_mod->bitwise || memcmp(&value, &tile, sizeof(value)) == 0 ||
			   (isnan(value) && isnan(tile))),
		  "seed %llu: %s\nb %d h %d q_idx %d kv_idx %d score %.9g: %.9g, tile %.9g in [%.17g, %.17g]",
		  (unsigned long long)seed, mod_text(compiled_mod->fixture.mod), point->b, point->h, point->q_idx,
		  point->kv_idx, point->score, (double)value, (double)tile, bounds[0], bounds[1]);
}

/* Compare the record of one point with mod_scalar()'s, and clear it. */
static bool
bad_index_check_and_clear(struct compiled_mod *compiled_mod, const struct mod_point *point)
{
	struct mod_bad_index expected = { 0 }, got;
	enum mod_kind kind;

	mod_scalar(compiled_mod->fixture.binding, point, &expected);
	got = mod_cuda_bad_index(&compiled_mod->range, &kind);
	memset(&compiled_mod->range, 0, sizeof(compiled_mod->range));
	cr_assert(!compiled_mod->exact || got.found == expected.found, "seed %llu: %s", (unsigned long long)seed,
		  mod_text(compiled_mod->fixture.mod));
	if (!got.found)
		return false;
	cr_assert_eq(kind, mod_kind(compiled_mod->fixture.mod));
	cr_assert_eq(got.extent, compiled_mod->args.names[kind][got.array].extents[got.dim]);
	cr_assert(got.index < 0 || (uint32_t)got.index >= got.extent);
	return true;
}

static void
compiled_mod_check(struct compiled_mod *compiled_mod)
{
	static float results[MOD_TILE_Q_ROWS][MOD_TILE_KEYS];
	struct tile tile = random_tile();
	bool expected, found = false;

	expected = tile_run(compiled_mod, &tile, results);
	for (uint32_t at = 0; at < tile.n_q_rows * tile.n_keys; at++) {
		uint32_t i = at / tile.n_keys, j = at % tile.n_keys;
		const struct mod_point point = { (double)tile.scores[i][j], tile.b, tile.h[i], tile.q_idx[i],
						 (int32_t)((uint32_t)tile.kv_idx + j) };
		float value = compiled_mod->call(tile.scores[i][j], point.b, point.h, point.q_idx, point.kv_idx,
						 &compiled_mod->args);

		value_check(compiled_mod, &point, value, results[i][j]);
		found |= bad_index_check_and_clear(compiled_mod, &point);
	}
	cr_assert(!compiled_mod->bitwise || found == expected, "seed %llu: %s", (unsigned long long)seed,
		  mod_text(compiled_mod->fixture.mod));
}

static void
random_mods(enum mod_kind kind, struct generator_text (*make)(enum mod_kind kind))
{
	uint64_t base = test_seed();
	struct mod_compiled compiled;

	mod_compiled_begin(&compiled);
	for (uint32_t i = 0; i < N_RANDOM; i++) {
		struct generator_text text;
		struct mod_fixture fixture;

		start(base + i);
		fixture = generator_mod(kind, make, &text);
		mod_compiled_add(&compiled, fixture.mod);
		mod_fixture_close(&fixture);
	}
	mod_compiled_make(&compiled);
	for (uint32_t i = 0; i < N_RANDOM; i++) {
		struct generator_text text;
		struct compiled_mod compiled_mod;

		start(base + i);
		compiled_mod_open(&compiled_mod, generator_mod(kind, make, &text), mod_compiled_get(&compiled, i));
		compiled_mod_check(&compiled_mod);
		mod_interval_destroy(compiled_mod.interval);
		mod_fixture_close(&compiled_mod.fixture);
	}
	mod_compiled_close(&compiled);
}

Test(mod_source, random_masks)
{
	random_mods(MOD_MASK, generator_expression);
}

Test(mod_source, random_comparisons)
{
	random_mods(MOD_MASK, generator_comparisons);
}

Test(mod_source, random_scores)
{
	random_mods(MOD_SCORE, generator_expression);
}

#define TEXTS_ELEMENTS 4096u

/* Random values for the names of the texts; the arrays are small enough that some indexes are out of bounds. */
static void
texts_bind(struct mod_array *to, const struct mod_array *names, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		union {
			float f32[TEXTS_ELEMENTS];
			int32_t i32[TEXTS_ELEMENTS];
			uint16_t halves[TEXTS_ELEMENTS];
			uint8_t u8[TEXTS_ELEMENTS];
		} *data = calloc(1, sizeof(*data));

		cr_assert_not_null(data);
		to[i] = names[i];
		to[i].data = data;
		for (uint32_t d = 0; d < to[i].n_dims; d++)
			to[i].extents[d] = to[i].n_dims == 1 ? 64 : 8;
		for (uint32_t j = 0; j < TEXTS_ELEMENTS; j++) {
			if (to[i].dtype == MOD_F32)
				data->f32[j] = generator_float(2);
			else if (to[i].dtype == MOD_I32)
				data->i32[j] = 1 + (int32_t)generator_pick(7);
			else if (to[i].dtype == MOD_U8)
				data->u8[j] = (uint8_t)generator_pick(3);
			else
				data->halves[j] = (uint16_t)generator_pick(0x10000);
		}
	}
}

static void
texts_free(const struct mod_array *arrays, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		free((void *)(uintptr_t)arrays[i].data);
}

/* One of all texts: its kind and the names that it is parsed with. */
struct listed_text {
	const char *text;
	enum mod_kind kind;
	const struct mod_array *arrays;
	uint32_t n_arrays;
};

static struct listed_text
listed_text_at(uint32_t number, const struct mod_array *arrays, const struct mod_array *scalars)
{
	const struct mod_builtin *named;
	uint32_t i;

	for (i = 0; mod_texts_masks[i] != NULL; i++)
		if (i == number)
			return (struct listed_text){ mod_texts_masks[i], MOD_MASK, arrays, MOD_TEXTS_NAMES };
	number -= i;
	for (i = 0; mod_texts_scores[i] != NULL; i++)
		if (i == number)
			return (struct listed_text){ mod_texts_scores[i], MOD_SCORE, arrays, MOD_TEXTS_NAMES };
	named = mod_builtin(number - i);
	if (named == NULL)
		return (struct listed_text){ .text = NULL };
	return (struct listed_text){ named->name, strstr(named->text, "score") != NULL ? MOD_SCORE : MOD_MASK, scalars,
				     MOD_TEXTS_SCALARS };
}

static struct mod_fixture
listed_text_open(const struct listed_text *listed_text)
{
	return mod_fixture_open(listed_text->kind, listed_text->text, listed_text->arrays, listed_text->n_arrays);
}

Test(mod_source, texts_and_builtin_mods)
{
	struct mod_array arrays[MOD_TEXTS_NAMES], scalars[MOD_TEXTS_SCALARS];
	struct mod_compiled compiled;
	struct mod_fixture fixture;
	struct compiled_mod compiled_mod;
	struct listed_text listed_text;

	start(test_seed());
	texts_bind(arrays, mod_texts_names, MOD_TEXTS_NAMES);
	texts_bind(scalars, mod_texts_scalars, MOD_TEXTS_SCALARS);
	mod_compiled_begin(&compiled);
	for (uint32_t i = 0; (listed_text = listed_text_at(i, arrays, scalars)).text != NULL; i++) {
		fixture = listed_text_open(&listed_text);
		mod_compiled_add(&compiled, fixture.mod);
		mod_fixture_close(&fixture);
	}
	mod_compiled_make(&compiled);
	for (uint32_t i = 0; (listed_text = listed_text_at(i, arrays, scalars)).text != NULL; i++) {
		compiled_mod_open(&compiled_mod, listed_text_open(&listed_text), mod_compiled_get(&compiled, i));
		for (uint32_t round = 0; round < 4; round++)
			compiled_mod_check(&compiled_mod);
		mod_interval_destroy(compiled_mod.interval);
		mod_fixture_close(&compiled_mod.fixture);
	}
	cr_assert_gt(compiled.n, 100);
	mod_compiled_close(&compiled);
	texts_free(arrays, MOD_TEXTS_NAMES);
	texts_free(scalars, MOD_TEXTS_SCALARS);
}

/* The exact source, as an example. */
Test(mod_source, expected_text)
{
	static const int32_t doc[4];
	static const int32_t window = 3;
	const struct mod_array arrays[] = { MOD_1D("doc", MOD_I32, doc), MOD_PARAM("window", MOD_I32, window) };
	struct mod_fixture mask = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx && doc[kv_idx] != window", arrays, 2);
	struct mod_fixture score = mod_fixture_open(MOD_SCORE, "30.0 * tanh(score / 30.0)", NULL, 0);
	struct paged_error error;
	char *text;

	cr_assert_eq(mod_cuda_source("attention_mod", mask.mod, score.mod, &text, &error), PAGED_OK);
	cr_expect_str_eq(text, "#include \"kernels/cuda/device/mod_device.h\"\n"
			       "\n"
			       "struct attention_mod {\n"
			       "\tstatic constexpr bool has_score = true, has_mask = true;\n"
			       "\n"
			       "\tATTENTION_MOD_FUNCTION float score(float score, int32_t, int32_t, int32_t, int32_t, "
			       "const void *)\n"
			       "\t{\n"
			       "\t\tconst float v2 = mod_div(score, mod_float(0x41f00000u));\n"
			       "\t\tconst float v3 = mod_tanh(v2);\n"
			       "\t\tconst float v4 = mod_mul(mod_float(0x41f00000u), v3);\n"
			       "\t\treturn v4;\n"
			       "\t}\n"
			       "\n"
			       "\tATTENTION_MOD_FUNCTION bool mask(int32_t, int32_t, int32_t q_idx, int32_t kv_idx, "
			       "const void *at)\n"
			       "\t{\n"
			       "\t\tconst cuda_mod_args *args = static_cast<const cuda_mod_args *>(at);\n"
			       "\t\tconst cuda_mod_name *names = args->names[0];\n"
			       "\t\tconst bool v2 = kv_idx <= q_idx;\n"
			       "\t\tconst int32_t v3 = v2 ? mod_load_i32(args, names + 0, kv_idx) : 0;\n"
			       "\t\tconst int32_t v4 = mod_param_int(names + 1);\n"
			       "\t\tconst bool v5 = v3 != v4;\n"
			       "\t\tconst bool v6 = v2 && v5;\n"
			       "\t\treturn v6;\n"
			       "\t}\n"
			       "};\n");
	free(text);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

static void
expect_refused_array(const struct mod_array *array, const char *expected)
{
	struct mod_fixture fixture = mod_fixture_open(MOD_MASK, "doc[q_idx] == doc[kv_idx]", array, 1);
	struct paged_error error = { 0 };
	struct cuda_mod_args args;

	cr_expect_eq(mod_cuda_args(fixture.binding, &args, &error), PAGED_ERR_INVALID);
	cr_expect_not_null(strstr(error.text, expected), "%s", error.text);
	mod_fixture_close(&fixture);
}

/* A GPU loads 4 bytes only from addresses that are multiples of 4. */
Test(mod_source, refuses_unaligned_arrays)
{
	static const int32_t doc[4];
	struct mod_array array = { "doc", MOD_I32, 1, { 2 }, { 6 }, doc };

	expect_refused_array(&array, "mod: array 'doc': stride 0 is 6 bytes, its elements have 4");
	array = (struct mod_array){ "doc", MOD_I32, 1, { 2 }, { 0 }, (const char *)doc + 2 };
	expect_refused_array(&array, "is not aligned to its elements of 4 bytes");
}
