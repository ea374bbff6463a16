/* SPDX-License-Identifier: Apache-2.0 */
/* Pool: life, counts, attributes. */
#include "python/ext/ext.h"

#include <stddef.h>
#include <structmember.h>
#include <time.h>
#include <unistd.h>

PyTypeObject *pool_type;

/* ------------------------------------------------------------- enter, leave */

struct paged_pool *
pool_enter(struct pool *pool)
{
	if (client_enter(pool->client) == NULL)
		return NULL;
	if (pool->handle == NULL) {
		client_leave(pool->client);
		PyErr_SetString(PyExc_RuntimeError, "the pool is closed");
		return NULL;
	}
	pool->n_inside++;
	return pool->handle;
}

void
pool_leave(struct pool *pool)
{
	pool->n_inside--;
	client_leave(pool->client);
}

PyObject *
pool_result(struct pool *pool, enum paged_status status)
{
	pool->n_inside--;
	return client_result(pool->client, status);
}

/* -------------------------------------------------------------- open, close */

/* Points the texts of info to copies, which live as long as the object. */
static bool
pool_copy_texts(struct pool *pool)
{
	const char **texts[] = { &pool->info.name, &pool->info.backend, &pool->info.isa, &pool->info.device,
				 &pool->info.model };
	size_t size = 0;
	char *at;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		size += *texts[i] != NULL ? strlen(*texts[i]) + 1 : 0;
	pool->texts = at = PyMem_Malloc(size);
	if (at == NULL)
		return false;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (*texts[i] != NULL) {
			size = strlen(*texts[i]) + 1;
			*texts[i] = memcpy(at, *texts[i], size);
			at += size;
		}
	return true;
}

static enum paged_status
pool_get_info(struct pool *pool)
{
	enum paged_status status;

	pool->info.struct_size = sizeof(pool->info);
	status = paged_pool_get_info(pool->handle, &pool->info);
	return status == PAGED_OK && !pool_copy_texts(pool) ? PAGED_ERR_NOMEM : status;
}

PyObject *
pool_open(struct client *client, const char *name)
{
	struct paged_client *client_handle = client_enter(client);
	struct paged_pool *handle;
	struct pool *pool;
	enum paged_status status;

	if (client_handle == NULL)
		return NULL;
	pool = (struct pool *)PyType_GenericAlloc(pool_type, 0);
	if (pool == NULL) {
		client_leave(client);
		return NULL;
	}
	pool->client = (struct client *)Py_NewRef((PyObject *)client);
	Py_BEGIN_ALLOW_THREADS
	status = paged_pool_open(client_handle, name, &handle);
	Py_END_ALLOW_THREADS
	if (status == PAGED_OK) {
		pool->handle = handle;
		status = pool_get_info(pool);
	}
	client_leave(client);
	if (status == PAGED_OK)
		return (PyObject *)pool;
	error_raise(client_handle, status);
	Py_DECREF(pool);
	return NULL;
}

/* The client is open, and no thread is inside the pool. */
static void
pool_close_handle(struct pool *pool)
{
	struct paged_pool *handle = pool->handle;

	pool->handle = NULL;
	pool->client->n_inside++;
	Py_BEGIN_ALLOW_THREADS
	paged_pool_close(handle);
	Py_END_ALLOW_THREADS
	pool->client->n_inside--;
}

static PyObject *
pool_close(struct pool *pool, PyObject *Py_UNUSED(ignored))
{
	/* The close of a client closes its pools. */
	if (pool->handle == NULL || pool->client->handle == NULL)
		Py_RETURN_NONE;
	if (client_enter(pool->client) == NULL)
		return NULL;
	client_leave(pool->client);
	/* In a forked child, the threads that were inside do not exist. */
	if (pool->n_inside > 0 && pool->client->pid == getpid()) {
		PyErr_Format(PyExc_RuntimeError, "pool %s cannot be closed: %u calls are inside it", pool->info.name,
			     pool->n_inside);
		return NULL;
	}
	if (pool->n_tensors > 0) {
		PyErr_Format(PyExc_BufferError, "pool %s cannot be closed: %u tensors over its pages are alive",
			     pool->info.name, pool->n_tensors);
		return NULL;
	}
	pool_close_handle(pool);
	Py_RETURN_NONE;
}

static PyObject *
pool_context_enter(struct pool *pool, PyObject *Py_UNUSED(ignored))
{
	if (pool_enter(pool) == NULL)
		return NULL;
	pool_leave(pool);
	return Py_NewRef((PyObject *)pool);
}

static PyObject *
pool_context_exit(struct pool *pool, PyObject *Py_UNUSED(arguments))
{
	return pool_close(pool, NULL);
}

static int
pool_traverse(struct pool *pool, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)pool));
	Py_VISIT(pool->client);
	return 0;
}

/* Batches and tensors hold references, so that none of them is alive. */
static void
pool_dealloc(struct pool *pool)
{
	PyTypeObject *type = Py_TYPE((PyObject *)pool);

	PyObject_GC_UnTrack(pool);
	if (pool->weak_references != NULL)
		PyObject_ClearWeakRefs((PyObject *)pool);
	/* Inside a log function the library's lock is held: then the close of the client closes the pool. */
	if (pool->handle != NULL && pool->client->handle != NULL && !client_is_logging())
		pool_close_handle(pool);
	PyMem_Free(pool->texts);
	Py_XDECREF((PyObject *)pool->client);
	PyObject_GC_Del(pool);
	Py_DECREF(type);
}

static PyObject *
pool_repr(struct pool *pool)
{
	const struct paged_pool_info *info = &pool->info;

	return PyUnicode_FromFormat("<paged.Pool '%s' %s, %u layers, %u KV heads, dim %u, %u pages of %u tokens%s>",
				    info->name, paged_dtype_name((enum paged_dtype)info->k.dtype), info->n_layers,
				    info->n_kv_heads, info->k.dim, info->n_pages, info->page_size,
				    pool->handle == NULL || pool->client->handle == NULL ? ", closed" : "");
}

/* ------------------------------------------------------------------- counts */

static PyObject *
pool_counts(struct pool *pool, PyObject *Py_UNUSED(ignored))
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };
	struct paged_pool *handle = pool_enter(pool);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_pool_get_counts(handle, &counts);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? report_counts(&counts) : error_raise(pool->client->handle, status);
}

static PyObject *
pool_totals(struct pool *pool, PyObject *Py_UNUSED(ignored))
{
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };
	struct paged_pool *handle = pool_enter(pool);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_pool_get_totals(handle, &totals);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? report_totals(&totals) : error_raise(pool->client->handle, status);
}

static PyObject *
pool_check(struct pool *pool, PyObject *Py_UNUSED(ignored))
{
	struct paged_check_result result = { .struct_size = sizeof(result) };
	struct paged_pool *handle = pool_enter(pool);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_pool_check(handle, &result);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? report_check(&result) : error_raise(pool->client->handle, status);
}

struct wait_free {
	struct paged_pool *handle;
	uint32_t n_pages;
};

static enum paged_status
pool_wait_free_part(void *argument, uint32_t timeout_ms)
{
	const struct wait_free *wait = argument;

	return paged_pool_wait_free(wait->handle, wait->n_pages, timeout_ms);
}

uint64_t
monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Longest wait between two checks for signals. */
#define WAIT_PART_MS 200u

int
pool_wait(struct pool *pool, pool_wait_fn wait, void *argument, uint32_t timeout_ms)
{
	uint64_t now_ms = monotonic_ms();
	uint64_t end_ms = timeout_ms == POOL_WAIT_FOR_EVER ? UINT64_MAX : now_ms + timeout_ms;
	enum paged_status status;

	for (;;) {
		uint64_t rest_ms = end_ms > now_ms ? end_ms - now_ms : 0;
		uint32_t part_ms = rest_ms < WAIT_PART_MS ? (uint32_t)rest_ms : WAIT_PART_MS;

		Py_BEGIN_ALLOW_THREADS
		status = wait(argument, part_ms);
		Py_END_ALLOW_THREADS
		now_ms = monotonic_ms();
		/* First, because an exception of a handler would lose what the wait has returned. */
		if (status != PAGED_ERR_TIMEOUT || now_ms >= end_ms) {
			pool_leave(pool);
			return (int)status;
		}
		if (PyErr_CheckSignals() < 0)
			break;
	}
	pool_leave(pool);
	return -1;
}

static PyObject *
pool_wait_free(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "n_pages", "timeout" };
	static struct call_signature signature = { "Pool.wait_free", names, 2, 2, 2, { NULL } };
	struct wait_free wait;
	uint32_t timeout_ms;
	PyObject *values[2];
	int status;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !number_u32(values[0], "n_pages", &wait.n_pages) || !number_timeout_ms(values[1], "timeout", &timeout_ms))
		return NULL;
	wait.handle = pool_enter(pool);
	if (wait.handle == NULL)
		return NULL;
	status = pool_wait(pool, pool_wait_free_part, &wait, timeout_ms);
	if (status == PAGED_ERR_TIMEOUT)
		return error_format(PAGED_ERR_TIMEOUT, "pool %s: fewer than %u pages are free or cached after %S s",
				    pool->info.name, wait.n_pages, values[1]);
	if (status > 0)
		return error_raise(pool->client->handle, (enum paged_status)status);
	return status == 0 ? Py_NewRef(Py_None) : NULL;
}

/* --------------------------------------------------------------- attributes */

#define POOL_ATTRIBUTE(name, expression)                                              \
	static PyObject *pool_get_##name(struct pool *pool, void *Py_UNUSED(closure)) \
	{                                                                             \
		const struct paged_pool_info *info = &pool->info;                     \
                                                                                      \
		return expression;                                                    \
	}
POOL_ATTRIBUTE(name, PyUnicode_FromString(info->name))
POOL_ATTRIBUTE(backend, PyUnicode_FromString(info->backend))
POOL_ATTRIBUTE(device, info->device != NULL ? PyUnicode_FromString(info->device) : Py_NewRef(Py_None))
POOL_ATTRIBUTE(isa, PyUnicode_FromString(info->isa))
POOL_ATTRIBUTE(model, PyUnicode_FromString(info->model))
POOL_ATTRIBUTE(number, PyLong_FromUnsignedLong(info->number))
POOL_ATTRIBUTE(n_layers, PyLong_FromUnsignedLong(info->n_layers))
POOL_ATTRIBUTE(n_kv_heads, PyLong_FromUnsignedLong(info->n_kv_heads))
POOL_ATTRIBUTE(k_dim, PyLong_FromUnsignedLong(info->k.dim))
POOL_ATTRIBUTE(v_dim, PyLong_FromUnsignedLong(info->v.dim))
POOL_ATTRIBUTE(v_in_k, PyBool_FromLong(info->v_in_k != 0))
POOL_ATTRIBUTE(dtype, PyUnicode_FromString(paged_dtype_name((enum paged_dtype)info->k.dtype)))
POOL_ATTRIBUTE(page_size, PyLong_FromUnsignedLong(info->page_size))
POOL_ATTRIBUTE(n_pages, PyLong_FromUnsignedLong(info->n_pages))
POOL_ATTRIBUTE(n_slots, PyLong_FromUnsignedLong(info->n_slots))
POOL_ATTRIBUTE(max_length, PyLong_FromUnsignedLong(info->max_length))
POOL_ATTRIBUTE(page_bytes, PyLong_FromUnsignedLongLong(info->page_bytes))
POOL_ATTRIBUTE(size, PyLong_FromUnsignedLongLong(info->size))
POOL_ATTRIBUTE(publishes, PyBool_FromLong(info->publishes != 0))
POOL_ATTRIBUTE(k, pages_new(pool, &info->k))
POOL_ATTRIBUTE(v, pages_new(pool, &info->v))
POOL_ATTRIBUTE(k_scale, info->k_scale.dtype != 0 ? pages_new(pool, &info->k_scale) : Py_NewRef(Py_None))
POOL_ATTRIBUTE(v_scale, info->v_scale.dtype != 0 ? pages_new(pool, &info->v_scale) : Py_NewRef(Py_None))

static PyObject *
pool_get_closed(struct pool *pool, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(pool->handle == NULL || pool->client->handle == NULL);
}

static PyObject *
pool_get_client(struct pool *pool, void *Py_UNUSED(closure))
{
	return Py_NewRef((PyObject *)pool->client);
}

#define POOL_GETTER(name, doc)                                  \
	{                                                       \
#name, (getter)pool_get_##name, NULL, doc, NULL \
	}
static PyGetSetDef pool_attributes[] = {
	POOL_GETTER(closed, "True after close() of the pool or of its client."),
	POOL_GETTER(client, "The Client."),
	POOL_GETTER(name, "Name of the pool."),
	POOL_GETTER(backend, "\"host\" or \"cuda\"."),
	POOL_GETTER(device, "UUID of the GPU, \"GPU-8a1b...\"; None: host memory."),
	POOL_GETTER(isa, "Instruction set of this client's kernels: \"avx512\", \"sm_90\" and so on."),
	POOL_GETTER(model, "\"name@revision\", as pagedd.conf(5) says; \"\": not stated."),
	POOL_GETTER(number, "Number of the pool, which its sequences' ids contain."),
	POOL_GETTER(n_layers, "Number of layers."),
	POOL_GETTER(n_kv_heads, "Number of KV heads."),
	POOL_GETTER(k_dim, "Head dimension of K."),
	POOL_GETTER(v_dim, "Head dimension of V."),
	POOL_GETTER(v_in_k, "True: V is the first v_dim dims of K and is not stored separately (MLA)."),
	POOL_GETTER(dtype,
		    "Type of the elements in the pages: \"f32\", \"f16\", \"bf16\", \"e4m3\", \"e5m2\", \"i8\"."),
	POOL_GETTER(page_size, "Tokens per page."),
	POOL_GETTER(n_pages, "Number of pages."),
	POOL_GETTER(n_slots, "Most sequences."),
	POOL_GETTER(max_length, "Tokens that one sequence may reserve."),
	POOL_GETTER(page_bytes, "Bytes of one page, all layers."),
	POOL_GETTER(size, "Bytes of all pages."),
	POOL_GETTER(publishes, "Whether sequences can be published."),
	POOL_GETTER(k, "K of all pages, as Pages."),
	POOL_GETTER(v, "V of all pages, as Pages."),
	POOL_GETTER(k_scale, "Scales of K, as Pages; None unless dtype is \"i8\"."),
	POOL_GETTER(v_scale, "Scales of V, as Pages; None unless dtype is \"i8\"."),
	{ NULL, NULL, NULL, NULL, NULL },
};

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Unmap the pool and close its batches; nothing if it is closed.\n\n"
			"Raises BufferError while a tensor over its pages lives, and RuntimeError while\n"
			"another thread is inside a call.");
PyDoc_STRVAR(counts_doc, "counts($self, /)\n--\n\n"
			 "Pages by state, from shared memory, as PoolCounts.\n\n"
			 "Raises AgainError if they were changed during every attempt, GoneError.");
PyDoc_STRVAR(totals_doc, "totals($self, /)\n--\n\n"
			 "What has happened in the pool since it was created, from shared memory, as a dict\n"
			 "with the names of struct paged_pool_totals: n_created, n_ended, n_tokens_asked and\n"
			 "others.\n\n"
			 "Raises GoneError.");
PyDoc_STRVAR(wait_free_doc, "wait_free($self, /, n_pages, timeout)\n--\n\n"
			    "Sleep until n_pages pages are free or cached; timeout in seconds.\n\n"
			    "A hint: another session may take the pages first.  Reserve, and wait again on\n"
			    "FullError.  Sends no request.\n\n"
			    "Raises TimedOutError, LimitError if the pool has fewer pages in all, GoneError.");
PyDoc_STRVAR(check_doc, "check($self, /)\n--\n\n"
			"Recount the pool's pages from the mapped page tables, as CheckResult.\n\n"
			"Raises AgainError if the tables were changed during every attempt.");
PyDoc_STRVAR(batch_doc, "batch($self, /, *, max_rows=256, reserve_ahead=0, max_q_tokens=0, max_q_heads=0)\n--\n\n"
			"A Batch, which plans steps of sequences and runs them.\n\n"
			"max_rows\n"
			"    Most rows (sequences) of a plan, at most 4096.\n"
			"reserve_ahead\n"
			"    Tokens to keep reserved past those that a plan uses, so that steady decoding\n"
			"    never waits for the daemon.  plan() then also reserves what it lacks.  0: the\n"
			"    caller reserves.\n"
			"max_q_tokens, max_q_heads\n"
			"    Of pools in GPU memory, whose buffers they size.  Most query tokens of a plan, 0:\n"
			"    512, or max_rows if that is more.  Most query heads, 0: 8 for each KV head; 128\n"
			"    if V lies in K.\n\n"
			"Raises LimitError if max_rows is too large, BackendError if the GPU has no memory\n"
			"left, and GoneError.");
PyDoc_STRVAR(mod_doc, "mod($self, kind, text, /, **names)\n--\n\n"
		      "Parse the text of a mask mod (kind \"mask\") or score mod (\"score\") to a Mod.\n\n"
		      "names: the arrays and parameters that the text reads: tensors, of which only dtype\n"
		      "and number of dimensions count, and numbers.  paged_mods(7) describes the\n"
		      "language.\n\n"
		      "    causal = pool.mod(\"mask\", \"kv_idx <= q_idx\")\n"
		      "    alibi = pool.mod(\"score\", \"score + slope[h] * (kv_idx - q_idx)\", slope=slopes)\n\n"
		      "Raises InvalidError, whose message points into the text.");
PyDoc_STRVAR(block_mask_doc,
	     "block_mask($self, /, mod, q_len, kv_len, *, seqs=None, q_base=None, b=None, n_heads=0,\n"
	     "           q_block=0, kv_block=0, physical=False, max_bytes=0, remote=False, arrays={})\n--\n\n"
	     "The BlockMask of a mask mod: for each query block the KV blocks that it shows.\n\n"
	     "mod\n"
	     "    A Mod or its text; None: nothing is hidden.\n"
	     "q_len, kv_len, q_base, b\n"
	     "    Rows, as for Batch.plan().  One row may stand for all rows of a plan.\n"
	     "seqs\n"
	     "    Sequences of the rows; needed with physical.\n"
	     "n_heads\n"
	     "    Query heads; 0: one head stands for all.  Needed if the mod depends on h.\n"
	     "q_block, kv_block\n"
	     "    Query rows and tokens of a block.  0: 128; kv_block of a physical mask: the\n"
	     "    page size.  For decoding, set q_block to q_len.\n"
	     "physical\n"
	     "    True: KV blocks are physical pages, as PyTorch's\n"
	     "    convert_logical_block_mask() makes them.\n"
	     "max_bytes\n"
	     "    Limit of the mask's memory; 0: 2**36.\n"
	     "remote\n"
	     "    True: the daemon builds the mask, from arrays of Client.upload() by their names.\n"
	     "    If the mod reads arrays, pass a Mod; arrays then has its parameters only.\n"
	     "arrays\n"
	     "    Arrays and parameters of the mod by name, in host memory.\n\n"
	     "Raises InvalidError if a text is not valid or the mod depends on h and n_heads is 0,\n"
	     "LimitError if the mask exceeds max_bytes or, with remote, the daemon's limits,\n"
	     "NotFoundError for a name that the mod uses and arrays lacks, RangeError for an index\n"
	     "out of bounds, and with remote AgainError if too many builds are queued, and\n"
	     "PermissionDeniedError for an observer.");
PyDoc_STRVAR(block_mask_from_arrays_doc,
	     "block_mask_from_arrays($self, /, q_len, kv_len, *, num_blocks=None, indices=None,\n"
	     "                       full_num_blocks=None, full_indices=None, seqs=None, q_base=None,\n"
	     "                       b=None, n_heads=0, q_block=0, kv_block=0, physical=False)\n--\n\n"
	     "A BlockMask from the arrays of PyTorch's BlockMask.\n\n"
	     "num_blocks [n_rows, n_heads, n_q_blocks] and indices [n_rows, n_heads, n_q_blocks,\n"
	     "width] list the partial blocks, full_num_blocks and full_indices the full ones: dense\n"
	     "int32 tensors in host memory, or pairs (buffer, shape) as BlockMask.arrays() returns\n"
	     "them.  n_heads 0: that of the arrays.  The other arguments are those of\n"
	     "block_mask().\n\n"
	     "Raises InvalidError, RangeError for a block index out of bounds.");

static const PyMethodDef pool_methods[] = {
	CALL_METHOD_NOARGS("close", pool_close, close_doc),
	CALL_METHOD_NOARGS("__enter__", pool_context_enter, "Return the pool."),
	{ "__exit__", (PyCFunction)(void (*)(void))pool_context_exit, METH_VARARGS, "close()" },
	CALL_METHOD_NOARGS("counts", pool_counts, counts_doc),
	CALL_METHOD_NOARGS("totals", pool_totals, totals_doc),
	CALL_METHOD_NOARGS("check", pool_check, check_doc),
	CALL_METHOD("wait_free", pool_wait_free, wait_free_doc),
	CALL_METHOD("batch", batch_open, batch_doc),
	CALL_METHOD_NOARGS("watch", watch_open, watch_doc),
	CALL_METHOD("mod", mod_parse, mod_doc),
	CALL_METHOD("block_mask", block_mask_open, block_mask_doc),
	CALL_METHOD("block_mask_from_arrays", block_mask_open_arrays, block_mask_from_arrays_doc),
	{ NULL, NULL, 0, NULL },
};

PyDoc_STRVAR(pool_doc, "A pool of pages, mapped into this process; see Client.pool().\n\n"
		       "Sequences are integers.  A sequence has a page table: the physical pages of its\n"
		       "tokens, in logical order.  The capacity of a sequence is the tokens that its pages\n"
		       "hold.  Calls may come from any thread.");

int
pool_add(PyObject *module)
{
	static PyMethodDef methods[40];
	static PyMemberDef members[] = {
		{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct pool, weak_references), READONLY, NULL },
		{ NULL, 0, 0, 0, NULL },
	};
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)pool_doc },         { Py_tp_methods, methods },
		{ Py_tp_getset, pool_attributes },       { Py_tp_members, members },
		{ Py_tp_dealloc, (void *)pool_dealloc }, { Py_tp_traverse, (void *)pool_traverse },
		{ Py_tp_repr, (void *)pool_repr },       { 0, NULL },
	};
	static PyType_Spec spec = { "paged.Pool", sizeof(struct pool), 0,
				    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
					    Py_TPFLAGS_DISALLOW_INSTANTIATION,
				    slots };

	call_join_methods(methods, (const PyMethodDef *[]){ pool_methods, pool_seq_methods, sharing_methods,
							    pool_handover_methods, NULL });
	pool_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (pool_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "Pool", (PyObject *)pool_type);
}
