/* SPDX-License-Identifier: Apache-2.0 */
/* ZMTP: what peers send, byte by byte, and what they must not send. */
#include <criterion/criterion.h>
#include <string.h>

#include "events/zmtp.h"

/* An item is incomplete up to its last byte. */
static struct zmtp_item
frame_read_whole(const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(zmtp_frame_read(bytes, i).kind, ZMTP_INCOMPLETE, "%zu of %zu bytes", i, n);
	return zmtp_frame_read(bytes, n);
}

static void
expect_item(const struct zmtp_item *item, enum zmtp_kind kind, size_t size, const char *body)
{
	cr_assert_eq(item->kind, kind);
	cr_assert_eq(item->size, size);
	cr_assert_eq(item->body_size, strlen(body));
	cr_assert_eq(memcmp(item->body, body, strlen(body)), 0);
}

Test(zmtp, greeting)
{
	uint8_t bytes[ZMTP_GREETING_SIZE];
	static const size_t places[] = { 0, 9, 10, 12, 16 };

	zmtp_greeting_write(bytes);
	for (size_t i = 0; i < sizeof(bytes); i++)
		cr_assert_eq(zmtp_greeting_read(bytes, i).kind, ZMTP_INCOMPLETE);
	cr_assert_eq(zmtp_greeting_read(bytes, sizeof(bytes)).kind, ZMTP_GREETING);
	bytes[11] = 1; /* 3.1 */
	cr_assert_eq(zmtp_greeting_read(bytes, sizeof(bytes)).size, ZMTP_GREETING_SIZE);
	for (size_t i = 0; i < 5; i++) {
		zmtp_greeting_write(bytes);
		bytes[places[i]] = 2;
		cr_assert_eq(zmtp_greeting_read(bytes, sizeof(bytes)).kind, ZMTP_INVALID);
	}
	/* The first byte decides. */
	cr_assert_eq(zmtp_greeting_read((const uint8_t *)"G", 1).kind, ZMTP_INVALID);
}

Test(zmtp, frames)
{
	uint8_t body[ZMTP_MAX_BODY + 1] = { 7 }, bytes[ZMTP_MAX_HEAD + sizeof(body)];
	static const size_t sizes[] = { 0, 1, 255, 256, ZMTP_MAX_BODY };
	struct zmtp_item item;

	for (size_t i = 0; i < 10; i++) {
		size_t size = sizes[i / 2], n = (size_t)(zmtp_frame_write(bytes, body, size, i % 2 != 0) - bytes);

		cr_assert_eq(n, zmtp_frame_size(size));
		item = frame_read_whole(bytes, n);
		cr_assert_eq(item.kind, ZMTP_FRAME);
		cr_assert_eq(item.more, i % 2 != 0);
		cr_assert_eq(item.size, n);
		cr_assert_eq(item.body_size, size);
		cr_assert_eq(memcmp(item.body, body, size), 0);
	}
	/* Known by the size alone. */
	zmtp_frame_write(bytes, body, ZMTP_MAX_BODY + 1, false);
	cr_assert_eq(zmtp_frame_read(bytes, ZMTP_MAX_HEAD).kind, ZMTP_INVALID);
	for (unsigned int flags = 8; flags < 256; flags++)
		cr_assert_eq(zmtp_frame_read((const uint8_t[]){ (uint8_t)flags }, 1).kind, ZMTP_INVALID);
	/* A command is one frame. */
	cr_assert_eq(zmtp_frame_read((const uint8_t *)"\5", 1).kind, ZMTP_INVALID);
}

static struct zmtp_item
command_read(const char *bytes, size_t n)
{
	return frame_read_whole(bytes, n);
}

Test(zmtp, commands)
{
	static const char ready[] = "\4\47\5READY\10Identity\0\0\0\1x\13Socket-Type\0\0\0\3SUB";
	struct zmtp_item item = command_read(ready, sizeof(ready) - 1);
	uint8_t bytes[ZMTP_MAX_COMMAND];
	size_t n;

	cr_assert_eq(ready[1], sizeof(ready) - 3);
	expect_item(&item, ZMTP_READY, sizeof(ready) - 1, "SUB");
	n = zmtp_ready_write("ROUTER", bytes);
	item = frame_read_whole(bytes, n);
	expect_item(&item, ZMTP_READY, n, "ROUTER");
	item = command_read("\4\14\11SUBSCRIBEab", 14);
	expect_item(&item, ZMTP_SUBSCRIBE, 14, "ab");
	item = command_read("\4\7\6CANCEL", 9);
	expect_item(&item, ZMTP_CANCEL, 9, "");
	item = command_read("\4\5\4PONG", 7);
	expect_item(&item, ZMTP_IGNORED, 7, "");
	item = command_read("\4\12\4PING\0\5abc", 12);
	expect_item(&item, ZMTP_PING, 12, "abc");
	n = zmtp_pong_write(&item, bytes);
	cr_assert_eq(n, 10);
	cr_assert_eq(memcmp(bytes, "\4\10\4PONGabc", 10), 0);
}

Test(zmtp, malformed_commands)
{
	static const struct {
		const char *bytes;
		size_t n;
	} malformed[] = {
		{ "\4\0", 2 },                                  /* no name */
		{ "\4\1\0", 3 },                                /* an empty one */
		{ "\4\3\5RE", 5 },                              /* longer than the command */
		{ "\4\6\5READY", 8 },                           /* no socket type */
		{ "\4\12\5READY\13Soc", 12 },                   /* a property without an end */
		{ "\4\26\5READY\13Socket-Type\0\0\0\377", 24 }, /* a value without an end */
		{ "\4\6\4PING\0", 8 },                          /* no time to live */
		{ "\4\30\4PING\0\0abcdefghijklmnopq", 26 },     /* a context of 17 bytes */
	};

	for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
		cr_assert_eq((size_t)malformed[i].bytes[1] + 2, malformed[i].n, "case %zu", i);
		cr_assert_eq(zmtp_frame_read((const uint8_t *)malformed[i].bytes, malformed[i].n).kind, ZMTP_INVALID,
			     "case %zu", i);
	}
}
