/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments by position and keyword (METH_FASTCALL). */
#include "python/ext/ext.h"

/* Keywords of a call are interned strings, so that a pointer is usually all that has to be compared. */
static bool
call_intern(struct call_signature *signature)
{
	if (signature->n == 0 || signature->interned[signature->n - 1] != NULL)
		return true;
	for (uint8_t i = 0; i < signature->n; i++) {
		if (signature->interned[i] == NULL)
			signature->interned[i] = PyUnicode_InternFromString(signature->names[i]);
		if (signature->interned[i] == NULL)
			return false;
	}
	return true;
}

/* The parameter of this name; -1: none. */
static int
call_find(const struct call_signature *signature, PyObject *name)
{
	for (int i = 0; i < signature->n; i++)
		if (signature->interned[i] == name)
			return i;
	for (int i = 0; i < signature->n; i++)
		if (PyUnicode_CompareWithASCIIString(name, signature->names[i]) == 0)
			return i;
	return -1;
}

static bool
call_parse_keywords(struct call_signature *signature, PyObject *const *arguments, PyObject *keyword_names,
		    PyObject **values)
{
	Py_ssize_t n = PyTuple_Size(keyword_names);

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *name = PyTuple_GetItem(keyword_names, i);
		int at = call_find(signature, name);

		if (at < 0) {
			PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
				     signature->function, name);
			return false;
		}
		if (values[at] != NULL) {
			PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", signature->function,
				     name);
			return false;
		}
		values[at] = arguments[i];
	}
	return true;
}

bool
call_parse(struct call_signature *signature, PyObject *const *arguments, Py_ssize_t n_arguments,
	   PyObject *keyword_names, PyObject **values)
{
	if (n_arguments > signature->n_positional) {
		PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments (%zd given)",
			     signature->function, signature->n_positional, n_arguments);
		return false;
	}
	for (uint8_t i = 0; i < signature->n; i++)
		values[i] = i < n_arguments ? arguments[i] : NULL;
	if (keyword_names != NULL && (!call_intern(signature) ||
				      !call_parse_keywords(signature, arguments + n_arguments, keyword_names, values)))
		return false;
	for (uint8_t i = 0; i < signature->n_required; i++)
		if (values[i] == NULL) {
			PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", signature->function,
				     signature->names[i]);
			return false;
		}
	return true;
}

PyObject *
call_parse_one(const char *function, const char *name, PyObject *const *arguments, Py_ssize_t n_arguments,
	       PyObject *keyword_names)
{
	struct call_signature signature = { function, &name, 1, 1, 1, { NULL } };
	PyObject *value = NULL;
	bool ok = call_parse(&signature, arguments, n_arguments, keyword_names, &value);

	Py_XDECREF(signature.interned[0]);
	return ok ? value : NULL;
}

void
call_join_methods(PyMethodDef *to, const PyMethodDef *const *lists)
{
	for (; *lists != NULL; lists++)
		for (const PyMethodDef *method = *lists; method->ml_name != NULL; method++)
			*to++ = *method;
	*to = (PyMethodDef){ NULL, NULL, 0, NULL };
}
