/* SPDX-License-Identifier: Apache-2.0 */
/**
 * worker_fixture.h - a worker fixture without a model: a small pool, and K, V and q computed by a hash
 *
 * For the it_* programs.  Any failure in these functions ends the test.
 */
#ifndef TESTS_TOY_H
#define TESTS_TOY_H

#include "client/pagedclient.h"
#include "tests/support/harness.h"

#define TOY_LAYERS 2u
#define TOY_KV_HEADS 2u
#define TOY_HEADS 4u
#define TOY_DIM 32u
#define TOY_PAGE_SIZE 4u /* tokens */
#define TOY_PAGES 64u
#define TOY_SLOTS 32u
#define TOY_MAX_LENGTH 128u /* tokens */

/** Elements of the attention output of one query row. */
#define TOY_OUT (TOY_HEADS * TOY_DIM)

/** The section of pagedd.conf about pool "toy". */
extern const char toy_configuration[];

struct toy {
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
};

/** Fails the test unless a call on the fixture's client returns the wanted status. */
#define toy_expect(toy, call, wanted)                                                                    \
	do {                                                                                             \
		enum paged_status toy_status = (call);                                                   \
		it_require(toy_status == (wanted), "%s is %s: %s", #call, paged_status_name(toy_status), \
			   paged_client_error((toy)->client));                                           \
	} while (0)
#define toy_ok(toy, call) toy_expect(toy, call, PAGED_OK)

/** toy_params - client parameters: defaults and this name */
struct paged_client_params toy_params(const char *name);

/** toy_attach - open the client only; params NULL: defaults */
void toy_attach(struct toy *toy, const struct paged_client_params *params);

/** toy_open - open a client, its pool "toy" and a batch */
void toy_open(struct toy *toy, const struct paged_client_params *params, uint32_t reserve_ahead);

/** toy_observe - open a client with the observer role */
void toy_observe(struct toy *toy);

void toy_close(struct toy *toy);

/** toy_sequence - create a sequence with room for n_tokens tokens */
paged_seq_id toy_sequence(struct toy *toy, uint32_t n_tokens);

/** toy_plan - plan one row: tokens [from, to) are this step's query rows */
enum paged_status toy_plan(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint32_t flags);

/** toy_append - append K and V of tokens [from, to) of the planned row; the seed determines them */
enum paged_status toy_append(struct toy *toy, uint32_t layer, uint32_t from, uint32_t to, uint64_t seed);

/** toy_write - plan and append all layers */
void toy_write(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint64_t seed);

/** toy_attend - run attention for the planned row's q_len queries; out: [q_len][TOY_OUT] */
void toy_attend(struct toy *toy, uint32_t layer, uint32_t q_len, float *out);

/** toy_read - plan a read of all kv_len tokens by one query, attend in every layer; out: [TOY_LAYERS][TOY_OUT] */
void toy_read(struct toy *toy, paged_seq_id seq, uint32_t kv_len, float *out);

/** toy_pool - the pool's entry as reported by the daemon */
struct paged_pool_entry toy_pool(struct toy *toy, const char *name);

/** toy_wait_free - wait until every page is free and no session is left; the test fails after limit_ms */
void toy_wait_free(struct toy *observer, const char *pool, unsigned int limit_ms);

/** toy_check - the daemon's consistency check and, for an observer with an open pool, the region's check both pass */
void toy_check(struct toy *toy);

#endif
