/* SPDX-License-Identifier: Apache-2.0 */
#include "python/ext/ext.h"

#include <sched.h>
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

/* The library calls it in the thread that is inside a call, with or without the GIL. */
static void
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

/* --------------------------------------------------------------------- open */

/* What connect() and embedded() have in common, by the numbers of the former's parameters. */
enum { RUNTIME_DIR, NAME, JOIN_TOKEN, TIMEOUT, THREADS, RUN, CPUS, ISA, OBSERVER, OUTLIVE, LOG, N_OPEN_ARGUMENTS };

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
		opening->openmp = torch && opening->params.cpus == NULL && threads_find_openmp();
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
	    !opening_flag(values[OUTLIVE], &params->outlive))
		return false;
	if (call_is_given(values[TIMEOUT])) {
		if (!number_timeout_ms(values[TIMEOUT], "timeout", &params->timeout_ms))
			return false;
		if (params->timeout_ms == 0) {
			PyErr_SetString(PyExc_ValueError, "timeout must be more than 0 seconds");
			return false;
		}
	}
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
	client->pid = getpid();
	if (call_is_given(log)) {
		client->log = Py_NewRef(log);
		opening->params.log = client_log;
		opening->params.log_argument = client;
	}
	return client;
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
	static const char *const names[] = { "runtime_dir", "name", "join_token", "timeout", "threads", "run",
					     "cpus",        "isa",  "observer",   "outlive", "log" };
	static struct call_signature signature = { "connect", names, N_OPEN_ARGUMENTS, 1, 0, { NULL } };
	PyObject *values[N_OPEN_ARGUMENTS], *directory = NULL;
	struct paged_client *handle = NULL;
	struct client *client = NULL;
	struct opening opening;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	if (call_is_given(values[RUNTIME_DIR]) && !PyUnicode_FSConverter(values[RUNTIME_DIR], &directory))
		return NULL;
	if (opening_parse(values, &opening))
		client = client_new(&opening, values[LOG]);
	if (client != NULL) {
		const char *path = directory != NULL ? PyBytes_AsString(directory) : NULL;

		Py_BEGIN_ALLOW_THREADS status = paged_client_open(path, &opening.params, &handle);
		Py_END_ALLOW_THREADS client = (struct client *)client_opened(client, handle, status);
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

	switch ((enum pool_kind)field->kind) {
	case POOL_TEXT:
		return opening_text(value, field->name, at);
	case POOL_NUMBER:
		return number_u32(value, field->name, at);
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
		Py_BEGIN_ALLOW_THREADS status = paged_client_open_embedded(pools.at, pools.n, &opening.params, &handle);
		Py_END_ALLOW_THREADS client = (struct client *)client_opened(client, handle, status);
	}
	opening_free(&opening);
	pools_free(&pools);
	return (PyObject *)client;
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
	Py_BEGIN_ALLOW_THREADS paged_client_close(handle);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
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
		Py_BEGIN_ALLOW_THREADS paged_client_close(handle);
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
	Py_BEGIN_ALLOW_THREADS status = paged_client_dispatch(handle);
	Py_END_ALLOW_THREADS return client_result(client, status);
}

static PyObject *
client_ping(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS status = paged_client_ping(handle);
	Py_END_ALLOW_THREADS return client_result(client, status);
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

/* ---------------------------------------------------------------- sequences */

/* The library refuses sequences of other pools only in calls that take a pool. */
static bool
seqs_parse(PyObject *object, const struct pool *pool, struct numbers_u64 *seqs)
{
	if (!numbers_u64(object, "seqs", seqs))
		return false;
	for (size_t i = 0; pool != NULL && i < seqs->n; i++)
		if (PAGED_SEQ_POOL(seqs->at[i]) != pool->info.number) {
			error_format(PAGED_ERR_INVALID, "sequence %u.%u belongs to pool number %u, not to pool %s",
				     PAGED_SEQ_SLOT(seqs->at[i]), PAGED_SEQ_GENERATION(seqs->at[i]),
				     PAGED_SEQ_POOL(seqs->at[i]), pool->info.name);
			numbers_u64_free(seqs);
			return false;
		}
	return true;
}

/* [n] items with their numbers; freed by PyMem_Free(). */
static struct paged_seq_item *
seq_items_parse(const struct numbers_u64 *seqs, PyObject *n_tokens, PyObject *n_ahead)
{
	struct numbers_u32 tokens, ahead = { .at = NULL };
	struct paged_seq_item *items;

	if (!numbers_u32_n(n_tokens, "n_tokens", seqs->n, &tokens))
		return NULL;
	if (call_is_given(n_ahead) && !numbers_u32_n(n_ahead, "n_ahead", seqs->n, &ahead)) {
		numbers_u32_free(&tokens);
		return NULL;
	}
	items = PyMem_Calloc(seqs->n + 1, sizeof(*items));
	if (items == NULL)
		PyErr_NoMemory();
	for (size_t i = 0; items != NULL && i < seqs->n; i++)
		items[i] = (struct paged_seq_item){ .seq = seqs->at[i],
						    .n_tokens = tokens.at[i],
						    .n_ahead = ahead.at != NULL ? ahead.at[i] : 0 };
	numbers_u32_free(&tokens);
	if (ahead.at != NULL)
		numbers_u32_free(&ahead);
	return items;
}

typedef enum paged_status (*seq_items_fn)(struct paged_client *, size_t, const struct paged_seq_item *);

static PyObject *
client_change(struct client *client, const struct pool *pool, PyObject *const *values, PyObject *n_ahead,
	      seq_items_fn change)
{
	struct paged_seq_item *items;
	struct paged_client *handle;
	struct numbers_u64 seqs;
	enum paged_status status;
	PyObject *result = NULL;

	if (!seqs_parse(values[0], pool, &seqs))
		return NULL;
	items = seq_items_parse(&seqs, values[1], n_ahead);
	handle = items != NULL ? client_enter(client) : NULL;
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS status = change(handle, seqs.n, items);
		Py_END_ALLOW_THREADS result = client_result(client, status);
	}
	PyMem_Free(items);
	numbers_u64_free(&seqs);
	return result;
}

PyObject *
client_reserve(struct client *client, const struct pool *pool, PyObject *const *arguments, Py_ssize_t n,
	       PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "n_tokens", "n_ahead" };
	static struct call_signature signature = { "reserve", names, 3, 3, 2, { NULL } };
	PyObject *values[3];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	return client_change(client, pool, values, values[2], paged_seq_reserve);
}

PyObject *
client_truncate(struct client *client, const struct pool *pool, PyObject *const *arguments, Py_ssize_t n,
		PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "n_tokens" };
	static struct call_signature signature = { "truncate", names, 2, 2, 2, { NULL } };
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	return client_change(client, pool, values, NULL, paged_seq_truncate);
}

PyObject *
client_erase(struct client *client, const struct pool *pool, PyObject *const *arguments, Py_ssize_t n,
	     PyObject *keyword_names)
{
	static const char *const names[] = { "seqs" };
	static struct call_signature signature = { "erase", names, 1, 1, 1, { NULL } };
	PyObject *values[1], *result = NULL;
	struct paged_client *handle;
	struct numbers_u64 seqs;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !seqs_parse(values[0], pool, &seqs))
		return NULL;
	handle = client_enter(client);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS status = paged_seq_erase(handle, seqs.n, seqs.at);
		Py_END_ALLOW_THREADS result = client_result(client, status);
	}
	numbers_u64_free(&seqs);
	return result;
}

static PyObject *
client_reserve_any(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return client_reserve(client, NULL, arguments, n, keyword_names);
}

static PyObject *
client_truncate_any(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return client_truncate(client, NULL, arguments, n, keyword_names);
}

static PyObject *
client_erase_any(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return client_erase(client, NULL, arguments, n, keyword_names);
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
			   "Raises StoppingError if the daemon stops soon, and GoneError if it has died or has\n"
			   "ended this session.");
PyDoc_STRVAR(ping_doc, "ping($self, /)\n--\n\n"
		       "One round trip to the owner of the pools.\n\n"
		       "Raises TimedOutError or GoneError.");
PyDoc_STRVAR(pool_doc, "pool($self, /, name)\n--\n\n"
		       "Map a pool's pages and page tables into this process and return a Pool.\n\n"
		       "Raises NotFoundError (the message lists the pools), PermissionDeniedError if the\n"
		       "pool's allow-list refuses this user, BackendError if mapping failed.");
PyDoc_STRVAR(reserve_doc, "reserve($self, /, seqs, n_tokens, n_ahead=0)\n--\n\n"
			  "Raise the capacity of each sequence to at least n_tokens tokens.\n\n"
			  "seqs: sequences of any pools of the client, at most 4096.  n_tokens and n_ahead:\n"
			  "one number for all, or one for each.  n_tokens is absolute and capacity never\n"
			  "shrinks, so that a call may be repeated.  n_ahead asks for tokens beyond n_tokens\n"
			  "as far as the pool has spare pages.  One request, all or nothing.\n\n"
			  "Raises FullError if too few pages are free, LimitError if n_tokens exceeds the\n"
			  "pool's max_length, StaleError, PermissionDeniedError.");
PyDoc_STRVAR(truncate_doc, "truncate($self, /, seqs, n_tokens)\n--\n\n"
			   "Keep n_tokens tokens of each sequence and free the whole pages past them.\n\n"
			   "The sequences stay alive, also with n_tokens 0.  By truncating, the caller\n"
			   "promises that no work of its session on the affected pages is running.\n\n"
			   "Raises CapacityError if n_tokens exceeds a sequence's capacity, StaleError,\n"
			   "PermissionDeniedError.");
PyDoc_STRVAR(erase_doc, "erase($self, /, seqs)\n--\n\n"
			"End the sequences and free their pages; their ids are stale from now on.\n\n"
			"Raises StaleError, PermissionDeniedError.");

static const PyMethodDef client_methods[] = {
	CALL_METHOD_NOARGS("close", client_close, close_doc),
	CALL_METHOD_NOARGS("__enter__", client_context_enter, "Return the client."),
	{ "__exit__", (PyCFunction)(void (*)(void))client_context_exit, METH_VARARGS, "close()" },
	CALL_METHOD_NOARGS("fileno", client_fileno, fileno_doc),
	CALL_METHOD_NOARGS("dispatch", client_dispatch, dispatch_doc),
	CALL_METHOD_NOARGS("ping", client_ping, ping_doc),
	CALL_METHOD("pool", client_pool, pool_doc),
	CALL_METHOD("reserve", client_reserve_any, reserve_doc),
	CALL_METHOD("truncate", client_truncate_any, truncate_doc),
	CALL_METHOD("erase", client_erase_any, erase_doc),
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

	call_join_methods(methods, client_methods, admin_methods);
	client_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (client_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "Client", (PyObject *)client_type);
}
