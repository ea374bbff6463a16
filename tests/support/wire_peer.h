/* SPDX-License-Identifier: Apache-2.0 */
/**
 * wire_peer.h - direct access to the daemon's two channels, for messages that the library never sends
 *
 * Any failure fails the test, unless a function's description says otherwise.
 * All waiting is bounded.
 */
#ifndef TESTS_WIRE_PEER_H
#define TESTS_WIRE_PEER_H

#include "proto/wire.h"
#include "tests/support/harness.h"

struct wire_peer {
	int control;
	void *context, *dealer;
	struct wire_control_reply welcome;
	uint64_t last_id;
};

/**
 * wire_peer_connect_control - connect to the control socket of the daemon that
 * the test started; returns the descriptor
 */
int wire_peer_connect_control(void);

/** wire_peer_send_bytes, wire_peer_send_control - send one control message, raw or packed from a request; ignores
 * failure to send */
void wire_peer_send_bytes(int fd, const void *message, size_t size);
void wire_peer_send_control(int fd, const struct wire_control_request *request);

/**
 * wire_peer_receive_control - receive the next control reply; false: the daemon closed the connection
 *
 * @param[out] fds  the WIRE_N_POOL_FDS descriptors of a grant; NULL: they are closed at once
 */
bool wire_peer_receive_control(int fd, struct wire_control_reply *reply, int *fds);

/**
 * wire_peer_expect_refusal - the next reply has this status and a message that
 * contains `part`; then the daemon hangs up
 */
void wire_peer_expect_refusal(int fd, enum paged_status status, const char *part);

/** wire_peer_hello - send a hello and receive its reply */
void wire_peer_hello(int fd, enum wire_role role, const uint8_t *join_token, struct wire_control_reply *reply);

/** wire_peer_attach - attach on both channels */
void wire_peer_attach(struct wire_peer *peer, enum wire_role role, const uint8_t *join_token);

/**
 * wire_peer_connect_dealer - connect a DEALER with these credentials; wire_peer_attach() calls it with the right ones
 */
void wire_peer_connect_dealer(struct wire_peer *peer, uint32_t member, const uint8_t token[WIRE_TOKEN_SIZE]);

/** wire_peer_bye - send a goodbye, receive the daemon's reply, close both channels */
void wire_peer_bye(struct wire_peer *peer);

/** wire_peer_close - close both channels without a goodbye */
void wire_peer_close(struct wire_peer *peer);

/** wire_peer_try_call - send a request and receive its reply; false: no reply within limit_ms */
bool wire_peer_try_call(struct wire_peer *peer, struct wire_request *request, struct wire_reply *reply, int limit_ms);

/** wire_peer_send - send a request with the id that it has; waits until it can be queued, but not for the reply */
void wire_peer_send(struct wire_peer *peer, const struct wire_request *request);

/** wire_peer_receive - receive the next reply, whichever request it answers */
void wire_peer_receive(struct wire_peer *peer, struct wire_reply *reply);

/** wire_peer_call - wire_peer_try_call() that fails the test without a reply; returns the reply's status */
enum paged_status wire_peer_call(struct wire_peer *peer, struct wire_request *request, struct wire_reply *reply);

/**
 * wire_peer_create_request - a request to create n sequences in a pool; valid until the next
 * wire_peer_create_request()
 */
struct wire_request wire_peer_create_request(uint32_t pool, uint32_t n, uint32_t n_tokens);

/** wire_peer_create_seq - create a sequence of n_tokens tokens in the first pool; returns its id */
paged_seq_id wire_peer_create_seq(struct wire_peer *peer, uint32_t n_tokens);

/** wire_peer_pool_entry - the page accounting of the first pool, read by a separate observer */
struct paged_pool_entry wire_peer_pool_entry(void);

/** wire_peer_wait_free - whether the first pool has n_free free pages within IT_LIMIT_MS */
bool wire_peer_wait_free(uint32_t n_free);

#endif
