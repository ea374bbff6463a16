/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors from Python objects. */
#include "python/ext/ext.h"

#include <string.h>

#include "python/ext/dlpack.h"

/* "float64", as most frameworks write it; the name of a type that the library knows is its own: "f32". */
static const char *
tensor_dtype_text(const struct tensor *tensor, char text[24])
{
	static const char *const kinds[] = { "int", "uint", "float", "opaque", "bfloat", "complex", "bool" };

	if (tensor->boolean)
		return "bool";
	if (tensor->dtype != PAGED_DTYPE_NONE)
		return paged_dtype_name(tensor->dtype);
	if (tensor->type_code < sizeof(kinds) / sizeof(kinds[0]))
		PyOS_snprintf(text, 24, "%s%u", kinds[tensor->type_code], tensor->type_bits);
	else
		PyOS_snprintf(text, 24, "DLPack type %u of %u bits", tensor->type_code, tensor->type_bits);
	return text;
}

/*
 * Turns the exception of a framework into a ValueError that names the argument; drops a C++ backtrace after line 1.
 * KeyboardInterrupt, other exceptions that end programs, and MemoryError do not concern the argument: they stay.
 */
static bool
tensor_refuse(const char *name)
{
	PyObject *type, *value, *trace, *text, *lines = NULL;

	if (PyErr_Occurred() && (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
		return false;
	PyErr_Fetch(&type, &value, &trace);
	text = value != NULL ? PyObject_Str(value) : NULL;
	if (text != NULL)
		lines = PyUnicode_Splitlines(text, 0);
	if (lines != NULL && PyList_Size(lines) > 0)
		PyErr_Format(PyExc_ValueError, "%s: %S", name, PyList_GetItem(lines, 0));
	else
		PyErr_Format(PyExc_ValueError, "%s: DLPack cannot describe the tensor", name);
	Py_XDECREF(lines);
	Py_XDECREF(text);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	return false;
}

/*
 * Shapes and strides are what the framework says.  All products of them that this extension computes fit in int64_t,
 * also in bytes: the number of elements, and each dimension's extent in memory.
 */
static bool
tensor_fill_shape(struct tensor *tensor, const char *name, const struct dlpack_tensor *from)
{
	const int64_t limit = INT64_MAX / 16;
	int64_t n_elements = 1, extent;

	for (int32_t i = from->n_dims - 1; i >= 0; i--) {
		int64_t length = from->shape[i], stride = from->strides != NULL ? from->strides[i] : n_elements;

		/* No address depends on the stride of a dimension of one element. */
		if (length <= 1)
			stride = n_elements;
		if (length < 0 || __builtin_mul_overflow(length, stride, &extent) || extent > limit ||
		    extent < -limit) {
			PyErr_Format(PyExc_ValueError, "%s has %lld elements with a stride of %lld in dimension %d",
				     name, (long long)length, (long long)stride, (int)i);
			return false;
		}
		tensor->shape[i] = length;
		tensor->strides[i] = stride;
		/* A product without the empty dimensions bounds every partial product. */
		if (length > 0 && (__builtin_mul_overflow(n_elements, length, &n_elements) || n_elements > limit)) {
			PyErr_Format(PyExc_ValueError, "%s has too many elements", name);
			return false;
		}
	}
	return true;
}

static bool
tensor_fill(struct tensor *tensor, const char *name, const struct dlpack_tensor *from)
{
	bool empty = false;

	if (from->n_dims < 0 || from->n_dims > (int32_t)(sizeof(tensor->shape) / sizeof(tensor->shape[0]))) {
		PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %zu are possible", name,
			     (int)from->n_dims, sizeof(tensor->shape) / sizeof(tensor->shape[0]));
		return false;
	}
	tensor->n_dims = from->n_dims;
	if (!tensor_fill_shape(tensor, name, from))
		return false;
	for (int32_t i = 0; i < tensor->n_dims; i++)
		empty = empty || tensor->shape[i] == 0;
	tensor->type_code = from->dtype.code;
	tensor->type_bits = from->dtype.bits;
	tensor->dtype = dlpack_dtype_to(from->dtype);
	tensor->boolean = from->dtype.code == DLPACK_BOOL;
	tensor->device_type = from->device.type;
	tensor->device_id = from->device.id;
	tensor->data = from->data != NULL ? (char *)from->data + from->byte_offset : NULL;
	if (tensor->data == NULL && !empty) {
		PyErr_Format(PyExc_ValueError, "%s has no memory (a fake tensor?)", name);
		return false;
	}
	return true;
}

/* A capsule that is not renamed frees its tensor itself, so a reference to it holds the memory. */
static bool
tensor_fill_from_capsule(struct tensor *tensor, const char *name, PyObject *capsule)
{
	const struct dlpack_managed *managed;
	const struct dlpack_legacy *legacy;

	if (PyCapsule_IsValid(capsule, DLPACK_CAPSULE)) {
		managed = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
		if (managed->version.major == DLPACK_MAJOR) {
			tensor->read_only = (managed->flags & DLPACK_READ_ONLY) != 0;
			return tensor_fill(tensor, name, &managed->tensor);
		}
		PyErr_Format(PyExc_ValueError, "%s: its framework speaks DLPack %u.%u; this extension speaks 1.x", name,
			     managed->version.major, managed->version.minor);
		return false;
	}
	if (PyCapsule_IsValid(capsule, DLPACK_CAPSULE_LEGACY)) {
		legacy = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE_LEGACY);
		return tensor_fill(tensor, name, &legacy->tensor);
	}
	PyErr_Format(PyExc_TypeError, "%s: __dlpack__() returned no DLPack capsule but %R", name, capsule);
	return false;
}

/* obj.__dlpack__(max_version=(1, 1)); without it for frameworks that are older than DLPack 1.0 */
static PyObject *
tensor_call_dlpack(PyObject *method)
{
	static PyObject *nothing, *keywords;
	PyObject *capsule;

	if (keywords == NULL) {
		if (nothing == NULL)
			nothing = PyTuple_New(0);
		keywords = Py_BuildValue("{s:(ii)}", "max_version", DLPACK_MAJOR, DLPACK_MINOR);
		if (nothing == NULL || keywords == NULL) {
			Py_CLEAR(keywords);
			return NULL;
		}
	}
	capsule = PyObject_Call(method, nothing, keywords);
	if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		capsule = PyObject_CallNoArgs(method);
	}
	return capsule;
}

static bool
tensor_from_method(PyObject *object, const char *name, struct tensor *tensor)
{
	PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *type_name;
	bool filled;

	if (method == NULL) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError))
			return tensor_refuse(name);
		PyErr_Clear();
		type_name = PyType_GetName(Py_TYPE(object));
		PyErr_Format(PyExc_TypeError, "%s must be a tensor (an object with __dlpack__()), not %V", name,
			     type_name, "another object");
		Py_XDECREF(type_name);
		return false;
	}
	tensor->owner = tensor_call_dlpack(method);
	Py_DECREF(method);
	if (tensor->owner == NULL)
		return tensor_refuse(name);
	filled = tensor_fill_from_capsule(tensor, name, tensor->owner);
	if (!filled)
		tensor_release(tensor);
	return filled;
}

static bool
tensor_from_export(const struct dlpack_exchange *exchange, PyObject *object, const char *name, struct tensor *tensor)
{
	struct dlpack_managed *managed;
	bool filled;

	if (exchange->export(object, &managed) != 0)
		return tensor_refuse(name);
	tensor->owner = PyCapsule_New(managed, DLPACK_CAPSULE, dlpack_capsule_free);
	if (tensor->owner == NULL) {
		if (managed->deleter != NULL)
			managed->deleter(managed);
		return false;
	}
	filled = tensor_fill_from_capsule(tensor, name, tensor->owner);
	if (!filled)
		tensor_release(tensor);
	return filled;
}

/* A truth value of an object, by an attribute or by a method without arguments; -1 with an exception. */
static int
tensor_ask(PyObject *object, PyObject **interned, const char *name, bool call)
{
	PyObject *answer;
	int is;

	if (*interned == NULL)
		*interned = PyUnicode_InternFromString(name);
	if (*interned == NULL)
		return -1;
	answer = call ? PyObject_CallMethodObjArgs(object, *interned, NULL) : PyObject_GetAttr(object, *interned);
	is = answer != NULL ? PyObject_IsTrue(answer) : -1;
	Py_XDECREF(answer);
	return is;
}

/* PyTorch may store the negatives of a tensor's elements, which only its own operations apply. */
static bool
tensor_check_sign(PyObject *object, const char *name)
{
	static PyObject *is_neg;
	int is;

	if (!dlpack_is_torch(Py_TYPE(object)))
		return true;
	is = tensor_ask(object, &is_neg, "is_neg", true);
	if (is == 1)
		PyErr_Format(PyExc_ValueError, "%s has PyTorch's negative bit (is_neg()): pass resolve_neg() of it",
			     name);
	return is == 0;
}

bool
tensor_check_grad(const struct tensor *tensor, const char *name)
{
	static PyObject *requires_grad, *grad_enabled;
	PyObject *torch;
	int is;

	if (!dlpack_is_torch(Py_TYPE(tensor->object)))
		return true;
	is = tensor_ask(tensor->object, &requires_grad, "requires_grad", false);
	if (is != 1)
		return is == 0;
	torch = PyImport_ImportModule("torch");
	is = torch != NULL ? tensor_ask(torch, &grad_enabled, "is_grad_enabled", true) : -1;
	Py_XDECREF(torch);
	if (is == 1)
		PyErr_Format(PyExc_NotImplementedError,
			     "%s requires a gradient, and paged computes none: call under torch.no_grad(), or detach()"
			     " the tensor",
			     name);
	return is == 0;
}

bool
tensor_from(PyObject *object, const char *name, struct tensor *tensor)
{
	const struct dlpack_exchange *exchange = dlpack_exchange_of(Py_TYPE(object));
	struct dlpack_tensor borrowed;

	tensor->object = object;
	tensor->owner = NULL;
	tensor->read_only = false;
	if (!tensor_check_sign(object, name))
		return false;
	if (exchange == NULL)
		return tensor_from_method(object, name, tensor);
	if (exchange->borrow == NULL)
		return tensor_from_export(exchange, object, name, tensor);
	if (exchange->borrow(object, &borrowed) != 0)
		return tensor_refuse(name);
	return tensor_fill(tensor, name, &borrowed);
}

/* Frameworks whose arrays never change.  Their DLPack capsules do not say so. */
static bool
tensor_is_immutable(PyObject *object)
{
	static const char *const frameworks[] = { "jax", "jaxlib", "tensorflow" };
	PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
	const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
	bool is = false;

	PyErr_Clear();
	for (size_t i = 0; name != NULL && i < sizeof(frameworks) / sizeof(frameworks[0]); i++) {
		size_t n = strlen(frameworks[i]);

		is = is || (strncmp(name, frameworks[i], n) == 0 && (name[n] == '.' || name[n] == 0));
	}
	Py_XDECREF(module);
	return is;
}

bool
tensor_from_out(PyObject *object, const char *name, struct tensor *tensor)
{
	if (!tensor_from(object, name, tensor))
		return false;
	if (!tensor->read_only) {
		/* Arrays of PyTorch are the usual case, and asking their module takes time. */
		if (dlpack_is_torch(Py_TYPE(object)) || !tensor_is_immutable(object))
			return true;
		PyErr_Format(PyExc_ValueError, "%s is an immutable array, %R, and would be written", name,
			     (PyObject *)Py_TYPE(object));
		tensor_release(tensor);
		return false;
	}
	PyErr_Format(PyExc_ValueError, "%s is read-only, and would be written", name);
	tensor_release(tensor);
	return false;
}

void
tensor_release(struct tensor *tensor)
{
	PyObject *type, *value, *trace;

	if (tensor->owner == NULL)
		return;
	/* The framework's destructor may call Python. */
	PyErr_Fetch(&type, &value, &trace);
	Py_CLEAR(tensor->owner);
	PyErr_Restore(type, value, trace);
}

void
tensor_bounds(const struct tensor *tensor, uintptr_t *begin_p, uintptr_t *end_p)
{
	int64_t size = (tensor->type_bits + 7) / 8, low = 0, high = size;

	for (int32_t i = 0; i < tensor->n_dims; i++) {
		int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i] * size;

		if (tensor->shape[i] == 0) {
			low = high = 0;
			break;
		}
		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
	}
	*begin_p = (uintptr_t)tensor->data + (uintptr_t)low;
	*end_p = (uintptr_t)tensor->data + (uintptr_t)high;
}

static bool
tensor_check_device(const struct tensor *tensor, const struct pool *pool, const char *name)
{
	int32_t type, id;

	if (!device_of_pool(pool, &type, &id))
		return false;
	if (tensor->device_type == type && (type == DLPACK_HOST || tensor->device_id == id))
		return true;
	if (type == DLPACK_HOST && tensor->device_type == DLPACK_CUDA_HOST)
		return true;
	if (type == DLPACK_HOST)
		PyErr_Format(PyExc_ValueError, "%s is on another device (DLPack type %d): pool %s is in host memory",
			     name, (int)tensor->device_type, pool->info.name);
	else
		PyErr_Format(PyExc_ValueError,
			     "%s is on another device (DLPack type %d, id %d): pool %s is in memory of CUDA device %d",
			     name, (int)tensor->device_type, (int)tensor->device_id, pool->info.name, (int)id);
	return false;
}

/* A dimension of several elements needs a stride of at least `least`, also because 0 means packed in the library. */
static bool
tensor_check_stride(const struct tensor *tensor, const char *name, int32_t dimension, int64_t least)
{
	if (tensor->shape[dimension] <= 1 || tensor->strides[dimension] >= least)
		return true;
	PyErr_Format(PyExc_ValueError,
		     "%s has a stride of %lld elements in dimension %d; at least %lld are needed: make it contiguous",
		     name, (long long)tensor->strides[dimension], (int)dimension, (long long)least);
	return false;
}

static bool
tensor_check_packed(const struct tensor *tensor, const struct pool *pool, const char *name)
{
	int32_t last = tensor->n_dims - 1;
	char text[24];

	if (!tensor_check_device(tensor, pool, name))
		return false;
	if (tensor->dtype != PAGED_F32 && tensor->dtype != PAGED_F16 && tensor->dtype != PAGED_BF16) {
		PyErr_Format(PyExc_ValueError, "%s has elements of %s; f32, f16 and bf16 are possible", name,
			     tensor_dtype_text(tensor, text));
		return false;
	}
	if (tensor->n_dims != 3 && tensor->n_dims != 4) {
		PyErr_Format(PyExc_ValueError,
			     "%s has %d dimensions; it must be [tokens, heads, dim] or [rows, heads, tokens, dim]",
			     name, (int)tensor->n_dims);
		return false;
	}
	if (tensor->shape[last] > 1 && tensor->strides[last] != 1) {
		PyErr_Format(PyExc_ValueError,
			     "%s has a stride of %lld elements in its last dimension: make it contiguous", name,
			     (long long)tensor->strides[last]);
		return false;
	}
	if (tensor->shape[1] > UINT32_MAX || tensor->shape[last] > UINT32_MAX) {
		PyErr_Format(PyExc_ValueError, "%s has %lld heads of %lld dims", name, (long long)tensor->shape[1],
			     (long long)tensor->shape[last]);
		return false;
	}
	for (int32_t i = 0; i < last; i++)
		if (!tensor_check_stride(tensor, name, i, tensor->shape[last]))
			return false;
	return true;
}

bool
tensor_packed(const struct tensor *tensor, const struct pool *pool, const char *name, struct paged_tensor *packed)
{
	const int64_t *shape = tensor->shape, *strides = tensor->strides;

	if (!tensor_check_packed(tensor, pool, name))
		return false;
	*packed = (struct paged_tensor){
		.data = tensor->data,
		.dtype = tensor->dtype,
		.n_heads = (uint32_t)shape[1],
		.dim = (uint32_t)shape[tensor->n_dims - 1],
		.head_stride = shape[1] > 1 ? strides[1] : 0,
	};
	if (tensor->n_dims == 3) {
		packed->token_stride = shape[0] > 1 ? strides[0] : 0;
	} else if (shape[2] <= 1) {
		packed->token_stride = shape[0] > 1 ? strides[0] : 0;
	} else {
		packed->token_stride = strides[2];
		/* Rows that follow one another at the distance of tokens need no batch_stride. */
		if (shape[0] > 1 && strides[0] != shape[2] * strides[2])
			packed->batch_stride = strides[0];
	}
	return true;
}

static bool
tensor_is_dense(const struct tensor *tensor, uint64_t *n_elements_p)
{
	bool dense = true;
	int64_t n = 1;

	for (int32_t i = tensor->n_dims - 1; i >= 0; i--) {
		dense = dense && (tensor->shape[i] == 1 || tensor->strides[i] == n);
		n *= tensor->shape[i];
	}
	*n_elements_p = (uint64_t)n;
	return dense || n == 0;
}

bool
tensor_vector(const struct tensor *tensor, const struct pool *pool, const char *name, uint32_t dtype,
	      uint64_t n_elements, void **data_p)
{
	bool same = tensor->dtype == dtype && !tensor->boolean, dense;
	uint64_t n;
	char text[24];

	/* Indexes are I32 here and unsigned in the library; a negative one is out of bounds there. */
	if (dtype == PAGED_I32 && tensor->type_code == DLPACK_UINT && tensor->type_bits == 32)
		same = true;
	if (!tensor_check_device(tensor, pool, name))
		return false;
	if (!same) {
		PyErr_Format(PyExc_ValueError, "%s has elements of %s, not %s", name, tensor_dtype_text(tensor, text),
			     paged_dtype_name(dtype));
		return false;
	}
	dense = tensor_is_dense(tensor, &n);
	if (n != n_elements) {
		PyErr_Format(PyExc_ValueError, "%s has %llu elements, not %llu", name, (unsigned long long)n,
			     (unsigned long long)n_elements);
		return false;
	}
	if (!dense) {
		PyErr_Format(PyExc_ValueError, "%s is not contiguous", name);
		return false;
	}
	*data_p = tensor->data;
	return true;
}

bool
tensor_check_host(const struct tensor *tensor, const char *name)
{
	if (tensor->device_type == DLPACK_HOST || tensor->device_type == DLPACK_CUDA_HOST)
		return true;
	PyErr_Format(PyExc_ValueError, "%s is on another device (DLPack type %d); it must be in host memory", name,
		     (int)tensor->device_type);
	return false;
}

static bool
tensor_array_check(const struct tensor *tensor, const char *name)
{
	bool expanded = false, strided = false;
	char text[24];

	switch (tensor->dtype) {
	case PAGED_F32:
	case PAGED_F16:
	case PAGED_BF16:
	case PAGED_I32:
	case PAGED_U8:
	case PAGED_I64:
		break;
	default:
		PyErr_Format(PyExc_ValueError,
			     "%s has elements of %s; f32, f16, bf16, i32, i64, u8 and bool are possible", name,
			     tensor_dtype_text(tensor, text));
		return false;
	}
	if (tensor->n_dims > (int32_t)PAGED_MAX_INDEXES) {
		PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %u are possible", name,
			     (int)tensor->n_dims, (unsigned int)PAGED_MAX_INDEXES);
		return false;
	}
	for (int32_t i = 0; i < tensor->n_dims; i++) {
		if (tensor->shape[i] > UINT32_MAX) {
			PyErr_Format(PyExc_ValueError, "%s has %lld elements in dimension %d", name,
				     (long long)tensor->shape[i], (int)i);
			return false;
		}
		expanded = expanded || (tensor->shape[i] > 1 && tensor->strides[i] == 0);
		strided = strided || tensor->strides[i] != 0;
	}
	/* To the library, strides that are all 0 mean a dense array. */
	if (expanded && !strided) {
		PyErr_Format(PyExc_ValueError, "%s repeats one element in all dimensions: make it contiguous", name);
		return false;
	}
	return true;
}

bool
tensor_array(const struct tensor *tensor, const struct pool *pool, const char *name, struct paged_array *array)
{
	/* A tensor without dimensions is a parameter, whose value the library reads on the host. */
	if (pool != NULL && tensor->n_dims > 0 && !tensor_check_device(tensor, pool, name))
		return false;
	if (tensor->n_dims == 0 && tensor->device_type != DLPACK_HOST && tensor->device_type != DLPACK_CUDA_HOST) {
		PyErr_Format(PyExc_ValueError, "%s is a parameter (it has no dimensions), and must be in host memory",
			     name);
		return false;
	}
	if (!tensor_array_check(tensor, name))
		return false;
	*array = (struct paged_array){
		.name = name,
		.data = tensor->data,
		.dtype = tensor->dtype,
		.n_dims = (uint32_t)tensor->n_dims,
	};
	for (int32_t i = 0; i < tensor->n_dims; i++) {
		array->extents[i] = (uint32_t)tensor->shape[i];
		array->strides[i] = tensor->strides[i];
	}
	return true;
}
