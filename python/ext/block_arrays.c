/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks from and to the arrays of PyTorch's BlockMask. */
#include "python/ext/dlpack.h"
#include "python/ext/ext.h"

/* A dense int32 array of the caller, in host memory. */
struct int32_array {
	bool is_given;
	int32_t *data;
	int32_t n_dims;
	int64_t shape[8];
	bool is_tensor, is_buffer;
	struct tensor tensor;
	Py_buffer buffer;
};

static void
int32_array_release(struct int32_array *array)
{
	if (array->is_tensor)
		tensor_release(&array->tensor);
	if (array->is_buffer)
		PyBuffer_Release(&array->buffer);
}

static bool
int32_array_is_dense(const struct tensor *tensor)
{
	int64_t stride = 1;

	for (int32_t i = tensor->n_dims; i-- > 0; stride *= tensor->shape[i])
		if (tensor->shape[i] > 1 && tensor->strides[i] != stride)
			return false;
	return true;
}

static bool
int32_array_from_tensor(PyObject *object, const char *name, struct int32_array *array)
{
	const struct tensor *tensor = &array->tensor;

	if (!tensor_from(object, name, &array->tensor))
		return false;
	array->is_tensor = true;
	if (tensor->dtype != PAGED_I32 ||
	    (tensor->device_type != DLPACK_HOST && tensor->device_type != DLPACK_CUDA_HOST) ||
	    !int32_array_is_dense(tensor)) {
		PyErr_Format(PyExc_ValueError, "%s: must be a dense int32 array in host memory", name);
		return false;
	}
	array->data = tensor->data;
	array->n_dims = tensor->n_dims;
	memcpy(array->shape, tensor->shape, sizeof(array->shape));
	return true;
}

/* A pair (buffer of int32, shape), as BlockMask.arrays() returns them. */
static bool
int32_array_from_pair(PyObject *pair, const char *name, struct int32_array *array)
{
	PyObject *buffer, *shape;
	int64_t n_elements = 1;

	if (!PyArg_ParseTuple(pair, "OO!", &buffer, &PyTuple_Type, &shape) ||
	    PyObject_GetBuffer(buffer, &array->buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
		PyErr_Format(PyExc_TypeError, "%s must be a tensor of int32, or (buffer of int32, shape)", name);
		return false;
	}
	array->is_buffer = true;
	if (array->buffer.format == NULL || strcmp(array->buffer.format, "i") != 0 || PyTuple_Size(shape) > 8) {
		PyErr_Format(PyExc_ValueError, "%s: must be (buffer of int32, shape)", name);
		return false;
	}
	array->n_dims = (int32_t)PyTuple_Size(shape);
	for (int32_t i = 0; i < array->n_dims; i++) {
		if (!number_i64(PyTuple_GetItem(shape, i), name, &array->shape[i]))
			return false;
		if (array->shape[i] < 0 || __builtin_mul_overflow(n_elements, array->shape[i], &n_elements)) {
			PyErr_Format(PyExc_ValueError, "%s: shape %R", name, shape);
			return false;
		}
	}
	if (n_elements != array->buffer.len / (Py_ssize_t)sizeof(int32_t)) {
		PyErr_Format(PyExc_ValueError, "%s: shape %R has %lld elements, the buffer %zd", name, shape,
			     (long long)n_elements, array->buffer.len / (Py_ssize_t)sizeof(int32_t));
		return false;
	}
	array->data = array->buffer.buf;
	return true;
}

static bool
int32_array_from(PyObject *object, const char *name, struct int32_array *array)
{
	*array = (struct int32_array){ .is_given = call_is_given(object) };
	if (!array->is_given)
		return true;
	if (PyTuple_Check(object))
		return int32_array_from_pair(object, name, array);
	return int32_array_from_tensor(object, name, array);
}

/* The arrays of both kinds of blocks: what paged_block_mask_from_arrays() reads. */
struct block_arrays {
	struct int32_array num_blocks[2], indices[2];
};

static const char *const block_array_names[2][2] = { { "num_blocks", "indices" },
						     { "full_num_blocks", "full_indices" } };

static void
block_arrays_release(struct block_arrays *arrays)
{
	for (int kind = 0; kind < 2; kind++) {
		int32_array_release(&arrays->num_blocks[kind]);
		int32_array_release(&arrays->indices[kind]);
	}
}

static bool
block_arrays_from(PyObject *const *values, struct block_arrays *arrays)
{
	memset(arrays, 0, sizeof(*arrays));
	for (int kind = 0; kind < 2; kind++)
		if (!int32_array_from(values[2 * kind], block_array_names[kind][0], &arrays->num_blocks[kind]) ||
		    !int32_array_from(values[2 * kind + 1], block_array_names[kind][1], &arrays->indices[kind])) {
			block_arrays_release(arrays);
			return false;
		}
	return true;
}

/* The library trusts the shapes: check them against rows, heads and query blocks. */
static bool
block_arrays_check_kind(const struct block_arrays *arrays, int kind, struct paged_block_mask_params *params,
			int64_t n_q_blocks)
{
	const struct int32_array *num_blocks = &arrays->num_blocks[kind], *indices = &arrays->indices[kind];
	const char *const *names = block_array_names[kind];

	if (!num_blocks->is_given && !indices->is_given)
		return true;
	if (!num_blocks->is_given || !indices->is_given) {
		PyErr_Format(PyExc_ValueError, "%s and %s must be given together", names[0], names[1]);
		return false;
	}
	if (num_blocks->n_dims != 3 || indices->n_dims != 4 ||
	    memcmp(num_blocks->shape, indices->shape, 3 * sizeof(num_blocks->shape[0])) != 0) {
		PyErr_Format(PyExc_ValueError, "%s must be [rows, heads, query blocks], and %s the same and a width",
			     names[0], names[1]);
		return false;
	}
	if (params->n_heads == 0)
		params->n_heads = (uint32_t)num_blocks->shape[1];
	if (num_blocks->shape[0] != (int64_t)params->n_rows || num_blocks->shape[1] != (int64_t)params->n_heads ||
	    num_blocks->shape[2] != n_q_blocks) {
		PyErr_Format(PyExc_ValueError,
			     "%s: the shape is (%lld, %lld, %lld), but there are %zu rows, %u heads and %lld query "
			     "blocks",
			     names[0], (long long)num_blocks->shape[0], (long long)num_blocks->shape[1],
			     (long long)num_blocks->shape[2], params->n_rows, (unsigned int)params->n_heads,
			     (long long)n_q_blocks);
		return false;
	}
	return true;
}

static bool
block_arrays_check(const struct block_arrays *arrays, struct paged_block_mask_params *params)
{
	const int64_t q_block = params->q_block != 0 ? params->q_block : 128;
	int64_t n_q_blocks = 0, n;

	for (size_t r = 0; r < params->n_rows; r++) {
		n = (params->rows[r].q_len + q_block - 1) / q_block;
		if (r > 0 && n != n_q_blocks) {
			PyErr_Format(PyExc_ValueError, "row %zu has %lld query blocks, the rows before it have %lld", r,
				     (long long)n, (long long)n_q_blocks);
			return false;
		}
		n_q_blocks = n;
	}
	return block_arrays_check_kind(arrays, 0, params, n_q_blocks) &&
	       block_arrays_check_kind(arrays, 1, params, n_q_blocks);
}

/* Given blocks are logical; with params->physical the result is translated to the pages of the rows. */
static enum paged_status
block_mask_take_arrays(struct paged_pool *pool, const struct paged_block_mask_params *params,
		       const struct paged_block_arrays *arrays, struct paged_block_mask **mask_p)
{
	struct paged_block_mask_params logical_params = *params;
	struct paged_block_mask *logical;
	enum paged_status status;

	logical_params.physical = 0;
	status = paged_block_mask_from_arrays(pool, &logical_params, arrays, &logical);
	if (status != PAGED_OK)
		return status;
	if (!params->physical) {
		*mask_p = logical;
		return PAGED_OK;
	}
	status = paged_block_mask_to_physical(logical, params->n_rows, params->rows, mask_p);
	paged_block_mask_destroy(logical);
	return status;
}

static PyObject *
block_mask_from_arrays(struct pool *pool, const struct paged_block_mask_params *params,
		       const struct block_arrays *arrays)
{
	struct paged_block_arrays given = { .struct_size = sizeof(given) };
	struct block_mask *mask = block_mask_new(pool);
	struct paged_pool *handle;
	enum paged_status status;

	if (mask == NULL)
		return NULL;
	for (int kind = 0; kind < 2; kind++) {
		given.num_blocks[kind] = arrays->num_blocks[kind].data;
		given.indices[kind] = arrays->indices[kind].data;
		given.width[kind] = (uint64_t)arrays->indices[kind].shape[3];
	}
	handle = pool_enter(pool);
	if (handle == NULL) {
		Py_DECREF((PyObject *)mask);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	status = block_mask_take_arrays(handle, params, &given, &mask->handle);
	Py_END_ALLOW_THREADS;
	return block_mask_result(mask, status);
}

PyObject *
block_mask_open_arrays(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "q_len",        "kv_len",   "num_blocks", "indices", "full_num_blocks",
					     "full_indices", "seqs",     "q_base",     "b",       "n_heads",
					     "q_block",      "kv_block", "physical" };
	static struct call_signature signature = {
		.function = "Pool.block_mask_from_arrays", .names = names, .n = 13, .n_positional = 2, .n_required = 2
	};
	struct paged_block_mask_params params;
	struct block_mask_arguments common;
	PyObject *values[13], *mask = NULL;
	struct block_arrays arrays;
	struct rows rows;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !block_arrays_from(&values[2], &arrays))
		return NULL;
	common = (struct block_mask_arguments){
		.rows = { .q_len = values[0],
			  .kv_len = values[1],
			  .seqs = values[6],
			  .q_base = values[7],
			  .b = values[8] },
		.n_heads = values[9],
		.q_block = values[10],
		.kv_block = values[11],
		.physical = values[12],
	};
	if (block_mask_params(&common, &rows, &params)) {
		if (params.physical && params.kv_block == 0)
			params.kv_block = pool->info.page_size;
		if (block_arrays_check(&arrays, &params))
			mask = block_mask_from_arrays(pool, &params, &arrays);
		rows_free(&rows);
	}
	block_arrays_release(&arrays);
	return mask;
}

/* array.array("i") of n zeros, and its memory, until PyBuffer_Release(). */
static PyObject *
int32_zeros(int64_t n, Py_buffer *buffer)
{
	PyObject *module = PyImport_ImportModule("array"), *one = NULL, *zeros = NULL;

	if (module != NULL)
		one = PyObject_CallMethod(module, "array", "s(i)", "i", 0);
	if (one != NULL)
		zeros = PySequence_Repeat(one, (Py_ssize_t)n);
	Py_XDECREF(one);
	Py_XDECREF(module);
	if (zeros != NULL && PyObject_GetBuffer(zeros, buffer, PyBUF_WRITABLE) != 0)
		Py_CLEAR(zeros);
	return zeros;
}

/* Add (array of zeros, shape) to the dict; `buffer` is the array's memory. */
static bool
block_arrays_add(PyObject *dict, const char *name, int n_dims, const int64_t *shape, Py_buffer *buffer)
{
	PyObject *zeros, *shape_tuple, *pair;
	int64_t n = 1;
	bool ok;

	for (int i = 0; i < n_dims; i++)
		if (__builtin_mul_overflow(n, shape[i], &n) || n > PY_SSIZE_T_MAX / (int64_t)sizeof(int32_t)) {
			PyErr_NoMemory();
			return false;
		}
	zeros = int32_zeros(n, buffer);
	if (zeros == NULL)
		return false;
	shape_tuple = n_dims == 3 ? Py_BuildValue("LLL", (long long)shape[0], (long long)shape[1], (long long)shape[2])
				  : Py_BuildValue("LLLL", (long long)shape[0], (long long)shape[1], (long long)shape[2],
						  (long long)shape[3]);
	pair = shape_tuple != NULL ? PyTuple_Pack(2, zeros, shape_tuple) : NULL;
	ok = pair != NULL && PyDict_SetItemString(dict, name, pair) == 0;
	Py_XDECREF(pair);
	Py_XDECREF(shape_tuple);
	Py_DECREF(zeros);
	if (!ok)
		PyBuffer_Release(buffer);
	return ok;
}

static bool
block_arrays_fill(const struct block_mask *mask, struct paged_block_arrays *arrays)
{
	enum paged_status status;

	if (pool_enter(mask->pool) == NULL)
		return false;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_block_mask_arrays(mask->handle, arrays);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK) {
		pool_result(mask->pool, status);
		return false;
	}
	pool_leave(mask->pool);
	return true;
}

const char block_mask_arrays_doc[] =
	"arrays($self, /, width=None)\n"
	"--\n"
	"\n"
	"Return the lists of blocks as the arrays of PyTorch's BlockMask.\n"
	"\n"
	"The result is a dict of \"num_blocks\" and \"indices\" (partial blocks, PyTorch's\n"
	"kv_num_blocks and kv_indices), \"full_num_blocks\" and \"full_indices\".  Each\n"
	"value is an array.array of int32 and its shape: (n_rows, n_heads, query blocks),\n"
	"and for indices also the width.  Entries past a count are 0.\n"
	"Pool.block_mask_from_arrays() takes the dict as keyword arguments.\n"
	"\n"
	"width\n"
	"    Of both arrays of indices; None: the longest list of each.\n"
	"\n"
	"Raises InvalidError if rows differ in their numbers of query blocks, or a list\n"
	"is longer than width.";

/* Fills `dict`; the buffers are released by the caller. */
static bool
block_arrays_read(const struct block_mask *mask, PyObject *width, PyObject *dict, Py_buffer *buffers, int *n_buffers)
{
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
	struct paged_block_mask_info info;
	int64_t shape[4];
	uint32_t both;

	if (!block_mask_get_info(mask, &info) || !block_arrays_fill(mask, &arrays))
		return false;
	if (call_is_given(width)) {
		if (!number_u32(width, "width", &both))
			return false;
		arrays.width[0] = arrays.width[1] = both;
	}
	shape[0] = info.n_rows;
	shape[1] = info.n_heads;
	shape[2] = (int64_t)(info.n_lists / ((uint64_t)info.n_rows * info.n_heads));
	for (int kind = 0; kind < 2; kind++) {
		shape[3] = (int64_t)arrays.width[kind];
		for (int i = 0; i < 2; i++, ++*n_buffers)
			if (!block_arrays_add(dict, block_array_names[kind][i], 3 + i, shape, &buffers[*n_buffers]))
				return false;
		arrays.num_blocks[kind] = buffers[2 * kind].buf;
		arrays.indices[kind] = buffers[2 * kind + 1].buf;
	}
	return block_arrays_fill(mask, &arrays);
}

PyObject *
block_mask_arrays(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "width" };
	static struct call_signature signature = {
		.function = "BlockMask.arrays", .names = names, .n = 1, .n_positional = 1
	};
	PyObject *width, *dict;
	Py_buffer buffers[4];
	int n_buffers = 0;
	bool ok;

	if (!call_parse(&signature, arguments, n, keyword_names, &width))
		return NULL;
	dict = PyDict_New();
	if (dict == NULL)
		return NULL;
	ok = block_arrays_read((const struct block_mask *)self, width, dict, buffers, &n_buffers);
	while (n_buffers > 0)
		PyBuffer_Release(&buffers[--n_buffers]);
	if (!ok)
		Py_CLEAR(dict);
	return dict;
}
