/* SPDX-License-Identifier: Apache-2.0 */
/**
 * toy.h - a worker without a model: a small pool, and K, V and q from a hash
 *
 * For the it_* programs.  Whatever fails in here ends the test.
 */
#ifndef TESTS_TOY_H
#define TESTS_TOY_H

#include "client/pagedclient.h"
#include "tests/harness.h"

#define TOY_LAYERS 2u
#define TOY_KV_HEADS 2u
#define TOY_HEADS 4u
#define TOY_DIM 32u
#define TOY_PAGE_SIZE 4u /* tokens */
#define TOY_PAGES 64u
#define TOY_SLOTS 32u
#define TOY_MAX_LENGTH 128u /* tokens */

/** Numbers that one query row's attention gives. */
#define TOY_OUT (TOY_HEADS * TOY_DIM)

/** What pagedd.conf says of pool "toy". */
extern const char toy_configuration[];

struct toy {
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
};

/** Holds a call on the toy's client to the status that it shall give. */
#define toy_expect(toy, call, wanted)                                                                    \
	do {                                                                                             \
		enum paged_status toy_status = (call);                                                   \
		it_require(toy_status == (wanted), "%s is %s: %s", #call, paged_status_name(toy_status), \
			   paged_client_error((toy)->client));                                           \
	} while (0)
#define toy_ok(toy, call) toy_expect(toy, call, PAGED_OK)

/** toy_params - defaults, and a name */
struct paged_client_params toy_params(const char *name);

/** toy_attach - the client alone; params NULL: defaults */
void toy_attach(struct toy *toy, const struct paged_client_params *params);

/** toy_open - client, pool "toy" and a batch */
void toy_open(struct toy *toy, const struct paged_client_params *params, uint32_t reserve_ahead);

/** toy_observe - a client that only looks */
void toy_observe(struct toy *toy);

void toy_close(struct toy *toy);

/** toy_sequence - a sequence that may hold so many tokens */
paged_seq_id toy_sequence(struct toy *toy, uint32_t n_tokens);

/** toy_plan - one row: tokens [from, to) are this step's */
enum paged_status toy_plan(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint32_t flags);

/** toy_append - K and V of tokens [from, to) of the planned row, which the seed decides */
enum paged_status toy_append(struct toy *toy, uint32_t layer, uint32_t from, uint32_t to, uint64_t seed);

/** toy_write - plan and append all layers */
void toy_write(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint64_t seed);

/** toy_attend - attention of the planned row's q_len queries; out: [q_len][TOY_OUT] */
void toy_attend(struct toy *toy, uint32_t layer, uint32_t q_len, float *out);

/** toy_read - plan a read of all kv_len tokens by one query, attend in every layer; out: [TOY_LAYERS][TOY_OUT] */
void toy_read(struct toy *toy, paged_seq_id seq, uint32_t kv_len, float *out);

/** toy_pool - the pool's entry as the daemon tells it */
struct paged_pool_entry toy_pool(struct toy *toy, const char *name);

/** toy_wait_free - every page is free and no session is left; the test fails after limit_ms */
void toy_wait_free(struct toy *observer, const char *pool, unsigned int limit_ms);

/** toy_check - the daemon's recount and the region's own (of an observer with an open pool) both hold */
void toy_check(struct toy *toy);

#endif
