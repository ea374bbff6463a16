/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and parameters of mods from Python objects. */
#include "python/ext/ext.h"

/** Where element i of struct arrays comes from. */
struct array_source {
	PyObject *name, *object; /* strong references */
	bool is_tensor;
	struct tensor tensor;
	union {
		float f32;
		int32_t i32;
	} value; /* of a Python number */
};

static bool
array_is_integer(PyObject *object)
{
	return PyLong_Check(object) || (!PyFloat_Check(object) && PyIndex_Check(object));
}

static bool
array_from_number(PyObject *object, struct array_source *source, struct paged_array *array)
{
	int64_t integer;
	double number;

	array->data = &source->value;
	if (array_is_integer(object)) {
		if (!number_i64(object, array->name, &integer))
			return false;
		if (integer < INT32_MIN || integer > INT32_MAX) {
			PyErr_Format(PyExc_OverflowError, "%s: %lld is outside 32 bits", array->name,
				     (long long)integer);
			return false;
		}
		array->dtype = PAGED_I32;
		source->value.i32 = (int32_t)integer;
		return true;
	}
	number = PyFloat_AsDouble(object);
	if (number == -1 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s: expected a tensor, an int or a float, not %R", array->name,
				     Py_TYPE(object));
		return false;
	}
	array->dtype = PAGED_F32;
	source->value.f32 = (float)number;
	return true;
}

static bool
array_from_tensor(PyObject *object, struct array_source *source, struct paged_array *array)
{
	const char *name = array->name;

	if (!tensor_from(object, name, &source->tensor))
		return false;
	source->is_tensor = true;
	return tensor_array(&source->tensor, NULL, name, array);
}

static bool
array_from(PyObject *name, PyObject *object, struct array_source *source, struct paged_array *array)
{
	Py_INCREF(name);
	source->name = name;
	Py_INCREF(object);
	source->object = object;
	array->name = text_utf8(name, "name of an array");
	if (array->name == NULL)
		return false;
	if (!PyLong_Check(object) && !PyFloat_Check(object) &&
	    PyObject_HasAttrString((PyObject *)Py_TYPE(object), "__dlpack__"))
		return array_from_tensor(object, source, array);
	return array_from_number(object, source, array);
}

static bool
arrays_alloc(struct arrays *arrays, size_t n)
{
	*arrays = (struct arrays){ .n = 0 };
	if (n == 0)
		return true;
	arrays->at = PyMem_Calloc(n, sizeof(*arrays->at));
	arrays->sources = PyMem_Calloc(n, sizeof(*arrays->sources));
	if (arrays->at == NULL || arrays->sources == NULL) {
		arrays_free(arrays);
		PyErr_NoMemory();
		return false;
	}
	return true;
}

static bool
arrays_add(struct arrays *arrays, PyObject *name, PyObject *object)
{
	size_t i = arrays->n++;

	return array_from(name, object, &arrays->sources[i], &arrays->at[i]);
}

bool
arrays_parse(PyObject *mapping, struct arrays *arrays)
{
	PyObject *items;
	bool ok;

	if (!call_is_given(mapping))
		return arrays_alloc(arrays, 0);
	*arrays = (struct arrays){ .n = 0 };
	items = PyMapping_Check(mapping) ? PyMapping_Items(mapping) : NULL;
	if (items == NULL) {
		if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception))
			PyErr_Format(PyExc_TypeError,
				     "arrays must be a mapping of names to tensors and numbers, not %R",
				     (PyObject *)Py_TYPE(mapping));
		return false;
	}
	ok = arrays_alloc(arrays, (size_t)PyList_Size(items));
	for (Py_ssize_t i = 0; ok && i < PyList_Size(items); i++) {
		PyObject *name, *object;

		ok = PyArg_ParseTuple(PyList_GetItem(items, i), "OO:items", &name, &object) &&
		     arrays_add(arrays, name, object);
	}
	Py_DECREF(items);
	if (!ok)
		arrays_free(arrays);
	return ok;
}

static struct arrays_keyword *
arrays_find_keyword(struct arrays_keyword *keywords, size_t n, PyObject *name)
{
	for (size_t i = 0; i < n; i++)
		if (PyUnicode_CompareWithASCIIString(name, keywords[i].name) == 0)
			return &keywords[i];
	return NULL;
}

bool
arrays_parse_keywords(PyObject *const *values, PyObject *names, struct arrays_keyword *others, size_t n_others,
		      struct arrays *arrays)
{
	Py_ssize_t n = names != NULL ? PyTuple_Size(names) : 0;

	if (!arrays_alloc(arrays, (size_t)n))
		return false;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *name = PyTuple_GetItem(names, i);
		struct arrays_keyword *other = arrays_find_keyword(others, n_others, name);

		if (other != NULL) {
			other->value = values[i];
		} else if (!arrays_add(arrays, name, values[i])) {
			arrays_free(arrays);
			return false;
		}
	}
	return true;
}

bool
arrays_check_grad(const struct arrays *arrays)
{
	for (size_t i = 0; i < arrays->n; i++)
		if (arrays->sources[i].is_tensor && !tensor_check_grad(&arrays->sources[i].tensor, arrays->at[i].name))
			return false;
	return true;
}

static bool
array_check_memory(const struct array_source *source, const struct paged_array *array, const struct pool *pool)
{
	const struct tensor *tensor = &source->tensor;
	struct paged_array same;

	if (!source->is_tensor)
		return true;
	if (pool != NULL)
		return tensor_array(tensor, pool, array->name, &same);
	return tensor_check_host(tensor, array->name);
}

bool
arrays_check_memory(const struct arrays *arrays, const struct pool *pool)
{
	for (size_t i = 0; i < arrays->n; i++)
		if (!array_check_memory(&arrays->sources[i], &arrays->at[i], pool))
			return false;
	return true;
}

bool
arrays_check_overlap(const struct arrays *arrays, const struct tensor *out, const char *out_name)
{
	uintptr_t out_begin, out_end, begin, end;

	tensor_bounds(out, &out_begin, &out_end);
	for (size_t i = 0; i < arrays->n; i++) {
		if (!arrays->sources[i].is_tensor)
			continue;
		tensor_bounds(&arrays->sources[i].tensor, &begin, &end);
		if (begin == end || out_begin == out_end || begin >= out_end || out_begin >= end)
			continue;
		PyErr_Format(PyExc_ValueError, "%s shares memory with the array %s of mods, which is read", out_name,
			     arrays->at[i].name);
		return false;
	}
	return true;
}

int
arrays_traverse(const struct arrays *arrays, visitproc visit, void *arg)
{
	for (size_t i = 0; i < arrays->n; i++) {
		Py_VISIT(arrays->sources[i].name);
		Py_VISIT(arrays->sources[i].object);
	}
	return 0;
}

void
arrays_free(struct arrays *arrays)
{
	/* Releasing a reference may run any Python code: nothing may find these arrays any more. */
	struct arrays old = *arrays;

	*arrays = (struct arrays){ .n = 0 };
	for (size_t i = 0; i < old.n; i++) {
		struct array_source *source = &old.sources[i];

		if (source->is_tensor)
			tensor_release(&source->tensor);
		Py_XDECREF(source->object);
		Py_XDECREF(source->name);
	}
	PyMem_Free(old.sources);
	PyMem_Free(old.at);
}
