/* SPDX-License-Identifier: Apache-2.0 */
/* Exceptions, one for each status. */
#include "python/ext/ext.h"

#include <stdarg.h>

static PyObject *error_base;

#define SHORTAGE_DOC                                                                                \
	"\n\n"                                                                                      \
	"pages_missing, slots_missing: with so many more, the same call has enough.\n"              \
	"n_requested: the pages that it asked for.  Of the pool's pages, n_free, n_cached, n_own\n" \
	"(only sequences of this session name them: erasing all of these makes them available),\n"  \
	"n_others and n_quarantined.  All are 0 if something else was missing: see the message."

/* Exceptions by status.  Each is also of the built-in class that a program without knowledge of paged would catch. */
static struct error_class {
	const char *name;
	PyObject **builtin; /* NULL: none */
	const char *doc;
	PyObject *class;
} error_classes[] = {
	[PAGED_ERR_INVALID] = { "paged.InvalidError", &PyExc_ValueError,
				"An argument is outside what the call documents.", NULL },
	[PAGED_ERR_NOMEM] = { "paged.NoMemoryError", &PyExc_MemoryError, "This process has no memory left.", NULL },
	[PAGED_ERR_NOENT] = { "paged.NotFoundError", &PyExc_LookupError, "There is no object of that name or id.",
			      NULL },
	[PAGED_ERR_PERM] = { "paged.PermissionDeniedError", &PyExc_PermissionError,
			     "The object belongs to another session, or policy forbids the call.", NULL },
	[PAGED_ERR_FULL] = { "paged.FullError", NULL,
			     "Not enough free pages or sequence slots; nothing was taken." SHORTAGE_DOC, NULL },
	[PAGED_ERR_CAPACITY] = { "paged.CapacityError", NULL,
				 "A length or position exceeds the capacity that is reserved for it.", NULL },
	[PAGED_ERR_LIMIT] = { "paged.LimitError", &PyExc_ValueError,
			      "A count or length exceeds a limit of the pool or the library.", NULL },
	[PAGED_ERR_STALE] = { "paged.StaleError", NULL,
			      "The sequence has ended, or page table entries that a plan or mask used have been "
			      "replaced or removed.",
			      NULL },
	[PAGED_ERR_RANGE] = { "paged.RangeError", &PyExc_IndexError,
			      "An index is out of bounds: of a page, a position, an array element, a row.", NULL },
	[PAGED_ERR_GONE] = { "paged.GoneError", &PyExc_ConnectionError,
			     "The daemon has died, or has ended this client's session.\n\n"
			     "Close the client and open a new one.",
			     NULL },
	[PAGED_ERR_AGAIN] = { "paged.AgainError", NULL,
			      "A page table is being changed, or an object is busy: call again.", NULL },
	[PAGED_ERR_TIMEOUT] = { "paged.TimedOutError", &PyExc_TimeoutError,
				"No reply in time.  The outcome is unknown.\n\n"
				"A reserve or truncate may be repeated, because its numbers are absolute.",
				NULL },
	[PAGED_ERR_FORK] = { "paged.ForkError", NULL,
			     "The object belongs to the parent process of a fork.\n\n"
			     "Open a client in the child, or start processes by multiprocessing's \"spawn\".",
			     NULL },
	[PAGED_ERR_UNSUPPORTED] = { "paged.UnsupportedError", NULL,
				    "This build, machine or back end does not support the call.", NULL },
	[PAGED_ERR_VERSION] = { "paged.VersionError", NULL, "Library and daemon have different major versions.", NULL },
	[PAGED_ERR_BACKEND] = { "paged.BackendError", NULL, "The memory back end failed (mmap, CUDA).", NULL },
	[PAGED_ERR_SYSTEM] = { "paged.SystemCallError", NULL, "A system call failed.", NULL },
	[PAGED_ERR_PROTOCOL] = { "paged.ProtocolError", NULL, "A message is malformed or unexpected.", NULL },
	[PAGED_ERR_NO_DAEMON] = { "paged.NoDaemonError", &PyExc_ConnectionError,
				  "No daemon listens at the runtime directory.", NULL },
	[PAGED_ERR_STOPPING] = { "paged.StoppingError", NULL,
				 "The daemon is stopping and accepts no new work, or the session is drained and gets "
				 "no new sequences.",
				 NULL },
	[PAGED_ERR_CORRUPT] = { "paged.CorruptError", NULL, "The page accounting of a pool is inconsistent.", NULL },
	[PAGED_ERR_QUOTA] = { "paged.QuotaError", NULL,
			      "The session's tenant may have no more pages of the pool; nothing was taken.\n\n"
			      "The message names tenant, pool, limit, and what is charged and requested." SHORTAGE_DOC,
			      NULL },
};
#define N_ERROR_CLASSES (sizeof(error_classes) / sizeof(error_classes[0]))

/* The attributes of a status's class, or of an instance of Error for a status that only a newer library knows. */
static int
error_set_status(PyObject *object, int status)
{
	PyObject *number = PyLong_FromLong(status);
	PyObject *name = PyUnicode_FromString(paged_status_name((enum paged_status)status));
	int result = -1;

	if (number != NULL && name != NULL && PyObject_SetAttrString(object, "status", number) == 0)
		result = PyObject_SetAttrString(object, "status_name", name);
	Py_XDECREF(number);
	Py_XDECREF(name);
	return result;
}

/* What FullError and QuotaError say of a shortage; all 0 where there is none. */
static int
error_set_shortage(PyObject *object, const struct paged_shortage *shortage)
{
	const struct {
		const char *name;
		uint32_t value;
	} numbers[] = {
		{ "pages_missing", shortage->pages_missing }, { "slots_missing", shortage->slots_missing },
		{ "n_requested", shortage->n_requested },     { "n_free", shortage->n_free },
		{ "n_cached", shortage->n_cached },           { "n_own", shortage->n_own },
		{ "n_others", shortage->n_others },           { "n_quarantined", shortage->n_quarantined },
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		PyObject *number = PyLong_FromUnsignedLong(numbers[i].value);
		int result = number != NULL ? PyObject_SetAttrString(object, numbers[i].name, number) : -1;

		Py_XDECREF(number);
		if (result < 0)
			return -1;
	}
	return 0;
}

static int
error_add_class(PyObject *module, struct error_class *class, int status)
{
	PyObject *bases =
		class->builtin != NULL ? PyTuple_Pack(2, error_base, *class->builtin) : PyTuple_Pack(1, error_base);

	if (bases == NULL)
		return -1;
	class->class = PyErr_NewExceptionWithDoc(class->name, class->doc, bases, NULL);
	Py_DECREF(bases);
	if (class->class == NULL || error_set_status(class->class, status) < 0)
		return -1;
	if ((status == PAGED_ERR_FULL || status == PAGED_ERR_QUOTA) &&
	    error_set_shortage(class->class, &(struct paged_shortage){ 0 }) < 0)
		return -1;
	return PyModule_AddObjectRef(module, class->name + sizeof("paged.") - 1, class->class);
}

int
errors_add(PyObject *module)
{
	error_base = PyErr_NewExceptionWithDoc(
		"paged.Error",
		"A call of libpagedclient failed.  str() is the library's message.\n\n"
		"status and status_name are the number and name of its enum paged_status.\n"
		"Each status has a subclass.  A call that fails changes nothing, except\n"
		"after TimedOutError; a Batch.plan() that fails leaves the batch without a plan.",
		NULL, NULL);
	if (error_base == NULL || PyModule_AddObjectRef(module, "Error", error_base) < 0)
		return -1;
	for (size_t i = 1; i < N_ERROR_CLASSES; i++)
		if (error_add_class(module, &error_classes[i], (int)i) < 0)
			return -1;
	return 0;
}

/* Raises FullError or QuotaError with the numbers of the last failed call; takes over the reference to message. */
static PyObject *
error_set_short(enum paged_status status, PyObject *message, const struct paged_shortage *shortage)
{
	PyObject *error =
		message != NULL ? PyObject_CallFunctionObjArgs(error_classes[status].class, message, NULL) : NULL;

	if (error != NULL && error_set_shortage(error, shortage) == 0)
		PyErr_SetObject(error_classes[status].class, error);
	Py_XDECREF(error);
	Py_XDECREF(message);
	return NULL;
}

/* Takes over the reference to message, which may be NULL with an exception. */
static PyObject *
error_set(enum paged_status status, PyObject *message)
{
	PyObject *error;

	if (message == NULL)
		return NULL;
	if ((size_t)status < N_ERROR_CLASSES && error_classes[status].class != NULL) {
		PyErr_SetObject(error_classes[status].class, message);
	} else {
		error = PyObject_CallFunctionObjArgs(error_base, message, NULL);
		if (error != NULL && error_set_status(error, (int)status) == 0)
			PyErr_SetObject(error_base, error);
		Py_XDECREF(error);
	}
	Py_DECREF(message);
	return NULL;
}

PyObject *
error_raise(const struct paged_client *client, enum paged_status status)
{
	const char *text = client != NULL ? paged_client_error(client) : "";
	struct paged_shortage shortage = { .struct_size = sizeof(shortage) };
	PyObject *message;

	if (text[0] == 0)
		text = paged_status_name(status);
	message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	if ((status == PAGED_ERR_FULL || status == PAGED_ERR_QUOTA) && client != NULL &&
	    paged_client_shortage((struct paged_client *)client, &shortage) == PAGED_OK)
		return error_set_short(status, message, &shortage);
	return error_set(status, message);
}

PyObject *
error_format(enum paged_status status, const char *format, ...)
{
	va_list arguments;
	PyObject *message;

	va_start(arguments, format);
	message = PyUnicode_FromFormatV(format, arguments);
	va_end(arguments);
	return error_set(status, message);
}
