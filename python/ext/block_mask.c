/* SPDX-License-Identifier: Apache-2.0 */
/* BlockMask: making and converting block masks. */
#include "python/ext/ext.h"

PyTypeObject *block_mask_type;

struct block_mask *
block_mask_new(struct pool *pool)
{
	struct block_mask *mask = (struct block_mask *)PyType_GenericAlloc(block_mask_type, 0);

	if (mask != NULL)
		mask->pool = (struct pool *)Py_NewRef((PyObject *)pool);
	return mask;
}

PyObject *
block_mask_result(struct block_mask *mask, enum paged_status status)
{
	if (status == PAGED_OK) {
		pool_leave(mask->pool);
		return (PyObject *)mask;
	}
	pool_result(mask->pool, status);
	Py_DECREF((PyObject *)mask);
	return NULL;
}

static void
block_mask_dealloc(PyObject *self)
{
	struct block_mask *mask = (struct block_mask *)self;
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	/* It takes the client's mutex, which a thread may hold that waits for the GIL to log. */
	if (mask->handle != NULL && pool_enter_to_destroy(mask->pool)) {
		Py_BEGIN_ALLOW_THREADS;
		paged_block_mask_destroy(mask->handle);
		Py_END_ALLOW_THREADS;
		pool_leave(mask->pool);
	}
	Py_XDECREF((PyObject *)mask->pool);
	release(self);
	Py_DECREF(type);
}

/* A cycle may lead through the client's log function. */
static int
block_mask_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct block_mask *)self)->pool);
	return 0;
}

bool
block_mask_number(PyObject *value, const char *name, uint32_t *number_p)
{
	return !call_is_given(value) || number_u32(value, name, number_p);
}

bool
block_mask_params(const struct block_mask_arguments *arguments, struct rows *rows,
		  struct paged_block_mask_params *params)
{
	int physical = call_is_given(arguments->physical) ? PyObject_IsTrue(arguments->physical) : 0;

	*params = (struct paged_block_mask_params){ .struct_size = sizeof(*params), .physical = physical == 1 };
	if (physical < 0 || !block_mask_number(arguments->n_heads, "n_heads", &params->n_heads) ||
	    !block_mask_number(arguments->q_block, "q_block", &params->q_block) ||
	    !block_mask_number(arguments->kv_block, "kv_block", &params->kv_block))
		return false;
	if (call_is_given(arguments->max_bytes) && !number_u64(arguments->max_bytes, "max_bytes", &params->max_bytes))
		return false;
	if (!rows_parse(&arguments->rows, rows))
		return false;
	params->rows = rows->at;
	params->n_rows = rows->n;
	return true;
}

static PyObject *
block_mask_build(struct pool *pool, struct mod *mod, const struct paged_block_mask_params *params,
		 const struct arrays *arrays, bool remote)
{
	struct block_mask *mask = block_mask_new(pool);
	struct paged_pool *handle;
	enum paged_status status;

	if (mask == NULL)
		return NULL;
	handle = pool_enter(pool);
	if (handle == NULL) {
		Py_DECREF((PyObject *)mask);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	if (remote)
		status = paged_block_mask_create_remote(handle, params, mod->handle, arrays->n, arrays->at,
							&mask->handle);
	else
		status = paged_block_mask_create(handle, params, mod->handle, arrays->n, arrays->at, &mask->handle);
	Py_END_ALLOW_THREADS;
	return block_mask_result(mask, status);
}

/* `argument`: a Mod, a text, or None for a mask that hides nothing. */
static struct mod *
block_mask_mod(struct pool *pool, PyObject *argument, const struct arrays *arrays)
{
	PyObject *noop;
	struct mod *mod;

	if (argument != Py_None)
		return mod_from_argument(pool, PAGED_MOD_MASK, "mod", argument, arrays);
	noop = PyUnicode_FromString("noop");
	if (noop == NULL)
		return NULL;
	mod = mod_from_argument(pool, PAGED_MOD_MASK, "mod", noop, arrays);
	Py_DECREF(noop);
	return mod;
}

PyObject *
block_mask_open(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "mod",       "q_len",   "kv_len",  "seqs",     "q_base",
					     "b",         "n_heads", "q_block", "kv_block", "physical",
					     "max_bytes", "remote",  "arrays" };
	static struct call_signature signature = {
		.function = "Pool.block_mask", .names = names, .n = 13, .n_positional = 3, .n_required = 3
	};
	struct paged_block_mask_params params;
	struct block_mask_arguments common;
	PyObject *values[13], *mask = NULL;
	struct arrays arrays;
	struct rows rows;
	struct mod *mod;
	int remote;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	common = (struct block_mask_arguments){
		.rows = { .q_len = values[1],
			  .kv_len = values[2],
			  .seqs = values[3],
			  .q_base = values[4],
			  .b = values[5] },
		.n_heads = values[6],
		.q_block = values[7],
		.kv_block = values[8],
		.physical = values[9],
		.max_bytes = values[10],
	};
	remote = call_is_given(values[11]) ? PyObject_IsTrue(values[11]) : 0;
	if (remote < 0 || !arrays_parse(values[12], &arrays))
		return NULL;
	mod = block_mask_mod(pool, values[0], &arrays);
	if (mod != NULL && arrays_check_memory(&arrays, NULL) && block_mask_params(&common, &rows, &params)) {
		mask = block_mask_build(pool, mod, &params, &arrays, remote == 1);
		rows_free(&rows);
	}
	Py_XDECREF((PyObject *)mod);
	arrays_free(&arrays);
	return mask;
}

PyDoc_STRVAR(block_mask_to_physical_doc,
	     "to_physical($self, /, seqs, kv_len, *, pages=None)\n"
	     "--\n"
	     "\n"
	     "Return the mask with KV blocks identified by their places in the pool.\n"
	     "\n"
	     "The counterpart of PyTorch's convert_logical_block_mask().  Part i of page p has\n"
	     "the index p * (page_size // kv_block) + i.  kv_block must equal the page size,\n"
	     "divide it, or be a multiple of it.  Attention takes both kinds of masks.\n"
	     "\n"
	     "seqs\n"
	     "    For each row its sequence; for a mask of one row, any number of them. They\n"
	     "    may be others than those that the mask was made for.\n"
	     "kv_len\n"
	     "    Tokens of each row: one number for all, or one for each.\n"
	     "pages\n"
	     "    Instead of seqs (None): for each row its physical pages.\n"
	     "\n"
	     "Raises InvalidError if the mask is physical or the number of rows differs,\n"
	     "CapacityError if kv_len exceeds the capacity of a row, StaleError if an id\n"
	     "names no live sequence, and RangeError if a page is outside the pool.");

static PyObject *
block_mask_to_physical(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "kv_len", "pages" };
	static struct call_signature signature = {
		.function = "BlockMask.to_physical", .names = names, .n = 3, .n_positional = 2, .n_required = 2
	};
	const struct block_mask *from = (const struct block_mask *)self;
	PyObject *values[3], *q_len;
	struct block_mask *mask;
	enum paged_status status;
	struct rows rows;
	bool ok;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	q_len = PyLong_FromLong(0); /* not read: the mask has its own */
	if (q_len == NULL)
		return NULL;
	ok = rows_parse(
		&(struct rows_arguments){ .seqs = values[0], .q_len = q_len, .kv_len = values[1], .pages = values[2] },
		&rows);
	Py_DECREF(q_len);
	if (!ok)
		return NULL;
	mask = block_mask_new(from->pool);
	if (mask == NULL || pool_enter(from->pool) == NULL) {
		Py_XDECREF((PyObject *)mask);
		rows_free(&rows);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	status = paged_block_mask_to_physical(from->handle, rows.n, rows.at, &mask->handle);
	Py_END_ALLOW_THREADS;
	rows_free(&rows);
	return block_mask_result(mask, status);
}

/* Makes a mask from another. */
typedef enum paged_status (*block_mask_convert_fn)(const struct paged_block_mask *from, const void *argument,
						   struct paged_block_mask **mask_p);

static PyObject *
block_mask_convert(PyObject *self, block_mask_convert_fn convert, const void *argument)
{
	const struct block_mask *from = (const struct block_mask *)self;
	struct block_mask *mask = block_mask_new(from->pool);
	enum paged_status status;

	if (mask == NULL || pool_enter(from->pool) == NULL) {
		Py_XDECREF((PyObject *)mask);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	status = convert(from->handle, argument, &mask->handle);
	Py_END_ALLOW_THREADS;
	return block_mask_result(mask, status);
}

static enum paged_status
block_mask_convert_logical(const struct paged_block_mask *from, const void *argument, struct paged_block_mask **mask_p)
{
	(void)argument;
	return paged_block_mask_to_logical(from, mask_p);
}

PyDoc_STRVAR(block_mask_to_logical_doc, "to_logical($self, /)\n"
					"--\n"
					"\n"
					"Return the logical mask from which this physical mask was made.\n"
					"\n"
					"Raises InvalidError if the mask is logical.");

static PyObject *
block_mask_to_logical(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	return block_mask_convert(self, block_mask_convert_logical, NULL);
}

static enum paged_status
block_mask_convert_crop(const struct paged_block_mask *from, const void *argument, struct paged_block_mask **mask_p)
{
	const uint32_t *lengths = argument;

	return paged_block_mask_crop(from, lengths[0], lengths[1], mask_p);
}

PyDoc_STRVAR(block_mask_crop_doc, "crop($self, /, q_len, kv_len)\n"
				  "--\n"
				  "\n"
				  "Return a copy of a logical mask, cut to at most q_len queries and kv_len keys.\n"
				  "\n"
				  "A full block that extends past a length becomes partial.  Raises InvalidError if\n"
				  "the mask is physical.");

static PyObject *
block_mask_crop(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "q_len", "kv_len" };
	static struct call_signature signature = {
		.function = "BlockMask.crop", .names = names, .n = 2, .n_positional = 2, .n_required = 2
	};
	uint32_t lengths[2];
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !number_u32(values[0], "q_len", &lengths[0]) || !number_u32(values[1], "kv_len", &lengths[1]))
		return NULL;
	return block_mask_convert(self, block_mask_convert_crop, lengths);
}

static enum paged_status
block_mask_convert_transpose(const struct paged_block_mask *from, const void *argument,
			     struct paged_block_mask **mask_p)
{
	(void)argument;
	return paged_block_mask_transpose(from, mask_p);
}

PyDoc_STRVAR(block_mask_transpose_doc,
	     "transpose($self, /)\n"
	     "--\n"
	     "\n"
	     "Return a mask that lists for each KV block the query blocks that see it.\n"
	     "\n"
	     "These are PyTorch's q_num_blocks and q_indices.  The result is a logical mask.");

static PyObject *
block_mask_transpose(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	return block_mask_convert(self, block_mask_convert_transpose, NULL);
}

PyDoc_STRVAR(block_mask_validate_doc,
	     "validate($self, /)\n"
	     "--\n"
	     "\n"
	     "Check that a physical mask still matches the page tables.\n"
	     "\n"
	     "Growth of a sequence is not a change, and a logical mask is always valid.  Raises\n"
	     "StaleError if pages of a row were replaced or removed since the mask was made,\n"
	     "and GoneError if the daemon has died or has ended this session.");

static PyObject *
block_mask_validate(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	const struct block_mask *mask = (const struct block_mask *)self;
	enum paged_status status;

	if (pool_enter(mask->pool) == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_block_mask_validate(mask->handle);
	Py_END_ALLOW_THREADS;
	return pool_result(mask->pool, status);
}

static PyObject *
block_mask_repr(PyObject *self)
{
	const struct block_mask *mask = (const struct block_mask *)self;
	struct paged_block_mask_info info;

	if (!pool_is_open(mask->pool))
		return PyUnicode_FromFormat("<paged.BlockMask of a closed pool>");
	if (!block_mask_get_info(mask, &info))
		return NULL;
	return PyUnicode_FromFormat("<paged.BlockMask of pool %s: %s, %u rows, %u heads, %llu blocks of %u x %u>",
				    mask->pool->info.name, info.physical ? "physical" : "logical", info.n_rows,
				    info.n_heads, (unsigned long long)info.n_blocks, info.q_block, info.kv_block);
}

int
block_mask_add(PyObject *module)
{
	static const PyMethodDef own_methods[] = {
		CALL_METHOD("to_physical", block_mask_to_physical, block_mask_to_physical_doc),
		CALL_METHOD_NOARGS("to_logical", block_mask_to_logical, block_mask_to_logical_doc),
		CALL_METHOD_NOARGS("validate", block_mask_validate, block_mask_validate_doc),
		CALL_METHOD("crop", block_mask_crop, block_mask_crop_doc),
		CALL_METHOD_NOARGS("transpose", block_mask_transpose, block_mask_transpose_doc),
		{ 0 }
	};
	static PyMethodDef methods[12];
	static PyType_Slot slots[] = {
		{ Py_tp_doc, "The KV blocks that each query block attends to.\n"
			     "\n"
			     "A block is full if the mask mod is true for all its elements, and partial if it is\n"
			     "true for some; attention visits no other blocks.  Pool.block_mask() and\n"
			     "Pool.block_mask_from_arrays() make masks.  A BlockMask is immutable; any thread may\n"
			     "use it until its pool is closed." },
		{ Py_tp_dealloc, block_mask_dealloc },
		{ Py_tp_traverse, block_mask_traverse },
		{ Py_tp_repr, block_mask_repr },
		{ Py_tp_methods, methods },
		{ Py_tp_getset, block_mask_attributes },
		{ 0, NULL }
	};
	static PyType_Spec spec = { .name = "paged.BlockMask",
				    .basicsize = sizeof(struct block_mask),
				    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
					     Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
				    .slots = slots };

	call_join_methods(methods, (const PyMethodDef *[]){ own_methods, block_mask_view_methods, NULL });
	block_mask_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (block_mask_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "BlockMask", (PyObject *)block_mask_type);
}
