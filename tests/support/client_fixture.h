/* SPDX-License-Identifier: Apache-2.0 */
/**
 * client_fixture.h - an embedded client with one small pool, for unit tests of the library
 *
 * A test that needs another geometry opens its own client, or another pool.
 */
#ifndef TESTS_CLIENT_FIXTURE_H
#define TESTS_CLIENT_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "client/pagedclient.h"

/** The geometry of the pool "small", in float32; it has 2 layers and 8 sequences. */
#define FIXTURE_N_PAGES 16u
#define FIXTURE_PAGE_SIZE 4u
#define FIXTURE_MAX_LENGTH 40u
#define FIXTURE_KV_HEADS 2u
#define FIXTURE_DIM 8u

extern const struct paged_pool_params fixture_pool_params;

/** The client and the pool of the running test. */
extern struct paged_client *client;
extern struct paged_pool *pool;

void client_fixture_setup(void);
void client_fixture_teardown(void);

/** fixture_create_seq - create a sequence with a capacity of at least n_tokens */
paged_seq_id fixture_create_seq(uint32_t n_tokens);
uint32_t fixture_seq_capacity(paged_seq_id id);
/** fixture_create_batch - create a batch of the pool; closing the client destroys it */
struct paged_batch *fixture_create_batch(uint32_t max_rows, uint32_t reserve_ahead);

/** expect_error - the call fails with this status, and paged_client_error() is exactly this formatted text */
#define expect_error(call, status, ...)                                                                    \
	do {                                                                                               \
		char expected_[256];                                                                       \
		enum paged_status got_ = (call);                                                           \
		snprintf(expected_, sizeof(expected_), __VA_ARGS__);                                       \
		cr_assert_eq(got_, status, "%s: %s", paged_status_name(got_), paged_client_error(client)); \
		cr_assert_str_eq(paged_client_error(client), expected_);                                   \
	} while (0)

/** expect_ok - the call succeeds */
#define expect_ok(call)                                                                                      \
	do {                                                                                                 \
		enum paged_status got_ = (call);                                                             \
		cr_assert_eq(got_, PAGED_OK, "%s: %s", paged_status_name(got_), paged_client_error(client)); \
	} while (0)

/** A sequence in error text, as "slot.generation"; SEQ_ARGS are the arguments of SEQ_FORMAT. */
#define SEQ_FORMAT "%u.%u"
#define SEQ_ARGS(id) PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id)

#endif
