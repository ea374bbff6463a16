/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences between sessions: Pool's give and adopt, Client's cancel_ticket. */
#include "python/ext/ext.h"

static bool
ticket_parse(PyObject *object, struct paged_ticket *ticket)
{
	Py_ssize_t size;
	char *bytes;

	if (!PyBytes_Check(object)) {
		PyErr_Format(PyExc_TypeError, "ticket must be bytes, not %R", (PyObject *)Py_TYPE(object));
		return false;
	}
	if (PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
		return false;
	if (size != PAGED_TICKET_SIZE) {
		PyErr_Format(PyExc_ValueError, "ticket has %zd bytes; a ticket has %d", size, PAGED_TICKET_SIZE);
		return false;
	}
	memcpy(ticket->bytes, bytes, PAGED_TICKET_SIZE);
	return true;
}

/* values: timeout, session, uid; each may be NULL or None. */
static bool
give_params_parse(PyObject *const *values, struct paged_give_params *params)
{
	*params = (struct paged_give_params){ .struct_size = sizeof(*params) };
	if (call_is_given(values[0])) {
		if (!number_timeout_ms(values[0], "timeout", &params->timeout_ms))
			return false;
		if (params->timeout_ms == 0) {
			PyErr_SetString(PyExc_ValueError, "timeout must be greater than 0");
			return false;
		}
	}
	if (call_is_given(values[1])) {
		params->flags |= PAGED_GIVE_SESSION;
		if (!number_u32(values[1], "session", &params->session))
			return false;
	}
	if (call_is_given(values[2])) {
		params->flags |= PAGED_GIVE_UID;
		if (!number_u32(values[2], "uid", &params->uid))
			return false;
	}
	return true;
}

static PyObject *
pool_give(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "lengths", "timeout", "session", "uid" };
	static struct call_signature signature = { "Pool.give", names, 5, 2, 2, { NULL } };
	PyObject *values[5], *result = NULL;
	struct paged_give_params params;
	struct paged_ticket ticket;
	struct paged_pool *handle;
	struct numbers_u32 lengths;
	struct numbers_u64 seqs;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, values) || !give_params_parse(&values[2], &params) ||
	    !numbers_u64(values[0], "seqs", &seqs))
		return NULL;
	if (!numbers_u32_n(values[1], "lengths", seqs.n, &lengths)) {
		numbers_u64_free(&seqs);
		return NULL;
	}
	handle = pool_enter(pool);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_give(handle, seqs.n, seqs.at, lengths.at, &params, &ticket);
		Py_END_ALLOW_THREADS
		pool_leave(pool);
		result = status == PAGED_OK ? PyBytes_FromStringAndSize((const char *)ticket.bytes, PAGED_TICKET_SIZE)
					    : error_raise(pool->client->handle, status);
	}
	numbers_u32_free(&lengths);
	numbers_u64_free(&seqs);
	return result;
}

static PyObject *
adopted_list(const paged_seq_id *seqs, const uint32_t *lengths, size_t n)
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (size_t i = 0; list != NULL && i < n; i++) {
		PyObject *item = report_adopted(seqs[i], lengths[i]);

		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *
pool_adopt(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	PyObject *object = call_parse_one("Pool.adopt", "ticket", arguments, n, keyword_names), *result = NULL;
	struct paged_ticket ticket;
	struct paged_pool *handle;
	enum paged_status status;
	paged_seq_id *seqs;
	uint32_t *lengths;
	size_t n_seqs = 0;

	if (object == NULL || !ticket_parse(object, &ticket))
		return NULL;
	seqs = PyMem_Calloc(PAGED_MAX_REQUEST_SEQS, sizeof(*seqs));
	lengths = PyMem_Calloc(PAGED_MAX_REQUEST_SEQS, sizeof(*lengths));
	handle = NULL;
	if (seqs == NULL || lengths == NULL)
		PyErr_NoMemory();
	else
		handle = pool_enter(pool);
	if (handle != NULL) {
		Py_BEGIN_ALLOW_THREADS
		status = paged_seq_adopt(handle, &ticket, PAGED_MAX_REQUEST_SEQS, seqs, lengths, &n_seqs);
		Py_END_ALLOW_THREADS
		pool_leave(pool);
		result = status == PAGED_OK ? adopted_list(seqs, lengths, n_seqs)
					    : error_raise(pool->client->handle, status);
	}
	PyMem_Free(lengths);
	PyMem_Free(seqs);
	return result;
}

static PyObject *
client_cancel_ticket(struct client *client, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	PyObject *object = call_parse_one("Client.cancel_ticket", "ticket", arguments, n, keyword_names);
	struct paged_client *handle;
	struct paged_ticket ticket;
	enum paged_status status;

	if (object == NULL || !ticket_parse(object, &ticket))
		return NULL;
	handle = client_enter(client);
	if (handle == NULL)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	status = paged_ticket_cancel(handle, &ticket);
	Py_END_ALLOW_THREADS
	return client_result(client, status);
}

PyDoc_STRVAR(give_doc, "give($self, /, seqs, lengths, *, timeout=10.0, session=None, uid=None)\n--\n\n"
		       "Let another session adopt sequences; return a ticket, 16 bytes.\n\n"
		       "lengths: written tokens, which adopt() returns; one number for all or one for each.\n"
		       "timeout: seconds until the sequences return to this session, if no session has adopted\n"
		       "them; at most max-ticket-time of pagedd.conf(5), ten minutes unless set.  session, uid:\n"
		       "only this session, or processes of this user, may adopt.\n\n"
		       "Until then every session may read the sequences, and none may change them.  The ticket\n"
		       "is a bearer secret.  By giving, the caller promises that no work of its session that\n"
		       "writes to the sequences is running; on a GPU, call Batch.finish() before.\n\n"
		       "Raises CapacityError if a length exceeds a sequence's capacity, InvalidError,\n"
		       "NotFoundError if there is no such session, PermissionDeniedError, LimitError, StaleError.");
PyDoc_STRVAR(adopt_doc, "adopt($self, /, ticket)\n--\n\n"
			"Make this session the owner of a ticket's sequences; return a list of Adopted.\n\n"
			"Ids, pages and K and V stay.  Needs no free page.\n\n"
			"Raises NotFoundError if the ticket is unknown, used or expired, or is of another pool,\n"
			"PermissionDeniedError if it is for another session or user.");
PyDoc_STRVAR(cancel_ticket_doc, "cancel_ticket($self, /, ticket)\n--\n\n"
				"Take back the sequences of a ticket that this session gave.\n\n"
				"Raises NotFoundError if the ticket is unknown, used or expired,\n"
				"PermissionDeniedError if another session gave it.");

PyMethodDef pool_handover_methods[] = {
	CALL_METHOD("give", pool_give, give_doc),
	CALL_METHOD("adopt", pool_adopt, adopt_doc),
	{ NULL, NULL, 0, NULL },
};

PyMethodDef client_handover_methods[] = {
	CALL_METHOD("cancel_ticket", client_cancel_ticket, cancel_ticket_doc),
	{ NULL, NULL, 0, NULL },
};
