/* SPDX-License-Identifier: Apache-2.0 */
/* Weak definitions of what files that do not exist yet will define, so that the extension links meanwhile. */
#include "python/ext/ext.h"

#define WEAK __attribute__((weak))
#define PENDING_ADD(function)               \
	WEAK int function(PyObject *module) \
	{                                   \
		(void)module;               \
		return 0;                   \
	}

PENDING_ADD(client_add)
PENDING_ADD(pool_add)
PENDING_ADD(sharing_add)
PENDING_ADD(pages_add)
PENDING_ADD(batch_add)
PENDING_ADD(attention_add)
PENDING_ADD(mods_add)
PENDING_ADD(block_mask_add)

static PyObject *
pending(const char *what)
{
	PyErr_SetString(PyExc_NotImplementedError, what);
	return NULL;
}

#define PENDING_OPEN(function, type)                                                                    \
	WEAK PyObject *function(type object, PyObject *const *arguments, Py_ssize_t n, PyObject *names) \
	{                                                                                               \
		(void)object, (void)arguments, (void)n, (void)names;                                    \
		return pending(#function);                                                              \
	}
PENDING_OPEN(client_connect, PyObject *)
PENDING_OPEN(client_embedded, PyObject *)
PENDING_OPEN(batch_open, struct pool *)
PENDING_OPEN(mod_parse, struct pool *)
PENDING_OPEN(mod_set_open, struct batch *)
PENDING_OPEN(block_mask_open, struct pool *)
PENDING_OPEN(block_mask_open_arrays, struct pool *)

WEAK PyObject *
pages_new(struct pool *pool, const struct paged_plane_info *plane)
{
	(void)pool, (void)plane;
	return pending("pages_new");
}

WEAK bool
tensor_from(PyObject *object, const char *name, struct tensor *tensor)
{
	(void)object, (void)name, (void)tensor;
	return pending("tensor_from") != NULL;
}

WEAK void
tensor_release(struct tensor *tensor)
{
	(void)tensor;
}

WEAK bool
tensor_array(const struct tensor *tensor, const struct pool *pool, const char *name, struct paged_array *array)
{
	(void)tensor, (void)pool, (void)name, (void)array;
	return pending("tensor_array") != NULL;
}

WEAK bool
rows_parse(const struct rows_arguments *arguments, struct rows *rows)
{
	(void)arguments, (void)rows;
	return pending("rows_parse") != NULL;
}

WEAK void
rows_free(struct rows *rows)
{
	(void)rows;
}

WEAK struct paged_batch *
batch_enter(struct batch *batch)
{
	(void)batch;
	pending("batch_enter");
	return NULL;
}

WEAK void
batch_leave(struct batch *batch)
{
	(void)batch;
}

WEAK PyObject *
batch_result(struct batch *batch, enum paged_status status)
{
	(void)batch, (void)status;
	return pending("batch_result");
}

WEAK void
threads_run(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	(void)argument;
	for (uint32_t i = 0; i < n; i++)
		work(work_argument, i);
}

WEAK bool
threads_find_openmp(void)
{
	return false;
}

WEAK PyMethodDef attention_methods[] = { { NULL, NULL, 0, NULL } };
WEAK PyTypeObject *client_type, *pool_type, *prefix_type, *pages_type, *batch_type;
WEAK PyTypeObject *mod_type, *mod_set_type, *block_mask_type;
