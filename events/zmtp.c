/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/zmtp.h"

#include <string.h>

/* The greeting: a signature of 10 bytes, the version, the mechanism, "as server", zeros. */
enum { SIGNATURE_END = 9, VERSION_MAJOR = 10, MECHANISM = 12, MECHANISM_SIZE = 20 };
static const uint8_t mechanism_null[MECHANISM_SIZE] = "NULL";

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4, FLAGS_KNOWN = 7 };

/* Of PING: how long its sender waits for an answer, in tenths of a second. */
#define PING_TTL_SIZE 2
#define PING_MAX_CONTEXT 16

static const struct zmtp_item incomplete = { .kind = ZMTP_INCOMPLETE }, invalid = { .kind = ZMTP_INVALID };

struct zmtp_item
zmtp_greeting_read(const uint8_t *bytes, size_t n)
{
	if ((n > 0 && bytes[0] != 0xff) || (n > SIGNATURE_END && (bytes[SIGNATURE_END] & 1) == 0) ||
	    (n > VERSION_MAJOR && bytes[VERSION_MAJOR] < 3))
		return invalid;
	if (n < ZMTP_GREETING_SIZE)
		return incomplete;
	if (memcmp(bytes + MECHANISM, mechanism_null, MECHANISM_SIZE) != 0)
		return invalid;
	return (struct zmtp_item){ .kind = ZMTP_GREETING, .size = ZMTP_GREETING_SIZE };
}

/* The number of bytes of a size, most significant first. */
static uint64_t
size_read(const uint8_t *bytes, size_t n)
{
	uint64_t size = 0;

	for (size_t i = 0; i < n; i++)
		size = size << 8 | bytes[i];
	return size;
}

/* Finds the value of a property of READY: name with its length in 1 byte, value with its length in 4. */
static bool
ready_find(struct zmtp_item *item, const char *wanted)
{
	const uint8_t *at = item->body, *end = item->body + item->body_size;

	while (at < end) {
		size_t name_size = *at++;
		const uint8_t *name = at;
		uint64_t size;

		if ((size_t)(end - at) < name_size + 4)
			return false;
		size = size_read(at + name_size, 4);
		at += name_size + 4;
		if ((uint64_t)(end - at) < size)
			return false;
		if (name_size == strlen(wanted) && memcmp(name, wanted, name_size) == 0) {
			item->body = at;
			item->body_size = (size_t)size;
			return true;
		}
		at += size;
	}
	return false;
}

/* Sets the kind and the body of a command. */
static void
command_read(struct zmtp_item *item)
{
	static const struct {
		const char *name;
		enum zmtp_kind kind;
	} commands[] = { { "READY", ZMTP_READY },
			 { "PING", ZMTP_PING },
			 { "SUBSCRIBE", ZMTP_SUBSCRIBE },
			 { "CANCEL", ZMTP_CANCEL } };
	size_t name_size = item->body_size > 0 ? item->body[0] : 0;

	item->kind = ZMTP_IGNORED;
	if (name_size == 0 || name_size > item->body_size - 1) {
		item->kind = ZMTP_INVALID;
		return;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strlen(commands[i].name) == name_size && memcmp(item->body + 1, commands[i].name, name_size) == 0)
			item->kind = commands[i].kind;
	item->body += 1 + name_size;
	item->body_size -= 1 + name_size;
	if (item->kind == ZMTP_READY && !ready_find(item, "Socket-Type"))
		item->kind = ZMTP_INVALID;
	if (item->kind != ZMTP_PING)
		return;
	if (item->body_size < PING_TTL_SIZE || item->body_size > PING_TTL_SIZE + PING_MAX_CONTEXT) {
		item->kind = ZMTP_INVALID;
		return;
	}
	item->body += PING_TTL_SIZE;
	item->body_size -= PING_TTL_SIZE;
}

struct zmtp_item
zmtp_frame_read(const uint8_t *bytes, size_t n)
{
	struct zmtp_item item = { .kind = ZMTP_FRAME };
	uint64_t size;
	size_t head;

	if (n == 0)
		return incomplete;
	if ((bytes[0] & ~FLAGS_KNOWN) != 0 || (bytes[0] & (FLAG_COMMAND | FLAG_MORE)) == (FLAG_COMMAND | FLAG_MORE))
		return invalid;
	head = (bytes[0] & FLAG_LONG) != 0 ? ZMTP_MAX_HEAD : 2;
	if (n < head)
		return incomplete;
	size = size_read(bytes + 1, head - 1);
	if (size > ZMTP_MAX_BODY)
		return invalid;
	if (n < head + size)
		return incomplete;
	item.more = (bytes[0] & FLAG_MORE) != 0;
	item.size = head + (size_t)size;
	item.body = bytes + head;
	item.body_size = (size_t)size;
	if ((bytes[0] & FLAG_COMMAND) != 0)
		command_read(&item);
	return item;
}

void
zmtp_greeting_write(uint8_t bytes[ZMTP_GREETING_SIZE])
{
	memset(bytes, 0, ZMTP_GREETING_SIZE);
	bytes[0] = 0xff;
	bytes[SIGNATURE_END] = 0x7f;
	bytes[VERSION_MAJOR] = 3;
	memcpy(bytes + MECHANISM, mechanism_null, MECHANISM_SIZE);
}

static uint8_t *
text_write(uint8_t *bytes, const char *text)
{
	size_t n = strlen(text);

	*bytes++ = (uint8_t)n;
	memcpy(bytes, text, n);
	return bytes + n;
}

size_t
zmtp_ready_write(const char *socket_type, uint8_t bytes[ZMTP_MAX_COMMAND])
{
	uint8_t *at = text_write(text_write(bytes + 2, "READY"), "Socket-Type");

	memset(at, 0, 3); /* of a length of 4 bytes */
	at = text_write(at + 3, socket_type);
	bytes[0] = FLAG_COMMAND;
	bytes[1] = (uint8_t)(at - (bytes + 2));
	return (size_t)(at - bytes);
}

size_t
zmtp_pong_write(const struct zmtp_item *ping, uint8_t bytes[ZMTP_MAX_COMMAND])
{
	uint8_t *at = text_write(bytes + 2, "PONG");

	memcpy(at, ping->body, ping->body_size);
	at += ping->body_size;
	bytes[0] = FLAG_COMMAND;
	bytes[1] = (uint8_t)(at - (bytes + 2));
	return (size_t)(at - bytes);
}

size_t
zmtp_frame_size(size_t body_size)
{
	return (body_size > UINT8_MAX ? ZMTP_MAX_HEAD : 2) + body_size;
}

uint8_t *
zmtp_frame_write(uint8_t *bytes, const void *body, size_t body_size, bool more)
{
	uint8_t flags = more ? FLAG_MORE : 0;

	if (body_size > UINT8_MAX) {
		*bytes++ = flags | FLAG_LONG;
		for (int i = 7; i >= 0; i--)
			*bytes++ = (uint8_t)((uint64_t)body_size >> 8 * i);
	} else {
		*bytes++ = flags;
		*bytes++ = (uint8_t)body_size;
	}
	if (body_size > 0)
		memcpy(bytes, body, body_size);
	return bytes + body_size;
}
