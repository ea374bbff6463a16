/* SPDX-License-Identifier: Apache-2.0 */
/**
 * wire_table.h - how the fields of a message lie in a plain struct
 *
 * A message is a row of a table (wire_messages.c), which names its fields and
 * their limits.  wire_convert.c packs and parses every message by its row.
 * Generated types stop here.
 */
#ifndef PAGED_WIRE_TABLE_H
#define PAGED_WIRE_TABLE_H

#include "proto/paged.pb-c.h"
#include "proto/wire.h"

enum wire_field_kind {
	/** A number, bool or enum; above `max` it is refused.  Four bytes of any type travel as one number. */
	WIRE_NUMBER,
	/** Zero-terminated text in an array of the struct. */
	WIRE_TEXT,
	/** A pointer to text of at most `max` bytes. */
	WIRE_STRING,
	/** Bytes of one size in an array of the struct.  WIRE_OPTIONAL: bytes that are all zero do not travel. */
	WIRE_BYTES,
	/** A pointer to at most `max` bytes, and their number. */
	WIRE_DATA,
	/** A list of numbers in an array of the struct, and their number. */
	WIRE_ARRAY,
	/** A pointer to a list of numbers, which may be one member of a list of structs; columns share their number. */
	WIRE_COLUMN,
	/** A message, as a struct inside the struct. */
	WIRE_STRUCT,
	/** A list of messages, as a pointer to a list of structs, and their number. */
	WIRE_STRUCTS
};

enum {
	WIRE_OPTIONAL = 1,
	/** Of text: any bytes, which are not printed. */
	WIRE_RAW = 2,
	/** Of text: what is not printable UTF-8 becomes '?', and is not refused. */
	WIRE_CLEANED = 4,
	/** Of a column: it counts the rows and allocates their structs, so it comes first. */
	WIRE_FIRST = 8,
	/** Of a column: one number stands for all, and none for zeros. */
	WIRE_ALIKE = 16
};

struct wire_type;

struct wire_field {
	enum wire_field_kind kind;
	uint8_t flags;
	const char *name;
	/* Offsets in the generated message, and in the struct. */
	uint16_t message_at, struct_at;
	/* Bytes of a value there, or of an element of a list; bytes of the member here. */
	uint16_t message_size, struct_size;
	/* Offsets of a list's number of elements. */
	uint16_t message_n_at, struct_n_at;
	/* Of a column in structs: their size (0: plain numbers), and the member's offset. */
	uint16_t stride, member_at;
	uint32_t min, max;
	const struct wire_type *type; /* of WIRE_STRUCT and WIRE_STRUCTS */
};

struct wire_type {
	const ProtobufCMessageDescriptor *message;
	size_t struct_size;
	uint32_t n_fields;
	const struct wire_field *fields;
};

/** A message that carries one of several others. */
struct wire_envelope {
	const struct wire_type *type;
	/* Offsets in the generated message: which of the bodies it is, and the pointer to it. */
	uint16_t case_at, body_at;
	uint16_t kind_at; /* of the kind, in the struct */
	uint32_t n_bodies;
	/* By kind: the number of the body's field, and its fields as offsets in the whole struct.  Number 0: no body.
	 */
	const struct wire_body {
		uint32_t number;
		const struct wire_type *type;
	} * bodies;
};

extern const struct wire_envelope wire_control_requests, wire_control_replies, wire_requests, wire_replies;

/** wire_pack - size written; 0: it does not fit the buffer, or the arena is used up */
size_t wire_pack(const struct wire_envelope *envelope, const void *from, struct wire_arena *arena, uint8_t *buffer,
		 size_t buffer_size);

/**
 * wire_parse - fill the struct of the envelope; what the message does not carry is zero
 *
 * The envelope's own fields come first: they are written also on failure, where they can be read.
 *
 * @retval PAGED_ERR_PROTOCOL     no such message, or a field has a value that it cannot have
 * @retval PAGED_ERR_LIMIT        a count or a length is outside its limits
 * @retval PAGED_ERR_UNSUPPORTED  a body that this version lacks, or none; the kind is 0
 */
enum paged_status wire_parse(const struct wire_envelope *envelope, const uint8_t *message, size_t size,
			     struct wire_arena *arena, void *to, struct paged_error *error);

#endif
