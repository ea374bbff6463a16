/* SPDX-License-Identifier: Apache-2.0 */
/* Binding of a mod to its parameters and arrays. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval_bounds.h"

/*
 * Sets extents and strides (those of a dense array if all are 0).  The sum of |stride| * (extent - 1)
 * must stay far from overflow.
 */
static enum paged_status
binding_set_strides(struct mod_bound *bound, const struct mod_array *array, struct paged_error *error)
{
	int64_t dense = mod_dtype_size(array->dtype), any = 0, reach = 0;

	for (uint32_t i = 0; i < array->n_dims; i++)
		any |= array->strides[i];
	for (uint32_t i = array->n_dims; i-- > 0;) {
		int64_t stride = any != 0 ? array->strides[i] : dense, last;
		uint32_t extent = array->extents[i];

		if (stride == INT64_MIN || __builtin_mul_overflow(dense, extent > 0 ? extent : 1, &dense) ||
		    __builtin_mul_overflow(stride < 0 ? -stride : stride, extent > 0 ? extent - 1 : 0, &last) ||
		    __builtin_add_overflow(reach, last, &reach) || reach > INT64_C(1) << 62)
			return paged_fail(error, PAGED_ERR_LIMIT, "mod: array '%s' reaches over more than 2^62 bytes",
					  array->name);
		bound->extents[i] = extent;
		bound->strides[i] = stride;
	}
	return PAGED_OK;
}

static enum paged_status
binding_set_name(struct mod_bound *bound, const struct mod_symbol *symbol, const struct mod_array *arrays,
		 uint32_t n_arrays, struct paged_error *error)
{
	const struct mod_array *array = NULL;
	bool empty = false;

	for (uint32_t i = 0; i < n_arrays; i++) {
		if (strcmp(arrays[i].name, symbol->name) != 0)
			continue;
		if (array != NULL)
			return paged_fail(error, PAGED_ERR_INVALID, "mod: '%s' is given twice", symbol->name);
		array = &arrays[i];
	}
	if (array == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "mod: %s '%s' is not given",
				  symbol->n_dims > 0 ? "array" : "parameter", symbol->name);
	if (array->dtype != symbol->dtype || array->n_dims != symbol->n_dims)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "mod: '%s' is %s of %u dimensions, and was parsed as %s of %u", symbol->name,
				  mod_dtype_name(array->dtype), array->n_dims, mod_dtype_name(symbol->dtype),
				  symbol->n_dims);
	for (uint32_t i = 0; i < array->n_dims; i++)
		empty |= array->extents[i] == 0;
	if (array->data == NULL && !empty)
		return paged_fail(error, PAGED_ERR_INVALID, "mod: '%s' has no data", symbol->name);
	bound->data = array->data;
	if (array->n_dims == 0)
		bound->value = mod_load_element(array->dtype, array->data);
	return binding_set_strides(bound, array, error);
}

enum paged_status
mod_bind_empty(const struct mod *mod, struct mod_binding **binding_p, struct paged_error *error)
{
	struct mod_binding *binding = calloc(1, sizeof(*binding));

	if (binding == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a binding");
	binding->mod = mod;
	*binding_p = binding;
	return PAGED_OK;
}

/*
 * Prepares the names of a rebinding in `names`; the binding itself is not changed, except that its
 * range trees may get more memory.
 */
static enum paged_status
binding_prepare_names(struct mod_bound *names, struct mod_binding *binding, const struct mod_array *arrays,
		      uint32_t n_arrays, struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; status == PAGED_OK && i < mod->n_names; i++)
		status = binding_set_name(&names[i], &mod->names[i], arrays, n_arrays, error);
	for (uint32_t i = 0; status == PAGED_OK && i < mod->n_names; i++) {
		names[i].range_tree = binding->names[i].range_tree;
		if (names[i].range_tree != NULL)
			status = mod_range_tree_reserve(names[i].range_tree, names[i].extents[0], error);
	}
	return status;
}

enum paged_status
mod_rebind_prepare(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
		   struct paged_error *error)
{
	struct mod_bound names[MOD_MAX_NAMES] = { 0 };

	return binding_prepare_names(names, binding, arrays, n_arrays, error);
}

enum paged_status
mod_rebind(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays, struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	struct mod_bound names[MOD_MAX_NAMES] = { 0 };
	enum paged_status status = binding_prepare_names(names, binding, arrays, n_arrays, error);

	if (status != PAGED_OK)
		return status;
	memcpy(binding->names, names, sizeof(names));
	for (uint32_t i = 0; i < mod->n_names; i++)
		if (binding->names[i].range_tree != NULL)
			mod_range_tree_build(&binding->names[i], mod->names[i].dtype);
	return PAGED_OK;
}

enum paged_status
mod_bind(const struct mod *mod, const struct mod_array *arrays, uint32_t n_arrays, struct mod_binding **binding_p,
	 struct paged_error *error)
{
	struct mod_binding *binding = NULL;
	enum paged_status status = mod_bind_empty(mod, &binding, error);

	if (status == PAGED_OK)
		status = mod_rebind(binding, arrays, n_arrays, error);
	if (status == PAGED_OK)
		*binding_p = binding;
	else
		mod_binding_destroy(binding);
	return status;
}

void
mod_binding_destroy(struct mod_binding *binding)
{
	if (binding == NULL)
		return;
	for (uint32_t i = 0; i < MOD_MAX_NAMES; i++)
		mod_range_tree_free(binding->names[i].range_tree);
	free(binding);
}

const struct mod *
mod_binding_mod(const struct mod_binding *binding)
{
	return binding->mod;
}
