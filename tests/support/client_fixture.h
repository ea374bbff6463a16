/* SPDX-License-Identifier: Apache-2.0 */
/**
 * client_fixture.h - an embedded client with one small pool, for unit tests of the library
 */
#ifndef TESTS_CLIENT_FIXTURE_H
#define TESTS_CLIENT_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "client/pagedclient.h"

#define N_PAGES 16u
#define PAGE_SIZE 4u
#define MAX_LENGTH 40u
#define HEADS 2u
#define DIM 8u

extern const struct paged_pool_params small_pool;
extern struct paged_client *client;
extern struct paged_pool *pool;

void client_setup(void);
void client_teardown(void);

paged_seq_id sequence_of(uint32_t n_tokens);
uint32_t capacity_of(paged_seq_id id);
struct paged_batch *batch_of(uint32_t max_rows, uint32_t reserve_ahead);

/* The call fails with this status, and paged_client_error() is exactly this formatted text. */
#define refused(call, status, ...)                                                                         \
	do {                                                                                               \
		char wanted_[256];                                                                         \
		enum paged_status got_ = (call);                                                           \
		snprintf(wanted_, sizeof(wanted_), __VA_ARGS__);                                           \
		cr_assert_eq(got_, status, "%s: %s", paged_status_name(got_), paged_client_error(client)); \
		cr_assert_str_eq(paged_client_error(client), wanted_);                                     \
	} while (0)

#define done(call)                                                                                           \
	do {                                                                                                 \
		enum paged_status got_ = (call);                                                             \
		cr_assert_eq(got_, PAGED_OK, "%s: %s", paged_status_name(got_), paged_client_error(client)); \
	} while (0)

#define SEQ "%u.%u"
#define ARGS(id) PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id)

#endif
