/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the RPC channel: the hot one is reserve, three flat arrays. */
#include <string.h>

#include "proto/wire_internal.h"

static bool
create_put(Paged__V1__SeqCreate *to, const struct wire_request *request, struct wire_arena *arena)
{
	uint32_t n = request->create.n;
	Paged__V1__SeqSpec *specs = wire_arena_alloc(arena, n * sizeof(*specs));

	to->sequence = wire_arena_alloc(arena, n * sizeof(*to->sequence));
	if (specs == NULL || to->sequence == NULL)
		return false;
	to->n_sequence = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct seq_spec *from = &request->create.specs[i];

		paged__v1__seq_spec__init(&specs[i]);
		specs[i].pool = from->pool;
		specs[i].n_tokens = from->n_tokens;
		specs[i].tag = (char *)from->tag;
		to->sequence[i] = &specs[i];
	}
	return true;
}

static bool
items_put(Paged__V1__SeqItems *to, const struct wire_request *request, struct wire_arena *arena)
{
	uint32_t n = request->change.n;

	to->seq = wire_arena_alloc(arena, n * sizeof(*to->seq));
	to->n_tokens = wire_arena_alloc(arena, n * sizeof(*to->n_tokens));
	to->n_ahead = wire_arena_alloc(arena, n * sizeof(*to->n_ahead));
	if (to->seq == NULL || to->n_tokens == NULL || to->n_ahead == NULL)
		return false;
	to->n_seq = to->n_n_tokens = n;
	for (uint32_t i = 0; i < n; i++) {
		to->seq[i] = request->change.items[i].seq;
		to->n_tokens[i] = request->change.items[i].n_tokens;
		to->n_ahead[i] = request->change.items[i].n_ahead;
		/* Mostly they are alike, and n of each would not fit a message. */
		if (to->n_ahead[i] != to->n_ahead[0])
			to->n_n_ahead = n;
	}
	if (to->n_n_ahead == 0 && to->n_ahead[0] != 0)
		to->n_n_ahead = 1;
	return true;
}

size_t
wire_request_pack(const struct wire_request *request, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size)
{
	Paged__V1__Request message = PAGED__V1__REQUEST__INIT;
	Paged__V1__Ping ping = PAGED__V1__PING__INIT;
	Paged__V1__SeqCreate create = PAGED__V1__SEQ_CREATE__INIT;
	Paged__V1__SeqItems items = PAGED__V1__SEQ_ITEMS__INIT;
	Paged__V1__SeqIds ids = PAGED__V1__SEQ_IDS__INIT;
	Paged__V1__GetStatus get_status = PAGED__V1__GET_STATUS__INIT;
	Paged__V1__GetPools get_pools = PAGED__V1__GET_POOLS__INIT;
	Paged__V1__GetSessions get_sessions = PAGED__V1__GET_SESSIONS__INIT;
	Paged__V1__GetSequences get_sequences = PAGED__V1__GET_SEQUENCES__INIT;
	Paged__V1__GetTable get_table = PAGED__V1__GET_TABLE__INIT;
	Paged__V1__Check check = PAGED__V1__CHECK__INIT;
	Paged__V1__Kick kick = PAGED__V1__KICK__INIT;
	Paged__V1__PutArray put_array;
	Paged__V1__DropArray drop_array = PAGED__V1__DROP_ARRAY__INIT;
	Paged__V1__BuildMask build_mask;
	Paged__V1__GetHandle get_handle = PAGED__V1__GET_HANDLE__INIT;

	message.id = request->id;
	switch (request->kind) {
	case WIRE_PING:
		message.body_case = PAGED__V1__REQUEST__BODY_PING;
		message.ping = &ping;
		break;
	case WIRE_CREATE:
		if (!create_put(&create, request, arena))
			return 0;
		message.body_case = PAGED__V1__REQUEST__BODY_CREATE;
		message.create = &create;
		break;
	case WIRE_RESERVE:
		if (!items_put(&items, request, arena))
			return 0;
		message.body_case = PAGED__V1__REQUEST__BODY_RESERVE;
		message.reserve = &items;
		break;
	case WIRE_TRUNCATE:
		if (!items_put(&items, request, arena))
			return 0;
		message.body_case = PAGED__V1__REQUEST__BODY_TRUNCATE;
		message.truncate = &items;
		break;
	case WIRE_ERASE:
		ids.n_seq = request->erase.n;
		ids.seq = (uint64_t *)request->erase.ids;
		message.body_case = PAGED__V1__REQUEST__BODY_ERASE;
		message.erase = &ids;
		break;
	case WIRE_GET_STATUS:
		message.body_case = PAGED__V1__REQUEST__BODY_GET_STATUS;
		message.get_status = &get_status;
		break;
	case WIRE_GET_POOLS:
		message.body_case = PAGED__V1__REQUEST__BODY_GET_POOLS;
		message.get_pools = &get_pools;
		break;
	case WIRE_GET_SESSIONS:
		get_sessions.after_session = request->get_sessions.after_session;
		get_sessions.after_member = request->get_sessions.after_member;
		message.body_case = PAGED__V1__REQUEST__BODY_GET_SESSIONS;
		message.get_sessions = &get_sessions;
		break;
	case WIRE_GET_SEQUENCES:
		get_sequences.pool = request->get_sequences.pool;
		get_sequences.from_slot = request->get_sequences.from_slot;
		message.body_case = PAGED__V1__REQUEST__BODY_GET_SEQUENCES;
		message.get_sequences = &get_sequences;
		break;
	case WIRE_GET_TABLE:
		get_table.seq = request->get_table.seq;
		get_table.from_entry = request->get_table.from_entry;
		message.body_case = PAGED__V1__REQUEST__BODY_GET_TABLE;
		message.get_table = &get_table;
		break;
	case WIRE_CHECK:
		check.pool = request->check.pool;
		message.body_case = PAGED__V1__REQUEST__BODY_CHECK;
		message.check = &check;
		break;
	case WIRE_KICK:
		kick.session = request->kick.session;
		kick.kill = request->kick.kill;
		message.body_case = PAGED__V1__REQUEST__BODY_KICK;
		message.kick = &kick;
		break;
	case WIRE_PUT_ARRAY:
		wire_put_array_put(&put_array, &request->put_array);
		message.body_case = PAGED__V1__REQUEST__BODY_PUT_ARRAY;
		message.put_array = &put_array;
		break;
	case WIRE_DROP_ARRAY:
		drop_array.name = (char *)request->drop_array.name;
		message.body_case = PAGED__V1__REQUEST__BODY_DROP_ARRAY;
		message.drop_array = &drop_array;
		break;
	case WIRE_BUILD_MASK:
		if (!wire_build_mask_put(&build_mask, &request->build_mask, arena))
			return 0;
		message.body_case = PAGED__V1__REQUEST__BODY_BUILD_MASK;
		message.build_mask = &build_mask;
		break;
	case WIRE_GET_HANDLE:
		get_handle.pool = request->get_handle.pool;
		message.body_case = PAGED__V1__REQUEST__BODY_GET_HANDLE;
		message.get_handle = &get_handle;
		break;
	case WIRE_N_REQUESTS:
		return 0;
	}
	return wire_pack(&message.base, buffer, buffer_size);
}

static enum paged_status
count_check(size_t n, struct paged_error *error)
{
	if (n == 0 || n > PAGED_MAX_REQUEST_SEQS)
		return paged_fail(error, PAGED_ERR_LIMIT, "a request names 1 to %u sequences, not %zu",
				  PAGED_MAX_REQUEST_SEQS, n);
	return PAGED_OK;
}

static enum paged_status
no_room(struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_PROTOCOL, "request needs more than the message arena");
}

static enum paged_status
create_parse(const Paged__V1__SeqCreate *from, struct wire_arena *arena, struct wire_request *request,
	     struct paged_error *error)
{
	enum paged_status status = count_check(from->n_sequence, error);
	struct seq_spec *specs;

	if (status != PAGED_OK)
		return status;
	specs = wire_arena_alloc(arena, from->n_sequence * sizeof(*specs));
	if (specs == NULL)
		return no_room(error);
	request->create.n = (uint32_t)from->n_sequence;
	request->create.specs = specs;
	for (size_t i = 0; i < from->n_sequence && status == PAGED_OK; i++) {
		const Paged__V1__SeqSpec *spec = from->sequence[i];

		specs[i] = (struct seq_spec){ .pool = spec->pool, .n_tokens = spec->n_tokens, .tag = spec->tag };
		status = wire_text_check(spec->tag, PAGED_MAX_TAG, "create: tag", error);
	}
	return status;
}

static enum paged_status
items_parse(const Paged__V1__SeqItems *from, struct wire_arena *arena, struct wire_request *request,
	    struct paged_error *error)
{
	enum paged_status status = count_check(from->n_seq, error);
	struct paged_seq_item *items;

	if (status != PAGED_OK)
		return status;
	if (from->n_n_tokens != from->n_seq)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%zu token counts for %zu sequences", from->n_n_tokens,
				  from->n_seq);
	if (from->n_n_ahead > 1 && from->n_n_ahead != from->n_seq)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%zu counts of tokens ahead for %zu sequences",
				  from->n_n_ahead, from->n_seq);
	items = wire_arena_alloc(arena, from->n_seq * sizeof(*items));
	if (items == NULL)
		return no_room(error);
	for (size_t i = 0; i < from->n_seq; i++)
		items[i] = (struct paged_seq_item){
			.seq = from->seq[i],
			.n_tokens = from->n_tokens[i],
			.n_ahead = from->n_n_ahead == 0 ? 0 : from->n_ahead[from->n_n_ahead == 1 ? 0 : i],
		};
	request->change.n = (uint32_t)from->n_seq;
	request->change.items = items;
	return PAGED_OK;
}

static enum paged_status
ids_parse(const Paged__V1__SeqIds *from, struct wire_request *request, struct paged_error *error)
{
	request->erase.n = (uint32_t)from->n_seq;
	request->erase.ids = from->seq;
	return count_check(from->n_seq, error);
}

static enum paged_status
body_parse(const Paged__V1__Request *from, struct wire_arena *arena, struct wire_request *request,
	   struct paged_error *error)
{
	switch (from->body_case) {
	case PAGED__V1__REQUEST__BODY_PING:
		request->kind = WIRE_PING;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_CREATE:
		request->kind = WIRE_CREATE;
		return create_parse(from->create, arena, request, error);
	case PAGED__V1__REQUEST__BODY_RESERVE:
		request->kind = WIRE_RESERVE;
		return items_parse(from->reserve, arena, request, error);
	case PAGED__V1__REQUEST__BODY_TRUNCATE:
		request->kind = WIRE_TRUNCATE;
		return items_parse(from->truncate, arena, request, error);
	case PAGED__V1__REQUEST__BODY_ERASE:
		request->kind = WIRE_ERASE;
		return ids_parse(from->erase, request, error);
	case PAGED__V1__REQUEST__BODY_GET_STATUS:
		request->kind = WIRE_GET_STATUS;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_GET_POOLS:
		request->kind = WIRE_GET_POOLS;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_GET_SESSIONS:
		request->kind = WIRE_GET_SESSIONS;
		request->get_sessions.after_session = from->get_sessions->after_session;
		request->get_sessions.after_member = from->get_sessions->after_member;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_GET_SEQUENCES:
		request->kind = WIRE_GET_SEQUENCES;
		request->get_sequences.pool = from->get_sequences->pool;
		request->get_sequences.from_slot = from->get_sequences->from_slot;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_GET_TABLE:
		request->kind = WIRE_GET_TABLE;
		request->get_table.seq = from->get_table->seq;
		request->get_table.from_entry = from->get_table->from_entry;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_CHECK:
		request->kind = WIRE_CHECK;
		request->check.pool = from->check->pool;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_KICK:
		request->kind = WIRE_KICK;
		request->kick.session = from->kick->session;
		request->kick.kill = from->kick->kill;
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_PUT_ARRAY:
		request->kind = WIRE_PUT_ARRAY;
		return wire_put_array_get(&request->put_array, from->put_array, error);
	case PAGED__V1__REQUEST__BODY_DROP_ARRAY:
		request->kind = WIRE_DROP_ARRAY;
		return wire_text_copy(request->drop_array.name, sizeof(request->drop_array.name),
				      from->drop_array->name, "drop_array: name", error);
	case PAGED__V1__REQUEST__BODY_BUILD_MASK:
		request->kind = WIRE_BUILD_MASK;
		return wire_build_mask_get(&request->build_mask, from->build_mask, arena, error);
	case PAGED__V1__REQUEST__BODY_GET_HANDLE:
		request->kind = WIRE_GET_HANDLE;
		request->get_handle.pool = from->get_handle->pool;
		return PAGED_OK;
	default:
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "a request of a kind that version %u.%u lacks",
				  WIRE_VERSION_MAJOR, WIRE_VERSION_MINOR);
	}
}

enum paged_status
wire_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena, struct wire_request *request,
		   struct paged_error *error)
{
	const Paged__V1__Request *unpacked =
		(const Paged__V1__Request *)wire_unpack(&paged__v1__request__descriptor, message, size, arena, error);

	memset(request, 0, sizeof(*request));
	if (unpacked == NULL)
		return PAGED_ERR_PROTOCOL;
	request->id = unpacked->id;
	if (request->id == 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "request id 0; ids begin with 1");
	return body_parse(unpacked, arena, request, error);
}
