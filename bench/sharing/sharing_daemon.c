/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sharing/sharing_daemon.h"

#include "bench/base.h"
#include "bench/processes.h"
#include "bench/random.h"
#include "bench/rounds.h"
#include "bench/sharing/observers.h"

#define LIMIT_S 60
#define PAGE_SIZE 16u
#define PREFIX_TOKENS 32768u
#define VOCABULARY 128000u

#define N_ROWS 16u
#define N_LAYERS 4u
#define KV_HEADS 4u
#define Q_HEADS 8u
#define HEAD_DIM 64u
#define CONTEXT 512u  /* tokens before a sample's first step */
#define MAX_STEPS 64u /* of a sample; each row fills 4 pages */

static const char configuration[] = "pool prefix {\n"
				    "  layers = 1  kv-heads = 1  head-dim = 8  dtype = f16\n"
				    "  page-size = 16  pages = 65536  sequences = 1024  max-length = 65536\n"
				    "}\n"
				    "pool decode {\n"
				    "  layers = 4  kv-heads = 4  head-dim = 64  dtype = f16\n"
				    "  page-size = 16  pages = 2048  sequences = 256  max-length = 1024\n"
				    "}\n";

static struct paged_client *client;
static struct paged_pool *pool;
static struct paged_batch *batch;

/* Returns the daemon's runtime directory. */
static const char *
daemon_open(const char *name, uint32_t reserve_ahead)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .reserve_ahead = reserve_ahead };
	const char *runtime_dir = bench_daemon_start(configuration);
	enum paged_status status = paged_client_open(runtime_dir, NULL, &client);

	bench_client_must(client, status);
	bench_client_must(client, paged_pool_open(client, name, &pool));
	bench_client_must(client, paged_batch_create(pool, &params, &batch));
	return runtime_dir;
}

static void
daemon_close(void)
{
	paged_client_close(client);
	bench_daemon_stop();
}

/* Requests */

static uint32_t prompt[PREFIX_TOKENS];
static const struct paged_prefix prefix = { .struct_size = sizeof(prefix),
					    .tokens = prompt,
					    .n_tokens = PREFIX_TOKENS };
static paged_seq_id parent;

static void
requests_open(void)
{
	uint64_t random = 5;
	uint32_t n_published = 0;

	daemon_open("prefix", 0);
	for (uint32_t i = 0; i < PREFIX_TOKENS; i++)
		prompt[i] = bench_random(&random, VOCABULARY);
	bench_client_must(client, paged_seq_create(client, 1,
						   &(struct paged_seq_params){ .pool = pool,
									       .n_tokens = PREFIX_TOKENS + PAGE_SIZE },
						   &parent));
	while (n_published < PREFIX_TOKENS) {
		struct paged_publish publish = { .seq = parent, .prefix = &prefix };

		bench_client_must(client, paged_seq_publish(pool, 1, &publish));
		bench_client_must(client, paged_client_ping(client)); /* the publish has arrived */
		bench_client_must(client, paged_prefix_match(pool, &prefix, &n_published));
	}
}

static double
sample_match(const void *context)
{
	uint64_t start = bench_now_ns();
	uint32_t n_tokens;

	(void)context;
	bench_client_must(client, paged_prefix_match(pool, &prefix, &n_tokens));
	if (n_tokens != PREFIX_TOKENS)
		bench_die("%u of %u tokens were found", n_tokens, PREFIX_TOKENS);
	return bench_since_us(start);
}

static double
sample_start(const void *context)
{
	const struct paged_start params = { .prefix = &prefix, .reserve = PREFIX_TOKENS + 1024 };
	double us = 0;

	(void)context;
	for (int trip = 0; trip < BENCH_TRIPS; trip++) {
		uint64_t start = bench_now_ns();
		uint32_t n_shared;
		paged_seq_id seq;

		bench_client_must(client, paged_seq_start(pool, 1, &params, &seq, &n_shared));
		us += bench_since_us(start);
		if (n_shared != PREFIX_TOKENS)
			bench_die("%u of %u tokens are shared", n_shared, PREFIX_TOKENS);
		bench_client_must(client, paged_seq_erase(client, 1, &seq));
	}
	return us / BENCH_TRIPS;
}

static double
sample_fork(const void *context)
{
	const uint32_t n_tokens = PREFIX_TOKENS + 5;
	double us = 0;

	(void)context;
	for (int trip = 0; trip < BENCH_TRIPS; trip++) {
		uint64_t start = bench_now_ns();
		paged_seq_id child;

		bench_client_must(client, paged_batch_fork(batch, 1, &parent, &n_tokens, &child));
		us += bench_since_us(start);
		bench_client_must(client, paged_seq_erase(client, 1, &child));
	}
	return us / BENCH_TRIPS;
}

void
sharing_requests_run(struct bench_report *report)
{
	static const struct bench_case cases[] = {
		BENCH_CASE("ping", "us", NULL, NULL, bench_ping_us, &client),
		BENCH_CASE("paged_prefix_match of 32k", "us", "ping", NULL, sample_match, NULL),
		BENCH_CASE("paged_seq_start of 32k", "us", "ping", "<= 1 and 100 us", sample_start, NULL),
		BENCH_CASE("paged_batch_fork of 32k", "us", "ping", NULL, sample_fork, NULL),
	};

	requests_open();
	bench_rounds(report, cases, BENCH_N(cases), LIMIT_S);
	daemon_close();
}

/* Decode */

/** Rows that take the same steps. */
static struct decode {
	bool publishes;
	paged_seq_id seqs[N_ROWS];
	uint32_t tokens[N_ROWS][CONTEXT + MAX_STEPS];
	struct paged_prefix prefixes[N_ROWS];
	struct paged_publish publishes_of[N_ROWS];
} plain, publishing = { .publishes = true };

static struct paged_tensor q, k, v, out;
static uint32_t n_steps;
static uint64_t decode_random = 7;

static struct paged_tensor
decode_tensor(uint32_t n_heads)
{
	struct paged_tensor tensor = { .dtype = PAGED_F16, .n_heads = n_heads, .dim = HEAD_DIM };
	size_t size = (size_t)N_ROWS * n_heads * HEAD_DIM * sizeof(uint16_t);

	tensor.data = bench_alloc(1, size);
	bench_fill(tensor.data, size, PAGED_F16);
	return tensor;
}

/* Attention also reads the tokens before a sample's first step; their K and V are zeros. */
static void
decode_open(struct decode *decode)
{
	struct paged_seq_params params[N_ROWS];

	for (uint32_t r = 0; r < N_ROWS; r++) {
		params[r] = (struct paged_seq_params){ .pool = pool, .n_tokens = CONTEXT };
		decode->prefixes[r] =
			(struct paged_prefix){ .struct_size = sizeof(prefix), .tokens = decode->tokens[r] };
		for (uint32_t i = 0; i < CONTEXT; i++)
			decode->tokens[r][i] = bench_random(&decode_random, VOCABULARY);
	}
	bench_client_must(client, paged_seq_create(client, N_ROWS, params, decode->seqs));
	for (uint32_t r = 0; r < N_ROWS; r++)
		decode->publishes_of[r] =
			(struct paged_publish){ .seq = decode->seqs[r], .prefix = &decode->prefixes[r] };
}

static void
decode_step(struct decode *decode, uint32_t length)
{
	struct paged_batch_row rows[N_ROWS];

	for (uint32_t r = 0; r < N_ROWS; r++) {
		rows[r] = (struct paged_batch_row){ .seq = decode->seqs[r], .q_len = 1, .kv_len = length };
		decode->prefixes[r].n_tokens = length;
	}
	bench_client_must(client, paged_batch_plan(batch, N_ROWS, rows));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		bench_client_must(client, paged_append(batch, layer, &k, &v, NULL));
		bench_client_must(client, paged_attention(batch, layer, &q, &out, NULL));
	}
	if (decode->publishes)
		bench_client_must(client, paged_batch_publish(batch, N_ROWS, decode->publishes_of));
}

/* Steps from the same context each time, with other tokens, so that each page that is filled is new. */
static double
sample_decode(const void *context)
{
	struct decode *decode = (struct decode *)context;
	struct paged_seq_item items[N_ROWS];
	uint64_t start;
	double us;

	for (uint32_t r = 0; r < N_ROWS; r++) {
		items[r] = (struct paged_seq_item){ .seq = decode->seqs[r], .n_tokens = CONTEXT };
		for (uint32_t i = CONTEXT; i < CONTEXT + MAX_STEPS; i++)
			decode->tokens[r][i] = bench_random(&decode_random, VOCABULARY);
	}
	bench_client_must(client, paged_seq_truncate(client, N_ROWS, items));
	start = bench_now_ns();
	for (uint32_t step = 1; step <= n_steps; step++)
		decode_step(decode, CONTEXT + step);
	us = bench_since_us(start);
	bench_client_must(client, paged_batch_finish(batch));
	return us / n_steps;
}

/* The same while paged-events publishes what changes, its metrics are scraped, and pagedctl top shows them. */
static double
sample_observed_decode(const void *context)
{
	double us;

	bench_observers_resume();
	us = sample_decode(context);
	bench_observers_pause();
	return us;
}

void
sharing_decode_run(struct bench_report *report)
{
	static const char publishes[] = "decode step of 16 rows that publishes";
	struct bench_case cases[] = {
		BENCH_CASE("decode step of 16 rows", "us", NULL, NULL, sample_decode, &plain),
		BENCH_CASE(publishes, "us", "decode step of 16 rows", "<= 1.02", sample_decode, &publishing),
		BENCH_CASE("the same, while paged-events and top run", "us", publishes, "<= 1.02",
			   sample_observed_decode, &publishing),
	};
	const char *runtime_dir = daemon_open("decode", PAGE_SIZE);
	bool observed = bench_observers_start(runtime_dir);

	n_steps = report->options->quick ? PAGE_SIZE : MAX_STEPS;
	if (!observed)
		cases[2].skipped = "this build has no paged-events or no pagedctl";
	q = decode_tensor(Q_HEADS);
	k = decode_tensor(KV_HEADS);
	v = decode_tensor(KV_HEADS);
	out = decode_tensor(Q_HEADS);
	decode_open(&plain);
	decode_open(&publishing);
	bench_rounds(report, cases, BENCH_N(cases), LIMIT_S);
	if (observed)
		bench_observers_stop();
	daemon_close();
}
