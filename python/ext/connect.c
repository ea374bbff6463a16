/* SPDX-License-Identifier: Apache-2.0 */
/* connect() and embedded(). */
#include "python/ext/ext.h"

#include <sched.h>
#include <stddef.h>
#include <unistd.h>

/* --------------------------------------------------------------------- open */

/* What connect() and embedded() have in common, by the numbers of the former's parameters. */
enum {
	RUNTIME_DIR,
	NAME,
	JOIN_TOKEN,
	TIMEOUT,
	THREADS,
	RUN,
	CPUS,
	ISA,
	OBSERVER,
	OUTLIVE,
	TABLES_ONLY,
	WAIT,
	LOG,
	N_OPEN_ARGUMENTS
};

struct opening {
	struct paged_client_params params;
	struct numbers_u32 cpus;
	bool openmp;
};

static void
opening_free(struct opening *opening)
{
	numbers_u32_free(&opening->cpus);
}

/* *threads_p: torch.get_num_threads(), or 0 if torch is not imported. */
static bool
torch_threads(uint32_t *threads_p)
{
	PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
	PyObject *torch = modules != NULL ? PyDict_GetItemString(modules, "torch") : NULL;
	PyObject *number;
	bool ok;

	*threads_p = 0;
	/* While torch is being imported it may lack the function. */
	if (torch == NULL || !PyObject_HasAttrString(torch, "get_num_threads"))
		return true;
	number = PyObject_CallMethod(torch, "get_num_threads", NULL);
	ok = number != NULL && number_u32(number, "torch.get_num_threads()", threads_p);
	Py_XDECREF(number);
	return ok;
}

static uint32_t
process_cpus(void)
{
	cpu_set_t set;

	/* More CPUs than a cpu_set_t has: one thread is safe. */
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* run: "own", "openmp" or None. */
static bool
opening_choose_run(struct opening *opening, PyObject *run, bool torch)
{
	const char *text;

	if (!call_is_given(run)) {
		opening->openmp =
			torch && opening->params.cpus == NULL && !threads_are_of_a_fork() && threads_find_openmp();
		return true;
	}
	text = text_utf8(run, "run");
	if (text == NULL)
		return false;
	opening->openmp = strcmp(text, "openmp") == 0;
	if (!opening->openmp && strcmp(text, "own") != 0) {
		PyErr_Format(PyExc_ValueError, "run: %R is neither \"own\" nor \"openmp\"", run);
		return false;
	}
	if (opening->openmp && opening->params.cpus != NULL) {
		PyErr_SetString(PyExc_ValueError, "cpus: OpenMP's threads are bound by OMP_PLACES; use run=\"own\"");
		return false;
	}
	if (opening->openmp && threads_are_of_a_fork()) {
		error_format(
			PAGED_ERR_UNSUPPORTED,
			"run=\"openmp\": this process was forked, and OpenMP may wait for ever for threads that its"
			" parent has: use run=\"own\", or start processes by multiprocessing's \"spawn\"");
		return false;
	}
	if (opening->openmp && !threads_find_openmp()) {
		error_format(
			PAGED_ERR_UNSUPPORTED,
			"run=\"openmp\": this process has loaded no libgomp; import torch first, or use run=\"own\"");
		return false;
	}
	return true;
}

static bool
opening_choose_threads(struct opening *opening, PyObject *const *values)
{
	struct paged_client_params *params = &opening->params;
	uint32_t n_torch;

	if (call_is_given(values[CPUS])) {
		if (!numbers_u32(values[CPUS], "cpus", &opening->cpus))
			return false;
		params->cpus = opening->cpus.at;
		params->n_cpus = (uint32_t)opening->cpus.n;
		params->n_threads = params->n_cpus;
	}
	if (!torch_threads(&n_torch) || !opening_choose_run(opening, values[RUN], n_torch > 0))
		return false;
	if (call_is_given(values[THREADS])) {
		if (!number_u32(values[THREADS], "threads", &params->n_threads))
			return false;
		if (params->n_threads == 0) {
			PyErr_SetString(PyExc_ValueError, "threads must be at least 1");
			return false;
		}
	} else if (params->cpus == NULL) {
		params->n_threads = n_torch > 0 ? n_torch : process_cpus();
	}
	if (opening->openmp) {
		params->run = threads_run;
		params->run_argument = (void *)(uintptr_t)params->n_threads;
	}
	return true;
}

/* A text that may be None. */
static bool
opening_text(PyObject *value, const char *name, const char **text_p)
{
	*text_p = NULL;
	if (!call_is_given(value))
		return true;
	*text_p = text_utf8(value, name);
	return *text_p != NULL;
}

static bool
opening_flag(PyObject *value, uint32_t *flag_p)
{
	int flag = value != NULL ? PyObject_IsTrue(value) : 0;

	*flag_p = flag > 0;
	return flag >= 0;
}

static bool
opening_parse(PyObject *const *values, struct opening *opening)
{
	struct paged_client_params *params = &opening->params;

	memset(opening, 0, sizeof(*opening));
	opening->cpus.at = opening->cpus.small;
	params->struct_size = sizeof(*params);
	if (!opening_text(values[NAME], "name", &params->name) ||
	    !opening_text(values[JOIN_TOKEN], "join_token", &params->join_token) ||
	    !opening_text(values[ISA], "isa", &params->isa) || !opening_flag(values[OBSERVER], &params->observer) ||
	    !opening_flag(values[OUTLIVE], &params->outlive) ||
	    !opening_flag(values[TABLES_ONLY], &params->tables_only))
		return false;
	if (call_is_given(values[TIMEOUT])) {
		if (!number_timeout_ms(values[TIMEOUT], "timeout", &params->timeout_ms))
			return false;
		if (params->timeout_ms == 0) {
			PyErr_SetString(PyExc_ValueError, "timeout must be more than 0 seconds");
			return false;
		}
	}
	if (call_is_given(values[WAIT]) && !number_timeout_ms(values[WAIT], "wait", &params->wait_ms))
		return false;
	if (call_is_given(values[LOG]) && !PyCallable_Check(values[LOG])) {
		PyErr_Format(PyExc_TypeError, "log must be a function, not %R", (PyObject *)Py_TYPE(values[LOG]));
		return false;
	}
	return opening_choose_threads(opening, values);
}

/* A new client object that no library client belongs to yet. */
static struct client *
client_new(struct opening *opening, PyObject *log)
{
	struct client *client = (struct client *)PyType_GenericAlloc(client_type, 0);

	if (client == NULL)
		return NULL;
	client->n_threads = opening->params.n_threads;
	client->openmp = opening->openmp;
	client->tables_only = opening->params.tables_only != 0;
	client->pid = getpid();
	if (call_is_given(log)) {
		client->log = Py_NewRef(log);
		opening->params.log = client_log;
		opening->params.log_argument = client;
	}
	return client;
}

/* Waits for the daemon in parts, between which signal handlers run; false: with an exception of a handler. */
static bool
client_open_wait(const char *path, struct paged_client_params *params, struct paged_client **handle_p,
		 enum paged_status *status_p)
{
	uint64_t now_ms = monotonic_ms(), end_ms = now_ms + params->wait_ms, part_end_ms;
	const uint32_t part_ms = 200;

	for (;;) {
		params->wait_ms = end_ms - now_ms < part_ms ? (uint32_t)(end_ms - now_ms) : part_ms;
		part_end_ms = now_ms + params->wait_ms;
		Py_BEGIN_ALLOW_THREADS
		*status_p = paged_client_open(path, params, handle_p);
		Py_END_ALLOW_THREADS
		now_ms = monotonic_ms();
		/* A failure for which the library does not wait comes before the part's end. */
		if (*status_p == PAGED_OK || now_ms < part_end_ms || now_ms >= end_ms)
			return true;
		paged_client_close(*handle_p);
		*handle_p = NULL;
		if (PyErr_CheckSignals() < 0)
			return false;
	}
}

/* Consumes the reference to client. */
static PyObject *
client_opened(struct client *client, struct paged_client *handle, enum paged_status status)
{
	if (status != PAGED_OK) {
		error_raise(handle, status);
		paged_client_close(handle);
		Py_DECREF(client);
		return NULL;
	}
	client->handle = handle;
	return (PyObject *)client;
}

PyObject *
client_connect(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "runtime_dir", "name", "join_token", "timeout",  "threads",
					     "run",         "cpus", "isa",        "observer", "outlive",
					     "tables_only", "wait", "log" };
	static struct call_signature signature = { "connect", names, N_OPEN_ARGUMENTS, 1, 0, { NULL } };
	PyObject *values[N_OPEN_ARGUMENTS], *directory = NULL;
	struct paged_client *handle = NULL;
	struct client *client = NULL;
	struct opening opening;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	if (call_is_given(values[RUNTIME_DIR]) && !PyUnicode_FSConverter(values[RUNTIME_DIR], &directory)) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "runtime_dir must be a str or a path, not %R",
				     (PyObject *)Py_TYPE(values[RUNTIME_DIR]));
		else if (PyErr_ExceptionMatches(PyExc_ValueError))
			PyErr_Format(PyExc_ValueError, "runtime_dir: %R contains a zero byte", values[RUNTIME_DIR]);
		return NULL;
	}
	if (opening_parse(values, &opening))
		client = client_new(&opening, values[LOG]);
	if (client != NULL) {
		const char *path = directory != NULL ? PyBytes_AsString(directory) : NULL;

		if (client_open_wait(path, &opening.params, &handle, &status))
			client = (struct client *)client_opened(client, handle, status);
		else
			Py_CLEAR(client);
	}
	opening_free(&opening);
	Py_XDECREF(directory);
	return (PyObject *)client;
}

/* ----------------------------------------------------------------- embedded */

enum pool_kind { POOL_TEXT, POOL_NUMBER, POOL_FLAG, POOL_DTYPE };

static const struct pool_field {
	const char *name;
	uint16_t offset; /* in struct paged_pool_params */
	uint8_t kind;    /* enum pool_kind */
	bool required;
} pool_fields[] = {
	{ "name", offsetof(struct paged_pool_params, name), POOL_TEXT, true },
	{ "n_layers", offsetof(struct paged_pool_params, n_layers), POOL_NUMBER, true },
	{ "n_kv_heads", offsetof(struct paged_pool_params, n_kv_heads), POOL_NUMBER, true },
	{ "k_dim", offsetof(struct paged_pool_params, k_dim), POOL_NUMBER, true },
	{ "v_dim", offsetof(struct paged_pool_params, v_dim), POOL_NUMBER, false },
	{ "v_in_k", offsetof(struct paged_pool_params, v_in_k), POOL_FLAG, false },
	{ "dtype", offsetof(struct paged_pool_params, dtype), POOL_DTYPE, true },
	{ "page_size", offsetof(struct paged_pool_params, page_size), POOL_NUMBER, false },
	{ "n_pages", offsetof(struct paged_pool_params, n_pages), POOL_NUMBER, true },
	{ "n_slots", offsetof(struct paged_pool_params, n_slots), POOL_NUMBER, false },
	{ "max_length", offsetof(struct paged_pool_params, max_length), POOL_NUMBER, false },
	{ "backend", offsetof(struct paged_pool_params, backend), POOL_TEXT, false },
	{ "device", offsetof(struct paged_pool_params, device), POOL_TEXT, false },
};
#define N_POOL_FIELDS (sizeof(pool_fields) / sizeof(pool_fields[0]))

static bool
pool_field_parse(const struct pool_field *field, PyObject *value, struct paged_pool_params *params)
{
	void *at = (char *)params + field->offset;
	uint32_t number;

	switch ((enum pool_kind)field->kind) {
	case POOL_TEXT:
		return opening_text(value, field->name, at);
	case POOL_NUMBER:
		if (!number_u32(value, field->name, &number))
			return false;
		*(uint32_t *)at = number;
		if (number != 0)
			return true;
		/* To the library, 0 means the default. */
		PyErr_Format(PyExc_ValueError, "%s is 0%s", field->name,
			     field->required ? "" : "; None is the default");
		return false;
	case POOL_FLAG:
		return opening_flag(value, at);
	case POOL_DTYPE:
		return number_dtype(value, field->name, at);
	}
	Py_UNREACHABLE();
}

static bool
pool_refuse_unknown(PyObject *keys)
{
	for (Py_ssize_t i = 0; i < PyList_Size(keys); i++) {
		PyObject *key = PyList_GetItem(keys, i);
		bool known = false;

		for (size_t j = 0; j < N_POOL_FIELDS; j++)
			known = known || (PyUnicode_Check(key) &&
					  PyUnicode_CompareWithASCIIString(key, pool_fields[j].name) == 0);
		if (!known) {
			PyErr_Format(PyExc_TypeError, "a pool has no parameter %R", key);
			return false;
		}
	}
	return true;
}

/* The texts of params are those of the mapping's values, which `owners` keeps. */
static bool
pool_params_parse(PyObject *mapping, struct paged_pool_params *params, PyObject *owners)
{
	PyObject *keys = PyMapping_Check(mapping) && !PyList_Check(mapping) ? PyMapping_Keys(mapping) : NULL;
	bool ok;

	if (keys == NULL) {
		PyErr_Format(PyExc_TypeError, "a pool must be a mapping of its parameters, not %R",
			     (PyObject *)Py_TYPE(mapping));
		return false;
	}
	ok = pool_refuse_unknown(keys);
	Py_DECREF(keys);
	params->struct_size = sizeof(*params);
	for (size_t i = 0; ok && i < N_POOL_FIELDS; i++) {
		const struct pool_field *field = &pool_fields[i];
		PyObject *value = PyMapping_HasKeyString(mapping, field->name)
					  ? PyMapping_GetItemString(mapping, field->name)
					  : NULL;

		if (call_is_given(value)) {
			ok = PyList_Append(owners, value) == 0 && pool_field_parse(field, value, params);
		} else if (PyErr_Occurred()) {
			ok = false;
		} else if (field->required) {
			PyErr_Format(PyExc_TypeError, "a pool needs the parameter %s", field->name);
			ok = false;
		}
		Py_XDECREF(value);
	}
	return ok;
}

struct pools {
	struct paged_pool_params *at; /* [n] */
	size_t n;
	PyObject *owners; /* of the texts */
};

static void
pools_free(struct pools *pools)
{
	PyMem_Free(pools->at);
	Py_XDECREF(pools->owners);
}

static bool
pools_parse(PyObject *object, struct pools *pools)
{
	PyObject *list = PyDict_Check(object) ? Py_BuildValue("[O]", object) : PySequence_List(object);
	bool ok;

	if (list == NULL && PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_Format(PyExc_TypeError,
			     "pools must be a mapping of a pool's parameters or a list of them, not %R",
			     (PyObject *)Py_TYPE(object));
	*pools = (struct pools){ .owners = PyList_New(0) };
	if (list != NULL && pools->owners != NULL) {
		pools->n = (size_t)PyList_Size(list);
		pools->at = PyMem_Calloc(pools->n + 1, sizeof(*pools->at));
		if (pools->at == NULL)
			PyErr_NoMemory();
	}
	ok = pools->at != NULL;
	for (size_t i = 0; ok && i < pools->n; i++)
		ok = pool_params_parse(PyList_GetItem(list, (Py_ssize_t)i), &pools->at[i], pools->owners);
	Py_XDECREF(list);
	if (!ok)
		pools_free(pools);
	return ok;
}

PyObject *
client_embedded(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	enum { POOLS, E_NAME, E_TIMEOUT, E_THREADS, E_RUN, E_CPUS, E_ISA, E_LOG, N_EMBEDDED };
	static const char *const names[] = { "pools", "name", "timeout", "threads", "run", "cpus", "isa", "log" };
	static struct call_signature signature = { "embedded", names, N_EMBEDDED, 1, 1, { NULL } };
	PyObject *given[N_EMBEDDED], *values[N_OPEN_ARGUMENTS] = { NULL };
	struct paged_client *handle = NULL;
	struct client *client = NULL;
	struct opening opening;
	struct pools pools;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, given) || !pools_parse(given[POOLS], &pools))
		return NULL;
	values[NAME] = given[E_NAME];
	values[TIMEOUT] = given[E_TIMEOUT];
	values[THREADS] = given[E_THREADS];
	values[RUN] = given[E_RUN];
	values[CPUS] = given[E_CPUS];
	values[ISA] = given[E_ISA];
	values[LOG] = given[E_LOG];
	if (opening_parse(values, &opening))
		client = client_new(&opening, values[LOG]);
	if (client != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_client_open_embedded(pools.at, pools.n, &opening.params, &handle);
		Py_END_ALLOW_THREADS
		client = (struct client *)client_opened(client, handle, status);
	}
	opening_free(&opening);
	pools_free(&pools);
	return (PyObject *)client;
}
