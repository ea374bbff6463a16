/* SPDX-License-Identifier: Apache-2.0 */
/* ModSet: a mask mod and a score mod, bound to values, arrays and a block mask. */
#include "python/ext/ext.h"

#include <limits.h>
PyTypeObject *mod_set_type;

/* Sets without references, which were freed while another thread was inside a call of their batch. */
static struct mod_set *mod_sets_unused;

static bool
mod_set_is_open(const struct mod_set *set)
{
	return set->handle != NULL && set->batch->handle != NULL && pool_is_open(set->batch->pool);
}

/* The library borrows the mods, arrays and blocks until the handle is destroyed. */
static void
mod_set_destroy_handle(struct mod_set *set)
{
	struct paged_mod_set *handle = set->handle;

	if (mod_set_is_open(set))
		paged_mod_set_destroy(handle);
	set->handle = NULL;
}

static void
mod_set_clear_binding(struct mod_set *set)
{
	struct block_mask *blocks = set->blocks;

	set->blocks = NULL;
	Py_XDECREF((PyObject *)blocks);
	arrays_free(&set->arrays);
}

static void
mod_set_free(struct mod_set *set)
{
	PyTypeObject *type = Py_TYPE((PyObject *)set);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	if (set->batch != NULL)
		mod_set_destroy_handle(set);
	mod_set_clear_binding(set);
	Py_XDECREF((PyObject *)set->mask);
	Py_XDECREF((PyObject *)set->score);
	Py_XDECREF((PyObject *)set->batch);
	release(set);
	Py_DECREF(type);
}

static bool
mod_set_is_busy(const struct mod_set *set)
{
	return set->batch != NULL && set->batch->busy;
}

static void
mod_sets_free_unused(void)
{
	struct mod_set **link = &mod_sets_unused, *set;

	while ((set = *link) != NULL) {
		if (mod_set_is_busy(set)) {
			link = &set->next;
			continue;
		}
		*link = set->next;
		mod_set_free(set);
		/* Freeing it may have run Python code that changed the list. */
		link = &mod_sets_unused;
	}
}

static void
mod_set_dealloc(PyObject *self)
{
	struct mod_set *set = (struct mod_set *)self;

	PyObject_GC_UnTrack(self);
	if (mod_set_is_busy(set)) {
		set->next = mod_sets_unused;
		mod_sets_unused = set;
		return;
	}
	mod_set_free(set);
	mod_sets_free_unused();
}

static int
mod_set_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct mod_set *set = (struct mod_set *)self;

	Py_VISIT(Py_TYPE(self));
	Py_VISIT(set->batch);
	Py_VISIT(set->mask);
	Py_VISIT(set->score);
	Py_VISIT(set->blocks);
	return arrays_traverse(&set->arrays, visit, arg);
}

static int
mod_set_clear(PyObject *self)
{
	struct mod_set *set = (struct mod_set *)self;

	/* A cycle can only lead through the arrays.  If the batch is busy, a later collection finds it again. */
	if (mod_set_is_busy(set))
		return 0;
	mod_set_destroy_handle(set);
	mod_set_clear_binding(set);
	return 0;
}

/* A new reference to a block mask of the pool, or NULL with an exception. */
static struct block_mask *
mod_set_blocks(struct pool *pool, PyObject *argument)
{
	struct block_mask *blocks = (struct block_mask *)argument;

	if (!PyObject_TypeCheck(argument, block_mask_type)) {
		PyErr_Format(PyExc_TypeError, "blocks: expected a BlockMask, not %R", Py_TYPE(argument));
		return NULL;
	}
	if (blocks->pool != pool) {
		PyErr_SetString(PyExc_ValueError, "blocks: the block mask belongs to another Pool");
		return NULL;
	}
	return (struct block_mask *)Py_NewRef((PyObject *)blocks);
}

/* On success the set owns the arrays, and `arrays` has those of the previous binding. */
static bool
mod_set_bind_arrays(struct mod_set *set, PyObject *blocks_argument, struct arrays *arrays)
{
	struct pool *pool = set->batch->pool;
	struct block_mask *blocks = NULL, *old_blocks;
	struct arrays old_arrays;
	enum paged_status status;

	if (!arrays_check_memory(arrays, pool) || !arrays_check_grad(arrays))
		return false;
	if (call_is_given(blocks_argument)) {
		blocks = mod_set_blocks(pool, blocks_argument);
		if (blocks == NULL)
			return false;
	}
	if (batch_enter(set->batch) == NULL) {
		Py_XDECREF((PyObject *)blocks);
		return false;
	}
	Py_BEGIN_ALLOW_THREADS;
	status = paged_mod_set_bind(set->handle, arrays->n, arrays->at, blocks != NULL ? blocks->handle : NULL);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK) {
		batch_result(set->batch, status);
		Py_XDECREF((PyObject *)blocks);
		return false;
	}
	old_blocks = set->blocks;
	old_arrays = set->arrays;
	set->blocks = blocks;
	set->arrays = *arrays;
	*arrays = old_arrays;
	batch_leave(set->batch);
	Py_XDECREF((PyObject *)old_blocks);
	return true;
}

static struct mod_set *
mod_set_new(struct batch *batch, struct mod *mask, struct mod *score)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct mod_set *set = (struct mod_set *)PyType_GenericAlloc(mod_set_type, 0);
	struct paged_batch *handle;
	enum paged_status status;

	if (set == NULL)
		return NULL;
	set->batch = (struct batch *)Py_NewRef((PyObject *)batch);
	set->mask = (struct mod *)Py_XNewRef((PyObject *)mask);
	set->score = (struct mod *)Py_XNewRef((PyObject *)score);
	handle = batch_enter(batch);
	if (handle == NULL)
		goto err_free;
	params.mask = mask != NULL ? mask->handle : NULL;
	params.score = score != NULL ? score->handle : NULL;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_mod_set_create(handle, &params, &set->handle);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK) {
		batch_result(batch, status);
		goto err_free;
	}
	batch_leave(batch);
	return set;

err_free:
	Py_DECREF((PyObject *)set);
	return NULL;
}

static struct mod_set *
mod_set_from_arguments(struct batch *batch, PyObject *mask, PyObject *score, const struct arrays *arrays)
{
	struct mod *mask_mod = NULL, *score_mod = NULL;
	struct mod_set *set = NULL;

	if (call_is_given(mask)) {
		mask_mod = mod_from_argument(batch->pool, PAGED_MOD_MASK, "mask", mask, arrays);
		if (mask_mod == NULL)
			return NULL;
	}
	if (call_is_given(score)) {
		score_mod = mod_from_argument(batch->pool, PAGED_MOD_SCORE, "score", score, arrays);
		if (score_mod == NULL)
			goto out;
	}
	set = mod_set_new(batch, mask_mod, score_mod);
out:
	Py_XDECREF((PyObject *)mask_mod);
	Py_XDECREF((PyObject *)score_mod);
	return set;
}

PyObject *
mod_set_open(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	struct arrays_keyword others[] = { { .name = "mask" }, { .name = "score" }, { .name = "blocks" } };
	PyObject *blocks;
	struct mod_set *set;
	struct arrays arrays;

	if (n != 0) {
		PyErr_Format(PyExc_TypeError, "Batch.mods() takes only keyword arguments (%zd positional given)", n);
		return NULL;
	}
	mod_sets_free_unused();
	if (!arrays_parse_keywords(arguments, keyword_names, others, 3, &arrays))
		return NULL;
	blocks = others[2].value;
	set = mod_set_from_arguments(batch, others[0].value, others[1].value, &arrays);
	if (set != NULL && (arrays.n != 0 || call_is_given(blocks)) && !mod_set_bind_arrays(set, blocks, &arrays)) {
		Py_DECREF((PyObject *)set);
		set = NULL;
	}
	arrays_free(&arrays);
	return (PyObject *)set;
}

PyDoc_STRVAR(mod_set_bind_doc, "bind($self, /, *, blocks=None, **arrays)\n"
			       "--\n"
			       "\n"
			       "Set the values and arrays that the mods use, and a block mask.\n"
			       "\n"
			       "blocks\n"
			       "    A BlockMask with as many rows as the plan, or one for all; as many heads as\n"
			       "    q, or one for all; lengths of at least the plan's.\n"
			       "arrays\n"
			       "    By name: tensors of up to four dimensions (float32, float16, bfloat16,\n"
			       "    int32, int64, uint8 or bool; any strides) in the memory of the pool, ints\n"
			       "    and floats.  Names that no mod uses are ignored.\n"
			       "\n"
			       "The arguments replace those of the previous bind() or Batch.mods(); nothing is\n"
			       "compiled again.  Types and numbers of dimensions must be those that were\n"
			       "declared; sizes may differ.  The library reads arrays in place: do not change\n"
			       "or resize them until the attention that uses them is done.  The set keeps a\n"
			       "reference to each.  Numbers and int64 arrays are copied.\n"
			       "\n"
			       "If bind() raises an exception, the previous binding remains.  Raises\n"
			       "NotFoundError if a name that a mod uses is missing, InvalidError if a type or\n"
			       "the number of dimensions differs from the declared one, RangeError if a value of\n"
			       "an int64 array is outside 32 bits, and ValueError if an array is not in the\n"
			       "pool's memory.  Whether the block mask fits the plan is checked by attention().");

static PyObject *
mod_set_bind(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	struct arrays_keyword others[] = { { .name = "blocks" } };
	struct mod_set *set = (struct mod_set *)self;
	struct arrays arrays;
	bool ok;

	if (n != 0) {
		PyErr_Format(PyExc_TypeError, "ModSet.bind() takes only keyword arguments (%zd positional given)", n);
		return NULL;
	}
	mod_sets_free_unused();
	if (!arrays_parse_keywords(arguments, keyword_names, others, 1, &arrays))
		return NULL;
	ok = mod_set_bind_arrays(set, others[0].value, &arrays);
	arrays_free(&arrays);
	return ok ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(mod_set_prepare_doc, "prepare($self, /, dtype, timeout=None)\n"
				  "--\n"
				  "\n"
				  "Wait until the mods are compiled for queries of this dtype.\n"
				  "\n"
				  "On the host, mods are interpreted, and the method returns at once.  On a GPU,\n"
				  "attention() waits for code that is not ready; after prepare() it does not.\n"
				  "\n"
				  "dtype\n"
				  "    \"f32\", \"f16\" or \"bf16\".\n"
				  "timeout\n"
				  "    Seconds; 0: only check; None: without limit.\n"
				  "\n"
				  "Raises AgainError if the code is not ready (timeout 0), TimedOutError if it is\n"
				  "not ready in time, UnsupportedError if no compiler (NVRTC) was found, and\n"
				  "BackendError if the compiler or the driver refused the code.");

static bool
mod_set_timeout(PyObject *seconds, int *timeout_ms_p)
{
	uint32_t timeout_ms;

	*timeout_ms_p = -1;
	if (!call_is_given(seconds))
		return true;
	if (!number_timeout_ms(seconds, "timeout", &timeout_ms))
		return false;
	*timeout_ms_p = timeout_ms < INT_MAX ? (int)timeout_ms : INT_MAX;
	return true;
}

static PyObject *
mod_set_prepare(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "dtype", "timeout" };
	static struct call_signature signature = {
		.function = "ModSet.prepare", .names = names, .n = 2, .n_positional = 2, .n_required = 1
	};
	struct mod_set *set = (struct mod_set *)self;
	enum paged_status status;
	PyObject *values[2];
	uint32_t dtype;
	int timeout_ms;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_dtype(values[0], "dtype", &dtype) ||
	    !mod_set_timeout(values[1], &timeout_ms) || batch_enter(set->batch) == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_mod_set_prepare(set->handle, (enum paged_dtype)dtype, timeout_ms);
	Py_END_ALLOW_THREADS;
	return batch_result(set->batch, status);
}

static PyObject *
mod_set_get_batch(PyObject *self, void *Py_UNUSED(closure))
{
	return Py_NewRef((PyObject *)((struct mod_set *)self)->batch);
}

static PyObject *
mod_set_get_mod(PyObject *self, void *closure)
{
	struct mod_set *set = (struct mod_set *)self;
	struct mod *mod = closure == NULL ? set->mask : set->score;

	return Py_NewRef(mod != NULL ? (PyObject *)mod : Py_None);
}

static PyObject *
mod_set_repr(PyObject *self)
{
	const struct mod_set *set = (const struct mod_set *)self;

	return PyUnicode_FromFormat("<paged.ModSet of pool %s: mask %R, score %R, %zu arrays%s>",
				    set->batch->pool->info.name, set->mask != NULL ? (PyObject *)set->mask : Py_None,
				    set->score != NULL ? (PyObject *)set->score : Py_None, set->arrays.n,
				    mod_set_is_open(set) ? "" : ", closed");
}

int
mod_set_add(PyObject *module)
{
	static PyMethodDef methods[] = { CALL_METHOD("bind", mod_set_bind, mod_set_bind_doc),
					 CALL_METHOD("prepare", mod_set_prepare, mod_set_prepare_doc),
					 { 0 } };
	static PyGetSetDef attributes[] = { { "batch", mod_set_get_batch, NULL, "The Batch that the set was made for.",
					      NULL },
					    { "mask", mod_set_get_mod, NULL, "The mask mod, or None.", NULL },
					    { "score", mod_set_get_mod, NULL, "The score mod, or None.", (void *)"" },
					    { 0 } };
	static PyType_Slot slots[] = {
		{ Py_tp_doc, "A mask mod and a score mod for attention() of one Batch, made by Batch.mods().\n"
			     "\n"
			     "Make one for each kind of layer that the model has, and bind new values and\n"
			     "arrays in each step.  It is used by one thread at a time, as its batch is, and\n"
			     "until the batch is closed." },
		{ Py_tp_dealloc, mod_set_dealloc },
		{ Py_tp_traverse, mod_set_traverse },
		{ Py_tp_clear, mod_set_clear },
		{ Py_tp_repr, mod_set_repr },
		{ Py_tp_methods, methods },
		{ Py_tp_getset, attributes },
		{ 0, NULL }
	};
	static PyType_Spec spec = { .name = "paged.ModSet",
				    .basicsize = sizeof(struct mod_set),
				    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
					     Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
				    .slots = slots };

	mod_set_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (mod_set_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "ModSet", (PyObject *)mod_set_type);
}
