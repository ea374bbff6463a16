/* SPDX-License-Identifier: Apache-2.0 */
/* Watch: the changes of a pool's index of published pages, and a walk over it. */
#include "python/ext/ext.h"

#include <structmember.h>

static PyTypeObject *watch_type, *walk_type;

struct watch {
	PyObject_HEAD
	struct pool *pool;
	struct paged_watch *handle; /* NULL: closed */
	bool busy;                  /* a call has released the GIL */
	PyObject *weak_references;
};

/** An iterator over the nodes; it reads them in parts. */
struct walk {
	PyObject_HEAD
	struct watch *watch;
	uint32_t from; /* of paged_watch_walk() */
	bool complete;
	size_t n, next; /* in nodes */
	struct paged_node_info nodes[64];
};

/* -------------------------------------------------------------- open and close */

/* Closing a pool or client has closed its watches in the library. */
static bool
watch_is_open(const struct watch *watch)
{
	return watch->handle != NULL && pool_is_open(watch->pool);
}

/* As pool_enter(); also RuntimeError if another thread is inside a call of the watch. */
static struct paged_watch *
watch_enter(struct watch *watch)
{
	if (watch->handle == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the watch is closed");
		return NULL;
	}
	if (watch->busy) {
		PyErr_SetString(PyExc_RuntimeError,
				"the watch is inside another call: a watch is used by one thread at a time");
		return NULL;
	}
	if (pool_enter(watch->pool) == NULL)
		return NULL;
	watch->busy = true;
	return watch->handle;
}

static void
watch_leave(struct watch *watch)
{
	watch->busy = false;
	pool_leave(watch->pool);
}

PyObject *
watch_open(struct pool *pool, PyObject *nothing)
{
	struct paged_pool *pool_handle = pool_enter(pool);
	enum paged_status status;
	struct watch *watch;

	(void)nothing;
	if (pool_handle == NULL)
		return NULL;
	watch = (struct watch *)PyType_GenericAlloc(watch_type, 0);
	if (watch == NULL) {
		pool_leave(pool);
		return NULL;
	}
	watch->pool = (struct pool *)Py_NewRef((PyObject *)pool);
	Py_BEGIN_ALLOW_THREADS
	status = paged_watch_open(pool_handle, &watch->handle);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	if (status == PAGED_OK)
		return (PyObject *)watch;
	error_raise(pool->client->handle, status);
	Py_DECREF((PyObject *)watch);
	return NULL;
}

static PyObject *
watch_close(struct watch *watch, PyObject *nothing)
{
	struct paged_watch *handle;

	(void)nothing;
	if (!watch_is_open(watch)) {
		watch->handle = NULL;
		Py_RETURN_NONE;
	}
	handle = watch_enter(watch);
	if (handle == NULL)
		return NULL;
	watch->handle = NULL;
	Py_BEGIN_ALLOW_THREADS
	paged_watch_close(handle);
	Py_END_ALLOW_THREADS
	watch_leave(watch);
	Py_RETURN_NONE;
}

static int
watch_traverse(struct watch *watch, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)watch));
	Py_VISIT((PyObject *)watch->pool);
	return 0;
}

static void
watch_dealloc(struct watch *watch)
{
	PyTypeObject *type = Py_TYPE((PyObject *)watch);

	PyObject_GC_UnTrack(watch);
	if (watch->weak_references != NULL)
		PyObject_ClearWeakRefs((PyObject *)watch);
	/* It takes the client's mutex, which a thread may hold that waits for the GIL to log. */
	if (watch->handle != NULL && pool_enter_to_destroy(watch->pool)) {
		Py_BEGIN_ALLOW_THREADS
		paged_watch_close(watch->handle);
		Py_END_ALLOW_THREADS
		pool_leave(watch->pool);
	}
	Py_DECREF((PyObject *)watch->pool);
	PyObject_GC_Del(watch);
	Py_DECREF((PyObject *)type);
}

static PyObject *
watch_context_enter(struct watch *watch, PyObject *nothing)
{
	(void)nothing;
	if (watch_enter(watch) == NULL)
		return NULL;
	watch_leave(watch);
	return Py_NewRef((PyObject *)watch);
}

static PyObject *
watch_context_exit(struct watch *watch, PyObject *arguments)
{
	(void)arguments;
	return watch_close(watch, NULL);
}

/* -------------------------------------------------------------- changes */

struct watch_wait {
	struct paged_watch *handle;
	struct paged_change *changes; /* [n_max] */
	size_t n_max, n;
};

static enum paged_status
watch_wait_part(void *argument, uint32_t timeout_ms)
{
	struct watch_wait *wait = argument;

	return paged_watch_next(wait->handle, wait->changes, wait->n_max, timeout_ms, &wait->n);
}

static PyObject *
watch_changes(const struct watch_wait *wait)
{
	PyObject *list = PyList_New((Py_ssize_t)wait->n);

	for (size_t i = 0; list != NULL && i < wait->n; i++) {
		PyObject *change = report_change(&wait->changes[i]);

		if (change == NULL || PyList_SetItem(list, (Py_ssize_t)i, change) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* Consumes wait->changes. */
static PyObject *
watch_wait(struct watch *watch, struct watch_wait *wait, uint32_t timeout_ms)
{
	PyObject *result = NULL;
	int status;

	wait->handle = watch_enter(watch);
	if (wait->handle != NULL) {
		/* Leaves the pool. */
		status = pool_wait(watch->pool, watch_wait_part, wait, timeout_ms);
		watch->busy = false;
		if (status == PAGED_OK || status == PAGED_ERR_TIMEOUT)
			result = watch_changes(wait);
		else if (status > 0)
			error_raise(watch->pool->client->handle, (enum paged_status)status);
	}
	PyMem_Free(wait->changes);
	return result;
}

static PyObject *
watch_next(struct watch *watch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "timeout", "n_max" };
	static struct call_signature signature = { "Watch.next", names, 2, 1, 0, { NULL } };
	struct watch_wait wait = { .n_max = 1024 };
	uint32_t timeout_ms = POOL_WAIT_FOR_EVER, n_max;
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    (call_is_given(values[0]) && !number_timeout_ms(values[0], "timeout", &timeout_ms)))
		return NULL;
	if (values[1] != NULL) {
		if (!number_u32(values[1], "n_max", &n_max))
			return NULL;
		/* The ring has no more. */
		wait.n_max = n_max < PAGED_WATCH_CHANGES ? n_max : PAGED_WATCH_CHANGES;
	}
	if (wait.n_max == 0) {
		PyErr_SetString(PyExc_ValueError, "n_max must be at least 1");
		return NULL;
	}
	wait.changes = PyMem_Calloc(wait.n_max, sizeof(*wait.changes));
	return wait.changes != NULL ? watch_wait(watch, &wait, timeout_ms) : PyErr_NoMemory();
}

/* -------------------------------------------------------------- the walk */

static PyObject *
watch_walk(struct watch *watch, PyObject *nothing)
{
	struct walk *walk;

	(void)nothing;
	if (watch_enter(watch) == NULL)
		return NULL;
	watch_leave(watch);
	walk = (struct walk *)PyType_GenericAlloc(walk_type, 0);
	if (walk != NULL)
		walk->watch = (struct watch *)Py_NewRef((PyObject *)watch);
	return (PyObject *)walk;
}

static PyObject *
walk_next(struct walk *walk)
{
	struct watch *watch = walk->watch;
	struct paged_watch *handle;
	enum paged_status status;

	if (walk->next == walk->n && !walk->complete) {
		handle = watch_enter(watch);
		if (handle == NULL)
			return NULL;
		Py_BEGIN_ALLOW_THREADS
		status = paged_watch_walk(handle, &walk->from, walk->nodes,
					  sizeof(walk->nodes) / sizeof(walk->nodes[0]), &walk->n);
		Py_END_ALLOW_THREADS
		watch_leave(watch);
		if (status != PAGED_OK)
			return error_raise(watch->pool->client->handle, status);
		walk->next = 0;
		walk->complete = walk->n == 0;
	}
	return walk->next < walk->n ? report_node_info(&walk->nodes[walk->next++]) : NULL;
}

static int
walk_traverse(struct walk *walk, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)walk));
	Py_VISIT((PyObject *)walk->watch);
	return 0;
}

static void
walk_dealloc(struct walk *walk)
{
	PyTypeObject *type = Py_TYPE((PyObject *)walk);

	PyObject_GC_UnTrack(walk);
	Py_DECREF((PyObject *)walk->watch);
	PyObject_GC_Del(walk);
	Py_DECREF((PyObject *)type);
}

/* -------------------------------------------------------------- nodes, position */

static PyObject *
watch_read(struct watch *watch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "page", "serial" };
	static struct call_signature signature = { "Watch.read", names, 2, 2, 2, { NULL } };
	struct paged_block_key key = { .struct_size = sizeof(key) };
	uint32_t page, page_size = watch->pool->info.page_size, *tokens;
	struct paged_watch *handle;
	enum paged_status status;
	PyObject *values[2], *result = NULL;
	uint64_t serial;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u32(values[0], "page", &page) ||
	    !number_u64(values[1], "serial", &serial))
		return NULL;
	tokens = PyMem_Calloc(page_size, sizeof(*tokens));
	if (tokens == NULL)
		return PyErr_NoMemory();
	handle = watch_enter(watch);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_watch_read(handle, page, serial, &key, tokens, page_size);
		Py_END_ALLOW_THREADS
		watch_leave(watch);
		result = status == PAGED_OK ? report_block_key(&key, tokens, page_size)
					    : error_raise(watch->pool->client->handle, status);
	}
	PyMem_Free(tokens);
	return result;
}

static PyObject *
watch_info(struct watch *watch, PyObject *nothing)
{
	struct paged_watch_info info = { .struct_size = sizeof(info) };
	struct paged_watch *handle = watch_enter(watch);
	enum paged_status status;

	(void)nothing;
	if (handle == NULL)
		return NULL;
	status = paged_watch_get_info(handle, &info);
	watch_leave(watch);
	return status == PAGED_OK ? report_watch_info(&info) : error_raise(watch->pool->client->handle, status);
}

static PyObject *
watch_get_closed(struct watch *watch, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(!watch_is_open(watch));
}

static PyObject *
watch_get_pool(struct watch *watch, void *Py_UNUSED(closure))
{
	return Py_NewRef((PyObject *)watch->pool);
}

static PyObject *
watch_repr(struct watch *watch)
{
	struct paged_watch_info info = { .struct_size = sizeof(info) };
	const char *name = watch->pool->info.name;
	struct paged_watch *handle;
	enum paged_status status;

	if (!watch_is_open(watch))
		return PyUnicode_FromFormat("<paged.Watch of pool %s, closed>", name);
	if (watch->busy || client_is_logging())
		return PyUnicode_FromFormat("<paged.Watch of pool %s, in a call>", name);
	handle = watch_enter(watch);
	if (handle == NULL)
		return NULL;
	status = paged_watch_get_info(handle, &info);
	watch_leave(watch);
	/* The daemon has died, for example. */
	if (status != PAGED_OK)
		return PyUnicode_FromFormat("<paged.Watch of pool %s>", name);
	return PyUnicode_FromFormat("<paged.Watch of pool %s, position %llu, %llu changes behind>", name,
				    (unsigned long long)info.position, (unsigned long long)info.n_behind);
}

static PyObject *
walk_repr(struct walk *walk)
{
	return PyUnicode_FromFormat("<iterator over the published pages of pool %s>", walk->watch->pool->info.name);
}

/* -------------------------------------------------------------- the types */

const char watch_doc[] = "watch($self, /)\n--\n\n"
			 "A Watch of the index of published pages, from now on.\n\n"
			 "Raises UnsupportedError if the pool publishes nothing (publish = no), GoneError.";

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Free the watch; nothing if it is closed.  Closing the pool or client closes it.\n\n"
			"Raises RuntimeError if another thread is inside a call of the watch.");
PyDoc_STRVAR(next_doc, "next($self, /, timeout=None, *, n_max=1024)\n--\n\n"
		       "The next changes, a list of at most n_max Change.\n\n"
		       "If there is none, waits for the first one; after `timeout` seconds the list is\n"
		       "empty.  None: no limit; 0: does not wait.\n\n"
		       "Raises StaleError if the watch was too far behind and changes were lost: it goes on\n"
		       "after the last change of now, so walk again.  Raises GoneError.");
PyDoc_STRVAR(walk_doc, "walk($self, /)\n--\n\n"
		       "An iterator over the Node of all published pages, in the order of their pages.\n\n"
		       "Nodes may change meanwhile.  Those that were published before the watch's position\n"
		       "and still are will be listed; of later changes, next() tells.  Parents may follow\n"
		       "their children.");
PyDoc_STRVAR(read_doc, "read($self, /, page, serial)\n--\n\n"
		       "What a node's page holds, as BlockKey.\n\n"
		       "Raises StaleError if the page is no longer published, or was published again: a\n"
		       "change of kind CHANGE_REMOVED follows.  Raises RangeError.");
PyDoc_STRVAR(info_doc, "info($self, /)\n--\n\n"
		       "Where the watch stands, as WatchInfo.");
PyDoc_STRVAR(type_doc, "The index of a pool's published pages, and its changes; see Pool.watch().\n\n"
		       "Reads shared memory only: a watcher that is slow, stopped or killed affects no other\n"
		       "process.  To mirror the index, walk first, then apply changes:\n\n"
		       "    nodes = {node.serial: node for node in watch.walk()}\n"
		       "    for change in watch.next(timeout=1.0):\n"
		       "        if change.kind == paged.CHANGE_REMOVED:\n"
		       "            nodes.pop(change.serial, None)\n\n"
		       "A change may be applied twice, because the walk may have seen it; serials never\n"
		       "repeat.  A watch is used by one thread at a time.");
PyDoc_STRVAR(walk_type_doc, "An iterator over a pool's published pages; see Watch.walk().");

static int
watch_add_type(PyObject *module)
{
	static PyMethodDef methods[] = {
		CALL_METHOD_NOARGS("close", watch_close, close_doc),
		CALL_METHOD_NOARGS("__enter__", watch_context_enter, "Return the watch."),
		{ "__exit__", (PyCFunction)(void (*)(void))watch_context_exit, METH_VARARGS, "close()" },
		CALL_METHOD("next", watch_next, next_doc),
		CALL_METHOD_NOARGS("walk", watch_walk, walk_doc),
		CALL_METHOD("read", watch_read, read_doc),
		CALL_METHOD_NOARGS("info", watch_info, info_doc),
		{ NULL, NULL, 0, NULL },
	};
	static PyGetSetDef attributes[] = {
		{ "closed", (getter)watch_get_closed, NULL, "True after close() of the watch, its pool or its client.",
		  NULL },
		{ "pool", (getter)watch_get_pool, NULL, "The Pool.", NULL },
		{ NULL, NULL, NULL, NULL, NULL },
	};
	static PyMemberDef members[] = {
		{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct watch, weak_references), READONLY, NULL },
		{ NULL, 0, 0, 0, NULL },
	};
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)type_doc },
		{ Py_tp_methods, methods },
		{ Py_tp_getset, attributes },
		{ Py_tp_members, members },
		{ Py_tp_dealloc, (void *)watch_dealloc },
		{ Py_tp_traverse, (void *)watch_traverse },
		{ Py_tp_repr, (void *)watch_repr },
		{ 0, NULL },
	};
	static PyType_Spec spec = { "paged.Watch", sizeof(struct watch), 0,
				    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
					    Py_TPFLAGS_DISALLOW_INSTANTIATION,
				    slots };

	watch_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return watch_type != NULL ? PyModule_AddObjectRef(module, "Watch", (PyObject *)watch_type) : -1;
}

int
watch_add(PyObject *module)
{
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)walk_type_doc },
		{ Py_tp_iter, PyObject_SelfIter },
		{ Py_tp_iternext, (void *)walk_next },
		{ Py_tp_dealloc, (void *)walk_dealloc },
		{ Py_tp_traverse, (void *)walk_traverse },
		{ Py_tp_repr, (void *)walk_repr },
		{ 0, NULL },
	};
	static PyType_Spec spec = { "paged._paged.Walk", sizeof(struct walk), 0,
				    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
					    Py_TPFLAGS_DISALLOW_INSTANTIATION,
				    slots };

	walk_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return walk_type != NULL ? watch_add_type(module) : -1;
}
