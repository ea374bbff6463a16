/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine in small, as docs/ENGINES.md explains it: admission, preemption when the pool is full, resumption on cached
 * pages, draining.  A test compares its answers with known ones.
 *
 *   engine POOL REQUESTS PROMPT ANSWER      PROMPT and ANSWER: tokens of each request
 *
 * In place of a model: V of a token is its id and K is 0, so that attention is the mean of the ids before it.
 */
#include <math.h>
#include <pagedclient.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 64, MAX_TOKENS = 4096, CHUNK = 64, VOCABULARY = 251 };

struct request {
	uint32_t tokens[MAX_TOKENS]; /* prompt and answer so far */
	uint32_t number, n, n_prompt, n_goal;
	uint32_t n_written; /* tokens whose K and V are in pages */
	paged_seq_id seq;
};

static struct paged_client *client;
static struct paged_pool *pool;
static struct paged_batch *batch;
static struct paged_pool_info info = PAGED_POOL_INFO_INIT;
static struct request requests[MAX_REQUESTS];
static struct request *waiting[MAX_REQUESTS], *running[MAX_REQUESTS]; /* running: in the order of admission */
static uint32_t n_waiting, n_running, n_preempted, n_shared;
static bool draining;
static float *k, *v, *q, *out; /* [MAX_REQUESTS * CHUNK] tokens */

static void
check(enum paged_status status)
{
	if (status == PAGED_OK)
		return;
	fprintf(stderr, "engine: %s\n", paged_client_error(client));
	exit(EXIT_FAILURE);
}

static uint32_t
pages_of(uint32_t n_tokens)
{
	return (n_tokens + info.page_size - 1) / info.page_size;
}

/* Tokens of the row's next step: one that decodes, or a chunk of the prompt. */
static uint32_t
n_next(const struct request *row)
{
	return row->n - row->n_written < CHUNK ? row->n - row->n_written : CHUNK;
}

/* After FULL or QUOTA with nothing to preempt: ends the program if nothing that others do can help. */
static void
give_up_or_wait(void)
{
	struct paged_shortage shortage = PAGED_SHORTAGE_INIT;
	enum paged_status status = paged_client_shortage(client, &shortage);

	if (status != PAGED_OK || shortage.n_others + shortage.n_quarantined == 0)
		check(PAGED_ERR_FULL);
	/* A short wait, so that the loop hears of a drain.  TIMEOUT and OK both mean: try again. */
	status = paged_pool_wait_free(pool, shortage.n_free + shortage.n_cached + shortage.pages_missing, 100);
	check(status == PAGED_ERR_TIMEOUT ? PAGED_OK : status);
}

/* Starts those of the waiting requests that fit, and leaves the running rows a page each for the next step. */
static void
admit(void)
{
	struct paged_pool_counts counts = PAGED_POOL_COUNTS_INIT;
	struct paged_prefix prefixes[MAX_REQUESTS];
	struct paged_start starts[MAX_REQUESTS];
	uint32_t shared[MAX_REQUESTS], available, n = 0;
	paged_seq_id seqs[MAX_REQUESTS];
	enum paged_status status;

	check(paged_pool_get_counts(pool, &counts));
	available = counts.n_free + counts.n_cached;
	available -= available < n_running ? available : n_running;
	/* With nothing running, the first one is tried in any case: its refusal says what is missing. */
	for (; n < n_waiting; n++) {
		uint32_t n_pages = pages_of(waiting[n]->n) + 1;

		if (n_pages > available && (n > 0 || n_running > 0))
			break;
		available -= n_pages > available ? available : n_pages;
		prefixes[n] = (struct paged_prefix){ .struct_size = sizeof(prefixes[n]),
						     .tokens = waiting[n]->tokens,
						     .n_tokens = waiting[n]->n };
		/* The last token is always computed: the next one comes from it. */
		starts[n] = (struct paged_start){ .prefix = &prefixes[n],
						  .reserve = waiting[n]->n,
						  .max_tokens = waiting[n]->n - 1 };
	}
	if (n == 0)
		return;
	status = paged_seq_start(pool, n, starts, seqs, shared);
	if (status == PAGED_ERR_STOPPING) {
		draining = true;
	} else if (status == PAGED_ERR_FULL || status == PAGED_ERR_QUOTA) {
		/* Others were faster.  Nothing was taken; the running rows go on. */
		if (n_running == 0)
			give_up_or_wait();
	} else {
		check(status);
		for (uint32_t i = 0; i < n; i++) {
			waiting[i]->seq = seqs[i];
			waiting[i]->n_written = shared[i];
			n_shared += shared[i];
			running[n_running++] = waiting[i];
		}
		n_waiting -= n;
		memmove(waiting, waiting + n, n_waiting * sizeof(waiting[0]));
	}
}

/* Erases the row that was admitted last.  Its published pages stay cached, and its next start shares them. */
static void
preempt(void)
{
	struct request *last = running[--n_running];

	check(paged_batch_finish(batch));
	check(paged_seq_erase(client, 1, &last->seq));
	memmove(waiting + 1, waiting, n_waiting++ * sizeof(waiting[0]));
	waiting[0] = last;
	n_preempted++;
}

/* Plans the next tokens of all running rows, or of those for which there are pages. */
static void
plan(void)
{
	struct paged_batch_row rows[MAX_REQUESTS];
	enum paged_status status;
	uint32_t n_tokens;

	for (;;) {
		n_tokens = 0;
		for (uint32_t i = 0; i < n_running; i++) {
			const struct request *at = running[i];
			uint32_t n = n_next(at);

			rows[i] = (struct paged_batch_row){ .seq = at->seq, .q_len = n, .kv_len = at->n_written + n };
			for (uint32_t t = 0; t < n; t++, n_tokens++)
				for (uint32_t d = 0; d < info.n_kv_heads * info.v.dim; d++)
					v[n_tokens * info.n_kv_heads * info.v.dim + d] =
						(float)at->tokens[at->n_written + t];
		}
		status = paged_batch_plan(batch, n_running, rows);
		if (status != PAGED_ERR_FULL && status != PAGED_ERR_QUOTA)
			break;
		if (n_running > 1)
			preempt();
		else
			give_up_or_wait();
	}
	check(status);
}

static void
end_request(uint32_t i)
{
	struct request *done = running[i];

	printf("request %u:", done->number);
	for (uint32_t t = done->n_prompt; t < done->n; t++)
		printf(" %u", done->tokens[t]);
	printf("\n");
	check(paged_seq_erase(client, 1, &done->seq));
	memmove(running + i, running + i + 1, (--n_running - i) * sizeof(running[0]));
}

static void
step(void)
{
	const uint32_t width = info.n_kv_heads * info.v.dim;
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = info.n_kv_heads, .dim = info.k.dim };
	struct paged_tensor tv = { .data = v, .dtype = PAGED_F32, .n_heads = info.n_kv_heads, .dim = info.v.dim };
	struct paged_tensor tq = tk, to = tv;
	struct paged_publish publishes[MAX_REQUESTS];
	struct paged_prefix prefixes[MAX_REQUESTS];
	uint32_t at = 0;

	plan();
	tq.data = q;
	to.data = out;
	for (uint32_t layer = 0; layer < info.n_layers; layer++) {
		check(paged_append(batch, layer, &tk, &tv, NULL));
		check(paged_attention(batch, layer, &tq, &to, NULL));
	}
	check(paged_batch_finish(batch));
	for (uint32_t i = 0; i < n_running; i++) {
		struct request *row = running[i];
		uint32_t n = n_next(row);

		at += n;
		row->n_written += n;
		prefixes[i] = (struct paged_prefix){ .struct_size = sizeof(prefixes[i]),
						     .tokens = row->tokens,
						     .n_tokens = row->n_written };
		publishes[i] = (struct paged_publish){ .seq = row->seq, .prefix = &prefixes[i] };
		if (row->n_written < row->n)
			continue; /* the prompt has further chunks */
		/* The last query row yields the next token. */
		n = (uint32_t)lrintf(out[(at - 1) * width] * (float)row->n) + 7 * row->n;
		row->tokens[row->n++] = n % VOCABULARY;
	}
	check(paged_batch_publish(batch, n_running, publishes));
	for (uint32_t i = n_running; i-- > 0;)
		if (running[i]->n == running[i]->n_goal)
			end_request(i);
}

int
main(int argc, char **argv)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "engine", .wait_ms = 60000 };
	struct paged_batch_params batch_params = { .struct_size = sizeof(batch_params),
						   .max_rows = MAX_REQUESTS,
						   .reserve_ahead = 1,
						   .max_q_tokens = MAX_REQUESTS * CHUNK };
	uint32_t n_prompt = argc == 5 ? (uint32_t)atoi(argv[3]) : 0, n_answer = argc == 5 ? (uint32_t)atoi(argv[4]) : 0;

	n_waiting = argc == 5 ? (uint32_t)atoi(argv[2]) : 0;
	if (n_waiting == 0 || n_waiting > MAX_REQUESTS || n_prompt < 2 || n_answer == 0 ||
	    n_prompt + n_answer > MAX_TOKENS)
		return fprintf(stderr, "usage: engine POOL REQUESTS PROMPT ANSWER\n"), 2;
	check(paged_client_open(NULL, &params, &client));
	check(paged_pool_open(client, argv[1], &pool));
	check(paged_pool_get_info(pool, &info));
	check(paged_batch_create(pool, &batch_params, &batch));
	k = calloc(MAX_REQUESTS * CHUNK, info.n_kv_heads * info.k.dim * sizeof(float));
	v = calloc(MAX_REQUESTS * CHUNK, info.n_kv_heads * info.v.dim * sizeof(float));
	out = calloc(MAX_REQUESTS * CHUNK, info.n_kv_heads * info.v.dim * sizeof(float));
	q = k; /* 0, too */
	if (k == NULL || v == NULL || out == NULL)
		return EXIT_FAILURE;
	for (uint32_t i = 0; i < n_waiting; i++) {
		requests[i].number = i;
		requests[i].n = requests[i].n_prompt = n_prompt;
		requests[i].n_goal = n_prompt + n_answer;
		for (uint32_t t = 0; t < n_prompt; t++) /* the first half is the same in all: a system prompt */
			requests[i].tokens[t] = (13 * t + (t < n_prompt / 2 ? 0 : 31 * i)) % VOCABULARY;
		waiting[i] = &requests[i];
	}
	while (n_running > 0 || (n_waiting > 0 && !draining)) {
		enum paged_status status = paged_client_dispatch(client);

		draining = draining || status == PAGED_ERR_STOPPING;
		check(status == PAGED_ERR_STOPPING ? PAGED_OK : status);
		if (n_waiting > 0 && !draining)
			admit();
		if (n_running > 0)
			step();
	}
	printf("%u requests not started, %u preemptions, %u tokens found cached\n", n_waiting, n_preempted, n_shared);
	paged_client_close(client);
	return EXIT_SUCCESS;
}
