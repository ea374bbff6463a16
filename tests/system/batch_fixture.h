/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch_fixture.h - sequences of random contents through the public API, on either back end
 *
 * For it_* programs: an embedded client with one pool and one batch.  Tensors
 * are in the memory that the pool's back end requires.  On cuda, that is the
 * memory of the fake driver, and all work goes to one stream
 * of the scene, which runs only when a call waits for it.  Any failure in
 * these functions ends the test.
 */
#ifndef PAGED_TESTS_BATCH_SCENE_H
#define PAGED_TESTS_BATCH_SCENE_H

#include "client/pagedclient.h"
#include "kernels/cuda/gpu.h"
#include "tests/support/golden_attention.h"
#include "tests/support/harness.h"

#define SCENE_MAX_ROWS 8u
#define SCENE_MAX_BUFFERS 64u
#define SCENE_LAYERS 2u
#define SCENE_LAYER 1u

struct scene_row {
	uint32_t kv_len, q_len;
	int64_t q_base; /* used if has_q_base; else kv_len - q_len */
	bool has_q_base;
};

struct scene_params {
	const char *backend; /* "host", "cuda" */
	const char *served;  /* name of a pool of the running daemon, with these params; NULL: an embedded pool */
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
	struct scene_row rows[SCENE_MAX_ROWS];
	uint32_t max_length, n_pages, max_q_tokens; /* 0: enough */
	uint32_t reserve_ahead;
	bool max_unknown; /* scene_check() does not compare max_score */
	const struct golden_attention
		*golden;  /* contents and expected results; NULL: random contents, float64 reference */
	paged_log_fn log; /* NULL: silent */
};

struct scene {
	struct scene_params params;
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
	paged_seq_id seq[SCENE_MAX_ROWS];
	uint32_t total_q;
	/* Used on cuda only. */
	bool on_device;
	struct cuda_gpu gpu;
	cuda_stream stream;
	void *buffers[SCENE_MAX_BUFFERS];
	unsigned int n_buffers;
	/* Results of attention, in the back end's memory. */
	struct paged_tensor out;
	float *lse, *max_score;
	const float *k_scale, *v_scale; /* or NULL */
};

/** Fails the test unless a call on the scene's client returns the wanted status. */
#define scene_expect(scene, call, wanted)                                                                      \
	do {                                                                                                   \
		enum paged_status scene_status_ = (call);                                                      \
		it_require(scene_status_ == (wanted), "%s is %s: %s", #call, paged_status_name(scene_status_), \
			   paged_client_error((scene)->client));                                               \
	} while (0)
#define scene_ok(scene, call) scene_expect(scene, call, PAGED_OK)

/** scene_open - create client, pool, batch, and sequences with room for kv_len tokens; writes no tokens */
void scene_open(struct scene *scene, const struct scene_params *params);
void scene_close(struct scene *scene);

/** scene_put - copy data (NULL: 0xff bytes) to new back end memory, on the scene's stream; the scene frees it */
void *scene_put(struct scene *scene, const void *data, size_t size);

/** scene_get - copy from back end memory to host memory; waits for the stream */
void scene_get(struct scene *scene, void *to, const void *from, size_t size);

/** scene_set - overwrite memory that scene_put() made, on the stream */
void scene_set(struct scene *scene, void *to, const void *data, size_t size);

/** scene_tensor - a new tensor in back end memory, filled with 0xff bytes */
struct paged_tensor scene_tensor(struct scene *scene, enum paged_dtype dtype, uint32_t n_tokens, uint32_t n_heads,
				 uint32_t dim);

/** scene_keys, scene_values - a tensor with K or V of tokens [from, to) of a row */
struct paged_tensor scene_keys(struct scene *scene, uint32_t row, uint32_t from, uint32_t to);
struct paged_tensor scene_values(struct scene *scene, uint32_t row, uint32_t from, uint32_t to);

/** scene_queries - the packed queries of all rows */
struct paged_tensor scene_queries(struct scene *scene);

/** scene_write - plan and append tokens [from, to) of a row, in chunks */
void scene_write(struct scene *scene, uint32_t row, uint32_t from, uint32_t to);

/** scene_rows - fill in the rows for paged_batch_plan() */
void scene_rows(const struct scene *scene, struct paged_batch_row rows[SCENE_MAX_ROWS]);

/** scene_attend - run attention with the batch's current plan; writes out, lse and max_score */
enum paged_status scene_attend(struct scene *scene, struct paged_mod_set *mods);

/** scene_check - wait for the results and compare them with the expected results of params' rows */
void scene_check(struct scene *scene);

/** scene_run - run a whole test: open, write, plan, attend, validate, check, close */
void scene_run(const struct scene_params *params);

#endif
