/* SPDX-License-Identifier: Apache-2.0 */
/* New tensors, and the stream of a framework. */
#include "python/ext/ext.h"

#include <string.h>

#include "python/ext/dlpack.h"

/*
 * The dimensions of a tensor in the order of their strides, largest first; order[i] is the dimension that is i-th in
 * memory.  Dimensions of one element have any stride, so they keep their place.
 */
static void
tensor_order(const struct tensor *like, int32_t n_dims, int32_t order[8])
{
	for (int32_t i = 0; i < n_dims; i++)
		order[i] = i;
	if (like->n_dims != n_dims)
		return;
	for (int32_t i = 1; i < n_dims; i++)
		for (int32_t j = i; j > 0; j--) {
			int32_t before = order[j - 1], here = order[j];

			if (like->shape[before] <= 1 || like->shape[here] <= 1 ||
			    like->strides[before] >= like->strides[here])
				break;
			order[j - 1] = here;
			order[j] = before;
		}
}

struct tensor_error {
	char text[256];
};

/* Only copies the text: a framework may call it from any thread and with any lock held. */
static void
tensor_set_error(void *context, const char *kind, const char *message)
{
	struct tensor_error *error = context;

	PyOS_snprintf(error->text, sizeof(error->text), "%s: %s", kind, message);
}

static PyObject *
tensor_like_refuse(const char *text)
{
	if (!PyErr_Occurred())
		PyErr_Format(PyExc_RuntimeError, "a new tensor like the first argument: %s", text);
	return NULL;
}

/* A dense tensor with the dimensions in memory order, which are then put back into the caller's order. */
static PyObject *
tensor_like_exchange(const struct dlpack_exchange *exchange, const struct tensor *like, struct dlpack_dtype dtype,
		     int32_t n_dims, const int64_t *shape, const int32_t *order)
{
	int64_t in_memory[8], strides[8];
	struct dlpack_tensor prototype = {
		.device = { like->device_type, like->device_id },
		.n_dims = n_dims,
		.dtype = dtype,
		.shape = in_memory,
	};
	struct tensor_error error = { .text = "its framework cannot make a tensor" };
	struct dlpack_managed *managed;
	void *object;

	for (int32_t i = 0; i < n_dims; i++)
		in_memory[i] = shape[order[i]];
	if (exchange->allocate(&prototype, &managed, &error, tensor_set_error) != 0)
		return tensor_like_refuse(error.text);
	if (managed->tensor.strides != NULL) {
		memcpy(strides, managed->tensor.strides, (size_t)n_dims * sizeof(strides[0]));
		for (int32_t i = 0; i < n_dims; i++) {
			managed->tensor.shape[order[i]] = in_memory[i];
			managed->tensor.strides[order[i]] = strides[i];
		}
	}
	if (exchange->import(managed, &object) == 0)
		return object;
	if (managed->deleter != NULL)
		managed->deleter(managed);
	return tensor_like_refuse(error.text);
}

/* numpy.empty(shape in memory order, dtype).transpose(the caller's order) */
static PyObject *
tensor_like_numpy(PyObject *numpy, uint32_t dtype, int32_t n_dims, const int64_t *shape, const int32_t *order)
{
	PyObject *extents = PyTuple_New(n_dims), *axes = PyTuple_New(n_dims), *array = NULL, *result = NULL, *number;
	bool made = extents != NULL && axes != NULL;

	for (int32_t i = 0; made && i < n_dims; i++) {
		number = PyLong_FromLongLong(shape[order[i]]);
		made = number != NULL && PyTuple_SetItem(extents, i, number) == 0;
		number = made ? PyLong_FromLong(i) : NULL;
		made = number != NULL && PyTuple_SetItem(axes, order[i], number) == 0;
	}
	if (made)
		array = PyObject_CallMethod(numpy, "empty", "Os", extents, dtype == PAGED_F32 ? "f4" : "f2");
	if (array != NULL)
		result = PyObject_CallMethod(array, "transpose", "O", axes);
	Py_XDECREF(array);
	Py_XDECREF(extents);
	Py_XDECREF(axes);
	return result;
}

/* The numpy module if the object is an array of it; NULL, also with an exception: it is not. */
static PyObject *
tensor_numpy_of(PyObject *object)
{
	PyObject *name = PyUnicode_FromString("numpy"), *numpy = NULL, *type = NULL;
	int is = 0;

	if (name != NULL)
		numpy = PyImport_GetModule(name);
	if (numpy != NULL)
		type = PyObject_GetAttrString(numpy, "ndarray");
	if (type != NULL)
		is = PyObject_IsInstance(object, type);
	Py_XDECREF(name);
	Py_XDECREF(type);
	if (is == 1)
		return numpy;
	Py_XDECREF(numpy);
	return NULL;
}

PyObject *
tensor_like(const struct tensor *like, uint32_t dtype, int32_t n_dims, const int64_t *shape)
{
	const struct dlpack_exchange *exchange = dlpack_exchange_of(Py_TYPE(like->object));
	struct dlpack_dtype type = { .lanes = 1 };
	PyObject *numpy, *result;
	int32_t order[8];

	tensor_order(like, n_dims, order);
	dlpack_dtype_from(dtype, &type);
	if (exchange != NULL)
		return tensor_like_exchange(exchange, like, type, n_dims, shape, order);
	numpy = tensor_numpy_of(like->object);
	if (numpy != NULL && (dtype == PAGED_F32 || dtype == PAGED_F16)) {
		result = tensor_like_numpy(numpy, dtype, n_dims, shape, order);
		Py_DECREF(numpy);
		return result;
	}
	Py_XDECREF(numpy);
	if (!PyErr_Occurred())
		PyErr_Format(PyExc_TypeError, "a new tensor of %R and dtype %s cannot be made here: pass out",
			     (PyObject *)Py_TYPE(like->object), paged_dtype_name(dtype));
	return NULL;
}

PyTypeObject *
tensor_torch(void)
{
	static PyTypeObject *type;
	PyObject *name, *torch, *found;

	if (type != NULL)
		return type;
	name = PyUnicode_FromString("torch");
	torch = name != NULL ? PyImport_GetModule(name) : NULL;
	found = torch != NULL ? PyObject_GetAttrString(torch, "Tensor") : NULL;
	/* A torch that is being imported has no Tensor yet. */
	PyErr_Clear();
	Py_XDECREF(name);
	Py_XDECREF(torch);
	if (found != NULL && PyType_Check(found))
		type = (PyTypeObject *)found;
	else
		Py_XDECREF(found);
	return type;
}

bool
tensor_stream(PyTypeObject *framework, int32_t device_id, void **stream_p)
{
	/* Set if torch was built without CUDA or finds no GPU: it then has no streams, and asking takes milliseconds.
	 */
	static bool torch_has_none;
	const struct dlpack_exchange *exchange;
	bool ours = framework == NULL;

	*stream_p = NULL;
	if (ours)
		framework = torch_has_none ? NULL : tensor_torch();
	exchange = framework != NULL ? dlpack_exchange_of(framework) : NULL;
	if (exchange == NULL || exchange->stream(DLPACK_CUDA, device_id, stream_p) == 0)
		return true;
	*stream_p = NULL;
	if (!ours)
		return false;
	torch_has_none = true;
	PyErr_Clear();
	return true;
}
