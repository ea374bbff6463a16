/* SPDX-License-Identifier: Apache-2.0 */
/**
 * decode_fixture.h - a decoding engine on a GPU, checked against the same steps on the host back end
 *
 * The engine is a worker of a real pagedd whose pool "decode" is in the memory
 * of a GPU or of the fake driver.  Each batch decodes up to
 * DECODE_ROWS sequences, which grow, end and are replaced at random, with a
 * captured graph or without one.  The host back end of an embedded client does
 * the same steps and gives the expected results.  Any failure in these
 * functions ends the test.
 */
#ifndef TESTS_DECODE_FIXTURE_H
#define TESTS_DECODE_FIXTURE_H

#include "client/pagedclient.h"
#include "kernels/cuda/host/gpu.h"
#include "tests/support/cuda_graph.h"
#include "tests/support/geometry.h"
#include "tests/support/harness.h"

#define DECODE_LAYERS 4
#define DECODE_ROWS 4
#define DECODE_Q_LEN 2
#define DECODE_HEADS 4
#define DECODE_KV_HEADS 2
#define DECODE_DIM 16
#define DECODE_PAGE_SIZE 4
#define DECODE_PAGES 64
#define DECODE_MAX_LENGTH 22
#define DECODE_TOKENS (DECODE_ROWS * DECODE_Q_LEN)

/** The pool's configuration, for cuda_daemon_start(). */
#define DECODE_POOL                                                                                  \
	"pool decode { " POOL_SHAPE(DECODE_LAYERS, DECODE_KV_HEADS, DECODE_DIM, f32) " " POOL_SIZES( \
		DECODE_PAGE_SIZE, DECODE_PAGES, 16, DECODE_MAX_LENGTH) " backend = cuda }\n"

#define decode_cuda(call)                                                                  \
	do {                                                                               \
		int result_ = (call);                                                      \
		it_require(result_ == CUDA_SUCCESS, "%s: CUDA result %d", #call, result_); \
	} while (0)

/** Fails the test unless a call on the client returns the wanted status. */
#define decode_expect(client, call, wanted)                                                        \
	do {                                                                                       \
		enum paged_status status_ = (call);                                                \
		it_require(status_ == (wanted), "%s is %s: %s", #call, paged_status_name(status_), \
			   paged_client_error(client));                                            \
	} while (0)
#define decode_ok(client, call) decode_expect(client, call, PAGED_OK)

struct decode_engine {
	struct cuda_gpu gpu;
	struct cuda_graphs graphs;
	struct paged_client *client, *host_client;
	struct paged_pool *pool, *host_pool;
};

/* Input that the graph reads in a step, and its output; the same layout in pinned and device memory. */
struct decode_lengths {
	int32_t q_indptr[DECODE_ROWS + 1], kv_len[DECODE_ROWS];
};

struct decode_input {
	float q[DECODE_LAYERS][DECODE_TOKENS * DECODE_HEADS * DECODE_DIM];
	float k[DECODE_LAYERS][DECODE_TOKENS * DECODE_KV_HEADS * DECODE_DIM];
	float v[DECODE_LAYERS][DECODE_TOKENS * DECODE_KV_HEADS * DECODE_DIM];
};

struct decode_output {
	float out[DECODE_LAYERS][DECODE_TOKENS * DECODE_HEADS * DECODE_DIM];
	float lse[DECODE_LAYERS][DECODE_TOKENS * DECODE_HEADS];
	float merged[DECODE_TOKENS * DECODE_HEADS * DECODE_DIM];
};

struct decode_row {
	paged_seq_id seq, host_seq; /* 0: the row is empty */
	uint32_t len;               /* tokens written */
	uint32_t q_len;             /* query rows in this step */
};

struct decode_batch {
	struct decode_engine *engine;
	struct paged_batch *batch, *host_batch;
	struct paged_mod_set *mod_set, *host_mod_set; /* NULL: none */
	cuda_stream stream;
	cuda_graph_exec exec; /* NULL: not captured */
	struct decode_row row[DECODE_ROWS];
	uint32_t random;
	/* In pinned host memory, and the copies on the device: */
	struct decode_lengths *lengths;
	struct decode_input *input;
	struct decode_output *output;
	cuda_address device_lengths, device_input, device_output;
	struct decode_output expected;
};

/** decode_open - call in a process that has not used CUDA yet; the daemon must have DECODE_POOL */
void decode_open(struct decode_engine *engine);
void decode_close(struct decode_engine *engine);

/** decode_batch_open - open a batch with its own stream; the seed determines its sequences */
void decode_batch_open(struct decode_engine *engine, struct decode_batch *decode, uint32_t seed);
/** decode_batch_close - destroy all members that are not NULL */
void decode_batch_close(struct decode_batch *decode);

/** decode_enqueue - enqueue a whole step on the batch's stream: lengths, plan, layers, merge, results */
void decode_enqueue(struct decode_batch *decode, const struct paged_batch_row rows[DECODE_ROWS]);

/**
 * decode_capture - capture decode_enqueue() of a step of the largest size into decode->exec
 *
 * The batch must have no plan yet.
 */
void decode_capture(struct decode_batch *decode, int mode);

/** decode_bounds - rows without sequences, with the most query rows that a step may have */
void decode_bounds(struct paged_batch_row rows[DECODE_ROWS]);

/** decode_next - begin, grow and end sequences; prepare the step's input and compute its expected output */
void decode_next(struct decode_batch *decode);

/** decode_rows - fill in the step's rows for the plan; returns their number without the empty rows at the end */
uint32_t decode_rows(const struct decode_batch *decode, struct paged_batch_row rows[DECODE_ROWS]);

/** decode_tables - paged_batch_plan_device() that writes the page tables only */
enum paged_status decode_tables(struct decode_batch *decode, uint32_t n_rows, const struct paged_batch_row *rows);

/** decode_launch - enqueue the copy of the step's input and the graph on the batch's stream */
void decode_launch(struct decode_batch *decode);

/** decode_check - validate the batch and compare the results with those of the host back end */
void decode_check(struct decode_batch *decode);

/** decode_replay - run a whole step, decode_next() to decode_check(), with the graph */
void decode_replay(struct decode_batch *decode);

/** decode_eager - run a whole step without the graph */
void decode_eager(struct decode_batch *decode);

#endif
