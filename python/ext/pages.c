/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: K and V of a pool as DLPack tensors. */
#include "python/ext/ext.h"

#include <stdlib.h>
#include <string.h>

#include "python/ext/dlpack.h"

enum { PAGES_N_DIMS = 5 };

/** The type paged.Pages. */
struct pages {
	PyObject_HEAD
	struct pool *pool;
	struct paged_plane_info plane;
	struct dlpack_dtype dtype;
	int64_t shape[PAGES_N_DIMS];
	int64_t strides[PAGES_N_DIMS]; /* elements */
};

PyTypeObject *pages_type;

/* Set at exit, when Python objects can no longer be freed from other threads. */
static _Atomic bool pages_exiting;

/* -------------------------------------------------- tensors that live on */

/** A tensor over pages that a framework holds.  While it lives, the pool refuses to be closed. */
struct pages_export {
	union {
		struct dlpack_managed managed;
		struct dlpack_legacy legacy;
	} as;
	struct pool *pool;
	int64_t shape[PAGES_N_DIMS];
	int64_t strides[PAGES_N_DIMS];
};

/* Any thread, with the GIL or without. */
static void
pages_export_free(struct pages_export *export)
{
	if (!pages_exiting) {
		PyGILState_STATE gil = PyGILState_Ensure();

		export->pool->n_tensors--;
		export->pool->client->n_tensors--;
		Py_DECREF((PyObject *)export->pool);
		PyGILState_Release(gil);
	}
	free(export);
}

static void
pages_delete(struct dlpack_managed *managed)
{
	pages_export_free(managed->context);
}

static void
pages_delete_legacy(struct dlpack_legacy *legacy)
{
	pages_export_free(legacy->context);
}

static PyObject *
pages_export(struct pages *pages, struct dlpack_tensor tensor, bool versioned)
{
	struct pages_export *export = calloc(1, sizeof(*export));
	PyObject *capsule;

	if (export == NULL)
		return PyErr_NoMemory();
	memcpy(export->shape, pages->shape, sizeof(export->shape));
	memcpy(export->strides, pages->strides, sizeof(export->strides));
	tensor.shape = export->shape;
	tensor.strides = export->strides;
	export->pool = pages->pool;
	if (versioned) {
		export->as.managed = (struct dlpack_managed){
			.version = { DLPACK_MAJOR, DLPACK_MINOR },
			.context = export,
			.deleter = pages_delete,
			.tensor = tensor,
		};
		capsule = PyCapsule_New(&export->as.managed, DLPACK_CAPSULE, dlpack_capsule_free);
	} else {
		export->as.legacy = (struct dlpack_legacy){
			.tensor = tensor,
			.context = export,
			.deleter = pages_delete_legacy,
		};
		capsule = PyCapsule_New(&export->as.legacy, DLPACK_CAPSULE_LEGACY, dlpack_capsule_free);
	}
	if (capsule == NULL) {
		free(export);
		return NULL;
	}
	Py_INCREF((PyObject *)pages->pool);
	pages->pool->n_tensors++;
	pages->pool->client->n_tensors++;
	return capsule;
}

/* ------------------------------------------------------------------ Pages */

/* Address of the plane now: a pool in GPU memory loses its mapping with the daemon. */
static bool
pages_address(struct pages *pages, char **data_p)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_pool *pool = pool_enter(pages->pool);
	enum paged_status status;

	if (pool == NULL)
		return false;
	status = paged_pool_get_info(pool, &info);
	pool_leave(pages->pool);
	if (status != PAGED_OK) {
		error_raise(pages->pool->client->handle, status);
		return false;
	}
	if (info.base == NULL) {
		PyErr_Format(PyExc_BufferError, "pool %s: its pages are not mapped, because %s", info.name,
			     pages->pool->client->tables_only ? "its client was opened with tables_only"
							      : "its daemon has ended");
		return false;
	}
	*data_p = (char *)info.base + pages->plane.offset;
	return true;
}

/* dl_device, copy and stream are as the array API standard describes them. */
static bool
pages_check_device(PyObject *dl_device, int32_t type, int32_t id)
{
	int wanted_type, wanted_id;

	if (!call_is_given(dl_device))
		return true;
	if (!PyTuple_Check(dl_device) || !PyArg_ParseTuple(dl_device, "ii", &wanted_type, &wanted_id)) {
		PyErr_SetString(PyExc_TypeError, "dl_device must be a tuple of two integers");
		return false;
	}
	if (wanted_type == type && (wanted_id == id || type == DLPACK_HOST))
		return true;
	PyErr_Format(PyExc_BufferError, "dl_device: the pages are on device (%d, %d), not (%d, %d), and are not copied",
		     (int)type, (int)id, wanted_type, wanted_id);
	return false;
}

static bool
pages_check_copy(PyObject *copy)
{
	int wanted;

	if (!call_is_given(copy))
		return true;
	wanted = PyObject_IsTrue(copy);
	if (wanted == 1)
		PyErr_SetString(PyExc_BufferError, "copy: the pages of a pool are only given in place");
	return wanted == 0;
}

static bool
pages_check_stream(PyObject *stream, int32_t type)
{
	if (!call_is_given(stream) || type == DLPACK_CUDA)
		return true;
	PyErr_SetString(PyExc_BufferError, "stream must be None: the pages are in host memory");
	return false;
}

static bool
pages_is_versioned(PyObject *max_version, bool *versioned_p)
{
	int major, minor;

	*versioned_p = false;
	if (!call_is_given(max_version))
		return true;
	if (!PyTuple_Check(max_version) || !PyArg_ParseTuple(max_version, "ii", &major, &minor)) {
		PyErr_SetString(PyExc_TypeError, "max_version must be a tuple of two integers");
		return false;
	}
	*versioned_p = major >= DLPACK_MAJOR;
	return true;
}

PyDoc_STRVAR(pages_dlpack_doc,
	     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
	     "A DLPack capsule of the pages, in place.\n\n"
	     "Frameworks call it: torch.from_dlpack(pool.k), numpy.from_dlpack(pool.k).  The pool\n"
	     "cannot be closed while a tensor over its pages is alive.  On a GPU, work on the\n"
	     "tensor is not ordered after that of batches: use the batch's stream, or call\n"
	     "Batch.finish() first.\n\n"
	     "Raises BufferError if copy is true or dl_device is another device.");

static PyObject *
pages_dlpack(struct pages *pages, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "stream", "max_version", "dl_device", "copy" };
	static struct call_signature signature = { .function = "Pages.__dlpack__", .names = names, .n = 4 };
	struct dlpack_tensor tensor = { .n_dims = PAGES_N_DIMS, .dtype = pages->dtype };
	PyObject *values[4];
	bool versioned;
	char *data;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !pages_is_versioned(values[1], &versioned) ||
	    !device_of_pool(pages->pool, &tensor.device.type, &tensor.device.id) ||
	    !pages_check_stream(values[0], tensor.device.type) ||
	    !pages_check_device(values[2], tensor.device.type, tensor.device.id) || !pages_check_copy(values[3]) ||
	    !pages_address(pages, &data))
		return NULL;
	tensor.data = data;
	return pages_export(pages, tensor, versioned);
}

PyDoc_STRVAR(pages_dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n"
				      "DLPack's device type and id: (1, 0) is host memory, (2, n) is GPU n.");

static PyObject *
pages_dlpack_device(struct pages *pages, PyObject *nothing)
{
	int32_t type, id;

	(void)nothing;
	if (!device_of_pool(pages->pool, &type, &id))
		return NULL;
	return Py_BuildValue("(ii)", (int)type, (int)id);
}

static PyObject *
pages_tuple(const int64_t numbers[PAGES_N_DIMS])
{
	return Py_BuildValue("(LLLLL)", (long long)numbers[0], (long long)numbers[1], (long long)numbers[2],
			     (long long)numbers[3], (long long)numbers[4]);
}

static PyObject *
pages_get_shape(struct pages *pages, void *nothing)
{
	(void)nothing;
	return pages_tuple(pages->shape);
}

static PyObject *
pages_get_strides(struct pages *pages, void *nothing)
{
	(void)nothing;
	return pages_tuple(pages->strides);
}

static PyObject *
pages_get_dtype(struct pages *pages, void *nothing)
{
	(void)nothing;
	return PyUnicode_FromString(paged_dtype_name(pages->plane.dtype));
}

static PyObject *
pages_get_data_ptr(struct pages *pages, void *nothing)
{
	char *data;

	(void)nothing;
	return pages_address(pages, &data) ? PyLong_FromVoidPtr(data) : NULL;
}

static PyObject *
pages_get_pool(struct pages *pages, void *nothing)
{
	(void)nothing;
	return Py_NewRef((PyObject *)pages->pool);
}

static PyObject *
pages_repr(struct pages *pages)
{
	PyObject *shape = pages_tuple(pages->shape), *text;

	if (shape == NULL)
		return NULL;
	text = PyUnicode_FromFormat("<paged.Pages %s, shape %R>", paged_dtype_name(pages->plane.dtype), shape);
	Py_DECREF(shape);
	return text;
}

static int
pages_traverse(struct pages *pages, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)pages));
	Py_VISIT((PyObject *)pages->pool);
	return 0;
}

static void
pages_dealloc(struct pages *pages)
{
	PyTypeObject *type = Py_TYPE((PyObject *)pages);

	PyObject_GC_UnTrack(pages);
	Py_DECREF((PyObject *)pages->pool);
	PyObject_GC_Del(pages);
	Py_DECREF((PyObject *)type);
}

PyObject *
pages_new(struct pool *pool, const struct paged_plane_info *plane)
{
	const struct paged_pool_info *info = &pool->info;
	uint64_t strides[PAGES_N_DIMS] = { plane->layer_stride, plane->page_stride, plane->head_stride,
					   plane->token_stride, 0 };
	int64_t shape[PAGES_N_DIMS] = { info->n_layers, info->n_pages, info->n_kv_heads, info->page_size, plane->dim };
	struct pages *pages = (struct pages *)PyType_GenericAlloc(pages_type, 0);
	uint64_t size;

	if (pages == NULL)
		return NULL;
	pages->pool = (struct pool *)Py_NewRef((PyObject *)pool);
	pages->plane = *plane;
	if (!dlpack_dtype_from(plane->dtype, &pages->dtype)) {
		PyErr_Format(PyExc_BufferError, "pool %s: dtype %u is unknown", info->name, plane->dtype);
		Py_DECREF((PyObject *)pages);
		return NULL;
	}
	size = pages->dtype.bits / 8u;
	memcpy(pages->shape, shape, sizeof(shape));
	for (int i = 0; i < PAGES_N_DIMS; i++)
		pages->strides[i] = (int64_t)(strides[i] / size);
	pages->strides[PAGES_N_DIMS - 1] = 1;
	return (PyObject *)pages;
}

static PyMethodDef pages_methods[] = {
	CALL_METHOD("__dlpack__", pages_dlpack, pages_dlpack_doc),
	CALL_METHOD_NOARGS("__dlpack_device__", pages_dlpack_device, pages_dlpack_device_doc),
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef pages_fields[] = {
	{ "shape", (getter)pages_get_shape, NULL, "n_layers, n_pages, n_kv_heads, page_size, dim.", NULL },
	{ "strides", (getter)pages_get_strides, NULL, "Elements from one layer, page, head, token and dim to the next.",
	  NULL },
	{ "dtype", (getter)pages_get_dtype, NULL, "Name of the element type: \"bf16\".", NULL },
	{ "data_ptr", (getter)pages_get_data_ptr, NULL, "Address of the first element; a device address on a GPU.",
	  NULL },
	{ "pool", (getter)pages_get_pool, NULL, "The pool.", NULL },
	{ 0 },
};

PyDoc_STRVAR(pages_doc, "K, V or scales of all pages of a pool, in place.\n\n"
			"Frameworks take it by DLPack: torch.from_dlpack(pool.k) is a tensor of shape\n"
			"[n_layers, n_pages, n_kv_heads, page_size, dim] over the pages themselves, which all\n"
			"processes share.  Elements are as stored: those of e4m3, e5m2 and i8 are not\n"
			"multiplied by their scales.  NumPy has no bf16, e4m3 and e5m2.  JAX refuses tensors\n"
			"that are not dense, and K and V of a page lie together.\n\n"
			"Pool.k, Pool.v, Pool.k_scale and Pool.v_scale are such objects.");

/* An atexit function: all threads can still take the GIL.  Tensors freed later do not release their pool. */
static PyObject *
pages_at_exit(PyObject *module, PyObject *nothing)
{
	(void)module, (void)nothing;
	pages_exiting = true;
	Py_RETURN_NONE;
}

static PyMethodDef pages_at_exit_method = { "pages_at_exit", pages_at_exit, METH_NOARGS, NULL };

static int
pages_register_exit(void)
{
	PyObject *function = PyCFunction_New(&pages_at_exit_method, NULL), *module, *result = NULL;

	if (function == NULL)
		return -1;
	module = PyImport_ImportModule("atexit");
	if (module != NULL)
		result = PyObject_CallMethod(module, "register", "O", function);
	Py_XDECREF(module);
	Py_DECREF(function);
	Py_XDECREF(result);
	return result != NULL ? 0 : -1;
}

int
pages_add(PyObject *module)
{
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)pages_doc },
		{ Py_tp_traverse, pages_traverse },
		{ Py_tp_dealloc, pages_dealloc },
		{ Py_tp_repr, pages_repr },
		{ Py_tp_methods, pages_methods },
		{ Py_tp_getset, pages_fields },
		{ 0, NULL },
	};
	static PyType_Spec spec = {
		.name = "paged.Pages",
		.basicsize = sizeof(struct pages),
		.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
			 Py_TPFLAGS_IMMUTABLETYPE,
		.slots = slots,
	};

	pages_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (pages_type == NULL)
		return -1;
	return PyModule_AddType(module, pages_type) == 0 ? pages_register_exit() : -1;
}
