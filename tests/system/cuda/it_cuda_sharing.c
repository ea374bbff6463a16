/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork and publish by batches on both back ends: partial pages are copied in
 * stream order, and pages are published once the stream has written them.  cuda
 * runs over the fake CUDA driver, whose streams run only when a call waits for
 * them.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/decode_fixture.h"
#include "tests/support/cuda_graph.h"
#include "tests/support/sequences.h"
#include "tests/fake-cuda/load.h"

#define KV_LEN 23u
#define PAGE_SIZE 4u
#define WHOLE (KV_LEN / PAGE_SIZE * PAGE_SIZE)

static const struct batch_fixture_params base_params = {
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = 4,
	.kv_heads = 2,
	.k_dim = 16,
	.v_dim = 16,
	.page_size = PAGE_SIZE,
	.n_rows = 2,
	.rows = { { .kv_len = KV_LEN, .q_len = 2 }, { .kv_len = KV_LEN, .q_len = 1 } },
	.n_pages = 64,
};

static uint32_t tokens[2][KV_LEN];

static void
sharing_open(struct batch_fixture *fixture, const struct batch_fixture_params *params, const char *backend)
{
	struct batch_fixture_params each = *params;

	for (uint32_t i = 0; i < 2 * KV_LEN; i++)
		tokens[i / KV_LEN][i % KV_LEN] = i;
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	each.backend = backend;
	batch_fixture_open(fixture, &each);
}

static void
attend_and_check(struct batch_fixture *fixture)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
	batch_fixture_check(fixture);
}

static struct paged_prefix
prefix_of(uint32_t row, size_t n)
{
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix),
				      .tokens = tokens[row],
				      .n_tokens = n };
}

static uint32_t
match(struct batch_fixture *fixture, uint32_t row)
{
	struct paged_prefix prefix = prefix_of(row, KV_LEN);
	uint32_t n;

	batch_fixture_ok(fixture, paged_prefix_match(fixture->pool, &prefix, &n));
	return n;
}

static uint32_t
free_pages(struct batch_fixture *fixture)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };

	batch_fixture_ok(fixture, paged_pool_get_counts(fixture->pool, &counts));
	return counts.n_free;
}

/* Fork */

/* Children take the place of their parents, which then write their own copy of the page that was partial. */
static void
fork_and_compare(const struct batch_fixture_params *params, const char *backend)
{
	struct batch_fixture fixture;
	paged_seq_id parents[2], children[2];

	sharing_open(&fixture, params, backend);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, 21 + r);
	memcpy(parents, fixture.seq, sizeof(parents));
	batch_fixture_ok(&fixture, paged_batch_fork(fixture.batch, 2, parents, (uint32_t[]){ 21, 22 }, children));
	batch_fixture_ok(&fixture, seqs_reserve(fixture.client, 2, children, (uint32_t[]){ KV_LEN, KV_LEN }));
	memcpy(fixture.seq, children, sizeof(children));
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 21 + r, KV_LEN);
	attend_and_check(&fixture);
	memcpy(fixture.seq, parents, sizeof(parents));
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 21 + r, KV_LEN);
	attend_and_check(&fixture);
	memcpy(fixture.seq, children, sizeof(children));
	attend_and_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(forks_copy_their_partial_pages)
{
	struct batch_fixture_params params = base_params;

	fork_and_compare(&params, "host");
	fork_and_compare(&params, "cuda");
	params.pool = PAGED_I8;
	fork_and_compare(&params, "host");
	fork_and_compare(&params, "cuda");
	params = base_params;
	params.pool = params.q = PAGED_BF16;
	params.kv_heads = 1;
	params.k_dim = 64;
	params.v_dim = 32;
	params.v_in_k = true;
	fork_and_compare(&params, "host");
}

/* The driver refuses to copy a page of all layers at once, or its limit on pitches does. */
IT_TEST(forks_copy_layer_by_layer)
{
	char log[] = "/tmp/paged-calls.XXXXXX";
	int fd;

	cuda_skip_with_gpu();
	fd = mkstemp(log);
	it_require(fd >= 0, "%m");
	close(fd);
	setenv("PAGED_FAKE_CUDA_LOG", log, 1);
	setenv("PAGED_FAKE_CUDA_FAIL", "cuMemcpy2DAsync_v2=1", 1);
	fork_and_compare(&base_params, "cuda");
	it_require(fake_cuda_n_calls("cuMemcpy2DAsync_v2") == 2, "%u calls", fake_cuda_n_calls("cuMemcpy2DAsync_v2"));
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "11=4096", 1);
	fork_and_compare(&base_params, "cuda");
	it_require(fake_cuda_n_calls("cuMemcpy2DAsync_v2") == 2, "%u calls", fake_cuda_n_calls("cuMemcpy2DAsync_v2"));
	unlink(log);
}

/* Trim */

/* Gathers K of the planned rows into memory of this process; returns the bytes. */
static size_t
gather_keys(struct batch_fixture *fixture, uint32_t n_tokens, uint8_t *to, size_t size)
{
	const struct batch_fixture_params *p = &fixture->params;
	struct paged_tensor k = batch_fixture_tensor(fixture, p->q, n_tokens, p->kv_heads, p->k_dim);
	size_t n = (size_t)n_tokens * p->kv_heads * p->k_dim * (p->q == PAGED_F32 ? 4 : 2);

	it_require(n <= size);
	batch_fixture_ok(fixture, paged_gather(fixture->batch, BATCH_FIXTURE_LAYER, &k, NULL, NULL));
	batch_fixture_get(fixture, to, k.data, n);
	return n;
}

/* Rows that give pages back go on: appending, attention from their first page on, and gathers of what is left. */
static void
trim_and_compare(const struct batch_fixture_params *params, const char *backend)
{
	static uint8_t before[1 << 14], after[1 << 14];
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;
	uint32_t n_free;
	size_t n;

	sharing_open(&fixture, params, backend);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, 18 + r);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	n_free = free_pages(&fixture);
	batch_fixture_ok(&fixture, seqs_trim(fixture.client, 2, fixture.seq, (uint32_t[]){ 9, 15 }));
	it_require(free_pages(&fixture) == n_free + 2 + 3);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 18 + r, KV_LEN);
	batch_fixture_rows(&fixture, rows);
	fixture.params.rows[0].kv_first = 8;
	fixture.params.rows[1].kv_first = 12;
	for (int late = 0; late < 2; late++) {
		/* The second time, the row's own kv_first is later than its sequence's. */
		if (late)
			rows[1].kv_first = fixture.params.rows[1].kv_first = 14;
		batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 2, rows));
		batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		batch_fixture_check(&fixture);
	}
	n = gather_keys(&fixture, 2 * KV_LEN - 8 - 14, before, sizeof(before));
	/* Each token is where it was, also after the next trim; a plan from before it is stale. */
	batch_fixture_ok(&fixture, seqs_trim(fixture.client, 2, fixture.seq, (uint32_t[]){ 11, 15 }));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_ok(&fixture, seqs_trim(fixture.client, 1, &fixture.seq[1], (uint32_t[]){ 16 }));
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_STALE);
	rows[1].kv_first = 0;
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 2, rows));
	gather_keys(&fixture, 2 * KV_LEN - 8 - 16, after, sizeof(after));
	it_require(memcmp(before, after, n / (2 * KV_LEN - 8 - 14) * (KV_LEN - 8)) == 0, "row 0 has moved");
	batch_fixture_close(&fixture);
}

IT_TEST(trimmed_rows)
{
	struct batch_fixture_params params = base_params;

	trim_and_compare(&params, "host");
	trim_and_compare(&params, "cuda");
	params.pool = params.q = PAGED_BF16;
	trim_and_compare(&params, "host");
	trim_and_compare(&params, "cuda");
	params.kv_heads = 1;
	params.k_dim = 64;
	params.v_dim = 32;
	params.v_in_k = true;
	trim_and_compare(&params, "host");
	trim_and_compare(&params, "cuda");
}

/* A copy that fails leaves no children behind. */
IT_TEST(failed_copies_undo_the_fork)
{
	struct batch_fixture fixture;
	uint32_t before;
	paged_seq_id child = 7;

	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_FAIL", "cuMemcpy2DAsync_v2=700", 1);
	sharing_open(&fixture, &base_params, "cuda");
	batch_fixture_write(&fixture, 0, 0, KV_LEN);
	before = free_pages(&fixture);
	batch_fixture_expect(&fixture, paged_batch_fork(fixture.batch, 1, fixture.seq, (uint32_t[]){ 6 }, &child),
			     PAGED_ERR_BACKEND);
	it_require(child == 7 && free_pages(&fixture) == before, "%u of %u pages are free", free_pages(&fixture),
		   before);
	/* Whole pages need no copy. */
	batch_fixture_ok(&fixture, paged_batch_fork(fixture.batch, 1, fixture.seq, (uint32_t[]){ 8 }, &child));
	batch_fixture_close(&fixture);
}

/* Publish */

static void
batch_publish(struct batch_fixture *fixture, uint32_t n_rows, uint32_t n_tokens)
{
	struct paged_prefix prefix[2] = { prefix_of(0, n_tokens), prefix_of(1, n_tokens) };
	struct paged_publish publishes[2];

	for (uint32_t r = 0; r < n_rows; r++)
		publishes[r] = (struct paged_publish){ .seq = fixture->seq[r], .prefix = &prefix[r] };
	batch_fixture_ok(fixture, paged_batch_publish(fixture->batch, n_rows, publishes));
	memset(prefix, 0xff, sizeof(prefix)); /* the batch has copied what it needs */
}

IT_TEST(publishing_comes_after_the_stream)
{
	struct batch_fixture fixture;
	struct paged_prefix prefix;
	uint32_t n_shared;

	cuda_skip_with_gpu();
	sharing_open(&fixture, &base_params, "cuda");
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, KV_LEN);
	batch_publish(&fixture, 2, KV_LEN);
	it_require(match(&fixture, 0) == 0, "published before the stream has run");
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 0, NULL));
	it_require(match(&fixture, 0) == 0, "published before the stream has run");
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == WHOLE && match(&fixture, 1) == WHOLE, "%u and %u tokens are published",
		   match(&fixture, 0), match(&fixture, 1));

	/* A sequence that starts on these pages, and computes the rest, has the same attention. */
	prefix = prefix_of(0, KV_LEN);
	batch_fixture_ok(&fixture,
			 paged_seq_start(fixture.pool, 1, &(struct paged_start){ .prefix = &prefix, .reserve = KV_LEN },
					 &fixture.seq[0], &n_shared));
	it_require(n_shared == WHOLE, "%u tokens are shared", n_shared);
	batch_fixture_write(&fixture, 0, n_shared, KV_LEN);
	attend_and_check(&fixture);
	batch_fixture_close(&fixture);
}

/* What waits for the stream is sent by whichever call comes next: a plan, a publish, the end of the batch. */
IT_TEST(waiting_publishes_are_sent_by_later_calls)
{
	struct batch_fixture fixture;

	sharing_open(&fixture, &base_params, "cuda");
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, KV_LEN);
	batch_publish(&fixture, 1, 8);
	it_require(fixture.gpu.driver.stream_synchronize(fixture.stream) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 0, NULL));
	it_require(match(&fixture, 0) == 8, "%u tokens after a plan", match(&fixture, 0));
	batch_publish(&fixture, 1, 12);
	it_require(fixture.gpu.driver.stream_synchronize(fixture.stream) == CUDA_SUCCESS);
	batch_publish(&fixture, 1, 16);
	it_require(match(&fixture, 0) == 12, "%u tokens after a publish", match(&fixture, 0));
	it_require(fixture.gpu.driver.stream_synchronize(fixture.stream) == CUDA_SUCCESS);
	paged_batch_destroy(fixture.batch);
	it_require(match(&fixture, 0) == 16, "%u tokens after the end of the batch", match(&fixture, 0));
	batch_fixture_close(&fixture);
}

/* One of two sequences in the queue is truncated: it is left out, and the other is published. */
IT_TEST(truncated_sequences_leave_the_queue)
{
	struct batch_fixture fixture;

	sharing_open(&fixture, &base_params, "cuda");
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, KV_LEN);
	batch_publish(&fixture, 2, KV_LEN);
	it_require(fixture.gpu.driver.stream_synchronize(fixture.stream) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, seqs_truncate(fixture.client, 1, fixture.seq, (uint32_t[]){ 9 }));
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == 0 && match(&fixture, 1) == WHOLE, "%u and %u tokens are published",
		   match(&fixture, 0), match(&fixture, 1));
	batch_publish(&fixture, 1, 8);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == 8, "%u tokens are published", match(&fixture, 0));
	batch_fixture_close(&fixture);
}

/* One call that needs more messages than the queue has: it queues less, waits for nothing, and the next call goes on.
 */
IT_TEST(full_queues_publish_less)
{
	enum { LONG = 70000, QUEUED = 16 * 4096 }; /* PUBLISH_QUEUE messages of WIRE_MAX_PUBLISH_PAGES */
	struct batch_fixture_params params = base_params;
	uint32_t *long_tokens = calloc(LONG, sizeof(*long_tokens)), n = 0;
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = long_tokens, .n_tokens = LONG };
	struct batch_fixture fixture;
	struct paged_publish publish;

	params.page_size = 1;
	params.kv_heads = 1;
	params.n_pages = LONG;
	params.max_length = LONG;
	params.n_rows = 1;
	sharing_open(&fixture, &params, "cuda");
	batch_fixture_ok(&fixture, seqs_reserve(fixture.client, 1, fixture.seq, (uint32_t[]){ LONG }));
	publish = (struct paged_publish){ .seq = fixture.seq[0], .prefix = &prefix };
	batch_fixture_ok(&fixture, paged_batch_publish(fixture.batch, 1, &publish));
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_ok(&fixture, paged_prefix_match(fixture.pool, &prefix, &n));
	it_require(n == QUEUED, "%u tokens are published", n);
	batch_fixture_ok(&fixture, paged_batch_publish(fixture.batch, 1, &publish));
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_ok(&fixture, paged_prefix_match(fixture.pool, &prefix, &n));
	it_require(n == LONG, "%u tokens are published", n);
	batch_fixture_close(&fixture);
	free(long_tokens);
}

/* Appends by old plans */

/* A copy of the pool's memory, in stream order; to be freed. */
static uint8_t *
pool_bytes(struct batch_fixture *fixture)
{
	uint8_t *bytes = malloc(fixture->info.size);

	it_require(bytes != NULL);
	batch_fixture_get(fixture, bytes, fixture->info.base, fixture->info.size);
	return bytes;
}

/* Plans a row's tokens [4, 8); on_device: the lengths are in device memory. */
static void
plan_second_page(struct batch_fixture *fixture, bool on_device)
{
	const struct paged_batch_row row = { .seq = fixture->seq[0], .q_len = 4, .kv_len = 8 };
	const int32_t lengths[] = { 0, 4, 8 };
	const int32_t *at = on_device ? batch_fixture_put(fixture, lengths, sizeof(lengths)) : NULL;
	const struct paged_plan_device_params params = {
		.struct_size = sizeof(params), .n_rows = 1, .rows = &row, .q_indptr = at, .kv_len = at + 2
	};

	if (on_device)
		batch_fixture_ok(fixture, paged_batch_plan_device(fixture->batch, &params));
	else
		batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, 1, &row));
}

/* What only the device can check: an append after a publish or a fork by a plan that was made before. */
static void
append_by_old_plan(bool on_device, bool positions, bool fork)
{
	const uint32_t at[] = { 6, 5, 4, 7 };
	struct paged_append_params append = { .struct_size = sizeof(append) };
	struct batch_fixture fixture;
	struct paged_tensor k, v;
	uint8_t *before, *after;
	paged_seq_id child;

	sharing_open(&fixture, &base_params, "cuda");
	batch_fixture_write(&fixture, 0, 0, KV_LEN);
	plan_second_page(&fixture, on_device);
	if (fork)
		batch_fixture_ok(&fixture,
				 paged_batch_fork(fixture.batch, 1, fixture.seq, (uint32_t[]){ KV_LEN }, &child));
	else
		batch_publish(&fixture, 1, KV_LEN);
	before = pool_bytes(&fixture);
	k = batch_fixture_keys(&fixture, 1, 0, 4);
	v = batch_fixture_values(&fixture, 1, 0, 4);
	if (positions)
		append.positions = batch_fixture_put(&fixture, at, sizeof(at));
	batch_fixture_ok(&fixture, paged_append(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, &append));
	after = pool_bytes(&fixture);
	it_require(memcmp(before, after, fixture.info.size) == 0, "the append has written");
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_PERM);
	free(before);
	free(after);
	batch_fixture_close(&fixture);
}

IT_TEST(old_plans_do_not_write_shared_pages)
{
	append_by_old_plan(true, false, false);
	append_by_old_plan(true, true, false);
	append_by_old_plan(false, true, false);
	append_by_old_plan(true, false, true);
	append_by_old_plan(false, true, true);
}

/* The protection of what is published cannot be brought to the device: then nothing is published. */
IT_TEST(refused_publishes_leave_the_queue)
{
	struct batch_fixture fixture;
	struct paged_prefix prefix = prefix_of(0, KV_LEN);

	cuda_skip_with_gpu();
	sharing_open(&fixture, &base_params, "cuda");
	batch_fixture_write(&fixture, 0, 0, KV_LEN);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	plan_second_page(&fixture, true);
	setenv("PAGED_FAKE_CUDA_FAIL", "cuLaunchKernel=1", 1);
	batch_fixture_expect(&fixture,
			     paged_batch_publish(fixture.batch, 1,
						 &(struct paged_publish){ .seq = fixture.seq[0], .prefix = &prefix }),
			     PAGED_ERR_BACKEND);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == 0, "%u tokens are published by a call that failed", match(&fixture, 0));
	batch_publish(&fixture, 1, KV_LEN);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == WHOLE, "%u tokens are published", match(&fixture, 0));
	batch_fixture_close(&fixture);
}

/* Captures */

IT_TEST(captured_streams_neither_fork_nor_publish)
{
	struct batch_fixture fixture;
	struct cuda_graphs graphs;
	struct paged_prefix prefix;
	paged_seq_id child;
	cuda_graph graph;

	sharing_open(&fixture, &base_params, "cuda");
	it_require(cuda_graphs_find(&graphs, &fixture.gpu.driver));
	batch_fixture_write(&fixture, 0, 0, KV_LEN);
	batch_publish(&fixture, 1, 8);
	prefix = prefix_of(0, KV_LEN);
	it_require(graphs.begin(fixture.stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
	batch_fixture_expect(&fixture, paged_batch_fork(fixture.batch, 1, fixture.seq, (uint32_t[]){ 5 }, &child),
			     PAGED_ERR_UNSUPPORTED);
	it_require(strcmp(paged_client_error(fixture.client),
			  "pool test: the stream is being captured: fork before the replay") == 0,
		   "%s", paged_client_error(fixture.client));
	batch_fixture_expect(&fixture,
			     paged_batch_publish(fixture.batch, 1,
						 &(struct paged_publish){ .seq = fixture.seq[0], .prefix = &prefix }),
			     PAGED_ERR_UNSUPPORTED);
	it_require(graphs.end(fixture.stream, &graph) == CUDA_SUCCESS, "the capture is no longer valid");
	it_require(graphs.destroy(graph) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_require(match(&fixture, 0) == 8, "%u tokens are published", match(&fixture, 0));
	batch_fixture_close(&fixture);
}

/* Token ids of a row begin here; another sequence that the row gets has others, unless it has the same content. */
struct row_content {
	paged_seq_id seq;
	uint32_t first_id;
};

/* Replaces a row's sequence by a fork of it. */
static void
row_fork(struct decode_batch *decode, struct decode_row *row)
{
	struct decode_engine *engine = decode->engine;
	paged_seq_id child, host_child;

	decode_ok(engine->client, paged_batch_fork(decode->batch, 1, &row->seq, &row->len, &child));
	decode_ok(engine->host_client, paged_batch_fork(decode->host_batch, 1, &row->host_seq, &row->len, &host_child));
	decode_ok(engine->client, paged_batch_finish(decode->batch)); /* the copy reads a page of the parent */
	decode_ok(engine->client, paged_seq_erase(engine->client, 1, &row->seq));
	decode_ok(engine->host_client, paged_seq_erase(engine->host_client, 1, &row->host_seq));
	row->seq = child;
	row->host_seq = host_child;
}

/* Publishes a row's sequence and replaces it by one that starts on its pages. */
static void
row_restart(struct decode_batch *decode, struct decode_row *row, const struct row_content *content)
{
	struct decode_engine *engine = decode->engine;
	uint32_t ids[DECODE_MAX_LENGTH], shared;
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = ids, .n_tokens = row->len };
	paged_seq_id again, host_again;

	for (uint32_t i = 0; i < row->len; i++)
		ids[i] = content->first_id + i;
	decode_ok(engine->client,
		  paged_batch_publish(decode->batch, 1, &(struct paged_publish){ .seq = row->seq, .prefix = &prefix }));
	decode_ok(engine->client, paged_batch_finish(decode->batch));
	decode_ok(engine->client, paged_client_ping(engine->client));
	decode_ok(engine->client,
		  paged_seq_start(engine->pool, 1, &(struct paged_start){ .prefix = &prefix }, &again, &shared));
	it_require(shared == row->len / DECODE_PAGE_SIZE * DECODE_PAGE_SIZE, "%u of %u tokens are shared", shared,
		   row->len);
	decode_ok(engine->host_client, paged_batch_fork(decode->host_batch, 1, &row->host_seq, &shared, &host_again));
	decode_ok(engine->client, paged_seq_erase(engine->client, 1, &row->seq));
	decode_ok(engine->host_client, paged_seq_erase(engine->host_client, 1, &row->host_seq));
	row->seq = again;
	row->host_seq = host_again;
	row->len = shared;
}

static void
replay_shared_rows(int from, int to, void *argument)
{
	struct row_content content[DECODE_ROWS] = { 0 };
	struct decode_engine engine;
	struct decode_batch decode;
	uint32_t next_id = 0;

	(void)from, (void)to, (void)argument;
	it_require(fake_cuda_load(), "%s", dlerror());
	decode_open(&engine);
	decode_batch_open(&engine, &decode, 3);
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	for (uint32_t i = 0; i < 200; i++) {
		struct decode_row *row = &decode.row[i % DECODE_ROWS];

		decode_replay(&decode);
		for (uint32_t r = 0; r < DECODE_ROWS; r++)
			if (decode.row[r].seq != content[r].seq)
				content[r] = (struct row_content){ decode.row[r].seq, next_id += DECODE_MAX_LENGTH };
		if (row->seq != 0 && i % 3 == 0)
			row_fork(&decode, row);
		else if (row->seq != 0 && i % 3 == 1)
			row_restart(&decode, row, &content[i % DECODE_ROWS]);
		content[i % DECODE_ROWS].seq = row->seq;
	}
	decode_batch_close(&decode);
	decode_close(&engine);
}

/* A captured decoding step goes on with rows that were forked, published, and started on published pages. */
IT_TEST(graphs_replay_with_shared_rows)
{
	struct it_daemon daemon;
	struct it_worker worker;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", DECODE_POOL);
	it_fork(&worker, replay_shared_rows, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

static uint8_t *
engine_bytes(struct decode_engine *engine, struct decode_batch *decode)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	uint8_t *bytes;

	decode_ok(engine->client, paged_pool_get_info(engine->pool, &info));
	bytes = malloc(info.size);
	it_require(bytes != NULL);
	decode_cuda(engine->gpu.driver.copy_out(bytes, (uintptr_t)info.base, info.size, decode->stream));
	decode_cuda(engine->gpu.driver.stream_synchronize(decode->stream));
	return bytes;
}

/*
 * The same step is replayed once more, after its tokens were published: it must not write them again.  Nor if the
 * sequence of an earlier row, which the replay leaves out, was erased before.
 */
static void
replay_after_publish(int from, int to, void *argument)
{
	const bool *erased = argument;
	uint32_t ids[DECODE_MAX_LENGTH] = { 0 }, published = 0;
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = ids };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct decode_engine engine;
	struct decode_batch decode;
	uint8_t *before, *after;
	uint32_t r = 0;

	(void)from, (void)to;
	it_require(fake_cuda_load(), "%s", dlerror());
	decode_open(&engine);
	decode_batch_open(&engine, &decode, 3);
	decode_capture(&decode, CUDA_CAPTURE_GLOBAL);
	decode_ok(engine.client, paged_pool_get_info(engine.pool, &info));
	/* Until a row has filled a page. */
	while (published == 0) {
		decode_replay(&decode);
		for (r = 0; r < DECODE_ROWS && published == 0; r++)
			if ((r > 0 || !*erased) && decode.row[0].seq != 0 && decode.row[r].seq != 0 &&
			    decode.row[r].len % DECODE_PAGE_SIZE == 0)
				published = decode.row[r].len;
	}
	r--;
	prefix.n_tokens = published;
	if (*erased)
		decode_ok(engine.client, paged_seq_erase(engine.client, 1, &decode.row[0].seq));
	decode_ok(engine.client,
		  paged_batch_publish(decode.batch, 1,
				      &(struct paged_publish){ .seq = decode.row[r].seq, .prefix = &prefix }));
	before = engine_bytes(&engine, &decode);
	/* Other K and V, for the same positions. */
	for (size_t i = 0; i < sizeof(*decode.input) / sizeof(float); i++)
		((float *)decode.input)[i] = 7;
	for (uint32_t i = 0; i < DECODE_ROWS; i++)
		if (i != r)
			decode.lengths->kv_len[i] = 0;
	for (uint32_t i = 0; i < DECODE_ROWS; i++)
		decode.lengths->q_indptr[i + 1] = i < r ? 0 : (int32_t)decode.row[r].q_len;
	decode_launch(&decode);
	after = engine_bytes(&engine, &decode);
	it_require(memcmp(before, after, info.size) == 0, "the replay has written published pages");
	decode_expect(engine.client, paged_batch_validate(decode.batch), PAGED_ERR_PERM);
	free(before);
	free(after);
	decode_batch_close(&decode);
	decode_close(&engine);
}

IT_TEST(replays_do_not_write_published_pages)
{
	for (unsigned int erased = 0; erased <= 1; erased++) {
		struct it_daemon daemon;
		struct it_worker worker;

		cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", DECODE_POOL);
		it_fork(&worker, replay_after_publish, &(bool){ erased != 0 });
		it_join(&worker);
		it_daemon_stop(&daemon);
	}
}

IT_MAIN
