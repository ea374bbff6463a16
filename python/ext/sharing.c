/* SPDX-License-Identifier: Apache-2.0 */
/* Pool: match, start, publish, pin, hold. */
#include "python/ext/ext.h"

/* -------------------------------------------------------------------- match */

static PyObject *
pool_match(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "prefix" };
	static struct call_signature signature = { "Pool.match", names, 1, 1, 1, { NULL } };
	struct paged_pool *handle;
	enum paged_status status;
	struct prefix *prefix;
	uint32_t n_tokens = 0;
	PyObject *values[1];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	prefix = prefix_from(pool, values[0], "prefix");
	handle = prefix != NULL ? pool_enter(pool) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_prefix_match(handle, &prefix->prefix, &n_tokens);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? PyLong_FromUnsignedLong(n_tokens) : error_raise(pool->client->handle, status);
}

struct wait_prefix {
	struct paged_pool *handle;
	const struct paged_prefix *prefix;
	uint32_t n_tokens;
};

static enum paged_status
pool_wait_prefix_part(void *argument, uint32_t timeout_ms)
{
	const struct wait_prefix *wait = argument;

	return paged_prefix_wait(wait->handle, wait->prefix, wait->n_tokens, timeout_ms);
}

static PyObject *
pool_wait_prefix(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "prefix", "n_tokens", "timeout" };
	static struct call_signature signature = { "Pool.wait_prefix", names, 3, 3, 3, { NULL } };
	struct wait_prefix wait;
	struct prefix *prefix;
	uint32_t timeout_ms;
	PyObject *values[3];
	int status;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	prefix = prefix_from(pool, values[0], "prefix");
	if (prefix == NULL || !number_u32(values[1], "n_tokens", &wait.n_tokens) ||
	    !number_timeout_ms(values[2], "timeout", &timeout_ms))
		return NULL;
	wait.prefix = &prefix->prefix;
	wait.handle = pool_enter(pool);
	if (wait.handle == NULL)
		return NULL;
	status = pool_wait(pool, pool_wait_prefix_part, &wait, timeout_ms);
	if (status == PAGED_ERR_TIMEOUT)
		return error_format(PAGED_ERR_TIMEOUT,
				    "pool %s: fewer than %u tokens of the prefix are published after %S s",
				    pool->info.name, wait.n_tokens, values[2]);
	if (status > 0)
		return error_raise(pool->client->handle, (enum paged_status)status);
	return status == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
pool_pin(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "prefix", "seconds" };
	static struct call_signature signature = { "Pool.pin", names, 2, 2, 2, { NULL } };
	uint32_t seconds, n_tokens = 0;
	struct paged_pool *handle;
	enum paged_status status;
	struct prefix *prefix;
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	prefix = prefix_from(pool, values[0], "prefix");
	if (prefix == NULL || !number_u32(values[1], "seconds", &seconds))
		return NULL;
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_prefix_pin(handle, &prefix->prefix, seconds, &n_tokens);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? PyLong_FromUnsignedLong(n_tokens) : error_raise(pool->client->handle, status);
}

static PyObject *
pool_prefix_tokens(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "page", "serial" };
	static struct call_signature signature = { "Pool.prefix_tokens", names, 2, 2, 2, { NULL } };
	uint32_t tokens[PAGED_MAX_PAGE_SIZE], page;
	struct paged_pool *handle;
	enum paged_status status;
	PyObject *values[2];
	uint64_t serial;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u32(values[0], "page", &page) ||
	    !number_u64(values[1], "serial", &serial))
		return NULL;
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_prefix_tokens(handle, page, serial, tokens, PAGED_MAX_PAGE_SIZE);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? list_u32(tokens, pool->info.page_size) : error_raise(pool->client->handle, status);
}

/* --------------------------------------------------------------------- hold */

static PyObject *
prefix_pages_result(const uint32_t *pages, const uint64_t *serials, size_t n)
{
	PyObject *page_list = list_u32(pages, n), *serial_list = list_u64(serials, n), *result = NULL;

	if (page_list != NULL && serial_list != NULL)
		result = PyTuple_Pack(2, page_list, serial_list);
	Py_XDECREF(page_list);
	Py_XDECREF(serial_list);
	return result;
}

static PyObject *
pool_prefix_pages(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "prefix" };
	static struct call_signature signature = { "Pool.prefix_pages", names, 1, 1, 1, { NULL } };
	PyObject *values[1], *result = NULL;
	struct paged_pool *handle;
	enum paged_status status;
	struct prefix *prefix;
	uint64_t *serials;
	uint32_t *pages;
	size_t n_max, n_found;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	prefix = prefix_from(pool, values[0], "prefix");
	if (prefix == NULL)
		return NULL;
	n_max = prefix->prefix.n_tokens / pool->info.page_size;
	pages = PyMem_Calloc(n_max + 1, sizeof(*pages));
	serials = PyMem_Calloc(n_max + 1, sizeof(*serials));
	if (pages == NULL || serials == NULL) {
		PyErr_NoMemory();
	} else if ((handle = pool_enter(pool)) != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_prefix_pages(handle, &prefix->prefix, n_max, pages, serials, &n_found);
		Py_END_ALLOW_THREADS
		pool_leave(pool);
		result = status == PAGED_OK ? prefix_pages_result(pages, serials, n_found)
					    : error_raise(pool->client->handle, status);
	}
	PyMem_Free(pages);
	PyMem_Free(serials);
	return result;
}

static PyObject *
pool_hold_pages(struct pool *pool, const struct numbers_u32 *pages, const struct numbers_u64 *serials)
{
	struct paged_pool *handle;
	enum paged_status status;
	paged_seq_id hold = 0;

	if (pages->n != serials->n)
		return PyErr_Format(PyExc_ValueError, "serials has %zu elements for %zu pages", serials->n, pages->n);
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_pages_hold(handle, pages->n, pages->at, serials->at, &hold);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? PyLong_FromUnsignedLongLong(hold) : error_raise(pool->client->handle, status);
}

static PyObject *
pool_hold(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "pages", "serials" };
	static struct call_signature signature = { "Pool.hold", names, 2, 2, 2, { NULL } };
	struct numbers_u32 pages;
	struct numbers_u64 serials;
	PyObject *values[2], *result = NULL;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !numbers_u32(values[0], "pages", &pages))
		return NULL;
	if (numbers_u64(values[1], "serials", &serials)) {
		result = pool_hold_pages(pool, &pages, &serials);
		numbers_u64_free(&serials);
	}
	numbers_u32_free(&pages);
	return result;
}

/* -------------------------------------------------------------------- start */

/* Sequences to start. */
struct starts {
	struct paged_start *at; /* [n] */
	paged_seq_id *ids;      /* [n] */
	uint32_t *n_shared;     /* [n] */
	size_t n;
	PyObject *items; /* a list of tuples, which own the prefixes */
};

static void
starts_free(struct starts *starts)
{
	PyMem_Free(starts->at);
	PyMem_Free(starts->ids);
	PyMem_Free(starts->n_shared);
	Py_XDECREF(starts->items);
}

/* Replaces item i by a tuple of its own, which no other code can change. */
static bool
start_parse(const struct pool *pool, struct starts *starts, Py_ssize_t i)
{
	PyObject *pair = PySequence_Tuple(PyList_GetItem(starts->items, i)), *object;
	struct paged_start *start = &starts->at[i];
	struct prefix *prefix;

	if (pair == NULL) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "items: item %zd must be (prefix or None, n_tokens)", i);
		return false;
	}
	if (PyList_SetItem(starts->items, i, pair) < 0)
		return false;
	if (PyTuple_Size(pair) != 2) {
		PyErr_Format(PyExc_ValueError,
			     "items: item %zd has %zd elements; (prefix or None, n_tokens) are needed", i,
			     PyTuple_Size(pair));
		return false;
	}
	object = PyTuple_GetItem(pair, 0);
	if (object != Py_None) {
		prefix = prefix_from(pool, object, "items: prefix");
		if (prefix == NULL)
			return false;
		start->prefix = &prefix->prefix;
	}
	return number_u32(PyTuple_GetItem(pair, 1), "items: n_tokens", &start->reserve);
}

static bool
starts_parse(const struct pool *pool, PyObject *items, uint32_t max_tokens, const char *tag, struct starts *starts)
{
	*starts = (struct starts){ .items = PySequence_List(items) };
	if (starts->items == NULL) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "items must be a list of (prefix or None, n_tokens), not %R",
				     (PyObject *)Py_TYPE(items));
		return false;
	}
	starts->n = (size_t)PyList_Size(starts->items);
	starts->at = PyMem_Calloc(starts->n + 1, sizeof(*starts->at));
	starts->ids = PyMem_Calloc(starts->n + 1, sizeof(*starts->ids));
	starts->n_shared = PyMem_Calloc(starts->n + 1, sizeof(*starts->n_shared));
	if (starts->at == NULL || starts->ids == NULL || starts->n_shared == NULL) {
		PyErr_NoMemory();
		return false;
	}
	for (size_t i = 0; i < starts->n; i++) {
		starts->at[i].max_tokens = max_tokens;
		starts->at[i].tag = tag;
		if (!start_parse(pool, starts, (Py_ssize_t)i))
			return false;
	}
	return true;
}

static PyObject *
starts_result(const struct starts *starts)
{
	PyObject *list = PyList_New((Py_ssize_t)starts->n);

	for (size_t i = 0; list != NULL && i < starts->n; i++) {
		PyObject *item = report_started(starts->ids[i], starts->n_shared[i]);

		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *
pool_start(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "items", "max_tokens", "tag" };
	static struct call_signature signature = { "Pool.start", names, 3, 1, 1, { NULL } };
	struct paged_pool *handle = NULL;
	PyObject *values[3], *result = NULL;
	enum paged_status status;
	const char *tag = NULL;
	uint32_t max_tokens = 0;
	struct starts starts;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    (values[1] != NULL && !number_u32(values[1], "max_tokens", &max_tokens)))
		return NULL;
	if (call_is_given(values[2])) {
		tag = text_utf8(values[2], "tag");
		if (tag == NULL)
			return NULL;
	}
	if (starts_parse(pool, values[0], max_tokens, tag, &starts))
		handle = pool_enter(pool);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_start(handle, starts.n, starts.at, starts.ids, starts.n_shared);
		Py_END_ALLOW_THREADS
		pool_leave(pool);
		result = status == PAGED_OK ? starts_result(&starts) : error_raise(pool->client->handle, status);
	}
	starts_free(&starts);
	return result;
}

/* ------------------------------------------------------------------ publish */

void
publishes_free(struct publishes *publishes)
{
	PyMem_Free(publishes->items);
	Py_CLEAR(publishes->owner);
	publishes->items = NULL;
}

/* The prefixes as a tuple: one, or n of them. */
static PyObject *
publishes_owner(PyObject *prefixes, size_t n)
{
	PyObject *owner;

	if (Py_TYPE(prefixes) == prefix_type)
		return PyTuple_Pack(1, prefixes);
	owner = PySequence_Tuple(prefixes);
	if (owner == NULL && PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_Format(PyExc_TypeError, "prefixes must be a paged.Prefix or a list of them, not %R",
			     (PyObject *)Py_TYPE(prefixes));
	if (owner != NULL && (size_t)PyTuple_Size(owner) != n) {
		PyErr_Format(PyExc_ValueError, "prefixes has %zd elements for %zu sequences", PyTuple_Size(owner), n);
		Py_CLEAR(owner);
	}
	return owner;
}

bool
publishes_parse(const struct pool *pool, PyObject *seqs, PyObject *prefixes, struct publishes *publishes)
{
	struct numbers_u64 ids;
	bool ok;

	*publishes = (struct publishes){ .n = 0 };
	if (!numbers_u64(seqs, "seqs", &ids))
		return false;
	publishes->n = ids.n;
	publishes->owner = publishes_owner(prefixes, ids.n);
	ok = publishes->owner != NULL;
	if (ok) {
		publishes->items = PyMem_Calloc(ids.n + 1, sizeof(*publishes->items));
		ok = publishes->items != NULL;
		if (!ok)
			PyErr_NoMemory();
	}
	for (size_t i = 0; ok && i < ids.n; i++) {
		bool one = PyTuple_Size(publishes->owner) == 1;
		struct prefix *prefix =
			prefix_from(pool, PyTuple_GetItem(publishes->owner, one ? 0 : (Py_ssize_t)i), "prefixes");

		ok = prefix != NULL;
		if (ok)
			publishes->items[i] = (struct paged_publish){ ids.at[i], &prefix->prefix };
	}
	numbers_u64_free(&ids);
	if (!ok)
		publishes_free(publishes);
	return ok;
}

static PyObject *
pool_publish(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "prefixes" };
	static struct call_signature signature = { "Pool.publish", names, 2, 2, 2, { NULL } };
	struct publishes publishes;
	struct paged_pool *handle;
	enum paged_status status;
	PyObject *values[2], *result = NULL;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !publishes_parse(pool, values[0], values[1], &publishes))
		return NULL;
	handle = pool_enter(pool);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_publish(handle, publishes.n, publishes.items);
		Py_END_ALLOW_THREADS
		result = pool_result(pool, status);
	}
	publishes_free(&publishes);
	return result;
}

/* ------------------------------------------------------------ methods */

PyDoc_STRVAR(match_doc, "match($self, /, prefix)\n--\n\n"
			"Number of tokens of the longest published part of a prefix.\n\n"
			"A multiple of the page size.  A hint, because pages may be evicted before start()\n"
			"takes them.  Sends no request.  Raises InvalidError, GoneError.");
PyDoc_STRVAR(wait_prefix_doc, "wait_prefix($self, /, prefix, n_tokens, timeout)\n--\n\n"
			      "Sleep until the first n_tokens tokens of a prefix are published; timeout in seconds.\n\n"
			      "n_tokens is rounded down to whole pages.  For a worker that waits until another one\n"
			      "has computed the prompt that both need.  Sends no request.\n\n"
			      "Raises TimedOutError, LimitError if n_tokens exceeds the prefix or max_length,\n"
			      "UnsupportedError if the pool publishes nothing, GoneError.");
PyDoc_STRVAR(start_doc, "start($self, /, items, *, max_tokens=0, tag=None)\n--\n\n"
			"Create sequences on their longest published prefixes; return a list of Started.\n\n"
			"items: for each sequence a pair (prefix or None, n_tokens).  n_tokens is the capacity\n"
			"to reserve; 0: that of the shared pages.  max_tokens: share at most this many tokens,\n"
			"rounded down to whole pages; 0: all that match.  tag: as for create().  All or nothing.\n\n"
			"If a whole prompt is shared, its last token's query is still to be computed: plan\n"
			"it with q_len 1 and no_append.\n\n"
			"Raises FullError if the pool lacks slots or pages, LimitError if n_tokens exceeds\n"
			"max_length or the tag is too long, and PermissionDeniedError for an observer.");
PyDoc_STRVAR(publish_doc, "publish($self, /, seqs, prefixes)\n--\n\n"
			  "Let other sequences share the whole pages of these prefixes.\n\n"
			  "prefixes: one Prefix for each sequence, or one for all: the content of its first\n"
			  "tokens.  The caller promises that K and V of these tokens have been written, in all\n"
			  "layers; from now on they cannot be written.  Pass the whole prefix each time; only\n"
			  "what is not yet published is sent.  The call does not wait for the daemon, and\n"
			  "SequenceInfo.published tells how far publishing has come.  For a pool on a GPU, use\n"
			  "Batch.publish().\n\n"
			  "Raises CapacityError if a prefix exceeds the sequence's capacity,\n"
			  "PermissionDeniedError, StaleError, UnsupportedError if the pool publishes nothing.");
PyDoc_STRVAR(pin_doc, "pin($self, /, prefix, seconds)\n--\n\n"
		      "Pin the published part of a prefix: it is evicted only after all unpinned pages.\n\n"
		      "seconds: from now on, at most a year; replaces an earlier pin; 0: unpin.  Returns\n"
		      "the number of tokens that were found and are pinned.\n\n"
		      "Raises LimitError if the pool's pin-limit would be exceeded, StaleError if pages\n"
		      "were evicted during each attempt.");
PyDoc_STRVAR(prefix_tokens_doc, "prefix_tokens($self, /, page, serial)\n--\n\n"
				"Token ids of a published page; serial as Client.prefixes() lists it.\n\n"
				"Raises StaleError if the page is no longer published with this serial,\n"
				"NotFoundError if it was published under a key, RangeError.");

PyDoc_STRVAR(prefix_pages_doc, "prefix_pages($self, /, prefix)\n--\n\n"
			       "The published pages of a prefix and their serials, as a pair of lists.\n\n"
			       "A page that is published again has another serial.  Pages may be evicted at any\n"
			       "time until a sequence or a hold has them.  Sends no request.\n\n"
			       "Raises InvalidError, GoneError.");
PyDoc_STRVAR(hold_doc, "hold($self, /, pages, serials)\n--\n\n"
		       "Keep published pages from eviction, while the program copies them; return an id.\n\n"
		       "pages, serials: as prefix_pages() or Client.prefixes() lists them, in any order.\n"
		       "erase() of the id releases them, and so does the end of the session.  Nothing else\n"
		       "can be done with the id, except for read() and page_table(): to read K and V, plan\n"
		       "a row of explicit pages.\n\n"
		       "Raises StaleError if a page was evicted or published again, LimitError if there are\n"
		       "more pages than MAX_HOLD_PAGES or than the pool's pin-limit leaves, FullError if no\n"
		       "sequence is free, RangeError, InvalidError, PermissionDeniedError for an observer.");

PyMethodDef sharing_methods[] = {
	CALL_METHOD("match", pool_match, match_doc),
	CALL_METHOD("wait_prefix", pool_wait_prefix, wait_prefix_doc),
	CALL_METHOD("start", pool_start, start_doc),
	CALL_METHOD("publish", pool_publish, publish_doc),
	CALL_METHOD("pin", pool_pin, pin_doc),
	CALL_METHOD("prefix_pages", pool_prefix_pages, prefix_pages_doc),
	CALL_METHOD("hold", pool_hold, hold_doc),
	CALL_METHOD("prefix_tokens", pool_prefix_tokens, prefix_tokens_doc),
	{ NULL, NULL, 0, NULL },
};
