/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_fixture.h - parse, bind and evaluate a mod with one call each
 */
#ifndef PAGED_TESTS_MOD_FIXTURE_H
#define PAGED_TESTS_MOD_FIXTURE_H

#include "client/pagedclient.h"
#include "kernels/mod/mod.h"

/** A mod with its binding.  Any failure in these functions fails the test. */
struct mod_fixture {
	struct mod *mod;
	struct mod_binding *binding;
};

struct mod_fixture mod_fixture_open(enum mod_kind kind, const char *text, const struct mod_array *arrays,
				    uint32_t n_arrays);
/** mod_fixture_public - like mod_fixture_open(), with arrays of the public API; text NULL: both members are NULL */
struct mod_fixture mod_fixture_public(enum mod_kind kind, const char *text, const struct paged_array *arrays,
				      size_t n_arrays);
void mod_fixture_close(struct mod_fixture *fixture);

/** mod_fixture_vm - evaluate the mod at one point with the tiles of an instruction set; a bool result is 0 or 1 */
float mod_fixture_vm(const struct mod_fixture *fixture, enum kernel_isa isa, const struct mod_point *point);

/** mod_fixture_interval - the bound interval evaluator for an instruction set; free with mod_interval_destroy() */
struct mod_interval *mod_fixture_interval(const struct mod_fixture *fixture, enum kernel_isa isa);

/** mod_point_box - the box that contains only this point */
static inline struct mod_box
mod_point_box(const struct mod_point *point)
{
	return (struct mod_box){ { point->b, point->b },
				 { point->h, point->h },
				 { point->q_idx, point->q_idx },
				 { point->kv_idx, point->kv_idx } };
}

/** MOD_1D("doc", dtype, values) - a one-dimensional struct mod_array; MOD_PARAM() - one for a scalar variable */
#define MOD_1D(array_name, array_dtype, values)                                       \
	{                                                                             \
		.name = (array_name), .dtype = (array_dtype), .n_dims = 1,            \
		.extents = { sizeof(values) / sizeof((values)[0]) }, .data = (values) \
	}
#define MOD_PARAM(param_name, param_dtype, variable)                              \
	{                                                                         \
		.name = (param_name), .dtype = (param_dtype), .data = &(variable) \
	}

#endif
