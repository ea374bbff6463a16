/* SPDX-License-Identifier: Apache-2.0 */
/* Client: administration. */
#include "python/ext/ext.h"

/* -------------------------------------------------------------------- lists */

typedef PyObject *(*report_fn)(const void *entry);

/* A list of dicts of the entries, which are freed. */
static PyObject *
admin_list(void *entries, size_t entry_size, size_t n, report_fn report)
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (size_t i = 0; list != NULL && i < n; i++) {
		PyObject *item = report((const char *)entries + i * entry_size);

		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	paged_free(entries);
	return list;
}

static PyObject *
admin_pool_item(const void *entry)
{
	return report_pool(entry);
}

static PyObject *
admin_session_item(const void *entry)
{
	return report_session(entry);
}

static PyObject *
admin_seq_item(const void *entry)
{
	return report_seq_entry(entry);
}

static PyObject *
admin_node_item(const void *entry)
{
	return report_node(entry);
}

static PyObject *
admin_ticket_item(const void *entry)
{
	return report_ticket(entry);
}

static PyObject *
admin_pin_item(const void *entry)
{
	return report_pin(entry);
}

static PyObject *
admin_quota_item(const void *entry)
{
	return report_quota(entry);
}

static PyObject *
client_status(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_daemon_info info = { .struct_size = sizeof(info) };
	struct paged_client *handle = client_enter(client);
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_status(handle, &info);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? report_daemon(&info) : error_raise(handle, status);
}

static PyObject *
client_metrics(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_metrics metrics = { .struct_size = sizeof(metrics) };
	struct paged_client *handle = client_enter(client);
	struct paged_request_entry *list = NULL;
	enum paged_status status;
	PyObject *result;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_metrics(handle, &metrics, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	if (status != PAGED_OK)
		return error_raise(handle, status);
	result = report_metrics(&metrics, list, n);
	paged_free(list);
	return result;
}

static PyObject *
client_pools(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	struct paged_pool_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_pools(handle, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_pool_item) : error_raise(handle, status);
}

static PyObject *
client_sessions(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	struct paged_session_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_sessions(handle, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_session_item)
				  : error_raise(handle, status);
}

static PyObject *
client_tickets(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	struct paged_ticket_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_tickets(handle, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_ticket_item) : error_raise(handle, status);
}

static PyObject *
client_quotas(struct client *client, PyObject *Py_UNUSED(ignored))
{
	struct paged_client *handle = client_enter(client);
	struct paged_quota_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_quotas(handle, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_quota_item) : error_raise(handle, status);
}

/* The only argument of a call, a pool's name. */
static const char *
admin_pool_name(const char *function, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	PyObject *pool = call_parse_one(function, "pool", arguments, n, keyword_names);

	return pool != NULL ? text_utf8(pool, "pool") : NULL;
}

static PyObject *
client_sequences(struct client *client, PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keyword_names)
{
	const char *pool = admin_pool_name("Client.sequences", arguments, n_arguments, keyword_names);
	struct paged_client *handle = pool != NULL ? client_enter(client) : NULL;
	struct paged_seq_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_sequences(handle, pool, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_seq_item) : error_raise(handle, status);
}

static PyObject *
client_prefixes(struct client *client, PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keyword_names)
{
	const char *pool = admin_pool_name("Client.prefixes", arguments, n_arguments, keyword_names);
	struct paged_client *handle = pool != NULL ? client_enter(client) : NULL;
	struct paged_node_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_prefixes(handle, pool, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_node_item) : error_raise(handle, status);
}

static PyObject *
client_pins(struct client *client, PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keyword_names)
{
	const char *pool = admin_pool_name("Client.pins", arguments, n_arguments, keyword_names);
	struct paged_client *handle = pool != NULL ? client_enter(client) : NULL;
	struct paged_pin_entry *list = NULL;
	enum paged_status status;
	size_t n = 0;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_pins(handle, pool, sizeof(*list), &list, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? admin_list(list, sizeof(*list), n, admin_pin_item) : error_raise(handle, status);
}

static PyObject *
client_page_table(struct client *client, PyObject *const *arguments, Py_ssize_t n_arguments, PyObject *keyword_names)
{
	static const char *const names[] = { "seq" };
	static struct call_signature signature = { "Client.page_table", names, 1, 1, 1, { NULL } };
	struct paged_seq_entry entry;
	struct paged_client *handle;
	enum paged_status status;
	uint32_t *pages = NULL;
	PyObject *values[1], *dict, *list, *result = NULL;
	uint64_t seq;
	size_t n = 0;

	if (!call_parse(&signature, arguments, n_arguments, keyword_names, values) ||
	    !number_u64(values[0], "seq", &seq))
		return NULL;
	handle = client_enter(client);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_table(handle, seq, sizeof(entry), &entry, &pages, &n);
	Py_END_ALLOW_THREADS
	client_leave(client);
	if (status != PAGED_OK)
		return error_raise(handle, status);
	dict = report_seq_entry(&entry);
	list = list_u32(pages, n);
	paged_free(pages);
	if (dict != NULL && list != NULL)
		result = PyTuple_Pack(2, dict, list);
	Py_XDECREF(dict);
	Py_XDECREF(list);
	return result;
}

/* ------------------------------------------------------------------ actions */

static PyObject *
client_check(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	const char *pool = admin_pool_name("Client.check", arguments, n, keyword_names);
	struct paged_client *handle = pool != NULL ? client_enter(client) : NULL;
	struct paged_check_result result = { .struct_size = sizeof(result) };
	enum paged_status status;

	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_check(handle, pool, &result);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? report_check(&result) : error_raise(handle, status);
}

static PyObject *
client_kick(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "session", "kill" };
	static struct call_signature signature = { "Client.kick", names, 2, 1, 1, { NULL } };
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[2];
	uint32_t session;
	int kill_members;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u32(values[0], "session", &session))
		return NULL;
	kill_members = values[1] != NULL ? PyObject_IsTrue(values[1]) : 0;
	handle = kill_members >= 0 ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_kick(handle, session, kill_members);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

static const struct {
	const char *name;
	uint32_t level;
} log_levels[] = { { "error", PAGED_LOG_ERROR },
		   { "warning", PAGED_LOG_WARNING },
		   { "info", PAGED_LOG_INFO },
		   { "debug", PAGED_LOG_DEBUG } };

#define N_LOG_LEVELS (sizeof(log_levels) / sizeof(log_levels[0]))

/* NULL, None: 0; -1: an exception is set. */
static int
log_level_number(PyObject *value)
{
	const char *name;

	if (value == NULL || value == Py_None)
		return 0;
	name = text_utf8(value, "level");
	if (name == NULL)
		return -1;
	for (size_t i = 0; i < N_LOG_LEVELS; i++)
		if (strcmp(log_levels[i].name, name) == 0)
			return (int)log_levels[i].level;
	PyErr_Format(PyExc_ValueError, "level is '%s': none of 'error', 'warning', 'info', 'debug'", name);
	return -1;
}

static PyObject *
client_log_level(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "level" };
	static struct call_signature signature = { "Client.log_level", names, 1, 1, 0, { NULL } };
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[1];
	uint32_t was = 0;
	int level;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	level = log_level_number(values[0]);
	handle = level >= 0 ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_log_level(handle, (uint32_t)level, &was);
	Py_END_ALLOW_THREADS
	client_leave(client);
	if (status != PAGED_OK)
		return error_raise(handle, status);
	for (size_t i = 0; i < N_LOG_LEVELS; i++)
		if (log_levels[i].level == was)
			return PyUnicode_FromString(log_levels[i].name);
	return PyUnicode_FromFormat("%u", (unsigned int)was);
}

static PyObject *
client_drain(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "session" };
	static struct call_signature signature = { "Client.drain", names, 1, 1, 1, { NULL } };
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[1];
	uint32_t session;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u32(values[0], "session", &session))
		return NULL;
	handle = client_enter(client);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_drain(handle, session);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

static PyObject *
client_evict(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "pool", "n_pages" };
	static struct call_signature signature = { "Client.evict", names, 2, 2, 1, { NULL } };
	uint32_t n_pages = 0, n_evicted = 0;
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[2];
	const char *pool;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    (values[1] != NULL && !number_u32(values[1], "n_pages", &n_pages)))
		return NULL;
	pool = text_utf8(values[0], "pool");
	handle = pool != NULL ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_evict(handle, pool, n_pages, &n_evicted);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? PyLong_FromUnsignedLong(n_evicted) : error_raise(handle, status);
}

static PyObject *
client_unpin(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "pool", "number" };
	static struct call_signature signature = { "Client.unpin", names, 2, 2, 2, { NULL } };
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[2];
	const char *pool;
	uint64_t number;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u64(values[1], "number", &number))
		return NULL;
	pool = text_utf8(values[0], "pool");
	handle = pool != NULL ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_unpin(handle, pool, number);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

static PyObject *
client_pin_page(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "pool", "page", "serial", "seconds" };
	static struct call_signature signature = { "Client.pin_page", names, 4, 4, 4, { NULL } };
	uint32_t page, seconds, n_pages = 0;
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[4];
	const char *pool;
	uint64_t serial;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !number_u32(values[1], "page", &page) ||
	    !number_u64(values[2], "serial", &serial) || !number_u32(values[3], "seconds", &seconds))
		return NULL;
	pool = text_utf8(values[0], "pool");
	handle = pool != NULL ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_admin_pin(handle, pool, page, serial, seconds, &n_pages);
	Py_END_ALLOW_THREADS
	client_leave(client);
	return status == PAGED_OK ? PyLong_FromUnsignedLong(n_pages) : error_raise(handle, status);
}

/* ------------------------------------------------------------------- arrays */

static PyObject *
client_upload(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "name", "array" };
	static struct call_signature signature = { "Client.upload", names, 2, 2, 2, { NULL } };
	struct paged_client *handle = NULL;
	PyObject *values[2], *result = NULL;
	struct paged_array array;
	enum paged_status status;
	struct tensor tensor;
	const char *name;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	name = text_utf8(values[0], "name");
	if (name == NULL || !tensor_from(values[1], "array", &tensor))
		return NULL;
	if (tensor_check_host(&tensor, name) && tensor_array(&tensor, NULL, name, &array))
		handle = client_enter(client);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_array_upload(handle, &array);
		Py_END_ALLOW_THREADS
		result = client_result(client, status);
	}
	tensor_release(&tensor);
	return result;
}

static PyObject *
client_drop(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "name" };
	static struct call_signature signature = { "Client.drop", names, 1, 1, 1, { NULL } };
	struct paged_client *handle;
	enum paged_status status;
	PyObject *values[1];
	const char *name;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	name = text_utf8(values[0], "name");
	handle = name != NULL ? client_enter(client) : NULL;
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_array_drop(handle, name);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

PyDoc_STRVAR(status_doc, "status($self, /)\n--\n\n"
			 "The daemon, as a dict: version, boot_id, uptime_ms, n_requests, n_sessions, n_pools,\n"
			 "pid, stopping.");
PyDoc_STRVAR(
	metrics_doc,
	"metrics($self, /)\n--\n\n"
	"What the daemon has counted since it started, as a dict: uptime_ms, n_requests,\n"
	"n_dropped, n_attached, n_died, n_opened, n_members, n_sessions, turns,\n"
	"longest_turn_ns, requests.\n\n"
	"requests has, for each kind by its name, \"replies\", a dict of numbers by status,\n"
	"\"latency\", and \"most_visited\", the most entries, pages and nodes that a request, or a\n"
	"step of a long one, has visited.  turns and latency are histograms: (sum in ns, [(bound, n), ...]) with n\n"
	"durations up to each bound in ns and above the one before; None: no bound.");
PyDoc_STRVAR(pools_doc, "pools($self, /)\n--\n\n"
			"All pools, as a list of dicts with the names of struct paged_pool_entry: name,\n"
			"backend, n_pages, n_free, page_size, dtype, memory and others.");
PyDoc_STRVAR(sessions_doc, "sessions($self, /)\n--\n\n"
			   "Members of all sessions, as a list of dicts: session, member, first, ended, pid,\n"
			   "uid, n_requests, n_sequences, n_pages, n_quarantined, name, draining,\n"
			   "tenant.");
PyDoc_STRVAR(sequences_doc, "sequences($self, /, pool)\n--\n\n"
			    "Live sequences of a pool, by its name, as a list of dicts: seq, session, pid,\n"
			    "capacity, n_pages, n_trimmed, name, tag, state (1: given away).\n\n"
			    "Raises NotFoundError, PermissionDeniedError.");
PyDoc_STRVAR(tickets_doc, "tickets($self, /)\n--\n\n"
			  "Sequences that were given away and that no session has adopted yet, by ticket, as a\n"
			  "list of dicts: number, session, ended, pool, n_sequences, n_pages, n_tokens,\n"
			  "expires_ms, flags, to_session, to_uid.  The secret bytes are not listed.");
PyDoc_STRVAR(page_table_doc, "page_table($self, /, seq)\n--\n\n"
			     "(dict as of sequences(), physical pages in logical order), from the daemon.\n\n"
			     "Raises StaleError.");
PyDoc_STRVAR(check_doc, "check($self, /, pool)\n--\n\n"
			"Let the daemon recount a pool's pages from all page tables; a CheckResult.\n\n"
			"Raises PermissionDeniedError unless this user is the daemon's, root or of the\n"
			"admin group.");
PyDoc_STRVAR(kick_doc, "kick($self, /, session, *, kill=False)\n--\n\n"
		       "End a session; kill: also send SIGKILL to its processes.\n\n"
		       "Its pages stay in quarantine until its processes have ended.\n\n"
		       "Raises NotFoundError, PermissionDeniedError as check() does, and SystemCallError if\n"
		       "the session was ended, but not all of its processes could be killed.");
PyDoc_STRVAR(drain_doc, "drain($self, /, session)\n--\n\n"
			"Give a session no new sequences from now on, and tell its members to leave.\n\n"
			"Their dispatch() raises StoppingError, as create(), start(), fork() do; the sequences\n"
			"of the session go on.\n\n"
			"Raises NotFoundError, and PermissionDeniedError as check() does.");
PyDoc_STRVAR(quotas_doc, "quotas($self, /)\n--\n\n"
			 "The pages that each tenant is charged in each pool, as a list of dicts: tenant, pool\n"
			 "(its number), n_charged, limited (whether there is a limit), limit.\n\n"
			 "Empty for an embedded client, which has no tenants.");
PyDoc_STRVAR(log_level_doc, "log_level($self, /, level=None)\n--\n\n"
			    "Set what the daemon logs, until it ends: 'error', 'warning', 'info' or 'debug'; None:\n"
			    "leave it.  Returns the level before.\n\n"
			    "Raises PermissionDeniedError as check() does.");
PyDoc_STRVAR(prefixes_doc, "prefixes($self, /, pool)\n--\n\n"
			   "Published pages of a pool, in the order of their numbers, as a list of dicts:\n"
			   "serial, parent_serial, page, parent (None: the first page of a prefix),\n"
			   "n_references, used_s, hits, pinned.");
PyDoc_STRVAR(evict_doc, "evict($self, /, pool, n_pages=0)\n--\n\n"
			"Free up to n_pages cached pages, least recently used first; 0: all.  Returns the\n"
			"number of pages freed.\n\n"
			"Raises PermissionDeniedError as check() does.");
PyDoc_STRVAR(pin_page_doc, "pin_page($self, /, pool, page, serial, seconds)\n--\n\n"
			   "Pin a published page and those before it in its prefix: they are evicted only after\n"
			   "all unpinned pages.  serial: as prefixes() lists it.  seconds: from now on; 0 ends the\n"
			   "pin.  Returns the number of pages of the prefix.\n\n"
			   "Raises StaleError, LimitError, RangeError, PermissionDeniedError for an observer.");
PyDoc_STRVAR(pins_doc, "pins($self, /, pool)\n--\n\n"
		       "The pins of a pool, the oldest first, with who made them.");
PyDoc_STRVAR(unpin_doc, "unpin($self, /, pool, number)\n--\n\n"
			"End a pin of any member.  number: as pins() lists it.\n\n"
			"Raises NotFoundError, and PermissionDeniedError as check() does.");
PyDoc_STRVAR(upload_doc, "upload($self, /, name, array)\n--\n\n"
			 "Store a copy of a tensor with the owner, for block masks with remote=True.\n\n"
			 "The array belongs to the session, replaces one of the same name, and ends with the\n"
			 "session.\n\n"
			 "Raises RangeError for an i64 value outside 32 bits, LimitError, AgainError.");
PyDoc_STRVAR(drop_doc, "drop($self, /, name)\n--\n\n"
		       "Delete an uploaded array.  Raises NotFoundError.");

PyMethodDef admin_methods[] = {
	CALL_METHOD_NOARGS("status", client_status, status_doc),
	CALL_METHOD_NOARGS("metrics", client_metrics, metrics_doc),
	CALL_METHOD_NOARGS("pools", client_pools, pools_doc),
	CALL_METHOD_NOARGS("sessions", client_sessions, sessions_doc),
	CALL_METHOD("sequences", client_sequences, sequences_doc),
	CALL_METHOD_NOARGS("tickets", client_tickets, tickets_doc),
	CALL_METHOD("page_table", client_page_table, page_table_doc),
	CALL_METHOD("check", client_check, check_doc),
	CALL_METHOD("kick", client_kick, kick_doc),
	CALL_METHOD("drain", client_drain, drain_doc),
	CALL_METHOD_NOARGS("quotas", client_quotas, quotas_doc),
	CALL_METHOD("log_level", client_log_level, log_level_doc),
	CALL_METHOD("prefixes", client_prefixes, prefixes_doc),
	CALL_METHOD("evict", client_evict, evict_doc),
	CALL_METHOD("pin_page", client_pin_page, pin_page_doc),
	CALL_METHOD("pins", client_pins, pins_doc),
	CALL_METHOD("unpin", client_unpin, unpin_doc),
	CALL_METHOD("upload", client_upload, upload_doc),
	CALL_METHOD("drop", client_drop, drop_doc),
	{ NULL, NULL, 0, NULL },
};
