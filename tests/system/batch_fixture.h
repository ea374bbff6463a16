/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch_fixture.h - sequences of random contents through the public API, on either back end
 *
 * For it_* programs: an embedded client with one pool and one batch.  Tensors
 * are in the memory that the pool's back end requires.  On cuda, that is the
 * memory of the fake driver, and all work goes to one stream
 * of the fixture, which runs only when a call waits for it.  Any failure in
 * these functions ends the test.
 */
#ifndef TESTS_BATCH_FIXTURE_H
#define TESTS_BATCH_FIXTURE_H

#include "client/pagedclient.h"
#include "kernels/cuda/host/gpu.h"
#include "kernels/mod/mod.h"
#include "tests/support/golden_attention.h"
#include "tests/support/harness.h"

#define BATCH_FIXTURE_MAX_ROWS 8u
#define BATCH_FIXTURE_MAX_BUFFERS 64u
#define BATCH_FIXTURE_LAYERS 2u
#define BATCH_FIXTURE_LAYER 1u

struct batch_fixture_row {
	uint32_t kv_len, q_len;
	int64_t q_base; /* used if has_q_base; else kv_len - q_len */
	bool has_q_base;
	uint32_t kv_first;
};

struct batch_fixture_params {
	const char *backend;     /* "host", "cuda" */
	const char *daemon_pool; /* name of a pool of the running daemon, with these params; NULL: an embedded pool */
	enum paged_dtype pool, q;
	uint32_t q_heads, kv_heads, k_dim, v_dim, page_size;
	bool v_in_k;
	uint32_t padding; /* elements between tokens of every tensor */
	uint32_t chunk;   /* most tokens per append; 0: no limit */
	enum paged_mask mask;
	float scale; /* 0: the default */
	bool scales; /* e4m3 and e5m2 pools get scales that are powers of 2 */
	bool sink;
	uint32_t n_rows;
	struct batch_fixture_row rows[BATCH_FIXTURE_MAX_ROWS];
	uint32_t max_length, n_pages, max_q_tokens; /* 0: enough */
	uint32_t reserve_ahead;
	uint32_t window; /* batch_fixture_check(): a query sees this many keys up to its own, by mods; 0: all of them */
	/* batch_fixture_check() evaluates these mods; their arrays are in the host's memory.  NULL: none */
	const struct mod_binding *mask_mod, *score_mod;
	bool max_unknown; /* batch_fixture_check() does not compare max_score */
	const struct golden_attention
		*golden;  /* contents and expected results; NULL: random contents, float64 reference */
	paged_log_fn log; /* NULL: silent */
};

struct batch_fixture {
	struct batch_fixture_params params;
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
	paged_seq_id seq[BATCH_FIXTURE_MAX_ROWS];
	uint32_t total_q;
	/* Used on cuda only. */
	bool on_device;
	struct cuda_gpu gpu;
	cuda_stream stream;
	void *buffers[BATCH_FIXTURE_MAX_BUFFERS];
	unsigned int n_buffers;
	/* Results of attention, in the back end's memory. */
	struct paged_tensor out;
	float *lse, *max_score;
	const float *k_scale, *v_scale; /* or NULL */
};

/** Fails the test unless a call on the fixture's client returns the wanted status. */
#define batch_fixture_expect(fixture, call, wanted)                                                                \
	do {                                                                                                       \
		enum paged_status fixture_status_ = (call);                                                        \
		it_require(fixture_status_ == (wanted), "%s is %s: %s", #call, paged_status_name(fixture_status_), \
			   paged_client_error((fixture)->client));                                                 \
	} while (0)
#define batch_fixture_ok(fixture, call) batch_fixture_expect(fixture, call, PAGED_OK)

/** batch_fixture_open - create client, pool, batch, and sequences with room for kv_len tokens; writes no tokens */
void batch_fixture_open(struct batch_fixture *fixture, const struct batch_fixture_params *params);
void batch_fixture_close(struct batch_fixture *fixture);

/**
 * batch_fixture_put - copy data (NULL: 0xff bytes) to new back end memory, on
 * the fixture's stream; the fixture frees it
 */
void *batch_fixture_put(struct batch_fixture *fixture, const void *data, size_t size);

/** batch_fixture_get - copy from back end memory to host memory; waits for the stream */
void batch_fixture_get(struct batch_fixture *fixture, void *to, const void *from, size_t size);

/** batch_fixture_set - overwrite memory that batch_fixture_put() made, on the stream */
void batch_fixture_set(struct batch_fixture *fixture, void *to, const void *data, size_t size);

/** batch_fixture_tensor - a new tensor in back end memory, filled with 0xff bytes */
struct paged_tensor batch_fixture_tensor(struct batch_fixture *fixture, enum paged_dtype dtype, uint32_t n_tokens,
					 uint32_t n_heads, uint32_t dim);

/** batch_fixture_keys, batch_fixture_values - a tensor with K or V of tokens [from, to) of a row */
struct paged_tensor batch_fixture_keys(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to);
struct paged_tensor batch_fixture_values(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to);

/** batch_fixture_queries - the packed queries of all rows */
struct paged_tensor batch_fixture_queries(struct batch_fixture *fixture);

/** batch_fixture_write - plan and append tokens [from, to) of a row, in chunks */
void batch_fixture_write(struct batch_fixture *fixture, uint32_t row, uint32_t from, uint32_t to);

/** batch_fixture_rows - fill in the rows for paged_batch_plan() */
void batch_fixture_rows(const struct batch_fixture *fixture, struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS]);

/** batch_fixture_attend - run attention with the batch's current plan; writes out, lse and max_score */
enum paged_status batch_fixture_attend(struct batch_fixture *fixture, struct paged_mod_set *mods);

/** batch_fixture_check - wait for the results and compare them with the expected results of params' rows */
void batch_fixture_check(struct batch_fixture *fixture);

/** batch_fixture_run - run a whole test: open, write, plan, attend, validate, check, close */
void batch_fixture_run(const struct batch_fixture_params *params);

/** batch_fixture_run_first_tokens - attention of one row under a block mask: all queries see the first n tokens */
void batch_fixture_run_first_tokens(const struct batch_fixture_params *params, uint32_t n);

#endif
