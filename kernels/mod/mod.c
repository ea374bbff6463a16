/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a mod, and its bindings. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa/convert.h"
#include "kernels/mod/interval.h"
#include "kernels/mod/frontend.h"

static const struct dtype {
	const char *name;
	uint32_t size;
} dtypes[] = {
	[MOD_DTYPE_NONE] = { "?", 0 }, [MOD_F32] = { "f32", 4 }, [MOD_F16] = { "f16", 2 },
	[MOD_BF16] = { "bf16", 2 },    [MOD_I32] = { "i32", 4 }, [MOD_U8] = { "u8", 1 },
};

/* The value may come from a peer and be invalid. */
static const struct dtype *
dtype_of(enum mod_dtype dtype)
{
	bool is_one = (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[dtype].size != 0;

	return &dtypes[is_one ? dtype : MOD_DTYPE_NONE];
}

const char *
mod_dtype_name(enum mod_dtype dtype)
{
	return dtype_of(dtype)->name;
}

uint32_t
mod_dtype_size(enum mod_dtype dtype)
{
	return dtype_of(dtype)->size;
}

enum paged_status
mod_parse(enum mod_kind kind, const char *text, size_t length, const struct mod_array *names, uint32_t n_names,
	  struct mod **mod_p, struct paged_error *error)
{
	struct mod_source source = { text, length };
	struct mod *mod;
	struct mod_tree tree;
	enum paged_status status = mod_tree_parse(&tree, &source, error);

	if (status != PAGED_OK)
		return status;
	mod = calloc(1, sizeof(*mod));
	if (mod == NULL) {
		mod_tree_free(&tree);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a mod");
	}
	mod->kind = kind;
	status = mod_lower(mod, &tree, names, n_names, error);
	mod_tree_free(&tree);
	if (status == PAGED_OK)
		status = mod_print(mod, error);
	if (status != PAGED_OK) {
		mod_destroy(mod);
		return status;
	}
	*mod_p = mod;
	return PAGED_OK;
}

void
mod_destroy(struct mod *mod)
{
	if (mod == NULL)
		return;
	free(mod->nodes);
	free(mod->text);
	free(mod);
}

enum mod_kind
mod_kind(const struct mod *mod)
{
	return mod->kind;
}

const char *
mod_text(const struct mod *mod)
{
	return mod->text;
}

bool
mod_uses(const struct mod *mod, const char *name)
{
	for (uint32_t i = 0; i < mod->n_names; i++)
		if (strcmp(mod->names[i].name, name) == 0)
			return true;
	return false;
}

bool
mod_name(const struct mod *mod, uint32_t index, struct mod_array *name)
{
	const struct mod_symbol *symbol;

	if (index >= mod->n_names)
		return false;
	symbol = &mod->names[index];
	*name = (struct mod_array){ .name = symbol->name, .dtype = symbol->dtype, .n_dims = symbol->n_dims };
	return true;
}

uint32_t
mod_inputs(const struct mod *mod)
{
	return mod->nodes[mod->n_nodes - 1].inputs;
}

bool
mod_is_exact(const struct mod *mod)
{
	for (uint32_t i = 0; i < mod->n_nodes; i++)
		if (mod->nodes[i].type == MOD_FLOAT)
			return false;
	return true;
}

struct mod_value
mod_load(enum mod_dtype dtype, const uint8_t *at)
{
	struct mod_value value = { 0 };
	uint16_t half;

	switch (dtype) {
	case MOD_U8:
		value.i = *at;
		break;
	case MOD_I32:
		memcpy(&value.i, at, sizeof(value.i));
		break;
	case MOD_F32:
		memcpy(&value.f, at, sizeof(value.f));
		break;
	case MOD_F16:
		memcpy(&half, at, sizeof(half));
		value.f = convert_from_f16(half);
		break;
	case MOD_BF16:
		memcpy(&half, at, sizeof(half));
		value.f = convert_from_bf16(half);
		break;
	case MOD_DTYPE_NONE:
		break;
	}
	return value;
}

/*
 * Sets extents and strides (those of a dense array if all are 0).  The sum of |stride| * (extent - 1)
 * must stay far from overflow.
 */
static enum paged_status
bind_strides(struct mod_bound *bound, const struct mod_array *array, struct paged_error *error)
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
bind_name(struct mod_bound *bound, const struct mod_symbol *symbol, const struct mod_array *arrays, uint32_t n_arrays,
	  struct paged_error *error)
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
		bound->value = mod_load(array->dtype, array->data);
	return bind_strides(bound, array, error);
}

enum paged_status
mod_bind_nothing(const struct mod *mod, struct mod_binding **binding_p, struct paged_error *error)
{
	struct mod_binding *binding = calloc(1, sizeof(*binding));

	if (binding == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for a binding");
	binding->mod = mod;
	*binding_p = binding;
	return PAGED_OK;
}

/*
 * Prepares the names of a rebinding in `fresh`; the binding itself is not changed, except that its
 * index may get more memory.
 */
static enum paged_status
rebind_names(struct mod_bound *fresh, struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
	     struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; status == PAGED_OK && i < mod->n_names; i++)
		status = bind_name(&fresh[i], &mod->names[i], arrays, n_arrays, error);
	for (uint32_t i = 0; status == PAGED_OK && i < mod->n_names; i++) {
		fresh[i].pyramid = binding->names[i].pyramid;
		if (fresh[i].pyramid != NULL)
			status = mod_pyramid_reserve(fresh[i].pyramid, fresh[i].extents[0], error);
	}
	return status;
}

enum paged_status
mod_rebind_prepare(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays,
		   struct paged_error *error)
{
	struct mod_bound fresh[MOD_MAX_NAMES] = { 0 };

	return rebind_names(fresh, binding, arrays, n_arrays, error);
}

enum paged_status
mod_rebind(struct mod_binding *binding, const struct mod_array *arrays, uint32_t n_arrays, struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	struct mod_bound fresh[MOD_MAX_NAMES] = { 0 };
	enum paged_status status = rebind_names(fresh, binding, arrays, n_arrays, error);

	if (status != PAGED_OK)
		return status;
	memcpy(binding->names, fresh, sizeof(fresh));
	for (uint32_t i = 0; i < mod->n_names; i++)
		if (binding->names[i].pyramid != NULL)
			mod_pyramid_fill(&binding->names[i], mod->names[i].dtype);
	return PAGED_OK;
}

enum paged_status
mod_bind(const struct mod *mod, const struct mod_array *arrays, uint32_t n_arrays, struct mod_binding **binding_p,
	 struct paged_error *error)
{
	struct mod_binding *binding = NULL;
	enum paged_status status = mod_bind_nothing(mod, &binding, error);

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
		mod_pyramid_free(binding->names[i].pyramid);
	free(binding);
}

const struct mod *
mod_binding_mod(const struct mod_binding *binding)
{
	return binding->mod;
}

enum paged_status
mod_range_fail(const struct mod *mod, const struct mod_range *range, struct paged_error *error)
{
	if (!range->found)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_RANGE, "mod: array '%s', index %u is %d, bounds are 0 to %lld",
			  mod->names[range->array].name, range->dim, range->index, (long long)range->extent - 1);
}
