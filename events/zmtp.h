/* SPDX-License-Identifier: Apache-2.0 */
/**
 * zmtp.h - the wire format of ZeroMQ: ZMTP 3.0 with the mechanism NULL (ZeroMQ's RFC 23)
 *
 * paged-events speaks ZMTP itself, because strangers may reach its sockets: libzmq 4.3.4 never frees some of what a
 * connection without a greeting has cost, and keeps every topic that a peer subscribes to.
 *
 * A peer sends a greeting, then the command READY, then frames.  ZMTP 3.1 differs by two commands that say what
 * messages of subscribers say in 3.0; both forms are read.
 *
 * No memory, no I/O, no state: the caller keeps the bytes.
 */
#ifndef PAGED_EVENTS_ZMTP_H
#define PAGED_EVENTS_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZMTP_GREETING_SIZE 64
/** Largest body of a frame that a peer may send: READY, subscriptions, requests for a replay. */
#define ZMTP_MAX_BODY 1024
/** Flags, and a size of 8 bytes. */
#define ZMTP_MAX_HEAD 9
/** Largest command that is sent. */
#define ZMTP_MAX_COMMAND 64

/** What the next bytes of a peer are. */
enum zmtp_kind {
	ZMTP_INCOMPLETE, /* more bytes are needed */
	ZMTP_INVALID,    /* no ZMTP 3, another mechanism than NULL, or a frame that is too long */
	ZMTP_GREETING,
	ZMTP_READY,     /* body: the peer's socket type */
	ZMTP_PING,      /* body: what PONG repeats */
	ZMTP_SUBSCRIBE, /* body: the topic */
	ZMTP_CANCEL,    /* body: the topic */
	ZMTP_IGNORED,   /* another command */
	ZMTP_FRAME,     /* of a message */
};

struct zmtp_item {
	enum zmtp_kind kind;
	size_t size;         /* bytes that the item takes; 0 of ZMTP_INCOMPLETE and ZMTP_INVALID */
	const uint8_t *body; /* in the caller's bytes */
	size_t body_size;
	bool more; /* ZMTP_FRAME: the message has further frames */
};

/** zmtp_greeting_read - what the first bytes of a connection are; decides as early as it can */
struct zmtp_item zmtp_greeting_read(const uint8_t *bytes, size_t n);

/** zmtp_frame_read - what the bytes after a greeting, or after another item, are */
struct zmtp_item zmtp_frame_read(const uint8_t *bytes, size_t n);

/** zmtp_greeting_write - the greeting of this side */
void zmtp_greeting_write(uint8_t bytes[ZMTP_GREETING_SIZE]);

/** zmtp_ready_write - READY of a socket of this type; returns its size */
size_t zmtp_ready_write(const char *socket_type, uint8_t bytes[ZMTP_MAX_COMMAND]);

/** zmtp_pong_write - the reply to a ZMTP_PING; returns its size */
size_t zmtp_pong_write(const struct zmtp_item *ping, uint8_t bytes[ZMTP_MAX_COMMAND]);

/** zmtp_frame_size - bytes of a frame with a body of this size */
size_t zmtp_frame_size(size_t body_size);

/** zmtp_frame_write - a frame of a message; returns the byte after it */
uint8_t *zmtp_frame_write(uint8_t *bytes, const void *body, size_t body_size, bool more);

#endif
