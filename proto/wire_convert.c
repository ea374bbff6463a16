/* SPDX-License-Identifier: Apache-2.0 */
/* Packs structs into messages and parses messages, by the tables of wire_messages.c. */
#include <assert.h>
#include <string.h>

#include "common/text.h"
#include "proto/wire_table.h"

/* Context of the conversion of one message. */
struct convert {
	struct wire_arena *arena;
	/* For parsing only. */
	const char *message; /* its name, for error texts */
	struct paged_error *error;
};

/* Conversion of one kind of field.  pack() returns false if the arena is used up. */
struct field_ops {
	bool (*pack)(const struct wire_field *field, void *message, const void *from, struct convert *convert);
	enum paged_status (*parse)(const struct wire_field *field, const void *message, void *to,
				   struct convert *convert);
};

static const struct field_ops field_ops[WIRE_STRUCTS + 1];

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "number_copy() takes the low bytes of a number");

/* A bool has one byte in a struct and four in a message. */
static void
number_copy(void *to, size_t to_size, const void *from, size_t from_size)
{
	memset(to, 0, to_size);
	memcpy(to, from, to_size < from_size ? to_size : from_size);
}

static void *
pointer_at(const void *base, size_t at)
{
	void *pointer;

	memcpy(&pointer, (const uint8_t *)base + at, sizeof(pointer));
	return pointer;
}

static void
pointer_set(void *base, size_t at, const void *pointer)
{
	memcpy((uint8_t *)base + at, &pointer, sizeof(pointer));
}

static uint32_t
u32_at(const void *base, size_t at)
{
	uint32_t number;

	memcpy(&number, (const uint8_t *)base + at, sizeof(number));
	return number;
}

static void
u32_set(void *base, size_t at, size_t number)
{
	memcpy((uint8_t *)base + at, &(uint32_t){ (uint32_t)number }, sizeof(uint32_t));
}

static void
list_set(const struct wire_field *field, void *message, size_t n, const void *elements)
{
	memcpy((uint8_t *)message + field->message_n_at, &n, sizeof(n));
	pointer_set(message, field->message_at, elements);
}

static size_t
list_size(const struct wire_field *field, const void *message)
{
	size_t n;

	memcpy(&n, (const uint8_t *)message + field->message_n_at, sizeof(n));
	return n;
}

static void *
wire_arena_alloc(void *arena_argument, size_t size)
{
	struct wire_arena *arena = arena_argument;
	size_t at = (arena->used + 15) & ~(size_t)15;

	if (at > arena->size || size > arena->size - at)
		return NULL;
	arena->used = at + size;
	return arena->base + at;
}

/* Allocates the zeroed structs of a list, and stores pointer and number in the caller's struct. */
static enum paged_status
wire_alloc_structs(const struct wire_field *field, size_t n, size_t size, void *to, struct convert *convert)
{
	void *structs = wire_arena_alloc(convert->arena, n * size);

	if (structs == NULL)
		return paged_fail(convert->error, PAGED_ERR_PROTOCOL,
				  "%s needs more than the message arena of %zu bytes", convert->message,
				  convert->arena->size);
	memset(structs, 0, n * size);
	pointer_set(to, field->struct_at, structs);
	u32_set(to, field->struct_n_at, n);
	return PAGED_OK;
}

static enum paged_status
wire_check_count(const struct wire_field *field, size_t n, const struct convert *convert)
{
	if (n >= field->min && n <= field->max)
		return PAGED_OK;
	return paged_fail(convert->error, PAGED_ERR_LIMIT, "%s.%s has %zu entries; it may have %u to %u",
			  convert->message, field->name, n, field->min, field->max);
}

static enum paged_status
wire_check_size(const struct wire_field *field, size_t size, const struct convert *convert)
{
	if (size <= field->max)
		return PAGED_OK;
	return paged_fail(convert->error, PAGED_ERR_LIMIT, "%s.%s has %zu bytes; it may have %u", convert->message,
			  field->name, size, field->max);
}

static void *
wire_pack_message(const struct wire_type *type, const void *from, struct convert *convert)
{
	void *message = wire_arena_alloc(convert->arena, type->message->sizeof_message);
	bool fits = message != NULL;

	if (fits)
		protobuf_c_message_init(type->message, message);
	for (uint32_t i = 0; i < type->n_fields && fits; i++)
		fits = field_ops[type->fields[i].kind].pack(&type->fields[i], message, from, convert);
	return fits ? message : NULL;
}

static enum paged_status
wire_parse_message(const struct wire_type *type, const void *message, void *to, struct convert *convert)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < type->n_fields && status == PAGED_OK; i++) {
		convert->message = type->message->short_name;
		status = field_ops[type->fields[i].kind].parse(&type->fields[i], message, to, convert);
	}
	return status;
}

/* WIRE_NUMBER */

static bool
wire_pack_number(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	(void)convert;
	number_copy((uint8_t *)message + field->message_at, field->message_size,
		    (const uint8_t *)from + field->struct_at, field->struct_size);
	return true;
}

static enum paged_status
wire_parse_number(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	if (field->message_size == sizeof(uint32_t) && u32_at(message, field->message_at) > field->max)
		return paged_fail(convert->error, PAGED_ERR_PROTOCOL, "%s.%s is %u; the largest is %u",
				  convert->message, field->name, u32_at(message, field->message_at), field->max);
	number_copy((uint8_t *)to + field->struct_at, field->struct_size, (const uint8_t *)message + field->message_at,
		    field->message_size);
	return PAGED_OK;
}

/* WIRE_TEXT, WIRE_STRING */

static bool
wire_pack_text(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	const void *text = field->kind == WIRE_TEXT ? (const uint8_t *)from + field->struct_at
						    : pointer_at(from, field->struct_at);

	(void)convert;
	if (text != NULL)
		pointer_set(message, field->message_at, text);
	return true;
}

static enum paged_status
wire_parse_text(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	char *text = pointer_at(message, field->message_at);
	size_t length = strlen(text), bad = length;
	enum paged_status status = wire_check_size(field, length, convert);

	if (status != PAGED_OK)
		return status;
	if (field->flags & WIRE_CLEANED)
		text_clean_utf8(text);
	/* Names are written to logs and terminals and sent in messages, so they must be clean. */
	if (!(field->flags & WIRE_RAW))
		bad = text_bad_byte(text);
	if (bad != length)
		return paged_fail(convert->error, PAGED_ERR_PROTOCOL, "%s.%s has %s at byte %zu", convert->message,
				  field->name,
				  (unsigned char)text[bad] < 0x80 ? "a control character" : "no printable UTF-8", bad);
	if (field->kind == WIRE_TEXT)
		memcpy((uint8_t *)to + field->struct_at, text, length + 1);
	else
		pointer_set(to, field->struct_at, text);
	return PAGED_OK;
}

/* WIRE_BYTES, WIRE_DATA */

static bool
is_zero(const uint8_t *bytes, size_t size)
{
	while (size > 0 && *bytes == 0)
		bytes++, size--;
	return size == 0;
}

static bool
wire_pack_bytes(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	const uint8_t *member = (const uint8_t *)from + field->struct_at;
	ProtobufCBinaryData bytes = { field->struct_size, (uint8_t *)member };

	(void)convert;
	if (field->kind == WIRE_DATA)
		bytes = (ProtobufCBinaryData){ u32_at(from, field->struct_n_at), pointer_at(member, 0) };
	else if (field->flags & WIRE_OPTIONAL && is_zero(member, field->struct_size))
		return true;
	memcpy((uint8_t *)message + field->message_at, &bytes, sizeof(bytes));
	return true;
}

static enum paged_status
wire_parse_bytes(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	ProtobufCBinaryData bytes;

	memcpy(&bytes, (const uint8_t *)message + field->message_at, sizeof(bytes));
	if (field->kind == WIRE_DATA) {
		u32_set(to, field->struct_n_at, bytes.len);
		pointer_set(to, field->struct_at, bytes.data);
		return wire_check_size(field, bytes.len, convert);
	}
	if (bytes.len == 0 && field->flags & WIRE_OPTIONAL)
		return PAGED_OK;
	if (bytes.len != field->struct_size)
		return paged_fail(convert->error, PAGED_ERR_PROTOCOL, "%s.%s has %zu bytes; it must have %u",
				  convert->message, field->name, bytes.len, field->struct_size);
	memcpy((uint8_t *)to + field->struct_at, bytes.data, bytes.len);
	return PAGED_OK;
}

/* WIRE_ARRAY */

static bool
wire_pack_array(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	(void)convert;
	list_set(field, message, u32_at(from, field->struct_n_at), (const uint8_t *)from + field->struct_at);
	return true;
}

static enum paged_status
wire_parse_array(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	size_t n = list_size(field, message);
	enum paged_status status = wire_check_count(field, n, convert);

	if (status != PAGED_OK)
		return status;
	u32_set(to, field->struct_n_at, n);
	/* An empty list has no array. */
	if (n > 0)
		memcpy((uint8_t *)to + field->struct_at, pointer_at(message, field->message_at),
		       n * field->message_size);
	return PAGED_OK;
}

/* WIRE_COLUMN */

static bool
wire_pack_column(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	const uint8_t *rows = pointer_at(from, field->struct_at);
	size_t n = rows != NULL ? u32_at(from, field->struct_n_at) : 0, size = field->message_size;
	bool alike = field->flags & WIRE_ALIKE;
	uint8_t *numbers;

	if (field->stride == 0) {
		list_set(field, message, n, rows);
		return true;
	}
	numbers = wire_arena_alloc(convert->arena, n * size);
	if (numbers == NULL)
		return false;
	for (size_t i = 0; i < n; i++) {
		memcpy(numbers + i * size, rows + i * field->stride + field->member_at, size);
		alike = alike && memcmp(numbers + i * size, numbers, size) == 0;
	}
	if (alike && n > 0)
		n = is_zero(numbers, size) ? 0 : 1;
	list_set(field, message, n, numbers);
	return true;
}

static enum paged_status
wire_parse_column(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	const uint8_t *numbers = pointer_at(message, field->message_at);
	bool first = field->flags & WIRE_FIRST, none_fits = field->flags & (WIRE_OPTIONAL | WIRE_ALIKE);
	size_t n = list_size(field, message), n_rows = first ? n : u32_at(to, field->struct_n_at), step;
	enum paged_status status = first ? wire_check_count(field, n, convert) : PAGED_OK;
	uint8_t *rows;

	if (n != n_rows && !(n == 0 && none_fits) && !(n == 1 && field->flags & WIRE_ALIKE))
		status = paged_fail(convert->error, PAGED_ERR_PROTOCOL, "%s.%s has %zu entries for %zu",
				    convert->message, field->name, n, n_rows);
	if (status == PAGED_OK && first && field->stride != 0)
		status = wire_alloc_structs(field, n, field->stride, to, convert);
	if (status != PAGED_OK)
		return status;
	if (field->stride == 0) {
		u32_set(to, field->struct_n_at, n_rows);
		pointer_set(to, field->struct_at, n > 0 ? numbers : NULL);
		return PAGED_OK;
	}
	rows = pointer_at(to, field->struct_at);
	step = n == 1 ? 0 : field->message_size;
	for (size_t i = 0; i < n_rows && n > 0; i++)
		memcpy(rows + i * field->stride + field->member_at, numbers + i * step, field->message_size);
	return PAGED_OK;
}

/* WIRE_STRUCT */

static bool
wire_pack_struct(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	void *inner = wire_pack_message(field->type, (const uint8_t *)from + field->struct_at, convert);

	pointer_set(message, field->message_at, inner);
	return inner != NULL;
}

static enum paged_status
wire_parse_struct(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	const void *inner = pointer_at(message, field->message_at);

	if (inner == NULL)
		return paged_fail(convert->error, PAGED_ERR_PROTOCOL, "%s has no %s", convert->message, field->name);
	return wire_parse_message(field->type, inner, (uint8_t *)to + field->struct_at, convert);
}

/* WIRE_STRUCTS */

static bool
wire_pack_structs(const struct wire_field *field, void *message, const void *from, struct convert *convert)
{
	const uint8_t *structs = pointer_at(from, field->struct_at);
	size_t n = u32_at(from, field->struct_n_at);
	void **messages = wire_arena_alloc(convert->arena, n * sizeof(*messages));

	for (size_t i = 0; i < n && messages != NULL; i++) {
		messages[i] = wire_pack_message(field->type, structs + i * field->type->struct_size, convert);
		if (messages[i] == NULL)
			return false;
	}
	list_set(field, message, n, messages);
	return messages != NULL;
}

static enum paged_status
wire_parse_structs(const struct wire_field *field, const void *message, void *to, struct convert *convert)
{
	void *const *messages = pointer_at(message, field->message_at);
	size_t n = list_size(field, message), size = field->type->struct_size;
	enum paged_status status = wire_check_count(field, n, convert);
	uint8_t *structs;

	if (status == PAGED_OK)
		status = wire_alloc_structs(field, n, size, to, convert);
	structs = pointer_at(to, field->struct_at);
	for (size_t i = 0; i < n && status == PAGED_OK; i++)
		status = wire_parse_message(field->type, messages[i], structs + i * size, convert);
	return status;
}

static const struct field_ops field_ops[WIRE_STRUCTS + 1] = {
	[WIRE_NUMBER] = { wire_pack_number, wire_parse_number },
	[WIRE_TEXT] = { wire_pack_text, wire_parse_text },
	[WIRE_STRING] = { wire_pack_text, wire_parse_text },
	[WIRE_BYTES] = { wire_pack_bytes, wire_parse_bytes },
	[WIRE_DATA] = { wire_pack_bytes, wire_parse_bytes },
	[WIRE_ARRAY] = { wire_pack_array, wire_parse_array },
	[WIRE_COLUMN] = { wire_pack_column, wire_parse_column },
	[WIRE_STRUCT] = { wire_pack_struct, wire_parse_struct },
	[WIRE_STRUCTS] = { wire_pack_structs, wire_parse_structs },
};

/* Messages */

size_t
wire_pack(const struct wire_envelope *envelope, const void *from, struct wire_arena *arena, uint8_t *buffer,
	  size_t buffer_size)
{
	struct convert convert = { .arena = arena };
	uint32_t kind = u32_at(from, envelope->kind_at);
	const struct wire_body *body = &envelope->bodies[kind];
	void *message = wire_pack_message(envelope->type, from, &convert), *inner;

	assert(kind < envelope->n_bodies);
	if (message != NULL && body->number != 0) {
		inner = wire_pack_message(body->type, from, &convert);
		u32_set(message, envelope->case_at, body->number);
		pointer_set(message, envelope->body_at, inner);
		message = inner != NULL ? message : NULL;
	}
	if (message == NULL || protobuf_c_message_get_packed_size(message) > buffer_size)
		return 0;
	return protobuf_c_message_pack(message, buffer);
}

static void
wire_arena_free(void *arena, void *pointer)
{
	/* wire_arena_reset() frees everything at once. */
	(void)arena, (void)pointer;
}

enum paged_status
wire_parse(const struct wire_envelope *envelope, const uint8_t *bytes, size_t size, struct wire_arena *arena, void *to,
	   struct paged_error *error)
{
	struct convert convert = { .arena = arena, .error = error };
	ProtobufCAllocator allocator = { wire_arena_alloc, wire_arena_free, arena };
	const ProtobufCMessageDescriptor *type = envelope->type->message;
	const void *message = NULL;
	enum paged_status status;
	uint32_t number, kind = 0;

	memset(to, 0, envelope->type->struct_size);
	if (size <= WIRE_MAX_MESSAGE)
		message = protobuf_c_message_unpack(type, &allocator, size, bytes);
	if (message == NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%zu bytes are no %s", size, type->name);
	status = wire_parse_message(envelope->type, message, to, &convert);
	if (status != PAGED_OK)
		return status;
	number = u32_at(message, envelope->case_at);
	while (kind < envelope->n_bodies && (number == 0 || envelope->bodies[kind].number != number))
		kind++;
	if (kind == envelope->n_bodies)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "a %s of a kind that version %u.%u lacks",
				  type->short_name, WIRE_VERSION_MAJOR, WIRE_VERSION_MINOR);
	u32_set(to, envelope->kind_at, kind);
	return wire_parse_message(envelope->bodies[kind].type, pointer_at(message, envelope->body_at), to, &convert);
}
