/* SPDX-License-Identifier: Apache-2.0 */
/* Batch: life, marks, publish, fork. */
#include "python/ext/ext.h"

#include <string.h>
#include <structmember.h>

#include "python/ext/dlpack.h"

PyTypeObject *batch_type;

/* -------------------------------------------------------------- open and close */

/* Closing a client or pool has destroyed its batches in the library. */
static bool
batch_is_open(const struct batch *batch)
{
	return batch->handle != NULL && batch->pool->handle != NULL && batch->pool->client->handle != NULL;
}

struct paged_batch *
batch_enter(struct batch *batch)
{
	if (batch->handle == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the batch is closed");
		return NULL;
	}
	if (batch->busy) {
		PyErr_SetString(PyExc_RuntimeError,
				"the batch is inside another call: a batch is used by one thread at a time");
		return NULL;
	}
	if (pool_enter(batch->pool) == NULL)
		return NULL;
	batch->busy = true;
	return batch->handle;
}

void
batch_leave(struct batch *batch)
{
	batch->busy = false;
	pool_leave(batch->pool);
}

PyObject *
batch_result(struct batch *batch, enum paged_status status)
{
	batch_leave(batch);
	if (status != PAGED_OK)
		return error_raise(batch->pool->client->handle, status);
	Py_RETURN_NONE;
}

PyObject *
batch_open(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "max_rows", "reserve_ahead", "max_q_tokens", "max_q_heads" };
	static struct call_signature signature = { .function = "Pool.batch", .names = names, .n = 4 };
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 256 };
	uint32_t *numbers[] = { &params.max_rows, &params.reserve_ahead, &params.max_q_tokens, &params.max_q_heads };
	struct paged_pool *pool_handle;
	enum paged_status status;
	int32_t device_type, device_id;
	struct batch *batch;
	PyObject *values[4];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	for (int i = 0; i < 4; i++)
		if (values[i] != NULL && !number_u32(values[i], names[i], numbers[i]))
			return NULL;
	if (!device_of_pool(pool, &device_type, &device_id))
		return NULL;
	batch = (struct batch *)PyType_GenericAlloc(batch_type, 0);
	if (batch == NULL)
		return NULL;
	batch->pool = (struct pool *)Py_NewRef((PyObject *)pool);
	batch->device_id = device_id;
	batch->max_rows = params.max_rows;
	pool_handle = pool_enter(pool);
	if (pool_handle == NULL)
		goto err_free;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_batch_create(pool_handle, &params, &batch->handle);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK) {
		pool_result(pool, status);
		goto err_free;
	}
	pool_leave(pool);
	return (PyObject *)batch;

err_free:
	Py_DECREF((PyObject *)batch);
	return NULL;
}

/* Without the GIL.  On a GPU, the buffers may be freed when the stream has ended. */
static void
batch_destroy(struct paged_batch *handle)
{
	(void)paged_batch_finish(handle);
	paged_batch_destroy(handle);
}

PyDoc_STRVAR(batch_close_doc, "close($self, /)\n--\n\n"
			      "Wait for the batch's work on its stream, and free its buffers and mods.\n\n"
			      "A second call does nothing.  Closing the pool or client closes its batches.\n"
			      "Raises RuntimeError if another thread is inside a call of the batch.");

static PyObject *
batch_close(struct batch *batch, PyObject *nothing)
{
	struct paged_batch *handle;

	(void)nothing;
	if (!batch_is_open(batch)) {
		batch->handle = NULL;
		Py_RETURN_NONE;
	}
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	batch->handle = NULL;
	batch->n_rows = 0;
	Py_BEGIN_ALLOW_THREADS
	batch_destroy(handle);
	Py_END_ALLOW_THREADS
	batch_leave(batch);
	Py_RETURN_NONE;
}

static int
batch_traverse(struct batch *batch, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)batch));
	Py_VISIT((PyObject *)batch->pool);
	return 0;
}

static void
batch_dealloc(struct batch *batch)
{
	PyTypeObject *type = Py_TYPE((PyObject *)batch);

	PyObject_GC_UnTrack(batch);
	if (batch->weak_references != NULL)
		PyObject_ClearWeakRefs((PyObject *)batch);
	/* It takes the client's mutex, which a thread may hold that waits for the GIL to log. */
	if (batch->handle != NULL && pool_enter_to_destroy(batch->pool)) {
		Py_BEGIN_ALLOW_THREADS;
		batch_destroy(batch->handle);
		Py_END_ALLOW_THREADS;
		pool_leave(batch->pool);
	}
	Py_DECREF((PyObject *)batch->pool);
	PyObject_GC_Del(batch);
	Py_DECREF((PyObject *)type);
}

static PyObject *
batch_with(struct batch *batch, PyObject *nothing)
{
	(void)nothing;
	if (batch_enter(batch) == NULL)
		return NULL;
	batch_leave(batch);
	return Py_NewRef((PyObject *)batch);
}

static PyObject *
batch_exit(struct batch *batch, PyObject *const *arguments, Py_ssize_t n)
{
	(void)arguments, (void)n;
	return batch_close(batch, NULL);
}

/* ------------------------------------------------------------ checks and marks */

/* A call of the library without arguments that may wait. */
static PyObject *
batch_call(struct batch *batch, enum paged_status (*call)(struct paged_batch *batch))
{
	struct paged_batch *handle = batch_enter(batch);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = call(handle);
	Py_END_ALLOW_THREADS
	return batch_result(batch, status);
}

PyDoc_STRVAR(batch_validate_doc, "validate($self, /)\n--\n\n"
				 "Check after a step that what it read was valid.\n\n"
				 "Call it if rows read sequences of other sessions, if mods read arrays, and on a\n"
				 "GPU, where the device finds some errors; there it waits for the stream.  Rows with\n"
				 "an error were not computed.\n\n"
				 "Raises StaleError if pages of a planned sequence were replaced or removed since\n"
				 "the plan, RangeError if a mod read an array out of bounds (it got 0), and GoneError\n"
				 "if the daemon has died.  On a GPU also CapacityError, PermissionDeniedError,\n"
				 "LimitError and BackendError.");

static PyObject *
batch_validate(struct batch *batch, PyObject *nothing)
{
	(void)nothing;
	return batch_call(batch, paged_batch_validate);
}

PyDoc_STRVAR(batch_finish_doc, "finish($self, /)\n--\n\n"
			       "Wait until all work on the batch's stream has ended.\n\n"
			       "In host memory, calls have done their work when they return.");

static PyObject *
batch_finish(struct batch *batch, PyObject *nothing)
{
	(void)nothing;
	return batch_call(batch, paged_batch_finish);
}

PyDoc_STRVAR(batch_mark_doc, "mark($self, /)\n--\n\n"
			     "Mark the work that the batch has put on its stream; return the mark as bytes.\n\n"
			     "Send the bytes to another thread or process, whose batch passes them to wait().\n"
			     "Neither thread waits.  A mark is valid on this machine, for batches of the same pool.");

static PyObject *
batch_mark(struct batch *batch, PyObject *nothing)
{
	struct paged_batch *handle = batch_enter(batch);
	struct paged_mark mark;
	enum paged_status status;
	PyObject *none;

	(void)nothing;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_batch_mark(handle, &mark);
	Py_END_ALLOW_THREADS
	none = batch_result(batch, status);
	if (none == NULL)
		return NULL;
	Py_DECREF(none);
	return PyBytes_FromStringAndSize((const char *)&mark, sizeof(mark));
}

PyDoc_STRVAR(batch_wait_doc, "wait($self, mark, /)\n--\n\n"
			     "Order the later work of this batch after the work of a mark.\n\n"
			     "The stream waits; the thread does not.  Raises ValueError if the bytes are no mark,\n"
			     "or one of another pool, and GoneError if the process that made it has exited.");

static PyObject *
batch_wait(struct batch *batch, PyObject *object)
{
	struct paged_batch *handle;
	struct paged_mark mark;
	enum paged_status status;
	Py_ssize_t size;
	char *bytes;

	if (!PyBytes_Check(object)) {
		PyErr_Format(PyExc_TypeError, "mark must be bytes, not %R", (PyObject *)Py_TYPE(object));
		return NULL;
	}
	if (PyBytes_AsStringAndSize(object, &bytes, &size) != 0)
		return NULL;
	if (size != (Py_ssize_t)sizeof(mark)) {
		PyErr_Format(PyExc_ValueError, "mark has %zd bytes; a mark has %zu", size, sizeof(mark));
		return NULL;
	}
	memcpy(&mark, bytes, sizeof(mark));
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_batch_wait(handle, &mark);
	Py_END_ALLOW_THREADS
	return batch_result(batch, status);
}

/* --------------------------------------------------------------------- sharing */

PyDoc_STRVAR(batch_publish_doc,
	     "publish($self, /, seqs, prefixes)\n--\n\n"
	     "Publish sequences as soon as the work on the stream has ended; does not wait.\n\n"
	     "The arguments and errors are those of Pool.publish(), before which work on a GPU must\n"
	     "have ended.");

static PyObject *
batch_publish(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "prefixes" };
	static struct call_signature signature = {
		.function = "Batch.publish", .names = names, .n = 2, .n_positional = 2, .n_required = 2
	};
	struct publishes publishes;
	struct paged_batch *handle;
	enum paged_status status;
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !publishes_parse(batch->pool, values[0], values[1], &publishes))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL) {
		publishes_free(&publishes);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	status = paged_batch_publish(handle, publishes.n, publishes.items);
	Py_END_ALLOW_THREADS
	publishes_free(&publishes);
	return batch_result(batch, status);
}

PyDoc_STRVAR(batch_fork_doc, "fork($self, /, parents, n_tokens)\n--\n\n"
			     "Create sequences with the first n_tokens tokens of each parent; return their ids.\n\n"
			     "parents\n"
			     "    One id or several.  To fork a parent 64 times, pass it 64 times.\n"
			     "n_tokens\n"
			     "    One number for all or one for each.\n\n"
			     "Whole pages are shared, and parent and child cannot write them from now on.  A\n"
			     "partial last page is copied; on a GPU, call finish() before a parent is truncated or\n"
			     "erased.  Children have the capacity of their pages.\n\n"
			     "Raises CapacityError if n_tokens exceeds a parent's capacity, FullError if the pool\n"
			     "lacks slots or pages (nothing is created), PermissionDeniedError if a parent belongs\n"
			     "to another session, and StaleError if an id names no live sequence.");

static PyObject *
batch_fork_ids(struct batch *batch, const struct numbers_u64 *parents, const struct numbers_u32 *n_tokens,
	       paged_seq_id *children)
{
	struct paged_batch *handle = batch_enter(batch);
	enum paged_status status;
	PyObject *none;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_batch_fork(handle, parents->n, parents->at, n_tokens->at, children);
	Py_END_ALLOW_THREADS
	none = batch_result(batch, status);
	if (none == NULL)
		return NULL;
	Py_DECREF(none);
	return list_u64(children, parents->n);
}

static PyObject *
batch_fork(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "parents", "n_tokens" };
	static struct call_signature signature = {
		.function = "Batch.fork", .names = names, .n = 2, .n_positional = 2, .n_required = 2
	};
	struct numbers_u64 parents;
	struct numbers_u32 n_tokens;
	PyObject *values[2], *list = NULL;
	paged_seq_id *children;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !numbers_u64(values[0], "parents", &parents))
		return NULL;
	if (numbers_u32_n(values[1], "n_tokens", parents.n, &n_tokens)) {
		children = PyMem_Calloc(parents.n, sizeof(*children));
		list = children != NULL ? batch_fork_ids(batch, &parents, &n_tokens, children) : PyErr_NoMemory();
		PyMem_Free(children);
		numbers_u32_free(&n_tokens);
	}
	numbers_u64_free(&parents);
	return list;
}

/* ------------------------------------------------------------------------ type */

static PyObject *
batch_get_closed(struct batch *batch, void *nothing)
{
	(void)nothing;
	return PyBool_FromLong(!batch_is_open(batch));
}

static PyObject *
batch_get_pool(struct batch *batch, void *nothing)
{
	(void)nothing;
	return Py_NewRef((PyObject *)batch->pool);
}

static PyObject *
batch_get_n_rows(struct batch *batch, void *nothing)
{
	(void)nothing;
	return PyLong_FromUnsignedLong(batch->n_rows);
}

static PyObject *
batch_get_total_q(struct batch *batch, void *nothing)
{
	(void)nothing;
	return PyLong_FromUnsignedLongLong(batch->n_rows != 0 ? batch->total_q : 0);
}

static PyObject *
batch_repr(struct batch *batch)
{
	if (!batch_is_open(batch))
		return PyUnicode_FromString("<paged.Batch, closed>");
	return PyUnicode_FromFormat("<paged.Batch of pool %s, %u rows>", batch->pool->info.name,
				    (unsigned int)batch->n_rows);
}

static PyGetSetDef batch_fields[] = {
	{ "closed", (getter)batch_get_closed, NULL, "The batch, its pool or its client is closed.", NULL },
	{ "pool", (getter)batch_get_pool, NULL, "The pool.", NULL },
	{ "n_rows", (getter)batch_get_n_rows, NULL, "Rows of the plan; 0: there is no plan.", NULL },
	{ "total_q", (getter)batch_get_total_q, NULL, "Query tokens of the plan, all rows together.", NULL },
	{ 0 },
};

static PyMemberDef batch_members[] = {
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct batch, weak_references), READONLY, NULL },
	{ 0 },
};

PyDoc_STRVAR(batch_mods_doc, "mods($self, /, *, mask=None, score=None, blocks=None, **arrays)\n--\n\n"
			     "Return a ModSet: a mask mod, a score mod and a block mask for attention().\n\n"
			     "mask, score\n"
			     "    A Mod of the batch's pool, or the text of one, as Pool.mod() takes it.\n"
			     "blocks, arrays\n"
			     "    As in ModSet.bind().  A text uses only names that are given here.  A Mod that\n"
			     "    uses names may be bound later, before attention().  No array can be named mask,\n"
			     "    score or blocks.\n\n"
			     "Make a set once, and bind() new values to it in each step.\n\n"
			     "Raises InvalidError if a text is not valid or uses another name, NotFoundError if\n"
			     "arrays lack a name that a Mod uses, and ValueError if a mod is of the other kind or\n"
			     "of another pool.");

static PyMethodDef batch_own_methods[] = {
	CALL_METHOD_NOARGS("close", batch_close, batch_close_doc),
	CALL_METHOD("plan", batch_plan, batch_plan_doc),
	CALL_METHOD_NOARGS("pages_missing", batch_pages_missing, batch_pages_missing_doc),
	CALL_METHOD_NOARGS("validate", batch_validate, batch_validate_doc),
	CALL_METHOD_NOARGS("finish", batch_finish, batch_finish_doc),
	CALL_METHOD_NOARGS("mark", batch_mark, batch_mark_doc),
	{ "wait", (PyCFunction)(void (*)(void))batch_wait, METH_O, batch_wait_doc },
	CALL_METHOD("publish", batch_publish, batch_publish_doc),
	CALL_METHOD("fork", batch_fork, batch_fork_doc),
	CALL_METHOD_NOARGS("tables_csr", batch_tables_csr, batch_tables_csr_doc),
	{ "tables_padded", (PyCFunction)(void (*)(void))batch_tables_padded, METH_O, batch_tables_padded_doc },
	CALL_METHOD("mods", mod_set_open, batch_mods_doc),
	CALL_METHOD_NOARGS("__enter__", batch_with, NULL),
	{ "__exit__", (PyCFunction)(void (*)(void))batch_exit, METH_FASTCALL, NULL },
	{ NULL, NULL, 0, NULL },
};

PyDoc_STRVAR(batch_doc, "Rows of one step: plan() once, then append() and attention() for each layer.\n\n"
			"Pool.batch() makes batches.  A batch is used by one thread at a time; different\n"
			"batches run at the same time.  A with statement closes the batch at its end.");

int
batch_add(PyObject *module)
{
	/* Those here, and the four of attention.c. */
	static PyMethodDef methods[sizeof(batch_own_methods) / sizeof(batch_own_methods[0]) + 4];
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)batch_doc },   { Py_tp_dealloc, batch_dealloc },
		{ Py_tp_traverse, batch_traverse }, { Py_tp_repr, batch_repr },
		{ Py_tp_methods, methods },         { Py_tp_getset, batch_fields },
		{ Py_tp_members, batch_members },   { 0, NULL },
	};
	static PyType_Spec spec = {
		.name = "paged.Batch",
		.basicsize = sizeof(struct batch),
		.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
			 Py_TPFLAGS_IMMUTABLETYPE,
		.slots = slots,
	};

	call_join_methods(methods, (const PyMethodDef *[]){ batch_own_methods, attention_methods, NULL });
	batch_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (batch_type == NULL)
		return -1;
	return PyModule_AddType(module, batch_type);
}
