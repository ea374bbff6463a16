/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefill process and a decode process on one pool.  The first computes a prompt, gives the sequence and ends; the
 * second adopts it and continues.  Only a ticket of 16 bytes goes from one to the other, here through a pipe: K and V
 * stay in the pages where they were written.  The pool is README.md's.  A test runs it.
 */
#include <pagedclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PROMPT = 100, N_ANSWER = 20, N_HEADS = 9, N_KV_HEADS = 3, DIM = 64, MAX_PAGES = 128 };

static struct paged_client *client;
static struct paged_pool *pool;
static struct paged_batch *batch;
static struct paged_pool_info info = { .struct_size = sizeof(info) };

/* q stays 0: every query attends equally to all tokens up to its own. */
static float q[N_PROMPT * N_HEADS * DIM], out[N_PROMPT * N_HEADS * DIM];
static float k[N_PROMPT * N_KV_HEADS * DIM], v[N_PROMPT * N_KV_HEADS * DIM];

static void
check(enum paged_status status)
{
	if (status == PAGED_OK)
		return;
	fprintf(stderr, "%s\n", paged_client_error(client));
	exit(1);
}

static void
attach(const char *name)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .name = name };
	/* The steps of a decode process send no request but one for pages now and then. */
	const struct paged_batch_params batch_params = { .struct_size = sizeof(batch_params), .reserve_ahead = 32 };

	check(paged_client_open(NULL, &params, &client));
	check(paged_pool_open(client, "llama", &pool));
	check(paged_pool_get_info(pool, &info));
	check(paged_batch_create(pool, &batch_params, &batch));
}

/* Stands for the model: writes the last n_tokens tokens of a sequence, whose V is `value`, and attends. */
static void
step(paged_seq_id seq, uint32_t n_tokens, uint32_t length, float value)
{
	struct paged_tensor tq = { .data = q, .dtype = PAGED_F32, .n_heads = N_HEADS, .dim = DIM }, to = tq;
	struct paged_tensor tk = { .data = k, .dtype = PAGED_F32, .n_heads = N_KV_HEADS, .dim = DIM }, tv = tk;

	tv.data = v;
	to.data = out;
	for (size_t i = 0; i < (size_t)n_tokens * N_KV_HEADS * DIM; i++)
		v[i] = value;
	check(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = seq, .q_len = n_tokens, .kv_len = length }));
	for (uint32_t layer = 0; layer < info.n_layers; layer++) {
		check(paged_append(batch, layer, &tk, &tv, NULL));
		check(paged_attention(batch, layer, &tq, &to, NULL));
	}
	check(paged_batch_finish(batch)); /* a GPU has done the work; on a CPU it is done already */
}

static void
print_pages(const char *process, paged_seq_id seq, uint32_t length)
{
	uint32_t pages[MAX_PAGES], n = (length + info.page_size - 1) / info.page_size;

	check(paged_seq_read(pool, seq, NULL, pages, MAX_PAGES));
	printf("%s: %u tokens in pages", process, length);
	for (uint32_t i = 0; i < n && i < MAX_PAGES; i++)
		printf(" %u", pages[i]);
	puts("");
}

static void
prefill(int to_decode)
{
	const uint32_t length = N_PROMPT;
	struct paged_ticket ticket;
	paged_seq_id seq;

	attach("prefill");
	check(paged_seq_create(client, 1, &(struct paged_seq_params){ .pool = pool, .n_tokens = N_PROMPT }, &seq));
	step(seq, N_PROMPT, N_PROMPT, 1);
	print_pages("prefill", seq, N_PROMPT);
	check(paged_seq_give(pool, 1, &seq, &length, NULL, &ticket)); /* from now on it can only be read */
	if (write(to_decode, ticket.bytes, sizeof(ticket.bytes)) != (ssize_t)sizeof(ticket.bytes))
		perror("pipe");
	paged_client_close(client); /* the ticket keeps the sequence */
}

static void
decode(int from_prefill)
{
	struct paged_ticket ticket;
	uint32_t length;
	paged_seq_id seq;
	size_t n;

	attach("decode");
	if (read(from_prefill, ticket.bytes, sizeof(ticket.bytes)) != (ssize_t)sizeof(ticket.bytes)) {
		fprintf(stderr, "the prefill process ended without a ticket\n");
		exit(1);
	}
	wait(NULL); /* not needed: shows that the giver may be gone */
	check(paged_seq_adopt(pool, &ticket, 1, &seq, &length, &n));
	print_pages("decode", seq, length);
	for (uint32_t i = 0; i < N_ANSWER; i++)
		step(seq, 1, ++length, 0);
	print_pages("decode", seq, length);
	printf("attention of the last token: %g, the mean over %d ones of prefill and %d zeros of decode\n", out[0],
	       N_PROMPT, N_ANSWER);
	paged_client_close(client);
}

int
main(void)
{
	int ends[2];
	pid_t pid;

	/* A client does not survive a fork: each process opens its own. */
	if (pipe(ends) != 0 || (pid = fork()) < 0)
		return perror("handover"), 1;
	close(ends[pid != 0]);
	if (pid == 0)
		prefill(ends[1]);
	else
		decode(ends[0]);
	return 0;
}
