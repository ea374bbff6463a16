/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_fixture.h - parse, bind and evaluate a mod in a line of a test
 */
#ifndef PAGED_TESTS_MOD_FIXTURE_H
#define PAGED_TESTS_MOD_FIXTURE_H

#include "client/pagedclient.h"
#include "kernels/mod/mod.h"

/** A mod with its binding; any failure fails the test. */
struct mod_fixture {
	struct mod *mod;
	struct mod_binding *binding;
};

struct mod_fixture mod_fixture_open(enum mod_kind kind, const char *text, const struct mod_array *arrays,
				    uint32_t n_arrays);
/** mod_fixture_public - of arrays as programs give them; text NULL: both are NULL */
struct mod_fixture mod_fixture_public(enum mod_kind kind, const char *text, const struct paged_array *arrays,
				      size_t n_arrays);
void mod_fixture_close(struct mod_fixture *fixture);

/** mod_fixture_vm - one evaluation of one point by an instruction set's tiles; bool as 0 and 1 */
float mod_fixture_vm(const struct mod_fixture *fixture, enum kernel_isa isa, const struct mod_point *point);

/** mod_fixture_interval - bound, for an instruction set; to be destroyed with mod_interval_destroy() */
struct mod_interval *mod_fixture_interval(const struct mod_fixture *fixture, enum kernel_isa isa);

/** mod_point_box - the box of one point */
static inline struct mod_box
mod_point_box(const struct mod_point *point)
{
	return (struct mod_box){ { point->b, point->b },
				 { point->h, point->h },
				 { point->q_idx, point->q_idx },
				 { point->kv_idx, point->kv_idx } };
}

/** MOD_I32("doc", values) - a declared array of one dimension; MOD_PARAM for a variable */
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
