/* SPDX-License-Identifier: Apache-2.0 */
/* Module, constants, functions without an object. */
#include "python/ext/ext.h"

PyDoc_STRVAR(version_doc, "version()\n--\n\n"
			  "Version of libpagedclient, such as \"0.1.0\".");

static PyObject *
module_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	uint32_t version = paged_version();

	return PyUnicode_FromFormat("%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
}

PyDoc_STRVAR(salt_doc, "salt(*parts)\n--\n\n"
		       "SHA-256 of strings, each preceded by its length: a salt of 32 bytes for Prefix.\n\n"
		       "Pass everything that K and V depend on besides the tokens and the pool, for\n"
		       "example adapter, tenant and settings of the rotary embedding.");

static PyObject *
module_salt(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t n)
{
	uint8_t salt[PAGED_DIGEST_SIZE];
	const char **parts = PyMem_Calloc((size_t)n + 1, sizeof(*parts));

	if (parts == NULL)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n; i++) {
		parts[i] = text_utf8(arguments[i], "salt() part");
		if (parts[i] == NULL) {
			PyMem_Free(parts);
			return NULL;
		}
	}
	paged_salt(salt, (size_t)n, parts);
	PyMem_Free(parts);
	return PyBytes_FromStringAndSize((const char *)salt, sizeof(salt));
}

PyDoc_STRVAR(model_allowed_doc, "model_allowed(setting, name)\n--\n\n"
				"Whether a model may use a pool: whether setting, which is Pool.model, is \"\" or\n"
				"names the model.  name is of the Hugging Face Hub, a directory or a GGUF file:\n"
				"\"Llama-3@v1\" allows \"meta/llama-3\" and \"/models/Llama-3.gguf\".");

static PyObject *
module_model_allowed(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "setting", "name", NULL };
	PyObject *setting_object, *name_object;
	const char *setting, *name;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO:model_allowed", names, &setting_object, &name_object))
		return NULL;
	setting = text_utf8(setting_object, "setting");
	name = setting != NULL ? text_utf8(name_object, "name") : NULL;
	if (name == NULL)
		return NULL;
	return PyBool_FromLong(paged_model_allowed(setting, name));
}

PyDoc_STRVAR(named_mods_doc, "named_mods()\n--\n\n"
			     "Ready-made mods, which the text of a mod may call by name, as a list of NamedMod.");

static PyObject *
module_named_mods(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	PyObject *list = PyList_New(0);
	const struct paged_named_mod *mod;

	if (list == NULL)
		return NULL;
	for (uint32_t i = 0; (mod = paged_mod_named(i)) != NULL; i++) {
		PyObject *item = report_named_mod(mod);

		if (item == NULL || PyList_Append(list, item) < 0) {
			Py_XDECREF(item);
			Py_DECREF(list);
			return NULL;
		}
		Py_DECREF(item);
	}
	return list;
}

PyDoc_STRVAR(connect_doc, "connect(runtime_dir=None, *, name=None, join_token=None, timeout=None, threads=None,\n"
			  "        run=None, cpus=None, isa=None, observer=False, outlive=False,\n"
			  "        tables_only=False, wait=None, log=None)\n--\n\n"
			  "Attach to the daemon pagedd and return a Client.\n\n"
			  "runtime_dir\n"
			  "    Where the daemon listens.  None: $PAGED_RUNTIME_DIR, else /run/paged.\n"
			  "name\n"
			  "    Shown by pagedctl.  None: the program's name.\n"
			  "join_token\n"
			  "    Client.join_token of a session's first member, to join that session.\n"
			  "    None: start a session.\n"
			  "timeout\n"
			  "    Longest time that a call waits for the daemon, seconds.  None: the environment\n"
			  "    variable PAGED_TIMEOUT_MS, else 5 seconds.\n"
			  "threads\n"
			  "    Threads that run a batch's kernels, the calling one included.  None: the\n"
			  "    number of cpus, else torch.get_num_threads() if torch is imported, else one\n"
			  "    for each CPU of this process.\n"
			  "run\n"
			  "    \"own\": the library starts threads for each batch.  \"openmp\": kernels run\n"
			  "    on the OpenMP threads that this process has, which are torch's.  None:\n"
			  "    \"openmp\" if torch is imported, cpus is None and the process was not forked.\n"
			  "    Threads of both kinds at once are slow, because torch's spin while they wait\n"
			  "    for work.  In a forked process \"openmp\" is refused: libgomp would wait for\n"
			  "    threads that only the parent has.\n"
			  "cpus\n"
			  "    The CPU that each thread is bound to, as many as threads; the calling thread, the\n"
			  "    first, is not bound.  Only with run \"own\".  None: no thread is bound.\n"
			  "isa\n"
			  "    Instruction set of the kernels: \"generic\", \"avx2\", \"avx512\",\n"
			  "    \"avx512bf16\" or \"amx\".  None: the best of this machine.  The environment\n"
			  "    variable PAGED_ISA overrides it.\n"
			  "observer\n"
			  "    Read only: no session and no sequences.\n"
			  "outlive\n"
			  "    The session lives until its last member has left, instead of its first.\n"
			  "tables_only\n"
			  "    True: pools are opened without their pages, for a program that never touches K\n"
			  "    and V, such as a router; no GPU is used, and batches are refused.\n"
			  "wait\n"
			  "    Longest time to wait for a daemon that is starting, or that stops and starts\n"
			  "    again, seconds.  None: not at all.\n"
			  "log\n"
			  "    Called as log(level, text) for the library's log lines, with levels as in\n"
			  "    syslog: LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG.  It runs in the\n"
			  "    thread that is inside a call, and must not call this module.\n\n"
			  "Raises NoDaemonError, PermissionDeniedError, VersionError, StoppingError,\n"
			  "GoneError if the session of join_token has ended, TimedOutError, InvalidError,\n"
			  "and UnsupportedError if this machine lacks isa.");

PyDoc_STRVAR(embedded_doc, "embedded(pools, *, name=None, timeout=None, threads=None, run=None, cpus=None, isa=None,\n"
			   "         log=None)\n--\n\n"
			   "Run the owner of the pools inside this process and return a Client.\n\n"
			   "pools is a mapping of a pool's parameters, or a sequence of them:\n\n"
			   "name, n_layers, n_kv_heads, n_pages\n"
			   "    Required.\n"
			   "k_dim, v_dim\n"
			   "    Head dimension of K (required) and of V (default: k_dim).\n"
			   "v_in_k\n"
			   "    True: V is the first v_dim dims of K and is not stored separately (MLA).\n"
			   "dtype\n"
			   "    Required: \"f32\", \"f16\", \"bf16\", \"e4m3\", \"e5m2\" or \"i8\".\n"
			   "page_size\n"
			   "    Tokens per page; default 16.\n"
			   "n_slots\n"
			   "    Most sequences; default 1024.\n"
			   "max_length\n"
			   "    Tokens that one sequence may reserve; default: as many as all pages hold.\n"
			   "backend, device\n"
			   "    \"host\" (default) or \"cuda\"; the GPU's index or UUID.\n\n"
			   "The other arguments are those of connect().  The memory is private to this\n"
			   "process.  Raises InvalidError for an impossible geometry, and UnsupportedError if\n"
			   "this machine lacks the back end or isa.");

static PyMethodDef module_methods[] = {
	{ "version", module_version, METH_NOARGS, version_doc },
	{ "salt", (PyCFunction)(void (*)(void))module_salt, METH_FASTCALL, salt_doc },
	{ "model_allowed", (PyCFunction)(void (*)(void))module_model_allowed, METH_VARARGS | METH_KEYWORDS,
	  model_allowed_doc },
	{ "named_mods", module_named_mods, METH_NOARGS, named_mods_doc },
	{ "connect", (PyCFunction)(void (*)(void))client_connect, METH_FASTCALL | METH_KEYWORDS, connect_doc },
	{ "embedded", (PyCFunction)(void (*)(void))client_embedded, METH_FASTCALL | METH_KEYWORDS, embedded_doc },
	{ NULL, NULL, 0, NULL },
};

static int
module_add_constants(PyObject *module)
{
	static const struct {
		const char *name;
		long value;
	} constants[] = {
		{ "LOG_ERROR", PAGED_LOG_ERROR },
		{ "LOG_WARNING", PAGED_LOG_WARNING },
		{ "LOG_INFO", PAGED_LOG_INFO },
		{ "LOG_DEBUG", PAGED_LOG_DEBUG },
		{ "MAX_REQUEST_SEQS", PAGED_MAX_REQUEST_SEQS },
		{ "MAX_HOLD_PAGES", PAGED_MAX_HOLD_PAGES },
		{ "MAX_PAGE_SIZE", PAGED_MAX_PAGE_SIZE },
		{ "MAX_DIM", PAGED_MAX_DIM },
		{ "CHANGE_STORED", PAGED_CHANGE_STORED },
		{ "CHANGE_REMOVED", PAGED_CHANGE_REMOVED },
		{ "CHANGE_CLEARED", PAGED_CHANGE_CLEARED },
		{ "PUBLISH_DONE", PAGED_PUBLISH_DONE },
		{ "PUBLISH_REMOVED", PAGED_PUBLISH_REMOVED },
		{ "PUBLISH_TRIMMED", PAGED_PUBLISH_TRIMMED },
		{ "PUBLISH_OTHER", PAGED_PUBLISH_OTHER },
		{ "PUBLISH_BUCKET", PAGED_PUBLISH_BUCKET },
	};

	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
		if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
			return -1;
	return 0;
}

static int
module_execute(PyObject *module)
{
	static int (*const parts[])(PyObject *) = {
		module_add_constants, errors_add, reports_add, client_add, pool_add,
		prefix_add,           pages_add,  batch_add,   append_add, mods_add,
		block_mask_add,       watch_add,
	};
	static bool loaded;

	if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
		PyErr_SetString(
			PyExc_ImportError,
			"paged cannot be imported into a subinterpreter; use the main interpreter or a process");
		return -1;
	}
	/* Types and exceptions are static variables: those of the first module are in use. */
	if (loaded) {
		PyErr_SetString(PyExc_ImportError, "paged._paged cannot be loaded twice in one process");
		return -1;
	}
	loaded = true;
	threads_load();
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i](module) < 0)
			return -1;
	return 0;
}

static PyModuleDef_Slot module_slots[] = {
	{ Py_mod_exec, (void *)module_execute },
	{ 0, NULL },
};

static struct PyModuleDef module_definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "paged._paged",
	.m_doc = "The C part of the package paged.  Import paged instead.",
	.m_methods = module_methods,
	.m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__paged(void);

PyMODINIT_FUNC
PyInit__paged(void)
{
	return PyModuleDef_Init(&module_definition);
}
