/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the RPC channel: the hot one is reserve, three flat arrays. */
#include <string.h>

#include "proto/wire_internal.h"

static void
items_put(Paged__V1__SeqItems *to, const struct wire_items *from)
{
	paged__v1__seq_items__init(to);
	to->n_seq = from->n;
	to->seq = (uint64_t *)from->seq;
	to->n_tokens = from->tokens != NULL ? from->n : 0;
	to->tokens = (uint32_t *)from->tokens;
	to->n_pool = from->n_pools;
	to->pool = (uint32_t *)from->pool;
}

size_t
wire_request_pack(const struct wire_request *request, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size)
{
	Paged__V1__Request message = PAGED__V1__REQUEST__INIT;
	Paged__V1__Ping ping = PAGED__V1__PING__INIT;
	Paged__V1__SeqCreate create = PAGED__V1__SEQ_CREATE__INIT;
	Paged__V1__SeqItems items;
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
		create.pool = request->create.pool;
		create.n = request->create.n;
		message.body_case = PAGED__V1__REQUEST__BODY_CREATE;
		message.create = &create;
		break;
	case WIRE_RESERVE:
		items_put(&items, &request->items);
		message.body_case = PAGED__V1__REQUEST__BODY_RESERVE;
		message.reserve = &items;
		break;
	case WIRE_TRUNCATE:
		items_put(&items, &request->items);
		message.body_case = PAGED__V1__REQUEST__BODY_TRUNCATE;
		message.truncate = &items;
		break;
	case WIRE_ERASE:
		items_put(&items, &request->items);
		message.body_case = PAGED__V1__REQUEST__BODY_ERASE;
		message.erase = &items;
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
		get_table.pool = request->get_table.pool;
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

/* The three arrays agree in length. */
static enum paged_status
items_parse(const Paged__V1__SeqItems *from, bool has_tokens, struct wire_items *items, struct paged_error *error)
{
	if (from->n_seq == 0 || from->n_seq > PAGED_MAX_REQUEST_SEQS)
		return paged_fail(error, PAGED_ERR_LIMIT, "a request names 1 to %u sequences, not %zu",
				  PAGED_MAX_REQUEST_SEQS, from->n_seq);
	if (from->n_tokens != (has_tokens ? from->n_seq : 0))
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%zu token counts for %zu sequences", from->n_tokens,
				  from->n_seq);
	if (from->n_pool != 1 && from->n_pool != from->n_seq)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%zu pools for %zu sequences", from->n_pool, from->n_seq);
	*items = (struct wire_items){
		.n = (uint32_t)from->n_seq,
		.seq = from->seq,
		.tokens = has_tokens ? from->tokens : NULL,
		.pool = from->pool,
		.n_pools = (uint32_t)from->n_pool,
	};
	return PAGED_OK;
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
		request->create.pool = from->create->pool;
		request->create.n = from->create->n;
		if (from->create->n == 0 || from->create->n > PAGED_MAX_REQUEST_SEQS)
			return paged_fail(error, PAGED_ERR_LIMIT, "a request creates 1 to %u sequences, not %u",
					  PAGED_MAX_REQUEST_SEQS, from->create->n);
		return PAGED_OK;
	case PAGED__V1__REQUEST__BODY_RESERVE:
		request->kind = WIRE_RESERVE;
		return items_parse(from->reserve, true, &request->items, error);
	case PAGED__V1__REQUEST__BODY_TRUNCATE:
		request->kind = WIRE_TRUNCATE;
		return items_parse(from->truncate, true, &request->items, error);
	case PAGED__V1__REQUEST__BODY_ERASE:
		request->kind = WIRE_ERASE;
		return items_parse(from->erase, false, &request->items, error);
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
		request->get_table.pool = from->get_table->pool;
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
	return body_parse(unpacked, arena, request, error);
}
