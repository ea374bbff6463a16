/* SPDX-License-Identifier: Apache-2.0 */
/* Integers and lists of integers from Python objects. */
#include "python/ext/ext.h"

#include <math.h>

/* An integer of -2^63 to 2^64 - 1: the two's complement, and its sign. */
struct wide {
	uint64_t bits;
	bool negative;
};

static bool
wide_from(PyObject *object, const char *name, struct wide *wide)
{
	PyObject *number;
	int overflow;
	long long small;

	if (!PyIndex_Check(object)) {
		PyErr_Format(PyExc_TypeError, "%s must be an integer, not %R", name, (PyObject *)Py_TYPE(object));
		return false;
	}
	number = PyNumber_Index(object);
	if (number == NULL)
		return false;
	small = PyLong_AsLongLongAndOverflow(number, &overflow);
	wide->negative = overflow == 0 && small < 0;
	wide->bits = overflow > 0 ? PyLong_AsUnsignedLongLong(number) : (uint64_t)small;
	if (overflow < 0 || PyErr_Occurred()) {
		PyErr_Format(PyExc_OverflowError, "%s: %S does not fit in 64 bits", name, number);
		Py_DECREF(number);
		return false;
	}
	Py_DECREF(number);
	return true;
}

static bool
wide_is_below(const struct wide *wide, const char *name, uint64_t maximum)
{
	if (!wide->negative && wide->bits <= maximum)
		return true;
	if (wide->negative)
		PyErr_Format(PyExc_OverflowError, "%s: %lld is negative", name, (long long)wide->bits);
	else
		PyErr_Format(PyExc_OverflowError, "%s: %llu exceeds %llu", name, (unsigned long long)wide->bits,
			     (unsigned long long)maximum);
	return false;
}

bool
number_u32(PyObject *object, const char *name, uint32_t *number_p)
{
	struct wide wide;

	if (!wide_from(object, name, &wide) || !wide_is_below(&wide, name, UINT32_MAX))
		return false;
	*number_p = (uint32_t)wide.bits;
	return true;
}

bool
number_u64(PyObject *object, const char *name, uint64_t *number_p)
{
	struct wide wide;

	if (!wide_from(object, name, &wide) || !wide_is_below(&wide, name, UINT64_MAX))
		return false;
	*number_p = wide.bits;
	return true;
}

bool
number_i64(PyObject *object, const char *name, int64_t *number_p)
{
	struct wide wide;

	if (!wide_from(object, name, &wide) || (!wide.negative && !wide_is_below(&wide, name, INT64_MAX)))
		return false;
	*number_p = (int64_t)wide.bits;
	return true;
}

bool
number_timeout_ms(PyObject *object, const char *name, uint32_t *timeout_ms_p)
{
	double seconds = PyFloat_AsDouble(object);

	if (seconds == -1.0 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s must be a number of seconds, not %R", name,
				     (PyObject *)Py_TYPE(object));
		return false;
	}
	if (!(seconds >= 0 && seconds <= UINT32_MAX / 1000)) {
		PyErr_Format(PyExc_ValueError, "%s: %S is not between 0 and %d seconds", name, object,
			     UINT32_MAX / 1000);
		return false;
	}
	*timeout_ms_p = (uint32_t)ceil(seconds * 1000);
	return true;
}

const char *
text_utf8(PyObject *object, const char *name)
{
	Py_ssize_t length;
	const char *text;

	if (!PyUnicode_Check(object)) {
		PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", name, (PyObject *)Py_TYPE(object));
		return NULL;
	}
	text = PyUnicode_AsUTF8AndSize(object, &length);
	if (text != NULL && strlen(text) != (size_t)length) {
		PyErr_Format(PyExc_ValueError, "%s: %R contains a zero byte", name, object);
		return NULL;
	}
	return text;
}

bool
number_dtype(PyObject *object, const char *name, uint32_t *dtype_p)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	const char *text = text_utf8(object, name);

	if (text == NULL)
		return false;
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(text, paged_dtype_name(dtypes[i])) == 0) {
			*dtype_p = dtypes[i];
			return true;
		}
	PyErr_Format(PyExc_ValueError, "%s: %R is none of f32, f16, bf16, e4m3, e5m2, i8", name, object);
	return false;
}

/* --------------------------------------------------------------- lists */

/* Elements of any integer type in memory. */
struct elements {
	const char *at;
	Py_ssize_t n, stride; /* bytes */
	uint8_t size;         /* 1, 2, 4, 8 */
	bool is_signed;
};

static struct wide
element_read(const struct elements *elements, Py_ssize_t index)
{
	const char *at = elements->at + index * elements->stride;
	int64_t number = 0;

	switch (elements->size) {
	case 1:
		number = elements->is_signed ? *(const int8_t *)at : *(const uint8_t *)at;
		break;
	case 2: {
		uint16_t bits;
		memcpy(&bits, at, sizeof(bits));
		number = elements->is_signed ? (int64_t)(int16_t)bits : bits;
		break;
	}
	case 4: {
		uint32_t bits;
		memcpy(&bits, at, sizeof(bits));
		number = elements->is_signed ? (int64_t)(int32_t)bits : bits;
		break;
	}
	default:
		memcpy(&number, at, sizeof(number));
	}
	return (struct wide){ (uint64_t)number, elements->is_signed && number < 0 };
}

/* A list of u32 or u64 that is being filled. */
struct list {
	const char *name; /* of the argument */
	void **at;
	size_t *n;
	void *small;  /* of 16 elements */
	uint8_t size; /* of an element: 4 or 8 */
	bool scalar;  /* the object was one number */
};

static bool
list_allocate(struct list *list, size_t n)
{
	*list->n = n;
	*list->at = list->small;
	if (n <= 16)
		return true;
	*list->at = PyMem_Calloc(n, list->size);
	if (*list->at != NULL)
		return true;
	PyErr_NoMemory();
	return false;
}

static void
list_free(struct list *list)
{
	if (*list->at != list->small)
		PyMem_Free(*list->at);
	*list->at = NULL;
	*list->n = 0;
}

static bool
list_set(struct list *list, size_t i, const struct wide *wide)
{
	if (list->size == 4) {
		if (!wide_is_below(wide, list->name, UINT32_MAX))
			return false;
		((uint32_t *)*list->at)[i] = (uint32_t)wide->bits;
		return true;
	}
	if (!wide_is_below(wide, list->name, UINT64_MAX))
		return false;
	((uint64_t *)*list->at)[i] = wide->bits;
	return true;
}

static bool
list_from_elements(struct list *list, const struct elements *elements)
{
	if (!list_allocate(list, (size_t)elements->n))
		return false;
	for (Py_ssize_t i = 0; i < elements->n; i++) {
		struct wide wide = element_read(elements, i);

		if (!list_set(list, (size_t)i, &wide))
			return false;
	}
	return true;
}

static bool
list_from_number(struct list *list, PyObject *object)
{
	struct wide wide;

	list->scalar = true;
	return list_allocate(list, 1) && wide_from(object, list->name, &wide) && list_set(list, 0, &wide);
}

/* From a list or tuple.  __index__() of an element may run Python code that changes the list. */
static bool
list_from_items(struct list *list, PyObject *items)
{
	Py_ssize_t n = PySequence_Size(items);

	if (n < 0 || !list_allocate(list, (size_t)n))
		return false;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PySequence_GetItem(items, i);
		struct wide wide;
		bool ok = item != NULL && wide_from(item, list->name, &wide) && list_set(list, (size_t)i, &wide);

		Py_XDECREF(item);
		if (!ok)
			return false;
	}
	return true;
}

static bool
list_refuse_dims(const struct list *list, int n_dims)
{
	PyErr_Format(PyExc_ValueError, "%s must have one dimension, not %d", list->name, n_dims);
	return false;
}

/* The format of a buffer is that of the struct module, in native byte order. */
static bool
elements_from_format(const char *format, Py_ssize_t item_size, struct elements *elements)
{
	if (format == NULL)
		format = "B";
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	if (format[0] == 0 || format[1] != 0)
		return false;
	elements->is_signed = strchr("bhilqn", format[0]) != NULL;
	if (!elements->is_signed && strchr("BHILQN", format[0]) == NULL)
		return false;
	elements->size = (uint8_t)item_size;
	return item_size == 1 || item_size == 2 || item_size == 4 || item_size == 8;
}

static bool
list_from_buffer(struct list *list, PyObject *object)
{
	struct elements elements;
	Py_buffer buffer;
	bool ok;

	if (PyObject_GetBuffer(object, &buffer, PyBUF_FORMAT | PyBUF_STRIDES) < 0)
		return false;
	if (!elements_from_format(buffer.format, buffer.itemsize, &elements)) {
		PyErr_Format(PyExc_TypeError, "%s: elements of format '%s' are not integers", list->name,
			     buffer.format != NULL ? buffer.format : "B");
		ok = false;
	} else if (buffer.ndim > 1) {
		ok = list_refuse_dims(list, buffer.ndim);
	} else {
		list->scalar = buffer.ndim == 0;
		elements.at = buffer.buf;
		elements.n = buffer.ndim == 0 ? 1 : buffer.shape[0];
		/* ctypes returns no strides for contiguous arrays, whatever is requested. */
		elements.stride = buffer.ndim != 0 && buffer.strides != NULL ? buffer.strides[0] : buffer.itemsize;
		ok = list_from_elements(list, &elements);
	}
	PyBuffer_Release(&buffer);
	return ok;
}

#define DEVICE_HOST 1
#define DEVICE_HOST_PINNED 3

static bool
elements_from_tensor(const struct list *list, const struct tensor *tensor, struct elements *elements)
{
	if (tensor->device_type != DEVICE_HOST && tensor->device_type != DEVICE_HOST_PINNED) {
		PyErr_Format(PyExc_ValueError, "%s must be in host memory; the tensor is on DLPack device %d:%d",
			     list->name, (int)tensor->device_type, (int)tensor->device_id);
		return false;
	}
	if (tensor->n_dims > 1)
		return list_refuse_dims(list, tensor->n_dims);
	if (tensor->boolean ||
	    (tensor->dtype != PAGED_I32 && tensor->dtype != PAGED_U8 && tensor->dtype != PAGED_I64)) {
		PyErr_Format(PyExc_TypeError, "%s: elements of dtype %s are not integers", list->name,
			     tensor->boolean ? "bool" : paged_dtype_name((enum paged_dtype)tensor->dtype));
		return false;
	}
	elements->size = tensor->dtype == PAGED_I64 ? 8 : tensor->dtype == PAGED_I32 ? 4 : 1;
	elements->is_signed = tensor->dtype != PAGED_U8;
	elements->at = tensor->data;
	elements->n = tensor->n_dims == 0 ? 1 : (Py_ssize_t)tensor->shape[0];
	elements->stride = tensor->n_dims == 0 ? 0 : (Py_ssize_t)tensor->strides[0] * elements->size;
	return true;
}

static bool
list_from_tensor(struct list *list, PyObject *object)
{
	struct elements elements;
	struct tensor tensor;
	bool ok;

	if (!tensor_from(object, list->name, &tensor))
		return false;
	list->scalar = tensor.n_dims == 0;
	ok = elements_from_tensor(list, &tensor, &elements) && list_from_elements(list, &elements);
	tensor_release(&tensor);
	return ok;
}

static bool
object_is_tensor(PyObject *object)
{
	PyObject *method;

	/* Looked up in the type, as Python does for all special methods. */
	method = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack__");
	if (method == NULL)
		PyErr_Clear();
	Py_XDECREF(method);
	return method != NULL;
}

static bool
list_from_iterable(struct list *list, PyObject *object)
{
	PyObject *items = PyUnicode_Check(object) ? NULL : PySequence_List(object);
	bool ok;

	if (items == NULL) {
		if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s must be integers: a list, buffer or tensor, not %R",
				     list->name, (PyObject *)Py_TYPE(object));
		return false;
	}
	ok = list_from_items(list, items);
	Py_DECREF(items);
	return ok;
}

static bool
list_from(struct list *list, PyObject *object)
{
	bool ok;

	list->scalar = false;
	*list->at = list->small;
	*list->n = 0;
	/* Arrays and tensors have __index__() too: it is for those of one element, and tried last. */
	if (PyLong_Check(object))
		ok = list_from_number(list, object);
	else if (PyList_Check(object) || PyTuple_Check(object))
		ok = list_from_items(list, object);
	else if (PyObject_CheckBuffer(object))
		ok = list_from_buffer(list, object);
	else if (object_is_tensor(object))
		ok = list_from_tensor(list, object);
	else if (PyIndex_Check(object))
		ok = list_from_number(list, object);
	else
		ok = list_from_iterable(list, object);
	if (!ok)
		list_free(list);
	return ok;
}

bool
numbers_u32(PyObject *object, const char *name, struct numbers_u32 *numbers)
{
	struct list list = { name, (void **)&numbers->at, &numbers->n, numbers->small, 4, false };

	return list_from(&list, object);
}

bool
numbers_u64(PyObject *object, const char *name, struct numbers_u64 *numbers)
{
	struct list list = { name, (void **)&numbers->at, &numbers->n, numbers->small, 8, false };

	return list_from(&list, object);
}

bool
numbers_u32_n(PyObject *object, const char *name, size_t n, struct numbers_u32 *numbers)
{
	struct list list = { name, (void **)&numbers->at, &numbers->n, numbers->small, 4, false };
	uint32_t number;

	if (!list_from(&list, object))
		return false;
	if (list.scalar) {
		number = numbers->small[0];
		if (!list_allocate(&list, n))
			return false;
		for (size_t i = 0; i < n; i++)
			numbers->at[i] = number;
		return true;
	}
	if (numbers->n == n)
		return true;
	PyErr_Format(PyExc_ValueError, "%s has %zu numbers; %zu are needed, or one for all", name, numbers->n, n);
	numbers_u32_free(numbers);
	return false;
}

void
numbers_u32_free(struct numbers_u32 *numbers)
{
	if (numbers->at != numbers->small)
		PyMem_Free(numbers->at);
	numbers->at = NULL;
}

void
numbers_u64_free(struct numbers_u64 *numbers)
{
	if (numbers->at != numbers->small)
		PyMem_Free(numbers->at);
	numbers->at = NULL;
}

static PyObject *
list_make(const void *numbers, size_t n, bool wide)
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (size_t i = 0; list != NULL && i < n; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(wide ? ((const uint64_t *)numbers)[i]
								    : ((const uint32_t *)numbers)[i]);

		if (number == NULL || PyList_SetItem(list, (Py_ssize_t)i, number) < 0)
			Py_CLEAR(list);
	}
	return list;
}

PyObject *
list_u32(const uint32_t *numbers, size_t n)
{
	return list_make(numbers, n, false);
}

PyObject *
list_u64(const uint64_t *numbers, size_t n)
{
	return list_make(numbers, n, true);
}
