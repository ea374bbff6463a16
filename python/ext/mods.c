/* SPDX-License-Identifier: Apache-2.0 */
/* Mod: an expression of the mod language. */
#include "python/ext/ext.h"

PyTypeObject *mod_type;

bool
pool_enter_to_destroy(struct pool *pool)
{
	PyObject *type, *value, *trace;
	bool entered;

	/* A dealloc may run while an exception propagates: keep it. */
	PyErr_Fetch(&type, &value, &trace);
	entered = pool_enter(pool) != NULL;
	if (!entered)
		PyErr_Clear();
	PyErr_Restore(type, value, trace);
	return entered;
}

static struct mod *
mod_new(struct pool *pool, uint32_t kind, const char *text, const struct arrays *names)
{
	struct mod *mod = (struct mod *)PyType_GenericAlloc(mod_type, 0);
	struct paged_pool *handle;
	enum paged_status status;

	if (mod == NULL)
		return NULL;
	mod->pool = (struct pool *)Py_NewRef((PyObject *)pool);
	mod->kind = kind;
	handle = pool_enter(pool);
	if (handle == NULL)
		goto err_free;
	Py_BEGIN_ALLOW_THREADS;
	status = paged_mod_parse(handle, (enum paged_mod_kind)kind, text, names->n, names->at, &mod->handle);
	Py_END_ALLOW_THREADS;
	if (status != PAGED_OK) {
		pool_result(pool, status);
		goto err_free;
	}
	pool_leave(pool);
	return mod;

err_free:
	Py_DECREF((PyObject *)mod);
	return NULL;
}

static const char *
mod_kind_name(uint32_t kind)
{
	return kind == PAGED_MOD_MASK ? "mask" : "score";
}

static bool
mod_kind_from(PyObject *name, uint32_t *kind_p)
{
	for (*kind_p = PAGED_MOD_MASK; *kind_p <= PAGED_MOD_SCORE; ++*kind_p)
		if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, mod_kind_name(*kind_p)) == 0)
			return true;
	PyErr_Format(PyExc_ValueError, "kind must be 'mask' or 'score', not %R",
		     PyUnicode_Check(name) ? name : (PyObject *)Py_TYPE(name));
	return false;
}

PyObject *
mod_parse(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	struct arrays names;
	const char *text;
	PyObject *mod;
	uint32_t kind;

	if (n != 2) {
		PyErr_Format(PyExc_TypeError, "Pool.mod() takes 2 positional arguments, kind and text (%zd given)", n);
		return NULL;
	}
	text = text_utf8(arguments[1], "text");
	if (text == NULL || !mod_kind_from(arguments[0], &kind) ||
	    !arrays_parse_keywords(arguments + n, keyword_names, NULL, 0, &names))
		return NULL;
	mod = (PyObject *)mod_new(pool, kind, text, &names);
	arrays_free(&names);
	return mod;
}

static struct mod *
mod_check(struct pool *pool, enum paged_mod_kind kind, const char *name, PyObject *argument)
{
	struct mod *mod = (struct mod *)argument;

	if (mod->kind != (uint32_t)kind) {
		PyErr_Format(PyExc_ValueError, "%s: the mod is a %s mod", name, mod_kind_name(mod->kind));
		return NULL;
	}
	if (mod->pool != pool) {
		PyErr_Format(PyExc_ValueError, "%s: the mod belongs to another Pool; parse it with this one", name);
		return NULL;
	}
	return (struct mod *)Py_NewRef((PyObject *)mod);
}

struct mod *
mod_from_argument(struct pool *pool, enum paged_mod_kind kind, const char *name, PyObject *argument,
		  const struct arrays *arrays)
{
	const char *text;

	if (PyObject_TypeCheck(argument, mod_type))
		return mod_check(pool, kind, name, argument);
	if (!PyUnicode_Check(argument)) {
		PyErr_Format(PyExc_TypeError, "%s: expected a Mod or a str, not %R", name, Py_TYPE(argument));
		return NULL;
	}
	text = text_utf8(argument, name);
	return text != NULL ? mod_new(pool, (uint32_t)kind, text, arrays) : NULL;
}

static void
mod_dealloc(PyObject *self)
{
	struct mod *mod = (struct mod *)self;
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	/* It takes the client's mutex, which a thread may hold that waits for the GIL to log. */
	if (mod->handle != NULL && pool_enter_to_destroy(mod->pool)) {
		Py_BEGIN_ALLOW_THREADS;
		paged_mod_destroy(mod->handle);
		Py_END_ALLOW_THREADS;
		pool_leave(mod->pool);
	}
	Py_XDECREF((PyObject *)mod->pool);
	release(self);
	Py_DECREF(type);
}

/* A cycle may lead through the client's log function. */
static int
mod_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct mod *)self)->pool);
	return 0;
}

PyDoc_STRVAR(mod_evaluate_doc, "evaluate($self, /, *, score=0.0, b=0, h=0, q_idx=0, kv_idx=0, arrays={})\n"
			       "--\n"
			       "\n"
			       "Evaluate the mod for one element of the score matrix, in float64.\n"
			       "\n"
			       "For inspecting and testing mods.  Attention computes in float32.\n"
			       "\n"
			       "score\n"
			       "    The scaled score; read by score mods only.\n"
			       "b\n"
			       "    Row of the plan.\n"
			       "h\n"
			       "    Query head.\n"
			       "q_idx\n"
			       "    Position of the query in its sequence.\n"
			       "kv_idx\n"
			       "    Position of the key.\n"
			       "arrays\n"
			       "    A mapping of names to tensors in host memory, ints and floats.\n"
			       "\n"
			       "Return the new score of a score mod, and 1.0 (seen) or 0.0 for a mask mod.\n"
			       "Raises RangeError if an index is out of bounds, NotFoundError if a name that\n"
			       "the mod uses is missing, and InvalidError if a type or the number of\n"
			       "dimensions differs from the declared one.");

static bool
mod_point_index(PyObject *value, const char *name, int32_t *index_p)
{
	int64_t index;

	if (value == NULL)
		return true;
	if (!number_i64(value, name, &index))
		return false;
	if (index < INT32_MIN || index > INT32_MAX) {
		PyErr_Format(PyExc_OverflowError, "%s: %lld is outside 32 bits", name, (long long)index);
		return false;
	}
	*index_p = (int32_t)index;
	return true;
}

static bool
mod_point(PyObject *const *values, struct paged_mod_point *point)
{
	if (values[0] != NULL) {
		point->score = PyFloat_AsDouble(values[0]);
		if (point->score == -1 && PyErr_Occurred()) {
			if (PyErr_ExceptionMatches(PyExc_TypeError))
				PyErr_Format(PyExc_TypeError, "score must be a number, not %R",
					     (PyObject *)Py_TYPE(values[0]));
			return false;
		}
	}
	return mod_point_index(values[1], "b", &point->b) && mod_point_index(values[2], "h", &point->h) &&
	       mod_point_index(values[3], "q_idx", &point->q_idx) &&
	       mod_point_index(values[4], "kv_idx", &point->kv_idx);
}

static PyObject *
mod_evaluate(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "score", "b", "h", "q_idx", "kv_idx", "arrays" };
	static struct call_signature signature = { .function = "Mod.evaluate", .names = names, .n = 6 };
	struct mod *mod = (struct mod *)self;
	struct paged_mod_point point = { 0 };
	enum paged_status status;
	struct arrays arrays;
	PyObject *values[6], *none;
	double value = 0;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !mod_point(values, &point) ||
	    !arrays_parse(values[5], &arrays))
		return NULL;
	if (!arrays_check_memory(&arrays, NULL) || pool_enter(mod->pool) == NULL) {
		arrays_free(&arrays);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS;
	status = paged_mod_evaluate(mod->handle, arrays.n, arrays.at, &point, &value);
	Py_END_ALLOW_THREADS;
	none = pool_result(mod->pool, status);
	/* After the error's text was read: the frameworks' code may call paged. */
	arrays_free(&arrays);
	if (none == NULL)
		return NULL;
	Py_DECREF(none);
	return PyFloat_FromDouble(value);
}

static PyObject *
mod_get_pool(PyObject *self, void *Py_UNUSED(closure))
{
	struct mod *mod = (struct mod *)self;

	return Py_NewRef((PyObject *)mod->pool);
}

static PyObject *
mod_get_kind(PyObject *self, void *Py_UNUSED(closure))
{
	return PyUnicode_FromString(mod_kind_name(((struct mod *)self)->kind));
}

static PyObject *
mod_get_text(PyObject *self, void *Py_UNUSED(closure))
{
	struct mod *mod = (struct mod *)self;
	PyObject *text;

	if (pool_enter(mod->pool) == NULL)
		return NULL;
	text = PyUnicode_FromString(paged_mod_text(mod->handle));
	pool_leave(mod->pool);
	return text;
}

static PyObject *
mod_get_inputs(PyObject *self, void *Py_UNUSED(closure))
{
	static const struct {
		uint32_t bit;
		const char *name;
	} inputs[] = { { PAGED_ON_SCORE, "score" },
		       { PAGED_ON_B, "b" },
		       { PAGED_ON_H, "h" },
		       { PAGED_ON_Q_IDX, "q_idx" },
		       { PAGED_ON_KV_IDX, "kv_idx" } };
	struct mod *mod = (struct mod *)self;
	PyObject *set = PyFrozenSet_New(NULL), *name;
	uint32_t bits;

	if (set == NULL || pool_enter(mod->pool) == NULL)
		goto err_free;
	bits = paged_mod_inputs(mod->handle);
	pool_leave(mod->pool);
	for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++) {
		if ((bits & inputs[i].bit) == 0)
			continue;
		name = PyUnicode_FromString(inputs[i].name);
		/* A frozenset that no other code has seen may be filled. */
		if (name == NULL || PySet_Add(set, name) != 0) {
			Py_XDECREF(name);
			goto err_free;
		}
		Py_DECREF(name);
	}
	return set;

err_free:
	Py_XDECREF((PyObject *)set);
	return NULL;
}

static PyObject *
mod_repr(PyObject *self)
{
	struct mod *mod = (struct mod *)self;

	if (!pool_is_open(mod->pool))
		return PyUnicode_FromFormat("<paged.Mod: %s mod of a closed pool>", mod_kind_name(mod->kind));
	return PyUnicode_FromFormat("<paged.Mod: %s mod %s>", mod_kind_name(mod->kind), paged_mod_text(mod->handle));
}

int
mods_add(PyObject *module)
{
	static PyMethodDef methods[] = { CALL_METHOD("evaluate", mod_evaluate, mod_evaluate_doc), { 0 } };
	static PyGetSetDef attributes[] = {
		{ "pool", mod_get_pool, NULL, "The Pool that parsed the mod.", NULL },
		{ "kind", mod_get_kind, NULL, "\"mask\" or \"score\".", NULL },
		{ "text", mod_get_text, NULL, "Canonical text of the mod: equal for texts with the same operations.",
		  NULL },
		{ "inputs", mod_get_inputs, NULL,
		  "Names of the inputs that the result may depend on, a frozenset of \"score\",\n"
		  "\"b\", \"h\", \"q_idx\" and \"kv_idx\".  Without \"h\", one head of a block mask is\n"
		  "valid for all heads; without \"b\", one row for all rows of the same lengths.",
		  NULL },
		{ 0 }
	};
	static PyType_Slot slots[] = {
		{ Py_tp_doc, "A mask mod or a score mod: an expression as in paged_mods(7), parsed by Pool.mod().\n"
			     "\n"
			     "A Mod is immutable; any thread may use it.  Values and arrays are no part of it:\n"
			     "bind new ones with ModSet.bind().  It is usable until its pool is closed." },
		{ Py_tp_dealloc, mod_dealloc },
		{ Py_tp_traverse, mod_traverse },
		{ Py_tp_repr, mod_repr },
		{ Py_tp_methods, methods },
		{ Py_tp_getset, attributes },
		{ 0, NULL }
	};
	static PyType_Spec spec = { .name = "paged.Mod",
				    .basicsize = sizeof(struct mod),
				    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
					     Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
				    .slots = slots };

	mod_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (mod_type == NULL)
		return -1;
	if (PyModule_AddObjectRef(module, "Mod", (PyObject *)mod_type) < 0)
		return -1;
	return mod_set_add(module);
}
