/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers of paged-events send: a greeting and frames, read as a connection reads them.  Each item must take some
 * of the bytes, and its body must be among them.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "events/zmtp.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "zmtp";
const unsigned int fuzz_mutations = 2000;

static volatile unsigned int sum;

static void
item_check(const struct zmtp_item *item, const uint8_t *bytes, size_t n)
{
	if (item->kind == ZMTP_INCOMPLETE || item->kind == ZMTP_INVALID) {
		if (item->kind == ZMTP_INCOMPLETE && n >= ZMTP_MAX_HEAD + ZMTP_MAX_BODY)
			abort();
		return;
	}
	if (item->size == 0 || item->size > n || item->body_size > ZMTP_MAX_BODY)
		abort();
	if (item->body_size > 0 && (item->body < bytes || item->body + item->body_size > bytes + item->size))
		abort();
	for (size_t i = 0; i < item->body_size; i++)
		sum += item->body[i];
	if (item->kind == ZMTP_PING) {
		uint8_t pong[ZMTP_MAX_COMMAND];

		if (zmtp_pong_write(item, pong) > sizeof(pong))
			abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zmtp_item item = zmtp_greeting_read(data, size);
	/* Exactly as large, so that sanitizers see what is read past the end. */
	uint8_t *bytes;
	size_t at = 0;

	item_check(&item, data, size);
	if (item.kind == ZMTP_GREETING)
		at = item.size;
	bytes = malloc(size - at + 1);
	if (bytes == NULL)
		abort();
	memcpy(bytes, data + at, size - at);
	size -= at;
	for (at = 0; at < size; at += item.size) {
		item = zmtp_frame_read(bytes + at, size - at);
		item_check(&item, bytes + at, size - at);
		if (item.kind == ZMTP_INCOMPLETE || item.kind == ZMTP_INVALID)
			break;
	}
	free(bytes);
	return 0;
}

/* Seeds: what a subscriber sends, and one who asks for a replay. */
size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	static const char subscriber[] = "\0\1\1\0\3\1kv\4\14\11SUBSCRIBEkv\4\10\6CANCELk\4\12\4PING\0\5abc";
	static const char request[] = "\1\0\0\10\0\0\0\0\0\0\0\7\2\0\0\0\0\0\0\0\1x";
	uint8_t *at = buffer + ZMTP_GREETING_SIZE;

	if (index > 1 || buffer_size < 256)
		return 0;
	zmtp_greeting_write(buffer);
	at += zmtp_ready_write(index == 0 ? "SUB" : "DEALER", at);
	memcpy(at, index == 0 ? subscriber : request, index == 0 ? sizeof(subscriber) - 1 : sizeof(request) - 1);
	at += index == 0 ? sizeof(subscriber) - 1 : sizeof(request) - 1;
	return (size_t)(at - buffer);
}
