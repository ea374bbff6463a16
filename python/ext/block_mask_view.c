/* SPDX-License-Identifier: Apache-2.0 */
/* Views of a BlockMask: its numbers, a dense matrix, a text picture. */
#include "python/ext/ext.h"

bool
block_mask_get_info(const struct block_mask *mask, struct paged_block_mask_info *info)
{
	enum paged_status status;

	*info = (struct paged_block_mask_info){ .struct_size = sizeof(*info) };
	if (pool_enter(mask->pool) == NULL)
		return false;
	status = paged_block_mask_get_info(mask->handle, info);
	if (status != PAGED_OK) {
		pool_result(mask->pool, status);
		return false;
	}
	pool_leave(mask->pool);
	return true;
}

/* Numbers of query blocks and KV blocks, which must be the same in all rows. */
static bool
block_mask_extents(const struct block_mask *mask, const struct paged_block_mask_info *info, uint64_t *extents)
{
	struct paged_block_mask_row row = { .struct_size = sizeof(row) };
	uint64_t n_q, n_kv;

	for (uint32_t r = 0; r < info->n_rows; r++) {
		enum paged_status status = paged_block_mask_get_row(mask->handle, r, &row);

		if (status != PAGED_OK) {
			error_raise(mask->pool->client->handle, status);
			return false;
		}
		n_q = (row.q_len + info->q_block - 1) / info->q_block;
		n_kv = (row.kv_len + info->kv_block - 1) / info->kv_block;
		if (r > 0 && (n_q != extents[0] || n_kv != extents[1])) {
			PyErr_Format(PyExc_ValueError,
				     "row %u has %llu x %llu blocks, the rows before it have %llu x %llu", (unsigned)r,
				     (unsigned long long)n_q, (unsigned long long)n_kv, (unsigned long long)extents[0],
				     (unsigned long long)extents[1]);
			return false;
		}
		extents[0] = n_q;
		extents[1] = n_kv;
	}
	return true;
}

PyDoc_STRVAR(block_mask_dense_doc,
	     "dense($self, /)\n"
	     "--\n"
	     "\n"
	     "Return which blocks are listed, as bytes of 0 and 1, and their shape.\n"
	     "\n"
	     "The shape is (n_rows, n_heads, query blocks, KV blocks).  Raises ValueError if rows\n"
	     "differ in their numbers of blocks.");

static PyObject *
block_mask_dense_in_pool(const struct block_mask *mask, const struct paged_block_mask_info *info)
{
	uint64_t extents[2] = { 0, 0 }, n;
	enum paged_status status;
	PyObject *bytes;

	if (!block_mask_extents(mask, info, extents))
		return NULL;
	if (__builtin_mul_overflow((uint64_t)info->n_rows * info->n_heads, extents[0], &n) ||
	    __builtin_mul_overflow(n, extents[1], &n) || n > PY_SSIZE_T_MAX)
		return PyErr_NoMemory();
	bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
	if (bytes == NULL)
		return NULL;
	status = paged_block_mask_dense(mask->handle, (uint8_t *)PyBytes_AsString(bytes));
	if (status != PAGED_OK) {
		Py_DECREF(bytes);
		return error_raise(mask->pool->client->handle, status);
	}
	return Py_BuildValue("N(IIKK)", bytes, info->n_rows, info->n_heads, (unsigned long long)extents[0],
			     (unsigned long long)extents[1]);
}

static PyObject *
block_mask_dense(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	const struct block_mask *mask = (const struct block_mask *)self;
	struct paged_block_mask_info info;
	PyObject *dense;

	if (!block_mask_get_info(mask, &info) || pool_enter(mask->pool) == NULL)
		return NULL;
	dense = block_mask_dense_in_pool(mask, &info);
	pool_leave(mask->pool);
	return dense;
}

PyDoc_STRVAR(block_mask_picture_doc, "picture($self, /, rows=20, columns=20, limit=4)\n"
				     "--\n"
				     "\n"
				     "Return a picture of the mask as text, as PyTorch prints a BlockMask.\n"
				     "\n"
				     "rows, columns\n"
				     "    Height and width in characters.\n"
				     "limit\n"
				     "    Most pairs of row and head to show.");

static PyObject *
block_mask_picture(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "rows", "columns", "limit" };
	static struct call_signature signature = {
		.function = "BlockMask.picture", .names = names, .n = 3, .n_positional = 3
	};
	const struct block_mask *mask = (const struct block_mask *)self;
	uint32_t rows = 20, columns = 20, limit = 4;
	PyObject *values[3], *picture;
	enum paged_status status;
	char *text;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !block_mask_number(values[0], "rows", &rows) || !block_mask_number(values[1], "columns", &columns) ||
	    !block_mask_number(values[2], "limit", &limit) || pool_enter(mask->pool) == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_block_mask_picture(mask->handle, rows, columns, limit, &text);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK)
		return pool_result(mask->pool, status);
	pool_leave(mask->pool);
	picture = PyUnicode_FromString(text);
	paged_free(text);
	return picture;
}

static PyObject *
block_mask_get_pool(PyObject *self, void *Py_UNUSED(closure))
{
	return Py_NewRef((PyObject *)((struct block_mask *)self)->pool);
}

static PyObject *
block_mask_get_number(PyObject *self, void *closure)
{
	struct paged_block_mask_info info;
	const char *at = (const char *)&info + (size_t)closure;
	uint32_t number;

	if (!block_mask_get_info((const struct block_mask *)self, &info))
		return NULL;
	memcpy(&number, at, sizeof(number));
	return PyLong_FromUnsignedLong(number);
}

static PyObject *
block_mask_get_size(PyObject *self, void *closure)
{
	struct paged_block_mask_info info;
	const char *at = (const char *)&info + (size_t)closure;
	uint64_t size;

	if (!block_mask_get_info((const struct block_mask *)self, &info))
		return NULL;
	memcpy(&size, at, sizeof(size));
	return PyLong_FromUnsignedLongLong(size);
}

static PyObject *
block_mask_get_physical(PyObject *self, void *Py_UNUSED(closure))
{
	struct paged_block_mask_info info;

	if (!block_mask_get_info((const struct block_mask *)self, &info))
		return NULL;
	return PyBool_FromLong(info.physical == 1);
}

static PyObject *
block_mask_get_sparsity(PyObject *self, void *Py_UNUSED(closure))
{
	struct paged_block_mask_info info;

	if (!block_mask_get_info((const struct block_mask *)self, &info))
		return NULL;
	return PyFloat_FromDouble(info.sparsity);
}

#define INFO_FIELD(field) ((void *)offsetof(struct paged_block_mask_info, field))

PyGetSetDef block_mask_attributes[] = {
	{ "pool", block_mask_get_pool, NULL, "The Pool that the mask belongs to.", NULL },
	{ "n_rows", block_mask_get_number, NULL, "Number of rows.", INFO_FIELD(n_rows) },
	{ "n_heads", block_mask_get_number, NULL, "Number of heads; 1: one stands for all.", INFO_FIELD(n_heads) },
	{ "q_block", block_mask_get_number, NULL, "Query rows per block.", INFO_FIELD(q_block) },
	{ "kv_block", block_mask_get_number, NULL, "Tokens per KV block.", INFO_FIELD(kv_block) },
	{ "physical", block_mask_get_physical, NULL, "True: KV blocks are identified by their places in the pool.",
	  NULL },
	{ "n_blocks", block_mask_get_size, NULL, "Number of listed blocks, partial and full.", INFO_FIELD(n_blocks) },
	{ "n_bytes", block_mask_get_size, NULL, "Memory in use, bytes.", INFO_FIELD(bytes) },
	{ "sparsity", block_mask_get_sparsity, NULL, "Percent of the blocks that are in no list.", NULL },
	{ 0 }
};

const PyMethodDef block_mask_view_methods[] = {
	CALL_METHOD("arrays", block_mask_arrays, block_mask_arrays_doc),
	CALL_METHOD_NOARGS("dense", block_mask_dense, block_mask_dense_doc),
	CALL_METHOD("picture", block_mask_picture, block_mask_picture_doc),
	{ 0 },
};
