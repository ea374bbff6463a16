/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-over of a long sequence between two sessions, with a pagedd. */
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/processes.h"
#include "bench/rounds.h"
#include "bench/sharing/sharing_daemon.h"

#define LIMIT_S 60
#define N_TOKENS 32768u
#define N_LAYERS 32u /* of the model; the pool has one of them */

/* One layer of Llama 3 8B: 4 KiB a token, 128 MiB for the sequence. */
static const char configuration[] = "pool give {\n"
				    "  layers = 1  kv-heads = 8  head-dim = 128  dtype = f16\n"
				    "  page-size = 16  pages = 2304  sequences = 16  max-length = 32768\n"
				    "}\n";

static struct session {
	struct paged_client *client;
	struct paged_pool *pool;
} sessions[2];

static struct paged_pool_info info = { .struct_size = sizeof(info) };
static paged_seq_id given;
static uint32_t n_pages, pages[N_TOKENS];
static uint8_t *copy; /* [n_pages][page_stride] */

static void
give_open(void)
{
	const char *runtime_dir = bench_daemon_start(configuration);
	size_t n_bytes;

	for (int i = 0; i < 2; i++) {
		struct session *session = &sessions[i];

		bench_client_must(session->client, paged_client_open(runtime_dir, NULL, &session->client));
		bench_client_must(session->client, paged_pool_open(session->client, "give", &session->pool));
	}
	bench_client_must(sessions[0].client, paged_pool_get_info(sessions[0].pool, &info));
	bench_client_must(sessions[0].client,
			  paged_seq_create(sessions[0].client, 1,
					   &(struct paged_seq_params){ .pool = sessions[0].pool, .n_tokens = N_TOKENS },
					   &given));
	n_pages = N_TOKENS / info.page_size;
	bench_client_must(sessions[0].client, paged_seq_read(sessions[0].pool, given, NULL, pages, n_pages));
	n_bytes = n_pages * info.k.page_stride;
	copy = bench_alloc(1, n_bytes);
	memset(copy, 1, n_bytes);
}

static void
give_close(void)
{
	for (int i = 0; i < 2; i++)
		paged_client_close(sessions[i].client);
	free(copy);
	bench_daemon_stop();
}

/* There and back again, so that each sample starts with the same giver. */
static double
sample_give(const void *context)
{
	const uint32_t length = N_TOKENS;
	double us = 0;

	(void)context;
	for (int trip = 0; trip < BENCH_TRIPS; trip++) {
		struct session *giver = &sessions[trip % 2], *taker = &sessions[1 - trip % 2];
		uint64_t start = bench_now_ns();
		struct paged_ticket ticket;
		paged_seq_id adopted;
		uint32_t n_tokens;
		size_t n;

		bench_client_must(giver->client, paged_seq_give(giver->pool, 1, &given, &length, NULL, &ticket));
		bench_client_must(taker->client, paged_seq_adopt(taker->pool, &ticket, 1, &adopted, &n_tokens, &n));
		us += bench_since_us(start);
		if (n != 1 || adopted != given || n_tokens != length)
			bench_die("%u of %u tokens were adopted", n_tokens, length);
	}
	return us / BENCH_TRIPS;
}

static double
sample_copy(const void *context)
{
	uint64_t start = bench_now_ns();
	double us;

	(void)context;
	for (uint32_t i = 0; i < n_pages; i++)
		memcpy(copy + i * info.k.page_stride,
		       (const uint8_t *)info.base + info.k.offset + pages[i] * info.k.page_stride, info.k.page_stride);
	__asm__ volatile("" : : "r"(copy) : "memory");
	us = bench_since_us(start);
	/* The next sample is a ping: what the copy has evicted from the caches is there again. */
	for (int i = 0; i < 2; i++)
		(void)bench_ping_us(&sessions[i].client);
	return us * N_LAYERS;
}

void
sharing_give_run(struct bench_report *report)
{
#define COPY "memcpy of K and V of 32k (a layer, x 32)"
	static const struct bench_case cases[] = {
		BENCH_CASE("ping of a giver", "us", NULL, NULL, bench_ping_us, &sessions[0].client),
		{ .name = "give and adopt of 32k",
		  .unit = "us",
		  .limit = "ping of a giver",
		  .target = "<= 2.3",
		  .sample = sample_give,
		  .relations = { { BENCH_REFERENCE_LIMIT, BENCH_SPEEDUP, COPY, NULL } } },
		BENCH_CASE(COPY, "us", NULL, NULL, sample_copy, NULL),
	};

	_Static_assert(BENCH_TRIPS % 2 == 0, "a sample ends with the session that it began with");
	give_open();
	bench_rounds(report, cases, BENCH_N(cases), LIMIT_S);
	give_close();
}
