/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of e4m3 and i8 of a real pagedd: one process writes, another reads in place. */
#include <math.h>
#include <string.h>

#include "client/pagedclient.h"
#include "tests/support/geometry.h"
#include "tests/support/harness.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

#define LAYERS 2
#define KV_HEADS 2
#define Q_HEADS 4u
#define DIM 24
#define TOKENS 150u
#define PAGE_SIZE 16u
#define ROTARY_PAIRS (DIM / 2)

static const char pools[] = "pool eight { " POOL_SHAPE(
	LAYERS, KV_HEADS, DIM, e4m3) " pages = 32 }\n"
				     "pool whole { " POOL_SHAPE(LAYERS, KV_HEADS, DIM, i8) " pages = 32 }\n";
static const char *const names[] = { "eight", "whole" };
static const float k_scale[KV_HEADS] = { 0.01f, 0.02f }, v_scale[KV_HEADS] = { 0.005f, 1 };

struct session {
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
};

struct contents {
	float k[TOKENS][KV_HEADS][DIM], v[TOKENS][KV_HEADS][DIM], q[1][Q_HEADS][DIM], table[TOKENS][DIM];
};

/* Sent by the writer to the reader. */
struct result {
	paged_seq_id seq;
	float out[Q_HEADS][DIM], lse[Q_HEADS];
};

#define ok(session, call)                                                                     \
	do {                                                                                  \
		enum paged_status status_ = (call);                                           \
		it_require(status_ == PAGED_OK, "%s", paged_client_error((session)->client)); \
	} while (0)

static void
session_open(struct session *session, const char *name)
{
	*session = (struct session){ .info.struct_size = sizeof(session->info) };
	ok(session, paged_client_open(NULL, NULL, &session->client));
	ok(session, paged_pool_open(session->client, name, &session->pool));
	ok(session, paged_pool_get_info(session->pool, &session->info));
	ok(session, paged_batch_create(session->pool, NULL, &session->batch));
}

static void
contents_make(struct contents *contents)
{
	random_fill(contents->k[0][0], TOKENS * KV_HEADS * DIM, 1);
	random_fill(contents->v[0][0], TOKENS * KV_HEADS * DIM, 2);
	random_fill(contents->q[0][0], Q_HEADS * DIM, 3);
	for (uint32_t p = 0; p < TOKENS; p++)
		for (uint32_t i = 0; i < ROTARY_PAIRS; i++) {
			contents->table[p][i] = cosf((float)p * powf(10000, -(float)i / ROTARY_PAIRS));
			contents->table[p][ROTARY_PAIRS + i] = sinf((float)p * powf(10000, -(float)i / ROTARY_PAIRS));
		}
}

static const float *
scales(const struct session *session, const float *fp8_scales)
{
	return session->info.k.dtype == PAGED_I8 ? NULL : fp8_scales;
}

/* The last token's query, rotated like the keys. */
static void
append_and_attend(struct session *session, const struct contents *contents, struct result *result)
{
	float q[Q_HEADS][DIM];
	struct paged_tensor tq = { .data = q, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = DIM };
	struct paged_tensor to = { .data = result->out, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = DIM };
	const struct paged_attention_params params = { .struct_size = sizeof(params),
						       .lse = result->lse,
						       .k_scale = scales(session, k_scale),
						       .v_scale = scales(session, v_scale) };

	memcpy(q, contents->q, sizeof(q));
	ok(session,
	   paged_batch_plan(session->batch, 1,
			    &(struct paged_batch_row){
				    .seq = result->seq, .q_len = 1, .kv_len = TOKENS, .flags = PAGED_ROW_NO_APPEND }));
	ok(session, paged_attention(session->batch, 1, &tq, &to, &params));
	ok(session, paged_batch_validate(session->batch));
}

static void
writer(int from, int to, void *argument)
{
	static struct contents contents;
	struct session session;
	struct result result;
	const uint32_t n_tokens = TOKENS;
	const struct paged_rotary rotary = {
		.struct_size = sizeof(rotary), .cos_sin = contents.table[0], .n_positions = TOKENS, .dim = DIM
	};
	struct paged_tensor k = { .data = contents.k, .dtype = PAGED_F32, .n_heads = KV_HEADS, .dim = DIM };
	struct paged_tensor v = { .data = contents.v, .dtype = PAGED_F32, .n_heads = KV_HEADS, .dim = DIM };
	char word;

	contents_make(&contents);
	session_open(&session, argument);
	ok(&session, seqs_create(session.client, session.pool, 1, &result.seq));
	ok(&session, seqs_reserve(session.client, 1, &result.seq, &n_tokens));
	ok(&session,
	   paged_batch_plan(session.batch, 1,
			    &(struct paged_batch_row){ .seq = result.seq, .q_len = TOKENS, .kv_len = TOKENS }));
	ok(&session, paged_append(session.batch, 1, &k, &v,
				  &(struct paged_append_params){ .struct_size = sizeof(struct paged_append_params),
								 .k_scale = scales(&session, k_scale),
								 .v_scale = scales(&session, v_scale),
								 .rotary = &rotary }));
	append_and_attend(&session, &contents, &result);
	it_send(to, &result, sizeof(result));
	it_receive(from, &word, 1);
	paged_client_close(session.client);
}

static float
stored_element(const struct session *session, const uint32_t *pages, bool of_v, uint32_t head, uint32_t token,
	       uint32_t d)
{
	const struct paged_plane_info *plane = of_v ? &session->info.v : &session->info.k;
	const struct paged_plane_info *scale_plane = of_v ? &session->info.v_scale : &session->info.k_scale;
	const uint8_t *base = session->info.base;
	uint32_t page = pages[token / PAGE_SIZE], slot = token % PAGE_SIZE;
	float x = reference_load(base + plane->offset + plane->layer_stride + page * plane->page_stride +
					 head * plane->head_stride + slot * plane->token_stride,
				 plane->dtype, d),
	      scale;

	if (plane->dtype != PAGED_I8)
		return x * (of_v ? v_scale : k_scale)[head];
	memcpy(&scale,
	       base + scale_plane->offset + scale_plane->layer_stride + page * scale_plane->page_stride +
		       head * scale_plane->head_stride + slot * scale_plane->token_stride,
	       sizeof(scale));
	return x * scale;
}

/* Stored values are within the dtype's error; V is not rotated. */
static void
expect_stored_values(const struct session *session, const uint32_t *pages, const struct contents *contents)
{
	double unit = session->info.v.dtype == PAGED_I8 ? 0 : 0x1p-4;
	double less = session->info.v.dtype == PAGED_I8 ? 1.0 / 254 : 0x1p-10;

	for (uint32_t i = 0; i < TOKENS * KV_HEADS * DIM; i++) {
		uint32_t t = i / (KV_HEADS * DIM), h = i / DIM % KV_HEADS, d = i % DIM;
		double x = (double)contents->v[t][h][d], got = (double)stored_element(session, pages, true, h, t, d);

		it_require(fabs(got - x) <= unit * fabs(x) + less * 1.0001, "token %u head %u: %g for %g", t, h, got,
			   x);
	}
}

static void
expect_attention(const struct session *session, const uint32_t *pages, const struct contents *contents,
		 const struct result *result)
{
	static float k[TOKENS][DIM], v[TOKENS][DIM];

	for (uint32_t h = 0; h < Q_HEADS; h++) {
		struct reference_result wanted;

		for (uint32_t i = 0; i < TOKENS * DIM; i++) {
			k[i / DIM][i % DIM] = stored_element(session, pages, false, h / 2, i / DIM, i % DIM);
			v[i / DIM][i % DIM] = stored_element(session, pages, true, h / 2, i / DIM, i % DIM);
		}
		reference_attend(&(struct reference_q_row){ .q = contents->q[0][h],
							    .k = k[0],
							    .v = v[0],
							    .k_stride = DIM,
							    .v_stride = DIM,
							    .k_dim = DIM,
							    .v_dim = DIM,
							    .n_keys = TOKENS,
							    .scale = 1 / sqrt((double)DIM) },
				 &wanted);
		for (uint32_t d = 0; d < DIM; d++)
			it_require(fabs((double)result->out[h][d] - wanted.out[d]) <= wanted.out_tolerance + 1e-7,
				   "head %u dim %u: %g, expected %g", h, d, (double)result->out[h][d], wanted.out[d]);
	}
}

static void
reader(int from, int to, void *argument)
{
	static struct contents contents;
	uint32_t pages[(TOKENS + PAGE_SIZE - 1) / PAGE_SIZE];
	struct session session;
	struct result result, ours;

	contents_make(&contents);
	session_open(&session, argument);
	it_receive(from, &result, sizeof(result));
	ours.seq = result.seq;
	ok(&session, paged_seq_read(session.pool, result.seq, NULL, pages, sizeof(pages) / sizeof(pages[0])));
	append_and_attend(&session, &contents, &ours);
	it_require(memcmp(&result, &ours, sizeof(result)) == 0, "two processes, two results");
	expect_stored_values(&session, pages, &contents);
	expect_attention(&session, pages, &contents, &ours);
	paged_client_close(session.client);
	it_send(to, "r", 1);
}

IT_TEST(reader_sees_quantised_values_in_place)
{
	struct it_daemon daemon;
	struct it_worker first, second;
	struct result result;
	char word;

	it_daemon_start(&daemon, pools, NULL, NULL);
	for (int i = 0; i < 2; i++) {
		it_fork(&first, writer, (void *)(uintptr_t)names[i]);
		it_fork(&second, reader, (void *)(uintptr_t)names[i]);
		it_receive(first.from, &result, sizeof(result));
		it_send(second.to, &result, sizeof(result));
		it_receive(second.from, &word, 1);
		it_join(&second);
		it_send(first.to, "e", 1);
		it_join(&first);
	}
	it_daemon_stop(&daemon);
}

IT_TEST(pagedctl_prints_the_dtypes)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	it_daemon_start(&daemon, pools, NULL, NULL);
	output = it_pagedctl(&code, "pools", NULL);
	it_require(code == 0 && strstr(output, "e4m3") != NULL && strstr(output, "i8") != NULL, "%s", output);
	it_daemon_stop(&daemon);
}

IT_MAIN
