/* SPDX-License-Identifier: Apache-2.0 */
/**
 * wire_table.h - tables that map the fields of a message to members of a plain struct
 *
 * wire_messages.c has a table of messages, each with its fields and their
 * limits.  wire_convert.c packs and parses every message by these tables.
 * No other code uses the generated types.
 */
#ifndef PAGED_WIRE_TABLE_H
#define PAGED_WIRE_TABLE_H

#include "proto/paged.pb-c.h"
#include "proto/wire.h"

enum wire_field_kind {
	/** A number, bool or enum, at most `max` if it has 4 bytes.  An array of 4 bytes is sent as one number. */
	WIRE_NUMBER,
	/** Zero-terminated text in a char array of the struct. */
	WIRE_TEXT,
	/** A pointer to text of at most `max` bytes. */
	WIRE_STRING,
	/** A byte array of fixed size in the struct.  WIRE_OPTIONAL: an array of zeros is sent as no bytes. */
	WIRE_BYTES,
	/** A pointer to at most `max` bytes, and their number. */
	WIRE_DATA,
	/** A list of numbers as an array in the struct, and their number. */
	WIRE_ARRAY,
	/**
	 * A list of numbers as a pointer to an array of numbers, or as one member
	 * of each element of an array of structs.  All columns of a struct share
	 * one number of elements.  WIRE_OPTIONAL: the list may be empty (NULL).
	 */
	WIRE_COLUMN,
	/** A message, as a struct inside the struct. */
	WIRE_STRUCT,
	/** A list of messages, as a pointer to an array of structs, and their number. */
	WIRE_STRUCTS
};

enum {
	WIRE_OPTIONAL = 1,
	/** For text: any bytes are accepted, so it must be cleaned before it is printed. */
	WIRE_RAW = 2,
	/** For text: text_clean_utf8() first; only control characters of ASCII are then refused. */
	WIRE_CLEANED = 4,
	/** For a column: determines the number of elements and allocates their structs; comes before the others. */
	WIRE_FIRST = 8,
	/** For a column: one number stands for equal elements, an empty list for zeros. */
	WIRE_ALIKE = 16
};

struct wire_type;

struct wire_field {
	enum wire_field_kind kind;
	uint8_t flags;
	const char *name;
	/* Offsets of the field in the generated message and of the member in the struct. */
	uint16_t message_at, struct_at;
	/* Bytes of a value or list element in the generated message, and of the member in the struct. */
	uint16_t message_size, struct_size;
	/* Offsets of a list's number of elements. */
	uint16_t message_n_at, struct_n_at;
	/* For a column in an array of structs: size of the struct (0: plain numbers), offset of the member in it. */
	uint16_t stride, member_at;
	uint32_t min, max;            /* limits of a value, a length or a number of elements */
	const struct wire_type *type; /* for WIRE_STRUCT and WIRE_STRUCTS */
};

struct wire_type {
	const ProtobufCMessageDescriptor *message;
	size_t struct_size;
	uint32_t n_fields;
	const struct wire_field *fields;
};

/** A message with a oneof, whose members are the bodies. */
struct wire_envelope {
	const struct wire_type *type;
	/* Offsets in the generated message: the number of the body that is present, and the pointer to it. */
	uint16_t case_at, body_at;
	uint16_t kind_at; /* offset of `kind` in the struct */
	uint32_t n_bodies;
	/* By kind: the body's field number (0: no body), and its fields, whose offsets are in the whole struct. */
	const struct wire_body {
		uint32_t number;
		const struct wire_type *type;
	} * bodies;
};

extern const struct wire_envelope wire_control_requests, wire_control_replies, wire_requests, wire_replies;

/** wire_pack - write a message; returns its size, 0 if it does not fit the buffer or the arena */
size_t wire_pack(const struct wire_envelope *envelope, const void *from, struct wire_arena *arena, uint8_t *buffer,
		 size_t buffer_size);

/**
 * wire_parse - fill the envelope's struct; members without a field in the message are 0
 *
 * The envelope's own fields are parsed first, so they are written also if the body is refused.
 *
 * @retval PAGED_ERR_PROTOCOL     not such a message, or a field has an invalid value
 * @retval PAGED_ERR_LIMIT        a count or a length is outside its limits
 * @retval PAGED_ERR_UNSUPPORTED  no body, or a body that this version does not know; the kind is 0
 */
enum paged_status wire_parse(const struct wire_envelope *envelope, const uint8_t *message, size_t size,
			     struct wire_arena *arena, void *to, struct paged_error *error);

#endif
