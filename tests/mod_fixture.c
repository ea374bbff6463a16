/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mod_fixture.h"

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
	mod_vm_lines(vm, point->b, &point->h, &point->q_idx, 1);
	if (mod_kind(fixture->mod) == MOD_MASK) {
		mod_vm_mask(vm, point->kv_idx, 1, NULL, &bits);
		score = (float)bits;
	} else {
		mod_vm_score(vm, point->kv_idx, 1, NULL, &score, 1);
	}
	mod_vm_destroy(vm);
	return score;
}
