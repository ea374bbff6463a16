/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mod_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

struct mod_fixture
mod_fixture_open(enum mod_kind kind, const char *text, const struct mod_array *arrays, uint32_t n_arrays)
{
	struct mod_fixture fixture = { 0 };
	struct paged_error error = { 0 };

	cr_assert_eq(mod_parse(kind, text, strlen(text), arrays, n_arrays, &fixture.mod, &error), PAGED_OK, "%s",
		     error.text);
	cr_assert_eq(mod_bind(fixture.mod, arrays, n_arrays, &fixture.binding, &error), PAGED_OK, "%s", error.text);
	return fixture;
}

struct mod_fixture
mod_fixture_public(enum mod_kind kind, const char *text, const struct paged_array *arrays, size_t n_arrays)
{
	struct mod_array ours[MOD_MAX_NAMES] = { 0 };

	if (text == NULL)
		return (struct mod_fixture){ NULL, NULL };
	cr_assert_leq(n_arrays, MOD_MAX_NAMES);
	for (size_t i = 0; i < n_arrays; i++) {
		ours[i].name = arrays[i].name;
		ours[i].dtype = (enum mod_dtype)arrays[i].dtype;
		ours[i].n_dims = arrays[i].n_dims;
		ours[i].data = arrays[i].data;
		for (uint32_t d = 0; d < arrays[i].n_dims; d++) {
			ours[i].extents[d] = arrays[i].extents[d];
			ours[i].strides[d] = arrays[i].strides[d] * mod_dtype_size(ours[i].dtype);
		}
	}
	return mod_fixture_open(kind, text, ours, (uint32_t)n_arrays);
}

void
mod_fixture_close(struct mod_fixture *fixture)
{
	mod_binding_destroy(fixture->binding);
	mod_destroy(fixture->mod);
}

float
mod_fixture_vm(const struct mod_fixture *fixture, enum kernel_isa isa, const struct mod_point *point)
{
	struct paged_error error = { 0 };
	float score = (float)point->score;
	struct mod_vm *vm = NULL;
	uint64_t bits;

	cr_assert_eq(mod_vm_create(fixture->mod, isa, &vm, &error), PAGED_OK, "%s", error.text);
	mod_vm_bind(vm, fixture->binding);
	mod_vm_set_q_rows(vm, point->b, &point->h, &point->q_idx, 1);
	if (mod_kind(fixture->mod) == MOD_MASK) {
		mod_vm_mask(vm, point->kv_idx, 1, NULL, &bits);
		score = (float)bits;
	} else {
		mod_vm_score(vm, point->kv_idx, 1, NULL, &score, 1);
	}
	mod_vm_destroy(vm);
	return score;
}

struct mod_interval *
mod_fixture_interval(const struct mod_fixture *fixture, enum kernel_isa isa)
{
	struct paged_error error = { 0 };
	struct mod_interval *interval = NULL;

	cr_assert_eq(mod_interval_create(fixture->mod, isa, &interval, &error), PAGED_OK, "%s", error.text);
	mod_interval_bind(interval, fixture->binding);
	return interval;
}
