/* SPDX-License-Identifier: Apache-2.0 */
/* The page tables of a plan, for other kernels. */
#include "python/ext/ext.h"

/* array.array("i", bytes) */
static PyObject *
batch_array(PyObject *bytes)
{
	PyObject *module = PyImport_ImportModule("array"), *array = NULL;

	if (module != NULL)
		array = PyObject_CallMethod(module, "array", "sO", "i", bytes);
	Py_XDECREF(module);
	return array;
}

static PyObject *
batch_table_new(size_t n, int32_t **at_p)
{
	PyObject *bytes;

	if (n > PY_SSIZE_T_MAX / sizeof(int32_t))
		return PyErr_NoMemory();
	bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * sizeof(int32_t)));
	*at_p = bytes != NULL ? (int32_t *)(void *)PyBytes_AsString(bytes) : NULL;
	return bytes;
}

/* A tuple of arrays from n bytes objects, which it takes; NULL in place of an object: an exception is set. */
static PyObject *
batch_arrays(PyObject **bytes, Py_ssize_t n, bool valid)
{
	PyObject *tuple = valid ? PyTuple_New(n) : NULL, *array;

	for (Py_ssize_t i = 0; i < n; i++) {
		array = tuple != NULL ? batch_array(bytes[i]) : NULL;
		if (tuple != NULL && (array == NULL || PyTuple_SetItem(tuple, i, array) != 0))
			Py_CLEAR(tuple);
		Py_XDECREF(bytes[i]);
	}
	return tuple;
}

const char batch_tables_csr_doc[] =
	"tables_csr($self, /)\n--\n\n"
	"The plan's page tables in FlashInfer's format: (indptr, indices, last_page_len).\n\n"
	"Objects array.array of int32, which torch.frombuffer() and numpy.asarray() take.\n"
	"Row r has the physical pages indices[indptr[r]:indptr[r + 1]] and last_page_len[r]\n"
	"tokens in the last of them, 0 if it has no tokens.";

PyObject *
batch_tables_csr(struct batch *batch, PyObject *nothing)
{
	struct paged_batch *handle = batch_enter(batch);
	enum paged_status status = PAGED_OK;
	PyObject *bytes[3] = { NULL };
	int32_t *at[3] = { NULL };
	size_t n_indices = 0;
	bool valid;

	(void)nothing;
	if (handle == NULL)
		return NULL;
	status = paged_batch_tables_csr(handle, NULL, NULL, 0, NULL, &n_indices);
	if (status != PAGED_OK && status != PAGED_ERR_LIMIT) {
		batch_leave(batch);
		return error_raise(batch->pool->client->handle, status);
	}
	bytes[0] = batch_table_new(batch->n_rows + (size_t)1, &at[0]);
	bytes[1] = batch_table_new(n_indices, &at[1]);
	bytes[2] = batch_table_new(batch->n_rows, &at[2]);
	valid = bytes[0] != NULL && bytes[1] != NULL && bytes[2] != NULL;
	if (valid)
		status = paged_batch_tables_csr(handle, at[0], at[1], n_indices, at[2], NULL);
	batch_leave(batch);
	if (valid && status != PAGED_OK) {
		error_raise(batch->pool->client->handle, status);
		valid = false;
	}
	return batch_arrays(bytes, 3, valid);
}

const char batch_tables_padded_doc[] =
	"tables_padded($self, width, /)\n--\n\n"
	"The plan's page tables in the format of vLLM and FlashAttention: (table, kv_len).\n\n"
	"Objects array.array of int32.  table has n_rows * width elements, row by row; those\n"
	"past a row's pages are 0.  kv_len has n_rows elements, in tokens.  Raises LimitError\n"
	"if a row has more pages than width.";

PyObject *
batch_tables_padded(struct batch *batch, PyObject *object)
{
	PyObject *bytes[2] = { NULL };
	enum paged_status status = PAGED_OK;
	struct paged_batch *handle;
	int32_t *at[2] = { NULL };
	uint32_t width;
	bool valid;

	if (!number_u32(object, "width", &width))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	bytes[0] = batch_table_new((size_t)batch->n_rows * width, &at[0]);
	bytes[1] = batch_table_new(batch->n_rows, &at[1]);
	valid = bytes[0] != NULL && bytes[1] != NULL;
	if (valid)
		status = paged_batch_tables_padded(handle, at[0], width, at[1]);
	batch_leave(batch);
	if (valid && status != PAGED_OK) {
		error_raise(batch->pool->client->handle, status);
		valid = false;
	}
	return batch_arrays(bytes, 2, valid);
}
