/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "proto/wire_internal.h"

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

void *
wire_arena_alloc(struct wire_arena *arena, size_t size)
{
	size_t at = (arena->used + 15) & ~(size_t)15;

	if (at > arena->size || size > arena->size - at)
		return NULL;
	arena->used = at + size;
	return arena->base + at;
}

static void *
arena_alloc(void *arena, size_t size)
{
	return wire_arena_alloc(arena, size);
}

static void
arena_free(void *arena, void *pointer)
{
	/* Everything goes at once, by wire_arena_reset(). */
	(void)arena;
	(void)pointer;
}

const ProtobufCMessage *
wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *message, size_t size, struct wire_arena *arena,
	    struct paged_error *error)
{
	ProtobufCAllocator allocator = { arena_alloc, arena_free, arena };
	const ProtobufCMessage *unpacked = NULL;

	if (size <= WIRE_MAX_MESSAGE)
		unpacked = protobuf_c_message_unpack(type, &allocator, size, message);
	if (unpacked == NULL)
		paged_fail(error, PAGED_ERR_PROTOCOL, "%zu bytes are no %s", size, type->name);
	return unpacked;
}

size_t
wire_pack(const ProtobufCMessage *message, uint8_t *buffer, size_t buffer_size)
{
	if (protobuf_c_message_get_packed_size(message) > buffer_size)
		return 0;
	return protobuf_c_message_pack(message, buffer);
}

/* Fields */

enum paged_status
wire_text_check(const char *from, size_t max, const char *what, struct paged_error *error)
{
	size_t length = strlen(from), bad;

	if (length > max)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%s has %zu bytes, the most are %zu", what, length, max);
	/* Names are printed in logs and on terminals, and echoed in messages. */
	bad = text_bad_byte(from);
	if (bad == length)
		return PAGED_OK;
	if ((unsigned char)from[bad] < 0x80)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%s has a control character at byte %zu", what, bad);
	return paged_fail(error, PAGED_ERR_PROTOCOL, "%s is not printable UTF-8 at byte %zu", what, bad);
}

enum paged_status
wire_text_copy(char *to, size_t to_size, const char *from, const char *what, struct paged_error *error)
{
	enum paged_status status = wire_text_check(from, to_size - 1, what, error);

	if (status == PAGED_OK)
		strcpy(to, from);
	return status;
}

enum paged_status
wire_bytes_copy(uint8_t *to, size_t size, const ProtobufCBinaryData *from, const char *what, struct paged_error *error)
{
	if (from->len != size)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%s has %zu bytes, not %zu", what, from->len, size);
	if (size > 0) /* absent bytes have no address either */
		memcpy(to, from->data, size);
	return PAGED_OK;
}

void
wire_geometry_put(Paged__V1__Geometry *to, const struct wire_geometry *from)
{
	paged__v1__geometry__init(to);
	to->n_layers = from->n_layers;
	to->n_kv_heads = from->n_kv_heads;
	to->k_dim = from->k_dim;
	to->v_dim = from->v_dim;
	to->v_in_k = from->v_in_k;
	to->dtype = from->dtype;
	to->page_size = from->page_size;
	to->n_pages = from->n_pages;
	to->alignment = from->alignment;
}

enum paged_status
wire_geometry_get(struct wire_geometry *to, const Paged__V1__Geometry *from, struct paged_error *error)
{
	if (from == NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a pool without geometry");
	*to = (struct wire_geometry){
		.n_layers = from->n_layers,
		.n_kv_heads = from->n_kv_heads,
		.k_dim = from->k_dim,
		.v_dim = from->v_dim,
		.v_in_k = from->v_in_k,
		.dtype = from->dtype,
		.page_size = from->page_size,
		.n_pages = from->n_pages,
		.alignment = from->alignment,
	};
	return PAGED_OK;
}
