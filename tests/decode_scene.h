/* SPDX-License-Identifier: Apache-2.0 */
/**
 * decode_scene.h - a decoding engine on a GPU, and its twin in the host's memory
 *
 * A worker of a real pagedd whose pool "decode" lies in a GPU's memory, or the
 * stand-in's.  Each batch decodes up to DECODE_ROWS sequences, which grow, end
 * and give way to others at random, by a captured graph or without one, and an
 * embedded client's host back end does the same steps, which is what is
 * expected.  What fails in here ends the test.
 */
#ifndef TESTS_DECODE_SCENE_H
#define TESTS_DECODE_SCENE_H

#include "client/pagedclient.h"
#include "kernels/cuda/gpu.h"
#include "tests/cuda_graph.h"
#include "tests/harness.h"

#define DECODE_LAYERS 4u
#define DECODE_ROWS 4u
#define DECODE_Q_LEN 2u
#define DECODE_HEADS 4u
#define DECODE_KV_HEADS 2u
#define DECODE_DIM 16u
#define DECODE_MAX_LENGTH 22u
#define DECODE_TOKENS (DECODE_ROWS * DECODE_Q_LEN)

/** For cuda_case_daemon(). */
#define DECODE_POOL                                                                                               \
	"pool decode { layers = 4 kv-heads = 2 head-dim = 16 dtype = f32 page-size = 4 pages = 64 sequences = 16" \
	" max-length = 22 backend = cuda }\n"

#define decode_cuda(call)                                                                  \
	do {                                                                               \
		int result_ = (call);                                                      \
		it_require(result_ == CUDA_SUCCESS, "%s: CUDA result %d", #call, result_); \
	} while (0)

/** Holds a call on a client to the status that it shall give. */
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

/** A step's input as the graph reads it, and what it gives; the same layout on both sides. */
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
	uint32_t q_len;             /* of this step */
};

struct decode_batch {
	struct decode_engine *engine;
	struct paged_batch *batch, *host_batch;
	struct paged_mods *mods, *host_mods; /* NULL: none */
	cuda_stream stream;
	cuda_graph_exec exec; /* NULL: not captured */
	struct decode_row row[DECODE_ROWS];
	uint32_t random;
	/* Pinned, and on the device: */
	struct decode_lengths *lengths;
	struct decode_input *input;
	struct decode_output *output;
	cuda_address device_lengths, device_input, device_output;
	struct decode_output expected;
};

/** decode_open - in a process that has used no CUDA; the daemon's pool is to be DECODE_POOL */
void decode_open(struct decode_engine *engine);
void decode_close(struct decode_engine *engine);

/** decode_batch_open - a batch on a stream of its own; its sequences follow from the seed */
void decode_batch_open(struct decode_engine *engine, struct decode_batch *decode, uint32_t seed);
/** decode_batch_close - destroys what is not NULL in it */
void decode_batch_close(struct decode_batch *decode);

/** decode_enqueue - all of a step onto the batch's stream: lengths, plan, layers, merge, results */
void decode_enqueue(struct decode_batch *decode, const struct paged_batch_row rows[DECODE_ROWS]);

/** decode_capture - decode_enqueue() as a graph of the most that a step may be, in decode->exec; nothing is planned
 * before */
void decode_capture(struct decode_batch *decode, int mode);

/** decode_bounds - rows without sequences, of as many query rows as a step may have */
void decode_bounds(struct paged_batch_row rows[DECODE_ROWS]);

/** decode_next - sequences begin, grow and end; the step's input is ready, and its expected output computed */
void decode_next(struct decode_batch *decode);

/** decode_rows - of the step, to be planned; returns how many there are when empty ones at the end are left out */
uint32_t decode_rows(const struct decode_batch *decode, struct paged_batch_row rows[DECODE_ROWS]);

/** decode_tables - paged_batch_plan_device() of tables alone */
enum paged_status decode_tables(struct decode_batch *decode, uint32_t n_rows, const struct paged_batch_row *rows);

/** decode_launch - the step's input and the graph, on the batch's stream */
void decode_launch(struct decode_batch *decode);

/** decode_check - validate, and hold the results to the twin's */
void decode_check(struct decode_batch *decode);

/** decode_replay - decode_next() to decode_check() by the graph */
void decode_replay(struct decode_batch *decode);

/** decode_eager - the same without it */
void decode_eager(struct decode_batch *decode);

#endif
