/* SPDX-License-Identifier: Apache-2.0 */
/* Client: life, log. */
#include "python/ext/ext.h"

#include <stddef.h>
#include <structmember.h>
#include <unistd.h>

PyTypeObject *client_type;

/* This thread is inside the log function of a client. */
static _Thread_local bool client_logging;

/* ------------------------------------------------------------- enter, leave */

struct paged_client *
client_enter(struct client *client)
{
	if (client->handle == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the client is closed");
		return NULL;
	}
	if (client_logging) {
		PyErr_SetString(PyExc_RuntimeError, "a log function must not call paged");
		return NULL;
	}
	client->n_inside++;
	return client->handle;
}

bool
client_is_logging(void)
{
	return client_logging;
}

void
client_leave(struct client *client)
{
	client->n_inside--;
}

PyObject *
client_result(struct client *client, enum paged_status status)
{
	client->n_inside--;
	if (status != PAGED_OK)
		return error_raise(client->handle, status);
	Py_RETURN_NONE;
}

void
client_log(void *argument, enum paged_log_level level, const char *text)
{
	struct client *client = argument;
	PyGILState_STATE gil = PyGILState_Ensure();
	PyObject *type, *value, *trace, *line, *result = NULL;
	bool outer = client_logging; /* the log function of another client, which has ended in it */

	PyErr_Fetch(&type, &value, &trace);
	client_logging = true;
	line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	if (line != NULL && client->log != NULL)
		result = PyObject_CallFunction(client->log, "iO", (int)level, line);
	if (result == NULL && PyErr_Occurred())
		PyErr_WriteUnraisable(client->log);
	Py_XDECREF(line);
	Py_XDECREF(result);
	client_logging = outer;
	PyErr_Restore(type, value, trace);
	PyGILState_Release(gil);
}

/* -------------------------------------------------------------------- close */

static PyObject *
client_close(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client->handle;

	if (handle == NULL)
		Py_RETURN_NONE;
	if (client_enter(client) == NULL)
		return NULL;
	client_leave(client);
	/* In a forked child, the threads that were inside do not exist. */
	if (client->n_inside > 0 && client->pid == getpid()) {
		PyErr_Format(PyExc_RuntimeError, "the client cannot be closed: %u calls are inside it",
			     client->n_inside);
		return NULL;
	}
	if (client->n_tensors > 0) {
		PyErr_Format(PyExc_BufferError, "the client cannot be closed: %u tensors over its pages are alive",
			     client->n_tensors);
		return NULL;
	}
	client->handle = NULL;
	Py_BEGIN_ALLOW_THREADS
	paged_client_close(handle);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *
client_context_enter(struct client *client, PyObject *Py_UNUSED(ignored))
{
	if (client_enter(client) == NULL)
		return NULL;
	client_leave(client);
	return Py_NewRef((PyObject *)client);
}

static PyObject *
client_context_exit(struct client *client, PyObject *Py_UNUSED(arguments))
{
	return client_close(client, NULL);
}

static int
client_traverse(struct client *client, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)client));
	Py_VISIT(client->log);
	return 0;
}

static int
client_clear(struct client *client)
{
	Py_CLEAR(client->log);
	return 0;
}

/* Pools, batches and tensors hold references, so that none of them is alive. */
static void
client_dealloc(struct client *client)
{
	PyTypeObject *type = Py_TYPE((PyObject *)client);
	struct paged_client *handle = client->handle;

	PyObject_GC_UnTrack(client);
	if (client->weak_references != NULL)
		PyObject_ClearWeakRefs((PyObject *)client);
	if (handle != NULL) {
		client->handle = NULL;
		Py_BEGIN_ALLOW_THREADS
		paged_client_close(handle);
		Py_END_ALLOW_THREADS
	}
	Py_CLEAR(client->log);
	PyObject_GC_Del(client);
	Py_DECREF(type);
}

/* ------------------------------------------------------------------ methods */

static PyObject *
client_repr(struct client *client)
{
	if (client->handle == NULL)
		return PyUnicode_FromString("<paged.Client closed>");
	return PyUnicode_FromFormat("<paged.Client session=%u threads=%u run=%s>", paged_client_session(client->handle),
				    client->n_threads, client->openmp ? "openmp" : "own");
}

static PyObject *
client_fileno(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	int fd;

	if (handle == NULL)
		return NULL;
	fd = paged_client_fd(handle);
	client_leave(client);
	if (fd < 0)
		return error_format(PAGED_ERR_UNSUPPORTED, "an embedded client has no descriptor");
	return PyLong_FromLong(fd);
}

static PyObject *
client_dispatch(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_client_dispatch(handle);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

static PyObject *
client_ping(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_client_ping(handle);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

static PyObject *
client_pool(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "name" };
	static struct call_signature signature = { "Client.pool", names, 1, 1, 1, { NULL } };
	PyObject *values[1];
	const char *name;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	name = text_utf8(values[0], "name");
	return name != NULL ? pool_open(client, name) : NULL;
}

/* --------------------------------------------------------------- attributes */

static PyObject *
client_get_closed(struct client *client, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(client->handle == NULL);
}

static PyObject *
client_get_session(struct client *client, void *Py_UNUSED(closure))
{
	struct paged_client *handle = client_enter(client);

	if (handle == NULL)
		return NULL;
	client_leave(client);
	return PyLong_FromUnsignedLong(paged_client_session(handle));
}

static PyObject *
client_get_join_token(struct client *client, void *Py_UNUSED(closure))
{
	struct paged_client *handle = client_enter(client);

	if (handle == NULL)
		return NULL;
	client_leave(client);
	return PyUnicode_FromString(paged_client_join_token(handle));
}

static PyObject *
client_get_threads(struct client *client, void *Py_UNUSED(closure))
{
	return PyLong_FromUnsignedLong(client->n_threads);
}

static PyObject *
client_get_run(struct client *client, void *Py_UNUSED(closure))
{
	return PyUnicode_FromString(client->openmp ? "openmp" : "own");
}

static PyGetSetDef client_attributes[] = {
	{ "closed", (getter)client_get_closed, NULL, "True after close().", NULL },
	{ "session", (getter)client_get_session, NULL,
	  "Id of the session that owns this client's sequences; 0: an observer.", NULL },
	{ "join_token", (getter)client_get_join_token, NULL,
	  "Secret by which another process joins this session; \"\" unless this client began it.\n\n"
	  "A bearer token: pass it through a pipe or the environment, not on a command line.",
	  NULL },
	{ "threads", (getter)client_get_threads, NULL, "Threads that run a batch's kernels.", NULL },
	{ "run", (getter)client_get_run, NULL, "\"own\" or \"openmp\": whose threads these are.", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Leave the session and free everything; nothing if the client is closed.\n\n"
			"Closes its pools and batches.  The close of a session's first member ends the\n"
			"session, unless it was opened with outlive.  By closing, the caller promises that\n"
			"no kernel of this process still runs on the pages.\n\n"
			"Raises BufferError while a tensor over the pages of a pool lives, and\n"
			"RuntimeError while another thread is inside a call.");
PyDoc_STRVAR(fileno_doc, "fileno($self, /)\n--\n\n"
			 "Descriptor that becomes readable when dispatch() has something to report.\n\n"
			 "For select, selectors and asyncio; do not close it.  Raises UnsupportedError for\n"
			 "an embedded client.");
PyDoc_STRVAR(dispatch_doc, "dispatch($self, /)\n--\n\n"
			   "Process pending messages of the daemon; never waits for it.\n\n"
			   "Raises StoppingError if the daemon stops soon or the session is drained (finish, then\n"
			   "close; a drained session gets no new sequences), and GoneError if it has died or has\n"
			   "ended this session.");
PyDoc_STRVAR(ping_doc, "ping($self, /)\n--\n\n"
		       "One round trip to the owner of the pools.\n\n"
		       "Raises TimedOutError or GoneError.");
PyDoc_STRVAR(pool_doc, "pool($self, /, name)\n--\n\n"
		       "Map a pool's pages and page tables into this process and return a Pool.\n\n"
		       "Raises NotFoundError (the message lists the pools), PermissionDeniedError if the\n"
		       "pool's allow-list refuses this user, BackendError if mapping failed.");

static const PyMethodDef client_methods[] = {
	CALL_METHOD_NOARGS("close", client_close, close_doc),
	CALL_METHOD_NOARGS("__enter__", client_context_enter, "Return the client."),
	{ "__exit__", (PyCFunction)(void (*)(void))client_context_exit, METH_VARARGS, "close()" },
	CALL_METHOD_NOARGS("fileno", client_fileno, fileno_doc),
	CALL_METHOD_NOARGS("dispatch", client_dispatch, dispatch_doc),
	CALL_METHOD_NOARGS("ping", client_ping, ping_doc),
	CALL_METHOD("pool", client_pool, pool_doc),
	{ NULL, NULL, 0, NULL },
};

PyDoc_STRVAR(client_doc, "An open connection to the daemon, or an embedded owner of pools; see connect() and\n"
			 "embedded().\n\n"
			 "A session owns sequences.  It ends when the client that began it closes or dies,\n"
			 "or with outlive when its last member does.  When the daemon dies or ends the\n"
			 "session, every call that needs it raises GoneError: close the client and open a\n"
			 "new one.\n\n"
			 "Calls may come from any thread; requests to the daemon are serialised.  A call\n"
			 "releases the GIL.  It may wait for the daemon up to the client's timeout.");

int
client_add(PyObject *module)
{
	static PyMethodDef methods[40];
	static PyMemberDef members[] = {
		{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct client, weak_references), READONLY, NULL },
		{ NULL, 0, 0, 0, NULL },
	};
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)client_doc },
		{ Py_tp_methods, methods },
		{ Py_tp_getset, client_attributes },
		{ Py_tp_members, members },
		{ Py_tp_dealloc, (void *)client_dealloc },
		{ Py_tp_traverse, (void *)client_traverse },
		{ Py_tp_clear, (void *)client_clear },
		{ Py_tp_repr, (void *)client_repr },
		{ 0, NULL },
	};
	static PyType_Spec spec = { "paged.Client", sizeof(struct client), 0,
				    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
					    Py_TPFLAGS_DISALLOW_INSTANTIATION,
				    slots };

	call_join_methods(methods, (const PyMethodDef *[]){ client_methods, client_seq_methods, client_handover_methods,
							    admin_methods, NULL });
	client_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (client_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "Client", (PyObject *)client_type);
}
