/* SPDX-License-Identifier: Apache-2.0 */
/* Mods: parsing, evaluation, and the caller's arrays. */
#include "config.h"

#include "client/api/mods/mod.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/enter.h"
#include "client/params.h"

_Static_assert((int)PAGED_MOD_MASK == (int)MOD_MASK && (int)PAGED_MOD_SCORE == (int)MOD_SCORE, "the kinds' numbers");
_Static_assert(PAGED_MAX_INDEXES == MOD_MAX_INDEXES, "arrays convert one to one");
_Static_assert(sizeof(struct paged_named_mod) == sizeof(struct mod_builtin) &&
		       offsetof(struct paged_named_mod, arguments) == offsetof(struct mod_builtin, arguments) &&
		       offsetof(struct paged_named_mod, text) == offsetof(struct mod_builtin, text),
	       "ready-made mods are shown as they are");

const struct paged_named_mod *
paged_mod_named(uint32_t index)
{
	return (const struct paged_named_mod *)mod_builtin(index);
}

/* Checks that apply to every array. */
static enum paged_status
mod_check_array(const struct paged_array *array, size_t i, struct paged_error *error)
{
	if (array->name == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "mod: array %zu has no name", i);
	if (!client_is_zero(array->reserved, sizeof(array->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "mod: array '%s': reserved words must be 0", array->name);
	return PAGED_OK;
}

/* Convert the data of a PAGED_I64 array or parameter to dense I32. */
static enum paged_status
mod_array_narrow_in(struct client_arrays *to, const struct paged_array *from, const void **data_p,
		    struct paged_error *error)
{
	enum paged_status status;

	*data_p = &to->values[to->n];
	if (from->n_dims == 0)
		return array_narrow_value(from, &to->values[to->n], error);
	if (to->on_device)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "mod: array '%s' is i64 in a GPU's memory; parameters alone may be, arrays are i32",
				  from->name);
	status = array_narrow(from, &to->narrowed, error);
	if (status == PAGED_OK)
		*data_p = to->narrowed->at;
	return status;
}

static enum paged_status
mod_array_in(struct client_arrays *to, const struct paged_array *from, struct paged_error *error)
{
	const bool is_wide = from->dtype == PAGED_I64;
	struct mod_array array = {
		.name = from->name, .dtype = client_array_dtype(from->dtype), .n_dims = from->n_dims, .data = from->data
	};
	enum paged_status status = is_wide ? mod_array_narrow_in(to, from, &array.data, error) : PAGED_OK;

	for (uint32_t i = 0; i < from->n_dims && i < PAGED_MAX_INDEXES; i++) {
		int64_t size = mod_dtype_size(array.dtype), stride = is_wide ? 0 : from->strides[i];

		array.extents[i] = from->extents[i];
		if (__builtin_mul_overflow(stride, size, &array.strides[i]))
			return paged_fail(error, PAGED_ERR_LIMIT, "mod: array '%s' has strides past 2^63 bytes",
					  from->name);
	}
	to->at[to->n++] = array;
	return status;
}

static bool
mod_uses_name(const struct mod *mod, const char *name)
{
	return mod != NULL && mod_uses(mod, name);
}

enum paged_status
client_arrays_in(struct client_arrays *to, const struct mod *a, const struct mod *b, size_t n_from,
		 const struct paged_array *from, struct paged_error *error)
{
	if (from == NULL && n_from != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "arrays is NULL");
	for (size_t i = 0; i < n_from; i++) {
		enum paged_status status = mod_check_array(&from[i], i, error);

		if (status != PAGED_OK)
			return status;
		if (!mod_uses_name(a, from[i].name) && !mod_uses_name(b, from[i].name))
			continue;
		/* Refusing duplicates keeps to->n at most the number of the mods' names. */
		for (uint32_t j = 0; j < to->n; j++)
			if (strcmp(to->at[j].name, from[i].name) == 0)
				return paged_fail(error, PAGED_ERR_INVALID, "mod: '%s' is given twice", from[i].name);
		status = mod_array_in(to, &from[i], error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

/* Convert arrays for parsing, which uses only name, dtype and rank. */
static enum paged_status
mod_names_in(struct mod_array *to, size_t n, const struct paged_array *from, struct paged_error *error)
{
	for (size_t i = 0; i < n; i++) {
		enum paged_status status = mod_check_array(&from[i], i, error);

		if (status != PAGED_OK)
			return status;
		to[i] = (struct mod_array){ .name = from[i].name,
					    .dtype = client_array_dtype(from[i].dtype),
					    .n_dims = from[i].n_dims };
	}
	return PAGED_OK;
}

static enum paged_status
mod_parse_text(enum paged_mod_kind kind, const char *text, size_t n_names, const struct paged_array *names,
	       struct mod **mod_p, struct paged_error *error)
{
	struct mod_array ours[CLIENT_MOD_MAX_NAMES];
	enum paged_status status;

	if (text == NULL || (names == NULL && n_names != 0))
		return paged_fail(error, PAGED_ERR_INVALID, "mod: %s is NULL", text == NULL ? "text" : "names");
	if (kind != PAGED_MOD_MASK && kind != PAGED_MOD_SCORE)
		return paged_fail(error, PAGED_ERR_INVALID, "mod: kind %d is neither mask nor score", (int)kind);
	if (n_names > CLIENT_MOD_MAX_NAMES)
		return paged_fail(error, PAGED_ERR_LIMIT, "mod: %zu names, %u at most", n_names, CLIENT_MOD_MAX_NAMES);
	status = mod_names_in(ours, n_names, names, error);
	if (status != PAGED_OK)
		return status;
	return mod_parse((enum mod_kind)kind, text, strnlen(text, MOD_MAX_TEXT + 1), ours, (uint32_t)n_names, mod_p,
			 error);
}

enum paged_status
paged_mod_parse(struct paged_pool *pool, enum paged_mod_kind kind, const char *text, size_t n_names,
		const struct paged_array *names, struct paged_mod **mod_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter(client);
	struct paged_error error;
	struct paged_mod *mod;

	if (status != PAGED_OK)
		return status;
	if (mod_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a mod needs a place for its handle");
	mod = calloc(1, sizeof(*mod));
	if (mod == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "mod: no memory for a mod");
	mod->pool = pool;
	status = mod_parse_text(kind, text, n_names, names, &mod->mod, &error);
	if (status != PAGED_OK) {
		free(mod);
		return client_fail(client, &error);
	}
	client_lock(client);
	mod->next = pool->mods;
	pool->mods = mod;
	client_unlock(client);
	*mod_p = mod;
	return PAGED_OK;
}

void
client_mod_free(struct paged_mod *mod)
{
	struct paged_mod **link;

	for (link = &mod->pool->mods; *link != mod; link = &(*link)->next)
		;
	*link = mod->next;
	mod_destroy(mod->mod);
	free(mod);
}

void
paged_mod_destroy(struct paged_mod *mod)
{
	struct paged_client *client;
	bool in_child;

	if (mod == NULL)
		return;
	client = mod->pool->client;
	in_child = guard_in_child(&client->guard);
	if (!in_child)
		client_lock(client);
	client_mod_free(mod);
	if (!in_child)
		client_unlock(client);
}

const char *
paged_mod_text(const struct paged_mod *mod)
{
	return mod != NULL ? mod_text(mod->mod) : "";
}

static_assert(PAGED_ON_SCORE == (int)MOD_ON_SCORE && PAGED_ON_B == (int)MOD_ON_B && PAGED_ON_H == (int)MOD_ON_H &&
		      PAGED_ON_Q_IDX == (int)MOD_ON_Q && PAGED_ON_KV_IDX == (int)MOD_ON_KV,
	      "the public names of enum mod_inputs");

uint32_t
paged_mod_inputs(const struct paged_mod *mod)
{
	return mod != NULL ? mod_inputs(mod->mod) : 0;
}

static enum paged_status
mod_evaluate(const struct mod *mod, size_t n_arrays, const struct paged_array *arrays, const struct mod_point *point,
	     double *value_p, struct paged_error *error)
{
	struct client_arrays ours = { .n = 0 };
	struct mod_binding *binding = NULL;
	struct mod_bad_index range = { 0 };
	enum paged_status status;
	double value;

	status = client_arrays_in(&ours, mod, NULL, n_arrays, arrays, error);
	if (status == PAGED_OK)
		status = mod_bind(mod, ours.at, ours.n, &binding, error);
	if (status == PAGED_OK) {
		value = mod_scalar(binding, point, &range);
		status = mod_bad_index_fail(mod, &range, error);
	}
	if (status == PAGED_OK)
		*value_p = value;
	mod_binding_destroy(binding);
	array_values_free(ours.narrowed);
	return status;
}

enum paged_status
paged_mod_evaluate(const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
		   const struct paged_mod_point *point, double *value_p)
{
	struct paged_client *client = mod != NULL ? mod->pool->client : NULL;
	enum paged_status status = client_enter(client);
	struct paged_error error;
	struct mod_point at;

	if (status != PAGED_OK)
		return status;
	if (point == NULL || value_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a mod needs a point, and a place for its value");
	if (!client_is_zero(point->reserved, sizeof(point->reserved)))
		return client_failf(client, PAGED_ERR_INVALID, "point: reserved words must be 0");
	at = (struct mod_point){ point->score, point->b, point->h, point->q_idx, point->kv_idx };
	status = mod_evaluate(mod->mod, n_arrays, arrays, &at, value_p, &error);
	return client_leave(client, status, &error);
}
