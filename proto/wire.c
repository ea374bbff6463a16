/* SPDX-License-Identifier: Apache-2.0 */
/* The public pack and parse functions, and their memory; wire_convert.c does the work. */
#include "proto/wire.h"

#include <stdalign.h>
#include <stdlib.h>

#include "proto/wire_table.h"

/* Arena */

enum paged_status
wire_arena_create(struct wire_arena *arena, struct paged_error *error)
{
	arena->base = malloc(WIRE_ARENA_SIZE);
	arena->size = WIRE_ARENA_SIZE;
	arena->used = 0;
	if (arena->base == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a message arena of %u bytes", WIRE_ARENA_SIZE);
	return PAGED_OK;
}

void
wire_arena_destroy(struct wire_arena *arena)
{
	free(arena->base);
	*arena = (struct wire_arena){ 0 };
}

/* Control channel: messages are small, so packing uses an arena on the stack. */

#define CONTROL_ARENA_SIZE 1024

size_t
wire_control_request_pack(const struct wire_control_request *request, uint8_t *buffer, size_t buffer_size)
{
	alignas(16) uint8_t room[CONTROL_ARENA_SIZE];
	struct wire_arena arena = { room, sizeof(room), 0 };

	return wire_pack(&wire_control_requests, request, &arena, buffer, buffer_size);
}

size_t
wire_control_reply_pack(const struct wire_control_reply *reply, uint8_t *buffer, size_t buffer_size)
{
	alignas(16) uint8_t room[CONTROL_ARENA_SIZE];
	struct wire_arena arena = { room, sizeof(room), 0 };

	return wire_pack(&wire_control_replies, reply, &arena, buffer, buffer_size);
}

enum paged_status
wire_control_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
			   struct wire_control_request *request, struct paged_error *error)
{
	return wire_parse(&wire_control_requests, message, size, arena, request, error);
}

enum paged_status
wire_control_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
			 struct wire_control_reply *reply, struct paged_error *error)
{
	return wire_parse(&wire_control_replies, message, size, arena, reply, error);
}

/* RPC channel */

size_t
wire_request_pack(const struct wire_request *request, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size)
{
	return wire_pack(&wire_requests, request, arena, buffer, buffer_size);
}

size_t
wire_reply_pack(const struct wire_reply *reply, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size)
{
	return wire_pack(&wire_replies, reply, arena, buffer, buffer_size);
}

enum paged_status
wire_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena, struct wire_request *request,
		   struct paged_error *error)
{
	enum paged_status status = wire_parse(&wire_requests, message, size, arena, request, error);

	/* No reply could name a request without an id. */
	if (status == PAGED_OK && request->id == 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "request id 0; ids begin with 1");
	return status;
}

enum paged_status
wire_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena, struct wire_reply *reply,
		 struct paged_error *error)
{
	enum paged_status status = wire_parse(&wire_replies, message, size, arena, reply, error);

	/* An unknown body, which a newer daemon may send, counts as no body; the reply's status is valid. */
	return status == PAGED_ERR_UNSUPPORTED ? PAGED_OK : status;
}
