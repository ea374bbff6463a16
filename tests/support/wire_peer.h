/* SPDX-License-Identifier: Apache-2.0 */
/**
 * wire_peer.h - direct access to the daemon's two channels, for messages that the library never sends
 *
 * Any failure fails the test, unless a function's description says otherwise.
 * All waiting is bounded.
 */
#ifndef TESTS_RAW_H
#define TESTS_RAW_H

#include "proto/wire.h"
#include "tests/support/harness.h"

struct raw {
	int control;
	void *context, *dealer;
	struct wire_control_reply welcome;
	uint64_t last_id;
};

/** raw_connect - connect to the control socket of the daemon that the test started; returns the descriptor */
int raw_connect(void);

/** raw_tell, raw_tell_request - send one control message, raw or packed from a request; ignores failure to send */
void raw_tell(int fd, const void *message, size_t size);
void raw_tell_request(int fd, const struct wire_control_request *request);

/**
 * raw_hear - receive the next control reply; false: the daemon closed the connection
 *
 * @param[out] fds  the WIRE_N_POOL_FDS descriptors of a grant; NULL: they are closed at once
 */
bool raw_hear(int fd, struct wire_control_reply *reply, int *fds);

/** raw_expect_refusal - the next reply has this status and a message that contains `part`; then the daemon hangs up */
void raw_expect_refusal(int fd, enum paged_status status, const char *part);

/** raw_hello - send a hello and receive its reply */
void raw_hello(int fd, enum wire_role role, const uint8_t *join_token, struct wire_control_reply *reply);

/** raw_attach - attach on both channels */
void raw_attach(struct raw *raw, enum wire_role role, const uint8_t *join_token);

/** raw_dial - connect a DEALER with these credentials; raw_attach() calls it with the right ones */
void raw_dial(struct raw *raw, uint32_t member, const uint8_t token[WIRE_TOKEN_SIZE]);

/** raw_bye - send a goodbye, receive the daemon's reply, close both channels */
void raw_bye(struct raw *raw);

/** raw_drop - close both channels without a goodbye */
void raw_drop(struct raw *raw);

/** raw_ask - send a request and receive its reply; false: no reply within limit_ms */
bool raw_ask(struct raw *raw, struct wire_request *request, struct wire_reply *reply, int limit_ms);

/** raw_send - send a request with the id that it has; waits until it can be queued, but not for the reply */
void raw_send(struct raw *raw, const struct wire_request *request);

/** raw_hear_late - receive the next reply, whichever request it answers */
void raw_hear_late(struct raw *raw, struct wire_reply *reply);

/** raw_call - raw_ask() that fails the test without a reply; returns the reply's status */
enum paged_status raw_call(struct raw *raw, struct wire_request *request, struct wire_reply *reply);

/** raw_create - a request to create n sequences in a pool; valid until the next raw_create() */
struct wire_request raw_create(uint32_t pool, uint32_t n, uint32_t n_tokens);

/** raw_reserve - create a sequence of n_tokens tokens in the first pool; returns its id */
paged_seq_id raw_reserve(struct raw *raw, uint32_t n_tokens);

/** raw_pool - the page accounting of the first pool, read by a separate observer */
struct paged_pool_entry raw_pool(void);

/** raw_wait_free - whether the first pool has n_free free pages within limit_ms */
bool raw_wait_free(uint32_t n_free, unsigned int limit_ms);

#endif
