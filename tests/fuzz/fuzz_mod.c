/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mod texts.  A text that parses must have a canonical text that parses to itself,
 * and every evaluator must handle it: unusual inputs, out-of-bounds indexes,
 * extreme numbers.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/mod.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "mod";
const unsigned int fuzz_mutations = 2000;

static const int32_t doc[5] = { 0, 1, INT32_MIN, INT32_MAX, -1 };
static const float slope[2][3] = { { 0.5f, NAN, 3e38f }, { -INFINITY, 0, 1e-40f } };
static const uint8_t flags[3] = { 0, 1, 255 };
static const int32_t window = -1;
static const float cap = 2.5f;

static const struct mod_array arrays[] = {
	{ "doc", MOD_I32, 1, { 5 }, { 0 }, doc },    { "slope", MOD_F32, 2, { 2, 3 }, { 0 }, slope },
	{ "flags", MOD_U8, 1, { 3 }, { 0 }, flags }, { "window", MOD_I32, 0, { 0 }, { 0 }, &window },
	{ "cap", MOD_F32, 0, { 0 }, { 0 }, &cap },
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void
fuzz_evaluate_tile(const struct mod *mod, const struct mod_binding *binding)
{
	const int32_t h[3] = { 0, 1, INT32_MAX }, q_idx[3] = { 3, INT32_MIN, 70 };
	float scores[3][MOD_TILE_KEYS] = { { NAN, INFINITY, -1, 1e30f } };
	uint64_t bits[3];
	struct paged_error error = { 0 };
	struct mod_vm *vm;

	fuzz_require(mod_vm_create(mod, kernel_isa_best(), &vm, &error) == PAGED_OK);
	mod_vm_bind(vm, binding);
	mod_vm_set_q_rows(vm, 1, h, q_idx, 3);
	if (mod_kind(mod) == MOD_MASK)
		mod_vm_mask(vm, -2, 7, NULL, bits);
	else
		mod_vm_score(vm, INT32_MAX - 3, MOD_TILE_KEYS, NULL, scores[0], MOD_TILE_KEYS);
	fuzz_require((mod_bad_index_fail(mod, mod_vm_bad_index(vm), &error) == PAGED_OK) ==
		     !mod_vm_bad_index(vm)->found);
	mod_vm_destroy(vm);
}

static void
fuzz_interval_bounds(const struct mod *mod, const struct mod_binding *binding)
{
	static const struct mod_box wide = {
		{ INT32_MIN, INT32_MAX }, { 0, 3 }, { INT32_MIN, INT32_MAX }, { -5, INT32_MAX }
	};
	struct mod_interval *interval;
	struct paged_error error = { 0 };

	fuzz_require(mod_interval_create(mod, kernel_isa_best(), &interval, &error) == PAGED_OK);
	mod_interval_bind(interval, binding);
	mod_interval_box(interval, &wide);
	mod_interval_destroy(interval);
}

static void
fuzz_evaluate(const struct mod *mod)
{
	static const struct mod_point points[] = { { 0.5, 0, 1, 2, 3 },
						   { NAN, INT32_MIN, INT32_MAX, -1, INT32_MAX },
						   { -INFINITY, 1, 0, INT32_MAX, INT32_MIN } };
	struct mod_binding *binding;
	struct paged_error error = { 0 };

	fuzz_require(mod_bind(mod, arrays, N(arrays), &binding, &error) == PAGED_OK);
	fuzz_require(mod_binding_add_range_trees(binding, &error) == PAGED_OK);
	fuzz_evaluate_tile(mod, binding);
	for (size_t i = 0; i < N(points); i++)
		mod_scalar(binding, &points[i], NULL);
	fuzz_interval_bounds(mod, binding);
	mod_binding_destroy(binding);
}

static void
fuzz_try_text(enum mod_kind kind, const char *text, size_t length)
{
	struct paged_error error = { 0 };
	struct mod *mod, *again;

	if (mod_parse(kind, text, length, arrays, N(arrays), &mod, &error) != PAGED_OK) {
		fuzz_require(error.status != PAGED_OK && error.text[0] != '\0');
		return;
	}
	fuzz_require(mod_parse(kind, mod_text(mod), strlen(mod_text(mod)), arrays, N(arrays), &again, &error) ==
		     PAGED_OK);
	fuzz_require(strcmp(mod_text(mod), mod_text(again)) == 0);
	fuzz_evaluate(mod);
	mod_destroy(again);
	mod_destroy(mod);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	fuzz_try_text(data[0] % 2 == 0 ? MOD_MASK : MOD_SCORE, (const char *)data + 1, size - 1);
	return 0;
}

/* An even first byte selects a mask mod, an odd one a score mod. */
static const char *const seeds[] = {
	"0kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < window)",
	"0document and not sliding_window(window * 2) or causal",
	"0flags[kv_idx % 3] >> (h & 31) == ~doc[q_idx] ? b / 0 != 1 : 0x80000000 / -1 < clamp(q_idx, -5, 5)",
	"0doc[doc[doc[b] + 1] << 33] % (kv_idx - q_idx) ^ 7 | 3",
	"0abs(q_idx / 7 - kv_idx / 7) <= 2 && slope[h][kv_idx - 1] > 1e-3 * cap",
	"1soft_cap(30.0, alibi(16)) + slope[b][h] * (kv_idx - q_idx)",
	"1cap * tanh(score / cap) - log(exp(score) + sin(score) * cos(score)) / tan(score)",
	"1kv_idx % 2 == 0 ? score * sigmoid(score) : -inf",
	"1min(max(score, -1.5), floor(sqrt(exp2(.25e1)))) + int(score) + float(doc[3])",
	"1((((score))))- - -+1",
};

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	size_t length;

	if (index >= N(seeds))
		return 0;
	length = strlen(seeds[index]);
	fuzz_require(length <= buffer_size);
	memcpy(buffer, seeds[index], length);
	return length;
}
