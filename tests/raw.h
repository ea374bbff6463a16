/* SPDX-License-Identifier: Apache-2.0 */
/**
 * raw.h - the daemon's two channels by hand, for tests of what no library would send
 *
 * Whatever cannot be done fails the test; waiting is bounded.
 */
#ifndef TESTS_RAW_H
#define TESTS_RAW_H

#include "proto/wire.h"
#include "tests/harness.h"

struct raw {
	int control;
	void *context, *dealer;
	struct wire_control_reply welcome;
	uint64_t last_id;
};

/** raw_connect - the control socket of the daemon that the test started */
int raw_connect(void);

/** raw_tell - one datagram; raw_tell_request packs it first.  Failure to send is left to be heard. */
void raw_tell(int fd, const void *message, size_t size);
void raw_tell_request(int fd, const struct wire_control_request *request);

/**
 * raw_hear - the next reply; false: the daemon hung up
 *
 * @param[out] fds  WIRE_N_POOL_FDS descriptors of a grant, or NULL: closed at once
 */
bool raw_hear(int fd, struct wire_control_reply *reply, int *fds);

/** raw_expect_refusal - with a status and a part of the sentence, and then the end of the connection */
void raw_expect_refusal(int fd, enum paged_status status, const char *part);

/** raw_hello - hello and its answer */
void raw_hello(int fd, enum wire_role role, const uint8_t *join_token, struct wire_control_reply *reply);

/** raw_attach - both channels */
void raw_attach(struct raw *raw, enum wire_role role, const uint8_t *join_token);

/** raw_dial - a DEALER with these credentials; raw_attach() does it with the right ones */
void raw_dial(struct raw *raw, uint32_t member, const uint8_t token[WIRE_TOKEN_SIZE]);

/** raw_bye - goodbye, farewell, and the end */
void raw_bye(struct raw *raw);

/** raw_drop - close everything without a word */
void raw_drop(struct raw *raw);

/** raw_ask - a request and its reply; false: none within limit_ms */
bool raw_ask(struct raw *raw, struct wire_request *request, struct wire_reply *reply, int limit_ms);

/** raw_send - a request with the id that it has; waits for room, not for the reply */
void raw_send(struct raw *raw, const struct wire_request *request);

/** raw_hear_late - the next reply, to whatever it is */
void raw_hear_late(struct raw *raw, struct wire_reply *reply);

/** raw_call - raw_ask() that must be answered; returns the reply's status */
enum paged_status raw_call(struct raw *raw, struct wire_request *request, struct wire_reply *reply);

/** raw_create - a request for n sequences of a pool; valid until the next one */
struct wire_request raw_create(uint32_t pool, uint32_t n, uint32_t n_tokens);

/** raw_reserve - a sequence of n tokens in the first pool; returns its id */
paged_seq_id raw_reserve(struct raw *raw, uint32_t n_tokens);

/** raw_pool - the first pool's books, as an own observer sees them */
struct paged_pool_entry raw_pool(void);

/** raw_wait_free - the first pool has so many free pages within limit_ms */
bool raw_wait_free(uint32_t n_free, unsigned int limit_ms);

#endif
