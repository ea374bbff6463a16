/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences: methods of Client for those of all pools, and of Pool for its own. */
#include "python/ext/ext.h"

#include <stdlib.h>

/* ------------------------------------------------------------------- Client */

/* pool NULL: sequences of any pools.  The library refuses those of other pools only in calls that take a pool. */
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
		Py_BEGIN_ALLOW_THREADS
		status = change(handle, seqs.n, items);
		Py_END_ALLOW_THREADS
		result = client_result(client, status);
	}
	PyMem_Free(items);
	numbers_u64_free(&seqs);
	return result;
}

static PyObject *
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

static PyObject *
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

static PyObject *
client_trim(struct client *client, const struct pool *pool, PyObject *const *arguments, Py_ssize_t n,
	    PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "first_token" };
	static struct call_signature signature = { "trim", names, 2, 2, 2, { NULL } };
	PyObject *values[2];

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	return client_change(client, pool, values, NULL, paged_seq_trim);
}

static PyObject *
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
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_erase(handle, seqs.n, seqs.at);
		Py_END_ALLOW_THREADS
		result = client_result(client, status);
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
client_trim_any(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return client_trim(client, NULL, arguments, n, keyword_names);
}

static PyObject *
client_erase_any(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return client_erase(client, NULL, arguments, n, keyword_names);
}

PyDoc_STRVAR(client_reserve_doc, "reserve($self, /, seqs, n_tokens, n_ahead=0)\n--\n\n"
				 "Raise the capacity of each sequence to at least n_tokens tokens.\n\n"
				 "seqs: sequences of any pools of the client, at most 4096.  n_tokens and n_ahead:\n"
				 "one number for all, or one for each.  n_tokens is absolute and capacity never\n"
				 "shrinks, so that a call may be repeated.  n_ahead asks for tokens beyond n_tokens\n"
				 "as far as the pool has spare pages.  One request, all or nothing.\n\n"
				 "Raises FullError if too few pages are free, LimitError if n_tokens exceeds the\n"
				 "pool's max_length, StaleError, PermissionDeniedError.");
PyDoc_STRVAR(client_truncate_doc, "truncate($self, /, seqs, n_tokens)\n--\n\n"
				  "Keep n_tokens tokens of each sequence and free the whole pages past them.\n\n"
				  "The sequences stay alive, also with n_tokens 0.  By truncating, the caller\n"
				  "promises that no work of its session on the affected pages is running.\n\n"
				  "Raises CapacityError if n_tokens exceeds a sequence's capacity, StaleError,\n"
				  "PermissionDeniedError.");
PyDoc_STRVAR(client_trim_doc, "trim($self, /, seqs, first_token)\n--\n\n"
			      "Give the whole pages before first_token of each sequence back.\n\n"
			      "For attention with a sliding window, which no longer reaches them.  Positions do not\n"
			      "change; attention over the sequence begins at its first page.  Published pages stay\n"
			      "in the cache.  By trimming, the caller promises that no work of its session on these\n"
			      "pages is running.\n\n"
			      "Raises CapacityError if first_token exceeds a sequence's capacity, StaleError,\n"
			      "PermissionDeniedError.");
PyDoc_STRVAR(client_erase_doc, "erase($self, /, seqs)\n--\n\n"
			       "End the sequences and free their pages; their ids are stale from now on.\n\n"
			       "Raises StaleError, PermissionDeniedError.");

PyMethodDef client_seq_methods[] = {
	CALL_METHOD("reserve", client_reserve_any, client_reserve_doc),
	CALL_METHOD("truncate", client_truncate_any, client_truncate_doc),
	CALL_METHOD("trim", client_trim_any, client_trim_doc),
	CALL_METHOD("erase", client_erase_any, client_erase_doc),
	{ NULL, NULL, 0, NULL },
};

/* --------------------------------------------------------------------- Pool */

/* [n] sequences to create; freed by PyMem_Free(). */
static struct paged_seq_params *
pool_create_parse(struct paged_pool *handle, uint32_t n, PyObject *n_tokens, const char *tag)
{
	struct numbers_u32 tokens = { .at = NULL };
	struct paged_seq_params *params;

	if (call_is_given(n_tokens) && !numbers_u32_n(n_tokens, "n_tokens", n, &tokens))
		return NULL;
	params = PyMem_Calloc((size_t)n + 1, sizeof(*params));
	if (params == NULL)
		PyErr_NoMemory();
	for (uint32_t i = 0; params != NULL && i < n; i++)
		params[i] = (struct paged_seq_params){ .pool = handle,
						       .tag = tag,
						       .n_tokens = tokens.at != NULL ? tokens.at[i] : 0 };
	if (call_is_given(n_tokens))
		numbers_u32_free(&tokens);
	return params;
}

static PyObject *
pool_create_seqs(struct pool *pool, struct paged_pool *handle, uint32_t n, PyObject *n_tokens, const char *tag)
{
	struct paged_client *client = pool->client->handle;
	struct paged_seq_params *params;
	PyObject *result = NULL;
	paged_seq_id *ids;
	enum paged_status status;

	params = pool_create_parse(handle, n, n_tokens, tag);
	ids = PyMem_Calloc((size_t)n + 1, sizeof(*ids));
	if (params != NULL && ids != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_create(client, n, params, ids);
		Py_END_ALLOW_THREADS
		result = status == PAGED_OK ? list_u64(ids, n) : error_raise(client, status);
	} else if (params != NULL) {
		PyErr_NoMemory();
	}
	PyMem_Free(params);
	PyMem_Free(ids);
	return result;
}

static PyObject *
pool_create(struct pool *pool, PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keyword_names)
{
	static const char *const names[] = { "n", "n_tokens", "tag" };
	static struct call_signature signature = { "Pool.create", names, 3, 2, 0, { NULL } };
	PyObject *values[3], *result;
	struct paged_pool *handle;
	const char *tag = NULL;
	uint32_t n = 1;

	if (!call_parse(&signature, arguments, n_arguments, keyword_names, values) ||
	    (values[0] != NULL && !number_u32(values[0], "n", &n)))
		return NULL;
	if (call_is_given(values[2])) {
		tag = text_utf8(values[2], "tag");
		if (tag == NULL)
			return NULL;
	}
	if (n > PAGED_MAX_REQUEST_SEQS)
		return error_format(PAGED_ERR_LIMIT, "%u sequences; one request creates at most %u", n,
				    PAGED_MAX_REQUEST_SEQS);
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	result = pool_create_seqs(pool, handle, n, values[1], tag);
	pool_leave(pool);
	return result;
}

typedef PyObject *(*client_seqs_fn)(struct client *, const struct pool *, PyObject *const *, Py_ssize_t, PyObject *);

static PyObject *
pool_change_seqs(struct pool *pool, client_seqs_fn change, PyObject *const *arguments, Py_ssize_t n,
		 PyObject *keyword_names)
{
	PyObject *result;

	if (pool_enter(pool) == NULL)
		return NULL;
	result = change(pool->client, pool, arguments, n, keyword_names);
	pool_leave(pool);
	return result;
}

static PyObject *
pool_reserve(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return pool_change_seqs(pool, client_reserve, arguments, n, keyword_names);
}

static PyObject *
pool_truncate(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return pool_change_seqs(pool, client_truncate, arguments, n, keyword_names);
}

static PyObject *
pool_trim(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return pool_change_seqs(pool, client_trim, arguments, n, keyword_names);
}

static PyObject *
pool_erase(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	return pool_change_seqs(pool, client_erase, arguments, n, keyword_names);
}

static bool
pool_seq_parse(const char *function, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names,
	       paged_seq_id *seq_p)
{
	PyObject *seq = call_parse_one(function, "seq", arguments, n, keyword_names);

	return seq != NULL && number_u64(seq, "seq", seq_p);
}

static PyObject *
pool_read(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_pool *handle;
	enum paged_status status;
	paged_seq_id seq;

	if (!pool_seq_parse("Pool.read", arguments, n, keyword_names, &seq))
		return NULL;
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_seq_read(handle, seq, &info, NULL, 0);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	return status == PAGED_OK ? report_sequence(&info) : error_raise(pool->client->handle, status);
}

/* Reads a page table that may grow meanwhile; *pages_p is freed by free(), also after a failure. */
static enum paged_status
pool_read_pages(struct paged_pool *handle, paged_seq_id seq, uint32_t **pages_p, uint32_t *n_pages_p)
{
	struct paged_seq_info info = { .struct_size = sizeof(info), .n_pages = 64 };
	enum paged_status status;
	uint32_t n;

	do {
		n = info.n_pages;
		free(*pages_p);
		*pages_p = malloc(n * sizeof(**pages_p));
		if (*pages_p == NULL)
			return PAGED_ERR_NOMEM;
		status = paged_seq_read(handle, seq, &info, *pages_p, n);
	} while (status == PAGED_OK && info.n_pages > n);
	*n_pages_p = info.n_pages;
	return status;
}

static PyObject *
pool_page_table(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	uint32_t *pages = NULL, n_pages;
	struct paged_pool *handle;
	enum paged_status status;
	PyObject *result;
	paged_seq_id seq;

	if (!pool_seq_parse("Pool.page_table", arguments, n, keyword_names, &seq))
		return NULL;
	handle = pool_enter(pool);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = pool_read_pages(handle, seq, &pages, &n_pages);
	Py_END_ALLOW_THREADS
	pool_leave(pool);
	result = status == PAGED_OK ? list_u32(pages, n_pages) : error_raise(pool->client->handle, status);
	free(pages);
	return result;
}

PyDoc_STRVAR(pool_create_doc, "create($self, /, n=1, n_tokens=0, *, tag=None)\n--\n\n"
			      "Create n sequences, owned by this session, and return their ids.\n\n"
			      "n_tokens: capacity to reserve, tokens; one number for all or one for each.  tag:\n"
			      "shown by pagedctl, at most 31 bytes.  One request, all or nothing.\n\n"
			      "Raises FullError if the pool lacks slots or pages, LimitError if n_tokens\n"
			      "exceeds max_length, n exceeds 4096 or the tag is too long, and\n"
			      "PermissionDeniedError for an observer.");
PyDoc_STRVAR(pool_reserve_doc, "reserve($self, /, seqs, n_tokens, n_ahead=0)\n--\n\n"
			       "Raise the capacity of sequences of this pool, as Client.reserve().\n\n"
			       "Also raises InvalidError for a sequence of another pool.");
PyDoc_STRVAR(pool_truncate_doc, "truncate($self, /, seqs, n_tokens)\n--\n\n"
				"Keep n_tokens tokens of sequences of this pool, as Client.truncate().\n\n"
				"Also raises InvalidError for a sequence of another pool.");
PyDoc_STRVAR(pool_trim_doc, "trim($self, /, seqs, first_token)\n--\n\n"
			    "Give the pages before first_token of sequences of this pool back, as Client.trim().\n\n"
			    "Also raises InvalidError for a sequence of another pool.");
PyDoc_STRVAR(pool_erase_doc, "erase($self, /, seqs)\n--\n\n"
			     "End sequences of this pool, as Client.erase().\n\n"
			     "Also raises InvalidError for a sequence of another pool.");
PyDoc_STRVAR(pool_read_doc, "read($self, /, seq)\n--\n\n"
			    "A live sequence of any session, from shared memory, as SequenceInfo.\n\n"
			    "Raises StaleError, AgainError, GoneError, InvalidError for a sequence of another\n"
			    "pool.");
PyDoc_STRVAR(pool_page_table_doc, "page_table($self, /, seq)\n--\n\n"
				  "Physical pages of a live sequence of any session, in logical order; 2**32 - 1\n"
				  "for those that trim() gave back.\n\n"
				  "Raises as read() does.");

PyMethodDef pool_seq_methods[] = {
	CALL_METHOD("create", pool_create, pool_create_doc),
	CALL_METHOD("reserve", pool_reserve, pool_reserve_doc),
	CALL_METHOD("truncate", pool_truncate, pool_truncate_doc),
	CALL_METHOD("trim", pool_trim, pool_trim_doc),
	CALL_METHOD("erase", pool_erase, pool_erase_doc),
	CALL_METHOD("read", pool_read, pool_read_doc),
	CALL_METHOD("page_table", pool_page_table, pool_page_table_doc),
	{ NULL, NULL, 0, NULL },
};
