/* SPDX-License-Identifier: Apache-2.0 */
/**
 * worker_fixture.h - a worker fixture without a model: a small pool, and K, V and q computed by a hash
 *
 * For the it_* programs.  Any failure in these functions ends the test.
 */
#ifndef TESTS_WORKER_FIXTURE_H
#define TESTS_WORKER_FIXTURE_H

#include "client/pagedclient.h"
#include "tests/support/geometry.h"
#include "tests/support/harness.h"
#include "tests/support/worker_device.h"

/** Elements of the attention output of one query row. */
#define WORKER_OUT (WORKER_HEADS * WORKER_DIM)

/** The section of pagedd.conf about pool "test". */
extern const char worker_pool_config[];

struct worker_fixture {
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
	struct worker_device device;
};

/** Fails the test unless a call on the fixture's client returns the wanted status. */
#define worker_expect(worker, call, wanted)                                                                      \
	do {                                                                                                     \
		enum paged_status worker_status_ = (call);                                                       \
		it_require(worker_status_ == (wanted), "%s is %s: %s", #call, paged_status_name(worker_status_), \
			   paged_client_error((worker)->client));                                                \
	} while (0)
#define worker_ok(worker, call) worker_expect(worker, call, PAGED_OK)

/** worker_params - client parameters: defaults and this name */
struct paged_client_params worker_params(const char *name);

/** worker_attach - open the client only; params NULL: defaults */
void worker_attach(struct worker_fixture *worker, const struct paged_client_params *params);

/** worker_open - open a client, its pool "test" and a batch */
void worker_open(struct worker_fixture *worker, const struct paged_client_params *params, uint32_t reserve_ahead);

/** worker_observe - open a client with the observer role, which maps no pages: a child may use a GPU */
void worker_observe(struct worker_fixture *worker);

void worker_close(struct worker_fixture *worker);

/** worker_set_timeout - how long the next calls of an attached client wait for the daemon, in milliseconds */
void worker_set_timeout(struct worker_fixture *worker, uint32_t timeout_ms);

/** worker_create_seq - create a sequence with room for n_tokens tokens */
paged_seq_id worker_create_seq(struct worker_fixture *worker, uint32_t n_tokens);

/** worker_plan - plan one row: tokens [from, to) are this step's query rows */
enum paged_status worker_plan(struct worker_fixture *worker, paged_seq_id seq, uint32_t from, uint32_t to,
			      uint32_t flags);

/**
 * worker_tensor - data as a packed tensor [n_tokens][n_heads][WORKER_DIM] for one call on the fixture's batch
 *
 * Valid until the next one for the same buffer.
 */
struct paged_tensor worker_tensor(struct worker_fixture *worker, enum worker_buffer buffer, const float *data,
				  uint32_t n_tokens, uint32_t n_heads);
/** worker_result - a tensor for the result of attention, which worker_fetch() copies to out: [n_tokens][WORKER_OUT] */
struct paged_tensor worker_result(struct worker_fixture *worker, float *out, uint32_t n_tokens);
void worker_fetch(struct worker_fixture *worker, float *out, uint32_t n_tokens);

/** worker_append - append K and V of tokens [from, to) of the planned row; the seed determines them */
enum paged_status worker_append(struct worker_fixture *worker, uint32_t layer, uint32_t from, uint32_t to,
				uint64_t seed);

/** worker_write - plan and append all layers */
void worker_write(struct worker_fixture *worker, paged_seq_id seq, uint32_t from, uint32_t to, uint64_t seed);

/** worker_attend - run attention for the planned row's q_len queries; out: [q_len][WORKER_OUT] */
void worker_attend(struct worker_fixture *worker, uint32_t layer, uint32_t q_len, float *out);

/**
 * worker_read - plan a read of all kv_len tokens by one query, attend in every layer; out:
 * [WORKER_LAYERS][WORKER_OUT]
 */
void worker_read(struct worker_fixture *worker, paged_seq_id seq, uint32_t kv_len, float *out);

/** worker_pool_entry - the pool's entry as reported by the daemon */
struct paged_pool_entry worker_pool_entry(struct worker_fixture *worker, const char *name);

/** worker_wait_free - wait until every page is free and no session is left; the test fails after IT_LIMIT_MS */
void worker_wait_free(struct worker_fixture *observer, const char *pool);

/**
 * worker_check_pool - the daemon's consistency check and, for an observer with
 * an open pool, the region's check both pass
 */
void worker_check_pool(struct worker_fixture *worker);

#endif
