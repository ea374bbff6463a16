/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix: what a sequence begins with, for start, match and publish. */
#include "python/ext/ext.h"

PyTypeObject *prefix_type;

/* Token ids that a prefix and those extended from it share: each has the first n of them.  Guarded by the GIL. */
struct prefix_tokens {
	size_t n_prefixes, n, n_max;
	uint32_t at[];
};

static struct prefix_tokens *
tokens_new(size_t n_max)
{
	struct prefix_tokens *tokens =
		n_max <= SIZE_MAX / 8 ? PyMem_Malloc(sizeof(*tokens) + n_max * sizeof(tokens->at[0])) : NULL;

	if (tokens == NULL) {
		PyErr_NoMemory();
		return NULL;
	}
	*tokens = (struct prefix_tokens){ .n_prefixes = 1, .n_max = n_max };
	return tokens;
}

static void
tokens_append(struct prefix_tokens *tokens, size_t n, const uint32_t *more)
{
	if (n > 0)
		memcpy(tokens->at + tokens->n, more, n * sizeof(*more));
	tokens->n += n;
}

static bool
digest_copy(PyObject *object, const char *name, uint8_t *digest)
{
	char *bytes;
	Py_ssize_t n;

	if (!PyBytes_Check(object)) {
		PyErr_Format(PyExc_TypeError, "%s must be bytes, not %R", name, (PyObject *)Py_TYPE(object));
		return false;
	}
	if (PyBytes_AsStringAndSize(object, &bytes, &n) < 0)
		return false;
	if (n != PAGED_DIGEST_SIZE) {
		PyErr_Format(PyExc_ValueError, "%s has %zd bytes; %d are needed", name, n, PAGED_DIGEST_SIZE);
		return false;
	}
	memcpy(digest, bytes, PAGED_DIGEST_SIZE);
	return true;
}

static bool
prefix_set_tokens(struct prefix *self, PyObject *object)
{
	struct numbers_u32 tokens;

	if (!numbers_u32(object, "tokens", &tokens))
		return false;
	self->tokens = tokens_new(tokens.n);
	if (self->tokens != NULL) {
		tokens_append(self->tokens, tokens.n, tokens.at);
		self->prefix.tokens = self->tokens->at;
		self->prefix.n_tokens = tokens.n;
	}
	numbers_u32_free(&tokens);
	return self->tokens != NULL;
}

static bool
extra_parse(PyObject *item, struct paged_extra *extra)
{
	PyObject *triple = PySequence_Tuple(item);
	bool ok;

	if (triple == NULL) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "extras: an item is (first, n_tokens, digest), not %R",
				     (PyObject *)Py_TYPE(item));
		return false;
	}
	if (PyTuple_Size(triple) == 3) {
		ok = number_u32(PyTuple_GetItem(triple, 0), "extras: first", &extra->first) &&
		     number_u32(PyTuple_GetItem(triple, 1), "extras: n_tokens", &extra->n_tokens) &&
		     digest_copy(PyTuple_GetItem(triple, 2), "extras: digest", extra->digest);
	} else {
		PyErr_Format(PyExc_ValueError, "extras: an item has %zd elements; (first, n_tokens, digest) are needed",
			     PyTuple_Size(triple));
		ok = false;
	}
	Py_DECREF(triple);
	return ok;
}

/* The extras of another prefix, n_before, and those of a list. */
static bool
prefix_set_extras(struct prefix *self, PyObject *object, const struct paged_extra *before, size_t n_before)
{
	PyObject *list = PySequence_List(object);
	Py_ssize_t n;
	bool ok;

	if (list == NULL) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "extras must be a list of (first, n_tokens, digest), not %R",
				     (PyObject *)Py_TYPE(object));
		return false;
	}
	n = PyList_Size(list);
	self->extras = PyMem_Calloc(n_before + (size_t)n + 1, sizeof(*self->extras));
	ok = self->extras != NULL;
	if (!ok)
		PyErr_NoMemory();
	else if (n_before > 0)
		memcpy(self->extras, before, n_before * sizeof(*before));
	for (Py_ssize_t i = 0; ok && i < n; i++)
		ok = extra_parse(PyList_GetItem(list, i), &self->extras[n_before + (size_t)i]);
	self->prefix.n_extra = n_before + (size_t)n;
	self->prefix.extra = self->prefix.n_extra > 0 ? self->extras : NULL;
	Py_DECREF(list);
	return ok;
}

static bool
prefix_set_keys(struct prefix *self, PyObject *keys, PyObject *page_size)
{
	char *bytes;
	Py_ssize_t n;

	if (!call_is_given(page_size)) {
		PyErr_SetString(PyExc_TypeError, "Prefix: keys needs page_size, the pool's");
		return false;
	}
	if (!PyBytes_Check(keys)) {
		PyErr_Format(PyExc_TypeError, "keys must be bytes, not %R", (PyObject *)Py_TYPE(keys));
		return false;
	}
	if (!number_u32(page_size, "page_size", &self->page_size) || PyBytes_AsStringAndSize(keys, &bytes, &n) < 0)
		return false;
	if (self->page_size == 0) {
		PyErr_SetString(PyExc_ValueError, "page_size is 0");
		return false;
	}
	if (n % PAGED_DIGEST_SIZE != 0) {
		PyErr_Format(PyExc_ValueError, "keys has %zd bytes; each key has %d", n, PAGED_DIGEST_SIZE);
		return false;
	}
	self->keys = Py_NewRef(keys);
	self->prefix.keys = (const void *)bytes;
	self->prefix.n_tokens = (size_t)n / PAGED_DIGEST_SIZE * self->page_size;
	return true;
}

static bool
prefix_set_attached_tokens(struct prefix *self, PyObject *tokens)
{
	size_t n = self->prefix.n_tokens;

	if (!prefix_set_tokens(self, tokens))
		return false;
	if (self->prefix.n_tokens == n)
		return true;
	PyErr_Format(PyExc_ValueError, "Prefix: keys are of %zu tokens, and there are %zu", n, self->prefix.n_tokens);
	return false;
}

static bool
prefix_set(struct prefix *self, PyObject *tokens, PyObject *salt, PyObject *extras, PyObject *keys, PyObject *page_size)
{
	self->prefix.struct_size = sizeof(self->prefix);
	if (!call_is_given(tokens) && !call_is_given(keys)) {
		PyErr_SetString(PyExc_TypeError, "Prefix() needs tokens or keys");
		return false;
	}
	if (call_is_given(keys)) {
		if (call_is_given(salt) || call_is_given(extras)) {
			PyErr_SetString(PyExc_TypeError, "Prefix: keys must cover salt and extras already");
			return false;
		}
		return prefix_set_keys(self, keys, page_size) &&
		       (!call_is_given(tokens) || prefix_set_attached_tokens(self, tokens));
	}
	if (call_is_given(salt)) {
		if (!digest_copy(salt, "salt", self->salt))
			return false;
		self->prefix.salt = self->salt;
	}
	return prefix_set_tokens(self, tokens) && (!call_is_given(extras) || prefix_set_extras(self, extras, NULL, 0));
}

static PyObject *
prefix_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "tokens", "salt", "extras", "keys", "page_size", NULL };
	PyObject *tokens = NULL, *salt = NULL, *extras = NULL, *keys = NULL, *page_size = NULL;
	struct prefix *self;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$OOOO:Prefix", names, &tokens, &salt, &extras, &keys,
					 &page_size))
		return NULL;
	self = (struct prefix *)PyType_GenericAlloc(type, 0);
	if (self != NULL && !prefix_set(self, tokens, salt, extras, keys, page_size))
		Py_CLEAR(self);
	return (PyObject *)self;
}

static void
prefix_dealloc(struct prefix *self)
{
	PyTypeObject *type = Py_TYPE((PyObject *)self);

	if (self->tokens != NULL && --self->tokens->n_prefixes == 0)
		PyMem_Free(self->tokens);
	PyMem_Free(self->extras);
	Py_XDECREF(self->keys);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* Appends in place if no other prefix has tokens after these; otherwise, or without room, copies them. */
static bool
prefix_set_extended(struct prefix *self, const struct prefix *before, const struct numbers_u32 *more)
{
	size_t n = before->prefix.n_tokens;

	if (n == before->tokens->n && before->tokens->n_max - n >= more->n) {
		self->tokens = before->tokens;
		self->tokens->n_prefixes++;
	} else {
		self->tokens = tokens_new(2 * (n + more->n));
		if (self->tokens == NULL)
			return false;
		tokens_append(self->tokens, n, before->prefix.tokens);
	}
	tokens_append(self->tokens, more->n, more->at);
	self->prefix.tokens = self->tokens->at;
	self->prefix.n_tokens = n + more->n;
	return true;
}

static PyObject *
prefix_extended(struct prefix *before, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "tokens", "extras" };
	static struct call_signature signature = { "Prefix.extended", names, 2, 1, 1, { NULL } };
	struct numbers_u32 more;
	struct prefix *self;
	PyObject *values[2];
	bool ok;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	if (before->keys != NULL) {
		PyErr_SetString(PyExc_TypeError, "Prefix.extended: keys are bytes, make a Prefix of longer ones");
		return NULL;
	}
	if (!numbers_u32(values[0], "tokens", &more))
		return NULL;
	self = (struct prefix *)PyType_GenericAlloc(prefix_type, 0);
	if (self == NULL) {
		numbers_u32_free(&more);
		return NULL;
	}
	self->prefix.struct_size = sizeof(self->prefix);
	memcpy(self->salt, before->salt, sizeof(self->salt));
	self->prefix.salt = before->prefix.salt != NULL ? self->salt : NULL;
	ok = prefix_set_extended(self, before, &more);
	numbers_u32_free(&more);
	if (ok && call_is_given(values[1])) {
		ok = prefix_set_extras(self, values[1], before->extras, before->prefix.n_extra);
	} else if (ok && before->prefix.n_extra > 0) {
		PyObject *none = PyTuple_New(0);

		ok = none != NULL && prefix_set_extras(self, none, before->extras, before->prefix.n_extra);
		Py_XDECREF(none);
	}
	if (!ok)
		Py_CLEAR(self);
	return (PyObject *)self;
}

static Py_ssize_t
prefix_length(struct prefix *self)
{
	return (Py_ssize_t)self->prefix.n_tokens;
}

static PyObject *
prefix_get_n_tokens(struct prefix *self, void *Py_UNUSED(closure))
{
	return PyLong_FromSize_t(self->prefix.n_tokens);
}

static PyObject *
prefix_repr(struct prefix *self)
{
	return PyUnicode_FromFormat("<paged.Prefix of %zu tokens%s>", self->prefix.n_tokens,
				    self->keys != NULL ? ", by keys" : "");
}

struct prefix *
prefix_from(const struct pool *pool, PyObject *object, const char *name)
{
	struct prefix *prefix = (struct prefix *)object;

	if (Py_TYPE(object) != prefix_type) {
		PyErr_Format(PyExc_TypeError, "%s must be a paged.Prefix, not %R", name, (PyObject *)Py_TYPE(object));
		return NULL;
	}
	if (prefix->keys != NULL && prefix->page_size != pool->info.page_size) {
		error_format(PAGED_ERR_INVALID, "%s has keys of pages of %u tokens; the page size of pool %s is %u",
			     name, prefix->page_size, pool->info.name, pool->info.page_size);
		return NULL;
	}
	return prefix;
}

PyDoc_STRVAR(prefix_doc, "Prefix(tokens=None, *, salt=None, extras=(), keys=None, page_size=None)\n--\n\n"
			 "Identifies the content of a sequence's first tokens.\n\n"
			 "tokens\n"
			 "    Token ids, each below 2**32 - 1.\n"
			 "salt\n"
			 "    32 bytes, from salt().  Prefixes of different salts never match.  It must\n"
			 "    cover everything that K and V depend on and that the pool's configuration\n"
			 "    does not state.  None: zeros.\n"
			 "extras\n"
			 "    Content that token ids do not express, such as images: (first, n_tokens,\n"
			 "    digest) with the position of the first token that stands for it, the number of\n"
			 "    these tokens and the SHA-256 of the content; in ascending order of first.\n"
			 "keys, page_size\n"
			 "    Instead of all others: 32 bytes for each page, each a collision-free hash of\n"
			 "    the prefix up to the end of its page, such as vLLM's SHA-256 block hashes, and\n"
			 "    the pool's page size.  tokens may be given with them, for programs that watch\n"
			 "    the index, such as paged-events; they are no part of the identity then.");

PyDoc_STRVAR(prefix_extended_doc,
	     "extended($self, /, tokens, *, extras=())\n--\n\n"
	     "The prefix with further tokens at its end, and extras that begin in them.\n\n"
	     "For a sequence that grows: takes as long as the new tokens, however many the prefix\n"
	     "has, because both share them.  Not for prefixes by keys.");

int
prefix_add(PyObject *module)
{
	static PyMethodDef methods[] = {
		CALL_METHOD("extended", prefix_extended, prefix_extended_doc),
		{ NULL, NULL, 0, NULL },
	};
	static PyGetSetDef attributes[] = {
		{ "n_tokens", (getter)prefix_get_n_tokens, NULL, "Number of tokens; also len().", NULL },
		{ NULL, NULL, NULL, NULL, NULL },
	};
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)prefix_doc },
		{ Py_tp_new, (void *)prefix_new },
		{ Py_tp_dealloc, (void *)prefix_dealloc },
		{ Py_tp_getset, attributes },
		{ Py_tp_methods, methods },
		{ Py_sq_length, (void *)prefix_length },
		{ Py_tp_repr, (void *)prefix_repr },
		{ 0, NULL },
	};
	static PyType_Spec spec = { "paged.Prefix", sizeof(struct prefix), 0,
				    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots };

	prefix_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (prefix_type == NULL)
		return -1;
	return PyModule_AddObjectRef(module, "Prefix", (PyObject *)prefix_type);
}
