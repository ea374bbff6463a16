/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of the RPC channel. */
#include <string.h>

#include "proto/wire_internal.h"

/* Packing.  Lists need arrays of pointers to messages; the arena holds both. */

static bool
pools_put(Paged__V1__Pools *to, const struct wire_reply *reply, struct wire_arena *arena)
{
	uint32_t n = reply->pools.n;
	Paged__V1__PoolReport *report = wire_arena_alloc(arena, n * sizeof(*report));
	Paged__V1__Geometry *geometry = wire_arena_alloc(arena, n * sizeof(*geometry));

	to->pool = wire_arena_alloc(arena, n * sizeof(*to->pool));
	if (report == NULL || geometry == NULL || to->pool == NULL)
		return false;
	to->n_pool = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct wire_pool_report *from = &reply->pools.report[i];

		paged__v1__pool_report__init(&report[i]);
		wire_geometry_put(&geometry[i], &from->geometry);
		report[i].pool = from->pool;
		report[i].name = (char *)from->name;
		report[i].backend = (char *)from->backend;
		report[i].memory = (char *)from->memory;
		report[i].device = (char *)from->device;
		report[i].geometry = &geometry[i];
		report[i].page_bytes = from->page_bytes;
		report[i].size = from->size;
		report[i].n_free = from->n_free;
		report[i].n_referenced = from->n_referenced;
		report[i].n_quarantined = from->n_quarantined;
		report[i].n_slots = from->n_slots;
		report[i].n_sequences = from->n_sequences;
		report[i].max_length = from->max_length;
		to->pool[i] = &report[i];
	}
	return true;
}

static bool
sessions_put(Paged__V1__Sessions *to, const struct wire_reply *reply, struct wire_arena *arena)
{
	uint32_t n = reply->sessions.n;
	Paged__V1__SessionReport *report = wire_arena_alloc(arena, n * sizeof(*report));

	to->session = wire_arena_alloc(arena, n * sizeof(*to->session));
	if (report == NULL || to->session == NULL)
		return false;
	to->n_session = n;
	to->more = reply->sessions.more;
	for (uint32_t i = 0; i < n; i++) {
		const struct wire_session_report *from = &reply->sessions.report[i];

		paged__v1__session_report__init(&report[i]);
		report[i].session = from->session;
		report[i].member = from->member;
		report[i].first = from->first;
		report[i].ended = from->ended;
		report[i].pid = from->pid;
		report[i].uid = from->uid;
		report[i].n_requests = from->n_requests;
		report[i].n_sequences = from->n_sequences;
		report[i].n_pages = from->n_pages;
		report[i].n_quarantined = from->n_quarantined;
		report[i].name = (char *)from->name;
		to->session[i] = &report[i];
	}
	return true;
}

static void
sequence_put(Paged__V1__SequenceReport *to, const struct wire_sequence_report *from)
{
	paged__v1__sequence_report__init(to);
	to->seq = from->seq;
	to->session = from->session;
	to->pid = from->pid;
	to->length = from->length;
	to->capacity = from->capacity;
	to->n_pages = from->n_pages;
	to->name = (char *)from->name;
	to->tag = (char *)from->tag;
}

static bool
sequences_put(Paged__V1__Sequences *to, const struct wire_reply *reply, struct wire_arena *arena)
{
	uint32_t n = reply->sequences.n;
	Paged__V1__SequenceReport *report = wire_arena_alloc(arena, n * sizeof(*report));

	to->sequence = wire_arena_alloc(arena, n * sizeof(*to->sequence));
	if (report == NULL || to->sequence == NULL)
		return false;
	to->n_sequence = n;
	to->next_slot = reply->sequences.next_slot;
	to->more = reply->sequences.more;
	for (uint32_t i = 0; i < n; i++) {
		sequence_put(&report[i], &reply->sequences.report[i]);
		to->sequence[i] = &report[i];
	}
	return true;
}

static void
status_report_put(Paged__V1__StatusReport *to, const struct wire_reply *reply)
{
	to->version = (char *)reply->status_report.version;
	to->uptime_ms = reply->status_report.uptime_ms;
	to->n_requests = reply->status_report.n_requests;
	to->n_sessions = reply->status_report.n_sessions;
	to->n_pools = reply->status_report.n_pools;
	to->pid = reply->status_report.pid;
	to->stopping = reply->status_report.stopping;
}

static void
books_put(Paged__V1__Books *to, const struct wire_reply *reply)
{
	to->n_pages = reply->books.n_pages;
	to->n_free = reply->books.n_free;
	to->n_referenced = reply->books.n_referenced;
	to->n_quarantined = reply->books.n_quarantined;
	to->n_sequences = reply->books.n_sequences;
	to->holds = reply->books.holds;
	to->text = (char *)reply->books.text;
}

static void
handle_put(Paged__V1__Handle *to, const struct wire_handle *from)
{
	to->handle.data = (uint8_t *)from->bytes;
	to->handle.len = WIRE_HANDLE_SIZE;
	to->device.data = (uint8_t *)from->device;
	to->device.len = WIRE_UUID_SIZE;
	to->offset = from->offset;
	to->generation = from->generation;
}

size_t
wire_reply_pack(const struct wire_reply *reply, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size)
{
	Paged__V1__Reply message = PAGED__V1__REPLY__INIT;
	Paged__V1__SeqIds ids = PAGED__V1__SEQ_IDS__INIT;
	Paged__V1__StatusReport status_report = PAGED__V1__STATUS_REPORT__INIT;
	Paged__V1__Pools pools = PAGED__V1__POOLS__INIT;
	Paged__V1__Sessions sessions = PAGED__V1__SESSIONS__INIT;
	Paged__V1__Sequences sequences = PAGED__V1__SEQUENCES__INIT;
	Paged__V1__Table table = PAGED__V1__TABLE__INIT;
	Paged__V1__SequenceReport sequence;
	Paged__V1__Books books = PAGED__V1__BOOKS__INIT;
	Paged__V1__Mask mask;
	Paged__V1__Handle handle = PAGED__V1__HANDLE__INIT;

	message.id = reply->id;
	message.status = reply->status;
	if (reply->status != PAGED_OK && reply->text != NULL)
		message.text = (char *)reply->text;
	switch (reply->kind) {
	case WIRE_REPLY_EMPTY:
		break;
	case WIRE_REPLY_IDS:
		ids.n_seq = reply->ids.n;
		ids.seq = (uint64_t *)reply->ids.seq;
		message.body_case = PAGED__V1__REPLY__BODY_IDS;
		message.ids = &ids;
		break;
	case WIRE_REPLY_STATUS:
		status_report_put(&status_report, reply);
		message.body_case = PAGED__V1__REPLY__BODY_STATUS_REPORT;
		message.status_report = &status_report;
		break;
	case WIRE_REPLY_POOLS:
		if (!pools_put(&pools, reply, arena))
			return 0;
		message.body_case = PAGED__V1__REPLY__BODY_POOLS;
		message.pools = &pools;
		break;
	case WIRE_REPLY_SESSIONS:
		if (!sessions_put(&sessions, reply, arena))
			return 0;
		message.body_case = PAGED__V1__REPLY__BODY_SESSIONS;
		message.sessions = &sessions;
		break;
	case WIRE_REPLY_SEQUENCES:
		if (!sequences_put(&sequences, reply, arena))
			return 0;
		message.body_case = PAGED__V1__REPLY__BODY_SEQUENCES;
		message.sequences = &sequences;
		break;
	case WIRE_REPLY_TABLE:
		sequence_put(&sequence, &reply->table.sequence);
		table.sequence = &sequence;
		table.n_page = reply->table.n;
		table.page = (uint32_t *)reply->table.page;
		table.more = reply->table.more;
		message.body_case = PAGED__V1__REPLY__BODY_TABLE;
		message.table = &table;
		break;
	case WIRE_REPLY_BOOKS:
		books_put(&books, reply);
		message.body_case = PAGED__V1__REPLY__BODY_BOOKS;
		message.books = &books;
		break;
	case WIRE_REPLY_MASK:
		wire_mask_put(&mask, &reply->mask);
		message.body_case = PAGED__V1__REPLY__BODY_MASK;
		message.mask = &mask;
		break;
	case WIRE_REPLY_HANDLE:
		handle_put(&handle, &reply->handle);
		message.body_case = PAGED__V1__REPLY__BODY_HANDLE;
		message.handle = &handle;
		break;
	}
	return wire_pack(&message.base, buffer, buffer_size);
}

/* Parsing */

static enum paged_status
too_long(const char *what, size_t n, uint32_t most, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_PROTOCOL, "%s: %zu entries, the most are %u", what, n, most);
}

static enum paged_status
no_room(struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_PROTOCOL, "reply needs more than the message arena");
}

static enum paged_status
pools_parse(const Paged__V1__Pools *from, struct wire_arena *arena, struct wire_reply *reply, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct wire_pool_report *to;

	if (from->n_pool > WIRE_LIST_MAX)
		return too_long("pools", from->n_pool, WIRE_LIST_MAX, error);
	to = wire_arena_alloc(arena, from->n_pool * sizeof(*to));
	if (to == NULL)
		return no_room(error);
	reply->kind = WIRE_REPLY_POOLS;
	reply->pools.n = (uint32_t)from->n_pool;
	reply->pools.report = to;
	for (size_t i = 0; i < from->n_pool && status == PAGED_OK; i++) {
		const Paged__V1__PoolReport *pool = from->pool[i];

		to[i] = (struct wire_pool_report){
			.pool = pool->pool,
			.page_bytes = pool->page_bytes,
			.size = pool->size,
			.n_free = pool->n_free,
			.n_referenced = pool->n_referenced,
			.n_quarantined = pool->n_quarantined,
			.n_slots = pool->n_slots,
			.n_sequences = pool->n_sequences,
			.max_length = pool->max_length,
		};
		status = wire_geometry_get(&to[i].geometry, pool->geometry, error);
		if (status == PAGED_OK)
			status = wire_text_copy(to[i].name, sizeof(to[i].name), pool->name, "pool: name", error);
		if (status == PAGED_OK)
			status = wire_text_copy(to[i].backend, sizeof(to[i].backend), pool->backend, "pool: backend",
						error);
		if (status == PAGED_OK)
			status =
				wire_text_copy(to[i].memory, sizeof(to[i].memory), pool->memory, "pool: memory", error);
		if (status == PAGED_OK)
			status =
				wire_text_copy(to[i].device, sizeof(to[i].device), pool->device, "pool: device", error);
	}
	return status;
}

static enum paged_status
sessions_parse(const Paged__V1__Sessions *from, struct wire_arena *arena, struct wire_reply *reply,
	       struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct wire_session_report *to;

	if (from->n_session > WIRE_LIST_MAX)
		return too_long("sessions", from->n_session, WIRE_LIST_MAX, error);
	to = wire_arena_alloc(arena, from->n_session * sizeof(*to));
	if (to == NULL)
		return no_room(error);
	reply->kind = WIRE_REPLY_SESSIONS;
	reply->sessions.n = (uint32_t)from->n_session;
	reply->sessions.report = to;
	reply->sessions.more = from->more;
	for (size_t i = 0; i < from->n_session && status == PAGED_OK; i++) {
		const Paged__V1__SessionReport *session = from->session[i];

		to[i] = (struct wire_session_report){
			.session = session->session,
			.member = session->member,
			.pid = session->pid,
			.uid = session->uid,
			.n_sequences = session->n_sequences,
			.n_pages = session->n_pages,
			.n_quarantined = session->n_quarantined,
			.n_requests = session->n_requests,
			.first = session->first,
			.ended = session->ended,
		};
		status = wire_text_copy(to[i].name, sizeof(to[i].name), session->name, "session: name", error);
	}
	return status;
}

static enum paged_status
sequence_parse(const Paged__V1__SequenceReport *from, struct wire_sequence_report *to, struct paged_error *error)
{
	enum paged_status status;

	if (from == NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a table without its sequence");
	*to = (struct wire_sequence_report){
		.seq = from->seq,
		.session = from->session,
		.pid = from->pid,
		.length = from->length,
		.capacity = from->capacity,
		.n_pages = from->n_pages,
	};
	status = wire_text_copy(to->name, sizeof(to->name), from->name, "sequence: name", error);
	if (status == PAGED_OK)
		status = wire_text_copy(to->tag, sizeof(to->tag), from->tag, "sequence: tag", error);
	return status;
}

static enum paged_status
sequences_parse(const Paged__V1__Sequences *from, struct wire_arena *arena, struct wire_reply *reply,
		struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct wire_sequence_report *to;

	if (from->n_sequence > WIRE_LIST_MAX)
		return too_long("sequences", from->n_sequence, WIRE_LIST_MAX, error);
	to = wire_arena_alloc(arena, from->n_sequence * sizeof(*to));
	if (to == NULL)
		return no_room(error);
	reply->kind = WIRE_REPLY_SEQUENCES;
	reply->sequences.n = (uint32_t)from->n_sequence;
	reply->sequences.report = to;
	reply->sequences.next_slot = from->next_slot;
	reply->sequences.more = from->more;
	for (size_t i = 0; i < from->n_sequence && status == PAGED_OK; i++)
		status = sequence_parse(from->sequence[i], &to[i], error);
	return status;
}

static enum paged_status
table_parse(const Paged__V1__Table *from, struct wire_reply *reply, struct paged_error *error)
{
	if (from->n_page > WIRE_TABLE_MAX)
		return too_long("table", from->n_page, WIRE_TABLE_MAX, error);
	reply->kind = WIRE_REPLY_TABLE;
	reply->table.n = (uint32_t)from->n_page;
	reply->table.page = from->page;
	reply->table.more = from->more;
	return sequence_parse(from->sequence, &reply->table.sequence, error);
}

static enum paged_status
status_report_parse(const Paged__V1__StatusReport *from, struct wire_reply *reply, struct paged_error *error)
{
	reply->kind = WIRE_REPLY_STATUS;
	reply->status_report.uptime_ms = from->uptime_ms;
	reply->status_report.n_requests = from->n_requests;
	reply->status_report.n_sessions = from->n_sessions;
	reply->status_report.n_pools = from->n_pools;
	reply->status_report.pid = from->pid;
	reply->status_report.stopping = from->stopping;
	return wire_text_copy(reply->status_report.version, sizeof(reply->status_report.version), from->version,
			      "status: version", error);
}

static enum paged_status
books_parse(const Paged__V1__Books *from, struct wire_reply *reply, struct paged_error *error)
{
	reply->kind = WIRE_REPLY_BOOKS;
	reply->books.n_pages = from->n_pages;
	reply->books.n_free = from->n_free;
	reply->books.n_referenced = from->n_referenced;
	reply->books.n_quarantined = from->n_quarantined;
	reply->books.n_sequences = from->n_sequences;
	reply->books.holds = from->holds;
	return wire_text_copy(reply->books.text, sizeof(reply->books.text), from->text, "books: text", error);
}

static enum paged_status
handle_parse(const Paged__V1__Handle *from, struct wire_reply *reply, struct paged_error *error)
{
	enum paged_status status;

	reply->kind = WIRE_REPLY_HANDLE;
	reply->handle.offset = from->offset;
	reply->handle.generation = from->generation;
	status = wire_bytes_copy(reply->handle.bytes, WIRE_HANDLE_SIZE, &from->handle, "handle", error);
	if (status == PAGED_OK)
		status = wire_bytes_copy(reply->handle.device, WIRE_UUID_SIZE, &from->device, "handle: device", error);
	return status;
}

enum paged_status
wire_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena, struct wire_reply *reply,
		 struct paged_error *error)
{
	const Paged__V1__Reply *unpacked =
		(const Paged__V1__Reply *)wire_unpack(&paged__v1__reply__descriptor, message, size, arena, error);

	memset(reply, 0, sizeof(*reply));
	if (unpacked == NULL)
		return PAGED_ERR_PROTOCOL;
	reply->id = unpacked->id;
	reply->status = (enum paged_status)unpacked->status;
	reply->text = unpacked->text;
	switch (unpacked->body_case) {
	case PAGED__V1__REPLY__BODY_IDS:
		if (unpacked->ids->n_seq > PAGED_MAX_REQUEST_SEQS)
			return too_long("ids", unpacked->ids->n_seq, PAGED_MAX_REQUEST_SEQS, error);
		reply->kind = WIRE_REPLY_IDS;
		reply->ids.n = (uint32_t)unpacked->ids->n_seq;
		reply->ids.seq = unpacked->ids->seq;
		return PAGED_OK;
	case PAGED__V1__REPLY__BODY_STATUS_REPORT:
		return status_report_parse(unpacked->status_report, reply, error);
	case PAGED__V1__REPLY__BODY_POOLS:
		return pools_parse(unpacked->pools, arena, reply, error);
	case PAGED__V1__REPLY__BODY_SESSIONS:
		return sessions_parse(unpacked->sessions, arena, reply, error);
	case PAGED__V1__REPLY__BODY_SEQUENCES:
		return sequences_parse(unpacked->sequences, arena, reply, error);
	case PAGED__V1__REPLY__BODY_TABLE:
		return table_parse(unpacked->table, reply, error);
	case PAGED__V1__REPLY__BODY_BOOKS:
		return books_parse(unpacked->books, reply, error);
	case PAGED__V1__REPLY__BODY_MASK:
		reply->kind = WIRE_REPLY_MASK;
		return wire_mask_get(&reply->mask, unpacked->mask, error);
	case PAGED__V1__REPLY__BODY_HANDLE:
		return handle_parse(unpacked->handle, reply, error);
	default:
		/* A newer daemon's body that this library does not know is no error: the status stands. */
		reply->kind = WIRE_REPLY_EMPTY;
		return PAGED_OK;
	}
}
