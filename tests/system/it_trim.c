/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages given back at the beginning of sequences: a sliding window over a sequence much longer than its pool, readers
 * in other processes while it is trimmed, and kills.
 */
#include "config.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/reference.h"
#include "tests/support/sequences.h"
#include "tests/support/wire_peer.h"
#include "tests/support/worker_fixture.h"

#define SEED 20261125u
#define KV_ELEMENTS (WORKER_KV_HEADS * WORKER_DIM)
#define WINDOW 37u /* tokens that a query sees; no multiple of the page size */
#define POOL_PAGES 16
#define POOL_TOKENS (POOL_PAGES * WORKER_PAGE_SIZE)
/* Kernels of the fake driver are slow. */
#ifdef WORKER_ON_CUDA
#define LENGTH (4u * POOL_TOKENS)
#define MOST_STEPS 700
#else
#define LENGTH (50u * POOL_TOKENS)
#define MOST_STEPS 4000
#endif

/** Pool "test" whose max-length is many times its size. */
#define TRIM_POOL                         \
	"pool test {\n" WORKER_POOL_SHAPE \
	"\n" POOL_SIZES(WORKER_PAGE_SIZE, POOL_PAGES, WORKER_SLOTS, 4096) "\n free-pages = 0\n}\n"

/* K and V of a token, in which every number depends on token, layer and seed. */
static void
token_fill(uint64_t seed, uint32_t layer, uint32_t token, float *k, float *v)
{
	for (uint32_t i = 0; i < KV_ELEMENTS; i++) {
		k[i] = random_float(seed + layer, (uint64_t)token * KV_ELEMENTS + i, 1);
		v[i] = random_float(seed + layer + 100, (uint64_t)token * KV_ELEMENTS + i, 1);
	}
}

/* Appends the last q_len tokens of the planned row. */
static void
tokens_append(struct worker_fixture *worker, uint64_t seed, uint32_t from, uint32_t to)
{
	static float k[POOL_TOKENS][KV_ELEMENTS], v[POOL_TOKENS][KV_ELEMENTS];
	struct paged_tensor tk, tv;

	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		for (uint32_t token = from; token < to; token++)
			token_fill(seed, layer, token, k[token - from], v[token - from]);
		tk = worker_tensor(worker, WORKER_K, k[0], to - from, WORKER_KV_HEADS);
		tv = worker_tensor(worker, WORKER_V, v[0], to - from, WORKER_KV_HEADS);
		worker_ok(worker, paged_append(worker->batch, layer, &tk, &tv, NULL));
	}
}

static void
query_fill(uint32_t layer, uint32_t kv_len, float *q)
{
	for (uint32_t i = 0; i < WORKER_OUT; i++)
		q[i] = random_float(layer + 7, (uint64_t)kv_len * WORKER_OUT + i, 1);
}

/* One query, after kv_len tokens. */
static void
query_attend(struct worker_fixture *worker, uint32_t layer, uint32_t kv_len, struct paged_mod_set *mods, float *out)
{
	const struct paged_attention_params params = { .struct_size = sizeof(params), .mod_set = mods };
	const struct paged_tensor to = worker_result(worker, out, 1);
	struct paged_tensor tq;
	float q[WORKER_OUT];

	query_fill(layer, kv_len, q);
	tq = worker_tensor(worker, WORKER_Q, q, 1, WORKER_HEADS);
	worker_ok(worker, paged_attention(worker->batch, layer, &tq, &to, &params));
	worker_fetch(worker, out, 1);
}

/* What the query after kv_len tokens sees of tokens [first, kv_len), in float64. */
static void
query_check(uint64_t seed, uint32_t layer, uint32_t first, uint32_t kv_len, const float *out)
{
	static float k[WINDOW + WORKER_PAGE_SIZE][KV_ELEMENTS], v[WINDOW + WORKER_PAGE_SIZE][KV_ELEMENTS];
	float q[WORKER_OUT];

	it_require(kv_len - first <= WINDOW + WORKER_PAGE_SIZE);
	query_fill(layer, kv_len, q);
	for (uint32_t token = first; token < kv_len; token++)
		token_fill(seed, layer, token, k[token - first], v[token - first]);
	for (uint32_t h = 0; h < WORKER_HEADS; h++) {
		uint32_t kv_head = h / (WORKER_HEADS / WORKER_KV_HEADS);
		const struct reference_q_row row = {
			.q = &q[h * WORKER_DIM],
			.k = &k[0][kv_head * WORKER_DIM],
			.v = &v[0][kv_head * WORKER_DIM],
			.k_stride = KV_ELEMENTS,
			.v_stride = KV_ELEMENTS,
			.k_dim = WORKER_DIM,
			.v_dim = WORKER_DIM,
			.n_keys = kv_len - first,
			.scale = 1 / sqrt(WORKER_DIM),
		};
		struct reference_result expected;

		reference_attend(&row, &expected);
		for (uint32_t i = 0; i < WORKER_DIM; i++)
			it_require(fabs(out[h * WORKER_DIM + i] - expected.out[i]) <= expected.out_tolerance,
				   "token %u, layer %u, head %u, element %u: %g instead of %g", kv_len, layer, h, i,
				   (double)out[h * WORKER_DIM + i], expected.out[i]);
	}
}

static struct paged_seq_info
info_of(struct worker_fixture *worker, paged_seq_id seq)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	worker_ok(worker, paged_seq_read(worker->pool, seq, &info, NULL, 0));
	return info;
}

/* The first token that later queries of a sequence of kv_len tokens see. */
static uint32_t
window_first(uint32_t kv_len)
{
	return kv_len + 1 > WINDOW ? kv_len + 1 - WINDOW : 0;
}

/* Decodes LENGTH tokens; with mods as a sliding window mod, else as a row that begins where the window does. */
static void
window_decode(struct worker_fixture *worker, struct paged_mod_set *mods)
{
	paged_seq_id seq = worker_create_seq(worker, 0);
	float out[WORKER_OUT];

	for (uint32_t n = 1; n <= LENGTH; n++) {
		const uint32_t first = window_first(n - 1), later = window_first(n);
		const struct paged_batch_row row = {
			.seq = seq, .q_len = 1, .kv_len = n, .kv_first = mods != NULL ? 0 : first
		};

		worker_ok(worker, paged_batch_plan(worker->batch, 1, &row));
		tokens_append(worker, SEED, n - 1, n);
		for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
			query_attend(worker, layer, n, mods, out);
			query_check(SEED, layer, first, n, out);
		}
		worker_ok(worker, paged_batch_validate(worker->batch));
		worker_ok(worker, seqs_trim(worker->client, 1, &seq, &later));
		it_require(info_of(worker, seq).n_trimmed == later / WORKER_PAGE_SIZE);
	}
	it_require(info_of(worker, seq).capacity >= LENGTH);
	worker_check_pool(worker);
	worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
}

IT_TEST(window_over_many_times_the_pool)
{
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct worker_fixture worker;
	struct paged_mod_set *mods;
	struct it_daemon daemon;
	struct paged_mod *mask;
	char text[64];

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	worker_open(&worker, NULL, 1);
	snprintf(text, sizeof(text), "causal && q_idx - kv_idx < %u", WINDOW);
	worker_ok(&worker, paged_mod_parse(worker.pool, PAGED_MOD_MASK, text, 0, NULL, &mask));
	params.mask = mask;
	worker_ok(&worker, paged_mod_set_create(worker.batch, &params, &mods));
	window_decode(&worker, mods);
	window_decode(&worker, NULL);
	it_require(worker_pool_entry(&worker, "test").n_free == POOL_PAGES);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* What the writer tells its readers, in memory that they share. */
struct progress {
	paged_seq_id seq;
	_Atomic uint32_t n_tokens; /* written */
	_Atomic uint32_t n_read, n_stale;
};

static struct progress *
progress_map(void)
{
	void *map = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	it_require(map != MAP_FAILED, "%m");
	return map;
}

/* Reads the last tokens again and again; what validate confirms is right, whatever the writer gives back meanwhile. */
static void
reader(int from, int to, void *argument)
{
	struct progress *progress = argument;
	struct worker_fixture worker;
	enum paged_status status;
	float out[WORKER_OUT];

	worker_open(&worker, NULL, 0);
	it_send(to, "r", 1);
	it_receive(from, out, 1);
	for (;;) {
		uint32_t n = atomic_load(&progress->n_tokens), first = window_first(n);
		const struct paged_batch_row row = {
			.seq = progress->seq, .q_len = 1, .kv_len = n, .kv_first = first, .flags = PAGED_ROW_NO_APPEND
		};

		status = paged_batch_plan(worker.batch, 1, &row);
		if (status == PAGED_ERR_STALE) {
			atomic_fetch_add(&progress->n_stale, 1);
			continue;
		}
		worker_ok(&worker, status);
		/* The plan saw this or less given back; more makes it stale. */
		if (info_of(&worker, progress->seq).n_trimmed * WORKER_PAGE_SIZE > first)
			continue;
		query_attend(&worker, 0, n, NULL, out);
		status = paged_batch_validate(worker.batch);
		if (status == PAGED_ERR_STALE) {
			atomic_fetch_add(&progress->n_stale, 1);
			continue;
		}
		worker_ok(&worker, status);
		query_check(SEED, 0, first, n, out);
		atomic_fetch_add(&progress->n_read, 1);
	}
}

static void
window_step(struct worker_fixture *worker, struct progress *progress, uint32_t n)
{
	const struct paged_batch_row row = { .seq = progress->seq, .q_len = 1, .kv_len = n };
	const uint32_t first = window_first(n);

	worker_ok(worker, paged_batch_plan(worker->batch, 1, &row));
	tokens_append(worker, SEED, n - 1, n);
	worker_ok(worker, paged_batch_finish(worker->batch));
	atomic_store(&progress->n_tokens, n);
	worker_ok(worker, seqs_trim(worker->client, 1, &progress->seq, &first));
}

/* A trimmed page is the next one to be written, so a reader that used it would see another token's K and V. */
IT_TEST(readers_see_the_right_tokens_or_stale)
{
	struct progress *progress = progress_map();
	struct worker_fixture worker;
	struct it_worker children[2];
	struct it_daemon daemon;
	char word;
	uint32_t n = 1;

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	/* First, because a child of a process that uses CUDA cannot use it. */
	for (int i = 0; i < 2; i++) {
		it_fork(&children[i], reader, progress);
		it_receive(children[i].from, &word, 1);
	}
	worker_open(&worker, NULL, 1);
	progress->seq = worker_create_seq(&worker, 0);
	window_step(&worker, progress, n++);
	for (int i = 0; i < 2; i++)
		it_send(children[i].to, "w", 1);
	while (n <= MOST_STEPS &&
	       (atomic_load(&progress->n_read) < 300 || atomic_load(&progress->n_stale) < 30 || n < 500))
		window_step(&worker, progress, n++);
	it_note("%u tokens, %u reads, %u stale", n - 1, atomic_load(&progress->n_read),
		atomic_load(&progress->n_stale));
	it_require(atomic_load(&progress->n_read) > 0);
	for (int i = 0; i < 2; i++)
		it_kill(&children[i]);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
	munmap(progress, sizeof(*progress));
}

/* A plan from before a trim is stale; one that ends before the first page is refused. */
IT_TEST(plans_of_trimmed_sequences)
{
	struct worker_fixture worker, other;
	struct it_daemon daemon;
	paged_seq_id seq;
	float out[WORKER_OUT];
	uint32_t first = 10;

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_open(&other, NULL, 0);
	seq = worker_create_seq(&worker, 16);
	worker_ok(&worker, worker_plan(&worker, seq, 0, 16, 0));
	tokens_append(&worker, SEED, 0, 16);
	worker_ok(&other, worker_plan(&other, seq, 15, 16, PAGED_ROW_NO_APPEND));
	worker_expect(&other, seqs_trim(other.client, 1, &seq, &first), PAGED_ERR_PERM);
	worker_ok(&worker, seqs_trim(worker.client, 1, &seq, &first));
	worker_expect(&other, paged_batch_validate(other.batch), PAGED_ERR_STALE);
	worker_expect(&other, worker_plan(&other, seq, 6, 7, PAGED_ROW_NO_APPEND), PAGED_ERR_STALE);
	it_require(strstr(paged_client_error(other.client),
			  "the tokens before 8 of sequence 0.1 were given back, so it "
			  "cannot end at kv_len 7") != NULL,
		   "%s", paged_client_error(other.client));
	worker_ok(&other, worker_plan(&other, seq, 15, 16, PAGED_ROW_NO_APPEND));
	/* A reader that says nothing of kv_first attends to what is left. */
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		query_attend(&other, layer, 16, NULL, out);
		query_check(SEED, layer, 8, 16, out);
	}
	worker_ok(&other, paged_batch_validate(other.batch));
	/* What was given back cannot be written; after it, writing goes on. */
	worker_ok(&worker, worker_plan(&worker, seq, 7, 16, 0));
	worker_expect(&worker, worker_append(&worker, 0, 7, 16, SEED), PAGED_ERR_PERM);
	it_require(strstr(paged_client_error(worker.client),
			  "the page of position 7 of sequence 0.1 was given back; its first page begins at token 8") !=
			   NULL,
		   "%s", paged_client_error(worker.client));
	worker_ok(&worker, worker_plan(&worker, seq, 8, 16, 0));
	tokens_append(&worker, SEED, 8, 16);
	worker_close(&other);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

#define PUBLISH_POOL                      \
	"pool test {\n" WORKER_POOL_SHAPE \
	"\n" POOL_SIZES(WORKER_PAGE_SIZE, POOL_PAGES, WORKER_SLOTS, 64) "\n publish = yes\n}\n"

static uint32_t prompt[64];

static struct paged_prefix
prompt_prefix(uint32_t n_tokens)
{
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix),
				      .tokens = prompt,
				      .n_tokens = n_tokens };
}

/* Publishes the first n_tokens tokens of a sequence; returns how many others find then. */
static uint32_t
publish(struct worker_fixture *worker, paged_seq_id seq, uint32_t n_tokens)
{
	const struct paged_prefix prefix = prompt_prefix(n_tokens), all = prompt_prefix(64);
	const struct paged_publish publishes = { .seq = seq, .prefix = &prefix };
	uint32_t n_found;

	worker_ok(worker, paged_seq_publish(worker->pool, 1, &publishes));
	worker_pool_entry(worker, "test"); /* publishing has no reply; this request comes after it */
	worker_ok(worker, paged_prefix_match(worker->pool, &all, &n_found));
	return n_found;
}

static void
publish_open(struct worker_fixture *worker, struct it_daemon *daemon)
{
	for (uint32_t i = 0; i < 64; i++)
		prompt[i] = i + 1;
	it_daemon_start(daemon, PUBLISH_POOL, NULL, NULL);
	worker_open(worker, NULL, 0);
}

/* The trimmed pages of a published sequence stay in the cache, and what it writes later is found behind them. */
IT_TEST(trimmed_sequence_goes_on_publishing)
{
	struct worker_fixture worker;
	struct paged_prefix prefix = prompt_prefix(64);
	struct it_daemon daemon;
	uint32_t n_shared, first = 13;
	float out[WORKER_OUT];
	paged_seq_id seq, start;

	publish_open(&worker, &daemon);
	seq = worker_create_seq(&worker, 32);
	worker_ok(&worker, worker_plan(&worker, seq, 0, 16, 0));
	tokens_append(&worker, SEED, 0, 16);
	it_require(publish(&worker, seq, 16) == 16);
	worker_ok(&worker, seqs_trim(worker.client, 1, &seq, &first));
	worker_ok(&worker, worker_plan(&worker, seq, 16, 32, 0));
	tokens_append(&worker, SEED, 16, 32);
	it_require(publish(&worker, seq, 32) == 32);
	/* Another sequence starts on all of it, also what was given back. */
	worker_ok(&worker, paged_seq_start(worker.pool, 1, &(struct paged_start){ .prefix = &prefix, .reserve = 64 },
					   &start, &n_shared));
	it_require(n_shared == 32, "%u tokens are shared", n_shared);
	worker_ok(&worker, worker_plan(&worker, start, 31, 32, PAGED_ROW_NO_APPEND));
	query_attend(&worker, 0, 32, NULL, out);
	query_check(SEED, 0, 0, 32, out);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Once the pages that it gave back are evicted, nothing can be found behind them: publishing does nothing, and is OK.
 */
IT_TEST(trimmed_sequence_without_its_tip_publishes_nothing)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint32_t first = 16, n_evicted;
	paged_seq_id seq;

	publish_open(&worker, &daemon);
	seq = worker_create_seq(&worker, 32);
	worker_ok(&worker, worker_plan(&worker, seq, 0, 32, 0));
	tokens_append(&worker, SEED, 0, 32);
	it_require(publish(&worker, seq, 16) == 16);
	worker_ok(&worker, seqs_trim(worker.client, 1, &seq, &first));
	worker_ok(&worker, paged_admin_evict(worker.client, "test", UINT32_MAX, &n_evicted));
	it_require(n_evicted == 4, "%u pages were evicted", n_evicted);
	it_require(publish(&worker, seq, 32) == 0);
	/* Nor what was never published before the trim. */
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	seq = worker_create_seq(&worker, 32);
	worker_ok(&worker, seqs_trim(worker.client, 1, &seq, &first));
	it_require(publish(&worker, seq, 32) == 0);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static void
trims_repeatedly(int from, int to, void *argument)
{
	struct progress progress = { 0 };
	struct worker_fixture worker;

	(void)from, (void)argument;
	worker_open(&worker, NULL, 1);
	progress.seq = worker_create_seq(&worker, 0);
	it_send(to, "r", 1);
	for (uint32_t n = 1;; n++) {
		window_step(&worker, &progress, n);
		if (n == 4096) {
			worker_ok(&worker, paged_seq_erase(worker.client, 1, &progress.seq));
			progress.seq = worker_create_seq(&worker, 0);
			n = 0;
		}
	}
}

/* The signal finds the worker inside a trim or between two; only what it had not given back is quarantined. */
IT_TEST(worker_is_killed_at_random)
{
	struct worker_fixture observer;
	uint64_t random = test_seed();
	struct it_daemon daemon;
	struct it_worker child;
	char word;

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	worker_observe(&observer);
	for (int i = 0; i < 30; i++) {
		it_fork(&child, trims_repeatedly, NULL);
		it_receive(child.from, &word, 1);
		usleep((useconds_t)random_below(&random, 30000));
		worker_check_pool(&observer);
		it_kill(&child);
		worker_wait_free(&observer, "test");
		worker_check_pool(&observer);
	}
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* The daemon kills itself inside a trim: the writer's request and the reader's validation tell. */
IT_TEST(daemon_is_killed_inside_a_trim)
{
	struct worker_fixture worker, other;
	struct it_daemon daemon;
	uint32_t first = 8;
	paged_seq_id seq;

	/* The first update belongs to the creation. */
	it_daemon_start(&daemon, TRIM_POOL, "tests/daemon/pagedd-faults",
			(const char *[]){ "PAGED_FAULT=page-table-update:2", NULL });
	worker_open(&worker, NULL, 0);
	worker_open(&other, NULL, 0);
	seq = worker_create_seq(&worker, 16);
	worker_ok(&worker, worker_plan(&worker, seq, 0, 16, 0));
	tokens_append(&worker, SEED, 0, 16);
	worker_ok(&other, worker_plan(&other, seq, 15, 16, PAGED_ROW_NO_APPEND));
	worker_expect(&worker, seqs_trim(worker.client, 1, &seq, &first), PAGED_ERR_GONE);
	worker_expect(&other, paged_batch_validate(other.batch), PAGED_ERR_GONE);
	worker_expect(&other, worker_plan(&other, seq, 15, 16, PAGED_ROW_NO_APPEND), PAGED_ERR_GONE);
	it_daemon_kill(&daemon);
	worker_close(&worker);
	worker_close(&other);
}

IT_TEST(observers_may_not_trim)
{
	struct paged_seq_item item = { .seq = PAGED_SEQ(1, 0, 0), .n_tokens = 4 };
	struct wire_request request = { .kind = WIRE_TRIM, .change = { 1, &item } };
	struct wire_peer peer;
	struct wire_reply reply;
	struct it_daemon daemon;

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_OBSERVER, NULL);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_PERM);
	it_require(strcmp(reply.text, "trim: an observer may only read") == 0, "%s", reply.text);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

IT_TEST(pagedctl_shows_what_was_given_back)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint32_t first = 9;
	paged_seq_id seq;
	const char *text;
	int code;

	it_daemon_start(&daemon, TRIM_POOL, NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 16);
	text = it_pagedctl(&code, "sequences", NULL);
	it_require(code == 0 && strstr(text, "TRIMMED") != NULL, "%s", text);
	worker_ok(&worker, seqs_trim(worker.client, 1, &seq, &first));
	text = it_pagedctl(&code, "sequences", NULL);
	it_require(code == 0 && strstr(text, "PAGES  TRIMMED") != NULL && strstr(text, "4        2") != NULL, "%s",
		   text);
	text = it_pagedctl(&code, "table", "0.1", NULL);
	it_require(code == 0 && strstr(text, "4 pages, the first 2 given back\n") != NULL &&
			   strstr(text, "0:         -         -         1         0") != NULL,
		   "%s", text);
	text = it_pagedctl(&code, "--json", "table", "0.1", NULL);
	it_require(code == 0 && strstr(text, "\"trimmed\": 2") != NULL, "%s", text);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
